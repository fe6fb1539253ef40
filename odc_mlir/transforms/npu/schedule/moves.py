"""Operators that only move codes as a few strided copies, found from where every result element comes from.

:func:`strided_copies` finds them in a plain map from result elements to
source elements, so that concatenation, slices, transpositions, repetition and the like need no rule of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.dialects.npu_move import StridedCopy

FILLED = -1  # in a map: no source element, the fill code


def indices(copy: StridedCopy) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Source and target element of every move, in the order of the loops."""
    source, target = np.array([copy.start]), np.array([copy.to])
    for size, read, write in zip(copy.sizes, copy.reads, copy.writes, strict=True):
        steps = np.arange(size)
        source = (source[:, None] + steps * read).reshape(-1)
        target = (target[:, None] + steps * write).reshape(-1)
    return source, target


class _Blocks(NamedTuple):
    """Copies of one shape: where each starts, and the (size, read, write) of the loops that all have."""

    source: int
    starts: NDArray[np.int64]
    targets: NDArray[np.int64]
    loops: tuple[tuple[int, int, int], ...]


def strided_copies(index: NDArray[Any], sources: Sequence[int], limit: int) -> list[StridedCopy] | None:
    """The copies that move what ``index`` says, None where more than ``limit`` are needed.

    ``index``: for every result element in order the element it comes from, counting through all sources one after
    another, or FILLED; ``sources``: elements of each source.
    """
    flat = np.asarray(index, np.int64).reshape(-1)
    owner = np.searchsorted(np.cumsum(sources), flat, side="right")
    owner[flat < 0] = FILLED
    first = np.concatenate([[0], np.flatnonzero((np.diff(flat) != 1) | (np.diff(owner) != 0)) + 1])
    found = _copies(flat, owner, first, sources, limit)
    # Runs that happen to continue each other make irregular copies; cut where all others end, they may be regular.
    step = int(np.gcd.reduce(np.append(first, flat.size)))
    if step > 1 and (found is None or len(found) > 1):
        regular = _copies(flat, owner, np.arange(0, flat.size, step), sources, limit)
        if regular is not None and (found is None or len(regular) < len(found)):
            return regular
    return found


def _copies(
    flat: NDArray[np.int64], owner: NDArray[np.int64], first: NDArray[np.int64], sources: Sequence[int], limit: int
) -> list[StridedCopy] | None:
    """As :func:`strided_copies`, from runs of neighbours that begin at ``first``; ``owner``: source of each element."""
    length, owners = np.diff(np.append(first, flat.size)), owner[first]
    bases = np.cumsum(sources) - sources
    todo: list[_Blocks] = []
    for number, size in sorted(set(zip(owners.tolist(), length.tolist(), strict=True))):
        if number != FILLED:
            chosen = first[(owners == number) & (length == size)]
            todo.append(_Blocks(number, flat[chosen] - bases[number], chosen, ((size, 1, 1),)))
    found: list[StridedCopy] = []
    while todo:
        blocks = todo.pop()
        if len(blocks.starts) == 1:
            found.append(_copy_of(blocks))
        else:
            todo += _with_another_loop(blocks)
        if len(found) + len(todo) > limit:
            return None
    return sorted(found, key=lambda copy: copy.to)


def _copy_of(blocks: _Blocks) -> StridedCopy:
    loops = [loop for loop in reversed(blocks.loops) if loop[0] > 1] or [(1, 1, 1)]
    merged = [loops[-1]]
    for size, read, write in reversed(loops[:-1]):
        inner, inner_read, inner_write = merged[0]
        if (read, write) == (inner * inner_read, inner * inner_write):
            merged[0] = (size * inner, inner_read, inner_write)
        else:
            merged.insert(0, (size, read, write))
    sizes, reads, writes = zip(*merged, strict=True)
    return StridedCopy(blocks.source, int(blocks.starts[0]), int(blocks.targets[0]), sizes, reads, writes)


def _with_another_loop(blocks: _Blocks) -> list[_Blocks]:
    """The same moves with one more loop wherever blocks follow each other at equal distances."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    for start, count in _runs(blocks.starts, blocks.targets):
        read = write = 0
        if count > 1:
            read = int(blocks.starts[start + 1] - blocks.starts[start])
            write = int(blocks.targets[start + 1] - blocks.targets[start])
        groups.setdefault((count, read, write), []).append(start)
    made = []
    for (count, read, write), firsts in sorted(groups.items()):
        loops = (*blocks.loops, (count, read, write)) if count > 1 else blocks.loops
        made.append(_Blocks(blocks.source, blocks.starts[firsts], blocks.targets[firsts], loops))
    if any(more.loops != blocks.loops for more in made):
        return made
    each = range(len(blocks.starts))  # nothing repeats
    return [blocks._replace(starts=blocks.starts[i : i + 1], targets=blocks.targets[i : i + 1]) for i in each]


def _runs(starts: NDArray[np.int64], targets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(first, count) of consecutive blocks at equal distances, as long as possible from the left."""
    steps = np.stack([np.diff(starts), np.diff(targets)])
    total = len(starts)
    changes = np.flatnonzero((steps[:, 1:] != steps[:, :-1]).any(0)) + 1
    count = int(changes[0]) + 1 if len(changes) else total
    if total % count == 0:
        rows = np.stack([starts, targets]).reshape(2, total // count, count)
        if (np.diff(rows, axis=2) == steps[:, :1, None]).all():
            yield from ((first, count) for first in range(0, total, count))
            return
    boundaries = iter([*changes.tolist(), total - 1])
    position = 0
    end = next(boundaries)
    while position < total:
        while end <= position and end < total - 1:
            end = next(boundaries)
        last = min(end, total - 1) if position < total - 1 else position
        yield position, last - position + 1
        position = last + 1
