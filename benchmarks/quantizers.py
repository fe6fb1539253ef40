"""Quantise the float test models and compare with other quantisers' figures for the same data.

    python benchmarks/quantizers.py [--data DIR] [--csv FILE] [--plain] [MODEL ...]

``--data`` holds ``models`` and ``baselines/quantizers.csv`` (default: $ODC_TEST_DATA, else ``shared`` beside the
repository). Each model is quantised in every scheme by its calibration samples and measured on its evaluation samples,
which the quantiser never sees: score in the models' own units, SQNR against the float model by our kernels, bytes.
8-bit models also run on the NPU, where every result must be that of the host. ``--plain`` switches help off.
``peer.csv`` beside this has what ai-edge-quantizer reaches in every way that it has (``peer.py`` writes it): the gain
is that over its best.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import odc_mlir
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.reference import Reference
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.execution.graph import build_graph
from peer import NAMES
from quantizer_tasks import TASKS, Prepared, Task, prepare

ROOT = Path(__file__).resolve().parents[1]
SCHEMES = ("int8", "uint8", "int16", "int16x8", "int8_wo", "int16_wo", "int4_wo")
ON_NPU = ("int8", "uint8")
NPU_SAMPLES = 16
PEERS = Path(__file__).with_name("peer.csv")
BEST = "ai-edge-quantizer"


@dataclass(frozen=True)
class Row:
    """One model in one scheme."""

    model: str
    scheme: str
    score: float | None
    float_score: float | None
    sqnr_db: float | None
    quality_db: float  # of the tensors that decide the outputs
    peers: dict[str, float]  # SQNR by peer
    bytes: int
    float_bytes: int
    passed: bool
    npu: str  # whether the NPU gives the host's numbers
    seconds: float  # of CPU, for quantising

    @property
    def gain_db(self) -> float | None:
        """Over ai-edge-quantizer's best."""
        best = self.peers.get(BEST)
        return None if best is None or self.sqnr_db is None else self.sqnr_db - best


def _peers(path: Path, task: Task, scheme: str) -> dict[str, float]:
    """The best of ai-edge-quantizer's ways, and the int8 model that ships beside the float one."""
    found: dict[str, float] = {}
    for table in (PEERS, path):
        if not table.is_file():
            continue
        with table.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if (row["metric"], row["model"]) == ("sqnr_db", task.name)]
        for row in rows:
            name = "twin" if "twin" in row["tool"] else BEST if table == PEERS else ""
            ours = (
                row["scheme"].startswith(NAMES.get(scheme, "?")) and Path(row["inputs"]).stem == Path(task.inputs).stem
            )
            if name and ours and row["value_ref"]:
                found[name] = max(float(row["value_ref"]), found.get(name, -np.inf))
    return found


def measure(data: Path, task: Task, ready: Prepared, scheme: str, reference: Reference, options: dict[str, Any]) -> Row:
    """Quantise, run on the evaluation samples, compare with the NPU."""
    start = time.process_time()
    made = odc_mlir.quantize(ready.file, scheme=scheme, calibration=[*map(list, ready.calibration)], **options)
    seconds = time.process_time() - start
    file = made.to_circle()
    measured = reference.measure(build_graph(read_model(file)))
    return Row(
        task.name,
        scheme,
        next(iter(measured.scored.after.values())) if measured.scored else None,
        next(iter(reference.scores.values())) if reference.scores else None,
        measured.worst()["sqnr_db"],
        measured.quality_db,
        _peers(data / "baselines" / "quantizers.csv", task, scheme),
        len(file),
        ready.float_bytes,
        made.passed,
        _on_npu(file, reference.samples[:NPU_SAMPLES]) if scheme in ON_NPU else "",
        seconds,
    )


def _on_npu(file: bytes, samples: Sequence[Sequence[Array]]) -> str:
    host, npu = open_executor(file, backend="host"), open_executor(file, backend="npu")
    for sample in samples:
        for a, b in zip(host.run(sample), npu.run(sample), strict=True):
            if not np.array_equal(a, b):
                return "differs"
    return "same"


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"))
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--plain", action="store_true", help="without help")
    arguments = parser.parse_args()
    rows = []
    print(f"{'model':<34}{'scheme':<9}{'score':>9}{'float':>9}{'SQNR':>8}{'decisive':>9}{'gain':>7}  bytes, NPU, peers")
    for task in TASKS:
        if arguments.models and task.name not in arguments.models:
            continue
        ready = prepare(arguments.data / "models", task)
        reference = ready.reference
        for scheme in arguments.schemes.split(","):
            row = measure(arguments.data, task, ready, scheme, reference, {"help": not arguments.plain})
            rows.append(row)
            print(_line(row), flush=True)
    gains = [row.gain_db for row in rows if row.gain_db is not None]
    if gains:
        print(f"gain over {BEST}'s best: least {min(gains):+.2f} dB, median {np.median(gains):+.2f} dB")
    if arguments.csv:
        _write(arguments.csv, rows)
    return 0


def _line(row: Row) -> str:
    def number(value: float | None, width: int) -> str:
        return f"{'-':>{width}}" if value is None else f"{value:>{width}.3f}"

    peers = ", ".join(f"{name} {value:.1f}" for name, value in row.peers.items())
    return (
        f"{row.model:<34}{row.scheme:<9}{number(row.score, 9)}{number(row.float_score, 9)}"
        f"{number(row.sqnr_db, 8)}{row.quality_db:>9.2f}{number(row.gain_db, 8)}  {row.bytes} of {row.float_bytes}"
        f"{' NPU ' + row.npu if row.npu else ''}{'' if row.passed else ' FAILED'} {row.seconds:.1f}s {peers}"
    )


def _write(path: Path, rows: Sequence[Row]) -> None:
    fields = (
        "model",
        "scheme",
        "score",
        "float_score",
        "sqnr_db",
        "quality_db",
        "bytes",
        "float_bytes",
        "passed",
        "npu",
    )
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow((*fields, "peers", "seconds"))
        for row in rows:
            peers = "; ".join(f"{name} {value:g}" for name, value in row.peers.items())
            writer.writerow((*(getattr(row, name) for name in fields), peers, f"{row.seconds:.2f}"))


if __name__ == "__main__":
    sys.exit(main())
