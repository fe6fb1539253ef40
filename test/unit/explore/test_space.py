"""Axes, the machines that points stand for, and study files."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir import targets
from odc_mlir.errors import OdcError, OptionError
from odc_mlir.explore.space import Machines, ParameterAxis, parse_axis, points, read_study, size
from odc_mlir.explore.study import (
    MEASURES,
    Bound,
    Definition,
    Outcome,
    Trial,
    front,
    parse_bound,
    parse_objectives,
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("array.macs_per_cycle=128,256", (128, 256)),
        ("sram.capacity_bytes=128K:2M:log5", (131072, 262144, 524288, 1048576, 2097152)),
        ("fetch.queue_depth=4:16:4", (4, 8, 12, 16)),
        ("memory=sram, flash", ("sram", "flash")),
        ("sram_limit=64K", (65536,)),
    ],
)
def test_axes(text: str, values: tuple[int | str, ...]) -> None:
    assert parse_axis(text).values == values


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "=1",
        "a=",
        "a=1,1",
        "a=1:2",
        "a=2:1:3",
        "a=0:8:log3",
        "a=1:2:1",
        "a=1:9:logx",
        "a=1:3:9",
        "a=1:1000000:1000000",
        "memory=disk",
        "a=x",
    ],
)
def test_what_is_no_axis(text: str) -> None:
    with pytest.raises(OptionError):
        parse_axis(text)


def test_machines_are_targets(tmp_path: Path) -> None:
    """The shipped machines differ from each other by more than one key; what the array needs follows by itself."""
    machines = Machines("npu-256")
    assert targets.parse(machines.text({}), "x").canonical.replace("explored", "npu-256") == (
        targets.load("npu-256").canonical
    )
    found = targets.parse(machines.text({"array.macs_per_cycle": 512, "sram.bytes_per_cycle": 16}, name="big"), "x")
    assert found.name == "big"
    assert found.array.shapes == targets.load("npu-512").array.shapes
    assert found.array.depthwise_shape == targets.load("npu-512").array.depthwise_shape
    assert found.sram.bytes_per_cycle == 16
    own = tmp_path / "own.toml"
    own.write_text(machines.text({"fetch.queue_depth": 8}, name="own"))
    assert targets.parse(Machines(str(own)).text({}, name="own"), "x") == targets.load(own)
    with pytest.raises(OptionError, match="an array of 100 multipliers has no shape like"):
        machines.text({"array.macs_per_cycle": 100})


@pytest.mark.parametrize("key", ["array.shapes", "array", "nothing.here", "name", "sram.bytes_per_cycle.x"])
def test_what_cannot_be_varied(key: str) -> None:
    with pytest.raises(OptionError, match="cannot be varied"):
        Machines("npu-256").check([ParameterAxis(key, (1, 2))])
    with pytest.raises(OptionError, match="varied twice"):
        Machines("npu-256").check([ParameterAxis("fetch.queue_depth", (1,))] * 2)


@pytest.mark.parametrize(("axis", "hint"), [("target=npu-128,npu-256", "odc-report compares"), ("lanes=1,2", "array.")])
def test_words_that_are_no_key_are_an_error_before_their_values(axis: str, hint: str) -> None:
    with pytest.raises(OptionError, match="cannot be varied") as caught:
        parse_axis(axis)
    assert hint in str(caught.value)


def test_every_combination_once() -> None:
    axes = [ParameterAxis("a", (1, 2, 3)), ParameterAxis("b", ("x", "y"))]
    found = [tuple(point.values()) for point in points(axes)]
    assert found == list(itertools.product((1, 2, 3), ("x", "y")))
    assert len(found) == size(axes)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("models = 3", "wrong type; it must be a list of strings"),
        ("points = true", "wrong type; it must be a whole number"),
        ("bananas = 1", "no key 'bananas'"),
        ("sampler = 'guess'", "no sampler"),
        ("[options]\nbananas = 1", "no option 'bananas'"),
        ("models = [", "not valid TOML"),
    ],
)
def test_what_is_no_study(content: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(content)
    with pytest.raises(OptionError, match=text):
        read_study(str(path), frozenset({"memory"}))


def test_constraints_and_objectives() -> None:
    assert parse_bound("sram_peak_bytes<=64K") == Bound("sram_peak_bytes", 65536)
    assert parse_bound("latency_ms <= 0.5") == Bound("latency_ms", 0.5)
    for text in ("sram_peak_bytes", "bananas<=3", "latency_ms<=x", "latency_ms<=nan", "latency_ms<=-1"):
        with pytest.raises(OdcError):
            parse_bound(text)
    for names in ([], ["cycles_total", "cycles_total"], ["bananas"]):
        with pytest.raises(OptionError):
            parse_objectives(names)


def _trial(values: tuple[int, int], failure: str | None = None) -> Trial:
    measures = {**dict.fromkeys(MEASURES, 1.0), "cycles_total": float(values[0]), "sram_peak_bytes": float(values[1])}
    return Trial({"a": values[0], "b": values[1]}, Outcome({} if failure else {"m": measures}, failure))


def test_several_models_are_one_measure() -> None:
    """Less of one model is never more of all, also where it becomes nothing."""

    def value(measure: str, *values: float) -> float:
        return Outcome({str(i): {measure: v} for i, v in enumerate(values)}).value(measure)

    assert value("latency_ms", 1, 4) == pytest.approx(2)
    assert value("cycles_total", 100, 10_000) > value("cycles_total", 0, 10_000) > 0
    assert value("latency_ms", 1, 4) > value("latency_ms", 0, 4)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=20, unique=True), st.integers(1, 9))
def test_the_front_is_what_no_other_beats(values: list[tuple[int, int]], limit: int) -> None:
    bound = Bound("sram_peak_bytes", limit)
    definition = Definition(("m",), (), ("cycles_total", "sram_peak_bytes"), bounds=(bound,))
    found = {tuple(t.point.values()) for t in front(definition, [*map(_trial, values), _trial((0, 0), "broken")])}
    allowed = [v for v in values if v[1] <= limit]
    beaten = {v for v in allowed for o in allowed if o != v and o[0] <= v[0] and o[1] <= v[1]}
    assert found == set(allowed) - beaten
