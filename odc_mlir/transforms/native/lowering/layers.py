"""Which operators become kernels, and how: one entry per operator."""

from __future__ import annotations

from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Node
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.lowering import (
    layers_elements,
    layers_elementwise,
    layers_images,
    layers_moves,
    layers_products,
    layers_reals,
    layers_recurrent,
    layers_reductions,
    layers_rewritten,
    layers_wide,
    layers_windows,
)
from odc_mlir.transforms.native.lowering.segment_writer import CallPlanner, Write, refusal

CODES: dict[str, CallPlanner] = {**layers_products.PLANS, **layers_windows.PLANS, **layers_elementwise.PLANS}
"""Of integers that stand for reals."""

REALS: dict[str, CallPlanner] = {**layers_reals.PLANS, **layers_reductions.REALS}
ANY: dict[str, CallPlanner] = {
    **layers_moves.PLANS,
    **layers_elements.PLANS,
    **layers_reductions.PLANS,
    **layers_images.PLANS,
    **layers_recurrent.PLANS,
}
"""Whatever the types are."""


def plan_of(node: Node, machine: CpuTarget) -> Write:
    """What writes an operator; raises OdcError with the reason where it stays on the host."""
    real = bool(node.results) and node.results[0].dtype == "float32" and node.spec.name != "DEQUANTIZE"
    arithmetic = REALS if real else _of_types(node)
    plan = ANY.get(node.spec.name) or arithmetic.get(node.spec.name)
    if node.operands and node.operands[0] is not None and node.operands[0].dtype == "int16":
        plan = layers_wide.PLANS.get(node.spec.name, plan)
    if node.spec.name == "TRANSPOSE_CONV":
        plan = layers_rewritten.transpose_conv(_convolution)
    elif node.spec.name == "CONV_2D" and plan is not None:
        plan = layers_rewritten.grouped(plan)
    if plan is None:
        raise refusal(node, "there is no native kernel for this operator")
    for index, info in enumerate((*node.operands, *node.results)):
        if info is not None and (info.shape is None or None in info.shape):
            raise refusal(node, f"the shape of {info.name!r} is not fully known")
        if info is not None and info.is_variable and index not in node.mutated:
            raise refusal(node, f"{info.name!r} keeps state from run to run")
        if info is not None and 0 in (info.shape or ()):
            raise refusal(node, f"{info.name!r} has no elements")
    return plan(node, machine)


def _convolution(node: Node) -> CallPlanner:
    """What writes a convolution, by the type of its input."""
    kind = node.operand(0).dtype
    return {"float32": layers_reals.conv_2d, "int16": layers_wide.conv_2d}.get(kind, layers_products.conv_2d)


def _of_types(node: Node) -> dict[str, CallPlanner]:
    """What there is for results that are not real: codes have arithmetic of their own."""
    dtype = node.results[0].dtype if node.results else ""
    return {**CODES, **layers_elements.OTHERS} if dtype in _PLAIN else {**layers_elements.OTHERS, **CODES}


_PLAIN = ("int32", "int64", "bool")


def reason_against(node: Node, machine: CpuTarget) -> str | None:
    """Why an operator stays on the host, None where it does not."""
    try:
        plan_of(node, machine)
    except OdcError as error:
        return error.message
    return None
