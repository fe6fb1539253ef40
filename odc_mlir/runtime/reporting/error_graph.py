"""Graph of a model, coloured by layer errors, in Graphviz's DOT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odc_mlir.errors import printable
from odc_mlir.formats.kinds import DOT_HEAD
from odc_mlir.formats.one import COLOURS, DIGITS, Errors, place_of
from odc_mlir.runtime.execution.graph import Graph

_DARK = 5  # from this colour on text is white
_UNKNOWN = "lightgray"


def dot(graph: Graph, metric: str, errors: Errors) -> str:
    """Return the graph in DOT, operators coloured by their error, gray without one."""
    makers = {index: item.index for item in graph.nodes for index in item.outputs}
    lines = [f"{DOT_HEAD}errors of layers, {metric.upper()}", "digraph {", "  node [shape=box, style=filled];"]
    for place, index in enumerate(graph.inputs):
        lines.append(f"  i{place} [label={_quoted(graph.tensors[index].name)}, fillcolor=white, shape=ellipse];")
    for item in graph.nodes:
        name = graph.tensors[item.outputs[0]].name if item.outputs else ""
        value = errors.get(name)
        label = f"{item.node.spec.name}\\n{_escaped(name)}"
        colour, ink = _UNKNOWN, "black"
        if value is not None:
            number = place_of(metric, errors, value)
            colour, ink = COLOURS[number], "white" if number >= _DARK else "black"
            label += f"\\n{metric.upper()} {value:.{DIGITS}g}"
        lines.append(f'  n{item.index} [label="{label}", fillcolor="{colour}", fontcolor={ink}];')
    inputs = {index: place for place, index in enumerate(graph.inputs)}
    for item in graph.nodes:
        lines += [f"  {source} -> n{item.index};" for source in _sources(item.inputs, makers, inputs)]
    return "\n".join([*lines, "}", ""])


def _sources(operands: Sequence[int], makers: Mapping[int, int], inputs: Mapping[int, int]) -> list[str]:
    found = [
        f"n{makers[index]}" if index in makers else f"i{inputs[index]}"
        for index in dict.fromkeys(operands)
        if index in makers or index in inputs
    ]
    return list(dict.fromkeys(found))


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return printable(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " "))
