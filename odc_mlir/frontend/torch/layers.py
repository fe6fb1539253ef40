"""Conversion patterns for convolutions, pooling, matrix products, normalisations and resizing.

Our operators on images have channels last, PyTorch's have channels first. TRANSPOSEs surround each operator. The layout
pass removes these TRANSPOSEs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from xdsl.ir import SSAValue as V

from odc_mlir.errors import UnsupportedError
from odc_mlir.frontend.torch.elementwise import Pattern, of_scalars, rows
from odc_mlir.frontend.torch.graph import Builder

Ints = Sequence[int]

_LOWEST = float(np.finfo(np.float32).min)
_AXES = "dhw"


def channels_last(g: Builder, x: V) -> V:
    """Return an image or volume with its channels last."""
    return g.transpose(x, [0, *range(2, g.rank(x)), 1])


def channels_first(g: Builder, x: V) -> V:
    """Return an image or volume with its channels after the batch."""
    return g.transpose(x, [0, g.rank(x) - 1, *range(1, g.rank(x) - 1)])


def padded(g: Builder, x: V, pads: Sequence[tuple[int, int]], value: float = 0) -> Any:
    """Return ``x`` padded with a constant."""
    if not any(map(any, pads)):
        return x
    table = np.array(pads, np.int32)
    return g("PAD", x, table) if value == 0 else g("PADV2", x, table, g.number(value, g.dtype(x)))


class ImageWindows(NamedTuple):
    """Windows over an image with channels last. Fields have a value per spatial axis."""

    taps: Ints
    strides: Ints
    pads: Ints
    dilations: Ints

    @classmethod
    def of(cls, rank: int, *values: int | Ints) -> ImageWindows:
        """Return windows over ``rank`` axes. A single number applies to all axes."""
        lists = [[item] if isinstance(item, int) else list(item) for item in values]
        return cls(*(item * rank if len(item) == 1 else item for item in lists))

    @property
    def spans(self) -> list[int]:
        return [(tap - 1) * step + 1 for tap, step in zip(self.taps, self.dilations, strict=True)]

    def are_same(self, sizes: Sequence[int | None]) -> bool:
        """Return whether padding ``same`` of an image of this size equals the padding of these windows."""
        if not any(self.pads) or None in sizes:
            return False
        for size, span, stride, pad in zip(sizes, self.spans, self.strides, self.pads, strict=True):
            out = -(-(size or 0) // stride)
            whole = max((out - 1) * stride + span - (size or 0), 0)
            if whole // 2 != pad or ((size or 0) + 2 * pad - span) // stride + 1 != out:
                return False
        return True

    def ends(self, sizes: Ints, ceil: bool) -> list[int]:
        """Return the padding at the ends of the axes that gives PyTorch's number of windows."""
        ends = []
        for size, span, stride, pad in zip(sizes, self.spans, self.strides, self.pads, strict=True):
            rest = size + 2 * pad - span
            count = -(-rest // stride) if ceil else rest // stride
            count -= ceil and count * stride >= size + pad
            ends.append(max(count * stride + span - size - pad, 0))
        return ends

    def around(self, ends: Ints | None = None) -> list[tuple[int, int]]:
        return [(0, 0), *zip(self.pads, ends or self.pads, strict=True), (0, 0)]

    def options(self, form: str, values: Ints) -> dict[str, Any]:
        """Return options by axis. ``form`` is the format of option names."""
        return {form.format(axis): value for axis, value in zip(_AXES[-len(values) :], values, strict=True)}


def convolution(
    g: Builder, x: V, weight: V, bias: V | None, stride: Ints, padding: Ints, dilation: Ints, *rest: Any
) -> Any:
    """Convert a convolution or transposed convolution of sequences, images or volumes."""
    transposed, output_padding, groups = rest
    rank = g.rank(weight) - 2
    if g.rank(x) == rank + 1:
        made = convolution(g, g.reshape(x, [1, *g.dims(x)]), weight, bias, stride, padding, dilation, *rest)
        return g.reshape(made, g.out.shape)
    windows = ImageWindows.of(rank, g.static(weight)[2:], stride, padding, dilation)
    extra = ImageWindows.of(rank, output_padding, 0, 0, 0).taps
    if rank == 1:  # sequences become images of one row
        x, weight = (g.reshape(item, [*g.dims(item)[:2], 1, g.dim(item, 2)]) for item in (x, weight))
        windows = ImageWindows(*([one, *item] for one, item in zip((1, 1, 0, 1), windows, strict=True)))
        extra = [0, *extra]
    image = channels_last(g, x)
    if transposed:
        made = _transposed(g, image, weight, bias, windows, extra, groups)
    else:
        made = _forward(g, image, weight, bias, windows, groups)
    result = channels_first(g, made)
    return g.reshape(result, [*g.dims(result)[:2], g.dim(result, 3)]) if rank == 1 else result


def _forward(g: Builder, image: V, weight: V, bias: V | None, windows: ImageWindows, groups: int) -> Any:
    is_volume = len(windows.taps) == 3
    same = not is_volume and windows.are_same((g.shape(image) or ())[1:-1])
    image = image if same else padded(g, image, windows.around())
    options: dict[str, Any] = windows.options("stride_{}", windows.strides)
    options |= windows.options("dilation_{}_factor", windows.dilations) | {"padding": "same" if same else "valid"}
    if is_volume:
        parts = _in_groups(g, image, weight, groups)
        made = [g("CONV_3D", part, g.transpose(filters, [2, 3, 4, 1, 0]), **options) for part, filters in parts]
        return _affine(g, _joined(g, made), None, bias)
    channels, depth = g.static(weight)[:2]
    name, order = "CONV_2D", [0, 2, 3, 1]
    if groups > 1 and depth == 1:
        name, order = "DEPTHWISE_CONV_2D", [1, 2, 3, 0]
        options["depth_multiplier"] = channels // groups
    return g(name, image, g.transpose(weight, order), *([] if bias is None else [bias]), **options)


def _in_groups(g: Builder, image: V, weight: V, groups: int) -> list[tuple[V, V]]:
    if groups == 1:
        return [(image, weight)]
    axes = [g.number(axis, "int32") for axis in (g.rank(image) - 1, 0)]
    parts = [
        g("SPLIT", axis, item, num_splits=groups, results=groups, dtype="float32")
        for axis, item in zip(axes, (image, weight), strict=True)
    ]
    return list(zip(*parts, strict=True))


def _joined(g: Builder, parts: Sequence[V]) -> V:
    return parts[0] if len(parts) == 1 else g("CONCATENATION", *parts, axis=g.rank(parts[0]) - 1)


def _sizes(g: Builder, image: V) -> tuple[int, ...]:
    return g.static(image, *range(1, g.rank(image) - 1))


def _transposed(
    g: Builder, image: V, weight: V, bias: V | None, windows: ImageWindows, extra: Ints, groups: int
) -> Any:
    spans = windows.spans
    if any(step > 1 for step in windows.dilations):
        weight = g("DILATE", weight, [1, 1, *windows.dilations], g.number(0, "float32"))
    sizes, rank = _sizes(g, image), len(spans)
    axes = list(zip(sizes, spans, windows.strides, windows.pads, extra, strict=True))
    wanted = [(size - 1) * stride - 2 * pad + span + more for size, span, stride, pad, more in axes]
    same = wanted == [size * stride for size, _, stride, _, _ in axes] and all(
        max(span - stride, 0) // 2 == pad for _, span, stride, pad, _ in axes
    )
    extents = [(size - 1) * stride + span + max(0, more - pad) for size, span, stride, pad, more in axes]
    extents = wanted if same else extents
    name, order = ("CONV_3D_TRANSPOSE", [2, 3, 4, 1, 0]) if rank == 3 else ("TRANSPOSE_CONV", [1, 2, 3, 0])
    options: dict[str, Any] = windows.options("stride_{}", windows.strides)
    inside = [bias] if bias is not None and groups == 1 else []
    made = []
    for part, filters in _in_groups(g, image, weight, groups):
        shape = g.ints([g.dim(image, 0), *extents, g.static(filters)[1]])
        filters, padding = g.transpose(filters, order), "same" if same else "valid"
        made.append(g(name, shape, filters, part, *inside, dtype="float32", padding=padding, **options))
    result = _joined(g, made)
    if extents != wanted:
        result = g("SLICE", result, [0, *windows.pads, 0], [-1, *wanted, -1])
    return result if bias is None or inside else g("ADD", result, bias)


def _pooled(g: Builder, x: V, rank: int, pool: Callable[[V], V]) -> Any:
    dims = g.dims(x)
    single = len(dims) == rank + 1
    result = channels_first(g, pool(channels_last(g, g.reshape(x, [1, *dims]) if single else x)))
    return g.reshape(result, g.dims(result)[1:]) if single else result


def _pool(g: Builder, name: str, image: V, windows: ImageWindows, same: bool) -> Any:
    size = {"filter_height": windows.taps[0], "filter_width": windows.taps[1]}
    options = windows.options("stride_{}", windows.strides) | size
    return g(name, image, padding="same" if same else "valid", **options)


def _reduced(g: Builder, image: V, how: str, start: float, windows: ImageWindows) -> Any:
    around = [[1, *values, 1] for values in (windows.taps, windows.strides, windows.dilations)]
    return g("REDUCE_WINDOW", image, g.number(start, g.dtype(image)), *around, reduce_function=how)


def max_pool(
    g: Builder, x: V, kernel: Ints, stride: Ints = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Any:
    """Return the largest elements of windows. PyTorch's second result, the indices, has no equivalent."""
    rank = g.rank(x) - (2 if g.rank(x) > len(kernel) + 1 else 1)
    windows = ImageWindows.of(rank, kernel, stride or kernel, padding, dilation)
    simple = rank == 2 and windows.spans == list(windows.taps)

    def pool(image: V) -> Any:
        sizes = _sizes(g, image)
        if simple and not ceil and windows.are_same(sizes):
            return _pool(g, "MAX_POOL_2D", image, windows, True)
        image = padded(g, image, windows.around(windows.ends(sizes, ceil)), _LOWEST)
        if simple:
            return _pool(g, "MAX_POOL_2D", image, windows, False)
        return _reduced(g, image, "maximum", _LOWEST, windows)

    return _pooled(g, x, rank, pool), None


def average_pool(
    g: Builder, x: V, kernel: Ints, stride: Ints = (), padding: Any = 0, ceil: bool = False, *rest: Any, **options: Any
) -> Any:
    """Return means of windows. Elements of the padding count as in PyTorch."""
    count_padding = rest[0] if rest else options.get("count_include_pad", True)
    divisor = rest[1] if len(rest) > 1 else options.get("divisor_override")
    windows = ImageWindows.of(len(kernel), kernel, stride or kernel, padding, 1)

    def pool(image: V) -> Any:
        sizes, flat = _sizes(g, image), len(kernel) == 2
        if flat and not (ceil or count_padding or divisor) and windows.are_same(sizes):
            return _pool(g, "AVERAGE_POOL_2D", image, windows, True)
        ends = windows.ends(sizes, ceil)
        image = padded(g, image, windows.around(ends))
        made = _pool(g, "AVERAGE_POOL_2D", image, windows, False) if flat else _reduced(g, image, "add", 0, windows)
        counts = _counts(sizes, windows, ends, count_padding)
        counts = np.full_like(counts, divisor) if divisor else counts
        factor = ((math.prod(windows.taps) if flat else 1) / counts).astype(np.float32)
        if np.all(factor == factor.flat[0]):
            return made if factor.flat[0] == 1 else g("MUL", made, float(factor.flat[0]))
        return g("MUL", made, factor[None, ..., None])

    return _pooled(g, x, len(kernel), pool)


def _counts(sizes: Ints, windows: ImageWindows, ends: Ints, with_padding: bool) -> Any:
    whole = np.ones(())
    for size, tap, stride, pad, end in zip(sizes, windows.taps, windows.strides, windows.pads, ends, strict=True):
        starts = np.arange(0, size + pad + end - tap + 1, stride) - pad
        low, high = (-pad, size + pad) if with_padding else (0, size)
        whole = np.multiply.outer(whole, np.minimum(starts + tap, high) - np.maximum(starts, low))
    return whole


def _linear_map(g: Builder, x: V, axis: int, matrix: Any) -> V:
    """Return ``x`` with ``matrix`` [new, old] applied along one axis."""
    last = g.rank(x) - 1
    moved = g.transpose(x, [*(i for i in range(last + 1) if i != axis), axis])
    made = g("FULLY_CONNECTED", moved, np.ascontiguousarray(matrix, np.float32), keep_num_dims=True)
    return g.transpose(made, [*range(axis), last, *range(axis, last)])


def _parts(old: int, new: int) -> list[tuple[int, int]]:
    return [(i * old // new, -(-(i + 1) * old // new)) for i in range(new)]


def adaptive_average(g: Builder, x: V, output_size: Sequence[int | None]) -> Any:
    """Return means of parts of an image. Parts of unequal size need one matrix per axis."""
    rank, first = len(output_size), g.rank(x) - len(output_size)
    if all(size == 1 for size in output_size):
        if rank == 2 and _keeps_codes(g.node):
            return average_pool(g, x, g.static(x, -2, -1))  # rounded once, unlike codes of MEAN
        return g("MEAN", x, list(range(first, g.rank(x))), keep_dims=True)
    sizes = g.static(x, *range(first, g.rank(x)))
    wanted = [old if new is None else new for old, new in zip(sizes, output_size, strict=True)]
    if rank == 2 and all(old % new == 0 for old, new in zip(sizes, wanted, strict=True)):
        return average_pool(g, x, [old // new for old, new in zip(sizes, wanted, strict=True)])
    for axis, old, new in zip(range(first, g.rank(x)), sizes, wanted, strict=True):
        matrix = np.zeros((new, old))
        for row, (begin, end) in enumerate(_parts(old, new)):
            matrix[row, begin:end] = 1 / (end - begin)
        x = _linear_map(g, x, axis, matrix) if old != new else x
    return x


def _keeps_codes(node: Any) -> bool:
    """Return whether the operand and the result of ``node`` are rounded to the same codes."""
    found = {("quantize_per_tensor" in str(item.target), *item.args[1:3]) for item in (node.args[0], *node.users)}
    return len(found) == 1 and bool(found.pop()[0])


def adaptive_maximum(g: Builder, x: V, output_size: Ints) -> Any:
    """Return the largest elements of parts of an image, axis by axis."""
    for place, new in enumerate(output_size):
        axis, old = g.rank(x) - len(output_size) + place, g.static(x, place - len(output_size))[0]
        largest = []
        for begin, end in _parts(old, new):
            begins, lengths = [0] * g.rank(x), [-1] * g.rank(x)
            begins[axis], lengths[axis] = begin, end - begin
            largest.append(g("REDUCE_MAX", g("SLICE", x, begins, lengths), [axis], keep_dims=True))
        if old != new:
            x = largest[0] if new == 1 else g("CONCATENATION", *largest, axis=axis)
    return x, None


def linear(g: Builder, x: V, weight: V, bias: V | None = None) -> Any:
    """Convert a fully connected layer."""
    if g.rank(x) == 1:
        return g.reshape(linear(g, g.reshape(x, [1, *g.dims(x)]), weight, bias), [g.dim(weight, 0)])
    return g("FULLY_CONNECTED", x, *([weight] if bias is None else [weight, bias]), keep_num_dims=True)


def product(g: Builder, a: V, b: V) -> Any:
    """Multiply matrices. A product with a constant becomes a fully connected layer."""
    if g.rank(b) == 1:  # a column
        return g.reshape(product(g, a, g.reshape(b, [*g.dims(b), 1])), g.dims(a)[:-1])
    if g.rank(a) == 1:  # a row
        return g.reshape(product(g, g.reshape(a, [1, *g.dims(a)]), b), [*g.dims(b)[:-2], g.dim(b, -1)])
    left, right = g.cast(a, "float32"), g.cast(b, "float32")
    if g.array(right) is not None and g.rank(right) == 2:
        return g.cast(linear(g, left, g.transpose(right, [1, 0])), g.out_dtype)
    return g.cast(g("BATCH_MATMUL", left, right), g.out_dtype)


def add_product(g: Builder, x: V, a: V, b: V, beta: float = 1, alpha: float = 1) -> Any:
    """Return ``beta * x + alpha * a @ b``."""
    if (alpha, beta) == (1, 1) and g.array(b) is not None and g.rank(x) == 1 and g.rank(b) == 2:
        return linear(g, a, g.transpose(b, [1, 0]), x)
    made = product(g, a, b)
    made = g("MUL", made, alpha) if alpha != 1 else made
    return made if beta == 0 else g("ADD", g("MUL", x, beta) if beta != 1 else x, made)


def attention(
    g: Builder,
    query: V,
    key: V,
    value: V,
    mask: V | None = None,
    dropout: float = 0,
    causal: bool = False,
    **options: Any,
) -> Any:
    """Convert scaled dot-product attention."""
    if options.get("enable_gqa"):
        key, value = (_repeated_heads(g, item, g.static(query, -3)[0]) for item in (key, value))
    scale = options.get("scale")
    factor = 1 / math.sqrt(g.static(query, -1)[0]) if scale is None else scale
    scores = g("BATCH_MATMUL", g("MUL", query, factor), key, adjoint_rhs=True)
    if causal:
        mask = g.constant(np.tri(*g.static(scores, -2, -1), dtype=np.bool_))
    if mask is not None and g.dtype(mask) == "bool":
        array = g.array(mask)
        if array is None:
            mask = g("SELECT_V2", mask, g.number(0, "float32"), g.number(_LOWEST, "float32"))
        else:
            mask = g.constant(np.where(array, np.float32(0), np.float32(_LOWEST)))
    scores = scores if mask is None else g("ADD", scores, mask)
    return g("BATCH_MATMUL", g("SOFTMAX", scores, beta=1.0), value)


def _repeated_heads(g: Builder, x: V, heads: int) -> V:
    *batch, length, width = g.dims(x)
    count = batch[-1] if isinstance(batch[-1], int) else heads
    many = g.broadcast(g.reshape(x, [*batch, 1, length, width]), [*batch, heads // count, length, width])
    return x if count == heads else g.reshape(many, [*batch[:-1], heads, length, width])


def _per_channel(g: Builder, x: V, vector: V | None) -> V | None:
    return None if vector is None else g.reshape(vector, [g.dim(vector, 0), *(1,) * (g.rank(x) - 2)])


def batch_norm(
    g: Builder, x: V, weight: V | None, bias: V | None, mean: V, variance: V, momentum: float, eps: float
) -> Any:
    """Convert batch normalisation in inference to one factor and one summand per channel."""
    scale, centre, gamma, beta = (None if item is None else g.array(item) for item in (variance, mean, weight, bias))
    if scale is None or centre is None:
        raise UnsupportedError("batch normalisation with computed statistics", hint="call eval() on the module")
    factor = (1 if gamma is None else gamma) / np.sqrt(scale.astype(np.float64) + eps)
    summand = (0 if beta is None else beta) - centre * factor
    parts = [_per_channel(g, x, g.constant(item.astype(np.float32))) for item in (factor, summand)]
    computed = (weight if gamma is None else None, bias if beta is None else None)
    return _affine(g, _affine(g, x, *parts), *(_per_channel(g, x, item) for item in computed)), None, None


def _normalized(g: Builder, x: V, axes: Ints, eps: float, centred: bool = True) -> Any:
    distances = g("SUB", x, g("MEAN", x, axes, keep_dims=True)) if centred else x
    spread = g("MEAN", g("MUL", distances, distances), axes, keep_dims=True)
    return g("MUL", distances, g("RSQRT", g("ADD", spread, eps)))


def _affine(g: Builder, x: V, weight: V | None, bias: V | None) -> V:
    x = x if weight is None else g("MUL", x, weight)
    return x if bias is None else g("ADD", x, bias)


def layer_norm(g: Builder, x: V, shape: Ints, weight: V | None, bias: V | None, eps: float) -> Any:
    """Convert layer normalisation."""
    axes = list(range(g.rank(x) - len(shape), g.rank(x)))
    return _affine(g, _normalized(g, x, axes, eps), weight, bias), None, None


def rms_norm(g: Builder, x: V, shape: Ints, weight: V | None = None, eps: float | None = None) -> Any:
    """Convert RMS normalisation: division by the root of the mean square."""
    eps = float(np.finfo(np.float32).eps) if eps is None else eps
    if len(shape) > 1:
        axes = list(range(g.rank(x) - len(shape), g.rank(x)))
        return _affine(g, _normalized(g, x, axes, eps, centred=False), weight, None)
    return g("RMS_NORM", x, g.constant(np.ones(shape, np.float32)) if weight is None else weight, epsilon=eps)


def group_norm(g: Builder, x: V, weight: V | None, bias: V | None, *rest: Any) -> Any:
    """Convert normalisation of groups of channels. Groups of one channel become INSTANCE_NORM."""
    _, channels, _, groups, eps = rest
    if groups == channels and g.rank(x) == 4:
        return instance_norm(g, x, weight, bias, None, None, True, 0, eps), None, None
    dims = g.dims(x)
    normal = g.reshape(_normalized(g, g.reshape(x, [dims[0], groups, -1]), [2], eps), dims)
    return _affine(g, normal, _per_channel(g, x, weight), _per_channel(g, x, bias)), None, None


def instance_norm(
    g: Builder, x: V, weight: V | None, bias: V | None, mean: V | None, variance: V | None, *rest: Any
) -> Any:
    """Convert normalisation of each channel."""
    use_input_stats, momentum, eps, *_ = rest
    if not use_input_stats and mean is not None and variance is not None:
        return batch_norm(g, x, weight, bias, mean, variance, momentum, eps)[0]
    dims: Any = g.dims(x)
    gamma = g.constant(np.ones(dims[1], np.float32)) if weight is None else weight
    beta = g.constant(np.zeros(dims[1], np.float32)) if bias is None else bias
    image = channels_last(g, x if len(dims) == 4 else g.reshape(x, [*dims[:2], 1, -1]))
    return g.reshape(channels_first(g, g("INSTANCE_NORM", image, gamma, beta, epsilon=eps)), dims)


def softmax(name: str, **options: Any) -> Pattern:
    """Return the pattern of a softmax. Our operator computes along the last axis."""

    def pattern(g: Builder, x: V, dim: int, half_to_float: bool = False) -> Any:
        order = list(range(g.rank(x)))
        order[dim], order[-1] = order[-1], order[dim]
        return g.transpose(g(name, g.transpose(x, order), **options), order)

    return of_scalars(pattern)


def resize(mode: str) -> Pattern:
    """Return the pattern of an image's resizing.

    Our operators support two modes. Other modes become a matrix per axis. PyTorch computes it from unit vectors.
    """

    def pattern(g: Builder, x: V, output_size: Any, *rest: Any) -> Any:
        corners, scales = len(rest) == 2 and bool(rest[0]), rest[-1]
        old = g.static(x, *range(2, g.rank(x)))
        new = list(output_size or (math.floor(n * f) for n, f in zip(old, scales, strict=True)))
        exact = output_size or all(n * f == m for n, f, m in zip(old, scales, new, strict=True))
        name = {"bilinear": "RESIZE_BILINEAR", "nearest": "RESIZE_NEAREST_NEIGHBOR"}.get(mode)
        if len(old) == 2 and name and exact:
            centred = mode == "bilinear" and not corners
            options: dict[str, Any] = {"align_corners": corners, "half_pixel_centers": centred}
            return channels_first(g, g(name, channels_last(g, x), new, **options))
        for axis, size in enumerate(old):
            matrix = _interpolation(mode, size, new[axis], corners, None if exact else scales[axis])
            x = _linear_map(g, x, axis + 2, matrix)
        return x

    return pattern


def _interpolation(mode: str, old: int, new: int, corners: bool, scale: float | None) -> Any:
    import torch

    how = {"linear": "bilinear", "trilinear": "bilinear"}.get(mode, mode.removesuffix("_aa"))
    options: dict[str, Any] = {"align_corners": corners} if how in ("bilinear", "bicubic") else {}
    options |= {"size": (new, old)} if scale is None else {"scale_factor": (scale, 1.0)}
    units = torch.eye(old)[None, None]
    return torch.nn.functional.interpolate(units, mode=how, antialias=mode.endswith("_aa"), **options)[0, 0].numpy()


ROWS: Mapping[str, Pattern] = rows(
    ("convolution", convolution),
    ("max_pool2d_with_indices max_pool3d_with_indices", max_pool),
    ("avg_pool2d avg_pool3d", average_pool),
    ("adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d", adaptive_average),
    ("adaptive_max_pool2d adaptive_max_pool3d", adaptive_maximum),
    ("linear", linear),
    ("mm bmm matmul", product),
    ("addmm", add_product),
    ("scaled_dot_product_attention", attention),
    ("_native_batch_norm_legit_no_training", batch_norm),
    ("native_layer_norm", layer_norm),
    ("native_group_norm", group_norm),
    ("instance_norm", instance_norm),
    ("rms_norm", rms_norm),
    ("_softmax", softmax("SOFTMAX", beta=1.0)),
    ("_log_softmax", softmax("LOG_SOFTMAX")),
    *((f"upsample_{mode}.vec", resize(mode[:-2])) for mode in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")),
    ("upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec", resize("nearest")),
    *((f"_upsample_nearest_exact{n}d.vec", resize("nearest-exact")) for n in (1, 2, 3)),
    *((f"_upsample_{mode}2d_aa.vec", resize(f"{mode}_aa")) for mode in ("bilinear", "bicubic")),
)
