"""Bytes of constants, stored once.

A :class:`Blob`, the value of a ``#circle.blob`` attribute, has read-only bytes and a SHA-256 digest. IR text refers to
a blob by a handle, ``sha256_4f5a…``. MLIR's resource section holds the bytes of resolved blobs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from xdsl.dialect_interfaces.op_asm import OpAsmDialectInterface

from odc_mlir.errors import ModelError

Found = TypeVar("Found")

# Number of cached results computed from a blob.
_MOST_KEPT = 8


class Blob:
    """Immutable bytes, identified by the SHA-256 digest."""

    __slots__ = ("__weakref__", "_data", "_digest", "_found", "name", "size")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.name: str | None = None  # name of an operation with this constant, for errors about missing bytes
        view = memoryview(data)
        self._data: memoryview | None = view.cast("B").toreadonly() if view.nbytes else memoryview(b"")
        self._digest: str | None = None
        self._found: dict[Hashable, Any] = {}
        self.size = view.nbytes

    @classmethod
    def unresolved(cls, digest: str, size: int) -> Blob:
        """Return a blob of ``size`` bytes with unknown contents. ``digest`` has 64 hexadecimal digits."""
        blob = cls.__new__(cls)
        blob._data, blob._digest, blob.size, blob.name, blob._found = None, digest, size, None, {}
        return blob

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes in hexadecimal."""
        if self._digest is None:
            assert self._data is not None  # a blob without bytes has a digest, see `unresolved`
            self._digest = hashlib.sha256(self._data).hexdigest()
        return self._digest

    @property
    def handle(self) -> str:
        return f"{_HANDLE}{self.digest}"

    @property
    def is_resolved(self) -> bool:
        return self._data is not None

    @property
    def data(self) -> memoryview:
        """Read-only bytes. Raises ModelError if the source text omitted the bytes."""
        if self._data is None:
            raise ModelError(
                f"the {self.size} bytes of constant {self.digest[:12]} are not in this text",
                tensor=self.name,
                hint="print the IR with --constants keep, or start from the model file",
            )
        return self._data

    def found(self, key: Hashable, make: Callable[[], Found]) -> Found:
        """Return ``make()``, cached by ``key`` for all users of the blob.

        The result must depend only on the bytes and the key. Only the last few results are kept. ``make`` may raise.
        """
        if key not in self._found:
            value = make()
            if len(self._found) >= _MOST_KEPT:
                del self._found[next(iter(self._found))]
            self._found[key] = value
        found: Found = self._found[key]
        return found

    def resolve(self, data: bytes | memoryview) -> None:
        """Set the bytes of an unresolved blob. Raises ModelError for another size or digest than announced."""
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


_HANDLE = "sha256_"
_ALIGNMENT = (16).to_bytes(4, "little").hex()  # prefix of the bytes of a resource, as in MLIR
_IS_HANDLE = re.compile(_HANDLE + "[0-9a-f]{64}")
# Blobs by handle: unresolved blobs in parsed text, and printed blobs.
_UNRESOLVED: WeakValueDictionary[str, Blob] = WeakValueDictionary()
_PRINTED: WeakValueDictionary[str, Blob] = WeakValueDictionary()


class BlobResources(OpAsmDialectInterface):
    """Bytes of a dialect's blobs in the resource section of a text."""

    def declare_resource(self, key: str) -> str:
        """Return ``key``, which is unique because equal digests mean equal bytes."""
        return key

    def parse_resource(self, key: str, val: str) -> None:
        """Resolve the blob with handle ``key``, if any. Raises ModelError for damaged or malformed bytes."""
        blob = _UNRESOLVED.get(key)
        if blob is None:
            return  # no attribute refers to this blob
        try:
            data = bytes.fromhex(val.removeprefix("0x"))
        except ValueError:
            raise ModelError("a resource is not hexadecimal") from None
        blob.resolve(memoryview(data)[len(_ALIGNMENT) // 2 :])
        _UNRESOLVED.pop(key, None)

    def lookup(self, key: str) -> str | None:
        """Return the resource text of a printed blob, or None if the bytes are unknown."""
        blob = _PRINTED.get(key)
        return resource_text(blob) if blob is not None and blob.is_resolved else None

    def build_resources(self, keys: Iterable[str]) -> dict[str, str]:
        """Return resource texts of printed blobs by handle, except blobs with unknown bytes."""
        return {key: text for key in keys if (text := self.lookup(key)) is not None}


def resource_text(blob: Blob) -> str:
    """Return the text of ``blob`` in a resource section. Raises ModelError if the bytes are unknown."""
    return f"0x{_ALIGNMENT}{blob.data.hex()}"


def named_blob(handle: str, size: int) -> Blob:
    """Return the blob of ``size`` bytes with a handle in IR text. The resource section may resolve it later.

    Raises ValueError for a malformed handle.
    """
    if not _IS_HANDLE.fullmatch(handle):
        raise ValueError("expected 0x and hexadecimal bytes, or sha256_ and a digest of 64 lower-case digits")
    blob = _UNRESOLVED.get(handle)
    if blob is None or blob.size != size:
        blob = _UNRESOLVED[handle] = Blob.unresolved(handle.removeprefix(_HANDLE), size)
    return blob


def record_printed(blob: Blob) -> None:
    """Keep ``blob`` until xDSL's printer requests the resources of the printed text."""
    _PRINTED[blob.handle] = blob


def are_unresolved() -> bool:
    """Return whether there are blobs with missing bytes."""
    return bool(_UNRESOLVED)
