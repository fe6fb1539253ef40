"""Several samples in one run of a quantised graph, where each gets the results that it gets alone, to the last bit.

In small networks most of the time of a run goes into calling kernels, not into their arithmetic. Codes of 8 and 16 bits
are computed with whole numbers, so that it makes no difference what stands beside them; sums of reals would depend on
how many there are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from odc_mlir.errors import InputError
from odc_mlir.ops.spec import Array, TensorInfo, Trait
from odc_mlir.quantizer.layers import CASTS, as_constant
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, GraphNode

_log = logging.getLogger(__name__)

# Operators that are not elementwise, each item of whose results depends on that item of one operand alone.
_WINDOWS = frozenset(
    {
        "AVERAGE_POOL_2D",
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "FULLY_CONNECTED",
        "L2_POOL_2D",
        "MAX_POOL_2D",
        "RESIZE_BILINEAR",
        "RESIZE_NEAREST_NEIGHBOR",
    }
)
_SHAPES = {"RESHAPE": 1, "TRANSPOSE_CONV": 0}  # by operator the operand that says the result's shape
_REDUCING = frozenset({"MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM"})
_MOST_ELEMENTS = 1 << 17  # of the largest tensor of a run: what is computed next finds it in the cache


class BatchRunner:
    """Runs ``graph`` on samples of codes, as many at once as give each the results that it has alone."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._executors: dict[int, HostExecutor] = {}

    def run(self, samples: Sequence[Sequence[Array]]) -> Iterator[list[Array]]:
        """The outputs of each sample, state anew."""
        for part in self._parts(samples):
            yield from self._outputs(part)

    def run_where_it_can(self, samples: Sequence[Sequence[Array]]) -> Iterator[list[Array] | None]:
        """The same, None for a sample that a kernel refuses: codes are to blame where the float model takes it.

        What may be refused for its values, such as an index, is no code, and so runs alone.
        """
        for part in self._parts(samples):
            try:
                found: list[list[Array]] | list[None] = self._outputs(part)
            except InputError as error:
                _log.info("a sample cannot be run: %s", error)
                found = [None] * len(part)
            yield from found

    def _parts(self, samples: Sequence[Sequence[Array]]) -> Iterator[Sequence[Sequence[Array]]]:
        most = most_at_once(self._graph) if _are_alike(samples) else 1
        size = -(-len(samples) // max(1, -(-len(samples) // most)))  # all runs alike, as far as that goes
        for start in range(0, len(samples), size or 1):
            yield samples[start : start + size]

    def _outputs(self, part: Sequence[Sequence[Array]]) -> list[list[Array]]:
        executor = self._executor(len(part))
        executor.reset()
        if len(part) == 1:
            return [executor.run(part[0])]
        infos = self._graph.output_infos()
        found = executor.run([np.concatenate(arrays) for arrays in zip(*part, strict=True)])
        return [
            [self._item(*output, number) for output in zip(infos, found, strict=True)] for number in range(len(part))
        ]

    @staticmethod
    def _item(info: TensorInfo, value: Array, number: int) -> Array:
        """What one sample has of an output of all; a constant is nobody's part."""
        return value if info.is_const else value[number : number + 1]

    def _executor(self, count: int) -> HostExecutor:
        if count not in self._executors:
            graph = self._graph if count == 1 else _for_items(self._graph, count)
            self._executors[count] = HostExecutor(graph)
        return self._executors[count]


def _are_alike(samples: Sequence[Sequence[Array]]) -> bool:
    """Whether all have the same shapes, each of one item."""
    shapes = {tuple(array.shape for array in sample) for sample in samples}
    return len(shapes) == 1 and all(shape[:1] == (1,) for shape in shapes.pop())


def most_at_once(graph: Graph) -> int:
    """How many samples a run may take, 1 where they would not be alone with their results."""
    real = [graph.tensors[index] for index in graph.inputs]
    made = [graph.tensors[index] for item in graph.nodes for index in item.outputs]
    if not all(info.shape and info.shape[0] in (1, None) for info in (*real, *made)):
        return 1
    if not all(_is_alone(graph, item) for item in graph.nodes):
        return 1
    sizes = [int(np.prod([1 if size is None else size for size in info.shape or ()])) for info in (*real, *made)]
    return max(1, _MOST_ELEMENTS // max(sizes, default=1))


def _is_alone(graph: Graph, item: GraphNode) -> bool:
    """Whether each item along the first axis of the results depends on that item alone, computed with codes."""
    node, name = item.node, item.node.spec.name
    operands = [graph.tensors[index] for index in item.inputs if index >= 0]
    given, result = [info for info in operands if not info.is_const], graph.tensors[item.outputs[0]]
    coded = all(info.quant is not None and info.info.is_integer for info in (*given, result))
    if not given or item.calls or node.mutated or any(info.is_variable for info in given):
        return False
    if name in CASTS or not coded:
        return name in CASTS
    if name == "SOFTMAX":  # of 16 bits it is one of reals
        return len(result.shape or ()) > 1 and result.info.bits == 8
    if name == "CONCATENATION":
        return len(given) == len(operands) and int(node.options["axis"]) % len(result.shape or ()) != 0
    if name in _REDUCING:
        axes, rank = operands[1], len(given[0].shape or ())
        return axes.is_const and all(int(axis) % rank for axis in axes.array().reshape(-1))
    if name in _SHAPES:
        shape = operands[_SHAPES[name]]
        return shape.is_const and shape.array().reshape(-1)[0] in (1, -1) and -1 not in shape.array().reshape(-1)[1:]
    if Trait.ELEMENTWISE in node.spec.traits:
        return all(_fits_beside(info, result) for info in operands)
    return name in _WINDOWS and len(given) == 1


def _fits_beside(info: TensorInfo, result: TensorInfo) -> bool:
    """Whether an operand of an elementwise operator is the same for all items, or has the result's axes."""
    rank, own = len(result.shape or ()), info.shape or ()
    return len(own) < rank or own[0] == 1 if info.is_const else len(own) == rank


def _for_items(graph: Graph, count: int) -> Graph:
    """``graph`` for ``count`` items: of unknown number in its inputs, and so many in constants that say a shape."""
    tensors = list(graph.tensors)
    for index in graph.inputs:
        tensors[index] = replace(tensors[index], shape=(None, *(tensors[index].shape or ())[1:]))
    nodes = []
    for item in graph.nodes:
        infos = list(item.node.operands)
        place = _SHAPES.get(item.node.spec.name)
        options = item.node.options
        if place is not None:
            info = infos[place]
            assert info is not None
            shape = np.array(info.array())
            shape.reshape(-1)[0] = count
            tensors[item.inputs[place]] = infos[place] = as_constant(info, shape)
            if options.get("new_shape"):
                options = {**options, "new_shape": tuple(shape.reshape(-1).tolist())}
        nodes.append(replace(item, node=replace(item.node, operands=tuple(infos), options=options)))
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def reals_of(graph: Graph, samples: Sequence[Sequence[Array]]) -> Iterator[list[Array]]:
    """The outputs of ``graph`` for each sample, all as reals."""
    for found in BatchRunner(graph).run(_codes(graph, samples)):
        yield list(map(to_reals, graph.output_infos(), found))


def reals_where_it_runs(graph: Graph, samples: Sequence[Sequence[Array]]) -> Iterator[list[Array] | None]:
    """The same, None for a sample that a kernel refuses."""
    for found in BatchRunner(graph).run_where_it_can(_codes(graph, samples)):
        yield None if found is None else list(map(to_reals, graph.output_infos(), found))


def _codes(graph: Graph, samples: Sequence[Sequence[Array]]) -> list[list[Array]]:
    return [list(map(to_codes, graph.input_infos(), sample)) for sample in samples]
