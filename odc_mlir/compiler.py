"""From a model to a package: import, the pipeline, binaries, the model as written into the package, the plan.

Nothing here prints or exits. ``odc_mlir.compile`` wraps what :func:`compile` returns for running and reporting.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import groupby
from typing import Any, get_type_hints

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass

from odc_mlir import pipelines, targets
from odc_mlir._version import __version__
from odc_mlir.codegen import machine
from odc_mlir.dialects.circle import CircleOp, VariableOp, node_of
from odc_mlir.dialects.odc import SegmentOp, YieldOp
from odc_mlir.errors import CompileError, OptionError, UnsupportedError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.package import MODEL_NAME, PackageFiles, build_package
from odc_mlir.formats.plan import HostStep, Plan, SegmentStep
from odc_mlir.frontend import export_circle
from odc_mlir.frontend.export_circle import OperatorIndices
from odc_mlir.loading import ModelSource, copied, load
from odc_mlir.ops.work import kernel_names
from odc_mlir.retries import schedule_segments
from odc_mlir.support.collection import seldom_collected
from odc_mlir.support.deadline import Progress, tell
from odc_mlir.support.locations import op_name, value_name
from odc_mlir.targets.cpu import is_cpu
from odc_mlir.targets.host import HostCosts
from odc_mlir.transforms.common.placement import DEFECTS, HOST, PARTITION, main_function, operators, placed, reason_of
from odc_mlir.transforms.native.native_set_target import NativeSetTargetPass
from odc_mlir.transforms.partition.npu_choose_segments import NpuChooseSegmentsPass
from odc_mlir.transforms.partition.odc_apply_annotations import OdcApplyAnnotationsPass
from odc_mlir.transforms.partition.odc_fix_batch import restore_batch
from odc_mlir.transforms.partition.odc_set_target import OdcSetTargetPass
from odc_mlir.transforms.quant.common.ir import SCHEME, read_word
from odc_mlir.trials import PARTITIONED
from odc_mlir.universe import make_context

# What passes leave on the module for reports: key in the plan, name of the attribute.
_RECORDS = {"partition": PARTITION, "defects": DEFECTS}

_LISTED_OPERATORS = 8  # host operators that one error message names


def model_bytes(source: ModelSource | ModuleOp) -> bytes:
    """The bytes of the model file that a module in the circle dialect, or IR text, stands for; raises OdcError."""
    if not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview | ModuleOp):
        raise OptionError(f"a {type(source).__name__} is not a model", hint="give a file, its bytes or a module")
    module = source if isinstance(source, ModuleOp) else load(source)
    return bytes(write_model(export_circle.export_model(module)))


@seldom_collected()
def lower(
    module: ModuleOp,
    stage: str,
    *,
    target: str = "npu-256",
    memory: str = "flash",
    prefer: str = "performance",
    sram_limit: int | None = None,
    allow_host: bool = False,
    placement: Mapping[str, Any] | None = None,
    time_limit: float | None = None,
) -> ModuleOp:
    """A copy of ``module`` taken to the end of ``stage``; raises OdcError, TimeLimitError after ``time_limit`` s."""
    pipelines.stages_until(stage)
    placing = placement_passes(placement or {})
    chosen: ModulePass
    if is_cpu(target):
        chosen = NativeSetTargetPass(machine.resolve(target).name)
    else:
        chosen = OdcSetTargetPass(target, memory, prefer, sram_limit, allow_host)
        chosen.choice()
    lowered = module.clone()
    pipelines.run(make_context(time_limit=time_limit), lowered, stage, options=[chosen, *placing])
    return lowered


@seldom_collected()
def compile(
    model: ModelSource | ModuleOp,
    *,
    target: str = "npu-256",
    memory: str = "flash",
    prefer: str = "performance",
    sram_limit: int | None = None,
    allow_host: bool = False,
    strict: bool = False,
    placement: Mapping[str, Any] | None = None,
    time_limit: float | None = None,
    progress: Progress | None = None,
    verify_each: bool = False,
    remember: bool = False,
) -> PackageFiles:
    """Compile a quantised model; the same model and options give the same bytes.

    What the target cannot run stays on the host; so does what costs less there, and, with the reason, an operator that
    cannot be scheduled. ``strict`` makes all of that an error. An ``sram_limit`` that is too small for what runs on the
    NPU is an error that says what would be enough; with ``allow_host`` operators go to the host instead.

    ``placement`` says what the user wants: ``host``, ``npu`` (lists of opcodes and result names), ``file`` (a partition
    file), ``strategy`` (``cost``, or ``supported`` for everything that the NPU can run), ``min_operators``,
    ``min_macs`` and ``max_segments``. Raises OdcError, and TimeLimitError when it takes more than ``time_limit``
    seconds: a result that depends on the clock would not be the same twice. ``progress`` is told what is being done,
    how far it is, and out of how much where that is known. ``verify_each``: the IR is verified after every pass, which
    takes longer, not only after every stage. ``remember``: tilings are looked up in the user's cache and kept there,
    which changes nothing but the time.
    """
    context = make_context(time_limit=time_limit, progress=progress, verify_each=verify_each, remember=remember)
    options = OdcSetTargetPass(target, memory, prefer, sram_limit, allow_host)
    options.choice()
    placing = placement_passes(placement or {})
    tell(context, "reading the model")
    module = copied(model)
    pipelines.run(context, module, PARTITIONED, options=[options, *placing])
    if strict:
        refuse_host_operators(module)
    made = package_of(context, module, options, strict=strict, placing=placing)
    if context.tilings is not None:
        context.tilings.save()
    return made


def placement_passes(placement: Mapping[str, Any]) -> list[ModulePass]:
    """The passes that do what the keys of ``placement`` ask for; raises OptionError for a key or value of no use."""
    found: list[ModulePass] = []
    left = dict(placement)
    for kind in (OdcApplyAnnotationsPass, NpuChooseSegmentsPass):
        names = [field.name for field in fields(kind)]
        values = {name: left.pop(name) for name in names if name in left}
        found.append(build_pass(kind, values))
    if left:
        known = ", ".join(f.name for kind in (OdcApplyAnnotationsPass, NpuChooseSegmentsPass) for f in fields(kind))
        raise OptionError(f"unknown placement option {next(iter(left))!r}", hint=f"use some of {known}")
    return found


def build_pass(kind: type[ModulePass], values: Mapping[str, Any]) -> ModulePass:
    """A pass with options given as Python values; raises OptionError for one of the wrong type."""
    hints = get_type_hints(kind)
    for name, value in values.items():
        if hints[name] == tuple[str, ...]:
            fits = not isinstance(value, str) and all(isinstance(item, str) for item in value)
        else:
            fits = isinstance(value, hints[name]) and not isinstance(value, bool)
        if not fits:
            raise OptionError(f"placement option {name} is {value!r}", hint="see the pass options of odc-opt")
    return kind(**{name: tuple(v) if hints[name] == tuple[str, ...] else v for name, v in values.items()})


def package_of(
    context: Context,
    module: ModuleOp,
    options: OdcSetTargetPass,
    *,
    strict: bool = False,
    placing: Sequence[ModulePass] = (),
) -> PackageFiles:
    """The package of a module at stage ``partition``, which is used up; see :func:`compile`."""
    compiled = schedule_segments(context, module, strict=strict, passes=placing)
    restore_batch(compiled.module)
    records, indices = export_circle.export_with_operators(compiled.module)
    files = {segment: f"{segment.sym_name.data.replace('_', '-')}.npu" for segment in compiled.binaries}
    chosen = {
        "prefer": options.prefer,
        "quantize": read_word(compiled.module, SCHEME) or "none",
        "sram_limit_bytes": options.sram_limit,
    }
    target = targets.load(options.target)
    plan = make_plan(
        compiled.module, records, indices, files, target=target.name, memory=options.memory, options=chosen
    )
    plan = replace(plan, partition=_partition_record(compiled.module, target.host))
    binaries = {files[segment]: data for segment, data in compiled.binaries.items()}
    return build_package(write_model(records), plan, binaries)


def refuse_host_operators(module: ModuleOp) -> None:
    """Raise UnsupportedError, naming operators and reasons, when some stay on the host."""
    left = [op for op in operators(module) if placed(op) == HOST]
    if not left:
        return
    listed = [f"{op.SPEC.name} {op_name(op)!r} ({reason_of(op)})" for op in left[:_LISTED_OPERATORS]]
    more = f" and {len(left) - len(listed)} more" if len(left) > len(listed) else ""
    count = "1 operator stays" if len(left) == 1 else f"{len(left)} operators stay"
    raise UnsupportedError(
        f"{count} on the host: {', '.join(listed)}{more}", hint="compile without strict to allow that"
    )


def make_plan(
    module: ModuleOp,
    model: Model,
    indices: OperatorIndices,
    files: dict[SegmentOp, str],
    *,
    target: str,
    memory: str | None,
    options: Mapping[str, str | int | None],
) -> Plan:
    """The steps of one inference over ``model``, which ``module`` was written to."""
    tensors = _TensorIndices(model, indices)
    steps: list[HostStep | SegmentStep] = []
    main = [op for op in main_function(module).body.block.ops if isinstance(op, CircleOp | SegmentOp)]
    for is_segment, run in groupby(main, lambda op: isinstance(op, SegmentOp)):
        if is_segment:
            steps += [_segment_step(op, files[op], tensors) for op in run if isinstance(op, SegmentOp)]
        else:
            steps.append(HostStep(tuple(indices[op][1] for op in run)))
    reasons = {indices[op][1]: reason_of(op) for op in main if isinstance(op, CircleOp)}
    graph = model.subgraphs[0]
    return Plan(
        model=MODEL_NAME,
        inputs=tuple(graph.inputs),
        outputs=tuple(graph.outputs),
        steps=tuple(steps),
        target=target,
        memory=memory,
        compiler_version=__version__,
        options=options,
        host_reasons={index: reason for index, reason in sorted(reasons.items()) if reason},
    )


def _partition_record(module: ModuleOp, host: HostCosts) -> dict[str, Any]:
    """What the partitioner wrote down, defects that it met, and the costs of the target's host for its kernels."""
    kernels = {name for op in module.walk() if isinstance(op, CircleOp) for name in kernel_names(node_of(op))}
    known = {*kernels, *(name.removesuffix("-codes") for name in kernels)}
    record = {key: _plain(module.attributes[name]) for key, name in _RECORDS.items() if name in module.attributes}
    return {**record.pop("partition", {}), **record, "host": host.restricted_to(known).to_dict()}


def _plain(attribute: Attribute) -> Any:
    """An attribute of dictionaries, lists, integers and strings as plain data."""
    if isinstance(attribute, DictionaryAttr):
        return {key: _plain(value) for key, value in attribute.data.items()}
    if isinstance(attribute, ArrayAttr):
        return [_plain(value) for value in attribute]
    if isinstance(attribute, IntegerAttr):
        return attribute.value.data
    return attribute.data if isinstance(attribute, StringAttr) else str(attribute)


def _segment_step(segment: SegmentOp, file: str, tensors: _TensorIndices) -> SegmentStep:
    return SegmentStep(
        file=file,
        inputs=tensors.of(segment.operands),
        outputs=tensors.of(segment.results),
        operators=tuple(tensors.operator(op) for op in segment.circle_block.ops if isinstance(op, CircleOp)),
    )


class _TensorIndices:
    """Where values of the main function are among the tensors of the model's first subgraph."""

    def __init__(self, model: Model, indices: OperatorIndices) -> None:
        self.graph = model.subgraphs[0]
        self.indices = indices

    def operator(self, op: Operation) -> int:
        """Index of an operator."""
        return self.indices[op][1]

    def of(self, values: Sequence[SSAValue]) -> tuple[int, ...]:
        """Tensor index of each value."""
        return tuple(map(self._of, values))

    def _of(self, value: SSAValue) -> int:
        if isinstance(value, BlockArgument):
            owner = value.block.parent_op()
            if isinstance(owner, SegmentOp):
                return self._of(owner.operands[value.index])
            return self.graph.inputs[value.index]
        assert isinstance(value, OpResult)
        if isinstance(value.op, VariableOp):
            return self._of_variable(value)
        if isinstance(value.op, SegmentOp):
            last = value.op.circle_block.last_op
            assert isinstance(last, YieldOp)
            return self._of(last.operands[value.index])
        return self.graph.operators[self.operator(value.op)].outputs[value.index]

    def _of_variable(self, value: SSAValue) -> int:
        """Index of a variable, as an operator that uses it knows it."""
        for use in value.uses:
            if isinstance(use.operation, CircleOp):
                index: int = self.graph.operators[self.operator(use.operation)].inputs[use.index]
                return index
            if isinstance(use.operation, SegmentOp):
                return self._of_variable(use.operation.circle_block.args[use.index])
        raise CompileError("no operator uses this variable", tensor=value_name(value))
