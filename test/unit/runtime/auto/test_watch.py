"""Watching answers: inputs outside of ranges, codes at the ends, shadow runs and what they may cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.models import ModelBuilder
from odc_mlir.errors import AllocationError
from odc_mlir.formats.circle.model import Model
from odc_mlir.quantizer.policy.verdict import Limit
from odc_mlir.runtime.auto import watch
from odc_mlir.runtime.auto.watch import EndCounter, Terms, Watch, excess, input_ranges, normal_shares, seen_ranges
from odc_mlir.runtime.execution.executor import Executor, HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

Array = np.ndarray[Any, Any]
SHAPE = (1, 16)
LIMITS = {"limits": [{"metric": "mpeir", "limit": 0.1}, {"metric": "drop", "limit": 1.0}]}


def coded_model(*, direct: bool = False) -> Model:
    """x -> codes of 0.1 around 0, negated -> y; ``direct``: something else reads x too."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", SHAPE), builder.tensor("y", SHAPE)
    code, negative = (builder.tensor(name, SHAPE, "int8", quant=(0.1, 0)) for name in ("code", "negative"))
    builder.operator("QUANTIZE", [x], [code])
    builder.operator("NEG", [code], [negative])
    builder.operator("DEQUANTIZE", [negative], [y])
    if not direct:
        return builder.finish([x], [y])
    z = builder.tensor("z", SHAPE)
    builder.operator("ABS", [x], [z])
    return builder.finish([x], [y, z])


def executor_of(model: Model | None = None) -> Executor:
    return HostExecutor(build_graph(coded_model() if model is None else model))


def values(value: float, count: int = 16) -> Array:
    """``count`` of 16 elements are ``value``, the rest a tenth."""
    found = np.full(SHAPE, 0.1, np.float32)
    found[0, :count] = value
    return found


class Reference:
    """Stands for the model: gives back its input, and takes ``seconds`` of processor time as our clock tells it."""

    def __init__(self, clock: Clock | None = None, seconds: float = 0.0) -> None:
        self.runs = 0
        self._clock, self._seconds = clock, seconds

    def prepare(self, shapes: Any) -> None:
        pass

    def run(self, inputs: list[Array]) -> list[Array]:
        self.runs += 1
        if self._clock is not None:
            self._clock.now += self._seconds
        return list(inputs)


class Clock:
    """In place of the module ``time``."""

    def __init__(self) -> None:
        self.now = 0.0

    def thread_time(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return 0.0


class AtOnce:
    """In place of a thread: runs when it is started."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], **options: Any) -> None:
        self._work = lambda: target(*args)

    def start(self) -> None:
        self._work()

    def is_alive(self) -> bool:
        return False

    def join(self, seconds: float | None = None) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(watch, "time", found)
    monkeypatch.setattr(watch, "Thread", AtOnce)
    return found


def watching(
    reference: Any = None, share: float = 0.02, verdict: dict[str, Any] | None = None
) -> tuple[Watch, list[str]]:
    """A watch, and the reasons for which it wanted to leave."""
    left: list[str] = []
    make = None if reference is None else lambda: reference
    return Watch(Terms.of(LIMITS if verdict is None else verdict, share), make, left.append), left


def answer(found: Watch, wrong: float = 0.0, seconds: float = 1.0) -> None:
    """One answer in ``seconds``, off by ``wrong`` times the range of what is right."""
    right = np.linspace(0.0, 1.0, 16, dtype=np.float32).reshape(SHAPE)
    found.answered([right], [right + np.float32(wrong)], seconds)


# Inputs.


def test_ranges_of_inputs() -> None:
    (found,) = input_ranges(executor_of().graph)
    assert (found.position, found.name) == (0, "code")
    assert (found.low, found.high) == pytest.approx((-12.8 - 2.55, 12.7 + 2.55))
    assert input_ranges(executor_of(coded_model(direct=True)).graph) == ()  # what is outside may be right there
    for value, outside in ((15.2, 0), (15.3, 16), (-15.4, 16), (np.nan, 16), (np.inf, 16)):
        assert found.outside(values(value)) == outside
    assert found.outside(values(99, 3)) == 3
    assert found.outside(np.zeros((0, 16), np.float32)) == found.outside(np.zeros(SHAPE, np.int8)) == 0


def test_recorded_values_are_inside_even_if_codes_cannot_represent_them() -> None:
    left: list[str] = []
    found = Watch(
        Terms.of(LIMITS | {"input_ranges": seen_ranges([[values(-1e4)], [values(5.0)]])}, 0.0), None, left.append
    )
    executor = executor_of()
    assert all(found.admits(executor, [values(value)]) for value in (-1e4, 15.2))
    assert not any(found.admits(executor, [values(value)]) for value in (-1.01e4, 15.3, np.nan))
    assert not left
    assert seen_ranges([[np.array([3, 7]), np.zeros((0, 4), np.float32)]]) == [[0.0, 0.0], [0.0, 0.0]]


def test_a_run_outside_of_the_ranges_is_not_admitted_and_several_are_too_many() -> None:
    found, left = watching()
    executor = executor_of()
    assert found.admits(executor, [values(12.0)])
    assert not found.admits(executor, [values(20.0, 1)])  # one of 16 elements is more than a twentieth
    for _ in range(40):
        assert found.admits(executor, [values(1.0)])
    assert not left
    for _ in range(3):
        assert not found.admits(executor, [values(20.0)])
    assert not left
    assert not found.admits(executor, [values(20.0)])
    assert not found.admits(executor, [values(20.0)])
    assert left == ["the inputs of 4 of the last 32 runs lie outside of the ranges recorded"]
    assert (found.facts.runs_outside, found.facts.values_outside) == (6, 1 + 5 * 16)


def test_single_values_outside_are_let_through() -> None:
    found, left = watching()
    big = np.zeros((1, 400), np.float32)
    big[0, :20] = 99
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 400)), builder.tensor("y", (1, 400), "int8", quant=(0.1, 0))
    builder.operator("QUANTIZE", [x], [y])
    executor = executor_of(builder.finish([x], [y]))
    assert all(found.admits(executor, [big]) for _ in range(9))
    big[0, 20] = 99
    assert not found.admits(executor, [big])
    assert not left


# Codes at the ends.


def test_codes_at_the_ends() -> None:
    executor = executor_of()
    counter = EndCounter(executor.graph)
    executor.run([values(99, 4)], watch=counter)
    assert counter.take() == {"code": (0.0, 0.25), "negative": (0.0, 0.0)}  # -127 is not the end
    assert counter.take() == {}
    assert normal_shares(executor, [[values(99, 4)], [values(-99, 1)], [values(0, 4)]])["code"] == [0.0625, 0.25]
    assert excess({"a": (0.0, 0.3), "b": (0.0, 0.2)}, {"a": [0.0, 0.26], "b": [0.0, 0.1]}) == (
        "b",
        pytest.approx(0.1),
    )
    assert excess({"a": (0.0, 0.3), "unknown": (1.0, 1.0)}, {"a": [0.0, 0.26]}) is None


def test_what_an_operator_fixes_is_not_counted() -> None:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, SHAPE, "int8", quant=(1 / 256, -128)) for name in "xy")
    builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
    executor = executor_of(builder.finish([x], [y]))
    counter = EndCounter(executor.graph)
    executor.run([np.full(SHAPE, -128, np.int8)], watch=counter)
    assert counter.take() == {}


def test_codes_at_the_ends_call_for_shadow_runs(clock: Clock) -> None:
    verdict = {**LIMITS, "saturation": {"code": [0.0, 0.0]}}
    reference = Reference(clock, 1000.0)  # more than can ever be afforded
    found, left = watching(reference, verdict=verdict)
    executor = executor_of()
    counted = 0
    for _ in range(200):
        assert found.admits(executor, [values(14.0, 4)])  # within the margin, but cut off
        counter = found.counter(executor)
        counted += counter is not None
        executor.run([values(14.0, 4)], watch=counter)
        answer(found)
    assert counted == 13
    assert found.facts.saturated == "code"
    assert reference.runs == 1 + 4  # the first that could be afforded, and enough to know that answers are right
    assert not left
    alone, left = watching(None, verdict=verdict)
    for cut_off, reasons in ((4, 0), (8, 1)):  # a quarter is not enough
        for _ in range(200):
            alone.admits(executor, [values(14.0, cut_off)])
            executor.run([values(14.0, cut_off)], watch=alone.counter(executor))
            answer(alone)
        assert len(left) == reasons
    assert "more codes of 'code' than usual are at the ends of their range" in left[0]


# Shadow runs.


@settings(max_examples=25)
@given(
    share=st.floats(0.001, 0.5),
    serving=st.floats(1e-5, 1.0),
    ratio=st.floats(0.01, 100.0),
    spikes=st.lists(st.integers(0, 200), max_size=5),
)
def test_shadow_runs_cost_what_they_may(share: float, serving: float, ratio: float, spikes: list[int]) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "time", clock)
        patch.setattr(watch, "Thread", AtOnce)
        reference = Reference(clock, ratio * serving)
        found, _ = watching(reference, share)
        for number in range(200):
            answer(found, seconds=serving * (5 if number in spikes else 1))
    found.join()
    facts = found.facts
    assert facts.shadow_seconds == pytest.approx(reference.runs * ratio * serving)
    # The first one cannot be foreseen; all others are paid before they begin.
    assert facts.shadow_seconds <= share * facts.serving_seconds + ratio * serving * (1 + 1e-9)
    if share * 0.9 * 200 > 2 * max(ratio, 5):
        assert facts.shadow_runs >= 1
        assert facts.shadow_interval_runs == pytest.approx(
            max(1, ratio * 200 * serving / (0.9 * share * facts.serving_seconds)), rel=0.2, abs=1.001
        )


def test_answers_that_leave_the_limits(clock: Clock) -> None:
    reference = Reference(clock, 0.01)
    found, left = watching(reference)
    for _ in range(80):
        answer(found, wrong=0.05)
    assert not left
    assert found.facts.measures["mpeir"] == pytest.approx(0.05)
    while not left:
        answer(found, wrong=0.9)
        assert reference.runs < 40
    assert left == [left[0]]
    assert "shadow runs: mpeir 0.1" in left[0]
    assert "at most 0.1 allowed" in left[0]
    runs = reference.runs
    answer(found, wrong=0.9)
    assert (reference.runs, len(left)) == (runs, 1)  # once is enough


def test_a_single_bad_answer_is_looked_into_at_once(clock: Clock) -> None:
    reference = Reference(clock, 1000.0)
    found, left = watching(reference)
    while not reference.runs:
        answer(found, wrong=0.9)
    for _ in range(2):
        answer(found, wrong=0.9)
    assert (reference.runs, left) == (3, [])
    answer(found, wrong=0.9)
    assert (reference.runs, len(left)) == (4, 1)


@pytest.mark.parametrize(("limit", "wrong_of_20"), [(0.9, 1), (1.5, 0)])  # a verdict may come from a damaged file
def test_chance_is_no_reason(limit: float, wrong_of_20: int, clock: Clock) -> None:
    found, left = watching(Reference(), verdict={"limits": [{"metric": "top1_match", "limit": limit}]}, share=1.0)
    rng = np.random.default_rng(5)
    for number in range(400):
        right = rng.random(SHAPE, np.float32)
        found.answered([right], [np.roll(right, 1) if number % 20 < wrong_of_20 else right], 1.0)
    assert not left
    for _ in range(40):
        right = rng.random(SHAPE, np.float32)
        found.answered([right], [np.roll(right, 1)], 1.0)
    assert "same answers" in left[0]


def test_rows_are_answers_where_the_verdict_has_them(clock: Clock) -> None:
    output = {"classifies": True, "classes": SHAPE[1] // 4}
    verdict = {"limits": [{"metric": "top1_match", "limit": 0.9}], "outputs": [output]}
    found, left = watching(Reference(), verdict=verdict, share=1.0)
    for _ in range(40):
        right = np.tile(np.array([1.0, 0.0, 0.5, 0.2], np.float32), 4).reshape(SHAPE)
        other = right.copy()
        other[0, -4] += 1.0  # the largest of all is another, that of each row is not
        found.answered([right], [other], 1.0)
    assert not left
    assert found.facts.measures["top1_match"] == 1.0


class _Twice(Reference):
    """Gives back its input as each of two outputs."""

    def run(self, inputs: list[Array]) -> list[Array]:
        return super().run(inputs) * 2


@pytest.mark.parametrize("other", [0.5, 1.0])
def test_a_limit_of_one_output_says_nothing_of_others(clock: Clock, other: float) -> None:
    """Every other answer of output ``b`` differs."""
    checks = [{"metric": "top1_match", "limit": limit, "output": name} for name, limit in (("a", 1.0), ("b", other))]
    outputs = [{"name": name, "classifies": True} for name in "ab"]
    found, left = watching(_Twice(), verdict={"limits": checks, "outputs": outputs}, share=1.0)
    for number in range(40):
        right = np.arange(16, dtype=np.float32).reshape(SHAPE)
        found.answered([right], [right, np.roll(right, number % 2)], 1.0)
    assert found.facts.measures == {"top1_match:a": 1.0, "top1_match:b": pytest.approx(0.5, abs=0.1)}
    assert bool(left) == (other == 1.0)
    assert all("same answers of output 'b'" in text for text in left)


@pytest.mark.parametrize("bound", [0.9, 1.0])
def test_right_or_wrong_values_have_no_distance(clock: Clock, bound: float) -> None:
    """Output ``b`` flips one of 16 truths, which would be an error of the whole range."""
    limits = [{"metric": "mpeir", "limit": 0.1}, {"metric": "top1_match", "limit": bound}]
    outputs = [{"name": "a", "classifies": False}, {"name": "b", "classifies": True, "equality": True}]
    found, left = watching(_Twice(), verdict={"limits": limits, "outputs": outputs}, share=1.0)
    right = (np.arange(16) % 2).astype(np.float32).reshape(SHAPE)
    flipped = right.copy()
    flipped[0, 3] = 0.0
    for _ in range(40):
        found.answered([right], [right, flipped], 1.0)
    assert found.facts.measures == {"mpeir": 0.0, "top1_match": 0.9375}
    assert [text.split(":")[1] for text in left] == [" same answers 93.8 % (at least 100.0 % allowed)"] * (bound == 1.0)


def test_another_shape_and_no_numbers(clock: Clock) -> None:
    found, left = watching(Reference(), share=1.0)
    for _ in range(2):
        found.answered([np.zeros(SHAPE, np.float32)], [np.zeros((1, 3), np.float32)], 1.0)
    assert left == ["an answer has the shape [1, 3], the model's has [1, 16]"]
    found, left = watching(Reference(), share=1.0)
    for _ in range(6):
        found.answered([np.ones(SHAPE, np.float32)], [np.full(SHAPE, np.nan, np.float32)], 1.0)
    assert "mpeir unknown" in left[0]


def test_inputs_may_be_written_after_the_answer() -> None:
    found, left = watching(Reference(), share=1.0)
    for _ in range(50):
        inputs = np.ones(SHAPE, np.float32)
        outputs = inputs.copy()
        found.answered([inputs], [outputs], 10.0)
        inputs[:] = 7
        assert found.join(10)
    assert found.facts.shadow_runs
    assert not left


def test_shadow_runs_that_cannot_be() -> None:
    class Failing(Reference):
        def run(self, inputs: list[Array]) -> list[Array]:
            raise self.error

        error: Exception = AllocationError("no room")

    for error, reason in ((AllocationError("no room"), "no room"), (ZeroDivisionError("a bug"), "ZeroDivisionError")):
        reference = Failing()
        reference.error = error
        found, left = watching(reference, share=1.0)
        for _ in range(5):
            answer(found)
            found.join(10)
        assert reason in (found.facts.shadows_off or "")
        assert not left
    assert "application" in (watching(None)[0].facts.shadows_off or "")
    assert "verdict" in (watching(Reference(), verdict={"limits": []})[0].facts.shadows_off or "")
    assert "time allowed" in (watching(Reference(), share=0.0)[0].facts.shadows_off or "")


@pytest.mark.parametrize(
    ("verdict", "limits"),
    [
        (None, ()),
        ({"metric": "mae", "limit": 2}, (Limit("mae", 2.0),)),
        ({"limits": [{"metric": "drop", "limit": 1.0}, {"metric": "mae"}, 7, {"metric": "none", "limit": 1}]}, ()),
        ({"limits": "all", "saturation": 7}, ()),
    ],
)
def test_verdicts_of_any_kind(verdict: dict[str, Any] | None, limits: tuple[Limit, ...]) -> None:
    terms = Terms.of(verdict, 0.02)
    assert (terms.limits, terms.normal) == (limits, {})
