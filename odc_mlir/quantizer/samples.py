"""Calibration and evaluation samples: reading, checks against the model, and the split into two parts.

Most samples determine ranges. The rest is held back to compare choices and to judge the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from odc_mlir.calibration.copies import distinct, independent, standing_out, stratified, without
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import InputError, ModelError, OptionError
from odc_mlir.formats.calibration import Pictures, holds_pictures, read_calibration
from odc_mlir.formats.quantities import counted
from odc_mlir.formats.samples import Samples, is_finite, random_inputs
from odc_mlir.ops.spec import Array, QuantKind, TensorInfo
from odc_mlir.quantizer.policy.ranges import extremes
from odc_mlir.quantizer.states import Rollout
from odc_mlir.runtime.execution.binding import check_holds, fits
from odc_mlir.runtime.execution.graph import Graph, GraphNode, index_limits
from odc_mlir.runtime.reporting.labels import FLOAT_MODEL, check_varied
from odc_mlir.runtime.reporting.scores import by_chance, scores

_CONVERSIONS = frozenset({"DEQUANTIZE", "CAST"})  # for example, of float16 weights


def check_finite(graph: Graph) -> None:
    """Raise ModelError for a constant with NaN, or infinite weights or biases. Masks and limits may be infinite."""
    makers = graph.producers()
    for item in graph.nodes:
        rule = item.node.spec.quant
        is_table = rule.kind is QuantKind.SAME  # a lookup table may hold masks
        learnt = () if is_table else (*rule.trained(item.node.options), *rule.biases)
        for place, index in enumerate(item.inputs):
            info = _constant(graph, makers, index)
            if info is None or info.info.kind != "float":
                continue
            values = info.array()
            wrong = "NaN" if np.isnan(values).any() else None
            if wrong is None and place in learnt and np.isinf(values).any():
                wrong = "infinite values"
            if wrong is not None:
                raise ModelError(
                    f"the constant holds {wrong}, which has no code",
                    op=item.node.spec.name,
                    tensor=info.name,
                    hint="train or export the model again; float32 may hold what is infinite in float16",
                )


def _constant(graph: Graph, makers: dict[int, GraphNode], index: int) -> TensorInfo | None:
    """Return the constant ``index``, or the constant from which tensor ``index`` is converted."""
    while index >= 0:
        if graph.tensors[index].is_const:
            return graph.tensors[index]
        maker = makers.get(index)
        if maker is None or maker.node.spec.name not in _CONVERSIONS:
            return None
        index = maker.inputs[0]
    return None


Calibration = str | os.PathLike[str] | Samples | Iterable[Any]
Labels = bool | Array | Sequence[Any]

# Fewer than FEWEST_TO_SPLIT samples are all used both for calibration and for evaluation.
FEWEST_TO_SPLIT = 8

_RECORDED = "the model is checked on the inputs that its ranges were recorded on; its accuracy on others may be lower"


@dataclass(slots=True)
class Data:
    """Distinct calibration samples ``fit`` and held-out samples ``held``, with labels if known."""

    fit: list[list[Array]]
    held: list[list[Array]]
    labels: Array | None = None
    separate: bool = False  # whether held-out samples take no part in choosing ranges
    findings: list[str] = field(default_factory=list)
    stands_out: Sequence[int] = ()  # indices of samples with far larger values than all others
    usual: Sequence[list[Array]] = ()  # these others
    made_up: bool = False  # whether held-out samples are random
    seen: bool = False  # whether ranges were recorded on the held-out samples
    fit_labels: Array | None = None
    left_out: int = 0  # number of samples for which the float model has outputs that are not finite
    rollout: Rollout | None = None  # sequences that consist of the samples, if the model has states

    def without(self, silent: Sequence[Sequence[Array]]) -> Data:
        """Return the data without these samples, or all data if no samples to check on would be left."""
        numbers = set(map(id, silent))
        fit, held = (
            [i for i, sample in enumerate(samples) if id(sample) not in numbers] for samples in (self.fit, self.held)
        )
        if not silent or not held:
            return self
        kept = [self.held[i] for i in held]
        return replace(
            self,
            fit=kept if self.fit is self.held else [self.fit[i] for i in fit],
            held=kept,
            labels=None if self.labels is None else self.labels[held],
            fit_labels=None if self.fit_labels is None else self.fit_labels[fit],
            left_out=len(silent),
        )

    def shown(self, samples: Sequence[Sequence[Array]]) -> Sequence[Sequence[Array]]:
        """Return the samples from which ranges are recorded for ``samples``."""
        return samples if self.rollout is None else self.rollout.with_given(samples)

    @property
    def independent(self) -> int:
        """Number of independent samples. It is smaller for frames, because frames of a sequence are similar."""
        return self.known if self.rollout is None else min(self.known, self.rollout.independent)

    @property
    def known(self) -> int:
        """Number of samples that determine the result's ranges, including held-out samples."""
        return len(self.fit) + (0 if self.separate else len(self.held))


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options for reading files: maximum number of samples, pixel conversion, and whether repeats count."""

    most: int | None = None
    pictures: Pictures | None = None
    repeats: bool = False
    rollout: Rollout | None = None


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Distinct samples of one source, with labels if wanted."""

    samples: list[list[Array]] = field(default_factory=list)
    labels: Array | None = None
    findings: list[str] = field(default_factory=list)
    far: Sequence[int] = ()
    usual: Sequence[list[Array]] = ()

    def reduced(self, places: Sequence[int], why: str) -> _Loaded:
        """Return the samples at ``places``, with a finding that gives the reason ``why`` all others are left out."""
        count = len(self.samples)
        if len(places) == count:
            return self
        return replace(
            self,
            samples=[self.samples[i] for i in places],
            labels=None if self.labels is None else self.labels[places],
            findings=[*self.findings, f"{count - len(places)} of {count} samples {why}"],
        )


def make_data(
    graph: Graph,
    calibration: Calibration | None,
    evaluation: Calibration | None = None,
    labels: Labels | None = None,
    recorded: Sequence[Sequence[Array]] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
    options: LoadOptions = LoadOptions(),
) -> Data:
    """Return the data for a model. ``recorded``: inputs that were stored with recorded ranges.

    ``ranges``: ranges of inputs by name, for random samples, which replace missing samples. ``labels``: labels of
    ``evaluation`` if given, else of ``calibration``. Raises InputError for samples that do not fit the model or are not
    finite, and OptionError for labels if there are no samples.
    """
    infos = graph.input_infos()
    if options.pictures is not None and not any(map(holds_pictures, (calibration, evaluation))):
        raise OptionError(
            "mean and scale apply to pixels of images, and no samples are images",
            hint="omit them, and give samples in the model's own format",
        )
    if labels is False:
        labels = None
    given = _Loaded() if calibration is None else _load(calibration, infos, labels, evaluation is None, options)
    checked = _Loaded() if evaluation is None else _load(evaluation, infos, labels, True, options)
    if evaluation is not None:
        data = _checked_on(given.samples, checked.samples, checked.labels)
    elif given.samples:
        are_frames = options.rollout is not None and bool(options.rollout.pairs)
        data = split(given.samples, given.labels, are_frames=are_frames)
    else:
        return _without_samples(graph, labels, recorded, ranges or {})
    data.stands_out, data.usual = given.far, given.usual
    data.findings = [*given.findings, *checked.findings, *data.findings]
    data.rollout = options.rollout if options.rollout is not None and options.rollout.pairs else None
    return data


def _checked_on(fit: list[list[Array]], held: list[list[Array]], labels: Array | None) -> Data:
    """Return the two sets, except evaluation samples that calibrate. If none would be left, hold some back."""
    new = without(held, fit)
    if len(new) == len(held):
        return Data(fit, held, labels, separate=True)
    among = f"of {counted(len(held), 'sample')} to check on are also among those for calibration"
    if new:
        text = f"{len(held) - len(new)} {among}, and are left out of the check"
        return Data(fit, [held[i] for i in new], None if labels is None else labels[new], True, [text])
    others = without(fit, held)
    if not others:
        data = split(held, labels)
        if data.held is not data.fit:
            data.findings = [f"{len(held)} {among}: {len(data.held)} of them are held back instead"]
        return data
    count = min(len(held), max(1, len(others), _count_held_back(len(fit))))
    places = stratified(count, len(held))
    data = Data(
        [fit[i] for i in others] + [sample for i, sample in enumerate(held) if i not in set(places)],
        [held[i] for i in places],
        None if labels is None else labels[places],
    )
    data.findings = [f"{len(held)} {among}: {count} of them are held back instead"]
    return data


def _without_samples(
    graph: Graph, labels: Labels | None, recorded: Sequence[Sequence[Array]], ranges: Mapping[str, tuple[float, float]]
) -> Data:
    infos = graph.input_infos()
    if labels is not None:
        raise OptionError("labels need the samples that they belong to", hint="give calibration or evaluation samples")
    # Recorded inputs of other shapes, or that give no range, are left out.
    shapes = [info.shape for info in infos]
    fitting = [
        sample
        for sample in recorded
        if is_finite(sample)
        and (len(sample) != len(infos) or all(map(fits, shapes, [value.shape for value in sample])))
    ]
    if fitting:
        held = check_samples(infos, fitting)
        held = [held[i] for i in distinct(held)]
        far, usual = standing_out(held)
        kept = [held[i] for i in independent(held)]
        return Data([], kept, separate=True, findings=[_RECORDED], stands_out=far, usual=usual, seen=True)
    return Data([], made_up_samples(graph, ranges), separate=True, made_up=True)


def split(samples: list[list[Array]], labels: Array | None = None, *, are_frames: bool = False) -> Data:
    """Hold back every fourth sample, or every second of few samples. Use very few samples for the two purposes.

    For sequences, hold back two interleaved blocks of frames, and shuffle all other frames.
    """
    if len(samples) < FEWEST_TO_SPLIT:
        what = "the only sample was" if len(samples) == 1 else f"all {len(samples)} samples were"
        text = f"{what} used both to choose ranges and to check the model"
        return Data(samples, samples, labels, separate=True, findings=[text])
    count, total = _count_held_back(len(samples)), len(samples)
    held = stratified(count, total)
    if are_frames:
        held = [i * total // 4 - count // 4 + frame for frame in range(count // 2) for i in (1, 3)]
    chosen = set(held)
    others = [i for i in range(total) if i not in chosen]
    if are_frames:
        np.random.default_rng(1).shuffle(others)
    return Data(
        [samples[i] for i in others],
        [samples[i] for i in held],
        None if labels is None else labels[held],
        fit_labels=None if labels is None else labels[others],
    )


def _count_held_back(count: int) -> int:
    # A half, third, quarter or eighth held back gives the same mean SQNR, within 0.5 dB, on ten networks.
    part, least_held_back, most_held_back = 4, 16, 64
    return min(max(count // part, min(count // 2, least_held_back)), most_held_back)


def made_up_samples(graph: Graph, ranges: Mapping[str, tuple[float, float]]) -> list[list[Array]]:
    """Return reproducible random inputs within known ranges and table sizes. Unknown dimensions are 1."""
    seed = 1
    made_up = 8
    infos, limits = graph.input_infos(), index_limits(graph)
    shapes = [(info.info.numpy, tuple(1 if dim is None else dim for dim in info.shape or ())) for info in infos]
    samples = [random_inputs(shapes, seed + number, limits) for number in range(made_up)]
    random = np.random.default_rng(seed)
    for sample in samples:
        for place, info in enumerate(infos):
            if info.info.kind == "float" and info.name in ranges:
                values = random.uniform(*ranges[info.name], sample[place].shape)
                sample[place] = values.astype(info.info.numpy)
    return samples


def _load(
    source: Calibration, infos: Sequence[TensorInfo], labels: Labels | None, wanted: bool, options: LoadOptions
) -> _Loaded:
    if not isinstance(source, str | os.PathLike | Samples):
        # For a model with one input, a sample may be the array itself instead of a list with one array.
        source = [sample if isinstance(sample, list | tuple) else [sample] for sample in source]
    read = partial(read_calibration, inputs=infos) if options.rollout is None else options.rollout.read
    found = read(source, most=options.most, pictures=options.pictures)
    samples = check_samples(infos, found.records)
    odd = [number for number, sample in enumerate(samples) if not is_finite(sample)]
    if odd:
        name = next(info.name for info, value in zip(infos, samples[odd[0]], strict=True) if not is_finite([value]))
        raise InputError(
            f"sample {odd[0]} holds values that are not finite, as {len(odd)} of {len(samples)} samples do",
            tensor=name,
            hint="omit such samples; in masks, use a large negative number instead of infinity",
        )
    if options.rollout is not None:
        samples = options.rollout.through(samples, may_be_shuffled=labels is None)
    answers = _answers(labels, found.labels, len(samples)) if wanted and labels is not None else None
    loaded = _Loaded(samples, answers, [], *standing_out(samples))
    if options.repeats or (options.rollout is not None and options.rollout.pairs):  # states of equal frames differ
        return loaded
    known = distinct(samples, answers)
    contradicted = 0 if answers is None else len(known) - len(distinct(samples))
    loaded = loaded.reduced(known, "repeat others, and count once")
    if contradicted:
        text = f"{contradicted} of {len(known)} samples repeat others, with other labels: one of both is wrong"
        loaded.findings.append(text)
    return loaded.reduced(independent(loaded.samples, loaded.labels), "repeat others but for noise, and count once")


def _answers(labels: Labels, stored: Array | None, count: int) -> Array:
    if labels is True:
        if stored is None:
            hint = "add array y to the file of --evaluation, or without one, of --calibration"
            raise OptionError("the samples of the accuracy check have no labels", hint=hint)
        labels = stored
    answers = np.asarray(labels)
    if not answers.ndim:
        raise InputError("the labels are a single value", hint="give one for each sample")
    if len(answers) != count:
        raise InputError(f"got {counted(len(answers), 'label')} for {counted(count, 'sample')}")
    check_varied(answers)
    return answers


def check_samples(infos: Sequence[TensorInfo], samples: Iterable[Sequence[Any]]) -> list[list[Array]]:
    """Return ``samples`` as arrays of the inputs' types. Raises an InputError that names a wrong sample."""
    result = []
    for number, sample in enumerate(samples):
        if len(sample) != len(infos):
            raise InputError(
                f"sample {number} has {counted(len(sample), 'array')}, the model has {counted(len(infos), 'input')}"
            )
        result.append([_as_input(number, info, np.asarray(value)) for info, value in zip(infos, sample, strict=True)])
    return result


def _as_input(number: int, info: TensorInfo, value: Array) -> Array:
    if info.shape and value.ndim == len(info.shape) - 1 and info.shape[0] in (1, None):
        value = value[np.newaxis]  # a batch of one sample
    if info.info.kind == "float" and value.dtype.kind in "iu" and value.dtype.itemsize < info.info.numpy.itemsize:
        raise InputError(
            f"sample {number} holds {value.dtype.name}, but the input takes {info.dtype}, not codes or pixels",
            tensor=info.name,
            hint="decode or scale them as the model expects, and store real numbers",
        )
    convertible = "fiu" if info.info.kind == "float" else "iu" if info.info.is_integer else ""
    if value.dtype != info.info.numpy and value.dtype.kind in convertible:
        if info.info.is_integer:
            check_holds(info, value, f"sample {number}", "give what the model is used with")
        with np.errstate(over="ignore"):  # values beyond the input's type become infinite
            return value.astype(info.info.numpy)
    if value.dtype != info.info.numpy and info.info.kind != "string":
        raise InputError(f"sample {number} has {value.dtype.name} data, expected {info.dtype}", tensor=info.name)
    return value


Arrays = Sequence[Sequence[Array]]


def check_unit(
    graph: Graph, samples: Arrays, answers: Sequence[Array], labels: Array, answer: Callable[[Arrays], Sequence[Array]]
) -> None:
    """Raise InputError if labels show that a model with one real input was trained for pixels in another unit."""
    least_labels = 10
    least_right_percent, much_better = 50.0, 2.0
    places = [place for place, info in enumerate(graph.input_infos()) if info.dtype == "float32"]
    if len(places) != 1 or len(labels) < least_labels or not labels.size:
        return
    if (
        by_chance(answers, labels) is None
        or (right := scores(answers, labels).get("top1_percent", 0.0)) >= least_right_percent
    ):
        return
    (place,) = places
    better, best = 0.0, ""
    for what, factor, offset in _other_units([sample[place] for sample in samples]):
        others = [
            [np.float32(factor) * a + np.float32(offset) if i == place else a for i, a in enumerate(sample)]
            for sample in samples
        ]
        found = scores(answer(others), labels).get("top1_percent", 0.0)
        if found > better:
            better, best = found, what
    if better >= max(least_right_percent, much_better * right):
        name = graph.input_infos()[place].name
        raise InputError(
            f"{FLOAT_MODEL} gets {right:.0f} % of the labels right, and {better:.0f} % of them with input {name!r} "
            f"{best}: the samples are in another unit than it was trained for",
            hint=f"give all samples {best}; of a folder of images, --mean and --scale do that",
        )


def _other_units(arrays: Sequence[Array]) -> Iterator[tuple[str, float, float]]:
    largest_pixel = 255.0
    low, high = extremes(arrays)
    half = largest_pixel / 2
    if low >= 0 and 1 < high <= largest_pixel:
        yield "divided by 255", 1 / largest_pixel, 0.0
        yield "divided by 127.5, less 1", 1 / half, -1.0
    elif low >= 0 and high <= 1:
        yield "times 255", largest_pixel, 0.0
        yield "times 2, less 1", 2.0, -1.0
    elif low >= -1 and high <= 1:
        yield "times 127.5, plus 127.5", half, half
        yield "divided by 2, plus 0.5", 0.5, 0.5


def units_that_differ(
    graph: Graph, known: Mapping[str, TensorStatistics], samples: Arrays, *, by: str, among: str
) -> dict[str, str]:
    """Return texts, keyed by name, for inputs that are 10 times larger or smaller than in ``known`` statistics."""
    far_units = 10.0  # smallest factor that indicates another unit
    found = {}
    for place, info in enumerate(graph.input_infos()):
        seen = known.get(info.name)
        if info.dtype != "float32" or seen is None or not seen.runs:
            continue
        before = max(abs(seen.minimum), abs(seen.maximum))
        now = max((float(np.abs(sample[place]).max(initial=0.0)) for sample in samples), default=0.0)
        if before and now and not 1 / far_units <= now / before <= far_units:
            found[info.name] = (
                f"input {info.name!r} reaches {now:.3g} in {among}, {before:.3g} in {by}: they differ in unit "
                "or content; give both in the unit that the model was trained for"
            )
    return found
