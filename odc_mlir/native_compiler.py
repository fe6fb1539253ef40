"""From a model to a package of native code: the other way through the pipeline, object code, the plan.

What has no native kernel stays on the host kernels, with the reason.
"""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from odc_mlir import pipelines
from odc_mlir.codegen import machine
from odc_mlir.compiler import make_plan, refuse_host_operators
from odc_mlir.dialects.odc import SegmentOp
from odc_mlir.emitter.native_object import native_object
from odc_mlir.emitter.native_segment import emit_native_segment
from odc_mlir.errors import OptionError, UnsupportedError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.native_segment import SUFFIX
from odc_mlir.formats.package import PackageFiles, build_package
from odc_mlir.frontend import export_circle
from odc_mlir.loading import ModelSource, copied
from odc_mlir.retries import segments
from odc_mlir.support.deadline import Progress
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.native_set_target import NativeSetTargetPass
from odc_mlir.transforms.partition.odc_fix_batch import restore_batch
from odc_mlir.universe import make_context

PARTITIONED, LOWERED = "native-partition", "native-llvm"


def compile(
    model: ModelSource | ModuleOp,
    *,
    target: str = "cpu",
    strict: bool = False,
    time_limit: float | None = None,
    progress: Progress | None = None,
    verify_each: bool = False,
) -> PackageFiles:
    """Compile a model for a processor; the same model and processor give the same bytes.

    ``target``: a shipped description, or ``cpu`` for the machine that runs this. ``strict``: an operator that stays on
    the host is an error. ``progress``: is told what passes do. Raises OdcError, and TimeLimitError when passes take
    more than ``time_limit`` seconds. ``verify_each``: the IR is verified after every pass, not only every stage.
    """
    processor = machine.resolve(target)
    module = copied(model)
    context = make_context(time_limit=time_limit, progress=progress, verify_each=verify_each)
    options = [NativeSetTargetPass(processor.name)]
    pipelines.run(context, module, PARTITIONED, options=options)
    if strict:
        refuse_host_operators(module)
    binaries = _binaries(context, module, processor)
    restore_batch(module)
    records, indices = export_circle.export_with_operators(module)
    files = {segment: f"{segment.sym_name.data.replace('_', '-')}{SUFFIX}" for segment in binaries}
    plan = make_plan(module, records, indices, files, target=processor.name, memory=None, options={})
    return build_package(write_model(records), plan, {files[segment]: data for segment, data in binaries.items()})


def compile_object(
    model: ModelSource | ModuleOp,
    *,
    name: str,
    target: str = "cpu",
    triple: str | None = None,
    cpu: str = "",
    time_limit: float | None = None,
) -> tuple[bytes, str]:
    """A whole model as an object file and its C header, which declares ``<name>_run``.

    ``triple`` and ``cpu``: LLVM's names of a processor without a description. Every operator needs a native kernel.
    Raises OdcError.
    """
    if not (name.isascii() and name.isidentifier()):
        raise OptionError(f"{name!r} is not a name in C", hint="use letters, digits and underscores")
    processor = machine.resolve(target) if triple is None else machine.for_triple(triple, cpu)
    module = copied(model)
    context = make_context(time_limit=time_limit)
    pipelines.run(context, module, LOWERED, options=[NativeSetTargetPass(processor.name)])
    refuse_host_operators(module)
    found = segments(module)
    if len(found) != 1:
        raise UnsupportedError("the model has no compute operator", hint="run it on the host")
    return native_object(found[0], processor, name)


def _binaries(context: Context, module: ModuleOp, processor: CpuTarget) -> dict[SegmentOp, bytes]:
    """The file of every segment in program order."""
    pipelines.run(context, module, LOWERED, after=PARTITIONED, options=[NativeSetTargetPass(processor.name)])
    return {segment: emit_native_segment(segment, processor) for segment in segments(module)}
