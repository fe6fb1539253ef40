"""Element-wise arithmetic on two broadcast operands."""

from __future__ import annotations

from odc_mlir.ops.spec import Operand, OpSpec, Trait

_NUMBERS = ("float32", "int8", "uint8", "int16", "int32", "int64")
_INFER = "odc_mlir.ops.infer.common:binary"
_KERNELS = "odc_mlir.runtime.kernels.elementwise"
_ELEMENTWISE = frozenset({Trait.PURE, Trait.ELEMENTWISE})
_COMMUTATIVE = _ELEMENTWISE | {Trait.COMMUTATIVE}


def _binary(
    name: str, options: str, traits: frozenset[Trait], version: int, summary: str, dtypes: tuple[str, ...] = _NUMBERS
) -> OpSpec:
    return OpSpec(
        name,
        (Operand("lhs", dtypes=dtypes), Operand("rhs", dtypes=dtypes)),
        (Operand("output", dtypes=dtypes),),
        options,
        _INFER,
        f"{_KERNELS}:{name.lower()}",
        "odc_mlir.ops.infer.elementwise:verify_binary",
        traits,
        version,
        summary=summary,
    )


SPECS = (
    _binary("ADD", "AddOptions", _COMMUTATIVE, 5, "sum of two tensors"),
    _binary("SUB", "SubOptions", _ELEMENTWISE, 5, "difference of two tensors"),
    _binary("MUL", "MulOptions", _COMMUTATIVE, 7, "product of two tensors"),
    _binary("DIV", "DivOptions", _ELEMENTWISE, 2, "quotient of two tensors", ("float32", "int32", "uint8")),
)
