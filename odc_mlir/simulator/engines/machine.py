"""State that all engines use: memories, target, prepared operands, and the cost of an instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import SimulationError
from odc_mlir.isa.fields import LARGEST_SHIFT, TYPES
from odc_mlir.isa.weight_coding import decode
from odc_mlir.simulator.memories import Access, Memories, SimulatedMemory
from odc_mlir.targets import MemoryMode, Target

DTYPES = tuple(np.dtype(name) for name in ("u1", "i1", "<i2", "<i4"))  # in the order of the type codes
_PREPARED_ENTRIES = 64
_DECODED_STREAMS = 1024

Values = Mapping[str, int]
T = TypeVar("T")


@dataclass(slots=True)
class InstructionCost:
    """Cost of an instruction in cycles, except traffic and latency of memory accesses.

    ``start``, ``drain``: time before and after the main phase.
    ``shortest``: minimum duration of the main phase.
    ``lanes``: number of results through the requantisation lanes.
    ``symbols``: number of weights through the decoder.
    ``macs``: useful multiply-accumulates.
    ``array_macs``: occupied multiplier slots.
    """

    start: float = 0.0
    shortest: float = 0.0
    lanes: float = 0.0
    symbols: float = 0.0
    drain: float = 0.0
    macs: int = 0
    array_macs: int = 0


@dataclass(slots=True)
class Machine:
    """State of one NPU during one run."""

    target: Target
    memory: MemoryMode
    memories: Memories
    access: Access
    execute: bool
    prepared: dict[tuple[object, ...], tuple[int, Any]]
    weights: dict[tuple[str, bytes, int], NDArray[np.uint8]] = field(default_factory=dict)

    def prepare(self, space: SimulatedMemory, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return ``make()``, operands in a form for numpy, cached until the next write to ``space``."""
        kept = self.prepared.get(key)
        if kept is not None and kept[0] == space.version:
            value: T = kept[1]
            return value
        if len(self.prepared) >= _PREPARED_ENTRIES:
            self.prepared.clear()
        value = make()
        self.prepared[key] = (space.version, value)
        return value

    def decoded(self, coding: str, data: bytes, count: int) -> NDArray[np.uint8]:
        """Return the weights in ``data``, cached for later loads. Raises SimulationError."""
        key = (coding, data, count)
        if key not in self.weights:
            if len(self.weights) >= _DECODED_STREAMS:
                self.weights.clear()
            self.weights[key] = decode(coding, data, count)
        return self.weights[key]


Executor = Callable[[Machine, Values], InstructionCost]


def ceil_div(a: int, b: int) -> int:
    """Return ``a / b`` rounded up."""
    return -(-a // b)


def require(holds: bool, message: str) -> None:
    """Raise SimulationError unless ``holds``."""
    if not holds:
        raise SimulationError(message)


def check_pixels(rows: int, columns: int, pixel: int, stride_y: int, stride_x: int) -> None:
    """Raise SimulationError if any of ``rows`` x ``columns`` pixels of ``pixel`` bytes overlap."""
    row = (columns - 1) * stride_x + pixel
    require(columns == 1 or stride_x >= pixel, f"in_stride_x is {stride_x}, a pixel has {pixel} bytes")
    require(rows == 1 or stride_y >= row, f"in_stride_y is {stride_y}, a row has {row} bytes")


def check_type(values: Values, field: str, *allowed: str) -> np.dtype[Any]:
    """Return the numpy dtype of a type field. Raises SimulationError if ``allowed`` lacks it."""
    name = TYPES[values[field]]
    require(name in allowed, f"field {field} is {name}, allowed: {', '.join(allowed)}")
    return DTYPES[values[field]]


def check_clamp(values: Values, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return ``(act_min, act_max)``. Raises SimulationError if they are not a range of codes of ``dtype``."""
    limits = np.iinfo(dtype)
    low, high = values["act_min"], values["act_max"]
    require(
        int(limits.min) <= low <= high <= int(limits.max),
        f"result range {low}..{high} is not inside {limits.min}..{limits.max}",
    )
    return low, high


def check_scale(values: Values, name: str) -> tuple[int, int]:
    """Return ``(multiplier, exponent)`` of the scale ``name``. Raises SimulationError for an invalid shift."""
    exponent = values[f"{name}_exponent"]
    require(abs(exponent) <= LARGEST_SHIFT, f"field {name}_exponent is {exponent}, allowed: -31..31")
    return values[f"{name}_multiplier"], exponent


def typed(
    data: NDArray[Any], dtype: np.dtype[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> NDArray[Any]:
    """Return a view of a byte memory as an array with byte strides. A stride of 0 repeats elements."""
    return np.ndarray(shape, dtype, data.data, offset, strides)
