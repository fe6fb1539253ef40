"""Binaries and listings of programs, and files of native code.

Functions are imported on first use, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odc_mlir.emitter.program import emit_program, instructions, operator_kinds

__all__ = ["emit_program", "instructions", "operator_kinds"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from odc_mlir.emitter import program

    return getattr(program, name)
