"""Compiler for quantised neural networks on an NPU: compile Circle models, run them, and explain cycles.

``run`` executes a model file or a compiled package. ``load``, ``lower`` and ``compile`` take a model through the
compiler. ``load_package`` opens a result of ``Package.save``. Importing this package is cheap, because functions import
modules at the first use. Running a model never loads the compiler.
"""

from __future__ import annotations

from odc_mlir._version import __version__

TYPE_CHECKING = False  # the import of typing takes longer than the rest of this module
if TYPE_CHECKING:
    from typing import Any

    from odc_mlir.compiler import lower, run_passes
    from odc_mlir.errors import OdcError
    from odc_mlir.ir_api import package, simulate
    from odc_mlir.linter import lint
    from odc_mlir.loading import from_torch, import_model, load
    from odc_mlir.ops.registry import register_custom_op
    from odc_mlir.optimizer import optimize
    from odc_mlir.runtime.api import compile, load_package, quantize, run
    from odc_mlir.runtime.package import Package
    from odc_mlir.runtime.validity import check

_HOME = {
    **dict.fromkeys(("compile", "load_package", "quantize", "run"), "runtime.api"),
    **dict.fromkeys(("from_torch", "import_model", "load"), "loading"),
    "lint": "linter",
    "optimize": "optimizer",
    "Package": "runtime.package",
    "check": "runtime.validity",
    "OdcError": "errors",
    "register_custom_op": "ops.registry",
    **dict.fromkeys(("lower", "run_passes"), "compiler"),
    **dict.fromkeys(("package", "simulate"), "ir_api"),
}

__all__ = [
    "OdcError",
    "Package",
    "__version__",
    "check",
    "compile",
    "from_torch",
    "import_model",
    "lint",
    "load",
    "load_package",
    "lower",
    "optimize",
    "package",
    "quantize",
    "register_custom_op",
    "run",
    "run_passes",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
