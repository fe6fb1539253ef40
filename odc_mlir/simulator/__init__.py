"""NPU simulator: runs a ``.npu`` file on input arrays, and returns output arrays, cycles and counters.

``load(data) -> Program`` checks a file. ``simulate(program, inputs) -> Result`` runs the program once. Values and time
are computed in the same pass over the instructions, so every computation has a cost. ``docs/npu.md`` specifies both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odc_mlir.simulator.counters import Counters
    from odc_mlir.simulator.explaining import explain
    from odc_mlir.simulator.program import Program, load
    from odc_mlir.simulator.run import MEMORY_MODELS, MODES, MemoryModel, Mode, Result, simulate, simulate_memory

__all__ = [
    "MEMORY_MODELS",
    "MODES",
    "Counters",
    "MemoryModel",
    "Mode",
    "Program",
    "Result",
    "explain",
    "load",
    "simulate",
    "simulate_memory",
]

_HOME = dict.fromkeys(("MEMORY_MODELS", "MODES", "MemoryModel", "Mode", "Result", "simulate", "simulate_memory"), "run")
_HOME |= {"explain": "explaining", "Counters": "counters", "Program": "program", "load": "program"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
