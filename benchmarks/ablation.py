"""What each step of the quantiser is worth: alone on top of plain quantising, and when help goes without it.

    python benchmarks/ablation.py [--data DIR] [--samples N] [--scheme int8] [--thresholds] [MODEL ...]

``--data`` holds ``models`` (default: $ODC_TEST_DATA, else ``shared`` beside the repository). Each network is quantised
by its calibration samples, and measured on N samples that the quantiser never sees: SQNR in dB of the outputs, or of
what their softmax is taken of. Prints a table in Markdown: in each column ``alone / without``: the gain of plain
quantising with this step alone, and the loss of help, mixed precision apart, when just this step is off. Of a step that
tries several values, rows that begin with … have each of these: alone, and left out of what help tries. ``hf_bert`` has
random weights and is given random tokens; made networks are ``raw_table``, of raw columns that differ in size,
``raw_answers``, whose answers do, and ``long_tails``, of columns with rare large values.

With ``--thresholds``, the table has instead the change of the SQNR with help if a threshold of the search is halved and
doubled.
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
from types import ModuleType
from typing import Any

import numpy as np

import odc_mlir
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer import help, measurement
from odc_mlir.quantizer.policy import options, ranges
from odc_mlir.quantizer.reference import Reference
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
    "output_room": "off",
}


@dataclass(frozen=True)
class Step:
    """A step by the options that do it ``alone``, on top of plain quantising, and those that help goes ``without``.

    ``left_out``: the entry of a table that help goes without instead: a module, the name of its table, and the entry.
    """

    name: str
    alone: Mapping[str, Any] = field(default_factory=dict)
    without: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[ModuleType, str, Any] | None = None


def _switch(name: str, *options: str) -> Step:
    """The step that these options turn on."""
    return Step(name, dict.fromkeys(options, "on"), {option: OFF[option] for option in options})


def _best_of(name: str, option: str) -> Step:
    """The step in which the best value of an option is chosen, by the same rule as with all other help."""
    others = {other: value for other, value in OFF.items() if other != option}
    return Step(name, {"help": True} | others, {option: OFF[option]})


def _value(option: str, value: Any, module: ModuleType, table: str) -> Step:
    """One of the values that are tried in the step above."""
    return Step(f"… {value}", {option: value}, left_out=(module, table, value))


STEPS = (
    _switch("rounding by samples", "rounding"),
    _switch("correction of biases", "correction"),
    _switch("both of these", "rounding", "correction"),
    _best_of("equalise", "equalize"),
    *(_value("equalize", value, options, "EQUALIZE") for value in options.EQUALIZE[1:]),
    _best_of("headroom", "headroom"),
    *(_value("headroom", value, help, "HEADROOMS") for value in help.HEADROOMS),
    _best_of("room of outputs", "output_room"),
    Step("normalise inputs", {"normalize": "inputs"}, {"normalize": "outputs"}),
    Step("normalise outputs", {"normalize": "outputs"}, {"normalize": "inputs"}),
)
MIXED = "mixed precision"
THRESHOLDS = (
    (help, "LEAST_GAIN_DB"),
    (help, "_LEAST_LOST_DB"),
    (measurement, "_MOST_LOST_DB"),
    (ranges, "LEAST_RATIO"),
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
    yield _answers(random)
    yield _tails(random)


def _split(name: str, model: bytes, inputs: Array) -> Subject:
    rows = [[row] for row in inputs]
    return Subject(name, model, rows[:CALIBRATION], rows[CALIBRATION:])


def _layers(random: np.random.Generator, *widths: int) -> list[tuple[Array, Array]]:
    return [(random.standard_normal((b, a)) / np.sqrt(a), random.standard_normal(b) / 4) for a, b in pairwise(widths)]


def _table(random: np.random.Generator) -> Subject:
    """Twelve raw columns of sizes from 0.01 to 1000, and a network that normalises them in its first layer."""
    sizes = np.logspace(-2, 3, 12)
    layers = _layers(random, 12, 32, 16, 3)
    rows = (random.standard_normal((CALIBRATION + UNSEEN, 1, 12)) + 2) * sizes
    model = network(2 * sizes, sizes, layers, "folded", None)
    return _split("raw_table", bytes(write_model(model)), rows.astype(np.float32))


def _answers(random: np.random.Generator) -> Subject:
    """A network whose six answers have sizes from 0.01 to 1000."""
    layers = _layers(random, 12, 32, 16, 6)
    rows = random.standard_normal((CALIBRATION + UNSEEN, 1, 12))
    units = np.logspace(-2, 3, 6)
    model = network(np.zeros(12), np.ones(12), layers, "folded", None, answers=(units, -units))
    return _split("raw_answers", bytes(write_model(model)), rows.astype(np.float32))


def _tails(random: np.random.Generator) -> Subject:
    """A network of columns whose largest values are rare: few samples do not show how far they go."""
    layers = _layers(random, 12, 32, 16, 3)
    rows = random.standard_t(4, (CALIBRATION + UNSEEN, 1, 12))
    model = network(np.zeros(12), np.ones(12), layers, "folded", None)
    return _split("long_tails", bytes(write_model(model)), rows.astype(np.float32))


@contextlib.contextmanager
def replaced(modules: Sequence[ModuleType], name: str, value: Any) -> Iterator[None]:
    """Give a name in ``modules`` another value as long as this lasts."""
    before = [getattr(module, name) for module in modules]
    for module in modules:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, old in zip(modules, before, strict=True):
            setattr(module, name, old)


def without(module: ModuleType, table: str, entry: Any) -> contextlib.AbstractContextManager[None]:
    """Leave an entry out of a module's table, a tuple, as long as this lasts."""
    return replaced([module], table, tuple(value for value in getattr(module, table) if value != entry))


def scaled(module: ModuleType, name: str, factor: float) -> contextlib.AbstractContextManager[None]:
    """Multiply a threshold, in all modules that import it, as long as this lasts."""
    holders = [item for key, item in sys.modules.items() if key.startswith("odc_mlir.quantizer") and name in vars(item)]
    return replaced(holders, name, getattr(module, name) * factor)


class Measured:
    """SQNR of one network by options."""

    def __init__(self, subject: Subject, samples: int, scheme: str) -> None:
        self.subject, self.scheme = subject, scheme
        self.reference = Reference(build_graph(read_model(subject.model)), subject.unseen[:samples])

    def __call__(self, **given: Any) -> float:
        made = odc_mlir.quantize(
            self.subject.model, scheme=self.scheme, calibration=self.subject.calibration, **({"mixed": "off"} | given)
        )
        return self.reference.measure(build_graph(read_model(made.to_circle()))).quality_db

    def cells(self) -> Iterator[tuple[str, str]]:
        """The column's rows: a name and what stands beside it."""
        plain, helped = self(help=False), self()
        yield "plain", f"{plain:.1f}"
        yield "with help", f"{helped:.1f}"
        for step in STEPS:
            yield step.name, f"{_text(self._gain(step, plain))} / {_text(helped - self._without(step))}"
        yield MIXED, f"{_text(self(help=False, mixed='on') - plain)} / {_text(self(mixed='auto') - helped)}"

    def changes(self) -> Iterator[tuple[str, str]]:
        """The rows of ``--thresholds``."""
        helped = self(mixed="auto")
        yield "with help", f"{helped:.1f}"
        for module, name in THRESHOLDS:
            found = []
            for factor in (0.5, 2.0):
                with scaled(module, name, factor):
                    found.append(_text(self(mixed="auto") - helped))
            yield name, " / ".join(found)

    def _gain(self, step: Step, plain: float) -> float:
        """What ``step`` adds to plain quantising."""
        return self(**({"help": False} | step.alone)) - plain

    def _without(self, step: Step) -> float:
        """What is left of help without ``step``."""
        with contextlib.nullcontext() if step.left_out is None else without(*step.left_out):
            return self(**step.without)


def _text(gain_db: float) -> str:
    return f"{round(gain_db, 1) + 0.0:+.1f}"  # no negative zero


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"))
    parser.add_argument("--samples", type=int, default=UNSEEN, metavar="N")
    parser.add_argument("--scheme", default="int8", choices=("int8", "uint8", "int16x8"))
    parser.add_argument("--thresholds", action="store_true")
    arguments = parser.parse_args()
    columns: dict[str, dict[str, str]] = {}
    for subject in subjects(arguments.data / "models"):
        if arguments.models and subject.name not in arguments.models:
            continue
        column = columns.setdefault(subject.name, {})
        start = time.process_time()
        measured = Measured(subject, arguments.samples, arguments.scheme)
        for row, cell in measured.changes() if arguments.thresholds else measured.cells():
            column[row] = cell
            print(f"{subject.name}: {row} {cell}", file=sys.stderr, flush=True)
        print(f"{subject.name}: {time.process_time() - start:.0f} s of CPU", file=sys.stderr, flush=True)
    _print(columns)
    return 0


def _print(columns: Mapping[str, Mapping[str, str]]) -> None:
    print(f"| step | {' | '.join(columns)} |")
    print(f"| --- |{' --- |' * len(columns)}")
    for row in dict.fromkeys(row for column in columns.values() for row in column):
        print(f"| {row} | {' | '.join(column.get(row, '') for column in columns.values())} |")


if __name__ == "__main__":
    sys.exit(main())
