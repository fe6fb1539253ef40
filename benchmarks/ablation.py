"""What each step of the quantiser is worth: alone on top of plain quantising, and when help goes without it.

    python benchmarks/ablation.py [--data DIR] [--samples N] [--scheme int8] [MODEL ...]

``--data`` holds ``models`` (default: $ODC_TEST_DATA, else ``shared`` beside the repository). Each network is quantised
by its calibration samples, and measured on N samples that the quantiser never sees: SQNR in dB of the outputs, or of
what their softmax is taken of. Prints a table in Markdown: in each column ``alone / without``: the gain of plain
quantising with this step alone, and the loss of help, mixed precision apart, when just this step, with its other
values, is off. ``hf_bert`` has random weights and is given random tokens; ``raw_table`` is a made network of raw
columns that differ in size.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import odc_mlir
from odc_mlir import pipelines
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.evaluation import Reference
from odc_mlir.runtime.execution.graph import build_graph
from quantizer_tasks import TASKS, Task, samples_of
from tabular import network

ROOT = Path(__file__).resolve().parents[1]
SEED = 1
CALIBRATION, UNSEEN = 96, 128
OFF = {
    "equalize": "none",
    "ranges": "minmax",
    "headroom": 0.0,
    "rounding": "off",
    "correction": "off",
    "normalize": "off",
}


@dataclass(frozen=True)
class Step:
    """A step by the options that do it; ``off``: those that make help go without it.

    ``prepares``: the pass that does it before anything is chosen, with and without help.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    off: Mapping[str, Any] = field(default_factory=dict)
    prepares: str = ""


def _step(name: str, option: str, value: Any, *, other: bool = False) -> Step:
    """The step that an option turns on; ``other``: another value of it has the row in which help goes without."""
    return Step(name, {option: value}, {} if other else {option: OFF[option]})


STEPS = (
    _step("rounding by samples", "rounding", "on"),
    _step("correction of biases", "correction", "on"),
    _step("equalise by weights", "equalize", "weights"),
    _step("… by activations (SmoothQuant)", "equalize", "activations", other=True),
    _step("… the same, share 0.8", "equalize", "activations:0.8", other=True),
    _step("ranges by mse", "ranges", "mse"),
    _step("… by entropy", "ranges", "entropy", other=True),
    _step("… by percentile of elements", "ranges", "percentile-elements", other=True),
    _step("headroom of a tenth", "headroom", 0.1),
    _step("normalise inputs and outputs", "normalize", "on"),
    Step("clip masks", prepares="circle-clip-masks"),
    Step("mixed precision", {"mixed": "on"}),
)


@dataclass(frozen=True)
class Subject:
    """A network with samples to calibrate by, and others."""

    name: str
    model: bytes
    calibration: Sequence[Sequence[Array]]
    unseen: Sequence[Sequence[Array]]


FILES = (
    *(task for task in TASKS if task.name in ("digits_mobile_hard", "pretrainedResnet")),
    Task("trained/digits_vit", "trained/digits_vit.calibration", "trained/digits_vit.evaluation"),
    Task(
        "trained/all-positions/chars_llama_all",
        "trained/chars_llama.calibration",
        "trained/all-positions/chars_llama_all.evaluation",
    ),
)
BERT = "tico/hf_bert"


def subjects(models: Path) -> Iterator[Subject]:
    """All networks whose files are below ``models``, and the one that is made."""
    for task in FILES:
        path = models / f"{task.model}.circle"
        if path.is_file():
            known, unseen = (samples_of(models / f"{name}.npz")[0] for name in (task.calibration, task.evaluation))
            yield Subject(task.name, path.read_bytes(), known, unseen)
    random = np.random.default_rng(SEED)
    path = models / f"{BERT}.circle"
    if path.is_file():
        tokens = random.integers(0, 200, (CALIBRATION + UNSEEN, 1, 16))
        yield _split(path.stem, path.read_bytes(), tokens)
    yield _table(random)


def _split(name: str, model: bytes, inputs: Array) -> Subject:
    rows = [[row] for row in inputs]
    return Subject(name, model, rows[:CALIBRATION], rows[CALIBRATION:])


def _table(random: np.random.Generator) -> Subject:
    """Twelve raw columns of sizes from 0.01 to 1000, and a network that normalises them in its first layer."""
    sizes = np.logspace(-2, 3, 12)
    widths = (12, 32, 16, 3)
    layers = [(random.standard_normal((b, a)) / np.sqrt(a), random.standard_normal(b) / 4) for a, b in pairwise(widths)]
    rows = (random.standard_normal((CALIBRATION + UNSEEN, 1, 12)) + 2) * sizes
    model = network(2 * sizes, sizes, layers, "folded", None)
    return _split("raw_table", bytes(write_model(model)), rows.astype(np.float32))


@contextlib.contextmanager
def without(step: str) -> Iterator[None]:
    """Leave a pass out of what is done before anything is chosen."""
    passes = pipelines.QUANTIZE_PREPARE
    pipelines.QUANTIZE_PREPARE = tuple(name for name in passes if name != step)
    try:
        yield
    finally:
        pipelines.QUANTIZE_PREPARE = passes


class Measured:
    """SQNR of one network by options, measured once each."""

    def __init__(self, subject: Subject, samples: int, scheme: str) -> None:
        self.subject, self.scheme = subject, scheme
        self.reference = Reference(build_graph(read_model(subject.model)), subject.unseen[:samples])

    def __call__(self, **options: Any) -> float:
        made = odc_mlir.quantize(
            self.subject.model, scheme=self.scheme, calibration=self.subject.calibration, **({"mixed": "off"} | options)
        )
        return self.reference.measure(build_graph(read_model(made.to_circle()))).quality_db

    def cells(self) -> Iterator[tuple[str, str]]:
        """The column's rows: a name and what stands beside it."""
        plain, helped = self(help=False), self()
        yield "plain", f"{plain:.1f}"
        yield "with help", f"{helped:.1f}"
        for step in STEPS:
            yield step.name, self._cell(step, plain, helped)

    def _cell(self, step: Step, plain: float, helped: float) -> str:
        if step.prepares:
            with without(step.prepares):
                return f"{_text(plain - self(help=False))} / {_text(helped - self())}"
        alone = _text(self(help=False, **step.options) - plain)
        return f"{alone} / {_text(helped - self(**step.off))}" if step.off else alone


def _text(gain_db: float) -> str:
    return f"{round(gain_db, 1) + 0.0:+.1f}"  # no negative zero


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"))
    parser.add_argument("--samples", type=int, default=UNSEEN, metavar="N")
    parser.add_argument("--scheme", default="int8", choices=("int8", "uint8", "int16x8"))
    arguments = parser.parse_args()
    columns: dict[str, dict[str, str]] = {}
    for subject in subjects(arguments.data / "models"):
        if arguments.models and subject.name not in arguments.models:
            continue
        column = columns.setdefault(subject.name, {})
        start = time.process_time()
        for row, cell in Measured(subject, arguments.samples, arguments.scheme).cells():
            column[row] = cell
            print(f"{subject.name}: {row} {cell}", file=sys.stderr, flush=True)
        print(f"{subject.name}: {time.process_time() - start:.0f} s of CPU", file=sys.stderr, flush=True)
    _print(columns)
    return 0


def _print(columns: Mapping[str, Mapping[str, str]]) -> None:
    print(f"| step | {' | '.join(columns)} |")
    print(f"| --- |{' --- |' * len(columns)}")
    for row in ("plain", "with help", *(step.name for step in STEPS)):
        print(f"| {row} | {' | '.join(column.get(row, '') for column in columns.values())} |")


if __name__ == "__main__":
    sys.exit(main())
