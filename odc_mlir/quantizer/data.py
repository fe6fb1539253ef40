"""Samples for the quantiser: from files or Python, checked against the model, and divided.

Ranges are chosen by most samples; the rest is held back to decide and to judge on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from odc_mlir.errors import InputError, OptionError
from odc_mlir.formats.calibration import Pictures, holds_pictures, read_calibration
from odc_mlir.formats.samples import Samples, is_finite, random_inputs
from odc_mlir.ops.spec import Array, TensorInfo
from odc_mlir.quantizer.labels import check_varied
from odc_mlir.runtime.execution.binding import fits
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.index_limits import index_limits

Calibration = str | os.PathLike[str] | Samples | Iterable[Any]
Labels = bool | Array | Sequence[Any]

# A quarter of the samples is held back, up to half of them where they are few; of fewer than the last number all do
# both.
HELD_BACK = 4
LEAST_HELD_BACK, MOST_HELD_BACK = 16, 64
FEWEST_TO_SPLIT = 8

_FAR = 100.0  # times as large as all others: no range then leaves the others codes

MADE_UP = 8
_SEED = 1


@dataclass(slots=True)
class Data:
    """Samples to choose ranges by, and those held back to check on, with their labels if known.

    ``separate``: the latter take no part in choosing ranges. ``stands_out``: the number, from 0, of a calibration
    sample whose values are far larger than those of all others. ``made_up``: nobody gave or recorded those held back.
    """

    fit: list[list[Array]]
    held: list[list[Array]]
    labels: Array | None = None
    separate: bool = False
    findings: list[str] = field(default_factory=list)
    stands_out: int | None = None
    made_up: bool = False


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How files are read: at most so many samples, and what pixels become."""

    most: int | None = None
    pictures: Pictures | None = None


def make_data(
    graph: Graph,
    calibration: Calibration | None,
    evaluation: Calibration | None = None,
    labels: Labels | None = None,
    recorded: Sequence[Sequence[Array]] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
    options: LoadOptions = LoadOptions(),
) -> Data:
    """The data for a model; ``recorded`` are inputs that came with recorded ranges, which then need no samples.

    ``ranges`` of inputs by name tell what made-up samples may be, which are checked on where there is no sample.
    ``labels`` belong to ``evaluation``, or without that to ``calibration``. Raises InputError for samples that do not
    fit or hold NaN or infinities, OptionError for labels without samples.
    """
    infos = graph.input_infos()
    if options.pictures is not None and not any(map(holds_pictures, (calibration, evaluation))):
        raise OptionError(
            "mean and scale apply to pixels of images, and no samples are images",
            hint="omit them, and give samples in the model's own format",
        )
    if labels is False:
        labels = None
    fit: list[list[Array]] = []
    answers = None
    if calibration is not None:
        fit, answers = _load(calibration, infos, labels, evaluation is None, options)
    if evaluation is not None:
        held, answers = _load(evaluation, infos, labels, True, options)
        return Data(fit, held, answers, separate=True, stands_out=_standing_out(fit))
    if fit:
        data = split(fit, answers)
        data.stands_out = _standing_out(fit)
        return data
    if labels is not None:
        raise OptionError("labels need the samples that they belong to", hint="give calibration or evaluation samples")
    # Others were run in other shapes, or on what no range can be made of.
    fitting = [sample for sample in recorded if _fits(infos, sample) and is_finite(sample)]
    if fitting:
        return Data([], check_samples(infos, fitting), separate=True)
    return Data([], made_up_samples(graph, ranges or {}), separate=True, made_up=True)


def _standing_out(samples: Sequence[Sequence[Array]]) -> int | None:
    """The sample with a real input whose largest value is many times that of any other sample, None without one."""
    for place in range(len(samples[0]) if len(samples) > 1 else 0):
        values = [sample[place] for sample in samples]
        if any(value.dtype.kind != "f" or not value.size for value in values):
            continue
        largest = np.array([np.abs(value).max() for value in values], np.float64)
        second, first = np.argsort(largest)[-2:]
        if np.isfinite(largest[first]) and largest[first] > _FAR * largest[second] > 0:
            return int(first)
    return None


def _fits(infos: Sequence[TensorInfo], sample: Sequence[Array]) -> bool:
    return len(sample) != len(infos) or all(
        fits(info.shape, value.shape) for info, value in zip(infos, sample, strict=True)
    )


def _check_finite(infos: Sequence[TensorInfo], samples: Sequence[Sequence[Array]]) -> None:
    """Raises InputError that names the first sample, and its input, with values that are not finite."""
    odd = [number for number, sample in enumerate(samples) if not is_finite(sample)]
    if odd:
        name = next(info.name for info, value in zip(infos, samples[odd[0]], strict=True) if not is_finite([value]))
        raise InputError(
            f"sample {odd[0]} holds values that are not finite, as {len(odd)} of {len(samples)} samples do",
            tensor=name,
            hint="leave such samples out; masks do as well with a large negative number",
        )


def split(samples: list[list[Array]], labels: Array | None = None) -> Data:
    """Every fourth sample is held back, or of few every second; with very few, all of them are used for both."""
    if len(samples) < FEWEST_TO_SPLIT:
        what = "the only sample was" if len(samples) == 1 else f"all {len(samples)} samples were"
        text = f"{what} used both to choose ranges and to check the model"
        return Data(samples, samples, labels, separate=True, findings=[text])
    count = max(len(samples) // HELD_BACK, min(len(samples) // 2, LEAST_HELD_BACK))
    count = min(count, MOST_HELD_BACK)
    held = [(2 * i + 1) * len(samples) // (2 * count) for i in range(count)]
    chosen = set(held)
    return Data(
        [sample for i, sample in enumerate(samples) if i not in chosen],
        [samples[i] for i in held],
        None if labels is None else labels[held],
    )


def made_up_samples(graph: Graph, ranges: Mapping[str, tuple[float, float]]) -> list[list[Array]]:
    """Reproducible random inputs, within the range of an input where that is known; unknown dimensions are 1.

    Indices are within the tables that they look up.
    """
    infos, limits = graph.input_infos(), index_limits(graph)
    shapes = [(info.info.numpy, tuple(1 if dim is None else dim for dim in info.shape or ())) for info in infos]
    samples = [random_inputs(shapes, _SEED + number, limits) for number in range(MADE_UP)]
    random = np.random.default_rng(_SEED)
    for sample in samples:
        for place, info in enumerate(infos):
            if info.info.kind == "float" and info.name in ranges:
                values = random.uniform(*ranges[info.name], sample[place].shape)
                sample[place] = values.astype(info.info.numpy)
    return samples


def _load(
    source: Calibration, infos: Sequence[TensorInfo], labels: Labels | None, wanted: bool, options: LoadOptions
) -> tuple[list[list[Array]], Array | None]:
    """Samples, and their labels if ``wanted``."""
    if not isinstance(source, str | os.PathLike | Samples):
        # Arrays of a model with one input need no list around each.
        source = [sample if isinstance(sample, list | tuple) else [sample] for sample in source]
    found = read_calibration(source, infos, most=options.most, pictures=options.pictures)
    samples = check_samples(infos, found.records)
    _check_finite(infos, samples)
    if not wanted or labels is None:
        return samples, None
    if labels is True:
        if found.labels is None:
            raise OptionError("the samples have no labels", hint="add them to the file as array y")
        labels = found.labels
    answers = np.asarray(labels)
    if not answers.ndim:
        raise InputError("the labels are a single value", hint="give one for each sample")
    if len(answers) != len(samples):
        raise InputError(f"there are {len(answers)} labels for {len(samples)} samples")
    check_varied(answers)
    return samples, answers


def check_samples(infos: Sequence[TensorInfo], samples: Iterable[Sequence[Any]]) -> list[list[Array]]:
    """``samples`` as arrays of the inputs' types; real inputs are taken from any floating type or whole numbers.

    Raises InputError naming the sample.
    """
    result = []
    for number, sample in enumerate(samples):
        if len(sample) != len(infos):
            raise InputError(f"sample {number} has {len(sample)} arrays, the model has {len(infos)} inputs")
        result.append([_as_input(number, info, np.asarray(value)) for info, value in zip(infos, sample, strict=True)])
    return result


def _as_input(number: int, info: TensorInfo, value: Array) -> Array:
    if info.shape and value.ndim == len(info.shape) - 1 and info.shape[0] in (1, None):
        value = value[np.newaxis]  # a batch of this one sample
    convertible = "fiu" if info.info.kind == "float" else "iu" if info.info.is_integer else ""
    if value.dtype != info.info.numpy and value.dtype.kind in convertible:
        with np.errstate(over="ignore"):  # what the input's type cannot hold is infinite
            return value.astype(info.info.numpy)
    if value.dtype != info.info.numpy and info.info.kind != "string":
        raise InputError(f"sample {number} has {value.dtype.name} data, expected {info.dtype}", tensor=info.name)
    return value
