"""Operators that create tensors from sizes, shapes and single values."""

from __future__ import annotations

from odc_mlir.ops.quantization import NONE, QuantRule, moved, real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.filling"
_KERNELS = "odc_mlir.runtime.kernels.filling"
_ONE = (Operand("output"),)
_INTS = ("int32", "int64")
_PURE = frozenset({Trait.PURE})


def _maker(
    name: str,
    operands: tuple[Operand, ...],
    summary: str,
    *,
    options: str | None,
    infer: str = "",
    traits: frozenset[Trait] = _PURE,
    version: int = 1,
    quant: QuantRule = NONE,
) -> OpSpec:
    function = name.lower() + ("_" if name == "RANGE" else "")
    return OpSpec(
        name,
        operands,
        _ONE,
        options,
        infer or f"{_INFER}:{function}",
        f"{_KERNELS}:{function}",
        f"{_INFER}:verify_{name.lower()}",
        traits,
        version,
        quant,
        summary,
    )


SPECS = (
    _maker(
        "RANGE",
        (Operand("start"), Operand("limit"), Operand("delta")),
        "numbers from start to limit in steps of delta",
        options="RangeOptions",
        quant=real_only("its result counts in steps that codes would round"),
        version=2,
    ),
    _maker("RANK", (Operand("input"),), "number of the operand's axes", options="RankOptions"),
    _maker(
        "FILL",
        (Operand("dims", dtypes=_INTS), Operand("value")),
        "tensor of one value",
        options="FillOptions",
        traits=_PURE | {Trait.SAME_QUANT},
        version=4,
        quant=moved(1),
    ),
    _maker(
        "ZEROS_LIKE",
        (Operand("input"),),
        "zeros of the operand's shape",
        options="ZerosLikeOptions",
        quant=real_only("its result is real zeros"),
        infer="odc_mlir.ops.infer.common:unary",
    ),
    _maker(
        "BROADCAST_ARGS",
        (Operand("shape0", dtypes=_INTS), Operand("shape1", dtypes=_INTS)),
        "broadcast of two shapes",
        options=None,
    ),
)
