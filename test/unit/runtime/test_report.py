"""The report adds up, keeps its keys, and its lower bound is one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, add_model, host_plan, model_bytes
from odc_mlir.formats.package import build_package
from odc_mlir.ops import get
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.ops.work import node_macs
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.report import build_report
from odc_mlir.runtime.report_html import render

# Users' scripts read these.
STABLE_KEYS = frozenset(
    {
        "schema_version",
        "model",
        "target",
        "memory",
        "prefer",
        "quantize",
        "clock_hz",
        "cycles_total",
        "cycles_total_strict",
        "latency_ms",
        "macs",
        "mac_utilization",
        "ideal_cycles",
        "sram_peak_bytes",
        "local_peak_bytes",
        "offchip_read_bytes",
        "offchip_write_bytes",
        "sram_read_bytes",
        "sram_write_bytes",
        "weights_raw_bytes",
        "weights_encoded_bytes",
        "program_bytes",
        "binary_bytes",
        "npu_op_count",
        "host_op_count",
        "segment_count",
        "host_seconds",
        "compile_seconds",
        "compile_peak_rss_bytes",
        "layers",
        "engines",
    }
)
STABLE_LAYER_KEYS = frozenset({"name", "op", "placed", "reason", "segment", "macs", "cycles"})


@pytest.fixture(scope="module")
def package() -> Package:
    """A 1x1 convolution for the NPU and a float part for the host."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4, 4, 8), "int8", quant=(0.5, 0))
    w = builder.tensor("w", (16, 1, 1, 8), "int8", quant=(0.25, 0), data=np.ones((16, 1, 1, 8), np.int8))
    bias = builder.tensor("bias", (16,), "int32", quant=(0.125, 0), data=np.zeros(16, np.int32))
    y = builder.tensor("y", (1, 4, 4, 16), "int8", quant=(2.0, 0))
    real, out = builder.tensor("real", (1, 4, 4, 16)), builder.tensor("out", (1, 4, 4, 16))
    builder.operator("CONV_2D", [x, w, bias], [y], options={"padding": "same", "stride_w": 1, "stride_h": 1})
    builder.operator("DEQUANTIZE", [y], [real])
    builder.operator("LOGISTIC", [real], [out])
    return odc_mlir.compile(model_bytes(builder.finish([x], [out])))


@pytest.fixture(scope="module")
def report(package: Package) -> dict[str, Any]:
    return package.report


def test_keys(report: dict[str, Any]) -> None:
    assert report.keys() >= STABLE_KEYS
    assert all(layer.keys() >= STABLE_LAYER_KEYS for layer in report["layers"])
    assert json.loads(json.dumps(report)) == report


def test_placement(report: dict[str, Any]) -> None:
    assert [(layer["op"], layer["placed"], layer["segment"]) for layer in report["layers"]] == [
        ("CONV_2D", "npu", "segment-0"),
        ("DEQUANTIZE", "host", None),
        ("LOGISTIC", "host", None),
    ]
    assert (report["npu_op_count"], report["host_op_count"], report["segment_count"]) == (1, 2, 1)
    assert report["layers"][0]["reason"] is None
    assert all(layer["reason"] for layer in report["layers"][1:])


def test_what_was_weighed(package: Package, report: dict[str, Any]) -> None:
    found = report["partition"]
    assert found["chosen"]["name"] == "all-supported"
    assert found["difference_ns"] == found["runner_up"]["modelled_ns"] - found["chosen"]["modelled_ns"] > 0
    assert found["plans"][0] == found["chosen"]
    (segment,) = found["segments"]
    assert (segment["name"], segment["operators"], segment["macs"]) == ("segment-0", [0], 16 * 16 * 8)
    assert segment["inputs"] == [{"name": "x", "bytes": 128}]
    assert segment["outputs"] == [{"name": "y", "bytes": 256}]
    assert segment["boundary_bytes"] == 384
    host_ns = [layer["host_modelled_ns"] for layer in report["layers"]]
    assert all(isinstance(value, int) and value > 0 for value in host_ns)
    parts = segment["npu_ns"] + segment["transfer_ns"] + segment["switch_ns"]
    assert found["chosen"]["modelled_ns"] == pytest.approx(parts + sum(host_ns[1:]), abs=4)
    page = render(report)
    assert "all that the NPU can run there, 1 segment, modelled" in page
    assert "<td>x (128)</td>" in page


def test_a_plan_that_was_not_weighed(package: Package) -> None:
    """Packages of other makers have no such record."""
    plan = replace(package.files.plan, partition={})  # type: ignore[type-var]
    found = build_report(Package(replace(package.files, plan=plan)), quick=True)
    assert found["partition"]["chosen"] is found["partition"]["difference_ns"] is None
    assert found["partition"]["segments"][0]["npu_ns"] is None
    assert "There was nothing to choose." in render(found)


def test_numbers_add_up(package: Package, report: dict[str, Any]) -> None:
    assert report["macs"] == sum(layer["macs"] for layer in report["layers"]) == 16 * 16 * 8
    assert sum(layer["cycles"] for layer in report["layers"]) == pytest.approx(report["cycles_total"], abs=2)
    assert 0 < report["ideal_cycles"] <= report["cycles_total"] <= report["cycles_total_strict"]
    assert report["mac_utilization"] == report["macs"] / (256 * report["cycles_total"])
    assert report["weights_raw_bytes"] == 16 * 8 + 16 * 4
    assert report["binary_bytes"] == len(package.files.segment("segment-0.npu"))
    assert report["host_seconds"] > 0
    assert report["latency_ms"] == pytest.approx(1000 * (report["cycles_total"] / 500e6 + report["host_seconds"]))
    for engine in report["engines"].values():
        assert sum(engine.values()) == pytest.approx(report["cycles_total"], abs=1)


def test_compile_measurements_are_of_this_process(package: Package, report: dict[str, Any]) -> None:
    assert report["compile_seconds"] > 0
    assert report["compile_peak_rss_bytes"] > 10_000_000
    assert Package(package.files).report["compile_seconds"] is None


def test_quick_reports_leave_out_what_costs_time(package: Package, report: dict[str, Any]) -> None:
    quick = build_report(package, quick=True)
    different = {key for key in report if quick[key] != report[key]}
    assert different == {"cycles_total_strict", "host_seconds", "latency_ms"}
    assert quick["cycles_total_strict"] is None
    assert quick["host_seconds"] is None


def test_a_package_without_segments() -> None:
    model = add_model()
    found = Package(build_package(model_bytes(model), host_plan(model, target="npu-256"), {})).report
    assert (found["cycles_total"], found["ideal_cycles"], found["clock_hz"], found["engines"]) == (0, 0, None, {})
    assert found["mac_utilization"] == 0
    assert "None is" not in render(found)


def _node(name: str, operands: list[tuple[int, ...]], result: tuple[int, ...], **options: Any) -> Node:
    infos = tuple(TensorInfo(f"x{i}", "float32", shape) for i, shape in enumerate(operands))
    return Node(get(name), infos, (TensorInfo("y", "float32", result),), options)


@pytest.mark.parametrize(
    ("node", "macs"),
    [
        (_node("CONV_2D", [(1, 8, 8, 3), (16, 3, 3, 3), (16,)], (1, 8, 8, 16)), 8 * 8 * 16 * 27),
        (_node("DEPTHWISE_CONV_2D", [(1, 8, 8, 3), (1, 3, 3, 6), (6,)], (1, 8, 8, 6)), 8 * 8 * 6 * 9),
        (_node("FULLY_CONNECTED", [(2, 10), (5, 10), (5,)], (2, 5)), 2 * 5 * 10),
        (_node("ADD", [(2, 10), (2, 10)], (2, 10)), 0),
    ],
)
def test_multiply_accumulates(node: Node, macs: int) -> None:
    assert node_macs(node) == macs


def test_page_of_a_model_that_runs_on_the_npu_alone(report: dict[str, Any]) -> None:
    whole = {**report, "layers": report["layers"][:1]}
    assert "None is: the whole model runs on the NPU." in render(whole)
