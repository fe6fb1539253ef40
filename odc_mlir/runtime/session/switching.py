"""Calls that compile on the device behind the application, and runs that something better may compute."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

from odc_mlir.errors import InputError, InvalidStateError, OdcError, SessionError
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Array
from odc_mlir.plugins.registry import SUFFIX
from odc_mlir.plugins.request import Preference
from odc_mlir.runtime.auto.status import AutoStatus, Fallback, Level, Phase
from odc_mlir.runtime.executor import Executor
from odc_mlir.runtime.plan import PlanExecutor
from odc_mlir.runtime.session.backends import NAMES, NPU
from odc_mlir.runtime.session.core import call
from odc_mlir.runtime.session.exchanging import ExchangingCalls
from odc_mlir.runtime.session.settings import ENABLE
from odc_mlir.runtime.session.source import model_bytes, model_path, without_installed
from odc_mlir.runtime.units import Observer

if TYPE_CHECKING:  # what compiles is loaded where something is to be compiled
    from odc_mlir.quantization.recorded import Shapes
    from odc_mlir.runtime.auto.controller import AutoCompiler
    from odc_mlir.runtime.auto.recording import RunRecorder
    from odc_mlir.runtime.auto.serving import Serving
    from odc_mlir.runtime.auto.settings import AutoSettings


class SwitchingCalls(ExchangingCalls):
    """Runs what compiling on the device has made, and the model itself where that fails.

    The user's call never fails because of it: every failure is a reason in :attr:`odc_status`. Only a strict session
    raises what made something better fail.
    """

    def __init__(self) -> None:
        self._auto: AutoCompiler | None = None
        self._auto_problem: str | None = None
        self._original: Executor | None = None
        super().__init__()

    def _forget_model(self) -> None:
        self._stop_compiling()
        super()._forget_model()
        self._original = None

    def _stop_compiling(self) -> None:
        """Let go of what works in the background; a process goes on, for the next session."""
        if self._auto is not None:
            self._auto.close()
        self._auto = self._auto_problem = None

    def _prepare(self) -> None:
        try:
            super()._prepare()
        except OdcError as error:
            before = None if self._strict else without_installed(self._model, error)
            if before is None:
                raise
            self._source = before
            super()._prepare()
        self._stop_compiling()
        self._original = self._executor
        if self._enabled and not self._is_compiled:
            self._compile_automatically(None, None)
        shapes = self._known_shapes()
        if self._auto is not None and shapes is not None:
            self._auto.open(shapes)

    @property
    def _enabled(self) -> bool:
        return self._settings.flag(ENABLE)

    @property
    def _is_compiled(self) -> bool:
        """Whether a compiled package is the model itself, and all of it works."""
        executor = self._original
        return isinstance(executor, PlanExecutor) and bool(executor.segments) and not executor.fallbacks

    def _compile_automatically(self, target: str | None, preference: Preference | None) -> None:
        """Begin to compile on the device, unless there is a reason not to."""
        from odc_mlir.runtime.auto.controller import AutoCompiler, Original
        from odc_mlir.runtime.auto.serving import Surroundings
        from odc_mlir.runtime.auto.settings import read_settings

        executor = self._original
        if executor is None:
            return
        try:
            settings = read_settings(self._settings.get, self._settings.flag)
            settings = self._adjusted(settings, target, preference)
            source = self._model
            package = source.path if source.package is not None and settings.update_package else None
            original = Original(
                executor,
                self.digest,
                model_path(source),
                lambda: model_bytes(source),
                package,
            )
            self._auto = AutoCompiler(
                original,
                settings,
                Surroundings(lambda: Context(custom_ops=self._custom_ops), self._max_bytes),
                forbidden=self._why_not(executor),
                save_to=(self._quantized_path, self._codegen_path),
                problem=self._model.problem,
            )
            # What was recorded is kept too when nobody closes the session.
            weakref.finalize(self, self._auto.recorder.flush)
        except OdcError as error:
            self._auto_problem = str(error)

    def _adjusted(self, settings: AutoSettings, target: str | None, preference: Preference | None) -> AutoSettings:
        """The settings with what calls of this session have chosen."""
        if target is not None and target != f"npu{SUFFIX}":
            settings = replace(settings, target=target)
        if preference is not None:
            settings = replace(settings, preference=preference)
        return settings if self._scheme is None else replace(settings, scheme=self._scheme)

    def _why_not(self, executor: Executor) -> str | None:
        """Why nothing may take this model's place, None where it may."""
        if executor.graph.subgraph != 0:
            return "only the first subgraph can be compiled"
        choice = self._choice()
        if choice.by_index or choice.by_kind:
            return "backends were chosen for single operators"
        order = choice.backends
        if order and NPU not in map(NAMES.get, order):
            return f"the backends {', '.join(order)} leave out {NPU}"
        return None

    @property
    def odc_status(self) -> AutoStatus:
        """How far compiling on the device is, what computes the answers, and why."""
        if self._auto is not None:
            return self._auto.status()
        status = AutoStatus(enabled=self._enabled)
        if self._auto_problem is not None:
            status.enabled, status.phase, status.reason = True, Phase.REJECTED, self._auto_problem
        elif isinstance(self._original, PlanExecutor) and self._source is not None and self._source.package is not None:
            plan = self._source.package.plan
            status.target = None if plan is None else plan.target
            status.fallbacks = [Fallback(f"segment {n}", "run", text) for n, text in self._original.fallbacks.items()]
            if self._is_compiled:
                status.phase, status.serving, status.progress = Phase.ACTIVE, Level.COMPILED, 1.0
                status.reason = "the package is compiled already"
        return status

    @call
    def run_with_auto_compilation(self, target: str, pref: str | int = Preference.DEFAULT) -> None:
        """Run, and compile on the device behind that: the same as run with OnDeviceCompilation switched on.

        ``target`` is a plugin such as ``npu-gen``; what is made is also copied to the paths of set_quantized_model_path
        and set_codegen_model_path, where they are set.
        """
        if not isinstance(target, str) or not target.endswith(SUFFIX) or len(target) <= len(SUFFIX):
            raise InvalidStateError(f"the target is {target!r}, expected <extension>{SUFFIX}, such as npu{SUFFIX}")
        preference = Preference.of(pref)
        if self._auto is None and self._auto_problem is None and not self._is_compiled:
            self._compile_automatically(target, preference)
        self._deliver(self._compute())

    @call
    def start_auto_compilation(self) -> None:
        """Start now, if enough has been recorded: what the trigger ``explicit`` waits for."""
        self._compiler().start()

    @call
    def retry_auto_compilation(self) -> None:
        """Try again what was rejected, whether in this process or an earlier one."""
        self._compiler().retry()

    @call
    def wait_for_auto_compilation(self, seconds: float | None = None) -> bool:
        """Wait until nothing works in the background, at most ``seconds``; whether that is so."""
        return self._compiler().wait(seconds)

    def _compiler(self) -> AutoCompiler:
        if self._auto is None:
            raise SessionError(
                self._auto_problem or "the session does not compile on the device", hint=f"set {ENABLE} to 1"
            )
        return self._auto

    # Running.

    def _execute(self) -> list[Array]:
        auto = self._auto
        if auto is None:
            return super()._execute()
        shapes = self._shapes_of_buffers()
        failed: list[tuple[Serving, OdcError]] = []
        for serving in auto.candidates(shapes):
            try:
                outputs = self._execute_by(serving)
            except OdcError as error:
                # Where the model itself fails as well, it is not what was made that is to blame.
                if serving is None or isinstance(error, InputError) or self._strict:
                    raise
                failed.append((serving, error))
                continue
            auto.answered(shapes, serving, failed)
            return outputs
        raise SessionError("nothing is there to run")

    def _execute_by(self, serving: Serving | None) -> list[Array]:
        """One run by ``serving``, or by the model itself."""
        executor = self._original if serving is None else serving.executor
        if executor is not None and executor is not self._executor:
            infos = (*executor.graph.input_infos(), *executor.graph.output_infos())
            for port, info in zip((*self._inputs, *self._outputs), infos, strict=True):
                port.bind(info)
            self._executor = executor
        if serving is not None and not serving.proven:
            serving.prove(self._gather())
        return super()._execute()

    def _run_observed(self, executor: Executor, arrays: list[Array], observe: Observer | None) -> list[Array]:
        auto = self._auto if executor is self._original else None
        if auto is not None and auto.wants_records(tuple(array.shape for array in arrays)):
            return auto.recorder.run(executor, arrays, observe)
        return super()._run_observed(executor, arrays, observe)

    def _new_recorder(self, executor: Executor) -> RunRecorder:
        return super()._new_recorder(executor) if self._auto is None else self._auto.recorder

    def _known_shapes(self) -> Shapes | None:
        """Those of the inputs as they are declared or set; None where a dimension is not known."""
        shapes = [self._input_shapes.get(index, port.static_shape) for index, port in enumerate(self._inputs)]
        known = tuple(shape for shape in shapes if shape is not None)
        return known if len(known) == len(shapes) else None

    def _shapes_of_buffers(self) -> Shapes:
        """Those of the inputs of the run that begins; raises InputError where one has no buffer."""
        shapes = self._known_shapes()
        if shapes is not None:
            return shapes
        return tuple(array.shape for array in self._gather())
