"""Advice and the page of a verdict."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import odc_mlir
from helpers.float_models import regressor, squeeze_excite, without_ranges
from odc_mlir.errors import AccuracyError
from odc_mlir.quantizer.policy.verdict import Answers, choose_limits, hint_of
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.quantizer.report import by_harm, render
from odc_mlir.quantizer.summary import conclusion, next_step, summary
from odc_mlir.tools.odc_quantize import details
from odc_mlir.tools.quantizing import COMMON_FLAGS, in_flags


@cache
def _without_help() -> Quantized:
    file, samples = regressor()
    return odc_mlir.quantize(file, calibration=samples, help=False)


def _made(**options: Any) -> Quantized:
    """The model quantised, by default without help; its verdict may be changed."""
    if not options:
        return replace(_without_help(), verdict=deepcopy(_without_help().verdict))
    file, samples = regressor()
    return odc_mlir.quantize(file, calibration=samples, **{"help": False, **options})


def _missed(*limits: Any, **changes: Any) -> dict[str, Any]:
    """A verdict that misses ``limits``, by default mpeir, with these ``changes``.

    ``inherent``: it would miss it on samples that it knows as well.
    """
    check = {"passed": False, "interval": None, "inherent": changes.pop("inherent", True)}
    given = [(limit.metric, limit.bound, limit.option) for limit in limits] or [("mpeir", 0.1, "limit")]
    checks = [check | dict(zip(("metric", "limit", "option"), item, strict=True)) for item in given]
    verdict = {**_made().verdict, "status": "failed", "limits": checks, "problems": [], "front": []}
    verdict |= {"scheme": {"a": "int8"}, "coverage": {"least": 0.5}, "choices": {"scheme": "int8", "help": True}}
    return verdict | changes


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
        # Several options are named once each.
        (
            {"score": "rmse", "is_telling": False, "answering": [Answers("y", "top1_match", 1)]},
            "",
            "--max-drop, --limit, --metric top1_match --limit",
        ),
    ],
)
def test_the_option_that_a_limit_came_from_is_to_be_allowed(given: dict, metric: str, said: str) -> None:
    limits = [limit for limit in choose_limits(**given) if metric in ("", limit.metric)]
    hint = hint_of(_missed(*limits, choices=_made().verdict["choices"]))
    assert hint == f"allow help, which searches for better parameters, or allow more loss ({said})"


def test_a_value_that_misses_its_limit_does_not_look_as_if_it_kept_it() -> None:
    verdict = _made().verdict
    (check,) = verdict["limits"]
    check |= {"metric": "top1_match", "limit": 0.99, "value": 95 / 96, "interval": [0.943, 0.998], "passed": False}
    said = "  same answers 94.3 % to 99.8 % (95 %), 98.96 % on 24 samples (limit 99.0 %)"
    assert said in details(verdict)
    assert "98.96 % of the answers are the float model's (limit 99.0 %), not kept" in conclusion(verdict)
    assert "measured 98.96 %; limit 99.0 %, missed<" in render(verdict)
    check |= {"value": None, "passed": True}  # equal outputs have no SQNR
    assert conclusion(verdict).endswith("same answers: outputs are equal")


def test_help_that_gains_nothing_on_these_samples_is_explained() -> None:
    verdict = _made().verdict
    for after, headroom, why in ((25.3, 0.0, "; chance"), (25.3, 0.1, "; ranges have room"), (30.0, 0.1, "")):
        verdict["help"], verdict["choices"]["headroom"] = {"sqnr_db": [25.8, after]}, headroom
        (line,) = (line for line in summary("m", verdict) if "help over plain" in line)
        assert re.fullmatch(rf"  help over plain .*: SQNR 25.8 dB -> {after} dB{why}.*", line)
        assert (";" in line) == bool(why)


def test_an_unchecked_model_is_to_be_checked_before_it_is_compiled() -> None:
    samples: dict[str, Any] = {}
    for status, made_up, start in (
        ("passed", False, ""),
        ("unchecked", True, "give samples "),
        ("unchecked", False, "give seq"),
        ("passed", False, "give more"),
    ):
        samples["made_up"] = made_up
        limits = [{"certain": start != "give more"}]
        step = next_step({"status": status, "samples": samples, "limits": limits}, "compile")
        assert step.startswith(start or "compile")
        assert step.endswith("compile")


def test_a_problem_other_than_limits_is_the_status_with_its_remedy() -> None:
    file, samples = regressor(4)
    made = odc_mlir.quantize(file, calibration=samples, scheme="int16", reader="litert", help=False)
    said = "nothing is quantised to int16; LiteRT has no kernel for weights of int16: write a .circle file"
    assert [line for line in str(made).splitlines() if "FAILED" in line] == [f"  FAILED: {said}"]


@pytest.mark.parametrize(
    ("holds", "found_db", "why"),
    [
        (False, 30.0, "misses the limits (30.0 dB, 2 ms modelled)"),
        (True, 7.4, "is below 25 dB (7.4 dB, 2 ms modelled; --mixed off keeps it)"),
        (True, 30.0, "has little margin (30.0 dB, 2 ms modelled; --mixed off keeps it)"),
    ],
)
def test_more_bits_in_some_layers_have_a_reason(holds: bool, found_db: float, why: str) -> None:
    verdict, cost = _made().verdict, {"time_ns": 2e6, "modelled": True}
    plain = cost | {"layers": 0, "chosen": False, "holds": holds, "search": {"sqnr_db": found_db}}
    front = [plain, plain | {"layers": 3, "chosen": True}]
    text = f"  more bits in 3 layers, because int8 alone {why}"
    assert text in summary("m", verdict | {"front": front})
    assert text not in summary("m", verdict | {"front": [plain | {"chosen": True}]})
    budget = {"choices": verdict["choices"] | {"max_time_ms": 3.0}}
    assert text not in summary("m", verdict | budget | {"front": front})


@pytest.mark.parametrize("options", [{}, {"max_seconds": 0.0}, {"max_seconds": 0.0, "max_bytes": 10}])
def test_a_whole_search_in_vain_is_told_once_and_one_that_was_cut_short_concludes_nothing(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """What keeps the limit has no layer in the scheme, which no coverage allows and no time finds."""
    made = _made(help=True, metric="mae", limit=1e-9, **{"max_seconds": 600.0, **options})
    assert made.failed
    conclusions = [text for text in made.verdict["findings"] if text.startswith("no choice of precisions")]
    hint = hint_of(made.verdict) or ""
    if options:
        assert made.verdict["choices"]["max_seconds"] == 0.0
        assert not conclusions
        assert "raise --max-seconds" in hint
        assert "allow more" not in hint
    else:
        assert conclusions == ["no choice of precisions that is allowed meets the limits"]
        assert not caplog.records
        assert "max_seconds" not in made.verdict["choices"]
        assert "--min-coverage" not in hint
        assert "--max-seconds" not in hint


SAMPLES = "give more samples, because the limit is met on the calibration samples"
WIDER = "try more bits in all layers (--scheme int16x8)"
SIZE, TIME = "--max-size (in Python max_bytes)", "--max-time (in Python max_time_ms)"


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        # More samples do not hide other precisions.
        ({"inherent": False}, SAMPLES),
        ({"inherent": False, "front": [{}]}, f"{SAMPLES}, or {WIDER}"),
        ({"front": [{}]}, f"{WIDER}, or allow more loss (--limit)"),
        # A model that keeps its budget and misses limits asks for a larger one.
        *(
            (
                {"coverage": {"least": 0.5, "budget": {**budget, "holds": False, "tight": tight}}},
                f"raise {flag}, or allow more loss (--limit)" if tight else "allow more loss (--limit)",
            )
            for budget, flag in (({"bytes": 99}, SIZE), ({"time_ns": 99.0}, TIME))
            for tight in (True, False)
        ),
        (
            {"samples": {"made_up": True}},
            "give samples (--calibration or --evaluation), because made-up inputs show little, or allow more loss "
            "(--limit)",
        ),
    ],
)
def test_advice_follows_from_what_is_known(changes: dict[str, Any], hint: str) -> None:
    assert hint_of(_missed(**changes)) == hint


@pytest.mark.parametrize(("flag", "more"), [("--max-drop", ""), ("--limit", "; these are options of odc-quantize")])
def test_a_command_without_an_option_says_whose_it_is(flag: str, more: str) -> None:
    hint = f"allow more loss ({flag})"
    for flags, said in ((in_flags(COMMON_FLAGS), hint + more), (in_flags(), hint)):
        with pytest.raises(AccuracyError) as raised, flags:
            raise AccuracyError("failed", hint=hint)
        assert raised.value.hint == said


def _figures(page: str) -> dict[str, tuple[str, str]]:
    figure = r'<span class="label">(.*?)</span><strong[^>]*>(.*?)</strong><span class="note">(.*?)</span>'
    return {label: (value, note) for label, value, note in re.findall(figure, page)}


@cache
def _plain() -> Quantized:
    file, samples = without_ranges(squeeze_excite)
    return quantize(file, calibration=samples, help=False)


def test_the_top_says_what_counts() -> None:
    verdict, spans = dict(_plain().verdict), {"float": [70.0, 95.0], "quantized": [60.0, 90.0]}
    verdict["scores"] = {"metric": "top1_percent", "float": 90.0, "quantized": 80.0, "intervals": spans}
    page = render(verdict)
    figures = _figures(page)
    (check,) = [item for item in verdict["limits"] if item["metric"] == "mpeir"]
    low, high = check["interval"]
    assert figures["mpeir"] == (f"{low:.4g} to {high:.4g}", f"95 %; measured {check['value']:.4g}; limit 0.1")
    low, high = verdict["intervals"]["sqnr_db"]
    value = verdict["metrics"]["sqnr_db"]
    assert low <= value <= high
    assert figures["SQNR"] == (f"{low:.1f} dB to {high:.1f} dB", f"95 %; measured {value:.1f} dB; of the worst output")
    right = "float → quantised; 95 %: 70.0 % to 95.0 % → 60.0 % to 90.0 %"
    assert figures["right answers"] == ("90.0 % → 80.0 %", right)
    assert figures["samples"][0] == str(verdict["samples"]["checked_on"])
    assert "<h2>Scores</h2>" in page
    assert "<h1>a model quantised to int8</h1>" in page


def test_what_was_not_checked_is_called_so() -> None:
    page = quantize(squeeze_excite()[0], scheme="int8_wo").report_html()
    figures = _figures(page)
    assert figures["verdict"] == ("not checked", "limits hold, but not as in use")
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
        assert ("same answers" in section, "87.5 %" in section, "50.0 %" in section) == (told, False, False)


def test_layers_stand_by_harm_every_link_leads_somewhere_and_names_are_no_markup() -> None:
    page, verdict = _plain().report_html(), _plain().verdict
    ordered = by_harm(verdict["layers"])
    harms = [layer["output_sqnr_db"] for layer in ordered if layer["output_sqnr_db"] is not None]
    assert harms == sorted(harms)
    table = page.split("layers of the model")[1].split("</table>")[0]
    assert re.findall(r'<td><span class="name"[^>]*>(.*?)</span>', table) == [layer["name"] for layer in ordered]
    ids, links = set(re.findall(r'id="(.*?)"', page)), set(re.findall(r'href="#(.*?)"', page))
    assert links
    assert links <= ids
    evil = '<script>"x"</script>'
    assert evil not in render({**verdict, "layers": [{**verdict["layers"][0], "name": evil}]})
