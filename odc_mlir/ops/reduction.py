"""Reductions: over axes, along an axis, over segments and over windows."""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import MOVES, NONE, Node, OperatorFamily, ResultType, Shape, moved


def cumsum(node: Node) -> list[ResultType]:
    """Infer the type of operand 0."""
    x, axis = common.shape_of(node, 0), common.static_int(node, 1)
    if x is not None and axis is not None:
        common.normal_axis(node, axis, len(x))
    return common.unary(node)


def segment_sum(node: Node) -> list[ResultType]:
    """Infer one slice per segment. The number of segments is the last segment id plus 1."""
    x, dtype = common.shape_of(node, 0, least=1), node.operand(0).dtype
    length = common.vector_length(node, 1)
    ids = common.static_ints(node, 1) if (length or 0) <= common.MAX_CONSTANT_LIST else None
    if x is None:
        return common.result(node, dtype, None)
    common.same_dim(node, x[0], length, "size of axis 0 and number of segment ids")
    return common.result(node, dtype, (None if ids is None else segment_count(node, ids), *x[1:]))


def segment_count(node: Node, ids: Sequence[int]) -> int:
    """Return the number of segments. Raises ModelError unless ids start at 0 and increase by 0 or 1."""
    for before, after in zip((0, *ids), ids, strict=False):
        if after - before not in (0, 1) or (ids[0] != 0):
            raise node.error(f"segment ids go from {before} to {after}; they must start at 0 and go up by 0 or 1")
    return ids[-1] + 1 if ids else 0


def unsorted_segment(node: Node) -> list[ResultType]:
    """Infer ``num_segments`` slices. Segment ids have the shape of the operand's first axes."""
    x, ids, count, dtype = (
        common.shape_of(node, 0),
        common.shape_of(node, 1),
        common.static_int(node, 2),
        node.operand(0).dtype,
    )
    if x is None or ids is None:
        return common.result(node, dtype, None)
    check_segments(node, x, ids)
    if count is not None and count < 0:
        raise node.error(f"num_segments is {count}; it must not be negative")
    return common.result(node, dtype, (count, *x[len(ids) :]))


def check_segments(node: Node, x: Shape, ids: Shape) -> None:
    """Raise ModelError unless segment ids have the shape of the operand's first axes."""
    if not common.compatible(x[: len(ids)], ids):
        raise node.error(f"segment ids have the shape {common.shape_text(ids)}, the operand {common.shape_text(x)}")


def reduce_window(node: Node) -> list[ResultType]:
    """Infer one element per position of the window."""
    x, dtype = common.shape_of(node, 0), node.operand(0).dtype
    common.check_single(node, 1)
    window_function(node)
    window, strides, dilations = (common.static_ints(node, i) for i in (2, 3, 4))
    if x is None or window is None or strides is None or dilations is None:
        return common.result(node, dtype, common.unknown_shape(None if x is None else len(x)))
    return common.result(node, dtype, windows_shape(node, x, window, strides, dilations))


def windows_shape(
    node: Node, x: Shape, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Shape:
    """Return the number of window positions along each axis. Raises ModelError if the window does not fit."""
    if not len(x) == len(window) == len(strides) == len(dilations):
        raise node.error(f"window {list(window)}, strides and dilations must have {len(x)} entries each")
    if min((*window, *strides, *dilations), default=1) < 1:
        raise node.error(
            f"window {list(window)}, strides {list(strides)} and dilations {list(dilations)} must be positive"
        )
    sizes: list[int | None] = []
    for size, taps, stride, dilation in zip(x, window, strides, dilations, strict=True):
        extent = (taps - 1) * dilation + 1
        if size is not None and extent > size:
            raise node.error(f"the window {list(window)} does not fit into the operand {common.shape_text(x)}")
        sizes.append(None if size is None else (size - extent) // stride + 1)
    return tuple(sizes)


def window_function(node: Node) -> str:
    """Return the reduction of a REDUCE_WINDOW. Raises ModelError for ``unsupported``."""
    function = str(common.option(node, "reduce_function"))
    if function == "unsupported":
        raise node.error("reduce_function is unsupported; it must name a reduction")
    return function


_op = OperatorFamily(__name__, kernels="segments")
_reduce = OperatorFamily(__name__, options="ReducerOptions", version=3, infer="infer.common:reduce")
_unsorted_segment = OperatorFamily(__name__, infer="unsorted_segment", kernels="segments")

SPECS = (
    _reduce(
        "MEAN",
        "input:float32|int8|uint8|int16|int axes:int",
        "mean over some axes",
        gives="output:float32|int8|uint8|int16|int",
    ),
    _reduce("SUM", "input axes:int", "sum over some axes", kernel="reduce_sum"),
    _reduce("REDUCE_PROD", "input axes:int", "product over some axes"),
    _reduce("REDUCE_MAX", "input axes:int", "largest element over some axes", quant=moved(), traits=MOVES),
    _reduce("REDUCE_MIN", "input axes:int", "smallest element over some axes", quant=moved(), traits=MOVES),
    _reduce("REDUCE_ANY", "input:bool axes:int", "logical or over some axes", gives="output:bool", quant=NONE),
    _reduce("REDUCE_ALL", "input:bool axes:int", "logical and over some axes", gives="output:bool", quant=NONE),
    _op("CUMSUM", "input axis:int", "running sum along an axis", kernels="", bounds="running_sum"),
    _op("SEGMENT_SUM", "input segment_ids:int", "sums of consecutive slices with equal segment ids"),
    *(
        _unsorted_segment(f"UNSORTED_SEGMENT_{name}", "input segment_ids:int num_segments:int", summary)
        for name, summary in (
            ("PROD", "products of slices with equal segment ids"),
            ("MAX", "maxima of slices with equal segment ids"),
            ("MIN", "minima of slices with equal segment ids"),
            ("SUM", "sums of slices with equal segment ids"),
        )
    ),
    _op("REDUCE_WINDOW", "input init window:int strides:int dilations:int", "reduction of every window to one element"),
)
