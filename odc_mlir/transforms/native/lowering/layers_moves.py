"""Operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from xdsl.ir import Operation

from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.common import quantised_zero
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.lowering.segment_writer import (
    HELD,
    Plan,
    Segment,
    Write,
    held_constant,
    raised,
    refusal,
    require_same_codes,
    size_bytes,
)

_DIMENSIONS = 4


def view(node: Node, machine: CpuTarget) -> Write:
    """Another shape of the same elements."""
    x = node.operand(0)
    if x.dtype not in HELD or x.is_const:
        raise refusal(node, f"an input of {x.dtype} has no native kernel")
    require_same_codes(node, x, node.results[0])

    def write(segment: Segment, op: Operation) -> None:
        segment.tensors[op.results[0]] = segment.tensor(op.operands[0])

    return write


def concatenation(node: Node, machine: CpuTarget) -> Write:
    """Tensors beside each other."""
    out = node.results[0]
    infos = [node.operand(i) for i in range(len(node.operands))]
    if out.dtype not in HELD:
        raise refusal(node, f"operands of {out.dtype} have no native kernel")
    require_same_codes(node, *infos, out)
    axis = int(node.options["axis"]) % len(out.static_shape)
    rows = math.prod(out.static_shape[:axis])
    sizes = [size_bytes(info) // rows for info in infos]

    def write(segment: Segment, op: Operation) -> None:
        target = segment.result(op.results[0], out)
        first = 0
        for value, info, size in zip(op.operands, infos, sizes, strict=True):
            segment.call(
                "copy_rows",
                {},
                input=held_constant(segment, info) if info.is_const else segment.tensor(value),
                output=target,
                rows=rows,
                row_bytes=size,
                input_pitch=size,
                first=first,
                pitch=sum(sizes),
            )
            first += size

    return write


def transpose(node: Node, machine: CpuTarget) -> Write:
    """Dimensions in another order."""
    x, out = _moved(node), node.results[0]
    require_same_codes(node, x, out)
    order = [int(axis) % len(x.static_shape) for axis in _constant(node, 1)]
    steps = strides(x.static_shape)
    sizes, moves = _folded(node, [(x.static_shape[axis], steps[axis]) for axis in order])

    def write(segment: Segment, op: Operation) -> None:
        source = segment.tensor(op.operands[0])
        segment.copy_strided(source, segment.result(op.results[0], out), sizes, moves, start=0, kernel=_copier(x))

    return write


def strided_slice(node: Node, machine: CpuTarget) -> Write:
    """A box of every so many elements."""
    x, out = _moved(node), node.results[0]
    require_same_codes(node, x, out)
    for index in range(1, len(node.operands)):
        _constant(node, index)
    # What the definition makes of its masks is found by running it on the numbers of all places.
    places = np.arange(math.prod(x.static_shape), dtype=np.int32).reshape(x.static_shape)
    numbers = replace(
        node,
        operands=(replace(x, dtype="int32", quant=None), *node.operands[1:]),
        results=(replace(out, dtype="int32", quant=None),),
    )
    found = np.asarray(numbers.spec.kernel_function(numbers)([places, *[None] * (len(node.operands) - 1)])[0])
    start = int(found.flat[0])
    sizes, moves = _folded(node, [(size, _step(found, axis)) for axis, size in enumerate(found.shape)])

    def write(segment: Segment, op: Operation) -> None:
        source = segment.tensor(op.operands[0])
        segment.copy_strided(source, segment.result(op.results[0], out), sizes, moves, start=start, kernel=_copier(x))

    return write


def pad(node: Node, machine: CpuTarget) -> Write:
    """A border of zeros around a tensor."""
    x, out = _moved(node), node.results[0]
    require_same_codes(node, x, out)
    value = quantised_zero(node, out) + raised(out)
    if len(node.operands) > 2:
        if not node.operand(2).is_const:
            raise refusal(node, "a computed border has no native kernel")
        given = node.const(2).reshape(-1)[0]
        value = int(given.view(np.int32)) if given.dtype == np.float32 else int(given) + raised(out)
    before = np.asarray(_constant(node, 1)).reshape(-1, 2)[:, 0]
    target_steps = strides(out.static_shape)
    first = int(sum(int(b) * step for b, step in zip(before, target_steps, strict=True)))
    if len(x.static_shape) > _DIMENSIONS:
        raise refusal(node, f"{len(x.static_shape)} dimensions have no native kernel")

    def write(segment: Segment, op: Operation) -> None:
        result = segment.result(op.results[0], out)
        segment.fill(result, out, value)
        segment.copy_strided(
            segment.tensor(op.operands[0]),
            result,
            x.static_shape,
            strides(x.static_shape),
            start=0,
            output_steps=target_steps,
            output_first=first,
            kernel=_copier(x),
        )

    return write


def _copier(info: TensorInfo) -> str:
    return "copy_strided" if info.info.numpy.itemsize == 4 else "copy_strided_bytes"


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours in each dimension."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _moved(node: Node) -> TensorInfo:
    x = node.operand(0)
    if x.dtype not in HELD or x.is_const:
        raise refusal(node, f"an input of {x.dtype} has no native kernel")
    return x


def _constant(node: Node, index: int) -> Sequence[int]:
    info = node.operand(index)
    if not info.is_const:
        raise refusal(node, f"a computed {info.name!r} has no native kernel")
    return [int(value) for value in info.array().reshape(-1)]


def _step(places: np.ndarray, axis: int) -> int:
    """By how much the place grows along an axis."""
    if places.shape[axis] < 2:
        return 0
    return int(np.take(places, 1, axis).flat[0] - np.take(places, 0, axis).flat[0])


def _folded(node: Node, dimensions: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(size, step) of every dimension, with those that go on from one another made one, as few as kernels take."""
    kept: list[tuple[int, int]] = []
    for size, step in dimensions:
        if size == 1:
            continue
        if kept and kept[-1][1] == size * step:
            kept[-1] = kept[-1][0] * size, step
        else:
            kept.append((size, step))
    if len(kept) > _DIMENSIONS:
        raise refusal(node, f"a permutation of {len(kept)} dimensions has no native kernel")
    sizes, steps = zip(*kept, strict=True) if kept else ((1,), (0,))
    return tuple(sizes), tuple(steps)


PLANS: dict[str, Plan] = {
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), view),
    "CONCATENATION": concatenation,
    "TRANSPOSE": transpose,
    "STRIDED_SLICE": strided_slice,
    "SLICE": strided_slice,
    "PAD": pad,
    "PADV2": pad,
}
