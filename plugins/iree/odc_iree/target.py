"""The target: operators with a StableHLO form, on float32."""

from __future__ import annotations

from odc_iree.text import OPERATORS, constant_problem, module_text
from odc_mlir.codegen.machine import machine_facts
from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Node
from odc_mlir.plugins.target import FLOAT, STATIC_SHAPE, Costs, Rule, RuleTable, TargetDescription, operator_model
from odc_mlir.runtime.execution.graph import build_graph

TARGET = "iree"


def _types(node: Node) -> str | None:
    for info in (*node.operands, *node.results):
        if info is not None and info.is_const:
            if (problem := constant_problem(info)) is not None:
                return problem
        elif info is not None and (info.dtype != "float32" or info.quant is not None):
            return f"{info.name!r} is {info.dtype}"
    return None


def _form(node: Node) -> str | None:
    try:
        module_text(build_graph(operator_model(node)))
    except OdcError as error:
        return error.message
    return None


RULES = RuleTable(
    generic=(
        Rule("types", "computed values are float32; constants are float32, float16 or integers without scales", _types),
        STATIC_SHAPE,
        Rule("form", "options and constants have a form in StableHLO", _form),
    ),
    operators=dict.fromkeys(OPERATORS, ()),
)


def facts() -> tuple[str, ...]:
    """Return the versions of IREE, and the processor, that compiled code depends on."""
    from importlib.metadata import version

    versions = (f"{name} {version(name)}" for name in ("iree-base-compiler", "iree-base-runtime"))
    return (*versions, machine_facts())


def _costs() -> Costs:
    from odc_iree.costs import costs

    return costs()


def describe() -> TargetDescription:
    """Return the target."""
    return TargetDescription(
        name=TARGET,
        extension=TARGET,
        schemes=(FLOAT,),
        rules=lambda _machine: RULES,
        costs=lambda _machine: _costs(),
        identity=lambda _machine: facts(),
        summary="this processor, by IREE",
    )
