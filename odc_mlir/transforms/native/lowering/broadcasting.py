"""How operands of element-wise operators broadcast, as far as kernels can; others are repeated first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from odc_mlir.ops.spec import TensorInfo
from odc_mlir.transforms.native.kernels.elements import OPERANDS
from odc_mlir.transforms.native.kernels.pairs import BY_COLUMN, BY_ROW, FULL, SINGLE
from odc_mlir.transforms.native.lowering.moving import expanded
from odc_mlir.transforms.native.lowering.segment_writer import Number, SegmentFunction, held_constant


@dataclass(frozen=True)
class Broadcast:
    """The result as rows and columns, and how every operand is read there; None: it has to be repeated."""

    shape: tuple[int, ...]
    rows: int
    columns: int
    found: tuple[int | None, ...]

    @property
    def ways(self) -> tuple[int, ...]:
        """As kernels read operands that are repeated where they have to be."""
        return tuple(FULL if way is None else way for way in self.found)

    def buffers(
        self, segment: SegmentFunction, infos: Sequence[TensorInfo], values: Sequence[SSAValue]
    ) -> list[SSAValue]:
        """The operands' buffers."""
        result = []
        for info, value, way in zip(infos, values, self.found, strict=True):
            source = held_constant(segment, info) if info.is_const else segment.tensor(value)
            result.append(expanded(segment, source, info, self.shape) if way is None else source)
        return result

    def call(
        self,
        segment: SegmentFunction,
        op: Operation,
        kernel: str,
        options: Mapping[str, int],
        infos: Sequence[TensorInfo],
        out: TensorInfo,
        values: Sequence[SSAValue] | None = None,
        **arguments: Number,
    ) -> None:
        """Call a kernel that computes the result of ``op`` element by element from ``values`` (None: its operands).

        It takes the buffers ``a``, ``b`` and so on, options of these names that say how they are read, ``output``,
        ``rows`` and ``columns``; ``options`` and ``arguments`` are what else it takes.
        """
        names = OPERANDS[: len(infos)]
        buffers = self.buffers(segment, infos, op.operands[: len(infos)] if values is None else values)
        segment.call(
            kernel,
            {**options, **dict(zip(names, self.ways, strict=True))},
            **dict(zip(names, buffers, strict=True)),
            **arguments,
            output=segment.result(op.results[0], out),
            rows=self.rows,
            columns=self.columns,
        )


def broadcast(infos: Sequence[TensorInfo], out: TensorInfo) -> Broadcast:
    """The split into rows and columns that repeats the fewest operands."""
    shape = out.static_shape
    shapes = [(1,) * (len(shape) - len(info.static_shape)) + info.static_shape for info in infos]
    splits = [tuple(_way(own, shape, split) for own in shapes) for split in range(len(shape) + 1)]
    best = min(range(len(splits)), key=lambda split: splits[split].count(None))
    return Broadcast(shape, math.prod(shape[:best]), math.prod(shape[best:]), splits[best])


def _way(own: tuple[int, ...], shape: tuple[int, ...], split: int) -> int | None:
    """How an operand is read where dimensions before ``split`` are rows; None where that is no way."""
    if own == shape:
        return FULL
    if all(size == 1 for size in own):
        return SINGLE
    if own[split:] == shape[split:] and all(size == 1 for size in own[:split]):
        return BY_COLUMN
    if own[:split] == shape[:split] and all(size == 1 for size in own[split:]):
        return BY_ROW
    return None
