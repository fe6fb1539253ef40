"""Circle's own operators for transformers and normalisation."""

from __future__ import annotations

from odc_mlir.ops.quantization import OWN, QuantRule, real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.attention"
_KERNELS = "odc_mlir.runtime.kernels.attention"


# A star marks operands that the operator writes.
def _spec(
    name: str,
    operands: str,
    summary: str,
    *,
    options: str | None = None,
    traits: frozenset[Trait] = frozenset({Trait.PURE}),
    quant: QuantRule = OWN,
    macs: str = "",
) -> OpSpec:
    return OpSpec(
        name,
        tuple(Operand(operand.rstrip("*"), mutated=operand.endswith("*")) for operand in operands.split()),
        (Operand("output"),),
        options,
        f"{_INFER}:{name.lower()}",
        f"{_KERNELS}:{name.lower()}",
        traits=traits,
        quant=quant,
        summary=summary,
        macs=macs,
    )


SPECS = (
    _spec(
        "INSTANCE_NORM",
        "input gamma beta",
        "normalisation over the pixels of each image",
        options="InstanceNormOptions",
    ),
    _spec(
        "RMS_NORM",
        "input gamma",
        "division by the root mean square of the last axis",
        options="RmsNormOptions",
        quant=QuantRule(left=(1,)),
    ),
    _spec("ROPE", "input sin_table cos_table", "rotary position embedding", options="RoPEOptions"),
    _spec(
        "ATTENTION",
        "input wq wk wv wo position_cos position_sin mask k_cache* v_cache* position",
        "one token's attention over cached keys and values",
        traits=frozenset({Trait.STATEFUL}),
        quant=real_only("the caches that it writes have no recorded range"),
        macs="odc_mlir.ops.macs:attention",
    ),
)
