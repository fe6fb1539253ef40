"""A tensor operation and where its tensors are: all that lowering knows beside the operation itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_memory import element_bytes
from odc_mlir.transforms.npu.schedule.geometry import WindowGeometry
from odc_mlir.transforms.npu.schedule.program import Buffer, Place
from odc_mlir.transforms.npu.schedule.residents import Layout

Op = TypeVar("Op", bound=npu.NpuTensorOp, covariant=True)


@dataclass(eq=False, frozen=True, slots=True)
class LayerTensor:
    """A buffer with its logical shape and code type. ``layout``: how it lies in the tile buffer, where it stays.

    ``start``: the first byte in the buffer, which may hold other tensors in front of and behind this one.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    type: str
    layout: Layout | None = None
    start: int = 0

    def at(self, offset: int) -> Place:
        """The place ``offset`` bytes behind the first one."""
        return self.buffer, self.start + offset

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return element_bytes(self.type)


@dataclass(eq=False, frozen=True, slots=True)
class Layer(Generic[Op]):
    """An operation with its operands and its results; tensors are dense NHWC in their buffers, but for residents."""

    op: Op
    sources: tuple[LayerTensor, ...]
    results: tuple[LayerTensor, ...]

    @property
    def source(self) -> LayerTensor:
        """The first operand."""
        return self.sources[0]

    @property
    def result(self) -> LayerTensor:
        """The first result."""
        return self.results[0]


@dataclass(eq=False, frozen=True, slots=True)
class WindowLayer(Layer[Op]):
    """A convolution or pooling with its geometry."""

    window: WindowGeometry
