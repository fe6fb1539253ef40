"""Cycles over Arm Vela's estimate under conditions that favour Vela, for ``npu-256`` and memory mode ``flash``.

    python benchmarks/fairness.py [--data DIR] [--vela PROGRAM] [MODEL ...]

Compiles the models of ``benchmarks/vela.csv`` with 8-bit data under each condition and writes
``benchmarks/fairness.csv``, which docs/performance.md shows. ``--vela`` also runs Vela: its deprecated core, which is
often the better one, and its usual core for the size of its command stream. Vela's estimate leaves out the fetch of
this stream, and our cycles include the fetch of our program. Without the option, the values in the file are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import odc_mlir
from odc_mlir import targets
from odc_mlir.errors import AllocationError
from odc_mlir.explore.space import toml_lines
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.targets import Target
from odc_mlir.transforms.circle.circle_remove_channels import CircleRemoveChannelsPass

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("fairness.csv")
LANES, SYMBOLS = 4, 8  # results and decoded weights per cycle of the Ethos-U55-256
VELA = (
    "--accelerator-config=ethos-u55-256",
    "--config=Arm/vela.ini",
    "--system-config=Ethos_U55_High_End_Embedded",
    "--memory-mode=Shared_Sram",
)
LEGACY = "--debug-force-legacy-core"


def narrowed() -> Target:
    """Return ``npu-256`` with the lanes and the decoder of the Ethos-U55-256."""
    base = targets.load("npu-256")
    vector, decoder = replace(base.vector, requant_lanes=LANES), replace(base.decoder, symbols_per_cycle=SYMBOLS)
    return replace(base, name="npu-256-u55", vector=vector, decoder=decoder)


@contextlib.contextmanager
def keeping_channels() -> Iterator[None]:
    """Compile without the pass that removes constant and unused channels."""
    with mock.patch.object(CircleRemoveChannelsPass, "apply", return_value=None):
        yield


def report(model: Path, target: str, limit: int | None) -> dict[str, Any]:
    """Return the report of a package, at the least sufficient SRAM limit if ``limit`` is less."""
    try:
        return dict(odc_mlir.compile(model, target=target, memory="flash", sram_limit=limit).report)
    except AllocationError as error:
        return report(model, target, error.needed_bytes)


def row(model: Path, theirs: dict[str, str], machine: str) -> dict[str, Any]:
    """Return the cycles of ``model`` under each condition beside Vela's."""
    peak = int(theirs["sram_bytes"])
    plain = report(model, "npu-256", None)
    limited = report(model, "npu-256", peak)
    with keeping_channels():
        kept, worst = report(model, "npu-256", None), report(model, machine, peak)
    return {
        "model": model.stem,
        "vela": int(theirs["cycles"]),
        "vela_sram_bytes": peak,
        "sram_bytes": plain["sram_peak_bytes"],
        "parity": plain["cycles_total"],
        "strict": plain["cycles_total_strict"],
        "all_channels": kept["cycles_total"],
        "at_velas_sram": limited["cycles_total"],
        "sram_bytes_limited": limited["sram_peak_bytes"],
        "narrow": report(model, machine, None)["cycles_total"],
        "all_three": worst["cycles_total"],
    }


def estimate(program: str, model: Path, *options: str) -> tuple[int, int]:
    """Return Vela's estimate for a .tflite file, in cycles, and the bytes of its command streams."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, *VELA, *options, f"--output-dir={folder}", model], check=True, capture_output=True)
        (summary,) = Path(folder).glob("*_summary_*.csv")
        with summary.open(newline="") as stream:
            cycles = int(float(next(csv.DictReader(stream))["cycles_total"]))
        return cycles, command_bytes(Path(folder) / f"{model.stem}_vela.tflite")


def command_bytes(optimised: Path) -> int:
    """Return the bytes of the command streams in Vela's output: the first input of its custom operators."""
    (graph,) = read_model(optimised.read_bytes()).subgraphs
    first = [graph.tensors[item.inputs[0]] for item in graph.operators if len(item.inputs)]
    return sum((tensor.shape or (0,))[0] for tensor in first if "command_stream" in str(tensor.name))


def read() -> list[dict[str, str]]:
    """Return the rows of the file."""
    with FILE.open(newline="") as stream:
        return list(csv.DictReader(stream))


def main() -> int:
    """Parse the command line, compile, write."""
    parser = argparse.ArgumentParser(description="compare cycles with Vela's estimate under conditions that favour it")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="model names (default: all)")
    default = os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"
    parser.add_argument("--data", type=Path, default=Path(default), help="folder with models/zoo")
    parser.add_argument("--vela", metavar="PROGRAM", help="run Vela as well")
    arguments = parser.parse_args()
    with (ROOT / "benchmarks" / "vela.csv").open(newline="") as stream:
        lines = list(csv.DictReader(line for line in stream if not line.startswith("#")))
    theirs = {line["model"]: line for line in lines if (line["target"], line["memory"]) == ("npu-256", "flash")}
    found = {item["model"]: item for item in read()} if FILE.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        machine = Path(folder) / "machine.toml"
        machine.write_text("\n".join(toml_lines(json.loads(narrowed().canonical))))
        for name in arguments.models or theirs:
            model = arguments.data / "models" / "zoo" / f"{name}.circle"
            if not model.exists():
                continue  # 16-bit data
            made = row(model, theirs[name], str(machine))
            tflite, before = model.with_suffix(".tflite"), found.get(name, {})
            if arguments.vela:
                before = {
                    "vela_legacy": str(estimate(arguments.vela, tflite, LEGACY)[0]),
                    "vela_commands": str(estimate(arguments.vela, tflite)[1]),
                }
            found[name] = made | {key: before.get(key, "") for key in ("vela_legacy", "vela_commands")}
            print(*found[name].values(), flush=True)
    rows = [found[name] for name in theirs if name in found]
    with FILE.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
