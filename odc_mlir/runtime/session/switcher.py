"""Selection of the executor that answers each run: the original model, or a result of on-device compilation."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from odc_mlir.errors import InputError, OdcError, SessionError
from odc_mlir.formats.cache import records_path
from odc_mlir.formats.states import StatePair, others, places_of
from odc_mlir.ops.spec import Array
from odc_mlir.plugins.registry import DEVICES, SUFFIX, TARGETS, entries
from odc_mlir.plugins.request import Preference
from odc_mlir.plugins.target import choose
from odc_mlir.runtime.auto.aim import AUTO
from odc_mlir.runtime.auto.settings import AutoStatus, Fallback, Level, Phase, simulated_note
from odc_mlir.runtime.devices import open_device
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.plan import PlanExecutor
from odc_mlir.runtime.execution.units import DirectRun, Watcher
from odc_mlir.runtime.session.loader import CPU, NAMES, NPU, Exchange, Loader, model_bytes, model_path
from odc_mlir.runtime.session.runner import SessionRecorder
from odc_mlir.runtime.session.settings import ENABLE
from odc_mlir.runtime.session.tensors import Fitted

if TYPE_CHECKING:  # loaded only by sessions that compile, after their first answer
    from odc_mlir.runtime.auto.aim import Aim
    from odc_mlir.runtime.auto.background import Background
    from odc_mlir.runtime.auto.candidates import ExecutorCandidate
    from odc_mlir.runtime.auto.controller import AutoCompiler
    from odc_mlir.runtime.auto.recording import RecordsLocation, RunRecorder
    from odc_mlir.runtime.auto.settings import AutoSettings
    from odc_mlir.runtime.auto.watch import Watch

_log = logging.getLogger(__name__)

_Shapes = tuple[tuple[int, ...], ...]

# Delay before a thread opens the compiler, because the thread and the first run compete for the interpreter's lock.
_PAUSE_SECONDS = 0.03
# Longest wait of the first status for the compiler to open.
_STATUS_SECONDS = 1.0
# Number of recorded runs of a model with states. A certain verdict on roll-outs needs about 200 consecutive runs, and
# more if consecutive runs are alike, as with caches. The store keeps _MOST_FRAMES runs.
_FRAMES, _MOST_FRAMES = 256, 1024


class LazyCompiler:
    """The compiler of a session. It opens after the first answers of the original model, which are recorded.

    A thread calls ``make``, which imports the compiler and finds the target. Then the thread looks for stored results.
    ``auto``: the compiler, or None before it is open and if ``make`` returns None.
    """

    def __init__(
        self, make: Callable[[], AutoCompiler | None], recorder: RunRecorder, background: Background, *, records: bool
    ) -> None:
        self.auto: AutoCompiler | None = None
        self.recorder = recorder
        self.records = records
        self._make = make
        self._background = background
        self._answered: dict[_Shapes, list[Array] | None] = {}
        self._process: int | None = None  # the process whose thread opens the compiler
        self._is_closed = False
        self._status_deadline = time.monotonic() + _STATUS_SECONDS
        # Records are stored even if the session is never closed.
        weakref.finalize(self, recorder.hand_over)

    def begin(self, shapes: _Shapes | None = None) -> None:
        """Begin to open the compiler. Look first for results for inputs of ``shapes``."""
        if shapes is not None:
            self._answered.setdefault(shapes, None)
        if self._process != os.getpid() and self.auto is None:  # a forked child has no thread of its parent
            self._process = os.getpid()
            self._background.submit(self._open, always=True)

    def answered(self, shapes: _Shapes, inputs: Callable[[], Sequence[Array]]) -> None:
        """Record an answer to ``inputs`` by the original model."""
        if self._answered.get(shapes) is None:
            self._answered[shapes] = [np.array(value) for value in inputs()]
        if self.auto is not None:  # the compiler has just been opened
            self._hand_over(self.auto)
        else:
            self.begin()

    def finish(self) -> None:
        """Wait until the compiler and stored results are open."""
        self.begin()
        self._background.hurry.set()
        self._background.wait(None)

    def wait_for_status(self) -> None:
        """Wait a short time, once, so that the first status can report results."""
        if self.auto is None and self._process == os.getpid():
            self._background.hurry.set()
            self._background.wait(max(0.0, self._status_deadline - time.monotonic()))

    def close(self) -> None:
        """Store the records and close the compiler, even while it opens."""
        self._is_closed = True
        self.recorder.finish()
        if self.auto is not None:
            self.auto.close()

    def _open(self) -> None:
        self._background.hurry.wait(_PAUSE_SECONDS)
        self._background.hurry.clear()
        auto = None if self._is_closed else self._make()
        if auto is None:
            return
        self._hand_over(auto)
        self.auto = auto  # from here on, answers go directly to the compiler
        self._hand_over(auto)
        if self._is_closed:
            auto.close()

    def _hand_over(self, auto: AutoCompiler) -> None:
        with suppress(KeyError):  # raised when no answer is left
            while True:
                shapes, inputs = self._answered.popitem()
                auto.open(shapes)
                if inputs is not None:
                    auto.answered(shapes, None, (), partial(list, inputs))


class CarriedStates:
    """States that the session passes from run to run, so that stateless results can replace a model with states.

    ``store``: the executor of the model with states, which keeps the states between runs. ``loader`` has the same model
        with states as inputs and outputs (``pairs``), and ``executor`` runs it. If types of states differ, every run
        converts states.
    """

    def __init__(self, loader: Loader, store: Executor) -> None:
        self.store = store
        self.loader = loader.without_states()
        self.executor = self.loader.open()
        graph, kept = self.executor.graph, store.graph.states
        self.pairs = pairs = [StatePair(graph.tensors[state.output].name, state.name) for state in kept]
        names = ([info.name for info in infos] for infos in (graph.input_infos(), graph.output_infos()))
        positions = dict(zip((state.name for state in kept), places_of(pairs, *names), strict=True))
        self._inputs = {name: position for name, (_, position) in positions.items()}
        self._outputs = {name: position for name, (position, _) in positions.items()}

    @classmethod
    def of(cls, loader: Loader, executor: Executor) -> CarriedStates | None:
        """Return the states of the loader's model, including variables, or None for none and for unsupported ones."""
        has_variables = any(item.node.spec.name == "VAR_HANDLE" for item in executor.graph.nodes)
        if not (executor.graph.states or has_variables):
            return None
        from odc_mlir.runtime.auto.aim import why_not

        with suppress(OdcError):
            if has_variables:
                loader, held = loader.with_lifted_variables(), executor.get_states()
                executor = loader.open()
                executor.set_states(held)
            carried = cls(loader, executor)
            return carried if why_not(carried.executor.graph) is None else None
        return None

    def run(self, run: Callable[[list[Array]], list[Array]], arrays: list[Array]) -> list[Array]:
        """Call ``run`` on ``arrays`` and the states, and keep the new states. An error does not change the states."""
        states, rest = self.store.get_states(), iter(arrays)
        by_position = {position: states[name] for name, position in self._inputs.items()}
        count = len(self.executor.graph.inputs)
        outputs = run([by_position[position] if position in by_position else next(rest) for position in range(count)])
        self.store.set_states({name: outputs[position] for name, position in self._outputs.items()})
        return list(others(outputs, self._outputs.values()))


class Switcher:
    """Execution of the results of on-device compilation, and of the original model if these fail.

    A failure of a result does not fail the user's call, except in a strict session. :meth:`status` reports it.
    ``exchange`` has the settings from calls of the session. ``recorder`` runs executors.
    """

    def __init__(self, loader: Loader, recorder: SessionRecorder, exchange: Exchange) -> None:
        self._loader = loader
        self._recorder = recorder
        self._exchange = exchange
        self._lazy: LazyCompiler | None = None
        self._problem: str | None = None
        self._original: Fitted | None = None
        self._carried: CarriedStates | None = None
        self._recent: Fitted | None = None  # the result that ran last

    @property
    def original(self) -> Executor:
        """The executor of the original model, which holds the model's state."""
        assert self._original is not None, "the session is prepared"
        return self._original.executor if self._carried is None else self._carried.store

    # Compiling.

    @property
    def auto(self) -> AutoCompiler | None:
        """The compiler once it is open, else None."""
        return None if self._lazy is None else self._lazy.auto

    def begin(self, executor: Executor, *, in_run: bool = False) -> None:
        """Use ``executor``, the original model, and begin on-device compilation if it is enabled. Raises SessionError.

        If ``in_run`` is false, wait until stored results are open. Do not wait if plugins need a probe.
        """
        if self._enabled and not isinstance(executor, PlanExecutor):
            self._carried = CarriedStates.of(self._loader, executor)
            if self._carried is not None:
                self._loader, executor = self._carried.loader, self._carried.executor
        original = Fitted(executor, self._loader.inputs, self._loader.outputs)
        self.stop()
        self._original = original
        if not self._enabled or self._is_compiled:
            return
        from odc_mlir.runtime.auto.settings import compiles_before_first_run

        lazy = self._lazy = self._lazy_compiler(None, None)
        waits = compiles_before_first_run(self._loader.settings.get)
        plugins = [*entries(DEVICES), *entries(TARGETS)]
        if waits or not (in_run or any(not source.is_ours for source in plugins)):
            lazy.begin(self._loader.known_input_shapes)
            lazy.finish()
        if waits and lazy.auto is not None:
            lazy.auto.wait()

    def stop(self) -> None:
        """Close the compiler and store the records."""
        self._recorder.share(None)
        if self._lazy is not None:
            self._lazy.close()
        if self._original is not None:
            self._original.executor.close()
        self._lazy = self._problem = None

    def compile_for(self, target: str, preference: Preference) -> None:
        """Compile for ``target`` in the background if no compilation has started yet."""
        if self._lazy is None and self._original is not None and not self._is_compiled:
            self._lazy = self._lazy_compiler(target, preference)

    def compiler(self) -> AutoCompiler:
        """Wait until the compiler is open and return it. Raises SessionError if there is none."""
        if self._lazy is not None and self._lazy.auto is None:
            self._lazy.finish()
        if self.auto is None:
            raise SessionError(self._problem or "the session does not compile on the device", hint=f"set {ENABLE} to 1")
        return self.auto

    @property
    def _enabled(self) -> bool:
        return self._loader.settings.flag(ENABLE)

    @property
    def _is_compiled(self) -> bool:
        executor = None if self._original is None else self._original.executor
        return isinstance(executor, PlanExecutor) and bool(executor.segments) and not executor.fallbacks

    def _lazy_compiler(self, target: str | None, preference: Preference | None) -> LazyCompiler:
        from odc_mlir.runtime.auto.aim import is_quantized, why_not
        from odc_mlir.runtime.auto.background import Background, weakly
        from odc_mlir.runtime.auto.recording import RunRecorder

        assert self._original is not None, "nothing is compiled without a model"
        graph, make = self._original.executor.graph, weakly(self._make_compiler)
        location = partial(
            _records_location, self._loader, **({} if self._carried is None else {"max_inputs": _MOST_FRAMES})
        )
        recorder, background = RunRecorder(graph, location), Background("odc-auto")
        self._recorder.share(recorder)
        return LazyCompiler(
            lambda: make(target, preference, recorder, background),
            recorder,
            background,
            records=not is_quantized(graph) and why_not(graph) is None,
        )

    def _make_compiler(
        self, target: str | None, preference: Preference | None, recorder: RunRecorder, background: Background
    ) -> AutoCompiler | None:
        """Return the compiler, or keep the error and return None. Runs in a background thread."""
        try:
            return self._compiler_for(target, preference, recorder, background)
        except OdcError as error:
            self._problem = str(error)
        except BaseException as error:  # a plugin may raise anything, including SystemExit
            _log.exception("on-device compilation cannot start")
            self._problem = f"{type(error).__name__}: {error}"
        return None

    def _compiler_for(
        self, target: str | None, preference: Preference | None, recorder: RunRecorder, background: Background
    ) -> AutoCompiler:
        from odc_mlir.runtime.auto.aim import ExecutorOptions, Original, aim_at
        from odc_mlir.runtime.auto.controller import AutoCompiler
        from odc_mlir.runtime.auto.settings import read_settings

        assert self._original is not None, "nothing is opened without a model"
        executor, loader = self._original.executor, self._loader
        settings = read_settings(loader.settings.get, loader.settings.flag)
        settings = self._adjusted(settings, target, preference)
        source = loader.source
        package = source.path if source.package is not None and settings.update_package else None
        states = () if self._carried is None else self._carried.pairs
        original = Original(executor, loader.digest, model_path(source), lambda: model_bytes(source), package, states)
        try:
            aim, why = aim_at(settings.target, lambda: original.file(settings.folder)), None
        except OdcError as error:
            aim, why = None, str(error)
        return AutoCompiler(
            original,
            settings,
            aim,
            ExecutorOptions(loader.context, loader.choices.max_bytes, settings.folder),
            recorder,
            background,
            forbidden=self._why_not(executor, aim) or why,
            save_to=(self._exchange.quantized_path, self._exchange.codegen_path),
            problem=source.problem or next(iter(executor.fallbacks.values()), None),
            notes=(*loader.settings.ignored, *(() if aim is None else aim.passed_over)),
        )

    def _adjusted(self, settings: AutoSettings, target: str | None, preference: Preference | None) -> AutoSettings:
        if target is not None and (settings.target == AUTO or choose(settings.target).codegen != target):
            settings = replace(settings, target=target)
        if preference is not None:
            settings = replace(settings, preference=preference)
        if self._carried is not None:
            settings = replace(settings, records=max(settings.records, _FRAMES))
        scheme = self._exchange.scheme
        return settings if scheme is None else replace(settings, scheme=scheme)

    def _why_not(self, executor: Executor, aim: Aim | None) -> str | None:
        if executor.graph.subgraph != 0:
            return "only the first subgraph can be compiled"
        if self._loader.by_index or self._loader.settings.op_backends():
            return "backends were chosen for single operators"
        order = self._loader.backends
        wanted = CPU if aim is not None and aim.plugin == f"{CPU}{SUFFIX}" else NPU  # native code runs on the CPU
        if order and wanted not in order and NPU not in map(NAMES.get, order):
            return f"the backends {', '.join(order)} leave out {wanted}"
        return None

    def status(self) -> AutoStatus:
        """Return the progress of on-device compilation, the current executor, and reasons."""
        if self._lazy is not None:
            self._lazy.wait_for_status()
        if self.auto is not None:
            return self.auto.status()
        status = AutoStatus(enabled=self._enabled, notes=self._loader.settings.ignored)
        executor = None if self._original is None else self._original.executor
        package = self._loader.source.package if isinstance(executor, PlanExecutor) else None
        if self._problem is not None:
            status.enabled, status.phase, status.reason = True, Phase.REJECTED, self._problem
        elif self._lazy is not None:
            status.reason = "the compiler is opening"
        elif executor is None and (plan := self._loader.unopened_plan) is not None:
            status.phase, status.serving, status.progress = Phase.ACTIVE, Level.COMPILED, 1.0
            status.target, status.reason = plan.target, "the package is compiled already; the first run opens it"
        elif isinstance(executor, PlanExecutor) and package is not None:
            status.target = None if package.plan is None else package.plan.target
            status.fallbacks = [Fallback(f"segment {n}", "run", text) for n, text in executor.fallbacks.items()]
            status.fallbacks += [
                Fallback(f"segment {unit.step.name}", "run", unit.misfit) for unit in executor.segments if unit.misfit
            ]
            if self._is_compiled:
                status.phase, status.progress = Phase.ACTIVE, 1.0
                status.serving = Level.ORIGINAL if all(unit.misfit for unit in executor.segments) else Level.COMPILED
                status.reason = "the package is compiled already"
                counted = [unit.counters.get("cycles") for unit in executor.segments if unit.counters is not None]
                status.cycles = sum(filter(None, counted)) or None
                if open_device(executor.plan.extension).simulated:
                    status.notes = [*status.notes, simulated_note(status.target, "the simulator")]
            elif not executor.segments:
                why = "" if package.plan is None else "; ".join(dict.fromkeys(package.plan.host_reasons.values()))
                status.reason = f"nothing in the package is for {status.target}: {why}"
        return status

    # Running.

    def run(self, arrays: list[Array]) -> list[Array]:
        """Run on ``arrays``, return outputs. Arrays and outputs have the user's element types. Raises OdcError."""
        return self._run(arrays) if self._carried is None else self._carried.run(self._run, arrays)

    def direct(self) -> DirectRun | None:
        """Return the call of machine code that equals :meth:`run`, or None if anything else is necessary."""
        original = self._original
        if original is None or self._lazy is not None or self._carried is not None or self._recorder.is_measuring:
            return None
        return original.executor.direct if original.is_plain else None

    def _run(self, arrays: list[Array]) -> list[Array]:
        lazy, original = self._lazy, self._original
        if original is None:
            raise SessionError("the session is not prepared")
        if lazy is None:
            return self._by(original, arrays, is_original=True)
        auto = lazy.auto
        if auto is None:
            outputs = self._by(original, arrays, is_original=True, wanted=lazy.records)
            lazy.answered(tuple([array.shape for array in arrays]), lambda: original.encoded(arrays))
            return outputs
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
                    if not candidate.verified and not self._loader.choices.strict:
                        auto.verify(shapes, candidate, fitted.encoded(arrays))
                        continue
                    if not candidate.verified:
                        candidate.verify(fitted.encoded(arrays))
                    watch = None if candidate.level is Level.DIRECT else auto.watch
                    outputs = self._by_candidate(watch, fitted, arrays)
            except OdcError as error:
                # If the original model also fails, the result is not the cause.
                if candidate is None or isinstance(error, InputError) or self._loader.choices.strict:
                    raise
                failed.append((candidate, error))
                continue
            auto.answered(shapes, candidate, failed, lambda: original.encoded(arrays))
            return outputs
        raise SessionError("there is nothing to run")

    def _tried(self, watch: Watch | None, fitted: Fitted, arrays: list[Array]) -> list[Array] | None:
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


def _records_location(loader: Loader, **options: int) -> RecordsLocation:
    from odc_mlir.runtime.auto.recording import RecordsLocation
    from odc_mlir.runtime.auto.settings import read_cache

    folder, limit_bytes = read_cache(loader.settings.get)
    return RecordsLocation(loader.digest, records_path(loader.digest, folder), folder, limit_bytes, **options)
