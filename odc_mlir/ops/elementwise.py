"""Element-wise arithmetic: functions of one operand, of two broadcast operands, and sums of many."""

from __future__ import annotations

from odc_mlir.ops.quantization import NONE, OWN, QuantRule, joined, real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.common"
_VERIFY = "odc_mlir.ops.infer.elementwise"
_KERNELS = "odc_mlir.runtime.kernels"
_STEPS = real_only("integer quotients of codes differ from those of real values")
_OF_POSITIVE = QuantRule(not_negative=(0,))
_ELEMENTWISE = frozenset({Trait.PURE, Trait.ELEMENTWISE})
_COMMUTATIVE = _ELEMENTWISE | {Trait.COMMUTATIVE}


def _unary(
    name: str, options: str | None, version: int, summary: str, kernel: str = "", *, quant: QuantRule = OWN
) -> OpSpec:
    return OpSpec(
        name,
        (Operand("input"),),
        (Operand("output"),),
        options,
        f"{_INFER}:unary",
        f"{_KERNELS}.unary:{kernel or name.lower()}",
        f"{_VERIFY}:verify_unary",
        _ELEMENTWISE,
        version,
        quant,
        summary,
    )


def _binary(
    name: str, options: str, traits: frozenset[Trait], version: int, summary: str, *, quant: QuantRule = OWN
) -> OpSpec:
    return OpSpec(
        name,
        (Operand("lhs"), Operand("rhs")),
        (Operand("output"),),
        options,
        f"{_INFER}:binary",
        f"{_KERNELS}.elementwise:{name.lower()}",
        f"{_VERIFY}:verify_binary",
        traits,
        version,
        quant,
        summary,
    )


SPECS = (
    _binary("ADD", "AddOptions", _COMMUTATIVE, 6, "sum of two tensors"),
    _binary("SUB", "SubOptions", _ELEMENTWISE, 5, "difference of two tensors"),
    _binary("MUL", "MulOptions", _COMMUTATIVE, 8, "product of two tensors"),
    _binary("DIV", "DivOptions", _ELEMENTWISE, 3, "quotient of two tensors", quant=QuantRule(not_zero=(1,))),
    _binary("FLOOR_DIV", "FloorDivOptions", _ELEMENTWISE, 3, "quotient rounded down", quant=_STEPS),
    _binary("FLOOR_MOD", "FloorModOptions", _ELEMENTWISE, 3, "remainder with the sign of the divisor", quant=_STEPS),
    _binary("POW", "PowOptions", _ELEMENTWISE, 2, "power of one tensor by another"),
    _binary("ATAN2", "ATan2Options", _ELEMENTWISE, 2, "angle of the point (rhs, lhs)"),
    _binary(
        "SQUARED_DIFFERENCE", "SquaredDifferenceOptions", _COMMUTATIVE, 2, "square of the difference of two tensors"
    ),
    _binary("MAXIMUM", "MaximumMinimumOptions", _ELEMENTWISE, 5, "larger of two elements", quant=joined()),
    _binary("MINIMUM", "MaximumMinimumOptions", _ELEMENTWISE, 5, "smaller of two elements", quant=joined()),
    _binary("BITWISE_XOR", "BitwiseXorOptions", _COMMUTATIVE, 1, "bitwise exclusive or", quant=NONE),
    _binary("RIGHT_SHIFT", "RightShiftOptions", _ELEMENTWISE, 1, "arithmetic shift to the right", quant=NONE),
    OpSpec(
        "ADD_N",
        (Operand("inputs", variadic=True),),
        (Operand("output"),),
        "AddNOptions",
        f"{_VERIFY}:add_n",
        f"{_KERNELS}.elementwise:add_n",
        f"{_VERIFY}:verify_add_n",
        _COMMUTATIVE,
        2,
        summary="sum of tensors of one shape",
    ),
    _unary("FLOOR", None, 2, "rounding down to an integer"),
    _unary("CEIL", None, 2, "rounding up to an integer"),
    _unary("ROUND", None, 2, "rounding to the nearest integer, halves to even"),
    _unary("ABS", "AbsOptions", 6, "absolute value", "absolute"),
    _unary("NEG", "NegOptions", 2, "negative value"),
    _unary("SIGN", "SignOptions", 2, "sign: -1, 0 or 1"),
    _unary("SQUARE", "SquareOptions", 2, "square"),
    _unary("SQRT", None, 2, "square root", quant=_OF_POSITIVE),
    _unary("RSQRT", None, 4, "one over the square root", quant=_OF_POSITIVE),
    _unary("EXP", "ExpOptions", 3, "e^x"),
    _unary("LOG", None, 3, "natural logarithm"),
    _unary("SIN", None, 2, "sine"),
    _unary("COS", "CosOptions", 2, "cosine"),
)
