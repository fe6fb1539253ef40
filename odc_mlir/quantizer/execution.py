"""Execution of graphs on many samples, in batches with bit-identical results or operator by operator.

Sums of floats would depend on the batch size. Therefore graphs with float arithmetic run sample by sample.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from odc_mlir.errors import InputError, OdcError, UnsupportedError
from odc_mlir.ops.constants import encode_constant, initial_contents
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo, Trait
from odc_mlir.quantizer.outputs import CASTS, WINDOWS, alike
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.execution.units import SpecializedGraph

_log = logging.getLogger(__name__)

_SHAPES = {"RESHAPE": 1, "TRANSPOSE_CONV": 0}  # operator -> operand that gives the result's shape
_REDUCING = frozenset({"MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM"})


def run_in_batches(graph: Graph, samples: Sequence[Sequence[Array]]) -> Iterator[list[Array] | None]:
    """Yield the outputs for each sample of codes, with fresh state. Yield None for a sample that a kernel refuses."""
    shapes = {tuple(array.shape for array in sample) for sample in samples}
    are_alike = len(shapes) == 1 and all(shape[:1] == (1,) for shape in next(iter(shapes)))
    most = most_at_once(graph) if are_alike else 1
    size = -(-len(samples) // max(1, -(-len(samples) // most)))  # runs of nearly equal size
    executors: dict[int, HostExecutor] = {}
    for start in range(0, len(samples), size or 1):
        part = samples[start : start + size]
        count = len(part)
        if count not in executors:
            executors[count] = HostExecutor(graph if count == 1 else _in_batch_of(graph, count))
        executors[count].reset()
        inputs = part[0] if count == 1 else [np.concatenate(arrays) for arrays in zip(*part, strict=True)]
        try:
            found = list(zip(graph.output_infos(), executors[count].run(inputs), strict=True))
        except InputError as error:
            _log.info("a sample cannot be run: %s", error)
            yield from [None] * count
            continue
        for number in range(count):  # constant outputs are the same for all samples
            yield [value if count == 1 or info.is_const else value[number : number + 1] for info, value in found]


def most_at_once(graph: Graph) -> int:
    """Return the number of samples that a run can process with unchanged results."""
    most_elements = 1 << 17  # limit for the largest tensor of a run, so that the tensor fits the cache
    real = [graph.tensors[index] for index in graph.inputs]
    made = [graph.tensors[index] for item in graph.nodes for index in item.outputs]
    if not all(info.shape and info.shape[0] in (1, None) for info in (*real, *made)):
        return 1
    if not all(_keeps_batch_apart(graph, item) for item in graph.nodes):
        return 1
    sizes = [int(np.prod([1 if size is None else size for size in info.shape or ()])) for info in (*real, *made)]
    return max(1, most_elements // max(sizes, default=1))


def _keeps_batch_apart(graph: Graph, item: GraphNode) -> bool:
    """Return whether each result index on the first axis depends only on the operands' codes at the same index."""
    node, name = item.node, item.node.spec.name
    operands = [graph.tensors[index] for index in item.inputs if index >= 0]
    given, result = [info for info in operands if not info.is_const], graph.tensors[item.outputs[0]]
    coded = all(info.is_coded for info in (*given, result))
    if not given or item.calls or node.mutated or any(info.is_variable for info in given):
        return False
    if name in CASTS or not coded:
        return name in CASTS
    if name == "SOFTMAX":  # 16-bit SOFTMAX computes with floats
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
        # Each operand is the same for all samples, or has the result's axes.
        rank, shapes = len(result.shape or ()), [(info.is_const, info.shape or ()) for info in operands]
        return all(len(own) < rank or own[0] == 1 if is_const else len(own) == rank for is_const, own in shapes)
    return name in WINDOWS and len(given) == 1


def _in_batch_of(graph: Graph, count: int) -> Graph:
    """Return ``graph`` with a batch of ``count`` in inputs and in constants that hold shapes."""
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


class Stepper:
    """Runner of ``graph`` operator by operator on ``samples``, lists of real arrays of the same shapes.

    Raises UnsupportedError for control flow, for shapes that depend on values, and for state shared by operators.
    """

    def __init__(self, graph: Graph, samples: Sequence[Sequence[Array]]) -> None:
        self.graph = graph
        self._shaped = SpecializedGraph(graph, [np.shape(array) for array in samples[0]])
        for item, node in zip(graph.nodes, self._shaped.nodes, strict=True):
            stateful = node.mutated or Trait.STATEFUL in node.spec.traits
            if item.calls or Trait.CONTROL_FLOW in node.spec.traits or (stateful and not self._owns_its_state(item)):
                raise UnsupportedError("a stateful operator cannot be run alone", op=node.spec.name)
            if item.index in self._shaped.open:
                raise UnsupportedError("the operator's shapes depend on values", op=node.spec.name)
        infos = graph.input_infos()
        self._values: dict[int, list[Array]] = {
            index: [to_codes(info, np.asarray(sample[place])) for sample in samples]
            for place, (index, info) in enumerate(zip(graph.inputs, infos, strict=True))
        }
        self._count = len(samples)
        self._last = {index: item.index for item in graph.nodes for index in item.inputs}
        self._next = 0
        self._constants: dict[int, TensorInfo] = {}
        self._replaced: set[int] = set()  # tensors with replaced values, which are not computed again

    def _owns_its_state(self, item: GraphNode) -> bool:
        places = {place for place, operand in enumerate(item.node.spec.operands) if operand.mutated}
        readers = [index for other in self.graph.nodes for index in other.inputs]
        states = [item.inputs[place] for place in item.node.mutated]
        own = all(self.graph.tensors[index].is_variable and readers.count(index) == 1 for index in states)
        return bool(places) and places.issuperset(item.node.mutated) and own

    def go_to(self, item: GraphNode) -> None:
        """Run every operator before ``item``, which must not have run."""
        while self._next < item.index:
            self._step(self.graph.nodes[self._next])

    def run(self, item: GraphNode) -> None:
        """Run every operator up to and including ``item``, which must not have run."""
        self.go_to(item)
        self._step(item)

    def reals(self, index: int) -> Iterator[Array]:
        """Yield the value of a live tensor ``index`` for each sample."""
        info = self.graph.tensors[index]
        if info.is_const:
            return (to_reals(info, info.array()) for _ in range(self._count))
        return (to_reals(info, value) for value in self._values[index])

    def replace(self, index: int, array: Array) -> None:
        """Replace tensor ``index`` by ``array`` for later operators. The tensor must depend only on constants."""
        info = self.graph.tensors[index]
        if not info.is_const:
            self._values[index] = [array] * self._count
            self._replaced.add(index)
            return
        self._constants[index] = as_constant(info, array)

    def _step(self, item: GraphNode) -> None:
        if not self._replaced.issuperset(item.outputs):
            found = self._results(item, *self._kernel(item))
            for place, index in enumerate(item.outputs):
                self._values[index] = [results[place] for results in found] * (self._count // len(found))
        for index in item.inputs:
            if self._last[index] == item.index:
                self._values.pop(index, None)
        self._next = item.index + 1

    def results_as(self, item: GraphNode, change: Callable[[Node], Node]) -> list[Array]:
        """Return the first result of ``change(item.node)`` for each sample. ``item`` must not have run."""
        self.go_to(item)
        node = change(self._shaped.nodes[item.index])
        return [results[0] for results in self._results(item, node.spec.kernel_function(node), node)]

    def _results(self, item: GraphNode, kernel: Execute, node: Node) -> list[list[Array]]:
        """Return all results for each sample, or a single list if results are the same for all samples."""
        found = []
        constants = [None if info is None or not info.is_const else info.array() for info in node.operands]
        # An operator with only constant operands runs once for all samples.
        runs = self._count if any(index in self._values for index in item.inputs) else 1
        for number in range(runs):
            operands = [
                constant if constant is not None or index < 0 else self._value(index, number)
                for constant, index in zip_longest(constants, item.inputs)
            ]
            found.append([np.array(result) for result in kernel(operands)])
        return found

    def _value(self, index: int, number: int) -> Array:
        info = self.graph.tensors[index]
        return initial_contents(info) if info.is_variable else self._values[index][number]

    def _kernel(self, item: GraphNode) -> tuple[Execute, Node]:
        node = self._shaped.nodes[item.index]
        changed = [self._constants.get(index) for index in item.inputs]
        if not any(changed):
            return self._shaped.kernel(item.index), node
        operands = tuple(new or old for new, old in zip(changed, node.operands, strict=True))
        node = replace(node, operands=operands)
        return node.spec.kernel_function(node), node


def same_inputs(graph: Graph, samples: Sequence[Sequence[Array]]) -> list[str]:
    """Return the names of inputs that are equal in all ``samples`` although outputs clearly depend on these inputs."""
    same = [place for place, arrays in enumerate(zip(*samples, strict=True)) if alike(arrays)]
    if not same:
        return []
    names = [graph.tensors[index].name for index in graph.inputs]
    executor = HostExecutor(graph)
    return [names[place] for place in same if _decides(executor, samples[0], place)]


def _decides(executor: HostExecutor, sample: Sequence[Array], place: int) -> bool:
    """Return whether outputs change if every second element of an input changes."""
    found = []
    for start in (None, 0, 1):  # first changed element; every second element becomes 0, or 1 if it is 0
        values = np.array(sample[place]).reshape(-1)
        if start is not None and values.dtype.kind in "biuf":
            values[start::2] = (values[start::2] == 0).astype(values.dtype)
        executor.reset()
        try:
            found.append(executor.run([*sample[:place], values.reshape(sample[place].shape), *sample[place + 1 :]]))
        except OdcError:
            return False
        if any(_differs(a, b) for a, b in zip(found[0], found[-1], strict=True)):
            return True
    return False


def _differs(a: Array, b: Array) -> bool:
    plainly = 1e-3  # change of an output, relative to its largest value, that shows a dependence
    if a.dtype.kind != "f" or a.shape != b.shape:
        return not np.array_equal(a, b)
    most = plainly * float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    return not np.allclose(a, b, rtol=0.0, atol=most, equal_nan=True)


Run = Callable[[Sequence[Array]], tuple[list[Array], dict[int, Array]]]


def run_with(graph: Graph, wanted: Iterable[int]) -> Run:
    """Return a function that runs ``graph`` on a sample and returns its outputs and, by index, ``wanted`` tensors."""
    more, count = tuple(dict.fromkeys(wanted)), len(graph.outputs)
    executor = HostExecutor(replace(graph, outputs=(*graph.outputs, *more)))

    def run(sample: Sequence[Array]) -> tuple[list[Array], dict[int, Array]]:
        executor.reset()
        found = executor.run(sample)
        return found[:count], dict(zip(more, found[count:], strict=True))

    return run


def float_names(quantised: Graph, known: Mapping[str, int]) -> dict[int, str]:
    """Map tensors of ``quantised``, traced through conversions, to names of the float model's tensors."""
    names = {index: info.name for index, info in enumerate(quantised.tensors) if info.name in known}
    casts = [item for item in quantised.nodes if item.node.spec.name in CASTS]
    for item in casts:
        if item.inputs[0] in names:
            names.setdefault(item.outputs[0], names[item.inputs[0]])
    for item in reversed(casts):
        if item.outputs[0] in names:
            names.setdefault(item.inputs[0], names[item.outputs[0]])
    return names


def as_constant(info: TensorInfo, array: Array) -> TensorInfo:
    """Return ``info`` as a constant with the contents ``array``."""
    return replace(info, data=memoryview(encode_constant(array, info.dtype)), _array=None)
