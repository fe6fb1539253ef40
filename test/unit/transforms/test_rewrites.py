"""Every rewrite of the table: it applies where it should, nowhere else, and results stay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet
from helpers.rewrite_cases import CASES, CHANGE_RESULTS
from helpers.rewrite_parts import Make
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.errors import OptionError
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.ops.registry import default_custom_ops
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.support.text import parse_module
from odc_mlir.transforms.circle.circle_optimize import CircleOptimizePass
from odc_mlir.transforms.circle.rewrites.table import O1, ONE_SAMPLE, RULES, rules, select
from odc_mlir.universe import make_context


def _built(make: Make, seed: int = 3) -> tuple[FloatNet, ModuleOp]:
    net = FloatNet(seed)
    ends = make(net)
    return net, net.module(*([ends] if isinstance(ends, SSAValue) else ends))


def _run(module: ModuleOp, net: FloatNet) -> Sequence[np.ndarray]:
    return HostExecutor(build_graph(export_model(module))).run(net.inputs)


def _cases(kind: str) -> list[object]:
    return [
        pytest.param(name, make, id=f"{name}-{number}")
        for name, cases in CASES.items()
        for number, make in enumerate(getattr(cases, kind))
    ]


@pytest.mark.parametrize(("name", "make"), _cases("hits"))
def test_it_applies_and_results_stay(name: str, make: Make) -> None:
    for seed in range(3):
        net, module = _built(make, seed)
        before = _run(module, net)
        counts = CircleOptimizePass("none", (name,)).optimize(make_context(), module)[0]
        module.verify()
        assert counts[name] >= 1
        blocks = [block for op in module.walk() for region in op.regions for block in region.blocks]
        values = [value for block in blocks for value in (*block.args, *(r for op in block.ops for r in op.results))]
        assert all(use.operation.parent is not None for value in values for use in value.uses), "a reader is nowhere"
        for old, new in zip(before, _run(module, net), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("name", "make"), _cases("misses"))
def test_it_leaves_what_is_nearly_that(name: str, make: Make) -> None:
    _, module = _built(make)
    before = [op.name for op in module.walk() if isinstance(op, CircleOp)]
    assert not CircleOptimizePass("none", (name,)).optimize(make_context(), module)[0]
    assert [op.name for op in module.walk() if isinstance(op, CircleOp)] == before


def test_every_rewrite_has_cases() -> None:
    assert set(CASES) == set(rules()) - CHANGE_RESULTS - {ONE_SAMPLE}
    assert all(cases.hits and cases.misses for cases in CASES.values())


def test_names_are_given_once() -> None:
    assert len(rules()) == len(RULES)


def test_a_rewrite_that_undoes_another_takes_its_place() -> None:
    with_parts = {rule.name for rule in select(O1, ["decompose_hardswish"])}
    assert "fuse_hardswish" not in with_parts
    assert "fuse_hardswish" in {rule.name for rule in select(O1, ["decompose_hardswish"], ["decompose_hardswish"])}
    with pytest.raises(OptionError, match="decompose_hardswish undoes fuse_hardswish"):
        select(None, ["decompose_hardswish", "fuse_hardswish"])


def test_a_level_can_be_added_to_and_taken_from() -> None:
    names = {rule.name for rule in select(O1, ["decompose_softmax"], ["fold_mul"])}
    assert {"decompose_softmax", "fold_cast"} <= names
    assert "fold_mul" not in names


def test_names_with_one_effect_would_hide_each_other() -> None:
    """``without`` of one would change nothing, and only the first would be counted."""
    effects = [(rule.pattern, repr(sorted(rule.arguments.items(), key=repr))) for rule in RULES if rule.pattern]
    assert len(effects) == len(set(effects))


@pytest.mark.parametrize("arguments", [(O1, ["fold_nothing"]), (O1, [], ["fold_nothing"]), ("O2",)])
def test_unknown_names_are_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(OptionError, match="unknown"):
        select(*arguments)


def test_a_limit_stops_early() -> None:
    net, module = _built(lambda n: n.add("RELU", n.add("ADD", n.add("ADD", n.real(3), n.const(0.0)), n.const(0.0))))
    counts = CircleOptimizePass("none", ("remove_unnecessary_add",), limit=1).optimize(make_context(), module)[0]
    assert counts == {"remove_unnecessary_add": 1}
    assert str(module).count("circle.add") == 1


def test_what_the_application_computes_stays_custom() -> None:
    net, module = _built(lambda n: n.add("CUSTOM", n.real(3), n.real(3), code="AddV2"))
    default_custom_ops().register("AddV2", lambda inputs, outputs, options: [inputs[0] - inputs[1]])
    try:
        assert not CircleOptimizePass().optimize(make_context(), module)[0]
    finally:
        default_custom_ops().remove("AddV2")
    assert CircleOptimizePass().optimize(make_context(), module)[0] == {"resolve_customop_add": 1}


@pytest.mark.parametrize(("shape", "count"), [("?x8", 1), ("2x8", 0), ("2x?", 0)])
def test_an_open_batch_is_one(shape: str, count: int) -> None:
    tensor = f"tensor<{shape}xf32>"
    body = f"%0 = circle.relu(%x) : ({tensor}) -> {tensor} func.return %0 : {tensor}"
    module = parse_module(make_context(), f"func.func @main(%x: {tensor}) -> {tensor} {{ {body} }}")
    counts = CircleOptimizePass("none", (ONE_SAMPLE,)).optimize(make_context(), module)[0]
    module.verify()
    assert counts[ONE_SAMPLE] == count
    assert str(module).count("tensor<1x8xf32>") == (5 if count else 0)
    assert "declared" not in str(module)
