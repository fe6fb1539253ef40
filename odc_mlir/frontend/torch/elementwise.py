"""Conversion patterns for elementwise operators, reductions and searches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from xdsl.ir import SSAValue as V

from odc_mlir.frontend.torch.graph import Builder, is_float

Pattern = Callable[..., Any]
Value = V | float

_OF_BOOLS = {"ADD": "LOGICAL_OR", "MUL": "LOGICAL_AND", "MAXIMUM": "LOGICAL_OR", "MINIMUM": "LOGICAL_AND"}
_CLAMPS = {(0, None): "RELU", (0, 6): "RELU6", (-1, 1): "RELU_N1_TO_1", (0, 1): "RELU_0_TO_1"}
_BITS = {"and": "LOGICAL_AND", "or": "LOGICAL_OR", "xor": "NOT_EQUAL"}


def rows(*table: tuple[str, Pattern]) -> dict[str, Pattern]:
    """Return patterns by overload. A row has words and a pattern. A word without a dot is the overload ``default``.

    ``name.*`` stands for the overloads Tensor and Scalar, with a tensor or a number as second operand.
    """
    found: dict[str, Pattern] = {}
    for words, pattern in table:
        for word in words.split():
            stem, _, form = word.partition(".")
            forms = ("Tensor", "Scalar") if form == "*" else (form or "default",)
            found |= {f"{stem}.{name}": pattern for name in forms}
    return found


def of_scalars(pattern: Pattern) -> Pattern:
    """Extend ``pattern``, which needs an axis, to scalars. It then gets a vector with one element."""

    def wide(g: Builder, x: V, *rest: Any, **options: Any) -> Any:
        if g.rank(x):
            return pattern(g, x, *rest, **options)
        found = pattern(g, g.reshape(x, [1]), *rest, **options)
        parts = tuple(g.reshape(part, []) for part in (found if isinstance(found, tuple) else (found,)))
        return parts if isinstance(found, tuple) else parts[0]

    return wide


def unary(name: str) -> Pattern:
    """Return the pattern of an operator that becomes the operator ``name``."""
    return lambda g, x: g(name, g.cast(x, g.out_dtype))


def arithmetic(name: str) -> Pattern:
    """Return the pattern of an operator on two tensors, or a tensor and a number."""

    def pattern(g: Builder, a: Value, b: Value, alpha: float = 1) -> Any:
        left, right = g.cast(a, g.out_dtype), g.cast(b, g.out_dtype)
        right = g("MUL", right, alpha) if alpha != 1 else right
        return g(_OF_BOOLS.get(name, name) if g.out_dtype == "bool" else name, left, right)

    return pattern


def comparison(name: str) -> Pattern:
    """Return the pattern of a comparison. The operands get the element type to which PyTorch promotes."""

    def pattern(g: Builder, a: Value, b: Value) -> Any:
        kinds = {g.dtype(item) if isinstance(item, V) else type(item).__name__ for item in (a, b)}
        simple = kinds in ({"bool"}, {"int32"}) and (name in ("EQUAL", "NOT_EQUAL") or "bool" not in kinds)
        dtype = "float32" if kinds & {"float", "float32"} else min(kinds) if simple else "int32"
        return g(name, g.cast(a, dtype), g.cast(b, dtype))

    return pattern


def logical(name: str) -> Pattern:
    """Return the pattern of an operator on truth values."""
    return lambda g, *operands: g(name, *(g.cast(item, "bool") for item in operands))


def bitwise(name: str) -> Pattern:
    """Return the pattern of a bitwise operator. AND uses XOR: ``2 * (a & b) == a + b - (a ^ b)``."""

    def conjunction(g: Builder, a: V, b: V) -> Any:
        return g("RIGHT_SHIFT", g("SUB", g("ADD", a, b), g("BITWISE_XOR", a, b)), 1)

    def pattern(g: Builder, a: Value, b: Value) -> Any:
        if g.out_dtype == "bool":
            return g(_BITS[name], g.cast(a, "bool"), g.cast(b, "bool"))
        left, right = g.cast(a, "int32"), g.cast(b, "int32")
        found = g("BITWISE_XOR", left, right)
        if name != "xor":  # computed on halves of 16 bits, since sums must fit in 32 bits
            upper, lower = (
                conjunction(g, g(half, left, number), g(half, right, number))
                for half, number in (("RIGHT_SHIFT", 16), ("FLOOR_MOD", 1 << 16))
            )
            both = g("ADD", g("MUL", upper, 1 << 16), lower)
            found = both if name == "and" else g("BITWISE_XOR", found, both)
        return g.cast(found, g.out_dtype)

    return pattern


def trunc(g: Builder, x: V) -> Any:
    """Round toward zero."""
    return g("MUL", g("SIGN", x), g("FLOOR", g("ABS", x))) if is_float(g.dtype(x)) else x


def divide(g: Builder, a: Value, b: Value, rounding_mode: str | None = None) -> Any:
    """Divide, with any rounding mode."""
    left, right = g.cast(a, g.out_dtype), g.cast(b, g.out_dtype)
    quotient = g("FLOOR_DIV" if rounding_mode == "floor" else "DIV", left, right)
    return trunc(g, quotient) if rounding_mode == "trunc" else quotient


def fmod(g: Builder, a: Value, b: Value) -> Any:
    """Return the remainder with the sign of the dividend."""
    left, right = g.cast(a, g.out_dtype), g.cast(b, g.out_dtype)
    return g("SUB", left, g("MUL", trunc(g, g("DIV", left, right)), right))


def power(g: Builder, a: Value, b: Value) -> Any:
    """Raise to a power. Simple exponents become other operators."""
    base = g.cast(a, g.out_dtype)
    if not isinstance(b, V) and b in (0.5, -0.5, -1) and is_float(g.out_dtype):
        return g("DIV", 1, base) if b == -1 else g("SQRT" if b > 0 else "RSQRT", base)
    if not isinstance(b, V) and b in (1, 2, 3):
        square = base if b == 1 else g("MUL", base, base)
        return g("MUL", square, base) if b == 3 else square
    return g("POW", base, g.cast(b, g.out_dtype))


def clamp(g: Builder, x: V, low: Value | None = None, high: Value | None = None) -> Any:
    """Limit to numbers or tensors."""
    x = g.cast(x, g.out_dtype)
    if is_float(g.out_dtype) and not isinstance(low, V) and (low, high) in _CLAMPS:
        return g(_CLAMPS[low, high], x)  # type: ignore[index]
    for name, limit in (("MAXIMUM", low), ("MINIMUM", high)):
        if limit is not None and (isinstance(limit, V) or math.isfinite(limit)):
            x = g(name, x, g.cast(limit, g.out_dtype))
    return x


def where(g: Builder, condition: V, a: Value, b: Value) -> Any:
    """Choose between two tensors."""
    return g("SELECT_V2", g.cast(condition, "bool"), g.cast(a, g.out_dtype), g.cast(b, g.out_dtype))


def erf(g: Builder, x: V) -> Any:
    """Compute erf by GELU: ``gelu(y) + gelu(-y) == y * erf(y / sqrt(2))``."""
    y = g("MUL", x, math.sqrt(2))
    total = g("ADD", g("GELU", y), g("GELU", g("NEG", y)))
    return g("DIV", total, g("SELECT_V2", g("EQUAL", y, 0.0), g.number(1, "float32"), y))


def softplus(g: Builder, x: V, beta: float = 1, threshold: float = 20) -> Any:
    """Return softplus, ``relu(x) + log(1 + exp(-|x|))``, or ``x`` above a threshold. From 16, both are equal."""
    scaled = g("MUL", x, beta) if beta != 1 else x
    total = g("ADD", g("RELU", scaled), g("LOG", g("ADD", g("EXP", g("NEG", g("ABS", scaled))), 1.0)))
    total = g("MUL", total, 1 / beta) if beta != 1 else total
    return total if threshold >= 16 else g("SELECT_V2", g("GREATER", scaled, threshold), x, total)


def elu(g: Builder, x: V, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    """Return ELU and its scaled forms."""
    if (alpha, scale, input_scale) == (1, 1, 1):
        return g("ELU", x)
    curve = g("SUB", g("EXP", g("MUL", g("MINIMUM", x, 0.0), input_scale)), 1.0)
    return g("ADD", g("MUL", g("RELU", x), scale), g("MUL", curve, alpha * scale))


def prelu(g: Builder, x: V, alpha: V) -> Any:
    """Return PReLU with one slope, or one per channel."""
    ones = [1] * (g.rank(x) - 2) if g.rank(alpha) == 1 else []
    return g("PRELU", x, g.reshape(alpha, [*g.dims(alpha), *ones]))


def _root(g: Builder, x: V, sign: int, one: int) -> Any:
    return g("SQRT", g("ADD", g("MUL", g("MUL", x, x), sign), one))


def _exponentials(g: Builder, x: V, name: str) -> Any:
    return g("MUL", g(name, g("EXP", x), g("EXP", g("NEG", x))), 0.5)


# Real functions as formulas of our operators.
_FORMULAS: Mapping[str, Callable[[Builder, V], Any]] = {
    "acos": lambda g, x: g("ATAN2", _root(g, x, -1, 1), x),
    "acosh": lambda g, x: g("LOG", g("ADD", x, _root(g, x, 1, -1))),
    "asin": lambda g, x: g("ATAN2", x, _root(g, x, -1, 1)),
    "asinh": lambda g, x: g("MUL", g("SIGN", x), g("LOG", g("ADD", g("ABS", x), _root(g, x, 1, 1)))),
    "atan": lambda g, x: g("ATAN2", x, 1.0),
    "atanh": lambda g, x: g("MUL", g("LOG", g("DIV", g("ADD", x, 1.0), g("SUB", 1.0, x))), 0.5),
    "cosh": lambda g, x: _exponentials(g, x, "ADD"),
    "erf": erf,
    "exp2": lambda g, x: g("EXP", g("MUL", x, math.log(2))),
    "expm1": lambda g, x: g("SUB", g("EXP", x), 1.0),
    "log10": lambda g, x: g("MUL", g("LOG", x), 1 / math.log(10)),
    "log1p": lambda g, x: g("LOG", g("ADD", x, 1.0)),
    "log2": lambda g, x: g("MUL", g("LOG", x), 1 / math.log(2)),
    "reciprocal": lambda g, x: g("DIV", 1.0, x),
    "sinh": lambda g, x: _exponentials(g, x, "SUB"),
    "tan": lambda g, x: g("DIV", g("SIN", x), g("COS", x)),
}


def _formula(name: str) -> Pattern:
    return lambda g, x: _FORMULAS[name](g, g.cast(x, "float32"))


def _axes(g: Builder, x: V, dim: Any) -> list[int]:
    dims = [dim] if isinstance(dim, int) else list(dim or range(g.rank(x)))
    return [axis % g.rank(x) for axis in dims] if g.rank(x) else []


def reduction(name: str) -> Pattern:
    """Return the pattern of a reduction along one, several or all axes."""

    def pattern(g: Builder, x: V, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        x = g.cast(x, g.out_dtype)
        axes = _axes(g, x, dim)
        return g(name, x, axes, keep_dims=keepdim) if axes else x

    return pattern


def variance(g: Builder, x: V, dim: Any = None, correction: float | None = None, keepdim: bool = False) -> Any:
    """Return the mean squared difference from the mean, with PyTorch's correction of the divisor."""
    axes = _axes(g, x, dim)
    count = math.prod(g.static(x, *axes))
    taken = 1 if correction is None else correction
    mean = g("MEAN", x, axes, keep_dims=True)
    spread = g("MEAN", g("SQUARED_DIFFERENCE", x, mean), axes, keep_dims=keepdim)
    factor = count / (count - taken) if count > taken else math.nan
    return g("MUL", spread, factor) if factor != 1 else spread


def search(name: str) -> Pattern:
    """Return the pattern of the index of a minimum or maximum."""

    def pattern(g: Builder, x: V, dim: int | None = None, keepdim: bool = False) -> Any:
        shape = [1] * g.rank(x)
        if dim is None:
            x = g.reshape(x, [-1])
        found = g(name, x, [(dim or 0) % g.rank(x)], dtype="int32", output_type="int32")
        if dim is None:
            return g.reshape(found, shape if keepdim else [])
        dims, axis = g.dims(found), dim % g.rank(x)
        return g.reshape(found, [*dims[:axis], 1, *dims[axis:]]) if keepdim else found

    return pattern


def extreme(reduce: str, index: str) -> Pattern:
    """Return the pattern of a minimum or maximum with its index."""

    def pattern(g: Builder, x: V, dim: int, keepdim: bool = False) -> Any:
        return g(reduce, x, [dim % g.rank(x)], keep_dims=keepdim), search(index)(g, x, dim, keepdim)

    return of_scalars(pattern)


def top_k(g: Builder, x: V, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Return the ``k`` largest or smallest elements. Our operator finds the largest elements along the last axis."""
    axis, last = dim % g.rank(x), g.rank(x) - 1
    back = [*range(axis), last, *range(axis, last)]
    x = g.transpose(x, [*(i for i in range(last + 1) if i != axis), axis])
    values, places = g("TOPK_V2", x if largest else g("NEG", x), g.number(k, "int32"), results=2, second="int32")
    return g.transpose(values if largest else g("NEG", values), back), g.transpose(places, back)


def sort(g: Builder, x: V, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    """Sort, as the top k of all elements."""
    return top_k(g, x, g.static(x, dim)[0], dim, descending)


_TESTS = {"eq": "EQUAL", "ne": "NOT_EQUAL", "lt": "LESS", "le": "LESS_EQUAL", "gt": "GREATER", "ge": "GREATER_EQUAL"}
_OURS = "abs ceil cos exp floor log neg relu6 round rsqrt sign sin sqrt tanh"

ROWS: Mapping[str, Pattern] = rows(
    *((name, unary(name.upper())) for name in _OURS.split()),
    *((name, _formula(name)) for name in _FORMULAS),
    ("sigmoid", unary("LOGISTIC")),
    ("hardswish", unary("HARD_SWISH")),
    ("gelu", lambda g, x, approximate="none": g("GELU", x, approximate=approximate == "tanh")),
    ("leaky_relu", lambda g, x, slope=0.01: g("LEAKY_RELU", x, alpha=slope)),
    ("softplus", softplus),
    ("elu", elu),
    ("prelu _prelu_kernel", prelu),
    *((f"{name}.*", arithmetic(name.upper())) for name in ("add", "sub", "mul")),
    ("div.* div.Tensor_mode div.Scalar_mode", divide),
    ("remainder.*", arithmetic("FLOOR_MOD")),
    ("fmod.*", fmod),
    ("pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar", power),
    *((name, arithmetic(name.upper())) for name in ("maximum", "minimum", "atan2")),
    *((f"{name}.*", comparison(ours)) for name, ours in _TESTS.items()),
    *((f"logical_{name}", logical(f"LOGICAL_{name.upper()}")) for name in ("and", "or", "not")),
    ("logical_xor", logical("NOT_EQUAL")),
    *((f"bitwise_{name}.*", bitwise(name)) for name in _BITS),
    ("bitwise_not", lambda g, x: g("LOGICAL_NOT", x) if g.out_dtype == "bool" else g("SUB", g("NEG", x), 1)),
    ("trunc", trunc),
    ("clamp clamp.Tensor", clamp),
    ("relu", lambda g, x: clamp(g, x, 0)),
    ("hardtanh", lambda g, x, low=-1, high=1: clamp(g, x, low, high)),
    ("where.self", where),
    ("isnan", lambda g, x: g("NOT_EQUAL", x, x)),
    ("isinf", lambda g, x: g("EQUAL", g("ABS", x), math.inf) if is_float(g.dtype(x)) else g("NOT_EQUAL", x, x)),
    ("mean mean.dim", reduction("MEAN")),
    ("sum sum.dim_IntList", reduction("SUM")),
    ("prod prod.dim_int", reduction("REDUCE_PROD")),
    *((f"a{name} {name}", reduction(f"REDUCE_{name.upper()}")) for name in ("max", "min")),
    *((f"{name} {name}.dim {name}.dims", reduction(f"REDUCE_{name.upper()}")) for name in ("any", "all")),
    ("var.correction", variance),
    *((f"arg{name}", of_scalars(search(f"ARG_{name.upper()}"))) for name in ("max", "min")),
    *((f"{name}.dim", extreme(f"REDUCE_{name.upper()}", f"ARG_{name.upper()}")) for name in ("max", "min")),
    ("topk", of_scalars(top_k)),
    ("sort sort.stable", of_scalars(sort)),
    (
        "cumsum",
        of_scalars(lambda g, x, dim, **_: g("CUMSUM", g.cast(x, g.out_dtype), g.number(dim % g.rank(x), "int32"))),
    ),
)
