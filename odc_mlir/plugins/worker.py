"""Main program of the process that runs a plugin, started by isolation.py with a job on standard input.

The answer is an object with ``error`` (text and kind of the failure, or null) and ``said``, the plugin's answer. If the
job has ``ask``, the name of a function, call it with the plugin and a question. Otherwise run a codegen plugin.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

from odc_mlir.errors import OdcError
from odc_mlir.plugins.foreign import answer, import_plugin, raised
from odc_mlir.plugins.request import CodegenRequest, describe_plugin
from odc_mlir.process_limits import Limits

_PARENT_POLL_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def main() -> int:
    """Do the job. The exit code is 0 if there is an answer."""
    job = json.load(sys.stdin)
    parent = os.getpid()
    child = os.fork() if hasattr(os, "fork") else 0
    if child:
        return _guard(child, Path(job["answer"]).parent)
    _end_with_parent(parent)
    Limits(job["seconds"], job["memory_bytes"]).hold_this_process()
    _work(job)
    if job["ask"]:
        os._exit(0)  # does not wait for threads of the plugin
    return 0


def _guard(child: int, folder: Path) -> int:
    """Wait for the plugin's process. If this process's parent ends, end all processes and delete the job's folder.

    The plugin's process cannot do this, because a plugin may hold the interpreter's lock for ever.
    """
    parent = os.getppid()
    Thread(target=_end_with, args=(parent, folder), daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if os.getppid() != parent:
        shutil.rmtree(folder, ignore_errors=True)
    if code < 0:  # end by the signal that ended the plugin, to report it
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


def _end_with_parent(parent: int) -> None:
    """Let the system kill this process when the guard ends, if the system supports this."""
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the guard ended before the call above
        os._exit(1)


def _work(job: Mapping[str, Any]) -> None:
    try:
        said = {"error": None, "said": answer(_load(job), job["ask"], job["question"]) if job["ask"] else _compile(job)}
    except _FailedError as error:
        said = _failure(error.kind, str(error))
    except MemoryError:
        limit = f", with a limit of {job['memory_bytes']} bytes" if job["memory_bytes"] else ""
        said = _failure("memory", f"it ran out of memory{limit}")
    except OdcError as error:
        said = _failure("odc", str(error))
    except BaseException as error:  # a plugin may raise SystemExit as well
        said = _failure("raised", f"it raised {raised(error)}")
    Path(job["answer"]).write_text(json.dumps(said))


def _end_with(parent: int, folder: Path) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


class _FailedError(Exception):
    """The plugin violates the contract, or rejects the model."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _failure(kind: str, text: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "text": text}}


def _load(job: Mapping[str, Any]) -> Any:
    """Load the plugin, if any. The folders precede installed packages and follow Python's own modules on the path."""
    if job["file"] is None and job["reference"] is None:
        return None
    installed = (i for i, place in enumerate(sys.path) if Path(place).name in ("site-packages", "dist-packages"))
    position = next(installed, len(sys.path))
    return import_plugin(job["file"], job["reference"], job["folder"], position=position)


def _compile(job: Mapping[str, Any]) -> dict[str, Any]:
    plugin = _load(job)
    said = describe_plugin(plugin)
    request = CodegenRequest.from_json(job["request"])
    supports = getattr(plugin, "supports", None)
    if supports is not None and (reason := supports(request.model)) is not None:
        raise _FailedError("unsupported", str(reason))
    code = plugin.compile(request)
    if code not in (None, 0):
        raise _FailedError("code", f"it returned {code!r}")
    validate = getattr(plugin, "validate", None)
    if validate is not None and Path(request.output).exists():
        validate(request.output)
    return said


if __name__ == "__main__":
    raise SystemExit(main())
