"""Cycles of the quantised zoo: measure them, and keep the table that the tests compare with.

    python scripts/cycle_table.py [--data DIR] [--reason TEXT] [MODEL ...]

Without ``--reason``: measure, print what differs from ``test/data/cycles.csv``, and fail if anything does by more than
the tolerance. With it: write the table, with the reason on top of it. ``--data`` is the folder that holds ``models``
(default: $ODC_TEST_DATA, else ``shared`` beside the repository). MODELs choose models by name.

Cycles are the simulator's, parity memory model, timing only, over all segments of one inference. What stays on the host
takes no cycles, so the number of operators on the NPU is in the table as well.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from odc_mlir import compiler
from odc_mlir.formats.package import PackageFiles
from odc_mlir.simulator import load, simulate
from odc_mlir.simulator.counters import Counters

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "test" / "data" / "cycles.csv"
TOLERANCE = 0.01  # of the cycles; the number of operators is exact

MODELS = {
    "digits_cnn_int8": "digits",
    "ad01_int8": "zoo",
    "kws_ref_model": "zoo",
    "str_ww_ref_model": "zoo",
    "pretrainedResnet_quant": "zoo",
    "vww_96_int8": "zoo",
    "mobilenet_v1_0.25_128_quant": "zoo",
    "mobilenet_v2_1.0_224_quant": "zoo",
    "keras_lstm_mnist_ptq": "lstm",
    "digits_cnn_int16": "zoo-int16",
    "digits_mobile_int16": "zoo-int16",
    "kws_ref_model_float32_int16": "zoo-int16",
    "pretrainedResnet_int16": "zoo-int16",
}
TARGETS = ("npu-128", "npu-256", "npu-512", "npu-2048")
MEMORIES = ("flash", "sram")


class Key(NamedTuple):
    """One row: a model of :data:`MODELS`, a target, a memory mode."""

    model: str
    target: str
    memory: str


class Value(NamedTuple):
    """What is pinned of it."""

    cycles: int
    npu_operators: int


Table = dict[Key, Value]


def rows(models: Iterable[str] = MODELS) -> list[Key]:
    """Every row of the table of these models."""
    return [Key(model, target, memory) for model in models for target in TARGETS for memory in MEMORIES]


def measure(data: Path, key: Key) -> Value:
    """Compile a model below ``data`` and time its segments; raises OdcError."""
    return timed(compiler.compile(model_path(data, key.model), target=key.target, memory=key.memory))


def model_path(data: Path, model: str) -> Path:
    """The file of a model below the folder ``data``."""
    return data / "models" / MODELS[model] / f"{model}.circle"


def timed(package: PackageFiles) -> Value:
    """Time the segments of a compiled package."""
    return Value(sum(counters.cycles for counters in counted(package)), npu_operators(package))


def counted(package: PackageFiles) -> list[Counters]:
    """The counters of one run of each segment, without values."""
    assert package.plan is not None, "compiled packages have a plan"
    return [simulate(load(package.segment(s.file)), execute=False).counters for s in package.plan.segments]


def npu_operators(package: PackageFiles) -> int:
    """How many operators the segments compute."""
    assert package.plan is not None, "compiled packages have a plan"
    return sum(len(segment.operators) for segment in package.plan.segments)


def read(path: Path = TABLE) -> Table:
    """The table in a file."""
    with path.open(newline="") as stream:
        lines = csv.DictReader(line for line in stream if not line.startswith("#"))
        return {
            Key(row["model"], row["target"], row["memory"]): Value(int(row["cycles"]), int(row["npu_operators"]))
            for row in lines
        }


def reasons(path: Path = TABLE) -> list[str]:
    """The comment lines at the top of a table: why it changed, newest first."""
    return [line for line in path.read_text().splitlines() if line.startswith("#")] if path.exists() else []


def write(table: Table, reason: str, path: Path = TABLE) -> None:
    """Write a table in the order of :func:`rows`, with ``reason`` above the older ones."""
    lines = [f"# {reason}", *reasons(path), ",".join((*Key._fields, *Value._fields))]
    lines += [",".join(map(str, (*key, *table[key]))) for key in rows() if key in table]
    path.write_text("\n".join(lines) + "\n")


def changed(expected: Value | None, found: Value) -> bool:
    """Whether a measurement leaves the tolerance."""
    if expected is None:
        return True
    far = abs(found.cycles - expected.cycles) > TOLERANCE * expected.cycles
    return far or found.npu_operators != expected.npu_operators


def differences(expected: Table, found: Table) -> Iterator[str]:
    """A line for each row of ``found`` that leaves the tolerance."""
    for key, value in found.items():
        old = expected.get(key)
        if changed(old, value):
            before = "not in the table" if old is None else f"{old.cycles} cycles, {old.npu_operators} operators"
            ratio = "" if old is None else f" ({value.cycles / old.cycles - 1:+.1%})"
            yield f"{' '.join(key)}: {before}, now {value.cycles} cycles, {value.npu_operators} operators{ratio}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the status is 1 where cycles changed and no reason is given."""
    parser = argparse.ArgumentParser(description="Measure the cycles of the quantised zoo, compare or write the table.")
    parser.add_argument("--data", default=os.environ.get("ODC_TEST_DATA", ROOT.parent / "shared"), type=Path)
    parser.add_argument("--reason", help="write the table; why its numbers change")
    parser.add_argument("models", nargs="*", choices=(*MODELS, []), metavar="MODEL", help="default: all")
    arguments = parser.parse_args(argv)
    table = read() if TABLE.exists() else {}
    found = {key: measure(arguments.data, key) for key in rows(arguments.models or MODELS)}
    lines = list(differences(table, found))
    print(*lines, f"{len(lines)} of {len(found)} rows differ by more than {TOLERANCE:.0%}", sep="\n")
    if arguments.reason:
        write(table | found, arguments.reason)
        return 0
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
