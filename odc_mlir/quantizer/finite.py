"""Numbers that a float model holds and that nothing can be made of: they are refused before anything is tried."""

from __future__ import annotations

from itertools import chain

import numpy as np

from odc_mlir.errors import ModelError
from odc_mlir.ops.quantization import QuantKind
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.runtime.execution.graph import Graph, GraphNode

_CONVERSIONS = frozenset({"DEQUANTIZE", "CAST"})  # as weights in float16 have


def check_finite(graph: Graph) -> None:
    """Raise ModelError that names a constant with NaN, or weights or a bias with infinite values.

    Other infinite constants are legitimate: masks that hide scores, limits that limit nothing, what pads a maximum.
    """
    makers = {index: item for item in graph.nodes for index in item.outputs}
    for item in graph.nodes:
        learnt = _learnt(item)
        for place, index in enumerate(item.inputs):
            info = _constant(graph, makers, index)
            if info is None or info.info.kind != "float":
                continue
            values = info.array()
            wrong = "NaN" if np.isnan(values).any() else None
            if wrong is None and place in learnt and np.isinf(values).any():
                wrong = "infinite values"
            if wrong is not None:
                raise ModelError(
                    f"the constant holds {wrong}, which no codes stand for",
                    op=item.node.spec.name,
                    tensor=info.name,
                    hint="train or export the model again; float32 may hold what is infinite in float16",
                )


def _learnt(item: GraphNode) -> frozenset[int]:
    """The places of the operands that hold weights and biases."""
    rule = item.node.spec.quant
    if rule.kind is QuantKind.SAME:  # tables that values, masks among them, are looked up in
        return frozenset()
    return frozenset(chain(rule.trained(item.node.options), rule.biases))


def _constant(graph: Graph, makers: dict[int, GraphNode], index: int) -> TensorInfo | None:
    """The constant that tensor ``index`` is, or is converted from."""
    while index >= 0:
        if graph.tensors[index].is_const:
            return graph.tensors[index]
        maker = makers.get(index)
        if maker is None or maker.node.spec.name not in _CONVERSIONS:
            return None
        index = maker.inputs[0]
    return None
