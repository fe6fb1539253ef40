"""Speed of compiled models is pinned by a table: what makes one faster or slower changes it, and says why.

``scripts/cycle_table.py --reason TEXT`` measures again and writes the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import cycle_table
import release_record
from cycle_table import Key, Value
from helpers.compiled import Compiled
from odc_mlir import compiler
from odc_mlir.formats.package import read_package
from odc_mlir.simulator import load, simulate
from odc_mlir.transforms.npu import npu_hoist_transfers
from odc_mlir.transforms.npu.schedule import layer_plan, prefetch, window_search

# These rows run in the quick suite; together they notice every mutation below.
QUICK = (
    *cycle_table.rows(["digits_cnn_int8"]),
    Key("kws_ref_model", "npu-256", "flash"),
    Key("kws_ref_model", "npu-256", "sram"),
    Key("pretrainedResnet_quant", "npu-256", "flash"),
    Key("mobilenet_v1_0.25_128_quant", "npu-512", "flash"),
)
RECORD = release_record.rows_of(release_record.read(release_record.path_of()))
AGAIN = "measure with scripts/cycle_table.py, and write the table with --reason"


def _parameter(key: Key) -> Any:
    marks: list[pytest.MarkDecorator] = [pytest.mark.xdist_group(key.model)]
    if key not in QUICK:
        marks.append(pytest.mark.soak)
    return pytest.param(key, id="-".join(key), marks=marks)


@pytest.mark.parametrize("key", list(map(_parameter, cycle_table.rows())))
def test_cycles(key: Key, test_data: Path, compiled: Compiled) -> None:
    path = cycle_table.model_path(test_data, key.model)
    package = read_package(compiled(path, target=key.target, memory=key.memory))
    lines = list(cycle_table.differences(cycle_table.read(), {key: cycle_table.timed(package)}))
    assert not lines, f"{lines[0]}: {AGAIN}"


@pytest.mark.parametrize("key", list(map(_parameter, cycle_table.rows())))
def test_the_record_of_this_version(key: Key, test_data: Path, compiled: Compiled) -> None:
    path = cycle_table.model_path(test_data, key.model)
    package = read_package(compiled(path, target=key.target, memory=key.memory))
    lines = list(release_record.differences(RECORD, {key: release_record.costs(package)}))
    assert not lines, f"{lines[0]}: compare with scripts/release_record.py, and write it with --write"


SHORT_OF_MEMORY: list[tuple[str, dict[str, Any], int, int]] = [
    ("kws_ref_model", {"sram_limit": 24 << 10}, 30_484, 23_648),
    ("pretrainedResnet_quant", {"sram_limit": 40 << 10}, 89_720, 40_544),
    ("pretrainedResnet_quant", {"prefer": "memory"}, 89_104, 49_152),
]


@pytest.mark.parametrize(("name", "options", "cycles", "arena"), SHORT_OF_MEMORY)
def test_cycles_with_little_memory(
    name: str, options: dict[str, Any], cycles: int, arena: int, test_data: Path
) -> None:
    """The sizes of chunks in which constants arrive, and how much slower a plan for less memory may be."""
    files = compiler.compile(cycle_table.model_path(test_data, name), **options)
    assert files.plan is not None
    (step,) = files.plan.segments
    program = load(files.segment(step.file))
    assert simulate(program, execute=False).counters.cycles == pytest.approx(cycles, rel=cycle_table.TOLERANCE)
    assert program.container.arena_bytes == pytest.approx(arena, rel=cycle_table.TOLERANCE)


def test_every_number_of_a_record_counts(tmp_path: Path) -> None:
    key = cycle_table.rows()[0]
    made = release_record.Costs(1, 2, 3, 4, 5, 6)
    release_record.write(tmp_path / "record.json", {}, {key: made})
    read = release_record.rows_of(release_record.read(tmp_path / "record.json"))
    assert read == {key: made}
    for field in fields(made):
        other = replace(made, **{field.name: 0})
        (line,) = release_record.differences(read, {key: other})
        assert field.name in line


def test_the_table_holds_exactly_its_rows() -> None:
    assert list(cycle_table.read()) == cycle_table.rows()


@pytest.mark.parametrize(
    ("cycles", "operators", "expected"),
    [(1000, 5, False), (1010, 5, False), (990, 5, False), (1011, 5, True), (989, 5, True), (1000, 4, True)],
)
def test_one_percent_either_way_and_any_other_placement_count(cycles: int, operators: int, expected: bool) -> None:
    assert cycle_table.changed(Value(1000, 5), Value(cycles, operators)) is expected


def test_a_written_table_reads_back_with_its_reasons(tmp_path: Path) -> None:
    path, key = tmp_path / "table.csv", cycle_table.rows()[0]
    cycle_table.write({key: Value(1, 2)}, "first", path)
    cycle_table.write({key: Value(3, 4)}, "second", path)
    assert cycle_table.read(path) == {key: Value(3, 4)}
    assert cycle_table.reasons(path) == ["# second", "# first"]


Patch = Callable[[pytest.MonkeyPatch], None]


def _no_hoisting(patch: pytest.MonkeyPatch) -> None:
    """Every transfer stands just before its use."""
    patch.setattr(npu_hoist_transfers, "hoist_transfers", lambda commands, _found, _depth: list(range(len(commands))))


def _single_buffers(patch: pytest.MonkeyPatch) -> None:
    """One slot for the input tile, the result tile and the weights, and no ring of rows."""
    sized = window_search.TilingSearch._sized

    def single(self: Any, plan: Any) -> Iterator[Any]:
        for tiling in sized(self, replace(plan, weight_slots=1)):
            yield replace(tiling, in_slots=min(tiling.in_slots, 1), out_slots=min(tiling.out_slots, 1), ring=False)

    patch.setattr(window_search.TilingSearch, "_sized", single)


def _nothing_resident(patch: pytest.MonkeyPatch) -> None:
    """Every tensor goes through SRAM."""
    patch.setattr(layer_plan.ResidentPlanner, "_fitting", lambda _self: frozenset())


def _worst_tiling(patch: pytest.MonkeyPatch) -> None:
    """The slowest of the tilings that are worth a look."""
    choices = window_search.Tilings.choices

    def slowest(self: Any, window: Any, room: Any, *, weighted: bool) -> Any:
        return (max(choices(self, window, room, weighted=weighted), key=lambda choice: choice.cycles),)

    patch.setattr(window_search.Tilings, "choices", slowest)


def _late_constants(patch: pytest.MonkeyPatch) -> None:
    """Constants are copied to SRAM when they are needed, not while something else runs."""
    place = prefetch._place

    def late(*arguments: Any) -> list[Any]:
        found = place(*arguments)
        for chunk in found:
            chunk.earliest = max(chunk.earliest, chunk.first_use)
        return found

    patch.setattr(prefetch, "_place", late)


MUTATIONS: Sequence[Patch] = (_no_hoisting, _single_buffers, _nothing_resident, _worst_tiling, _late_constants)


@pytest.mark.soak
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__.strip("_"))
def test_a_worse_scheduler_is_noticed_by_the_quick_rows(
    mutation: Patch, test_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    window_search.window_choices.cache_clear()
    try:
        found = ((key, cycle_table.measure(test_data, key)) for key in reversed(QUICK))
        assert any(cycle_table.changed(cycle_table.read()[key], value) for key, value in found)
    finally:
        window_search.window_choices.cache_clear()
