"""Names are for people: a network without any, or with one for all its tensors, has the same program and layers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.mixed_networks import network_on_codes
from helpers.models import ModelBuilder, model_bytes
from helpers.networks import RandomNetwork
from helpers.reports import check_report
from odc_mlir.errors import OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.isa import container
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.recording import record
from odc_mlir.runtime.reporting.report_html import operator_code
from odc_mlir.tools import odc_run

_OF_LAYERS = ("op", "placed", "segment", "macs", "cycles", "busy_cycles", "energy", "binds", "causes", "helps", "floor")
_SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))]


def _called(data: bytes, name: str) -> bytes:
    """The model with all its tensors called ``name``."""
    model = read_model(data)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            tensor.name = name
    return bytes(write_model(model))


def _layers(package: Package) -> list[dict[str, Any]]:
    check_report(package.report)
    return [{key: layer.get(key) for key in _OF_LAYERS} for layer in package.report["layers"]]


def _programs(package: Package) -> list[container.Container]:
    assert package.plan is not None
    return [container.read(package.files.segment(step.file)) for step in package.plan.segments]


def _split() -> bytes:
    """Two results, each a copy of its own, and a maximum of both; the input is read last once more."""
    n = ModelBuilder()
    x = n.tensor("x", (1, 4, 4, 8), "int8", quant=(0.5, 3))
    axis = n.tensor("axis", (), "int32", data=np.array(3, np.int32))
    a, b, y = (n.tensor(name, (1, 4, 4, 4), "int8", quant=(0.5, 3)) for name in "aby")
    n.operator("SPLIT", [axis, x], [a, b], options={"num_splits": 2})
    n.operator("MAXIMUM", [a, b], [y])
    return model_bytes(n.finish([x], [y, b]))


@pytest.mark.parametrize("seed", _SEEDS)
def test_layers_of_a_chain_do_not_depend_on_names(seed: int) -> None:
    _check(RandomNetwork(seed).build(operators=3 + seed % 8))


@pytest.mark.parametrize("seed", _SEEDS)
def test_layers_of_a_graph_do_not_depend_on_names(seed: int) -> None:
    _check(bytes(write_model(export_model(network_on_codes(seed)[1]))))


def test_an_operator_has_the_cycles_of_all_its_results() -> None:
    package = _check(_split())
    assert package.report["layers"][0]["cycles"] > 0
    (program,) = _programs(package)
    assert [entry.name for entry in program.operators] == ["a", "b", "y"]


def _check(model: bytes) -> Package:
    """Layers, code and map of ``model`` with and without names; returns its package."""
    named = odc_mlir.compile(model)
    layers, code = _layers(named), operator_code(named)
    assert all(container.RESULTS not in program.metadata for program in _programs(named))
    for name in ("", "same"):
        other = odc_mlir.compile(_called(model, name))
        assert _layers(other) == layers
        for before, after in zip(_programs(named), _programs(other), strict=True):
            assert bytes(after.code) == bytes(before.code)
            labels = [entry.name for entry in after.operators]
            assert all(labels)
            assert len(set(labels)) == len(labels)
            assert [(e.kind, e.ranges) for e in after.operators] == [(e.kind, e.ranges) for e in before.operators]
        found = operator_code(other)
        assert {i: item.instructions for i, item in found.items()} == {i: c.instructions for i, c in code.items()}
    return named


def test_a_made_up_name_is_no_other_tensors() -> None:
    model = read_model(RandomNetwork(1).build(operators=4))
    graph = model.subgraphs[0]
    first, second = (graph.tensors[operator.outputs[0]] for operator in graph.operators[:2])
    first.name, second.name = "", f"{graph.operators[0].name}#0"
    package = odc_mlir.compile(bytes(write_model(model)))
    labels = [entry.name for program in _programs(package) for entry in program.operators]
    assert second.name in labels
    assert len(set(labels)) == len(labels)
    check_report(package.report)


@cache
def _float() -> tuple[bytes, list[list[np.ndarray]]]:
    """Layers whose values have ranges of their own, and samples."""
    rng = np.random.default_rng(7)
    n = ModelBuilder()
    x, wide, narrow, y = n.tensor("x", (1, 8)), *(n.tensor(name, (1, 16)) for name in ("wide", "narrow", "y"))
    for name, source, result, scale in (("a", x, wide, 10.0), ("b", narrow, y, 0.1)):
        weights = (scale * rng.normal(size=(16, 8 if source == x else 16))).astype(np.float32)
        n.operator("FULLY_CONNECTED", [source, n.tensor(f"{name}/w", weights.shape, data=weights), -1], [result])
    n.operator("LOGISTIC", [wide], [narrow])
    model = n.finish([x], [y])
    operators = model.subgraphs[0].operators
    operators[1], operators[2] = operators[2], operators[1]
    return bytes(write_model(model)), [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(24)]


def _codes(model: bytes) -> list[bytes]:
    """All constants of a model, whatever they are called, and the parameters of all its tensors."""
    found = read_model(model)
    constants = [bytes(data) for index in range(len(found.subgraphs)) for data in found.constants(index).values()]
    return sorted(constants) + sorted(str(tensor.quant_params()).encode() for tensor in found.subgraphs[0].tensors)


@pytest.mark.parametrize("name", ["", "same", "tensor 3"])
def test_quantising_does_not_depend_on_names(name: str, tmp_path: Path) -> None:
    model, samples = _float()
    other = _called(model, name)
    expected = odc_mlir.quantize(model, calibration=samples, help=False)
    made = odc_mlir.quantize(other, calibration=samples, help=False)
    assert _codes(made.to_circle()) == _codes(expected.to_circle())
    assert len(made.verdict["scheme"]) == len(expected.verdict["scheme"])
    labels = [tensor.name for tensor in read_model(made.to_circle()).subgraphs[0].tensors]
    assert all(labels)
    assert len(set(labels)) == len(labels)
    for file in ("records.sqlite", "minmax.bin"):
        made.save_records(tmp_path / file)
        again = odc_mlir.quantize(other, records=tmp_path / file, help=False)
        assert _codes(again.to_circle()) == _codes(made.to_circle()), file
    layer = list(expected.verdict["scheme"]).index(max(expected.verdict["scheme"]))
    chosen = [list(item.verdict["scheme"])[layer] for item in (expected, made)]
    kept = [
        odc_mlir.quantize(data, calibration=samples, help=False, overrides={label: "float"})
        for data, label in zip((model, other), chosen, strict=True)
    ]
    assert _codes(kept[1].to_circle()) == _codes(kept[0].to_circle()) != _codes(made.to_circle())
    with pytest.raises(OptionError, match="nobody"):
        odc_mlir.quantize(other, calibration=samples, help=False, overrides={"nobody": "float"})


@pytest.mark.parametrize("name", ["", "same"])
def test_a_tensor_has_one_name_everywhere(name: str, tmp_path: Path) -> None:
    """In the report, in the trace, in the program, in the model and in what is recorded."""
    model, samples = _float()
    made = odc_mlir.quantize(_called(model, name), calibration=samples, help=False)
    package = odc_mlir.compile(made.model)
    known = {tensor.name for tensor in package.model.subgraphs[0].tensors}
    layers = [layer["name"] for layer in package.report["layers"]]
    timed = [layer["name"] for layer in package.report["layers"] if layer["cycles"]]
    assert "" not in known
    assert known.issuperset(layers)
    assert known.issuperset(entry.name for program in _programs(package) for entry in program.operators)
    assert known.issuperset(info.name for info in (*package.inputs, *package.outputs))
    assert {key for _, key in record(HostExecutor(package.graph), samples[:1]).tensors} <= known
    package.save(tmp_path / "p")
    assert odc_run.main([str(tmp_path / "p"), "--trace", str(tmp_path / "t.json")]) == 0
    events = {event["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert len(timed) >= 3
    assert events.issuperset(timed)


def test_text_without_names_has_some() -> None:
    text = _UNNAMED.encode()
    package = odc_mlir.compile(text)
    names = [tensor.name for tensor in package.model.subgraphs[0].tensors]
    assert names == ["tensor 0", "tensor 1", "tensor 2"]
    assert [layer["name"] for layer in package.report["layers"]] == names[1:]


_UNNAMED = """builtin.module {
  func.func @main(%x: tensor<1x8xf32>) -> tensor<1x8xf32> {
    %0 = circle.abs(%x) : (tensor<1x8xf32>) -> tensor<1x8xf32>
    %1 = circle.neg(%0) : (tensor<1x8xf32>) -> tensor<1x8xf32>
    func.return %1 : tensor<1x8xf32>
  }
}
"""
