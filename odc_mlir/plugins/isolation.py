"""Run one job in a process of its own, with limits of time and memory.

The process is a fresh Python that gets a JSON document on standard input and writes its answer to a file. It leads a
process group that is ended as a whole, whatever happens, so nothing that a plugin started is left behind. It works in
a folder of its own, with little of the environment (see process.py).
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odc_mlir.errors import CompileError, OdcError, TimeLimitError, is_passing
from odc_mlir.formats.private import read_file
from odc_mlir.plugins.process import isolated_command, isolated_environment
from odc_mlir.process_limits import Limits, end_group

STAGE = "codegen"
_MAX_ANSWER_BYTES = 1 << 20
_TAIL_BYTES = 2000  # of what the process printed, kept for the message


def run_job(module: str, job: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Run ``module`` on ``job`` in a process of its own and return its answer; raises CompileError when it gives none.

    ``module`` reads the job, to which the keys ``answer`` (path of the file to write), ``seconds`` and ``memory_bytes``
    are added. The error is a TimeLimitError where it was slow, and ``passing`` where it was killed or the system was
    short of something.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="odc-job-") as folder:
            return _run(module, job, limits, Path(folder))
    except OSError as error:
        raise CompileError(
            f"the plugin's process cannot be started: {error.strerror}", stage=STAGE, passing=is_passing(error)
        ) from None


def _run(module: str, job: Mapping[str, Any], limits: Limits, folder: Path) -> dict[str, Any]:
    answer, printed, work = folder / "answer.json", folder / "printed", folder / "work"
    work.mkdir()
    facts = {"answer": str(answer), "seconds": limits.seconds, "memory_bytes": limits.memory_bytes}
    document = json.dumps({**job, **facts})
    with printed.open("wb") as sink:
        process = subprocess.Popen(
            isolated_command(module),
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=isolated_environment(TMPDIR=str(work)),
            cwd=work,
            start_new_session=True,
        )
        timed_out = False
        try:
            process.communicate(document.encode(), timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            end_group(process.pid)
            process.wait()
    code = process.returncode
    if timed_out or code == -getattr(signal, "SIGXCPU", 0):
        raise TimeLimitError(f"the plugin took longer than {limits.seconds:g} s and was ended", stage=STAGE)
    if code == 0 and (found := _answer(answer)) is not None:
        return found
    raise CompileError(f"the plugin's process {_ending(code)}{_tail(printed)}", stage=STAGE, passing=code < 0)


def _answer(path: Path) -> dict[str, Any] | None:
    """What the process says, None for what no process of ours would say: a plugin shares it."""
    try:
        found = json.loads(read_file(path, max_bytes=_MAX_ANSWER_BYTES))
    except (OdcError, OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    failure = found.get("error")
    if failure is not None:
        texts = [failure.get(key) for key in ("kind", "text")] if isinstance(failure, dict) else [None]
        return found if all(isinstance(text, str) for text in texts) else None
    said = isinstance(found.get("name"), str) and isinstance(found.get("quantization"), (str, type(None)))
    return found if said else None


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
