"""Run one job in a process of its own, with limits of time and memory.

The process is a fresh Python that gets a JSON document on standard input and writes its answer to a file. It leads a
process group that is ended as a whole, whatever happens, so nothing that a plugin started is left behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odc_mlir.errors import CompileError, parsing

STAGE = "codegen"
_TAIL_BYTES = 2000  # of what the process printed, kept for the message


@dataclass(frozen=True, slots=True)
class Limits:
    """``memory_bytes`` bounds the address space; None: no limit."""

    seconds: float | None = 300.0
    memory_bytes: int | None = 4 << 30


def run_job(module: str, job: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Run ``python -m module`` on ``job`` and return its answer; raises CompileError when it gives none.

    ``module`` reads the job, to which the keys ``answer`` (path of the file to write) and ``memory_bytes`` are added.
    """
    with tempfile.TemporaryDirectory(prefix="odc-job-") as folder:
        answer, printed = Path(folder, "answer.json"), Path(folder, "printed")
        document = json.dumps({**job, "answer": str(answer), "memory_bytes": limits.memory_bytes})
        with printed.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )
            timed_out = False
            try:
                process.communicate(document.encode(), timeout=limits.seconds)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                _end_group(process)
        if timed_out:
            raise CompileError(f"the plugin took longer than {limits.seconds:g} s and was ended", stage=STAGE)
        if process.returncode == 0 and answer.exists():
            with parsing("the plugin's answer is not valid JSON", CompileError):
                result: Any = json.loads(answer.read_bytes())
            if isinstance(result, dict):
                return result
        raise CompileError(f"the plugin's process {_ending(process.returncode)}{_tail(printed)}", stage=STAGE)


def _environment() -> dict[str, str]:
    """Ours, such that the process finds this package wherever it was imported from."""
    here = str(Path(__file__).resolve().parents[2])
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{others}" if others else here}


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ending(code: int) -> str:
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"ended with code {code} and no answer"


def _tail(printed: Path) -> str:
    """The last line that the process printed, as the end of a message."""
    lines = printed.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""
