"""Polyphase decomposition of transposed convolutions, into convolutions of the small image.

Result pixels ``first + step * t`` of an axis, a polyphase component, come from a window that slides over the source one
by one. A transposed convolution becomes one convolution per pair of components with some of its taps. Knows no IR.
"""

from __future__ import annotations

from typing import NamedTuple

from odc_mlir.ops.infer.convolution import transposed_options
from odc_mlir.ops.infer.geometry import transposed_pad
from odc_mlir.ops.spec import Node


class Component(NamedTuple):
    """Result pixels ``first, first + step, …`` (``results`` of them) of one axis.

    ``taps``: of the transposed convolution's kernel, in the order of the window; ``before``, ``after``: padding.
    """

    first: int
    results: int
    taps: tuple[int, ...]
    before: int
    after: int


def transposed_components(node: Node) -> tuple[list[Component], list[Component]] | str:
    """The components of both axes of a TRANSPOSE_CONV, or why it cannot be divided."""
    (stride, padding), kernel = transposed_options(node), node.operand(1).static_shape[1:3]
    source, result = node.operand(2).static_shape, node.results[0].static_shape
    found = []
    for axis, name in ((0, "height"), (1, "width")):
        size, output = source[axis + 1], result[axis + 1]
        pad = transposed_pad(size, kernel[axis], stride[axis], padding, output)
        components = [
            _transposed_component(a, size, kernel[axis], stride[axis], pad, output) for a in range(stride[axis])
        ]
        if any(
            component.results < 1 or not component.taps or min(component.before, component.after) < 0
            for component in components
        ):
            return f"{name} {size} to {output} with a kernel of {kernel[axis]} and stride {stride[axis]}"
        found.append(components)
    return found[0], found[1]


def _transposed_component(offset: int, size: int, kernel: int, stride: int, pad: int, output: int) -> Component:
    """Kernel taps ``offset + stride * j``: the result ``stride * q + offset - pad`` is a sum over ``source[q - j]``."""
    taps = tuple(reversed(range(offset, kernel, stride)))
    first = -((offset - pad) // stride)  # the least q whose result is not negative
    last = (output - 1 + pad - offset) // stride
    return Component(stride * first + offset - pad, last - first + 1, taps, len(taps) - 1 - first, last - (size - 1))
