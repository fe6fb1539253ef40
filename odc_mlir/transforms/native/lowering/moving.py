"""Moves of elements that do not depend on values: a map from result places to source places, made affine if it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.transforms.native.kernels.boxes import DIMENSIONS
from odc_mlir.transforms.native.lowering.segment_writer import SegmentFunction, raised

_FEW_BYTES = 32  # runs shorter than this are moved element by element


@dataclass(frozen=True)
class AffineCopy:
    """An affine map: runs of neighbours, and how far they lie apart in every dimension on either side."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    output_steps: tuple[int, ...]
    start: int
    output_start: int
    run: int


@dataclass(frozen=True)
class RunTable:
    """Any map: where each run of neighbours begins, -1 where nothing is moved to."""

    starts: NDArray[np.int32]
    run: int


Move = AffineCopy | RunTable


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours in each dimension."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def box(
    sizes: Sequence[int],
    steps: Sequence[int],
    output_steps: Sequence[int] | None = None,
    start: int = 0,
    output_start: int = 0,
) -> AffineCopy | None:
    """The box with these dimensions, as few as possible; None where kernels have not as many."""
    kept: list[tuple[int, int, int]] = []
    for size, step, output in zip(sizes, steps, output_steps or strides(sizes), strict=True):
        if size == 1:
            continue
        if kept and kept[-1][1:] == (size * step, size * output):
            kept[-1] = kept[-1][0] * size, step, output
        else:
            kept.append((size, step, output))
    run = kept.pop()[0] if kept and kept[-1][1:] == (1, 1) else 1
    if len(kept) > DIMENSIONS:
        return None
    columns = tuple(zip(*kept, strict=True)) or ((), (), ())
    return AffineCopy(columns[0], columns[1], columns[2], start, output_start, run)


def move_of(places: NDArray[Any]) -> Move:
    """How to move what is at ``places`` of the source, in the result's order; below zero nothing is."""
    flat = places.reshape(-1)
    if flat.size and int(flat.min()) >= 0:
        steps = [
            int(np.take(places, 1, axis).flat[0]) - int(flat[0]) if size > 1 else 0
            for axis, size in enumerate(places.shape)
        ]
        found = box(places.shape, steps, start=int(flat[0]))
        if found is not None and np.array_equal(places, int(flat[0]) + _sum_of_steps(places.shape, steps)):
            return found
    run = 1
    for split in range(places.ndim):
        length = math.prod(places.shape[split:])
        rows = flat.reshape(-1, length)
        wanted = np.where(rows[:, :1] < 0, rows[:, :1], rows[:, :1] + np.arange(length))
        if np.array_equal(rows, wanted):
            run = length
            break
    return RunTable(flat[::run].astype(np.int32), run)


def _sum_of_steps(shape: Sequence[int], steps: Sequence[int]) -> NDArray[np.int64]:
    total = np.zeros(shape, np.int64)
    for axis, (size, step) in enumerate(zip(shape, steps, strict=True)):
        total += (np.arange(size) * step).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return total


def places_of(node: Node, data: int) -> list[NDArray[Any]]:
    """For every result where its elements come from in operand ``data``, -1 for elements that come from nowhere.

    The host kernel says so, run on the numbers of all places: it is the only definition of masks and modes.
    """
    x = node.operand(data)
    numbers = np.arange(1, math.prod(x.static_shape) + 1, dtype=np.int32).reshape(x.static_shape)
    operands = tuple(
        replace(info, dtype="int32", quant=None) if index == data and info is not None else info
        for index, info in enumerate(node.operands)
    )
    results = tuple(replace(info, dtype="int32", quant=None) for info in node.results)
    counted = replace(node, operands=operands, results=results)
    given = [numbers if index == data else None for index in range(len(operands))]
    return [np.asarray(found) - 1 for found in counted.spec.kernel_function(counted)(given)]


def move(segment: SegmentFunction, plan: Move, source: SSAValue, target: SSAValue, item_bytes: int) -> None:
    """Write a move."""
    options = {"size": item_bytes, "single": int(plan.run * item_bytes < _FEW_BYTES)}
    if isinstance(plan, RunTable):
        segment.call(
            "copy_runs",
            options,
            input=source,
            output=target,
            table=segment.constant(plan.starts),
            rows=len(plan.starts),
            run=plan.run,
        )
        return
    missing = DIMENSIONS - len(plan.sizes)
    numbers = {
        f"{name}{i}": value
        for name, fill, row in (
            ("size", 1, plan.sizes),
            ("input_step", 0, plan.steps),
            ("output_step", 0, plan.output_steps),
        )
        for i, value in enumerate((*(fill,) * missing, *row))
    }
    segment.call(
        "copy_box",
        options,
        input=source,
        output=target,
        input_first=plan.start,
        output_first=plan.output_start,
        run=plan.run,
        **numbers,
    )


def expanded(segment: SegmentFunction, source: SSAValue, info: TensorInfo, shape: Sequence[int]) -> SSAValue:
    """A buffer with an operand repeated to ``shape``."""
    size = info.info.numpy.itemsize
    own = (1,) * (len(shape) - len(info.static_shape)) + info.static_shape
    places = np.broadcast_to(np.arange(math.prod(own), dtype=np.int32).reshape(own), shape)
    target = segment.allocate(math.prod(shape) * size)
    move(segment, move_of(places), source, target, size)
    return target


def transposed(segment: SegmentFunction, source: SSAValue, info: TensorInfo, order: Sequence[int]) -> SSAValue:
    """A buffer with an operand's dimensions in another order."""
    shape, size = info.static_shape, info.info.numpy.itemsize
    if list(order) == sorted(order):
        return source
    places = np.arange(math.prod(shape), dtype=np.int32).reshape(shape).transpose(order)
    target = segment.allocate(math.prod(shape) * size)
    move(segment, move_of(places), source, target, size)
    return target


def fill_bits(info: TensorInfo, value: Any) -> int:
    """An element as :meth:`SegmentFunction.fill` takes it: the bits of a real, a code as it is held."""
    array = np.asarray(value)
    return int(array.astype(np.float32).view(np.int32)) if info.info.kind == "float" else int(array) + raised(info)
