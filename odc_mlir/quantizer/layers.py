"""Errors of single layers and roundings, and shares of layers, weights and multiplications in each precision.

The *isolated* error of an operator is the error if the operands are quantised values of the float model. The *effect*
is the error that this causes in the float model's outputs. The effect of a *rounding* predicts the gain of wider codes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from odc_mlir.errors import InputError, OdcError
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.spec import Array, Node, QuantKind, TensorInfo, Trait
from odc_mlir.ops.work import largest_tensor
from odc_mlir.quantizer.execution import as_constant, float_names, run_with
from odc_mlir.quantizer.measurement import signal_and_noise
from odc_mlir.quantizer.outputs import CASTS, completed, is_measurable, refused_output
from odc_mlir.quantizer.policy.options import WIDE_HEADROOM
from odc_mlir.quantizer.policy.schemes import FLOAT, activation_params
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.execution.units import SpecializedGraph
from odc_mlir.runtime.reporting.metrics import ErrorMeter, Tolerance

SHOWN = ("sqnr_db", "mpeir", "mae", "mse", "tae", "srmse")


class FloatRun:
    """All tensors of the float model for one sample, and prepared kernels of the model."""

    def __init__(self, executor: HostExecutor, sample: Sequence[Array]) -> None:
        self.values: dict[int, Array] = {}
        executor.reset()
        self.sample = sample
        self.outputs = executor.run(sample, watch=lambda index, value: self.values.update({index: value.copy()}))
        self.shaped = executor.prepare([array.shape for array in sample])


class Examination:
    """Errors of layers of quantised versions of ``graph``, the optimised and equalised float model."""

    def __init__(self, graph: Graph, samples: Sequence[Sequence[Array]]) -> None:
        self.graph = graph
        executor = HostExecutor(graph)
        self.runs = [FloatRun(executor, samples[0])]
        # Measuring an effect takes on average half a run of the model. The limits keep the work to seconds on one core,
        # and bound the bytes of stored float tensors. Means over four samples suffice to rank layers.
        most_samples, most_macs, most_bytes = 4, 4 << 30, 256 << 20
        per_operator = 1 << 15  # multiplications that take as long as the start of an operator
        macs = (self.macs + per_operator * len(graph.nodes)) * max(len(graph.nodes) // 2, 1)
        nbytes = sum(value.nbytes for value in self.runs[0].values.values())
        most = max(1, min(len(samples), most_samples, most_macs // max(macs, 1), most_bytes // max(nbytes, 1)))
        for sample in samples[1:]:
            if len(self.runs) == most:
                break
            if is_measurable((run := FloatRun(executor, sample)).outputs):
                # Drop the first run if the outputs are not measurable.
                self.runs = [*(self.runs if is_measurable(self.runs[0].outputs) else ()), run]
        self._index = {info.name: index for index, info in reversed(list(enumerate(graph.tensors)))}
        self._producers = graph.producers()

    @property
    def samples(self) -> int:
        return len(self.runs)

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates of one run."""
        return sum(node.macs for node in self.runs[0].shaped.nodes)

    def layers(self, quantised: Graph) -> list[dict[str, Any]]:
        """Return the verdict's entries for operators of ``quantised`` that the float model also has, in order."""
        names = float_names(quantised, self._index)
        coded = coded_constants(quantised)
        found: dict[int, _OperatorErrors] = {
            node.index: _OperatorErrors(node, quantised, names, coded)
            for node in quantised.nodes
            if node.node.spec.name not in CASTS and any(index in names for index in node.outputs)
        }
        executor = HostExecutor(quantised)
        for run in self.runs:
            shaped = executor.prepare([np.shape(array) for array in run.sample])
            for layer in found.values():
                if (results := self._isolated(layer, shaped, run)) is not None:
                    layer.add(run.outputs, self.outputs_with(run, results))
        return [layer.result() for layer in found.values()]

    def work(self) -> dict[str, float]:
        """Return the work of operators by result name: multiplications plus elements of the largest tensor."""
        shaped = zip(self.graph.nodes, self.runs[0].shaped.nodes, strict=True)
        works = ((item.outputs, float(node.macs + largest_tensor(node))) for item, node in shaped)
        return {self.graph.tensors[index].name: work for outputs, work in works for index in outputs}

    def hiding(self) -> set[str]:
        """Return the result names of the SOFTMAX operators with scores of exactly zero, which come from a mask."""
        results = {item.outputs[0] for item in self.graph.nodes if item.node.spec.name == "SOFTMAX"}
        return {
            self.graph.tensors[index].name
            for index in results
            if any((value := run.values.get(index)) is not None and not value.all() for run in self.runs)
        }

    def weights(self) -> dict[str, int]:
        """Return the number of constant weights of each operator, keyed by result name."""
        result: dict[str, int] = {}
        for item in self.graph.nodes:
            infos = [item.node.optional(index) for index in item.node.spec.quant.trained(item.node.options)]
            count = sum(info.array().size for info in infos if info is not None and info.is_const)
            result |= dict.fromkeys((self.graph.tensors[index].name for index in item.outputs), count)
        return result

    def edges(self) -> list[tuple[str, str, int]]:
        """Return (operator, reader of a result, number of elements) for each edge, with names of first results."""
        makers = self._producers
        return [
            (self.graph.tensors[makers[index].outputs[0]].name, self.graph.tensors[item.outputs[0]].name, value.size)
            for item in self.graph.nodes
            for index in dict.fromkeys(item.inputs)
            if index in makers and item.outputs and (value := self.runs[0].values.get(index)) is not None
        ]

    def precisions(self, quantised: Graph) -> dict[str, str]:
        """Return the precision of every operator of ``quantised`` that computes a tensor of the float model."""
        names, coded = float_names(quantised, self._index), coded_constants(quantised)
        return {
            next(names[index] for index in item.outputs if index in names): precision_of(
                lookup_of(item, quantised, names), quantised, coded
            )
            for item in quantised.nodes
            if item.node.spec.name not in CASTS and any(index in names for index in item.outputs)
        }

    def _isolated(self, layer: _OperatorErrors, shaped: SpecializedGraph, run: FloatRun) -> dict[int, Array] | None:
        """Return the real results of one operator, by float tensor, or None for unknown operands, as in loops."""
        item, tensors = layer.item, shaped.graph.tensors
        operands = [None if index < 0 else self._operand(layer, tensors[index], index, run) for index in item.inputs]
        if any(value is None and index >= 0 for value, index in zip(operands, item.inputs, strict=True)):
            return None
        try:
            results = _run_operator(shaped, item, operands)
        except OdcError:  # shapes computed from quantised operands may differ from those of the whole run
            return None
        reals: dict[int, Array] = {}
        for index, result in zip(item.outputs, results, strict=True):
            ours = self._index.get(layer.names.get(index, ""), -1)
            value = run.values.get(ours)
            if value is not None and value.shape == result.shape and tensors[index].info.kind != "handle":
                reals[ours] = to_reals(tensors[index], result)
                layer.meter.add(value, reals[ours])
        return reals

    def _operand(self, layer: _OperatorErrors, info: TensorInfo, index: int, run: FloatRun) -> Array | None:
        if index in layer.coded:
            return to_reals(layer.coded[index], layer.coded[index].array())
        if info.is_const:
            return info.array()
        if info.is_variable:
            return initial_contents(info)
        value = run.values.get(self._index.get(layer.names.get(index, ""), -1))
        if value is None or info.info.kind == "handle":
            return None
        with np.errstate(invalid="ignore"):  # a NaN has no code; any will do
            return to_codes(info, value)

    def outputs_with(self, run: FloatRun, changed: dict[int, Array]) -> list[Array]:
        """Return the float model's outputs with the values in ``changed``, or NaN if a kernel refuses a value."""
        values = {index: value for index, value in changed.items() if not np.array_equal(value, run.values[index])}
        made = (self._producers.get(index) for index in values)
        last = max((-1 if node is None else node.index for node in made), default=len(self.graph.nodes))
        for item in self.graph.nodes[last + 1 :]:
            if not item.outputs or values.keys().isdisjoint(item.inputs):
                continue
            operands = [None if index < 0 else self._value(index, values, run) for index in item.inputs]
            try:
                values.update(zip(item.outputs, _run_operator(run.shaped, item, operands), strict=True))
            except InputError:
                return list(map(refused_output, run.outputs))
        return [values.get(index, output) for index, output in zip(self.graph.outputs, run.outputs, strict=True)]

    def results_with(self, run: FloatRun, item: GraphNode, constants: Mapping[int, Array]) -> Sequence[Array]:
        """Return results of a float operator with other ``constants``, by operand position. Raises OdcError."""
        node = run.shaped.nodes[item.index]
        infos = tuple(
            info if info is None or place not in constants else as_constant(info, constants[place])
            for place, info in enumerate(node.operands)
        )
        node = replace(node, operands=infos)
        operands = [
            None if index < 0 else constants.get(place, self._value(index, {}, run))
            for place, index in enumerate(item.inputs)
        ]
        with np.errstate(all="ignore"):
            return node.spec.kernel_function(node)(operands)

    def _value(self, index: int, values: Mapping[int, Array], run: FloatRun) -> Array:
        info = self.graph.tensors[index]
        if index not in values and (info.is_const or info.is_variable):
            return info.array() if info.is_const else initial_contents(info)
        return values[index] if index in values else run.values[index]


class _OperatorErrors:
    def __init__(
        self, item: GraphNode, graph: Graph, names: Mapping[int, str], coded: Mapping[int, TensorInfo]
    ) -> None:
        self.item, self.names, self.coded = item, names, coded
        self.name = next(names[index] for index in item.outputs if index in names)
        self.precision = precision_of(item, graph, coded)
        results = (graph.tensors[index] for index in item.outputs)
        scales = {info.quant.scales for info in results if info.quant and info.is_coded}
        ((scale, *others),) = scales if len(scales) == 1 else ((None,),)
        self.meter = ErrorMeter(Tolerance(0.0, 0.0), scale=None if others else scale)
        self._effect, self._lacking = Effect(frozenset({self.name}), of_weights=False), 0

    def add(self, expected: Sequence[Array], found: Sequence[Array]) -> None:
        """Add a sample: outputs of the model before and after adding the errors of this operator."""
        self._effect.add(expected, found)
        self._lacking += any(completed(a, b)[1] for a, b in zip(expected, found, strict=True))

    def result(self) -> dict[str, Any]:
        """Return the entry of the verdict. Key ``lacking`` counts samples with non-finite outputs."""
        isolated = asdict(self.meter.errors())
        parts = [noise / power for noise, power in self._effect.sums if power]
        noise = sum(parts) / len(parts) if parts else 0.0
        return {
            "name": self.name,
            "op": self.item.node.spec.name,
            "scheme": self.precision,
            "output_sqnr_db": -10.0 * math.log10(noise) if noise else None,
            "lacking": self._lacking,
            "isolated": {key: isolated[key] for key in SHOWN},
        }


_BY_WEIGHTS = {"int16x8": ("int16", "int8"), "int8x4": ("int8", "int4")}  # scheme -> types of values and weights


def precision_of(item: GraphNode, graph: Graph, coded: Mapping[int, TensorInfo]) -> str:
    """Return the scheme of an operator by the types of results, else of operands, or ``float`` if none has codes.

    Weights distinguish int16x8 from int16, and int8x4 from int8. Float operators with quantised weights, and lookups in
    quantised tables, have weight-only precisions such as ``int8_wo``.
    """
    given = [graph.tensors[index] for index in item.outputs]
    taken = [coded.get(index, graph.tensors[index]) for index in item.inputs if index >= 0]
    moving = [info.dtype for info in (*given, *taken) if not info.is_const and info.is_coded]
    weights = [info.dtype for info in taken if info.is_const and info.is_coded and info.info.bits <= 16]
    if not moving or _looks_up_weights(item, graph):
        return f"{weights[0]}_wo" if weights else "float"
    by_weights = (name for name, (values, kind) in _BY_WEIGHTS.items() if values == moving[0] and kind in weights)
    return next(by_weights, moving[0])


def lookup_of(item: GraphNode, graph: Graph, names: Mapping[int, str]) -> GraphNode:
    """Return the lookup that ``item`` only reshapes, if the float model has one operator for both, or else ``item``."""
    source = item.node.spec.quant.source
    if source is None or item.inputs[source] in names:
        return item
    maker = next((other for other in graph.nodes if item.inputs[source] in other.outputs), item)
    table = maker.node.spec.quant.source
    return item if table is None or not graph.tensors[maker.inputs[table]].is_const else maker


def _looks_up_weights(item: GraphNode, graph: Graph) -> bool:
    """Return whether an operator moves codes of a constant that the next operator dequantises."""
    source = item.node.spec.quant.source
    if source is None or not graph.tensors[item.inputs[source]].is_const:
        return False
    readers = [reader.node.spec.name for reader in graph.nodes if not set(item.outputs).isdisjoint(reader.inputs)]
    return set(readers) == {"DEQUANTIZE"} and set(graph.outputs).isdisjoint(item.outputs)


def coded_constants(graph: Graph) -> dict[int, TensorInfo]:
    """Map each float tensor that DEQUANTIZE computes from a quantised constant to this constant."""
    return {
        item.outputs[0]: graph.tensors[item.inputs[0]]
        for item in graph.nodes
        if item.node.spec.name == "DEQUANTIZE" and graph.tensors[item.inputs[0]].is_const
    }


def _run_operator(shaped: SpecializedGraph, item: GraphNode, operands: list[Array | None]) -> Sequence[Array]:
    variant = shaped.variant(item.index, operands)
    for position in item.node.mutated:  # the operator gets a copy of its state to write
        value = operands[position]
        operands[position] = None if value is None else value.copy()
    with np.errstate(all="ignore"):
        return variant.kernel(operands)


@dataclass(slots=True)
class Effect:
    """Noise that a rounding causes in the outputs, relative to the power of the output."""

    layers: frozenset[str]  # names of the layers that compute or read the rounded tensor
    of_weights: bool  # whether the tensor is a constant
    sums: list[list[float]] = field(default_factory=list)  # per output: sums of squared errors and values
    wide: Effect | None = None  # effect of the same rounding to 16 bits, if measured

    @property
    def noise(self) -> tuple[float, ...]:
        """Relative noise of each output."""
        # Noise of an output that is uncorrelated with the expected output. Larger noise, as after a division by nearly
        # zero, is limited to this value, so that the noise of other roundings still counts.
        wrong = 2.0
        return tuple(
            wrong if not math.isfinite(error) else min(error / power, wrong) if power else float(error > 0)
            for error, power in self.sums
        )

    def add(self, expected: Sequence[Array], found: Sequence[Array]) -> None:
        """Add a sample: the outputs before and after the rounding."""
        if not self.sums:
            self.sums = [[0.0, 0.0] for _ in expected]
        for sums, a, b in zip(self.sums, expected, found, strict=True):
            # Indices and answers are only compared for equality.
            b = b if a.shape == b.shape else refused_output(a)
            signal, noise = signal_and_noise(a, b, counts=a.dtype.kind != "f")
            sums[0] += noise
            sums[1] += signal


def effects(examination: Examination, quantised: Graph) -> list[Effect]:
    """Return the effect of every rounding of ``quantised``, which is built from the examined float model."""
    # Roundings with more noise are measured with 16 bits as well: even 16 bits may be too few for values that differ
    # widely in size, or that are nearly equal and far from zero.
    loud = 0.01
    graph = examination.graph
    known = {info.name: index for index, info in enumerate(graph.tensors)}
    names = float_names(quantised, known)
    coded = _coded_values(quantised, names, known)
    moved = _sources(graph)
    readers: dict[int, set[str]] = {}
    for item in graph.nodes:
        for index in (*item.inputs, *item.outputs):
            if index >= 0:
                while index in moved:
                    index = moved[index]
                readers.setdefault(index, set()).add(_name(graph, item))
    found: list[Effect] = []
    for index, place in coded.items():
        if index in moved:
            continue  # the operator only moves codes
        effect = Effect(frozenset(readers.get(index, ())), of_weights=False)
        _add_rounding(examination, effect, index, quantised.tensors[place])
        if max(effect.noise, default=0.0) > loud:
            effect.wide = Effect(effect.layers, of_weights=False)
            _add_rounding(examination, effect.wide, index, _widened(quantised.tensors[place]))
        found.append(effect)
    originals = {_name(graph, item): item for item in graph.nodes if item.outputs}
    real = coded_constants(quantised)
    for item in quantised.nodes:
        original = originals.get(names.get(item.outputs[0], "")) if item.outputs else None
        if original is not None and item.node.spec.name not in CASTS:
            constants = {
                position: to_reals(info, info.array())
                for position, index in enumerate(item.inputs)
                if index >= 0 and (info := real.get(index, quantised.tensors[index])).is_const and info.is_coded
            }
            lookup = lookup_of(item, quantised, names)
            if lookup is not item:
                table = quantised.tensors[lookup.inputs[lookup.node.spec.quant.source or 0]]
                constants = {original.node.spec.quant.source or 0: to_reals(table, table.array())}
            found += _of_constants(examination, original, constants)
    return [effect for effect in found if any(effect.noise)]


def _add_rounding(examination: Examination, effect: Effect, index: int, info: TensorInfo) -> None:
    for run in examination.runs:
        value = run.values.get(index)
        if value is not None:
            with np.errstate(invalid="ignore"):  # a NaN has no code; any will do
                rounded = to_reals(info, to_codes(info, value)).reshape(value.shape)
            effect.add(run.outputs, examination.outputs_with(run, {index: rounded}))


def _widened(info: TensorInfo) -> TensorInfo:
    assert info.quant is not None
    scale, zero = info.quant.scales[0], info.quant.zero_points[0]
    low, high = ((1.0 + WIDE_HEADROOM) * scale * (code - zero) for code in info.info.range)
    return replace(info, dtype="int16", quant=activation_params(low, high, "int16", symmetric=True))


def ranked_effects(metric: str, errors: Mapping[str, float], names: Sequence[str], outputs: int) -> list[Effect]:
    """Return effects with the noise in a file of visq. Errors in the file accumulate over layers and only rank them."""
    squares = {name: errors[name] if metric == "mse" else errors[name] ** 2 for name in names if errors.get(name)}
    total = sum(squares.values())
    return [
        Effect(frozenset({name}), of_weights=False, sums=[[square, total] for _ in range(outputs)])
        for name, square in squares.items()
    ]


def _of_constants(examination: Examination, item: GraphNode, constants: Mapping[int, Array]) -> list[Effect]:
    """Return the effect of other ``constants`` of ``item``, keyed by operand, or [] if the operator cannot run."""
    if not constants or item.node.mutated or any(position >= len(item.inputs) for position in constants):
        return []
    effect = Effect(frozenset({_name(examination.graph, item)}), of_weights=True)
    for run in examination.runs:
        try:
            results = examination.results_with(run, item, constants)
        except OdcError:
            return []
        effect.add(run.outputs, examination.outputs_with(run, dict(zip(item.outputs, results, strict=True))))
    return [effect]


def _name(graph: Graph, item: GraphNode) -> str:
    return graph.tensors[item.outputs[0]].name if item.outputs else ""


def _coded_values(quantised: Graph, names: Mapping[int, str], known: Mapping[str, int]) -> dict[int, int]:
    """Map each tensor of the float model to the first tensor of ``quantised`` with the codes of this tensor."""
    found: dict[int, int] = {}
    computed = {index for item in quantised.nodes for index in item.outputs} | set(quantised.inputs)
    for index in sorted(computed, key=lambda index: (quantised.tensors[index].name not in known, index)):
        info = quantised.tensors[index]
        if index in names and info.is_coded:
            found.setdefault(known[names[index]], index)
    return found


def _sources(graph: Graph) -> dict[int, int]:
    """Map each tensor with copied codes to the tensor with the original codes."""
    found: dict[int, int] = {}
    for item in graph.nodes:
        rule = item.node.spec.quant
        if rule.kind is QuantKind.SAME and rule.source is not None and item.inputs[rule.source] >= 0:
            found |= dict.fromkeys(item.outputs, item.inputs[rule.source])
    return found


def leaked(reference: Graph, quantised: Graph, samples: Sequence[Sequence[Array]]) -> dict[str, float]:
    """Return by SOFTMAX result name the sum of the scores at positions where ``reference`` has exact zeros."""
    ours = [item.outputs[0] for item in reference.nodes if item.node.spec.name == "SOFTMAX"]
    names = {reference.tensors[index].name: index for index in ours}
    wanted: dict[int, int] = {}  # float tensor -> quantised tensor
    for index, name in float_names(quantised, names).items():
        wanted.setdefault(names[name], index)
    totals, runs = np.zeros((len(wanted), 2)), (run_with(reference, wanted), run_with(quantised, wanted.values()))
    most_samples = 4  # a mask hides the same positions in nearly every run
    for sample in samples[:most_samples] if wanted else ():
        _, expected = runs[0](sample)
        if all(array.all() for array in expected.values()):
            continue
        with suppress(InputError):  # measures count refused samples
            _, found = runs[1](list(map(to_codes, quantised.input_infos(), sample)))
            for sums, (own, index) in zip(totals, wanted.items(), strict=True):
                reals = np.abs(to_reals(quantised.tensors[index], found[index]))
                if not expected[own].all() and expected[own].shape == reals.shape:
                    sums += reals[expected[own] == 0].sum(dtype=np.float64), reals.sum(dtype=np.float64)
    hidden = zip(wanted, totals.tolist(), strict=True)
    return {reference.tensors[own].name: masked / total for own, (masked, total) in sorted(hidden) if total}


UNITS = ("macs", "weights", "layers")
UNIT_NAMES = {"macs": "products", "weights": "weights", "layers": "layers"}

# Minimum coverage of a quantised model. If no target is given: half of the multiplications. For a target: nearly all
# that the target could run: a host takes about 50 times as long per product as npu-256, so that 5 % dominate.
LEAST_COVERAGE = 0.5
LEAST_TARGET_COVERAGE = 0.95


@dataclass(slots=True)
class Coverage:
    """Numbers of layers, weights and multiply-accumulates by precision, for layers with real values."""

    by_precision: dict[str, Counter[str]] = field(default_factory=dict)
    computing: set[str] = field(default_factory=set)  # precisions of layers that do more than move values

    def left(self, unit: str) -> int:
        """Return the number of layers, weights or multiplications (``unit``) that stay float."""
        return self.by_precision.get(FLOAT, Counter())[unit]

    def share(self) -> float | None:
        """Quantised share of :attr:`unit`, or None if there is nothing to quantise."""
        total = sum(counts[self.unit] for counts in self.by_precision.values())
        return (total - self.left(self.unit)) / total if total else None

    @property
    def unit(self) -> str:
        """Unit of the share: multiplications, or layers in a model without multiplications."""
        every = self.by_precision.values()
        return next((unit for unit in UNITS if any(counts[unit] for counts in every)), UNITS[-1])

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the verdict."""
        return {
            "unit": self.unit,
            "share": self.share(),
            "precisions": {
                name: {unit: counts[unit] for unit in UNITS} for name, counts in sorted(self.by_precision.items())
            },
        }


def coverage_of(graph: Graph, shapes: list[tuple[int, ...]], names: Mapping[str, str]) -> Coverage:
    """Return the coverage of a quantised ``graph`` for inputs of ``shapes``. ``names``: precisions to rename."""
    coded = coded_constants(graph)
    found = Coverage()
    for item, node in zip(graph.nodes, SpecializedGraph(graph, shapes).nodes, strict=True):
        if item.node.spec.name in CASTS:
            continue
        precision = precision_of(item, graph, coded)
        if precision == FLOAT and all(info.info.kind != "float" for info in (*node.results, *node.operands) if info):
            continue
        weights = sum(_elements(node, index) for index in node.spec.quant.trained(node.options))
        name = precision if weights else names.get(precision, precision)
        counts = found.by_precision.setdefault(name, Counter())
        if weights or Trait.SAME_QUANT not in node.spec.traits:
            found.computing.add(name)
        counts.update(layers=1, macs=node.macs, weights=weights)
    return found


def _elements(node: Node, index: int) -> int:
    info = node.optional(index)
    if info is None or not (info.is_const or (index in node.spec.quant.weights and info.quant is not None)):
        return 0
    return math.prod(size or 1 for size in info.shape or ())
