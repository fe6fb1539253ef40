"""Networks on which each rewrite of the table applies, and ones that are nearly such."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flatbuffers import flexbuffers
from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet

Make = Callable[[FloatNet], SSAValue | Sequence[SSAValue]]


class Cases(NamedTuple):
    """``hits``: the rewrite applies and results stay; ``misses``: it does not apply."""

    hits: Sequence[Make]
    misses: Sequence[Make]


def _image(n: FloatNet, *, h: int = 4, w: int = 5, c: int = 3) -> SSAValue:
    return n.real(1, h, w, c)


def _ints(n: FloatNet, *numbers: int) -> SSAValue:
    return n.const(numbers, "int32")


def _conv(n: FloatNet, x: SSAValue, *, activation: str = "none", outputs: int = 2) -> SSAValue:
    options = {"padding": "same", "stride_w": 1, "stride_h": 1, "fused_activation_function": activation}
    channels = n.array(x).shape[-1]
    return n.add("CONV_2D", x, n.weights(outputs, 2, 2, channels), n.weights(outputs), **options)


def _depthwise(n: FloatNet, x: SSAValue, *, activation: str = "none") -> SSAValue:
    options = {"padding": "same", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
    channels = n.array(x).shape[-1]
    weights = n.weights(1, 2, 2, channels)
    return n.add("DEPTHWISE_CONV_2D", x, weights, n.weights(channels), fused_activation_function=activation, **options)


def _transposed(n: FloatNet, x: SSAValue, *, activation: str = "none") -> SSAValue:
    batch, height, width, channels = n.array(x).shape
    shape = _ints(n, batch, 2 * height, 2 * width, 2)
    options = {"padding": "same", "stride_w": 2, "stride_h": 2, "fused_activation_function": activation}
    return n.add("TRANSPOSE_CONV", shape, n.weights(2, 2, 2, channels), x, n.weights(2), **options)


def _dense(n: FloatNet, x: SSAValue, *, activation: str = "none", outputs: int = 3) -> SSAValue:
    weights = n.weights(outputs, n.array(x).shape[-1])
    return n.add("FULLY_CONNECTED", x, weights, n.weights(outputs), fused_activation_function=activation)


Layer = Callable[..., SSAValue]


def _behind(layer: Layer, operator: str, *, flat: bool = False) -> Cases:
    """A layer, then a sum or product; a fused activation between them, or a constant for each pixel, is in the way."""

    def source(n: FloatNet) -> SSAValue:
        return n.real(2, 4) if flat else _image(n)

    def vector(n: FloatNet) -> SSAValue:
        y = layer(n, source(n))
        return n.add(operator, y, n.weights(n.array(y).shape[-1]))

    def scalar(n: FloatNet) -> SSAValue:
        return n.add(operator, layer(n, source(n)), n.const(1.5), fused_activation_function="relu")

    def kept_activation(n: FloatNet) -> SSAValue:
        y = layer(n, source(n), activation="relu")
        return n.add(operator, y, n.weights(n.array(y).shape[-1]))

    def each_element(n: FloatNet) -> SSAValue:
        y = layer(n, source(n))
        return n.add(operator, y, n.weights(*n.array(y).shape))

    def two_readers(n: FloatNet) -> Sequence[SSAValue]:
        y = layer(n, source(n))
        return n.add(operator, y, n.const(1.5)), n.add("RELU", y)

    return Cases([vector, scalar], [kept_activation, each_element, two_readers])


def _both(first: Cases, second: Cases) -> Cases:
    return Cases([*first.hits, *second.hits], [*first.misses, *second.misses])


def _folding(operator: Make, computed: Make) -> Cases:
    return Cases([operator], [computed])


def _relu(n: FloatNet, value: SSAValue) -> SSAValue:
    """Something that reads ``value`` besides the function's end, which keeps its operator."""
    return n.add("RELU", value)


def _neutral(operator: str, number: float) -> Cases:
    return Cases(
        [lambda n: _relu(n, n.add(operator, _image(n), n.const(number)))],
        [
            lambda n: _relu(n, n.add(operator, _image(n), n.const(number + 0.5))),
            lambda n: _relu(n, n.add(operator, n.real(1, 3), n.const(np.full((2, 3), number)))),
        ],
    )


def _shape(n: FloatNet, *extents: int) -> SSAValue:
    return _ints(n, *extents)


def _transpose(n: FloatNet, x: SSAValue, *order: int) -> SSAValue:
    return n.add("TRANSPOSE", x, _ints(n, *order))


def _reshape(n: FloatNet, x: SSAValue, *extents: int) -> SSAValue:
    return n.add("RESHAPE", x, _shape(n, *extents), new_shape=list(extents))


def _mean(n: FloatNet, x: SSAValue, *axes: int, keep: bool = False) -> SSAValue:
    return n.add("MEAN", x, _ints(n, *axes), keep_dims=keep)


def _rms(n: FloatNet, *, axis: int = -1) -> SSAValue:
    x = n.real(2, 3, 4)
    mean = _mean(n, n.add("MUL", x, x), axis, keep=True)
    root = n.add("RSQRT", n.add("ADD", mean, n.const(1e-5)))
    return n.add("MUL", n.add("MUL", x, root), n.weights(4))


def _twice(n: FloatNet, x: SSAValue) -> Sequence[SSAValue]:
    return n.add("NEG", x), n.add("ABS", x)


def _gelu(n: FloatNet, cubic: float) -> SSAValue:
    x = n.real(2, 4)
    cube = n.add("MUL", n.add("POW", x, n.const(3.0)), n.const(cubic))
    inner = n.add("MUL", n.add("ADD", x, cube), n.const(np.sqrt(2 / np.pi)))
    return n.add("MUL", n.add("MUL", x, n.const(0.5)), n.add("ADD", n.add("TANH", inner), n.const(1.0)))


def _prelu(n: FloatNet, slope: float) -> SSAValue:
    x = n.real(1, 2, 3)
    negative = n.add("MUL", n.add("SUB", x, n.add("ABS", x)), n.const(0.5 * slope))
    return n.add("ADD", n.add("RELU", x), negative)


def _pool(n: FloatNet, x: SSAValue, window: int = 3) -> SSAValue:
    options = {"padding": "valid", "stride_w": 1, "stride_h": 1, "filter_height": window, "filter_width": window}
    return n.add("MAX_POOL_2D", x, **options)


def _padded(n: FloatNet, x: SSAValue, value: float, *, rows: int = 1) -> SSAValue:
    paddings = n.const([[0, 0], [rows, rows], [1, 1], [0, 0]], "int32")
    return n.add("PADV2", x, paddings, n.const(value))


def _slice(n: FloatNet, x: SSAValue, stride: int) -> SSAValue:
    return n.add("STRIDED_SLICE", x, _ints(n, 0, 0), _ints(n, 1, 4), _ints(n, 1, stride), shrink_axis_mask=1)


def _guarded(n: FloatNet, extent: int) -> SSAValue:
    table, index = n.weights(4, 3), n.input(np.array([0, 3, 1], np.int32))
    total = n.add("ADD", index, _ints(n, extent), dtypes=["int32"])
    return n.add("GATHER", table, n.add("FLOOR_MOD", total, _ints(n, 4), dtypes=["int32"]), axis=0)


def _custom(n: FloatNet, code: str, *operands: SSAValue, count: int = 1, **options: object) -> Any:
    data = bytes(flexbuffers.Dumps(options)) if options else b""
    return n.add("CUSTOM", *operands, count=count, code=code, data=data, dtypes=["float32"] * count)


def _resolving(hit: Make) -> Cases:
    """Another code stays."""
    return Cases([hit], [lambda n: _custom(n, "Erf", n.real(2, 3))])


def _media_pipe(n: FloatNet, padding: int) -> SSAValue:
    operands = n.real(1, 3, 4, 3), n.weights(2, 3, 2, 3), n.weights(2)
    data = struct.pack("<3i", padding, 2, 3)
    made: SSAValue = n.add("CUSTOM", *operands, code="Convolution2DTransposeBias", data=data)
    return made


def _cut(n: FloatNet, *begin: int, size: tuple[int, int], padding: str = "valid", stride: int = 2) -> SSAValue:
    """Rows and columns from ``begin`` of a transposed convolution of 3 by 4 pixels and 3 by 3 taps."""
    height, width = (2 * stride + 3, 3 * stride + 3) if padding == "valid" else (3 * stride, 4 * stride)
    options = {"padding": padding, "stride_w": stride, "stride_h": stride, "fused_activation_function": "relu"}
    shape = _ints(n, 1, height, width, 2)
    whole = n.add("TRANSPOSE_CONV", shape, n.weights(2, 3, 3, 3), _image(n, h=3, w=4), n.weights(2), **options)
    made: SSAValue = n.add("SLICE", whole, _ints(n, 0, *begin, 0), _ints(n, 1, *size, 2))
    return made


def _sum_of_layers(n: FloatNet, *, shared: bool) -> SSAValue:
    x = n.real(2, 4)
    return n.add("ADD", _dense(n, x), _dense(n, x if shared else n.real(2, 4)), fused_activation_function="relu")


CASES: Mapping[str, Cases] = {
    "convert_nchw_to_nhwc": Cases(
        [lambda n: _transpose(n, n.add("RELU", _transpose(n, _image(n), 0, 3, 1, 2)), 0, 2, 3, 1)],
        [lambda n: n.add("SOFTMAX", _transpose(n, _image(n), 0, 3, 1, 2), beta=1.0)],
    ),
    "fold_add_v2": _folding(
        lambda n: n.add("MUL", n.real(2), n.add("ADD", n.weights(2), n.const(1.0))),
        lambda n: n.add("MUL", n.real(2), n.add("ADD", n.real(2), n.const(1.0))),
    ),
    "fold_mul": _folding(
        lambda n: n.add("ADD", n.real(2), n.add("MUL", n.weights(2), n.const(3.0))),
        lambda n: n.add("ADD", n.real(2), n.add("MUL", n.real(2), n.const(3.0))),
    ),
    "fold_cast": _folding(
        lambda n: n.add("ADD", n.real(2), n.add("CAST", _ints(n, 3, 4), out_data_type="float32", in_data_type="int32")),
        lambda n: n.add("CAST", n.input(np.array([1, 2], np.int32)), in_data_type="int32", out_data_type="float32"),
    ),
    "fold_gather": _folding(
        lambda n: n.add("ADD", n.real(2, 3), n.add("GATHER", n.weights(4, 3), _ints(n, 1, 3), axis=0)),
        lambda n: _relu(n, n.add("GATHER", n.real(4, 3), _ints(n, 1, 3), axis=0)),
    ),
    "fold_reshape": _folding(
        lambda n: n.add("ADD", n.real(2, 2), _reshape(n, n.weights(4), 2, 2)),
        lambda n: _relu(n, _reshape(n, n.real(4), 2, 2)),
    ),
    "fold_squeeze": _folding(
        lambda n: n.add("ADD", n.real(2), n.add("SQUEEZE", n.weights(1, 2), squeeze_dims=[0])),
        lambda n: _relu(n, n.add("SQUEEZE", n.real(1, 2), squeeze_dims=[0])),
    ),
    "fold_shape": _folding(
        lambda n: n.add("RESHAPE", n.real(4), n.add("SHAPE", n.real(2, 2), dtypes=["int32"], out_type="int32")),
        lambda n: _relu(n, n.real(2, 2)),
    ),
    "fold_dwconv": _folding(
        lambda n: n.add("ADD", n.real(1, 3, 3, 2), _depthwise(n, n.weights(1, 3, 3, 2))),
        lambda n: _relu(n, _depthwise(n, n.real(1, 3, 3, 2))),
    ),
    "fold_fully_connected": _folding(
        lambda n: n.add("ADD", n.real(2, 3), _dense(n, n.weights(2, 4))),
        lambda n: _relu(n, _dense(n, n.real(2, 4))),
    ),
    "fuse_add_with_conv": _both(_behind(_conv, "ADD"), _behind(_conv, "SUB")),
    "fuse_mul_with_conv": _both(_behind(_conv, "MUL"), _behind(_conv, "DIV")),
    "fuse_add_with_tconv": _behind(_transposed, "ADD"),
    "fuse_add_with_fully_connected": _behind(_dense, "ADD", flat=True),
    "fuse_mul_with_fullyconnected": _behind(_dense, "MUL", flat=True),
    "fuse_batchnorm_with_conv": _both(_behind(_conv, "MUL"), _behind(_conv, "ADD")),
    "fuse_batchnorm_with_dwconv": _both(_behind(_depthwise, "MUL"), _behind(_depthwise, "ADD")),
    "fuse_batchnorm_with_tconv": _both(_behind(_transposed, "MUL"), _behind(_transposed, "ADD")),
    "remove_unnecessary_add": _neutral("ADD", 0.0),
    "remove_unnecessary_mul": _neutral("MUL", 1.0),
    "remove_unnecessary_div": _neutral("DIV", 1.0),
    "remove_unnecessary_cast": Cases(
        [lambda n: _relu(n, n.add("CAST", n.real(2), in_data_type="float32", out_data_type="float32"))],
        [lambda n: n.add("CAST", n.input(np.array([1], np.int32)), in_data_type="int32", out_data_type="float32")],
    ),
    "remove_unnecessary_reshape": Cases(
        [lambda n: _relu(n, _reshape(n, n.real(2, 3), 2, 3))], [lambda n: _relu(n, _reshape(n, n.real(2, 3), 3, 2))]
    ),
    "remove_unnecessary_transpose": Cases(
        [lambda n: _relu(n, _transpose(n, n.real(2, 3), 0, 1))], [lambda n: _relu(n, _transpose(n, n.real(2, 3), 1, 0))]
    ),
    "remove_unnecessary_slice": Cases(
        [lambda n: _relu(n, n.add("SLICE", n.real(2, 3), _ints(n, 0, 0), _ints(n, 2, 3)))],
        [lambda n: _relu(n, n.add("SLICE", n.real(2, 3), _ints(n, 0, 1), _ints(n, 2, 2)))],
    ),
    "remove_unnecessary_strided_slice": Cases(
        [lambda n: _relu(n, n.add("STRIDED_SLICE", n.real(4), _ints(n, 0), _ints(n, 4), _ints(n, 1)))],
        [lambda n: _relu(n, n.add("STRIDED_SLICE", n.real(4), _ints(n, -1), _ints(n, -5), _ints(n, -1)))],
    ),
    "remove_unnecessary_split": Cases(
        [lambda n: _relu(n, n.add("SPLIT", n.const(1, "int32"), n.real(2, 4), num_splits=1))],
        [lambda n: n.add("ADD", *n.add("SPLIT", n.const(1, "int32"), n.real(2, 4), count=2, num_splits=2))],
    ),
    "remove_redundant_reshape": Cases(
        [lambda n: _reshape(n, _reshape(n, n.real(2, 6), 3, 4), 12)],
        [lambda n: _reshape(n, _relu(n, _reshape(n, n.real(2, 6), 3, 4)), 12)],
    ),
    "remove_redundant_transpose": Cases(
        [lambda n: _transpose(n, _transpose(n, _image(n), 0, 3, 1, 2), 0, 1, 3, 2)],
        [lambda n: _transpose(n, _relu(n, _transpose(n, _image(n), 0, 3, 1, 2)), 0, 1, 3, 2)],
    ),
    "substitute_transpose_to_reshape": Cases(
        [lambda n: _transpose(n, n.real(1, 2, 1, 3), 0, 2, 1, 3)], [lambda n: _transpose(n, n.real(1, 2, 3), 0, 2, 1)]
    ),
    "fuse_slice_with_tconv": Cases(
        [
            lambda n: _cut(n, 0, 0, size=(6, 8)),  # one column too many behind
            lambda n: _cut(n, 1, 1, size=(5, 7)),  # one before and one behind
            lambda n: _cut(n, 0, 0, size=(6, 8), padding="same"),
        ],
        [
            lambda n: _cut(n, 1, 1, size=(6, 8)),
            lambda n: _cut(n, 0, 0, size=(5, 7)),
            lambda n: _cut(n, 2, 2, size=(3, 5)),  # a row of pixels less would give that size, too
            lambda n: _cut(n, 1, 1, size=(4, 6), padding="same"),
            lambda n: n.add("SLICE", _conv(n, _image(n)), _ints(n, 0, 0, 0, 0), _ints(n, 1, 3, 5, 2)),
        ],
    ),
    "fuse_rsqrt": Cases(
        [lambda n: n.add("DIV", n.const(1.0), n.add("SQRT", n.real(3, low=1.0, high=2.0)))],
        [lambda n: n.add("DIV", n.const(1.0), n.add("EXP", n.real(3)))],
    ),
    "forward_reshape_to_unaryop": Cases(
        [
            lambda n: _reshape(n, n.add("NEG", _reshape(n, n.real(2, 6), 3, 4)), 12),
            lambda n: n.add("GELU", _reshape(n, n.real(2, 6), 12), approximate=True),
        ],
        [
            lambda n: n.add("SOFTMAX", _reshape(n, n.real(2, 6), 3, 4), beta=1.0),
            lambda n: n.add("NEG", n.real(2, 6)),
            lambda n: _twice(n, _reshape(n, n.real(2, 6), 3, 4)),
        ],
    ),
    "fuse_mean_with_mean": Cases(
        [
            lambda n: _mean(n, _mean(n, _image(n), 1), 1),
            lambda n: _mean(n, _mean(n, _image(n), 2, keep=True), 1, keep=True),
            lambda n: _mean(n, _mean(n, _image(n), 0, 2), -1),
        ],
        [lambda n: _mean(n, _mean(n, _image(n), 2, keep=True), 1)],
    ),
    "fuse_transpose_with_mean": Cases(
        [lambda n: _mean(n, _transpose(n, _image(n), 0, 3, 1, 2), 2, 3)],
        [
            lambda n: _mean(n, _transpose(n, _image(n), 0, 3, 1, 2), 3),
            lambda n: _mean(n, _transpose(n, _image(n), 0, 3, 1, 2), 2, 3, keep=True),
        ],
    ),
    "fuse_mul_with_div": Cases(
        [lambda n: n.add("MUL", n.add("DIV", n.weights(3), n.real(3, low=1.0, high=2.0)), n.const(2.0))],
        [lambda n: n.add("MUL", n.add("DIV", n.real(3), n.real(3, low=1.0, high=2.0)), n.const(2.0))],
    ),
    "transform_min_max_to_relu6": Cases(
        [lambda n: n.add("MAXIMUM", n.add("MINIMUM", n.real(9, low=-9, high=9), n.const(6.0)), n.const(0.0))],
        [lambda n: n.add("MAXIMUM", n.add("MINIMUM", n.real(9, low=-9, high=9), n.const(6.5)), n.const(-0.5))],
    ),
    "transform_min_relu_to_relu6": Cases(
        [lambda n: n.add("RELU", n.add("MINIMUM", n.real(9, low=-9, high=9), n.const(6.0)))],
        [lambda n: n.add("RELU", n.add("MINIMUM", n.real(9, low=-9, high=9), n.const(5.0)))],
    ),
    "transform_sqrt_div_to_rsqrt_mul": Cases(
        [lambda n: n.add("DIV", n.real(3), n.add("SQRT", n.real(3, low=1.0, high=2.0)))],
        [lambda n: n.add("DIV", n.add("SQRT", n.real(3, low=1.0, high=2.0)), n.real(3, low=1.0, high=2.0))],
    ),
    "fuse_prelu": Cases([lambda n: _prelu(n, 0.2)], [lambda n: n.add("ADD", n.add("RELU", n.real(3)), n.real(3))]),
    "fuse_gelu": Cases([lambda n: _gelu(n, 0.044715)], [lambda n: _gelu(n, 0.05)]),
    "fuse_activation_function": Cases(
        [lambda n: n.add("RELU6", _conv(n, _image(n)))], [lambda n: n.add("TANH", _conv(n, _image(n)))]
    ),
    "fuse_horizontal_fc_layers": Cases(
        [lambda n: _sum_of_layers(n, shared=True)], [lambda n: _sum_of_layers(n, shared=False)]
    ),
    "substitute_expand_dims_to_reshape": Cases(
        [lambda n: n.add("EXPAND_DIMS", n.real(2, 3), n.const(1, "int32"))],
        [lambda n: n.add("SQUEEZE", n.real(2, 1), squeeze_dims=[1])],
    ),
    "substitute_squeeze_to_reshape": Cases(
        [lambda n: n.add("SQUEEZE", n.real(2, 1), squeeze_dims=[1])],
        [lambda n: n.add("EXPAND_DIMS", n.real(2, 3), n.const(1, "int32"))],
    ),
    "substitute_pack_to_reshape": Cases(
        [lambda n: n.add("PACK", n.real(2, 3), axis=1, values_count=1)],
        [lambda n: n.add("PACK", n.real(2, 3), n.real(2, 3), axis=1, values_count=2)],
    ),
    "substitute_strided_slice_to_reshape": Cases(
        [lambda n: _slice(n, n.real(1, 4), 1)],
        [
            lambda n: _slice(n, n.real(1, 4), 2),
            lambda n: n.add("STRIDED_SLICE", n.real(4), _ints(n, -1), _ints(n, -5), _ints(n, -1)),
        ],
    ),
    "substitute_splitv_to_split": Cases(
        [lambda n: n.add("SPLIT_V", n.real(2, 4), _ints(n, 2, 2), n.const(1, "int32"), count=2, num_splits=2)],
        [lambda n: n.add("SPLIT_V", n.real(2, 4), _ints(n, 1, 3), n.const(1, "int32"), count=2, num_splits=2)],
    ),
    "substitute_padv2_to_pad": Cases(
        [lambda n: _pool(n, _padded(n, n.add("RELU", _image(n)), -3.0e38))],
        [
            lambda n: _pool(n, _padded(n, _image(n), -3.0e38)),
            lambda n: _pool(n, _padded(n, n.add("RELU", _image(n)), 0.5)),
            lambda n: _pool(n, _padded(n, n.add("RELU", _image(n)), -3.0e38, rows=2), 2),
            lambda n: n.add("TANH", _padded(n, n.add("RELU", _image(n)), -1.0)),
        ],
    ),
    "fuse_add_to_fullyconnected_bias": Cases(
        [lambda n: _dense(n, n.add("ADD", n.real(2, 4), n.weights(4)))],
        [
            lambda n: _dense(n, n.add("MUL", n.real(2, 4), n.weights(4))),
            lambda n: _dense(n, n.add("ADD", n.real(2, 4), n.weights(2, 4))),
        ],
    ),
    "fuse_mul_to_fullyconnected_weights": Cases(
        [lambda n: _dense(n, n.add("MUL", n.real(2, 4), n.weights(4)))],
        [lambda n: _dense(n, n.add("ADD", n.real(2, 4), n.weights(4)))],
    ),
    "fuse_rmsnorm": Cases([_rms], [lambda n: _rms(n, axis=1)]),
    "fuse_mul_with_rmsnorm": Cases(
        [lambda n: n.add("MUL", n.add("RMS_NORM", n.real(1, 2, 4), n.weights(4), epsilon=1e-5), n.weights(4))],
        [lambda n: n.add("MUL", n.add("RMS_NORM", n.real(1, 2, 4), n.weights(4), epsilon=1e-5), n.weights(1, 2, 4))],
    ),
    "replace_sub_with_add": Cases(
        [lambda n: n.add("SUB", n.real(2, 4), n.weights(4), fused_activation_function="relu")],
        [lambda n: n.add("SUB", n.weights(4), n.real(2, 4))],
    ),
    "replace_non_const_fc_with_batch_matmul": Cases(
        [lambda n: n.add("FULLY_CONNECTED", n.real(2, 4), n.real(3, 4), n.weights(3))],
        [lambda n: _dense(n, n.real(2, 4))],
    ),
    "replace_cw_mul_add_with_depthwise_conv": Cases(
        [lambda n: n.add("MUL", _image(n), n.weights(3), fused_activation_function="relu6")],
        [lambda n: n.add("MUL", _image(n), n.weights(4, 5, 3)), lambda n: n.add("MUL", n.real(2, 3), n.weights(3))],
    ),
    "expand_broadcast_const": Cases(
        [lambda n: n.add("ADD", n.real(2, 3), n.weights(3))], [lambda n: n.add("ADD", n.real(2, 3), n.weights(2, 3))]
    ),
    "decompose_hardswish": Cases(
        [lambda n: n.add("HARD_SWISH", n.real(9, low=-5, high=5))], [lambda n: _relu(n, n.real(2))]
    ),
    "decompose_softmax": Cases(
        [lambda n: n.add("SOFTMAX", n.real(2, 3), beta=1.0), lambda n: n.add("SOFTMAX", n.real(2, 3), beta=0.5)],
        [lambda n: n.add("LOG_SOFTMAX", n.real(2, 3))],
    ),
    "resolve_customop_add": _resolving(lambda n: _custom(n, "AddV2", n.real(2, 3), n.weights(3), T=1)),
    "resolve_customop_batchmatmul": _resolving(
        lambda n: _custom(n, "BatchMatMulV2", n.real(2, 3, 4), n.real(2, 5, 4), adj_x=False, adj_y=True)
    ),
    "resolve_customop_matmul": _resolving(
        lambda n: _custom(n, "MatMul", n.real(3, 2), n.weights(3, 4), transpose_a=True, transpose_b=False)
    ),
    "resolve_customop_splitv": _resolving(
        lambda n: _custom(n, "SplitV", n.real(2, 5), _ints(n, 2, 3), n.const(1, "int32"), count=2, num_split=2)
    ),
    "resolve_customop_transpose_conv": Cases(
        [lambda n: _media_pipe(n, 1), lambda n: _media_pipe(n, 2)],
        [lambda n: _custom(n, "Erf", n.real(1, 3, 4, 3))],
    ),
    "remove_gather_guard": Cases([lambda n: _guarded(n, 4)], [lambda n: _guarded(n, 5)]),
}
