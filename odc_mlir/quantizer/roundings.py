"""What each rounding alone does to the outputs: of a tensor's values, and of a layer's constants.

One tensor of the float model at a time is rounded to the codes that the quantised model has for it, or one operator
computes with the constants that its codes stand for, and the rest of the float model is computed anew. Where a layer's
error as a whole (:mod:`.layers`) tells who is to blame, this tells what wider codes would bring: those of a value count
only when all that make and read it are wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from odc_mlir.errors import OdcError
from odc_mlir.ops.quantization import QuantKind
from odc_mlir.ops.spec import Array, TensorInfo
from odc_mlir.quantizer.layers import CASTS, Examination, coded_constants, float_names, lookup_of
from odc_mlir.quantizer.measurement import signal_and_noise
from odc_mlir.quantizer.options import WIDE_HEADROOM
from odc_mlir.quantizer.policy.parameters import activation_params
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.graph import Graph, GraphNode

# The noise of an output that has nothing to do with the right one. What is worse is not: beside the greatest numbers
# that rounding makes of a division by next to nothing, all other noise would count as none.
_WRONG = 2.0

# Louder roundings are measured with 16 bits as well: of values far apart, some of which are next to nothing, or
# nearly equal ones far from zero, those may be too few as well.
_LOUD = 0.01


@dataclass(slots=True)
class Effect:
    """The noise that one rounding makes of each output, as a part of that output's power.

    ``layers``: the names of those that make or read the values; ``of_weights``: whether constants are rounded, not
    values. ``wide``: the same rounding to 16 bits, where it was measured.
    """

    layers: frozenset[str]
    of_weights: bool
    sums: list[list[float]] = field(default_factory=list)  # by output: squares of errors, and of values
    wide: Effect | None = None

    @property
    def noise(self) -> tuple[float, ...]:
        """By output."""
        return tuple(_part(error, power) for error, power in self.sums)

    def add(self, expected: Sequence[Array], found: Sequence[Array]) -> None:
        """Take in the outputs of one sample without and with the rounding."""
        if not self.sums:
            self.sums = [[0.0, 0.0] for _ in expected]
        for sums, a, b in zip(self.sums, expected, found, strict=True):
            if a.dtype.kind != "f":
                sums[0] += float(np.count_nonzero(a != b)) if a.shape == b.shape else a.size
                sums[1] += a.size
                continue
            signal, noise = signal_and_noise(a, b if a.shape == b.shape else np.zeros_like(a))
            sums[0] += noise
            sums[1] += signal


def _part(error: float, power: float) -> float:
    if not math.isfinite(error):
        return _WRONG
    return min(error / power, _WRONG) if power else float(error > 0)


def effects(examination: Examination, quantised: Graph) -> list[Effect]:
    """The effect of every rounding of ``quantised``, which is made of the float model that is examined."""
    graph = examination.graph
    known = {info.name: index for index, info in enumerate(graph.tensors)}
    names = float_names(quantised, known)
    coded = _coded_values(quantised, names, known)
    moved = _sources(graph)
    readers: dict[int, set[str]] = {}
    for item in graph.nodes:
        for index in (*item.inputs, *item.outputs):
            if index >= 0:
                readers.setdefault(_root(index, moved), set()).add(_name(graph, item))
    found: list[Effect] = []
    for index, place in coded.items():
        if index in moved:
            continue  # the same codes in another shape or order
        effect = Effect(frozenset(readers.get(index, ())), of_weights=False)
        _round(examination, effect, index, quantised.tensors[place])
        if max(effect.noise, default=0.0) > _LOUD:
            effect.wide = Effect(effect.layers, of_weights=False)
            _round(examination, effect.wide, index, _widened(quantised.tensors[place]))
        found.append(effect)
    originals = {_name(graph, item): item for item in graph.nodes if item.outputs}
    real = coded_constants(quantised)
    for item in quantised.nodes:
        original = originals.get(names.get(item.outputs[0], "")) if item.outputs else None
        if original is not None and item.node.spec.name not in CASTS:
            constants = {
                position: to_reals(info, info.array())
                for position, index in enumerate(item.inputs)
                if index >= 0
                and (info := real.get(index, quantised.tensors[index])).is_const
                and info.quant is not None
                and info.info.is_integer
            }
            lookup = lookup_of(item, quantised, names)
            if lookup is not item:
                table = quantised.tensors[lookup.inputs[lookup.node.spec.quant.source or 0]]
                constants = {original.node.spec.quant.source or 0: to_reals(table, table.array())}
            found += _of_constants(examination, original, constants)
    return [effect for effect in found if any(effect.noise)]


def _round(examination: Examination, effect: Effect, index: int, info: TensorInfo) -> None:
    """Add to ``effect`` what rounding the float model's tensor ``index`` to codes of ``info`` does to its outputs."""
    for run in examination.runs:
        value = run.values.get(index)
        if value is not None:
            with np.errstate(invalid="ignore"):  # a NaN has no code; any will do
                rounded = to_reals(info, to_codes(info, value)).reshape(value.shape)
            effect.add(run.outputs, examination.outputs_with(run, {index: rounded}))


def _widened(info: TensorInfo) -> TensorInfo:
    """``info`` with codes of 16 bits for what its own stand for, and as much beyond as such types have."""
    assert info.quant is not None
    scale, zero = info.quant.scales[0], info.quant.zero_points[0]
    low, high = ((1.0 + WIDE_HEADROOM) * scale * (code - zero) for code in info.info.range)
    return replace(info, dtype="int16", quant=activation_params(low, high, "int16", symmetric=True))


def effects_told(metric: str, errors: Mapping[str, float], names: Sequence[str], outputs: int) -> list[Effect]:
    """What errors of tensors in one of visq's metrics say of the layers called ``names``: noise in every output.

    Such errors are of a run as a whole, and so are those of the layers before, too. They only say in which order to
    look; the real models on the way are measured.
    """
    squares = {name: errors[name] if metric == "mse" else errors[name] ** 2 for name in names if errors.get(name)}
    total = sum(squares.values())
    return [
        Effect(frozenset({name}), of_weights=False, sums=[[square, total] for _ in range(outputs)])
        for name, square in squares.items()
    ]


def _of_constants(examination: Examination, item: GraphNode, constants: Mapping[int, Array]) -> list[Effect]:
    """The effect of computing ``item`` with other constants, by position; nothing where that cannot be told."""
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
    """By tensor of the float model that of ``quantised`` which first holds its codes."""
    found: dict[int, int] = {}
    made = {index for item in quantised.nodes for index in item.outputs} | set(quantised.inputs)
    for index in sorted(made, key=lambda index: (quantised.tensors[index].name not in known, index)):
        info = quantised.tensors[index]
        if index in names and info.quant is not None and info.info.is_integer:
            found.setdefault(known[names[index]], index)
    return found


def _sources(graph: Graph) -> dict[int, int]:
    """By tensor whose codes are those of another, that one."""
    found: dict[int, int] = {}
    for item in graph.nodes:
        rule = item.node.spec.quant
        if rule.kind is QuantKind.SAME and rule.source is not None and item.inputs[rule.source] >= 0:
            found |= dict.fromkeys(item.outputs, item.inputs[rule.source])
    return found


def _root(index: int, moved: Mapping[int, int]) -> int:
    while index in moved:
        index = moved[index]
    return index
