"""Named stages and the order of passes. No other module defines these.

``odc-opt --stage``, ``odc-compile --stage``, ``odc_mlir.lower`` and the driver of the compiler use :data:`STAGES`. To
run a stage means to run all stages up to this stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.transforms import get_all_passes
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from odc_mlir import transforms
from odc_mlir.dialects.odc import SegmentOp, target_of
from odc_mlir.errors import CompileError, ForeignPassError, OdcError, OptionError, bounded, did_you_mean
from odc_mlir.legality import check_stage, fitting_stages
from odc_mlir.plugins.universes import additions, owner_of, owners
from odc_mlir.processors import is_cpu
from odc_mlir.support.deadline import checkpoint, tell
from odc_mlir.support.diagnostics import attribute_errors, typed_errors


@dataclass(frozen=True, slots=True)
class Stage:
    """A named list of passes, some with options, which follow the passes of the previous stage."""

    name: str
    passes: tuple[str, ...]
    summary: str

    @property
    def specs(self) -> list[ArgSpec]:
        """Names and options of the passes."""
        return list(parse_pipeline(",".join(self.passes)))


FORMING = (
    "npu-form-groups",
    "npu-choose-segments",
    "npu-form-segments",
    "npu-outline-segments",
    "npu-keep-states",
    "odc-verify-boundaries",
)
"""The end of stage ``partition``. It runs again after the eviction of a segment's operators to the host."""

STAGES = (
    Stage("circle", ("circle-infer-shapes",), "the imported model with all shapes that can be inferred"),
    Stage(
        "circle-opt",
        (
            "quant-absorb-pairs{programs=true}",
            "circle-resolve-customs",
            "circle-fold-constants",
            "circle-unroll-loops",
            "circle-assign-layouts",
            "circle-simplify",
            "circle-fuse-activation",
            "canonicalize",
            "cse",
            "dce",
        ),
        "without constant, unused or redundant operations",
    ),
    # Without a scheme or given types, these passes change nothing: the model is already quantised, or stays float.
    Stage(
        "quant",
        (
            "quant-attach-ranges",
            "quant-assign-params",
            "quant-propagate-params",
            "convert-circle-to-quant",
            "quant-insert-requantize",
            "quant-verify-params",
            "circle-remove-channels",
        ),
        "on quantised types, without unused channels",
    ),
    Stage(
        "partition",
        (
            "odc-set-target",
            "odc-lift-variables",
            "odc-fix-batch",
            "odc-apply-annotations",
            "npu-mark-supported",
            *FORMING,
        ),
        "divided into host operators and segments for the target",
    ),
    Stage(
        "npu",
        (
            "convert-circle-to-npu",
            "npu-fuse-padding",
            "npu-swap-axes",
            "npu-elide-reshapes",
            "npu-interleave-heads",
            "cse",
            "dce",
        ),
        "segments as NPU operations on tensors",
    ),
    Stage(
        "npu-sched",
        (
            "npu-search-plans",
            "npu-cut-stripes",
            "npu-alias-moves",
            "npu-choose-tiles",
            "npu-lower-to-tiles",
            "npu-encode-weights",
            "npu-share-arena",
        ),
        "segments as instructions on tiles, with transfers just before uses",
    ),
    Stage(
        "npu-alloc",
        (
            "npu-allocate-local",
            "npu-hoist-transfers",
            "npu-prefetch-constants",
            "npu-allocate-memory",
            "npu-insert-sync",
            "npu-verify-memory",
            "npu-roll-loops",
        ),
        "instructions in final order, with addresses, semaphores and loops",
    ),
    Stage("package", (), "the IR from which binaries are encoded"),
)

# Stages of native code, which follow stage ``quant``.
BRANCH = "quant"
NATIVE_STAGES = (
    Stage(
        "native-partition",
        (
            "native-set-target",
            "odc-lift-variables",
            "odc-fix-batch",
            "odc-apply-annotations",
            "circle-fold-constants{decode=true}",
            "native-mark-supported",
            "npu-form-segments",
            "npu-outline-segments",
        ),
        "divided into host operators and segments of native code",
    ),
    Stage("native", ("convert-circle-to-kernels",), "segments as calls of kernels on buffers"),
    Stage("native-alloc", ("native-allocate-memory",), "buffers with addresses in an arena"),
    Stage("native-divide", ("native-divide-layers",), "large layers divided among threads, in a second function"),
    Stage("native-loops", ("native-write-kernels",), "kernels as loops of vectors"),
    Stage("native-llvm", ("convert-native-to-llvm",), "segments in the llvm dialect, as input of LLVM"),
)

EXTERNAL = "external-partition"
"""Partition stage for targets of plugins. Only the driver runs it, because its passes contain the target's rules."""
_EXTERNAL_FORMING = ("target-choose-segments", "npu-form-segments", "npu-outline-segments")
_EXTERNAL_STAGE = Stage(
    EXTERNAL,
    ("odc-lift-variables", "odc-fix-batch", "odc-apply-annotations", "target-mark-supported", *_EXTERNAL_FORMING),
    "divided into host operators and segments for a target of a plugin",
)

# Stages that are verified only if every pass is verified. Programs of these stages have tens of thousands of
# instructions, and the emitter rejects fields that cannot be encoded.
CHECKED_ON_REQUEST = frozenset({"npu-sched", "npu-alloc"})

# Passes on a float model after stage ``circle-opt`` and before the recording of ranges. Unlike stages, they preserve
# results within float32's accuracy, not bit for bit.
QUANTIZE_PREPARE = (
    "circle-fuse-patterns",
    "circle-clip-masks",
    "circle-fuse-batch-norm",
    "circle-fuse-activation",
    "circle-fuse-channel-shuffle",
    "canonicalize",
    "cse",
    "dce",
)
# Passes that convert a float model with assigned parameters to a quantised candidate, and passes on the chosen one.
QUANTIZE_BUILD = ("quant-propagate-params", "convert-circle-to-quant", "quant-insert-requantize", "dce")
QUANTIZE_CHECK = ("quant-verify-params", "dce")
# Queries of the quantiser to a target: layers that it can run (PLACE), and layers that it would run (PLAN).
PLACE = ("odc-set-target", "odc-fix-batch", "npu-mark-supported")
PLAN = ("npu-form-groups", "npu-choose-segments")


@dataclass(frozen=True)
class StageWithoutPasses(ModulePass):
    """Check of a stage that has no passes, for use in a list of passes."""

    name = "stage-without-passes"

    stage: str

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_stage(op, self.stage)


_VALIDATOR = "validator"  # name of the attribute of contexts


class Validation:
    """Interface of translation validation (:mod:`odc_mlir.validation`). This base class does nothing."""

    is_active: ClassVar[bool] = False

    def start(self, module: ModuleOp) -> None:
        """Record ``module`` as the start of a pipeline if the pipeline does not emit binaries of a recorded module."""

    def before_pass(self, stage: str, item: ModulePass, module: ModuleOp) -> None:
        """Raise TranslationError if ``module`` computes wrong values before ``item`` changes it."""

    def keep(self, stage: str, module: ModuleOp) -> None:
        """Record ``module`` as the result of ``stage``, or of a pass that belongs to no stage."""

    def check(self) -> None:
        """Compare the results before and after the pipeline. Raises a TranslationError that names the wrong stage."""

    @contextmanager
    def of_binaries(self, segments: Sequence[SegmentOp]) -> Iterator[None]:
        """Disable :meth:`check` in this context. Instead, :meth:`check_binary` runs the binaries of ``segments``."""
        yield

    def check_binary(self, segment: SegmentOp, suffix: str, binary: bytes) -> None:
        """Compare a binary (of a file with ``suffix``) with the circle body of the segment. Raises TranslationError."""


def validation_of(context: Context) -> Validation:
    """Return the translation validation of ``context``."""
    found: Validation = getattr(context, _VALIDATOR, None) or Validation()
    return found


@contextmanager
def without_validation(context: Context) -> Iterator[None]:
    """Run pipelines in ``context``. Nothing is validated."""
    found = validation_of(context)
    setattr(context, _VALIDATOR, Validation())
    try:
        yield
    finally:
        setattr(context, _VALIDATOR, found)


Passes = ModulePass | str | Sequence[ModulePass | str]  # a pass, a textual pipeline, or a sequence of these
StagedPass = tuple[str | None, ModulePass]  # a pass with the name of its stage; None: it belongs to no stage


def stage_names() -> tuple[str, ...]:
    """Return the names of the stages in order, stages of native code last."""
    return tuple(stage.name for stage in (*STAGES, *NATIVE_STAGES))


def _path_to(name: str) -> tuple[Stage, ...]:
    """Return all stages on the path that contains stage ``name``."""
    for branch in (NATIVE_STAGES, (_EXTERNAL_STAGE,)):
        if name in {stage.name for stage in branch}:
            last = [stage.name for stage in STAGES].index(BRANCH)
            return (*STAGES[: last + 1], *branch)
    return STAGES


def ordered_passes() -> tuple[str, ...]:
    """Return our passes in the order of stages. In a folder, passes with no stage come last."""
    order = [name for stage in (*STAGES, *NATIVE_STAGES) for name in stage.passes]
    rooms = transforms.ROOMS

    def place(name: str) -> tuple[int, int, str]:
        return rooms.index(transforms.room_of(name)), order.index(name) if name in order else len(order), name

    return tuple(sorted(transforms.NAMES, key=place))


def stages_until(name: str, after: str | None = None) -> tuple[Stage, ...]:
    """Return the stages after ``after`` up to ``name``. Raises OptionError for an unknown or unreachable stage."""
    names = stage_names()
    for wanted in (name, *([after] if after else [])):
        if wanted not in (*names, EXTERNAL):
            raise OptionError(
                f"unknown stage {wanted!r}", hint=f"{did_you_mean(wanted, names)}use one of {', '.join(names)}"
            )
    path = _path_to(name)
    order = [stage.name for stage in path]
    if after and after not in order:
        raise OptionError(f"stage {name!r} does not follow {after!r}")
    return path[order.index(after) + 1 if after else 0 : order.index(name) + 1]


def find_pass(name: str, others: Sequence[str] = ()) -> type[ModulePass]:
    """Return the class of a pass of odc-mlir, xDSL or another Python package. Raises OptionError.

    ``others``: more names for suggestions
    """
    if name in transforms.NAMES:
        return transforms.load(name)
    theirs = get_all_passes()
    if name in theirs:
        return theirs[name]()
    added = additions("passes")
    if name not in added:
        near = did_you_mean(name, (*others, *transforms.NAMES, *theirs, *added))
        raise OptionError(f"unknown pass {name!r}", hint=f"{near}odc-opt --list-passes lists them")
    found: type[ModulePass] = added[name].load()
    return found


def build_pass(spec: ArgSpec) -> ModulePass:
    """Build a pass with the options of ``spec``. Raises OptionError for an unknown pass, option or value."""
    try:
        return find_pass(spec.name, stage_names()).from_spec(spec)
    except ValueError as error:
        raise OptionError(f"pass {spec.name!r}: {str(error)[:1].lower()}{str(error)[1:]}") from error


def passes_of(pipeline: str) -> list[StagedPass]:
    """Build the passes of a textual ``pipeline``. The name of a stage means its passes.

    Raises OptionError for text that is not a pipeline, for unknown passes and for wrong options.
    """
    by_name = {stage.name: stage for stage in (*STAGES, *NATIVE_STAGES)}
    try:
        specs = list(parse_pipeline(pipeline))
    except (ValueError, ArgSpecParseError) as error:  # the second is a BaseException; its last line has the reason
        reason = str(error).splitlines()[-1].strip()
        raise OptionError(f"cannot read the pipeline {pipeline!r}: {reason}") from error
    passes: list[StagedPass] = []
    for spec in specs:
        packages = owners("passes", spec.name)
        packages += ["odc-mlir"] * (spec.name in by_name or spec.name in transforms.NAMES)
        packages += ["xdsl"] * (spec.name in get_all_passes())
        if len(packages) > 1:
            hint = f"give the pass of {packages[0]} another name"
            raise OptionError(f"pass name {spec.name!r} is defined by {' and '.join(packages)}", hint=hint)
        if spec.name not in by_name or spec.parameters:
            passes.append((None, build_pass(spec)))
        elif by_name[spec.name].passes:
            passes += [(spec.name, build_pass(item)) for item in by_name[spec.name].specs]
        else:
            passes.append((spec.name, StageWithoutPasses(spec.name)))
    return passes


def passes_until(
    name: str, *, after: str | None = None, options: Sequence[ModulePass] = ()
) -> Iterator[tuple[str, ModulePass]]:
    """Yield (stage, pass) for the passes of the stages after ``after`` (default: all) up to stage ``name``.

    ``options``: configured passes, which replace the default passes with the same name
    """
    configured = {type(item).name: item for item in options}
    for stage in stages_until(name, after):
        for spec in stage.specs:
            yield stage.name, configured.get(spec.name) or build_pass(spec)


def forming_passes(stage: str, options: Sequence[ModulePass]) -> Iterator[tuple[str, ModulePass]]:
    """Yield (stage, pass) for the passes at the end of a partition stage, which form segments again."""
    wanted = _EXTERNAL_FORMING if stage == EXTERNAL else FORMING
    return (item for item in passes_until(stage, after=BRANCH, options=options) if item[1].name in wanted)


def run(
    context: Context,
    module: ModuleOp,
    name: str,
    *,
    after: str | None = None,
    options: Sequence[ModulePass] = (),
) -> None:
    """Run the stages after ``after`` (default: all) up to ``name`` on ``module`` in place (see :func:`run_passes`).

    Raises OptionError for an unknown stage and, without ``after``, CompileError for lowered IR. Errors of passes name
    the stage.
    """
    if after is None:
        refuse_lowered(module)
    run_passes(context, module, passes_until(name, after=after, options=options))


def added_passes(before: Mapping[str, Passes] | None) -> dict[str, list[ModulePass]]:
    """Return the passes that ``before`` inserts, by the name of the pass that follows them. Raises OptionError."""
    known = [spec.name for stage in (*STAGES, *NATIVE_STAGES) for spec in stage.specs]
    added: dict[str, list[ModulePass]] = {}
    if not isinstance(before, Mapping | None):
        raise OptionError(f"before is {before!r}", hint="give a mapping from names of passes to the passes to insert")
    for name, given in (before or {}).items():
        if name not in known:
            raise OptionError(
                f"no stage runs a pass {name!r}", hint=f"{did_you_mean(name, known)}see odc-opt --list-stages"
            )
        added[name] = [item for _, item in passes_given(given)]
    return added


def passes_given(given: Passes) -> list[StagedPass]:
    """Return the passes in a pass, a textual pipeline, or a sequence of these."""
    if isinstance(given, ModulePass):
        return [(None, given)]
    if isinstance(given, str):
        return passes_of(given)
    other: object = given
    if not isinstance(other, Sequence):
        hint = f"write {other.__name__}()" if isinstance(other, type) else "give passes, or names of passes"
        raise OptionError(f"{bounded(repr(other))} is not a pass", hint=hint)
    return [found for item in other for found in passes_given(item)]


def check_reached(names: Iterable[str], reached: Iterable[str]) -> None:
    """Raise OptionError for the first of ``names`` that is not in ``reached``, the names of the passes that run."""
    known = list(reached)
    for name in names:
        if name not in known:
            hint = f"the passes that run are {', '.join(dict.fromkeys(known)) or 'none'}"
            raise OptionError(f"no pass can be inserted before {name!r}, which does not run here", hint=hint)


def first_segment(module: ModuleOp) -> SegmentOp | None:
    """Return the first segment of ``module``, or None before partitioning."""
    return next((op for op in module.walk() if isinstance(op, SegmentOp)), None)


def stage_of(module: ModuleOp) -> Stage | None:
    """Return the first stage with rules that the partitioned IR meets, or None between stages."""
    fitting, choice = set(fitting_stages(module)), target_of(module)
    stages = NATIVE_STAGES if choice is not None and is_cpu(choice.target) else STAGES
    return next((stage for stage in stages if stage.name in fitting), None)


def refuse_lowered(module: ModuleOp) -> None:
    """Raise CompileError, with the remaining stages as a hint, for IR with segments."""
    segment = first_segment(module)
    if segment is None:
        return
    known = stage_of(module)
    level = f"lowered to stage {known.name} already" if known else "lowered already"
    left = []
    if known is not None:
        path = _path_to(known.name)
        left = [stage.name for stage in path[path.index(known) + 1 :] if stage.passes]
    then = (
        f"; to continue, use odc-opt -p {','.join(left)}, or lower() with after={known.name!r}"
        if left and known
        else ""
    )
    hint = f"start from the model, or from IR of stage {BRANCH} or before{then}"
    raise CompileError(f"this IR is {level}: it holds {segment.name} @{segment.sym_name.data}", hint=hint)


def apply_pass(item: ModulePass, context: Context, module: ModuleOp, *, verify: bool = False) -> None:
    """Run a pass. With ``verify``, verify the module. Failures of another package's pass raise ForeignPassError."""
    package, problem = owner_of(type(item)), "failed"
    try:
        with typed_errors():
            item.apply(context, module)
        if verify and package is not None:
            problem = "made invalid IR"
            with attribute_errors(module):
                module.verify()
    except OdcError:
        raise
    except (Exception, SystemExit) as error:
        if package is None:
            raise
        seen = bounded(" ".join(f"{type(error).__name__}: {error}".split()))
        hint = f"this is a defect of {package}; --debug shows where, or the traceback in Python"
        raise ForeignPassError(f"pass {item.name} of {package} {problem}: {seen}", hint=hint) from error


def with_added(before: Mapping[str, Sequence[ModulePass]], passes: Iterable[StagedPass]) -> Iterator[StagedPass]:
    """Yield ``passes``. Before a pass, yield the passes in ``before`` under the name of the pass, in the same stage."""
    for stage, item in passes:
        yield from ((stage, extra) for extra in before.get(item.name, ()))
        yield stage, item


def run_passes(
    context: Context,
    module: ModuleOp,
    passes: Iterable[StagedPass],
    *,
    verify: bool = True,
    verifier: Callable[[ModuleOp], None] | None = None,
    around: Callable[[str | None, ModulePass], AbstractContextManager[object]] = lambda stage, item: nullcontext(),
) -> None:
    """Run ``passes`` on ``module`` in place. Verify the module and check legality after each stage.

    With a ``verifier``, or if ``context`` has ``verify_each``, verify the module after each pass. Stages of
    :data:`CHECKED_ON_REQUEST` are verified only in this case, or with an active validation. If ``verify`` is false, the
    caller verifies later. ``around`` returns a context manager for the run and verification of each pass.
    """
    verify_each, validation = verifier is not None or getattr(context, "verify_each", False), validation_of(context)
    verifier = verifier or ModuleOp.verify
    validation.start(module)
    before: Mapping[str, Sequence[ModulePass]] = getattr(context, "before", {})
    added = {id(extra) for extras in before.values() for extra in extras}
    staged = with_added(before, passes)
    for label, members in groupby(staged, key=lambda pair: pair[0] or pair[1].name):
        for stage, item in members:
            checkpoint(context)
            tell(context, f"{label}: {item.name}")
            is_named = stage is None or id(item) in added
            validation.before_pass(label, item, module)
            with around(stage, item), typed_errors(stage, pass_name=item.name if is_named else None):
                apply_pass(item, context, module, verify=is_named)
                if verify_each:
                    verifier(module)
        if not (verify_each or validation.is_active) and (label in CHECKED_ON_REQUEST or not verify):
            continue
        with typed_errors(stage, pass_name=item.name if stage is None else None):
            if not verify_each:
                verifier(module)
            if stage is not None and any(
                known.name == stage and known.passes[-1:] == (item.name,) for known in (*STAGES, *NATIVE_STAGES)
            ):
                check_stage(module, stage)
        validation.keep(label, module)
    checkpoint(context)
    validation.check()
