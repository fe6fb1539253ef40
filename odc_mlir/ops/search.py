"""Search operators: maxima and minima, coordinates, distinct values, boxes, buckets."""

from __future__ import annotations

from itertools import pairwise

from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import Node, OperatorFamily, ResultType, moved, real_only


def place(node: Node) -> list[ResultType]:
    """Infer operand 0 without the axis in operand 1, with the declared element type."""
    x, axis, dtype = common.shape_of(node, 0, least=1), common.static_int(node, 1), node.results[0].dtype
    if x is None:
        return common.result(node, dtype, None)
    if axis is None:
        return common.result(node, dtype, common.unknown_shape(len(x) - 1))
    gone = common.normal_axis(node, axis, len(x))
    return common.result(node, dtype, (*x[:gone], *x[gone + 1 :]))


def topk_v2(node: Node) -> list[ResultType]:
    """Infer the ``k`` largest elements of each row, and the indices of these elements with the declared type."""
    x, k = common.shape_of(node, 0, least=1), common.static_int(node, 1)
    dtypes = (node.operand(0).dtype, node.results[1].dtype)
    if x is None:
        return [ResultType(dtype, None) for dtype in dtypes]
    if k is not None and x[-1] is not None and k > x[-1]:
        raise node.error(f"k is {k}, but the rows of {common.shape_text(x)} have {x[-1]} elements")
    sizes = (*x[:-1], None if k is None else max(k, 0))
    return [kind for dtype in dtypes for kind in common.result(node, dtype, sizes)]


def where(node: Node) -> list[ResultType]:
    """Infer one vector of coordinates per nonzero element."""
    x = common.shape_of(node, 0, least=1)
    return common.result(node, "int64", (None, None if x is None else len(x)))


def unique(node: Node) -> list[ResultType]:
    """Infer the distinct values of a vector, and an index for each element."""
    x = common.shape_of(node, 0, 1)
    return [
        *common.result(node, node.operand(0).dtype, (None,)),
        *common.result(node, common.option(node, "idx_out_type"), x if x is not None else (None,)),
    ]


def _boxes(node: Node) -> int | None:
    boxes, scores = common.shape_of(node, 0, 2), common.shape_of(node, 1, 1)
    if boxes is not None:
        common.same_dim(node, boxes[1], 4, "corners of a box")
        common.same_dim(node, boxes[0], scores[0] if scores else None, "numbers of boxes and of scores")
    for index in range(3, len(node.operands)):
        common.check_single(node, index)
    length = common.static_int(node, 2)
    if length is not None and length < 0:
        raise node.error(f"max_output_size is {length}; it must not be negative")
    return length


def non_max_suppression_v4(node: Node) -> list[ResultType]:
    """Infer indices of selected boxes, padded with zeros, and the number of boxes."""
    return [*common.result(node, "int32", (_boxes(node),)), *common.result(node, "int32", ())]


def non_max_suppression_v5(node: Node) -> list[ResultType]:
    """Infer indices and scores of selected boxes, padded with zeros, and the number of boxes."""
    length = _boxes(node)
    scores = common.result(node, node.operand(1).dtype, (length,))
    return [*common.result(node, "int32", (length,)), *scores, *common.result(node, "int32", ())]


def boundaries(node: Node) -> tuple[float, ...]:
    """Return the boundaries between buckets. Raises ModelError if they are not in order."""
    values = tuple(float(v) for v in common.option(node, "boundaries") or ())
    if any(not a <= b for a, b in pairwise(values)):
        raise node.error("the boundaries must be in ascending order")
    return values


def verify_place(node: Node) -> None:
    """Check that the option is the result's element type, if it is a valid one."""
    written, declared = common.option(node, "output_type"), node.results[0].dtype
    if written in ("int32", "int64") and written != declared:
        raise node.error(f"output_type is {written}, the result is {declared}; they must be equal")


_op = OperatorFamily(__name__)
_boxes_op = OperatorFamily(__name__, quant=real_only("boxes are compared as real values"), verify="shapes")
_place = OperatorFamily(__name__, gives="output:int", version=3, infer="place", verify="verify_place", bounds="place")

SPECS = (
    _place("ARG_MAX", "input axis:int", "index of the largest element along an axis"),
    _place("ARG_MIN", "input axis:int", "index of the smallest element along an axis"),
    _op(
        "TOPK_V2",
        "input k:int16|int",
        "largest elements of each row in descending order, and their indices",
        gives="values indices:int16|int",
        options="TopKV2Options",
        version=3,
        quant=moved(),
    ),
    _op(
        "WHERE",
        "condition",
        "coordinates of nonzero elements",
        verify="shapes",
        gives="output:int64",
        version=2,
        quant=real_only("it distinguishes real zero from other values"),
    ),
    _op(
        "UNIQUE",
        "input",
        "distinct values in order of appearance, and for each element the index of the value",
        gives="values indices:int",
        version=2,
        quant=moved(),
    ),
    _boxes_op(
        "NON_MAX_SUPPRESSION_V4",
        "boxes scores max_output_size:int32 iou_threshold score_threshold",
        "non-maximum suppression of boxes",
        gives="selected:int32 count:int32",
    ),
    _boxes_op(
        "NON_MAX_SUPPRESSION_V5",
        "boxes scores max_output_size:int32 iou_threshold score_threshold soft_nms_sigma",
        "soft non-maximum suppression of boxes",
        gives="selected:int32 selected_scores count:int32",
    ),
    _op(
        "BUCKETIZE",
        "input",
        "number of boundaries up to each element",
        gives="output:int32",
        quant=real_only("it compares with real boundaries"),
        infer="infer.common:declared",
        verify="boundaries",
    ),
)
