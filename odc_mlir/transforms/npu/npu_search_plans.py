"""``npu-search-plans``: choose stripes, tilings, addresses and prefetched constants by simulating programs.

Only a finished program determines how transfers of different layers overlap, how many constants are prefetched and
which results reuse memory. The pass therefore runs the following passes on copies of the program, and simulates them:

- with stripes for more and for less memory than is available, if memory is preferred or the tensors do not fit. The
  memory sizes form a fixed series, so a larger limit finds all plans that a smaller limit finds.
- with stripes that keep results in the tile buffer, if the program is small and the estimate, for the target or for a
  machine with half of a port, is faster
- with various shares of the SRAM for constants, if the SRAM is limited, the fewest cycles are preferred or the program
  is short; with few constants or a wide off-chip port, at least with the whole SRAM
- with tiles for machines with less or more of a resource, if the fewest cycles are preferred, and with half of the
  lanes, if the SRAM is limited, memory is preferred, or constants are few. A better machine thus finds all tilings of a
  poorer machine.
- with addresses of weights, and then of parameters, by the time of their uses, for the best program so far, or for
  every program if the SRAM is limited, or memory or the fewest cycles are preferred

Before: an ``npu.program`` of operations on tensors.

After: the same program with the choice as attributes, which ``npu-cut-stripes``, ``npu-choose-tiles``,
``npu-allocate-local`` and ``npu-prefetch-constants`` follow. Without an attribute, these passes decide by estimates::

    attributes {npu.chains = array<i64: 0, 1, 14>, npu.tiled_for = {sram = 50}, npu.prefetch = {room = "all"}}

The fastest program is chosen. If memory is preferred, the smallest arena wins among programs at most 5 % slower. If no
plan fits, the one with the least memory is chosen, and ``npu-prefetch-constants`` or ``npu-allocate-memory`` reports
the error. Programs that already have such an attribute or tilings stay unchanged. If compile time is preferred, all
programs stay unchanged. The choices are stored in the cache of tilings.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.passes import ModulePass

from odc_mlir import pipelines
from odc_mlir.dialects import npu_isa
from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.dialects.npu_program import CHAINS, PREFETCH, TILED_FOR, TIMED, programs
from odc_mlir.dialects.odc import FEWEST_CYCLES
from odc_mlir.errors import AllocationError, OdcError, SimulationError, TimeLimitError
from odc_mlir.formats.private import Memo
from odc_mlir.isa.fields import Space
from odc_mlir.pipelines import StagedPass
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.collection import take_apart
from odc_mlir.support.deadline import checkpoint, tell
from odc_mlir.support.text import module_text
from odc_mlir.transforms.npu.npu_allocate_local import NpuAllocateLocalPass
from odc_mlir.transforms.npu.npu_allocate_memory import NpuAllocateMemoryPass
from odc_mlir.transforms.npu.npu_cut_stripes import chains_attribute, fused_plans, trial_planner
from odc_mlir.transforms.npu.npu_lower_to_tiles import NpuLowerToTilesPass
from odc_mlir.transforms.npu.npu_prefetch_constants import Prefetch
from odc_mlir.transforms.npu.npu_verify_memory import NpuVerifyMemoryPass
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram, targeted_programs
from odc_mlir.transforms.npu.schedule.prefetch import is_wide
from odc_mlir.transforms.npu.schedule.stripe_plan import StripePlan, StripePlanner
from odc_mlir.transforms.npu.schedule.tensor_ir import has_tilings
from odc_mlir.transforms.npu.schedule.window_search import tilings_of

LOWERED, SCHEDULED = "npu", "npu-alloc"  # stages between which a program becomes instructions
FEW_INSTRUCTIONS = 250  # instructions of a program up to which all shares of the SRAM for constants are tried
FEW_PLANS = 8  # plans of stripes up to which all are tried
MISSES = 3  # plans in a row without improvement after which the search ends
INSTRUCTIONS = 200_000  # instructions, of about 0.1 ms each, after which the search ends
LARGE = 50_000  # instructions of a program of which a trial takes too long
LIMIT_STEP = 1.2**0.5  # factor between the SRAM limits of prefetching trials
LIMITS = 6  # number of these limits
SMALL = range(64, 256)  # bursts of constants in a small program that is worth trials
FEW_CONSTANTS = 1 << 20  # bytes of constants up to which a program without other trials is worth trials of addresses
MEMORY_STEP = 0.85  # factor between the memory sizes of plans to try at any limit
SLOWDOWN = 1.05  # relative cycles of programs that broad searches simulate, and allow if memory is preferred
TIMED_MEMORIES = ((Space.WEIGHT,), (Space.WEIGHT, Space.PARAM))  # memories in which slots get addresses by time
PHASES = (NpuLowerToTilesPass, NpuAllocateLocalPass, NpuAllocateMemoryPass)  # first passes of phases after the first
MACHINES = (("lanes", 50), ("tile_ports", 50), ("sram", 50), ("sram", 200), ("array", 50), ("room", 0))
"""Machines for which to try tiles, as (resource, percentage): a better target tries the tiles of a poorer one."""


class TrialPlan(NamedTuple):
    """Stripes (None: choose without a search), and resources of the machine for the choice of tiles, in percent.

    ``timed``: memories in which slots get addresses by the time of their uses.
    """

    stripes: StripePlan | None = None
    machine: tuple[tuple[str, int], ...] = ()
    timed: tuple[Space, ...] = ()

    @property
    def attributes(self) -> dict[str, Attribute]:
        """Attributes that make passes follow this plan."""
        found: dict[str, Attribute] = {}
        if self.stripes is not None:
            found[CHAINS] = chains_attribute(self.stripes.chains)
        if self.machine:
            found[TILED_FOR] = DictionaryAttr({part: IntegerAttr(percent, i64) for part, percent in self.machine})
        if self.timed:
            found[TIMED] = ArrayAttr(StringAttr(space) for space in self.timed)
        return found


class NpuSearchPlansPass(ModulePass):
    """Choose stripes, tilings and prefetched constants by simulation."""

    name = "npu-search-plans"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for job in targeted_programs(op, self.name):
            checkpoint(ctx)
            given = job.program.attributes
            quick = job.choice.prefer == "compile-time"
            if quick or {CHAINS, TILED_FOR, PREFETCH, TIMED} & given.keys() or has_tilings(job.block):
                continue
            found, fewest = trial_planner(ctx, job), job.choice.prefer == FEWEST_CYCLES
            fused = fused_plans(ctx, job, poorer=fewest or found is not None)
            if found is None and not fused and not fewest and not _is_small(job) and not _waits_for_weights(job):
                continue
            alone = ModuleOp([job.program.clone()], dict(op.attributes))
            # Inserted passes change the results, so these are not shared.
            memo = Memo() if getattr(ctx, "before", None) else tilings_of(ctx, job.target).memo
            key = hashlib.sha256(module_text(alone, constants="elide").encode()).hexdigest()
            if (kept := memo.get(key)) is None:
                with pipelines.without_validation(ctx):
                    kept = str(DictionaryAttr(_Trials(ctx, alone, job, fused, *(found or (None, 0))).choice()))
                memo.put(key, kept)
            chosen = Parser(ctx, kept).parse_attribute()
            assert isinstance(chosen, DictionaryAttr), "only this pass writes memos"
            given |= chosen.data
            _free(alone)


@dataclass(frozen=True, slots=True)
class _Trial:
    """Plan with the cycles and arena bytes of its program. ``ready``: module before constants are prefetched."""

    plan: TrialPlan
    prefetch: Prefetch
    cycles: int
    arena_bytes: int
    ready: ModuleOp


@dataclass
class _Trials:
    """Trials of plans for ``lowered``, a module with one program of tensor operations.

    ``fused``: plans of stripes for speed. ``planner``: planner of stripes for about ``room`` bytes of tensors, or None
    if the tensors fit without stripes.
    """

    context: Context
    lowered: ModuleOp
    job: TargetedProgram
    fused: Sequence[StripePlan]
    planner: StripePlanner | None
    room: int
    tried: set[Hashable] = field(default_factory=set)  # plans, tiled programs, and programs with copies of constants
    kept: ModuleOp | None = None  # module that a later trial may need
    instructions: float = 0  # total of the programs tried
    fewest: float = math.inf  # fewest cycles of a program tried

    def __post_init__(self) -> None:
        prefer, self.small, self.limited = self.job.choice.prefer, _is_small(self.job), self.planner is not None
        self.thrifty, self.thorough = prefer == "memory", prefer == FEWEST_CYCLES
        self.broad = self.limited or self.thorough
        passes = [*pipelines.passes_until(SCHEDULED, after=LOWERED)][1:]
        passes = [item for item in passes if not isinstance(item[1], NpuVerifyMemoryPass)]
        starts = [number for number, (_, item) in enumerate(passes) if isinstance(item, PHASES)]
        phases = [passes[first:end] for first, end in pairwise((0, *starts, len(passes)))]
        self.cutting, self.lowering, self.placing, self.finishing = phases

    def choice(self) -> dict[str, Attribute]:
        """Return the attributes of the best trial, or of the plan with the least memory if none fits."""
        best = self._cut(TrialPlan()) if self.planner is None else self._striped(self.planner.front)
        if not isinstance(best, _Trial):
            return best.attributes if isinstance(best, TrialPlan) else {}
        prefetched = self.job.memory == "flash" and not self.thrifty
        for plan in () if self.thrifty else map(TrialPlan, self.fused):
            found = self._cut(plan)
            # A slightly slower plan may be the faster one with another share of the SRAM for constants.
            if prefetched and self.limited and isinstance(found, _Trial):
                found = self._prefetched(found)
            best = self._preferred(best, found)
        tuned = self._prefetched(best) if prefetched else best
        self.kept, self.fewest, first = tuned.ready, best.cycles, best.plan
        # Tiles for the best machine with less or more of another resource may be better still.
        rounds, machines = (2, MACHINES) if self.thorough else (int(self.limited or self.small), MACHINES[:1])
        for _ in range(rounds):
            stripes, known, _ = best.plan
            plans = [TrialPlan(stripes, (*known, scale)) for scale in machines if scale[0] not in dict(known)]
            best = self._better(best, plans, misses=len(plans))
            if best.plan.machine == known:
                break
        if prefetched and best.plan != first and self.broad:
            best = self._prefetched(best)
        fastest = min(tuned, best, key=lambda trial: trial.cycles) if prefetched else best
        fastest = fastest if self.broad else self._timed(fastest)  # broad searches have tried all addresses
        for ready in {tuned.ready, best.ready}:
            _free(ready)
        attributes, prefetch = fastest.plan.attributes, fastest.prefetch
        return attributes if prefetch == Prefetch() else attributes | {PREFETCH: prefetch.attribute}

    def _striped(self, plans: Sequence[StripePlan]) -> _Trial | TrialPlan:
        """Return the best of ``plans``, or the last plan if none fits. Plans are sorted by falling memory."""
        first = next((k for k, plan in enumerate(plans) if plan.arena_bytes <= self.room), len(plans) - 1)
        place, best = self._fitting(plans, first)
        if best is None:
            return TrialPlan(plans[place])
        # Plans for more memory than available may fit after all. Then come plans with room for constants.
        best = self._better(best, map(TrialPlan, plans[:first][::-1]))
        if not self.thrifty:
            best = self._better(best, map(TrialPlan, plans[place + 1 :]))
        return self._better(best, _ladder(plans, place), misses=len(plans))

    def _fitting(self, plans: Sequence[StripePlan], first: int) -> tuple[int, _Trial | None]:
        """Return (index, trial) of the first fitting plan from ``first``, or (last index, None)."""
        for place in range(first, len(plans)):
            found = self._cut(TrialPlan(plans[place]))
            if isinstance(found, _Trial):
                return place, found
            if found is not None and not isinstance(found, AllocationError):
                raise found
        return len(plans) - 1, None

    def _better(self, best: _Trial, plans: Iterable[TrialPlan], misses: int = MISSES) -> _Trial:
        """Return the best of ``best`` and ``plans``. Stop after ``misses`` plans in a row without improvement."""
        missed = 0
        for plan in plans:
            if missed == misses or self.instructions > INSTRUCTIONS:
                break
            if plan in self.tried:
                continue
            before, best = best, self._preferred(best, self._cut(plan))
            missed = missed + 1 if best is before else 0
        return best

    def _cut(self, plan: TrialPlan) -> _Trial | OdcError | None:
        """Try a plan and return its trial or error, or None if an equal plan has been tried."""
        tell(self.context, "npu-sched: trying a plan")
        self.tried.add(plan)
        module = clone_module(self.lowered)
        (program,) = programs(module).values()
        program.attributes.update(plan.attributes)
        found: _Trial | OdcError | None = self._run(module, self.cutting)
        if found is None:
            tiles = plan.stripes, tuple(tuple(op.attributes.items()) for op in program.block.ops)
            if tiles not in self.tried:
                found = self._run(module, self.lowering) or self._finished(plan, module, Prefetch())
            self.tried.add(tiles)
        if not isinstance(found, _Trial):
            _free(module)
        return found

    def _run(self, module: ModuleOp, passes: Sequence[StagedPass]) -> OdcError | None:
        try:
            pipelines.run_passes(self.context, module, passes)
        except TimeLimitError:
            raise
        except OdcError as error:
            return error
        return None

    def _finished(self, plan: TrialPlan, ready: ModuleOp, prefetch: Prefetch) -> _Trial | OdcError | None:
        """Finish a trial, in broad searches also with other addresses: larger limits find what smaller ones find."""
        found = self._simulated(plan._replace(timed=()), ready, prefetch)
        return self._timed(found) if self.broad and isinstance(found, _Trial) else found

    def _simulated(self, plan: TrialPlan, ready: ModuleOp, prefetch: Prefetch) -> _Trial | OdcError | None:
        """Compile and simulate a copy of ``ready``. Returns None if the program is known or too slow."""
        from odc_mlir.emitter.program import emit_program  # large programs that fit need no simulator
        from odc_mlir.simulator.program import load
        from odc_mlir.simulator.run import simulate

        module = clone_module(ready)
        (program,) = programs(module).values()
        program.attributes |= TrialPlan(timed=plan.timed).attributes | {PREFETCH: prefetch.attribute}
        try:
            if failed := self._run(module, self.placing):
                return failed
            copies = plan, *((k, *op.properties.values()) for k, op in enumerate(program.block.ops) if _copies(op))
            if copies in self.tried:
                return None
            self.tried.add(copies)
            self.instructions += size if (size := len(program.block.ops)) <= LARGE else math.inf
            if failed := self._run(module, self.finishing):
                return failed
            loaded = load(emit_program(program, self.job.target, self.job.memory), target=self.job.target)
            most = None if self.fewest == math.inf else int(self.fewest * (SLOWDOWN if self.broad else 1))
            cycles = simulate(loaded, execute=False, cycle_limit=most).counters.cycles
            self.fewest = min(self.fewest, cycles)
            return _Trial(plan, prefetch, cycles, loaded.container.arena_bytes, ready)
        except SimulationError:
            return None
        finally:
            _free(module)

    def _prefetched(self, best: _Trial) -> _Trial:
        """Return the best of ``best`` and trials of the same plan with other shares of the SRAM for constants."""
        plan, ready, others = best.plan, best.ready, list[Prefetch]()
        several = self.broad or self.instructions <= FEW_INSTRUCTIONS
        if several or self.small:
            others.append(Prefetch("rest"))
        if several or self.small or is_wide(self.job.target):
            others.append(Prefetch("all"))
        if is_wide(self.job.target):
            others.append(Prefetch("none"))
        if several:
            most = self.job.sram_bytes if self.limited else best.arena_bytes
            step = math.floor(math.log(max(most, 1), LIMIT_STEP))
            others += [Prefetch(sram_limit=int(LIMIT_STEP ** (step - k))) for k in range(LIMITS)]
        for prefetch in others:
            if self.instructions <= INSTRUCTIONS:
                best = self._preferred(best, self._finished(plan, ready, prefetch))
        return best

    def _timed(self, best: _Trial) -> _Trial:
        """Return the best of ``best`` and the same plan with addresses by time."""
        for timed in TIMED_MEMORIES if self.instructions <= INSTRUCTIONS else ():
            found = self._preferred(best, self._simulated(best.plan._replace(timed=timed), best.ready, best.prefetch))
            if found is best:
                break
            best = found
        return best

    def _preferred(self, best: _Trial, found: _Trial | OdcError | None) -> _Trial:
        if not isinstance(found, _Trial):
            return best
        better = found.cycles < best.cycles
        if self.thrifty and best.cycles <= SLOWDOWN * found.cycles:
            better = (found.arena_bytes, found.cycles) < (best.arena_bytes, best.cycles)
        taken, left = (found, best) if better else (best, found)
        if left.ready not in (taken.ready, self.kept):
            _free(left.ready)
        return taken


def _is_small(job: TargetedProgram) -> bool:
    """Return whether a burst of program is a relevant share of what is read off-chip, and trials take little time."""
    return job.memory == "flash" and _constant_bytes(job) // job.target.offchip.burst_bytes in SMALL


def _waits_for_weights(job: TargetedProgram) -> bool:
    """Return whether local memory may delay transfers of weights more than ports do, and trials take little time."""
    return (job.memory == "sram" or is_wide(job.target)) and _constant_bytes(job) <= FEW_CONSTANTS


def _constant_bytes(job: TargetedProgram) -> int:
    values = [value for op in job.block.ops for value in op.properties.values()]
    return sum(value.data.size for value in values if isinstance(value, BlobAttr))


def _copies(op: Operation) -> bool:
    return "live" in op.properties or isinstance(op, npu_isa.BY_MNEMONIC["copy"])


def _ladder(plans: Sequence[StripePlan], place: int) -> Iterator[TrialPlan]:
    last = math.inf
    for number, plan in enumerate(plans):
        if len(plans) <= FEW_PLANS or plan.arena_bytes <= MEMORY_STEP * last or number == len(plans) - 1:
            last = plan.arena_bytes
            if number > place:
                yield TrialPlan(plan)


def _free(module: ModuleOp) -> None:
    for program in programs(module).values():
        take_apart(program.block)
