"""The page of a verdict: what stands at the top, layers by harm, and what leads to what."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from helpers.float_models import squeeze_excite
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.one import COLOURS
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.models import graph_of
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.quantizer.report import MOST_OPEN, Drawing, by_harm, colours, drawing_of, render


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
        page = render({**verdict, "outputs": outputs}, {})
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
    return render(verdict, _plain().statistics, _drawing())


@cache
def _plain() -> Quantized:
    module, samples = squeeze_excite()
    model = export_model(module)
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = None
    return quantize(bytes(write_model(model)), calibration=samples, help=False)


def _drawing() -> Drawing:
    return drawing_of(graph_of(_plain().model), _plain().verdict["layers"])


def test_layers_stand_by_harm_and_lead_to_values_and_weights() -> None:
    page, layers = _plain().report_html(), _plain().verdict["layers"]
    ordered = by_harm(layers)
    harms = [layer["output_sqnr_db"] for layer in ordered if layer["output_sqnr_db"] is not None]
    assert harms == sorted(harms)
    table = page.split("layers of the model")[1].split("</table>")[0]
    assert re.findall(r'href="#(layer-\d+)"><span class="name"[^>]*>(.*?)</span>', table) == [
        (f"layer-{place}", layer["name"]) for place, layer in enumerate(ordered)
    ]
    for place, layer in enumerate(ordered):
        about = page.split(f'id="layer-{place}"')[1].split("</details>")[0]
        assert layer["name"] in about
        assert "values of " + layer["name"] in about
        assert ("weights of " + layer["name"] in about) == (layer["op"] in ("CONV_2D", "FULLY_CONNECTED"))


def test_every_link_leads_somewhere() -> None:
    page = _plain().report_html()
    ids = set(re.findall(r'id="(.*?)"', page))
    links = set(re.findall(r'href="#(.*?)"', page))
    assert links
    assert links <= ids


def test_the_graph_has_the_edges_of_the_model() -> None:
    """Conversions are passed over; the gate of squeeze and excite comes in from the side."""
    drawing = _drawing()
    place = {name: index for index, name in enumerate(drawing.names)}
    assert set(drawing.names) == {layer["name"] for layer in _plain().verdict["layers"]}
    assert drawing.feeding[place["stem"]] == ()
    assert drawing.feeding[place["conv0"]] == (place["stem"],)
    assert place["conv0"] in drawing.feeding[place["se0/mean"]]
    assert all(source < index for index, sources in enumerate(drawing.feeding) for source in sources)


def test_colours_go_from_yellow_to_red_by_decibels() -> None:
    layers = [{"name": name, "output_sqnr_db": db} for name, db in (("a", 60.0), ("b", 20.0), ("c", 40.0), ("d", None))]
    assert colours(layers) == {"a": COLOURS[0], "b": COLOURS[-1], "c": COLOURS[4]}
    assert colours(layers[3:]) == {}


def test_weights_are_counted_as_the_numbers_that_they_stand_for() -> None:
    weights = _drawing().weights["stem"]
    assert weights.counts.sum() == int(weights.text.split()[0].replace(",", ""))
    assert -3 < weights.low < 0 < weights.high < 3
    assert " scales " in weights.text


@pytest.mark.parametrize("count", [MOST_OPEN, MOST_OPEN + 5])
def test_many_layers_are_folded(count: int) -> None:
    verdict = dict(_plain().verdict)
    first = verdict["layers"][0]
    layers = [{**first, "name": f"layer {i}", "output_sqnr_db": 20.0 + i} for i in range(count)]
    names = tuple(str(layer["name"]) for layer in layers)
    drawing = Drawing(names, tuple((i - 1,) if i else () for i in range(count)))
    page = render({**verdict, "layers": layers}, {}, drawing)
    assert ("5 layers that do less" in page) == (count > MOST_OPEN)
    assert (f"the graph of {count} layers" in page) == (count > MOST_OPEN)


def test_names_of_a_model_are_no_markup() -> None:
    verdict = dict(_plain().verdict)
    evil = '<script>"x"</script>'
    layers = [{**verdict["layers"][0], "name": evil}]
    page = render({**verdict, "layers": layers}, {}, replace(_drawing(), names=(evil,), feeding=((),), weights={}))
    assert evil not in page
