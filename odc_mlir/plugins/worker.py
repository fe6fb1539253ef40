"""The process that a plugin runs in: ``python -m odc_mlir.plugins.worker`` with a job on standard input.

The answer is an object with ``error`` (text and kind of what went wrong, null when nothing did) and, asked to
``describe``, what the plugin says of itself.
"""

from __future__ import annotations

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

_PARENT_POLL_SECONDS = 0.5


def main() -> int:
    """Do the job; the exit code is 0 whenever there is an answer."""
    job = json.load(sys.stdin)
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _limit_memory(job["memory_bytes"])
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
    return 0


def _end_with(parent: int) -> None:
    """End this process and its group when the one that started it is gone, since then nobody else would."""
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _failure(kind: str, text: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "text": text}}


def _limit_memory(limit: int | None) -> None:
    if limit is None:
        return
    try:
        import resource
    except ImportError:  # a system without such limits
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))


def _do(job: Mapping[str, Any]) -> dict[str, Any]:
    plugin = load(job["file"], job["reference"], job["folder"])
    extension = str(plugin.extension).removeprefix(".")
    if extension != job["extension"]:
        return _failure("contract", f"its extension is {extension!r}, its target says {job['extension']!r}")
    quantization = getattr(plugin, "quantization", None)
    said = {"name": str(plugin.name), "quantization": None if quantization is None else str(quantization)}
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


def load(file: str | None, reference: str | None, folder: str | None) -> CodegenPlugin:
    """The plugin that a :class:`~odc_mlir.plugins.registry.PluginSource` of these parts names."""
    if folder is not None:
        sys.path.insert(0, folder)
    if file is not None:
        spec = importlib.util.spec_from_file_location("odc_codegen_plugin", file)
        if spec is None or spec.loader is None:
            raise TypeError(f"{file} is no Python file")
        module, name = importlib.util.module_from_spec(spec), FACTORY
        sys.path.insert(0, str(Path(file).parent))
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
