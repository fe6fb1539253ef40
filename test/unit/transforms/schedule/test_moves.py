"""Strided copies found in maps of elements: the map exactly, few where it is regular, tiles that cover each."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from odc_mlir import targets
from odc_mlir.dialects.npu_layers import StridedCopy
from odc_mlir.transforms.npu.lowering.decompositions import FILLED, indices, strided_copies
from odc_mlir.transforms.npu.schedule.cost import transfer_bytes
from odc_mlir.transforms.npu.schedule.move_stream import (
    LARGEST_COUNT,
    LARGEST_RUN,
    Transfer,
    copy_tiles,
    move_cycles,
    move_tiles,
)

Map = NDArray[Any]
TARGET = targets.load("npu-256")
X = np.arange(8 * 8 * 16).reshape(1, 8, 8, 16)
ZEROS = np.full((1, 16, 16, 16), FILLED)
ZEROS[:, ::2, ::2] = X

REGULAR: dict[str, tuple[Map, int]] = {
    "same": (X, 1),
    "one": (np.zeros(1), 1),
    "narrow slice": (X[..., 3:6], 1),
    "columns swapped": (np.roll(X, 8, -1), 1),
    "column pairs": (np.concatenate([X[..., 4:6], X[..., :7]], -1), 2),
    "channels beside": (np.concatenate([X, X], -1), 2),
    "slice": (X[:, 1:7:2, 2:5, 3:9], 1),
    "turned": (X.transpose(0, 3, 1, 2), 1),
    "each turned": (X.reshape(4, 32, 8).transpose(0, 2, 1), 1),
    "turned round": (X.transpose(3, 2, 1, 0), 1),
    "larger image": (X.repeat(2, 1).repeat(3, 2), 1),
    "tiled": (np.tile(X, (1, 2, 3, 2)), 1),
    "padded": (np.pad(X, ((0, 0), (1, 2), (3, 0), (0, 5)), constant_values=FILLED), 1),
    "zeros between": (ZEROS, 1),
    "backwards": (X[..., ::-1], 1),
    "depth to space": (X.reshape(1, 8, 8, 2, 2, 4).transpose(0, 1, 3, 2, 4, 5), 1),
    "space to depth": (X.reshape(1, 4, 2, 4, 2, 16).transpose(0, 1, 3, 2, 4, 5), 1),
}


def applied(copies: list[StridedCopy], sources: list[int], size: int) -> Map:
    """The map that copies make; each element is written once."""
    offsets = np.cumsum([0, *sources])
    result = np.full(size, FILLED)
    for copy in copies:
        source, target = indices(copy)
        assert (result[target] == FILLED).all()
        result[target] = source + offsets[copy.source]
    return result


@pytest.mark.parametrize("name", REGULAR)
def test_regular_maps_are_few_loops(name: str) -> None:
    index, most = REGULAR[name]
    copies = strided_copies(index, [X.size], 64)
    assert copies is not None
    assert len(copies) <= most
    np.testing.assert_array_equal(applied(copies, [X.size], index.size), index.reshape(-1))


def test_sources_are_told_apart() -> None:
    """The second source begins where the first ends, yet no copy reads both."""
    copies = strided_copies(np.arange(12), [5, 7], 64)
    assert copies == [StridedCopy(0, 0, 0, (5,), (1,), (1,)), StridedCopy(1, 0, 5, (7,), (1,), (1,))]


def test_no_order_is_no_loop() -> None:
    index = np.random.default_rng(0).permutation(200)
    assert strided_copies(index, [200], 64) is None
    found = strided_copies(index, [200], 200)
    assert found is not None
    np.testing.assert_array_equal(applied(found, [200], 200), index)


@given(st.lists(st.integers(FILLED, 11), min_size=1, max_size=40))
def test_any_map_comes_back(index: list[int]) -> None:
    copies = strided_copies(np.array(index), [5, 7], 1000)
    assert copies is not None
    assert applied(copies, [5, 7], len(index)).tolist() == index


def elements(transfer: Transfer, *, written: bool) -> Map:
    """What a transfer writes or reads, in order."""
    found = np.array([transfer.written if written else transfer.read])
    for count, *steps in reversed(transfer.loops):
        found = (found[:, None] + np.arange(count) * steps[0 if written else 1]).reshape(-1)
    return (found[:, None] + np.arange(transfer.size)).reshape(-1)


@pytest.mark.parametrize("room", [1, 7, 64, 1000, 9000])
@pytest.mark.parametrize("name", REGULAR)
def test_tiles_move_what_their_piece_does(name: str, room: int) -> None:
    index, _ = REGULAR[name]
    copies = strided_copies(index, [X.size], 64) or []
    for made in ([*chain(*(copy_tiles(copy, room) for copy in copies))], move_tiles(copies, room, TARGET)):
        result = np.full(index.size, FILLED)
        for tile in made:
            assert tile.bytes <= max(room, 1)
            slot = np.full(tile.bytes, FILLED)
            for load in tile.loads:
                slot[elements(load, written=True)] = elements(load, written=False)
            for store in tile.stores:
                where = elements(store, written=True)
                assert (result[where] == FILLED).all()
                result[where] = slot[elements(store, written=False)]
        np.testing.assert_array_equal(result, index.reshape(-1))


SWAPPED = [StridedCopy(0, start, 8 - start, (64, 8), (16, 1), (16, 1)) for start in (8, 0)]


@pytest.mark.parametrize("copies", [strided_copies(REGULAR["narrow slice"][0], [X.size], 1), SWAPPED])
def test_short_runs_in_memory_are_long_runs_of_a_tile(copies: list[StridedCopy]) -> None:
    """Memory moves whole bursts: all codes between short runs are loaded, and rows are joined in the tile buffer."""
    burst = TARGET.sram.burst_bytes
    for tile in move_tiles(copies, 9000, TARGET):
        for load, transfers in ((True, tile.loads), (False, tile.stores)):
            for runs in (transfer.runs(load=load) for transfer in transfers):
                assert transfer_bytes(runs, burst) < runs.extent + burst


@pytest.mark.parametrize("name", REGULAR)
def test_transfers_fit_their_instructions(name: str) -> None:
    for copy in strided_copies(REGULAR[name][0], [X.size], 64) or []:
        for tile in copy_tiles(copy, 5000):
            for load, transfer in [*((True, t) for t in tile.loads), *((False, t) for t in tile.stores)]:
                fields = transfer.fields(load=load)
                assert all(value >= 0 for value in fields.values())
                assert fields["size0"] <= LARGEST_RUN
                assert max(fields["size1"], fields["size2"]) <= LARGEST_COUNT
                written = "tile" if load else "memory"
                row = (fields["size1"] - 1) * fields[f"{written}_stride1"] + fields["size0"]
                assert fields["size2"] == 1 or fields[f"{written}_stride2"] >= row


def test_more_to_move_costs_more() -> None:
    small, large = (StridedCopy(0, 0, 0, (size,), (1,), (1,)) for size in (64, 64_000))
    scattered = StridedCopy(0, 0, 0, (64_000,), (7,), (1,))
    costs = [move_cycles([copy], 0, 8000, TARGET)[0] for copy in (small, large, scattered)]
    assert costs == sorted(costs)
    assert move_cycles([small], 1000, 8000, TARGET)[0] > costs[0]
