"""Choice between fast tilings and tilings with short programs, over a whole segment.

Where constants and program come through a port of their own, they and the layers' own work overlap: the slower of the
two decides, and while it is the former, bytes of program are worth more than cycles of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odc_mlir.targets import MemoryMode, Target
from odc_mlir.transforms.npu.schedule.cost import ports
from odc_mlir.transforms.npu.schedule.window_search import TilingChoice

# Cycles that a cycle of program fetch is taken to be worth, from "hidden" to "all that matters".
PRICES = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
EXPOSED = 0.2  # share of the faster side that the slower one does not hide: start and end of the segment


class BalancedChoices(NamedTuple):
    """One choice per layer and what they cost together, roughly in cycles."""

    choices: list[TilingChoice]
    score: float


class Balancer:
    """Chooses one tiling per layer, again and again for plans that differ in few layers."""

    def __init__(self, constant_bytes: int, target: Target, memory: MemoryMode) -> None:
        """``constant_bytes``: weights and parameters of all layers."""
        self.constant_bytes = constant_bytes
        self._port = ports(target, memory)
        self._fronts: list[tuple[TilingChoice, ...]] = []  # of the plan before
        self._chosen: list[list[TilingChoice]] = [[] for _ in PRICES]
        self._cycles: list[list[float]] = [[] for _ in PRICES]
        self._program: list[list[float]] = [[] for _ in PRICES]

    def choose(self, fronts: Sequence[tuple[TilingChoice, ...]]) -> BalancedChoices:
        """The best choice from each layer's ``fronts``."""
        width = self._port.constants.bytes_per_cycle
        self._take(fronts, width)
        best, best_score = 0, float("inf")
        for number in range(len(PRICES)):
            cycles, program = sum(self._cycles[number]), sum(self._program[number]) / width
            if self._port.staged:
                fetched = program + self.constant_bytes / width
                score = max(cycles, fetched) + EXPOSED * min(cycles, fetched)
            else:
                score = cycles + program
            if score < best_score:
                best, best_score = number, score
        return BalancedChoices(list(self._chosen[best]), best_score)

    def _take(self, fronts: Sequence[tuple[TilingChoice, ...]], width: int) -> None:
        """Choose for every price, where the front of a layer is another one than before."""
        if len(self._fronts) != len(fronts):
            self._fronts = [()] * len(fronts)
            for lists in (self._chosen, self._cycles, self._program):
                lists[:] = [[None] * len(fronts) for _ in PRICES]  # type: ignore[list-item]
        for layer, (before, front) in enumerate(zip(self._fronts, fronts, strict=True)):
            if before is front:
                continue
            self._fronts[layer] = front
            for number, price in enumerate(PRICES):
                choice = _cheapest(front, price / width)
                self._chosen[number][layer] = choice
                self._cycles[number][layer], self._program[number][layer] = choice.cycles, choice.program_bytes


def _cheapest(front: Sequence[TilingChoice], byte_cycles: float) -> TilingChoice:
    """The best choice when a byte of program costs ``byte_cycles``."""
    return min(front, key=lambda choice: choice.cycles + byte_cycles * choice.program_bytes)
