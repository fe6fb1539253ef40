"""The model of a session: source, inputs, outputs and backends, and replacement by new models."""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from odc_mlir.errors import (
    InputError,
    InvalidStateError,
    ModelError,
    OdcError,
    OptionError,
    PackageError,
    SessionError,
    UnsupportedError,
)
from odc_mlir.formats import states
from odc_mlir.formats.cache import CACHE_VARIABLE, content_digest, records_path
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.kinds import MODEL
from odc_mlir.formats.manifest import CONFIG_PATH
from odc_mlir.formats.outputs import write_output
from odc_mlir.formats.package import PackageFiles, is_package, is_program, read_original
from odc_mlir.formats.plan import HostStep, Plan, SegmentStep
from odc_mlir.ops.context import Context
from odc_mlir.ops.registry import CustomOps, default_custom_ops
from odc_mlir.ops.spec import Array, Shape
from odc_mlir.plugins.registry import SUFFIX
from odc_mlir.plugins.request import Preference
from odc_mlir.quantizer.policy.schemes import SCHEMES
from odc_mlir.runtime.backends import graph_executor
from odc_mlir.runtime.execution.binding import layout_hint
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph, build_graph, tensor_info
from odc_mlir.runtime.execution.units import is_static
from odc_mlir.runtime.package import Package, model_of
from odc_mlir.runtime.session.settings import Settings
from odc_mlir.runtime.session.tensors import SessionPort, port_at, tensorinfo

HOST, NPU, LITERT, NATIVE = "host", "npu", "litert", "native"
CPU = "cpu"
# Backends by name. The CPU kernels of other runtimes correspond to our host kernels.
NAMES: Mapping[str, str] = MappingProxyType(
    {"cpu": HOST, "host": HOST, "builtin": HOST, "npu": NPU, "litert": LITERT, "native": NATIVE}
)
_MAX_LIST_BYTES = 31

_log = logging.getLogger(__name__)


def split_backends(text: str) -> tuple[str, ...]:
    """Return the names in a list separated by semicolons."""
    return tuple(name.strip() for name in text.split(";") if name.strip())


def parse_assignments(text: str) -> dict[int, str]:
    """Parse ``"0=cpu;1=npu"`` to backends by operator index. Raises SessionError."""
    found: dict[int, str] = {}
    for pair in split_backends(text):
        index, separator, name = (part.strip() for part in pair.partition("="))
        if not separator or not (index.isascii() and index.isdecimal()) or not name:
            raise SessionError(f"{pair!r} is not of the form <operator index>=<backend>")
        found[int(index)] = name
    return found


def usable_backends(names: Sequence[str], plan: Plan | None) -> tuple[str, ...]:
    """Return the backends that can run an operator here, most preferred first. Raises SessionError if there is none."""
    if not names:
        return (NPU, HOST) if plan is not None else (HOST,)
    found: list[str] = []
    for name in names:
        known = NAMES.get(name)
        if known is None:
            _log.warning("unknown backend %r; known are %s", name, ", ".join(NAMES))
        elif known == NPU and plan is None:
            _log.warning("the model is not compiled, so there is nothing for the backend npu")
        elif known not in found:
            found.append(known)
    if not found:
        why = "is known here" if NPU not in map(NAMES.get, names) else "can run it: the model is not compiled"
        raise SessionError(
            f"none of the backends {', '.join(map(repr, names))} {why}", hint=f"use one of {', '.join(NAMES)}"
        )
    return tuple(found)


INTERNAL_OUTPUTS = "ENABLE_INTERNAL_OUTPUT_ALLOC"
_MAX_PATH_BYTES = 1023


@dataclass
class Choices:
    """Settings of the user that apply to every model of the session."""

    settings: dict[str, str] = field(default_factory=dict)
    strict: bool = False
    trust_code: bool = False
    max_bytes: int | None = None
    workspace: str | None = None
    custom_ops: CustomOps = field(default_factory=lambda: CustomOps(default_custom_ops()))


class Loader:
    """The model of a session and the settings for it. Raises SessionError for an empty model.

    A strict loader raises PackageError if compiled parts of the package cannot be used. If ``source`` is None, there is
    no model yet. ``inputs`` and ``outputs``: the user's ports. ``input_shapes``: requested shapes in the model's
    layout, a new object after each change. ``output_shapes``: the model's shapes or, after :meth:`open`, the shapes of
    the prepared model.
    """

    def __init__(self, choices: Choices, source: Source | None = None) -> None:
        if choices.strict and source is not None and source.problem is not None:
            raise PackageError(source.problem)
        self.choices = choices
        self.settings = Settings({} if source is None else source.config, choices.settings)
        files = None if source is None or source.package is None else source.package.files
        if files is not None and not files.manifest.configs and CONFIG_PATH in files.members:
            self.settings.ignored.append(
                f"{CONFIG_PATH} does not count, as the manifest does not list it; odc-package pack -c FILE adds one"
            )
        self.prepare_configs: set[str] = {INTERNAL_OUTPUTS} if self.settings.flag("INTERNAL_OUTPUT_ALLOC") else set()
        self.inputs: tuple[SessionPort, ...] = ()
        self.outputs: tuple[SessionPort, ...] = ()
        self.input_shapes: dict[int, tuple[int, ...]] = {}
        self.output_shapes: list[Shape | None] = []
        self._source = source
        self._digest: str | None = None
        self._signature: str | None = None
        self._backends: tuple[str, ...] | None = None
        self._by_index: dict[int, str] = {}
        if source is not None:
            self._see(0)

    def _see(self, subgraph: int) -> None:
        self.inputs, self.outputs = _ports(self.source, subgraph)
        self.input_shapes = {}
        self.output_shapes = [port.info.shape for port in self.outputs]

    @property
    def source(self) -> Source:
        """The source of the model. Raises SessionError before a model is loaded."""
        if self._source is None:
            raise SessionError("the session has no model")
        return self._source

    @property
    def digest(self) -> str:
        """SHA-256 of the model, the key of records and compiled files."""
        if self._digest is None:
            self._digest = model_digest(self.source)
        return self._digest

    @contextmanager
    def file(self) -> Iterator[Path]:
        """Provide a file that contains the model."""
        if self.source.path is not None:
            yield self.source.path
            return
        with TemporaryDirectory(prefix="odc-model-") as folder:
            path = Path(folder, "model.circle")
            path.write_bytes(model_bytes(self.source))
            yield path

    # Files that the session writes.

    @property
    def workspace(self) -> str:
        """Folder for traces, profiles and records."""
        chosen = self.choices.workspace
        return self.settings.get("WORKSPACE_DIR") if chosen is None else chosen

    def workspace_file(self, name: str) -> Path:
        """Return the path of a file in the workspace. Raises SessionError if no workspace is set."""
        if not self.workspace:
            raise SessionError("the workspace is empty", hint="name a folder with set_workspace")
        return Path(self.workspace, name)

    # Choices about this model.

    def set_backends(self, text: str) -> None:
        """Set the preferred backends, a list such as ``"npu;cpu"``. The session checks the names in prepare."""
        if not isinstance(text, str):
            raise SessionError(f"the backends must be text such as 'npu;cpu', not {type(text).__name__}")
        if len(text.encode()) > _MAX_LIST_BYTES:
            raise SessionError(f"the list of backends is longer than {_MAX_LIST_BYTES} bytes")
        self._backends = split_backends(text)

    def assign(self, text: str) -> None:
        """Set the backends of single operators."""
        found = parse_assignments(text)
        if self.source.package is not None and len(self.source.package.files.manifest.models) > 1:
            raise SessionError("operators cannot be assigned in a package of several models")
        self._by_index = found

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends in order of preference. Empty: the compiled plan, else the host."""
        return self._backends if self._backends is not None else split_backends(self.settings.get("BACKENDS"))

    @property
    def by_index(self) -> dict[int, str]:
        """The backends of single operators."""
        return parse_assignments(self.settings.get("OP_BACKEND_MAP")) | self._by_index

    def port_to_change(self, what: str, index: int, choice: str) -> SessionPort:
        """Return an input or output if the layout and type may still change. Messages name the property ``choice``."""
        port = port_at(self.inputs if what == "input" else self.outputs, index, what)
        if self._signature is not None:
            raise SessionError(f"the {choice} must be set before configure_signature")
        return port

    def configure_signature(self, name: str) -> None:
        """Select the subgraph of the signature ``name``."""
        self._see(self.source.records.subgraph_of(name, SessionError))
        self._signature = name

    def with_signature(self, name: str) -> Loader:
        """Return a loader of the same model for another signature."""
        other = copy.copy(self)
        other.configure_signature(name)
        return other

    def without_states(self) -> Loader:
        """Return a loader of the same model with declared states as inputs and outputs. Raises OdcError."""
        return self._of(self.source.records.without_metadata(states.NAME))

    def with_lifted_variables(self) -> Loader:
        """Return a loader of the model that has variables of constant initial value as states. Raises OdcError."""
        from odc_mlir.runtime.api import with_lifted_variables

        return self._of(read_model(with_lifted_variables(model_bytes(self.source))))

    def _of(self, records: Model) -> Loader:
        other = copy.copy(self)
        other._source = Source(records, data=bytes(write_model(records)), config=self.source.config)
        other._digest = None
        other._see(0)
        own = {port.info.name: port for port in (*self.inputs, *self.outputs)}
        other.inputs, other.outputs = (
            tuple(own.get(port.info.name, port) for port in ports) for ports in (other.inputs, other.outputs)
        )
        return other

    # Shapes.

    def set_input_shape(self, index: int, info: tensorinfo) -> None:
        """Set the shape of an input."""
        port = port_at(self.inputs, index, "input")
        if not isinstance(info, tensorinfo):
            raise SessionError(f"a tensorinfo is needed, not {type(info).__name__}", tensor=port.info.name)
        shape = port.inner_shape(info.valid_shape())
        if port.info.shape is not None and len(shape) != len(port.info.shape):
            raise SessionError(
                f"the input has rank {len(port.info.shape)}, the shape given has {len(shape)}", tensor=port.info.name
            )
        self.input_shapes = {**self.input_shapes, int(index): shape}

    def input_info(self, index: int) -> tensorinfo:
        """Return the description of an input."""
        port = port_at(self.inputs, index, "input")
        return port.describe(self.input_shapes.get(int(index), port.info.shape))

    def follow(self, arrays: Sequence[Array]) -> None:
        """Set input shapes from ``arrays``, with a warning if the model declares another shape."""
        shapes = dict(self.input_shapes)
        for index, (port, array) in enumerate(zip(self.inputs, arrays, strict=True)):
            shape = port.inner_shape(array.shape)
            if shape == port.static_shape:
                shapes.pop(index, None)
            elif shapes.get(index) != shape:
                _warn_of_other_shape(port, index, array.shape, shape)
                shapes[index] = shape
        self.input_shapes = shapes

    @property
    def known_input_shapes(self) -> tuple[tuple[int, ...], ...] | None:
        """The declared or requested input shapes, or None if a dimension is unknown."""
        shapes = [self.input_shapes.get(index, port.static_shape) for index, port in enumerate(self.inputs)]
        known = tuple(shape for shape in shapes if shape is not None)
        return known if len(known) == len(shapes) else None

    # Executors.

    def open(self) -> Executor:
        """Return the chosen executor of the model, prepared if the shapes are known.

        If installed files of a package cannot be used, open the original package. If this fails too, raise OdcError and
        leave the loader unchanged.
        """
        try:
            return self._opened()
        except OdcError as error:
            source = self.source
            before = None if self.choices.strict else without_installed(source, error)
            if before is None:
                raise
            self._source = before
            try:
                executor = self._opened()
            except OdcError:
                self._source = source
                raise
            self._digest = None
            return executor

    @property
    def unopened_plan(self) -> Plan | None:
        """The plan that :meth:`open` would run, if it has segments and no backends were chosen."""
        package = None if self._source is None else self._source.package
        chosen = self.backends or self.by_index or self._signature is not None
        return None if chosen or package is None or not package.plan or not package.plan.segments else package.plan

    def _opened(self) -> Executor:
        graph = self.graph()
        executor = self._executor(graph)
        shapes = [self.input_shapes.get(index, info.shape) for index, info in enumerate(graph.input_infos())]
        known = [shape for shape in shapes if shape is not None and is_static(shape)]
        results: list[Shape | None] = [info.shape for info in graph.output_infos()]
        if len(known) == len(shapes):
            shaped = executor.prepare([tuple(dim or 0 for dim in shape) for shape in known])
            # The graph of native code has other tensor indices.
            results = [shaped.tensors[index].shape for index in executor.graph.outputs]
        self.output_shapes = results
        return executor

    def context(self) -> Context:
        """Return a new context for an executor. Raises OptionError for an invalid number of threads."""
        return Context(custom_ops=self.choices.custom_ops, threads=self.settings.threads)

    def graph(self) -> Graph:
        """Return the graph of the signature. Raises OdcError."""
        return self.source.graph(self._signature, self.choices.custom_ops)

    def _executor(self, graph: Graph) -> Executor:
        """Return the executor for the chosen backends. Ignore unusable backends from the package's settings."""
        package = self.source.package
        try:
            if self.backends and usable_backends(self.backends, None if package is None else package.plan)[0] == NATIVE:
                return self._open_native(graph)
            return self._executor_on(graph, package, self.backends)
        except OdcError as error:
            before, found = self.settings, self.settings.without_backends(error.message)
            if found is None:
                raise
            self.settings = found
            try:
                return self._executor_on(graph, package, self.backends)
            except OdcError:
                self.settings = before
                raise error from None

    def _executor_on(self, graph: Graph, package: Package | None, backends: Sequence[str]) -> Executor:
        choices, settings = self.choices, self.settings
        plan = package.plan if package is not None and graph.subgraph == 0 else None
        order = usable_backends(backends, plan)
        forced = self._forced(graph)
        cache = settings.get(CACHE_VARIABLE)
        options: dict[str, Any] = {"strict": choices.strict, "max_bytes": choices.max_bytes, "resize": True}
        options["context"] = self.context()
        if order[0] == NPU and plan is not None and package is not None:
            plan = _with_forced(plan, graph, forced, may_use_host=HOST in order or LITERT in order)
            place = Path(cache) if os.path.isabs(cache) else None
            return package.plan_executor(graph, plan, trust_code=choices.trust_code, cache=place, **options)
        for index, name in forced.items():
            if name != order[0]:
                raise _cannot(graph, index, name, f"the model is run by {order[0]}")
        return graph_executor(graph, order[0], **options)

    def _open_native(self, graph: Graph) -> Executor:
        """Return an executor of the model as native code, compiled now or cached. Other operators run on the host."""
        from odc_mlir.runtime.api import native_in_place

        choices = self.choices
        if graph.subgraph != 0:
            raise SessionError("only the first signature of a model runs as native code")
        if self.by_index or self.settings.op_backends():
            raise OptionError("single operators cannot be assigned to backends when the model runs as native code")
        package = native_in_place(model_bytes(self.source), strict=choices.strict)
        options: dict[str, Any] = {"strict": choices.strict, "max_bytes": choices.max_bytes, "resize": True}
        return package.executor(HOST if package.plan is None else NPU, context=self.context(), **options)

    def _forced(self, graph: Graph) -> dict[int, str]:
        """Return the user's backends of single operators by index. Ignore unknown indices with a warning."""
        found: dict[int, str] = {}
        by_index = self.by_index
        by_kind = {_kind(name): backend for name, backend in self.settings.op_backends().items()}
        for item in graph.nodes:
            name = by_index.get(item.index, by_kind.get(_kind(item.node.spec.name)))
            if name is not None:
                if name not in NAMES:
                    raise _cannot(graph, item.index, name, "there is no such backend")
                found[item.index] = NAMES[name]
        for index in by_index.keys() - range(len(graph.nodes)):
            _log.warning("there is no operator %d, the model has %d", index, len(graph.nodes))
        return found


def _kind(name: str) -> str:
    """Normalise the name of an operator kind: ``Conv2D`` equals ``CONV_2D``."""
    return name.replace("_", "").casefold()


def _with_forced(plan: Plan, graph: Graph, forced: Mapping[int, str], *, may_use_host: bool) -> Plan:
    steps: list[HostStep | SegmentStep] = []
    for step in plan.steps:
        if isinstance(step, SegmentStep) and any(forced.get(index, NPU) != NPU for index in step.operators):
            step = HostStep(step.operators)
        steps.append(step)
    for index in (index for step in steps if isinstance(step, HostStep) for index in step.operators):
        wanted = forced.get(index, HOST)
        if wanted != HOST:
            raise _cannot(graph, index, wanted, plan.host_reasons.get(index, "it is not compiled for that"))
        if not may_use_host:
            raise _cannot(graph, index, NPU, plan.host_reasons.get(index, "it is not compiled"))
    return replace(plan, steps=tuple(steps))


def _cannot(graph: Graph, index: int, name: str, why: str) -> UnsupportedError:
    node = graph.nodes[index].node
    return UnsupportedError(
        f"operator {index} cannot run on {name!r}: {why}", op=node.spec.name, tensor=node.name, stage="prepare"
    )


def _ports(source: Source, subgraph: int) -> tuple[tuple[SessionPort, ...], tuple[SessionPort, ...]]:
    record = source.records.subgraphs[subgraph] if source.records.subgraphs else None
    if record is None:
        raise SessionError("the model has no subgraphs")
    tensors = record.named()
    inputs, outputs = (
        tuple(SessionPort(tensor_info(tensors, {}, index)) for index in indices)
        for indices in (record.inputs, record.outputs)
    )
    data = None if subgraph else source.records.metadata_bytes(states.NAME)
    if data is None:
        return inputs, outputs
    pairs = states.decode(data)
    places = states.positions(pairs, [port.info for port in inputs], [port.info for port in outputs])
    return states.others(inputs, (source for _, source in places)), states.others(
        outputs, (place for place, _ in places)
    )


def _warn_of_other_shape(port: SessionPort, index: int, given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    declared = port.info.shape
    if declared is None:
        return
    hint = layout_hint(port.outer_shape(declared), given)
    if len(declared) != len(shape):
        seen = f"the input has {len(declared)} dimensions, the array {len(shape)} ({list(shape)})"
        raise InputError(seen, tensor=port.info.name, hint=hint)
    if any(known not in (None, dim) for known, dim in zip(declared, shape, strict=True)):
        warnings.warn(
            f"input {index} ({port.info.name!r}) has the shape {list(given)}, the model says "
            f"{list(port.outer_shape(declared))}; {hint or 'the model runs in the new shape'}",
            stacklevel=5,
        )


@dataclass(frozen=True)
class Source:
    """Origin of a model. ``records``: the whole model. ``package``, ``data`` (bytes), ``path``: None if not available.

    ``stamp`` identifies the version of the file. ``problem``: why installed files are not used.
    """

    records: Model
    path: Path | None = None
    package: Package | None = None
    data: bytes | None = None
    config: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    stamp: tuple[int, ...] = ()
    problem: str | None = None

    def graph(self, signature: str | None, custom_ops: CustomOps) -> Graph:
        """Return the graph of ``signature`` (None: the first subgraph). Raises OdcError."""
        subgraph = 0 if signature is None else self.records.subgraph_of(signature, SessionError)
        return build_graph(self.records, subgraph, custom_ops=custom_ops, states=True)


def source_from_path(path: str | os.PathLike[str]) -> Source:
    """Open the model file or nnpackage at ``path``. Raises OdcError. The content determines the format."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise SessionError(f"the path must be text, not {type(text).__name__}")
    if len(os.fsencode(text)) > _MAX_PATH_BYTES:
        raise SessionError(f"the path is longer than {_MAX_PATH_BYTES} bytes")
    place = Path(text)
    if place.is_file() and is_program(place):
        from odc_mlir.runtime.api import runnable

        data = runnable(place)
        assert isinstance(data, bytes), "a program has no compiled parts"
        return source_from_bytes(data)
    if not is_package(place):
        stamp = _stamp(place)
        return Source(read_model(text), place, stamp=stamp)
    try:
        package = Package.from_path(place)
        return Source(package.model, place, package, config=package.files.config)
    except OdcError as error:  # without installed files, the package may be usable
        files = read_original(place)
        if files is None:
            raise
        return _restored(place, files, error)


def without_installed(source: Source, error: OdcError) -> Source | None:
    """Return ``source`` without files installed into the package, because of ``error``, or None if there are none."""
    if source.package is None or source.package.plan is None or source.path is None:
        return None
    files = read_original(source.path)
    return None if files is None or files.plan is not None else _restored(source.path, files, error)


def _restored(path: Path, files: PackageFiles, error: OdcError) -> Source:
    _log.warning("the compiled parts of the package %s cannot be used: %s", path, error)
    package = Package(files)
    return Source(package.model, path, package, config=files.config, problem=str(error))


def _stamp(path: Path) -> tuple[int, ...]:
    """Return values that change with the file, or () if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def model_bytes(source: Source) -> bytes:
    """Return the bytes of the model file. Raises ModelError if the file has changed since it was loaded."""
    if source.data is not None:
        return source.data
    if source.package is not None:
        return bytes(model_of(source.package))
    if source.path is None or _stamp(source.path) != source.stamp:
        raise ModelError("the model file has changed since it was loaded", location=str(source.path))
    return source.path.read_bytes()


def model_path(source: Source) -> Path | None:
    """Return a file with exactly the bytes of the model, or None if there is no such file."""
    if source.package is None or source.path is None:
        return source.path
    manifest = source.package.files.manifest
    return source.path / manifest.models[0] if source.path.is_dir() and not manifest.is_connected else None


def model_digest(source: Source) -> str:
    """Return the SHA-256 of the model file in hexadecimal. Raises ModelError if the file has changed."""
    if source.path is not None and source.package is None and _stamp(source.path) == source.stamp:
        return content_digest(source.path)
    return content_digest(model_bytes(source))


def source_from_bytes(data: bytes | bytearray | memoryview) -> Source:
    """Open the model in a copy of ``data``. Raises OdcError."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise SessionError(f"the model must be bytes, not {type(data).__name__}")
    if not len(data):
        raise SessionError("the model has no bytes")
    kept = bytes(data)
    return Source(read_model(kept), data=kept)


# Quantisation schemes by names and numbers of the C API, and by our names.
QUANTIZATION_TYPES: Mapping[str | int, str] = MappingProxyType(
    {
        "U8_ASYM": "uint8",
        "I16_SYM": "int16",
        "WO_I8_SYM": "int8_wo",
        "WO_I16_SYM": "int16_wo",
        1: "uint8",
        2: "int16",
        3: "int8_wo",
        4: "int16_wo",
        **{name: name for name in SCHEMES},
    }
)


class Exchange:
    """Replacement of the model by quantise and codegen: scheme, output paths, and ``verdict`` of the last quantise."""

    def __init__(self) -> None:
        self.scheme: str | None = None
        self.quantized_path: Path | None = None
        self.codegen_path: Path | None = None
        self.verdict: dict[str, Any] | None = None

    def set_scheme(self, quantization: str | int) -> None:
        """Set the scheme of :meth:`quantize`. Raises InvalidStateError for an unknown scheme."""
        known = isinstance(quantization, (str, int)) and not isinstance(quantization, bool)
        scheme = QUANTIZATION_TYPES.get(quantization) if known else None
        if scheme is None:
            names = ", ".join(name for name in QUANTIZATION_TYPES if isinstance(name, str))
            raise InvalidStateError(f"unknown quantization type {quantization!r}", hint=f"use one of {names}")
        self.scheme = scheme

    def quantize(self, loader: Loader, *, io: str, check: bool) -> Path:
        """Quantise the model with the recorded ranges, and return the file. Raises OdcError."""
        from odc_mlir.quantizer.policy.verdict import FAILED, describe
        from odc_mlir.runtime.auto import build

        if self.quantized_path is None:
            raise InvalidStateError("there is no path for the quantised model", hint="call set_quantized_model_path")
        if self.scheme is None:
            raise SessionError("the quantization type is not set", hint="call set_quantization_type")
        with loader.file() as path:
            samples = build.recorded_inputs(records_path(loader.digest), loader.known_input_shapes)
            quantized = build.quantize(path, self.scheme, samples=samples, io=io)
        self.verdict = quantized.verdict
        if check and quantized.verdict["status"] == FAILED:
            raise SessionError(
                f"the quantised model {describe(quantized.verdict)}", hint="pass check=False to use it anyway"
            )
        write_output(self.quantized_path, quantized.model, MODEL)
        return self.quantized_path

    def codegen(self, loader: Loader, target: str, preference: Preference) -> Path:
        """Compile the model with the plugin for ``target``, and return the file. Raises OdcError."""
        from odc_mlir.plugins import codegen

        source, output = loader.source, self.codegen_path
        if output is None and source.path is None:
            raise InvalidStateError("the model has no path to derive another from", hint="call set_codegen_model_path")
        if output is None:
            output = codegen.default_output(source.path or "", target)
        with loader.file() as path:
            return codegen.generate(path, target, output, preference=preference)


def check_target(target: Any, error: type[SessionError] = SessionError) -> None:
    """Raise ``error`` if ``target`` does not have the form of a codegen target."""
    if not isinstance(target, str) or not target.endswith(SUFFIX) or len(target) <= len(SUFFIX):
        raise error(f"the target is {target!r}, expected <extension>{SUFFIX}, such as npu{SUFFIX}")
