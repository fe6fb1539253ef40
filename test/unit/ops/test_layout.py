"""Shapes and refusals of operators that repeat, cut, turn and space out their operand."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.nodes import const, node, tensor
from odc_mlir.errors import ModelError
from odc_mlir.ops.spec import Node, Shape, TensorInfo

X = tensor("float32", (2, 6, 4))
PART = tensor("float32", (2, None, 4))
UNKNOWN = tensor("float32", None)
LATER = tensor("int32", (3,))  # computed at run time
VALUE = const(0.0, "float32")


def made(name: str, operands: list[TensorInfo | None], count: int = 1, **options: Any) -> Node:
    return node(name, operands, [tensor("float32", None)] * count, **options)


def shapes(given: Node) -> list[Shape | None]:
    """Inferred shapes, after the verifier had its say."""
    assert given.spec.verify_function is not None
    given.spec.verify_function(given)
    return [kind.shape for kind in given.spec.infer_function(given)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (made("TILE", [X, const([1, 2, 3])]), [(2, 12, 12)]),
        (made("TILE", [X, const([0, 2, 3])]), [(0, 12, 12)]),
        (made("TILE", [PART, const([1, 2, 3])]), [(2, None, 12)]),
        (made("TILE", [X, LATER]), [(None,) * 3]),
        (made("TILE", [UNKNOWN, LATER]), [(None,) * 3]),
        (made("SPLIT", [const(1), X], 3, num_splits=3), [(2, 2, 4)] * 3),
        (made("SPLIT", [const([-1]), X], 2, num_splits=2), [(2, 6, 2)] * 2),
        (made("SPLIT", [const(1), PART], 2, num_splits=2), [(2, None, 4)] * 2),
        (made("SPLIT", [tensor("int32", ()), X], 2, num_splits=2), [(None,) * 3] * 2),
        (made("SPLIT", [const(1), UNKNOWN], 2, num_splits=2), [None] * 2),
        (made("SPLIT_V", [X, const([1, 5]), const(1)], 2, num_splits=2), [(2, 1, 4), (2, 5, 4)]),
        (made("SPLIT_V", [X, const([-1, 5]), const(-2)], 2, num_splits=2), [(2, 1, 4), (2, 5, 4)]),
        (made("SPLIT_V", [PART, const([-1, 5]), const(1)], 2, num_splits=2), [(2, None, 4), (2, 5, 4)]),
        (made("SPLIT_V", [X, tensor("int32", (2,)), const(1)], 2, num_splits=2), [(2, None, 4)] * 2),
        (made("UNPACK", [X], 2, num=2, axis=0), [(6, 4)] * 2),
        (made("UNPACK", [PART], 3, num=3, axis=-2), [(2, 4)] * 3),
        (made("UNPACK", [UNKNOWN], 3, num=3), [None] * 3),
        (made("PADV2", [X, const([[0, 1], [2, 0], [0, 0]]), VALUE]), [(3, 8, 4)]),
        (made("PADV2", [X, const([[0, 1], [2, 0], [0, 0]]), None]), [(3, 8, 4)]),
        (made("PADV2", [X, tensor("int32", (3, 2)), VALUE]), [(None,) * 3]),
        (made("MIRROR_PAD", [X, const([[1, 1], [5, 5], [0, 3]])], mode="reflect"), [(4, 16, 7)]),
        (made("MIRROR_PAD", [X, const([[2, 2], [6, 6], [0, 4]])], mode="symmetric"), [(6, 18, 8)]),
        (made("MIRROR_PAD", [PART, const([[0, 0], [9, 9], [0, 0]])]), [(2, None, 4)]),
        (made("REVERSE_V2", [X, const([0, -1])]), [(2, 6, 4)]),
        (made("REVERSE_V2", [X, LATER]), [(2, 6, 4)]),
        (made("REVERSE_SEQUENCE", [X, const([3, 4])], seq_dim=1, batch_dim=0), [(2, 6, 4)]),
        (made("REVERSE_SEQUENCE", [UNKNOWN, const([3, 4])], seq_dim=1), [None]),
        (made("SPACE_TO_BATCH_ND", [X, const([3]), const([[1, 2]])]), [(6, 3, 4)]),
        (made("SPACE_TO_BATCH_ND", [PART, const([3]), const([[1, 2]])]), [(6, None, 4)]),
        (made("SPACE_TO_BATCH_ND", [X, tensor("int32", (1,)), const([[1, 2]])]), [(None,) * 3]),
        (made("BATCH_TO_SPACE_ND", [X, const([2]), const([[1, 2]])]), [(1, 9, 4)]),
        (made("BATCH_TO_SPACE_ND", [PART, const([2]), const([[1, 2]])]), [(1, None, 4)]),
        (made("BATCH_TO_SPACE_ND", [UNKNOWN, const([2]), const([[1, 2]])]), [None]),
        (made("SPACE_TO_DEPTH", [tensor("float32", (1, 4, None, 3))], block_size=2), [(1, 2, None, 12)]),
        (made("SPACE_TO_DEPTH", [UNKNOWN], block_size=2), [(None,) * 4]),
        (made("DEPTH_TO_SPACE", [tensor("float32", (1, 4, None, 12))], block_size=2), [(1, 8, None, 3)]),
        (made("DEPTH_TO_SPACE", [UNKNOWN], block_size=2), [(None,) * 4]),
        (made("DILATE", [tensor("float32", (2, 0, None)), const([3, 2, 2]), VALUE]), [(4, 0, None)]),
        (made("DILATE", [X, LATER, VALUE]), [(None,) * 3]),
        (made("DILATE", [UNKNOWN, LATER, VALUE]), [(None,) * 3]),
        (made("MATRIX_DIAG", [X]), [(2, 6, 4, 4)]),
        (made("MATRIX_DIAG", [UNKNOWN]), [None]),
        (made("MATRIX_SET_DIAG", [X, tensor("float32", (2, 4))]), [(2, 6, 4)]),
        (made("MATRIX_SET_DIAG", [PART, tensor("float32", (2, 3))]), [(2, None, 4)]),
        (made("BROADCAST_TO", [tensor("float32", (1, None)), const([3, 2, 4])]), [(3, 2, 4)]),
        (made("BROADCAST_TO", [UNKNOWN, const([3, 2])]), [(3, 2)]),
        (made("BROADCAST_TO", [X, LATER]), [(None,) * 3]),
    ],
)
def test_shapes(given: Node, expected: list[Shape | None]) -> None:
    assert shapes(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (made("TILE", [X, const([1, 2])]), "2 multiples for an operand of rank 3"),
        (made("TILE", [X, const([1, 2, -1])]), "3 numbers that are not negative"),
        (made("SPLIT", [const(1), X], 4, num_splits=4), "size 6 cannot be split into 4 equal parts"),
        (made("SPLIT", [const(3), X], 2, num_splits=2), "axis 3 is out of range"),
        (made("SPLIT", [const([0, 1]), X], 2, num_splits=2), "must have one element"),
        (made("SPLIT", [const(1), X], 2, num_splits=3), "num_splits is 3, but there are 2 results"),
        (made("SPLIT_V", [X, const([1, 4]), const(1)], 2, num_splits=2), "do not add up to the axis of size 6"),
        (made("SPLIT_V", [X, const([-1, 7]), const(1)], 2, num_splits=2), "do not add up"),
        (made("SPLIT_V", [X, const([-1, -1]), const(1)], 2, num_splits=2), "at most one -1"),
        (made("SPLIT_V", [X, const([1, 5]), const(1)], 3, num_splits=3), "2 sizes, but 3 results"),
        (made("UNPACK", [X], 3, num=3, axis=0), "size of axis 0 and number of results: 2 and 3"),
        (made("UNPACK", [X], 2, num=2, axis=3), "axis 3 is out of range"),
        (made("PADV2", [X, const([[0, 0]] * 3), const([0.0, 0.0], "float32")]), "must have one element"),
        (made("PADV2", [X, const([[0, 0]] * 2), VALUE]), r"the paddings have the shape \[2, 2\]; it must be \[3, 2\]"),
        (made("PADV2", [X, const([[0, 0]] * 3), const(0)]), r"operand 2 \(value\) is int32, the result float32"),
        (made("MIRROR_PAD", [X, const([[2, 0], [0, 0], [0, 0]])]), "axis 0 of size 2 is padded by 2; at most 1"),
        (made("MIRROR_PAD", [X, const([[0, 0]] * 3)], mode="odd"), "mode is 'odd'; allowed are reflect, symmetric"),
        (made("REVERSE_V2", [X, const([0, -3])]), "name one axis twice"),
        (made("REVERSE_SEQUENCE", [X, const([3, 4])], seq_dim=0), "batch_dim and seq_dim are both 0"),
        (made("REVERSE_SEQUENCE", [X, const([3])], seq_dim=1), "batch size and number of lengths: 2 and 1"),
        (made("SPACE_TO_BATCH_ND", [X, const([4]), const([[1, 2]])]), "9 elements after padding; not a multiple"),
        (made("SPACE_TO_BATCH_ND", [X, const([0]), const([[1, 2]])]), r"block sizes \[0\] must be positive"),
        (made("SPACE_TO_BATCH_ND", [X, const([2, 2, 2]), const([[0, 0]] * 3)]), "3 entries does not fit"),
        (made("SPACE_TO_BATCH_ND", [X, const([2]), const([[0, 0]] * 2)]), "numbers of paddings and of block sizes"),
        (made("BATCH_TO_SPACE_ND", [X, const([3]), const([[0, 0]])]), "batch of 2 cannot be divided"),
        (made("BATCH_TO_SPACE_ND", [X, const([2]), const([[9, 9]])]), "12 elements, fewer than are cropped: 18"),
        (made("BATCH_TO_SPACE_ND", [X, const([2]), const([[-1, 0]])]), "not negative"),
        (made("SPACE_TO_DEPTH", [tensor("float32", (1, 5, 4, 3))], block_size=2), "size 5 cannot be split into 2"),
        (made("SPACE_TO_DEPTH", [X], block_size=2), "rank must be 4"),
        (made("DEPTH_TO_SPACE", [tensor("float32", (1, 4, 4, 6))], block_size=2), "size 6 cannot be split into 4"),
        (made("DEPTH_TO_SPACE", [tensor("float32", (1, 4, 4, 4))]), "block_size is 0; it must be positive"),
        (made("DILATE", [X, const([1, 1]), VALUE]), "2 dilations for an operand of rank 3"),
        (made("DILATE", [X, const([1, 0, 1]), VALUE]), "must be 3 positive numbers"),
        (made("DILATE", [X, const([1, 1, 1]), const(1)]), "operand 2 .* is int32"),
        (made("MATRIX_DIAG", [tensor("float32", ())]), "its rank must be at least 1"),
        (made("MATRIX_SET_DIAG", [tensor("float32", (2,)), X]), "rank must be at least 2"),
        (made("MATRIX_SET_DIAG", [X, tensor("float32", (2, 6))]), r"shape \[2, 6\]; it must be \[2, 4\]"),
        (made("BROADCAST_TO", [X, const([2, 6, 5])]), r"\[2, 6, 4\] cannot be broadcast to \[2, 6, 5\]"),
        (made("BROADCAST_TO", [X, const([6, 4])]), "cannot be broadcast"),
        (made("BROADCAST_TO", [X, const([2, -6, 4])]), "must not have negative sizes"),
    ],
)
def test_refusals(given: Node, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        shapes(given)


@pytest.mark.parametrize(
    "given",
    [
        node("TILE", [X, const([1, 1, 1])], tensor("int8", None)),
        node("UNPACK", [X], [tensor("float32", None), tensor("int8", None)], num=2),
        node("SPLIT", [const(0), X], [tensor("int8", None)] * 2, num_splits=2),
    ],
    ids=lambda given: given.spec.name,
)
def test_results_have_the_operands_element_type(given: Node) -> None:
    with pytest.raises(ModelError, match="the operand is float32, the result int8; they must be equal"):
        shapes(given)
