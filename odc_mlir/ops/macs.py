"""Multiply-accumulates: for every operator with inner products, how many its result takes.

Counted is what the definition of the operator multiplies and sums, from shapes alone: products that meet padding are
in, products of single elements (activations, peepholes, interpolation, sums of squares) are not. Unknown dimensions
count as none. Operators that run other subgraphs have the work of those, see :mod:`odc_mlir.runtime.execution.work`.
"""

from __future__ import annotations

import math

from odc_mlir.ops.infer.common import option
from odc_mlir.ops.infer.named import named, required
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.ops.work import size


def _size(info: TensorInfo | None) -> int:
    return 0 if info is None else size(info)


def _dims(info: TensorInfo) -> list[int]:
    return [dim or 0 for dim in info.shape or ()]


def _by_output_channel(node: Node, axis: int) -> int:
    """One result takes everything of the weights that belongs to one index along ``axis``."""
    weights = _dims(node.operand(1))
    channels = weights[axis] if weights else 0
    return size(node.results[0]) * math.prod(weights) // channels if channels else 0


def conv_2d(node: Node) -> int:
    """Weights ``[O, kh, kw, I]``."""
    return _by_output_channel(node, 0)


def depthwise_conv_2d(node: Node) -> int:
    """Weights ``[1, kh, kw, O]``."""
    return _by_output_channel(node, 3)


def conv_3d(node: Node) -> int:
    """Weights ``[kd, kh, kw, I, O]``."""
    return _by_output_channel(node, 4)


def fully_connected(node: Node) -> int:
    """Weights ``[O, I]``."""
    return _by_output_channel(node, 0)


def transpose_conv(node: Node) -> int:
    """Weights ``[O, kh, kw, I]``: every input value meets all taps of all outputs."""
    return size(node.operand(2)) * math.prod(_dims(node.operand(1))[:-1])


def conv_3d_transpose(node: Node) -> int:
    """Weights ``[kd, kh, kw, O, I]``."""
    return transpose_conv(node)


def batch_matmul(node: Node) -> int:
    """One result takes a row of the left matrix."""
    left = node.operand(0).shape or ()
    inner = left[-2 if node.options.get("adjoint_lhs") else -1] if len(left) > 1 else 0
    return size(node.results[0]) * (inner or 0)


def bcq_fully_connected(node: Node) -> int:
    """Decoded weights ``[O, H]`` times ``[H, B]``."""
    return size(node.results[0]) * (_dims(node.operand(0)) or [0])[0]


def recurrent(node: Node) -> int:
    """Each matrix among the weights meets one vector per step and sequence; the last axis of the input is a vector."""
    matrices = 0
    for operand, info in zip(node.spec.operands, node.operands, strict=False):
        if info is not None and "weights" in operand.name and len(info.shape or ()) == 2:
            matrices += size(info)
    return matrices * _vectors(node)


def lstm(node: Node) -> int:
    """Of the basic kernel, the weights ``[4 * O, I + O]`` are operand 2; the full one has a matrix for each gate."""
    if option(node, "kernel_type") == "basic":
        return size(node.operand(2)) * _vectors(node)
    return recurrent(node)


def gru(node: Node) -> int:
    """One matrix for inputs, one for the state."""
    return (size(required(node, "hidden_input")) + size(required(node, "hidden_hidden"))) * _vectors(node)


def _vectors(node: Node) -> int:
    return math.prod(_dims(node.operand(0))[:-1])


def attention(node: Node) -> int:
    """Four projections of one token, then its scores and the mixture over the rows of the cache (all of them)."""
    projections = sum(_size(named(node, name)) for name in ("wq", "wk", "wv", "wo"))
    return projections + size(required(node, "k_cache")) + size(required(node, "v_cache"))
