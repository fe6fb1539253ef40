"""Calls before a session runs: load a model, say how it is to run, ask what goes in and out, prepare."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from odc_mlir._version import __version__
from odc_mlir.errors import OptionError, SessionError
from odc_mlir.ops.context import Context
from odc_mlir.ops.registry import CustomOps, default_custom_ops
from odc_mlir.ops.spec import Array, Shape
from odc_mlir.runtime.executor import Executor
from odc_mlir.runtime.graph import tensor_info
from odc_mlir.runtime.session.backends import Choice, open_executor, parse_assignments, parse_backends, split_backends
from odc_mlir.runtime.session.core import SessionCore, call
from odc_mlir.runtime.session.settings import Settings
from odc_mlir.runtime.session.source import Source, source_from_bytes, source_from_path
from odc_mlir.runtime.session.tensors import Port, check_choice, index_of, layout_of, port_at, tensorinfo
from odc_mlir.runtime.shaping import is_static

PREPARE_CONFIGS = ("PROFILE", "ENABLE_INTERNAL_OUTPUT_ALLOC")
INFORMATION = ("VERSION",)


class LoadingCalls(SessionCore):
    """See the functions of the same names in the C API of onert; ours raise where those return a status."""

    def __init__(self) -> None:
        super().__init__()
        self._workspace: str | None = None
        self._custom_ops = CustomOps(default_custom_ops())
        self._strict = False
        self._max_bytes: int | None = None
        self._chosen: dict[str, str] = {}  # settings that the user made, which outlive an exchange of the model
        self._forget_model()

    def _forget_model(self) -> None:
        self._source: Source | None = None
        self._settings = Settings(chosen=self._chosen)
        self._signature: str | None = None
        self._backends: tuple[str, ...] | None = None
        self._by_index: dict[int, str] = {}
        self._inputs: tuple[Port, ...] = ()
        self._outputs: tuple[Port, ...] = ()
        self._input_shapes: dict[int, tuple[int, ...]] = {}  # asked for by the user, in the model's layout
        self._output_shapes: list[Shape | None] = []
        self._known_output_shapes: list[Shape | None] = []  # as prepare found them
        self._prepare_configs: set[str] = set()
        self._executor: Executor | None = None

    def _adopt(self, source: Source) -> None:
        """Let ``source`` be the session's model; raises OdcError and changes nothing when it cannot be."""
        inputs, outputs = _ports(source, 0)
        self._forget_model()
        self._source = source
        self._settings = Settings(source.config, self._chosen)
        self._inputs, self._outputs = inputs, outputs
        self._output_shapes = [port.info.shape for port in outputs]
        self._log_level = logging.INFO if self._settings.flag("ENABLE_LOG") else logging.DEBUG
        if self._settings.flag("INTERNAL_OUTPUT_ALLOC"):
            self._prepare_configs.add("ENABLE_INTERNAL_OUTPUT_ALLOC")

    @property
    def _model(self) -> Source:
        if self._source is None:
            raise SessionError("the session has no model")
        return self._source

    @property
    def workspace(self) -> str:
        """The folder for traces, profiles and records."""
        return self._settings.get("WORKSPACE_DIR") if self._workspace is None else self._workspace

    @call
    def set_workspace(self, folder: str | os.PathLike[str]) -> None:
        """The folder for files that the session writes; the default is the current one."""
        self._workspace = os.fspath(folder)

    @call
    def load_model_from_file(self, path: str | os.PathLike[str]) -> None:
        """A .circle or .tflite file, or an nnpackage as a folder or zip; what it is, its content tells."""
        self._adopt(source_from_path(path))

    @call
    def load_circle_from_buffer(self, data: bytes | bytearray | memoryview) -> None:
        """The bytes of a model file."""
        self._adopt(source_from_bytes(data))

    @call
    def set_available_backends(self, backends: str) -> None:
        """Names in order of preference, such as ``"npu;cpu"``; they are looked up in prepare."""
        self._backends = parse_backends(backends)

    @call
    def set_backends_per_operation(self, assignments: str) -> None:
        """``"0=cpu;1=npu"``: the backend of single operators, by index."""
        found = parse_assignments(assignments)
        if self._model.package is not None and len(self._model.package.files.manifest.models) > 1:
            raise SessionError("operators cannot be assigned in a package of several models")
        self._by_index = found

    @call
    def set_input_layout(self, index: int, layout: str | int) -> None:
        """``NCHW``: arrays for this input have channels first, the model's have them last; ``NHWC``, ``NONE``: not."""
        self._set_layout(self._inputs, index, layout, "input")

    @call
    def set_output_layout(self, index: int, layout: str | int) -> None:
        """The same for an output."""
        self._set_layout(self._outputs, index, layout, "output")

    def _set_layout(self, ports: Sequence[Port], index: int, layout: Any, what: str) -> None:
        port = port_at(ports, index, what)
        self._refuse_after_signature("layout")
        port.layout = layout_of(layout)

    @call
    def set_input_type(self, index: int, dtype: Any) -> None:
        """``"float32"``: arrays for this quantised input are real values."""
        port = port_at(self._inputs, index, "input")
        self._refuse_after_signature("type")
        port.request_float(dtype)

    @call
    def set_output_type(self, index: int, dtype: Any) -> None:
        """``"float32"``: this quantised output is given as real values."""
        port = port_at(self._outputs, index, "output")
        self._refuse_after_signature("type")
        port.request_float(dtype)

    def _refuse_after_signature(self, what: str) -> None:
        if self._signature is not None:
            raise SessionError(f"the {what} must be set before configure_signature")

    @call
    def set_input_tensorinfo(self, index: int, info: tensorinfo) -> None:
        """The shape of an input, its element type being the model's: now before prepare, else from the next run on."""
        port = port_at(self._inputs, index, "input")
        if not isinstance(info, tensorinfo):
            raise SessionError(f"a tensorinfo is needed, not {type(info).__name__}", tensor=port.info.name)
        shape = port.inner_shape(info.shape())
        if port.info.shape is not None and len(shape) != len(port.info.shape):
            raise SessionError(
                f"the input has rank {len(port.info.shape)}, the shape given has {len(shape)}", tensor=port.info.name
            )
        self._input_shapes[int(index)] = shape

    @call
    def input_size(self) -> int:
        """The number of inputs."""
        return len(self._inputs)

    @call
    def output_size(self) -> int:
        """The number of outputs."""
        return len(self._outputs)

    @call
    def input_tensorinfo(self, index: int) -> tensorinfo:
        """An input: its element type, its shape (as set last) and how it is quantised."""
        return self._input_info(port_at(self._inputs, index, "input"), int(index))

    def _input_info(self, port: Port, index: int) -> tensorinfo:
        return port.describe(self._input_shapes.get(index, port.info.shape))

    @call
    def output_tensorinfo(self, index: int) -> tensorinfo:
        """An output: as the model says, after prepare as prepared, after a run as that run's was."""
        port = port_at(self._outputs, index, "output")
        return port.describe(self._output_shapes[int(index)])

    @call
    def get_inputs_tensorinfo(self) -> list[tensorinfo]:
        """All inputs in order."""
        return [self._input_info(port, index) for index, port in enumerate(self._inputs)]

    @call
    def get_outputs_tensorinfo(self) -> list[tensorinfo]:
        """All outputs in order."""
        return [port.describe(shape) for port, shape in zip(self._outputs, self._output_shapes, strict=True)]

    @call
    def input_tensorindex(self, name: str) -> int:
        """The first input with this name."""
        return index_of(self._inputs, name, "input")

    @call
    def output_tensorindex(self, name: str) -> int:
        """The first output with this name."""
        return index_of(self._outputs, name, "output")

    @call
    def configure_signature(self, name: str) -> None:
        """Run the subgraph of the signature ``name``."""
        self._choose_signature(name)

    def _choose_signature(self, name: str) -> None:
        subgraph = self._model.subgraph_of(name)
        self._inputs, self._outputs = _ports(self._model, subgraph)
        self._signature = name
        self._input_shapes = {}
        self._output_shapes = [port.info.shape for port in self._outputs]

    @call
    def set_prepare_config(self, config: str | int, value: str = "") -> None:
        """``ENABLE_INTERNAL_OUTPUT_ALLOC``: outputs without a buffer can be had from get_output; ``PROFILE``."""
        self._prepare_configs.add(check_choice("prepare config", config, PREPARE_CONFIGS))

    @call
    def reset_prepare_config(self) -> None:
        """Take back every set_prepare_config."""
        self._prepare_configs.clear()

    @call
    def set_config(self, key: str, value: str) -> None:
        """Set a setting of this session, which then counts more than the environment and the package's config.cfg."""
        if not isinstance(value, str):
            raise OptionError(f"the value of {key} must be text, not {type(value).__name__}")
        self._settings.set(key, value)
        self._chosen[key] = value
        self._log_level = logging.INFO if self._settings.flag("ENABLE_LOG") else logging.DEBUG

    @call
    def get_config(self, key: str) -> str:
        """The value of a setting."""
        return ";".join(self._order()) if key == "BACKENDS" else self._settings.read(key)

    @call
    def register_custom_op_info(self, code: str, evaluate: Callable[..., Any], infer: Any = None) -> None:
        """Compute custom operators called ``code`` of this session by ``evaluate(inputs, outputs, options)``."""
        self._custom_ops.register(code, evaluate, infer=infer)

    @call
    def query_info_u32(self, information: int | str = 0) -> int:
        """``VERSION``: ours as 0xMMmmmmPP."""
        check_choice("information", information, INFORMATION)
        major, minor, patch = (int(part) for part in __version__.split(".")[:3])
        return major << 24 | minor << 8 | patch

    @call
    def get_last_error_message(self) -> str:
        """The text of the last failure; success does not clear it."""
        return self._last_error

    @call
    def prepare(self) -> None:
        """Choose backends and prepare every operator; after a failure it can be called again, with other choices."""
        self._prepare()

    def _prepare(self) -> None:
        """Raises OdcError and leaves the session as it was."""
        graph = self._model.graph(self._signature, self._custom_ops)
        executor = open_executor(graph, self._model.package, self._choice(), Context(custom_ops=self._custom_ops))
        self._attach(executor)

    def _attach(self, executor: Executor) -> None:
        """Let ``executor`` run the session; raises OdcError and leaves the session as it was."""
        graph = executor.graph
        shapes = [self._input_shapes.get(index, info.shape) for index, info in enumerate(graph.input_infos())]
        known = [shape for shape in shapes if shape is not None and is_static(shape)]
        results: list[Shape | None] = [info.shape for info in graph.output_infos()]
        if len(known) == len(shapes):
            shaped = executor.prepare([tuple(dim or 0 for dim in shape) for shape in known])
            results = [shaped.tensors[index].shape for index in graph.outputs]
        for port, info in zip(
            (*self._inputs, *self._outputs), (*graph.input_infos(), *graph.output_infos()), strict=True
        ):
            port.bind(info)
        self._executor, self._output_shapes, self._known_output_shapes = executor, results, list(results)

    def _order(self) -> tuple[str, ...]:
        return self._backends if self._backends is not None else split_backends(self._settings.get("BACKENDS"))

    def _choice(self) -> Choice:
        by_index = parse_assignments(self._settings.get("OP_BACKEND_MAP")) | self._by_index
        return Choice(self._order(), by_index, self._settings.op_backends(), self._strict, self._max_bytes)

    def _workspace_file(self, name: str) -> Path:
        """The path of a file that the session writes; raises SessionError when there is no folder for it."""
        if not self.workspace:
            raise SessionError("the workspace is empty", hint="name a folder with set_workspace")
        return Path(self.workspace, name)


def _ports(source: Source, subgraph: int) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """The inputs and outputs of a subgraph."""
    record = source.records.subgraphs[subgraph] if source.records.subgraphs else None
    if record is None:
        raise SessionError("the model has no subgraphs")
    inputs, outputs = (
        tuple(Port(tensor_info(record.tensors, {}, index)) for index in indices)
        for indices in (record.inputs, record.outputs)
    )
    return inputs, outputs


def as_read_only(value: Array) -> Array:
    """A view of ``value`` that cannot be written."""
    view = value.view() if isinstance(value, np.ndarray) else np.asarray(value)
    view.flags.writeable = False
    return view


__all__ = ["PREPARE_CONFIGS", "LoadingCalls", "as_read_only"]
