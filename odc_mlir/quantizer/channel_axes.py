"""Along which axes of an output the channels of the last layers lie, seen through what only moves these."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import Trait
from odc_mlir.runtime.execution.graph import Graph, GraphNode

# What has its channels along the last axis, and positions of images, or rows, along the others.
_LAYERS = frozenset(
    {
        "AVERAGE_POOL_2D",
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "FULLY_CONNECTED",
        "MAX_POOL_2D",
        "RESIZE_BILINEAR",
        "RESIZE_NEAREST_NEIGHBOR",
        "TRANSPOSE_CONV",
    }
)
_SAME_PLACES = frozenset({"CAST", "DEQUANTIZE", "QUANTIZE"})

Indices = NDArray[np.int64]


class ChannelAxes:
    """What ``graph`` does with the channels of layers that its outputs are of."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._producers = {index: node for node in graph.nodes for index in node.outputs}

    def are_along(self, output: int, shape: Sequence[int], axis: int) -> bool | None:
        """Whether all of a channel has one place along ``axis`` of a tensor; None where the layers are not known."""
        along = np.arange(shape[axis]).reshape(-1, *[1] * (len(shape) - 1 - axis))
        waiting, seen, layers = [(output, np.broadcast_to(along, shape))], {output}, 0
        known = True
        while waiting:
            tensor, places = waiting.pop()
            node = self._producers.get(tensor)
            if node is not None and node.node.spec.name in _LAYERS:
                rows = places.reshape(-1, places.shape[-1])
                if (rows != rows[:1]).any():
                    return False
                layers += 1
                continue
            sources = () if node is None else self._sources(node, places)
            known &= bool(sources)
            waiting += [source for source in sources if source[0] not in seen]
            seen.update(source for source, _ in sources)
        return True if known and layers else None

    def _sources(self, node: GraphNode, places: Indices) -> list[tuple[int, Indices]]:
        """The operands that a node only moves, or takes element by element, with the places of their elements."""
        name, traits, axis = node.node.spec.name, node.node.spec.traits, node.node.options.get("axis") or 0
        shapes = [self._graph.tensors[tensor].shape if tensor >= 0 else None for tensor in node.inputs]
        full = [tuple(size for size in shape or () if size is not None) for shape in shapes]
        if Trait.VIEW in traits and shapes[0] == full[0] and math.prod(full[0]) == places.size:
            return [(node.inputs[0], places.reshape(full[0]))]
        if name == "TRANSPOSE" and (order := self._graph.tensors[node.inputs[1]]).is_const:
            return [(node.inputs[0], places.transpose(np.argsort(order.array().ravel())))]
        if name == "PACK":
            return [(tensor, np.take(places, [at], axis).squeeze(axis)) for at, tensor in enumerate(node.inputs)]
        if name == "CONCATENATION" and shapes == full:
            ends = np.cumsum([shape[axis] for shape in full])
            return list(zip(node.inputs, np.split(places, ends[:-1], axis), strict=True))
        if Trait.ELEMENTWISE in traits or name in _SAME_PLACES:
            same = zip(node.inputs, shapes, strict=True)
            return [(tensor, places) for tensor, shape in same if shape == places.shape and tensor in self._producers]
        return []
