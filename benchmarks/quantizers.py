"""Quantise the float test models and compare with other quantisers' figures for the same data.

    python benchmarks/quantizers.py [--data DIR] [--csv FILE] [--plain] [MODEL ...]

``--data`` holds ``models`` and ``baselines/quantizers.csv`` (default: $ODC_TEST_DATA, else ``shared`` beside the
repository). Each model is quantised in every scheme by its calibration samples and measured on its evaluation samples,
which the quantiser never sees: score in the models' own units, SQNR against the float model by our kernels, bytes.
8-bit models also run on the NPU, where every result must be that of the host. ``--plain`` switches help off.
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
from odc_mlir.quantizer.evaluation import Reference
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.execution.graph import build_graph

ROOT = Path(__file__).resolve().parents[1]
SCHEMES = ("int8", "uint8", "int16", "int16x8", "int8_wo", "int16_wo", "int4_wo")
ON_NPU = ("int8", "uint8")
NPU_SAMPLES = 16
# The peer's schemes that ours are compared with.
PEERS = {
    "int8": ("static_int8_minmax", "static_int8"),
    "int16x8": ("static_int16x8_minmax",),
    "int8_wo": ("weight_only_int8",),
}


@dataclass(frozen=True)
class Task:
    """A float model, what it is calibrated by and what it is measured on, below ``models``."""

    model: str
    calibration: str
    evaluation: str

    @property
    def name(self) -> str:
        return Path(self.model).stem

    @property
    def inputs(self) -> str:
        """How the peers' table calls the data."""
        path = Path(self.evaluation)
        return f"scoring/{path.name}" if path.parent.name == "scoring" else path.name


DIGITS = ("digits_cnn", "digits_mobile", "digits_mobile_hard", "digits_dynbatch")
ZOO = {"ad01_fp32": "ad", "pretrainedResnet": "ic", "vww_96_float": "vww", "kws_ref_model_float32": "kws"}
TASKS = (
    *(Task(f"digits/{name}", "digits/calibration", "digits/evaluation") for name in DIGITS),
    Task("digits/digits_unet", "digits/calibration_denoise", "digits/evaluation_denoise"),
    *(Task(f"zoo/{name}", f"zoo/calibration/{task}", f"zoo/scoring/{task}") for name, task in ZOO.items()),
)


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
    seconds: float


def samples_of(path: Path) -> tuple[list[list[Array]], Array | None]:
    """The samples of a file, and the right answers where it has some."""
    with np.load(path) as archive:
        data, labels = archive["in_0"], archive["y"] if "y" in archive.files else None
    return [[data[i : i + 1]] for i in range(len(data))], labels


def _peers(path: Path, task: Task, scheme: str) -> dict[str, float]:
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "sqnr_db" and row["model"] == task.name]
    found = {}
    for row in rows:
        if Path(row["inputs"]).stem == Path(f"{task.inputs}.npz").stem and row["scheme"] in PEERS.get(scheme, ()):
            twin = "twin" in row["tool"]
            if twin or row["scheme"] == PEERS[scheme][0]:
                found["twin" if twin else row["scheme"]] = float(row["value_ref"])
    return found


def measure(data: Path, task: Task, scheme: str, reference: Reference, options: dict[str, Any]) -> Row:
    """Quantise, run on the evaluation samples, compare with the NPU."""
    model = data / "models" / f"{task.model}.circle"
    start = time.perf_counter()
    made = odc_mlir.quantize(model, scheme=scheme, calibration=data / "models" / f"{task.calibration}.npz", **options)
    seconds = time.perf_counter() - start
    file = made.to_circle()
    measured = reference.measure(build_graph(read_model(file)))
    return Row(
        task.name,
        scheme,
        measured.score[1] if measured.score else None,
        reference.score[1] if reference.score else None,
        measured.worst()["sqnr_db"],
        measured.quality_db,
        _peers(data / "baselines" / "quantizers.csv", task, scheme),
        len(file),
        model.stat().st_size,
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
    print(f"{'model':<24}{'scheme':<9}{'score':>9}{'float':>9}{'SQNR':>8}{'decisive':>9}  bytes, NPU, peers' SQNR")
    for task in TASKS:
        if arguments.models and task.name not in arguments.models:
            continue
        samples, labels = samples_of(arguments.data / "models" / f"{task.evaluation}.npz")
        graph = build_graph(read_model(arguments.data / "models" / f"{task.model}.circle"))
        reference = Reference(graph, samples, labels)
        for scheme in arguments.schemes.split(","):
            row = measure(arguments.data, task, scheme, reference, {"help": not arguments.plain})
            rows.append(row)
            print(_line(row), flush=True)
    if arguments.csv:
        _write(arguments.csv, rows)
    return 0


def _line(row: Row) -> str:
    def number(value: float | None, width: int) -> str:
        return f"{'-':>{width}}" if value is None else f"{value:>{width}.3f}"

    peers = ", ".join(f"{name} {value:.1f}" for name, value in row.peers.items())
    return (
        f"{row.model:<24}{row.scheme:<9}{number(row.score, 9)}{number(row.float_score, 9)}"
        f"{number(row.sqnr_db, 8)}{row.quality_db:>9.2f}  {row.bytes} of {row.float_bytes}"
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
