"""Element-wise operators, choices, casts, normalisations against LiteRT: integers exactly, reals closely."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.litert import reference_all
from helpers.nodes import const, node, quant, run, tensor
from odc_mlir.ops.spec import Node, QuantParams

Array = NDArray[Any]
SEEDS = 4
LARGEST_VERSION = 5
REFERENCE, OPTIMISED = "BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
CODES = ("int8", "uint8", "int16")
COMPARISONS = ("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "EQUAL", "NOT_EQUAL")


def expected(made: Node, *inputs: Array, resolver: str = REFERENCE) -> Array:
    """The reference's result, by the first version of the operator that it knows."""
    for version in range(1, LARGEST_VERSION + 1):
        try:
            return reference_all(made, *inputs, version=version, resolver=resolver)[0]
        except ValueError as error:
            if version == LARGEST_VERSION or "Didn't find op" not in str(error):
                raise
    raise AssertionError


def check(made: Node, *inputs: Array, resolver: str = REFERENCE, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    found, wanted = run(made, *inputs), expected(made, *inputs, resolver=resolver)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if found.dtype.kind in "fc":
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(found, wanted)


def values(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if kind.kind == "f":
        return (rng.normal(size=shape) * 3).astype(dtype)
    limits = np.iinfo(dtype)
    low, high = (limits.min, limits.max) if limits.bits < 32 else (max(limits.min, -1000), 1000)
    return rng.integers(low, high + 1, shape).astype(dtype)


def params(rng: np.random.Generator, dtype: str) -> QuantParams | None:
    if dtype not in CODES:
        return None
    if dtype == "int16":
        return quant(float(rng.uniform(5e-5, 2e-3)))
    zero = rng.integers(-128, 128) if dtype == "int8" else rng.integers(0, 256)
    return quant(float(rng.uniform(0.005, 0.2)), int(zero))


UNARY: dict[str, tuple[str, ...]] = {
    "FLOOR": ("float32", "float16"),
    "CEIL": ("float32",),
    "ROUND": ("float32", "float16"),
    "EXP": ("float32", "int8", "int16"),
    "LOG": ("float32", "int8"),
    "SQRT": ("float32", "int8", "int16"),
    "RSQRT": ("float32", "int8", "int16"),
    "SIN": ("float32",),
    "COS": ("float32",),
    "NEG": ("float32", "float16", "int32", "int64"),
    "ABS": ("float32", "int8", "int16", "int32"),
    "SQUARE": ("float32",),
    "SIGN": ("float32", "float64", "int32"),
    "ELU": ("float32", "int8"),
    "GELU": ("float32", "float16", *CODES),
    "HARD_SWISH": ("float32", "int8", "uint8"),
    "RELU_0_TO_1": ("float32", "int8", "uint8"),
    "LOGISTIC": ("float16",),
    "TANH": ("float16",),
    "SOFTMAX": ("float16",),
    "LOGICAL_NOT": ("bool",),
    "REAL": ("complex64",),
    "IMAG": ("complex64",),
    "COMPLEX_ABS": ("complex64",),
}
REAL_RESULTS = {"REAL": "float32", "IMAG": "float32", "COMPLEX_ABS": "float32"}
SHAPE = (2, 7, 5)


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, dtypes in UNARY.items() for dtype in dtypes])
def test_functions_of_one_operand(name: str, dtype: str) -> None:
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        x, px, py = values(rng, dtype, SHAPE), params(rng, dtype), params(rng, dtype)
        if name in ("EXP", "GELU") and dtype == "int16":  # what interpolation is near to; see test_codes_mean_reals.py
            px = quant(5e-5 * (1 + seed / 20))
            py = quant(float(np.exp(px.scale * 32767)) / 32767)
        if name in ("SQRT", "RSQRT") and px is not None:
            x = np.maximum(x, np.array(px.zero_point).astype(dtype))
        if name == "HARD_SWISH" and px is not None and py is not None and px.scale / 128 > py.scale:
            continue
        options = {"GELU": {"approximate": bool(seed % 2)}, "SOFTMAX": {"beta": 1.0}}.get(name, {})
        out = tensor(REAL_RESULTS.get(name, dtype), None, py)
        made = node(name, [tensor(dtype, SHAPE, px)], out, **options)
        if name in ("SQRT", "RSQRT") and dtype == "int16":  # the first truncates, the second errs near zero
            made.context.numerics = "litert"
        missing = name in ("CEIL", "ROUND", "ELU")
        rtol, atol = (1e-2, 1e-3) if dtype == "float16" else (1e-5, 1e-6)  # the reference computes with halves
        check(made, x, resolver=OPTIMISED if missing else REFERENCE, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ["SQRT", "RSQRT"])
def test_every_code_of_16_bits_has_the_root_that_litert_gives(name: str) -> None:
    codes = np.arange(1 << 15, dtype=np.int16)  # LiteRT refuses all others
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, y = (quant(float(10.0 ** rng.uniform(-6.0, 0.0))) for _ in range(2))
        made = node(name, [tensor("int16", codes.shape, x)], tensor("int16", None, y))
        made.context.numerics = "litert"
        assert np.array_equal(run(made, codes), reference_all(made, codes)[0])


EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-8, -1e-8, 88.0, -100.0], np.float32)


@pytest.mark.parametrize(
    "name",
    ["FLOOR", "EXP", "LOG", "SQRT", "RSQRT", "ABS", "SQUARE", "SIGN", "GELU", "HARD_SWISH", "RELU", "RELU6",
     "RELU_N1_TO_1", "RELU_0_TO_1", "LOGISTIC", "TANH", "ROUND", "ELU"],
)  # fmt: skip
def test_special_numbers(name: str) -> None:
    made = node(name, [tensor("float32", EDGES.shape)], tensor("float32", None))
    check(made, EDGES, resolver=OPTIMISED if name in ("ROUND", "ELU") else REFERENCE)


BINARY: dict[str, tuple[str, ...]] = {
    "ADD": ("float32", "float16", "int16", "int32", "int64"),
    "SUB": ("float32", "int32", "int64"),
    "MUL": ("float32", "float16", "int16", "int32", "int64", "uint32", "complex64"),
    "DIV": ("float32", "int32"),
    "MAXIMUM": ("float32", "float16", *CODES, "int32", "int64"),
    "MINIMUM": ("float32", "float16", *CODES, "int32", "int64"),
    "POW": ("float32", "int32"),
    "FLOOR_DIV": ("float32", "int8", "int16", "int32"),
    "FLOOR_MOD": ("float32", "int8", "int16", "int32", "int64"),
    "SQUARED_DIFFERENCE": ("float32", "int8", "int32"),
    "BITWISE_XOR": ("int8", "uint8", "int16", "uint16", "int32", "uint32"),
    "RIGHT_SHIFT": ("int8", "uint8", "int16", "uint16", "int32", "uint32"),
    "PRELU": ("float32", "int8", "uint8"),
    "LOGICAL_AND": ("bool",),
    "LOGICAL_OR": ("bool",),
    **dict.fromkeys(COMPARISONS, ("float32", "float16", *CODES, "int32", "int64")),
}
PLAIN = ("ADD", "MUL", "FLOOR_DIV", "FLOOR_MOD", "BITWISE_XOR", "RIGHT_SHIFT")  # codes are numbers here
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), (4,)),
    ((3, 1), (2, 1, 5)),
    ((), (2, 3)),
    ((1, 2, 1, 2, 1, 3), (2, 1, 2, 1, 2, 1)),
    ((0, 3), (1, 3)),
]


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, dtypes in BINARY.items() for dtype in dtypes])
def test_functions_of_two_operands(name: str, dtype: str) -> None:
    for seed, (left, right) in enumerate(SHAPES):
        if name == "PRELU" and np.broadcast_shapes(left, right) != left:
            continue
        rng = np.random.default_rng(seed)
        a, b = values(rng, dtype, left), values(rng, dtype, right)
        scales = [None] * 3 if name in PLAIN else [params(rng, dtype) for _ in range(3)]
        if name in ("MAXIMUM", "MINIMUM"):
            scales = scales[:1] * 3
        if dtype == "int16" and name in COMPARISONS[:4]:
            scales[1] = scales[0]  # the reference compares such codes without their scales
        a, b = _allowed(name, a, b, scales[1].zero_point if scales[1] else 0)
        activations = name in ("ADD", "SUB", "MUL", "DIV") and dtype in ("float32", *CODES, "int32", "int64")
        options = {"fused_activation_function": ("none", "relu", "relu6")[seed % 3]} if activations else {}
        out = tensor("bool", None) if name in COMPARISONS else tensor(dtype, None, scales[2])
        made = node(name, [tensor(dtype, left, scales[0]), tensor(dtype, right, scales[1])], out, **options)
        check(made, a, b, rtol=2e-3 if dtype == "float16" else 1e-5)


def _allowed(name: str, a: Array, b: Array, zero: int) -> tuple[Array, Array]:
    """Operands that the operator takes: no zero divisors, no powers of negative numbers, small shifts."""
    if name in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        other = zero + 1 if b.dtype.kind == "f" or zero < np.iinfo(b.dtype).max else zero - 1
        return a, np.where(b == np.array(zero, b.dtype), np.array(other, b.dtype), b)
    if name == "POW":
        return (np.abs(a) + a.dtype.type(0.1), b) if b.dtype.kind == "f" else (a % 5, np.abs(b) % 5)
    if name == "RIGHT_SHIFT":
        return a, (b % 12).astype(b.dtype)
    return a, b


@pytest.mark.parametrize("dtype", CODES)
def test_division_of_codes(dtype: str) -> None:
    """Compared where the quotient is not zero: for some of those the reference shifts by more bits than there are."""
    for seed, (left, right) in enumerate(SHAPES):
        rng = np.random.default_rng(seed)
        pa, pb, py = (params(rng, dtype) or quant(1.0) for _ in range(3))
        a, b = _allowed("DIV", values(rng, dtype, left), values(rng, dtype, right), pb.zero_point)
        made = node("DIV", [tensor(dtype, left, pa), tensor(dtype, right, pb)], tensor(dtype, None, py))
        found, wanted = run(made, a, b), expected(made, a, b)
        np.testing.assert_array_equal(found, np.where(found == py.zero_point, found, wanted))


def test_angles() -> None:
    """The reference does not broadcast."""
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        made = node("ATAN2", [tensor(dtype, (9,))] * 2, tensor(dtype, None))
        check(made, values(rng, dtype, (9,)), values(rng, dtype, (9,)))


def test_special_numbers_of_two_operands() -> None:
    nan, inf = np.nan, np.inf
    a = np.array([1, nan, nan, -0.0, 0.0, inf, -inf, 3, -3, 2, 0, 3e38], np.float32)
    b = np.array([nan, 1, nan, 0.0, -0.0, inf, inf, 0, 0, -inf, 0, -3e38], np.float32)
    for name in ("MAXIMUM", "MINIMUM", "ADD", "SUB", "MUL", "DIV", "POW", "FLOOR_MOD", "PRELU", *COMPARISONS):
        out = "bool" if name in COMPARISONS else "float32"
        check(node(name, [tensor("float32", a.shape)] * 2, tensor(out, None)), a, b)


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_add_n(dtype: str, count: int) -> None:
    rng = np.random.default_rng(count)
    check(node("ADD_N", [tensor(dtype, (2, 3))] * count, tensor(dtype, None)),
          *(values(rng, dtype, (2, 3)) for _ in range(count)))  # fmt: skip


@pytest.mark.parametrize("dtype", ["bool", "float32", "uint8", "int8", "int16", "int32", "int64"])
def test_choices(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for shape in ((), (3,), (3, 4)):
        made = node("SELECT", [tensor("bool", shape), *[tensor(dtype, (3, 4))] * 2], tensor(dtype, None))
        check(made, values(rng, "bool", shape), values(rng, dtype, (3, 4)), values(rng, dtype, (3, 4)))
    for shapes in (((2,), (2, 2), (3, 2, 1)), ((2, 3), (3, 2, 3), (2, 3)), ((), (3,), (2, 1)), ((5,), (1,), (5,))):
        condition, x, y = shapes
        made = node("SELECT_V2", [tensor("bool", condition), tensor(dtype, x), tensor(dtype, y)], tensor(dtype, None))
        check(made, values(rng, "bool", condition), values(rng, dtype, x), values(rng, dtype, y))


NUMBERS = ("float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool",
           "complex64")  # fmt: skip


def corners(dtype: str) -> Array:
    """Numbers around the limits of other types."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([True, False])
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return np.array([limits.min, limits.max, 0, 1, 2, 100, limits.max // 2, limits.max // 3]).astype(kind)
    reals = [0, 0.5, -0.5, 1.99, -1.99, 300.7, -300.7, np.nan, np.inf, -np.inf, 65504]
    if kind != np.float16:
        reals += [1e5, -1e5, 3e9, -3e9, 9.3e18, -9.3e18, 2e19, 2147483520, 2147483648, -2147483648, 4294967040,
                  9223371487098961920]  # fmt: skip
    return np.array(reals).astype(kind)


@pytest.mark.parametrize("source", NUMBERS)
def test_casts(source: str) -> None:
    x = corners(source)
    for target in NUMBERS:
        check(node("CAST", [tensor(source, x.shape)], tensor(target, None)), x, rtol=0, atol=0)


@pytest.mark.parametrize("source", NUMBERS)
def test_bitcasts(source: str) -> None:
    for target in NUMBERS[:-2]:
        ratio = np.dtype(target).itemsize // np.dtype(source).itemsize
        x = np.resize(corners(source), (3, ratio) if ratio > 1 else (3, 2)).astype(source)
        made = node("BITCAST", [tensor(source, x.shape)], tensor(target, None))
        found, wanted = run(made, x), expected(made, x)
        assert (found.shape, found.tobytes()) == (wanted.shape, wanted.tobytes())


@pytest.mark.parametrize("shape", [(2, 3, 4), (3,), (4, 300), (1, 1)], ids=str)
def test_normalisations_of_rows(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for name, scale in (("LOG_SOFTMAX", 1 / 16), ("L2_NORMALIZATION", 1 / 128)):
        x = values(rng, "float32", shape)
        check(node(name, [tensor("float32", shape)], tensor("float32", None)), x)
        for dtype in ("int8", "uint8"):
            middle, last = (0, 127) if dtype == "int8" else (128, 255)
            for step in (0.02, 0.1, 0.4, 1.0):
                x = values(rng, dtype, shape)
                px = quant(step, int(values(rng, dtype, ())))
                out = tensor(dtype, None, quant(scale, last if name == "LOG_SOFTMAX" else middle))
                check(node(name, [tensor(dtype, shape, px)], out), x)


def test_local_response_normalization() -> None:
    """With windows that hold all channels: of narrower ones the reference leaves out the last channel."""
    shape = (1, 2, 3, 7)
    made = node("LOCAL_RESPONSE_NORMALIZATION", [tensor("float32", shape)], tensor("float32", None),
                radius=9, bias=1.5, alpha=0.3, beta=0.75)  # fmt: skip
    check(made, values(np.random.default_rng(9), "float32", shape))


@pytest.mark.parametrize(("least", "most"), [(-1.3, 2.1), (0.0, 6.0), (0.5, 3.0), (-3.0, -0.5)])
@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_fake_quant(bits: int, least: float, most: float) -> None:
    x = values(np.random.default_rng(bits), "float32", (200,))
    made = node("FAKE_QUANT", [tensor("float32", x.shape)], tensor("float32", None), min=least, max=most, num_bits=bits)
    check(made, x, rtol=0, atol=0)


@pytest.mark.parametrize("lengths", [(4, 4), (8, 2), (2, 8), (8, 8)], ids=str)
def test_fourier_transform(lengths: tuple[int, int]) -> None:
    """Images are cut or filled with zeros."""
    x = values(np.random.default_rng(0), "float32", (2, 5, 6))
    check(node("RFFT2D", [tensor("float32", x.shape), const(lengths)], tensor("complex64", None)), x, atol=1e-5)


PAIRS = [("float32", c) for c in CODES] + [(a, b) for a in CODES for b in CODES if (a, b) != ("int16", "uint8")] + [
    ("int16", "int32"), ("int32", "int8"), ("int32", "int16")]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_quantise(source: str, target: str) -> None:
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        x = values(rng, source, (300,))
        if source == "float32":
            x = np.concatenate([x, (np.arange(-50, 50) * 0.05 + 0.025).astype(np.float32)])
        px = quant(0.01) if source == "int32" else params(rng, source)
        py = quant(0.02) if target == "int32" else params(rng, target) if seed else quant(0.05)
        check(node("QUANTIZE", [tensor(source, x.shape, px)], tensor(target, None, py)), x)


@pytest.mark.parametrize("dtype", CODES)
def test_dequantise(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = values(rng, dtype, (3, 100))
    check(node("DEQUANTIZE", [tensor(dtype, x.shape, params(rng, dtype))], tensor("float32", None)), x, rtol=0, atol=0)
    if dtype != "int16":
        several = quant(rng.uniform(0.01, 0.2, 3))
        made = node("DEQUANTIZE", [tensor(dtype, x.shape, several)], tensor("float32", None))
        np.testing.assert_array_equal(run(made, x), reference_all(made, x, version=5)[0])
