"""Advice and the page of a verdict."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import squeeze_excite, two_layers
from odc_mlir.errors import AccuracyError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.policy.verdict import Answers, choose_limits, hint_of, leaves_some
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.quantizer.report import by_harm, render
from odc_mlir.quantizer.summary import conclusion
from odc_mlir.quantizer.verdict import distinct
from odc_mlir.tools.odc_quantize import details
from odc_mlir.tools.quantizing import COMMON_FLAGS, in_flags

Samples = list[list[np.ndarray]]


@cache
def model() -> tuple[bytes, Samples]:
    rng = np.random.default_rng(3)
    builder, x, y = two_layers(1, 1.0, rng)
    return bytes(write_model(builder.finish([x], [y]))), [
        [rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(24)
    ]


@cache
def _without_help() -> Quantized:
    file, samples = model()
    return odc_mlir.quantize(file, calibration=samples, help=False)


def _made(**options: Any) -> Quantized:
    """The model quantised, by default without help; its verdict may be changed."""
    file, samples = model()
    if not options:
        return replace(_without_help(), verdict=deepcopy(_without_help().verdict))
    return odc_mlir.quantize(file, calibration=samples, **{"help": False, **options})


@pytest.mark.parametrize(
    ("given", "metric", "said"),
    [
        ({}, "mpeir", "--limit"),
        ({"answering": [Answers("y", "top1_decided", 1)]}, "top1_decided", "--metric top1_decided --limit"),
        ({"answering": [Answers("y", "top1_match", 1)]}, "top1_match", "--metric top1_match --limit"),
        ({"metric": "top1", "limit": 0.9}, "top1_match", "--limit"),
        ({"metric": "sqnr"}, "sqnr_db", "--limit"),
        ({"score": "rmse"}, "drop", "--max-drop"),
        ({"score": "rmse", "is_telling": False}, "mpeir", "--limit"),
        ({"score": "top1_percent"}, "recall_drop", "--max-drop"),
        ({"score": "top1_percent", "has_unscored": True}, "mpeir", "--limit"),
        ({"score": "psnr_db", "max_drop": 0.1}, "drop", "--max-drop"),
        ({"score": "psnr_db", "metric": "mae", "limit": 0.1, "max_drop": 0.1}, "drop", "--max-drop"),
        ({"score": "top1_percent", "metric": "drop", "limit": 0.1}, "drop", "--limit"),
        ({"score": "top1_percent", "metric": "drop", "max_drop": 0.1}, "drop", "--max-drop"),
        ({"score": "top1_percent", "metric": "recall_drop", "limit": 0.1}, "recall_drop", "--limit"),
    ],
)
def test_what_is_to_be_allowed_is_the_option_that_the_limit_came_from(
    given: dict[str, Any], metric: str, said: str
) -> None:
    (limit,) = [limit for limit in choose_limits(**given) if limit.metric == metric]
    check = {"metric": metric, "limit": limit.bound, "option": limit.option, "passed": False, "interval": None}
    check["inherent"] = True
    made = _made()
    verdict = {**made.verdict, "status": "failed", "limits": [check], "front": [], "problems": []}
    assert hint_of(verdict) == f"let help find better choices, or allow more loss ({said})"


def test_limits_of_several_options_name_each_once() -> None:
    limits = choose_limits(score="rmse", is_telling=False, answering=[Answers("y", "top1_match", 1)])
    checks = [{"metric": limit.metric, "limit": limit.bound, "option": limit.option} for limit in limits]
    missed = [check | {"passed": False, "interval": None, "inherent": True} for check in checks]
    hint = hint_of({**_made().verdict, "status": "failed", "limits": missed, "front": [], "problems": []})
    assert hint is not None
    assert hint.endswith("allow more loss (--max-drop, --limit, --metric top1_match --limit)")


def test_a_value_that_misses_its_limit_does_not_look_as_if_it_kept_it() -> None:
    verdict = _made().verdict
    (check,) = verdict["limits"]
    check |= {"metric": "top1_match", "limit": 0.99, "value": 95 / 96, "interval": [0.943, 0.998], "passed": False}
    said = "  top1_match 94.3 % to 99.8 % (95 %), 98.96 % on 24 samples (limit 99.0 %)"
    assert said in details(verdict)
    assert "98.96 % of the answers are the float model's (limit 99.0 %), not kept" in conclusion(verdict)
    assert ">98.96 %<" in render(verdict)


@pytest.mark.parametrize(("precisions", "left"), [((), True), (("a",), True), (("a", "b"), False), (("b",), True)])
def test_no_search_takes_all_from_the_scheme(precisions: tuple[str, ...], left: bool) -> None:
    assert leaves_some(precisions, {"a": "int8", "b": "int8", "c": "float"}, "int8") is left


def _conclusions(made: Quantized) -> list[str]:
    return [text for text in made.verdict["findings"] if text.startswith("no choice of precisions")]


def test_a_whole_search_in_vain_is_told_once_and_asks_for_neither_coverage_nor_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What keeps the limit has no layer in the scheme, which no coverage allows."""
    made = _made(help=True, metric="mae", limit=1e-9, max_seconds=600.0)
    told = "no choice of precisions that leaves layers in int8 meets the limits, others do"
    assert _conclusions(made) == [told]
    assert not caplog.records
    assert "max_seconds" not in made.verdict["choices"]
    hint = hint_of(made.verdict) or ""
    assert "--min-coverage" not in hint
    assert "--max-seconds" not in hint


@pytest.mark.parametrize("budget", [{}, {"max_bytes": 10}])
def test_a_search_that_was_cut_short_concludes_nothing(budget: dict[str, int]) -> None:
    made = _made(help=True, metric="mae", limit=1e-9, max_seconds=0.0, **budget)
    assert made.failed
    assert made.verdict["choices"]["max_seconds"] == 0.0
    assert not _conclusions(made)
    hint = hint_of(made.verdict) or ""
    assert "raise --max-seconds" in hint
    assert "allow more" not in hint


@pytest.mark.parametrize(
    ("scheme", "precisions", "share", "said"),
    [
        (
            "int4_wo",
            ("float", "int8_wo"),
            0.8,
            "int8_wo and float layers keep the limits in about 99 bytes; --scheme int8_wo ",
        ),
        (
            "int8",
            ("float", "int16x8"),
            0.3,
            "int16x8 and float layers keep the limits in about 99 bytes; --scheme int16x8 --min-coverage 0.3 (in "
            "Python min_coverage) looks for such",
        ),
        ("int8", ("int16x8", "int16x8"), 1.0, "--scheme int16x8 keeps the limits in about 99 bytes"),
        (
            "int8",
            ("int16x8", "int16"),
            1.0,
            "int16x8 and int16 layers keep the limits in about 99 bytes; --scheme int16 has",
        ),
        ("int8", ("int16x8",), 0.3, "--min-coverage 0.3 (in Python min_coverage) lets 1 layer have other precisions"),
        ("uint8", ("int16",), 0.0, "allow more loss"),  # for which the reader has no kernel
        ("int8", ("float", "float"), 0.0, "allow more loss"),
    ],
)
def test_what_keeps_the_limits_is_advised(scheme: str, precisions: tuple[str, ...], share: float, said: str) -> None:
    point = {"layers": len(precisions), "bytes": 99, "time_ns": None, "share": share, "holds": True}
    point["precisions"] = dict(zip("ab", precisions, strict=False))
    check = {"metric": "mpeir", "limit": 0.1, "option": "limit", "passed": False, "interval": None}
    check["inherent"] = True
    verdict: dict[str, Any] = {**_made().verdict, "limits": [check], "problems": [], "front": [point]}
    verdict |= {"scheme": dict.fromkeys("ab", scheme), "coverage": {"least": 0.5}}
    verdict["choices"] = {"scheme": scheme, "help": True}
    hint = hint_of(verdict)
    assert hint is not None
    assert hint.startswith(said)
    better = {**point, "precisions": dict.fromkeys("ab", "int16"), "share": 1.0}
    if said == "allow more loss":
        assert hint_of({**verdict, "front": [point, better]}) == "--scheme int16 keeps the limits in about 99 bytes"


def _missed(**changes: Any) -> dict[str, Any]:
    """A verdict that misses a limit, which it would keep on samples that it knows, with these ``changes``."""
    check = {"metric": "mpeir", "limit": 0.1, "option": "limit", "passed": False, "interval": None}
    check["inherent"] = changes.pop("inherent", False)
    verdict: dict[str, Any] = {**_made().verdict, "limits": [check], "problems": [], "front": []}
    verdict |= {"scheme": {"a": "int8"}, "coverage": {"least": 0.5}, "choices": {"scheme": "int8", "help": True}}
    return verdict | changes


def test_more_samples_do_not_hide_other_precisions() -> None:
    point = {"layers": 1, "bytes": 99, "time_ns": None, "share": 1.0, "holds": True, "precisions": {"a": "int16x8"}}
    samples = "give more samples, as on those that ranges were chosen by the limit holds"
    assert hint_of(_missed()) == samples
    assert hint_of(_missed(front=[point])) == f"{samples}, or --scheme int16x8 keeps the limits in about 99 bytes"


@pytest.mark.parametrize(
    ("budget", "flag"),
    [({"bytes": 99}, "--max-size (in Python max_bytes)"), ({"time_ns": 99.0}, "--max-time (in Python max_time_ms)")],
)
def test_a_model_that_keeps_its_budget_and_misses_limits_asks_for_a_larger_one(
    budget: dict[str, float], flag: str
) -> None:
    for tight, said in ((True, f"raise {flag}, or "), (False, "")):
        coverage = {"least": 0.5, "budget": {**budget, "holds": False, "tight": tight}}
        assert hint_of(_missed(coverage=coverage, inherent=True)) == f"{said}allow more loss (--limit)"


@pytest.mark.parametrize(("most", "beyond"), [(98, ", which is beyond the budget"), (99, ""), (None, "")])
def test_advice_knows_the_budget(most: int | None, beyond: str) -> None:
    point = {"layers": 1, "bytes": 99, "time_ns": None, "share": 1.0, "holds": True, "precisions": {"a": "int16x8"}}
    choices = {"scheme": "int8", "help": True, "max_bytes": most}
    hint = hint_of(_missed(choices=choices, front=[point], inherent=True))
    assert hint == f"--scheme int16x8 keeps the limits in about 99 bytes{beyond}"


def test_made_up_inputs_that_miss_a_limit_ask_for_samples() -> None:
    hint = hint_of(_missed(samples={"made_up": True}, inherent=True))
    assert hint is not None
    assert hint.startswith("give samples (--calibration or --evaluation), as made-up inputs tell little, or allow more")


def test_wide_weights_are_found_without_a_target_too() -> None:
    """Where values of 16 bits beside weights of 8 miss a limit."""
    hint = hint_of(_made(help=True, metric="sqnr", limit=65.0).verdict)
    assert hint is not None
    assert hint.startswith("--scheme int16 keeps the limits in about ")


def test_codes_of_16_bits_are_found_where_fewer_miss_a_limit() -> None:
    hint = hint_of(_made(scheme="int4_wo", help=True, metric="sqnr", limit=60.0, mixed="auto").verdict)
    assert hint is not None
    assert hint.startswith("--scheme int16_wo keeps the limits in about ")


@pytest.mark.parametrize("reader", [None, "litert"])
def test_weights_alone_get_16_bits_where_the_reader_has_kernels(reader: str | None) -> None:
    made = _made(scheme="int8_wo", help=True, metric="sqnr", limit=45.0, reader=reader)
    found = {step for point in made.verdict["front"] for step in point["precisions"].values()}
    assert "float" in found
    assert ("int16_wo" in found) == (reader is None)


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("allow more loss (--max-drop)", "allow more loss (--max-drop)"),
        ("allow more loss (--limit)", "allow more loss (--limit); these are options of odc-quantize"),
    ],
)
def test_a_command_without_an_option_says_whose_it_is(hint: str, said: str) -> None:
    with pytest.raises(AccuracyError) as raised, in_flags(COMMON_FLAGS):
        raise AccuracyError("failed", hint=hint)
    assert raised.value.hint == said
    with pytest.raises(AccuracyError) as raised, in_flags():
        raise AccuracyError("failed", hint=hint)
    assert raised.value.hint == hint


@pytest.mark.parametrize(("chosen", "kept"), [(0, [0, 2]), (1, [1, 2])])
def test_no_two_points_of_the_front_say_the_same(chosen: int, kept: list[int]) -> None:
    """Precisions that make no difference; the chosen one stays."""
    point = {"time_ns": None, "bytes": 99, "runs": None, "share": 1.0, "holds": False}
    points = [
        {**point, "search": {"sqnr_db": sqnr}, "layers": layers, "chosen": layers == chosen}
        for layers, sqnr in enumerate((31.01, 31.02, 35.0))
    ]
    assert [item["layers"] for item in distinct(points)] == kept


def _figures(page: str) -> dict[str, tuple[str, str]]:
    found = re.findall(
        r'<span class="label">(.*?)</span><strong[^>]*>(.*?)</strong><span class="note">(.*?)</span>', page
    )
    return {label: (value, note) for label, value, note in found}


def test_the_top_says_what_counts() -> None:
    page, verdict = _scored(), _verdict_with_scores()
    figures = _figures(page)
    (check,) = [item for item in verdict["limits"] if item["metric"] == "mpeir"]
    low, high = check["interval"]
    assert figures["mpeir"] == (f"{low:.4g} to {high:.4g}", f"95 %; measured {check['value']:.4g}; limit 0.1")
    low, high = verdict["intervals"]["sqnr_db"]
    value = verdict["metrics"]["sqnr_db"]
    assert low <= value <= high
    assert figures["SQNR"] == (f"{low:.1f} dB to {high:.1f} dB", f"95 %; measured {value:.1f} dB; of the worst output")
    assert figures["right answers"][0] == "90.0 % → 80.0 %"
    assert figures["right answers"][1] == "float → quantised; 95 %: 70.0 % to 95.0 % → 60.0 % to 90.0 %"
    assert figures["samples"][0] == str(verdict["samples"]["checked_on"])
    assert "<h2>Scores</h2>" in page
    assert "<h1>a model quantised to int8</h1>" in page


def test_what_was_not_checked_is_called_so() -> None:
    module, _ = squeeze_excite()
    page = quantize(module, scheme="int8_wo").report_html()
    figures = _figures(page)
    assert figures["verdict"] == ("not checked", "limits hold on made-up inputs only")
    assert figures["samples"] == ("none", "checked on 8 made-up inputs")
    assert "not checked: no samples were given; limits hold on made-up inputs only; give samples: " in page
    assert "passed" not in page.split("<h2>")[0].split("<h1>")[1]


def test_the_largest_of_several_quantities_is_no_answer() -> None:
    """Of outputs that are no classes the page has no agreement, of others beside them it has."""
    verdict, box = _plain().verdict, {"name": "box", "top1_match": 0.875, "top5_match": 0.5, "classifies": False}
    (output,) = verdict["outputs"]
    assert output["classifies"]
    both = [output, {**output, **box}]
    for outputs, told in ((both, True), (both[1:], False)):
        page = render({**verdict, "outputs": outputs})
        (section,) = (part for part in page.split("<h2>") if part.startswith("Outputs</h2>"))
        assert ("top1_match" in section) is told
        assert "87.5 %" not in section
        assert "50.0 %" not in section


@cache
def _verdict_with_scores() -> dict[str, Any]:
    verdict = dict(_plain().verdict)
    spans = {"float": [70.0, 95.0], "quantized": [60.0, 90.0]}
    verdict["scores"] = {"metric": "top1_percent", "float": 90.0, "quantized": 80.0, "intervals": spans}
    return verdict


@cache
def _scored() -> str:
    verdict = _verdict_with_scores()
    return render(verdict)


@cache
def _plain() -> Quantized:
    module, samples = squeeze_excite()
    model = export_model(module)
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = None
    return quantize(bytes(write_model(model)), calibration=samples, help=False)


def test_layers_stand_by_harm() -> None:
    page, layers = _plain().report_html(), _plain().verdict["layers"]
    ordered = by_harm(layers)
    harms = [layer["output_sqnr_db"] for layer in ordered if layer["output_sqnr_db"] is not None]
    assert harms == sorted(harms)
    table = page.split("layers of the model")[1].split("</table>")[0]
    assert re.findall(r'<td><span class="name"[^>]*>(.*?)</span>', table) == [layer["name"] for layer in ordered]


def test_every_link_leads_somewhere() -> None:
    page = _plain().report_html()
    ids = set(re.findall(r'id="(.*?)"', page))
    links = set(re.findall(r'href="#(.*?)"', page))
    assert links
    assert links <= ids


def test_names_of_a_model_are_no_markup() -> None:
    verdict = dict(_plain().verdict)
    evil = '<script>"x"</script>'
    layers = [{**verdict["layers"][0], "name": evil}]
    page = render({**verdict, "layers": layers})
    assert evil not in page
