"""Polyphase decomposition of operators that enlarge images, into convolutions of the small image.

Result pixels ``first + step * t`` of an axis, a polyphase component, come from a window that slides over the source one
by one. A transposed convolution becomes one convolution per pair of components with some of its taps, bilinear
interpolation by a whole factor one with the weights of its neighbours. Knows no IR.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.resize import ONE, axis_line
from odc_mlir.ops.infer.convolution import transposed_options
from odc_mlir.ops.infer.geometry import transposed_pad
from odc_mlir.ops.infer.resize import resize_modes
from odc_mlir.ops.spec import Node

LARGEST_WEIGHT = 127  # of an interpolation, doubled: see interpolation_weights


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


class Blend(NamedTuple):
    """A component of an interpolated axis: window start on the image with a pixel more on each side, its weights."""

    start: int
    weights: tuple[int, int]


def interpolated_components(node: Node) -> tuple[list[Blend], list[Blend]] | str:
    """The components of both axes of a RESIZE_BILINEAR, or why it cannot be divided."""
    source, result = node.operand(0).static_shape, node.results[0].static_shape
    found = []
    for axis, name in ((1, "height"), (2, "width")):
        components = _blends(source[axis], result[axis], node.operand(0).dtype, *resize_modes(node))
        if components is None:
            return f"{name} {source[axis]} to {result[axis]} with these options has no repeating weights"
        found.append(components)
    for first in found[0]:
        for second in found[1]:
            weights, _ = interpolation_weights(first, second)
            if max(weights.flat) > LARGEST_WEIGHT:
                return f"weights of {source[1]}x{source[2]} to {result[1]}x{result[2]} do not fit 8 bits"
    return found[0], found[1]


def _blends(size: int, output: int, dtype: str, align_corners: bool, half_pixel: bool) -> list[Blend] | None:
    if output % size or output == size:
        return None
    step = output // size
    low, high, fraction = axis_line(size, output, align_corners, half_pixel, fixed=dtype == "int8")
    padded = np.clip(np.arange(-1, size + 1), 0, size - 1)  # the edges twice
    components = []
    for first in range(step):
        chosen = slice(first, None, step)
        for start in (0, 1):
            window = padded[start : start + size], padded[start + 1 : start + 1 + size]
            blend = _blend(low[chosen], high[chosen], fraction[chosen], *window)
            if blend is not None:
                components.append(Blend(start, blend))
                break
        else:
            return None
    return components


def _blend(
    low: NDArray[Any], high: NDArray[Any], fraction: NDArray[Any], first: NDArray[Any], second: NDArray[Any]
) -> tuple[int, int] | None:
    """The weights of ``first`` and ``second`` that give every result of a component, None where there are none.

    Where both neighbours are one pixel, at the edges, any weights do.
    """
    apart = low != high
    parts = set(fraction[apart].tolist()) or {0}
    if len(parts) > 1:
        return None
    (part,) = parts
    if part != int(part) or not 0 <= part <= ONE:
        return None
    weights = (ONE - int(part), int(part))
    for index in range(len(low)):
        used = {p for p, w in ((first[index], weights[0]), (second[index], weights[1])) if w}
        wanted = {low[index], high[index]} if apart[index] else {low[index]}
        if apart[index] and (first[index], second[index]) != (low[index], high[index]):
            return None
        if not apart[index] and used != wanted:
            return None
    return weights


def interpolation_weights(first: Blend, second: Blend) -> tuple[NDArray[Any], int]:
    """Doubled weights ``[2, 2]`` of the four neighbours, and by how many bits the sum is to be shifted right.

    The sum is to be rounded half away from zero, once. Doubled sums times 2^30 leave the high multiplication as they
    were, without rounding; the shift behind it rounds.
    """
    products = np.multiply.outer(first.weights, second.weights)
    shared = math.gcd(*(int(p) for p in products.flat))
    shared &= -shared  # powers of two only
    return 2 * (products // shared), (ONE * ONE // shared).bit_length() - 1
