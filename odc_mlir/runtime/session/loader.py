"""A session's model as it was loaded: where it comes from, what goes in and out, and how it is to run."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from odc_mlir.errors import InputError, OdcError, SessionError
from odc_mlir.formats.cache import CACHE_VARIABLE
from odc_mlir.ops.context import Context
from odc_mlir.ops.registry import CustomOps, default_custom_ops
from odc_mlir.ops.spec import Array, Shape
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph, tensor_info
from odc_mlir.runtime.execution.specialization import is_static
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.session.backends import (
    BackendChoice,
    open_executor,
    open_native,
    parse_assignments,
    parse_backends,
    split_backends,
    wants_native,
)
from odc_mlir.runtime.session.settings import Settings
from odc_mlir.runtime.session.source import Source, model_bytes, model_digest, without_installed
from odc_mlir.runtime.session.tensors import SessionPort, layout_of, port_at, tensorinfo

INTERNAL_OUTPUTS = "ENABLE_INTERNAL_OUTPUT_ALLOC"


@dataclass
class Choices:
    """Choices of the user for every model that the session will have."""

    settings: dict[str, str] = field(default_factory=dict)
    strict: bool = False
    trust_code: bool = False
    max_bytes: int | None = None
    workspace: str | None = None
    custom_ops: CustomOps = field(default_factory=lambda: CustomOps(default_custom_ops()))

    def context(self) -> Context:
        """A new context for an executor."""
        return Context(custom_ops=self.custom_ops)


class Loader:
    """The model of a session and the choices about it, which go with it; raises SessionError for an empty model.

    Without ``source`` it stands for the model that is still to come. ``inputs`` and ``outputs`` are what users see;
    ``input_shapes`` are those that they asked for, in the model's layout, and ``output_shapes`` what the model says,
    after :meth:`open` as prepared.
    """

    def __init__(self, choices: Choices, source: Source | None = None) -> None:
        self.choices = choices
        self.settings = Settings({} if source is None else source.config, choices.settings)
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
        """Let inputs and outputs be those of ``subgraph``."""
        self.inputs, self.outputs = _ports(self.source, subgraph)
        self.input_shapes = {}
        self.output_shapes = [port.info.shape for port in self.outputs]

    @property
    def source(self) -> Source:
        """Where the model comes from; raises SessionError when there is none."""
        if self._source is None:
            raise SessionError("the session has no model")
        return self._source

    @property
    def digest(self) -> str:
        """The SHA-256 of the model, by which records and compiled files know it."""
        if self._digest is None:
            self._digest = model_digest(self.source)
        return self._digest

    @contextmanager
    def file(self) -> Iterator[Path]:
        """A file of the model."""
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
        """The folder for traces, profiles and records."""
        chosen = self.choices.workspace
        return self.settings.get("WORKSPACE_DIR") if chosen is None else chosen

    def workspace_file(self, name: str) -> Path:
        """The path of a file there; raises SessionError when there is no folder for it."""
        if not self.workspace:
            raise SessionError("the workspace is empty", hint="name a folder with set_workspace")
        return Path(self.workspace, name)

    # Choices about this model.

    def set_backends(self, text: str) -> None:
        """Which backends are preferred."""
        self._backends = parse_backends(text)

    def assign(self, text: str) -> None:
        """Which backends single operators must have."""
        found = parse_assignments(text)
        if self.source.package is not None and len(self.source.package.files.manifest.models) > 1:
            raise SessionError("operators cannot be assigned in a package of several models")
        self._by_index = found

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends in order of preference; none: what the model was compiled for, else the host."""
        return self._backends if self._backends is not None else split_backends(self.settings.get("BACKENDS"))

    @property
    def choice(self) -> BackendChoice:
        """The choice of backends for this model."""
        choices, cache = self.choices, self.settings.get(CACHE_VARIABLE)
        return BackendChoice(
            self.backends,
            parse_assignments(self.settings.get("OP_BACKEND_MAP")) | self._by_index,
            self.settings.op_backends(),
            choices.strict,
            choices.max_bytes,
            self.settings.threads,
            choices.trust_code,
            Path(cache) if os.path.isabs(cache) else None,
        )

    def set_layout(self, ports: Sequence[SessionPort], index: int, layout: Any, what: str) -> None:
        """Which layout arrays for a port have."""
        port = port_at(ports, index, what)
        self._refuse_after_signature("layout")
        port.layout = layout_of(layout)

    def set_type(self, ports: Sequence[SessionPort], index: int, dtype: Any, what: str) -> None:
        """Which element type arrays for a port have."""
        port = port_at(ports, index, what)
        self._refuse_after_signature("type")
        port.request_float(dtype)

    def _refuse_after_signature(self, what: str) -> None:
        if self._signature is not None:
            raise SessionError(f"the {what} must be set before configure_signature")

    def configure_signature(self, name: str) -> None:
        """Let the subgraph of the signature ``name`` be the one that runs."""
        self._see(self.source.subgraph_of(name))
        self._signature = name

    def with_signature(self, name: str) -> Loader:
        """The same model for another signature; this one does not change."""
        other = copy.copy(self)
        other.configure_signature(name)
        return other

    # Shapes.

    def set_input_shape(self, index: int, info: tensorinfo) -> None:
        """The shape that an input is to have."""
        port = port_at(self.inputs, index, "input")
        if not isinstance(info, tensorinfo):
            raise SessionError(f"a tensorinfo is needed, not {type(info).__name__}", tensor=port.info.name)
        shape = port.inner_shape(info.shape())
        if port.info.shape is not None and len(shape) != len(port.info.shape):
            raise SessionError(
                f"the input has rank {len(port.info.shape)}, the shape given has {len(shape)}", tensor=port.info.name
            )
        self.input_shapes[int(index)] = shape

    def input_info(self, index: int) -> tensorinfo:
        """What users are told about an input."""
        port = port_at(self.inputs, index, "input")
        return port.describe(self.input_shapes.get(int(index), port.info.shape))

    def follow(self, arrays: Sequence[Array]) -> None:
        """Take the shapes of ``arrays`` for those of the inputs, with a warning where the model says another."""
        for index, (port, array) in enumerate(zip(self.inputs, arrays, strict=True)):
            shape = port.inner_shape(array.shape)
            if shape == port.static_shape:
                self.input_shapes.pop(index, None)
            elif self.input_shapes.get(index) != shape:
                _warn_of_other_shape(port, index, array.shape, shape)
                self.input_shapes[index] = shape

    @property
    def known_input_shapes(self) -> tuple[tuple[int, ...], ...] | None:
        """Those of the inputs as they are declared or set; None where a dimension is not known."""
        shapes = [self.input_shapes.get(index, port.static_shape) for index, port in enumerate(self.inputs)]
        known = tuple(shape for shape in shapes if shape is not None)
        return known if len(known) == len(shapes) else None

    # Executors.

    def open(self) -> Executor:
        """What runs the model as chosen, prepared where the shapes are known.

        If what was installed in a package cannot be used, the package is taken as it was before. Raises OdcError and
        changes nothing when that fails too.
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

    def _opened(self) -> Executor:
        graph = self.source.graph(self._signature, self.choices.custom_ops)
        executor = self._executor(graph)
        shapes = [self.input_shapes.get(index, info.shape) for index, info in enumerate(graph.input_infos())]
        known = [shape for shape in shapes if shape is not None and is_static(shape)]
        results: list[Shape | None] = [info.shape for info in graph.output_infos()]
        if len(known) == len(shapes):
            shaped = executor.prepare([tuple(dim or 0 for dim in shape) for shape in known])
            # native code has a graph of its own, whose tensors have other indices
            results = [shaped.tensors[index].shape for index in executor.graph.outputs]
        self.output_shapes = results
        return executor

    def _executor(self, graph: Graph) -> Executor:
        """By the backends that were chosen; where nothing can run by what the package says of them, without that."""
        package, context = self.source.package, self.choices.context
        try:
            if wants_native(self.choice, None if package is None else package.plan):
                return open_native(self._native_package(graph), self.choice, context())
            return open_executor(graph, package, self.choice, context())
        except OdcError as error:
            before, found = self.settings, self.settings.without_backends(error.message)
            if found is None:
                raise
            self.settings = found
            try:
                return open_executor(graph, package, self.choice, context())
            except OdcError:
                self.settings = before
                raise error from None

    def _native_package(self, graph: Graph) -> Package:
        """The model as native code, compiled now or remembered; raises OdcError."""
        from odc_mlir.runtime.api import native_in_place

        if graph.subgraph != 0:
            raise SessionError("only the first signature of a model runs as native code")
        return native_in_place(model_bytes(self.source), strict=self.choice.strict)


def _ports(source: Source, subgraph: int) -> tuple[tuple[SessionPort, ...], tuple[SessionPort, ...]]:
    """The inputs and outputs of a subgraph."""
    record = source.records.subgraphs[subgraph] if source.records.subgraphs else None
    if record is None:
        raise SessionError("the model has no subgraphs")
    tensors = record.named()
    inputs, outputs = (
        tuple(SessionPort(tensor_info(tensors, {}, index)) for index in indices)
        for indices in (record.inputs, record.outputs)
    )
    return inputs, outputs


def _warn_of_other_shape(port: SessionPort, index: int, given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    declared = port.info.shape
    if declared is None:
        return
    if len(declared) != len(shape):
        raise InputError(f"the input has rank {len(declared)}, the array {len(shape)}", tensor=port.info.name)
    if any(known not in (None, dim) for known, dim in zip(declared, shape, strict=True)):
        warnings.warn(
            f"input {index} ({port.info.name!r}) has the shape {list(given)}, the model says "
            f"{list(port.outer_shape(declared))}; it is run in the new shape",
            stacklevel=5,
        )
