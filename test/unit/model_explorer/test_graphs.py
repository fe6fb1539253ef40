"""Graphs and overlays for Model Explorer."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import odc_mlir
from odc_mlir import samples
from odc_mlir.errors import OptionError
from odc_mlir.model_explorer.graphs import METRICS, graph, node_data, opened
from odc_mlir.tools import odc_report

MODEL = samples.path("digits_cnn_int8.circle")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("package") / "digits.zip"
    odc_mlir.compile(MODEL, target="npu-256").save(place)
    return place


def test_a_model_is_a_chain_from_input_to_output() -> None:
    nodes = graph(*opened(str(MODEL)))["nodes"]
    assert [node["label"] for node in nodes][:2] == ["input input", "CONV_2D"]
    assert nodes[-1]["label"] == "output probs"
    known = {node["id"] for node in nodes}
    for node in nodes[1:]:
        assert [edge["sourceNodeId"] in known for edge in node["incomingEdges"]] == [True]
    conv = nodes[1]
    assert {"key": "constant", "value": "yes"} in conv["inputsMetadata"][1]["attrs"]
    assert {"key": "type", "value": "int8[1, 8, 8, 16]"} in conv["outputsMetadata"][0]["attrs"]


def test_a_package_has_segments_and_cycles(package: Path) -> None:
    report = odc_mlir.load_package(package).report
    nodes = {node["id"]: node for node in graph(*opened(str(package)))["nodes"]}
    for layer in report["layers"]:
        node = nodes[str(layer["operator"])]
        assert node["namespace"] == "segment-0"
        assert {"key": "cycles", "value": str(layer["cycles"])} in node["attrs"]


def test_node_data_by_metric(package: Path) -> None:
    report = odc_mlir.load_package(package).report
    for metric in METRICS:
        found = node_data(report, metric)["main"]
        assert found["name"] == METRICS[metric]
        assert len(found["results"]) == (0 if metric == "host" else len(report["layers"]))
    assert sum(item["value"] for item in node_data(report, "cycles")["main"]["results"].values()) == sum(
        layer["cycles"] for layer in report["layers"]
    )
    on_host = {"operator": 0, "placed": "host", "host_modelled_ns": 1500, "macs": 7, "cycles": 0}
    assert node_data({"layers": [on_host]}, "host")["main"]["results"] == {"0": {"value": 1.5}}
    assert node_data({"layers": [on_host]}, "cycles")["main"]["results"] == {}
    with pytest.raises(OptionError, match="no metric 'speed'"):
        node_data(report, "speed")


def test_the_command_replaces_its_own_file_only(package: Path, tmp_path: Path) -> None:
    out = tmp_path / "cycles.json"
    for _ in range(2):
        assert odc_report.main([str(package), "-q", "--node-data", str(out)]) == 0
    out.write_text("{}")
    assert odc_report.main([str(package), "-q", "--node-data", str(out)]) == 1


class _Viewer(types.ModuleType):
    """Stands for the viewer's package, which is too large to install for this: its records take what is given."""

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace


def test_the_adapter_gives_the_viewers_records(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer = _Viewer("model_explorer")
    viewer.graph_builder = _Viewer("model_explorer.graph_builder")  # type: ignore[attr-defined]
    viewer.Adapter = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "model_explorer", viewer)
    module = importlib.import_module("odc_mlir.model_explorer.main")
    monkeypatch.delitem(sys.modules, "odc_mlir.model_explorer.main")
    (made,) = module.OdcAdapter().convert(str(package), {})["graphs"]
    expected = graph(*opened(str(package)))
    assert [node.id for node in made.nodes] == [node["id"] for node in expected["nodes"]]
    assert made.nodes[1].attrs[0].key == "placed"
    assert made.nodes[1].incomingEdges[0].sourceNodeId == "input 0"
