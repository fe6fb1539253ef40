"""Objects for firmware beside TensorFlow Lite for Microcontrollers: bytes of code and of memory.

    .venv/bin/python benchmarks/firmware.py MODEL... [--triple thumbv7em-none-eabi --cpu cortex-m4]

Memory is the arena with the buffers of inputs and outputs, which the interpreter has in its arena too. Needs the
package tflite-micro beside ours, and models in TFLite's format beside those in Circle's. The interpreter runs on this
machine, where its structures have pointers of 64 bits; ``head`` is what it takes for tensors alone.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

# What it takes is printed by its C++ part.
_INTERPRETER = """
import sys
from tflite_micro.python.tflite_micro import runtime
runtime.Interpreter.from_file(sys.argv[1], arena_size=16 << 20).print_allocations()
"""


def main() -> None:
    """Print a line per model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, help="Circle models, with TFLite models beside them")
    parser.add_argument("--triple", default="thumbv7em-none-eabi")
    parser.add_argument("--cpu", default="cortex-m4")
    arguments = parser.parse_args()
    print(f"{'model':28} {'code':>7} {'arena':>7} {'ports':>7} {'theirs':>7} {'head':>7} {'ratio':>6}")
    for path in arguments.models:
        code, arena, ports = object_bytes(path, arguments.triple, arguments.cpu)
        theirs, head = interpreter_bytes(path.with_suffix(".tflite"))
        ratio = (arena + ports) / theirs
        print(f"{path.stem:28} {code:7} {arena:7} {ports:7} {theirs:7} {head:7} {ratio:6.2f}", flush=True)


def object_bytes(path: Path, triple: str, cpu: str) -> tuple[int, int, int]:
    """Bytes of code, of the arena, and of inputs and outputs."""
    from odc_mlir import compiler
    from odc_mlir.codegen.machine import import_llvm

    code, header = compiler.compile_object(path, name="model", triple=triple, cpu=cpu)
    sections = import_llvm().ObjectFileRef.from_data(code).sections()
    sizes = dict(re.findall(r"#define MODEL_(\w+) (\d+)", header))
    ports = sum(int(size) for name, size in sizes.items() if re.fullmatch(r"(IN|OUT)PUT\d+_BYTES", name))
    return sum(section.size() for section in sections if section.is_text()), int(sizes["ARENA_BYTES"]), ports


def interpreter_bytes(path: Path) -> tuple[int, int]:
    """What the interpreter takes of its arena in all, and for tensors alone."""
    command = [sys.executable, "-c", _INTERPRETER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = dict(re.findall(r"Arena allocation (total|head) (\d+)", done.stdout + done.stderr))
    return int(found["total"]), int(found["head"])


if __name__ == "__main__":
    main()
