"""The NPU's driver in C on this machine: compiled, called from Python, and run in programs beside the stub."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.data import REPOSITORY
from odc_mlir import Package
from odc_mlir.firmware import emit_firmware

FOLDER = REPOSITORY / "driver"
FLAGS = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{FOLDER}"]
STRICT = ["-Wconversion", "-Wshadow"]  # of what people wrote
# Without optimisation: it removes reads whose values do not matter.
SANITIZE = ["-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

Array = np.ndarray[Any, Any]


@cache
def load_stub() -> ModuleType:
    """Return the module ``driver/stub.py``."""
    spec = importlib.util.spec_from_file_location("odc_npu_stub", FOLDER / "stub.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiler() -> list[str]:
    """Return the command of a C compiler for this machine, the system's or zig's; skip the test without one."""
    if (found := shutil.which("cc")) is not None:
        return [found]
    if find_spec("ziglang") is None:
        pytest.skip("needs a C compiler: cc, or the package ziglang")
    return [sys.executable, "-m", "ziglang", "cc"]


def build(output: Path, sources: Sequence[Path | str], *flags: str) -> Path:
    """Compile ``sources`` to ``output``; the warnings of the compiler are errors."""
    libraries = [] if "-c" in flags else ["-lm"]
    command = [*compiler(), *FLAGS, *flags, *map(str, sources), *libraries, "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


@dataclass(frozen=True)
class Result:
    """Status of the program, outputs of each inference, cycles of each inference, and what the stub says of errors."""

    status: int
    outputs: list[list[Array]]
    cycles: list[int]
    failure: str


def platform(folder: Path) -> list[Path]:
    """Return objects of the driver and of its platform, which every program needs."""
    return [build(folder / f"{name}.o", [FOLDER / f"{name}.c"], *STRICT, "-c") for name in ("odc_npu", "host")]


def run_firmware(
    package: Package,
    samples: Sequence[Sequence[Array]],
    folder: Path,
    objects: Sequence[Path],
    *,
    interrupts: bool = True,
    **device: str,
) -> Result:
    """Build firmware of a package for this machine with ``objects``, and run it on ``samples`` beside the stub."""
    for name, data in emit_firmware(package, name="net").items():
        (folder / name).write_bytes(data)
    sources = [folder / "main.c", folder / "net.c", folder / "net_programs.c", *folder.glob("*.o")]
    program = build(folder / "net", [*sources, *objects], f"-I{folder}")
    stub = load_stub().Stub(folder / "npu", **device)
    given, answered, told = (folder / name for name in ("inputs", "outputs", "told"))
    given.write_bytes(b"".join(value.tobytes() for sample in samples for value in sample))
    try:
        with given.open("rb") as source, answered.open("wb") as target, told.open("wb") as messages:
            process = subprocess.Popen(
                [str(program), *(["interrupts"] if interrupts else [])],
                stdin=source,
                stdout=target,
                stderr=messages,
                env={**os.environ, "ODC_NPU_STUB": str(stub.path)},
            )
            status = stub.serve(process)
        failure = stub.failure
    finally:
        stub.close()
    cycles = [int(line.split()[0]) for line in told.read_text().splitlines() if line.endswith("cycles")]
    return Result(status, _outputs(package, answered.read_bytes(), len(cycles)), cycles, failure)


def _outputs(package: Package, data: bytes, count: int) -> list[list[Array]]:
    found, offset = [], 0
    for _ in range(count):
        values = []
        for spec in package.outputs:
            shape = [extent or 1 for extent in spec.shape or ()]  # the batch may be open; programs have a batch of 1
            value = np.frombuffer(data, spec.dtype, int(np.prod(shape)), offset).reshape(shape)
            offset += value.nbytes
            values.append(value)
        found.append(values)
    assert offset == len(data)
    return found


class Device(ctypes.Structure):
    """``struct odc_npu_device``."""

    WAIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    _fields_ = [
        ("registers", ctypes.c_void_p),
        ("origin", ctypes.c_void_p),
        ("use_interrupt", ctypes.c_int),
        ("wait", WAIT),
        ("synchronise", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("job", ctypes.c_uint32),
    ]


class Driver:
    """The driver in this process, on a stub that runs a job whenever the driver waits.

    ``lib`` is the library, ``device`` the device, ``program`` room for a program.
    """

    def __init__(self, library: Path, stub: Any) -> None:
        self.lib = ctypes.CDLL(str(library))
        self.lib.odc_npu_memory_bytes.restype = ctypes.c_size_t
        self.lib.odc_npu_cycles.restype = ctypes.c_uint64
        self.stub = stub
        self._first = ctypes.c_char.from_buffer(stub.mapped)
        self.start = ctypes.addressof(self._first)
        self._used = 4096
        self._wait = Device.WAIT(lambda _: 0 if stub.step() else 1)
        self.device = Device(registers=self.start, origin=self.start, wait=self._wait)
        self.program = ctypes.create_string_buffer(1024)

    def close(self) -> None:
        del self._first  # the stub cannot release memory that something points to
        self.stub.close()

    def place(self, data: bytes, alignment: int = 128) -> int:
        """Copy bytes into the device's memory; return their address in this process."""
        first = self._used + -self._used % 128 + alignment % 128
        self.stub.mapped[first : first + len(data)] = data
        self._used = first + len(data)
        return self.start + first

    def register(self, offset: int) -> int:
        return int.from_bytes(self.stub.mapped[offset : offset + 4], "little")

    def set_register(self, offset: int, value: int) -> None:
        self.stub.mapped[offset : offset + 4] = value.to_bytes(4, "little")
