"""Outputs that say yes or no: results of LOGISTIC, which users compare with a half.

A detector that was calibrated on what it does not detect has logits below zero alone. Codes of these reach from the
least one to zero, so that no score of the quantised model is more than a half, whatever it is shown; on such samples no
measure of distance shows that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from odc_mlir.numerics.lut import logistic
from odc_mlir.ops.spec import Trait
from odc_mlir.quantizer.intervals import ends_of
from odc_mlir.quantizer.stages import Statistics
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.graph import Graph, GraphNode

_HALF = 0.5
# What may give logits of either sign, if nothing that is fused with it limits them.
_OF_EITHER_SIGN = frozenset(
    {"FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "BATCH_MATMUL", "ADD", "SUB"}
)
_CASTS = frozenset({"QUANTIZE", "DEQUANTIZE"})


def unreached(graph: Graph) -> list[str]:
    """What is said of outputs of which the codes of logits leave no score on one side of a half."""
    found, scoring = [], list(_scoring(graph))
    for (name, node), ends in zip(scoring, ends_of(graph, [node.inputs[0] for _, node in scoring]), strict=True):
        if ends is None:
            continue
        least, most = (_score(graph, node, end) for end in ends)
        advice = "give samples with {} ones, as of what is to be told apart, or room for them (--output-room on)"
        if most <= _HALF:
            found.append(f"scores of output {name!r} are {most:.4g} at most on any input: {advice.format('larger')}")
        elif least >= _HALF:
            found.append(f"scores of output {name!r} are {least:.4g} at least on any input: {advice.format('smaller')}")
    return list(dict.fromkeys(found))


def one_sided(graph: Graph, statistics: Statistics) -> list[str]:
    """The names of outputs of the float model whose scores are all on one side of a half in the samples."""
    found = []
    for name, node in _scoring(graph):
        seen = statistics.get(graph.tensors[node.inputs[0]].name)
        if seen is not None and seen.runs and (seen.maximum <= 0.0 or seen.minimum >= 0.0):
            found.append(name)
    return list(dict.fromkeys(found))


def _score(graph: Graph, node: GraphNode, logit: float) -> float:
    """The score of ``logit``, as codes have it where the result is one of these."""
    exact, info = float(logistic(np.asarray(logit, np.float64))), graph.tensors[node.outputs[0]]
    if info.quant is None or not info.info.is_integer:
        return exact
    return float(to_reals(info, to_codes(info, np.array(exact, np.float32))))


def _scoring(graph: Graph) -> Iterator[tuple[str, GraphNode]]:
    """The operators LOGISTIC whose results are moved to outputs, and whose operands may have both signs.

    Each with the output's name.
    """
    producers = {index: node for node in graph.nodes for index in node.outputs}
    for output in dict.fromkeys(graph.outputs):
        for node in _sources(producers, [output]):
            if node.node.spec.name == "LOGISTIC" and any(map(_has_both_signs, _sources(producers, node.inputs))):
                yield graph.tensors[output].name, node


def _sources(producers: Mapping[int, GraphNode], tensors: Sequence[int]) -> Iterator[GraphNode]:
    """What computes the values that are moved to ``tensors``."""
    todo, seen = list(tensors), set[int]()
    while todo:
        node = producers.get(todo.pop())
        if node is None or node.index in seen:
            continue
        seen.add(node.index)
        if node.node.spec.name in _CASTS or Trait.SAME_QUANT in node.node.spec.traits:
            todo.extend(node.inputs)
        else:
            yield node


def _has_both_signs(node: GraphNode) -> bool:
    fused = str(node.node.options.get("fused_activation_function", "none")).lower()
    return node.node.spec.name in _OF_EITHER_SIGN and fused == "none"
