"""Objects for other processors, linked by zig and run by qemu: the same integers. Skipped without either."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from odc_mlir import compiler

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_cnn_int8.circle"

# LLVM's names for the object, or that of a description; zig's for what calls it; the register and numbers of system
# calls; what runs it.
Calls = tuple[str, str, int, int, int]
ARM64: Calls = ("x", "x8", 63, 64, 93)
MACHINES = [
    ("thumbv7em-none-eabi", "cortex-m4", "arm-freestanding-eabi", ("r", "r7", 3, 4, 1), "qemu-arm"),
    ("aarch64-unknown-linux-gnu", "generic", "aarch64-freestanding", ARM64, "qemu-aarch64"),
    ("aarch64-dotprod", None, "aarch64-freestanding", ARM64, "qemu-aarch64"),
    ("aarch64-i8mm", None, "aarch64-freestanding", ARM64, "qemu-aarch64"),
]
Machine = tuple[str, str | None, str, Calls, str]

# No libc: building one takes minutes, and the object needs none.
MAIN = """
#include "model.h"
static _Alignas(MODEL_ALIGNMENT) {kind} input[MODEL_INPUT0_BYTES];
static _Alignas(MODEL_ALIGNMENT) {kind} output[MODEL_OUTPUT0_BYTES];
static _Alignas(MODEL_ALIGNMENT) unsigned char arena[MODEL_ARENA_BYTES];
static long call(long n, long a, void *b, long c) {{
  register long first asm("{letter}0") = a;
  register void *second asm("{letter}1") = b;
  register long third asm("{letter}2") = c;
  register long number asm("{register}") = n;
  asm volatile("svc 0" : "+r"(first) : "r"(second), "r"(third), "r"(number) : "memory");
  return first;
}}
void _start(void) {{
  call({read}, 0, input, sizeof *input * MODEL_INPUT0_ELEMENTS);
  long status = model_run(input, output, arena);
  call({write}, 1, output, sizeof *output * MODEL_OUTPUT0_ELEMENTS);
  call({leave}, status, 0, 0);
}}
"""


def run_elsewhere(folder: Path, model: Path, values: np.ndarray, machine: Machine) -> bytes:
    described, cpu, linked, (letter, register, *numbers), emulator = machine
    wanted = {"target": described} if cpu is None else {"triple": described, "cpu": cpu}
    code, header = compiler.compile_object(model, name="model", **wanted)
    (folder / "model.o").write_bytes(code)
    (folder / "model.h").write_text(header)
    names = dict(zip(("read", "write", "leave"), numbers, strict=True))
    text = MAIN.format(kind=f"{values.dtype}_t", letter=letter, register=register, **names)
    (folder / "main.c").write_text(text)
    zig = [sys.executable, "-m", "ziglang"]
    flags = ["-O1", "-ffreestanding", "-fno-builtin", "-fomit-frame-pointer", "-fno-stack-protector"]
    steps = [
        [*zig, "cc", "-target", linked, *flags, "-c", "main.c", "-o", "main.o"],
        [*zig, "ld.lld", "-static", "-e", "_start", "main.o", "model.o", "-o", "model"],
    ]
    for command in steps:
        built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
    given = values.tobytes()
    processor = ["-cpu", "max"] if cpu is None else []
    return subprocess.run([emulator, *processor, folder / "model"], input=given, capture_output=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("machine", MACHINES, ids=[machine[0] for machine in MACHINES])
def test_objects_give_the_same_integers(machine: Machine, tmp_path: Path) -> None:
    if find_spec("ziglang") is None or shutil.which(machine[4]) is None:
        pytest.skip(f"needs the package ziglang and {machine[4]}")
    values = np.random.default_rng(1).integers(-128, 128, (1, 8, 8, 1)).astype(np.int8)
    found = np.frombuffer(run_elsewhere(tmp_path, DIGITS, values, machine), np.int8)
    np.testing.assert_array_equal(found, odc_mlir.run(DIGITS, [values], backend="host")[0].ravel())
