"""Shapes and refusals of operators that index, fill and look up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.nodes import const, node, tensor
from odc_mlir.errors import ModelError
from odc_mlir.ops.spec import Node, Shape, TensorInfo

X = tensor("float32", (2, 3, 4))
UNKNOWN = tensor("float32", None)
VALUE = const(0.0, "float32")


def made(name: str, operands: list[TensorInfo | None], *results: str, **options: Any) -> Node:
    return node(name, operands, [tensor(dtype, None) for dtype in results or ("float32",)], **options)


def ints(*shape: int | None) -> TensorInfo:
    return tensor("int32", shape)


def shapes(given: Node) -> list[Shape | None]:
    """Inferred shapes, after the verifier had its say."""
    assert given.spec.verify_function is not None
    given.spec.verify_function(given)
    return [kind.shape for kind in given.spec.infer_function(given)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (made("GATHER", [X, ints(5, 6)], axis=1), [(2, 5, 6, 4)]),
        (made("GATHER", [X, ints()], axis=-1), [(2, 3)]),
        (made("GATHER", [X, ints(2, 7)], axis=1, batch_dims=1), [(2, 7, 4)]),
        (made("GATHER", [X, ints(None, 7)], axis=2, batch_dims=-1), [(2, 3, 7)]),
        (made("GATHER", [tensor("float32", (None, 4)), ints(5)]), [(5, 4)]),
        (made("GATHER", [UNKNOWN, ints(5)]), [None]),
        (made("GATHER", [tensor("ggml_q4_0", (8, 64)), ints(3)]), [(3, 64)]),
        (made("GATHER_ND", [X, ints(5, 2)]), [(5, 4)]),
        (made("GATHER_ND", [X, ints(5, 0)]), [(5, 2, 3, 4)]),
        (made("GATHER_ND", [X, ints(5, None)]), [None]),
        (made("SCATTER_ND", [ints(5, 1), tensor("float32", (5, 4)), const([7, 4])]), [(7, 4)]),
        (made("SCATTER_ND", [ints(5, 1), tensor("float32", (5, None)), const([7, 4])]), [(7, 4)]),
        (made("SCATTER_ND", [ints(5, 1), X, ints(3)]), [(None,) * 3]),
        (made("SPARSE_TO_DENSE", [ints(5), const([7]), VALUE, VALUE]), [(7,)]),
        (made("SPARSE_TO_DENSE", [ints(5, 2), ints(2), tensor("float32", (5,)), VALUE]), [(None, None)]),
        (made("ONE_HOT", [ints(2, 3), const(5), VALUE, VALUE], axis=-1), [(2, 3, 5)]),
        (made("ONE_HOT", [ints(2, 3), const(5), VALUE, VALUE], axis=0), [(5, 2, 3)]),
        (made("ONE_HOT", [ints(2, 3), ints(), VALUE, VALUE], axis=1), [(2, None, 3)]),
        (made("ONE_HOT", [tensor("int32", None), const(5), VALUE, VALUE]), [None]),
        (made("DYNAMIC_UPDATE_SLICE", [X, tensor("float32", (1, None, 4)), ints(3)]), [(2, 3, 4)]),
        (made("RANGE", [const(1), const(8), const(3)], "int32"), [(3,)]),
        (made("RANGE", [const(8), const(1), const(-3)], "int32"), [(3,)]),
        (made("RANGE", [const(1), const(1), const(3)], "int32"), [(0,)]),
        (made("RANGE", [const(0.0, "float32"), const(1.0, "float32"), const(0.3, "float32")]), [(4,)]),
        (made("RANGE", [const(1), ints(), const(3)], "int32"), [(None,)]),
        (made("RANK", [UNKNOWN], "int32"), [()]),
        (made("FILL", [const([2, 3]), VALUE]), [(2, 3)]),
        (made("FILL", [ints(2), VALUE]), [(None, None)]),
        (made("FILL", [ints(None), VALUE]), [None]),
        (made("ZEROS_LIKE", [X]), [(2, 3, 4)]),
        (made("BROADCAST_ARGS", [ints(2), ints(5)], "int32"), [(5,)]),
        (made("BROADCAST_ARGS", [ints(2), ints(None)], "int32"), [(None,)]),
        (made("EMBEDDING_LOOKUP", [ints(5), X]), [(5, 3, 4)]),
        (made("EMBEDDING_LOOKUP", [ints(None), X]), [(None, 3, 4)]),
        (made("EMBEDDING_LOOKUP", [ints(5), UNKNOWN]), [None]),
        (
            made("EMBEDDING_LOOKUP_SPARSE", [ints(5), ints(5, 3), const([7, 2, 9]), tensor("float32", (5,)), X]),
            [(7, 2, 3, 4)],
        ),
        (
            made("EMBEDDING_LOOKUP_SPARSE", [ints(5), ints(5, 2), ints(2), tensor("float32", (5,)), X]),
            [(None, 3, 4)],
        ),
        (made("HASHTABLE_LOOKUP", [ints(5), ints(2), X], "float32", "uint8"), [(5, 3, 4), (5,)]),
        (made("HASHTABLE_LOOKUP", [ints(5), ints(2), UNKNOWN], "float32", "uint8"), [None, (5,)]),
        (made("LSH_PROJECTION", [tensor("float32", (3, 4)), X], "int32", type="dense"), [(12,)]),
        (made("LSH_PROJECTION", [tensor("float32", (3, None)), X, None], "int32", type="sparse"), [(3,)]),
        (made("SKIP_GRAM", [tensor("string", (1,))], "string", ngram_size=2), [(None,)]),
    ],
)
def test_shapes(given: Node, expected: list[Shape | None]) -> None:
    assert shapes(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (made("GATHER", [X, ints(5)], axis=3), "axis 3 is out of range"),
        (made("GATHER", [X, ints(5)], axis=1, batch_dims=2), "batch_dims is 2; .* must be from 0 to 1"),
        (made("GATHER", [X, ints(5)], axis=1, batch_dims=-2), "batch_dims is -2"),
        (made("GATHER", [X, ints(5)], axis=1, batch_dims=1), "size of batch axis 0: 2 and 5 must be equal"),
        (made("GATHER", [X, ints(5)], "int8"), "the operand is float32, the result int8"),
        (made("GATHER", [tensor("ggml_q8_0", (8, 32)), ints(5)], "int8"), "the result int8 must be float32"),
        (made("GATHER_ND", [X, ints()]), "the indices are a scalar"),
        (made("GATHER_ND", [X, ints(5, 4)]), "coordinates have 4 entries, the operand .* has 3 axes"),
        (made("SCATTER_ND", [ints(5, 1), X, const([7, 4])]), r"shape \[2, 3, 4\]; it must be \[5, 4\]"),
        (made("SCATTER_ND", [ints(5, 1), X, const([7, -4])]), "must not have negative sizes"),
        (made("SCATTER_ND", [ints(5, 1), const([1.0]), const([7])]), r"operand 1 \(updates\) is int32"),
        (made("SPARSE_TO_DENSE", [ints(1, 1, 1), const([7]), VALUE, VALUE]), "rank must be 0 or 1 or 2"),
        (made("SPARSE_TO_DENSE", [ints(5), const([-7]), VALUE, VALUE]), "must not have negative sizes"),
        (made("SPARSE_TO_DENSE", [ints(5), const([7]), VALUE, X]), "must have one element"),
        (made("ONE_HOT", [ints(2), const(-1), VALUE, VALUE]), "the depth is -1; it must not be negative"),
        (made("ONE_HOT", [ints(2), const(3), VALUE, VALUE], axis=2), "axis 2 is out of range"),
        (made("ONE_HOT", [ints(2), const(3), VALUE, X]), "must have one element"),
        (made("DYNAMIC_UPDATE_SLICE", [X, tensor("float32", (1, 4, 4)), ints(3)]), "does not fit into the operand"),
        (made("DYNAMIC_UPDATE_SLICE", [X, tensor("float32", (1, 3)), ints(3)]), "does not fit into the operand"),
        (made("DYNAMIC_UPDATE_SLICE", [X, X, ints(2)]), "number of start positions: 3 and 2"),
        (made("RANGE", [const(1), const(8), const(-3)], "int32"), "steps of -3 do not lead from 1 to 8"),
        (made("RANGE", [const(1), const(8), const(0)], "int32"), "steps of 0 do not lead"),
        (made("RANGE", [const(0.0, "float32"), const(np.inf, "float32"), const(1.0, "float32")]), "is not finite"),
        (made("RANGE", [const([1, 2]), const(8), const(1)], "int32"), "must have one element"),
        (made("FILL", [const([2, -3]), VALUE]), "must not have negative sizes"),
        (made("FILL", [const([2, 3]), X]), "must have one element"),
        (made("FILL", [const([2, 3]), VALUE], "int8"), "the operand is float32, the result int8"),
        (made("BROADCAST_ARGS", [ints(2), ints()], "int32"), "rank must be 1"),
        (made("EMBEDDING_LOOKUP", [ints(5), tensor("float32", (3,))]), "its rank must be at least 2"),
        (made("EMBEDDING_LOOKUP", [ints(5, 1), X]), "rank must be 1"),
        (
            made("EMBEDDING_LOOKUP_SPARSE", [ints(5), ints(4, 2), const([7, 2]), tensor("float32", (5,)), X]),
            "numbers of ids and indices: 4 and 5",
        ),
        (
            made("EMBEDDING_LOOKUP_SPARSE", [ints(5), ints(5, 2), const([7, 2]), tensor("float32", (4,)), X]),
            "numbers of weights and indices",
        ),
        (
            made("EMBEDDING_LOOKUP_SPARSE", [ints(5), ints(5, 2), const([7]), tensor("float32", (5,)), X]),
            "entries of an index and of the dense shape",
        ),
        (
            made("EMBEDDING_LOOKUP_SPARSE", [ints(5), ints(5, 2), const([-7, 2]), tensor("float32", (5,)), X]),
            "must not have negative sizes",
        ),
        (
            made("EMBEDDING_LOOKUP_SPARSE", [ints(5), ints(5, None), ints(0), tensor("float32", (5,)), X]),
            "the dense shape is empty",
        ),
        (made("HASHTABLE_LOOKUP", [ints(5), ints(3), X], "float32", "uint8"), "numbers of keys and values: 2 and 3"),
        (made("HASHTABLE_LOOKUP", [ints(5), ints(3), VALUE], "float32", "uint8"), "its rank must be at least 1"),
        (made("HASHTABLE_LOOKUP", [ints(5), ints(2), X], "int8", "uint8"), "the operand is float32, the result int8"),
        (made("LSH_PROJECTION", [tensor("float32", (3, 33)), X], "int32", type="dense"), "33 bits; at most 32"),
        (
            made("LSH_PROJECTION", [tensor("float32", (3, 4)), VALUE], "int32", type="dense"),
            "its rank must be at least 1",
        ),
        (made("LSH_PROJECTION", [tensor("float32", (3, 4)), X], "int32"), "type is 'unknown'; allowed are sparse"),
        (
            made("LSH_PROJECTION", [tensor("float32", (3, 4)), X, tensor("float32", (3,))], "int32", type="dense"),
            "numbers of rows and weights: 2 and 3",
        ),
        (made("SKIP_GRAM", [tensor("string", (2,))], "string"), "must have one element"),
        (made("SKIP_GRAM", [tensor("string", (1,))], "string", ngram_size=-1), "ngram_size is -1"),
    ],
)
def test_refusals(given: Node, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        shapes(given)
