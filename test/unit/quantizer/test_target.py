"""Targets: placement, coverage, times, and layers."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import MODELS, dense_layers, normal, only, recurrent, rescaled_mobilenet, squeeze_excite
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder, Samples, dense_model
from odc_mlir import loading
from odc_mlir.errors import AccuracyError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer import report, target
from odc_mlir.quantizer.execution import float_names
from odc_mlir.quantizer.help import OF_VALUES, OF_WEIGHTS
from odc_mlir.quantizer.layers import Examination, leaked
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.models import prepare
from odc_mlir.quantizer.policy.verdict import cost_text
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.quantizer.target import TargetRules
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.tools.odc_quantize import _front

TARGET = "npu-256"


def made_of(make: Any, count: int | None = None, **options: Any) -> Quantized:
    module, samples = make()
    return quantize(module, calibration=samples[:count], **options)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        *(pytest.param(name, "int8", marks=[pytest.mark.slow] * (name == "attention")) for name in MODELS),
        ("squeeze_excite", "uint8"),
    ],
)
def test_no_layer_gets_a_type_that_the_target_refuses(name: str, scheme: str) -> None:
    module, samples = MODELS[name]()
    options: dict[str, Any] = {"scheme": scheme, "calibration": samples[:16], "target": TARGET}
    plain = odc_mlir.quantize(module, help=False, **options)
    pressed = odc_mlir.quantize(module, metric="mae", limit=0.0, **only("mixed"), **options)
    rules = TargetRules(TARGET)
    possible, runs = (rules.judge(made.model).taken() for made in (plain, pressed))
    assert len(possible) == len(runs)
    assert [a and not b for a, b in zip(possible, runs, strict=True)] == [False] * len(runs)
    assert pressed.verdict["coverage"]["target"]["runs_of_possible"] in (None, 1.0)


def test_layers_get_more_bits_on_the_target_and_what_only_the_host_does_better_is_told() -> None:
    told, done = (
        made_of(squeeze_excite, target=TARGET, metric="sqnr", limit=limit, **only("mixed")) for limit in (95.0, 50.0)
    )
    front = told.verdict["front"]
    assert [point["layers"] for point in front] == sorted(point["layers"] for point in front)
    assert (front[0]["precisions"], front[0]["chosen"], len(front) > 2) == ({}, True, True)
    assert all(point["time_ns"] > 0 for point in front)
    assert front[-1]["search"]["sqnr_db"] > front[0]["search"]["sqnr_db"]
    assert front[-1]["time_ns"] > front[0]["time_ns"]
    with pytest.raises(AccuracyError, match="the quantised model failed"):
        told.require_passed()
    assert done.passed
    precisions = done.verdict["choices"]["precisions"]
    assert (precisions["probs"], "float" in precisions.values()) == ("int16x8", False)
    assert done.verdict["coverage"]["target"]["runs_of_possible"] == 1.0
    assert [point["chosen"] for point in done.verdict["front"]].count(True) == 1


def test_another_scheme_is_advised_if_no_layer_may_stay_in_it() -> None:
    rng = np.random.default_rng(0)
    model = dense_model(rng.normal(size=(16, 16)), rng.normal(size=(16, 16)))
    options: dict[str, Any] = {"calibration": normal(rng, 40, 1, 16), "target": TARGET, "metric": "sqnr", "limit": 40.0}
    made = quantize(model, **options)
    assert not made.passed
    assert not any(point["holds"] for point in made.verdict["front"])
    text = "no choice of precisions that is allowed meets the limits"
    assert [found for found in made.verdict["findings"] if found.startswith("no choice")] == [text]
    with pytest.raises(AccuracyError, match=r"try more bits in all layers \(--scheme int16x8\)"):
        made.require_passed()
    assert quantize(model, scheme="int16x8", **options).passed


def test_weights_get_more_bits_on_the_target_where_they_lose_most() -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(6, 16)).astype(np.float32)
    weights[:, 0] = 200.0  # of an input that is nothing
    samples = normal(rng, 16, 1, 16)
    for (x,) in samples:
        x[0, 0] = 0.0
    even = weights[:, ::-1].copy()
    even[:, -1] = 1.0
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 16))
    file = builder.file([x], [builder.dense("y", x, weights), builder.dense("z", x, even)])
    made = quantize(file, target=TARGET, calibration=samples, metric="mpeir", limit=0.06, rounding="off")
    assert made.passed
    assert made.verdict["choices"]["precisions"] == {"y": "int16"}
    assert made.verdict["scheme"] == {"y": "int16", "z": "int8"}
    assert sorted(made.verdict["coverage"]["precisions"]) == ["int16", "int8"]
    assert made.verdict["coverage"]["target"]["runs"] == 1.0


def test_a_budget_gives_the_most_accurate_model_within_it() -> None:
    module, samples = dense_layers()
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
    assert "bytes; the limit is" in sized[0].verdict["problems"][0]
    assert len(sized[1].to_circle()) <= 1.2 * size
    assert sized[1].verdict["metrics"]["sqnr_db"] > plain.verdict["metrics"]["sqnr_db"]
    both = odc_mlir.quantize(module, target=TARGET, max_bytes=round(1.2 * size), **options)
    assert both.passed
    assert len(both.to_circle()) <= 1.2 * size


def _chosen(made: Quantized) -> dict[str, Any]:
    return next(point for point in made.verdict["front"] if point["chosen"])


def test_bytes_of_a_budget_are_those_of_the_file_that_is_written() -> None:
    """Factors of channels, by which tools compare tensors, take no bytes of a budget."""
    size = len(made_of(rescaled_mobilenet, help=False).to_circle())
    full = made_of(rescaled_mobilenet, help=False, equalize="weights")
    assert "odc.channel_factors" in [entry.data["name"].data for entry in full.model.attributes["circle.metadata"]]
    made = made_of(rescaled_mobilenet, help=False, equalize="weights", max_bytes=size + 64)
    assert made.passed, made.verdict["problems"]
    assert len(made.to_circle()) == _chosen(made)["bytes"] <= size + 64
    assert not made.verdict["choices"]["precisions"]
    assert "circle.metadata" not in made.model.attributes


def test_a_budget_is_kept_without_samples() -> None:
    module, _ = squeeze_excite()
    sizes = [len(quantize(module, scheme=f"{name}_wo", limit=1.0).to_circle()) for name in ("int4", "int8")]
    budget = sum(sizes) // 2
    made = quantize(module, scheme="int8_wo", limit=1.0, max_bytes=budget)
    assert made.verdict["status"] == "unchecked"
    assert sizes[0] < len(made.to_circle()) == _chosen(made)["bytes"] <= budget
    assert [text for text in made.verdict["findings"] if text.startswith("made-up inputs decided which layers")]


@pytest.mark.parametrize(("target", "scale"), [(None, 1 / 255), (TARGET, 1 / 256)])
def test_fixed_scales_are_those_that_the_target_wants(target: str | None, scale: float) -> None:
    made = made_of(squeeze_excite, scheme="uint8", help=False, io="quantized", target=target)
    info = build_graph(export_model(made.model)).output_infos()[0]
    assert info.quant.scale == pytest.approx(scale, rel=1e-6)
    found = made.verdict["coverage"].get("target")
    assert found is None or found["runs"] == 1.0


def test_codes_of_16_bits_run_on_the_target_also_of_a_channel_of_next_to_no_weight() -> None:
    """Its bias in units of its sums would be beyond the 32 bits that the target adds."""
    made = made_of(squeeze_excite, scheme="int16x8", help=False, target=TARGET)
    assert made.passed
    assert made.verdict["coverage"]["target"]["runs"] == 1.0
    rng = np.random.default_rng(0)
    weights, bias = rng.normal(size=(4, 8)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    weights[2] *= 1e-9
    samples = normal(rng, 8, 1, 8)
    file = dense_model(weights, biases=(bias,))
    made = quantize(file, scheme="int16x8", calibration=samples, help=False, target=TARGET)
    assert made.verdict["coverage"]["target"]["runs"] == 1.0
    (got,) = odc_mlir.run(made.to_circle(), samples[0])
    np.testing.assert_allclose(got, samples[0][0] @ weights.T + bias, atol=0.05)


def test_a_mask_that_hides_nothing_any_more_does_not_pass() -> None:
    graphs, shape = [], (1, 4, 4)
    for hidden in (-1e9, 0.0):
        builder = ModelBuilder()
        x, mask = builder.tensor("x", shape), builder.constant("mask", np.triu(np.full((4, 4), hidden), 1))
        z = builder.made("z", shape, "SOFTMAX", builder.made("y", shape, "ADD", x, mask), beta=1.0)
        graphs.append(build_graph(builder.finish([x], [z])))
    samples = normal(np.random.default_rng(0), 3, *shape)
    assert leaked(graphs[0], graphs[0], samples) == {"z": 0.0}
    assert leaked(graphs[0], graphs[1], samples)["z"] > 0.2
    assert leaked(graphs[1], graphs[1], samples) == {}


def _exponential(function: str = "EXP", size: float = 0.125) -> tuple[bytes, Samples]:
    rng, builder = np.random.default_rng(0), ModelBuilder()
    x = builder.tensor("x", (1, 16))
    y = builder.dense("y", x, rng.normal(size=(16, 16)) * size)
    return builder.file([x], [builder.made("z", (1, 16), function, y)]), normal(rng, 24, 1, 16)


def _packaged_ms(made: Quantized) -> float:
    return odc_mlir.compile(made.model, target=TARGET).modelled.latency_ms


def test_with_a_budget_the_time_of_a_verdict_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    model, samples = _exponential()
    options: dict[str, Any] = {"calibration": samples, "target": TARGET, "help": False}
    made = quantize(model, max_time_ms=9.0, **options)
    found = made.verdict["coverage"]["target"]
    assert found["modelled"]
    assert found["time_ns"] / 1e6 == pytest.approx(_packaged_ms(made))
    cards = dict(re.findall(r'"label">([^<]*)</span><strong>([^<]*)<', made.report_html()))
    assert re.fullmatch(r"[\d.]+ ms → [\d.]+ ms", cards["time"])
    assert cards["bytes of the file"] == " → ".join(f"{size:,}" for size in made.verdict["bytes"])
    assert not quantize(model, **options).verdict["coverage"]["target"]["modelled"]
    monkeypatch.setattr(target, "_MOST_COMPILED_MACS", 1)  # large models are only estimated and say so
    estimated = quantize(model, max_time_ms=9.0, **options)
    assert not estimated.verdict["coverage"]["target"]["modelled"]
    assert "on npu-256 (estimated)" in str(estimated)


@pytest.mark.parametrize("larger", [1.2, pytest.param(1.02, marks=pytest.mark.soak)])
def test_a_budget_holds_of_the_package_whatever_was_estimated(monkeypatch: pytest.MonkeyPatch, larger: float) -> None:
    """Estimates are wrong both ways: twice as large, and half."""
    budget = larger * _packaged_ms(made_of(dense_layers, 16, help=False))
    estimated, found = TargetRules._time_ns, []
    for factor in (0.5, 2.0):
        monkeypatch.setattr(TargetRules, "_time_ns", lambda *a, factor=factor: factor * estimated(*a))
        made = made_of(dense_layers, 16, max_time_ms=budget, metric="sqnr", target=TARGET, **only("mixed"))
        assert not [text for text in made.verdict["problems"] if "an inference takes" in text]
        assert _packaged_ms(made) <= budget
        found.append(made.verdict["metrics"]["sqnr_db"])
    assert found[0] == pytest.approx(found[1], abs=3.0)


def test_a_loop_counts_with_all_its_trips() -> None:
    """Three products of 4 by 4 in a loop on the host, one beside it on the target."""
    builder, shape = ModelBuilder(), (1, 4)
    x, z, last = builder.tensor("x", shape), builder.tensor("z", shape), builder.tensor("last", (), "int32")
    operands = [builder.dense("y", x, np.eye(4)), builder.constant("first", 0, "int32")]
    builder.operator("WHILE", operands, [z, last], options={"cond_subgraph_index": 1, "body_subgraph_index": 2})
    builder.finish([x], [z])
    for name in ("condition", "body"):
        builder.begin(name)
        x, i = builder.tensor("x", shape), builder.tensor("i", (), "int32")
        of = builder.constant("of", 3 if name == "condition" else 1, "int32")
        if name == "condition":
            results = [builder.made("more", (), "LESS", i, of, dtype="bool")]
        else:
            results = [builder.dense("y", x, np.eye(4)), builder.made("after", (), "ADD", i, of, dtype="int32")]
        builder.finish([x, i], results)
    rules, module = TargetRules(TARGET), loading.copied(bytes(write_model(builder.model)))
    placed = rules.judge(module, plan=True)
    assert [(layer.op, layer.macs) for layer in placed.layers] == [("FULLY_CONNECTED", 16), ("WHILE", 48)]
    (_, loop) = rules.priced(module).layers
    assert loop.ns > 3 * 16
    assert rules.judge(module).share() in (0.0, 0.25)


def test_what_the_target_leaves_to_the_host_is_told_with_the_reason() -> None:
    model, samples = _exponential("SIN", 1e3)  # waves of a few codes, which no table gives
    made = quantize(model, calibration=samples, target=TARGET, scheme="int16x8", help=False)
    coverage = made.verdict["coverage"]
    (left,) = coverage["target"]["on_host"]
    assert (left["op"], left["name"], left["reason"].split(":")[0]) == ("SIN", "z", "table")
    said = []
    for count in (1, 5, 0):
        coverage["target"]["on_host"] = [left] * count
        said.append("".join(line for line in str(made).splitlines() if "on the host" in line))
    assert said[0] == f"  on the host: SIN 'z' ({left['reason']})"
    coverage["target"]["on_host"], made.verdict["float_reasons"] = [left], {"z": "LiteRT has no kernel"}
    assert "  on the host: SIN 'z' (LiteRT has no kernel); a .circle file has no limits of LiteRT" in str(made)
    assert said[1].count("SIN 'z'") == 3
    assert said[1].endswith(", and 2 more")
    assert not said[2]


def test_costs_and_their_picture_say_how_each_is_known() -> None:
    assert cost_text({"time_ns": 93_700.0, "modelled": True}) == "0.0937 ms modelled"
    assert cost_text({"time_ns": 93_704.0, "modelled": False}) == "0.093704 ms estimated"
    assert cost_text({"time_ns": None, "bytes": 1234}) == "1,234 bytes"
    point = {"layers": 1, "bytes": 9, "runs": 1.0, "search": {"sqnr_db": 30.0}, "holds": True, "confirmed": True}
    points = [
        point | {"time_ns": 2e6, "modelled": True, "chosen": True},
        point | {"time_ns": 1e6, "modelled": False, "chosen": False},
    ]
    chart = str(report._front(points))
    assert "1 other layers, modelled, chosen: 2, 30" in chart
    assert "1 other layers, estimated: 1, 30" in chart
    assert "1 other layers, chosen: 9, 30" in str(report._front([one | {"time_ns": None} for one in points]))


def test_each_point_of_the_front_is_a_line() -> None:
    point = {"layers": 2, "bytes": 9000, "time_ns": None, "runs": None, "share": 0.5, "search": {"sqnr_db": 30.0}}
    point |= {"holds": False, "confirmed": False, "chosen": False}
    best = point | {"layers": 1, "runs": 0.75, "search": {"sqnr_db": None}, "holds": True, "chosen": True}
    assert list(_front([], 0.9)) == []
    assert list(_front([point, best, best | {"confirmed": True}], 0.9)) == [
        "  accuracy by cost, with layers in other precisions:",
        "    2 other layers: 9,000 bytes, 50.0 % of the products quantised, too few, SQNR in the search 30.0 dB",
        "    1 other layer: 9,000 bytes, 75.0 % of the products, keeps the limits in the search, chosen",
        "    1 other layer: 9,000 bytes, 75.0 % of the products, keeps the limits, chosen",
    ]
    assert "quantised" not in list(_front([point], 0.4))[1]


@cache
def pixels() -> tuple[bytes, Samples]:
    """Two layers behind pixels that are hardly ever lit.

    In units of their standard deviations these reach so far that one step of a product of 4-bit weights is more than
    one of its sum, for which LiteRT has no FULLY_CONNECTED.
    """
    rng, lit = np.random.default_rng(0), np.geomspace(0.004, 0.6, 64)
    weights = rng.normal(size=(64, 64)) / 8, rng.normal(size=(1, 64)) / 8
    samples = [[((rng.random((1, 64)) < lit) * rng.random((1, 64))).astype(np.float32)] for _ in range(64)]
    return dense_model(*weights, names=("hidden", "y"), activations=("relu", "none")), samples


def quantised(**options: Any) -> Quantized:
    file, samples = pixels()
    return quantize(file, calibration=samples, scheme="int8x4", mixed="off", headroom=0.0, **options)


def test_a_normalisation_out_of_the_readers_reach_is_not_kept_unless_it_is_asked_for() -> None:
    """It is measured as better, because most products stay float."""
    made = quantised(reader="litert")
    assert (made.verdict["coverage"]["share"], made.verdict["choices"]["normalize"]) == (1.0, "off")
    better = [step for step in made.verdict["steps"] if step["step"].startswith("normalize") and step["value"]]
    assert better
    assert not any(step["kept"] for step in better)
    made = quantised(reader="litert", normalize="on", equalize="none")
    assert made.verdict["coverage"]["share"] < 0.5
    assert made.verdict["float_reasons"]["hidden"] == "LiteRT has no kernel for scales like these"


def test_a_step_that_gives_enough_products_codes_is_kept_whatever_it_loses() -> None:
    """Without it the model could not pass: what is real for lack of a kernel is no accuracy to keep."""
    made = quantised(reader="litert", normalize="on")
    assert made.passed
    assert made.verdict["coverage"]["share"] > 0.5
    (step,) = (step for step in made.verdict["steps"] if (step["step"], step["value"]) == ("equalize", "weights"))
    assert step["kept"]
    assert step["quality_db"] < made.verdict["steps"][0]["quality_db"]


def test_rows_have_names_of_their_own() -> None:
    for rows in (OF_VALUES, OF_WEIGHTS):
        assert len({row.name for row in rows}) == len(rows)


def _choices(count: int, **options: Any) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    file = dense_model(rng.normal(size=(16, 16)))
    return quantize(file, calibration=normal(rng, count, 1, 16), **options).verdict["choices"]


@pytest.mark.parametrize("count", [8, 17, 64])
def test_weights_alone_are_refined_though_held_out_samples_leave_the_gain_in_doubt(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Measurement, "better_than", lambda *_: False)
    choices = _choices(count, scheme="int8_wo")
    assert (choices["rounding"], choices["correction"]) == (True, True)


@pytest.mark.parametrize(
    ("scheme", "correction", "rounds"),
    [("int8", "on", True), ("int8", "off", True), ("int16x8", "on", False), ("int16x8", "off", True)],
)
def test_rounding_is_presumed(scheme: str, correction: str, rounds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Measurement, "better_than", lambda *_: False)
    assert _choices(17, scheme=scheme, correction=correction, mixed="off")["rounding"] is rounds


def test_every_operator_is_a_layer_and_conversions_are_none() -> None:
    module, samples = squeeze_excite()
    real, quantised = prepare(module).graph, build_graph(export_model(made_of(squeeze_excite, help=False).model))
    found = {layer["name"]: layer for layer in Examination(real, samples[:4]).layers(quantised)}
    assert list(found) == [node.node.name for node in real.nodes]
    assert len(found) == len(quantised.nodes) - 2
    assert all(layer["scheme"] == "int8" for layer in found.values())
    probs = found["probs"]  # the effect of the last operator is its own error
    assert probs["output_sqnr_db"] == pytest.approx(probs["isolated"]["sqnr_db"])
    work = Examination(real, samples[:1]).work()  # counts products and values
    assert (work["stem"], work["probs"]) == (8 * 8 * 16 * 9 * 4 + 8 * 8 * 16, 6)
    names = float_names(quantised, {info.name: index for index, info in enumerate(real.tensors)})
    softmax = next(node for node in quantised.nodes if node.node.spec.name == "SOFTMAX")
    assert quantised.tensors[softmax.outputs[0]].name == "probs_quantized"
    assert names[softmax.outputs[0]] == "probs"


@pytest.mark.parametrize(("count", "samples"), [(40, 4), (600, 1)])
def test_many_layers_are_examined_on_fewer_samples(count: int, samples: int) -> None:
    builder = ModelBuilder()
    x = value = builder.tensor("x", (1, 4))
    for number in range(count):
        value = builder.made(f"y{number}", (1, 4), "ABS", value)
    given = normal(np.random.default_rng(1), 4, 1, 4)
    assert Examination(build_graph(builder.finish([x], [value])), given).samples == samples


def test_recurrent_layers_are_examined_with_their_first_state() -> None:
    real, quantised = prepare(recurrent()[0]).graph, build_graph(export_model(made_of(recurrent, help=False).model))
    found = {layer["name"]: layer for layer in Examination(real, recurrent()[1][:4]).layers(quantised)}
    assert found["lstm"]["scheme"] == "int8"
    assert found["lstm"]["isolated"]["sqnr_db"] > 25


@pytest.mark.parametrize("target", [None, TARGET])
def test_root_mean_squares_in_pieces_are_one_operator_of_the_target(target: str | None) -> None:
    net = FloatNet(0)
    x = net.real(1, 6, 16)
    square = net.add("MEAN", net.add("MUL", x, x), net.const([2], "int32"), keep_dims=True)
    root = net.add("RSQRT", net.add("ADD", square, net.const([1e-5])))
    module = net.module(net.add("MUL", net.add("MUL", x, root), net.weights(16)))
    rng = np.random.default_rng(0)
    samples = normal(rng, 8, 1, 6, 16)
    made = odc_mlir.quantize(module, calibration=samples, help=False, mixed="off", target=target)
    found = {layer["op"]: layer["scheme"] for layer in made.verdict["layers"]}
    assert found.get("RMS_NORM") == (None if target is None else "int8")
    assert ("RSQRT" in found) == (target is None)
    if target is not None:
        assert made.passed
        assert made.verdict["coverage"]["target"]["runs"] == 1.0
