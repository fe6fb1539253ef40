"""Segments become binaries; when one cannot, the operator in the way goes to the host and the rest is tried again.

The error names the operator where it can. Where it does not, the segment that fails alone is found, and from it goes
the operator with the largest tensors when memory is short, else the whole segment. After some attempts whole segments
go.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir import pipelines, targets
from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.dialects.odc import SegmentOp, YieldOp, target_of
from odc_mlir.errors import AllocationError, CompileError, OdcError, TimeLimitError
from odc_mlir.ops.work import tensor_bytes
from odc_mlir.support.deadline import in_time, tell
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.locations import location_names, op_name
from odc_mlir.transforms.defects import Defect, defect_of, record_defect
from odc_mlir.transforms.placement import main_function, place_on_host

LOG = logging.getLogger(__name__)

PARTITIONED, SCHEDULED = "partition", "npu-alloc"  # stages between which segments become instructions
FORMING = (
    "npu-form-groups",
    "npu-choose-segments",
    "npu-form-segments",
    "npu-outline-segments",
    "odc-verify-boundaries",
)
SINGLE_EVICTIONS = 12  # attempts that evict one operator; each compiles everything again


class _DefectError(CompileError):
    """An exception that none of the compiler's errors stands for, met while a segment became instructions."""

    def __init__(self, defect: Defect) -> None:
        super().__init__(defect.reason)
        self.defect = defect


class Compiled(NamedTuple):
    """A module whose segments are instructions, and the binary of each in program order."""

    module: ModuleOp
    binaries: dict[SegmentOp, bytes]


def schedule_segments(
    context: Context, module: ModuleOp, *, strict: bool, passes: Sequence[ModulePass] = ()
) -> Compiled:
    """Take all segments of a partitioned module to binaries; ``module`` itself is used up.

    An operator that a pass refuses goes back to the host with the reason; with ``strict`` the error is raised.
    ``passes``: configured ones that stand in for default ones when segments are formed again.
    """
    base, attempts = module.clone(), 0
    while True:
        try:
            return _schedule(context, module, guarded=not strict)
        except TimeLimitError:
            raise
        except OdcError as error:
            if strict:
                raise
            attempts += 1
            for op, failure in _culprits(context, base, error, single=attempts <= SINGLE_EVICTIONS):
                if isinstance(failure, _DefectError):
                    record_defect(base, replace(failure.defect, op=op.SPEC.name, tensor=op_name(op)))
                else:
                    LOG.warning("%s %r stays on the host: %s", op.SPEC.name, op_name(op), failure)
                place_on_host(op, f"compile: {failure}")
        _form_again(context, base, passes)
        module = base.clone()


def _schedule(context: Context, module: ModuleOp, *, guarded: bool) -> Compiled:
    """``module`` at stage ``npu-alloc`` with its binaries; ``guarded``: a bug of ours is a CompileError too."""
    choice = target_of(module)
    if choice is None or not segments(module):
        return Compiled(module, {})
    from odc_mlir.emitter import emit_segment

    try:
        pipelines.run(context, module, SCHEDULED, after=PARTITIONED)
        target, memory = targets.load(choice.target), cast(targets.MemoryMode, choice.memory)
        with typed_errors("package"):
            tell(context, "package: emitting")
            found = in_time(context, segments(module))
            return Compiled(module, {item: emit_segment(item, target, memory) for item in found})
    except OdcError:
        raise
    except Exception as error:
        if not guarded:
            raise
        defect = defect_of("a segment", "", error)
        raise _DefectError(defect) from error


def _culprits(context: Context, base: ModuleOp, error: OdcError, *, single: bool) -> list[tuple[CircleOp, OdcError]]:
    """The operators of ``base`` to evict because of ``error``, each with the error to report."""
    if single and (named := _named(segments(base), error)) is not None:
        return [(named, error)]
    for number, segment in enumerate(segments(base)):
        alone = base.clone()
        for other in segments(alone):
            if other.sym_name.data != segment.sym_name.data:
                inline(other, "another segment")
        try:
            _schedule(context, alone, guarded=True)
        except TimeLimitError:
            raise
        except OdcError as failure:
            LOG.debug("segment %d fails alone: %s", number, failure)
            if single and (named := _named([segment], failure)) is not None:
                return [(named, failure)]
            members = _operators(segment)
            if single and isinstance(failure, AllocationError):
                members = [max(members, key=_tensor_bytes)]
            return [(op, failure) for op in members]
    return [(op, error) for segment in segments(base) for op in _operators(segment)]


def _operators(segment: SegmentOp) -> list[CircleOp]:
    return [op for op in segment.circle_block.ops if isinstance(op, CircleOp)]


def _named(found: Sequence[SegmentOp], error: OdcError) -> CircleOp | None:
    """The only operator in these segments with a result called as ``error`` says."""
    if not error.tensor:
        return None
    named = [op for segment in found for op in _operators(segment) if error.tensor in location_names(op.location)]
    return named[0] if len(named) == 1 else None


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
