"""Operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Callable

from xdsl.ir import Operation

from odc_mlir.ops.infer.indexing import gather_axes
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.common import quantised_zero
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.lowering.moving import box, fill_bits, move, move_of, places_of, strides
from odc_mlir.transforms.native.lowering.segment_writer import (
    HELD,
    CallPlanner,
    SegmentFunction,
    Write,
    count,
    held_constant,
    refusal,
    require_same_codes,
    size_bytes,
)

_FEW_BYTES = 32


def view(node: Node, machine: CpuTarget) -> Write:
    """Another shape of the same elements."""
    x = _held(node, node.operand(0))
    require_same_codes(node, x, node.results[0])

    def write(segment: SegmentFunction, op: Operation) -> None:
        segment.tensors[op.results[0]] = segment.tensor(op.operands[0])

    return write


def concatenation(node: Node, machine: CpuTarget) -> Write:
    """Tensors beside each other."""
    out = node.results[0]
    infos = [node.operand(i) for i in range(len(node.operands))]
    _held(node, out)
    require_same_codes(node, *infos, out)
    if node.options.get("fused_activation_function", "none") not in ("none", None):
        raise refusal(node, "a fused activation has no native kernel")
    axis = int(node.options["axis"]) % len(out.static_shape)  # of PACK the new one
    rows = math.prod(out.static_shape[:axis])
    sizes = [size_bytes(info) // rows for info in infos]

    def write(segment: SegmentFunction, op: Operation) -> None:
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


def moved(data: int = 0, *, fills: bool = False) -> CallPlanner:
    """An operator that gives elements of operand ``data`` other places; ``fills``: and zeros to the rest."""

    def plan(node: Node, machine: CpuTarget) -> Write:
        x = _held(node, node.operand(data))
        require_same_codes(node, x, *node.results)
        for index, info in enumerate(node.operands):
            if index != data and info is not None and not info.is_const:
                raise refusal(node, f"a computed {info.name!r} has no native kernel")
        plans = [move_of(places) for places in places_of(node, data)]

        def write(segment: SegmentFunction, op: Operation) -> None:
            for value, out, found in zip(op.results, node.results, plans, strict=True):
                target = segment.result(value, out)
                if fills:
                    segment.fill(target, out, fill_bits(out, quantised_zero(node, out)))
                move(segment, found, segment.tensor(op.operands[data]), target, x.info.numpy.itemsize)

        return write

    return plan


def pad(node: Node, machine: CpuTarget) -> Write:
    """A border of one value around a tensor."""
    x, out = _held(node, node.operand(0)), node.results[0]
    require_same_codes(node, x, out)
    value = fill_bits(out, quantised_zero(node, out))
    if len(node.operands) > 2:
        if not node.operand(2).is_const:
            raise refusal(node, "computed padding has no native kernel")
        value = fill_bits(out, node.const(2).reshape(-1)[0])
    if not node.operand(1).is_const:
        raise refusal(node, "a computed padding size has no native kernel")
    before = node.operand(1).array().reshape(-1, 2)[:, 0]
    steps = strides(out.static_shape)
    first = int(sum(int(b) * step for b, step in zip(before, steps, strict=True)))
    found = box(x.static_shape, strides(x.static_shape), steps, output_start=first)
    if found is None:
        raise refusal(node, f"{len(x.static_shape)} dimensions have no native kernel")

    def write(segment: SegmentFunction, op: Operation) -> None:
        result = segment.result(op.results[0], out)
        segment.fill(result, out, value)
        move(segment, found, segment.tensor(op.operands[0]), result, x.info.numpy.itemsize)

    return write


def gather(node: Node, machine: CpuTarget) -> Write:
    """Slices along an axis, where constant or computed indices say."""
    x, indices, out = node.operand(0), node.operand(1), node.results[0]
    if indices.is_const and not x.is_const:
        return moved()(node, machine)
    _held_or_constant(node, x)
    require_same_codes(node, x, out)
    axis, batch = gather_axes(node, len(x.static_shape), len(indices.static_shape))
    if batch or indices.dtype not in ("int32", "int64") or indices.is_const:
        raise refusal(node, "batches of indices have no native kernel")
    outer, run = math.prod(x.static_shape[:axis]), math.prod(x.static_shape[axis + 1 :])
    size = x.info.numpy.itemsize

    def write(segment: SegmentFunction, op: Operation) -> None:
        segment.call(
            "gather",
            {"size": size, "index": indices.info.numpy.itemsize, "single": int(run * size < _FEW_BYTES)},
            input=held_constant(segment, x) if x.is_const else segment.tensor(op.operands[0]),
            indices=segment.tensor(op.operands[1]),
            output=segment.result(op.results[0], out),
            status=segment.status,
            outer=outer,
            taken=count(indices),
            axis=x.static_shape[axis],
            run=run,
        )

    return write


def filled(value_of: Callable[[Node], object]) -> CallPlanner:
    """A tensor of one value that is known."""

    def plan(node: Node, machine: CpuTarget) -> Write:
        out = _held(node, node.results[0])
        value = value_of(node)
        if value is None or out.dtype == "int64":
            raise refusal(node, "a computed value has no native kernel")

        def write(segment: SegmentFunction, op: Operation) -> None:
            segment.fill(segment.result(op.results[0], out), out, fill_bits(out, value))

        return write

    return plan


def _zero(node: Node) -> object:
    return quantised_zero(node, node.results[0])


def _given(node: Node) -> object:
    return node.const(1).reshape(-1)[0] if node.operand(1).is_const else None


def _held(node: Node, info: TensorInfo) -> TensorInfo:
    if info.dtype not in HELD or info.is_const:
        kind = "a constant" if info.is_const else "an"
        raise refusal(node, f"{kind} input of {info.dtype} has no native kernel")
    return info


def _held_or_constant(node: Node, info: TensorInfo) -> None:
    if info.dtype not in HELD:
        raise refusal(node, f"an input of {info.dtype} has no native kernel")


PLANS: dict[str, CallPlanner] = {
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), view),
    **dict.fromkeys(("CONCATENATION", "PACK"), concatenation),
    **dict.fromkeys(
        ("TRANSPOSE", "STRIDED_SLICE", "SLICE", "SPLIT_V", "UNPACK", "TILE", "BROADCAST_TO", "SPACE_TO_DEPTH",
         "DEPTH_TO_SPACE", "BATCH_TO_SPACE_ND", "REVERSE_V2", "REVERSE_SEQUENCE", "MIRROR_PAD", "GATHER_ND",
         "RESIZE_NEAREST_NEIGHBOR"),
        moved(),
    ),
    **dict.fromkeys(("SPACE_TO_BATCH_ND", "MATRIX_DIAG"), moved(fills=True)),
    "SPLIT": moved(1),
    "PAD": pad,
    "PADV2": pad,
    "GATHER": gather,
    "ZEROS_LIKE": filled(_zero),
    "FILL": filled(_given),
}  # fmt: skip
