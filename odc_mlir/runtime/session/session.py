"""The session: everything that an application needs to run a model."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, overload

from odc_mlir._version import __version__
from odc_mlir.errors import InvalidStateError, OptionError, SessionError
from odc_mlir.ops.spec import Array
from odc_mlir.plugins.request import Preference
from odc_mlir.runtime.auto.status import AutoStatus
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.session.core import SessionCore, call, deprecated
from odc_mlir.runtime.session.exchange import Exchange, check_target
from odc_mlir.runtime.session.loader import INTERNAL_OUTPUTS, Choices, Loader
from odc_mlir.runtime.session.recorder import SessionRecorder
from odc_mlir.runtime.session.runner import Runner
from odc_mlir.runtime.session.settings import ENABLE, check_chosen
from odc_mlir.runtime.session.source import Source, source_from_bytes, source_from_package, source_from_path
from odc_mlir.runtime.session.states import State
from odc_mlir.runtime.session.switcher import Switcher
from odc_mlir.runtime.session.tensors import check_choice, index_of, port_at, tensorinfo

PREPARE_CONFIGS = ("PROFILE", INTERNAL_OUTPUTS)
INFORMATION = ("VERSION",)


class Session:
    """One model, and the states between loading it and running it.

    ``model`` is a .circle or .tflite file, an nnpackage (folder, zip or :class:`~odc_mlir.Package`) or the bytes of a
    model file; without it, the session waits for load_model_from_file. ``backends`` and ``workspace`` are those of
    set_available_backends and set_workspace; ``strict`` makes every fallback an error; ``settings`` are settings that
    count more than the environment and the package's config.cfg; ``max_bytes`` bounds the activations of a run;
    ``trust_code`` consents to running machine code of a package that was not compiled on this machine.

    The quick way: ``with Session(path) as session: outputs = session.infer([array])``. A session that compiles on the
    device does so behind that call. Threads that share a session wait for one another; give each its own to run side
    by side. Failures are :class:`~odc_mlir.OdcError`; wrong use of the session itself is a SessionError.

    The other calls are the functions of the same names in the C API of onert; ours raise where those return a status.
    A run passes through four parts: a loader, which knows the model and the choices about it; a runner, which has the
    buffers; a switcher, which chooses who computes the answer; a recorder, which keeps what was asked for. All but the
    choices are made anew with each model.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | bytearray | memoryview | Package | None = None,
        backends: str | None = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        strict: bool = False,
        settings: dict[str, str] | None = None,
        max_bytes: int | None = None,
        trust_code: bool = False,
    ) -> None:
        self._core = SessionCore()
        self._choices = Choices(dict(settings or {}), strict, trust_code, max_bytes)
        check_chosen(self._choices.settings)
        self._exchange = Exchange()
        self._take(Loader(self._choices))
        if workspace is not None:
            self.set_workspace(workspace)
        if isinstance(model, Package):
            self._adopt(source_from_package(model))
            self._core.enter("load", State.MODEL_LOADED)
        elif isinstance(model, (bytes, bytearray, memoryview)):
            self.load_circle_from_buffer(model)
        elif model is not None:
            self.load_model_from_file(model)
        if backends is not None:
            self.set_available_backends(backends)

    # The parts.

    def _adopt(self, source: Source) -> None:
        """Let ``source`` be the session's model; raises OdcError and changes nothing when it cannot be."""
        loader = Loader(self._choices, source)
        if loader.settings.flag(ENABLE):
            check_chosen({ENABLE: "1", **self._choices.settings})  # the environment counts as well now
        self._switcher.stop()
        self._take(loader)
        self._follow_log_level()

    def _take(self, loader: Loader) -> None:
        """Let everything be about the model of ``loader``."""
        self._recorder = SessionRecorder(loader)
        self._serve(loader)

    def _serve(self, loader: Loader) -> None:
        """Let runs be those of ``loader``, with what is recorded as before."""
        self._loader = loader
        self._switcher = Switcher(loader, self._recorder, self._exchange)
        self._runner = Runner(loader, self._switcher.run)

    def _follow_log_level(self) -> None:
        self._core.log_level = logging.INFO if self._loader.settings.flag("ENABLE_LOG") else logging.DEBUG

    def _prepare(self, *, in_run: bool = False) -> None:
        """Raises OdcError and leaves the session as it was; ``in_run``: the user waits for an answer."""
        with self._recorder.preparing():
            executor = self._loader.open()
        self._switcher.begin(executor, in_run=in_run)

    def _run(self) -> None:
        self._runner.deliver(self._runner.compute())

    # About the session.

    @property
    def state(self) -> State:
        """Where the session stands."""
        return self._core.state

    @property
    def last_error_message(self) -> str:
        """The text of the last failure, empty before the first; success does not clear it."""
        return self._core.last_error

    @property
    def workspace(self) -> str:
        """The folder for traces, profiles and records."""
        return self._loader.workspace

    @property
    def digest(self) -> str:
        """The SHA-256 of the model, by which records and compiled files know it."""
        return self._loader.digest

    @property
    def verdict(self) -> dict[str, Any] | None:
        """How accurate what quantize made is, None before that."""
        return self._exchange.verdict

    @property
    def odc_status(self) -> AutoStatus:
        """How far compiling on the device is, what computes the answers, and why."""
        return self._switcher.status()

    @call
    def get_last_error_message(self) -> str:
        """The text of the last failure; success does not clear it."""
        return self._core.last_error

    @call
    def query_info_u32(self, information: int | str = 0) -> int:
        """``VERSION``: ours as 0xMMmmmmPP."""
        check_choice("information", information, INFORMATION)
        major, minor, patch = (int(part) for part in __version__.split(".")[:3])
        return major << 24 | minor << 8 | patch

    # Loading.

    @call
    def set_workspace(self, folder: str | os.PathLike[str]) -> None:
        """The folder for files that the session writes; the default is the current one."""
        self._choices.workspace = os.fspath(folder)

    @call
    def load_model_from_file(self, path: str | os.PathLike[str]) -> None:
        """A .circle or .tflite file, or an nnpackage as a folder or zip; what it is, its content tells."""
        self._adopt(source_from_path(path))

    @call
    def load_circle_from_buffer(self, data: bytes | bytearray | memoryview) -> None:
        """The bytes of a model file."""
        self._adopt(source_from_bytes(data))

    @call
    def set_config(self, key: str, value: str) -> None:
        """Set a setting of this session, which then counts more than the environment and the package's config.cfg."""
        if not isinstance(value, str):
            raise OptionError(f"the value of {key} must be text, not {type(value).__name__}")
        self._loader.settings.set(key, value)
        self._follow_log_level()

    @call
    def get_config(self, key: str) -> str:
        """The value of a setting."""
        return ";".join(self._loader.backends) if key == "BACKENDS" else self._loader.settings.read(key)

    @call
    def register_custom_op_info(self, code: str, evaluate: Callable[..., Any], infer: Any = None) -> None:
        """Compute custom operators called ``code`` of this session by ``evaluate(inputs, outputs, options)``."""
        self._choices.custom_ops.register(code, evaluate, infer=infer)

    @call
    def set_available_backends(self, backends: str) -> None:
        """Names in order of preference, such as ``"npu;cpu"``; they are looked up in prepare."""
        self._loader.set_backends(backends)

    @call
    def set_backends_per_operation(self, assignments: str) -> None:
        """``"0=cpu;1=npu"``: the backend of single operators, by index."""
        self._loader.assign(assignments)

    @call
    def set_input_layout(self, index: int, layout: str | int) -> None:
        """``NCHW``: arrays for this input have channels first, the model's have them last; ``NHWC``, ``NONE``: not."""
        self._loader.set_layout(self._loader.inputs, index, layout, "input")

    @call
    def set_output_layout(self, index: int, layout: str | int) -> None:
        """The same for an output."""
        self._loader.set_layout(self._loader.outputs, index, layout, "output")

    @call
    def set_input_type(self, index: int, dtype: Any) -> None:
        """``"float32"``: arrays for this quantised input are real values."""
        self._loader.set_type(self._loader.inputs, index, dtype, "input")

    @call
    def set_output_type(self, index: int, dtype: Any) -> None:
        """``"float32"``: this quantised output is given as real values."""
        self._loader.set_type(self._loader.outputs, index, dtype, "output")

    @call
    def set_input_tensorinfo(self, index: int, info: tensorinfo) -> None:
        """The shape of an input, its element type being the model's: now before prepare, else from the next run on."""
        self._loader.set_input_shape(index, info)

    @call
    def input_size(self) -> int:
        """The number of inputs."""
        return len(self._loader.inputs)

    @call
    def output_size(self) -> int:
        """The number of outputs."""
        return len(self._loader.outputs)

    @call
    def input_tensorinfo(self, index: int) -> tensorinfo:
        """An input: its element type, its shape (as set last) and how it is quantised."""
        return self._loader.input_info(index)

    @call
    def output_tensorinfo(self, index: int) -> tensorinfo:
        """An output: as the model says, after prepare as prepared, after a run as that run's was."""
        return self._output_info(index)

    def _output_info(self, index: int) -> tensorinfo:
        port = port_at(self._loader.outputs, index, "output")
        shapes = self._runner.output_shapes
        return port.describe((self._loader.output_shapes if shapes is None else shapes)[int(index)])

    @call
    def get_inputs_tensorinfo(self) -> list[tensorinfo]:
        """All inputs in order."""
        return [self._loader.input_info(index) for index in range(len(self._loader.inputs))]

    @call
    def get_outputs_tensorinfo(self) -> list[tensorinfo]:
        """All outputs in order."""
        return [self._output_info(index) for index in range(len(self._loader.outputs))]

    @call
    def input_tensorindex(self, name: str) -> int:
        """The first input with this name."""
        return index_of(self._loader.inputs, name, "input")

    @call
    def output_tensorindex(self, name: str) -> int:
        """The first output with this name."""
        return index_of(self._loader.outputs, name, "output")

    @call
    def configure_signature(self, name: str) -> None:
        """Run the subgraph of the signature ``name``."""
        self._loader.configure_signature(name)

    @call
    def set_prepare_config(self, config: str | int, value: str = "") -> None:
        """``ENABLE_INTERNAL_OUTPUT_ALLOC``: outputs without a buffer can be had from get_output; ``PROFILE``."""
        self._loader.prepare_configs.add(check_choice("prepare config", config, PREPARE_CONFIGS))

    @call
    def reset_prepare_config(self) -> None:
        """Take back every set_prepare_config."""
        self._loader.prepare_configs.clear()

    @call
    def prepare(self) -> None:
        """Choose backends and prepare every operator; after a failure it can be called again, with other choices.

        What was compiled on the device before is opened too, however long that takes; without this call, runs go on
        with the model itself until it is.
        """
        self._prepare()

    # Running.

    @call
    def set_signature_run(self, name: str) -> None:
        """Run another signature from now on; buffers and options of the one before are lost."""
        loader = self._loader.with_signature(name)
        with self._recorder.preparing():
            executor = loader.open()
        self._switcher.stop()
        self._serve(loader)
        self._switcher.begin(executor)

    @call
    def set_input(self, index: int, buffer: Any) -> None:
        """The array or bytes that the next runs read for an input; the size is checked when one starts.

        It is kept, not copied: what it holds then counts. None takes it away.
        """
        self._runner.set_input(index, buffer)

    @call
    def set_inputs(self, size: int, inputs_array: Sequence[Any] = ()) -> None:
        """Arrays for the first ``size`` inputs, converted to the model's element types; zeros for those left out."""
        self._runner.set_inputs(size, inputs_array)

    @call
    def set_output(self, index: int, buffer: Any) -> None:
        """The array that runs write an output to; it may be larger. None: take it away."""
        self._runner.set_output(index, buffer)

    @call
    def run(self) -> None:
        """Run the model on the inputs set; outputs go to the buffers set."""
        self._run()

    @call
    def run_async(self) -> None:
        """Start a run in a thread; until wait, buffers must stay as they are."""
        self._runner.start(self._core.state)

    @call
    def wait(self) -> None:
        """Wait for the end of run_async and raise what it raised."""
        ended = self._runner.wait()
        self._core.state = ended.before
        if ended.error is not None:
            raise ended.error
        self._runner.deliver(ended.outputs)

    @call
    def get_output(self, index: int) -> Array:
        """An output of the last run, which cannot be written; needs ENABLE_INTERNAL_OUTPUT_ALLOC or a buffer."""
        return self._runner.output(index)

    @overload
    def infer(self, inputs_array: Sequence[Any], *, measure: Literal[False] = ...) -> list[Array]: ...

    @overload
    def infer(self, inputs_array: Sequence[Any], *, measure: Literal[True]) -> tuple[list[Array], dict[str, float]]: ...

    @call
    def infer(
        self, inputs_array: Sequence[Any], *, measure: bool = False
    ) -> list[Array] | tuple[list[Array], dict[str, float]]:
        """The outputs for the inputs, as arrays that cannot be written; prepares the session when that is left to do.

        Arrays may have another size than a static dimension says; the model is run in that size, with a warning. With
        ``measure`` also the times in milliseconds: ``prepare_time_ms`` (of the call that prepares), ``input_time_ms``,
        ``run_time_ms`` and ``output_time_ms``. Raises InputError, which is a ValueError too for a wrong number.
        """
        if not measure and self._core.state is not State.MODEL_LOADED:
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
            self._core.enter("prepare", State.PREPARED)
            metrics["prepare_time_ms"] = 1000 * (time.perf_counter() - start - taken)
        self._runner.set_all_inputs(arrays)
        run = time.perf_counter()
        outputs = self._runner.compute()
        delivered = time.perf_counter()
        self._runner.deliver(outputs)
        if not measure:
            return self._runner.results
        metrics |= {"input_time_ms": 1000 * taken, "run_time_ms": 1000 * (delivered - run)}
        metrics["output_time_ms"] = 1000 * (time.perf_counter() - delivered)
        return self._runner.results, metrics

    # Watching.

    @call
    def set_execute_config(self, config: str | int, value: str = "") -> None:
        """``DUMP_MINMAX`` records ranges of all tensors, ``TRACE`` and ``PROFILE`` how long each operator takes."""
        self._recorder.add(config)

    @call
    def reset_execute_config(self) -> None:
        """Take back every set_execute_config; a trace or profile that was being made is written to the workspace."""
        self._recorder.reset()

    @call
    def save_trace(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the runs traced so far in the trace-event format; the default is trace.json in the workspace."""
        return self._recorder.save_trace(path)

    @call
    def save_profile(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the mean time of each operator as JSON; the default is profile.json in the workspace."""
        return self._recorder.save_profile(path)

    @call
    def delete_odc_minmax_file(self) -> None:
        """Delete what has been recorded of this model; raises SessionError when there is nothing."""
        self._recorder.forget_ranges()

    odc_delete_minmax_file = delete_odc_minmax_file

    # Exchanging the model.

    @call
    def set_quantization_type(self, quantization: str | int) -> None:
        """What quantize makes: a scheme such as ``int8``, or a name or number of the C API, such as ``U8_ASYM``."""
        self._exchange.set_scheme(quantization)

    @call
    def set_quantized_model_path(self, path: str | os.PathLike[str]) -> None:
        """Where quantize writes the quantised model."""
        self._exchange.quantized_path = Path(path)

    @call
    def set_codegen_model_path(self, path: str | os.PathLike[str]) -> None:
        """Where codegen writes; the default is beside the model, with the target's extension, else in the cache."""
        self._exchange.codegen_path = Path(path)

    @call
    def set_odc_param_minmax_records_count(self, count: int) -> None:
        """After how many recorded runs a session that compiles on the device starts to do so."""
        if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
            raise SessionError(f"the number of records is {count!r}, allowed are integers from 1")
        self._choices.settings["ODC_RECORDS"] = str(count)

    @call
    def quantize(self, *, io: str = "float", check: bool = True) -> None:
        """Quantise the model by what was recorded so far; the result is the session's model then, to be prepared.

        ``io`` "quantized" makes inputs and outputs integers, else they stay as they are. Raises OdcError and keeps the
        model when the type or path is not set, nothing was recorded, the model cannot be quantised, or, with ``check``,
        the result is not accurate enough; :attr:`verdict` says how accurate it is.
        """
        self._recorder.flush()
        self._adopt(source_from_path(self._exchange.quantize(self._loader, io=io, check=check)))

    @call
    def codegen(self, target: str, pref: str | int = Preference.DEFAULT) -> None:
        """Let the plugin for ``target``, such as ``npu-gen``, compile the model, whose place the result takes.

        ``pref``: ``DEFAULT``, ``PERFORMANCE_FIRST``, ``MEMORY_FIRST`` or ``COMPILE_TIME_FIRST``. Raises OdcError and
        keeps the model when anything fails.
        """
        check_target(target)
        self._adopt(source_from_path(self._exchange.codegen(self._loader, target, Preference.of(pref))))

    # Compiling on the device.

    @call
    def run_with_auto_compilation(self, target: str, pref: str | int = Preference.DEFAULT) -> None:
        """Run, and compile on the device behind that: the same as run with OnDeviceCompilation switched on.

        ``target`` is a plugin such as ``npu-gen``; what is made is also copied to the paths of set_quantized_model_path
        and set_codegen_model_path, where they are set.
        """
        check_target(target, InvalidStateError)
        self._switcher.compile_for(target, Preference.of(pref))
        self._run()

    @call
    def start_auto_compilation(self) -> None:
        """Start now, if enough has been recorded: what the trigger ``explicit`` waits for."""
        self._switcher.compiler().start()

    @call
    def retry_auto_compilation(self) -> None:
        """Try again what was rejected, whether in this process or an earlier one."""
        self._switcher.compiler().retry()

    @call
    def wait_for_auto_compilation(self, seconds: float | None = None) -> bool:
        """Wait until nothing works in the background, at most ``seconds``; whether that is so."""
        return self._switcher.compiler().wait(seconds)

    # The end.

    @call
    def close(self) -> None:
        """End the session: wait for a run under way, write what is being traced, and let go of the model."""
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

    apply_tensorinfo = deprecated("apply_tensorinfo")
    set_op_backend = deprecated("set_op_backend")
    prepare_pipeline = deprecated("prepare_pipeline")
    push_pipeline_input = deprecated("push_pipeline_input")
    pop_pipeline_output = deprecated("pop_pipeline_output")
