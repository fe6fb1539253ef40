"""Parts of the page about the machine: what they show is what the report says."""

from __future__ import annotations

from typing import Any

import pytest

import odc_mlir
from odc_mlir import samples
from odc_mlir.runtime.reporting.report_html import energy, render, rooflines, steps


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return odc_mlir.compile(samples.path("digits_cnn_int8.circle"), target="npu-256").report


def test_every_operator_has_a_dot_where_it_used_something(report: dict[str, Any]) -> None:
    layers = [layer for layer in report["layers"] if layer["macs"] and layer["cycles"]]
    used = sum(layer["amounts"].get(name, 0) > 0 for layer in layers for name in ("sram", "offchip", "requant"))
    assert used > len(layers)
    assert rooflines(report).count("<circle") == used
    conv = next(layer for layer in layers if layer["name"] == "conv2")
    ratios = (
        f"{conv['macs'] / conv['amounts']['requant']:.3g} MACs per result, {conv['macs'] / conv['cycles']:.3g} MACs"
    )
    assert f"CONV_2D conv2: {ratios}" in rooflines(report)
    assert rooflines({"layers": layers}) == ""


def test_the_headline_names_what_binds_and_what_would_help(report: dict[str, Any]) -> None:
    page = render(report)
    change = min(report["what_if"].values(), key=lambda what: what["cycles"])
    for text in (change["text"], f"{report['cycles_total'] / change['cycles']:.2f} times as fast on the NPU"):
        assert f">{text}<" in page
    slow_switch = {**report, "modelled": {**report["modelled"], "switch_ms": 1e3}}
    assert "<strong>starting segments</strong>" in render(slow_switch)
    slow_host = {**report, "modelled": {**report["modelled"], "host_ms": 1e3}}
    layers = [
        {**layer, "placed": "host", "reason": f"element-type: '{layer['name']}' is float32"}
        for layer in report["layers"]
    ]
    page = render({**slow_host, "layers": layers, "host_op_count": len(layers)})
    assert "<strong>operators on the host</strong>" in page
    assert f"<strong>{len(layers)} operators on the NPU</strong>" in page
    assert page.count("they compute float32") == 1, "equal reasons are one group"
    assert f"<code>odc-compile MODEL --target {report['target']} --quantize int8" in page
    assert "no tried change of the machine" in render({**report, "what_if": {}, "causes": {}})


def test_energy_is_listed_by_action(report: dict[str, Any]) -> None:
    found = energy(report["energy"])
    assert found.count("<tr") == 1 + len(report["energy"]["parts_uj"])
    assert f"{report['energy']['estimate_uj']:.3g} µJ" in found
    assert energy({"estimate_uj": 0}) == ""


def _layer(operator: int, op: str, segment: str | None) -> dict[str, Any]:
    return {"operator": operator, "op": op, "name": op, "segment": segment, "host_modelled_ns": 1000}


def test_steps_stand_in_the_order_in_which_they_run() -> None:
    layers = [_layer(0, "CAST", None), _layer(1, "ADD", "s0"), _layer(2, "SIN", None), _layer(3, "MUL", "s0")]
    layers += [_layer(4, "COS", None), _layer(5, "SUB", "s1")]
    sizes = {"inputs": [{"name": "x", "bytes": 3}], "outputs": [{"name": "y", "bytes": 4}], "macs": 0}
    times = {"npu_ns": 5e5, "transfer_ns": 2e5, "switch_ns": 1e4}
    unknown = dict.fromkeys(times)
    partition = {"segments": [{"name": "s0", **sizes, **times}, {"name": "s1", **sizes, **unknown}]}
    found = steps({"layers": layers, "partition": partition})
    assert found.count("0.5 ms NPU + 0.2 ms tensors + 0.01 ms switch") == 1
    assert found.count('gives <span class="name">y</span> (4 bytes)') == 2
    places = [found.index(text) for text in ("CAST", ">s0<", "SIN", "COS", ">s1<")]
    assert places[0] < places[1] < places[4]
    assert places[2] < places[3] < places[4]
    assert found.count('class="device"') == 2
    assert steps({"layers": layers, "partition": {"segments": []}}) == ""
