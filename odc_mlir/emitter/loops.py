"""Rolling of straight programs into hardware loops.

Tiles of a layer give the same instructions again and again, with addresses that advance by constant steps. A stretch of
``n`` repetitions of a body becomes ``loop``, the body once with step blocks, ``end``: the same instructions are issued
in the same order with the same addresses, but their bytes are fetched once. The cheapest cover of the program by loops
and single instructions is found by dynamic programming from its end.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.isa.codec import Instr, make
from odc_mlir.isa.fields import STEP_BLOCK_BYTES
from odc_mlir.isa.instructions import BY_MNEMONIC, field_range

LONGEST_BODY = 96  # instructions
NEVER_ROLLED = frozenset({"halt", "loop", "end"})
_FRAME_BYTES = BY_MNEMONIC["loop"].size_bytes + BY_MNEMONIC["end"].size_bytes
_MOST_ITERATIONS = field_range("loop", "count")[1]


class Rolled(NamedTuple):
    """A program with loops; ``origin``: for each instruction the index in the straight program, -1 for loop and end."""

    instructions: list[Instr]
    origin: list[int]


class _Loop(NamedTuple):
    length: int
    iterations: int
    size_bytes: int


def roll_loops(program: Sequence[Instr], owners: Sequence[Hashable], buffer_bytes: int) -> Rolled:
    """``program`` with loops whose bodies fit in ``buffer_bytes``; a body's instructions keep their owners."""
    loops = _best_loops(program, owners, buffer_bytes)
    instructions: list[Instr] = []
    origin: list[int] = []
    index = 0
    while index < len(program):
        loop = loops[index]
        if loop is None:
            instructions.append(program[index])
            origin.append(index)
            index += 1
            continue
        body = [_stepped(program, index + i, loop.length) for i in range(loop.length)]
        instructions.append(make("loop", count=loop.iterations, body_bytes=sum(i.size_bytes for i in body)))
        instructions += [*body, make("end")]
        origin += [-1, *range(index, index + loop.length), -1]
        index += loop.length * loop.iterations
    return Rolled(instructions, origin)


def _stepped(program: Sequence[Instr], index: int, distance: int) -> Instr:
    """An instruction of a body, with the steps to the next iteration."""
    first, second = program[index], program[index + distance]
    steps = tuple(second[f.name] - first[f.name] for f in first.spec.addresses)
    return replace(first, steps=steps) if any(steps) else first


def _best_loops(program: Sequence[Instr], owners: Sequence[Hashable], buffer_bytes: int) -> list[_Loop | None]:
    """For each position, the loop that starts there in the cheapest cover of the rest of the program."""
    candidates = _candidates(program, owners, buffer_bytes)
    size = len(program)
    cost = [0] * (size + 1)
    chosen: list[_Loop | None] = [None] * size
    for index in range(size - 1, -1, -1):
        cost[index] = cost[index + 1] + program[index].size_bytes
        for loop in candidates.get(index, ()):
            total = loop.size_bytes + cost[index + loop.length * loop.iterations]
            if total < cost[index]:
                cost[index], chosen[index] = total, loop
    return chosen


def _candidates(program: Sequence[Instr], owners: Sequence[Hashable], buffer_bytes: int) -> dict[int, list[_Loop]]:
    """Position -> loops that can start there, each with as many iterations as possible."""
    kinds, addresses, sizes = _arrays(program, owners)
    limits = _step_limits(program, addresses.shape[1])
    starts = np.concatenate(([0], np.cumsum(sizes)))
    found: dict[int, list[_Loop]] = {}
    for length in range(1, min(LONGEST_BODY, len(program) // 2) + 1):
        equal = (kinds[:-length] == kinds[length:]) & (kinds[:-length] >= 0)
        if not equal.any():
            continue
        steps = addresses[length:] - addresses[:-length]
        low, high = limits[0][:-length], limits[1][:-length]
        equal &= ((steps >= low) & (steps <= high)).all(axis=1)
        regular = equal[:-length] & equal[length:] & (steps[:-length] == steps[length:]).all(axis=1)
        first = _run_lengths(equal)
        more = np.zeros_like(first)
        more[: len(regular)] = _run_lengths(regular)
        stepped = np.concatenate(([0], np.cumsum((steps != 0).any(axis=1))))
        for index in np.flatnonzero(first >= length):
            count = min(2 + int(more[index]) // length, _MOST_ITERATIONS)
            body = int(starts[index + length] - starts[index])
            body += STEP_BLOCK_BYTES * int(stepped[index + length] - stepped[index])
            straight = int(starts[index + length * count] - starts[index])
            if body <= buffer_bytes and body + _FRAME_BYTES < straight:
                found.setdefault(int(index), []).append(_Loop(length, count, body + _FRAME_BYTES))
    return found


def _arrays(
    program: Sequence[Instr], owners: Sequence[Hashable]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Kind of each instruction (equal where all but addresses is equal, -1: never in a loop), addresses, bytes."""
    numbers: dict[Any, int] = {}
    width = max(len(instr.spec.addresses) for instr in program)
    kinds = np.empty(len(program), np.int64)
    addresses = np.zeros((len(program), max(width, 1)), np.int64)
    for index, (instr, owner) in enumerate(zip(program, owners, strict=True)):
        names = [f.name for f in instr.spec.addresses]
        rest = tuple(sorted((k, v) for k, v in instr.values.items() if v and k not in names))
        key = (instr.mnemonic, instr.queue, instr.waits, instr.posts, owner, rest)
        kinds[index] = -1 if instr.mnemonic in NEVER_ROLLED else numbers.setdefault(key, len(numbers))
        addresses[index, : len(names)] = [instr[name] for name in names]
    return kinds, addresses, np.array([instr.size_bytes for instr in program])


def _step_limits(program: Sequence[Instr], width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Smallest and largest step of every address of every instruction."""
    high = np.zeros((len(program), width), np.int64)
    for index, instr in enumerate(program):
        bits = [f.step_bits for f in instr.spec.addresses]
        high[index, : len(bits)] = [(1 << (b - 1)) - 1 for b in bits]
    return -high - 1, high


def _run_lengths(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each position, how many flags from there on are set in a row."""
    positions = np.arange(len(flags))
    stops = np.where(flags, len(flags), positions)
    ends: NDArray[np.int64] = np.minimum.accumulate(stops[::-1])[::-1]
    return ends - positions
