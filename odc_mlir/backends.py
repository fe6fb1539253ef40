"""Compiler backends for NPUs, processors, and targets of plugins.

The driver in :mod:`odc_mlir.compiler` is the same for all backends. A :class:`CompilerBackend` gives the stages and
emits the binary of a segment. If this fails, it chooses operators for the host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast, get_type_hints

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir import errors, pipelines, targets
from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.dialects.npu_program import ProgramOp, create_programs, distinct_names, programs
from odc_mlir.dialects.odc import TARGET, SegmentOp, TargetAttr, TargetChoice, YieldOp, target_of
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.native_segment import SUFFIX
from odc_mlir.frontend import export_circle
from odc_mlir.ops.work import tensor_bytes
from odc_mlir.processors import CpuTarget, is_cpu
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.collection import take_apart
from odc_mlir.support.deadline import in_time, tell
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.targets.costs import HostCosts
from odc_mlir.transforms.common.defects import Defect, defect_of
from odc_mlir.transforms.common.placement import (
    EXTERNAL,
    PlacePattern,
    main_function,
    mark_places,
    operators,
    placed,
)
from odc_mlir.transforms.native.native_set_target import NativeSetTargetPass
from odc_mlir.transforms.partition.npu_choose_segments import NpuChooseSegmentsPass, apply_choice, problem_of
from odc_mlir.transforms.partition.odc_apply_annotations import OdcApplyAnnotationsPass
from odc_mlir.transforms.partition.odc_set_target import OdcSetTargetPass
from odc_mlir.transforms.partition.plans.plans import Bounds, OperatorCost, choose
from odc_mlir.transforms.partition.rules.edges import memory_reason
from odc_mlir.transforms.quant.common.ir import SCHEME, read_word
from odc_mlir.universe import make_context

if TYPE_CHECKING:
    from odc_mlir.plugins.target import Costs, Rules, SegmentModel

SINGLE_EVICTIONS = 12  # failures of a module after which whole segments go to the host, not single operators


class Compiled(NamedTuple):
    """A partitioned module with the binaries of segments in program order."""

    module: ModuleOp
    binaries: dict[SegmentOp, bytes]


class Failed(NamedTuple):
    """Index of the first segment that has no binary, and the error."""

    segment: int
    error: errors.OdcError


class DefectError(errors.CompileError):
    """Unexpected exception during the compilation of a segment."""

    def __init__(self, defect: Defect) -> None:
        super().__init__(defect.reason)
        self.defect = defect


@dataclass(frozen=True)
class CompilerBackend(ABC):
    """Stages, binaries and evictions for one kind of target.

    ``partitioned``: the stage that forms segments. :meth:`passes` configures passes up to this stage. ``last``: the
    stage before binaries are emitted. ``lowered``: the last stage on the whole module, or None if segments are lowered
    one by one.
    """

    partitioned: ClassVar[str]
    last: ClassVar[str] = ""  # "": external code generators compile segments
    lowered: ClassVar[str | None] = None

    target: str

    @property
    @abstractmethod
    def suffix(self) -> str:
        """Suffix of binary files, with the dot."""

    @abstractmethod
    def passes(self) -> Sequence[ModulePass]:
        """Return configured passes, which replace the passes of the same names in the stages."""

    @abstractmethod
    def binary(self, context: Context, module: ModuleOp, segment: SegmentOp) -> bytes:
        """Return the binary of a segment of ``module``. Raises OdcError."""

    def emit(self, module: ModuleOp, segment: SegmentOp) -> bytes:
        """Return the binary of a segment at the last stage. Raises OdcError."""
        return self.binary(make_context(), module, segment)

    def evicted(self, context: Context, module: ModuleOp, failed: Failed, attempt: int) -> Mapping[CircleOp, str]:
        """Choose operators of ``module`` that go to the host after failure number ``attempt``, each with a reason.

        Raise an error to stop the compilation.
        """
        raise failed.error

    def plan_fields(self, module: ModuleOp) -> Mapping[str, Any]:
        """Return fields for the plan of ``module``: ``target``, ``memory`` and ``options``."""
        return {"target": self.target, "memory": None, "options": {}}

    @property
    def host(self) -> HostCosts | None:
        """Costs of the host, for the record of the partition in the plan. None: the plan has no record."""
        return None


@dataclass(frozen=True)
class NpuBackend(CompilerBackend):
    """Backend for NPUs with a target file. Operators that cannot be scheduled go to the host, at first one by one."""

    partitioned = "partition"
    last = "npu-alloc"
    suffix = ".npu"

    memory: str = "flash"
    prefer: str = "performance"
    sram_limit: int | None = None
    allow_host: bool = False
    placement: tuple[ModulePass, ...] = ()

    def passes(self) -> Sequence[ModulePass]:
        chosen = OdcSetTargetPass(self.target, self.memory, self.prefer, self.sram_limit, self.allow_host)
        chosen.choice()
        return [chosen, *self.placement]

    def binary(self, context: Context, module: ModuleOp, segment: SegmentOp) -> bytes:
        choice = target_of(module)
        assert choice is not None, "a partitioned module has a target"
        try:
            alone = ModuleOp([], dict(module.attributes))
            create_programs(alone, [segment])
            pipelines.run(context, alone, self.last, after=self.partitioned)
            (program,) = programs(alone).values()
            tell(context, "package: emitting")
            made = _emit(segment, program, choice)
        except errors.AllocationError as error:
            capacity = targets.load(choice.target).sram.capacity_bytes
            if error.needed_bytes > capacity:
                error.hint = f"the SRAM of {choice.target} has {capacity} bytes; use a target with more"
            raise
        take_apart(program.block)  # frees memory, which the IR of all segments would fill
        return made

    def emit(self, module: ModuleOp, segment: SegmentOp) -> bytes:
        choice = target_of(module)
        assert choice is not None, "a partitioned module has a target"
        return _emit(segment, programs(module)[segment.sym_name.data], choice)

    def evicted(self, context: Context, module: ModuleOp, failed: Failed, attempt: int) -> Mapping[CircleOp, str]:
        error = failed.error
        if isinstance(error, errors.AllocationError) and self.sram_limit is not None and not self.allow_host:
            raise self._least_limit(context, module, error)
        ops = _culprits(segments(module)[failed.segment], error, single=attempt <= SINGLE_EVICTIONS)
        if isinstance(error, errors.AllocationError) and error.needed_bytes:  # same text as the placement rule's
            return {op: memory_reason(op, error.needed_bytes, error.allowed_bytes) for op in ops}
        return dict.fromkeys(ops, f"compile: {error}")

    def plan_fields(self, module: ModuleOp) -> Mapping[str, Any]:
        scheme = read_word(module, SCHEME) or "none"
        options = {"prefer": self.prefer, "quantize": scheme, "sram_limit_bytes": self.sram_limit}
        return {"target": targets.load(self.target).name, "memory": self.memory, "options": options}

    @property
    def host(self) -> HostCosts:
        return targets.load(self.target).host

    def _least_limit(self, context: Context, module: ModuleOp, error: errors.AllocationError) -> errors.AllocationError:
        """Return an error that names a sufficient SRAM limit, found by scheduling with larger limits."""
        choice = target_of(module)
        assert choice is not None, "a partitioned module has a target"
        limit, needed = choice.sram_limit or 0, error.needed_bytes
        capacity = targets.load(choice.target).sram.capacity_bytes
        found: Compiled | Failed | None = None
        while limit < needed <= capacity and not isinstance(found, Compiled):
            trial = clone_module(module)
            trial.attributes[TARGET] = TargetAttr(replace(choice, sram_limit=needed))
            found = segment_binaries(context, trial, self, guarded=False)
            if isinstance(found, Failed):
                more = found.error.needed_bytes if isinstance(found.error, errors.AllocationError) else 0
                needed = more if more > needed else 0
        if not isinstance(found, Compiled):
            return errors.AllocationError(
                f"the SRAM limit of {limit} bytes is too small: {error.message}",
                tensor=error.tensor,
                hint="let operators go to the host (--allow-host)",
            )
        least = errors.AllocationError(
            f"the SRAM limit of {limit} bytes is too small for the operators on the NPU; {needed} bytes suffice",
            hint=f"raise it (--sram-limit {needed}), or let operators go to the host (--allow-host)",
        )
        least.needed_bytes, least.allowed_bytes = needed, limit
        return least


@dataclass(frozen=True)
class NativeBackend(CompilerBackend):
    """Backend for object code of a processor, by LLVM. Operators that have no native kernel run on host kernels."""

    partitioned = "native-partition"
    last = lowered = "native-llvm"
    suffix = SUFFIX

    processor: CpuTarget

    def passes(self) -> Sequence[ModulePass]:
        return [NativeSetTargetPass(self.target)]

    def binary(self, context: Context, module: ModuleOp, segment: SegmentOp) -> bytes:
        from odc_mlir.emitter.native_segment import emit_native_segment  # imports xDSL's llvm dialect

        return emit_native_segment(segment, self.processor)


@dataclass(frozen=True)
class ExternalBackend(CompilerBackend):
    """Backend for the target of a plugin. The plugin gives placement rules, costs and a compiler of segments.

    A segment that cannot be compiled goes to the host as a whole.
    """

    partitioned = pipelines.EXTERNAL

    extension: str
    rules: Rules
    costs: Costs | None
    compile_segment: Callable[[SegmentModel], bytes]

    @property
    def suffix(self) -> str:
        return f".{self.extension}"

    def passes(self) -> Sequence[ModulePass]:
        return [_MarkSupported(self), _ChooseSegments(self)]

    def binary(self, context: Context, module: ModuleOp, segment: SegmentOp) -> bytes:
        return self.compile_segment(segment_model(segment))

    def evicted(self, context: Context, module: ModuleOp, failed: Failed, attempt: int) -> Mapping[CircleOp, str]:
        return dict.fromkeys(operators(segments(module)[failed.segment]), f"compile: {failed.error.message}")


@dataclass(frozen=True)
class _MarkSupported(ModulePass):
    """Place operators on an external target if the rules allow this."""

    name = "target-mark-supported"
    backend: ExternalBackend

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        op.attributes[TARGET] = TargetAttr(TargetChoice(self.backend.target))
        mark_places(op, _MarkByRules(self.backend))


@dataclass
class _MarkByRules(PlacePattern):
    """Place an operator on the target if the rules allow this, otherwise on the host with the reason."""

    place = EXTERNAL
    backend: ExternalBackend

    def host_reason(self, op: CircleOp, /) -> str | None:
        from odc_mlir.plugins.target import rules_reason

        return rules_reason(self.backend.rules, node_of(op), self.backend.target)


@dataclass(frozen=True)
class _ChooseSegments(ModulePass):
    """Move operators to the host if an inference becomes faster, including transfers.

    The search is the same as for NPUs, with costs in nanoseconds.
    """

    name = "target-choose-segments"
    backend: ExternalBackend

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from odc_mlir.plugins.target import check_costs, operator_ns

        target = self.backend.target
        costs = check_costs(self.backend.costs, target)
        if costs is None:
            return
        found = list(operators(main_function(op)))
        works = [
            OperatorCost(operator_ns(costs, node_of(op), target)) if placed(op) == EXTERNAL else None for op in found
        ]

        def sum_of_cycles(works: Sequence[OperatorCost]) -> float:
            return sum(work.cycles for work in works)

        if any(work is not None for work in works):
            problem = problem_of(op, found, works, costs.host, 1_000_000_000, sum_of_cycles, target)
            apply_choice(op, found, choose(problem, Bounds(), "performance"))


def segment_binaries(
    context: Context, module: ModuleOp, backend: CompilerBackend, *, guarded: bool
) -> Compiled | Failed:
    """Return the binaries of all segments of ``module``. Stop at the first failure.

    ``guarded``: return an unexpected exception as a failure, instead of raising it
    """
    validation = pipelines.validation_of(context)
    with validation.of_binaries(segments(module)):
        if backend.lowered is not None:
            options = backend.passes()
            pipelines.run(context, module, backend.lowered, after=backend.partitioned, options=options)
        binaries: dict[SegmentOp, bytes] = {}
        for number, segment in enumerate(in_time(context, segments(module))):
            try:
                binaries[segment] = backend.binary(context, module, segment)
                validation.check_binary(segment, backend.suffix, binaries[segment])
                continue
            except (errors.TimeLimitError, errors.TranslationError, errors.ForeignPassError):
                raise
            except errors.OdcError as error:
                if validation.is_active and isinstance(error, errors.ModelError):
                    raise  # invalid IR is a defect; eviction would hide it
                failure = error
            except Exception as error:
                if not guarded or validation.is_active:
                    raise
                failure = DefectError(defect_of("a segment", "", error))
                failure.__cause__ = error
            return Failed(number, failure)
        return Compiled(module, binaries)


def backend_of(module: ModuleOp) -> CompilerBackend:
    """Return the backend for the target of a partitioned module. Raises CompileError if it has no target."""
    choice = target_of(module)
    if choice is None:
        raise errors.CompileError("no target is chosen", hint="run odc-set-target or native-set-target first")
    if is_cpu(choice.target):
        from odc_mlir.codegen.machine import resolve

        return NativeBackend(choice.target, resolve(choice.target))
    if choice.target not in targets.names() and not choice.target.endswith(".toml"):
        hint = "compile the model instead of its IR: odc-compile MODEL --target NAME"
        raise errors.CompileError(f"the IR is partitioned for {choice.target!r}, a target of a plugin", hint=hint)
    placement = NpuChooseSegmentsPass(choice.strategy, choice.min_operators, choice.min_macs, choice.max_segments)
    return NpuBackend(choice.target, choice.memory, choice.prefer, choice.sram_limit, choice.allow_host, (placement,))


def segments(module: ModuleOp) -> list[SegmentOp]:
    """Return the segments of the main function in program order."""
    return [op for op in main_function(module).body.block.ops if isinstance(op, SegmentOp)]


def placement_passes(placement: Mapping[str, Any]) -> tuple[ModulePass, ...]:
    """Return passes with the options in ``placement``. Raises OptionError for an unknown key or a wrong value."""
    found: list[ModulePass] = []
    left = dict(placement)
    kinds: tuple[type[ModulePass], ...] = (OdcApplyAnnotationsPass, NpuChooseSegmentsPass)
    for kind in kinds:
        names = [item.name for item in fields(kind)]
        found.append(_configured(kind, {name: left.pop(name) for name in names if name in left}))
    if left:
        known = ", ".join(item.name for kind in kinds for item in fields(kind))
        raise errors.OptionError(f"unknown placement option {next(iter(left))!r}", hint=f"use some of {known}")
    return tuple(found)


def _configured(kind: type[ModulePass], values: Mapping[str, Any]) -> ModulePass:
    hints = get_type_hints(kind)
    for name, value in values.items():
        if hints[name] == tuple[str, ...]:
            fits = not isinstance(value, str) and all(isinstance(item, str) for item in value)
        else:
            fits = isinstance(value, hints[name]) and not isinstance(value, bool)
        if not fits:
            raise errors.OptionError(f"placement option {name} is {value!r}", hint="see the pass options of odc-opt")
    return kind(**{name: tuple(v) if hints[name] == tuple[str, ...] else v for name, v in values.items()})


def _emit(segment: SegmentOp, program: ProgramOp, choice: TargetChoice) -> bytes:
    from odc_mlir.emitter.program import emit_program, operator_kinds

    target, memory = targets.load(choice.target), cast(targets.MemoryMode, choice.memory)
    with typed_errors("package"):
        return emit_program(program, target, memory, operator_kinds(segment))


def _culprits(segment: SegmentOp, error: errors.OdcError, *, single: bool) -> list[CircleOp]:
    """Choose operators to evict: all, or if ``single`` the operator in ``error`` (largest if SRAM is short)."""
    members = list(operators(segment))
    if single:
        known = zip(members, distinct_names(segment.circle_block), strict=True)
        named = [op for op, names in known if error.tensor in names]
        if len(named) == 1:
            return named
        if isinstance(error, errors.AllocationError):
            return [max(members, key=_tensor_bytes)]
    return members


def _tensor_bytes(op: CircleOp) -> int:
    """Return the bytes of the computed operands and results of ``op``, which are in SRAM at the same time."""
    node = node_of(op)
    tensors = [t for t in (*node.operands, *node.results) if t is not None and not t.is_const]
    return sum(map(tensor_bytes, tensors))


def segment_model(segment: SegmentOp) -> SegmentModel:
    """Return a Circle model of ``segment``, with inputs and outputs in order."""
    from odc_mlir.plugins.target import SegmentModel

    types = FunctionType.from_lists(list(segment.circle_block.arg_types), list(segment.ending.operand_types))
    function = FuncOp("main", types, segment.circle.clone())
    for argument, original in zip(function.body.block.args, segment.circle_block.args, strict=True):
        argument.name_hint, argument.location = original.name_hint, original.location
    end = function.body.block.last_op
    assert isinstance(end, YieldOp), "the copy ends in its yield"
    Rewriter.replace_op(end, ReturnOp(*end.operands))
    records = export_circle.export_model(ModuleOp([function]))
    return SegmentModel(segment.sym_name.data, bytes(write_model(records)))
