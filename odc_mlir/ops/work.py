"""Work of operators for reports and cost models."""

from __future__ import annotations

import math
from typing import Protocol

from odc_mlir.ops.spec import Node, TensorInfo, Trait


class HostRates(Protocol):
    """Times of host kernels in ns, such as :class:`odc_mlir.targets.costs.HostCosts`."""

    def of_kernel(self, names: tuple[str, ...], is_view: bool, elements: int, macs: int) -> float:
        """Return the time of a kernel. ``names``: see :func:`kernel_names`."""


def host_ns(node: Node, rates: HostRates) -> float:
    """Return the modelled time of the host kernel in ns. Unknown dimensions count as 0."""
    return rates.of_kernel(kernel_names(node), is_view(node), moved_elements(node), node.macs)


def is_view(node: Node) -> bool:
    """Return whether the operator only reshapes its operand."""
    return Trait.VIEW in node.spec.traits


def kernel_names(node: Node) -> tuple[str, ...]:
    """Return the keys of the host kernel's costs: operator and family, with ``-codes`` if quantised."""
    tensors = [t for t in (*node.operands[:1], *node.results[:1]) if t is not None]
    suffix = "-codes" if any(t.quant is not None and t.info.numpy.kind in "iu" for t in tensors) else ""
    return f"{node.spec.name}{suffix}", f"{kernel_family(node)}{suffix}"


def size(info: TensorInfo) -> int:
    """Return the number of elements of a tensor. Unknown dimensions count as 0."""
    return 0 if info.shape is None else math.prod(dim or 0 for dim in info.shape)


def tensor_bytes(info: TensorInfo) -> int:
    """Return the size of a tensor in memory, in bytes. Unknown dimensions count as 0."""
    return size(info) * info.info.numpy.itemsize


def largest_tensor(node: Node) -> int:
    """Return the number of elements of the largest tensor that is not constant."""
    tensors = [t for t in (*node.operands, *node.results) if t is not None and not t.is_const]
    return max(map(size, tensors), default=0)


def moved_elements(node: Node) -> int:
    """Return the number of elements that a kernel processes: the largest tensor, or a convolution's patches."""
    channels = (node.results[0].shape or (0,))[-1:] if node.results else ()
    patches = node.macs // channels[0] if channels and channels[0] else 0
    return max(largest_tensor(node), patches)


def kernel_family(node: Node) -> str:
    """Return the family of the operator's host kernel, such as ``convolution``."""
    return node.spec.kernel.partition(":")[0].rpartition(".")[2]
