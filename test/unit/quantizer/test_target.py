"""The target's say: what it runs keeps a type that it takes, and what that costs or brings is told."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import MODELS, rescaled_mobilenet, squeeze_excite
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder
from odc_mlir.errors import AccuracyError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.layers import leaked
from odc_mlir.quantizer.quantize import Quantized
from odc_mlir.quantizer.target import TargetRules
from odc_mlir.runtime.execution.graph import build_graph

TARGET = "npu-256"


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        *(pytest.param(name, "int8", marks=[pytest.mark.slow] * (name == "attention")) for name in MODELS),
        ("squeeze_excite", "uint8"),
    ],
)
def test_no_layer_gets_a_type_that_the_target_refuses(name: str, scheme: str) -> None:
    """Whatever accuracy asks for: with a limit that nothing keeps, all that can be tried is."""
    module, samples = MODELS[name]()
    options: dict[str, Any] = {"scheme": scheme, "calibration": samples, "target": TARGET}
    plain = odc_mlir.quantize(module, help=False, **options)
    pressed = odc_mlir.quantize(module, metric="mae", limit=0.0, ranges="minmax", equalize="none", **options)
    rules = TargetRules(TARGET)
    possible, runs = (rules.judge(made.model).taken() for made in (plain, pressed))
    assert len(possible) == len(runs)
    assert [a and not b for a, b in zip(possible, runs, strict=True)] == [False] * len(runs)
    assert pressed.verdict["coverage"]["target"]["runs_of_possible"] in (None, 1.0)


def test_what_the_host_could_do_better_is_told_and_done_when_asked() -> None:
    module, samples = squeeze_excite()
    options: dict[str, Any] = {"calibration": samples, "target": TARGET, "metric": "sqnr", "rounding": "off"}
    options |= {"ranges": "minmax", "equalize": "none", "correction": "off"}
    told = odc_mlir.quantize(module, limit=95.0, **options)
    assert not told.passed
    front = told.verdict["front"]
    assert [point["layers"] for point in front] == sorted(point["layers"] for point in front)
    assert front[0]["precisions"] == {}
    assert front[0]["chosen"]
    assert len(front) > 2
    assert all(point["time_ns"] > 0 for point in front)
    assert front[-1]["search"]["sqnr_db"] > front[0]["search"]["sqnr_db"]
    assert front[-1]["time_ns"] > front[0]["time_ns"]
    with pytest.raises(AccuracyError, match="the quantised model failed"):
        told.require_passed()


def _two_layers() -> tuple[bytes, list[list[np.ndarray]]]:
    rng, builder = np.random.default_rng(0), ModelBuilder()
    x, y, z = (builder.tensor(name, (1, 16)) for name in "xyz")
    for name, operand, result in (("w", x, y), ("v", y, z)):
        values = rng.normal(size=(16, 16)).astype(np.float32)
        builder.operator("FULLY_CONNECTED", [operand, builder.tensor(name, (16, 16), data=values), -1], [result])
    return write_model(builder.finish([x], [z])), [[rng.normal(size=(1, 16)).astype(np.float32)] for _ in range(40)]


@pytest.mark.parametrize("given", [{}, {"min_coverage": 1.0}])
@pytest.mark.parametrize(("limit", "advised"), [(40.0, "int16x8"), (70.0, "int16")])
def test_advice_and_front_agree_and_nothing_that_was_given_is_advised(
    limit: float, advised: str, given: dict[str, Any]
) -> None:
    """Where the limits hold of models without a layer in the scheme, another scheme is what helps."""
    model, samples = _two_layers()
    options: dict[str, Any] = {"calibration": samples, "target": TARGET, "metric": "sqnr", "limit": limit, **given}
    made = odc_mlir.quantize(model, **options)
    assert not made.passed
    holding = [point for point in made.verdict["front"] if point["holds"]]
    assert holding
    assert all(point["confirmed"] and point["share"] == 1.0 and not point["chosen"] for point in holding)
    text = "no choice of precisions that leaves layers in int8 meets the limits, others do"
    assert [found for found in made.verdict["findings"] if found.startswith("no choice")] == [text]
    with pytest.raises(AccuracyError) as error:
        made.require_passed()
    assert "min-coverage" not in str(error.value)
    assert re.search(rf"--scheme {advised}\b", str(error.value))
    assert odc_mlir.quantize(model, scheme=advised, **options).passed


def test_layers_get_more_bits_on_the_target_where_limits_hold_in_no_other_way() -> None:
    module, samples = squeeze_excite()
    options: dict[str, Any] = {"calibration": samples, "target": TARGET, "metric": "sqnr", "rounding": "off"}
    options |= {"ranges": "minmax", "equalize": "none", "correction": "off", "limit": 50.0}
    done = odc_mlir.quantize(module, **options)
    assert done.passed
    assert done.verdict["choices"]["precisions"] == {"probs": "int16x8"}
    assert done.verdict["coverage"]["target"]["runs_of_possible"] == 1.0
    assert [point["chosen"] for point in done.verdict["front"]].count(True) == 1


def test_weights_get_more_bits_on_the_target_where_they_lose_most() -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(6, 16)).astype(np.float32)
    weights[:, 0] = 200.0  # of an input that is nothing
    samples = [[rng.normal(size=(1, 16)).astype(np.float32)] for _ in range(16)]
    for sample in samples:
        sample[0][0, 0] = 0.0
    builder = ModelBuilder()
    x, y, z = (builder.tensor(name, (1, size)) for name, size in (("x", 16), ("y", 6), ("z", 6)))
    even = weights[:, ::-1].copy()
    even[:, -1] = 1.0
    for name, values, result in (("w", weights, y), ("v", even, z)):
        builder.operator("FULLY_CONNECTED", [x, builder.tensor(name, values.shape, data=values), -1], [result])
    options: dict[str, Any] = {"calibration": samples, "metric": "mpeir", "limit": 0.06, "rounding": "off"}
    made = odc_mlir.quantize(write_model(builder.finish([x], [y, z])), target=TARGET, **options)
    assert made.passed
    assert made.verdict["choices"]["precisions"] == {"y": "int16"}
    assert made.verdict["scheme"] == {"y": "int16", "z": "int8"}
    assert sorted(made.verdict["coverage"]["precisions"]) == ["int16", "int8"]
    assert made.verdict["coverage"]["target"]["runs"] == 1.0


def test_a_budget_gives_the_most_accurate_model_within_it() -> None:
    module, samples = squeeze_excite()
    options: dict[str, Any] = {"calibration": samples, "help": False, "min_coverage": 0.0}
    plain = odc_mlir.quantize(module, target=TARGET, **options)
    least_ms = plain.verdict["coverage"]["target"]["time_ns"] / 1e6
    timed = [odc_mlir.quantize(module, target=TARGET, max_time_ms=f * least_ms, **options) for f in (0.5, 1.0, 4.0)]
    assert [made.passed for made in timed] == [False, True, True]
    assert "an inference takes" in timed[0].verdict["problems"][0]
    times = [made.verdict["coverage"]["target"]["time_ns"] / 1e6 for made in timed]
    assert all(ms <= f * least_ms for ms, f in zip(times[1:], (1.0, 4.0), strict=True))
    quality = [made.verdict["metrics"]["sqnr_db"] for made in timed]
    assert quality[1] < quality[2]
    size, options = len(plain.to_circle()), options | {"min_coverage": 0.5}
    sized = [odc_mlir.quantize(module, max_bytes=round(f * size), **options) for f in (0.5, 1.2)]
    assert [made.passed for made in sized] == [False, True]
    assert "bytes, at most" in sized[0].verdict["problems"][0]
    assert len(sized[1].to_circle()) <= 1.2 * size
    assert sized[1].verdict["metrics"]["sqnr_db"] > plain.verdict["metrics"]["sqnr_db"]
    both = odc_mlir.quantize(module, target=TARGET, max_bytes=round(1.2 * size), **options)
    assert both.passed
    assert len(both.to_circle()) <= 1.2 * size


def _chosen(made: Quantized) -> dict[str, Any]:
    """The point of the front that was chosen."""
    return next(point for point in made.verdict["front"] if point["chosen"])


def test_bytes_of_a_budget_are_those_of_the_file_that_is_written() -> None:
    """Factors of channels, which tools compare tensors by, are left out before layers get fewer bits."""
    module, samples = rescaled_mobilenet()
    options: dict[str, Any] = {"calibration": samples, "help": False}
    size = len(odc_mlir.quantize(module, **options).to_circle())
    full, made = (odc_mlir.quantize(module, equalize="weights", max_bytes=n, **options) for n in (1 << 30, size + 64))
    assert len(full.to_circle()) == _chosen(full)["bytes"]
    names = [entry.data["name"].data for entry in full.model.attributes["circle.metadata"]]
    assert "odc.channel_factors" in names
    assert made.passed, made.verdict["problems"]
    assert len(made.to_circle()) == _chosen(made)["bytes"] <= size + 64
    assert not made.verdict["choices"]["precisions"]
    assert [text for text in made.verdict["findings"] if text.startswith("the budget leaves no room for factors")]


def test_a_budget_is_kept_without_samples() -> None:
    module, _ = squeeze_excite()
    sizes = [len(odc_mlir.quantize(module, scheme=f"{name}_wo", limit=1.0).to_circle()) for name in ("int4", "int8")]
    budget = sum(sizes) // 2
    made = odc_mlir.quantize(module, scheme="int8_wo", limit=1.0, max_bytes=budget)
    assert made.verdict["status"] == "unchecked"
    assert sizes[0] < len(made.to_circle()) == _chosen(made)["bytes"] <= budget
    assert [text for text in made.verdict["findings"] if text.startswith("made-up inputs say which layers")]


def test_the_front_has_what_became_of_the_model_that_was_chosen() -> None:
    module, samples = squeeze_excite()
    options: dict[str, Any] = {"metric": "sqnr", "limit": 40.0, "mixed": "on", "max_bytes": 1 << 20}
    made = odc_mlir.quantize(module, calibration=samples[:24], rounding="off", **options)
    assert [step["kept"] for step in made.verdict["steps"] if step["step"] == "mixed, correction"] == [True]
    assert _chosen(made)["bytes"] == len(made.to_circle())


@pytest.mark.parametrize(("target", "scale"), [(None, 1 / 255), (TARGET, 1 / 256)])
def test_fixed_scales_are_those_that_the_target_wants(target: str | None, scale: float) -> None:
    module, samples = squeeze_excite()
    made = odc_mlir.quantize(module, scheme="uint8", calibration=samples, help=False, io="quantized", target=target)
    info = build_graph(export_model(made.model)).output_infos()[0]
    assert info.quant is not None
    assert info.quant.scale == pytest.approx(scale, rel=1e-6)
    found = made.verdict["coverage"].get("target")
    assert found is None or found["runs"] == 1.0


def test_codes_of_16_bits_run_on_the_target() -> None:
    module, samples = squeeze_excite()
    made = odc_mlir.quantize(module, scheme="int16x8", calibration=samples, help=False, target=TARGET)
    assert made.passed
    assert made.verdict["coverage"]["target"]["runs"] == 1.0


def test_a_channel_of_next_to_no_weight_keeps_no_layer_from_16_bits() -> None:
    """Its bias in units of its sums would be beyond the 32 bits that the target adds."""
    rng = np.random.default_rng(0)
    weights, bias = rng.normal(size=(4, 8)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    weights[2] *= 1e-9
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(8)]
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 4))
    builder.operator(
        "FULLY_CONNECTED", [x, *(builder.tensor(n, v.shape, data=v) for n, v in (("w", weights), ("b", bias)))], [y]
    )
    data = write_model(builder.finish([x], [y]))
    made = odc_mlir.quantize(data, scheme="int16x8", calibration=samples, help=False, target=TARGET)
    assert made.verdict["coverage"]["target"]["runs"] == 1.0
    (got,) = odc_mlir.run(made.to_circle(), samples[0])
    np.testing.assert_allclose(got, samples[0][0] @ weights.T + bias, atol=0.05)


def test_a_mask_that_hides_nothing_any_more_does_not_pass() -> None:
    rng = np.random.default_rng(0)
    graphs = []
    for hidden in (-1e9, 0.0):
        builder = ModelBuilder()
        mask = np.triu(np.full((4, 4), hidden, np.float32), 1)
        x, y, z = (builder.tensor(name, (1, 4, 4)) for name in "xyz")
        builder.operator("ADD", [x, builder.tensor("mask", (4, 4), data=mask)], [y])
        builder.operator("SOFTMAX", [y], [z], options={"beta": 1.0})
        graphs.append(build_graph(builder.finish([x], [z])))
    samples = [[rng.normal(size=(1, 4, 4)).astype(np.float32)] for _ in range(3)]
    assert leaked(graphs[0], graphs[0], samples) == {"z": 0.0}
    assert leaked(graphs[0], graphs[1], samples)["z"] > 0.2
    assert leaked(graphs[1], graphs[1], samples) == {}


@pytest.mark.parametrize("target", [None, TARGET])
def test_root_mean_squares_in_pieces_are_one_operator_of_the_target(target: str | None) -> None:
    """Other readers may know TFLite's operators only."""
    net = FloatNet(0)
    x = net.real(1, 6, 16)
    square = net.add("MEAN", net.add("MUL", x, x), net.const([2], "int32"), keep_dims=True)
    root = net.add("RSQRT", net.add("ADD", square, net.const([1e-5])))
    module = net.module(net.add("MUL", net.add("MUL", x, root), net.weights(16)))
    rng = np.random.default_rng(0)
    samples = [[rng.normal(size=(1, 6, 16)).astype(np.float32)] for _ in range(8)]
    made = odc_mlir.quantize(module, calibration=samples, help=False, mixed="off", target=target)
    found = {layer["op"]: layer["scheme"] for layer in made.verdict["layers"]}
    assert found.get("RMS_NORM") == (None if target is None else "int8")
    assert ("RSQRT" in found) == (target is None)
    if target is not None:
        assert made.passed
        assert made.verdict["coverage"]["target"]["runs"] == 1.0
