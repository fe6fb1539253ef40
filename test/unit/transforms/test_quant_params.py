"""Element types of whole networks: who takes whose parameters, what stays real, and what that does to results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue

from helpers.float_nets import Array, FloatNet, assign, operator, quantised_results, run_pass
from helpers.quant_nets import attention, lstm, pyramid, squeeze_and_excite
from odc_mlir.errors import OptionError
from odc_mlir.ops.spec import QuantParams
from odc_mlir.support.text import parse_module
from odc_mlir.transforms.quant.common.ir import (
    LEFT_ALONE,
    OPERANDS,
    REAL,
    REASON,
    SCHEME,
    argument_types,
    operand_types,
    params_of,
    quantized_function,
    read_word,
    result_types,
)
from odc_mlir.transforms.quant.quant_attach_ranges import ranges_of
from odc_mlir.universe import make_context

I32 = "int32"


def gives(module: ModuleOp, name: str) -> Attribute:
    """What the first result of an operator gets."""
    types = result_types(operator(module, name))
    assert types is not None
    return types[0]


def needs(module: ModuleOp, name: str) -> list[Attribute]:
    types = operand_types(operator(module, name))
    assert types is not None
    return types


def reason(module: ModuleOp, name: str) -> str | None:
    return read_word(operator(module, name), REASON)


def quality(net: FloatNet, module: ModuleOp, names: list[str]) -> float:
    """Signal to quantisation noise of the outputs, in dB."""
    found = quantised_results(module, net.inputs)
    signal = sum(float((net.values[name].astype(np.float64) ** 2).sum()) for name in names)
    noise = sum(float(((net.values[n].astype(np.float64) - f) ** 2).sum()) for n, f in zip(names, found, strict=True))
    return 10 * float(np.log10(signal / noise)) if noise else float("inf")


@pytest.mark.parametrize("build", [squeeze_and_excite, attention, pyramid])
@pytest.mark.parametrize(("scheme", "least"), [("uint8", 24), ("int8", 24), ("int16", 50), ("int16x8", 30)])
def test_networks(build: Any, scheme: str, least: float) -> None:
    net = FloatNet(3)
    module = assign(net.module(build(net)), scheme)
    stays = [op.SPEC.name for op in module.walk() if REASON in op.attributes]  # type: ignore[attr-defined]
    assert stays == []
    assert quality(net, module, ["out"]) > least


def test_movers_take_over_and_fixed_values_spread() -> None:
    net = FloatNet()
    out = net.add("RESHAPE", net.add("LOGISTIC", net.real(2, 4), name="gate"), net.const([8], I32), name="flat")
    module = assign(net.module(out), "int8")
    fixed = ("int8", QuantParams((1 / 256,), (-128,)))
    assert params_of(gives(module, "gate")) == fixed
    assert params_of(gives(module, "flat")) == params_of(needs(module, "flat")[0]) == fixed
    assert needs(module, "flat")[1] == LEFT_ALONE


def concatenation(net: FloatNet, *, shared: bool = False, fixed: bool = False) -> list[SSAValue]:
    kind = "LOGISTIC" if fixed else "NEG"
    a = net.add(kind, net.real(2, 4, high=3), name="a")
    b = net.add(kind, net.real(2, 4, low=-2), name="b")
    outputs = [
        net.add("CONCATENATION", net.add("RESHAPE", a, net.const([2, 4], I32), name="moved"), b, axis=1, name="all")
    ]
    return [*outputs, a] if shared else outputs


def test_a_concatenation_passes_its_parameters_back() -> None:
    net = FloatNet()
    module = assign(net.module(*concatenation(net)), "int8")
    assert len({gives(module, name) for name in ("a", "moved", "b", "all")}) == 1
    assert all(need == gives(module, "all") for need in needs(module, "all"))


def test_operands_that_others_use_keep_theirs() -> None:
    net = FloatNet()
    module = assign(net.module(*concatenation(net, shared=True)), "int8")
    assert gives(module, "b") == gives(module, "all")
    assert gives(module, "a") == gives(module, "moved") != gives(module, "all")
    assert needs(module, "all") == [gives(module, "all")] * 2


def test_a_concatenation_takes_over_what_its_operands_agree_on() -> None:
    net = FloatNet()
    module = assign(net.module(*concatenation(net, fixed=True)), "int8")
    assert len({gives(module, name) for name in ("a", "moved", "b", "all")}) == 1
    assert params_of(gives(module, "all")) == ("int8", QuantParams((1 / 256,), (-128,)))


def test_padding_that_stands_for_infinity_clips() -> None:
    net = FloatNet()
    x = net.real(1, 4)
    least = net.const([float(np.finfo(np.float32).min)])
    padded = net.add("PADV2", x, net.const([[0, 0], [1, 1]], I32), least, name="padded")
    net.values["padded"] = net.values["in0"]  # recorders do not count what stands for infinity
    module = assign(net.module(padded, x), "int8")
    assert gives(module, "padded") == needs(module, "padded")[2]
    (found, _) = quantised_results(module, net.inputs)
    assert found[0, 0] == found[0, -1] == pytest.approx(net.values["in0"].min(), abs=0.02)


def test_nested_concatenations_share_one_type() -> None:
    net = FloatNet()
    a, b, c = (net.add("NEG", net.real(2, 3, low=-i - 1), name=f"n{i}") for i in range(3))
    inner = net.add("CONCATENATION", a, b, axis=1, name="inner")
    module = assign(net.module(net.add("CONCATENATION", inner, c, axis=1, name="outer")), "uint8")
    assert len({gives(module, name) for name in ("n0", "n1", "n2", "inner", "outer")}) == 1


def test_precision_by_name() -> None:
    net = FloatNet()
    x = net.add("NEG", net.real(2, 8), name="first")
    y = net.add("SQUARED_DIFFERENCE", x, net.weights(8), name="middle")
    module = assign(net.module(net.add("TANH", y, name="last")), "int8", overrides="middle:int16x8,last:float")
    assert read_word(operator(module, "middle"), "quant.precision") == "int16x8"
    assert [params_of(t)[0] for t in (gives(module, "first"), gives(module, "middle"))] == ["int8", "int16"]  # type: ignore[index]
    assert [params_of(need)[0] for need in needs(module, "middle")] == ["int16", "int16"]  # type: ignore[index]
    assert (needs(module, "last"), gives(module, "last")) == ([REAL], REAL)
    assert reason(module, "last") == "float was requested"
    assert quality(net, module, ["last"]) > 30


def test_an_argument_is_what_its_users_ask_for() -> None:
    net = FloatNet()
    x, y, z = net.real(2, 4), net.real(2, 4), net.real(2, 4)
    wide = net.add("NEG", x, name="wide")
    both = [net.add("ABS", y, name="narrow"), net.add("NEG", y, name="wide too"), net.add("NEG", z, name="real")]
    module = assign(net.module(wide, *both), "int8", overrides="wide:int16,wide too:int16,real:float")
    function = quantized_function(module)
    assert function is not None
    types = argument_types(function)
    assert types is not None
    assert [params_of(t)[0] if params_of(t) else t for t in types] == ["int16", "int8", REAL]  # type: ignore[index]


def test_ranges_end_where_the_fused_activation_does() -> None:
    net = FloatNet()
    out = net.add("ADD", net.real(2, 4), net.real(2, 4), fused_activation_function="relu6", name="y")
    net.values["y"] = np.array([-1.0, 7.0], np.float32)
    found = params_of(gives(assign(net.module(out), "uint8"), "y"))
    assert found == ("uint8", QuantParams((float(np.float32(6 / 255)),), (0,)))


def test_what_was_never_seen_stays_real() -> None:
    net = FloatNet()
    x = net.add("NEG", net.real(2, 4), name="seen")
    unseen = net.add("ABS", x, name="unseen")
    flat = net.add("RESHAPE", x, net.const([8], I32), name="flat")
    del net.values["unseen"], net.values["flat"]
    module = assign(net.module(unseen, flat), "int8")
    assert reason(module, "unseen") == "no range is known for 'unseen'"
    assert gives(module, "unseen") == REAL
    assert gives(module, "flat") == gives(module, "seen")  # follows from its operand


def test_movers_between_real_operators_stay_real() -> None:
    net = FloatNet()
    x = net.add("POW", net.real(2, 4, low=0.5), net.const([1.5]), name="power")
    flat = net.add("RESHAPE", x, net.const([8], I32), name="flat")
    again = net.add("RESHAPE", flat, net.const([4, 2], I32), name="again")
    module = assign(net.module(net.add("ATAN2", again, again, name="angle")), "int8")
    assert reason(module, "flat") == reason(module, "again") == "all operators before and after it stay float"
    assert "float" in str(reason(module, "power"))
    assert quality(net, module, ["angle"]) > 100


def test_divisors_and_roots() -> None:
    net = FloatNet()
    x = net.real(2, 4, low=1.0, high=2.0)
    net.add("DIV", x, net.real(2, 4, low=1.0, high=2.0), name="computed")
    net.add("DIV", x, net.const([1e-6, 1.0, 1.0, 100.0]), name="rounds")
    net.add("DIV", x, net.const([0.5, 1.0, 1.0, 2.0]), name="fine")
    last = net.add("SQRT", net.add("ABS", net.real(2, 4), name="abs"), name="root")
    net.values["abs"] = net.values["abs"] - 0.5
    module = assign(net.module(last), "int8")
    assert "computed" in str(reason(module, "computed"))
    assert reason(module, "rounds") == "an element of its divisor rounds to zero"
    assert reason(module, "fine") is None
    assert "which have no root" in str(reason(module, "root"))


def test_a_bias_that_does_not_fit_widens_the_weight_scale() -> None:
    net = FloatNet()
    weights = np.zeros((2, 4), np.float32)
    weights[0], weights[1] = 1e-25, 1.0
    y = net.add("FULLY_CONNECTED", net.real(3, 4), net.const(weights), net.const([5.0, 1.0]), name="y")
    module = assign(net.module(y), "int8")
    found = params_of(needs(module, "y")[1])
    assert found is not None
    assert found[1].scales[0] > 1e-8
    assert found[1].scales[1] == float(np.float32(1 / 127))
    assert quality(net, module, ["y"]) > 35


@pytest.mark.parametrize(("granularity", "scales"), [("channel", 3), ("tensor", 1)])
def test_granularity(granularity: str, scales: int) -> None:
    net = FloatNet()
    module = net.module(net.add("FULLY_CONNECTED", net.real(3, 4), net.weights(3, 4), net.weights(3), name="y"))
    assign(module, "uint8", granularity=granularity, weights="symmetric")
    found = params_of(needs(module, "y")[1])
    assert found is not None
    assert (found[0], found[1].zero_points) == ("uint8", (128,) * scales)
    assert needs(module, "y")[2] == LEFT_ALONE
    assert quality(net, module, ["y"]) > 30


def test_a_recurrent_cell_keeps_codes() -> None:
    net = FloatNet(5)
    module = assign(net.module(lstm(net)), "int8")
    assert not any(REASON in op.attributes for op in module.walk())
    wanted = needs(module, "lstm")
    assert wanted[18] == gives(module, "lstm")
    cell = params_of(wanted[19])
    assert cell is not None
    assert cell[0] == "int16"
    assert np.log2(cell[1].scale) == int(np.log2(cell[1].scale))
    assert all(wanted[index] == LEFT_ALONE for index in (*range(9, 18), *range(20, 24)))
    assert len(params_of(wanted[1])[1].scales) == 1  # type: ignore[index]
    assert quality(net, module, ["flat"]) > 24


@pytest.mark.parametrize(("scheme", "peephole"), [("int8", True), ("uint8", False), ("int16", False)])
def test_cells_that_no_kernel_has_stay_real(scheme: str, peephole: bool) -> None:
    net = FloatNet(5)
    module = assign(net.module(lstm(net, peephole=peephole)), scheme)
    assert reason(module, "lstm")
    assert quality(net, module, ["flat"]) > 30


def test_state_without_a_range_keeps_its_operator_real() -> None:
    net = FloatNet(5)
    out = lstm(net)
    del net.values["c"]
    assert reason(assign(net.module(out), "int8"), "lstm") == "no range is known for 'c'"


def test_a_configuration_says_what_options_do_not(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    layers = [{"name": "a", "dtype": "uint8", "granularity": "tensor"}, {"name": "b", "dtype": "int16"}]
    path.write_text(json.dumps({"default_quantization_dtype": "uint8", "layers": layers}))
    net = FloatNet()
    x = net.real(3, 4)
    for name in ("a", "b", "c"):
        x = net.add("FULLY_CONNECTED", x, net.weights(4, 4), net.weights(4), name=name)
    module = net.module(x)
    run_pass(module, "quant-assign-params", config=str(path), overrides="b:int8", weights="symmetric")
    found = [params_of(needs(module, name)[1]) for name in ("a", "b", "c")]
    assert [(item[0], len(item[1].scales), item[1].zero_points[0]) for item in found if item is not None] == [
        ("uint8", 1, 128),
        ("int8", 4, 0),
        ("uint8", 4, 128),
    ]


def test_a_computed_bias_keeps_the_operator_real() -> None:
    net = FloatNet()
    y = net.add("FULLY_CONNECTED", net.real(3, 4), net.weights(3, 4), net.real(3), name="y")
    assert reason(assign(net.module(y), "int8"), "y") == "its bias is computed when the model runs"


def test_computed_weights_are_activations() -> None:
    net = FloatNet()
    module = assign(net.module(net.add("FULLY_CONNECTED", net.real(3, 4), net.real(5, 4), None, name="y")), "int8")
    assert params_of(needs(module, "y")[1]) is not None
    assert quality(net, module, ["y"]) > 30


def test_nothing_without_a_scheme() -> None:
    net = FloatNet()
    module = net.module(net.add("NEG", net.real(2, 4)))
    before = str(module)
    for name in ("quant-attach-ranges", "quant-assign-params", "quant-propagate-params"):
        run_pass(module, name)
    assert str(module) == before


def function_text(name: str, operator: str, kind: str) -> str:
    """A function of one operator on tensors of one type."""
    body = f"%0 = circle.{operator}(%x) : ({kind}) -> {kind}\nfunc.return %0 : {kind}"
    return f"func.func @{name}(%x: {kind}) -> {kind} {{\n{body}\n}}"


def test_a_quantised_model_passes_through() -> None:
    kind = "tensor<1x4x!quant.uniform<i8:f32, 0.5:10>>"
    module = parse_module(make_context(), function_text("main", "relu", kind))
    assign(module, "int8")
    assert module.attributes[SCHEME]
    assert not any(OPERANDS in op.attributes for op in module.walk())


def test_functions_that_control_flow_calls_stay_real() -> None:
    kind = "tensor<1x4xf32, #circle.qparams<min = [-1.0], max = [1.0]>>"
    text = "\n".join(function_text(name, "neg", kind) for name in ("main", "body"))
    module = assign(parse_module(make_context(), text), "int8")
    assert [OPERANDS in op.attributes for op in module.walk() if op.name == "circle.neg"] == [True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "int9"}, "unknown quantisation scheme 'int9'"),
        ({"scheme": "int8_wo"}, "quantises weights only; run quant-weights-only"),
        ({"scheme": "int8", "overrides": "z:int16"}, "no operator has a result 'z'"),
        ({"scheme": "int16", "granularity": "tensor"}, "one scale per channel"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], message: str) -> None:
    net = FloatNet()
    module = net.module(net.add("NEG", net.real(2, 4)))
    with pytest.raises(OptionError, match=message):
        run_pass(module, "quant-assign-params", **options)


def test_no_file_of_records() -> None:
    net = FloatNet()
    with pytest.raises(OptionError, match="there is no record file"):
        run_pass(net.module(net.real(1)), "quant-attach-ranges", records="nowhere.sqlite")


def test_ranges_of_what_was_seen() -> None:
    from odc_mlir.calibration.statistics import TensorStatistics

    seen, unseen = TensorStatistics(), TensorStatistics()
    values: Array = np.array([-1.0, 2.5], np.float32)
    seen.add(values)
    assert ranges_of({"a": seen, "b": unseen}, "minmax") == {"a": (-1.0, 2.5)}


@pytest.mark.parametrize(("activation", "stays"), [("tanh", False), ("relu", True), ("none", True)])
def test_cells_with_other_activations_than_tanh_stay_float(activation: str, stays: bool) -> None:
    net = FloatNet(1)
    module = assign(net.module(lstm(net, activation=activation)), "int8")
    run_pass(module, "quant-propagate-params")
    reason = read_word(operator(module, "lstm"), REASON)
    assert (reason or "").startswith(f"its cell has the activation {activation}") is stays
