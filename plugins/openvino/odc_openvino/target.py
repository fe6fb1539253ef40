"""The target: rules, which ask OpenVINO, costs, which are measured, and machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Node, Trait
from odc_mlir.plugins.target import FLOAT, STATIC_SHAPE, Costs, Rule, TargetDescription
from odc_openvino.machines import TARGET, Machine

_TYPES = ("float32", "int32", "int64", "bool")


def _plain_types(node: Node) -> str | None:
    for info in (*node.operands, *node.results):
        if info is None or info.is_const:  # stored in any type: the comparison of results decides
            continue
        if info.dtype not in _TYPES or info.quant is not None:
            return f"{info.name!r} is {'quantised ' if info.quant is not None else ''}{info.dtype}"
    return None


def _no_state(node: Node) -> str | None:
    if node.callees or Trait.CONTROL_FLOW in node.spec.traits:
        return "it calls subgraphs"
    is_variable = any(info is not None and info.is_variable for info in node.operands)
    return "it has state" if is_variable or Trait.STATEFUL in node.spec.traits else None


_RULES = (
    Rule("types", f"computed values are {', '.join(_TYPES)}, without scales", _plain_types),
    STATIC_SHAPE,
    Rule("pure", "the operator has no state and calls no subgraph", _no_state),
)


@dataclass(frozen=True)
class OpenVinoRules:
    """Rules for all operators. The last one asks OpenVINO's query, and compares a run with host kernels."""

    machine: str | None

    def reason_against(self, node: Node) -> str | None:
        """Return the first rule that does not hold, with the value seen."""
        for rule in _RULES:
            if (seen := rule.check(node)) is not None:
                return f"{rule.name}: {seen}"
        from odc_openvino.judging import judge_of
        from odc_openvino.machines import machine_of

        reason = judge_of(machine_of(self.machine)).judge(node).reason
        return None if reason is None else f"OpenVINO: {reason}"

    def lines(self) -> Iterator[str]:
        """Yield the rules as text."""
        yield "every operator"
        yield from (f"  {rule.name}: {rule.text}" for rule in _RULES)
        yield "  OpenVINO: its query accepts the operator for the device, and a run agrees with host kernels"


def _costs(machine: str | None) -> Costs:
    from odc_openvino.judging import judge_of
    from odc_openvino.machines import machine_of

    return judge_of(machine_of(machine)).costs()


def _identity(machine: str | None) -> tuple[str, ...]:
    from odc_openvino.machines import machine_of

    try:
        return machine_of(machine).facts()
    except OdcError as error:  # compiling reports a missing device; until then the name is known
        return (error.message,)


def describe() -> TargetDescription:
    """Return the target."""
    from odc_openvino.machines import names

    return TargetDescription(
        name=TARGET,
        extension=TARGET,
        schemes=(FLOAT,),
        rules=OpenVinoRules,
        costs=_costs,
        machines=names,
        identity=_identity,
        summary="Intel's processors, GPUs and NPUs, by OpenVINO",
    )


__all__ = ["Machine", "OpenVinoRules", "describe"]
