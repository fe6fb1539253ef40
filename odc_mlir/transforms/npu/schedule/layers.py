"""Tensor operations as the instruction streams need them: buffers, geometry and every integer of the instructions.

Read from the ``npu`` tensor operations by :mod:`odc_mlir.transforms.npu.schedule.layer_ir`. Code types are names of the
instruction set's element types (``u8``, ``i8``); tensors are dense NHWC in their buffers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from odc_mlir.transforms.npu.schedule.geometry import Window
from odc_mlir.transforms.npu.schedule.moves import Piece
from odc_mlir.transforms.npu.schedule.program import Buffer
from odc_mlir.transforms.npu.schedule.residence import Layout

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """Fixed-point factor of a quantised result."""

    multiplier: int = 0
    exponent: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """How finished results become codes."""

    zero: int
    low: int
    high: int

    @property
    def fields(self) -> dict[str, int]:
        return {"out_zero": self.zero, "act_min": self.low, "act_max": self.high}


@dataclass(eq=False, frozen=True, slots=True)
class Tensor:
    """A buffer with its logical shape and code type. ``layout``: how it lies in the tile buffer, where it stays."""

    buffer: Buffer
    shape: Shape
    type: str
    layout: Layout | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(eq=False, frozen=True, slots=True)
class ConvLayer:
    """``weights``: codes ``[O, kh, kw, I]``, depthwise ``[kh, kw, O]``; others: a value per result channel."""

    index: int
    source: Tensor
    result: Tensor
    window: Window
    weights: NDArray[Any]
    weight_type: str
    in_zero: int
    weight_zero: int
    output: Output
    bias: NDArray[Any]
    multiplier: NDArray[Any]
    exponent: NDArray[Any]


@dataclass(eq=False, frozen=True, slots=True)
class PoolLayer:
    index: int
    source: Tensor
    result: Tensor
    window: Window
    kind: str
    output: Output


@dataclass(eq=False, frozen=True, slots=True)
class ElementwiseLayer:
    """Binary ``kind`` with broadcasting, or ``scale``/``lut`` of ``a`` alone; ``table``: 256 bytes of a lut."""

    index: int
    a: Tensor
    b: Tensor | None
    result: Tensor
    kind: str
    a_zero: int
    b_zero: int
    left_shift: int
    a_scale: Scale
    b_scale: Scale
    out_scale: Scale
    output: Output
    table: bytes = b""


@dataclass(eq=False, frozen=True, slots=True)
class ReduceLayer:
    """Over all pixels of each image of ``[N, H, W, C]``."""

    index: int
    source: Tensor
    result: Tensor
    kind: str
    in_zero: int
    scale: Scale
    output: Output


@dataclass(eq=False, frozen=True, slots=True)
class SoftmaxLayer:
    """Along the last axis."""

    index: int
    source: Tensor
    result: Tensor
    scale: Scale
    diff_min: int


@dataclass(eq=False, frozen=True, slots=True)
class MoveLayer:
    """Codes of ``sources`` go where ``pieces`` say; ``fill``: code of all other results, None where there are none."""

    index: int
    sources: tuple[Tensor, ...]
    result: Tensor
    pieces: tuple[Piece, ...]
    fill: int | None


Layer = MoveLayer | ConvLayer | PoolLayer | ElementwiseLayer | ReduceLayer | SoftmaxLayer
