"""Bytes of constants, held once.

A :class:`Blob` is what ``#circle.blob`` attributes point to: read-only bytes with a SHA-256 digest. Two blobs are equal
when their digests are; clones of an operation share the object. Text may name a blob without its bytes (elided, or
given later in the same file); such a blob is unresolved and says so when its bytes are asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from odc_mlir.errors import ModelError

Found = TypeVar("Found")

# What is kept with a blob of what was computed from it.
_MOST_KEPT = 8


class Blob:
    """Immutable bytes identified by their SHA-256 digest, which is computed when first needed."""

    __slots__ = ("_data", "_digest", "_found", "name", "size")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.name: str | None = None  # of an operation that has it as constant, for errors about missing bytes
        view = memoryview(data)
        self._data: memoryview | None = view.cast("B").toreadonly() if view.nbytes else memoryview(b"")
        self._digest: str | None = None
        self._found: dict[Hashable, Any] = {}
        self.size = view.nbytes

    @classmethod
    def unresolved(cls, digest: str, size: int) -> Blob:
        """A blob of ``size`` bytes whose contents are not known (yet); ``digest`` is 64 hexadecimal digits."""
        blob = cls.__new__(cls)
        blob._data, blob._digest, blob.size, blob.name, blob._found = None, digest, size, None, {}
        return blob

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes in hexadecimal."""
        if self._digest is None:
            assert self._data is not None  # only `unresolved` leaves the bytes out, and it sets the digest
            self._digest = hashlib.sha256(self._data).hexdigest()
        return self._digest

    @property
    def is_resolved(self) -> bool:
        return self._data is not None

    @property
    def data(self) -> memoryview:
        """The bytes, read-only; raises ModelError where the text that this came from had left them out."""
        if self._data is None:
            raise ModelError(
                f"the {self.size} bytes of constant {self.digest[:12]} are not in this text",
                tensor=self.name,
                hint="print the IR with --constants keep, or start from the model file",
            )
        return self._data

    def found(self, key: Hashable, make: Callable[[], Found]) -> Found:
        """What ``make`` computes of the bytes and of ``key`` alone: clones, which share the blob, find it again.

        Only the last few are kept. ``make`` may raise.
        """
        if key not in self._found:
            value = make()
            if len(self._found) >= _MOST_KEPT:
                del self._found[next(iter(self._found))]
            self._found[key] = value
        found: Found = self._found[key]
        return found

    def resolve(self, data: bytes | memoryview) -> None:
        """Give an unresolved blob its bytes; raises ModelError when their size or digest is not the announced one."""
        found = Blob(data)
        if found.size != self.size or found.digest != self.digest:
            raise ModelError(
                f"constant {self.digest[:12]} of {self.size} bytes is damaged: "
                f"found {found.size} bytes with digest {found.digest[:12]}"
            )
        self._data = found._data

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Blob) and self.size == other.size and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Blob({self.digest[:12]}, {self.size} bytes{'' if self.is_resolved else ', unresolved'})"


class BlobPool:
    """Interns blobs by digest, so that equal constants of one text or model are one object."""

    def __init__(self) -> None:
        self._blobs: dict[str, Blob] = {}

    def intern(self, blob: Blob) -> Blob:
        """The pool's blob equal to ``blob``; ``blob`` itself becomes that when it is the first."""
        return self._blobs.setdefault(blob.digest, blob)

    @property
    def has_unresolved(self) -> bool:
        """Whether the bytes of some blob are unknown."""
        return not all(blob.is_resolved for blob in self._blobs.values())

    def find(self, digest: str) -> Blob | None:
        """The pool's blob with this digest."""
        return self._blobs.get(digest)
