"""Choice of the scratchpad residents, together with the tilings of all layers of a segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from odc_mlir.errors import CompileError
from odc_mlir.targets import MemoryMode, Target
from odc_mlir.transforms.npu.schedule.balance import BalancedChoices, Balancer
from odc_mlir.transforms.npu.schedule.residents import Resident, largest_gap, place_residents
from odc_mlir.transforms.npu.schedule.window_search import TilingChoice

ROOM_STEP = 256  # bytes: rooms are rounded down to this, so that searches are shared between similar plans
WORTHWHILE = 0.999  # of the score that a change must at least reach

Choices = Callable[[int, tuple[bool, ...], bool], tuple[TilingChoice, ...]]
"""(bytes for slots, is each source resident, is the result) -> choices; CompileError where there are none."""


@dataclass(frozen=True, slots=True)
class ResidencyNode:
    """A layer: the candidates among its sources and its result (indices, None: stays in memory)."""

    choices: Choices
    sources: tuple[int | None, ...]
    result: int | None


class ResidencyPlan(NamedTuple):
    """``residents``: kept candidates by index, with addresses; ``choices``: one per layer."""

    residents: dict[int, Resident]
    balance: BalancedChoices


class ResidentPlanner:
    """Plans one segment. ``constant_bytes``: weights and parameters of all layers."""

    def __init__(
        self,
        nodes: Sequence[ResidencyNode],
        candidates: Sequence[Resident],
        constant_bytes: int,
        target: Target,
        memory: MemoryMode,
    ) -> None:
        self.nodes, self.candidates = nodes, candidates
        self.target = target
        self._balancer = Balancer(constant_bytes, target, memory)
        self._fronts: dict[tuple[int, int, tuple[bool, ...], bool], tuple[TilingChoice, ...] | CompileError] = {}

    def plan(self, check: Callable[[], None] = lambda: None, *, improve: bool = True) -> ResidencyPlan:
        """The best plan found: all candidates that fit together, then, to ``improve``, without each that does not pay.

        ``check`` is called again and again and may raise. Raises CompileError where a layer fits in no way.
        """
        best = self._evaluate(frozenset())
        kept = self._fitting()
        while kept:
            trial = self._try(kept)
            check()
            if trial is not None:
                if trial.balance.score <= best.balance.score * WORTHWHILE:
                    best = self._improved(trial, check) if improve else trial
                break
            kept -= {max(kept, key=lambda i: (self.candidates[i].size, i))}
        return best

    def _fitting(self) -> frozenset[int]:
        """Candidates that fit in the tile buffer together, larger ones left out first."""
        kept = frozenset(range(len(self.candidates)))
        for layer in range(len(self.nodes)):
            alive = sorted(
                (i for i in kept if self.candidates[i].lives_at(layer)), key=lambda i: self.candidates[i].size
            )
            while sum(self.candidates[i].size for i in alive) > self.target.local.tile_bytes:
                kept -= {alive.pop()}
        return kept

    def _improved(self, plan: ResidencyPlan, check: Callable[[], None]) -> ResidencyPlan:
        """``plan`` without the tensors whose absence makes it better."""
        for index in sorted(plan.residents, key=lambda i: (-self.candidates[i].size, i)):
            check()
            trial = self._try(frozenset(plan.residents) - {index})
            if trial is not None and trial.balance.score < plan.balance.score * WORTHWHILE:
                plan = trial
        return plan

    def _try(self, kept: frozenset[int]) -> ResidencyPlan | None:
        """The plan with these residents, None where they leave some layer without room."""
        try:
            return self._evaluate(kept)
        except CompileError:
            return None

    def _evaluate(self, kept: frozenset[int]) -> ResidencyPlan:
        total = self.target.local.tile_bytes
        residents = {
            index: Resident(c.layout, c.first, c.last) for index, c in enumerate(self.candidates) if index in kept
        }
        if place_residents(list(residents.values())) > total:
            raise CompileError("resident tensors overlap")
        alive: list[list[Resident]] = [[] for _ in self.nodes]
        for resident in residents.values():
            for layer in range(resident.first, resident.last + 1):
                alive[layer].append(resident)
        fronts = []
        for layer, node in enumerate(self.nodes):
            room = largest_gap(alive[layer], layer, total) if alive[layer] else total
            if room < total:
                room -= room % ROOM_STEP
            sources = tuple(source in kept for source in node.sources)
            fronts.append(self._front(layer, room, sources, node.result in kept))
        return ResidencyPlan(residents, self._balancer.choose(fronts))

    def _front(self, layer: int, room: int, sources: tuple[bool, ...], result: bool) -> tuple[TilingChoice, ...]:
        """The choices of a layer, the same object for the same question: most plans ask what others have asked."""
        key = (layer, room, sources, result)
        if key not in self._fronts:
            try:
                self._fronts[key] = self.nodes[layer].choices(room, sources, result)
            except CompileError as error:
                self._fronts[key] = error
        found = self._fronts[key]
        if isinstance(found, CompileError):
            raise found.with_traceback(None)
        return found
