"""The session: the interface of applications to a model."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, overload

import numpy as np

from odc_mlir._version import __version__
from odc_mlir.errors import InputError, InvalidStateError, OptionError, SessionError, parsing
from odc_mlir.ops.spec import Array
from odc_mlir.plugins.request import Preference
from odc_mlir.runtime.auto.settings import AutoStatus
from odc_mlir.runtime.execution.binding import Inputs
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.session import generation, states
from odc_mlir.runtime.session import loader as loading
from odc_mlir.runtime.session.loader import Loader
from odc_mlir.runtime.session.runner import Runner, SessionRecorder
from odc_mlir.runtime.session.settings import ENABLE, check_chosen
from odc_mlir.runtime.session.states import Call, SessionCore, State, call, deprecated
from odc_mlir.runtime.session.switcher import Switcher
from odc_mlir.runtime.session.tensors import check_choice, index_of, port_at, tensorinfo

PREPARE_CONFIGS = ("PROFILE", loading.INTERNAL_OUTPUTS)
INFORMATION = ("VERSION",)


class Session:
    """A model and the model's life cycle, from loading to running.

    ``model``: a model file, an nnpackage (folder, zip or :class:`~odc_mlir.Package`), or anything else that
        :func:`odc_mlir.load` accepts. If no model is given, the session waits for load_model_from_file. ``backends``
        and ``workspace``: as in set_available_backends and set_workspace. ``strict``: every fallback is an error.
        ``settings`` take precedence over the environment and the package's config.cfg. ``max_bytes`` limits the
        activations of a run. ``trust_code``: allow machine code that was not compiled on this machine. ``threads``: as
        in :func:`odc_mlir.run` (setting NUM_THREADS).

    In short: ``with Session(path) as session: outputs = session.infer([array])``. On-device compilation runs in the
    background of that call. Threads that share a session take turns. Separate sessions run in parallel. Failures are
    :class:`~odc_mlir.OdcError`. Wrong use of the session is a SessionError.

    The other methods have the names of functions of onert's C API, but raise errors and return no status. A session has
    four parts. The loader has the model and settings. The runner has the buffers. The switcher selects the executor.
    The recorder keeps measurements. Each model gets new parts. The session's settings stay.
    """

    def __init__(
        self,
        model: Any = None,
        backends: str | None = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        strict: bool = False,
        settings: dict[str, str] | None = None,
        max_bytes: int | None = None,
        trust_code: bool = False,
        threads: int | None = None,
    ) -> None:
        self._core = SessionCore()
        chosen = {} if threads is None else {"NUM_THREADS": str(threads)}
        self._choices = loading.Choices(dict(settings or {}) | chosen, strict, trust_code, max_bytes)
        check_chosen(self._choices.settings)
        self._exchange = loading.Exchange()
        self._take(Loader(self._choices))
        if workspace is not None:
            self.set_workspace(workspace)
        if not isinstance(model, str | os.PathLike | bytes | bytearray | memoryview | Package | None):
            from odc_mlir.runtime.api import runnable

            model = runnable(model)
        if isinstance(model, Package):
            self._adopt(loading.Source(model.model, package=model, config=model.files.config))
            self._core.enter("load", State.MODEL_LOADED)
        elif isinstance(model, (bytes, bytearray, memoryview)):
            self.load_circle_from_buffer(model)
        elif model is not None:
            self.load_model_from_file(model)
        if backends is not None:
            self.set_available_backends(backends)

    # The parts.

    def _adopt(self, source: loading.Source) -> None:
        """Set ``source`` as the session's model. If this fails, raise OdcError and change nothing."""
        loader = Loader(self._choices, source)
        if loader.settings.flag(ENABLE):
            check_chosen({ENABLE: "1", **self._choices.settings})  # checks the environment as well
        self._switcher.stop()
        self._take(loader)
        self._follow_log_level()

    def _take(self, loader: Loader) -> None:
        self._recorder = SessionRecorder(loader)
        self._serve(loader)

    def _serve(self, loader: Loader) -> None:
        """Run the model of ``loader`` and keep the recorder."""
        self._loader = loader
        self._switcher = Switcher(loader, self._recorder, self._exchange)
        self._runner = Runner(loader, self._switcher.run, self._switcher.direct)
        self._other_steps: list[generation.TokenStep] | None = None

    def _follow_log_level(self) -> None:
        self._core.log_level = logging.INFO if self._loader.settings.flag("ENABLE_LOG") else logging.DEBUG

    def _prepare(self, *, in_run: bool = False) -> None:
        """Open the model and start on-device compilation. ``in_run``: the user waits for an answer. Raise OdcError."""
        with self._recorder.preparing():
            executor = self._loader.open()
        self._switcher.begin(executor, in_run=in_run)
        self._core.enter("prepare", State.PREPARED)

    def _holder(self) -> Executor:
        """Return the executor that holds the state. Prepare if necessary."""
        if self._core.state is State.MODEL_LOADED:
            self._prepare(in_run=True)
        return self._switcher.original

    def _run(self) -> None:
        self._runner.deliver(self._runner.compute())

    # About the session.

    @property
    def state(self) -> State:
        """The state of the session."""
        return self._core.state

    @property
    def last_error_message(self) -> str:
        """The text of the last failure, or "" before the first failure. Success does not clear the text."""
        return self._core.last_error

    @property
    def workspace(self) -> str:
        """Folder for traces, profiles and records."""
        return self._loader.workspace

    @property
    def digest(self) -> str:
        """SHA-256 of the model, the key of records and compiled files."""
        return self._loader.digest

    @property
    def verdict(self) -> dict[str, Any] | None:
        """Accuracy verdict of the last quantize, or None before the first."""
        return self._exchange.verdict

    @property
    def odc_status(self) -> AutoStatus:
        """Progress of on-device compilation, the level of the model that answers runs, and the reasons."""
        return self._switcher.status()

    @call(states.ANY)
    def get_last_error_message(self) -> str:
        """Return the text of the last failure. Success does not clear the text."""
        return self._core.last_error

    @call(states.ANY, required=("information",))
    def query_info_u32(self, information: int | str = 0) -> int:
        """Return the version as 0xMMmmmmPP, for ``VERSION``."""
        check_choice("information", information, INFORMATION)
        major, minor, patch = (int(part) for part in __version__.split(".")[:3])
        return major << 24 | minor << 8 | patch

    # Loading.

    @call(states.NEW, required=("folder",), null_first=True)
    def set_workspace(self, folder: str | os.PathLike[str]) -> None:
        """Set the folder for files that the session writes (default: the current folder)."""
        self._choices.workspace = os.fspath(folder)

    @call(states.NEW, State.MODEL_LOADED, required=("path",))
    def load_model_from_file(self, path: str | os.PathLike[str]) -> None:
        """Load a .circle or .tflite file or an nnpackage (folder or zip). The content determines the format."""
        self._adopt(loading.source_from_path(path))

    @call(states.NEW, State.MODEL_LOADED, required=("data",))
    def load_circle_from_buffer(self, data: bytes | bytearray | memoryview) -> None:
        """Load the bytes of a model file."""
        self._adopt(loading.source_from_bytes(data))

    @call(states.MODEL, required=("key", "value"))
    def set_config(self, key: str, value: str) -> None:
        """Set a setting of this session. It takes precedence over the environment and the package's config.cfg."""
        if not isinstance(value, str):
            raise OptionError(f"the value of {key} must be text, not {type(value).__name__}")
        self._loader.settings.set(key, value)
        self._follow_log_level()

    @call(states.MODEL, required=("key",))
    def get_config(self, key: str) -> str:
        """Return the value of a setting."""
        return ";".join(self._loader.backends) if key == "BACKENDS" else self._loader.settings.read(key)

    @call(states.IDLE, required=("code", "evaluate"))
    def register_custom_op_info(self, code: str, evaluate: Callable[..., Any], infer: Any = None) -> None:
        """Register ``evaluate(inputs, outputs, options)`` for custom operators called ``code`` in this session."""
        self._choices.custom_ops.register(code, evaluate, infer=infer)

    @call(states.MODEL, required=("backends",))
    def set_available_backends(self, backends: str) -> None:
        """Set backends in order of preference, such as ``"npu;cpu"``. prepare checks the names."""
        self._loader.set_backends(backends)

    @call(states.MODEL, required=("assignments",), null_first=True, null=SessionError)
    def set_backends_per_operation(self, assignments: str) -> None:
        """Set the backends of single operators by index, such as ``"0=cpu;1=npu"``."""
        self._loader.assign(assignments)

    @call(states.MODEL)
    def set_input_layout(self, index: int, layout: str | int) -> None:
        """Set the layout of arrays for an input: ``NCHW`` (channels first), ``NHWC`` or ``NONE`` (as in the model)."""
        self._loader.port_to_change("input", index, "layout").set_layout(layout)

    @call(states.MODEL)
    def set_output_layout(self, index: int, layout: str | int) -> None:
        """Set the layout of arrays for an output, as for an input."""
        self._loader.port_to_change("output", index, "layout").set_layout(layout)

    @call(states.MODEL)
    def set_input_type(self, index: int, dtype: Any) -> None:
        """Accept real values for a quantised input. ``dtype`` must be ``"float32"``."""
        self._loader.port_to_change("input", index, "type").request_float(dtype)

    @call(states.MODEL)
    def set_output_type(self, index: int, dtype: Any) -> None:
        """Return a quantised output as real values. ``dtype`` must be ``"float32"``."""
        self._loader.port_to_change("output", index, "type").request_float(dtype)

    @call(states.LOADED - {State.RUNNING}, required=("info",))
    def set_input_tensorinfo(self, index: int, info: tensorinfo) -> None:
        """Set the shape of an input. After prepare, it takes effect in the next run."""
        self._loader.set_input_shape(index, info)

    @call(states.LOADED)
    def input_size(self) -> int:
        """Return the number of inputs."""
        return len(self._loader.inputs)

    @call(states.LOADED)
    def output_size(self) -> int:
        """Return the number of outputs."""
        return len(self._loader.outputs)

    @call(states.LOADED)
    def input_tensorinfo(self, index: int) -> tensorinfo:
        """Return element type, current shape and quantisation of an input."""
        return self._loader.input_info(index)

    @call(states.LOADED)
    def output_tensorinfo(self, index: int) -> tensorinfo:
        """Return the description of an output. The shape comes from the last run, else from prepare or the model."""
        return self._output_info(index)

    def _output_info(self, index: int) -> tensorinfo:
        port = port_at(self._loader.outputs, index, "output")
        shapes = self._runner.output_shapes
        return port.describe((self._loader.output_shapes if shapes is None else shapes)[int(index)])

    @call(states.LOADED)
    def get_inputs_tensorinfo(self) -> list[tensorinfo]:
        """Return the descriptions of all inputs in order."""
        return [self._loader.input_info(index) for index in range(len(self._loader.inputs))]

    @call(states.LOADED)
    def get_outputs_tensorinfo(self) -> list[tensorinfo]:
        """Return the descriptions of all outputs in order."""
        return [self._output_info(index) for index in range(len(self._loader.outputs))]

    @call(states.LOADED, required=("name",))
    def input_tensorindex(self, name: str) -> int:
        """Return the index of the first input with this name."""
        return index_of(self._loader.inputs, name, "input")

    @call(states.LOADED, required=("name",))
    def output_tensorindex(self, name: str) -> int:
        """Return the index of the first output with this name."""
        return index_of(self._loader.outputs, name, "output")

    @call(states.MODEL, required=("name",), null_first=True)
    def configure_signature(self, name: str) -> None:
        """Run the subgraph of the signature ``name``."""
        self._loader.configure_signature(name)

    @call(states.MODEL)
    def set_prepare_config(self, config: str | int, value: str = "") -> None:
        """Enable ``PROFILE``, or ``ENABLE_INTERNAL_OUTPUT_ALLOC``, so that get_output needs no buffer of the user."""
        self._loader.prepare_configs.add(check_choice("prepare config", config, PREPARE_CONFIGS))

    @call(states.MODEL)
    def reset_prepare_config(self) -> None:
        """Undo every set_prepare_config."""
        self._loader.prepare_configs.clear()

    @call(states.MODEL, State.PREPARED)
    def prepare(self) -> None:
        """Choose backends and prepare every operator. After a failure, change settings and call prepare again.

        This call also waits until earlier results of on-device compilation are open. If this call is missing, runs use
        the original model until the results are open.
        """
        self._prepare()

    # Running.

    @call(states.READY, required=("name",), null_first=True)
    def set_signature_run(self, name: str) -> None:
        """Switch to another signature. Buffers and options of the previous signature are lost."""
        loader = self._loader.with_signature(name)
        with self._recorder.preparing():
            executor = loader.open()
        self._switcher.stop()
        self._serve(loader)
        self._switcher.begin(executor)

    @call(states.READY)
    def set_input(self, index: int, buffer: Any) -> None:
        """Set the array or bytes that the next runs read for an input. The size is checked when a run starts.

        The session keeps the array and makes no copy. None removes the array.
        """
        self._runner.set_input(index, buffer)

    @call(states.READY)
    def set_inputs(self, size: int, inputs_array: Sequence[Any] = ()) -> None:
        """Set the first ``size`` inputs, converted to the model's element types. Missing inputs become zeros."""
        self._runner.set_inputs(size, inputs_array)

    @call(states.READY)
    def set_output(self, index: int, buffer: Any) -> None:
        """Set the array that runs write an output to. It may be larger than the output. None removes the array."""
        self._runner.set_output(index, buffer)

    @call(states.READY, State.FINISHED_RUN)
    def run(self) -> None:
        """Run the model on the arrays of set_input, and write outputs to the arrays of set_output."""
        self._run()

    @call(states.READY, State.RUNNING)
    def run_async(self) -> None:
        """Start a run in a thread. Do not change buffers before wait has returned."""
        self._runner.start(self._core.state)

    @call(frozenset({State.RUNNING}), State.FINISHED_RUN, wrong=SessionError)
    def wait(self) -> None:
        """Wait for the end of run_async, and raise the error of the run."""
        ended = self._runner.wait()
        self._core.state = ended.before
        if ended.error is not None:
            raise ended.error
        self._runner.deliver(ended.outputs)

    @call(frozenset({State.FINISHED_RUN}), required=("index",), null_first=True)
    def get_output(self, index: int) -> Array:
        """Return a read-only output of the last run. Requires ENABLE_INTERNAL_OUTPUT_ALLOC or a set_output buffer."""
        return self._runner.output(index)

    @overload
    def infer(self, inputs_array: Inputs, *, measure: Literal[False] = ...) -> list[Array]: ...

    @overload
    def infer(self, inputs_array: Inputs, *, measure: Literal[True]) -> tuple[list[Array], dict[str, float]]: ...

    @call(states.AT_REST, State.FINISHED_RUN)
    def infer(
        self, inputs_array: Inputs, *, measure: bool = False
    ) -> list[Array] | tuple[list[Array], dict[str, float]]:
        """Run on the inputs, a list or {name: array}, and return the outputs as read-only arrays. Prepare if necessary.

        Arrays may differ from the model's static dimensions. The model then runs in the size of the arrays, with a
        warning. With ``measure``, also return times in milliseconds: ``prepare_time_ms`` (only if the call prepares the
        session), ``input_time_ms``, ``run_time_ms`` and ``output_time_ms``. Raises InputError, which is also a
        ValueError for a wrong number of arrays.
        """
        if not measure and self._core.state not in states.MODEL:  # an attribute of an enumeration takes longer
            outputs = self._runner.infer(inputs_array)
            if outputs is not None:
                return outputs
        metrics: dict[str, float] = {}
        start = time.perf_counter()
        arrays = self._runner.converted(inputs_array)
        self._loader.follow(arrays)
        taken = time.perf_counter() - start
        if self._core.state is State.MODEL_LOADED:
            self._prepare(in_run=True)
            metrics["prepare_time_ms"] = 1000 * (time.perf_counter() - start - taken)
        run = time.perf_counter()
        outputs = self._runner.compute(arrays)
        delivered = time.perf_counter()
        self._runner.deliver(outputs)
        if not measure:
            return self._runner.results
        metrics |= {"input_time_ms": 1000 * taken, "run_time_ms": 1000 * (delivered - run)}
        metrics["output_time_ms"] = 1000 * (time.perf_counter() - delivered)
        return self._runner.results, metrics

    @call(states.AT_REST, State.FINISHED_RUN, required=("prompt_ids",))
    def generate(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        temperature: float = 0.0,
        top_k: int | None = None,
        seed: int = 0,
        on_token: Callable[[int], object] | None = None,
        *,
        stop: Sequence[int] = (),
        interface: Mapping[str, int | str] | None = None,
    ) -> list[int]:
        """Return at most ``max_tokens`` token ids that follow the prompt. The language model runs one step per token.

        ``temperature`` 0 selects the likeliest token. Otherwise a token is drawn from the ``top_k`` likeliest tokens,
        with ``seed``. ``on_token`` is called with each token. Generation ends after a token in ``stop``. The session
        keeps the caches. ``interface``: names or positions of the inputs ``token``, ``position``, ``mask`` and of the
        output ``logits``, if the session does not recognise these. If a signature reads several tokens at once, it
        reads the prompt. Raises InputError for other interfaces, ids out of range, and texts longer than the context.
        """
        sampling = generation.Sampling(temperature, top_k, seed)
        step = generation.step_of(self._loader, self.infer, interface)
        if self._other_steps is None:
            self._other_steps = generation.other_steps(self._loader, step)
        if not step.interface.caches and self._core.state is not State.MODEL_LOADED:
            self._switcher.original.reset()
        stream = generation.TokenStream([step, *self._other_steps])
        return generation.generate(stream, prompt_ids, max_tokens, sampling, on_token, stop)

    # State from run to run.

    @call(states.AT_REST)
    def reset_state(self) -> None:
        """Reset all state of the model as after prepare: states, variables, tables and random number generators."""
        self._holder().reset()

    @call(states.AT_REST)
    def get_state(self) -> dict[str, Array]:
        """Return copies of the states by the names of the inputs, and of variables by the names of the variables."""
        return self._holder().get_states()

    @call(states.AT_REST, required=("values",))
    def set_state(self, values: Mapping[str, Any]) -> None:
        """Replace some of the arrays that get_state returns, for example to continue a stream in another process.

        Raises InputError and changes nothing if an array does not fit or has NaN.
        """
        with parsing("the values are no arrays by name", InputError):
            arrays = {name: np.asarray(value) for name, value in dict(values).items()}
        for name, array in arrays.items():
            if array.dtype.kind == "f" and np.isnan(array).any():
                raise InputError("the state has NaN, which all later runs would keep", tensor=name)
        self._holder().set_states(arrays)

    # Watching.

    @call(states.READY)
    def set_execute_config(self, config: str | int, value: str = "") -> None:
        """Start recording ranges of all tensors (``DUMP_MINMAX``) or times of operators (``TRACE``, ``PROFILE``)."""
        self._recorder.add(config)

    @call(states.READY)
    def reset_execute_config(self) -> None:
        """Undo every set_execute_config, and write a trace or profile to the workspace."""
        self._recorder.reset()

    @call(states.AT_REST)
    def save_trace(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the traced runs in the trace-event format, by default to trace.json in the workspace."""
        return self._recorder.save_trace(path)

    @call(states.AT_REST)
    def save_profile(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the mean time of each operator as JSON, by default to profile.json in the workspace."""
        return self._recorder.save_profile(path)

    @call(states.IDLE)
    def delete_odc_minmax_file(self) -> None:
        """Delete the records of this model. Raises SessionError if there are none."""
        self._recorder.forget_ranges()

    odc_delete_minmax_file = delete_odc_minmax_file

    # Exchanging the model.

    @call(states.AT_REST)
    def set_quantization_type(self, quantization: str | int) -> None:
        """Set the scheme of quantize: a name such as ``int8``, or a name or number of the C API (``U8_ASYM``)."""
        self._exchange.set_scheme(quantization)

    @call(states.AT_REST, required=("path",))
    def set_quantized_model_path(self, path: str | os.PathLike[str]) -> None:
        """Set the path of the quantised model."""
        self._exchange.quantized_path = Path(path)

    @call(states.AT_REST, required=("path",))
    def set_codegen_model_path(self, path: str | os.PathLike[str]) -> None:
        """Set the path of codegen's result (default: the model's folder, or the cache)."""
        self._exchange.codegen_path = Path(path)

    @call(states.AT_REST)
    def set_odc_param_minmax_records_count(self, count: int) -> None:
        """Set the number of recorded runs before on-device compilation starts."""
        if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
            raise SessionError(f"the number of records is {count!r}, allowed are integers from 1")
        self._choices.settings["ODC_RECORDS"] = str(count)

    @call(states.AT_REST, State.MODEL_LOADED)
    def quantize(self, *, io: str = "float", check: bool = True) -> None:
        """Quantise the model with the recorded ranges. The result becomes the session's model and must be prepared.

        ``io`` "quantized" converts inputs and outputs to integers. Otherwise the types stay unchanged. Raises OdcError
        and keeps the model if the type or path is not set, if nothing was recorded, if the model cannot be quantised,
        or if ``check`` is set and the result misses the accuracy limits (:attr:`verdict`).
        """
        self._recorder.flush()
        self._adopt(loading.source_from_path(self._exchange.quantize(self._loader, io=io, check=check)))

    @call(states.AT_REST, State.MODEL_LOADED, required=("target",))
    def codegen(self, target: str, pref: str | int = Preference.DEFAULT) -> None:
        """Compile the model with the plugin for ``target``, such as ``npu-gen``. The result replaces the model.

        ``pref``: ``DEFAULT``, ``PERFORMANCE_FIRST``, ``MEMORY_FIRST`` or ``COMPILE_TIME_FIRST``. If anything fails,
            raises OdcError and keeps the model.
        """
        loading.check_target(target)
        self._adopt(loading.source_from_path(self._exchange.codegen(self._loader, target, Preference.of(pref))))

    # Compiling on the device.

    @call(states.READY, State.FINISHED_RUN, required=("target",))
    def run_with_auto_compilation(self, target: str, pref: str | int = Preference.DEFAULT) -> None:
        """Run the model and compile it on the device in the background, as run does with OnDeviceCompilation.

        ``target``: a plugin such as ``npu-gen``. Results are also copied to the paths of set_quantized_model_path and
            set_codegen_model_path, if set.
        """
        loading.check_target(target, InvalidStateError)
        self._switcher.compile_for(target, Preference.of(pref))
        self._run()

    @call(states.READY)
    def start_auto_compilation(self) -> None:
        """Start on-device compilation now if enough runs are recorded. The trigger ``explicit`` requires this call."""
        self._switcher.compiler().start()

    @call(states.READY)
    def retry_auto_compilation(self) -> None:
        """Retry a rejected compilation of this process or an earlier one."""
        self._switcher.compiler().retry()

    @call(states.READY)
    def wait_for_auto_compilation(self, seconds: float | None = None) -> bool:
        """Wait at most ``seconds`` for the end of background work. Return whether it has ended."""
        return self._switcher.compiler().wait(seconds)

    # The end.

    @call(states.ANY, State.CLOSED)
    def close(self) -> None:
        """End the session: wait for a run in the background, write measurements, and release the model."""
        self._runner.join()
        try:
            self._recorder.write_measurements()
        finally:
            self._switcher.stop()
            self._take(Loader(self._choices))

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._core.state is not State.CLOSED:
            self.close()

    apply_tensorinfo = deprecated("apply_tensorinfo", "set_input_tensorinfo")
    set_op_backend = deprecated("set_op_backend", "set_backends_per_operation")
    prepare_pipeline = deprecated("prepare_pipeline", "prepare")
    push_pipeline_input = deprecated("push_pipeline_input", "run_async")
    pop_pipeline_output = deprecated("pop_pipeline_output", "wait and get_output")


CALLS: Mapping[str, Call] = MappingProxyType(
    {
        name: member.rule
        for name, member in vars(Session).items()
        if getattr(member, "__name__", "") == name and hasattr(member, "rule")
    }
)
"""Conditions and effect of every call of a session, by name of the method."""
