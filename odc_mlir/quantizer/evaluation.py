"""How far a quantised model is from the float one, over samples: outputs, scores with known answers, fake-quantised.

Always by host kernels with our own arithmetic, so that a verdict does not depend on what else is installed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from odc_mlir.errors import ModelError
from odc_mlir.formats.quantities import counted
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.baselines import constant_outputs, variation
from odc_mlir.quantizer.batches import BatchRunner
from odc_mlir.quantizer.columns import Columns, Lost
from odc_mlir.quantizer.deciding import DECIDED, SHARE, PlaceMeter, is_in_order, last_operator
from odc_mlir.quantizer.float_outputs import FloatOutputs, Samples
from odc_mlir.quantizer.layers import float_names
from odc_mlir.quantizer.measurement import Measurement, Powers, signal_and_noise
from odc_mlir.quantizer.missing import all_completed, exceeds
from odc_mlir.quantizer.recalls import Recall, recall_drop, recalls
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.reporting.metrics import ErrorMeter, Tolerance

_Run = tuple[list[Array], dict[int, Array]]  # of one sample outputs, and decisive tensors by index
_MayRun = tuple[list[Array] | None, dict[int, Array]]  # None where it cannot be run
_Runs = Iterator[_MayRun]

_EXACT = Tolerance(0.0, 0.0)
_MOST_TOGETHER = 1 << 16  # elements of outputs of several samples that are metered at once
# How much of a logit's squared error shows in scores of a half: of SOFTMAX in two scores, by two logits.
_SQUARED_SLOPES = {"SOFTMAX": 1 / 4, "LOGISTIC": 1 / 16}


def _column(array: Array, place: int | None, axis: int) -> Array:
    return array if place is None else np.take(array, place, axis)


class Reference(FloatOutputs):
    """The float model's answers, which candidates are compared with."""

    def measure(self, *graphs: Graph, keep: bool = False) -> Measurement:
        """Run ``graphs``, which take turns, on all samples and compare; ``keep`` their outputs.

        Quantised inputs and outputs are converted. Raises ModelError when the models' outputs do not correspond.
        """
        outputs = graphs[0].output_infos()
        if len(outputs) != len(self.graph.outputs):
            raise ModelError(
                f"the quantised model has {counted(len(outputs), 'output')}, the other {len(self.graph.outputs)}"
            )
        parts = [self._runs(graph, self.samples[place :: len(graphs)]) for place, graph in enumerate(graphs)]
        return self._compared(parts, [info.name for info in outputs], keep)

    def unsettled(self, measured: Measurement) -> dict[int, float]:
        """By output of scores the square of the error in one of a half, between two answers, as logits' errors have it.

        Of samples that are all sure, scores show nothing of that: errors of logits hardly change what is nearly one.
        """
        found = {}
        for part, (place, at) in enumerate(self._parts):
            node = last_operator(self.graph, self.graph.outputs[place])
            slope = 0.0 if node is None or at is not None else _SQUARED_SLOPES.get(node.node.spec.name, 0.0)
            if slope:
                size = self._expected[0][self._decisive[place]].size
                found[place] = slope * float(np.median(measured.decisive.noise[part])) / max(1, size)
        return found

    @cached_property
    def constant_measures(self) -> list[dict[str, float | None]]:
        """What limits are checked against, of outputs that say nothing; see :mod:`.baselines`.

        None where those of the float model are the same for all samples, and so say nothing either.
        """
        names = [info.name for info in self.graph.output_infos()]
        every = list(zip(*self.outputs, strict=True))
        made = [] if self.constant else constant_outputs(every, list(self.places))
        return [self.metrics(self._compared([itertools.repeat((found, {}))], names, False)) for found in made]

    @cached_property
    def _variation(self) -> list[float]:
        """Of each output what it varies by over all samples; see :func:`.baselines.variation`."""
        every = list(zip(*self.outputs, strict=True))
        return [float(found.sum()) for found in variation(every, list(self.places))]

    def _compared(self, parts: Sequence[_Runs], names: list[str], keep: bool) -> Measurement:
        """What ``parts``, which take turns, give for the samples, beside the float model."""
        answering = self.answering_places
        meters = [
            PlaceMeter()
            if place in self.places
            else ErrorMeter(_EXACT, top=place in answering, classes=self.classes(place), interval=span)
            for place, span in enumerate(self.spans)
        ]
        noise = np.zeros(len(self.spans))
        columns = [[expected.like() for expected in every] for every in self._columns]
        powers, results = np.zeros((2, 2, len(self._parts), len(self.samples)))
        found_reals: list[list[Array]] = []
        decided: dict[int, list[float]] = {place: [] for place in self._deciding}
        lacking = exceeding = 0
        for number, expected, (reals, kept), lacks in self._metered(parts, meters, columns):
            lacking += lacks
            exceeding += any(map(exceeds, expected, reals))
            for part, (place, at) in enumerate(self._parts):
                a, b = (_column(found[place], at, self.columns(place).axis) for found in (expected, reals))
                own = signal_and_noise(a, b, place in self.places)
                index = self._decisive[place]
                # A model without a tensor of that name is compared by its outputs.
                decisive = (
                    own
                    if at is not None or index not in kept
                    else signal_and_noise(self._expected[number][index], kept[index])
                )
                powers[:, part, number], results[:, part, number] = decisive, own
                noise[place] += own[1]
            for place, shares in decided.items():
                shares.append(self._share_decided(number, place, reals[place], kept.get(self._decisive[place])))
            found_reals.append(reals if keep else reals[: self._answering.output + 1])
        lost = [self._lost(place, found) for place, found in enumerate(columns)]
        return Measurement(
            [meter.errors() for meter in meters],
            Powers(*powers),
            Powers(*results),
            names,
            None if self.scorer is None else self.scorer.of(self.answers(found_reals)),
            {place: sum(shares) / len(shares) for place, shares in decided.items()},
            [1.0 - float(a / b) if b else None for a, b in zip(noise, self._variation, strict=True)],
            found_reals if keep else [],
            [gone for gone, _ in lost],
            [partly for _, partly in lost],
            self._recalls(found_reals),
            lacking,
            exceeding,
        )

    def _metered(
        self,
        parts: Sequence[_Runs],
        meters: Sequence[ErrorMeter | PlaceMeter],
        columns: Sequence[Sequence[Columns]],
    ) -> Iterator[tuple[int, Sequence[Array], _Run, bool]]:
        """Each sample's number, outputs, what ``parts``, which take turns, give for it, and whether that lacks numbers.

        ``meters`` and ``columns`` of each output have seen that. Small outputs of many samples are shown to them
        together, as most of the time would go into calls.
        """
        count = max(1, _MOST_TOGETHER // max(1, sum(array.size for array in self.outputs[0])))
        for start in range(0, len(self.outputs), count):
            outputs = self.outputs[start : start + count]
            given = [next(parts[number % len(parts)]) for number in range(start, start + len(outputs))]
            every_run = [all_completed(expected, reals) for expected, (reals, _) in zip(outputs, given, strict=True)]
            found = [(reals, kept) for (reals, _), (_, kept) in zip(every_run, given, strict=True)]
            for place, (meter, found_columns) in enumerate(zip(meters, columns, strict=True)):
                every, others = [expected[place] for expected in outputs], [reals[place] for reals, _ in found]
                for a, b in zip(every, others, strict=True):
                    if a.shape != b.shape:
                        raise ModelError(f"an output has the shape {b.shape}, the float model's {a.shape}")
                meter.add_all(every, others)
                for column in found_columns:
                    column.add_all(others, every)
            lacks = [lacks for _, lacks in every_run]
            yield from zip(range(start, start + len(outputs)), outputs, found, lacks, strict=True)

    def _recalls(self, found: Sequence[Sequence[Array]]) -> list[Recall]:
        return [] if self.labels is None else recalls(self._firsts, self.answers(found), self.labels)

    def _lost(self, place: int, found: Sequence[Columns]) -> tuple[list[Lost], list[Lost]]:
        """The columns of output ``place`` that are lost, or in part, in a model that has the columns ``found``."""
        made: tuple[list[Lost], list[Lost]] = [], []
        for number, (columns, others) in enumerate(zip(self._columns[place], found, strict=True)):
            lost = columns.lost(others, single=number == 0 and self.splits(place))
            width, are_shares = len(columns.low), self.are_shares(place)
            for kind, (every, places) in enumerate(zip(made, lost, strict=True)):
                every += [Lost(places, columns.axis, width, are_shares, bool(kind))] if places else []
        return made

    def _share_decided(self, number: int, place: int, found: Array, decisive: Array | None) -> float:
        """The share of answers in output ``place`` of sample ``number`` that are the float model's, or nearly.

        ``decisive``: what they were decided by, if that is known.
        """
        if place not in self.places:
            return self.decides_alike(number, found, place)
        expected = self.outputs[number][place]
        alike = np.ravel(expected == found)
        if place in self._undecided:
            places, searched = self.places[place], self._expected[number][self.places[place].searched]
            alike = alike | places.nearly(searched, expected, found)
            if decisive is not None:
                alike = alike * places.shares_of_ties(searched, expected, found, decisive)
        return float(np.mean(alike)) if alike.size else 1.0

    def _runs(self, graph: Graph, samples: Samples) -> _Runs:
        """What ``graph`` makes of each sample: its outputs, and the decisive tensors, as reals."""
        inputs, outputs = graph.input_infos(), graph.output_infos()
        known = self._known_in(graph)
        names = float_names(graph, known)
        computed = (*graph.inputs, *(index for item in graph.nodes for index in item.outputs))
        # Of tensors that stand for the same the last has been through all that there is.
        last = {names[index]: index for index in computed if index in names}
        more = tuple(dict.fromkeys(last.values()))
        runner = BatchRunner(dataclasses.replace(graph, outputs=(*graph.outputs, *more)))
        for found in runner.run_where_it_can([list(map(to_codes, inputs, sample)) for sample in samples]):
            if found is None:
                yield None, {}
                continue
            codes = zip(more, found[len(outputs) :], strict=True)
            kept = {known[names[index]]: to_reals(graph.tensors[index], value) for index, value in codes}
            yield [to_reals(info, value) for info, value in zip(outputs, found, strict=False)], kept

    def _known_in(self, graph: Graph) -> dict[str, int]:
        """The decisive tensors by name that ``graph`` has with the same order of elements."""
        axes = {place: places.from_end(self.graph) for place, places in self.places.items()}
        return {
            self.graph.tensors[index].name: index
            for place, index in enumerate(self._decisive)
            if is_in_order(graph, graph.outputs[place], axes.get(place))
        }

    def metrics(self, measurement: Measurement) -> dict[str, float | None]:
        """What limits are checked against."""
        result = measurement.worst() | self.by_output(DECIDED, measurement.decided)
        if result[SHARE] is not None:
            found = {place: errors.top1_match for place, errors in enumerate(measurement.outputs)}
            result |= self.by_output(SHARE, found)
        if measurement.scored is not None:
            result["drop"] = measurement.scored.drop
            if measurement.scored.column_drop is not None:
                result["column_drop"] = measurement.scored.column_drop
        if measurement.recalls:
            result["recall_drop"] = recall_drop(measurement.recalls)
        return result
