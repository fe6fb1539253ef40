"""Execution of models and compiled packages on host kernels and devices, independent of the compiler's IR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odc_mlir.runtime.session import Session, State, Status, tensorinfo

__all__ = ["Session", "State", "Status", "tensorinfo"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.session"), name)
