"""The public functions of ``odc_mlir``: run, compile and inspect models.

Only this module of the runtime imports the compiler, and only inside functions. Running a model file or a package
therefore does not load the compiler. Compiling for an NPU loads no executor, plugin or code generator.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from odc_mlir.errors import OdcError, OptionError, UnsupportedError, did_you_mean
from odc_mlir.formats.cache import content_digest
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import identify, read_model
from odc_mlir.formats.package import ModelSource, is_package
from odc_mlir.formats.quantities import bytes_of, model_name
from odc_mlir.formats.states import States
from odc_mlir.ops.context import BinaryCodes, Context
from odc_mlir.ops.registry import CustomOps, default_custom_ops
from odc_mlir.ops.spec import Array
from odc_mlir.processors import HERE, is_cpu
from odc_mlir.quantizer.policy.declarations import takes_options
from odc_mlir.runtime.execution.graph import Graph, build_graph, linked_files
from odc_mlir.runtime.execution.team import MAX_THREADS
from odc_mlir.runtime.execution.units import require_kernels
from odc_mlir.runtime.package import Package, holds_model, model_of

if TYPE_CHECKING:
    from odc_mlir.plugins.target import Chosen
    from odc_mlir.quantizer.quantize import Quantized
    from odc_mlir.runtime.execution.binding import Inputs
    from odc_mlir.runtime.execution.executor import Executor

_log = logging.getLogger(__name__)

Backend = Literal["auto", "host", "npu", "native", "litert", "onert"]
BACKENDS: tuple[Backend, ...] = ("auto", "host", "npu", "native", "litert", "onert")
NUMERICS = ("fixed", "litert")

Module = Any
"""xDSL's ``ModuleOp``. The runtime only passes it to the compiler, as it does not know IR."""


class RunOptions(TypedDict, total=False):
    """Options of :func:`run`, with the defaults of :func:`open_executor`."""

    backend: Backend
    target: str
    memory: str
    strict: bool
    numerics: str
    microscaling: bool
    binary_codes: BinaryCodes | None
    custom_ops: CustomOps | None
    max_bytes: int | None
    threads: int | None
    trust_code: bool


@overload
def run(
    model: ModelSource | Module | Package, inputs: Inputs, *, tensors: None = None, **options: Unpack[RunOptions]
) -> list[Array]: ...


@overload
def run(
    model: ModelSource | Module | Package,
    inputs: Inputs,
    *,
    tensors: Iterable[str],
    **options: Unpack[RunOptions],
) -> tuple[list[Array], dict[str, Array]]: ...


def run(
    model: ModelSource | Module | Package,
    inputs: Inputs,
    *,
    tensors: Iterable[str] | None = None,
    **options: Unpack[RunOptions],
) -> list[Array] | tuple[list[Array], dict[str, Array]]:
    """Run ``model`` on ``inputs``, arrays of the model's element types in order or by name. Return its outputs.

    ``model``: anything that :func:`compile` accepts or returns. ``backend``: ``auto`` runs a model file or module on
        the host, and a package on the target that it was compiled for. ``npu`` first compiles a model for ``target``
        and ``memory``, ``native`` for this machine. If the device cannot run a segment, host kernels run it, with the
        same result. With ``strict``, this and an operator that the compiler leaves on the host are errors.
        ``max_bytes`` limits the activations that are live at one time. ``threads``: number of threads of native code
        and of matrix products on the host (default: one, but numpy's own number if an operator has 256 million
        products). ``trust_code``: consent to run machine code that was not compiled on this machine. If it is false,
        the model is compiled again here, with a warning. ``custom_ops`` implements custom operators (default: the
        global registry). ``microscaling`` enables tensors of microscaling types, and ``binary_codes`` gives the form of
        binary-coded weights. If a default is missing, such tensors are errors, because files do not define them.
        ``tensors``: names of tensors inside the model. The result is then ``(outputs, {name: value})``. Raises
        InputError for arrays that do not fit, and other OdcErrors.
    """
    if unknown := options.keys() - RunOptions.__annotations__.keys():
        name = min(unknown)
        hint = did_you_mean(name, RunOptions.__annotations__)
        raise TypeError(f"run() got an unexpected keyword argument {name!r}; {hint}see help(odc_mlir.run)")
    executor = open_executor(model, all_tensors=tensors is not None, **options)
    executor.reset()
    if tensors is None:
        return executor.run(inputs)
    if isinstance(tensors, str):
        raise OptionError("tensors must be a list of names, not a string", hint=f"pass [{tensors!r}]")
    from odc_mlir.runtime.execution.executor import Capture

    capture = Capture(executor, tensors)
    return executor.run(inputs, watch=capture), capture.values


def open_executor(
    model: ModelSource | Module | Package,
    *,
    backend: Backend = "auto",
    target: str = "npu-256",
    memory: str = "flash",
    strict: bool = False,
    numerics: str = "fixed",
    microscaling: bool = False,
    binary_codes: BinaryCodes | None = None,
    custom_ops: CustomOps | None = None,
    max_bytes: int | None = None,
    threads: int | None = None,
    trust_code: bool = False,
    resize: bool = False,
    signature: str | None = None,
    all_tensors: bool = False,
) -> Executor:
    """Return an executor, for many runs with the options of :func:`run`.

    ``resize``: accept inputs that change static dimensions. ``signature``: run the subgraph of this signature, on the
        host if it is not the first. ``numerics`` "litert": give LiteRT's results on the host. Fully connected layers
        (float64), the order of real sums, int16 tables and image positions differ. ``all_tensors``: make every tensor
        of the backend available.
    """
    from odc_mlir.runtime.backends import graph_executor

    check_choice("backend", backend, BACKENDS)
    check_choice("numerics", numerics, NUMERICS)
    if threads is not None and (
        isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS
    ):
        raise OptionError(f"threads is {threads!r}", hint=f"use a number from 1 to {MAX_THREADS}")
    if numerics == "litert" and backend in ("npu", "native"):
        raise UnsupportedError(
            f"litert numerics are not available on the backend {backend}", hint="use the backend host"
        )
    choices = Context(
        custom_ops=default_custom_ops() if custom_ops is None else custom_ops,
        binary_codes=binary_codes,
        microscaling=microscaling,
        numerics=numerics,
        threads=threads,
    )
    # With None, the package reuses the executor with default choices.
    context = None if choices == Context(threads=threads) else choices
    options: dict[str, Any] = {"context": context, "strict": strict, "max_bytes": max_bytes, "resize": resize}
    host = backend if backend in ("litert", "onert") else "host"
    source, model = model, runnable(model)
    # A lowered module runs unchanged or not at all.
    options["strict"] = strict = strict or (isinstance(model, Package) and not isinstance(source, Package))
    subgraph = 0 if signature is None else _model_records(model).subgraph_of(signature, OptionError)
    if subgraph:
        if backend in ("npu", "native"):
            raise UnsupportedError(
                f"only the first subgraph can run on the backend {backend}", hint="use the backend host"
            )
        graph = build_graph(_model_records(model), subgraph, custom_ops=custom_ops)
        return graph_executor(graph, host, all_tensors=all_tensors, **options | {"context": choices})
    opened = _open(model, custom_ops)
    if backend == "npu" and (not isinstance(opened, Package) or opened.plan is None or _is_native(opened)):
        opened = compile(source, target=target, memory=memory, strict=strict)
    if backend == "native" and not _is_native(opened):
        opened = native_in_place(source, strict=strict)
    if isinstance(opened, Graph):
        return graph_executor(opened, host, all_tensors=all_tensors, **options | {"context": choices})
    options["threads"] = threads
    if backend in ("host", "litert", "onert") or opened.plan is None or numerics == "litert":
        return opened.executor(host, all_tensors=all_tensors, **options)
    if not (trust_code or strict):
        opened = _trusted(opened)
    return opened.executor(trust_code=trust_code, **options)


def _trusted(package: Package) -> Package:
    """Return ``package``, or compile the model in it again for this machine if the native code is not trusted."""
    from odc_mlir.codegen.machine import has_code_generator

    if package.replacement is None:
        package.replacement = package
        reason = package.distrust() if package.plan is not None and package.plan.extension == HERE else None
        if reason is not None and has_code_generator():
            _log.warning("%s; the model is compiled again for this machine", reason)
            with suppress(OdcError):  # on failure, host kernels run the model
                package.replacement = native_in_place(package, strict=False)
    return package.replacement


def runnable(model: Any) -> ModelSource | Package:
    """Return an executable form of ``model``: a file or package unchanged, IR as a file or, if lowered, a package."""
    if isinstance(model, Package):
        return model
    if isinstance(model, (bytes, bytearray, memoryview)):
        if identify(bytes(model[:8])) is not None:
            return bytes(model)
    elif isinstance(model, (str, os.PathLike)) and (not Path(model).is_file() or holds_model(Path(model))):
        return model
    from odc_mlir import compiler, loading

    module = loading.load(model)
    if not compiler.has_programs(module):
        return compiler.model_bytes(module)
    files = compiler.package(module)
    if isinstance(model, (str, os.PathLike, bytes, bytearray, memoryview)):
        files = replace(files, compiled_here=frozenset())  # programs in IR text need trust, as code in a package does
    return Package(files)


def _is_native(opened: Package | Graph) -> bool:
    if not isinstance(opened, Package) or opened.plan is None or not is_cpu(opened.plan.target or ""):
        return False
    from odc_mlir.codegen.machine import resolve, why_not_here

    processor = resolve(opened.plan.target or HERE)
    return why_not_here(processor.architecture, processor.features) is None


def native_in_place(model: Any, *, strict: bool) -> Package:
    """Return a package of native code for this machine, compiled now or cached."""
    from odc_mlir.codegen.machine import resolve
    from odc_mlir.runtime.execution.native_cache import remembered

    source = model_of(model)
    linked = _linked_files(model)
    whole = isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview)) and not linked and not strict
    if not whole:
        return compile(model, target=HERE, strict=strict)
    found = remembered(content_digest(source), resolve(HERE).name, lambda: compile(model, target=HERE).files)
    return Package(found, name=model_name(model))


def with_lifted_variables(model: bytes) -> bytes:
    """Return the model with variables of constant initial value converted to declared states."""
    from odc_mlir import compiler, loading

    return compiler.model_bytes(compiler.run_passes(loading.load(model), "odc-lift-variables"))


def _open(model: ModelSource | Package, custom_ops: CustomOps | None) -> Package | Graph:
    if isinstance(model, Package):
        return model
    if isinstance(model, (str, os.PathLike)) and is_package(model):
        return Package.from_path(model)
    return build_graph(read_model(model), custom_ops=custom_ops, states=True)


def _model_records(model: ModelSource | Package) -> Model:
    if isinstance(model, (str, os.PathLike)) and is_package(model):
        model = Package.from_path(model)
    return model.model if isinstance(model, Package) else read_model(model)


def load_package(path: str | os.PathLike[str], *, trust_code: bool = False) -> Package:
    """Open the nnpackage directory or zip at ``path``. ``trust_code`` as for :func:`run`. Raises PackageError."""
    return Package.from_path(path, trust_code=trust_code)


def load(model: Any) -> Module:
    """Load a model file, package or PyTorch program as a module (see :func:`odc_mlir.loading.load`)."""
    from odc_mlir import loading

    return loading.load(model)


def compile(
    model: ModelSource | Module,
    *,
    target: str = "npu-256",
    memory: str = "flash",
    prefer: str = "performance",
    quantize: str | None = None,
    sram_limit: int | str | None = None,
    allow_host: bool = False,
    strict: bool = False,
    placement: Mapping[str, Any] | None = None,
    allow_accuracy_loss: bool = False,
    time_limit: float | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
    verify: Literal["stages", "passes", "run"] = "stages",
    remember: bool = False,
    states: States | None = None,
    before: Mapping[str, Any] | None = None,
    **quantizing: Any,
) -> Package:
    """Compile a quantised model, or a float model with ``quantize``, for an NPU, a processor or a plugin's target.

    ``model``: a file, its bytes, a module, a result of :func:`quantize`, or a ``torch.export.ExportedProgram``.
    ``target``: a shipped NPU or a .toml file, ``cpu`` (this machine) or a shipped processor, or a codegen plugin's
    ``NAME`` or ``NAME-gen``, which rejects options that it does not support. ``memory``: memory of constants, flash or
    sram. ``prefer``: performance, memory, compile-time or fewest-cycles. ``sram_limit``: in bytes, or ``"100K"``
    (default: the target's capacity). If it is too small, the error names a sufficient limit, or, with ``allow_host``,
    operators go to the host. Operators that the target cannot run or schedule, or that cost less on the host, stay
    there with a reason. With ``strict``, this is an error. ``placement``: keys of :func:`odc_mlir.compiler.compile`.

    ``quantize``: a scheme. ``quantizing`` takes the other options of :func:`quantize` (``calibration``, ``labels`` …).
    Raises AccuracyError if the model misses an accuracy limit and ``allow_accuracy_loss`` is false.

    ``time_limit``: seconds for the whole call, which then raises TimeLimitError. The quantiser stops searching after
    half of this time, or after ``max_seconds``. ``progress`` is called with the current activity, the number of
    finished steps, and the total if known. ``remember``: use the cache of tilings, which affects only compile time, for
    NPUs. ``states``: outputs that are inputs of the next run, ``{"out": "in"}``. Sessions keep and hide states.
    ``verify`` and ``before``: as in :func:`odc_mlir.compiler.compile`. Raises OdcError.
    """
    from odc_mlir import compiler

    start = time.perf_counter()
    source, verdict = model_of(model), None
    if quantize not in (None, "none"):
        if time_limit is not None:
            quantizing = {"max_seconds": time_limit / 2} | quantizing
        quantized = _quantize(source, scheme=quantize, target=target, progress=progress, states=states, **quantizing)
        if not allow_accuracy_loss:
            quantized.require_passed()
        source, verdict = quantized.model, quantized.verdict
        if time_limit is not None:
            time_limit = max(time_limit - (time.perf_counter() - start), 1e-3)
    elif quantizing or allow_accuracy_loss:
        given = next(iter([*quantizing, "allow_accuracy_loss"]))
        raise OptionError(f"{given} is for quantising, which was not requested", hint="add quantize='int8'")
    native = is_cpu(target)
    npu_only = {"placement": placement or None, "sram_limit": sram_limit}
    for name, value in npu_only.items():
        if native and value is not None:
            raise OptionError(f"{name} is for NPUs, the target is {target!r}", hint="leave it out")
    plugin = None if native else _plugin_for(target)
    if plugin is not None:
        from odc_mlir.plugins.codegen import compile_by, not_for_plugins

        more = {"before": before, "states": states, "verify": None if verify == "stages" else verify}
        not_for_plugins(target, **npu_only, allow_host=allow_host, strict=strict, **more)
        files = compile_by(plugin, compiler.model_bytes(source), prefer, memory, time_limit, progress)
    else:
        files = compiler.compile(
            source,
            target=target,
            memory=memory,
            prefer=prefer,
            sram_limit=None if sram_limit is None else bytes_of(sram_limit),
            allow_host=allow_host,
            strict=strict,
            placement=placement,
            time_limit=time_limit,
            progress=progress,
            verify=verify,
            remember=remember and not native,
            states=states,
            before=before,
        )
    files = files.with_members(_linked_files(model))
    measured = {"compile_seconds": time.perf_counter() - start, "compile_peak_rss_bytes": peak_rss_bytes()}
    package = Package(files, name=model_name(model), measured=measured, verdict=verdict)
    if plugin is None:
        require_kernels(package.graph, files.plan)
    return package


def _plugin_for(target: str) -> Chosen | None:
    """Return the plugin for ``target``, or None if this process compiles for it. Raises OptionError."""
    from odc_mlir import targets

    if target in targets.names() or target.endswith(".toml"):
        return None
    from odc_mlir.plugins.target import choose

    return choose(target)


@takes_options
def quantize(
    model: ModelSource | Module,
    *,
    calibration: Any = None,
    evaluation: Any = None,
    records: Any = None,
    labels: Any = None,
    max_samples: int | None = None,
    pictures: Any = None,
    progress: Callable[[str, int, int | None], None] | None = None,
    **options: Any,
) -> Quantized:
    """Quantise a float model, and measure the accuracy of the result.

    ``calibration``: a file of samples, or an iterable of lists of arrays in graph input order. Some samples are held
    back for the accuracy check if ``evaluation`` gives no samples. ``labels``: labels of the samples of the check, or
    True for the array ``y`` in the file of samples. ``records``: recorded ranges instead of ``calibration``.
    ``max_samples``, ``pictures``: how to read sample files. docs/quantisation.md explains all options. Raises OdcError,
    but not if the model misses limits (see ``Quantized.verdict``).
    """
    from odc_mlir.support.collection import seldom_collected

    data = {"calibration": calibration, "evaluation": evaluation, "records": records, "labels": labels}
    more = {"max_samples": max_samples, "pictures": pictures, "progress": progress}
    with seldom_collected():  # also while modules are imported
        from odc_mlir.quantizer import quantize as quantizer

        made = quantizer.quantize(model_of(model), **data, **more, **options)
    made.verdict["model"] = model_name(model.files.location if isinstance(model, Package) else model)
    return made


_quantize = quantize  # a parameter of `compile` has the same name


def _linked_files(source: Any) -> dict[str, bytes]:
    is_model = isinstance(source, Package) or (isinstance(source, (str, os.PathLike)) and holds_model(Path(source)))
    return linked_files(_model_records(source)) if is_model else {}


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise OptionError for a value that is not allowed."""
    if value not in allowed:
        raise OptionError(f"unknown {name} {value!r}", hint=f"use one of {', '.join(allowed)}")


def peak_rss_bytes() -> int | None:
    """Return the peak resident memory of this process so far, or None if unknown."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
