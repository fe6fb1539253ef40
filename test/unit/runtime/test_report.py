"""The report adds up, keeps its keys, and its lower bound is one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers import stateful
from helpers.models import ModelBuilder, add_model, host_plan, model_bytes
from helpers.reports import check_report
from odc_mlir import targets
from odc_mlir.formats.package import build_package
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.reporting.report import build_report
from odc_mlir.runtime.reporting.report_html import render
from odc_mlir.runtime.reporting.report_table import help_text, memory_lines

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
        "sram_peak",
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
        "modelled",
        "model_floor_cycles",
        "measured",
        "defects",
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
    assert found["difference_ns"] == found["runner_up"]["estimate_ns"] - found["chosen"]["estimate_ns"] > 0
    assert found["plans"][0] == found["chosen"]
    (segment,) = found["segments"]
    assert (segment["name"], segment["operators"], segment["macs"]) == ("segment-0", [0], 16 * 16 * 8)
    assert segment["inputs"] == [{"name": "x", "bytes": 128}]
    assert segment["outputs"] == [{"name": "y", "bytes": 256}]
    assert segment["boundary_bytes"] == 384
    host_ns = [layer["host_modelled_ns"] for layer in report["layers"]]
    assert all(isinstance(value, int) and value > 0 for value in host_ns)
    parts = sum(segment["estimate"].values())
    assert found["chosen"]["estimate_ns"] == pytest.approx(parts + sum(host_ns[1:]), abs=4)
    parts = segment["npu_ns"] + segment["transfer_ns"] + segment["switch_ns"]
    assert 1e6 * report["latency_ms"] == pytest.approx(parts + sum(host_ns[1:]), abs=4)
    page = render(report)
    assert "all that the NPU can run there, 1 segment, estimated" in page
    assert '<span class="name">x</span> (128 bytes)' in page


def test_a_plan_that_was_not_weighed(package: Package) -> None:
    """Packages of other makers have no such record."""
    plan = replace(package.files.plan, partition={})  # type: ignore[type-var]
    found = build_report(Package(replace(package.files, plan=plan)), quick=True)
    assert found["partition"]["chosen"] is found["partition"]["difference_ns"] is None
    assert found["partition"]["segments"][0]["estimate"]["npu_ns"] is None
    assert found["latency_ms"] == package.report["latency_ms"], "the target's own host"
    assert "There was only one plan." in render(found)


def test_numbers_add_up(package: Package, report: dict[str, Any]) -> None:
    assert report["macs"] == sum(layer["macs"] for layer in report["layers"]) == 16 * 16 * 8
    assert sum(layer["cycles"] for layer in report["layers"]) == report["cycles_total"]
    assert 0 < report["model_floor_cycles"] <= report["ideal_cycles"]
    assert report["ideal_cycles"] <= report["cycles_total"] <= report["cycles_total_strict"]
    assert report["mac_utilization"] == report["macs"] / (256 * report["cycles_total"])
    assert report["weights_raw_bytes"] == 16 * 8 + 16 * 4
    assert report["binary_bytes"] == len(package.files.segment("segment-0.npu"))
    parts = report["modelled"]
    assert report["latency_ms"] == parts["latency_ms"] == pytest.approx(sum(parts.values()) / 2)
    assert parts["npu_ms"] == pytest.approx(1000 * report["cycles_total"] / report["clock_hz"])
    assert parts["host_ms"] > 0
    assert parts["switch_ms"] == targets.load("npu-256").host.switch_ns / 1e6
    for engine in report["engines"].values():
        assert sum(engine.values()) == pytest.approx(report["cycles_total"], abs=1)


@pytest.mark.parametrize("memory", ["flash", "sram"])
@pytest.mark.parametrize("target", targets.names())
def test_no_program_is_below_the_floor_of_its_model(target: str, memory: Any) -> None:
    """Few products for many results: the lanes are the bound, whatever becomes of the results."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 32, 32, 4), "int8", quant=(0.5, 0))
    w = builder.tensor("w", (64, 1, 1, 4), "int8", quant=(0.25, 0), data=np.ones((64, 1, 1, 4), np.int8))
    thin = builder.tensor("thin", (1, 32, 32, 64), "int8", quant=(2.0, 0))
    axes = builder.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))
    y = builder.tensor("y", (1, 64), "int8", quant=(2.0, 0))
    builder.operator("CONV_2D", [x, w, -1], [thin], options={"padding": "same", "stride_w": 1, "stride_h": 1})
    builder.operator("MEAN", [thin, axes], [y])
    package = odc_mlir.compile(model_bytes(builder.finish([x], [y])), target=target, memory=memory)
    check_report(found := build_report(package, quick=True))
    lanes = targets.load(target).vector.requant_lanes
    assert found["model_floor_cycles"] >= 32 * 32 * 64 // lanes
    assert found["npu_op_count"] == 2


def test_no_program_is_below_the_floor_where_runs_beat_entropy() -> None:
    """Half of the weights are 0 and half are 1, in two blocks: a bit each by entropy, next to nothing as runs."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 512), "int8", quant=(0.5, 0))
    weights = np.repeat(np.array([0, 1], np.int8), 64 * 512).reshape(128, 512)
    w = builder.tensor("w", (128, 512), "int8", quant=(0.25, 0), data=weights)
    y = builder.tensor("y", (1, 128), "int8", quant=(2.0, 0))
    builder.operator("FULLY_CONNECTED", [x, w, -1], [y])
    package = odc_mlir.compile(model_bytes(builder.finish([x], [y])), target="npu-256", memory="flash")
    check_report(found := build_report(package, quick=True))
    assert 0 < found["model_floor_cycles"] <= found["ideal_cycles"] <= found["cycles_total"] < weights.size // 8


@pytest.mark.parametrize("states", [{"new": "keys"}, {}])
def test_a_state_counts_as_it_is_read_and_replaced(states: dict[str, str]) -> None:
    model = stateful.cache(tokens=256)
    package = odc_mlir.compile(model_bytes(model), target="npu-256", memory="sram", states=states)
    check_report(found := build_report(package, quick=True))
    x, y, new, keys = (2 * columns for columns in (8, 256, 8, 255 * 8))
    assert found["model_floor_cycles"] == (x + y + keys + (keys if states else new)) // 8


def test_of_a_table_only_the_rows_count_that_are_looked_up() -> None:
    builder = ModelBuilder()
    rows = np.random.default_rng(0).integers(-128, 128, (3000, 16)).astype(np.int8)
    ids = builder.tensor("ids", (1,), "int32")
    table = builder.tensor("t", (3000, 16), "int8", quant=(0.5, 0), data=rows)
    y = builder.tensor("y", (1, 16), "int8", quant=(0.5, 0))
    builder.operator("GATHER", [table, ids], [y], options={"axis": 0, "batch_dims": 0})
    model = model_bytes(builder.finish([ids], [y]))
    for memory in ("flash", "sram"):
        package = odc_mlir.compile(model, target="npu-256", memory=memory, placement={"strategy": "supported"})
        check_report(found := build_report(package, quick=True))
        assert 0 < found["ideal_cycles"] < rows.size / 16


def test_what_is_measured_is_named_so(package: Package, report: dict[str, Any]) -> None:
    assert set(report["measured"]) == {"compile_seconds", "compile_peak_rss_bytes"}
    assert report["measured"]["compile_seconds"] > 0
    assert report["measured"]["compile_peak_rss_bytes"] > 10_000_000
    again = Package(package.files, name="")
    assert again.report["measured"] == {}
    assert {key for key in report if again.report[key] != report[key]} == {"measured"}
    assert again.modelled.latency_ms == package.modelled.latency_ms == report["latency_ms"]


def test_quick_reports_leave_out_what_costs_time(package: Package, report: dict[str, Any]) -> None:
    quick = build_report(package, quick=True)
    different = {key for key in report if quick[key] != report[key]}
    assert different == {"cycles_total_strict", "causes", "what_if", "layers", "sram_live"}
    for brief, full in zip(quick["layers"], report["layers"], strict=True):
        assert {key: full[key] for key in brief} == brief
        assert set(full) - set(brief) <= {"causes", "binds", "helps", "spans"}
    assert quick["cycles_total_strict"] is None


def test_layers_say_where_their_cycles_went(report: dict[str, Any]) -> None:
    on_npu = [layer for layer in report["layers"] if layer["placed"] == "npu"]
    assert on_npu
    for layer in on_npu:
        assert sum(layer["causes"].values()) == pytest.approx(layer["cycles"], abs=0.02)
        assert set(layer["floor"]) == {"array", "lanes", "offchip"}
        assert layer["binds"] is None or layer["binds"] in layer["causes"]
    assert sum(report["causes"].values()) == pytest.approx(report["cycles_total"], abs=0.1)
    assert all(what["text"] and what["cycles"] > 0 for what in report["what_if"].values())
    assert max(sum(layer["floor"][key] for layer in on_npu) for key in ("array", "lanes")) <= report["cycles_total"]


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({}, 1),
        ({"memory": "sram"}, 0),
        ({"causes": {"offchip": 4.0, "array": 96.0}}, 0),
        ({"weights_encoded_bytes": 901}, 0),
    ],
)
def test_constants_in_sram_are_proposed_where_they_fit(changed: dict[str, Any], count: int) -> None:
    report: dict[str, Any] = {"memory": "flash", "causes": {"offchip": 5.0, "array": 95.0}, "cycles_total": 100}
    report |= {"hardware": {"sram_capacity_bytes": 1_000}, "weights_encoded_bytes": 900, "sram_peak_bytes": 100}
    lines = list(memory_lines(report | changed))
    assert len(lines) == count
    assert all("--memory sram" in line for line in lines)


def test_a_speedup_that_is_printed_as_one_is_left_out() -> None:
    assert help_text({"helps": [{"change": "array", "speedup": 1.04}]}) == "–"
    assert help_text({"helps": [{"change": "sram", "speedup": 1.05}]}) == "sram 1.1x"


@pytest.mark.parametrize("partition", [{"chosen": 1, "plans": "x"}, {"plans": [1, {"name": "search"}], "chosen": {}}])
def test_odd_records_of_the_partitioner_are_left_out(package: Package, partition: dict[str, Any]) -> None:
    plan = replace(package.files.plan, partition=partition)  # type: ignore[type-var]
    found = Package(replace(package.files, plan=plan)).report["partition"]
    assert (found["chosen"], found["plans"]) == (None, [])


def test_names_are_no_paths(tmp_path: Path, package: Package) -> None:
    package.save(tmp_path / "my.net")
    assert odc_mlir.load_package(tmp_path / "my.net").report["model"] == "my.net"
    package.save(tmp_path / "my.net.zip")
    assert odc_mlir.load_package(tmp_path / "my.net.zip").report["model"] == "my.net"


def test_a_package_without_segments() -> None:
    model = add_model()
    found = Package(build_package(model_bytes(model), host_plan(model, target="npu-256"), {})).report
    assert (found["cycles_total"], found["ideal_cycles"], found["clock_hz"], found["engines"]) == (0, 0, None, {})
    assert found["mac_utilization"] == 0
    assert "None is" not in render(found)


def test_page_of_a_model_that_runs_on_the_npu_alone(report: dict[str, Any]) -> None:
    whole = {**report, "layers": report["layers"][:1]}
    assert "None: the whole model runs on the NPU." in render(whole)
