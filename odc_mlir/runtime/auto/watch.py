"""Detection of answers that leave the accuracy limits while a compiled model answers.

The float model answers inputs outside the quantised ranges. Shadow runs recompute some answers with the float model in
a thread. Some runs count saturated codes. No run waits for the watch, and the watch raises no errors.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Any

import numpy as np

from odc_mlir.calibration.copies import stratified
from odc_mlir.calibration.recorded import Shapes, shapes_of
from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Array, TensorInfo
from odc_mlir.quantizer.policy.verdict import HIGHER_IS_BETTER, OF_ANSWERS, Limit, check_text
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.units import Watcher
from odc_mlir.runtime.reporting.metrics import ErrorMeter, Errors, Tolerance

_log = logging.getLogger(__name__)

# Largest share of input elements outside the ranges. Beyond this share, the float model answers.
_OUTSIDE_SHARE = 0.05
# If at least _MOST_OUTSIDE of the last _RECENT_RUNS runs are out of range, the inputs have changed for good.
_RECENT_RUNS, _MOST_OUTSIDE = 32, 4
# Least number of shadow runs for a judgement, because a single answer proves nothing.
_FEWEST_SHADOWS = 4
# Number of shadow runs within the limits before measuring starts again. Otherwise old runs could hide a change.
_SHADOWS_TOGETHER = 64
# One of _RUNS_PER_COUNT runs counts saturated codes. A comparison needs _COUNTS_TOGETHER counts, because a single
# code in a tensor of ten elements is a share of 10 %.
_RUNS_PER_COUNT, _COUNTS_TOGETHER = 16, 8
# Share of additional saturated codes that suffices to leave even if there was no shadow run.
_ALONE_SHARE = 0.25
# Limit on saved time, in shadow runs. It prevents a day full of shadow runs after a day with none.
_MOST_CREDIT = 4.0
# Quantised ranges may cut off a few values to make codes finer. Inputs that exceed a range by more than this share of
# the range differ from the inputs that determined it.
_MARGIN = 0.1
# Largest excess over the normal share of saturated codes. Tensors with a larger excess have lost information.
EXCESS_SHARE = 0.05
_SAMPLES = 16
_SPENT = 0.9  # used share of the allowed time; a shadow run may take longer than expected
_NEWS = 0.25  # weight of the last shadow run in the expected time of the next one


@dataclass(slots=True)
class WatchFacts:
    """Counts and measures of a watch. The seconds of shadow runs are processor time."""

    runs: int = 0
    runs_outside: int = 0  # answered by the float model, because their inputs lie outside of the ranges
    values_outside: int = 0
    shadow_runs: int = 0
    shadow_interval_runs: int | None = None  # number of runs per shadow run
    serving_seconds: float = 0.0
    shadow_seconds: float = 0.0
    measures: dict[str, float | None] = field(default_factory=dict)  # worst over outputs, in the latest shadow runs
    saturated: str | None = None  # a tensor with more saturated codes than normal
    shadows_off: str | None = None  # why there are no shadow runs


@dataclass(frozen=True, slots=True)
class MeasuredOutput:
    """How a verdict measures an output. ``interval``: the length that errors are relative to, if known.

    ``answers``: the largest element in a group of ``classes`` elements (None: in a row) is an answer. ``equality``:
        each element is right or wrong. ``name``: the output's name in limits for this output alone.
    """

    interval: float | None = None
    answers: bool = False
    classes: int | None = None
    equality: bool = False
    name: str | None = None

    @classmethod
    def of(cls, output: Any) -> MeasuredOutput:
        """Return the measurement of an output in a verdict, which may come from a file."""
        found = output if isinstance(output, dict) else {}
        interval, classes = found.get("interval"), found.get("classes")
        return cls(
            float(interval) if isinstance(interval, (int, float)) and 0 < interval < math.inf else None,
            found.get("classifies") is True,
            classes if isinstance(classes, int) and classes > 0 else None,
            found.get("equality") is True,
            _text(found.get("name")),
        )


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a watch: ``limits`` of the verdict, and ``share`` of the time for shadow runs.

    ``normal``: normal shares of saturated codes by tensor name. ``outputs``: how to measure each output, if known.
    ``seen``: least and largest recorded value by input, if known. The quantiser may clip recorded values, as in masks.
    """

    limits: tuple[Limit, ...]
    share: float
    normal: Mapping[str, Sequence[float]]
    outputs: tuple[MeasuredOutput, ...] = ()
    seen: Sequence[Sequence[float]] = ()

    @classmethod
    def of(cls, verdict: Mapping[str, Any] | None, share: float) -> Terms:
        """Return the terms of a verdict, which may come from a file. If there is no verdict, there are no limits."""
        found = verdict or {}
        checks = found.get("limits") or [found]
        limits = []
        for check in checks if isinstance(checks, list) else ():
            metric, bound = (check.get("metric"), check.get("limit")) if isinstance(check, dict) else (None, None)
            if metric in HIGHER_IS_BETTER and metric in Errors.__slots__ and isinstance(bound, (int, float)):
                limits.append(Limit(str(metric), float(bound), output=_text(check.get("output"))))
        normal, outputs, seen = found.get("saturation"), found.get("outputs"), found.get("input_ranges")
        measured = map(MeasuredOutput.of, outputs) if isinstance(outputs, list) else ()
        normal, seen = normal if isinstance(normal, dict) else {}, seen if isinstance(seen, list) else ()
        return cls(tuple(limits), share, normal, tuple(measured), seen)


class Watch:
    """The watch of answers for one set of input shapes.

    ``reference`` creates an executor of the float model for shadow runs (None: no shadow runs). ``leave`` is called
    once, with the reason, when answers leave the limits.
    """

    def __init__(self, terms: Terms, reference: Callable[[], Executor] | None, leave: Callable[[str], None]) -> None:
        self.facts = WatchFacts()
        self.not_admitted: str | None = None  # why the float model answered the last run
        self._terms = terms
        self._make = reference
        self._reference: Executor | None = None
        self._leave = [leave]  # popped by its caller, because a forked child may inherit a held lock
        self._paid: deque[tuple[float, float | None]] = deque()  # times of shadow runs: in total, and of the model
        self._executor: Executor | None = None  # the executor that the following attributes belong to
        self._ranges: tuple[InputRange, ...] = ()
        self._counter: EndCounter | None = None
        self._counted = 0
        self._outside: deque[bool] = deque(maxlen=_RECENT_RUNS)
        self._credit_seconds = 0.0
        self._expected_seconds: float | None = None
        self._urgent = False
        self._afresh = True  # the next comparison starts new measurements
        self._thread: Thread | None = None
        self._meters: list[ErrorMeter] = []
        self._compared = 0
        if reference is None:
            self.facts.shadows_off = "operators of the application cannot run in a second thread"
        elif not terms.limits:
            self.facts.shadows_off = "there is no verdict with limits"
        elif not terms.share:
            self.facts.shadows_off = "the time allowed for them is 0"

    # Before a run.

    def admits(self, executor: Executor, inputs: Sequence[Array]) -> bool:
        """Return whether ``inputs`` lie in the ranges of ``executor``."""
        if executor is not self._executor:
            self._executor, self._ranges = executor, input_ranges(executor.graph, self._terms.seen)
            self._counter, self._counted = None, 0
        outside, self.not_admitted = False, None
        for found in self._ranges:
            value = inputs[found.position]
            if count := found.outside(value):
                self.facts.values_outside += count
                if count > _OUTSIDE_SHARE * value.size:
                    outside = True
                    self.not_admitted = (
                        f"of input {found.position} {count} of {value.size} values lie outside its range"
                    )
        recent = self._outside
        recent.append(outside)
        if outside:
            self.facts.runs_outside += 1
            if sum(recent) >= _MOST_OUTSIDE:
                self._give_up(
                    f"the inputs of {sum(recent)} of the last {len(recent)} runs lie outside of the ranges recorded"
                )
        return not outside

    def counter(self, executor: Executor) -> Watcher | None:
        """Return a counter of saturated codes for the next run of ``executor``, or None for most runs."""
        if executor is not self._executor or not self._terms.normal or self.facts.runs % _RUNS_PER_COUNT:
            return None
        if self._counter is None:
            self._counter = EndCounter(executor.graph)
        self._counted += 1
        return self._counter

    # After a run.

    def answered(self, inputs: Sequence[Array], outputs: Sequence[Array], seconds: float) -> None:
        """Note an answer that took ``seconds``, and perhaps start a shadow run."""
        facts = self.facts
        facts.runs += 1
        facts.serving_seconds += seconds
        self._settle()
        if self._counter is not None and self._counted >= _COUNTS_TOGETHER:
            self._counted = 0
            self._look_at_ends(self._counter)
        if facts.shadows_off is not None:
            return
        self._credit_seconds += _SPENT * self._terms.share * seconds
        expected = seconds if self._expected_seconds is None else self._expected_seconds
        if self._leave and (self._credit_seconds >= expected or self._urgent) and self.join(0):
            start = time.perf_counter()
            # The application may overwrite inputs as soon as it has the answer.
            copies = [array.copy() for array in inputs]
            self._thread = Thread(target=self._shadow, args=(copies, list(outputs)), name="odc-shadow", daemon=True)
            self._thread.start()
            self._paid.append((time.perf_counter() - start, None))

    def prepare(self, shapes: Shapes) -> None:
        """Open the executor of shadow runs in advance."""
        if self._reference is None and self._make is not None and self.facts.shadows_off is None:
            try:
                self._reference = self._make()
                self._reference.prepare(shapes)
            except OdcError as error:
                self.facts.shadows_off = str(error)

    def join(self, seconds: float | None = None) -> bool:
        """Wait at most ``seconds`` for the end of a shadow run. Return whether none is running."""
        thread = self._thread
        if thread is not None:
            if seconds != 0:
                thread.join(seconds)
            if thread.is_alive():
                return False
            self._thread = None
        self._settle()
        return True

    def _look_at_ends(self, counter: EndCounter) -> None:
        found = excess(counter.take(), self._terms.normal)
        if found is None:
            return
        name, share = found
        if self.facts.shadows_off is not None and share > _ALONE_SHARE:
            self._give_up(f"{share:.0%} more codes of {name!r} than usual are at the ends of their range")
        # Ask only once: if shadow runs confirm the answers, saturation does no harm.
        if self.facts.saturated is None:
            self._urgent = self._afresh = True
        self.facts.saturated = name

    def _settle(self) -> None:
        """Subtract the times of finished shadow runs from the allowed time."""
        facts = self.facts
        while self._paid:
            spent, run = self._paid.popleft()
            facts.shadow_seconds += spent
            self._credit_seconds -= spent
            if run is None:
                continue
            facts.shadow_runs += 1
            known = self._expected_seconds
            expected = self._expected_seconds = run if known is None else known + _NEWS * (run - known)
            self._credit_seconds = min(self._credit_seconds, _MOST_CREDIT * expected)
            serving = facts.serving_seconds / max(1, facts.runs)
            if earned := _SPENT * self._terms.share * serving:
                facts.shadow_interval_runs = max(1, math.ceil(expected / earned))

    # Shadow runs.

    def _shadow(self, inputs: list[Array], outputs: list[Array]) -> None:
        begun = start = time.thread_time()
        try:
            self.prepare(shapes_of(inputs))
            start = time.thread_time()
            if self._reference is not None:
                self._compare(self._reference.run(inputs), outputs)
        except OdcError as error:
            self.facts.shadows_off = str(error)
        except Exception as error:  # a background thread cannot raise it
            _log.exception("a shadow run failed")
            self.facts.shadows_off = f"{type(error).__name__}: {error}"
        finally:
            now = time.thread_time()
            self._paid.append((now - begun, now - start))

    def _compare(self, expected: Sequence[Array], outputs: Sequence[Array]) -> None:
        if self._afresh or self._compared >= _SHADOWS_TOGETHER:
            self._afresh, self._compared = False, 0
            self._meters = _meters(self._terms.outputs, expected)
        for meter, ours, theirs in zip(self._meters, expected, outputs, strict=True):
            if ours.shape != theirs.shape:
                self._give_up(f"an answer has the shape {list(theirs.shape)}, the model's has {list(ours.shape)}")
                return
            with np.errstate(all="ignore"):
                meter.add(ours, theirs)
        self._compared += 1
        errors = [meter.errors() for meter in self._meters]
        limits = {limit: self._limited(limit, errors) for limit in self._terms.limits}
        measures: dict[str, float | None] = {}
        for limit, found in limits.items():
            values = [value for item in found if (value := getattr(item, limit.metric)) is not None]
            worst = min if HIGHER_IS_BETTER[limit.metric] else max
            measures[limit.key] = worst(values) if values else None
        self.facts.measures = measures
        broken = next((limit for limit, found in limits.items() if not self._holds(limit, found)), None)
        if broken is not None and self._compared >= _FEWEST_SHADOWS:
            value = self.facts.measures[broken.key]
            text = check_text(broken.metric, broken.bound, value, output=broken.output)
            self._give_up(f"in {self._compared} shadow runs: {text}")
        suspected = broken is not None or self.facts.saturated is not None
        self._urgent = suspected and self._compared < _FEWEST_SHADOWS

    def _limited(self, limit: Limit, errors: Sequence[Errors]) -> list[Errors]:
        names = [output.name for output in self._terms.outputs]
        if limit.output not in names or len(names) != len(errors):
            of_answers = limit.metric in OF_ANSWERS
            return [e for e in errors if (getattr(e, limit.metric) is not None if of_answers else not e.are_answers)]
        return [found for name, found in zip(names, errors, strict=True) if name == limit.output]

    def _holds(self, limit: Limit, errors: Sequence[Errors]) -> bool:
        limit = replace(limit, output=None)  # ``errors`` are of this output only
        if limit.metric.endswith("_match"):  # with few samples, a share may miss the bound by chance
            count, share = self._compared, min(1.0, max(0.0, limit.bound))
            missed = math.floor(count * (1.0 - share) + 2.0 * math.sqrt(count * share * (1.0 - share)))
            limit = Limit(limit.metric, min(share, 1.0 - max(1, missed) / count))
        return all(limit.holds({name: getattr(found, name) for name in Errors.__slots__}) for found in errors)

    def _give_up(self, reason: str) -> None:
        with suppress(IndexError):
            self._leave.pop()(reason)


def _meters(known: Sequence[MeasuredOutput], expected: Sequence[Array]) -> list[ErrorMeter]:
    """Return a meter for each output in ``expected``. By default, all outputs count as answers."""
    known = known if len(known) == len(expected) else [MeasuredOutput()] * len(expected)
    all_are = not any(output.answers for output in known)
    return [
        ErrorMeter(
            Tolerance(),
            top=all_are or output.answers,
            classes=None if output.classes is None or array.size % output.classes else output.classes,
            interval=output.interval,
            equality=output.equality,
        )
        for output, array in zip(known, expected, strict=True)
    ]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# Saturation. Some tensors always have saturated codes, for example after a ReLU. The verdict's samples identify these
# tensors.


@dataclass(frozen=True, slots=True)
class InputRange:
    """The range of input number ``position``: quantised with a margin, and recorded."""

    position: int
    name: str
    low: float
    high: float

    def outside(self, value: Array) -> int:
        """Return the number of elements outside the range, including NaN, or 0 for inputs that are codes."""
        if not value.size or value.dtype.kind != "f":
            return 0
        # With a NaN, the two comparisons are false.
        if np.minimum.reduce(value, axis=None) >= self.low and np.maximum.reduce(value, axis=None) <= self.high:
            return 0
        return value.size - int(np.count_nonzero((value >= self.low) & (value <= self.high)))


def input_ranges(graph: Graph, seen: Sequence[Sequence[float]] = ()) -> tuple[InputRange, ...]:
    """Return the ranges of the inputs that the graph uses only as codes. ``seen``: recorded ranges of all inputs."""
    found = []
    for position, index in enumerate(graph.inputs):
        for info in _codes_of(graph, index):
            assert info.quant is not None, "its codes are quantised"
            low, high = (info.quant.scale * (code - info.quant.zero_point) for code in info.info.range)
            margin = _MARGIN * (high - low)
            least, most = seen[position] if position < len(seen) else (low, high)
            found.append(InputRange(position, info.name, min(low - margin, least), max(high + margin, most)))
    return tuple(found)


def _codes_of(graph: Graph, index: int) -> Iterator[TensorInfo]:
    """Yield the tensors that hold the codes of input ``index``: the input itself, or the results of all its readers."""
    if _is_coded(graph.tensors[index]):
        yield graph.tensors[index]
        return
    readers = [item for item in graph.nodes if index in item.inputs]
    if all(item.node.spec.name == "QUANTIZE" for item in readers):
        yield from (info for item in readers if _is_coded(info := graph.tensors[item.outputs[0]]))


def _is_coded(info: TensorInfo) -> bool:
    return info.info.is_integer and info.quant is not None and info.quant.per_tensor and info.info.bits in (8, 16)


class EndCounter:
    """Counter of codes at the two ends of the range. It is the argument ``watch`` of ``executor.run``."""

    def __init__(self, graph: Graph) -> None:
        self._ends = {
            index: (info.name, *info.info.range)
            for item in graph.nodes
            if not item.node.spec.quant.table  # a softmax uses its whole range
            for index in item.outputs
            if _is_coded(info := graph.tensors[index])
        }
        self._counts: dict[str, list[int]] = {}

    def __call__(self, index: int, value: Array) -> None:
        ends = self._ends.get(index)
        if ends is not None and value.size:
            name, low, high = ends
            counts = self._counts.setdefault(name, [0, 0, 0])
            counts[0] += int(np.count_nonzero(value == low))
            counts[1] += int(np.count_nonzero(value == high))
            counts[2] += value.size

    def take(self) -> dict[str, tuple[float, float]]:
        """Return the shares of codes at the two ends by tensor name, counted since the last call."""
        counts, self._counts = self._counts, {}
        return {name: (low / size, high / size) for name, (low, high, size) in counts.items()}


def excess(shares: Mapping[str, Sequence[float]], normal: Mapping[str, Sequence[float]]) -> tuple[str, float] | None:
    """Return the tensor with the largest excess of saturated codes over normal, and its share, or None."""
    found = [
        (max(ours - theirs for ours, theirs in zip(share, normal[name], strict=True)), name)
        for name, share in shares.items()
        if name in normal
    ]
    most, name = max(found, default=(0.0, ""))
    return (name, most) if most > EXCESS_SHARE else None


def normal_shares(executor: Executor, samples: Sequence[Sequence[Any]]) -> dict[str, list[float]]:
    """Return the largest shares of codes at the two ends by tensor name, in runs of a quantised model on ``samples``.

    Shares of masks vary widely with the position in a text, so a mean would be no limit.
    """
    counter, found = EndCounter(executor.graph), dict[str, list[float]]()
    for sample in spread(samples, _SAMPLES):
        executor.run(sample, watch=counter)
        for name, shares in counter.take().items():
            found[name] = [round(max(ends), 4) for ends in zip(shares, found.get(name, shares), strict=True)]
    return found


def seen_ranges(samples: Sequence[Sequence[Array]]) -> list[list[float]]:
    """Return the least and the largest value of each input in ``samples``. Inputs that are not float have [0, 0]."""
    return [
        [float(min(map(np.min, values))), float(max(map(np.max, values)))]
        if values[0].dtype.kind == "f" and values[0].size
        else [0.0, 0.0]
        for values in zip(*samples, strict=True)
    ]


def spread(samples: Sequence[Any], most: int) -> Sequence[Any]:
    """Return at most ``most`` samples, spread evenly over all samples."""
    return [samples[index] for index in stratified(min(most, len(samples)), len(samples))]
