"""Names are for people: a network without any, or with one for all its tensors, has the same program and layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.mixed_networks import network_on_codes
from helpers.models import ModelBuilder, model_bytes
from helpers.networks import RandomNetwork
from helpers.reports import check_report
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.isa import container
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.reporting.report_code import operator_code

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
