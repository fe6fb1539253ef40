"""What ``odc-lint`` finds, and what it leaves alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from xdsl.ir import SSAValue

import odc_mlir
from helpers import rewrite_parts as parts
from helpers.float_nets import FloatNet, assign, run_pass
from odc_mlir.errors import OdcError
from odc_mlir.support.text import parse_module
from odc_mlir.tools.odc_lint import main
from odc_mlir.universe import make_context

Make = Callable[[FloatNet], SSAValue]


def _kinds(make: Make) -> set[str]:
    net = FloatNet(1)
    return {item.kind for item in odc_mlir.lint(net.module(make(net)))}


def _masked(number: float) -> Make:
    def make(n: FloatNet) -> SSAValue:
        mask = n.const([[0.0, number], [0.0, 0.0]])
        made: SSAValue = n.add("SOFTMAX", n.add("ADD", n.real(2, 2), mask), beta=1.0)
        return made

    return make


def _dead(channel: float, dtype: str = "float32") -> Make:
    def make(n: FloatNet) -> SSAValue:
        weights = n.const([[1.0, 2.0], [0.0, channel]], dtype)
        weights = weights if dtype == "float32" else n.add("DEQUANTIZE", weights)
        made: SSAValue = n.add("FULLY_CONNECTED", n.real(1, 2), weights, n.weights(2))
        return made

    return make


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda n: parts.conv(n, parts.image(n)), set()),
        (lambda n: n.add("MUL", parts.conv(n, parts.image(n)), n.weights(2)), {"batch-norm"}),
        (lambda n: n.add("MUL", parts.conv(n, parts.image(n), activation="relu"), n.weights(2)), set()),
        (lambda n: n.add("TANH", parts.transpose(n, n.real(2, 3), 1, 0)), {"transposes"}),
        (_masked(-3.0e38), {"mask"}),
        (_masked(-3.0), set()),
        (_dead(0.0), {"dead-channels"}),
        (_dead(0.1), set()),
        (_dead(0.0, "float16"), {"dead-channels", "packed-weights"}),
        (_dead(float("inf")), {"not-finite"}),
        (lambda n: n.add("CUMSUM", n.real(2, 3), n.const(1, "int32")), {"no-target"}),
    ],
)
def test_float_models(make: Make, expected: set[str]) -> None:
    assert _kinds(make) == expected


def _quantised(tail: bool, granularity: str = "channel") -> set[str]:
    net = FloatNet(1)
    x = parts.relu(net, parts.depthwise(net, parts.image(net)))
    module = net.module(x if not tail else net.add("CUMSUM", x, net.const(1, "int32")))
    assign(module, "int8", granularity=granularity)
    run_pass(module, "convert-circle-to-quant")
    run_pass(module, "quant-insert-requantize")
    return {item.kind for item in odc_mlir.lint(module)}


def test_tables_need_no_remedy_and_what_nothing_runs_is_named() -> None:
    first, other = (f"tensor<1x4x!quant.uniform<i8:f32, {scale}>>" for scale in (0.5, 0.25))
    both = first.replace("1x4", "2x4")
    module = parse_module(
        make_context(),
        f"""func.func @main(%x: {first} loc("x"), %y: {other} loc("y")) -> ({both}, {first}) {{
          %0 = circle.concatenation(%x, %y) {{axis = 0}} : ({first}, {other}) -> {both} loc("joined")
          %zero = circle.const [0] : {first.replace("1x4", "1x1")}
          %1 = circle.greater(%x, %zero) : ({first}, {first.replace("1x4", "1x1")}) -> tensor<1x4xi1> loc("truths")
          %2 = circle.select_v2(%1, %x, %zero) : (tensor<1x4xi1>, {first}, {first.replace("1x4", "1x1")}) -> {first}
          func.return %0, %2 : {both}, {first}
        }}""",
    )
    assert [(item.kind, item.tensors) for item in odc_mlir.lint(module)] == [("cannot-run", ("joined",))]


def test_quantised_models() -> None:
    assert _quantised(False) == {"float-interface"}
    assert "unquantised" in _quantised(True)
    assert "per-tensor-depthwise" in _quantised(False, "tensor")


@pytest.mark.parametrize(("zero", "expected"), [(100, {"weight-zero-points"}), (0, set())])
def test_weights_with_zero_points(zero: int, expected: set[str]) -> None:
    image = "tensor<1x2x!quant.uniform<u8:f32, 0.5>>"
    weights = f"tensor<2x2x!quant.uniform<u8:f32:0, {{0.5:0, 0.5:{zero}}}>>"
    text = f"""func.func @main(%x: {image}) -> {image} {{
  %w = circle.const #circle.blob<"0x00ff00ff"> : {weights}
  %b = circle.none
  %0 = circle.fully_connected(%x, %w, %b) : ({image}, {weights}, none) -> {image}
  func.return %0 : {image}
}}"""
    module = parse_module(make_context(), text)
    assert {item.kind for item in odc_mlir.lint(module)} == expected
    assert not odc_mlir.lint(module, target="cpu")


@pytest.mark.parametrize(("bias", "expected"), [(2**31 - 1, {"saturated-bias"}), (2**31 - 2, set())])
def test_a_bias_at_its_limit(bias: int, expected: set[str]) -> None:
    image, weights = "tensor<1x2x!quant.uniform<i8:f32, 0.5>>", "tensor<1x2x!quant.uniform<i8:f32, 0.5>>"
    result = "tensor<1x1x!quant.uniform<i8:f32, 0.5>>"
    text = f"""func.func @main(%x: {image}) -> {result} {{
  %w = circle.const [1, 2] : {weights}
  %b = circle.const [{bias}] : tensor<1x!quant.uniform<i32:f32, 0.25>>
  %0 = circle.fully_connected(%x, %w, %b) : ({image}, {weights}, tensor<1x!quant.uniform<i32:f32, 0.25>>) -> {result}
  func.return %0 : {result}
}}"""
    assert {item.kind for item in odc_mlir.lint(parse_module(make_context(), text))} == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [("?x8", ["open-batch"]), ("1x?", ["open-shape", "no-target"]), ("?x?", ["open-batch", "open-shape", "no-target"])],
)
def test_open_dimensions(shape: str, expected: list[str]) -> None:
    """Operators are judged with the compiler's batch size, and the model keeps its open batch."""
    tensor = f"tensor<{shape}x!quant.uniform<i8:f32, 0.5>>"
    body = f"%0 = circle.relu(%x) : ({tensor}) -> {tensor} func.return %0 : {tensor}"
    module = parse_module(make_context(), f"func.func @main(%x: {tensor}) -> {tensor} {{ {body} }}")
    before = str(module)
    assert [item.kind for item in odc_mlir.lint(module)] == expected
    assert str(module) == before


@pytest.mark.parametrize(
    ("make", "target", "expected"),
    [
        (_masked(-3.0e38), "cpu", set()),
        (_masked(-3.0e38), "npu-256", {"mask", "float-model"}),
        (lambda n: n.add("CUMSUM", n.real(2, 3), n.const(1, "int32")), "npu-256", {"no-target", "float-model"}),
        (lambda n: n.add("UNIQUE", n.real(6), count=2, dtypes=["float32", "int32"])[1], "cpu", {"no-target"}),
    ],
)
def test_one_target(make: Make, target: str, expected: set[str]) -> None:
    net = FloatNet(1)
    assert {item.kind for item in odc_mlir.lint(net.module(make(net)), target=target)} == expected


def test_transposes_that_nothing_saves_are_said_to_be_needed() -> None:
    net = FloatNet(1)
    (found,) = odc_mlir.lint(net.module(net.add("TANH", parts.transpose(net, net.real(2, 3), 1, 0))))
    assert found.remedy.startswith("the computation needs them")
    net = FloatNet(1)
    turned = parts.conv(net, parts.transpose(net, net.real(1, 3, 4, 5), 0, 2, 3, 1))
    (found,) = odc_mlir.lint(net.module(turned))
    assert found.remedy == "odc-optimize --io-layout nhwc leaves 0"


def test_an_unknown_target_is_refused() -> None:
    net = FloatNet()
    with pytest.raises(OdcError, match="npu-7"):
        odc_mlir.lint(net.module(net.add("RELU", net.real(2))), target="npu-7")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = FloatNet(1)
    odc_mlir.optimize(net.module(_dead(0.0)(net)), level=None).save(tmp_path / "m.circle")
    model, report = str(tmp_path / "m.circle"), tmp_path / "report.json"
    assert main([model, "--json", str(report)]) == 0
    told = capsys.readouterr().out
    assert "dead-channels" in told
    assert "remedy:" in told
    assert told.endswith("1 finding\n")
    (finding,) = json.loads(report.read_text())["findings"]
    assert finding["kind"] == "dead-channels"
    assert main([model, "--fail", "-q"]) == 1
    assert main([model, "--fail", "-q", "--ignore", "dead-channels"]) == 0
    assert finding["tensors"]
    shown = odc_mlir.lint(model)._repr_html_()
    assert shown.startswith("<p>1 finding</p><ul><li>dead-channels: ")
    assert finding["tensors"][0] in shown
