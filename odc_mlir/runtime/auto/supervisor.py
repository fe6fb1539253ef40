"""Starts the background process, listens to it, and ends it when it exceeds its time."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread, Timer
from typing import Any

from odc_mlir.errors import is_passing
from odc_mlir.plugins.process import isolated_command, isolated_environment
from odc_mlir.process_limits import ONE_BLAS_THREAD, end_group
from odc_mlir.runtime.auto.artefacts import PASSING
from odc_mlir.runtime.auto.job import Job, Milestone, read_progress

# The process ends itself when its time is over, unless it is stuck where it cannot.
_GRACE_SECONDS = 5.0
_TAIL_LINES = 3
_WORKER = "odc_mlir.runtime.auto.worker"


@dataclass(frozen=True, slots=True)
class Ending:
    """How the process ended; ``problem`` None: it has put a result into the cache. ``kind``: as that of a result."""

    problem: str | None
    kind: str = "failed"


class Supervisor:
    """One background process. ``tell`` gets each step, and ``ended`` how it ended, both in a thread of ours."""

    command: tuple[str, ...] = ()  # in place of the worker

    def __init__(self, job: Job, tell: Callable[[dict[str, Any]], None], ended: Callable[[Ending], None]) -> None:
        self.job = job
        self._tell, self._ended = tell, ended
        self._process: subprocess.Popen[bytes] | None = None
        self._timed_out = self._stopped = False
        self._timer = Timer(0, self._time_out)  # not started
        self._last_step = "start"
        self._reason: str | None = None
        self._passing = False
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._thread = Thread(target=self._supervise, name="odc-auto-compilation", daemon=True)
        self._thread.start()

    def join(self, seconds: float | None = None) -> bool:
        """Wait until ``ended`` has been called; whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End the process, and wait for that."""
        self._stopped = True  # which is looked at as soon as there is a process
        self._kill()
        self._thread.join()

    def _supervise(self) -> None:
        try:
            ending = self._watch()
        except OSError as error:
            kind = PASSING if is_passing(error) else "failed"
            ending = Ending(f"the background process cannot be started: {error.strerror}", kind)
        except Exception as error:  # no thread for the timer, say: whoever waits must hear of an end
            ending = Ending(f"the background process cannot be watched: {error}", PASSING)
        self._ended(ending)

    def _watch(self) -> Ending:
        process = self._process = subprocess.Popen(
            self.command or isolated_command(_WORKER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=isolated_environment(**ONE_BLAS_THREAD),
            cwd=os.path.abspath(os.sep),  # until it has made a folder of its own
            start_new_session=True,
        )
        with process:
            try:
                if self._stopped:
                    self._kill()
                self._start_timer()
                if process.stdin is not None and process.stdout is not None:
                    with suppress(BrokenPipeError):
                        process.stdin.write(self.job.to_json().encode())
                        process.stdin.close()
                    for line in process.stdout:
                        self._hear(line)
            except BaseException:
                self._kill()
                raise
            finally:
                self._timer.cancel()
        return self._ending(process.returncode)

    def _hear(self, line: bytes) -> None:
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
            self._start_timer()  # it counts from here as well
        self._tell(found)

    def _start_timer(self) -> None:
        self._timer.cancel()
        self._timer = Timer(self.job.seconds + _GRACE_SECONDS, self._time_out)
        self._timer.daemon = True
        self._timer.start()

    def _time_out(self) -> None:
        self._timed_out = True
        self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            end_group(self._process.pid)

    def _ending(self, code: int) -> Ending:
        if self._timed_out:
            return Ending(f"it took longer than {self.job.seconds:g} s and was ended", "time")
        if code == 0:
            return Ending(None)
        if self._reason is not None:
            return Ending(self._reason, PASSING if self._passing else "failed")
        how, kind = f"ended with code {code}", "failed"
        if code < 0:
            how, kind = f"was ended by signal {-code}", PASSING
            with suppress(ValueError):
                how = f"was ended by {signal.Signals(-code).name}"
        if code == -getattr(signal, "SIGXCPU", 0):
            kind = "time"
        detail = f": {self._tail[-1]}" if self._tail else ""
        return Ending(f"the background process {how} after the step {self._last_step!r}{detail}", kind)
