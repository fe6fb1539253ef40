"""Constants that a model stores as codes and makes real by DEQUANTIZE: made real once, before the graph runs.

Kernels then see the result as the constant that it is, and prepare it once, as they would a constant of real numbers;
the operator itself has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from odc_mlir.errors import OdcError
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.units import Unit


def decode_constants(graph: Graph) -> None:
    """Give every result of DEQUANTIZE of a constant its contents; one that the kernel refuses is left for the run."""
    for item in graph.nodes:
        node = item.node
        source = node.operands[0] if node.spec.name == "DEQUANTIZE" else None
        if source is None or not source.is_const or node.results[0].is_const:
            continue
        try:
            (array,) = node.spec.kernel_function(node)([source.array()])
        except OdcError:
            continue
        result = node.results[0]
        contents = np.ascontiguousarray(array, result.info.numpy)
        contents.flags.writeable = False
        result.shape, result.data = contents.shape, memoryview(contents.tobytes())


def units_to_run(graph: Graph, units: Iterable[Unit]) -> tuple[Unit, ...]:
    """``units`` without those that compute nothing but constants."""
    return tuple(unit for unit in units if not unit.writes or not all(graph.tensors[i].is_const for i in unit.writes))
