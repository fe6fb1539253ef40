"""Chooses what computes each answer of a session: the model itself, or what compiling on the device has made of it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from odc_mlir.errors import InputError, OdcError, SessionError
from odc_mlir.ops.spec import Array
from odc_mlir.plugins.registry import SUFFIX
from odc_mlir.plugins.request import Preference
from odc_mlir.plugins.target import choose
from odc_mlir.runtime.auto.aim import AUTO
from odc_mlir.runtime.auto.status import AutoStatus, Fallback, Level, Phase
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.plan import PlanExecutor
from odc_mlir.runtime.execution.units import Watcher
from odc_mlir.runtime.session.backends import CPU, NAMES, NPU
from odc_mlir.runtime.session.exchange import Exchange
from odc_mlir.runtime.session.fitting import Fitted
from odc_mlir.runtime.session.loader import Loader
from odc_mlir.runtime.session.recorder import SessionRecorder
from odc_mlir.runtime.session.settings import ENABLE
from odc_mlir.runtime.session.source import model_bytes, model_path

if TYPE_CHECKING:  # what compiles is loaded where something is to be compiled
    from odc_mlir.runtime.auto.aim import Aim
    from odc_mlir.runtime.auto.candidates import ExecutorCandidate
    from odc_mlir.runtime.auto.controller import AutoCompiler
    from odc_mlir.runtime.auto.settings import AutoSettings
    from odc_mlir.runtime.auto.watch import Watch


class Switcher:
    """Runs what compiling on the device has made of the loader's model, and the model itself where that fails.

    The user's call never fails because of it: every failure is a reason in :meth:`status`. Only a strict session raises
    what made something better fail. ``exchange`` says what the session's calls have chosen; ``recorder`` lets run.
    ``auto`` is there once something is compiled for.
    """

    def __init__(self, loader: Loader, recorder: SessionRecorder, exchange: Exchange) -> None:
        self.auto: AutoCompiler | None = None
        self._loader = loader
        self._recorder = recorder
        self._exchange = exchange
        self._problem: str | None = None
        self._original: Fitted | None = None
        self._recent: Fitted | None = None  # what stood in last

    # Compiling.

    def begin(self, executor: Executor, *, in_run: bool = False) -> None:
        """``executor`` is the model itself; compiling begins where it is switched on. Raises SessionError.

        ``in_run``: nobody may wait long for what was made before.
        """
        original = Fitted(executor, self._loader.inputs, self._loader.outputs)
        self.stop()
        self._original = original
        if self._enabled and not self._is_compiled:
            self._compile(None, None)
        shapes = self._loader.known_input_shapes
        if self.auto is not None and shapes is not None:
            self.auto.open(shapes, in_run=in_run)

    def stop(self) -> None:
        """Let go of what works in the background; a process goes on, for the next session."""
        self._recorder.share(None)
        if self.auto is not None:
            self.auto.close()
        if self._original is not None:
            self._original.executor.close()
        self.auto = self._problem = None

    def compile_for(self, target: str, preference: Preference) -> None:
        """Compile for ``target`` behind the runs, unless something is compiled already."""
        if self.auto is None and self._problem is None and not self._is_compiled:
            self._compile(target, preference)

    def compiler(self) -> AutoCompiler:
        """What compiles; raises SessionError when nothing does."""
        if self.auto is None:
            raise SessionError(self._problem or "the session does not compile on the device", hint=f"set {ENABLE} to 1")
        return self.auto

    @property
    def _enabled(self) -> bool:
        return self._loader.settings.flag(ENABLE)

    @property
    def _is_compiled(self) -> bool:
        """Whether a compiled package is the model itself, and all of it works."""
        executor = None if self._original is None else self._original.executor
        return isinstance(executor, PlanExecutor) and bool(executor.segments) and not executor.fallbacks

    def _compile(self, target: str | None, preference: Preference | None) -> None:
        """Begin to compile on the device, unless there is a reason not to."""
        from odc_mlir.runtime.auto.aim import aim_at
        from odc_mlir.runtime.auto.candidates import ExecutorOptions
        from odc_mlir.runtime.auto.controller import AutoCompiler
        from odc_mlir.runtime.auto.original import Original
        from odc_mlir.runtime.auto.settings import read_settings

        if self._original is None:
            return
        executor, loader = self._original.executor, self._loader
        try:
            settings = read_settings(loader.settings.get, loader.settings.flag)
            settings = self._adjusted(settings, target, preference)
            source = loader.source
            package = source.path if source.package is not None and settings.update_package else None
            original = Original(executor, loader.digest, model_path(source), lambda: model_bytes(source), package)
            try:
                aim, why = aim_at(settings.target, lambda: original.file(settings.folder)), None
            except OdcError as error:
                aim, why = None, str(error)
            self.auto = AutoCompiler(
                original,
                settings,
                aim,
                ExecutorOptions(loader.choices.context, loader.choices.max_bytes, loader.settings.threads),
                forbidden=self._why_not(executor, aim) or why,
                save_to=(self._exchange.quantized_path, self._exchange.codegen_path),
                problem=source.problem,
                notes=(*loader.settings.ignored, *(() if aim is None else aim.passed_over)),
            )
        except OdcError as error:
            self._problem = str(error)
            return
        self._recorder.share(self.auto.recorder)

    def _adjusted(self, settings: AutoSettings, target: str | None, preference: Preference | None) -> AutoSettings:
        """The settings with what calls of this session have chosen."""
        if target is not None and (settings.target == AUTO or choose(settings.target).codegen != target):
            settings = replace(settings, target=target)
        if preference is not None:
            settings = replace(settings, preference=preference)
        scheme = self._exchange.scheme
        return settings if scheme is None else replace(settings, scheme=scheme)

    def _why_not(self, executor: Executor, aim: Aim | None) -> str | None:
        """Why nothing may take this model's place, None where it may."""
        if executor.graph.subgraph != 0:
            return "only the first subgraph can be compiled"
        choice = self._loader.choice
        if choice.by_index or choice.by_kind:
            return "backends were chosen for single operators"
        order = choice.backends
        wanted = CPU if aim is not None and aim.plugin == f"{CPU}{SUFFIX}" else NPU  # it is a CPU that code runs on
        if order and wanted not in order and NPU not in map(NAMES.get, order):
            return f"the backends {', '.join(order)} leave out {wanted}"
        return None

    def status(self) -> AutoStatus:
        """How far compiling on the device is, what computes the answers, and why."""
        if self.auto is not None:
            return self.auto.status()
        status = AutoStatus(enabled=self._enabled, notes=self._loader.settings.ignored)
        executor = None if self._original is None else self._original.executor
        package = self._loader.source.package if isinstance(executor, PlanExecutor) else None
        if self._problem is not None:
            status.enabled, status.phase, status.reason = True, Phase.REJECTED, self._problem
        elif isinstance(executor, PlanExecutor) and package is not None:
            status.target = None if package.plan is None else package.plan.target
            status.fallbacks = [Fallback(f"segment {n}", "run", text) for n, text in executor.fallbacks.items()]
            if self._is_compiled:
                status.phase, status.serving, status.progress = Phase.ACTIVE, Level.COMPILED, 1.0
                status.reason = "the package is compiled already"
            elif not executor.segments:
                why = "" if package.plan is None else "; ".join(dict.fromkeys(package.plan.host_reasons.values()))
                status.reason = f"nothing in the package is for {status.target}: {why}"
        return status

    # Running.

    def run(self, arrays: list[Array]) -> list[Array]:
        """The outputs for ``arrays``, both in the user's element types; raises OdcError."""
        auto, original = self.auto, self._original
        if original is None:
            raise SessionError("the session is not prepared")
        if auto is None:
            return self._by(original, arrays, is_original=True)
        settled, admitted = auto.settled(arrays), None
        if settled is not None:
            watch = None if settled.level is Level.DIRECT else auto.watch
            admitted = watch is None or watch.admits(settled.executor, arrays)
            if admitted and (found := self._tried(watch, self._fitted(settled), arrays)) is not None:
                return found
        failed: list[tuple[ExecutorCandidate, OdcError]] = []
        shapes = tuple([array.shape for array in arrays])
        for candidate in auto.candidates(arrays, admitted=admitted):
            try:
                if candidate is None:
                    wanted = auto.wants_records(shapes)
                    outputs = self._by(original, arrays, is_original=True, wanted=wanted)
                else:
                    fitted = self._fitted(candidate)
                    if not candidate.proven and not self._loader.choices.strict:
                        auto.prove(shapes, candidate, fitted.encoded(arrays))
                        continue
                    if not candidate.proven:
                        candidate.prove(fitted.encoded(arrays))
                    watch = None if candidate.level is Level.DIRECT else auto.watch
                    outputs = self._by_candidate(watch, fitted, arrays)
            except OdcError as error:
                # Where the model itself fails as well, it is not what was made that is to blame.
                if candidate is None or isinstance(error, InputError) or self._loader.choices.strict:
                    raise
                failed.append((candidate, error))
                continue
            auto.answered(shapes, candidate, failed, lambda: original.encoded(arrays))
            return outputs
        raise SessionError("there is nothing to run")

    def _tried(self, watch: Watch | None, fitted: Fitted, arrays: list[Array]) -> list[Array] | None:
        """One run; None where it fails and others can answer."""
        try:
            return self._by_candidate(watch, fitted, arrays)
        except OdcError as error:
            if isinstance(error, InputError) or self._loader.choices.strict:
                raise
        return None

    def _fitted(self, candidate: ExecutorCandidate) -> Fitted:
        fitted = self._recent
        if fitted is None or fitted.executor is not candidate.executor:
            fitted = self._recent = Fitted(candidate.executor, self._loader.inputs, self._loader.outputs)
        return fitted

    def _by_candidate(self, watch: Watch | None, fitted: Fitted, arrays: list[Array]) -> list[Array]:
        """One run by what has been proven, which is watched."""
        if watch is None:
            return self._by(fitted, arrays, is_original=False)
        start = time.perf_counter()
        outputs = self._by(fitted, arrays, is_original=False, watch=watch.counter(fitted.executor))
        watch.answered(arrays, outputs, time.perf_counter() - start)
        return outputs

    def _by(
        self,
        fitted: Fitted,
        arrays: list[Array],
        *,
        is_original: bool,
        wanted: bool = False,
        watch: Watcher | None = None,
    ) -> list[Array]:
        outputs = self._recorder.run(
            fitted.executor, fitted.encoded(arrays), is_original=is_original, wanted=wanted, watch=watch
        )
        return fitted.decoded(outputs)
