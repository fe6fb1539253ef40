"""What the accelerator can run, what that costs, and how models should be."""

from __future__ import annotations

from dataclasses import replace

from odc_mlir.ops.spec import Node
from odc_mlir.plugins.target import FLOAT, STATIC_SHAPE, Costs, Rule, RuleTable, TargetDescription
from odc_mlir.targets.costs import load_host

MOST_COLUMNS = 512  # of a matrix: what its memory for weights holds
_MULTIPLIES_PER_NS = 64


def _real(node: Node) -> str | None:
    for info in (*node.operands, *node.results):
        if info is not None and info.dtype != "float32":
            return f"{info.name!r} is {info.dtype}"
    return None


def _constant_weights(node: Node) -> str | None:
    for info in node.operands[1:]:
        if info is not None and not info.is_const:
            return f"{info.name!r} is computed"
    return None


def _narrow(node: Node) -> str | None:
    weights = node.operands[1]
    columns = 0 if weights is None else weights.static_shape[-1]
    return f"{columns} columns" if columns > MOST_COLUMNS else None


def _activation(node: Node) -> str | None:
    found = node.options.get("fused_activation_function", "none")
    return None if found in ("none", "relu") else f"the activation {found}"


def _plain_matrix(node: Node) -> str | None:
    found = node.options.get("weights_format", "default")
    return None if found == "default" else f"weights are stored as {found}"


def _same_shapes(node: Node) -> str | None:
    shapes = {info.static_shape for info in node.operands if info is not None}
    return f"shapes {', '.join(map(str, sorted(shapes)))}" if len(shapes) > 1 else None


_ACTIVATION = Rule("activation", "there is no activation but RELU", _activation)

RULES = RuleTable(
    generic=(
        Rule("real", "everything is float32", _real),
        STATIC_SHAPE,
    ),
    operators={
        "FULLY_CONNECTED": (
            Rule("constant-weights", "weights and bias are constant", _constant_weights),
            Rule("narrow", f"the matrix has at most {MOST_COLUMNS} columns", _narrow),
            Rule("format", "weights are stored row by row", _plain_matrix),
            _ACTIVATION,
        ),
        "ADD": (Rule("same-shape", "operands have one shape", _same_shapes), _ACTIVATION),
        "RELU": (),
        "LOGISTIC": (),
    },
)


def _operator_ns(node: Node) -> float:
    return 50.0 + node.macs / _MULTIPLIES_PER_NS


def describe() -> TargetDescription:
    """The target, as its entry point names it."""
    return TargetDescription(
        name="mya",
        extension="mya",
        schemes=(FLOAT,),
        rules=lambda _machine: RULES,
        # It hangs on a slow bus: small matrices are quicker where they are.
        costs=lambda _machine: Costs(_operator_ns, replace(load_host("reference", "mya"), switch_ns=60_000.0)),
        summary="a made-up accelerator for matrices of real numbers",
    )
