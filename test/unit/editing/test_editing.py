"""Cutting, dividing, resizing models, and other parameters for them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import odc_mlir
from helpers import rewrite_parts as parts
from helpers.equivalence import results_of
from helpers.float_nets import FloatNet, assign, run_pass
from odc_mlir.editing.cutting import divide, extract, keep_operators, main_operators, recipe
from odc_mlir.editing.parameters import constants, fake_quantize, implant, resize
from odc_mlir.errors import ModelError, OptionError
from odc_mlir.formats.one import PartitionFile


def _chain() -> tuple[FloatNet, ModuleOp]:
    """neg, then two ways to a sum: abs and exp."""
    n = FloatNet(1)
    x = n.add("NEG", n.real(2, 3), name="neg")
    left, right = n.add("ABS", x, name="abs"), n.add("EXP", x, name="exp")
    return n, n.module(n.add("ADD", left, right, name="sum"))


def _names(module: ModuleOp) -> list[str]:
    return [op.SPEC.name for op in main_operators(module)]


def test_a_part_between_tensors_computes_what_it_did() -> None:
    net, module = _chain()
    part = extract(module, ["neg"], ["abs", "sum"])
    assert _names(part) == ["ABS", "EXP", "ADD"]
    found = results_of(part, [net.values["neg"]])
    np.testing.assert_array_equal(found[0], net.values["abs"])
    np.testing.assert_array_equal(found[1], net.values["sum"])


def test_inputs_that_a_part_needs_besides_stay() -> None:
    net, module = _chain()
    part = extract(module, ["abs"], ["sum"])
    assert _names(part) == ["NEG", "EXP", "ADD"]
    (found,) = results_of(part, [net.inputs[0], net.values["abs"]])
    np.testing.assert_array_equal(found, net.values["sum"])


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        (["nag"], [], "mean 'neg'"),
        (["neg"], ["neg"], "an output"),
        (["sum"], ["neg"], "no output of the part depends on 'sum'"),
        (["abs"], ["exp"], "no output of the part depends on 'abs'"),
    ],
)
def test_tensors_that_cannot_be_cut_at(inputs: list[str], outputs: list[str], text: str) -> None:
    _, module = _chain()
    with pytest.raises(OptionError, match=text):
        extract(module, inputs, outputs)


def test_operators_by_number() -> None:
    net, module = _chain()
    part = keep_operators(module, {0, 1})
    assert _names(part) == ["NEG", "ABS"]
    found = results_of(part, net.inputs)  # exp reads the first as well
    assert len(found) == 2
    assert len(results_of(keep_operators(module, {0, 1}, for_others=False), net.inputs)) == 1
    with pytest.raises(OptionError, match="no operator"):
        keep_operators(module, {9})


@given(st.lists(st.sampled_from(["npu", "cpu", "gpu"]), min_size=7, max_size=7), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_parts_run_one_after_another_give_what_the_model_gives(places: list[str], seed: int) -> None:
    n = FloatNet(seed)
    values = [n.real(2, 2), n.real(2, 2)]
    for number in range(7):
        a, b = n.rng.integers(0, len(values), 2)
        values.append(n.add("SUB", values[a], values[b], name=f"v{number}"))
    module = n.module(values[-1], values[-2])
    rules = PartitionFile(("npu", "cpu", "gpu"), "npu", "opname", {f"v{i}": p for i, p in enumerate(places)})
    found = divide(module, rules)
    assert sorted(number for part in found for number in part.operators) == list(range(7))
    known = {f"in{i}": array for i, array in enumerate(n.inputs)}
    for part in found:
        assert {places[number] for number in part.operators} == {part.backend}
        known |= dict(zip(part.outputs, results_of(part.model, [known[name] for name in part.inputs]), strict=True))
    told = recipe(module, found, "m.circle", [str(i) for i in range(len(found))])
    for name in told["source"]["outputs"]:
        np.testing.assert_array_equal(known[name], n.values[name])


def test_other_shapes_of_inputs() -> None:
    n = FloatNet()
    module = n.module(parts.relu(n, parts.conv(n, parts.image(n))))
    made = resize(module, [(2, 7, 6, 3)])
    (found,) = results_of(made, [np.zeros((2, 7, 6, 3), np.float32)])
    assert found.shape == (2, 7, 6, 2)
    for shapes, text in (([], "0 shapes"), ([(2, 3)], "rank 4")):
        with pytest.raises(OptionError, match=text):
            resize(module, shapes)
    with pytest.raises(ModelError, match="channels"):
        resize(module, [(2, 7, 6, 5)])


def _quantised() -> tuple[FloatNet, ModuleOp, ModuleOp]:
    n = FloatNet(2)
    module = n.module(parts.relu(n, parts.dense(n, n.real(4, 3))))
    real = module.clone()
    assign(module, "int8")
    run_pass(module, "convert-circle-to-quant")
    run_pass(module, "quant-insert-requantize")
    return n, real, module


def test_a_rounded_model_is_near_the_quantised_one() -> None:
    net, _, module = _quantised()
    fake = fake_quantize(module)
    (codes,), (rounded,) = results_of(module, net.inputs), results_of(fake, net.inputs)
    step = max(codes.max() / 127, 1e-3)
    assert np.abs(codes - rounded).max() <= step
    assert "FULLY_CONNECTED" in _names(fake)
    with pytest.raises(ModelError, match="quantised"):
        fake_quantize(_chain()[1])


def test_constants_come_with_their_parameters() -> None:
    _, real, module = _quantised()
    before, after = constants(real), constants(module)
    (weights,) = (name for name, array in before.items() if array.shape == (3, 3))
    scales = after[f"{weights}/scale"]
    np.testing.assert_allclose(after[weights] * scales[:, None], before[weights], atol=scales.max())


def test_parameters_are_implanted(tmp_path: Path) -> None:
    n = FloatNet(2)
    x = n.add("NEG", n.real(4, 3), name="neg")
    module = n.module(x)
    for name, array in {"s": np.array([0.5], np.float32), "z": np.array([3], np.int64)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    entry = {"dtype": "int8", "scale": "s.npy", "zerop": "z.npy", "quantized_dimension": 0}
    made = implant(module, {"in0": entry, "neg": entry}, tmp_path)
    (found,) = results_of(made, [np.full((4, 3), 5, np.int8)])
    np.testing.assert_array_equal(found, np.full((4, 3), 1))
    np.save(tmp_path / "s.npy", np.array([0.5, 1.0], np.float32))
    for wrong, text in (
        ({**entry, "dtype": "float32"}, "float32"),
        ({**entry, "scale": "../s.npy"}, "not the name"),
        (entry, "2 scales"),
        ({**entry, "scale": "no.npy"}, "cannot read"),
    ):
        with pytest.raises(OptionError, match=text):
            implant(module, {"neg": wrong}, tmp_path)


@pytest.mark.parametrize(
    ("change", "scale", "zero", "text"),
    [
        *[({}, bad, 0, "is .* in float32, not finite and above 0") for bad in (np.nan, np.inf, 0.0, -1.0, 1e-60)],
        ({}, "half", 0, "not numbers"),
        ({}, 0.5, "none", "not numbers"),
        ({}, 0.5, 128, "the zero point of 'neg' is 128, not a whole number from -128 to 127"),
        ({}, 0.5, 0.5, "is 0.5, not a whole number"),
        ({"quantized_dimension": "0"}, 0.5, 0, "quantized_dimension of 'neg' is '0'"),
        ({"dtype": ["int8"]}, 0.5, 0, "element type"),
        ({"dtype": "bool"}, 0.5, 0, "element type"),
    ],
)
def test_parameters_that_no_tensor_has(
    tmp_path: Path, change: dict[str, object], scale: object, zero: object, text: str
) -> None:
    np.save(tmp_path / "s.npy", np.array([scale]))
    np.save(tmp_path / "z.npy", np.array([zero]))
    entry = {"dtype": "int8", "scale": "s.npy", "zerop": "z.npy", **change}
    with pytest.raises(OptionError, match=text):
        implant(_chain()[1], {"neg": entry}, tmp_path)


def test_an_operator_that_does_not_take_what_is_implanted_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.array([0.5]))
    with pytest.raises(ModelError, match=r"op NEG, tensor 'neg'") as raised:
        implant(_chain()[1], {"neg": {"dtype": "int8", "scale": "s.npy"}}, tmp_path)
    assert len(str(raised.value).splitlines()) == 1
    assert str(raised.value).count("op NEG") == 1


def test_a_constant_gets_its_codes(tmp_path: Path) -> None:
    n = FloatNet(2)
    module = n.module(n.add("ADD", n.real(2), n.weights(2)))
    (name,) = constants(module)
    np.save(tmp_path / "s.npy", np.array([0.5], np.float32))
    np.save(tmp_path / "v.npy", np.array([1, -2], np.int8))
    entry = {"dtype": "int8", "scale": "s.npy", "value": "v.npy"}
    everything = {"in0": {**entry, "value": None}, name: entry, "add1": {**entry, "value": None}}
    made = implant(module, {k: v for k, v in everything.items() if k in ("in0", name) or k.startswith("add")}, tmp_path)
    np.testing.assert_array_equal(constants(made)[name], [1, -2])
    with pytest.raises(OptionError, match="is missing"):
        implant(module, {name: {**entry, "value": None}}, tmp_path)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from odc_mlir.tools.odc_circle import main

    _, module = _chain()
    model, out = str(tmp_path / "m.circle"), tmp_path / "o.circle"
    odc_mlir.optimize(module, level=None).save(model)
    assert main(["operators", model, "--code", "abs", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["number"], row["code"], row["results"][0]["shape"]) == (1, "ABS", [2, 3])
    assert main(["operators", model, "--name", "e*"]) == 0
    assert capsys.readouterr().out.split()[1] == "EXP"
    assert main(["extract", model, "-o", str(out), "--operators", "1-2"]) == 0
    assert main(["resize", str(out), "-o", str(tmp_path / "r.circle"), "--shapes", "[5,6]"]) == 0
    assert main(["operators", str(tmp_path / "r.circle")]) == 0
    assert "float32[5,6]" in capsys.readouterr().out
    (tmp_path / "p.part").write_text("[partition]\nbackends=npu,cpu\ndefault=npu\n[OPCODE]\nEXP=cpu\n")
    assert main(["partition", model, "--part-file", str(tmp_path / "p.part"), "-o", str(tmp_path / "parts")]) == 0
    document = json.loads((tmp_path / "parts" / "m.conn.json").read_text())
    assert all((tmp_path / "parts" / part["file"]).is_file() for part in document["parts"])
    for wrong in (["extract", model, "-o", str(out)], ["extract", model, "-o", str(out), "--operators", "1-9"]):
        assert main(wrong) == 1
    assert main(["resize", model, "-o", str(out), "--shapes", "[0]"]) == 1
    assert capsys.readouterr().err.count("\n") == 3


def test_codes_of_the_other_sign(tmp_path: Path) -> None:
    from odc_mlir.tools.odc_circle import main

    net, _, module = _quantised()
    model, out = str(tmp_path / "m.circle"), str(tmp_path / "o.circle")
    odc_mlir.optimize(module, level=None).save(model)
    assert main(["requantize", model, "-o", out, "--to", "uint8"]) == 0
    np.testing.assert_array_equal(odc_mlir.run(out, net.inputs)[0], odc_mlir.run(model, net.inputs)[0])
    assert main(["fake-quantize", model, "-o", str(tmp_path / "f.circle")]) == 0
    odc_mlir.optimize(_chain()[1], level=None).save(str(tmp_path / "real.circle"))
    for command in (["requantize", "--to", "int8"], ["fake-quantize"]):
        assert main([*command, str(tmp_path / "real.circle"), "-o", str(tmp_path / "g.circle")]) == 1
    assert main(["tensors", model, "-o", str(tmp_path / "t.npz")]) == 0
    with np.load(tmp_path / "t.npz") as archive:
        assert any(name.endswith("/scale") for name in archive.files)
