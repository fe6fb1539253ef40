"""Circle's operators on binary-coded weights."""

from __future__ import annotations

import numpy as np

from odc_mlir.ops.infer.common import normal_axis, option, result, same_dim, shape_of
from odc_mlir.ops.spec import Array, Node, OperatorFamily, ResultType, real_only

WORD_BITS = 32


def cluster_rows(node: Node, index: int) -> tuple[int | None, int | None]:
    """Return the numbers of weight rows and stored word rows by constant clusters ``[K, 2]``, else None."""
    shape = shape_of(node, index, 2)
    if shape is not None and shape[1] not in (None, 2):
        raise node.error(f"clusters have {shape[1]} columns; they are pairs of planes and rows")
    if not node.operand(index).is_const:
        return None, None
    return count_rows(node, node.const(index))


def count_rows(node: Node, clusters: Array) -> tuple[int, int]:
    """Return the numbers of weight rows and stored word rows by the value of the clusters."""
    planes, rows = clusters.astype(np.int64).T
    if (clusters < 0).any():
        raise node.error(f"clusters {clusters.tolist()[:3]} must not be negative")
    return int(rows.sum()), int((planes * rows).sum())


def _check_stored(node: Node, scales: int, words: int, stored: int | None) -> int | None:
    """Check scales and words against the clusters. Return the number of words per row."""
    scale_shape, word_shape = shape_of(node, scales, (1, 2)), shape_of(node, words, 2)
    if word_shape is not None:
        stored = same_dim(node, stored, word_shape[0], "stored rows of the clusters and rows of words")
    if scale_shape is not None and None not in scale_shape:
        count = int(np.prod([d or 0 for d in scale_shape]))
        same_dim(node, stored, count, "stored rows and scales")
    return None if word_shape is None else word_shape[1]


def bcq_fully_connected(node: Node) -> list[ResultType]:
    """Infer ``[O, B]`` from ``x [H, B]``."""
    rows, stored = cluster_rows(node, 4)
    words = _check_stored(node, 1, 2, stored)
    hidden, batch = shape_of(node, 0, 2) or (None, None)
    wanted = int(option(node, "weights_hidden_size"))
    same_dim(node, hidden, wanted, "rows of the input and weights_hidden_size")
    _check_hidden(node, wanted, words)
    bias = shape_of(node, 3, 1) if node.optional(3) is not None else None
    if bias is not None:
        rows = same_dim(node, rows, bias[0], "rows of the weights and bias")
    return result(node, node.operand(0).dtype, (rows, batch))


def _check_hidden(node: Node, hidden: int, words: int | None) -> None:
    if hidden < 0 or (words is not None and hidden > words * WORD_BITS):
        raise node.error(f"the hidden size is {hidden}; rows of {words} words hold {(words or 0) * WORD_BITS}")


def bcq_gather(node: Node) -> list[ResultType]:
    """Infer ``[O, H]`` with the indices' shape instead of the axis."""
    rows, stored = cluster_rows(node, 3)
    words = _check_stored(node, 0, 1, stored)
    hidden = gathered_hidden(node, words)
    _check_hidden(node, hidden or 0, words)
    axis, indices = normal_axis(node, int(option(node, "axis")), 2), shape_of(node, 2)
    if indices is None:
        return result(node, node.results[0].dtype, None)
    table = (rows, hidden)
    return result(node, node.results[0].dtype, (*table[:axis], *indices, *table[axis + 1 :]))


def gathered_hidden(node: Node, words: int | None) -> int | None:
    """Return the number of columns of the table: the option, or all bits of the words.

    All bits count if the option is 0, or if the result has that many columns: ONE's compiler declares all columns of an
    incomplete last word.
    """
    hidden, whole = int(option(node, "input_hidden_size")), None if words is None else words * WORD_BITS
    declared = node.results[0].shape
    if declared and int(option(node, "axis")) in (0, -2) and declared[-1] == whole:
        return whole
    return hidden or whole


_op = OperatorFamily(__name__, quant=real_only("its weights are stored as bits already"), verify="shapes")

SPECS = (
    _op(
        "BCQ_FULLY_CONNECTED",
        "input weights_scales weights_binary:int32 bias? weights_clusters:int32",
        "binary-coded weights [O, H] times columns of the input [H, B]",
        options="BCQFullyConnectedOptions",
        macs="bcq_fully_connected",
    ),
    _op(
        "BCQ_GATHER",
        "input_scales input_binary:int32 indices:int input_clusters:int32",
        "rows or columns of a binary-coded table [O, H]",
        options="BCQGatherOptions",
    ),
)
