"""The process that a plugin runs in, started by isolation.py with a job on standard input.

The answer is an object with ``error`` (text and kind of what went wrong, null when nothing did) and, asked to
``describe``, what the plugin says of itself.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

from odc_mlir.errors import OdcError
from odc_mlir.plugins.registry import FACTORY
from odc_mlir.plugins.request import CodegenPlugin, CodegenRequest
from odc_mlir.process_limits import Limits

_PARENT_POLL_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def main() -> int:
    """Do the job; the exit code is 0 whenever there is an answer."""
    job = json.load(sys.stdin)
    parent = os.getpid()
    child = os.fork() if hasattr(os, "fork") else 0
    if child:
        return _guard(child)
    _end_with_parent(parent)
    Limits(job["seconds"], job["memory_bytes"]).hold_this_process()
    _work(job)
    return 0


def _guard(child: int) -> int:
    """End everything when the process that started this one is gone, since then nobody else would.

    The plugin's own process could not see to that: a plugin may hold the interpreter's lock for ever.
    """
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:  # say how the plugin ended by ending likewise
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


def _end_with_parent(parent: int) -> None:
    """Be killed when the guard is, where the system can do that."""
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was killed before
        os._exit(1)


def _work(job: Mapping[str, Any]) -> None:
    try:
        answer = {"error": None, **_do(job)}
    except MemoryError:
        answer = _failure("memory", f"it needed more than {job['memory_bytes']} bytes of memory")
    except OdcError as error:
        answer = _failure("odc", str(error))
    except Exception as error:
        text = " ".join(str(error).split())
        answer = _failure("raised", f"it raised {type(error).__name__}: {text}" if text else type(error).__name__)
    Path(job["answer"]).write_text(json.dumps(answer))


def _end_with(parent: int) -> None:
    """End this process and its group when the one that started it is gone, since then nobody else would."""
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _failure(kind: str, text: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "text": text}}


def _do(job: Mapping[str, Any]) -> dict[str, Any]:
    plugin = load(job["file"], job["reference"], job["folder"])
    extension = str(plugin.extension).removeprefix(".")
    if extension != job["extension"]:
        return _failure("contract", f"its extension is {extension!r}, its target says {job['extension']!r}")
    quantization = getattr(plugin, "quantization", None)
    said = {
        "name": str(plugin.name),
        "quantization": None if quantization is None else str(quantization),
        "takes_floats": quantization is None or bool(getattr(plugin, "takes_floats", False)),
    }
    if job["request"] is None:
        return said
    request = CodegenRequest.from_json(job["request"])
    supports = getattr(plugin, "supports", None)
    if supports is not None and (reason := supports(request.model)) is not None:
        return _failure("unsupported", str(reason))
    code = plugin.compile(request)
    if code not in (None, 0):
        return _failure("code", f"it returned {code!r}")
    validate = getattr(plugin, "validate", None)
    if validate is not None and Path(request.output).exists():
        validate(request.output)
    return said


def _add_folder(folder: str) -> None:
    """Let modules be found in ``folder`` before installed ones, but not in place of Python's own."""
    installed = (i for i, place in enumerate(sys.path) if Path(place).name in ("site-packages", "dist-packages"))
    if folder not in sys.path:
        sys.path.insert(next(installed, len(sys.path)), folder)


def load(file: str | None, reference: str | None, folder: str | None) -> CodegenPlugin:
    """The plugin that a :class:`~odc_mlir.plugins.registry.PluginSource` of these parts names."""
    if folder is not None:
        _add_folder(folder)
    if file is not None:
        spec = importlib.util.spec_from_file_location("odc_codegen_plugin", file)
        if spec is None or spec.loader is None:
            raise TypeError(f"{file} is no Python file")
        module, name = importlib.util.module_from_spec(spec), FACTORY
        _add_folder(str(Path(file).parent))
        spec.loader.exec_module(module)
    else:
        where, _, name = (reference or "").partition(":")
        module = importlib.import_module(where)
    plugin = getattr(module, name or FACTORY)()
    if not isinstance(plugin, CodegenPlugin):
        raise TypeError(f"{name or FACTORY} returned {type(plugin).__name__}, which lacks name, extension or compile")
    return plugin


if __name__ == "__main__":
    raise SystemExit(main())
