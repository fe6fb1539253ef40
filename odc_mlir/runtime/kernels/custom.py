"""Custom operators registered by the application or with a public definition."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from odc_mlir.formats.quantities import counted
from odc_mlir.numerics import special
from odc_mlir.ops.custom import builtin_node, custom_option, pool_axes
from odc_mlir.ops.infer.common import WindowAxis, require_dtype
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import computed, computing, input_error, single, unsupported


def registered(node: Node) -> Execute:
    """Call the registered function of a custom code. Raises UnsupportedError for an unknown code."""
    operator = node.context.custom_ops.get(node.custom_code)
    if operator is None:
        error = unsupported(node, f"no implementation is registered for the custom operator {node.custom_code!r}")
        error.hint = f"register a function with odc_mlir.register_custom_op({node.custom_code!r}, function)"
        raise error
    constants = [info.array() if info is not None and info.is_const else None for info in node.operands]
    written = node.mutated

    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        inputs = [constant if value is None else value for value, constant in zip(operands, constants, strict=True)]
        for index, value in enumerate(inputs):
            if value is not None and index not in written:
                inputs[index] = value = value.view()
                value.flags.writeable = False
            elif value is not None and operands[index] is None:
                inputs[index] = value.copy()
        given = operator.evaluate(inputs, node.results, node.custom_options)
        if len(given) != len(node.results):
            raise node.error(
                f"the registered function returned {counted(len(given), 'result')}, the model has {len(node.results)}"
            )
        results = []
        for info, value in zip(node.results, given, strict=True):
            array = np.asarray(value)
            if array.dtype != info.info.numpy:
                raise node.error(
                    f"the registered function returned {array.dtype}, the model declares {info.dtype}", tensor=info.name
                )
            results.append(array)
        return results

    return execute


def as_builtin(node: Node) -> Execute:
    """Return the kernel of the equivalent builtin operator."""
    builtin = builtin_node(node)
    return builtin.spec.kernel_function(builtin)


def erf(node: Node) -> Execute:
    """Compute the error function of each element."""
    require_dtype(node, node.operand(0), "float32")
    return computed(node, special.erf)


@computing
def matrix_band_part(node: Node, x: Array, *limits: Array) -> Array:
    """Keep elements with ``i - j <= lower`` and ``j - i <= upper``. A negative bound means no bound."""
    lower, upper = (int(single(node, limit, name)) for limit, name in zip(limits, ("lower", "upper"), strict=True))
    if x.ndim < 2:
        raise input_error(node, f"the input {list(x.shape)} holds no matrices")
    below = np.arange(x.shape[-2])[:, None] - np.arange(x.shape[-1])
    inside = ((lower < 0) | (below <= lower)) & ((upper < 0) | (-below <= upper))
    return np.where(inside, x, x.dtype.type(0))


def fused_batch_norm(node: Node) -> Execute:
    """Normalise channels: ``(x - mean) / sqrt(variance + epsilon) * scale + offset``, ``[N, H, W, C]``.

    In training, the mean and variance come from the batch. Further results are the running mean and variance
    (exponential averages with the batch's mean and unbiased variance), and the batch's mean and biased variance.
    """
    require_dtype(node, node.operand(0), "float32")
    epsilon = np.float32(custom_option(node, "epsilon", 1e-4))
    training = custom_option(node, "is_training", True)
    factor = np.float32(custom_option(node, "exponential_avg_factor", 1.0))

    def statistics(x: Array, given: tuple[Array, Array]) -> tuple[Array, Array, Array, Array]:
        if not training:
            return (*given, *given)
        mean, variance = x.mean(axis=(0, 1, 2), dtype=np.float64), x.var(axis=(0, 1, 2), dtype=np.float64)
        count = x.size // max(1, x.shape[3])
        unbiased = variance * (count / max(1, count - 1))
        mixed = [
            own if factor == 1 else (1 - factor) * old + factor * own
            for own, old in zip((mean, unbiased), given, strict=True)
        ]
        return mixed[0], mixed[1], mean, variance

    def compute(x: Array, scale: Array, offset: Array, *given: Array) -> list[Array]:
        *running, mean, variance = statistics(x, (given[0], given[1]))
        factors = (scale / np.sqrt(variance + epsilon)).astype(np.float32)
        y = (x - mean.astype(np.float32)) * factors + offset
        others = [*running, mean, variance, np.zeros_like(mean)]
        return [y, *(value.astype(np.float32) for value in others[: len(node.results) - 1])]

    return computed(node, compute, several=True)


def max_pool_with_argmax(node: Node) -> Execute:
    """Compute the largest element in each window of ``[N, H, W, C]`` and the first flat index of this element.

    The index counts within the image, or with ``include_batch_in_index`` within the whole input.
    """
    place_dtype = node.results[1].info.numpy
    require_dtype(node, node.operand(0), "float32")
    with_batch = custom_option(node, "include_batch_in_index", False)

    def compute(x: Array) -> list[Array]:
        if x.ndim != 4:
            raise input_error(node, f"the input has the shape {list(x.shape)}; its rank must be 4")
        kernel, stride, rows, columns = pool_axes(node, x.shape)
        images, height, width, channels = x.shape
        shape = (images, rows.output or 0, columns.output or 0, channels)
        best, place = np.full(shape, -np.inf, x.dtype), np.zeros(shape, place_dtype)
        batch = np.arange(images)[:, None, None, None] * (height * width) if with_batch else 0
        for tap in window_taps(x, kernel, stride, rows, columns):
            better = tap.is_inside[None, :, :, None] & (tap.values > best)
            pixels = (tap.ys[:, None] * width + tap.xs)[None, :, :, None] + batch
            np.copyto(place, (pixels * channels + np.arange(channels)).astype(place_dtype), where=better)
            np.copyto(best, tap.values, where=better)
        return [best, place]

    return computed(node, compute, several=True)


class Tap(NamedTuple):
    """A tap of all windows: ``values [N, OH, OW, C]``, read from rows ``ys`` and columns ``xs`` of the input.

    ``y`` and ``x`` are the tap's position in the window. If ``is_inside [OH, OW]`` is false, it lies in the padding.
    """

    y: int
    x: int
    ys: Array
    xs: Array
    is_inside: Array
    values: Array


def window_taps(
    x: Array, window: tuple[int, int], stride: tuple[int, int], rows: WindowAxis, columns: WindowAxis
) -> Iterator[Tap]:
    """Yield the taps of windows over ``[N, H, W, C]``, row by row."""
    _, height, width, _ = x.shape
    first_y = np.arange(rows.output or 0) * stride[0] - rows.before
    first_x = np.arange(columns.output or 0) * stride[1] - columns.before
    for tap_y, tap_x in itertools.product(range(window[0]), range(window[1])):
        ys, xs = first_y + tap_y, first_x + tap_x
        is_inside = ((ys >= 0) & (ys < height))[:, None] & ((xs >= 0) & (xs < width))
        ys, xs = np.clip(ys, 0, height - 1), np.clip(xs, 0, width - 1)
        yield Tap(tap_y, tap_x, ys, xs, is_inside, x[:, ys[:, None], xs])
