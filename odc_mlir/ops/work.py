"""How much work an operator is: what reports count and cost models charge."""

from __future__ import annotations

import math
from typing import Protocol

from odc_mlir.ops.spec import Node, TensorInfo, Trait


class HostRates(Protocol):
    """Nanoseconds of host kernels, as :class:`odc_mlir.targets.host.HostCosts` has them."""

    def of_kernel(self, names: tuple[str, ...], is_view: bool, elements: int, macs: int) -> float:
        """One run of a kernel on these many elements and multiply-accumulates; ``names`` as :func:`kernel_names`."""


def host_ns(node: Node, rates: HostRates) -> float:
    """Modelled time of the host kernel; unknown dimensions count as none."""
    return rates.of_kernel(kernel_names(node), is_view(node), moved_elements(node), node.macs)


def is_view(node: Node) -> bool:
    """Whether the operator only shows the same bytes in another shape."""
    return Trait.VIEW in node.spec.traits


def kernel_names(node: Node) -> tuple[str, ...]:
    """What costs of the host kernel are looked up by: operator, then family, ``-codes`` added to what is quantised."""
    tensors = [t for t in (*node.operands[:1], *node.results[:1]) if t is not None]
    suffix = "-codes" if any(t.quant is not None and t.info.numpy.kind in "iu" for t in tensors) else ""
    return f"{node.spec.name}{suffix}", f"{kernel_family(node)}{suffix}"


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


def moved_elements(node: Node) -> int:
    """Elements that a kernel passes through: of the largest tensor, or of the patches that a convolution makes."""
    channels = (node.results[0].shape or (0,))[-1:] if node.results else ()
    patches = node.macs // channels[0] if channels and channels[0] else 0
    return max(largest_tensor(node), patches)


def kernel_family(node: Node) -> str:
    """The room of the operator's host kernel, such as ``convolution``."""
    return node.spec.kernel.partition(":")[0].rpartition(".")[2]
