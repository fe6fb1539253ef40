"""How the cycles of a run are divided among operators that overlap."""

from __future__ import annotations

from collections.abc import Sequence


def windows(last_cycles: Sequence[float], cycles: int) -> list[tuple[int, int]]:
    """Window of each operator, in rounded cycles: from the end of the previous one to its own end.

    Operators overlap. Each is charged what passes until it ends after the one that ends before it, and the last one
    what follows, so that the charges of a run are its cycles.
    """
    found: list[tuple[int, int]] = []
    end = 0
    for place, last in enumerate(last_cycles):
        until = cycles if place == len(last_cycles) - 1 else max(end, round(last))
        found.append((end, until))
        end = until
    return found
