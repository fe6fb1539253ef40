"""The NPU as a file: its register block and memory, shared with C code and served by the simulator.

    python driver/stub.py [--target npu-256] [--memory flash] COMMAND ...

runs the command, serves the device until it ends, and exits with its status. The command finds the file by the
environment variable ``ODC_NPU_STUB``; ``host.c`` maps it. Addresses of the NPU are offsets in the file: the registers
of ``docs/npu.md`` are at its start, memory follows at ``MEMORY_OFFSET``. For each interrupt, a byte goes to the pipe
beside the file, whose name ends with ``.irq``. The device has only what the driver wrote there: it never reads the
container or the model.
"""

from __future__ import annotations

import argparse
import mmap
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from odc_mlir import simulator, targets
from odc_mlir.errors import OdcError, PackageError, SimulationError, UnsupportedError
from odc_mlir.isa import container
from odc_mlir.isa.fields import REGION_ALIGNMENT_BYTES, Region

VARIABLE = "ODC_NPU_STUB"
MEMORY_OFFSET = 4096
_MAP_VERSION = 1

# Offsets of the registers, as in docs/npu.md.
_ID, _VERSION, _HARDWARE, _STATUS, _DONE, _ERROR, _HALT, _CYCLES = 0x00, 0x04, 0x08, 0x0C, 0x10, 0x14, 0x18, 0x20
_CONTROL, _IRQ_ENABLE, _IRQ_CLEAR, _PROGRAM, _PROGRAM_BYTES, _REGION = 0x40, 0x44, 0x48, 0x50, 0x58, 0x60
_RUNNING, _FAILED = 1, 2
_ADDRESS, _MALFORMED, _RUN = 1, 2, 3  # values of ERROR

_SHORTEST_NAP_S, _LONGEST_NAP_S = 0.0001, 0.01


class AddressError(Exception):
    """The driver gave an address that is not aligned, or without memory."""


class Stub:
    """A device in the file ``path`` with ``size`` bytes of memory."""

    def __init__(self, path: Path, *, target: str = "npu-256", memory: str = "flash", size: int = 64 << 20) -> None:
        self.path = path
        self.failure = ""  # of the last job that failed: what the simulator says
        self._target = targets.load(target)
        self._mode: targets.MemoryMode = "sram" if memory == "sram" else "flash"
        with path.open("w+b") as file:
            file.truncate(MEMORY_OFFSET + size)
            self.mapped = mmap.mmap(file.fileno(), MEMORY_OFFSET + size)
        self._memory = memoryview(self.mapped)
        self._registers = self._memory[:MEMORY_OFFSET].cast("I")
        pipe = path.with_name(f"{path.name}.irq")
        os.mkfifo(pipe)
        self._interrupts = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # a reader too, so that opening never waits
        digest = self._target.digest(self._mode)
        self._write(_HARDWARE, container.hardware_id(digest))
        self._write(_VERSION, _MAP_VERSION << 16 | container.ISA_VERSION)
        self._write(_ID, int.from_bytes(container.MAGIC, "little"))

    def close(self) -> None:
        """Release the memory and the pipe; the files stay."""
        os.close(self._interrupts)
        self._registers.release()
        self._memory.release()
        self.mapped.close()

    def serve(self, process: subprocess.Popen[bytes]) -> int:
        """Run jobs until ``process`` ends; return its status."""
        nap = _SHORTEST_NAP_S
        while (status := process.poll()) is None:
            if self.step():
                nap = _SHORTEST_NAP_S
            else:
                time.sleep(nap)
                nap = min(2 * nap, _LONGEST_NAP_S)
        return status

    def step(self) -> bool:
        """Run the job that the driver has requested, if any; return whether there was one."""
        job = self._read(_CONTROL)
        if job == self._read(_DONE):
            return False
        self._write(_STATUS, _RUNNING)
        error, halt, cycles = 0, 0, 0
        try:
            counters = self._run()
            halt, cycles = counters.halt_status, counters.cycles
        except AddressError as failure:
            error, self.failure = _ADDRESS, str(failure)
        except (PackageError, UnsupportedError) as failure:
            error, self.failure = _MALFORMED, str(failure)
        except OdcError as failure:
            error, self.failure = _RUN, str(failure)
        self._write(_ERROR, error)
        self._write(_HALT, halt)
        self._write(_CYCLES, cycles & 0xFFFFFFFF)
        self._write(_CYCLES + 4, cycles >> 32)
        self._write(_STATUS, _FAILED if error else 0)
        self._write(_DONE, job)  # last: the driver reads the others after this one
        if self._read(_IRQ_ENABLE) & 1 and self._read(_IRQ_CLEAR) != job:
            with suppress(BlockingIOError):  # a driver that polls never empties the pipe
                os.write(self._interrupts, b"\1")
        return True

    def _run(self) -> simulator.Counters:
        """Run the program that the registers describe, on the memory that they name."""
        code = bytes(self._span(_PROGRAM))
        regions = {int(region): self._span(_REGION + 16 * region) for region in Region}
        constants = bytes(regions.pop(Region.CONSTANTS))
        # Regions are all that the device knows: each is one tensor of bytes, except for the arena.
        inputs, outputs = (
            (container.TensorRecord("", "uint8", (size,), None, 0, region, 0),)
            if (size := len(regions[region]))
            else ()
            for region in map(int, (Region.INPUTS, Region.OUTPUTS))
        )
        wanted = container.Container(
            code=code,
            constants=constants,
            inputs=inputs,
            outputs=outputs,
            operators=(),
            target_digest=self._target.digest(self._mode),
            arena_bytes=len(regions[Region.ARENA]),
            metadata={"target": self._target.name, "target_version": self._target.version, "memory": self._mode},
        )
        try:
            program = simulator.load(container.write(wanted), target=self._target)
        except SimulationError as error:
            raise PackageError(error.message) from error
        return simulator.simulate_memory(program, regions)

    def _span(self, register: int) -> memoryview:
        """Return the memory that an address and a size in registers name."""
        low, high, size = (self._read(register + offset) for offset in (0, 4, 8))
        start = high << 32 | low
        if size == 0:
            return self._memory[:0]
        if start % REGION_ALIGNMENT_BYTES:
            raise AddressError(f"address {start:#x} is not a multiple of {REGION_ALIGNMENT_BYTES}")
        if start < MEMORY_OFFSET or start + size > len(self._memory):
            raise AddressError(f"there is no memory for {size} bytes at {start:#x}")
        return self._memory[start : start + size]

    def _read(self, register: int) -> int:
        return self._registers[register // 4]

    def _write(self, register: int, value: int) -> None:
        self._registers[register // 4] = value


def main() -> int:
    """Run a command beside the device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", default="npu-256", metavar="NAME|FILE.toml", help="the NPU (%(default)s)")
    parser.add_argument("--memory", default="flash", choices=("flash", "sram"), help="of the constants (%(default)s)")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not arguments.command:
        parser.error("give the command to run")
    with tempfile.TemporaryDirectory() as folder:
        stub = Stub(Path(folder, "npu"), target=arguments.target, memory=arguments.memory)
        process = subprocess.Popen(arguments.command, env={**os.environ, VARIABLE: str(stub.path)})
        status = stub.serve(process)
        if stub.failure:
            print(f"stub.py: the last job that failed: {stub.failure}", file=sys.stderr)
        stub.close()
    return status


if __name__ == "__main__":
    raise SystemExit(main())
