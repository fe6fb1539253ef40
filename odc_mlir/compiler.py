"""Driver of the compiler: import a model, run the pipeline of a backend, emit binaries, build the package.

NPUs, processors and targets of plugins share this code. :mod:`odc_mlir.backends` contains the differences.
``odc_mlir.compile`` wraps the result of :func:`compile` for running and reporting.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import BlockArgument, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir import backends, pipelines
from odc_mlir._version import __version__
from odc_mlir.dialects.circle import CircleOp, VariableOp, info_of, node_of
from odc_mlir.dialects.odc import SegmentOp, kept_states, lowered_symbols, set_states, state_places, states_of
from odc_mlir.emitter.program import plain_data
from odc_mlir.errors import CompileError, ForeignPassError, OdcError, OptionError, UnsupportedError, bounded
from odc_mlir.formats import source_lines
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.package import MODEL_NAME, ModelSource, PackageFiles, build_package
from odc_mlir.formats.plan import HostStep, Plan, SegmentStep
from odc_mlir.formats.states import States, check_types, others, pairs_of
from odc_mlir.formats.trust import compiled_here
from odc_mlir.frontend import export_circle
from odc_mlir.frontend.export_circle import OperatorIndices
from odc_mlir.loading import copied, load
from odc_mlir.ops.work import kernel_names
from odc_mlir.plugins.universes import owner_of
from odc_mlir.processors import CpuTarget, is_cpu
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.collection import seldom_collected
from odc_mlir.support.deadline import Progress, tell
from odc_mlir.support.diagnostics import attribute_errors, typed_errors, verify_order
from odc_mlir.support.locations import op_name, value_name
from odc_mlir.targets.costs import HostCosts
from odc_mlir.transforms.common import placement as places
from odc_mlir.transforms.common.defects import record_defect
from odc_mlir.transforms.common.placement import main_function
from odc_mlir.transforms.common.states import append_rows, keep_state_codes
from odc_mlir.transforms.partition.odc_fix_batch import restore_batch
from odc_mlir.universe import OdcContext, make_context

LOG = logging.getLogger(__name__)

# Attributes with records of passes for reports: key in the plan -> name of the module's attribute.
_RECORDS = {"partition": places.PARTITION, "defects": places.DEFECTS}

PACKAGED = "package"
Verify = Literal["stages", "passes", "run"]
VERIFICATIONS: tuple[Verify, ...] = ("stages", "passes", "run")
_LISTED_OPERATORS = 8  # limit on host operators in an error message


def model_bytes(source: ModelSource | ModuleOp) -> bytes:
    """Export a module in the circle dialect, or IR text, as a Circle file. Raises OdcError."""
    return bytes(write_model(export_circle.export_model(load(source))))


def has_programs(module: ModuleOp) -> bool:
    """Return whether segments of ``module`` have been lowered below the circle dialect."""
    return pipelines.first_segment(module) is not None and bool(lowered_symbols(module))


@seldom_collected()
def lower(
    model: ModelSource | ModuleOp,
    stage: str,
    *,
    target: str = "npu-256",
    memory: str = "flash",
    prefer: str = "performance",
    sram_limit: int | None = None,
    allow_host: bool = False,
    placement: Mapping[str, Any] | None = None,
    time_limit: float | None = None,
    states: States | None = None,
    after: str | None = None,
    before: Mapping[str, pipelines.Passes] | None = None,
    verify: Verify = "stages",
) -> ModuleOp:
    """Lower a copy of ``model`` to a stage of ``odc-opt --list-stages``, with the options of :func:`compile`.

    ``after``: the last stage that the model has passed (default: none). ``before``: passes, or names of passes, to
        insert. The key is the name of the pass that follows them. Raises OdcError, and TimeLimitError after
        ``time_limit`` seconds.
    """
    context = _context(verify, time_limit=time_limit, before=pipelines.added_passes(before))
    _check_added(context, stage, after)
    options = _backend(target, memory, prefer, sram_limit, allow_host, placement).passes()
    lowered = _verified_copy(model)
    declare_states(lowered, states)
    pipelines.run(context, lowered, stage, after=after, options=options)
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
    verify: Verify = "stages",
    remember: bool = False,
    states: States | None = None,
    before: Mapping[str, pipelines.Passes] | None = None,
) -> PackageFiles:
    """Compile a model for an NPU or a processor. The same model and options give the same bytes.

    Options that are not listed are those of :func:`odc_mlir.runtime.api.compile`. ``placement``: ``host``, ``npu``
        (lists of opcodes and result names), ``file`` (a partition file), ``strategy`` (``cost``, or ``supported`` for
        all operators that the NPU can run), ``min_operators``, ``min_macs`` and ``max_segments``. ``verify``: "stages"
        verifies the IR after every stage except ``npu-sched`` and ``npu-alloc``, "passes" after every pass. "run" also
        runs the IR and raises TranslationError if results change. ``states``: a dictionary from output to input of the
        next run, or texts OUT=IN. Default: the states that the model declares. Empty: no states. ``before``: passes,
        or names of passes, to insert. The key is the name of the pass that follows them.

    NPU programs in given IR run once in the simulator. Raises OdcError, CompileError if such a program fails, and
    TimeLimitError after ``time_limit`` seconds.
    """
    backend = _backend(target, memory, prefer, sram_limit, allow_host, placement)
    added = pipelines.added_passes(before)
    context = _context(verify, time_limit=time_limit, progress=progress, remember=remember, before=added)
    made = compile_with(backend, context, model, strict=strict, states=states)
    if context.tilings is not None:
        context.tilings.save()
    return made


def _backend(
    target: str, memory: str, prefer: str, sram_limit: int | None, allow_host: bool, placement: Mapping[str, Any] | None
) -> backends.CompilerBackend:
    if is_cpu(target):
        from odc_mlir.codegen.machine import resolve

        processor = resolve(target)
        return backends.NativeBackend(processor.name, processor)
    return backends.NpuBackend(
        target, memory, prefer, sram_limit, allow_host, backends.placement_passes(placement or {})
    )


def compile_with(
    backend: backends.CompilerBackend,
    context: Context,
    model: ModelSource | ModuleOp,
    *,
    strict: bool = False,
    states: States | None = None,
) -> PackageFiles:
    """Compile ``model`` with ``backend``: partition, emit binaries, build the plan (see :func:`compile`).

    IR with segments is compiled from the present stage, with the target and options in the IR (see :func:`package`).
    """
    options = backend.passes()
    tell(context, "reading the model")
    module = copied(model)
    if pipelines.first_segment(module) is not None:
        return _package_lowered(context, module, strict=strict, run=True)
    _check_added(context, backend.last)
    declare_states(module, states)
    with source_lines.located(export_circle.source_lines_of(module)):
        pipelines.run(context, module, backend.partitioned, options=options)
        if strict:
            refuse_host_operators(module)
        return package_of(context, module, backend, strict=strict)


def _check_added(context: Context, last: str, after: str | None = None) -> None:
    """Raise OptionError if a pass of ``context.before`` precedes a pass that does not run up to stage ``last``."""
    before: Mapping[str, Sequence[ModulePass]] = getattr(context, "before", {})
    if last:
        stages = pipelines.stages_until(last, after)
        pipelines.check_reached(before, (spec.name for stage in stages for spec in stage.specs))


def declare_states(module: ModuleOp, states: States | None) -> None:
    """Declare ``states`` in ``module``. If None, check the module's own. Raise OptionError for states that do not fit.

    An output, such as the new keys of a cache, may be shorter than the input. The next input then consists of the last
    rows of the present input, followed by this output.
    """
    if states is not None:
        set_states(module, append_rows(module, pairs_of(states)))
    keep_state_codes(module)
    block = main_function(module).body.block
    last = block.last_op
    assert isinstance(last, ReturnOp), "a verified function ends in a return"
    for pair, (place, source, _) in zip(states_of(module), state_places(module), strict=True):
        check_types(pair, info_of(last.operands[place]), info_of(block.args[source]))


def package_of(
    context: Context, module: ModuleOp, backend: backends.CompilerBackend, *, strict: bool = False
) -> PackageFiles:
    """Return the package of a partitioned module. Destroy the module."""
    return _write(compile_segments(context, module, backend, strict=strict), backend)


def package(module: ModuleOp, *, time_limit: float | None = None, run: bool = False) -> PackageFiles:
    """Lower a copy of ``module`` from the present stage to the end, and return the package.

    The IR gives the target. A module before stage ``partition`` is compiled with default options. Earlier passes do not
    run again. Raises CompileError for IR between stages and, with ``run``, for an NPU program of ``module`` that fails
    in the simulator.
    """
    if pipelines.first_segment(module) is None:
        return compile(module, time_limit=time_limit)
    return _package_lowered(make_context(time_limit=time_limit), _verified_copy(module), run=run)


def _verified_copy(model: ModelSource | ModuleOp) -> ModuleOp:
    module = load(model)
    with typed_errors(), attribute_errors(module):
        verify_order(module)
        copy = clone_module(module)
        copy.verify()
    return copy


def _package_lowered(context: Context, lowered: ModuleOp, *, strict: bool = False, run: bool = False) -> PackageFiles:
    """Return the package of a module with segments. Destroy the module.

    ``strict``: raise if an operator stays on the host. ``run``: raise if an NPU program fails in the simulator.
    """
    run = run and has_programs(lowered)
    backend, stage = backends.backend_of(lowered), pipelines.stage_of(lowered)
    if stage is None:
        raise CompileError(
            "the IR is between stages", hint="run the other passes of the stage first (odc-opt -p, run_passes)"
        )
    if strict:
        refuse_host_operators(lowered)
    _check_added(context, backend.last, backend.last if stage.name == PACKAGED else stage.name)
    if stage.name == backend.partitioned:
        return package_of(context, lowered, backend, strict=strict)
    if stage.name in ("npu-alloc", PACKAGED):  # users may edit the text after the stage verified it
        pipelines.run_passes(context, clone_module(lowered), pipelines.passes_of("npu-unroll-loops,npu-verify-memory"))
    validation = pipelines.validation_of(context)
    with validation.of_binaries(backends.segments(lowered)):
        if stage.name not in (backend.last, PACKAGED):
            pipelines.run(context, lowered, backend.last, after=stage.name, options=backend.passes())
        binaries = {segment: backend.emit(lowered, segment) for segment in backends.segments(lowered)}
        for segment, binary in binaries.items():
            validation.check_binary(segment, backend.suffix, binary)
            if run and isinstance(backend, backends.NpuBackend):
                from odc_mlir.validation import check_runs  # only this check needs the simulator

                check_runs(segment, backend.suffix, binary)
    return _write(backends.Compiled(lowered, binaries), backend)


def run_passes(
    module: ModuleOp,
    pipeline: pipelines.Passes,
    *,
    time_limit: float | None = None,
    verify: Verify = "passes",
) -> ModuleOp:
    """Run passes on a copy of ``module``, and return the copy.

    ``pipeline``: text such as ``canonicalize,npu-choose-tiles``, or passes. The name of a stage means its passes.
    ``verify``: see :func:`compile`. Raises OdcError, and TimeLimitError after ``time_limit`` seconds.
    """
    copy = _verified_copy(module)
    context = _context(verify, time_limit=time_limit)
    pipelines.run_passes(context, copy, pipelines.passes_given(pipeline))
    return copy


def _context(verify: Verify, **options: Any) -> OdcContext:
    if verify not in VERIFICATIONS:
        raise OptionError(f"verify is {verify!r}", hint=f"use one of {', '.join(VERIFICATIONS)}")
    context = make_context(verify_each=verify == "passes", **options)
    if verify == "run":
        from odc_mlir.validation import Validator  # only validation needs devices

        context.validator = Validator()
    return context


def _write(compiled: backends.Compiled, backend: backends.CompilerBackend) -> PackageFiles:
    restore_batch(compiled.module)
    records, indices = export_circle.export_with_operators(compiled.module)
    files = {segment: segment.sym_name.data.replace("_", "-") + backend.suffix for segment in compiled.binaries}
    plan = make_plan(compiled.module, records, indices, files, **backend.plan_fields(compiled.module))
    if (host := backend.host) is not None:
        plan = replace(plan, partition=_partition_record(compiled.module, host))
    binaries = {files[segment]: data for segment, data in compiled.binaries.items()}
    return compiled_here(build_package(write_model(records), plan, binaries))


def compile_segments(
    context: Context, module: ModuleOp, backend: backends.CompilerBackend, *, strict: bool
) -> backends.Compiled:
    """Return the binaries of all segments of a partitioned module. Destroy the module.

    After a failure, the backend chooses operators for the host, and segments are formed again. With ``strict``, a
    failure is an error.
    """
    base, attempt = clone_module(module), 0
    while True:
        try:
            found = backends.segment_binaries(context, module, backend, guarded=not strict)
        except Exception as error:  # with validation, or strict
            if isinstance(error, OdcError) or not _added_passes_fail(context, base, backend):
                raise
            raise _of_added_passes(context, error) from error
        if isinstance(found, backends.Compiled):
            return found
        if _added_passes_fail(context, base, backend):
            raise _of_added_passes(context, found.error) from found.error
        if strict:
            raise found.error
        attempt += 1
        for op, reason in backend.evicted(context, base, found, attempt).items():
            if isinstance(found.error, backends.DefectError):
                record_defect(base, replace(found.error.defect, op=op.SPEC.name, tensor=op_name(op)))
            else:
                LOG.warning("%s %r stays on the host: %s", op.SPEC.name, op_name(op), found.error)
            places.place_on_host(op, reason)
        for segment in backends.segments(base):
            last = segment.ending
            Rewriter.inline_block(segment.circle_block, InsertPoint.before(segment), segment.operands)
            results = list(last.operands)
            Rewriter.erase_op(last)
            Rewriter.replace_op(segment, [], results)
        pipelines.run_passes(context, base, pipelines.forming_passes(backend.partitioned, backend.passes()))
        module = clone_module(base)


def _added_passes_fail(context: Context, base: ModuleOp, backend: backends.CompilerBackend) -> bool:
    """Return whether a copy of ``base`` compiles to binaries if the passes that the user inserted are left out."""
    if not (isinstance(context, OdcContext) and context.before):
        return False
    plain = context.clone()
    plain.before, plain.validator = {}, None
    return isinstance(backends.segment_binaries(plain, clone_module(base), backend, guarded=True), backends.Compiled)


def _of_added_passes(context: Context, error: Exception) -> OdcError:
    """Return ``error``, or for a defect an error that names the packages of the inserted passes."""
    if isinstance(error, OdcError) and not isinstance(error, backends.DefectError):
        return error
    added = [item for items in getattr(context, "before", {}).values() for item in items]
    names = ", ".join(dict.fromkeys(f"{item.name} of {owner_of(type(item)) or 'odc-mlir'}" for item in added))
    seen = bounded(f"{type(error).__name__}: {error}")
    return ForeignPassError(f"after {names}, compiling fails: {seen}", hint="without inserted passes it succeeds")


def compile_object(
    model: ModelSource | ModuleOp,
    *,
    name: str,
    target: str = "cpu",
    triple: str | None = None,
    cpu: str = "",
    time_limit: float | None = None,
) -> tuple[bytes, str]:
    """Compile a whole model to an object file. Return the file and a C header that declares ``<name>_run``.

    ``triple`` and ``cpu``: LLVM's names for a processor that has no target file. Every operator needs a native kernel.
        Raises OdcError.
    """
    check_c_name(name)
    from odc_mlir.codegen import machine

    processor = machine.chosen(target, triple, cpu)
    module = native_module(model, processor, time_limit=time_limit)
    refuse_host_operators(module, "quantise with --target cpu, which keeps these float, or compile a package")
    found = backends.segments(module)
    if len(found) != 1:
        raise UnsupportedError("the model has no compute operator", hint="run it on the host")
    from odc_mlir.emitter.native_segment import native_object  # imports xDSL's llvm dialect

    return native_object(found[0], processor, name)


def check_c_name(name: str) -> None:
    """Raise OptionError if ``name`` is not a C identifier."""
    if not (name.isascii() and name.isidentifier()):
        raise OptionError(f"{name!r} is not a name in C", hint="use letters, digits and underscores")


def native_module(model: ModelSource | ModuleOp, processor: CpuTarget, *, time_limit: float | None = None) -> ModuleOp:
    """Return a copy of ``model``. Operators with a native kernel are lowered to functions. Raises OdcError."""
    module = copied(model)
    backend = backends.NativeBackend(processor.name, processor)
    pipelines.run(make_context(time_limit=time_limit), module, backends.NativeBackend.lowered, options=backend.passes())
    return module


def refuse_host_operators(
    module: ModuleOp, hint: str = "compile without strict to allow this", *, views: bool = False
) -> None:
    """Raise UnsupportedError, with operators and reasons, if some operators (except ``views``) stay on the host."""
    left = [op for op in places.operators(module) if places.placed(op) == places.HOST]
    left = [op for op in left if not (views and places.is_view(op))]
    if not left:
        return
    lines = export_circle.source_lines_of(module)
    at = {op: f" at {line}" if (line := source_lines.line_of(lines, op_name(op))) else "" for op in left}
    listed = [f"{op.SPEC.name} {op_name(op)!r}{at[op]} ({places.reason_of(op)})" for op in left[:_LISTED_OPERATORS]]
    more = f" and {len(left) - len(listed)} more" if len(left) > len(listed) else ""
    count = "1 operator stays" if len(left) == 1 else f"{len(left)} operators stay"
    raise UnsupportedError(f"{count} on the host: {', '.join(listed)}{more}", hint=hint)


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
    """Return the plan of one inference. ``model`` is the exported ``module``."""
    tensors = _TensorIndices(model, indices)
    steps: list[HostStep | SegmentStep] = []
    main = [op for op in main_function(module).body.block.ops if isinstance(op, CircleOp | SegmentOp)]
    for is_segment, run in groupby(main, lambda op: isinstance(op, SegmentOp)):
        if is_segment:
            for op in run:
                assert isinstance(op, SegmentOp)
                step = SegmentStep(
                    file=files[op],
                    inputs=tensors.of(op.operands),
                    outputs=tensors.of(op.results),
                    operators=tuple(indices[inner][1] for inner in op.circle_block.ops if isinstance(inner, CircleOp)),
                    states=kept_states(op),
                )
                steps.append(step)
        else:
            steps.append(HostStep(tuple(indices[op][1] for op in run)))
    reasons = {indices[op][1]: places.reason_of(op) for op in main if isinstance(op, CircleOp)}
    graph, states = model.subgraphs[0], state_places(module)
    return Plan(
        model=MODEL_NAME,
        inputs=others(graph.inputs, (source for _, source, _ in states)),
        outputs=others(graph.outputs, (place for place, _, _ in states)),
        steps=tuple(steps),
        target=target,
        memory=memory,
        compiler_version=__version__,
        options=options,
        host_reasons={index: reason for index, reason in sorted(reasons.items()) if reason},
    )


def _partition_record(module: ModuleOp, host: HostCosts) -> dict[str, Any]:
    kernels = {name for op in module.walk() if isinstance(op, CircleOp) for name in kernel_names(node_of(op))}
    known = {*kernels, *(name.removesuffix("-codes") for name in kernels)}
    record = {key: plain_data(module.attributes[name]) for key, name in _RECORDS.items() if name in module.attributes}
    return {**record.pop("partition", {}), **record, "host": host.restricted_to(known).to_dict()}


class _TensorIndices:
    def __init__(self, model: Model, indices: OperatorIndices) -> None:
        self.graph = model.subgraphs[0]
        self.indices = indices

    def of(self, values: Sequence[SSAValue]) -> tuple[int, ...]:
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
            return self._of(value.op.ending.operands[value.index])
        return self.graph.operators[self.indices[value.op][1]].outputs[value.index]

    def _of_variable(self, value: SSAValue) -> int:
        for use in value.uses:
            if isinstance(use.operation, CircleOp):
                index: int = self.graph.operators[self.indices[use.operation][1]].inputs[use.index]
                return index
            if isinstance(use.operation, SegmentOp):
                return self._of_variable(use.operation.circle_block.args[use.index])
        raise CompileError("no operator uses this variable", tensor=value_name(value))
