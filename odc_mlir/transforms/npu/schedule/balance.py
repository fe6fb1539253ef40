"""Choice between fast tilings and tilings with short programs, over a whole segment.

Where constants and program come through a port of their own, they and the layers' own work overlap: the slower of the
two decides, and while it is the former, bytes of program are worth more than cycles of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odc_mlir.targets import MemoryMode, Target
from odc_mlir.transforms.npu.schedule.cost import ports
from odc_mlir.transforms.npu.schedule.window_search import Choice

# Cycles that a cycle of program fetch is taken to be worth, from "hidden" to "all that matters".
PRICES = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
EXPOSED = 0.2  # share of the faster side that the slower one does not hide: start and end of the segment


class Balance(NamedTuple):
    """One choice per layer and what they cost together, roughly in cycles."""

    choices: list[Choice]
    score: float


def choose_tilings(
    fronts: Sequence[tuple[Choice, ...]], constant_bytes: int, target: Target, memory: MemoryMode
) -> Balance:
    """The best choice from each layer's ``fronts``; ``constant_bytes``: weights and parameters of all layers."""
    port = ports(target, memory)
    width = port.constants.bytes_per_cycle
    best = Balance([], float("inf"))
    for price in PRICES:
        chosen = [_cheapest(front, price / width) for front in fronts]
        cycles = sum(choice.cycles for choice in chosen)
        program = sum(choice.program_bytes for choice in chosen) / width
        if port.staged:
            fetched = program + constant_bytes / width
            score = max(cycles, fetched) + EXPOSED * min(cycles, fetched)
        else:
            score = cycles + program
        if score < best.score:
            best = Balance(chosen, score)
    return best


def _cheapest(front: Sequence[Choice], byte_cycles: float) -> Choice:
    """The best choice when a byte of program costs ``byte_cycles``."""
    return min(front, key=lambda choice: choice.cycles + byte_cycles * choice.program_bytes)
