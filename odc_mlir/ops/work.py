"""How much work an operator is: what reports count and cost models charge."""

from __future__ import annotations

import math
from typing import Protocol

from odc_mlir.ops.spec import Node, TensorInfo, Trait


class HostRates(Protocol):
    """Nanoseconds of host kernels, as :class:`odc_mlir.targets.host.HostCosts` has them."""

    @property
    def operator_ns(self) -> float: ...

    @property
    def view_ns(self) -> float: ...

    def of_element(self, family: str) -> float:
        """Per element of the largest tensor, by family of kernels."""

    def of_mac(self, operator: str) -> float:
        """Per multiply-accumulate, by operator."""


def host_ns(node: Node, rates: HostRates) -> float:
    """Modelled time of the host kernel; unknown dimensions count as none."""
    if Trait.VIEW in node.spec.traits:
        return rates.view_ns
    elements = rates.of_element(kernel_family(node)) * largest_tensor(node)
    return rates.operator_ns + elements + rates.of_mac(node.spec.name) * node_macs(node)


def node_macs(node: Node) -> int:
    """Multiply-accumulates of one operator of known shapes, those that meet padding included; 0 for other kinds."""
    kind = node.spec.name
    if kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL"):
        return 0
    result = size(node.results[0])
    if kind == "BATCH_MATMUL":
        left = node.operand(0).shape or ()
        inner = left[-2 if node.options.get("adjoint_lhs") else -1] if len(left) > 1 else 0
        return result * (inner or 0)
    weights = [dim or 0 for dim in node.operand(1).shape or ()]
    if kind == "TRANSPOSE_CONV":  # weights [O, kh, kw, I]: every input value meets all taps of all outputs
        return size(node.operand(2)) * math.prod(weights[:-1])
    # Weights are [O, kh, kw, I], [1, kh, kw, O] and [O, I]: one result takes everything that belongs to one O.
    channels = weights[-1] if kind == "DEPTHWISE_CONV_2D" else weights[0]
    return result * math.prod(weights) // channels if channels else 0


def size(info: TensorInfo) -> int:
    """Elements of a tensor; unknown dimensions count as none."""
    return math.prod(dim or 0 for dim in info.shape or ())


def largest_tensor(node: Node) -> int:
    """Elements of the largest tensor that is computed or read at run time."""
    tensors = [t for t in (*node.operands, *node.results) if t is not None and not t.is_const]
    return max(map(size, tensors), default=0)


def kernel_family(node: Node) -> str:
    """The room of the operator's host kernel, such as ``convolution``."""
    return node.spec.kernel.partition(":")[0].rpartition(".")[2]
