"""Scheduling of a segment: where SRAM is short, several programs are made, simulated, and the fastest is kept.

Only the finished program shows how many constants are prefetched and which results reuse memory. Plans are made for a
fixed series of memory sizes, independent of the limit, so that a larger limit finds what a smaller one found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir import pipelines
from odc_mlir.dialects.npu_program import CHAINS, ProgramOp, make_program, programs
from odc_mlir.dialects.odc import SegmentOp
from odc_mlir.emitter.program import emit_program
from odc_mlir.errors import AllocationError, OdcError, TimeLimitError
from odc_mlir.simulator.program import load
from odc_mlir.simulator.run import simulate
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.collection import take_apart
from odc_mlir.support.deadline import tell
from odc_mlir.transforms.npu.npu_cut_stripes import chains_attribute, trial_planner
from odc_mlir.transforms.npu.npu_prefetch_constants import NpuPrefetchConstantsPass
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram, targeted_programs
from odc_mlir.transforms.npu.schedule.stripe_plan import StripePlan, StripePlanner

PARTITIONED, LOWERED, SCHEDULED = "partition", "npu", "npu-alloc"  # stages between which segments become instructions
MISSES = 3  # plans in a row that are no better, after which no more are tried
INSTRUCTIONS = 300_000  # of all programs tried, after which no more are: an instruction takes about 0.1 ms
LIMIT_STEP = 1.2  # from one SRAM limit to the next of those that constants are prefetched for


def scheduled_program(context: Context, module: ModuleOp, segment: SegmentOp) -> ProgramOp:
    """The instructions of one segment of ``module``, made in a module of its own."""
    program = make_program(segment)
    alone = ModuleOp([program], dict(module.attributes))
    pipelines.run(context, alone, LOWERED, after=PARTITIONED)
    (job,) = targeted_programs(alone, "the search for stripes")
    found = trial_planner(context, job)
    if found is None:
        pipelines.run(context, alone, SCHEDULED, after=LOWERED)
        return _taken_out(alone)
    planner, room = found
    with pipelines.without_validation(context):  # of the program that is kept the binary is validated
        return _Trials(context, alone, job, planner).fastest(room)


def _is_before_prefetching(item: tuple[str, ModulePass]) -> bool:
    return not isinstance(item[1], NpuPrefetchConstantsPass)


def _taken_out(module: ModuleOp) -> ProgramOp:
    """The one program of ``module``, taken out of it."""
    (program,) = programs(module).values()
    module.body.block.detach_op(program)
    return program


@dataclass(frozen=True, slots=True)
class _TrialProgram:
    """A finished program with its cycles; ``ready``: the module before constants are prefetched."""

    program: ProgramOp
    cycles: int
    ready: ModuleOp


@dataclass
class _Trials:
    """The programs that were made of ``lowered``, a module with one program of tensor operations."""

    context: Context
    lowered: ModuleOp
    job: TargetedProgram
    planner: StripePlanner
    tried: set[StripePlan] = field(default_factory=set)
    instructions: int = 0  # of the programs tried

    def fastest(self, room: int) -> ProgramOp:
        """The fastest program found, of plans for about ``room`` bytes of tensors."""
        plans = self.planner.front
        first = next((k for k, plan in enumerate(plans) if plan.arena_bytes <= room), len(plans) - 1)
        place, best = self._fitting(plans, first)
        # Plans for more memory than there is, as far as they turn out to fit; then for less: room for constants.
        best = self._better(best, plans[:first][::-1])
        best = self._better(best, plans[place + 1 :])
        if plans[-1] not in self.tried:  # its stripes may stay in the tile buffer, which no estimate says
            best = self._better(best, plans[-1:])
        if self.job.memory == "flash":
            best = self._prefetched(best)
        return best.program

    def _fitting(self, plans: Sequence[StripePlan], first: int) -> tuple[int, _TrialProgram]:
        """Place and program of the first plan from ``first`` on that fits; the last one's error if none does."""
        for place in range(first, len(plans)):
            found = self._cut(plans[place])
            if isinstance(found, _TrialProgram):
                return place, found
            if not isinstance(found, AllocationError) or place == len(plans) - 1:
                raise found
        raise AssertionError("there is always a plan")

    def _better(self, best: _TrialProgram, plans: Iterable[StripePlan]) -> _TrialProgram:
        """The best of ``best`` and the programs of these plans, until some in a row do not help."""
        misses = 0
        for plan in plans:
            if misses == MISSES or self.instructions > INSTRUCTIONS:
                break
            before, best = best, _faster(best, self._cut(plan))
            misses = misses + 1 if best is before else 0
        return best

    def _cut(self, plan: StripePlan) -> _TrialProgram | OdcError:
        """The program of a plan, or why there is none."""
        tell(self.context, "npu-sched: trying a plan of stripes")
        self.tried.add(plan)
        module = clone_module(self.lowered)
        for program in programs(module).values():
            program.attributes[CHAINS] = chains_attribute(plan.chains)
        passes = takewhile(_is_before_prefetching, pipelines.passes_until(SCHEDULED, after=LOWERED))
        return self._run(module, passes) or self._finished(module)

    def _run(self, module: ModuleOp, passes: Iterable[tuple[str, ModulePass]]) -> OdcError | None:
        """Run ``passes`` on ``module``; if one fails, free the module and return the error."""
        try:
            pipelines.run_passes(self.context, module, passes)
        except TimeLimitError:
            raise
        except OdcError as error:
            _free(module)
            return error
        return None

    def _finished(self, ready: ModuleOp, options: NpuPrefetchConstantsPass | None = None) -> _TrialProgram | OdcError:
        """The program that ``ready``, which is kept, becomes."""
        module = clone_module(ready)
        self.instructions += sum(len(program.block.ops) for program in programs(module).values())
        passes = pipelines.passes_until(SCHEDULED, after=LOWERED, options=[options] if options else [])
        rest = dropwhile(_is_before_prefetching, passes)
        if failed := self._run(module, rest):
            return failed
        (program,) = programs(module).values()
        loaded = load(emit_program(program, self.job.target, self.job.memory), target=self.job.target)
        return _TrialProgram(_taken_out(module), simulate(loaded, execute=False).counters.cycles, ready)

    def _prefetched(self, best: _TrialProgram) -> _TrialProgram:
        """The best of ``best`` and other ways to use the room that its tensors leave for constants."""
        ready, limit = best.ready, self.job.sram_bytes
        others = [NpuPrefetchConstantsPass(room="all")]
        step = math.floor(math.log(limit, LIMIT_STEP))
        others += [NpuPrefetchConstantsPass(sram_limit=int(LIMIT_STEP ** (step - k))) for k in range(MISSES)]
        for options in others:
            if self.instructions <= INSTRUCTIONS:
                best = _faster(best, self._finished(ready, options))
        return best


def _faster(best: _TrialProgram, found: _TrialProgram | OdcError) -> _TrialProgram:
    """The faster one; the other, which may be as large, is freed at once."""
    if not isinstance(found, _TrialProgram):
        return best
    taken, left = (found, best) if found.cycles < best.cycles else (best, found)
    take_apart(left.program.block)
    if left.ready is not taken.ready:
        _free(left.ready)
    return taken


def _free(module: ModuleOp) -> None:
    """Free the programs of ``module``."""
    for program in programs(module).values():
        take_apart(program.block)
