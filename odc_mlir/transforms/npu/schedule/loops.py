"""Loops in straight programs.

Tiles of a layer give the same instructions again and again, with addresses that advance by constant steps. ``n``
repetitions of a body become a loop: the same instructions are issued in the same order with the same addresses,
but their bytes are fetched once. The cheapest cover of the program by loops and single instructions is found by dynamic
programming from its end.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.isa.fields import STEP_BLOCK_BYTES
from odc_mlir.isa.instructions import BY_MNEMONIC, field_range

LONGEST_BODY = 96  # instructions
_FRAME_BYTES = BY_MNEMONIC["loop"].size_bytes + BY_MNEMONIC["end"].size_bytes
_MOST_ITERATIONS = field_range("loop", "count")[1]


Numbers = NDArray[np.integer[Any]]
"""Positions, kinds and addresses take 32 bits, which halves what is read of them a hundred times; others 64."""


class IssuedInstruction(NamedTuple):
    """An instruction as far as loops are concerned.

    ``kind`` is equal for instructions that differ in their addresses only, None for one that no loop may hold;
    ``layer`` for those that one loop may hold together. ``addresses`` are absolute, ``step_bits`` the width of each
    one's step.
    """

    kind: Hashable | None
    layer: Hashable
    addresses: tuple[int, ...]
    step_bits: tuple[int, ...]
    size_bytes: int


class Loop(NamedTuple):
    """Instructions ``start`` to ``start + length`` are the body, which stands for all iterations."""

    start: int
    length: int
    iterations: int


def find_loops(program: Sequence[IssuedInstruction], buffer_bytes: int) -> list[Loop]:
    """The loops of the cheapest form of ``program``, in order; their bodies fit in ``buffer_bytes``."""
    chosen = _best_loops(program, buffer_bytes)
    loops: list[Loop] = []
    index = 0
    while index < len(program):
        loop = chosen[index]
        if loop is None:
            index += 1
            continue
        loops.append(loop)
        index += loop.length * loop.iterations
    return loops


def _best_loops(program: Sequence[IssuedInstruction], buffer_bytes: int) -> list[Loop | None]:
    """For each position, the loop that starts there in the cheapest cover of the rest of the program."""
    candidates = _candidates(program, buffer_bytes)
    from_the_end = np.argsort(-candidates[0], kind="stable")  # at each position the shortest body first
    following = zip(*candidates[:, from_the_end].tolist(), strict=True)
    cost = [0] * (len(program) + 1)
    chosen: list[Loop | None] = [None] * len(program)
    start, length, count, size = next(following, _NO_CANDIDATE)
    for index in range(len(program) - 1, -1, -1):
        least = cost[index + 1] + program[index].size_bytes
        while start == index:
            total = size + cost[index + length * count]
            if total < least:
                least, chosen[index] = total, Loop(index, length, count)
            start, length, count, size = next(following, _NO_CANDIDATE)
        cost[index] = least
    return chosen


_NO_CANDIDATE = (-1, 0, 0, 0)


def _candidates(program: Sequence[IssuedInstruction], buffer_bytes: int) -> NDArray[np.int64]:
    """Loops with as many iterations as possible, as columns: position, instructions, iterations, bytes of each.

    They are in order of the length of their bodies.
    """
    kinds, addresses, sizes = _arrays(program)
    low, high = _step_limits(program)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    of_one_layer = _run_lengths(np.array([one.layer == two.layer for one, two in pairwise(program)], bool))
    found = [np.zeros((len(_NO_CANDIDATE), 0), np.int64)]
    repeats = kinds >= 0
    for length in range(1, min(LONGEST_BODY, len(program) // 2) + 1):
        equal = (kinds[:-length] == kinds[length:]) & repeats[:-length]
        if not (_run_lengths(equal) >= length).any():  # of most lengths, long before anything is asked of addresses
            continue
        steps = addresses[:, length:] - addresses[:, :-length]
        equal &= ((steps >= low[:, :-length]) & (steps <= high[:, :-length])).all(axis=0)
        first = _run_lengths(equal)
        places = np.flatnonzero((first >= length) & (of_one_layer[: len(first)] >= length - 1))
        if not len(places):
            continue
        regular = equal[:-length] & equal[length:] & (steps[:, :-length] == steps[:, length:]).all(axis=0)
        more = np.zeros_like(first)
        more[: len(regular)] = _run_lengths(regular)
        stepped = np.concatenate(([0], np.cumsum((steps != 0).any(axis=0))))
        counts = np.minimum(2 + more[places] // length, _MOST_ITERATIONS)
        bodies = starts[places + length] - starts[places]
        bodies += STEP_BLOCK_BYTES * (stepped[places + length] - stepped[places])
        straight = starts[places + length * counts] - starts[places]
        shorter = (bodies <= buffer_bytes) & (bodies + _FRAME_BYTES < straight)
        chosen = np.zeros((len(_NO_CANDIDATE), int(shorter.sum())), np.int64)
        chosen[0], chosen[1], chosen[2] = places[shorter], length, counts[shorter]
        chosen[3] = bodies[shorter] + _FRAME_BYTES
        found.append(chosen)
    return np.concatenate(found, axis=1)


def _arrays(program: Sequence[IssuedInstruction]) -> tuple[Numbers, Numbers, Numbers]:
    """Kind of each instruction (-1: never in a loop), a row for each of its addresses, bytes."""
    numbers: dict[Hashable, int] = {}
    kinds = [-1 if item.kind is None else numbers.setdefault(item.kind, len(numbers)) for item in program]
    addresses = _columns([item.addresses for item in program], 0)
    return np.array(kinds, np.int32), addresses, np.array([item.size_bytes for item in program])


def _step_limits(program: Sequence[IssuedInstruction]) -> tuple[Numbers, Numbers]:
    """Smallest and largest step of every address of every instruction."""
    high = ((1 << (_columns([item.step_bits for item in program], 1).astype(np.int64) - 1)) - 1).astype(np.int32)
    return -high - 1, high


def _columns(rows: Sequence[tuple[int, ...]], missing: int) -> Numbers:
    """``rows`` as columns of an array; ``missing``: what stands where a row is shorter than the longest."""
    width = max(1, max(map(len, rows), default=0))
    padding = (missing,) * width
    table = np.array([row + padding[len(row) :] for row in rows], np.int32).reshape(len(rows), width)
    return np.ascontiguousarray(table.T)


def _run_lengths(flags: NDArray[np.bool_]) -> Numbers:
    """For each position, how many flags from there on are set in a row."""
    positions = np.arange(len(flags), dtype=np.int32)
    stops = np.where(flags, np.int32(len(flags)), positions)
    ends: Numbers = np.minimum.accumulate(stops[::-1])[::-1]
    return ends - positions
