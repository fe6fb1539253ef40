"""Operators alone in native code: what the host kernels give, of every element type that they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from e2e.test_native_reals import assert_close
from helpers.models import ModelBuilder, Shape, model_bytes
from helpers.native import skip_unless_it_runs
from helpers.random_operators import RandomOperators
from odc_mlir.errors import InputError, UnsupportedError
from odc_mlir.formats.circle.model import Quantization
from odc_mlir.ops.constants import encode_constant

Array = np.ndarray
Case = tuple[str, list[Array], dict[int, Array], list[tuple[Shape, str]], dict[str, Any]]


def values(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    if dtype == "float32":
        return generator.normal(scale=2, size=shape).astype(dtype)
    return generator.integers(*((0, 2) if dtype == "bool" else (-50, 50)), shape).astype(dtype)


def ints(*numbers: Any, dtype: str = "int32") -> Array:
    return np.array(numbers, dtype)


def model_of(cases: list[Case]) -> bytes:
    """A model in which every case is one operator beside the others."""
    builder = ModelBuilder()
    inputs, outputs = [], []
    for number, (name, arrays, constants, results, options) in enumerate(cases):
        given = iter(arrays)
        operands = []
        for i in range(len(arrays) + len(constants)):
            if i in constants:
                array = constants[i]
                operands.append(builder.tensor(f"c{number}_{i}", array.shape, str(array.dtype), data=array))
            else:
                array = next(given)
                operands.append(builder.tensor(f"x{number}_{i}", array.shape, str(array.dtype)))
                inputs.append(operands[-1])
        found = [builder.tensor(f"y{number}_{i}", shape, dtype) for i, (shape, dtype) in enumerate(results)]
        builder.operator(name, operands, found, options=options)
        outputs += found
    return model_bytes(builder.finish(inputs, outputs))


def case(
    name: str, inputs: list[Array], *shapes: Shape, constants: dict[int, Array] | None = None, dtype: str = "float32",
    **options: Any,
) -> Case:  # fmt: skip
    return name, inputs, constants or {}, [(shape, dtype) for shape in shapes], options


X = values(2, 4, 6, 3)
NAN = np.array([[1, np.nan, 3], [np.nan, np.nan, np.nan]], np.float32)
MOVES = [
    case("SPLIT", [X], *[(2, 4, 2, 3)] * 3, constants={0: ints(2)[0]}, num_splits=3),
    case("SPLIT_V", [X], (2, 1, 6, 3), (2, 3, 6, 3), constants={1: ints(1, 3), 2: ints(1)[0]}, num_splits=2),
    case("UNPACK", [values(2, 3, 2)], (2, 2), (2, 2), (2, 2), num=3, axis=1),
    case("PACK", [values(2, 3), values(2, 3, seed=1)], (2, 2, 3), axis=1, values_count=2),
    case("TILE", [values(2, 3)], (4, 9), constants={1: ints(2, 3)}),
    case("BROADCAST_TO", [values(1, 3, 1)], (2, 3, 4), constants={1: ints(2, 3, 4)}),
    case("SPACE_TO_DEPTH", [X], (2, 2, 3, 12), block_size=2),
    case("DEPTH_TO_SPACE", [values(1, 2, 2, 8)], (1, 4, 4, 2), block_size=2),
    case("SPACE_TO_BATCH_ND", [X], (8, 3, 3, 3), constants={1: ints(2, 2), 2: ints([1, 1], [0, 0])}),
    case("BATCH_TO_SPACE_ND", [values(4, 2, 2, 1)], (1, 3, 4, 1), constants={1: ints(2, 2), 2: ints([0, 1], [0, 0])}),
    case("REVERSE_V2", [X], X.shape, constants={1: ints(2)}),
    case("MIRROR_PAD", [values(3, 4)], (5, 6), constants={1: ints([1, 1], [2, 0])}, mode="reflect"),
    case("RESIZE_NEAREST_NEIGHBOR", [X], (2, 7, 9, 3), constants={1: ints(7, 9)}),
    case("TRANSPOSE", [values(2, 3, 2, 3, 2, 2)], (2, 2, 3, 2, 3, 2), constants={1: ints(5, 0, 3, 2, 1, 4)}),
    case("GATHER", [X], (2, 4, 2, 3), constants={1: ints(5, 0)}, axis=2),
    case("GATHER", [ints(5, 0, dtype="int64")], (2, 3), constants={0: values(7, 3)}, axis=0),
    *(
        case("DYNAMIC_UPDATE_SLICE", [X, values(2, 4, 2, 3, seed=1), ints(7, -9, place, 1)], X.shape)
        for place in (-1, 1, 4, 1 << 30)
    ),
    case("DYNAMIC_UPDATE_SLICE", [ints(1, 2, 3), ints(4, 5, 6), ints(2)], (3,), dtype="int32"),
    case("GATHER", [values(2, 7, 9), ints([6, 1], [0, 0])], (2, 2, 2, 9), axis=1),
    case("CONCATENATION", [ints([1, 2], dtype="int64"), ints([3, 4], dtype="int64")], (2, 2), dtype="int64", axis=0),
]
REDUCTIONS = [
    case(name, [values(2, 5, 3, 19)], shape, constants={1: ints(*axes)}, keep_dims=False)
    for name in ("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "MEAN")
    for axes, shape in (((3,), (2, 5, 3)), ((1,), (2, 3, 19)), ((0, 2), (5, 19)), ((0, 1, 2, 3), ()))
]
REDUCTIONS += [
    case("SUM", [values(3, 4, dtype="int32")], (3,), constants={1: ints(1)}, dtype="int32"),
    case("REDUCE_MAX", [values(3, 40, dtype="int32")], (40,), constants={1: ints(0)}, dtype="int32"),
    case("REDUCE_ANY", [values(3, 4, dtype="bool")], (3,), constants={1: ints(1)}, dtype="bool"),
    case("ARG_MAX", [values(3, 4, 5)], (3, 5), constants={1: ints(1)[0]}, dtype="int32", output_type="int32"),
    case("ARG_MIN", [NAN], (2,), constants={1: ints(1)[0]}, dtype="int64", output_type="int64"),
    case("CUMSUM", [values(3, 4)], (3, 4), constants={1: ints(1)[0]}, exclusive=True, reverse=True),
    case("LOG_SOFTMAX", [values(3, 21)], (3, 21)),
    case("L2_NORMALIZATION", [values(3, 21)], (3, 21)),
    *(
        case("RMS_NORM", [values(1, 3, 21)], (1, 3, 21), constants={1: values(count)}, epsilon=1e-5)
        for count in (1, 21)
    ),
]
IMAGES = [
    case("RESIZE_BILINEAR", [X], (2, 7, 9, 3), constants={1: ints(7, 9)}, half_pixel_centers=True),
    *(case(name, [X], (2, 2, 3, 3), padding="same", stride_h=2, stride_w=2, filter_height=3, filter_width=3)
      for name in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D")),
]  # fmt: skip
PLAIN = [
    *(case(name, [values(2, 3, dtype=dtype), values(3, dtype=dtype, seed=1)], (2, 3), dtype="bool")
      for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
      for dtype in ("float32", "int32", "int64")),
    *(case(name, [values(2, 3, dtype="int32"), values(2, 1, dtype="int32", seed=1)], (2, 3), dtype="int32")
      for name in ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")),
    case("LOGICAL_AND", [values(9, dtype="bool"), values(9, dtype="bool", seed=1)], (9,), dtype="bool"),
    case("LOGICAL_OR", [values(9, dtype="bool"), values(9, dtype="bool", seed=1)], (9,), dtype="bool"),
    case("LOGICAL_NOT", [values(9, dtype="bool")], (9,), dtype="bool"),
    case("SELECT_V2", [values(4, 1, dtype="bool"), values(4, 3), values(1, 3, seed=1)], (4, 3)),
    *(case("CAST", [values(5, dtype=source)], (5,), dtype=target, in_data_type=source, out_data_type=target)
      for source in ("float32", "int32", "int64", "bool") for target in ("float32", "int32", "int64", "bool")),
    case("CAST", [ints(np.nan, np.inf, -np.inf, 1e20, -2.9, dtype="float32")], (5,), dtype="int32",
         in_data_type="float32", out_data_type="int32"),
    case("ADD", [values(1, 2, 1, 3), values(4, 1, 5, 1, seed=1)], (4, 2, 5, 3)),
    case("ZEROS_LIKE", [values(3, 3)], (3, 3)),
    case("ADD_N", [values(3, 7), values(3, 7, seed=1)], (3, 7), constants={2: values(3, 7, seed=2)}),
    case("ADD_N", [values(3, 7)], (3, 7)),
]  # fmt: skip
PRODUCTS = [
    case("CONV_2D", [values(1, 5, 6, 6)], (1, 5, 6, 9), constants={1: values(9, 3, 3, 2, seed=1)}, padding="same",
         stride_h=1, stride_w=1),
    case("CONV_2D", [values(1, 5, 6, 3), values(19, 3, 3, 3, seed=1), values(19, seed=2)], (1, 5, 6, 19),
         padding="same", stride_h=1, stride_w=1),
    case("FULLY_CONNECTED", [values(5, 7), values(19, 7, seed=1)], (5, 19)),
    case("BATCH_MATMUL", [values(7, 5), values(2, 7, 9, seed=1)], (2, 5, 9), adjoint_lhs=True),
    case("BATCH_MATMUL", [values(2, 3, 5, 7)], (2, 3, 5, 9), constants={1: values(3, 7, 9, seed=1)}),
    case("POW", [np.abs(X)], X.shape, constants={1: ints(0.5, dtype="float32")[0]}),
    case("POW", [X], X.shape, constants={1: ints(2, dtype="float32")[0]}),
    case("POW", [X], X.shape, constants={1: ints(3, dtype="float32")[0]}),
    case("POW", [np.abs(X), values(3, seed=1)], X.shape),
]  # fmt: skip
FUNCTIONS = [
    case(name, [np.array([0, -0.0, 1e-3, -1e-3, 0.3, -0.3, 0.5, 1.5, -2.5, 7, -9, 88, -88, np.inf, -np.inf, np.nan],
                         np.float32)], (16,))
    for name in ("TANH", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "SIGN", "SQUARE")
] + [case("LOG", [np.array([0, 1e-30, 0.1, 0.7, 1, 1.3, 3, 1e30, np.inf, np.nan], np.float32)], (10,))]  # fmt: skip


@pytest.mark.parametrize(
    "group",
    [MOVES, REDUCTIONS, IMAGES, PLAIN, PRODUCTS, FUNCTIONS],
    ids=["moves", "reductions", "images", "plain", "products", "functions"],
)
def test_operators(group: list[Case]) -> None:
    model, inputs = model_of(group), [array for item in group for array in item[1]]
    names = [f"{name} to {shape} {dtype}" for name, _, _, results, _ in group for shape, dtype in results]
    package = odc_mlir.compile(model, target="cpu", strict=True)
    found, expected = odc_mlir.run(package, inputs, strict=True), odc_mlir.run(model, inputs, backend="host")
    for name, one, other in zip(names, found, expected, strict=True):
        if other.dtype.kind == "f":
            assert_close(one, other)
        else:
            np.testing.assert_array_equal(one, other, err_msg=name)


def test_ends_of_exponentials() -> None:
    """What would be below the normal numbers is 0: products with such numbers take many times as long."""
    x = np.array([-np.inf, -1e30, -88, -87.4, -87.3, 88.7, 88.8, 1e30, np.inf, np.nan, -np.nan], np.float32)
    package = odc_mlir.compile(model_of([case("EXP", [x], x.shape)]), target="cpu", strict=True)
    (found,) = odc_mlir.run(package, [x], strict=True)
    np.testing.assert_array_equal(found[:4], 0)
    np.testing.assert_array_equal(found[6:9], np.inf)
    np.testing.assert_allclose(found[4:6], np.exp(x[4:6]), rtol=3e-7)
    assert np.isnan(found[9:]).all()


def test_sums_of_many_reals_lose_no_digits() -> None:
    """They would lose one, added up one after the other."""
    x = np.random.default_rng(0).uniform(1, 2, (1, 128, 128, 3)).astype(np.float32)
    cases = [
        case("MEAN", [x], (1, 3), constants={1: ints(1, 2)}, keep_dims=False),
        case("SUM", [x], (1, 3), constants={1: ints(1, 2)}, keep_dims=False),
        case("SUM", [x.transpose(0, 3, 1, 2).copy()], (1, 3), constants={1: ints(2, 3)}, keep_dims=False),
    ]
    exact = x.astype(np.float64).sum((1, 2))
    found = odc_mlir.run(odc_mlir.compile(model_of(cases), target="cpu", strict=True), [x, x, cases[2][1][0]])
    for result, expected in zip(found, (exact / 128**2, exact, exact), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("place", [-1, 7])
def test_an_index_outside_is_refused(place: int) -> None:
    model = model_of([MOVES[15]])
    with pytest.raises(InputError, match="outside the tensor"):
        odc_mlir.run(odc_mlir.compile(model, target="cpu"), [ints(5, place, dtype="int64")])


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_integer_weights_of_real_layers(name: str, per_channel: bool) -> None:
    """Activations are quantised as they come: the same codes as on the host, or results are a step apart."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(3, 40) if name == "FULLY_CONNECTED" else (2, 5, 6, 19)).astype(np.float32)
    channels = 19
    shape = {"CONV_2D": (19, 3, 2, 19), "DEPTHWISE_CONV_2D": (1, 3, 2, 19), "FULLY_CONNECTED": (19, 40)}[name]
    weights = generator.integers(-127, 128, shape).astype(np.int8)
    scales = (0.01 * (1 + np.arange(channels))).tolist() if per_channel else [0.02]
    axis = 3 if per_channel and name == "DEPTHWISE_CONV_2D" else 0
    builder = ModelBuilder()
    given = builder.tensor("x", x.shape)
    bias = generator.normal(size=channels).astype(np.float32)
    operands = [given, builder.tensor("w", shape, "int8", data=weights), builder.tensor("b", (channels,), data=bias)]
    codes = builder.subgraph.tensors[operands[1]]
    codes.quantization = Quantization(np.array(scales, np.float32), np.zeros(len(scales), np.int64), axis)
    result = builder.tensor("y", (3, 19) if name == "FULLY_CONNECTED" else (2, 5, 6, 19))
    windows = {"padding": "same", "stride_h": 1, "stride_w": 1, "depth_multiplier": 1}
    if name != "DEPTHWISE_CONV_2D":
        windows.pop("depth_multiplier")
    options = {"fused_activation_function": "relu", **({} if name == "FULLY_CONNECTED" else windows)}
    builder.operator(name, operands, [result], options=options)
    model = model_bytes(builder.finish([given], [result]))
    package = odc_mlir.compile(model, target="cpu", strict=True)
    for inputs in (x, np.zeros_like(x), np.abs(x), -np.abs(x)):
        assert_close(odc_mlir.run(package, [inputs])[0], odc_mlir.run(model, [inputs], backend="host")[0])


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("name", ["DEPTHWISE_CONV_2D", "MEAN"])
def test_results_finer_than_sums(name: str, dtype: str) -> None:
    """Weights of single channels take a factor above 1, which the requantisation of native code lacks."""
    generator, builder = np.random.default_rng(0), ModelBuilder()
    shape, limits = (2, 5, 6, 19), np.iinfo(dtype)
    x = generator.integers(limits.min // 8, limits.max // 8, shape).astype(dtype)
    given = builder.tensor("x", shape, dtype, quant=(0.5, 0))
    options: dict[str, Any] = {"padding": "same", "stride_h": 1, "stride_w": 1, "depth_multiplier": 1}
    if name == "MEAN":
        operands = [builder.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))]
        options = {"keep_dims": True}
    else:
        data = generator.integers(-3, 4, (1, 3, 2, 19)).astype(np.int8)
        operands = [builder.tensor("w", data.shape, "int8", data=data)]
        scales = (0.02 * (1 + np.arange(19))).astype(np.float32)
        builder.subgraph.tensors[operands[0]].quantization = Quantization(scales, np.zeros(19, np.int64), 3)
    out = builder.tensor("y", (2, 1, 1, 19) if name == "MEAN" else shape, dtype, quant=(0.004, 0))
    builder.operator(name, [given, *operands], [out], options=options)
    model = model_bytes(builder.finish([given], [out]))
    package = odc_mlir.compile(model, target="cpu", strict=True)
    np.testing.assert_array_equal(odc_mlir.run(package, [x])[0], odc_mlir.run(model, [x], backend="host")[0])


def test_weights_of_half_precision() -> None:
    """Of any size: folding elsewhere leaves large ones as they are."""
    builder = ModelBuilder()
    x, weights = values(3, 50), values(60, 50).astype(np.float16)
    given, result = builder.tensor("x", x.shape), builder.tensor("y", (3, 60))
    real = builder.tensor("w", weights.shape)
    builder.operator("DEQUANTIZE", [builder.tensor("h", weights.shape, "float16", data=weights)], [real])
    builder.operator("FULLY_CONNECTED", [given, real, -1], [result])
    model = model_bytes(builder.finish([given], [result]))
    (found,) = odc_mlir.run(odc_mlir.compile(model, target="cpu", strict=True), [x], strict=True)
    assert_close(found, odc_mlir.run(model, [x], backend="host")[0])


@pytest.mark.parametrize(
    ("dtype", "zero", "kind"),
    [("int8", -5, "int8"), ("int8", 3, "int4"), ("uint8", 7, "int8"), ("int16", 0, "int8"), ("int16", 3, "int4")],
)
@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "DEPTHWISE_CONV_2D of one channel"])
def test_padding_of_quantised_products(name: str, dtype: str, zero: int, kind: str) -> None:
    """Padding is filled with the zero point, which the sums take off again."""
    operator, _, single = name.partition(" of ")
    depthwise, channels = operator != "CONV_2D", 1 if single else 4
    outputs = 8 if depthwise else 19
    shape = (1, 3, 3, outputs) if depthwise else (outputs, 3, 3, channels)
    builder, generator = ModelBuilder(), np.random.default_rng(0)
    given = builder.tensor("x", (2, 5, 6, channels), dtype, quant=(0.02, zero))
    most = 7 if kind == "int4" else 127
    weights = generator.integers(-most, most + 1, shape).astype(np.int8)
    result = builder.tensor("y", (2, 5, 6, outputs), dtype, quant=(0.5, zero))
    options = {"padding": "same", "stride_h": 1, "stride_w": 1}
    options |= {"depth_multiplier": outputs // channels} if depthwise else {}
    stored = np.frombuffer(encode_constant(weights, kind), np.uint8)
    operands = [given, builder.tensor("w", shape, kind, data=stored, quant=(0.01, 0)), -1]
    builder.operator(operator, operands, [result], options=options)
    model = model_bytes(builder.finish([given], [result]))
    limits = np.iinfo(dtype)
    x = generator.integers(limits.min, limits.max, (2, 5, 6, channels), endpoint=True).astype(dtype)
    (found,) = odc_mlir.run(odc_mlir.compile(model, target="cpu", strict=True), [x], strict=True)
    np.testing.assert_array_equal(found, odc_mlir.run(model, [x], backend="host")[0])


@pytest.mark.parametrize("target", ["cpu", "x86-64-avx2"])
def test_transpositions_of_any_size(target: str) -> None:
    """The last squares of elements overlap others, and sides of less than a square are copied one by one."""
    skip_unless_it_runs(target)
    shapes = [((8, 8), (1, 0)), ((9, 30), (1, 0)), ((7, 33), (1, 0)), ((3, 16, 9), (0, 2, 1)), ((9, 2, 17), (2, 1, 0))]
    shapes += [((11, 2, 8), (2, 0, 1)), ((2, 9, 3, 10), (3, 0, 2, 1))]
    shapes += [((2, 3, 4, 5), (0, 2, 3, 1)), ((17, 2), (1, 0)), ((2, 5, 7, 4), (0, 3, 1, 2)), ((3, 15), (1, 0))]
    cases = [
        case("TRANSPOSE", [values(*shape, dtype=dtype, seed=seed)], tuple(shape[i] for i in order),
             constants={1: ints(*order)}, dtype=dtype)
        for dtype in ("float32", "int8", "int16", "int64") for seed, (shape, order) in enumerate(shapes)
    ]  # fmt: skip
    inputs = [array for item in cases for array in item[1]]
    model = model_of(cases)
    found = odc_mlir.run(odc_mlir.compile(model, target=target, strict=True), inputs, strict=True)
    for one, (_, (array,), constants, *_) in zip(found, cases, strict=True):
        np.testing.assert_array_equal(one, array.transpose(constants[1]))


@pytest.mark.parametrize(
    ("dtype", "weights_dtype"), [("int8", "int8"), ("uint8", "uint8"), ("int16", "int8"), ("float32", "int8")]
)
@pytest.mark.parametrize(
    ("taps", "stride", "shape", "padding"),
    [
        ((3, 3), (2, 2), (8, 12), "same"),
        ((3, 3), (2, 2), (7, 11), "same"),
        ((9, 5), (2, 3), (17, 20), "valid"),
        ((4, 1), (1, 2), (4, 12), "same"),
        ((2, 2), (3, 2), (12, 12), "valid"),
    ],
)
def test_transposed_convolutions_of_codes(
    taps: Shape, stride: tuple[int, int], shape: tuple[int, int], padding: str, dtype: str, weights_dtype: str
) -> None:
    builder, generator, outputs = ModelBuilder(), np.random.default_rng(0), 5
    is_real = dtype == "float32"
    given = builder.tensor("x", (2, 4, 6, 3), dtype, quant=None if is_real else (0.02, 0 if dtype == "int16" else 5))
    limits = np.iinfo(weights_dtype)
    filters = generator.integers(limits.min + 1, limits.max + 1, (outputs, *taps, 3)).astype(weights_dtype)
    weights = builder.tensor("w", filters.shape, weights_dtype, data=filters, quant=(0.01, 9))
    if weights_dtype == "int8":
        scales = 0.01 + 0.004 * np.arange(outputs, dtype=np.float32)
        builder.subgraph.tensors[weights].quantization = Quantization(scales, np.zeros(outputs, np.int64), 0)
    size = builder.tensor("shape", (4,), "int32", data=np.array((2, *shape, outputs), np.int32))
    bias_dtype = {"float32": "float32", "int16": "int64"}.get(dtype, "int32")
    bias = builder.tensor("b", (outputs,), bias_dtype, data=(50 * np.arange(outputs)).astype(bias_dtype))
    result = builder.tensor("y", (2, *shape, outputs), dtype, quant=None if is_real else (0.4, 0))
    options = {"padding": padding, "stride_h": stride[0], "stride_w": stride[1]}
    builder.operator("TRANSPOSE_CONV", [size, weights, given, bias], [result], options=options)
    model = model_bytes(builder.finish([given], [result]))
    x = values(2, 4, 6, 3) if is_real else generator.integers(0, 100, (2, 4, 6, 3)).astype(dtype)
    if is_real:
        x[1] = np.floor(x[1]) + np.float32(0.5)
        x[1, 0, 0] = -8, 247, 0.5  # the step is 1: all values are halves of it
    (found,) = odc_mlir.run(odc_mlir.compile(model, target="cpu", strict=True), [x], strict=True)
    (expected,) = odc_mlir.run(model, [x], backend="host")
    assert_close(found, expected) if is_real else np.testing.assert_array_equal(found, expected)


def test_products_of_computed_codes() -> None:
    """Zero points at the ends, depths that are not multiples of four, both types, and a row of its own."""
    builder, generator = ModelBuilder(), np.random.default_rng(0)
    given, results, arrays = [], [], list[Array]()
    for rows, depth, columns, adjoint, types, zeros in (
        (3, 7, 19, True, ("int8", "uint8"), (-128, 255)),
        (1, 33, 130, False, ("int8", "int8"), (127, 0)),
        (20, 5, 16, False, ("uint8", "int8"), (0, 127)),
        (9, 1, 3, True, ("uint8", "uint8"), (13, 128)),
    ):
        number, operands = len(results), []
        for index, shape in enumerate([(2, rows, depth), (columns, depth) if adjoint else (depth, columns)]):
            limits = np.iinfo(types[index])
            arrays.append(generator.integers(limits.min, limits.max, shape, endpoint=True).astype(types[index]))
            operands.append(builder.tensor(f"x{number}_{index}", shape, types[index], quant=(0.02, zeros[index])))
        results.append(builder.tensor(f"y{number}", (2, rows, columns), types[0], quant=(0.1, zeros[0])))
        builder.operator("BATCH_MATMUL", operands, [results[-1]], options={"adjoint_rhs": adjoint})
        given += operands
    model = model_bytes(builder.finish(given, results))
    found = odc_mlir.run(odc_mlir.compile(model, target="cpu", strict=True), arrays, strict=True)
    for one, other in zip(found, odc_mlir.run(model, arrays, backend="host"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_root_mean_squares_of_codes() -> None:
    """Every type, one gamma and one per channel, rows of zeros, and an epsilon that matters."""
    builder, generator = ModelBuilder(), np.random.default_rng(0)
    given, results, arrays = [], [], list[Array]()
    for number, (dtype, zero, gammas) in enumerate((("int8", -7, 21), ("uint8", 128, 1), ("int16", 0, 21))):
        limits, scale = np.iinfo(dtype), 2.0 ** -(6 if zero else 13)
        arrays.append(generator.integers(limits.min, limits.max, (1, 3, 21), endpoint=True).astype(dtype))
        arrays[-1][0, 1] = zero
        given.append(builder.tensor(f"x{number}", (1, 3, 21), dtype, quant=(0.01, zero)))
        results.append(builder.tensor(f"y{number}", (1, 3, 21), dtype, quant=(scale, zero)))
        gamma = builder.tensor(f"g{number}", (gammas,), data=values(gammas))
        builder.operator("RMS_NORM", [given[-1], gamma], [results[-1]], options={"epsilon": 0.1})
    model = model_bytes(builder.finish(given, results))
    found = odc_mlir.run(odc_mlir.compile(model, target="cpu", strict=True), arrays, strict=True)
    for one, other in zip(found, odc_mlir.run(model, arrays, backend="host"), strict=True):
        np.testing.assert_array_equal(one, other)


def compare_random(seeds: range, count: int, target: str) -> None:
    """Random operators give the host's integers; nearly all of them are native."""
    host = 0
    for seed in seeds:
        operators = RandomOperators(seed, count)
        package = odc_mlir.compile(operators.model, target=target)
        assert package.plan is not None
        host += len(package.plan.host_reasons)
        for inputs in (operators.inputs(seed), operators.inputs(seed + 1)):
            found = odc_mlir.run(package, inputs, strict=True)
            expected = odc_mlir.run(operators.model, inputs, backend="host")
            for name, one, other in zip(operators.names, found, expected, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=f"seed {seed}: {name}")
    assert host <= 0.1 * count * len(seeds)


@pytest.mark.parametrize(("seed", "target"), [(0, "cpu"), (1, "x86-64-avx2")])
def test_random_operators(seed: int, target: str) -> None:
    skip_unless_it_runs(target)
    compare_random(range(seed, seed + 1), 42, target)  # twice each kind


@pytest.mark.soak
@pytest.mark.timeout(390)  # each less than after what pytest takes a test for stuck
@pytest.mark.parametrize(
    ("seed", "target"),
    [*((seed, "cpu") for seed in range(100, 170, 7)), *((seed, "x86-64-avx2") for seed in (200, 207))],
)
def test_many_random_operators(seed: int, target: str) -> None:
    """5,040 in all, on the best description of this machine, and on the portable arithmetic."""
    skip_unless_it_runs(target)
    compare_random(range(seed, seed + 7), 60, target)


@pytest.mark.parametrize("target", ["cpu", "x86-64-avx2"])
@pytest.mark.parametrize("size", [(8, 20), (7, 13)], ids=["integers", "reals"])
def test_interpolation_of_16_bits(size: tuple[int, int], target: str) -> None:
    skip_unless_it_runs(target)
    x = np.random.default_rng(0).choice([-32768, -32767, -5, 0, 1, 2, 9000, 32767], (2, 4, 5, 19)).astype(np.int16)
    builder = ModelBuilder()
    given = builder.tensor("x", x.shape, "int16", quant=(0.5, 0))
    result = builder.tensor("y", (2, *size, 19), "int16", quant=(0.5, 0))
    operands = [given, builder.tensor("size", (2,), "int32", data=ints(*size))]
    builder.operator("RESIZE_BILINEAR", operands, [result], options={"half_pixel_centers": True})
    model = model_bytes(builder.finish([given], [result]))
    (found,) = odc_mlir.run(odc_mlir.compile(model, target=target, strict=True), [x], strict=True)
    np.testing.assert_array_equal(found, odc_mlir.run(model, [x], backend="host")[0])


def test_what_has_no_kernel_names_itself() -> None:
    with pytest.raises(UnsupportedError, match=r"stays on the host.*there is no native kernel"):
        odc_mlir.compile(model_of([case("ATAN2", [X, X], X.shape)]), target="cpu", strict=True)
