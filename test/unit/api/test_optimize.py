"""``odc_mlir.optimize`` and ``odc-optimize``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import odc_mlir
from helpers.float_nets import FloatNet
from odc_mlir.errors import OptionError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.optimizer import MOST_TOLERANCE, TOLERANCE, count_operators, difference
from odc_mlir.quantizer.models import prepare
from odc_mlir.support.text import parse_module
from odc_mlir.tools import odc_optimize
from odc_mlir.universe import make_context


def _net() -> tuple[FloatNet, bytes]:
    """A convolution channels first, a batch normalisation behind it."""
    net = FloatNet(5)
    x = net.real(1, 3, 6, 4)
    nhwc = net.add("TRANSPOSE", x, net.const([0, 2, 3, 1], "int32"))
    y = net.add("CONV_2D", nhwc, net.weights(2, 3, 3, 3), net.weights(2), padding="same", stride_w=1, stride_h=1)
    nchw = net.add("TRANSPOSE", y, net.const([0, 3, 1, 2], "int32"))
    scaled = net.add("MUL", nchw, net.weights(1, 2, 1, 1))
    return net, bytes(write_model(export_model(net.module(net.add("ADD", scaled, net.weights(1, 2, 1, 1))))))


def test_o1_keeps_results_and_the_interface() -> None:
    net, model = _net()
    made = odc_mlir.optimize(model, verify=True)
    assert made.before == {"TRANSPOSE": 2, "CONV_2D": 1, "MUL": 1, "ADD": 1}
    assert made.after == {"TRANSPOSE": 2, "CONV_2D": 1}
    assert made.rewrites == {"fuse_mul_with_conv": 1, "fuse_add_with_conv": 1}
    assert made.difference is not None
    assert made.difference.within_tolerance
    (old,), (new,) = odc_mlir.run(model, net.inputs), odc_mlir.run(made.to_circle(), net.inputs)
    np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


def test_images_channels_last() -> None:
    _, model = _net()
    made = odc_mlir.optimize(model, io_layout="nhwc", verify=True)
    assert "TRANSPOSE" not in made.after
    assert made.difference is not None
    assert made.difference.within_tolerance


def test_only_what_is_named_and_only_so_often() -> None:
    _, model = _net()
    made = odc_mlir.optimize(model, level=None, rewrites=["convert_nchw_to_nhwc", "fuse_mul_with_conv"])
    assert made.rewrites == {"fuse_mul_with_conv": 1}
    assert not odc_mlir.optimize(model, max_rewrites=0).rewrites
    assert odc_mlir.optimize(model, without=["fuse_mul_with_conv", "fuse_batchnorm_with_conv"]).after["MUL"] == 1


@pytest.mark.parametrize(
    "options", [{"level": "O9"}, {"rewrites": ["nothing"]}, {"max_rewrites": -1}, {"io_layout": "x"}]
)
def test_wrong_options(options: dict[str, object]) -> None:
    _, model = _net()
    with pytest.raises(OptionError):
        odc_mlir.optimize(model, **options)


def test_a_difference_is_found() -> None:
    def times(factor: float) -> ModuleOp:
        net = FloatNet(5)
        return net.module(net.add("MUL", net.real(2, 3), net.const(factor)))

    before, after = times(2.0), times(2.1)
    assert difference(before, before).within_tolerance
    found = difference(before, after)
    assert not found.within_tolerance
    assert found.relative == pytest.approx(0.05, rel=1e-3)


def test_rounding_of_the_model_itself_is_no_difference() -> None:
    """Sums that cancel lose most digits: the order of the terms changes the rest."""

    def distance(*numbers: float) -> ModuleOp:
        net = FloatNet(5)
        value = net.real(2, 3)
        for number in numbers:
            value = net.add("ADD", value, net.const(np.full((2, 3), number)))
        return net.module(value)

    before, after = distance(5000.1, 0.3, -5000.2), distance(-5000.2, 5000.1, 0.3)
    found = difference(before, after)
    assert TOLERANCE < found.relative <= found.tolerance <= MOST_TOLERANCE
    assert not difference(before, distance(5000.1, 0.31, -5000.2)).within_tolerance


def test_given_inputs_are_compared(tmp_path: Path) -> None:
    def limited(least: float) -> ModuleOp:
        net = FloatNet(5)
        return net.module(net.add("MAXIMUM", net.input(np.ones((1, 4), np.float32)), net.const(least)))

    before, after = limited(-5.0), limited(-6.0)
    np.savez(tmp_path / "x.npz", in_0=np.full((1, 4), -7, np.float32))
    assert difference(before, after).within_tolerance
    found = difference(before, after, load=tmp_path / "x.npz")
    assert (found.samples, found.within_tolerance) == (1, False)
    with pytest.raises(OptionError, match="verify as well"):
        odc_mlir.optimize(before, load=tmp_path / "x.npz")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, model = _net()
    source, target, report = tmp_path / "m.circle", tmp_path / "new" / "m2.circle", tmp_path / "r.json"
    source.write_bytes(model)
    argv = [str(source), "-o", str(target), "--verify", "--json", str(report)]
    assert odc_optimize.main(argv) == 0
    shown = capsys.readouterr().out
    assert "5 operators before, 3 after" in shown
    assert re.search(r"outputs are (equal|apart by at most \S+ of the largest) on 3 inputs", shown)
    assert json.loads(report.read_text())["operators"]["after"] == {"TRANSPOSE": 2, "CONV_2D": 1}
    assert odc_mlir.load(target)


def test_flags_have_both_spellings(tmp_path: Path) -> None:
    _, model = _net()
    (tmp_path / "m.circle").write_bytes(model)
    for flag in ("--fuse_mul_with_conv", "--fuse-mul-with-conv"):
        report = tmp_path / "r.json"
        argv = [str(tmp_path / "m.circle"), "--convert_nchw_to_nhwc", flag, "--json", str(report), "-q"]
        assert odc_optimize.main(argv) == 0
        assert json.loads(report.read_text())["rewrites"] == {"fuse_mul_with_conv": 1}


def test_what_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, model = _net()
    source = tmp_path / "m.circle"
    source.write_bytes(model)
    assert odc_optimize.main([str(source)]) == 2
    assert odc_optimize.main([str(source), "-o", str(source)]) == 1
    assert odc_optimize.main([str(source), "-o", str(tmp_path / "m.txt")]) == 1
    assert source.read_bytes() == model
    assert "Traceback" not in capsys.readouterr().err


def _half_precision() -> bytes:
    """Weights and an image of half-precision numbers behind DEQUANTIZE, the image channels first."""
    net = FloatNet(7)
    x = _transposed(net, net.real(1, 4, 5, 64), 0, 3, 1, 2)
    shift = net.add("DEQUANTIZE", net.const(net.rng.normal(size=(1, 64, 4, 5)), "float16"))
    y = _transposed(net, net.add("ADD", x, shift), 0, 2, 3, 1)
    weights = net.add("DEQUANTIZE", net.const(net.rng.normal(size=(2, 5, 5, 64)), "float16"))
    bias = net.add("DEQUANTIZE", net.const([1.0, 2.0], "float16"))
    end = net.add("CONV_2D", y, weights, bias, padding="same", stride_w=1, stride_h=1)
    return bytes(write_model(export_model(net.module(end))))


def _transposed(net: FloatNet, x: SSAValue, *order: int) -> SSAValue:
    made: SSAValue = net.add("TRANSPOSE", x, net.const(order, "int32"))
    return made


def test_half_precision_weights_are_constants_before_anything_else() -> None:
    model = _half_precision()
    assert odc_mlir.optimize(model, verify=True).after == {"ADD": 1, "CONV_2D": 1}
    assert count_operators(prepare(odc_mlir.load(model)).module) == {"ADD": 1, "CONV_2D": 1}


def test_a_named_rewrite_that_applies_nowhere_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.circle").write_bytes(_net()[1])
    named = ["--fuse-gelu", "--fuse-mul-with-conv", "--convert-nchw-to-nhwc"]
    assert odc_optimize.main([str(tmp_path / "m.circle"), "-o", str(tmp_path / "out.circle"), *named]) == 0
    text = capsys.readouterr().out
    assert "fuse_gelu: applies nowhere" in text
    assert "fuse_mul_with_conv: 1" in text
    assert "fuse_mul_with_conv: applies nowhere" not in text


def _relu(shape: str) -> ModuleOp:
    tensor = f"tensor<{shape}xf32>"
    body = f"%0 = circle.relu(%x) : ({tensor}) -> {tensor} func.return %0 : {tensor}"
    return parse_module(make_context(), f"func.func @main(%x: {tensor}) -> {tensor} {{ {body} }}")


@pytest.mark.parametrize("shape", ["?x3x2", "2x?x?"])
def test_open_dimensions_are_compared(shape: str) -> None:
    made = odc_mlir.optimize(_relu(shape), verify=True)
    assert made.difference is not None
    assert made.difference.within_tolerance


def test_inputs_of_the_comparison_fit_both_models() -> None:
    """A rewrite that fixes open dimensions leaves fewer inputs that both take."""
    made = odc_mlir.optimize(_relu("?x3x8x8"), rewrites=["dynamic_batch_to_single_batch"], verify=True)
    assert made.rewrites["dynamic_batch_to_single_batch"] == 1
    assert made.difference is not None
    assert made.difference.within_tolerance
    assert difference(_relu("?x3x?x5"), _relu("1x4x5x3"), {0}, {0}).within_tolerance  # channels last afterwards


def test_models_that_cannot_be_compared_say_how_to_go_on() -> None:
    """The other input decides what the open dimension has to be."""
    body = "%0 = circle.add(%x, %y) : (tensor<?x3xf32>, tensor<3x3xf32>) -> tensor<?x3xf32>"
    body += " func.return %0 : tensor<?x3xf32>"
    text = f"func.func @main(%x: tensor<?x3xf32>, %y: tensor<3x3xf32>) -> tensor<?x3xf32> {{ {body} }}"
    message = r"cannot be compared on inputs of shapes \(2, 3\), \(3, 3\).*--verify"
    with pytest.raises(OptionError, match=message):
        odc_mlir.optimize(parse_module(make_context(), text), verify=True)
