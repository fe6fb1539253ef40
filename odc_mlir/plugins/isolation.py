"""Jobs in separate isolated processes, with limits on time and memory.

The process is a fresh Python that reads JSON from standard input and writes the answer to a file. It works in a
temporary folder and leads a process group, which ends as a whole. It gets the environment variables below, all
variables that begin with ``ODC_``, and variables named in ``ODC_PASS_ENV``, separated by semicolons.
"""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from odc_mlir.errors import CompileError, OdcError, TimeLimitError, of_system
from odc_mlir.formats.private import read_file
from odc_mlir.process_limits import Limits, end_group, signal_name

STAGE = "codegen"
PASS_VARIABLE = "ODC_PASS_ENV"
_MAX_ANSWER_BYTES = 1 << 20
_TAIL_BYTES = 2000  # end of the printed text, a source of messages
_PREFIXES = ("ODC_", "LC_")
_PASSED = frozenset(
    {"HOME", "LANG", "LANGUAGE", "PATH", "TMPDIR", "TZ", "USER", "LOGNAME", "XDG_CACHE_HOME"}
    | {"LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}  # some Pythons do not start without
    | {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
    | {"SYSTEMROOT", "TEMP", "TMP", "USERPROFILE", "LOCALAPPDATA"}
)
# The folder of this package precedes installed packages, which may include another version of this package. All added
# folders follow those of Python's own modules, so that no added module hides one of Python's.
_BOOT = (
    "import sys; module, ours, *folders = sys.argv[1:]; del sys.argv[1:]; "
    "installed = (i for i, path in enumerate(sys.path) if path.endswith(('site-packages', 'dist-packages'))); "
    "sys.path.insert(next(installed, len(sys.path)), ours); "
    "sys.path += [folder for folder in folders if folder not in sys.path]; "
    "import runpy; runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def isolated_command(module: str) -> list[str]:
    """Return the command that runs ``module`` of this package, from the folder of this process's package."""
    folders = [str(Path(__file__).resolve().parents[2])]
    if site.ENABLE_USER_SITE:  # an isolated Python omits this folder
        folders.append(site.getusersitepackages())
    folders += [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]
    return [sys.executable, "-I", "-c", _BOOT, module, *folders]


def isolated_environment(**more: str) -> dict[str, str]:
    """Return the environment variables of an isolated process, including ``more``."""
    named = {name.strip() for name in os.environ.get(PASS_VARIABLE, "").split(";")}
    found = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED or name in named or name.startswith(_PREFIXES)
    }
    # The process works in another folder.
    if path := found.get("ODC_PLUGIN_PATH"):
        found["ODC_PLUGIN_PATH"] = os.pathsep.join(os.path.abspath(entry) for entry in path.split(os.pathsep) if entry)
    return found | more


@contextmanager
def started(
    module: str, job: Mapping[str, Any], limits: Limits, *, whole_environment: bool = False
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Start ``module`` on ``job`` and yield a function that waits for the answer. End the process on leaving.

    ``module`` reads the job, extended by the keys ``answer`` (path of the file to write), ``seconds`` and
    ``memory_bytes``. Raises CompileError if the process cannot start. The function raises CompileError if there is no
    answer: TimeLimitError after the time limit, a ``passing`` error if the process was killed.
    """
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ODC_"))}
    others = others if whole_environment else {}
    with ExitStack() as stack:
        with of_system("the plugin's process cannot be started", CompileError, stage=STAGE):
            temporary = tempfile.TemporaryDirectory(prefix="odc-job-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(temporary))
            answer, printed, work = folder / "answer.json", folder / "printed", folder / "work"
            work.mkdir()
            with printed.open("wb") as sink:
                process = subprocess.Popen(
                    isolated_command(module),
                    stdin=subprocess.PIPE,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env=isolated_environment(**{**others, "TMPDIR": str(work)}),
                    cwd=work,
                    start_new_session=True,
                )
        begin = time.monotonic()
        facts = {"answer": str(answer), "seconds": limits.seconds, "memory_bytes": limits.memory_bytes}
        try:
            if process.stdin is not None:
                with suppress(BrokenPipeError), process.stdin:
                    process.stdin.write(json.dumps({**job, **facts}).encode())
            yield lambda: _result(process, limits.seconds, begin, answer, printed)
        finally:
            end_group(process.pid)
            process.wait()


def _result(
    process: subprocess.Popen[bytes], seconds: float | None, begin: float, answer: Path, printed: Path
) -> dict[str, Any]:
    timed_out = False
    try:
        process.wait(None if seconds is None else max(0.0, begin + seconds - time.monotonic()))
    except subprocess.TimeoutExpired:
        timed_out = True
        end_group(process.pid)
        process.wait()
    code = process.returncode
    if timed_out or code == -getattr(signal, "SIGXCPU", 0):
        raise TimeLimitError(f"the plugin took longer than {seconds:g} s and was ended", stage=STAGE)
    if code == 0 and (found := _answer(answer)) is not None:
        return found
    with printed.open("rb") as file:
        file.seek(max(0, printed.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
    ending = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with code {code} and no answer"
    tail = f": {lines[-1].strip()}" if lines else ""
    raise CompileError(f"the plugin's process {ending}{tail}", stage=STAGE, passing=code < 0)


def _answer(path: Path) -> dict[str, Any] | None:
    """Return the answer in a file, or None if it lacks the worker's form, because plugins may write to it."""
    try:
        found = json.loads(read_file(path, max_bytes=_MAX_ANSWER_BYTES))
        failure = found["error"]
        texts = [failure["kind"], failure["text"]] if failure is not None else []
        is_right = all(isinstance(text, str) for text in texts) if texts else isinstance(found["said"], dict)
    except (OdcError, OSError, ValueError, TypeError, LookupError, RecursionError):
        return None
    return found if is_right else None
