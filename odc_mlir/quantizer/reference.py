"""Outputs of the float model, and the comparison of quantised models with these outputs.

Models run on host kernels with our arithmetic. A verdict therefore does not depend on other installed software.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import InputError, ModelError
from odc_mlir.formats.quantities import counted
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer import outputs as kinds
from odc_mlir.quantizer.execution import float_names, run_in_batches, run_with
from odc_mlir.quantizer.measurement import Measurement, Powers, constant_outputs, signal_and_noise, variation
from odc_mlir.quantizer.outputs import Answering, Columns, Lost
from odc_mlir.quantizer.policy.ranges import extremes
from odc_mlir.quantizer.policy.verdict import MPEIR_LIMIT, OF_ANSWERS, OF_LABELS, Answers, measure_key, metric_name
from odc_mlir.quantizer.samples import check_unit
from odc_mlir.quantizer.states import Rollout
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.reporting.labels import check_answers, check_class_numbers, meant_for, misfit
from odc_mlir.runtime.reporting.metrics import INTERVALS, ErrorMeter, Tolerance, interval_of
from odc_mlir.runtime.reporting.scores import OF_NUMBERS, Scorer, compared, recall_drop, recalls, said, yes_above

Samples = Sequence[Sequence[Array]]
_SLIGHT = MPEIR_LIMIT.bound  # relative to an output's range


_Run = tuple[list[Array], dict[int, Array]]  # outputs of one sample, and decisive tensors by index
_MayRun = tuple[list[Array] | None, dict[int, Array]]  # None if the sample cannot be run
_Runs = Iterator[_MayRun]


class Reference:
    """Outputs of the float model for ``samples``, kinds of outputs, and the comparison of candidates.

    ``labels``: a known answer for each sample (see :func:`odc_mlir.runtime.reporting.scores.score`). ``like``:
    reference of the same model for other samples. It determines the kinds of outputs and has checked labels.
    ``metric``: metric that the user limits. A metric of answers decides that outputs of unclear kind are answers.
    ``rollout``: sequences of which the samples are frames.
    """

    def __init__(
        self,
        graph: Graph,
        samples: Samples,
        labels: Array | None = None,
        *,
        like: Reference | None = None,
        metric: str | None = None,
        rollout: Rollout | None = None,
    ) -> None:
        if not samples:
            raise InputError("there are no samples to compare the models on")
        self.graph, self.samples = graph, samples
        self.names = [info.name for info in graph.output_infos()]
        self._like = like
        self.rollout: Rollout | None = rollout if like is None else like.rollout
        self._asks_for_classes = metric is not None and metric_name(metric) in OF_ANSWERS - OF_LABELS
        self.places = {
            place: p for place, at in enumerate(graph.outputs) if (p := kinds.places_of(graph, at)) is not None
        }
        # Outputs of truths and indices, which are compared by the share of equal values.
        self.equalities = {p for p, at in enumerate(graph.outputs) if kinds.are_right_or_wrong(graph, at)}
        self._decisive = [
            kinds.decisive_tensor(graph, at, self.places.get(place)) for place, at in enumerate(graph.outputs)
        ]
        self._makers = [kinds.last_operator(graph, at) for at in graph.outputs]
        self._kinds = ["" if node is None else node.node.spec.name for node in self._makers]  # producers of outputs
        run = run_with(graph, {*self._decisive, *(places.searched for places in self.places.values())})
        self.outputs: list[list[Array]] = []
        self._expected: list[dict[int, Array]] = []  # per sample: decisive tensors by index
        for sample in samples:
            outputs, found = run(sample)
            self.outputs.append(outputs)
            self._expected.append(found)
        self._yes_above: float | None = None if labels is None or like is None else like._yes_above  # see yes_above
        self._answering: Answering = Answering() if labels is None or like is None else like._answering
        if labels is not None and like is None:
            self._answering = kinds.answering(graph, self.outputs[0], labels[0].size)
        firsts: Sequence[Array] = self.answers(self.outputs)
        if labels is not None and like is None:
            self._yes_above = yes_above(firsts, labels)
            with meant_for(self.names, self._answering.output):
                check_class_numbers(firsts, labels)
                check_unit(
                    graph, samples, firsts, labels, lambda others: self.answers([run(sample)[0] for sample in others])
                )
                firsts, labels = compared(firsts, labels)
                check_answers(firsts, labels)
        self.labels, self._firsts = labels, firsts
        self.scorer = None if labels is None else Scorer(firsts, labels)
        self.misfit = None if labels is None else misfit(firsts, labels)
        self.spans = [self._span(place) for place in range(len(graph.outputs))]
        axes = kinds.ChannelAxes(graph)
        self._columns = [
            kinds.columns_of(
                () if place in self.equalities else arrays,
                partial(axes.are_along, graph.outputs[place], self.outputs[0][place].shape),
            )
            for place, arrays in enumerate(zip(*self.outputs, strict=True))
        ]
        self._parts: list[tuple[int, int | None]] = []  # (output, None), or (output, column) if columns differ in size
        for place in range(len(graph.outputs)):
            own = self.columns(place)
            is_split = not self.has_scores(place) and own.differ and self.has_own_columns(place)
            self._parts += [(place, column) for column in range(len(own.low))] if is_split else [(place, None)]
        self._undecided: set[int] = set() if like is None else like._undecided  # outputs with nearly tied classes
        for place, places in self.places.items() if like is None else ():
            classes = self._expected[0][places.searched].shape[places.axis]
            if places.may_be_undecided(graph, [outputs[place] for outputs in self.outputs], classes):
                self._undecided.add(place)

    def answers(self, outputs: Sequence[Sequence[Array]]) -> list[Array]:
        """Return the answers of each sample, to compare with labels: reals, or integers for indices."""
        first = [self._answering.of(found) for found in outputs]
        if self._answering.output in self.places:
            return [found.astype(np.int64) for found in first]
        first = [found.astype(np.float64) if found.dtype.kind in "iu" else found for found in first]
        return first if self._yes_above is None else said(first, self._yes_above)

    @property
    def scores(self) -> Mapping[str, float] | None:
        """Scores of the float model, the deciding measure first, or None if there are no labels."""
        return None if self.scorer is None else self.scorer.before

    @property
    def metric(self) -> str | None:
        """Name of the score by known answers, or None if there are no labels."""
        return None if self.scorer is None else self.scorer.metric

    @cached_property
    def silent(self) -> list[Sequence[Array]]:
        """Samples that cannot be measured, because outputs of the float model lack numbers."""
        return [
            sample
            for sample, outputs in zip(self.samples, self.outputs, strict=True)
            if not kinds.is_measurable(outputs)
        ]

    @property
    def measurable(self) -> int:
        """Number of samples with finite outputs."""
        return len(self.samples) - len(self.silent)

    @property
    def constant(self) -> bool:
        """True if all outputs are equal for all samples. A single sample needs outputs of several elements."""
        if len(self.outputs) == 1:
            return all(value.size <= 1 for value in self.outputs[0])
        return all(map(kinds.alike, zip(*self.outputs, strict=True)))

    def untold(self) -> list[tuple[int, bool]]:
        """Return the outputs that are equal for all of several samples, each with whether this is acceptable.

        It is acceptable if outputs do not depend on inputs, are not real, or share an operator with varying outputs.
        """
        places = [place for place, arrays in enumerate(zip(*self.outputs, strict=True)) if kinds.alike(arrays)]
        varied = {self.graph.outputs[place] for place in range(len(self.spans)) if place not in places}
        depends = kinds.reached(self.graph)
        beside = {index for node in self.graph.nodes if not varied.isdisjoint(node.outputs) for index in node.outputs}
        reals = (self.outputs[0][place].dtype.kind == "f" for place in places)
        return [
            (place, not real or self.graph.outputs[place] not in depends - beside)
            for place, real in zip(places, reals, strict=True)
        ]

    def columns(self, place: int) -> Columns:
        """Return the columns of output ``place`` that would be separate quantities."""
        return self._columns[place][0]

    def has_own_columns(self, place: int) -> bool:
        """Return whether columns of output ``place`` are separate quantities, not parts of one range."""
        return self.columns(place).are_single and not self.are_shares(place)

    def are_shares(self, place: int) -> bool:
        """Return whether the operator of output ``place`` defines one range for all columns."""
        node = kinds.last_operator(self.graph, self.graph.outputs[place], in_order=False)
        return node is not None and node.node.spec.name in INTERVALS.keys() | kinds.SOFTMAX

    def splits(self, place: int) -> bool:
        """Return whether columns of output ``place`` count as separate tensors."""
        return (place, None) not in self._parts

    def varies_in_units(self, place: int) -> bool:
        """Return whether output ``place`` has separate columns, and most columns vary by a tenth of the size."""
        if not self.splits(place):
            return False
        rows = [self.columns(place).rows(outputs[place]) for outputs in self.outputs]
        if len({found.shape for found in rows}) != 1:
            return True
        values = np.stack(rows).astype(np.float64)  # [samples, rows, columns]
        varies_by, sizes = values.std(axis=0).max(axis=0), np.abs(values).max(axis=(0, 1))
        return bool(np.median(varies_by - _SLIGHT * sizes) > 0.0)

    def is_bounded(self, place: int) -> bool:
        """Return whether the operator of output ``place`` defines the range."""
        return self._kinds[place] in INTERVALS

    def varies_slightly(self, place: int) -> float | None:
        """Return the variation of a bounded output if it is a tenth of the range or less, else None."""
        if not self.is_bounded(place) or len({outputs[place].shape for outputs in self.outputs}) != 1:
            return None
        found = float(np.ptp([outputs[place] for outputs in self.outputs], axis=0).max(initial=0.0))
        return found if found <= _SLIGHT * (self.spans[place] or 0.0) else None

    @cached_property
    def logits(self) -> frozenset[int]:
        """Numbers of outputs with values that count as class scores although the operator is not a SOFTMAX."""
        if self._like is not None:
            return self._like.logits
        found = set()
        for place in range(len(self.graph.outputs)):
            if self._asks_for_classes and self._may_have_rows(place):
                rows = self._rows(place, self.classes[place])
                has_logits = kinds.is_varied(np.argmax(rows, axis=1).tolist(), rows.shape[1], 1.0)
            else:
                has_logits = self._may_have_scores(place) and kinds.are_scores(self._rows(place), self._is_alone)
            found |= {place} if has_logits else set()
        return frozenset(found)

    def has_scores(self, place: int) -> bool:
        """Return whether columns of output ``place`` are scores of one unit."""
        is_softmax = self._kinds[place] in kinds.SOFTMAX and self.outputs[0][place].shape[-1:] not in ((), (1,))
        return place in self.logits or (place == 0 and (is_softmax or bool(self.places)))

    @property
    def doubts_of_scores(self) -> dict[int, str]:
        """Texts about outputs that may hold either class scores or numbers, keyed by output number."""
        found = {}
        for place in range(len(self.graph.outputs)):
            # If another output is a search in this operator's results, the indices found are the answers.
            is_searched = any(
                kinds.last_operator(self.graph, self._decisive[at]) is self._makers[place] for at in self.places
            )
            if self._may_have_scores(place) and not is_searched:
                found[place] = kinds.doubt_of_scores(self.names[place], self._rows(place), self._is_alone, place == 0)
        return {place: text for place, text in found.items() if text is not None}

    @property
    def _is_alone(self) -> bool:
        return len(self.graph.outputs) - len(self.equalities) <= 1

    def _rows(self, place: int, classes: int | None = None) -> NDArray[np.float64]:
        values = np.stack([np.ravel(outputs[place]) for outputs in self.outputs]).astype(np.float64)
        return values if classes is None else values.reshape(-1, classes)

    def classifies(self, place: int) -> bool:
        """Return whether output ``place`` holds classes or scores of classes."""
        return self._kinds[place] in kinds.SOFTMAX or place in self.equalities or place in self.logits

    @cached_property
    def classes(self) -> list[int | None]:
        """Number of classes in a row of each output, or None if the output is a single row."""
        return list(map(self._classes_of, range(len(self.graph.outputs))))

    def _classes_of(self, place: int) -> int | None:
        node = self._makers[place]
        if node is None or self._kinds[place] not in kinds.SOFTMAX:
            sizes = {outputs[place].shape for outputs in self.outputs}
            widths: set[int] = {shape[-1] for shape in sizes if shape}
            length = widths.pop() if len(widths) == 1 else 0  # length of each row
            return length if length > 1 and any(math.prod(shape) != length for shape in sizes) else None
        found = [outputs[place] for outputs in self.outputs]
        is_direct = self.graph.outputs[place] == node.outputs[0]
        shapes = {array.shape[-1:] for array in found} if is_direct else {self.graph.tensors[node.outputs[0]].shape}
        width = next(iter(shapes)) if len(shapes) == 1 else None  # rows of different lengths do not hold classes
        classes = (width[-1] if width else None) or 0
        return classes if classes > 0 and not any(array.size % classes for array in found) else None

    @cached_property
    def answers_of_one(self) -> list[Answers]:
        """Number of answers of a sample (indices or rows of classes), for each output of answers."""
        found = []
        for place in self._deciding:
            classes = self.classes[place]
            if classes != 1:
                width = 1 if place in self.equalities else classes
                mean = sum(outputs[place].size for outputs in self.outputs) / len(self.outputs)
                count = 1.0 if width is None else mean / width
                # Of several rows, such as pixels along an edge, some are always undecided. No truth is.
                is_softmax = self._kinds[place] in kinds.SOFTMAX and count == 1.0
                is_single = is_softmax or place in self.equalities - self.places.keys()
                found.append(Answers(self.names[place], kinds.SHARE if is_single else kinds.DECIDED, count))
        return found

    def by_output(self, metric: str, shares: Mapping[int, float | None]) -> dict[str, float | None]:
        """Return the minimum of ``shares`` and the share of each output of answers, keyed as in measures."""
        known = [share for share in shares.values() if share is not None]
        found: dict[str, float | None] = {metric: min(known)} if known else {}
        if len(self._deciding) > 1:
            told = (place for place in self._deciding if place in shares)
            found |= {measure_key(metric, self.names[place]): shares[place] for place in told}
        return found

    @property
    def has_values(self) -> bool:
        """True if an output holds values, which have distances, rather than indices."""
        return len(self.equalities) < len(self.graph.outputs)

    def decides_alike(self, number: int, found: Array, place: int = 0) -> float:
        """Return the share of rows in which ``found`` chooses a class with half the odds of the best, or more."""
        array = self.outputs[number][place]
        width = self.classes[place] or array.size
        if not width:
            return 1.0
        with np.errstate(divide="ignore", invalid="ignore"):  # a score of zero has the logarithm -inf
            nats = np.log(array.astype(np.float64)) if self._kinds[place] == "SOFTMAX" else array
        expected, reals = nats.reshape(-1, width), found.reshape(-1, width)
        least = expected.max(axis=-1) - kinds.UNDECIDED_NATS
        return float(kinds.share_of_ties(expected, least, reals, reals.max(axis=-1)).mean())

    def _may_have_rows(self, place: int) -> bool:
        """Return whether output ``place`` may hold logits: columns of one unit, and labels other than numbers."""
        first = self.outputs[0][place]
        return not (
            self._kinds[place] not in kinds.LOGITS
            or (place == 0 and self.metric in OF_NUMBERS)
            or first.shape[-1:] in ((), (0,), (1,))
            or any(outputs[place].shape != first.shape for outputs in self.outputs)
            or (self.columns(place).values >= kinds.FEWEST_VALUES and self.columns(place).differ)  # unlike logits
        )

    def _may_have_scores(self, place: int) -> bool:
        """Return whether output ``place`` may hold logits of one answer: one row, with a size that no input has."""
        first, inputs = self.outputs[0][place], {np.size(array) for array in self.samples[0]}
        is_row = first.ndim == 2 and first.shape[0] == 1 and first.size not in inputs
        return is_row and self._may_have_rows(place)

    def _span(self, place: int) -> float | None:
        """Return the range for relative errors of an output: defined by the operator, else of the samples."""
        if place in self.equalities:
            return None
        if self.is_bounded(place):
            return INTERVALS[self._kinds[place]]
        values = [outputs[place] for outputs in self.outputs]
        if values[0].dtype.kind not in "iuf":
            return None
        finite = [value[np.isfinite(value)].astype(np.float64) for value in values]
        return interval_of(*extremes(finite)) if any(value.size for value in finite) else None

    @cached_property
    def _deciding(self) -> list[int]:
        return [place for place in range(len(self.graph.outputs)) if self.classifies(place)]

    def measure(self, *graphs: Graph, keep: bool = False) -> Measurement:
        """Run ``graphs`` in turn, each on its samples, and compare. ``keep`` the outputs. Raises ModelError."""
        outputs = graphs[0].output_infos()
        if len(outputs) != len(self.graph.outputs):
            raise ModelError(
                f"the quantised model has {counted(len(outputs), 'output')}, the other {len(self.graph.outputs)}"
            )
        parts = [self._runs(graph, self.samples[place :: len(graphs)]) for place, graph in enumerate(graphs)]
        return self._compared(parts, [info.name for info in outputs], keep)

    def unsettled(self, measured: Measurement) -> dict[int, float]:
        """Return, by output, the squared error that the errors of logits would cause in a score of 0.5."""
        # Squared slope of the logistic function at 0. For SOFTMAX, two scores have this slope, each for two logits.
        slopes = {"SOFTMAX": 1 / 4, "LOGISTIC": 1 / 16}
        found = {}
        for part, (place, at) in enumerate(self._parts):
            slope = 0.0 if at is not None else slopes.get(self._kinds[place], 0.0)
            if slope:
                size = self._expected[0][self._decisive[place]].size
                found[place] = slope * float(np.median(measured.decisive.noise[part])) / max(1, size)
        return found

    @cached_property
    def variation(self) -> list[NDArray[np.float64]]:
        """Variation of each output and sample (see :func:`odc_mlir.quantizer.measurement.variation`)."""
        return variation(list(zip(*self.outputs, strict=True)), list(self.equalities))

    @cached_property
    def constant_measures(self) -> list[dict[str, float | None]]:
        """Measures of constant outputs (:func:`constant_outputs`), or [] if the model's outputs are constant."""
        every = list(zip(*self.outputs, strict=True))
        made = [] if self.constant else constant_outputs(every, list(self.equalities))
        return [self.metrics(self._compared([itertools.repeat((found, {}))], self.names, False)) for found in made]

    def _compared(self, parts: Sequence[_Runs], names: list[str], keep: bool) -> Measurement:
        exact = Tolerance(0.0, 0.0)
        numbers = [place for place in range(len(self.spans)) if place not in self.equalities]
        # If no output answers, the largest elements of all outputs count.
        answering = [place for place in numbers if self.classifies(place)] or ([] if self.equalities else numbers)
        meters = [
            ErrorMeter(exact, top=p in answering, classes=self.classes[p], interval=span, equality=p in self.equalities)
            for p, span in enumerate(self.spans)
        ]
        noise = np.zeros(len(self.spans))
        columns = [[expected.like() for expected in every] for every in self._columns]
        powers, results = np.zeros((2, 2, len(self._parts), len(self.samples)))
        found_reals: list[list[Array]] = []
        decided: dict[int, list[float]] = {place: [] for place in self._deciding}
        lacking = exceeding = 0
        for number, expected, (reals, kept), lacks in self._metered(parts, meters, columns):
            lacking += lacks
            exceeding += any(map(kinds.exceeds, expected, reals))
            for part, (place, at) in enumerate(self._parts):
                a, b = expected[place], reals[place]
                if at is not None:
                    a, b = (np.take(array, at, self.columns(place).axis) for array in (a, b))
                own = signal_and_noise(a, b, place in self.equalities)
                index = self._decisive[place]
                # A model that has no tensor of this name is compared by the outputs.
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
        varying = [float(found.sum()) for found in self.variation]
        answers = self.answers(found_reals)
        return Measurement(
            [meter.errors() for meter in meters],
            Powers(*powers),
            Powers(*results),
            names,
            None if self.scorer is None else self.scorer.of(answers),
            {place: sum(shares) / len(shares) for place, shares in decided.items()},
            [1.0 - float(a / b) if b else None for a, b in zip(noise, varying, strict=True)],
            found_reals if keep else [],
            [self._lost(place, found) for place, found in enumerate(columns)],
            [] if self.labels is None else recalls(self._firsts, answers, self.labels),
            lacking,
            exceeding,
        )

    def _metered(
        self, parts: Sequence[_Runs], meters: Sequence[ErrorMeter], columns: Sequence[Sequence[Columns]]
    ) -> Iterator[tuple[int, Sequence[Array], _Run, bool]]:
        """Meter samples, and yield the number, expected outputs, outputs, and whether the outputs lack numbers."""
        # Small outputs are metered together, because calls take time. Half a megabyte of floats fits the cache.
        most_together = 1 << 16
        count = max(1, most_together // max(1, sum(array.size for array in self.outputs[0])))
        for start in range(0, len(self.outputs), count):
            outputs = self.outputs[start : start + count]
            given = [next(parts[number % len(parts)]) for number in range(start, start + len(outputs))]
            every_run = []
            for expected, (reals, _) in zip(outputs, given, strict=True):
                made = map(kinds.refused_output, expected) if reals is None else reals
                pairs = list(map(kinds.completed, expected, made))
                every_run.append(([array for array, _ in pairs], reals is None or any(lacks for _, lacks in pairs)))
            found = [(reals, kept) for (reals, _), (_, kept) in zip(every_run, given, strict=True)]
            for place, (meter, found_columns) in enumerate(zip(meters, columns, strict=True)):
                every, others = [expected[place] for expected in outputs], [reals[place] for reals, _ in found]
                for a, b in zip(every, others, strict=True):
                    if a.shape != b.shape:
                        raise ModelError(f"an output has the shape {b.shape}, the float model's {a.shape}")
                alike = len({array.shape for array in every}) == 1
                rows = [(np.stack(every), np.stack(others), len(every))] if alike else zip(every, others, strict=True)
                for pair in rows:
                    meter.add(*pair)
                for column in found_columns:
                    column.add(others, every)
            lacks = [lacks for _, lacks in every_run]
            yield from zip(range(start, start + len(outputs)), outputs, found, lacks, strict=True)

    def _lost(self, place: int, found: Sequence[Columns]) -> list[Lost]:
        lost, are_shares = [], self.are_shares(place)
        for number, (columns, others) in enumerate(zip(self._columns[place], found, strict=True)):
            places = columns.lost(others, single=number == 0 and self.splits(place))
            lost += [Lost(places, columns.axis, len(columns.low), are_shares)] if places else []
        return lost

    def _share_decided(self, number: int, place: int, found: Array, decisive: Array | None) -> float:
        """Return the share of answers that equal the float model's or are nearly as likely. Ties count in part."""
        if place not in self.equalities:
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
        inputs, outputs = graph.input_infos(), graph.output_infos()
        # Decisive tensors that the graph has in the same order of elements, by name.
        axes = {place: places.from_end(self.graph) for place, places in self.places.items()}
        known = {
            self.graph.tensors[index].name: index
            for place, index in enumerate(self._decisive)
            if kinds.is_in_order(graph, graph.outputs[place], axes.get(place))
        }
        names = float_names(graph, known)
        computed = (*graph.inputs, *(index for item in graph.nodes for index in item.outputs))
        # Of several tensors with the same float name, the last one comes after all conversions.
        last = {names[index]: index for index in computed if index in names}
        more = tuple(dict.fromkeys(last.values()))
        extended = dataclasses.replace(graph, outputs=(*graph.outputs, *more))
        if self.rollout is None:
            coded = [list(map(to_codes, inputs, sample)) for sample in samples]
            runs = run_in_batches(extended, coded)
        else:
            runs = self.rollout.run(extended, samples)
        for found in runs:
            if found is None:
                yield None, {}
                continue
            codes = zip(more, found[len(outputs) :], strict=True)
            kept = {known[names[index]]: to_reals(graph.tensors[index], value) for index, value in codes}
            yield [to_reals(info, value) for info, value in zip(outputs, found, strict=False)], kept

    def metrics(self, measurement: Measurement) -> dict[str, float | None]:
        """Return the measures that limits are checked against."""
        result = measurement.worst() | self.by_output(kinds.DECIDED, measurement.decided)
        if result[kinds.SHARE] is not None:
            found = {place: errors.top1_match for place, errors in enumerate(measurement.outputs)}
            result |= self.by_output(kinds.SHARE, found)
        if measurement.scored is not None:
            result["drop"] = measurement.scored.drop
            if measurement.scored.column_drop is not None:
                result["column_drop"] = measurement.scored.column_drop
        if measurement.recalls:
            result["recall_drop"] = recall_drop(measurement.recalls)
        return result
