"""Models and packages as graphs of Model Explorer, and reports as its node data: plain JSON values.

The viewer opens files of both: graphs like models, node data as an overlay that colours the graph of the same name.
Format: ``Graph`` in ``graph_builder.py`` and ``ModelNodeData`` in ``node_data_builder.py`` of its package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odc_mlir.errors import OptionError
from odc_mlir.formats.package import is_package
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.runtime import api
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.reporting.report_file import is_modelled
from odc_mlir.runtime.reporting.report_html import type_text

METRICS = {
    "cycles": "NPU cycles",
    "macs": "multiply-accumulates",
    "energy": "energy on the NPU, an estimate, µJ",
    "host": "host time, modelled, µs",
}
"""What node data can show: metric -> what it is called."""

_INPUT, _OUTPUT = "input", "output"
_COLOURS = [{"stop": 0, "bgColor": "#f6f8fa"}, {"stop": 1, "bgColor": "#d0802a"}]


def opened(path: str) -> tuple[Graph, Sequence[Mapping[str, Any]]]:
    """The main graph of a model file, IR text or package, and of a package the report's layers; raises OdcError."""
    if not is_package(Path(path)):
        return api.open_executor(path, backend="host").graph, ()
    package = api.load_package(path)
    model = api.open_executor(package, backend="host").graph
    if package.plan is None or not is_modelled(package.plan):
        return model, ()  # there are no cycles to be shown
    return model, package.report["layers"]


def graph(model: Graph, layers: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A graph of the viewer. ``layers`` of the report add placement, reason and cycles.

    Operators of a segment lie in a group of its name. Constants are no nodes, but inputs with their type.
    """
    known = {layer["operator"]: layer for layer in layers}
    producers = {tensor: (f"{_INPUT} {tensor}", "0") for tensor in model.inputs}
    nodes = [_end(model, tensor, _INPUT, []) for tensor in model.inputs]
    for item in model.nodes:
        nodes.append(_node(model, item, known.get(item.index, {}), producers))
        producers |= {tensor: (str(item.index), str(port)) for port, tensor in enumerate(item.outputs)}
    for tensor in model.outputs:
        nodes.append(_end(model, tensor, _OUTPUT, _edges([tensor], producers)))
    return {"id": model.name or "main", "nodes": nodes}


def _end(model: Graph, tensor: int, kind: str, edges: list[dict[str, str]]) -> dict[str, Any]:
    """An input or output of the model."""
    shown = _tensor("0", model.tensors[tensor])
    return {
        "id": f"{kind} {tensor}",
        "label": f"{kind} {model.tensors[tensor].name}",
        "namespace": "",
        "attrs": [],
        "incomingEdges": edges,
        "outputsMetadata": [shown],
    }


def _node(
    model: Graph, item: GraphNode, layer: Mapping[str, Any], producers: Mapping[int, tuple[str, str]]
) -> dict[str, Any]:
    options = {name: value for name, value in item.node.options.items() if not isinstance(value, bytes | memoryview)}
    told = {"placed": layer.get("placed"), "reason": layer.get("reason"), "bound by": layer.get("binds")}
    told |= {name: layer.get(name) for name in ("macs", "cycles")}
    attrs = {**{name: value for name, value in told.items() if value is not None}, **options}
    return {
        "id": str(item.index),
        "label": item.node.spec.name,
        "namespace": layer.get("segment") or "",
        "attrs": [{"key": name, "value": str(value)} for name, value in attrs.items()],
        "incomingEdges": _edges(item.inputs, producers),
        "inputsMetadata": [_tensor(str(port), model.tensors[t]) for port, t in enumerate(item.inputs) if t >= 0],
        "outputsMetadata": [_tensor(str(port), model.tensors[t]) for port, t in enumerate(item.outputs)],
    }


def _edges(tensors: Sequence[int], producers: Mapping[int, tuple[str, str]]) -> list[dict[str, str]]:
    return [
        {"sourceNodeId": source, "sourceNodeOutputId": port, "targetNodeInputId": str(place)}
        for place, tensor in enumerate(tensors)
        for source, port in [producers.get(tensor, ("", ""))]
        if source
    ]


def _tensor(port: str, info: TensorInfo) -> dict[str, Any]:
    """Entries of the viewer's side panel for a tensor."""
    shown = {"tensor_name": info.name, "type": type_text(info)}
    if info.is_const:
        shown["constant"] = "yes"
    return {"id": port, "attrs": [{"key": key, "value": value} for key, value in shown.items()]}


def node_data(report: Mapping[str, Any], metric: str, name: str = "main") -> dict[str, Any]:
    """The overlay of one of :data:`METRICS` for the graph called ``name``; raises OptionError for another metric."""
    if metric not in METRICS:
        raise OptionError(f"there is no metric {metric!r}", hint=f"one of {', '.join(METRICS)}")
    values = {str(layer["operator"]): _value(layer, metric) for layer in report["layers"]}
    results = {operator: {"value": value} for operator, value in values.items() if value is not None}
    return {name: {"name": METRICS[metric], "results": results, "gradient": _COLOURS}}


def _value(layer: Mapping[str, Any], metric: str) -> float | None:
    """The number of an operator; None where the metric says nothing about it."""
    on_npu = layer["placed"] == "npu"
    if metric == "host":
        return None if on_npu else layer["host_modelled_ns"] / 1000
    if metric == "energy":
        return layer["energy"]["estimate_uj"] if "energy" in layer else None
    return layer[metric] if on_npu or metric == "macs" else None
