"""The table's quantisation rules name operands that are there, and say why where they say no."""

from __future__ import annotations

import pytest

from odc_mlir import ops
from odc_mlir.ops.spec import (
    NONE,
    OWN,
    Bias,
    OpSpec,
    QuantKind,
    StateParameters,
    Trait,
    fixed,
    gates,
    joined,
    moved,
    product,
    real_only,
)

SPECS = tuple(ops.all_specs().values())


def _named(spec: OpSpec) -> set[int]:
    """Operands that a rule speaks of."""
    rule = spec.quant
    added = [place for bias in rule.biases.values() for place in (bias.input, bias.weights)]
    source = () if rule.source is None else (rule.source,)
    return {*rule.weights, *rule.biases, *rule.states, *added, *source, *rule.joined, *rule.left}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_rules_name_real_operands(spec: OpSpec) -> None:
    for index in _named(spec) | {*spec.quant.not_negative, *spec.quant.not_zero}:
        operand = spec.operands[index]
        assert not operand.dtypes or "float32" in operand.dtypes


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_kinds_are_complete(spec: OpSpec) -> None:
    rule = spec.quant
    assert bool(rule.reason) == (rule.kind is QuantKind.FLOAT)
    assert bool(rule.table) == (rule.kind is QuantKind.FIXED)
    assert rule.kind is QuantKind.SAME or not (rule.joined or rule.moves)
    assert all(bias.weights in rule.weights for bias in rule.biases.values())
    # what is kept or run elsewhere needs a rule that knows of it
    if spec.traits & {Trait.STATEFUL, Trait.CONTROL_FLOW}:
        assert rule.states or rule.kind is QuantKind.FLOAT
    assert all(spec.operands[index].mutated for index in rule.states)


def test_operators_that_move_codes_say_so() -> None:
    movers = {spec.name for spec in SPECS if Trait.SAME_QUANT in spec.traits}
    assert all(ops.get(name).quant.kind is QuantKind.SAME for name in movers)


def test_presets() -> None:
    assert moved(2).moves
    assert not moved(2).joins
    assert joined().joins
    assert [joined().is_joined(index) for index in (0, 7)] == [True, True]
    assert [joined(0, 2).is_joined(index) for index in (0, 1, 2)] == [True, False, True]
    assert not OWN.is_joined(0)
    assert (NONE.kind, fixed("softmax").table) == (QuantKind.NONE, "softmax")
    assert real_only("why", left=(1,)).left == (1,)
    assert dict(product(axis=3, bias=None).biases) == {}
    assert dict(product(axis=0, input=2, bias=3).biases) == {3: Bias(2, 1)}
    cell = gates(weights=(1, 2), stored=(2, 6), biases={3: Bias(0, 1)}, output=4, cell=5)
    assert cell.trained({}) == {1: None, 2: 0, 6: 0}
    assert moved(1, table=lambda options: options["axis"]).trained({"axis": 3}) == {1: 3}
    assert (dict(cell.weights), dict(cell.states)) == (
        {1: None, 2: None},
        {4: StateParameters.OUTPUT, 5: StateParameters.CELL},
    )


@pytest.mark.parametrize(
    ("name", "weights", "bias"),
    [
        ("CONV_2D", {1: 0}, {2: Bias(0, 1)}),
        ("DEPTHWISE_CONV_2D", {1: 3}, {2: Bias(0, 1)}),
        ("TRANSPOSE_CONV", {1: 0}, {3: Bias(2, 1)}),
        ("FULLY_CONNECTED", {1: 0}, {2: Bias(0, 1)}),
        ("CONV_3D", {1: 4}, {2: Bias(0, 1)}),
        ("CONV_3D_TRANSPOSE", {1: 3}, {3: Bias(2, 1)}),
        ("BATCH_MATMUL", {}, {}),
    ],
)
def test_channels_and_biases(name: str, weights: dict[int, int], bias: dict[int, Bias]) -> None:
    rule = ops.get(name).quant
    assert (dict(rule.weights), dict(rule.biases)) == (weights, bias)
