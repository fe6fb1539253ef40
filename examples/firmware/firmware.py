"""Build firmware with models, boot it on emulated boards, and print answers, sizes and instruction counts.

    examples/firmware/run [MODEL...] [--board mps2-an386] [--golden FOLDER]

A model has one input and one output. NAME.npz in the folder holds inputs ``in_K_0`` and answers ``out_K_0`` of sample
K, or ``in_0`` and ``out_0`` of all samples along a leading axis. Without the option, inputs are random, and answers are
those of the host's kernels.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir import compiler
from odc_mlir.errors import InputError, OdcError, UnsupportedError
from odc_mlir.formats.samples import random_inputs
from odc_mlir.runtime.api import open_executor

HERE = Path(__file__).resolve().parent
MODELS = [HERE.parent / "digits" / "digits_cnn_int8.circle", HERE.parent / "on_device" / "digits_cnn.circle"]

C_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t", "float32": "float"}
TOLERANCE = 1e-5  # of floating-point answers: kernels add in another order than the host
TIME_LIMIT_SECONDS = 300

Array = NDArray[Any]


@dataclass(frozen=True)
class Board:
    """A board of QEMU: names for LLVM, for GCC and for QEMU.

    Under ``-icount shift=N``, an instruction takes 2^N ns of the board's time, so ``counts_per_instruction`` of the
    counter follow from the clock that drives it.
    """

    name: str
    triple: str
    cpu: str
    compiler: tuple[str, ...]
    startup: str
    emulator: tuple[str, ...]
    shift: int
    counts_per_instruction: float


_FLAGS = ("-std=c99", "-Os", "-ffreestanding", "-nostdlib", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
_LIBRARIES = ("-lm", "-lc", "-lgcc")  # functions that the processor has no instructions for; nothing allocates
_ARM = ("arm-none-eabi-gcc", "-mthumb", "-mfloat-abi=softfp")
_RISCV = ("riscv64-unknown-elf-gcc", "--specs=picolibc.specs", "-march=rv32imac", "-mabi=ilp32", "-mcmodel=medany")
BOARDS = {
    board.name: board
    for board in (
        Board(
            name="mps3-an547",
            triple="thumbv8.1m.main-none-eabi",
            cpu="cortex-m55",
            compiler=(*_ARM, "-mcpu=cortex-m55"),
            startup="cortex_m.c",
            emulator=("qemu-system-arm", "-M", "mps3-an547"),
            shift=3,
            counts_per_instruction=8 / 31.25,  # 32 MHz
        ),
        Board(
            name="mps2-an386",
            triple="thumbv7em-none-eabi",
            cpu="cortex-m4",
            compiler=(*_ARM, "-mcpu=cortex-m4"),
            startup="cortex_m.c",
            emulator=("qemu-system-arm", "-M", "mps2-an386"),
            shift=3,
            counts_per_instruction=8 / 40,  # 25 MHz
        ),
        Board(
            name="virt",
            triple="riscv32-unknown-elf",
            cpu="sifive-e31",
            compiler=_RISCV,
            startup="riscv32.c",
            emulator=("qemu-system-riscv32", "-M", "virt", "-cpu", "sifive-e31", "-bios", "none"),
            shift=0,
            counts_per_instruction=1,
        ),
    )
}


@dataclass(frozen=True)
class Firmware:
    """An image that boots, and the bytes that the model takes in it."""

    image: Path
    code_bytes: int
    constant_bytes: int
    arena_bytes: int
    port_bytes: int


@dataclass(frozen=True)
class Answer:
    """One inference on a board: its answer as printed, and what was counted."""

    values: str
    differing: int
    instructions: int
    stack_bytes: int


def build(model: Path, samples: list[tuple[Array, Array]], board: Board, folder: Path) -> Firmware:
    """Return the image for a board that runs a model on ``samples``: pairs of an input and the expected output."""
    if not samples:
        raise InputError("there are no samples")
    code, header = compiler.compile_object(model, name="model", triple=board.triple, cpu=board.cpu)
    if "_INPUT1_" in header or "_OUTPUT1_" in header:
        states = re.findall(r"(\S+): [^\n]*; a state:", header)
        has = f"keeps the states {', '.join(states)}" if states else "has several inputs or outputs"
        raise UnsupportedError(f"{model.name} {has}; this example handles one input and output, without states")
    (folder / "model.o").write_bytes(code)
    (folder / "model.h").write_text(header)
    (folder / "golden.h").write_text(golden_header(samples))
    image = folder / "firmware.elf"
    places = [f"-I{folder}", f"-I{HERE}", f"-L{HERE / 'boards'}", "-T", str(HERE / "boards" / f"{board.name}.ld")]
    sources = [str(HERE / "main.c"), str(HERE / "boards" / board.startup), str(folder / "model.o")]
    _run([*board.compiler, *_FLAGS, *places, *sources, *_LIBRARIES, "-o", str(image)])
    sections = _sections(board, folder / "model.o")
    numbers = {name: int(number) for name, number in re.findall(r"#define MODEL_(\w+) (\d+)\n", header)}
    return Firmware(
        image,
        code_bytes=sum(size for name, size in sections.items() if name.startswith(".text")),
        constant_bytes=sum(size for name, size in sections.items() if name.startswith((".rodata", ".data"))),
        arena_bytes=numbers["ARENA_BYTES"],
        port_bytes=numbers["INPUT0_BYTES"] + numbers["OUTPUT0_BYTES"],
    )


def boot(firmware: Firmware, board: Board) -> list[Answer]:
    """Return what the firmware prints on an emulated board, sample by sample."""
    machine = [*board.emulator, "-display", "none", "-serial", "null", "-monitor", "none"]
    options = ["-semihosting-config", "enable=on,target=native", "-icount", f"shift={board.shift},sleep=off"]
    command = [*machine, *options, "-kernel", str(firmware.image)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_SECONDS)
    printed = done.stdout + done.stderr
    lines = re.findall(r"sample \d+ counted (\d+) stack (\d+) differing (\d+) of \d+ answer (.*)", printed)
    answers = [
        Answer(values, int(differing), round(int(counted) / board.counts_per_instruction), int(stack))
        for counted, stack, differing, values in lines
    ]
    if done.returncode != any(answer.differing for answer in answers) or not answers:
        raise RuntimeError(f"the firmware ended with status {done.returncode}:\n{printed}")
    return answers


def golden_header(samples: list[tuple[Array, Array]]) -> str:
    """Return the C header with the types, the inputs and the expected answers of the samples."""
    kinds = [values.dtype for values in samples[0]]
    lines = ["#include <stdint.h>", ""]
    lines += [f"#define SAMPLES {len(samples)}", f"#define ANSWERS_ARE_REAL {int(kinds[1].kind == 'f')}"]
    lines += [f"#define TOLERANCE {TOLERANCE!r}f"]
    for kind, name in zip(kinds, ("input_t", "output_t"), strict=True):
        if kind.name not in C_TYPES:
            raise UnsupportedError(f"firmware has no type for {kind.name}", hint=f"it has {', '.join(C_TYPES)}")
        lines.append(f"typedef {C_TYPES[kind.name]} {name};")
    for index, declared in enumerate(("input_t samples", "output_t expected")):
        size = samples[0][index].size
        lines.append(f"static const {declared}[SAMPLES][{size}] = {{")
        lines += [f"  {{{', '.join(map(_literal, sample[index].ravel()))}}}," for sample in samples]
        lines.append("};")
    return "\n".join(lines) + "\n"


def _literal(value: Any) -> str:
    return f"{float(value).hex()}f" if isinstance(value, np.floating) else str(value)


def read_samples(model: Path, golden: Path | None, most: int) -> list[tuple[Array, Array]]:
    """Return at most so many samples of a model: pairs of an input and the expected output."""
    if golden is None:
        return _drawn_samples(model, most)
    with np.load(golden / f"{model.stem}.npz") as arrays:
        if "out_0" in arrays:
            return list(zip(arrays["in_0"][:most], arrays["out_0"][:most], strict=True))
        numbers = [k for k in range(most) if f"out_{k}_0" in arrays]
        return [(arrays[f"in_{k}_0"], arrays[f"out_{k}_0"]) for k in numbers]


def _drawn_samples(model: Path, most: int) -> list[tuple[Array, Array]]:
    executor = open_executor(model, backend="host")
    infos = executor.graph.input_infos()
    kinds = [(info.info.numpy, tuple(size or 1 for size in info.shape or ())) for info in infos]
    drawn = [random_inputs(kinds, seed) for seed in range(most)]
    return [(inputs[0], executor.run(inputs)[0]) for inputs in drawn]


def _sections(board: Board, path: Path) -> dict[str, int]:
    """Return the bytes of each section of an object file."""
    listed = _run([board.compiler[0].removesuffix("gcc") + "size", "-A", str(path)])
    return {name: int(size) for name, size in re.findall(r"^(\.\S+) +(\d+) +\d+$", listed, re.MULTILINE)}


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def row(model: Path, board: Board, firmware: Firmware, answers: list[Answer]) -> str:
    """Return the line of the table for a model on a board."""
    sizes = (firmware.code_bytes, firmware.constant_bytes, firmware.arena_bytes, firmware.port_bytes)
    stack = max(answer.stack_bytes for answer in answers)
    instructions = max(answer.instructions for answer in answers)
    right = sum(answer.differing == 0 for answer in answers)
    numbers = " ".join(f"{size:7}" for size in sizes)
    return f"{model.stem:24} {board.name:11} {numbers} {stack:6} {instructions:12} {right} of {len(answers)}"


def main() -> int:
    """Parse the command line, and print a table with a line per model and board; 0 if all answers are as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", type=Path, default=MODELS, help="Circle models (two digits models)")
    parser.add_argument("--board", choices=BOARDS, action="append", help="a board, repeatable (all)")
    parser.add_argument("--golden", type=Path, help="folder with NAME.npz for each model: inputs and expected answers")
    parser.add_argument("--samples", type=int, default=4, help="largest number of samples (%(default)s)")
    parser.add_argument("--brief", action="store_true", help="print the table without the answers")
    arguments = parser.parse_args()
    header = f"{'model':24} {'board':11} {'code':>7} {'consts':>7} {'arena':>7} {'ports':>7} {'stack':>6} "
    header += f"{'instructions':>12} right\n"
    wrong = False
    for model in arguments.models:
        for board in (BOARDS[name] for name in arguments.board or BOARDS):
            try:
                samples = read_samples(model, arguments.golden, arguments.samples)
                with tempfile.TemporaryDirectory() as folder:
                    firmware = build(model, samples, board, Path(folder))
                    answers = boot(firmware, board)
            except (OdcError, OSError, RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"error: {model}: {error}", file=sys.stderr)
                return 2
            print(header + row(model, board, firmware, answers), flush=True)
            header = ""
            if not arguments.brief:
                print("\n".join(f"    {answer.values}" for answer in answers), flush=True)
            wrong |= any(answer.differing for answer in answers)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
