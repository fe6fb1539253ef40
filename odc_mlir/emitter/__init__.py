"""From finished instructions to bytes: the binary of a segment, and its text listing.

:func:`emit_segment` is imported by name when asked for, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odc_mlir.emitter.segment import emit_segment, instructions

__all__ = ["emit_segment", "instructions"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from odc_mlir.emitter import segment

    return getattr(segment, name)
