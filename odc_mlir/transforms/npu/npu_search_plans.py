"""``npu-search-plans``: choose stripes and prefetched constants by simulation where SRAM is short.

Only the finished program shows how many constants are prefetched and which results reuse memory. So several programs
are made by the passes that follow, and simulated. Plans are made for a fixed series of memory sizes, independent of the
limit, so that a larger limit finds what a smaller one found.

Before: an ``npu.program`` of operations on tensors, for speed, whose tensors do not fit in SRAM or in its limit.

After: the same program with the choice as attributes, which ``npu-cut-stripes`` and ``npu-prefetch-constants`` follow::

    attributes {npu.chains = array<i64: 0, 1, 14>, npu.prefetch = {room = "all"}}

Programs that have ``npu.chains`` or tilings already keep them. If no plan fits, the one with the least memory is
chosen, and ``npu-allocate-memory`` reports the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import dropwhile, takewhile

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir import pipelines
from odc_mlir.dialects.npu_program import CHAINS, PREFETCH, programs
from odc_mlir.errors import AllocationError, OdcError, TimeLimitError
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.collection import take_apart
from odc_mlir.support.deadline import checkpoint, tell
from odc_mlir.transforms.npu.npu_cut_stripes import chains_attribute, trial_planner
from odc_mlir.transforms.npu.npu_prefetch_constants import NpuPrefetchConstantsPass, Prefetch
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram, targeted_programs
from odc_mlir.transforms.npu.schedule.stripe_plan import StripePlan, StripePlanner

LOWERED, SCHEDULED = "npu", "npu-alloc"  # stages between which a program becomes instructions
MISSES = 3  # plans in a row that are no better, after which no more are tried
INSTRUCTIONS = 200_000  # of all programs tried, after which no more are: an instruction takes about 0.1 ms
LIMIT_STEP = 1.2  # from one SRAM limit to the next of those that constants are prefetched for


class NpuSearchPlansPass(ModulePass):
    """Search; see the module's text."""

    name = "npu-search-plans"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for job in targeted_programs(op, self.name):
            checkpoint(ctx)
            if CHAINS in job.program.attributes or (found := trial_planner(ctx, job)) is None:
                continue
            planner, room = found
            alone = ModuleOp([job.program.clone()], dict(op.attributes))
            with pipelines.without_validation(ctx):
                plan, prefetch = _Trials(ctx, alone, job, planner).fastest(room)
            _free(alone)
            job.program.attributes[CHAINS] = chains_attribute(plan.chains)
            if prefetch != Prefetch():
                job.program.attributes[PREFETCH] = prefetch.attribute


def _is_before_prefetching(item: tuple[str, ModulePass]) -> bool:
    return not isinstance(item[1], NpuPrefetchConstantsPass)


def _error_of(call: Callable[[], None]) -> OdcError | None:
    """Return the error that ``call`` raises, or None."""
    try:
        call()
    except TimeLimitError:
        raise
    except OdcError as error:
        return error
    return None


@dataclass(frozen=True, slots=True)
class _Trial:
    """A choice with the cycles of its program; ``ready``: the module before constants are prefetched."""

    plan: StripePlan
    prefetch: Prefetch
    cycles: int
    ready: ModuleOp


@dataclass
class _Trials:
    """Trials of plans for ``lowered``, a module with one program of tensor operations."""

    context: Context
    lowered: ModuleOp
    job: TargetedProgram
    planner: StripePlanner
    tried: set[StripePlan] = field(default_factory=set)
    instructions: int = 0  # of the programs tried

    def fastest(self, room: int) -> tuple[StripePlan, Prefetch]:
        """Return the choice with the fastest program found, of plans for about ``room`` bytes of tensors."""
        plans = self.planner.front
        first = next((k for k, plan in enumerate(plans) if plan.arena_bytes <= room), len(plans) - 1)
        place, best = self._fitting(plans, first)
        if best is None:
            return plans[place], Prefetch()
        # Plans for more memory than there is, as far as they turn out to fit; then for less: room for constants.
        best = self._better(best, plans[:first][::-1])
        best = self._better(best, plans[place + 1 :])
        if plans[-1] not in self.tried:  # its stripes may stay in the tile buffer, which no estimate says
            best = self._better(best, plans[-1:])
        if self.job.memory == "flash":
            best = self._prefetched(best)
        _free(best.ready)
        return best.plan, best.prefetch

    def _fitting(self, plans: Sequence[StripePlan], first: int) -> tuple[int, _Trial | None]:
        """Return place and trial of the first plan from ``first`` on that fits; of the last plan None if none does."""
        for place in range(first, len(plans)):
            found = self._cut(plans[place])
            if isinstance(found, _Trial):
                return place, found
            if not isinstance(found, AllocationError):
                raise found
        return len(plans) - 1, None

    def _better(self, best: _Trial, plans: Iterable[StripePlan]) -> _Trial:
        """Return the best of ``best`` and these plans, until some in a row do not help."""
        misses = 0
        for plan in plans:
            if misses == MISSES or self.instructions > INSTRUCTIONS:
                break
            before, best = best, _faster(best, self._cut(plan))
            misses = misses + 1 if best is before else 0
        return best

    def _cut(self, plan: StripePlan) -> _Trial | OdcError:
        """Try a plan; return the error where it has no program."""
        tell(self.context, "npu-sched: trying a plan of stripes")
        self.tried.add(plan)
        module = clone_module(self.lowered)
        for program in programs(module).values():
            program.attributes[CHAINS] = chains_attribute(plan.chains)
        passes = takewhile(_is_before_prefetching, pipelines.passes_until(SCHEDULED, after=LOWERED))
        if failed := _error_of(partial(pipelines.run_passes, self.context, module, passes)):
            _free(module)
            return failed
        found = self._finished(plan, module, Prefetch())
        if not isinstance(found, _Trial):
            _free(module)
        return found

    def _finished(self, plan: StripePlan, ready: ModuleOp, prefetch: Prefetch) -> _Trial | OdcError:
        """Simulate the program that ``ready``, which is kept, becomes."""
        from odc_mlir.emitter.program import emit_program  # most programs fit, and need no simulator
        from odc_mlir.simulator.program import load
        from odc_mlir.simulator.run import simulate

        module = clone_module(ready)
        for program in programs(module).values():
            self.instructions += len(program.block.ops)
            program.attributes[PREFETCH] = prefetch.attribute
        rest = dropwhile(_is_before_prefetching, pipelines.passes_until(SCHEDULED, after=LOWERED))
        try:
            if failed := _error_of(partial(pipelines.run_passes, self.context, module, rest)):
                return failed
            (program,) = programs(module).values()
            loaded = load(emit_program(program, self.job.target, self.job.memory), target=self.job.target)
            return _Trial(plan, prefetch, simulate(loaded, execute=False).counters.cycles, ready)
        finally:
            _free(module)

    def _prefetched(self, best: _Trial) -> _Trial:
        """Return the best of ``best`` and other ways to use the room that its tensors leave for constants."""
        plan, ready, limit = best.plan, best.ready, self.job.sram_bytes
        others = [Prefetch("all")]
        step = math.floor(math.log(limit, LIMIT_STEP))
        others += [Prefetch(sram_limit=int(LIMIT_STEP ** (step - k))) for k in range(MISSES)]
        for prefetch in others:
            if self.instructions <= INSTRUCTIONS:
                best = _faster(best, self._finished(plan, ready, prefetch))
        return best


def _faster(best: _Trial, found: _Trial | OdcError) -> _Trial:
    """Return the faster one; the other, which may be large, is freed."""
    if not isinstance(found, _Trial):
        return best
    taken, left = (found, best) if found.cycles < best.cycles else (best, found)
    if left.ready is not taken.ready:
        _free(left.ready)
    return taken


def _free(module: ModuleOp) -> None:
    """Free the programs of ``module``."""
    for program in programs(module).values():
        take_apart(program.block)
