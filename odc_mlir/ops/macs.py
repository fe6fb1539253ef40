"""Numbers of multiply-accumulates of operators with inner products.

Counts depend only on definition and shapes of the operator. Multiplications by padding count. Multiplications of single
elements (activations, peepholes, interpolation, sums of squares) do not. Unknown dimensions count as 0.
:mod:`odc_mlir.runtime.execution.work` adds the work of called subgraphs.
"""

from __future__ import annotations

import math

from odc_mlir.ops.infer.common import option, required
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.ops.work import size


def _dims(info: TensorInfo) -> list[int]:
    return [dim or 0 for dim in info.shape or ()]


def product(node: Node) -> int:
    """Count results times weights of one output channel. The quantisation rule defines the channel axis."""
    weights, axis = _dims(node.operand(1)), node.spec.quant.weights[1]
    channels = weights[axis] if weights and axis is not None else 0
    return size(node.results[0]) * math.prod(weights) // channels if channels else 0


def transposed(node: Node) -> int:
    """Count inputs times taps and outputs, for weights ``[O, kh, kw, I]`` or ``[kd, kh, kw, O, I]``."""
    return size(node.operand(2)) * math.prod(_dims(node.operand(1))[:-1])


def batch_matmul(node: Node) -> int:
    """Count results times the length of a row in the left matrix."""
    left = node.operand(0).shape or ()
    inner = left[-2 if node.options.get("adjoint_lhs") else -1] if len(left) > 1 else 0
    return size(node.results[0]) * (inner or 0)


def bcq_fully_connected(node: Node) -> int:
    """Count products of decoded weights ``[O, H]`` with ``[H, B]``."""
    return size(node.results[0]) * (_dims(node.operand(0)) or [0])[0]


def recurrent(node: Node) -> int:
    """Count each matrix once per step and sequence. The last axis of the input is a vector."""
    matrices = 0
    for operand, info in zip(node.spec.operands, node.operands, strict=False):
        if info is not None and "weights" in operand.name and len(info.shape or ()) == 2:
            matrices += size(info)
    return matrices * _vectors(node)


def lstm(node: Node) -> int:
    """Count the weights ``[4 * O, I + O]`` of the basic kernel, or the full kernel's matrices."""
    if option(node, "kernel_type") == "basic":
        return size(node.operand(2)) * _vectors(node)
    return recurrent(node)


def gru(node: Node) -> int:
    """Count one matrix for inputs and one for the state."""
    return (size(required(node, "hidden_input")) + size(required(node, "hidden_hidden"))) * _vectors(node)


def _vectors(node: Node) -> int:
    return math.prod(_dims(node.operand(0))[:-1])


def attention(node: Node) -> int:
    """Count four projections of a token, and the scores and the weighted sum of the token over all cache rows."""
    projections = sum(size(required(node, name)) for name in ("wq", "wk", "wv", "wo"))
    return projections + size(required(node, "k_cache")) + size(required(node, "v_cache"))
