"""From a model to a package for a target that a package outside describes: its rules, its costs, its own binaries.

What no rule is against, and what pays, is gathered into segments; each goes to the target's own compiler as a small
model. The rest stays on the host, with the reason; so does a segment that cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from odc_mlir import pipelines
from odc_mlir.compiler import make_plan, refuse_host_operators
from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.dialects.odc import TARGET, SegmentOp, TargetAttr, TargetChoice, YieldOp
from odc_mlir.errors import OdcError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.package import PackageFiles, build_package
from odc_mlir.frontend import export_circle
from odc_mlir.loading import ModelSource, copied
from odc_mlir.plugins.target import Costs, Rules, SegmentModel, check_costs, operator_ns, reason_against
from odc_mlir.retries import segments
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.transforms.common.placement import (
    HOST,
    NPU,
    functions,
    main_function,
    operators,
    place_on_host,
    place_on_npu,
    placed,
    wanted_place,
)
from odc_mlir.transforms.partition.npu_choose_segments import apply_choice, problem_of
from odc_mlir.transforms.partition.npu_form_segments import NpuFormSegmentsPass
from odc_mlir.transforms.partition.npu_outline_segments import NpuOutlineSegmentsPass
from odc_mlir.transforms.partition.odc_apply_annotations import OdcApplyAnnotationsPass
from odc_mlir.transforms.partition.odc_fix_batch import OdcFixBatchPass, restore_batch
from odc_mlir.transforms.partition.plans.plans import Bounds, OperatorCost, choose
from odc_mlir.universe import make_context

STAGE = "partition"
Compile = Callable[[SegmentModel], bytes]


def compile(
    model: ModelSource | ModuleOp,
    *,
    target: str,
    extension: str,
    rules: Rules,
    costs: Costs | None,
    compile_segment: Compile,
    strict: bool = False,
) -> PackageFiles:
    """The package of ``model`` whose segments ``compile_segment`` makes; they are files of this ``extension``.

    ``strict``: an operator that stays on the host is an error. Raises OdcError.
    """
    context = make_context()
    prepared = copied(model)
    pipelines.run(context, prepared, pipelines.BRANCH)
    failed: dict[int, str] = {}  # reasons why segments could not be compiled, by the numbers of their operators
    while True:
        module = prepared.clone()
        with typed_errors(STAGE):
            numbers = _partition(context, module, target, rules, costs, failed)
            module.verify()
        if strict:
            refuse_host_operators(module)
        binaries: dict[SegmentOp, bytes] = {}
        broken = None
        for segment in segments(module):
            try:
                binaries[segment] = compile_segment(_model_of(segment))
            except OdcError as error:
                if strict:
                    raise
                broken = {numbers[op]: f"compile: {error.message}" for op in operators(segment)}
                break
        if broken is None:
            break
        failed |= broken
    restore_batch(module)
    records, indices = export_circle.export_with_operators(module)
    files = {segment: f"{segment.sym_name.data.replace('_', '-')}.{extension}" for segment in binaries}
    plan = make_plan(module, records, indices, files, target=target, memory=None, options={})
    return build_package(write_model(records), plan, {files[segment]: data for segment, data in binaries.items()})


def _partition(
    context: Context, module: ModuleOp, target: str, rules: Rules, costs: Costs | None, failed: dict[int, str]
) -> dict[Operation, int]:
    """Form segments of what may run on the target; returns the operators' numbers, names need not tell them apart."""
    module.attributes[TARGET] = TargetAttr(TargetChoice(target))
    OdcFixBatchPass().apply(context, module)
    OdcApplyAnnotationsPass().apply(context, module)
    numbers: dict[Operation, int] = {}
    for index, function in enumerate(functions(module)):
        for op in operators(function):
            number = numbers[op] = len(numbers)
            reason = f"function: @{function.sym_name.data} is called by control flow" if index else None
            reason = reason or _reason_against(op, rules, target) or failed.get(number)
            if reason is None:
                place_on_npu(op)
            else:
                place_on_host(op, reason)
    if (costs := check_costs(costs, target)) is not None:
        _leave_out_what_costs_more(module, target, costs)
    NpuFormSegmentsPass().apply(context, module)
    NpuOutlineSegmentsPass().apply(context, module)
    return numbers


def _reason_against(op: CircleOp, rules: Rules, target: str) -> str | None:
    if op.unverified is not None:
        return f"operator: {op.unverified}"
    if wanted_place(op) == HOST:
        return "annotation: placed by the user"
    return reason_against(rules, node_of(op), target)


def _leave_out_what_costs_more(module: ModuleOp, target: str, costs: Costs) -> None:
    """Give to the host what makes an inference slower on the target, the ways there and back included.

    The same search as for the NPU: a nanosecond of the target is a cycle of it.
    """
    found = list(operators(main_function(module)))
    works = [OperatorCost(operator_ns(costs, node_of(op), target)) if placed(op) == NPU else None for op in found]
    if any(work is not None for work in works):
        problem = problem_of(module, found, works, costs.host, 1_000_000_000, _together, target)
        apply_choice(module, found, choose(problem, Bounds(), "performance"))


def _together(works: Sequence[OperatorCost]) -> float:
    return sum(work.cycles for work in works)


def _model_of(segment: SegmentOp) -> SegmentModel:
    """The operators of a segment as a model of their own, whose inputs and outputs are the segment's in order."""
    block = segment.circle_block
    last = block.last_op
    assert isinstance(last, YieldOp), "a verified segment ends so"
    types = FunctionType.from_lists([value.type for value in block.args], [value.type for value in last.operands])
    function = FuncOp("main", types, segment.circle.clone())
    for argument, original in zip(function.body.block.args, block.args, strict=True):
        argument.name_hint, argument.location = original.name_hint, original.location
    end = function.body.block.last_op
    assert isinstance(end, YieldOp)
    Rewriter.replace_op(end, ReturnOp(*end.operands))
    records = export_circle.export_model(ModuleOp([function]))
    return SegmentModel(segment.sym_name.data, bytes(write_model(records)))
