"""Plans of a partition: candidate segments, costs, and the search for the best plan.

A plan places units. A unit is a single operator, or a pattern group: operators that become one NPU operation. Longer
patterns take precedence, and an operator belongs to at most one group.

Segments and host operators run one after another, so the time of a plan is the sum of all times. The time of a segment
consists of computation, the switch to the NPU and back, and the transfer of boundary tensors. The search starts with
all supported operators on the NPU. It moves segments, and units at the edges of segments, to the host or to the NPU as
long as the time gets shorter. The chosen plan is never slower than all operators on the host, or all supported
operators on the NPU. This module uses only indices and numbers, no IR.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.formats.quantities import time_text
from odc_mlir.ops.spec import Trait
from odc_mlir.targets.costs import HostCosts


def groups(operators: Sequence[CircleOp]) -> Iterator[tuple[Pattern, list[CircleOp]]]:
    """Yield the groups among ``operators`` with the matching patterns, longest patterns first."""
    taken: set[CircleOp] = set()
    known = set(operators)
    for pattern in PATTERNS:
        for last in operators:
            chain = _match(pattern, last)
            if chain is not None and taken.isdisjoint(chain) and known.issuperset(chain):
                taken.update(chain)
                yield pattern, chain


def _match(pattern: Pattern, last: CircleOp) -> list[CircleOp] | None:
    chain: list[CircleOp] = []
    op: object = last
    for kind in reversed(pattern.chain):
        if not isinstance(op, CircleOp) or (chain and not op.results[0].has_one_use()):
            return None
        if op.SPEC.name != kind and not (kind == VIEW and Trait.VIEW in op.SPEC.traits):
            return None
        chain.insert(0, op)
        op = op.operands[0].owner if op.operands else None
    return chain


Round = tuple[bool, list[int]]
"""Whether the round runs on the NPU, and its operators in order."""


def alternate(needs: Sequence[set[int]], on_npu: Sequence[bool]) -> list[Round]:
    """Divide operators into the fewest alternating rounds (NPU or host, operators in order).

    ``needs``: for each operator, the operators that must run before it. Within a round, operators are in index order as
    far as ``needs`` allows. No operator of a round depends on a later round, so rounds are convex.
    """
    starts = [_rounds(needs, on_npu, side) for side in (True, False)]
    return min(starts, key=len)


def _rounds(needs: Sequence[set[int]], on_npu: Sequence[bool], side: bool) -> list[Round]:
    waiting = [len(n) for n in needs]
    users: list[list[int]] = [[] for _ in needs]
    for index, producers in enumerate(needs):
        for producer in producers:
            users[producer].append(index)
    ready: dict[bool, list[int]] = {True: [], False: []}
    for index, count in enumerate(waiting):
        if count == 0:
            heapq.heappush(ready[on_npu[index]], index)
    rounds: list[Round] = []
    while ready[True] or ready[False]:
        members: list[int] = []
        while ready[side]:
            index = heapq.heappop(ready[side])
            members.append(index)
            for user in users[index]:
                waiting[user] -= 1
                if waiting[user] == 0:
                    heapq.heappush(ready[on_npu[user]], user)
        if members:
            rounds.append((side, members))
        side = not side
    return rounds


VIEW = "VIEW"  # in a pattern: any operator that only changes the shape


@dataclass(frozen=True, slots=True)
class Pattern:
    """Chain of operators to group. ``chain``: operator names, producers first. ``text``: reason for grouping."""

    name: str
    chain: tuple[str, ...]
    text: str


_PADDED = "the convolution pads while it loads"
_FLAT = "the view costs nothing on its reader's side"

PATTERNS = (  # longest first
    Pattern("flat-product-of-views", (VIEW, VIEW, "FULLY_CONNECTED"), _FLAT),
    Pattern("flat-product", (VIEW, "FULLY_CONNECTED"), _FLAT),
    Pattern("flat-softmax", (VIEW, "SOFTMAX"), _FLAT),
    Pattern("padded-convolution", ("PAD", "CONV_2D"), _PADDED),
    Pattern("padded-depthwise", ("PAD", "DEPTHWISE_CONV_2D"), _PADDED),
)


LEAST_PLANS = 20  # plans that the search may examine for graphs of any size
ALL_HOST, ALL_SUPPORTED, SEARCH = "all-host", "all-supported", "search"
MEMORY_SLACK = 1.05  # with preference memory, largest time of a plan relative to the fastest
LARGEST_SEARCH = 200_000  # limit on the operators in all examined plans, to bound the time for large graphs


class OperatorCost(NamedTuple):
    """Cost of an operator in a segment: cycles of its layers, and bytes of program and constants.

    ``lead``: cycles until the first weights have arrived. The operator waits for the weights if no earlier operator
    hides the time. ``weight_bytes``: bytes in the weight buffer. ``first_bytes``: constants that are needed together,
    after ``ahead`` cycles. ``left``: cycles that remain after the last constants have arrived. ``picked_bytes``: table
    rows that are read without a copy, through the port of constants, while the operator runs.
    """

    cycles: float = 0.0
    program_bytes: float = 0.0
    constant_bytes: float = 0.0
    lead: float = 0.0
    weight_bytes: float = 0.0
    first_bytes: float = 0.0
    ahead: float = 0.0
    left: float = 0.0
    picked_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Item:
    """Operator of the graph.

    ``work``: None if the NPU cannot run the operator. ``reads``, ``writes``: numbers of run-time tensors. ``pinned``:
    whether the user places the operator on the NPU. ``updates``: tensors that the operator reads and writes, and that
    outlive the inference.
    """

    host_ns: float
    work: OperatorCost | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    is_view: bool = False
    pinned: bool = False
    macs: int = 0
    updates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """Graph to place.

    ``units``: operators that stay together. ``results``: tensors that leave the graph. ``segment_cycles``: returns the
    cycles of a segment from the costs of its operators. ``place``: name of the accelerator in reasons. ``states``: an
    input and the result that replaces it in the next inference. A single segment keeps states without a transfer.
    """

    items: Sequence[Item]
    needs: Sequence[set[int]]
    units: Sequence[tuple[int, ...]]
    tensor_bytes: Sequence[int]
    results: frozenset[int]
    host: HostCosts
    clock_hz: int
    segment_cycles: Callable[[Sequence[OperatorCost]], float]
    place: str = "the NPU"
    states: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on segments: least compute operators, least multiply-accumulates, most segments."""

    min_operators: int = 1
    min_macs: int = 0
    max_segments: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentEstimate:
    """Estimated times and sizes of one segment."""

    members: tuple[int, ...]
    npu_ns: float
    transfer_ns: float
    switch_ns: float
    input_bytes: int
    output_bytes: int
    constant_bytes: float

    @property
    def ns(self) -> float:
        return self.npu_ns + self.transfer_ns + self.switch_ns


@dataclass(frozen=True, slots=True)
class CostedPlacement:
    """Placement of every operator with its cost."""

    on_npu: tuple[bool, ...]
    segments: tuple[SegmentEstimate, ...]
    host_ns: float
    name: str = SEARCH

    @property
    def ns(self) -> float:
        """Estimated time of one inference."""
        return self.host_ns + sum(segment.ns for segment in self.segments)

    @property
    def bytes(self) -> float:
        """Bytes that compiled segments duplicate, plus bytes of tensors between segments and host."""
        return sum(s.constant_bytes + s.input_bytes + s.output_bytes for s in self.segments)

    def to_dict(self) -> dict[str, str | int]:
        """Return the entry for reports."""
        return {
            "name": self.name,
            "estimate_ns": round(self.ns),
            "segments": len(self.segments),
            "npu_operators": sum(self.on_npu),
        }


@dataclass(slots=True)
class PlacementChoice:
    """Chosen plan, second best plan, and reasons for supported operators on the host."""

    chosen: CostedPlacement
    runner_up: CostedPlacement | None
    reasons: dict[int, str] = field(default_factory=dict)
    all_host: CostedPlacement | None = None
    all_supported: CostedPlacement | None = None


def choose(
    problem: PlacementProblem,
    bounds: Bounds,
    prefer: str = "performance",
    check: Callable[[], None] = lambda: None,
    *,
    strategy: str = "cost",
) -> PlacementChoice:
    """Return the best plan within ``bounds``.

    ``prefer``: see the compiler. ``compile-time`` compares only two plans. ``check`` is called for every plan and may
    raise. ``strategy`` ``supported`` chooses all supported operators at any cost, and other plans serve only for
    comparison.
    """
    return _PlacementSearch(problem, bounds, prefer, check).run(strategy)


class _PlacementSearch:
    def __init__(self, problem: PlacementProblem, bounds: Bounds, prefer: str, check: Callable[[], None]) -> None:
        self.problem, self.bounds, self.prefer, self.check = problem, bounds, prefer, check
        self.seen: dict[tuple[bool, ...], CostedPlacement] = {}
        self.reasons: dict[int, str] = {}
        items = problem.items
        self.readers: dict[int, list[int]] = {}
        for index, item in enumerate(items):
            for tensor in item.reads:
                self.readers.setdefault(tensor, []).append(index)
        self.able = [all(items[i].work is not None for i in unit) for unit in problem.units]
        self.pinned = [
            able and any(items[i].pinned for i in u) for able, u in zip(self.able, problem.units, strict=True)
        ]

    def run(self, strategy: str) -> PlacementChoice:
        all_host = self.placement(self.pinned, ALL_HOST if not any(self.pinned) else SEARCH)
        all_supported = self.placement(self.able, ALL_SUPPORTED)
        start = self._within_bounds(list(self.able))
        self._improve(start)
        allowed = [plan for plan in self.seen.values() if self._allowed(plan)]
        allowed = allowed or [self.placement(start)]  # operators that the user places on the NPU may violate the bounds
        chosen = fastest = min(allowed, key=lambda plan: plan.ns)
        if self.prefer == "memory":
            near = [plan for plan in allowed if plan.ns <= fastest.ns * MEMORY_SLACK]
            chosen = min(near, key=lambda plan: (plan.bytes, plan.ns))
        if strategy == "supported":
            chosen = all_supported
        runner_up = min((p for p in self.seen.values() if p.on_npu != chosen.on_npu), key=lambda p: p.ns, default=None)
        reasons = {} if strategy == "supported" else self._reasons(chosen)
        return PlacementChoice(chosen, runner_up, reasons, all_host, all_supported)

    def placement(self, units: Sequence[bool], name: str = SEARCH) -> CostedPlacement:
        """Return the plan with ``units`` on the NPU, cached. Segments of views only go to the host."""
        self.check()
        on_npu = [False] * len(self.problem.items)
        for unit, chosen in zip(self.problem.units, units, strict=True):
            for index in unit:
                on_npu[index] = chosen
        rounds = alternate(self.problem.needs, on_npu)
        found = []
        for is_npu, members in rounds:
            if is_npu and all(self.problem.items[i].is_view for i in members):
                for index in members:
                    on_npu[index] = False
            elif is_npu:
                found.append(members)
        segments = [self._segment(members, keeps_states=len(found) == 1) for members in found]
        key = tuple(on_npu)
        if key not in self.seen:
            host_ns = sum(item.host_ns for item, npu in zip(self.problem.items, on_npu, strict=True) if not npu)
            self.seen[key] = CostedPlacement(key, tuple(segments), host_ns, name)
        return self.seen[key]

    def _segment(self, members: Sequence[int], *, keeps_states: bool) -> SegmentEstimate:
        problem, inside = self.problem, set(members)
        written = {tensor for i in members for tensor in problem.items[i].writes}
        read = {tensor for i in members for tensor in problem.items[i].reads} - written
        left = {t for t in written if t in problem.results or not inside.issuperset(self.readers.get(t, ()))}
        updates = [(tensor, tensor) for i in members for tensor in problem.items[i].updates]
        left.update(tensor for tensor, _ in updates)
        for source, result in (*problem.states, *updates) if keeps_states else ():
            if inside.issuperset(self.readers.get(source, ())) and result in left:
                read.discard(source)
                left.discard(result)
        sizes = [sum(problem.tensor_bytes[t] for t in tensors) for tensors in (read, left)]
        works = [work for i in members if (work := problem.items[i].work) is not None]
        host = problem.host
        moved = host.transfer_ns(len(read) + len(left), sum(sizes))
        npu_ns = problem.segment_cycles(works) * 1e9 / problem.clock_hz
        constants = sum(work.constant_bytes + work.program_bytes for work in works)
        return SegmentEstimate(tuple(members), npu_ns, moved, host.switch_ns, sizes[0], sizes[1], constants)

    def _units_of(self, segment: SegmentEstimate) -> list[int]:
        members = set(segment.members)
        return [number for number, unit in enumerate(self.problem.units) if members.intersection(unit)]

    def _too_small(self, segment: SegmentEstimate) -> str | None:
        items = [self.problem.items[i] for i in segment.members]
        if any(item.pinned for item in items):
            return None
        computing = sum(not item.is_view for item in items)
        if computing < self.bounds.min_operators:
            return f"segment-size: {computing} of at least {self.bounds.min_operators} operators"
        macs = sum(item.macs for item in items)
        if macs < self.bounds.min_macs:
            return f"segment-size: {macs} of at least {self.bounds.min_macs} multiply-accumulates"
        return None

    def _allowed(self, plan: CostedPlacement) -> bool:
        most = self.bounds.max_segments
        if most is not None and len(plan.segments) > most:
            return False
        return all(self._too_small(segment) is None for segment in plan.segments)

    def _within_bounds(self, units: list[bool]) -> list[bool]:
        while not self._allowed(plan := self.placement(units)):
            small = [(s, reason) for s in plan.segments if (reason := self._too_small(s)) is not None]
            if not small:
                loose = [s for s in plan.segments if not any(self.pinned[u] for u in self._units_of(s))]
                if not loose:
                    break
                loose.sort(key=lambda s: sum(self.problem.items[i].host_ns for i in s.members) - s.ns)
                reason = f"segment-count: at most {self.bounds.max_segments} segments"
                small = [(s, reason) for s in loose[: len(plan.segments) - (self.bounds.max_segments or 0)]]
            for segment, reason in small:
                for unit in self._units_of(segment):
                    units[unit] = False
                    self.reasons |= dict.fromkeys(self.problem.units[unit], reason)
        return units

    def _improve(self, units: list[bool]) -> None:
        best = self.placement(units)
        most = max(LARGEST_SEARCH // max(1, len(self.problem.items)), LEAST_PLANS)
        again = self.prefer != "compile-time"
        while again:
            again = False
            for numbers in self._moves(best):
                if len(self.seen) >= most:
                    return
                moved = list(units)
                for number in numbers:
                    moved[number] = self.pinned[number] if len(numbers) > 1 else not units[number]
                plan = self.placement(moved)
                if plan.ns < best.ns and self._allowed(plan):
                    units, best, again = moved, plan, True

    def _moves(self, plan: CostedPlacement) -> list[tuple[int, ...]]:
        whole = [tuple(self._units_of(segment)) for segment in plan.segments]
        edges = [(n,) for n in self._edge_units(plan) if self.able[n] and not self.pinned[n]]
        # Operators that only the host and each other read may together split a segment.
        moved, alone = {i for i, npu in enumerate(plan.on_npu) if not npu}, list[int]()
        for (number,) in reversed(edges):
            unit = self.problem.units[number]
            written = [tensor for i in unit for tensor in self.problem.items[i].writes]
            inside = self.problem.results.isdisjoint(written) and moved.isdisjoint(unit)
            if inside and moved.issuperset(i for tensor in written for i in self.readers.get(tensor, ())):
                moved.update(unit)
                alone.append(number)
        return [numbers for numbers in (*whole, tuple(alone)) if len(numbers) > 1] + edges

    def _edge_units(self, plan: CostedPlacement) -> list[int]:
        """Return the units that exchange a tensor with the other side, or with inputs and outputs."""
        problem = self.problem
        sides: dict[int, set[bool]] = {tensor: {False} for tensor in problem.results}
        for item, on_npu in zip(problem.items, plan.on_npu, strict=True):
            for tensor in (*item.reads, *item.writes):
                sides.setdefault(tensor, set()).add(on_npu)
        written = {tensor for item in problem.items for tensor in item.writes}
        mixed = {tensor for tensor, found in sides.items() if len(found) > 1 or tensor not in written}
        return [
            number
            for number, unit in enumerate(problem.units)
            if any(mixed.intersection((*problem.items[i].reads, *problem.items[i].writes)) for i in unit)
        ]

    def _reasons(self, chosen: CostedPlacement) -> dict[int, str]:
        reasons = {}
        current = [all(chosen.on_npu[i] for i in unit) for unit in self.problem.units]
        for number, unit in enumerate(self.problem.units):
            if current[number] or not self.able[number]:
                continue
            with_it = self.placement([on or at == number for at, on in enumerate(current)])
            more = with_it.ns - chosen.ns
            text = f"cost: on {self.problem.place} an inference would take {time_text(more)} longer"
            if with_it.on_npu == chosen.on_npu:
                text = "segment-size: views only"
            elif more <= 0:
                text = "cost: the host is faster for its neighbours"
            for index in unit:
                reasons[index] = self.reasons.get(index, text)
        return reasons
