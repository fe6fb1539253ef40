"""Float operators on numbers at the edges: zeros, subnormal and huge numbers, infinities, NaN, in every operand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.models import ModelBuilder
from helpers.nodes import bind, const, node, quant, tensor
from helpers.recurrent import Form, sequence_lstm
from odc_mlir import ops
from odc_mlir.errors import OdcError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.ops.custom import KNOWN
from odc_mlir.ops.spec import Node, TensorInfo

Array = NDArray[Any]
ACTIVATIONS = ("none", "relu", "relu6", "relu_n1_to_1")

_SIZES = [0, 1e-45, 1e-40, 2.0**-126, 1e-20, 0.5, 1, 1.5, 2.5, 3, 7, 17, 87, 87.336544, 87.33655, 88.5, 88.72283,
          88.72284, 104, 1e5, 1e19, 3e38, 3.4028235e38, np.inf]  # fmt: skip
GRID = np.array([np.nan, *_SIZES, *(-size for size in _SIZES)], np.float32)
"""49 numbers: three vectors of native code and one number more, or what comes after it in a loop of single steps."""

FIRST, SECOND = np.repeat(GRID, len(GRID)), np.tile(GRID, len(GRID))
"""All pairs."""

HUGE = np.float32(3e38)
FEW = np.array([0, -0.0, 1e-40, -1e-40, 1, -1, HUGE, -HUGE, np.inf, -np.inf, np.nan], np.float32)

# How far finite results of native code and of the host may be apart, relative to their size and to 1. Functions are
# approximated in different ways, and sums are added in another order; of other operators the bits are the same.
ROUNDING = dict.fromkeys(
    ("LOGISTIC", "TANH", "EXP", "LOG", "ELU", "GELU", "SIN", "COS", "CUSTOM(Erf)", "POW", "RSQRT", "SOFTMAX",
     "LOG_SOFTMAX", "L2_NORMALIZATION", "L2_POOL_2D", "MEAN", "RESIZE_BILINEAR", "UNIDIRECTIONAL_SEQUENCE_LSTM",
     "RMS_NORM"), 2e-6,
) | dict.fromkeys(("SUM", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL",
                   "AVERAGE_POOL_2D"), 1e-7)  # fmt: skip
EITHER_ZERO = ("REDUCE_MAX", "REDUCE_MIN", "MAX_POOL_2D", "BATCH_MATMUL")
"""Operators that may return a zero of either sign: of several zeros any one, or a product that underflows."""


@dataclass(frozen=True)
class Case:
    """One operator with its inputs."""

    made: Node
    inputs: tuple[Array, ...]

    @property
    def name(self) -> str:
        return self.made.spec.name

    def __str__(self) -> str:
        shapes = ", ".join(str(list(array.shape)) for array in self.inputs)
        options = {key: value for key, value in self.made.options.items() if value not in (0, False, None, "none")}
        return f"{self.name}({shapes}) {options or ''}"

    def difference(self, found: Array, expected: Array) -> str:
        """Describe the first element that differs by too much, or in kind; empty if there is none."""
        if found.dtype != expected.dtype or found.shape != expected.shape:
            return f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
        same = self.agree(found, expected)
        if same.all():
            return ""
        place = int(np.argmin(same))
        return f"{found.reshape(-1)[place]} instead of {expected.reshape(-1)[place]} at {place}, {(~same).sum()} in all"

    def agree(self, found: Array, expected: Array, rounding: float = 0.0) -> Array:
        """Return the elements that are the same kind of number and no further apart than roundings."""
        if found.dtype.kind != "f":
            return np.asarray(found == expected)
        with np.errstate(all="ignore"):
            apart = np.abs(found.astype(np.float64) - expected)
            near = apart <= max(rounding, ROUNDING.get(self.name, 0)) * (1 + np.abs(expected))
            same = (found == expected) | (np.isnan(found) & np.isnan(expected))
            same |= np.isfinite(found) & np.isfinite(expected) & near
            if self.name not in EITHER_ZERO:
                same &= (found != 0) | (expected != 0) | (np.signbit(found) == np.signbit(expected))
        return np.asarray(same)


def case(
    name: str, *operands: Array | TensorInfo, results: Sequence[str | TensorInfo] = ("float32",), **options: Any
) -> Case:
    """A case whose ``operands`` are inputs or, as ``const``, constants."""
    inputs = tuple(operand for operand in operands if isinstance(operand, np.ndarray))
    infos = [o if isinstance(o, TensorInfo) else tensor(o.dtype.name, o.shape) for o in operands]
    outs = [o if isinstance(o, TensorInfo) else tensor(o, None) for o in results]
    return Case(node(name, infos, outs, **options), inputs)


def real(values: Any) -> TensorInfo:
    """A constant of float32."""
    return const(values, "float32")


def rows(width: int, *, huge: bool = True) -> Array:
    """Rows of small integers in which up to two numbers are others, in places that vectors and single steps read.

    Sums of them and of their products with integers are exact, or overflow, in any order; unless rows of ``huge``
    numbers alone are among them.
    """
    last, middle = width - 1, width // 2
    made = [np.full(width, value, np.float32) for value in FEW if huge or abs(value) != HUGE]
    for first in FEW:
        for second in FEW:
            if HUGE in (abs(first), abs(second)) and min(abs(first), abs(second)) > 1:
                continue
            plain = np.arange(width, dtype=np.float32) % 5 - 2
            made += [plain, plain.copy()]
            made[-2][0] = first
            made[-1][last], made[-1][middle] = first, second
    return np.stack(made)


def whole(*shape: int, seed: int = 0) -> Array:
    """Integers from -2 to 2."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


def sprinkled(*shape: int, seed: int = 0) -> Array:
    """Integers among which are a few other numbers."""
    generator, array = np.random.default_rng(seed), whole(*shape, seed=seed)
    chosen = generator.random(shape) < 4 / array.size + 0.02
    array[chosen] = generator.choice(FEW[np.abs(FEW) != HUGE], int(chosen.sum()))
    return array


_FUSED = "fused_activation_function"
_COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
_SHAPED: tuple[tuple[Array, ...], ...] = (
    (GRID,), (GRID[:1],), (np.resize(GRID, 40_000),),
    (FIRST, SECOND), (GRID[:, None], GRID), (GRID[:, None], GRID[None, 17:33]), (FIRST, np.asarray(GRID[20])),
    (FIRST, GRID[-1:]), (np.resize(FIRST, 40_000), np.resize(SECOND, 40_000)),
)  # fmt: skip
"""One operand, or two that broadcast: all, by row, by column, a single number."""


def element_wise() -> Iterator[Case]:
    """Every operator of the table that maps one or two float tensors element by element, with every activation."""
    for spec in (*ops.all_specs().values(), *KNOWN.values()):
        operands = [operand for operand in spec.operands if not operand.optional]
        if "elementwise" not in spec.traits or any(
            o.variadic or "float32" not in (o.dtypes or ("float32",)) for o in operands
        ):
            continue
        for inputs in (shaped for shaped in _SHAPED if len(shaped) == len(operands)):
            if spec.name == "FLOOR_DIV":  # refuses zeros
                inputs = inputs[0], np.where(inputs[1] == 0, np.float32(1), inputs[1])
            infos = tuple(tensor("float32", array.shape) for array in inputs)
            result = tensor("bool" if spec.name in _COMPARISONS else "float32", None)
            options = default_options(spec.options)
            for activation in ACTIVATIONS if _FUSED in options else ("none",):
                fused = {_FUSED: activation} if _FUSED in options else {}
                found = Case(Node(spec, infos, (result,), {**options, **fused}, "y"), inputs)
                if _takes_floats(found):
                    yield found


def _takes_floats(made: Case) -> bool:
    """Tell if the operator accepts these element types."""
    try:
        verify = made.made.spec.verify_function
        if verify is not None:
            verify(made.made)
        made.made.spec.kernel_function(made.made)
    except OdcError:
        return False
    return True


def variants() -> Iterator[Case]:
    """Options and constants of element-wise operators that select other code."""
    for alpha in (0.0, 0.1, 1.0, 2.0, -0.5):
        yield case("LEAKY_RELU", GRID, alpha=alpha)
        yield case("LEAKY_RELU", np.resize(GRID, 40_000), alpha=alpha)
    yield case("GELU", GRID, approximate=True)
    for exponent in (2.0, 0.5, -0.5, 3.0, -1.0, 0.0, np.inf):
        yield case("POW", GRID, real(exponent))
    for constant in (0.0, -0.0, 1e-40, np.inf, np.nan):
        yield case("MAXIMUM", GRID, real(constant))
        yield case("MINIMUM", real(constant), GRID)
        yield case("PRELU", GRID[None], real([constant] * len(GRID)))
    pick = np.arange(len(FIRST)) % 2 == 0
    yield case("SELECT", pick, FIRST, SECOND)
    yield case("SELECT_V2", pick, FIRST, GRID[:1])
    for activation in ACTIVATIONS:
        yield case("ADD", FIRST, real(np.inf), fused_activation_function=activation)
    for count in (2, 3, 4):
        yield case("ADD_N", *(np.roll(FIRST, 7 * i) for i in range(count)))
    for target in ("int32", "int64", "int16", "bool", "float32"):
        yield case("CAST", GRID, results=(target,), in_data_type="float32", out_data_type=target)


def along_rows() -> Iterator[Case]:
    """Reductions and what else combines a row, of vectors, remainders, and columns."""
    for width in (1, 3, 16, 37):
        x = rows(width)
        for axis, values in (1, x), (0, np.ascontiguousarray(x.T)):
            for name in ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
                yield case(name, values, const([axis]))
            for name in ("ARG_MAX", "ARG_MIN"):
                yield case(name, values, const(axis), results=("int32",), output_type="int32")
            for exclusive in (False, True):
                yield case("CUMSUM", values, const(axis), exclusive=exclusive, reverse=exclusive)
        for name in ("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION"):
            yield case(name, x)
        yield case("RMS_NORM", x[None], real(whole(width, seed=1)), epsilon=1e-5)
        yield case("TOPK_V2", x, const(min(2, width)), results=("float32", "int32"))
        yield case("SOFTMAX", x, beta=0.0)
        far = np.array([*range(-width, 0), -86, -87.4, -88, -100, -104, -1e9], np.float32)
        yield case("SOFTMAX", far[None], beta=1.0)


def windows() -> Iterator[Case]:
    """Products, convolutions, and pools."""
    for activation in ACTIVATIONS:
        shared = {"fused_activation_function": activation}
        for depth, outputs in ((1, 1), (3, 5), (16, 16), (37, 19)):
            x, weights, bias = rows(depth, huge=False), whole(outputs, depth, seed=1), real(whole(outputs, seed=2))
            yield case("FULLY_CONNECTED", x, real(weights), bias, **shared)
            yield case("FULLY_CONNECTED", x, weights, **shared)
        for padding in ("same", "valid"):
            places = {"padding": padding, "stride_h": 1, "stride_w": 1, **shared}
            for channels in (1, 3, 16, 19):
                x = sprinkled(2, 5, 6, channels, seed=channels)
                weights, taps = whole(19, 3, 2, channels, seed=1), whole(1, 3, 2, 2 * channels, seed=1)
                yield case("CONV_2D", x, real(weights), real(whole(19, seed=2)), **places)
                yield case("DEPTHWISE_CONV_2D", x, real(taps), real(whole(2 * channels)), depth_multiplier=2, **places)
                for name in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"):
                    yield case(name, x, filter_height=3, filter_width=2, **places)
            x = sprinkled(2, 4, 5 if padding == "same" else 4, 3)
            shape = const((2, 8, 9, 5) if padding == "same" else (2, 9, 9, 5))
            wide = {**places, "stride_h": 2, "stride_w": 2}
            yield case("TRANSPOSE_CONV", shape, real(whole(5, 3, 3, 3)), x, real(whole(5)), **wide)
    places = {"padding": "same", "stride_h": 1, "stride_w": 1}
    yield case("CONV_2D", sprinkled(1, 5, 6, 6), real(whole(9, 3, 3, 2)), real(whole(9)), **places)  # in groups
    yield case("CONV_2D", whole(1, 5, 6, 6), sprinkled(9, 3, 3, 6), **places)
    yield case("CONV_2D", whole(1, 5, 6, 6), real(whole(9, 3, 3, 6)), real(sprinkled(9)), **places)
    corner = np.ones((3, 3, 3, 3), np.float32)  # of which padding meets the first tap
    corner[0, 0, 0] = np.inf, -np.inf, np.nan
    x = np.ones((1, 5, 6, 3), np.float32)
    yield case("CONV_2D", x, real(corner), real(whole(3)), **places)
    yield case("DEPTHWISE_CONV_2D", x, real(corner[:1]), real(whole(3)), **places)
    shape = const([1, 10, 12, 3])
    yield case("TRANSPOSE_CONV", shape, real(corner), x, real(whole(3)), **{**places, "stride_h": 2, "stride_w": 2})
    for value in (np.nan, HUGE, -HUGE, -np.inf):
        for name in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"):
            for padding in ("same", "valid"):
                x = np.full((1, 3, 3, 17), value, np.float32)
                yield case(name, x, filter_height=2, filter_width=2, **{**places, "padding": padding})
    long = rows(7, huge=False)
    for a, b in ((long, whole(7, 19)), (whole(5, 7), np.ascontiguousarray(long.T)), (long[:50], long[:7].T.copy())):
        yield case("BATCH_MATMUL", a, b)
        yield case("BATCH_MATMUL", a, np.ascontiguousarray(b.T), adjoint_rhs=True)


def hybrids() -> Iterator[Case]:
    """Integer weights of float operators: activations are quantised by their own range."""
    x = np.concatenate([rows(40), 3 * sprinkled(9, 40), whole(3, 40)])
    weights, bias = const(whole(19, 40), "int8", quant(0.02)), real(whole(19))
    for asymmetric in (False, True):
        yield case("FULLY_CONNECTED", x, weights, bias, asymmetric_quantize_inputs=asymmetric)
    x = sprinkled(2, 4, 5, 6)
    for scales in (quant(0.02), quant([0.01, 0.02, 0.03])):
        weights = const(whole(3, 3, 3, 6), "int8", scales)
        options = {"padding": "same", "stride_h": 2, "stride_w": 2}
        yield case("TRANSPOSE_CONV", const([2, 8, 10, 3]), weights, x, real(whole(3)), **options)


def images() -> Iterator[Case]:
    """Interpolation."""
    for mode in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
        yield case("RESIZE_BILINEAR", sprinkled(2, 4, 5, 19), const([7, 9]), **mode)


def moves() -> Iterator[Case]:
    """Operators that move numbers as they are."""
    x = np.resize(GRID, (2, 4, 6, 3))
    yield case("RESHAPE", x, const([6, 24]), new_shape=(6, 24))
    yield case("SQUEEZE", x[:1], squeeze_dims=(0,))
    yield case("EXPAND_DIMS", x, const(0))
    yield case("TRANSPOSE", x, const([0, 3, 1, 2]))
    yield case("SLICE", x, const([0, 1, 0, 1]), const([2, 2, 6, 1]))
    yield case("STRIDED_SLICE", x, const([0, 3, 1, 0]), const([2, 0, 6, 3]), const([1, -1, 2, 1]))
    yield case("SPLIT", const(2), x, results=("float32",) * 3, num_splits=3)
    yield case("SPLIT_V", x, const([1, 3]), const(1), results=("float32",) * 2, num_splits=2)
    yield case("UNPACK", x, results=("float32",) * 3, num=3, axis=3)
    yield case("PACK", x, x[::-1].copy(), axis=1, values_count=2)
    yield case("CONCATENATION", x, x[:, :1].copy(), axis=1)
    yield case("TILE", x, const([1, 2, 1, 2]))
    yield case("BROADCAST_TO", x[:, :1].copy(), const(x.shape))
    yield case("SPACE_TO_DEPTH", x, block_size=2)
    yield case("DEPTH_TO_SPACE", np.resize(GRID, (1, 2, 3, 8)), block_size=2)
    yield case("SPACE_TO_BATCH_ND", x, const([2, 2]), const([[0, 0], [1, 1]]))
    yield case("BATCH_TO_SPACE_ND", np.resize(GRID, (4, 2, 3, 2)), const([2, 2]), const([[0, 1], [0, 0]]))
    yield case("REVERSE_V2", x, const([2]))
    yield case("REVERSE_SEQUENCE", x, const([4, 2]), seq_dim=1, batch_dim=0)
    yield case("MIRROR_PAD", x[0, 0], const([[1, 1], [2, 0]]), mode="reflect")
    yield case("PAD", x, const([[0, 0], [1, 0], [0, 2], [0, 0]]))
    for value in (np.nan, -np.inf, -0.0, 1e-40):
        yield case("PADV2", x, const([[0, 0], [1, 0], [0, 2], [0, 0]]), real(value))
        yield case("FILL", const([3, 5]), real(value))
    yield case("GATHER", x, const([5, 0]), axis=2)
    yield case("GATHER", real(x[0, 0]), np.array([5, 0], np.int32))
    yield case("DYNAMIC_UPDATE_SLICE", x, x[:, :1], np.array([0, 1, 0, 0], np.int32))
    yield case("GATHER_ND", x, const([[1, 3], [0, 2]]))
    yield case("MATRIX_DIAG", x[0, 0])
    yield case("RESIZE_NEAREST_NEIGHBOR", x, const([7, 9]))
    yield case("ZEROS_LIKE", x)


def conversions() -> Iterator[Case]:
    """Codes of reals; of the largest scale some codes represent numbers that overflow."""
    for dtype, zero in (("int8", -7), ("uint8", 200), ("int16", 0)):
        yield case("QUANTIZE", GRID, results=(tensor(dtype, None, quant(0.5, zero)),))
        codes = np.arange(-128, 128).astype(dtype)
        made = case("DEQUANTIZE", codes)
        yield replace(made, made=replace(made.made, operands=(tensor(dtype, codes.shape, quant(3e36, zero)),)))


def recurrent() -> Iterator[Case]:
    """Sequences of a cell, from one number on."""
    for options in ({}, {"cell_clip": 0.2}):
        made, runs = sequence_lstm(Form(cells=19), 0, **options)
        for value in FEW:
            inputs = [array.copy() for array in runs[0]]
            inputs[0].reshape(-1)[1] = value
            yield Case(made, tuple(inputs))


GROUPS = (element_wise, variants, along_rows, windows, hybrids, images, moves, conversions, recurrent)


def joined(cases: Sequence[Case]) -> tuple[Model, list[Array]]:
    """A model of all ``cases`` side by side, and its inputs."""
    builder = ModelBuilder()
    inputs: list[int] = []
    outputs: list[int] = []
    for number, item in enumerate(cases):

        def add(info: TensorInfo, shape: Any, number: int = number) -> int:
            params = info.quant and (info.quant.scale, info.quant.zero_point)
            name, data = f"t{number}_{len(builder.subgraph.tensors)}", info.array() if info.is_const else None
            return builder.tensor(name, shape, info.dtype, quant=params, data=data, variable=info.is_variable)

        places = []
        for info, value in zip(item.made.operands, bind(item.made, item.inputs), strict=True):
            places.append(-1 if info is None else add(info, info.shape))
            inputs += [places[-1]] * (value is not None)
        inferred = item.made.spec.infer_function(item.made)
        found = [add(info, result.shape) for info, result in zip(item.made.results, inferred, strict=True)]
        code = item.name.removeprefix("CUSTOM(").removesuffix(")") if item.name not in ops.all_specs() else ""
        builder.operator(
            "CUSTOM" if code else item.name, places, found, options=dict(item.made.options), custom_code=code
        )
        outputs += found
    return builder.finish(inputs, outputs), [array for item in cases for array in item.inputs]
