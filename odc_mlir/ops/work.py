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
    return rates.operator_ns + elements + rates.of_mac(node.spec.name) * node.macs


def size(info: TensorInfo) -> int:
    """Elements of a tensor; unknown ones count as none."""
    return 0 if info.shape is None else math.prod(dim or 0 for dim in info.shape)


def tensor_bytes(info: TensorInfo) -> int:
    """Bytes of a tensor in memory; unknown dimensions count as none."""
    return size(info) * info.info.numpy.itemsize


def largest_tensor(node: Node) -> int:
    """Elements of the largest tensor that is computed or read at run time."""
    tensors = [t for t in (*node.operands, *node.results) if t is not None and not t.is_const]
    return max(map(size, tensors), default=0)


def kernel_family(node: Node) -> str:
    """The room of the operator's host kernel, such as ``convolution``."""
    return node.spec.kernel.partition(":")[0].rpartition(".")[2]
