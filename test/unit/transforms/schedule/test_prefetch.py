"""Constants on their way to SRAM: how they are merged, and that what has room is copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odc_mlir import targets
from odc_mlir.isa.fields import Space
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.hazards import dependences
from odc_mlir.transforms.npu.schedule.prefetch import LARGEST_CHUNK, ConstantCopy, Room, prefetch_constants
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, command

TARGET = targets.load("npu-128")
CAPACITY = 1 << 20


def loads(sizes: Sequence[int]) -> list[Command]:
    """One load into the same weights for each size."""
    slot = Buffer("weights", Space.WEIGHT, TARGET.local.weight_bytes, 0)
    return [
        command("wload", index, source=(Buffer("w", Space.CONSTANTS, n, data=bytes(n)), 0), target=(slot, 0),
                coded_bytes=n, bytes=n)
        for index, n in enumerate(sizes)
    ]  # fmt: skip


def prefetched(
    commands: Sequence[Command], sram_bytes: int, target: Target = TARGET, room: Room = "all"
) -> list[ConstantCopy]:
    return prefetch_constants(commands, dependences(commands), target, sram_bytes, room=room)


def sizes_of(copies: Sequence[ConstantCopy]) -> list[int]:
    return [copy.size for copy in copies]


@example([LARGEST_CHUNK // 4] * 60)
@given(st.lists(st.integers(1, LARGEST_CHUNK), min_size=1, max_size=60))
@settings(max_examples=30)
def test_small_constants_are_merged_into_chunks_that_end(sizes: list[int]) -> None:
    moved = sizes_of(prefetched(loads(sizes), CAPACITY))
    assert sum(moved) == sum(sizes)
    assert max(moved) <= LARGEST_CHUNK


def test_a_chunk_ends_where_a_burst_ends() -> None:
    assert TARGET.offchip.burst_bytes == 128
    assert sizes_of(prefetched(loads([300, 84, 60]), CAPACITY)) == [384, 60]
    assert sizes_of(prefetched(loads([300, 84, 128]), CAPACITY)) == [512]


def test_a_large_constant_is_copied_alone() -> None:
    assert sizes_of(prefetched(loads([8000] * 3), CAPACITY)) == [8000] * 3


def test_the_first_and_last_chunks_are_small() -> None:
    assert sizes_of(prefetched(loads([256] * 20), CAPACITY)) == [512] * 5 + [768, 512, 512, 512, 256]


def test_constants_are_read_directly_if_the_port_to_sram_is_the_narrower_one() -> None:
    ports = {"offchip": replace(TARGET.offchip, bytes_per_cycle=16), "sram": replace(TARGET.sram, bytes_per_cycle=2)}
    commands = loads([5000] * 4) * 3  # each read three times
    assert not prefetched(commands, CAPACITY, replace(TARGET, **ports), "best")
    assert len(prefetched(commands, CAPACITY, TARGET, "best")) == 4


@pytest.mark.parametrize("numbers", [(0, 2, 1), (0, 1, 2)])
def test_copies_come_in_the_order_in_which_layers_end(numbers: tuple[int, int, int]) -> None:
    """However early weights are loaded, and however layers are numbered: one before theirs would wait for them."""
    first, last, middle = loads([600, 5000, 700])
    first.layer, last.layer, middle.layer = numbers
    again = command("wload", last.layer, source=last.places["source"], target=last.places["target"],
                    coded_bytes=5000, bytes=5000)  # fmt: skip
    copies = prefetched([first, last, middle, again], CAPACITY)
    assert [(copy.size, copy.position) for copy in copies] == [(600, 0), (700, 0), (5000, 0)]


def test_a_chunk_without_room_is_divided() -> None:
    sizes = [100] * 300
    whole = sizes_of(prefetched(loads(sizes), CAPACITY))
    parts = sizes_of(prefetched(loads(sizes), 1024))
    assert max(whole) > 1024 >= max(parts)
    assert sum(parts) == sum(sizes)


def test_what_fits_in_no_way_stays_where_it_is() -> None:
    commands = loads([100, 8000, 100])
    first, _, third = (item.places["source"][0] for item in commands)
    assert [copy.constants for copy in prefetched(commands, 1024)] == [(first,), (third,)]
