"""The background process with quantiser and compiler replaced by files made before, and a fault where it is asked for.

``python faulty_worker.py QUANTIZED COMPILED [FAULT@STEP]``, with a job on standard input. Faults begin when the process
is about to announce the step:

* ``kill``: it is killed; ``raise``: something that is a bug is raised; ``refuse``: the plugin refuses the model;
  ``fail``: the plugin fails
* ``inaccurate``: the verdict is bad; ``slower``: what is made is slower than what serves
* ``full``: from there on the disk is full
* ``hang``: it does nothing for ever; ``stuck``: the same, and not even a timer ends it
* ``hog``: it takes all the memory that it can get
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

# An isolated process does not get PYTHONPATH: without this it would test the odc_mlir that is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from odc_mlir.errors import CompileError, UnsupportedError
from odc_mlir.formats import trust
from odc_mlir.formats.package import is_package, read_package
from odc_mlir.plugins import codegen
from odc_mlir.runtime.auto import build, worker
from odc_mlir.runtime.auto.build import Gain

QUANTIZED, COMPILED = Path(sys.argv[1]), Path(sys.argv[2])
FAULT, _, STEP = (sys.argv[3] if len(sys.argv) > 3 else "").partition("@")

PASSED = {
    "status": "passed",
    "passed": True,
    "metric": "mpeir",
    "limit": 0.1,
    "value": 0.01,
    "limits": [],
    "worst_layers": [],
    "problems": [],
    "samples": {"telling": True},
}
CHECK = {"metric": "mpeir", "output": None, "column": None, "limit": 0.1, "value": 0.5, "passed": False}
FAILED = {**PASSED, "status": "failed", "passed": False, "value": 0.5, "limits": [CHECK]}


def quantize(*arguments: Any, **options: Any) -> build.QuantizedModel:
    return build.QuantizedModel(QUANTIZED.read_bytes(), FAILED if FAULT == "inaccurate" else PASSED)


def generate(model: Path, target: str, output: Path, **options: Any) -> Path:
    if Path(output).stem == "twin":
        if (twin := os.environ.get("ODC_TEST_TWIN")) is None:
            raise UnsupportedError("there is no native twin")
        return _copy(twin, output)
    direct = os.environ.get("ODC_TEST_DIRECT")
    is_direct = direct is not None and Path(model).read_bytes() != QUANTIZED.read_bytes()
    return _copy(direct if is_direct and direct is not None else COMPILED, output)


def _copy(source: str | Path, output: Path) -> Path:
    """Copy a package as if it were compiled here."""
    shutil.copyfile(source, output)
    if is_package(output):
        trust.record(trust.compiled_here(read_package(output)))
    return output


def gained(models: Any, *arguments: Any) -> Gain:
    """As if each level were faster than the one before."""
    taken = {"original": 3.0, "direct": 2.0, "compiled": 1.0}
    before, after = models
    return Gain(taken[before], 9.0, -1.0) if FAULT == "slower" else Gain(taken[before], taken[after], 0.1)


def begin() -> None:
    if FAULT == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "raise":
        raise RuntimeError("a bug")
    if FAULT == "refuse":
        raise UnsupportedError("the plugin refuses the model: too odd")
    if FAULT == "fail":
        raise CompileError("the plugin failed: it raised ValueError")
    if FAULT == "full":
        os.fsync = full
    if FAULT == "stuck":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    if FAULT in ("hang", "stuck"):
        time.sleep(1000)
    if FAULT == "hog":
        kept = []
        while True:
            kept.append(bytearray(64 << 20))


def full(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def main() -> int:
    progress_line = worker.progress_line

    def announce(step: str, **facts: Any) -> bytes:
        if step == STEP:
            begin()
        return progress_line(step, **facts)

    worker.progress_line = announce
    build.quantize, build.gained, codegen.generate = quantize, gained, generate
    codegen.describe = lambda *arguments, **options: codegen.Description("test", "npu", "int8", False)
    return worker.main()


if __name__ == "__main__":
    raise SystemExit(main())
