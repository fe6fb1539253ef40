"""Reasons for operators on the host. Placement rules write reasons to plans. Reports parse and group reasons."""

from __future__ import annotations

import re
from typing import NamedTuple

TYPE_RULE, MEMORY_RULE = "element-type", "fits-sram"


class TypeReason(NamedTuple):
    """Reason that the NPU lacks the element type of ``tensor``, a quoted name."""

    tensor: str
    dtype: str

    @property
    def text(self) -> str:
        """Reason without the name of its rule."""
        return f"{self.tensor} is {self.dtype}"

    def __str__(self) -> str:
        return f"{TYPE_RULE}: {self.text}"

    @classmethod
    def parse(cls, reason: str) -> TypeReason | None:
        """Return the reason in the text of a plan, or None for another kind of reason."""
        found = re.fullmatch(rf"{TYPE_RULE}: (.*) is (\w+)", reason, re.DOTALL)
        return None if found is None else cls(*found.groups())


class MemoryReason(NamedTuple):
    """Reason that an operator needs more SRAM than allowed.

    ``edge`` describes a tensor that is too large for SRAM: quoted name, bytes, and "enters" or "leaves".
    """

    needed_bytes: int
    allowed_bytes: int
    edge: tuple[str, int, str] | None = None

    @property
    def text(self) -> str:
        """Reason without the name of its rule."""
        text = f"{self.needed_bytes} bytes of {self.allowed_bytes}"
        return text if self.edge is None else "{}; {} of {} bytes {} the NPU as a whole".format(text, *self.edge)

    def __str__(self) -> str:
        return f"{MEMORY_RULE}: {self.text}"

    @classmethod
    def parse(cls, reason: str) -> MemoryReason | None:
        """Return the reason in the text of a plan, or None for another kind of reason."""
        found = re.fullmatch(rf"{MEMORY_RULE}: (\d+) bytes of (\d+)(?:; (.*))?", reason, re.DOTALL)
        if found is None:
            return None
        edge = re.fullmatch(r"(.*) of (\d+) bytes (enters|leaves) the NPU as a whole", found[3] or "", re.DOTALL)
        return cls(int(found[1]), int(found[2]), None if edge is None else (edge[1], int(edge[2]), edge[3]))
