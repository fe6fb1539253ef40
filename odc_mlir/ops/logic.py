"""Comparisons, logic on booleans, and choices between tensors."""

from __future__ import annotations

from odc_mlir.ops.quantization import NONE, OWN, joined
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_BOOL = ("bool",)
_INFER = "odc_mlir.ops.infer.logic"
_KERNELS = "odc_mlir.runtime.kernels.logic"
_ELEMENTWISE = frozenset({Trait.PURE, Trait.ELEMENTWISE})
_COMMUTATIVE = _ELEMENTWISE | {Trait.COMMUTATIVE}


def _comparison(name: str, options: str, version: int, summary: str, traits: frozenset[Trait] = _ELEMENTWISE) -> OpSpec:
    return OpSpec(
        name,
        (Operand("lhs"), Operand("rhs")),
        (Operand("output", dtypes=_BOOL),),
        options,
        "odc_mlir.ops.infer.common:comparison",
        f"{_KERNELS}:{name.lower()}",
        f"{_INFER}:verify_comparison",
        traits,
        version,
        OWN,
        summary,
    )


def _logical(name: str, operands: tuple[str, ...], summary: str) -> OpSpec:
    return OpSpec(
        name,
        tuple(Operand(operand, dtypes=_BOOL) for operand in operands),
        (Operand("output", dtypes=_BOOL),),
        f"{name.title().replace('_', '')}Options",
        f"odc_mlir.ops.infer.common:{'unary' if len(operands) == 1 else 'binary'}",
        f"{_KERNELS}:{name.lower()}",
        traits=_ELEMENTWISE if len(operands) == 1 else _COMMUTATIVE,
        quant=NONE,
        summary=summary,
    )


def _select(name: str, options: str, version: int, summary: str) -> OpSpec:
    return OpSpec(
        name,
        (Operand("condition", dtypes=_BOOL), Operand("x"), Operand("y")),
        (Operand("output"),),
        options,
        f"{_INFER}:{name.lower()}",
        f"{_KERNELS}:{name.lower()}",
        f"{_INFER}:verify_{name.lower()}",
        _ELEMENTWISE | {Trait.SAME_QUANT},
        version,
        joined(1, 2),
        summary,
    )


SPECS = (
    _comparison("EQUAL", "EqualOptions", 4, "equal elements", _COMMUTATIVE),
    _comparison("NOT_EQUAL", "NotEqualOptions", 4, "unequal elements", _COMMUTATIVE),
    _comparison("LESS", "LessOptions", 3, "comparison: less"),
    _comparison("LESS_EQUAL", "LessEqualOptions", 3, "comparison: less or equal"),
    _comparison("GREATER", "GreaterOptions", 3, "comparison: greater"),
    _comparison("GREATER_EQUAL", "GreaterEqualOptions", 3, "comparison: greater or equal"),
    _logical("LOGICAL_AND", ("lhs", "rhs"), "logical and"),
    _logical("LOGICAL_OR", ("lhs", "rhs"), "logical or"),
    _logical("LOGICAL_NOT", ("input",), "logical not"),
    _select("SELECT", "SelectOptions", 4, "x where the condition is true, else y; a vector of conditions selects rows"),
    _select("SELECT_V2", "SelectV2Options", 2, "x where the condition is true, else y; all broadcast"),
)
