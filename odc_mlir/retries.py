"""Segments become binaries; when one cannot, the operator in the way goes to the host and the rest is tried again.

Programs compile one by one. The error names the operator where it can; where it does not, the operator of the segment
with the largest tensors goes when memory is short, else the whole segment. After some attempts whole segments go.
Segments that an eviction leaves as they were keep their binaries.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir import pipelines, targets
from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.dialects.npu_program import ProgramOp, distinct_names, make_program
from odc_mlir.dialects.odc import TARGET, SegmentOp, TargetAttr, TargetChoice, YieldOp, target_of
from odc_mlir.errors import AllocationError, CompileError, OdcError, TimeLimitError
from odc_mlir.isa import container
from odc_mlir.ops.work import tensor_bytes
from odc_mlir.support.collection import take_apart
from odc_mlir.support.deadline import in_time, tell
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.locations import op_name
from odc_mlir.support.text import module_text
from odc_mlir.transforms.common.defects import Defect, defect_of, record_defect
from odc_mlir.transforms.common.placement import main_function, place_on_host
from odc_mlir.transforms.partition.rules.edges import memory_reason
from odc_mlir.trials import PARTITIONED, scheduled_program

LOG = logging.getLogger(__name__)

FORMING = (
    "npu-form-groups",
    "npu-choose-segments",
    "npu-form-segments",
    "npu-outline-segments",
    "odc-verify-boundaries",
)
SINGLE_EVICTIONS = 12  # attempts that evict one operator


class _DefectError(CompileError):
    """An exception that none of the compiler's errors stands for, met while a segment became instructions."""

    def __init__(self, defect: Defect) -> None:
        super().__init__(defect.reason)
        self.defect = defect


class Compiled(NamedTuple):
    """A partitioned module, and the binary of each of its segments in program order."""

    module: ModuleOp
    binaries: dict[SegmentOp, bytes]


def schedule_segments(
    context: Context, module: ModuleOp, *, strict: bool, passes: Sequence[ModulePass] = ()
) -> Compiled:
    """Take all segments of a partitioned module to binaries; ``module`` itself is used up.

    An operator that a pass refuses goes back to the host with the reason; with ``strict`` the error is raised, and so
    it is where the SRAM limit that the target was chosen with is too small, unless operators may go to the host then.
    ``passes``: configured ones that stand in for default ones when segments are formed again.
    """
    base, attempts = module.clone(), 0
    known: dict[str, bytes] = {}  # binaries by the text of their operators
    while True:
        found = _schedule(context, module, known, guarded=not strict)
        if isinstance(found, Compiled):
            return found
        if strict:
            raise found.error
        if isinstance(found.error, AllocationError) and _is_kept(base):
            raise _least_limit(context, base, found.error)
        attempts += 1
        evicted = _culprits(segments(base)[found.segment], found.error, single=attempts <= SINGLE_EVICTIONS)
        reasons = {op: _reason(op, found.error) for op in evicted}  # while they are in the segment
        for op in evicted:
            if isinstance(found.error, _DefectError):
                record_defect(base, replace(found.error.defect, op=op.SPEC.name, tensor=op_name(op)))
            else:
                LOG.warning("%s %r stays on the host: %s", op.SPEC.name, op_name(op), found.error)
            place_on_host(op, reasons[op])
        _form_again(context, base, passes)
        module = base.clone()


def _is_kept(module: ModuleOp) -> bool:
    """Whether the user gave a limit of SRAM that nothing may go to the host for."""
    choice = target_of(module)
    return choice is not None and choice.sram_limit is not None and not choice.allow_host


def _least_limit(context: Context, module: ModuleOp, error: AllocationError) -> AllocationError:
    """``error`` with the smallest limit at which all segments are scheduled, found by scheduling them."""
    choice = target_of(module)
    assert choice is not None, "asked of partitioned modules"
    limit, needed = choice.sram_limit or 0, error.needed_bytes
    capacity = targets.load(choice.target).sram.capacity_bytes
    found: Compiled | _Failed | None = None
    while limit < needed <= capacity and not isinstance(found, Compiled):
        trial = module.clone()
        trial.attributes[TARGET] = TargetAttr(replace(choice, sram_limit=needed))
        found = _schedule(context, trial, {}, guarded=False)
        if isinstance(found, _Failed):
            more = found.error.needed_bytes if isinstance(found.error, AllocationError) else 0
            needed = more if more > needed else 0
    if not isinstance(found, Compiled):
        return AllocationError(
            f"the SRAM limit of {limit} bytes is too small: {error.message}",
            tensor=error.tensor,
            hint="let operators go to the host (--allow-host)",
        )
    least = AllocationError(
        f"the SRAM limit of {limit} bytes is too small for what runs on the NPU, {needed} bytes are enough",
        hint=f"raise it (--sram-limit {needed}), or let operators go to the host (--allow-host)",
    )
    least.needed_bytes, least.allowed_bytes = needed, limit
    return least


class _Failed(NamedTuple):
    """The number of the segment that does not compile, and why."""

    segment: int
    error: OdcError


def _schedule(context: Context, module: ModuleOp, known: dict[str, bytes], *, guarded: bool) -> Compiled | _Failed:
    """The binaries of ``module``'s segments, or the first segment that fails.

    Those that were made by then go to ``known``. ``guarded``: a bug of ours is an error too.
    """
    choice = target_of(module)
    if choice is None:
        return Compiled(module, {})
    binaries: dict[SegmentOp, bytes] = {}
    for number, segment in enumerate(in_time(context, segments(module))):
        try:
            made = known.get(_text(segment)) if known else None
            if made is not None:
                binaries[segment] = _renamed(made, segment)
                continue
            program = scheduled_program(context, module, segment)
            tell(context, "package: emitting")
            binaries[segment] = _emit(segment, program, choice)
            take_apart(program.block)  # of many segments, their IR together would be most of what compiling holds
        except TimeLimitError:
            raise
        except OdcError as error:
            _advise(error, choice)
            known.update({_text(done): binary for done, binary in binaries.items()})
            return _Failed(number, error)
        except Exception as error:
            if not guarded:
                raise
            failure = _DefectError(defect_of("a segment", "", error))
            failure.__cause__ = error
            known.update({_text(done): binary for done, binary in binaries.items()})
            return _Failed(number, failure)
    return Compiled(module, binaries)


def _advise(error: OdcError, choice: TargetChoice) -> None:
    """Where even all of the SRAM is too small, say that: no limit helps."""
    capacity = targets.load(choice.target).sram.capacity_bytes
    if isinstance(error, AllocationError) and error.needed_bytes > capacity:
        error.hint = f"all of the SRAM of {choice.target} is {capacity} bytes; take a target with more"


def _text(segment: SegmentOp) -> str:
    """The operators of a segment: equal for segments that become the same program, but for its name."""
    program = make_program(segment)
    program.properties["sym_name"] = StringAttr("any")
    return module_text(program, constants="elide")


def _emit(segment: SegmentOp, program: ProgramOp, choice: TargetChoice) -> bytes:
    from odc_mlir.emitter import emit_program, operator_kinds

    target, memory = targets.load(choice.target), cast(targets.MemoryMode, choice.memory)
    with typed_errors("package"):
        return emit_program(program, target, memory, operator_kinds(segment))


def _renamed(binary: bytes, segment: SegmentOp) -> bytes:
    """``binary``, made of the same operators in a segment that had another number then, for ``segment``."""
    held = container.read(binary)
    return container.write(replace(held, metadata={**held.metadata, container.SEGMENT: segment.sym_name.data}))


def _culprits(segment: SegmentOp, error: OdcError, *, single: bool) -> list[CircleOp]:
    """The operators of ``segment`` to evict because of ``error``."""
    members = _operators(segment)
    if single:
        known = zip(members, distinct_names(segment.circle_block), strict=True)
        named = [op for op, names in known if error.tensor in names]
        if len(named) == 1:
            return named
        if isinstance(error, AllocationError):
            return [max(members, key=_tensor_bytes)]
    return members


def _reason(op: CircleOp, error: OdcError) -> str:
    """What a plan says of an operator that ``error`` evicts: of memory the same as the rule does."""
    if isinstance(error, AllocationError) and error.needed_bytes:
        return memory_reason(op, error.needed_bytes, error.allowed_bytes)
    return f"compile: {error}"


def _operators(segment: SegmentOp) -> list[CircleOp]:
    return [op for op in segment.circle_block.ops if isinstance(op, CircleOp)]


def _tensor_bytes(op: CircleOp) -> int:
    """Bytes of everything that is computed and has to be in SRAM at once."""
    node = node_of(op)
    tensors = [t for t in (*node.operands, *node.results) if t is not None and not t.is_const]
    return sum(map(tensor_bytes, tensors))


def _form_again(context: Context, module: ModuleOp, passes: Sequence[ModulePass]) -> None:
    """Dissolve all segments and form new ones of what is still placed on the NPU."""
    for segment in segments(module):
        inline(segment)
    configured = [item for item in passes if item.name in FORMING]
    again = [item for item in pipelines.passes_until(PARTITIONED, options=configured) if item[1].name in FORMING]
    pipelines.run_passes(context, module, again)


def segments(module: ModuleOp) -> list[SegmentOp]:
    """The segments of the main function in program order."""
    return [op for op in main_function(module).body.block.ops if isinstance(op, SegmentOp)]


def inline(segment: SegmentOp, reason: str | None = None) -> None:
    """Put the operators of ``segment``'s circle body in its place; with a ``reason`` they are placed on the host."""
    block = segment.circle_block
    for argument, value in zip(tuple(block.args), segment.operands, strict=True):
        argument.replace_all_uses_with(value)
    last = block.last_op
    assert isinstance(last, YieldOp)
    results = list(last.operands)
    for op in list(block.ops):
        if op is last:
            continue
        block.detach_op(op)
        Rewriter.insert_op(op, InsertPoint.before(segment))
        if reason is not None and isinstance(op, CircleOp):
            place_on_host(op, reason)
    Rewriter.erase_op(last)
    Rewriter.replace_op(segment, [], results)
