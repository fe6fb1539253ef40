"""A tiling is searched once in a run and remembered by the next; what is remembered is what would be found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odc_mlir import compiler, targets
from odc_mlir.dialects.npu_tiling import Outer
from odc_mlir.errors import CompileError
from odc_mlir.formats.private import Memo
from odc_mlir.transforms.npu.schedule import window_search
from odc_mlir.transforms.npu.schedule.geometry import WindowGeometry, even_splits, make_window
from odc_mlir.transforms.npu.schedule.window_search import Room, TilingChoice, Tilings, tilings_of, window_choices
from odc_mlir.transforms.npu.schedule.window_tiling import step_kinds
from odc_mlir.universe import make_context

TARGET = targets.load("npu-256")
ROOM = Room(TARGET.local.tile_bytes)
WINDOW = make_window((1, 20, 20, 16), (1, 20, 20, 24), kernel=(3, 3), pads=(1, 1))
HUGE = replace(WINDOW, kernel_height=4000, kernel_width=4000)


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[WindowGeometry, Room]]:
    """The searches that are made, with an empty cache."""
    made: list[tuple[WindowGeometry, Room]] = []
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))

    def counted(window: WindowGeometry, target: Any, room: Room, *, weighted: bool) -> Any:
        made.append((window, room))
        return window_choices(window, target, room, weighted=weighted)

    monkeypatch.setattr(window_search, "window_choices", counted)
    return made


@pytest.mark.parametrize(
    ("total", "most", "expected"),
    [
        (100, 40, [34, 25, 20, 17, 15, 13, 12, 10, 9, 8, 7, 6]),
        (5, 8, [5, 3, 2, 1]),
        (8, 1, [1]),
        (0, 4, []),
    ],
)
def test_parts_are_nearly_equal_and_shrink_slowly(total: int, most: int, expected: list[int]) -> None:
    assert even_splits(total, most) == expected


def kept() -> Tilings:
    return tilings_of(make_context(remember=True), TARGET)


def test_what_is_remembered_is_what_would_be_found(searched: list[Any]) -> None:
    first = kept()
    found = first.choices(WINDOW, ROOM, weighted=True)
    first.save()
    assert kept().choices(WINDOW, ROOM, weighted=True) == found == window_choices(WINDOW, TARGET, ROOM, weighted=True)
    assert repr(kept().choices(WINDOW, ROOM, weighted=True)) == repr(found)
    assert len(searched) == 1


def test_that_nothing_fits_is_remembered_too(searched: list[Any]) -> None:
    first = kept()
    for _ in range(2):
        with pytest.raises(CompileError, match="no tile of a 4000x4000 window"):
            first.choices(HUGE, ROOM, weighted=True)
    first.save()
    with pytest.raises(CompileError, match="no tile of a 4000x4000 window"):
        kept().choices(HUGE, ROOM, weighted=True)
    assert len(searched) == 1


@pytest.mark.parametrize("other", ["geometry", "room", "weights", "target", "version", "sources"])
def test_another_question_is_another_search(other: str, searched: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first = kept()
    first.choices(WINDOW, ROOM, weighted=True)
    first.save()
    window = replace(WINDOW, pixel_bytes=32) if other == "geometry" else WINDOW
    room = Room(ROOM.tile_bytes - 256) if other == "room" else ROOM
    if other == "version":
        monkeypatch.setattr(window_search, "__version__", "0.0.9")
    if other == "sources":
        monkeypatch.setattr(window_search, "sources_digest", lambda: "others")
    target = targets.load("npu-512") if other == "target" else TARGET
    again = tilings_of(make_context(remember=True), target)
    again.choices(window, room, weighted=other != "weights")
    assert len(searched) == 2


def test_nothing_is_kept_unless_it_is_asked_for(searched: list[Any], tmp_path: Path) -> None:
    made = tilings_of(make_context(), TARGET)
    made.choices(WINDOW, ROOM, weighted=True)
    made.save()
    assert list(tmp_path.iterdir()) == []


def test_a_run_searches_each_tiling_once(searched: list[Any], test_data: Path) -> None:
    """The partition asks first, then the plan of the segment; layers of the same geometry share."""
    model = test_data / "models/zoo/pretrainedResnet_quant.tflite"
    package = compiler.compile(model, remember=True)
    assert len(searched) == len(set(searched)) > 5
    searched.clear()
    assert compiler.compile(model, remember=True).members == package.members
    assert searched == []
    window_choices.cache_clear()
    assert compiler.compile(model).members == package.members


def test_a_tiling_of_an_unknown_form_is_searched_again(searched: list[Any]) -> None:
    memo = Memo()
    made = Tilings(TARGET, memo)
    found = made.choices(WINDOW, ROOM, weighted=True)
    (key,) = memo._results
    memo.put(key, [[1.0, 2.0, {"rows": 1}]])
    assert Tilings(TARGET, memo).choices(WINDOW, ROOM, weighted=True) == found


def test_transfers_count_against_the_limit_of_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    window = make_window((1, 1, 64, 1024), (1, 1, 64, 128), kernel=(1, 1), pads=(0, 0))

    def commands(choice: TilingChoice) -> int:
        tiling = choice.tiling
        assert tiling is not None
        tiles = -(-window.out_height // tiling.rows) * -(-window.out_width // tiling.cols)
        steps = tiles * sum(times for _, times in step_kinds(window, tiling))
        return steps if tiling.keeps_weights else 2 * steps  # and the weights of each

    search = window_choices.__wrapped__  # which remembers nothing
    most = max(map(commands, search(window, TARGET, ROOM, weighted=True))) - 1
    monkeypatch.setattr(window_search, "MOST_LAYER_COMMANDS", most)
    assert all(commands(choice) <= most for choice in search(window, TARGET, ROOM, weighted=True))


@pytest.mark.parametrize(("size", "channels", "sliced"), [(14, 576, True), (14, 256, False), (1, 576, False)])
def test_input_channels_are_sliced_where_larger_tiles_reload_fewer_weights(
    size: int, channels: int, sliced: bool
) -> None:
    window = make_window((1, size, size, channels), (1, size, size, 96))
    best, *_ = window_choices(window, TARGET, ROOM, weighted=True)
    assert best.tiling is not None
    assert best.tiling.sliced == sliced


def test_a_layer_of_100_million_weights_has_a_tiling() -> None:
    window = make_window((1, 1, 1, 25088), (1, 1, 1, 4096), kernel=(1, 1), pads=(0, 0))
    fastest = window_choices(window, TARGET, ROOM, weighted=True)[0]
    assert fastest.tiling is not None
    assert fastest.tiling.sliced
    assert fastest.cycles < 1.01 * window.weight_bytes  # a byte from flash takes a cycle


def test_weights_that_fill_their_buffer_are_loaded_in_groups() -> None:
    """Those of the next group arrive while these are used; half as many weights have no need of that."""
    buffer = TARGET.local.weight_bytes
    for channels, in_groups in ((buffer // 64, True), (buffer // 256, False)):
        window = make_window((1, 1, 1, 64), (1, 1, 1, channels), kernel=(1, 1))
        fastest = window_choices(window, TARGET, ROOM, weighted=True)[0].tiling
        assert fastest is not None
        assert (fastest.outer is Outer.GROUPS) == in_groups
        assert fastest.weight_slots == (2 if in_groups else 1)
