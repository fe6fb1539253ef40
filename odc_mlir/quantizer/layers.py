"""Which layers lose accuracy: each operator of a quantised model alone, and all of them together.

* *Isolated*: an operator of the quantised model gets what the float model computes, as codes; its results are compared
  with the float model's. That shows what this operator adds: rounded inputs, rounded weights, rounded results.
* *Effect*: the isolated results go into the float model instead of its own, and the rest of the float model is
  computed anew. That shows what the operator alone does to the outputs, without quantising the model once per operator.
* *Accumulated*: every tensor of a run of the whole quantised model against the float model's tensor of that name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace

import numpy as np

from odc_mlir.errors import InputError, OdcError
from odc_mlir.ops.constants import encode_constant, initial_contents
from odc_mlir.ops.spec import Array, TensorInfo
from odc_mlir.ops.work import largest_tensor
from odc_mlir.quantizer.measurement import signal_and_noise
from odc_mlir.quantizer.missing import completed, nothing, tells
from odc_mlir.quantizer.policy.layer_errors import LayerError
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.execution.specialization import SpecializedGraph
from odc_mlir.runtime.reporting.metrics import ErrorMeter, Tolerance

CASTS = frozenset({"QUANTIZE", "DEQUANTIZE"})
SHOWN = ("sqnr_db", "mpeir", "mae", "mse", "tae", "srmse")

_MOST_SAMPLES = 8
# What examining may cost: multiply-accumulates of all runs, and bytes of float tensors that are kept.
_MACS = 4 << 30
_BYTES = 256 << 20
_EXACT = Tolerance(0.0, 0.0)


class FloatRun:
    """All tensors of the float model for one sample, and its prepared kernels."""

    def __init__(self, executor: HostExecutor, sample: Sequence[Array]) -> None:
        self.values: dict[int, Array] = {}
        executor.reset()
        self.outputs = executor.run(sample, watch=self._keep)
        self.shaped = executor.prepare([array.shape for array in sample])

    def _keep(self, index: int, value: Array) -> None:
        self.values[index] = value.copy()


class Examination:
    """Examines quantised versions of the model in ``graph``, whose tensors have the same names.

    ``graph`` is the float model that was quantised: optimised and equalised, before any tensor has got a type.
    """

    def __init__(self, graph: Graph, samples: Sequence[Sequence[Array]]) -> None:
        self.graph = graph
        executor = HostExecutor(graph)
        self.runs, self._samples = [FloatRun(executor, samples[0])], [samples[0]]
        most = self._count(len(samples))
        for sample in samples[1:]:
            if len(self.runs) == most:
                break
            self._show(FloatRun(executor, sample), sample)
        self._index = {info.name: index for index, info in reversed(list(enumerate(graph.tensors)))}
        self._producer = {index: node.index for node in graph.nodes for index in node.outputs}

    def _show(self, run: FloatRun, sample: Sequence[Array]) -> None:
        """Examine layers with one more sample if it tells anything, instead of the first if that does not."""
        if not tells(run.outputs):
            return
        if not tells(self.runs[0].outputs):
            self.runs.clear()
            self._samples.clear()
        self.runs.append(run)
        self._samples.append(sample)

    @property
    def samples(self) -> int:
        """How many samples layers are examined with."""
        return len(self.runs)

    @property
    def macs(self) -> int:
        """The multiply-accumulates of one run."""
        return sum(node.macs for node in self.runs[0].shaped.nodes)

    def _count(self, available: int) -> int:
        """As many samples as time and memory allow: work is half the model for each of its operators."""
        macs = self.macs * max(len(self.graph.nodes) // 2, 1)
        nbytes = sum(value.nbytes for value in self.runs[0].values.values())
        return max(1, min(available, _MOST_SAMPLES, _MACS // max(macs, 1), _BYTES // max(nbytes, 1)))

    def layers(self, quantised: Graph, *, effects: bool = True, accumulated: bool = True) -> list[LayerError]:
        """The errors of every operator of ``quantised`` that computes something of the float model.

        In program order; conversions between types belong to no layer. Without ``effects`` the costly part is left out.
        """
        names = float_names(quantised, self._index)
        coded = coded_constants(quantised)
        found: dict[int, _OperatorErrors] = {
            node.index: _OperatorErrors(node, quantised, names, coded)
            for node in quantised.nodes
            if node.node.spec.name not in CASTS and any(index in names for index in node.outputs)
        }
        if accumulated:
            self._accumulate(quantised, found.values(), names)
        for run, sample in zip(self.runs, self._samples, strict=True):
            shaped = _prepared(quantised, sample)
            for layer in found.values():
                results = self._isolated(layer, shaped, run, names, coded)
                if results is not None and effects:
                    layer.add_effect(run.outputs, self.outputs_with(run, results))
        return [layer.result() for layer in found.values()]

    def work(self) -> dict[str, float]:
        """What each operator costs to run, by the names of its results: products, and values of its largest tensor."""
        result: dict[str, float] = {}
        for item, node in zip(self.graph.nodes, self.runs[0].shaped.nodes, strict=True):
            for index in item.outputs:
                result[self.graph.tensors[index].name] = float(node.macs + largest_tensor(node))
        return result

    def hiding(self) -> set[str]:
        """The SOFTMAX, by result, that give nothing at all to some of their operands: a mask hides these."""
        results = {item.outputs[0] for item in self.graph.nodes if item.node.spec.name == "SOFTMAX"}
        return {
            self.graph.tensors[index].name
            for index in results
            if any((value := run.values.get(index)) is not None and not value.all() for run in self.runs)
        }

    def weights(self) -> dict[str, int]:
        """How many constant weights each operator has, by the names of its results."""
        result: dict[str, int] = {}
        for item in self.graph.nodes:
            infos = [item.node.optional(index) for index in item.node.spec.quant.trained(item.node.options)]
            count = sum(info.array().size for info in infos if info is not None and info.is_const)
            result |= dict.fromkeys((self.graph.tensors[index].name for index in item.outputs), count)
        return result

    def edges(self) -> list[tuple[str, str, int]]:
        """Operators by their first result and those that read their results, with how many elements are passed."""
        makers = {index: item for item in self.graph.nodes for index in item.outputs}
        return [
            (self.graph.tensors[makers[index].outputs[0]].name, self.graph.tensors[item.outputs[0]].name, value.size)
            for item in self.graph.nodes
            for index in dict.fromkeys(item.inputs)
            if index in makers and item.outputs and (value := self.runs[0].values.get(index)) is not None
        ]

    def precisions(self, quantised: Graph) -> dict[str, str]:
        """The precision of every operator of ``quantised`` that computes something of the float model."""
        names, coded = float_names(quantised, self._index), coded_constants(quantised)
        return {
            next(names[index] for index in item.outputs if index in names): precision_of(
                lookup_of(item, quantised, names), quantised, coded
            )
            for item in quantised.nodes
            if item.node.spec.name not in CASTS and any(index in names for index in item.outputs)
        }

    def _isolated(
        self,
        layer: _OperatorErrors,
        shaped: SpecializedGraph,
        run: FloatRun,
        names: Mapping[int, str],
        coded: Mapping[int, TensorInfo],
    ) -> dict[int, Array] | None:
        """The results of one operator fed with the float model's values, as reals by float tensor index.

        None where its operands are not among those, as inside loops, or stand for state of the whole run.
        """
        item, tensors = layer.item, shaped.graph.tensors
        operands: list[Array | None] = []
        for index in item.inputs:
            value = None
            if index in coded:
                value = to_reals(coded[index], coded[index].array())
            elif index >= 0:
                value = self._operand(tensors[index], index, run, names)
            if index >= 0 and value is None:
                return None
            operands.append(value)
        try:
            results = _run_operator(shaped, item, operands)
        except OdcError:  # what shapes decide may differ from the run as a whole
            return None
        reals: dict[int, Array] = {}
        for index, result in zip(item.outputs, results, strict=True):
            ours = self._index.get(names.get(index, ""))
            if (
                ours is None
                or ours not in run.values
                or run.values[ours].shape != result.shape
                or _is_handle(tensors[index])
            ):
                continue
            reals[ours] = to_reals(tensors[index], result)
            layer.meter.add(run.values[ours], reals[ours])
        return reals

    def _operand(self, info: TensorInfo, index: int, run: FloatRun, names: Mapping[int, str]) -> Array | None:
        if info.is_const:
            return info.array()
        if info.is_variable:
            return initial_contents(info)
        value = run.values.get(self._index.get(names.get(index, ""), -1))
        if value is None or _is_handle(info):
            return None
        with np.errstate(invalid="ignore"):  # a NaN has no code; any will do
            return to_codes(info, value)

    def outputs_with(self, run: FloatRun, changed: dict[int, Array]) -> list[Array]:
        """The float model's outputs when the tensors in ``changed`` have these values, which kernels may refuse."""
        try:
            return self._outputs_with(run, changed)
        except InputError:
            return list(map(nothing, run.outputs))

    def _outputs_with(self, run: FloatRun, changed: dict[int, Array]) -> list[Array]:
        values = {index: value for index, value in changed.items() if not np.array_equal(value, run.values[index])}
        last = max((self._producer.get(index, -1) for index in values), default=len(self.graph.nodes))
        for item in self.graph.nodes[last + 1 :]:
            if not item.outputs or not any(index in values for index in item.inputs):
                continue
            operands = [
                None if index < 0 else self._value(index, values, run, written=place in item.node.mutated)
                for place, index in enumerate(item.inputs)
            ]
            for index, result in zip(item.outputs, _run_operator(run.shaped, item, operands), strict=True):
                values[index] = result
        return [values.get(index, output) for index, output in zip(self.graph.outputs, run.outputs, strict=True)]

    def results_with(self, run: FloatRun, item: GraphNode, constants: Mapping[int, Array]) -> Sequence[Array]:
        """The results of an operator of the float model with other constants, by position; raises OdcError."""
        node = run.shaped.nodes[item.index]
        infos = tuple(
            info if info is None or place not in constants else as_constant(info, constants[place])
            for place, info in enumerate(node.operands)
        )
        node = replace(node, operands=infos)
        operands = [
            None if index < 0 else constants.get(place, self._value(index, {}, run, written=False))
            for place, index in enumerate(item.inputs)
        ]
        with np.errstate(all="ignore"):
            return node.spec.kernel_function(node)(operands)

    def _value(self, index: int, values: Mapping[int, Array], run: FloatRun, *, written: bool) -> Array:
        """What an operator reads; one that writes it gets a copy, and variables are as at the beginning of a run."""
        info = self.graph.tensors[index]
        if index in values:
            found = values[index]
        elif info.is_const:
            found = info.array()
        elif info.is_variable:
            found = initial_contents(info)
        else:
            found = run.values[index]
        return found.copy() if written else found

    def _accumulate(self, quantised: Graph, layers: Iterable[_OperatorErrors], names: Mapping[int, str]) -> None:
        by_tensor = {index: layer for layer in layers for index in layer.item.outputs if index in names}
        executor = HostExecutor(quantised)
        for run, sample in zip(self.runs, self._samples, strict=True):

            def compare(index: int, value: Array, run: FloatRun = run) -> None:
                layer = by_tensor.get(index)
                if layer is None:
                    return
                expected = run.values.get(self._index.get(names[index], -1))
                if expected is not None and expected.shape == value.shape:
                    layer.accumulated.add(expected, to_reals(quantised.tensors[index], value))

            executor.reset()
            with suppress(InputError):  # of a sample that a kernel refuses, what has been before is compared
                executor.run(list(map(to_codes, quantised.input_infos(), sample)), watch=compare)


class _OperatorErrors:
    """Adds up the errors of one operator."""

    def __init__(
        self, item: GraphNode, graph: Graph, names: Mapping[int, str], coded: Mapping[int, TensorInfo]
    ) -> None:
        self.item = item
        self.name = next(names[index] for index in item.outputs if index in names)
        self.precision = precision_of(item, graph, coded)
        scale = _scale_of(item, graph)
        self.meter = ErrorMeter(_EXACT, scale=scale)
        self.accumulated = ErrorMeter(_EXACT, scale=scale)
        self._lacking = 0
        self._sums: dict[int, list[float]] = {}  # by output: what was added to it, and what it was, as sums of squares

    def add_effect(self, expected: Sequence[Array], found: Sequence[Array]) -> None:
        """The model's outputs without and with this operator's errors."""
        for place, (a, b) in enumerate(zip(expected, found, strict=True)):
            if a.shape != b.shape:
                continue
            sums = self._sums.setdefault(place, [0.0, 0.0])
            # an index or an answer is right or wrong
            signal, noise = signal_and_noise(a, b, counts=a.dtype.kind != "f")
            sums[0] += noise
            sums[1] += signal
        self._lacking += any(completed(a, b)[1] for a, b in zip(expected, found, strict=True))

    def result(self) -> LayerError:
        """The errors over all samples."""
        isolated, accumulated = asdict(self.meter.errors()), asdict(self.accumulated.errors())
        return LayerError(
            self.name,
            self.item.node.spec.name,
            self.precision,
            {key: isolated[key] for key in SHOWN},
            {key: accumulated[key] for key in SHOWN},
            noise := self._noise(),
            -10.0 * math.log10(noise) if noise else None,
            self._lacking,
        )

    def _noise(self) -> float:
        """The noise in an output as a part of it, the mean over all outputs that are not zero: these have no part."""
        parts = [noise / power for noise, power in self._sums.values() if power]
        return sum(parts) / len(parts) if parts else 0.0


_BY_WEIGHTS = {"int16x8": ("int16", "int8"), "int8x4": ("int8", "int4")}  # schemes that weights tell from others


def precision_of(item: GraphNode, graph: Graph, coded: Mapping[int, TensorInfo]) -> str:
    """The scheme that an operator is in, by the types of its values; ``float`` where there are no codes.

    Results tell, or where they are not codes, operands: state of recurrent layers has other types. Weights tell int16x8
    from int16, and int8x4 from int8; ``int8_wo`` and the like are float operators with coded weights, and lookups of
    such.
    """
    given = [graph.tensors[index] for index in item.outputs]
    taken = [coded.get(index, graph.tensors[index]) for index in item.inputs if index >= 0]
    moving = [info.dtype for info in (*given, *taken) if not info.is_const and _is_coded(info)]
    weights = [info.dtype for info in taken if info.is_const and _is_coded(info) and info.info.bits <= 16]
    if not moving or _looks_up_weights(item, graph):
        return f"{weights[0]}_wo" if weights else "float"
    by_weights = (name for name, (values, kind) in _BY_WEIGHTS.items() if values == moving[0] and kind in weights)
    return next(by_weights, moving[0])


def lookup_of(item: GraphNode, graph: Graph, names: Mapping[int, str]) -> GraphNode:
    """The lookup whose rows ``item`` only shapes, where the float model has one operator for both; else ``item``.

    ``names``: of tensors that stand for one of the float model.
    """
    source = item.node.spec.quant.source
    if source is None or item.inputs[source] in names:
        return item
    maker = next((other for other in graph.nodes if item.inputs[source] in other.outputs), item)
    table = maker.node.spec.quant.source
    return item if table is None or not graph.tensors[maker.inputs[table]].is_const else maker


def _looks_up_weights(item: GraphNode, graph: Graph) -> bool:
    """Whether an operator moves codes of a constant that are made real right after it."""
    source = item.node.spec.quant.source
    if source is None or not graph.tensors[item.inputs[source]].is_const:
        return False
    readers = [reader.node.spec.name for reader in graph.nodes if not set(item.outputs).isdisjoint(reader.inputs)]
    return set(readers) == {"DEQUANTIZE"} and set(graph.outputs).isdisjoint(item.outputs)


def _is_coded(info: TensorInfo) -> bool:
    return info.quant is not None and info.info.is_integer


def _scale_of(item: GraphNode, graph: Graph) -> float | None:
    """The step of the codes that an operator gives, None where it gives others or none."""
    scales = {info.quant.scales for info in (graph.tensors[i] for i in item.outputs) if info.quant and _is_coded(info)}
    found = scales.pop() if len(scales) == 1 else ()
    return found[0] if len(found) == 1 else None


def coded_constants(graph: Graph) -> dict[int, TensorInfo]:
    """The constants of codes by the real tensor that DEQUANTIZE makes of each."""
    return {
        item.outputs[0]: graph.tensors[item.inputs[0]]
        for item in graph.nodes
        if item.node.spec.name == "DEQUANTIZE" and graph.tensors[item.inputs[0]].is_const
    }


def float_names(quantised: Graph, known: Mapping[str, int]) -> dict[int, str]:
    """For tensors of ``quantised`` the name of the float model's tensor that they stand for.

    Tensors keep their names; what a conversion makes of one, and what one is made of, stands for the same.
    """
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
    """``info`` with other contents."""
    return replace(info, data=memoryview(encode_constant(array, info.dtype)), _array=None)


def _is_handle(info: TensorInfo) -> bool:
    return info.info.kind == "handle"


def _prepared(graph: Graph, sample: Sequence[Array]) -> SpecializedGraph:
    return HostExecutor(graph).prepare([np.asarray(array).shape for array in sample])


def _run_operator(shaped: SpecializedGraph, item: GraphNode, operands: list[Array | None]) -> Sequence[Array]:
    """One operator by its host kernel; prepared for these shapes where only a run can tell them."""
    variant = shaped.variant(item.index)
    if item.index in shaped.open:
        shapes = tuple(
            None if value is None or info is None else info.shape if info.is_const else value.shape
            for value, info in zip(operands, item.node.operands, strict=True)
        )
        variant = shaped.variants.get(item.index, shapes)
    for position in item.node.mutated:  # state that the operator writes is the run's own
        value = operands[position]
        operands[position] = None if value is None else value.copy()
    with np.errstate(all="ignore"):
        return variant.kernel(operands)
