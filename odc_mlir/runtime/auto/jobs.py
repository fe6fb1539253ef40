"""Compile jobs: description, progress protocol, and supervision of compile processes."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType
from typing import IO, Any

from odc_mlir._version import __version__
from odc_mlir.calibration.recorded import Shapes
from odc_mlir.errors import CompileError, is_passing
from odc_mlir.plugins.isolation import isolated_command, isolated_environment
from odc_mlir.plugins.request import Preference
from odc_mlir.process_limits import ONE_BLAS_THREAD, end_group, signal_name
from odc_mlir.runtime.auto.artefacts import PASSING, Artefacts, is_final, make_key, try_lock, unlock
from odc_mlir.runtime.auto.settings import AutoSettings, Phase, Trigger
from odc_mlir.runtime.forks import mend_after_fork

# Time after the deadline at which a worker is killed. A worker ends by itself if it does not hang in compiled code.
_GRACE_SECONDS = 5.0
_CHUNK_BYTES = 1 << 16
_POLL_SECONDS = 0.1
_LOOK_SECONDS = 0.5  # interval of checks whether a silent process has ended or is past its deadline
_TAIL_LINES = 3
_WORKER = "odc_mlir.runtime.auto.worker"


class Milestone(StrEnum):
    """Steps of a compile process, in this order. The process announces some or all of these steps."""

    STARTED = "started"
    LOCKED = "locked"
    MODEL_READ = "model read"
    TARGET_ASKED = "target asked"
    SAMPLES_READ = "samples read"
    QUANTIZING = "quantizing"
    QUANTIZED = "quantized"
    CHECKED = "checked"
    MODEL_KEPT = "model kept"
    COMPILING = "compiling"
    COMPILED = "compiled"
    MEASURED = "measured"
    COMMITTING = "committing"
    COMMITTED = "committed"
    INSTALLED = "installed"
    DONE = "done"


QUEUED = "queued"
"""The step of a job that waits for the end of other compile processes."""

PHASES: Mapping[Milestone, Phase] = MappingProxyType(
    {Milestone.QUANTIZING: Phase.QUANTIZING, Milestone.QUANTIZED: Phase.CHECKING, Milestone.COMPILING: Phase.COMPILING}
)
"""The phase that each step begins."""


TIMES_ENOUGH = 4
"""Multiple of the needed runs at which records are accepted even if they hardly vary."""


@dataclass(frozen=True, slots=True)
class Job:
    """A compile job. ``model``: a file whose content must have ``digest``. ``quantized``: the model is quantised.

    ``shapes``: the input shapes. ``fixed_shapes``: the same if the model's own shapes differ, else None. ``package``:
        the nnpackage to install the result in. ``again``: the stored result is not good enough. ``target``: facts of
        the target. ``runs``: number of recorded runs. From ``patience_runs`` runs on, records that hardly vary are
        accepted (0: always). ``verdict``: the verdict of a quantised ``model``. ``direct``: compile the float model.
        ``rival``: the active package (None: host kernels run the model). With ``must_be_faster``, the result must be
        faster than it. ``twin``: plugin for native code that answers instead of a simulator, or None. ``competitor``:
        plugin that must generate slower code, or None. ``states``: inputs that continue outputs, by output.
    """

    key: str
    settings: AutoSettings
    model: str
    digest: str
    records: str
    quantized: bool
    plugin: str
    machine: str | None
    shapes: list[list[int]] = field(default_factory=list)
    fixed_shapes: list[list[int]] | None = None
    package: str | None = None
    again: bool = False
    target: list[str] = field(default_factory=list)
    runs: int = 0
    patience_runs: int = 0
    verdict: dict[str, Any] | None = None
    direct: bool = False
    rival: str | None = None
    must_be_faster: bool = False
    twin: str | None = None
    competitor: str | None = None
    states: dict[str, str] = field(default_factory=dict)

    @property
    def slots(self) -> list[Path]:
        """Lock files of the slots for compile processes. All jobs of the user share the slots."""
        return [self.settings.folder / "jobs" / f"place-{number}" for number in range(self.settings.processes)]

    @property
    def interest_path(self) -> Path:
        """Lock file with a shared lock of each session that wants the result."""
        return self.settings.folder / "jobs" / self.key

    @property
    def budget(self) -> dict[str, float]:
        """The limits, in the form of stored results."""
        return self.settings.budget | {"runs": float(self.runs)}

    def to_json(self) -> str:
        """Return the job as one line of text."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Return the job that :meth:`to_json` wrote."""
        document = json.loads(text)
        found, kinds = document["settings"], {"trigger": Trigger, "preference": Preference, "folder": Path}
        settings = AutoSettings(**found | {name: kind(found[name]) for name, kind in kinds.items()})
        return cls(**document | {"settings": settings})


def key_of(
    settings: AutoSettings, digest: str, shapes: Shapes, facts_of_target: Sequence[str], *, direct: bool = False
) -> str:
    """Return the key of the result for the model with ``digest`` and inputs of ``shapes``.

    ``direct``: the result is native code of the float model, so the key does not depend on the quantiser's settings.
    """
    choices = {"scheme": settings.scheme, "metric": settings.metric, "limit": settings.limit}
    facts: dict[str, Any] = {
        "model": digest,
        "shapes": [list(shape) for shape in shapes],
        "target": list(facts_of_target),
        **({"direct": True} if direct else choices),
        "preference": int(settings.preference),
        "version": __version__,
    }
    return make_key(facts)


def progress_line(step: str, **facts: Any) -> bytes:
    """Return the line that announces a step with facts."""
    return json.dumps({"step": step, **facts}).encode() + b"\n"


def read_progress(line: bytes) -> dict[str, Any] | None:
    """Parse a progress line. Return None for other output of the process."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("step"), str) else None


@dataclass(frozen=True, slots=True)
class Ending:
    """End of a compile process: ``problem`` is None if the cache has the result. ``kind``: see JobResult."""

    problem: str | None
    kind: str = "failed"


class Supervisor:
    """Supervision of a compile process by a thread. It calls ``tell`` for each step, and ``ended`` at the end.

    The process starts when a slot for compile processes is free. All sessions of the user share the slots. A slot is a
    file lock. The process also holds the lock, so the slot stays occupied until the process ends.
    """

    command: tuple[str, ...] = ()  # command to run instead of the worker, if any

    def __init__(self, job: Job, tell: Callable[[dict[str, Any]], None], ended: Callable[[Ending], None]) -> None:
        self.job = job
        self._process: subprocess.Popen[bytes] | None = None
        self._released = Event()
        self._timed_out = self._stopped = self._has_job = False
        self._deadline = math.inf
        self._slot: int | None = None  # descriptors of the locks
        self._interest: int | None = None
        self._last_step = "start"
        self._reason: str | None = None
        self._passing = False
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        mend_after_fork(self)
        # Only the thread holds the callbacks. As attributes, they would keep a session in a reference cycle.
        self._thread = Thread(target=self._supervise, args=(tell, ended), name="odc-auto-compilation", daemon=True)
        self._thread.start()

    def after_fork(self) -> None:
        """In a forked child, close the copies of lock descriptors, which would keep the locks."""
        for descriptor in (self._slot, self._interest):
            if descriptor is not None:
                os.close(descriptor)
        self._slot = self._interest = None

    @property
    def is_over(self) -> bool:
        """Whether ``ended`` has returned."""
        return not self._thread.is_alive()

    def join(self, seconds: float | None = None) -> bool:
        """Wait until ``ended`` has returned. Return whether it has."""
        self._thread.join(seconds)
        return self.is_over

    def release(self) -> None:
        """Let the process end soon if no other session wants the result."""
        self._released.set()
        self._drop("_interest")
        if self._has_job:
            self._say_released()

    def stop(self) -> None:
        """End the process and wait for the end."""
        self._stopped = True  # the thread ends a process that it just starts
        self._released.set()
        self._kill()
        self._thread.join()

    def _supervise(self, tell: Callable[[dict[str, Any]], None], ended: Callable[[Ending], None]) -> None:
        try:
            ending = self._wait_for_slot(tell) or self._watch(tell)
        except CompileError as error:
            ending = Ending(str(error), PASSING if error.passing else "failed")
        except OSError as error:
            kind = PASSING if is_passing(error) else "failed"
            ending = Ending(f"the background process cannot be started: {error.strerror}", kind)
        except Exception as error:  # waiting threads always need an ending
            ending = Ending(f"the background process cannot be watched: {error}", PASSING)
        self._drop("_slot")
        self._drop("_interest")
        ended(ending)

    def _drop(self, name: str) -> None:
        descriptor: int | None = getattr(self, name)
        setattr(self, name, None)  # before closing: a child forked later must not close a reused descriptor
        if descriptor is not None:
            unlock(descriptor)

    def _wait_for_slot(self, tell: Callable[[dict[str, Any]], None]) -> Ending | None:
        """Wait for a free slot for a compile process. Return an ending if no process is needed any more."""
        job, has_waited = self.job, False
        while self._slot is None:
            self._interest = self._interest or try_lock(job.interest_path, shared=True)
            self._slot = next((lock for path in job.slots if (lock := try_lock(path)) is not None), None)
            if self._slot is None:
                if not has_waited:
                    tell({"step": QUEUED})
                has_waited = True
                if self._released.wait(_POLL_SECONDS):
                    return Ending("its session was closed")
        if has_waited and not job.again:
            found, _ = Artefacts(job.settings.folder).find(job.key)
            if found is not None and is_final(found.result, job.budget, time.time()):
                return Ending(None)  # the process before has stored the result
        return None

    def _watch(self, tell: Callable[[dict[str, Any]], None]) -> Ending:
        process = self._process = subprocess.Popen(
            self.command or isolated_command(_WORKER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,  # a buffer would be written again, and fail again, when the pipe of an ended process is closed
            env=isolated_environment(**ONE_BLAS_THREAD),
            cwd=os.path.abspath(os.sep),  # until the process has created its own folder
            start_new_session=True,
            pass_fds=() if self._slot is None else (self._slot,),
        )
        with process:
            try:
                if self._stopped:
                    self._kill()
                self._extend_deadline()
                if process.stdin is not None and process.stdout is not None:
                    with suppress(BrokenPipeError):
                        process.stdin.write(self.job.to_json().encode() + b"\n")
                    self._has_job = True
                    if self._released.is_set():
                        self._say_released()
                    for line in self._lines(process, process.stdout):
                        self._hear(line, tell)
            except BaseException:
                self._kill()
                raise
        return self._ending(process.returncode)

    def _say_released(self) -> None:
        """Report the closed session to the worker. Closing the pipe is not enough: forked children may keep it open."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):  # the worker may have ended
                os.write(self._process.stdin.fileno(), b"\n")

    def _lines(self, process: subprocess.Popen[bytes], stream: IO[bytes]) -> Iterator[bytes]:
        """Yield the lines that the process writes to ``stream`` until it ends, at the latest at the deadline."""
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        rest, data = b"", b"\n"
        while data:
            if poll.poll(1000 * _LOOK_SECONDS):
                data = os.read(stream.fileno(), _CHUNK_BYTES)
                *lines, rest = (rest + data).split(b"\n")
                yield from lines
            elif process.poll() is not None:  # a forked child may keep the pipe open
                data = b""
            elif time.monotonic() > self._deadline:
                self._timed_out, self._deadline = True, math.inf
                self._kill()
        yield rest

    def _hear(self, line: bytes, tell: Callable[[dict[str, Any]], None]) -> None:
        found = read_progress(line)
        if found is None:
            if text := line.decode(errors="replace").strip():
                self._tail.append(text)
            return
        if found["step"] == "failed":
            self._reason, self._passing = str(found.get("reason")), found.get("passing") is True
            return
        self._last_step = found["step"]
        if self._last_step == Milestone.STARTED:
            self._extend_deadline()  # the start of Python does not count
        tell(found)

    def _extend_deadline(self) -> None:
        self._deadline = time.monotonic() + self.job.settings.timeout_seconds + _GRACE_SECONDS

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            end_group(self._process.pid)

    def _ending(self, code: int) -> Ending:
        if self._timed_out:
            return Ending(f"it took longer than {self.job.settings.timeout_seconds:g} s and was ended", "time")
        if code == 0:
            return Ending(None)
        if self._released.is_set() and not self._stopped:
            return Ending("its session was closed")
        if self._reason is not None:
            return Ending(self._reason, PASSING if self._passing else "failed")
        kind = "time" if code == -getattr(signal, "SIGXCPU", 0) else PASSING if code < 0 else "failed"
        how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
        detail = f": {self._tail[-1]}" if self._tail else ""
        return Ending(f"the background process {how} after the step {self._last_step!r}{detail}", kind)


def release_all(supervisors: Sequence[Supervisor]) -> None:
    """Let compile processes end if no other session wants the results."""
    for item in supervisors:
        item.release()
