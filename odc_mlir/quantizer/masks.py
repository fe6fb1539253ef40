"""Masks that are inputs, or computed of them: samples tell what is one, and that limiting it changes no share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.stages import FloatModel, dead_code_pass, graph_of, run_passes
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.circle_clip_masks import clip_masks
from odc_mlir.transforms.common.masks import TermSource, argument_of, is_seen_beyond, may_be_limited, sources
from odc_mlir.transforms.common.tensor_names import tell_apart
from odc_mlir.transforms.quant.common import ir as quant_ir
from odc_mlir.universe import make_context

_SAMPLES = 8  # a mask hides the same in every run, or nearly


def limited_masks(model: FloatModel, samples: Sequence[Sequence[Array]]) -> FloatModel:
    """A copy in which numbers that hide scores from a SOFTMAX are no larger than necessary; ``model`` without any.

    They are limited where that changes no share of a row in the first of ``samples``; a row that is hidden altogether
    has equal shares for all, and may change.
    """
    terms = _terms(model)
    if not terms:
        return model
    samples = samples[:_SAMPLES]
    names = {value_name(source.value) for found in terms.values() for source in found}
    ranges, expected = _run(model.graph, samples, names, set(terms))
    changed: set[str] = set()
    while True:
        kept = [source for softmax, found in terms.items() if softmax not in changed for source in found]
        seen = {
            name: ranges[name] for source in kept if is_seen_beyond(source, ranges[name := value_name(source.value)])
        }
        if not seen:
            return model
        module = model.module.clone()
        clip_masks(module, seen)
        tell_apart(module)
        run_passes(make_context(), module, [dead_code_pass()])
        _, found = _run(graph_of(module), samples, set(), set(terms))
        wrong = {name for name in terms if name not in changed and not _same_shares(expected[name], found[name])}
        if not wrong:
            return FloatModel(module)
        changed |= wrong


def _terms(model: FloatModel) -> dict[str, list[TermSource]]:
    """What may be masks, by the name of the SOFTMAX."""
    function = quant_ir.main_function(model.module)
    assert function is not None
    result = {}
    for op in quant_ir.operators(function):
        argument = argument_of(op)
        found = [] if argument is None else [source for source in sources(*argument) if may_be_limited(source)]
        if found:
            result[value_name(op.results[0])] = found
    return result


def _run(
    graph: Graph, samples: Sequence[Sequence[Array]], names: set[str], softmaxes: set[str]
) -> tuple[dict[str, tuple[float, float]], dict[str, list[Array]]]:
    """The ranges of values by name, and the results of ``softmaxes``."""
    ranges = dict.fromkeys(names, (np.inf, -np.inf))
    shares: dict[str, list[Array]] = {name: [] for name in softmaxes}
    executor = HostExecutor(graph)

    def note(index: int, value: Array) -> None:
        name = graph.tensors[index].name
        if name in ranges and value.size:
            low, high = ranges[name]
            ranges[name] = min(low, float(value.min())), max(high, float(value.max()))
        if name in shares:
            shares[name].append(value.copy())

    for sample in samples:
        executor.reset()
        executor.run(sample, watch=note)
    return ranges, shares


def _same_shares(expected: Sequence[Array], found: Sequence[Array]) -> bool:
    for old, new in zip(expected, found, strict=True):
        all_hidden = (old == old[..., :1]).all(axis=-1) if old.ndim else np.False_
        if not ((old == new).all(axis=-1) | all_hidden).all():
            return False
    return True
