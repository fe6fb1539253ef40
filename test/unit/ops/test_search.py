"""Shapes and refusals of operators that search and reduce, and of convolutions over volumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.nodes import const, node, tensor
from odc_mlir.errors import ModelError
from odc_mlir.ops.infer.common import MAX_CONSTANT_LIST
from odc_mlir.ops.spec import Node, Shape, TensorInfo

X = tensor("float32", (2, 3, 4))
PART = tensor("float32", (2, None, 4))
UNKNOWN = tensor("float32", None)
SCALAR = tensor("float32", ())
VALUE = const(0.5, "float32")
BOXES = [tensor("float32", (9, 4)), tensor("float32", (9,)), const(5), VALUE, VALUE]
FILTER = tensor("float32", (2, 3, 3, 4, 5))
VOLUME = tensor("float32", (1, 6, 7, 8, 4))
STEPS = {"stride_d": 1, "stride_h": 2, "stride_w": 3}


def made(name: str, operands: list[TensorInfo | None], *results: str, **options: Any) -> Node:
    return node(name, operands, [tensor(dtype, None) for dtype in results or ("float32",)], **options)


def ints(*shape: int | None) -> TensorInfo:
    return tensor("int32", shape)


def shapes(given: Node) -> list[Shape | None]:
    """Inferred shapes, after the verifier had its say."""
    assert given.spec.verify_function is not None
    given.spec.verify_function(given)
    return [kind.shape for kind in given.spec.infer_function(given)]


def window(
    *, x: TensorInfo = X, size: Any = (1, 2, 2), by: Any = (1, 1, 2), apart: Any = (1, 1, 1), **how: str
) -> Node:
    how.setdefault("reduce_function", "add")
    return made("REDUCE_WINDOW", [x, VALUE, const(size), const(by), const(apart)], **how)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (made("ARG_MAX", [X, const(1)], "int64"), [(2, 4)]),
        (made("ARG_MIN", [PART, const([-1])], "int32", output_type="int32"), [(2, None)]),
        (made("ARG_MAX", [X, ints()], "int64"), [(None, None)]),
        (made("ARG_MAX", [UNKNOWN, const(0)], "int64"), [None]),
        (made("TOPK_V2", [X, const(2)], "float32", "int32"), [(2, 3, 2)] * 2),
        (made("TOPK_V2", [X, const(-1)], "float32", "int16"), [(2, 3, 0)] * 2),
        (made("TOPK_V2", [X, ints()], "float32", "int32"), [(2, 3, None)] * 2),
        (made("TOPK_V2", [UNKNOWN, ints()], "float32", "int32"), [None] * 2),
        (made("WHERE", [X], "int64"), [(None, 3)]),
        (made("WHERE", [UNKNOWN], "int64"), [(None, None)]),
        (made("UNIQUE", [tensor("int8", (7,))], "int8", "int32"), [(None,), (7,)]),
        (made("UNIQUE", [UNKNOWN], "float32", "int64", idx_out_type="int64"), [(None,), (None,)]),
        (made("NON_MAX_SUPPRESSION_V4", BOXES, "int32", "int32"), [(5,), ()]),
        (made("NON_MAX_SUPPRESSION_V5", [*BOXES, VALUE], "int32", "float32", "int32"), [(5,), (5,), ()]),
        (made("NON_MAX_SUPPRESSION_V4", [*BOXES[:2], ints(), VALUE, VALUE], "int32", "int32"), [(None,), ()]),
        (made("BUCKETIZE", [PART], "int32", boundaries=(1.0, 1.0, 2.0)), [(2, None, 4)]),
        (made("SUM", [X, const([0, -1])]), [(3,)]),
        (made("SUM", [X, const([0, 0])], keep_dims=True), [(1, 3, 4)]),
        (made("REDUCE_MAX", [X, ints(1)], keep_dims=True), [(None,) * 3]),
        (made("REDUCE_MIN", [X, ints(1)]), [None]),
        (made("REDUCE_PROD", [SCALAR, const([0])]), [()]),
        (made("CUMSUM", [PART, const(-2)]), [(2, None, 4)]),
        (made("SEGMENT_SUM", [X, const([0, 0])]), [(1, 3, 4)]),
        (made("SEGMENT_SUM", [X, ints(2)]), [(None, 3, 4)]),
        (made("SEGMENT_SUM", [tensor("float32", (0, 3)), const(np.zeros(0))]), [(0, 3)]),
        (made("SEGMENT_SUM", [UNKNOWN, ints(2)]), [None]),
        (made("UNSORTED_SEGMENT_SUM", [X, ints(2), const(7)]), [(7, 3, 4)]),
        (made("UNSORTED_SEGMENT_MAX", [X, ints(2, 3), const([7])]), [(7, 4)]),
        (made("UNSORTED_SEGMENT_MIN", [X, ints(2, 3), ints()]), [(None, 4)]),
        (made("UNSORTED_SEGMENT_PROD", [UNKNOWN, ints(2), const(7)]), [None]),
        (window(), [(2, 2, 2)]),
        (window(x=PART, apart=(1, 2, 1)), [(2, None, 2)]),
        (window(x=UNKNOWN), [None]),
        (made("REDUCE_WINDOW", [X, VALUE, ints(3), ints(3), ints(3)], reduce_function="add"), [(None,) * 3]),
        (made("CONV_3D", [VOLUME, FILTER, tensor("float32", (5,))], **STEPS), [(1, 6, 4, 3, 5)]),
        (made("CONV_3D", [VOLUME, FILTER, None], padding="valid", **STEPS), [(1, 5, 3, 2, 5)]),
        (made("CONV_3D", [VOLUME, tensor("float32", None), None], **STEPS), [(1, None, None, None, None)]),
        (
            made("CONV_3D_TRANSPOSE", [const([1, 6, 13, 23, 4]), FILTER, tensor("float32", (1, 6, 7, 8, 5))], **STEPS),
            [(1, 6, 13, 23, 4)],
        ),
        (
            made("CONV_3D_TRANSPOSE", [ints(5), FILTER, tensor("float32", (1, 6, 7, 8, 5))], **STEPS),
            [(1, None, None, None, 4)],
        ),
    ],
)
def test_shapes(given: Node, expected: list[Shape | None]) -> None:
    assert shapes(given) == expected


def test_long_segment_ids_are_not_read() -> None:
    count = MAX_CONSTANT_LIST + 1
    assert shapes(made("SEGMENT_SUM", [tensor("float32", (count,)), const(np.zeros(count))])) == [(None,)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (made("ARG_MAX", [X, const(3)], "int64"), "axis 3 is out of range"),
        (made("ARG_MAX", [SCALAR, const(0)], "int64"), "its rank must be at least 1"),
        (made("ARG_MAX", [X, const([0, 1])], "int64"), "must have one element"),
        (made("ARG_MIN", [X, const(0)], "int64", output_type="int32"), "output_type is int32, the result is int64"),
        (made("TOPK_V2", [X, const(5)], "float32", "int32"), "k is 5, but the rows of .* have 4 elements"),
        (made("TOPK_V2", [SCALAR, const(0)], "float32", "int32"), "its rank must be at least 1"),
        (made("TOPK_V2", [X, const(2)], "int8", "int32"), "the operand is float32, the result int8"),
        (made("WHERE", [SCALAR], "int64"), "its rank must be at least 1"),
        (made("UNIQUE", [X], "float32", "int32"), "rank must be 1"),
        (
            made("NON_MAX_SUPPRESSION_V4", [tensor("float32", (9, 5)), *BOXES[1:]], "int32", "int32"),
            "corners of a box: 5 and 4",
        ),
        (
            made("NON_MAX_SUPPRESSION_V4", [tensor("float32", (8, 4)), *BOXES[1:]], "int32", "int32"),
            "numbers of boxes and of scores: 8 and 9",
        ),
        (
            made("NON_MAX_SUPPRESSION_V4", [*BOXES[:2], const(-1), VALUE, VALUE], "int32", "int32"),
            "max_output_size is -1",
        ),
        (
            made("NON_MAX_SUPPRESSION_V5", [*BOXES, X], "int32", "float32", "int32"),
            r"operand 5 \(soft_nms_sigma\) .* must have one element",
        ),
        (made("BUCKETIZE", [X], "int32", boundaries=(1.0, 0.5)), "must be in ascending order"),
        (made("SUM", [X, const([3])]), "axis 3 is out of range"),
        (made("SUM", [X, const([1])], "int8"), "the operand is float32, the result int8"),
        (made("CUMSUM", [X, const(3)]), "axis 3 is out of range"),
        (made("SEGMENT_SUM", [X, const([0, 2])]), "go from 0 to 2; they must start at 0 and go up by 0 or 1"),
        (made("SEGMENT_SUM", [X, const([1, 1])]), "must start at 0"),
        (made("SEGMENT_SUM", [X, const([0, 0, 0])]), "size of axis 0 and number of segment ids: 2 and 3"),
        (made("SEGMENT_SUM", [SCALAR, const([0])]), "its rank must be at least 1"),
        (made("UNSORTED_SEGMENT_SUM", [X, ints(3), const(7)]), r"shape \[3\], the operand \[2, 3, 4\]"),
        (made("UNSORTED_SEGMENT_SUM", [X, ints(2, 3, 4, 1), const(7)]), "segment ids have the shape"),
        (made("UNSORTED_SEGMENT_SUM", [X, ints(2), const(-7)]), "num_segments is -7"),
        (window(size=(1, 2)), "must have 3 entries each"),
        (window(by=(1, 0, 1)), "must be positive"),
        (window(size=(1, 4, 1)), "does not fit into the operand"),
        (window(reduce_function="unsupported"), "it must name a reduction"),
        (made("CONV_3D", [VOLUME, FILTER, None]), "stride_d is 0; it must be from 1"),
        (made("CONV_3D", [VOLUME, FILTER, None], padding="full", **STEPS), "padding is 'full'"),
        (
            made("CONV_3D", [VOLUME, tensor("float32", (2, 3, 3, 3, 5)), None], **STEPS),
            "channels of input and filter: 4 and 3",
        ),
        (made("CONV_3D", [VOLUME, tensor("float32", (0, 3, 3, 4, 5)), None], **STEPS), "the filter's depth is 0"),
        (made("CONV_3D", [VOLUME, tensor("int8", (2, 3, 3, 4, 5)), None], **STEPS), "is int8, the input float32"),
        (
            made("CONV_3D_TRANSPOSE", [const([1, 6, 12, 23, 4]), FILTER, VOLUME], **STEPS),
            "channels of input and filter: 4 and 5",
        ),
        (
            made("CONV_3D_TRANSPOSE", [const([1, 6, 9, 23, 4]), FILTER, tensor("float32", (1, 6, 7, 8, 5))], **STEPS),
            "the input's height and what the result shape asks for: 7 and 5",
        ),
        (
            made("CONV_3D_TRANSPOSE", [const([2, 6, 13, 23, 4]), FILTER, tensor("float32", (1, 6, 7, 8, 5))], **STEPS),
            "batches of result shape and input: 2 and 1",
        ),
        (
            made("CONV_3D_TRANSPOSE", [const([1, 6, 13, 23, 3]), FILTER, tensor("float32", (1, 6, 7, 8, 5))], **STEPS),
            "channels of result shape and filter: 3 and 4",
        ),
        (
            made("CONV_3D_TRANSPOSE", [const([1, 6, -1, 23, 4]), FILTER, tensor("float32", (1, 6, 7, 8, 5))], **STEPS),
            "must be 5 sizes that are not negative",
        ),
        (
            made("CONV_3D_TRANSPOSE", [const([1, 6]), FILTER, tensor("float32", (1, 6, 7, 8, 5))], **STEPS),
            "has 2 entries; it must have 5",
        ),
    ],
)
def test_refusals(given: Node, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        shapes(given)
