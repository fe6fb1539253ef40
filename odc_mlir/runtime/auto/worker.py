"""The compile process, started by :class:`odc_mlir.runtime.auto.jobs.Supervisor` with a job on standard input.

It quantises, checks and compiles a model, and stores the result or the reason for a failure in the cache. The worker
holds the lock of the result's key, limits time and memory, and ends when no session wants the result. It prints the
progress to standard output.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

from odc_mlir import errors
from odc_mlir.formats import private
from odc_mlir.formats.cache import CACHE_VARIABLE, content_digest
from odc_mlir.formats.package import install, read_package
from odc_mlir.plugins import codegen
from odc_mlir.plugins.registry import extension_of
from odc_mlir.process_limits import Limits, end_group
from odc_mlir.quantizer.policy.schemes import scheme as scheme_of
from odc_mlir.quantizer.policy.verdict import FAILED, UntoldError, describe
from odc_mlir.runtime.auto import artefacts, build
from odc_mlir.runtime.auto.aim import target_facts
from odc_mlir.runtime.auto.build import LEAST_GAIN, CoverageError
from odc_mlir.runtime.auto.jobs import TIMES_ENOUGH, Job, Milestone, progress_line
from odc_mlir.runtime.auto.settings import Level
from odc_mlir.runtime.auto.watch import Terms, seen_ranges

# A process with a smaller share of processor time was waiting, because the machine was busy or a call hung.
_BUSY_SHARE = 0.5
_PLUGIN_FACTS = len(("plugin", "version", "files"))  # number of facts of a target; facts of the machine follow
_NICENESS = 10  # the application has priority
# System messages of transient disk errors (full, over quota, read-only, damaged, no access). Any error may quote one.
_TRANSIENT = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES))
# Time that a process continues after the end of the session, because another session may want the result.
_RELEASED_SECONDS = 0.5
_INTEREST_SECONDS = 0.25
_UNWIND_SECONDS = 0.5
_DEFAULT_SCHEME = "int8"  # for targets without a preference


class _OutOfTimeError(Exception):
    pass


class _UnwantedError(BaseException):
    """No session wants the result any more."""


class _ChangedError(errors.ModelError):
    pass


class SlowerError(errors.OdcError):
    """The result is not significantly faster than the active executor."""


# Errors that the model does not cause: changed files, unsuitable inputs, damaged records or cache.
_NOT_OF_MODEL = (_ChangedError, errors.InputError, errors.SessionError, errors.RecordsError, errors.CacheError)


class Worker:
    """Worker for one job. It calls ``announce`` with each step."""

    def __init__(self, job: Job, announce: Callable[..., None]) -> None:
        self.job = job
        self.settings = job.settings
        self.announce = announce
        self.artefacts = artefacts.Artefacts(job.settings.folder)
        self.result = artefacts.JobResult(None, budget=job.budget)
        self._deadline = time.monotonic() + job.settings.timeout_seconds

    def run(self) -> None:
        """Do the job. Raise OdcError if storing fails, or for a temporary failure, which the supervisor stores."""
        job = self.job
        self.announce(Milestone.STARTED)
        with artefacts.file_lock(self.artefacts.lock_path(job.key), seconds=self.settings.timeout_seconds):
            self.announce(Milestone.LOCKED)
            found, _ = self.artefacts.find(job.key)
            if found is None or job.again or not artefacts.is_final(found.result, job.budget, time.time()):
                self._make(found)
            self.announce(Milestone.DONE)

    def _make(self, found: artefacts.Artefact | None) -> None:
        work = self.artefacts.new_folder(self.job.key)
        tempfile.tempdir = str(work)  # so a killed process leaves files only here
        os.chdir(work)
        try:
            try:
                self._fill(work, found)
            except MemoryError:
                self._refuse("memory", f"it needs more than {self.settings.memory_bytes >> 20} MB of memory")
            except _OutOfTimeError:
                kind = "time" if _used_seconds() > _BUSY_SHARE * self.settings.timeout_seconds else artefacts.PASSING
                self._refuse(kind, f"it takes longer than {self.settings.timeout_seconds:g} s")
            except (errors.TimeLimitError, errors.MemoryLimitError) as error:
                self._refuse("time" if isinstance(error, errors.TimeLimitError) else "memory", str(error))
            except SlowerError as error:
                self.result.level = None  # the quantised model on host kernels would also be slower
                self._refuse(artefacts.SLOWER, error.message)
            except CoverageError as error:
                self._refuse(artefacts.COVERAGE, error.message)
                # The failure is final until twice as many runs are recorded, or ``patience_runs``.
                runs, patience = max(1, 2 * self.job.runs - 1), self.job.patience_runs
                self.result.budget["runs"] = float(min(runs, patience - 1) if self.job.runs < patience else runs)
            except errors.OdcError as error:
                self._refuse(artefacts.PASSING if _is_transient(error) else _kind_of(error), str(error))
            except OSError as error:  # the disk is full, or another process has deleted a file
                self._refuse(artefacts.PASSING, str(error))
            if self.result.kind == artefacts.PASSING and self.result.level is None:
                raise errors.CompileError(self.result.reason or "", passing=True)
            if self.result.kind == artefacts.PASSING and found is not None:
                self.result.attempts += found.result.attempts
            self._commit(work)
        finally:
            os.chdir(os.sep)
            self.artefacts.sweep(self.job.key)

    def _refuse(self, kind: str, reason: str) -> None:
        result = self.result
        result.kind, result.reason = kind, reason
        result.attempts, result.failed_at = (1, time.time()) if kind == artefacts.PASSING else (0, 0.0)

    def _fill(self, work: Path, found: artefacts.Artefact | None) -> None:
        """Write the files of the result to the folder ``work``. After an error, the files so far stay.

        If the stored result ``found`` has a quantised model, reuse it: only later steps failed.
        """
        job, result = self.job, self.result
        if not os.path.exists(job.model):
            raise _ChangedError("the model file has been deleted since it was loaded", location=job.model)
        if content_digest(job.model) != job.digest:
            raise _ChangedError("the model file has changed since it was loaded", location=job.model)
        if target_facts(job.plugin, job.target[_PLUGIN_FACTS:]) != job.target:
            raise _ChangedError("the plugin or the machine has changed since the model was loaded")
        self.announce(Milestone.MODEL_READ)
        source = Path(job.model)
        result.verdict = job.verdict
        if job.direct:
            pass  # compile the float model
        elif found is not None and found.model is not None and not job.quantized:
            source = Path(shutil.copyfile(found.model, work / artefacts.MODEL_NAME))
            old = found.result
            result.level, result.scheme, result.verdict = str(Level.QUANTIZED), old.scheme, old.verdict
            result.seconds = dict(old.seconds)
        elif not job.quantized:
            source = work / artefacts.MODEL_NAME
            with self._timed("quantize"):
                self._quantize(source, None if found is None else found.result.verdict)
            result.level = str(Level.QUANTIZED)
        if job.fixed_shapes is not None:
            fixed = work / f"fixed-{artefacts.MODEL_NAME}"
            fixed.write_bytes(build.with_shapes(source, job.fixed_shapes))
            source = fixed
        result.stage = "compile"
        self.announce(Milestone.COMPILING)
        with self._timed("compile"):
            compiled = self._compile(source, work)
        self.announce(Milestone.COMPILED)
        if job.twin is not None:
            result.twin = self._compile_other(source, work, job.twin)
            if result.twin is None:
                result.notes[-1] = f"host kernels run in place of the simulator: {result.notes[-1]}"
        level = Level.DIRECT if job.direct else Level.COMPILED
        if job.must_be_faster:
            result.stage = "measure"
            self._measure(level, compiled, source, work)
            self.announce(Milestone.MEASURED)
        result.compiled, result.level, result.stage = compiled.name, str(level), None

    def _measure(self, level: Level, compiled: Path, source: Path, work: Path) -> None:
        """Raise SlowerError if the compiled model is slower than the active executor or than the competitor."""
        job, result = self.job, self.result
        shapes = tuple(map(tuple, job.shapes))
        rivals = {"original" if job.rival is None else "direct": Path(job.rival or job.model)}
        if job.competitor is not None and (made := self._compile_other(source, work, job.competitor)) is not None:
            rivals[job.competitor] = work / made
        inputs = build.recorded_inputs(Path(job.records), shapes)
        for rival, path in rivals.items():
            found = build.gained({rival: path, level: compiled}, shapes, inputs[-1] if inputs else None)
            result.latency_us |= {rival: round(found.before, 2), str(level): round(found.after, 2)}
            if not found.is_sure:
                name = f"the code of {rival}" if rival == job.competitor else f"the {rival} model"
                text = f"it takes {found.after:.1f} us here, {name} {found.before:.1f} us"
                if found.after < found.before:
                    text += f": that gain may be chance, or is less than {LEAST_GAIN:.0%}"
                raise SlowerError(text, stage="measure")

    def _quantize(self, output: Path, earlier: dict[str, Any] | None) -> None:
        """Write the quantised model to ``output``. ``earlier``: verdict of the previous result, if any."""
        job, result = self.job, self.result
        result.stage, result.verdict = "quantize", earlier
        scheme = result.scheme = self.settings.scheme or codegen.describe(job.plugin).quantization or _DEFAULT_SCHEME
        self.announce(Milestone.TARGET_ASKED, scheme=scheme)
        samples = build.recorded_inputs(Path(job.records), tuple(map(tuple, job.shapes)))
        if not samples and not scheme_of(scheme).weights_only:  # no stored input has these shapes
            raise CoverageError("no recorded input of these shapes is kept", stage="check")
        self.announce(Milestone.SAMPLES_READ, samples=len(samples))
        if job.patience_runs:
            wanted, channels = job.patience_runs // TIMES_ENOUGH, job.runs < job.patience_runs
            build.check_coverage(Path(job.model), samples, wanted=wanted, channels=channels)
        self.announce(Milestone.QUANTIZING)
        try:
            made = build.quantize(
                Path(job.model),
                scheme,
                samples=samples,
                records=Path(job.records),
                metric=self.settings.metric,
                limit=self.settings.limit,
                # The quantiser uses all the time that it gets. Compiling needs the other half.
                max_seconds=self.settings.timeout_seconds / 2,
                target=job.machine,
                states=job.states,
                progress=lambda text, done, total: self.announce("quantizer", text=text),
            )
        except UntoldError as error:  # other inputs may vary more
            raise CoverageError(error.message, stage="check") from None
        self.announce(Milestone.QUANTIZED)
        long = ("layers", "scheme", "float_reasons")
        result.stage, result.verdict = "check", {key: made.verdict[key] for key in made.verdict if key not in long}
        if made.verdict["status"] == FAILED:
            kind = errors.AccuracyError if made.verdict["samples"]["telling"] else CoverageError
            raise kind(f"the quantised model {describe(made.verdict)}", stage="check")
        if made.verdict.get("states") and not made.verdict.get("certain"):  # errors may grow over more runs
            text = f"{len(samples)} recorded runs do not determine how errors of the model's states add up"
            raise CoverageError(text, stage="check")
        was, now = ({item.name: item.answers for item in Terms.of(v, 0.0).outputs} for v in (earlier, made.verdict))
        for name in [name for name, answers in now.items() if was.get(name) and not answers]:
            text = f"output {name!r} counted as class scores before, but counts as numbers by the inputs recorded since"
            if job.runs < job.patience_runs:
                result.verdict = earlier
                raise CoverageError(text, stage="check")
            result.verdict["findings"].append(f"{text}; if it has class scores, set ODC_ACC_METRIC to top1")
        result.verdict["input_ranges"] = seen_ranges(samples)
        result.verdict["saturation"] = build.normal_saturation(made.model, samples)
        self.announce(Milestone.CHECKED)
        private.write_file(output, made.model)
        self.announce(Milestone.MODEL_KEPT)

    def _compile(self, source: Path, work: Path) -> Path:
        job = self.job
        made = work / f"{artefacts.COMPILED_STEM}.{extension_of(job.plugin)}"
        machine = {} if job.machine is None else {"target": job.machine}
        limits = Limits(max(0.1, self._deadline - time.monotonic()), self.settings.memory_bytes)
        return codegen.generate(
            source, job.plugin, made, preference=self.settings.preference, target_options=machine, limits=limits
        )

    def _compile_other(self, source: Path, work: Path, plugin: str) -> str | None:
        """Compile the model by another plugin and return the file's name. On failure, add a note and return None."""
        made = work / f"{artefacts.TWIN_STEM}.{extension_of(plugin)}"
        limits = Limits(max(0.1, self._deadline - time.monotonic()) / 2, self.settings.memory_bytes)
        try:
            return codegen.generate(source, plugin, made, preference=self.settings.preference, limits=limits).name
        except errors.OdcError as error:
            self.result.notes.append(str(error))
            return None

    def _commit(self, work: Path) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)  # the rest takes little time
        for entry in work.iterdir():  # files that the result does not name
            named = (artefacts.MODEL_NAME, self.result.compiled, self.result.twin)
            if entry.name not in named or self.result.level is None:
                artefacts.remove(entry)
        self.announce(Milestone.COMMITTING)
        tempfile.tempdir = None
        made = self.artefacts.commit(self.job.key, work, self.result)
        self.announce(Milestone.COMMITTED)
        if self.job.package is not None and made.compiled is not None:
            try:
                install(self.job.package, read_package(made.compiled))
                self.announce(Milestone.INSTALLED)
            except errors.OdcError as error:  # the cache still has the result
                self.announce("not installed", reason=str(error))
        kept = frozenset({self.job.key, Path(self.job.records).parent.name, Path(self.job.model).name})
        artefacts.prune(self.settings.folder, self.settings.cache_bytes, keep=kept)

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.result.seconds[name] = round(time.perf_counter() - start, 3)


def _is_transient(error: errors.OdcError) -> bool:
    return error.passing or isinstance(error, _NOT_OF_MODEL) or any(text in str(error) for text in _TRANSIENT)


def _used_seconds() -> float:
    import resource

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _kind_of(error: errors.OdcError) -> str:
    if isinstance(error, errors.AccuracyError):
        return "accuracy"
    return "unsupported" if isinstance(error, errors.UnsupportedError) else "failed"


def limit_resources(seconds: float, memory_bytes: int) -> None:
    """Limit the time and memory of this process, and lower the priority."""
    Limits(seconds, memory_bytes).hold_this_process()  # the alarm below needs the interpreter's lock

    def expired(_signal: int, _frame: FrameType | None) -> None:
        raise _OutOfTimeError

    def unwanted(_signal: int, _frame: FrameType | None) -> None:
        raise _UnwantedError

    signal.signal(signal.SIGTERM, unwanted)
    signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)


def end_when_unwanted(job: Job) -> None:
    """End this process when the session has closed or ended and no other session wants the result."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM])  # for the main thread
    os.read(0, 1)  # a byte or the end of the pipe
    time.sleep(_RELEASED_SECONDS)
    with contextlib.suppress(errors.OdcError):
        while artefacts.is_locked(job.interest_path):
            time.sleep(_INTEREST_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_UNWIND_SECONDS)
    end_group(os.getpgrp())


def main() -> int:
    """Do the job on standard input. Return 0 if the result is in the cache."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    job = Job.from_json(line.decode())
    os.umask(0o077)  # results and files of plugins are private
    os.environ[CACHE_VARIABLE] = str(job.settings.folder)  # compilations use the same cache
    stream = os.dup(1)
    os.dup2(2, 1)  # libraries' output must not mix with progress lines

    def announce(step: str, **facts: Any) -> None:
        with contextlib.suppress(OSError):  # the application may be gone
            os.write(stream, progress_line(step, **facts))

    limit_resources(job.settings.timeout_seconds, job.settings.memory_bytes)
    Thread(target=end_when_unwanted, args=(job,), daemon=True).start()
    try:
        Worker(job, announce).run()
    except _UnwantedError:
        return 1
    except _OutOfTimeError:  # raised before the work began
        announce("failed", reason="another process has been working on this model for too long", passing=True)
        return 1
    except (errors.OdcError, MemoryError) as error:
        text = str(error) or "it ran out of memory"
        announce("failed", reason=text, passing=isinstance(error, errors.OdcError) and _is_transient(error))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
