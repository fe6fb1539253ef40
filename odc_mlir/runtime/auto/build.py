"""Steps of a compile process: quantise by records, check the coverage of records, compare speeds.

Only this part of on-device compilation needs the quantiser. The steps take long and need much memory. Therefore they
run in a compile process (worker.py). A session runs the steps itself only on request of the user.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from odc_mlir.calibration.copies import distinct, independent
from odc_mlir.calibration.recorded import Shapes, shapes_of
from odc_mlir.calibration.records import RecordStore
from odc_mlir.errors import AccuracyError, OdcError, SessionError, UnsupportedError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.package import is_package
from odc_mlir.formats.samples import is_finite
from odc_mlir.formats.states import NAME
from odc_mlir.ops.spec import Array, numpy_dtype
from odc_mlir.quantizer.policy.schemes import scheme as scheme_of
from odc_mlir.runtime.auto.watch import normal_shares, spread
from odc_mlir.runtime.devices.base import DirectProgram
from odc_mlir.runtime.execution.binding import fits
from odc_mlir.runtime.execution.blas_threads import BlasLimit
from odc_mlir.runtime.execution.executor import Executor, HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.execution.plan import PlanExecutor
from odc_mlir.runtime.execution.units import SpecializedGraph, is_static
from odc_mlir.runtime.package import Package

# Least number of raw inputs for quantised ranges. With fewer, ranges come from recorded statistics of more runs.
_FEW_SAMPLES = 8
# A channel varies if values differ by this share of the largest value. On frames of one still scene, most channels keep
# the values of their biases.
_MOVED = 0.1
# Some channels of trained networks never vary: less than 5 % in our models on ten pictures of different things. On ten
# dark pictures, a third to a half of the channels did not vary.
_FEWEST_MOVED = 0.75
_SAMPLES = 16
# The sign test needs at least six rounds to distinguish a gain from chance. The other limits bound the time.
_MOST_ROUNDS, _FEWEST_ROUNDS, _SECONDS = 200, 6, 2.0
_RUN_SECONDS = 0.0002  # least time of each executor in a round, because the clock's resolution is limited
_STANDARD_ERRORS = 1.96

LEAST_GAIN = 0.02
"""Least share of the time that a result must save. A smaller gain does not justify a change of answers."""

Progress = Callable[[str, int, int | None], None]


# Quantising.


class QuantizedModel(NamedTuple):
    """A quantised Circle file and the verdict."""

    model: bytes
    verdict: dict[str, Any]


def recorded_inputs(records: Path | None, shapes: Shapes | None = None) -> list[list[Array]]:
    """Return the finite raw inputs of ``shapes`` (None: any) in the store, oldest first. Raises RecordsError.

    If there is no store, the list is empty.
    """
    if records is None or not records.is_file():
        return []
    return list(filter(is_finite, RecordStore(records, create=False).inputs(shapes=shapes)))


def quantize(
    model: Path,
    scheme: str,
    *,
    samples: Sequence[Sequence[Array]],
    records: Path | None = None,
    io: str = "float",
    metric: str | None = None,
    limit: float | None = None,
    max_seconds: float | None = None,
    target: str | None = None,
    states: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> QuantizedModel:
    """Quantise ``model`` by ``samples`` of inputs for ``target``. Raises OdcError.

    With few samples, ranges come from ``records``, a store of more runs, and the samples only check the result. Schemes
    that quantise only weights need no samples. All samples have the same shapes. If the model has other input shapes,
    it is quantised with the shapes of the samples, and then changed back. ``states``: outputs by which the session
    continues inputs. The quantised model has states as inputs and outputs.
    """
    if not samples and not scheme_of(scheme).weights_only:
        raise SessionError(
            "nothing has been recorded of this model", hint="run it with set_execute_config('DUMP_MINMAX') first"
        )
    from odc_mlir.runtime import api

    store = RecordStore(records, create=False) if records is not None and records.is_file() else None
    use_records = store is not None and len(samples) < _FEW_SAMPLES and store.runs() > len(samples)
    found = store.records() if store is not None and use_records else None
    if found is not None:
        found.digest = ""  # a model with other shapes has another digest
    with _fitted(model, samples) as (fitted, declared):
        made = api.quantize(
            fitted,
            scheme=scheme,
            calibration=None if use_records else list(samples) or None,
            evaluation=list(samples) if use_records and samples else None,
            records=found,
            io=io,
            metric=metric,
            limit=limit,
            max_seconds=max_seconds,
            target=target,
            states=states or None,
            progress=progress,
        )
    quantized = bytes(write_model(read_model(made.to_circle()).without_metadata(NAME)) if states else made.to_circle())
    return QuantizedModel(quantized if declared is None else with_shapes(quantized, declared), dict(made.verdict))


@contextmanager
def _fitted(model: Path, samples: Sequence[Sequence[Array]]) -> Iterator[tuple[Path, Shapes | None]]:
    """Provide a file of the model that accepts ``samples``. If it is not ``model``, also give the shapes to restore."""
    shapes = shapes_of(samples[0]) if samples else ()
    declared = [info.shape for info in build_graph(read_model(model)).input_infos()] if samples else []
    if len(declared) != len(shapes) or all(map(fits, declared, shapes)):
        yield model, None
        return
    with TemporaryDirectory() as folder:
        file = Path(folder, model.name)
        file.write_bytes(with_shapes(model, shapes))
        known = [tuple(dim or 0 for dim in shape) for shape in declared if shape is not None and is_static(shape)]
        yield file, tuple(known) if len(known) == len(declared) else None


def with_shapes(model: Path | bytes, shapes: Sequence[Sequence[int]]) -> bytes:
    """Return the model file with inputs of ``shapes``, and with inferred shapes in the first subgraph.

    Raises OdcError if the model does not accept ``shapes``.
    """
    records = read_model(model)
    shaped = SpecializedGraph(build_graph(records), [tuple(shape) for shape in shapes])
    for tensor, info in zip(records.subgraphs[0].tensors, shaped.tensors, strict=True):
        if not info.is_const and info.shape is not None and is_static(info.shape):
            tensor.shape, tensor.shape_signature = info.static_shape, None
    return bytes(write_model(records))


# Coverage of the records.


class CoverageError(AccuracyError):
    """The records vary too little for a judgement of a quantised model."""


def check_samples(samples: Sequence[Sequence[Array]], wanted: int) -> None:
    """Raise CoverageError if less than half of the ``wanted`` raw inputs differ by more than noise.

    Several processes that run the same inputs record more inputs than one process, but not more distinct inputs.
    """
    if len(samples) < 2:
        return
    differing = len(independent([samples[place] for place in distinct(samples)]))
    if differing < max(2, min(len(samples), wanted) // 2):
        raise CoverageError(f"only {differing} of {len(samples)} recorded inputs differ", stage="check")
    floats = [index for index, array in enumerate(samples[0]) if array.dtype.kind == "f" and array.size]
    if floats and all(np.all(sample[index] == samples[0][index].flat[0]) for sample in samples for index in floats):
        value = float(samples[0][floats[0]].flat[0])
        raise CoverageError(f"all values of all recorded inputs are {value:zg}", stage="check")


def check_channels(executor: Executor, samples: Sequence[Sequence[Array]]) -> None:
    """Raise CoverageError if many channels of the float model ``executor`` hardly vary over ``samples``."""
    if len(samples) < 2:
        return
    ranges = _ChannelRanges(executor)
    for sample in spread(samples, _SAMPLES):
        executor.run(sample, watch=ranges)
    share = ranges.moved_share()
    if share < _FEWEST_MOVED:
        text = f"only {share:.0%} of the channels vary by a tenth of their size on the recorded inputs"
        raise CoverageError(f"{text}, which may all be of one kind", stage="check")


class _ChannelRanges:
    def __init__(self, executor: Executor) -> None:
        graph = executor.graph
        self._floats = {
            index for item in graph.nodes for index in item.outputs if graph.tensors[index].info.kind == "float"
        }
        self._ranges: dict[int, tuple[Array, Array]] = {}

    def __call__(self, index: int, value: Array) -> None:
        if index not in self._floats or value.ndim < 2 or not value.size:
            return
        channels = value.reshape(-1, value.shape[-1])
        low, high = channels.min(axis=0), channels.max(axis=0)
        if index in self._ranges:
            before = self._ranges[index]
            low, high = np.fmin(low, before[0]), np.fmax(high, before[1])
        self._ranges[index] = low, high

    def moved_share(self) -> float:
        """Return the share of channels that varied, averaged over tensors, or 1 if there are no tensors."""
        shares = []
        for low, high in self._ranges.values():
            with np.errstate(invalid="ignore", over="ignore"):
                moved = high - low > _MOVED * np.maximum(np.abs(low), np.abs(high))
            shares.append(float(np.mean(moved)))
        return sum(shares) / len(shares) if shares else 1.0


def check_coverage(model: Path, samples: Sequence[Sequence[Array]], *, wanted: int, channels: bool) -> None:
    """Raise CoverageError if ``samples`` vary too little. ``wanted`` is the intended number of samples.

    With ``channels``, values inside the model must also vary.
    """
    check_samples(samples, wanted)
    if channels:
        with suppress(UnsupportedError):  # the quantiser reports this error
            check_channels(HostExecutor(build_graph(read_model(model)), resize=True), samples)


def normal_saturation(model: bytes, samples: Sequence[Sequence[Array]]) -> dict[str, list[float]]:
    """Return the shares of codes at the two ends of the range by tensor name, or {} if ``samples`` cannot run."""
    try:
        return normal_shares(HostExecutor(build_graph(read_model(model)), resize=True), samples)
    except OdcError:
        return {}


# Speed.


@dataclass(frozen=True, slots=True)
class Gain:
    """Times of a run ``before`` and ``after``, in microseconds.

    ``least``: lower bound of the saved share of the time, negative if the run may be slower
    """

    before: float
    after: float
    least: float

    @property
    def is_sure(self) -> bool:
        """Whether the gain is significant and large enough."""
        return self.least > 0 and self.after <= self.before * (1 - LEAST_GAIN)


def gain(before: Sequence[float], after: Sequence[float]) -> Gain:
    """Return the gain from times before and after. Equal positions hold times from the same round.

    The lower bound is the lower 95 % bound of the median gain (sign test), which is robust against outliers.
    """
    saved = sorted(1 - later / max(earlier, 1e-12) for earlier, later in zip(before, after, strict=True))
    place = max(0, math.floor((len(saved) - _STANDARD_ERRORS * math.sqrt(len(saved))) / 2))
    return Gain(statistics.median(before), statistics.median(after), saved[place])


def side_by_side(executors: Sequence[Executor], inputs: Sequence[Array]) -> list[list[float]]:
    """Return the time of a run in microseconds, by executor and round. The executors take turns.

    Times are processor times of this thread, or wall-clock times if a driver runs a part, as it may wait for hardware.
    """
    units = [unit for item in executors if isinstance(item, PlanExecutor) for unit in item.segments]
    is_driven = any(unit.program is not None and not isinstance(unit.program, DirectProgram) for unit in units)
    # Under a limit on processor time, the processor time of a process is too coarse.
    clock = time.perf_counter if is_driven else time.thread_time
    runs = [partial(executor.run, inputs) for executor in executors]
    with BlasLimit(1):  # the clock counts only this thread
        for run in runs:  # excludes preparation from the measurement
            run()
        counts = [max(1, int(_RUN_SECONDS / max(1e-7, _timed(run, 1, clock)))) for run in runs]
        taken: list[list[float]] = [[] for _ in runs]
        deadline = time.monotonic() + _SECONDS
        for number in range(_MOST_ROUNDS):
            if number >= _FEWEST_ROUNDS and time.monotonic() > deadline:
                break
            for place in range(len(runs))[:: -1 if number % 2 else 1]:
                taken[place].append(1e6 * _timed(runs[place], counts[place], clock))
    return taken


def _timed(run: Callable[[], object], count: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(count):
        run()
    return (clock() - start) / count


def gained(models: Mapping[str, Path], shapes: Shapes, inputs: Sequence[Array] | None = None) -> Gain:
    """Measure the times of a run of two models or packages side by side, on ``inputs`` (None: zeros)."""
    executors = [_opened(path) for path in models.values()]
    for executor in executors:
        executor.prepare(shapes)
    if inputs is None:
        infos = executors[0].graph.input_infos()
        inputs = [np.zeros(shape, numpy_dtype(info.dtype)) for info, shape in zip(infos, shapes, strict=True)]
    return gain(*side_by_side(executors, inputs))


def _opened(path: Path) -> Executor:
    if is_package(path) and (package := Package.from_path(path)).plan is not None:
        return package.executor(resize=True)
    return HostExecutor(build_graph(read_model(path)), resize=True)
