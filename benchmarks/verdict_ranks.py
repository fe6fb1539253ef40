"""Whether verdicts are honest: their measures of held-back samples among draws of samples that the quantiser never saw.

    python benchmarks/verdict_ranks.py [--data DIR] [--subsets 40] [--samples 48] [--scheme int8] [--plain] [MODEL ...]

``--data`` holds ``models`` (default: $ODC_TEST_DATA, else ``shared`` beside the repository). ``made/friedman`` needs
none: a network of raw columns that scikit-learn trains here, on a function with as many samples as one wants. Each
model is quantised by many small subsets of its calibration samples. Of every result the values of MPEIR and SQNR are
ranked among as large draws from samples that nobody chose by, measured in the same way: an honest verdict's rank is 0.5
on the average, with a standard error of 0.289 / sqrt(subsets). The 95 % interval should hold the value of all these
samples nearly always; the range that MPEIR's errors are parts of is then the median one of the draws. Exits with 1
where a mean rank is three standard errors off, or fewer than 90 % of the intervals hold.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import odc_mlir
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.evaluation import Reference
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.runtime.execution.graph import build_graph

ROOT = Path(__file__).resolve().parents[1]
FRIEDMAN = "made/friedman"
MODELS = {
    "digits/digits_cnn": ("digits/calibration", "digits/evaluation"),
    "digits/digits_mobile": ("digits/calibration", "digits/evaluation"),
    "trained/sine_forecast": ("trained/sine_forecast.calibration", "trained/sine_forecast.evaluation"),
    "trained/digits_resnet": ("trained/digits_resnet.calibration", "trained/digits_resnet.evaluation"),
    FRIEDMAN: (),
}
METRICS = ("mpeir", "sqnr_db")
DRAWS = 400
MOST_UNSEEN = 300


@dataclass(frozen=True, slots=True)
class Case:
    """A float model, samples to choose calibration from, and others that no quantiser sees."""

    model: bytes
    pool: list[list[Array]]
    unseen: list[list[Array]]


def _case(name: str, data: Path) -> Case:
    if name == FRIEDMAN:
        return _friedman()
    calibration, evaluation = (data / "models" / f"{part}.npz" for part in MODELS[name])
    model = (data / "models" / f"{name}.circle").read_bytes()
    return Case(model, _samples(calibration), _samples(evaluation)[:MOST_UNSEEN])


def _friedman() -> Case:
    """A regressor of ten columns, of which five count: Friedman's first function, in raw columns of several sizes."""
    from sklearn import datasets, neural_network

    from tabular import network

    sizes = 10.0 ** np.linspace(-1.0, 2.0, 10)
    data, answers = datasets.make_friedman1(3500, noise=1.0, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that more steps might help
        learner = neural_network.MLPRegressor(hidden_layer_sizes=(32, 16), random_state=1, max_iter=200)
        learner.fit((data[:1000] - 0.5) / 0.29, answers[:1000])
    layers = [(w.T, b) for w, b in zip(learner.coefs_, learner.intercepts_, strict=True)]
    model = network(0.5 * sizes, 0.29 * sizes, layers, "multiplied", None)
    rows = [[row[None].astype(np.float32)] for row in (data * sizes)[1000:]]
    return Case(bytes(write_model(model)), rows[1000:], rows[:1000])


def _samples(path: Path) -> list[list[Array]]:
    with np.load(path) as archive:
        data = archive["in_0"]
    return [[data[i : i + 1]] for i in range(len(data))]


@dataclass(frozen=True, slots=True)
class Unseen:
    """The first output's measures of each unseen sample, ``[samples]`` each."""

    signal: NDArray[np.float64]
    noise: NDArray[np.float64]
    largest: NDArray[np.float64]  # error
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    span: float | None  # where the output's operator has one by definition

    @classmethod
    def of(cls, reference: Reference, measured: Measurement) -> Unseen:
        """What ``measured`` kept."""
        pairs = [
            (a[0].astype(np.float64), b[0].astype(np.float64))
            for a, b in zip(reference.outputs, measured.reals, strict=True)
        ]
        columns = [
            (np.square(a).sum(), np.square(a - b).sum(), np.abs(a - b).max(), a.min(), a.max()) for a, b in pairs
        ]
        own = float(max(a.max() for a, _ in pairs) - min(a.min() for a, _ in pairs))
        (span,) = reference.spans
        return cls(*np.array(columns).T, None if span == own else span)

    def whole(self, draws: NDArray[np.int64]) -> dict[str, float]:
        """Both measures of all samples; the range is the median one of the draws."""
        spans = self.high[draws].max(axis=1) - self.low[draws].min(axis=1) if self.span is None else self.span
        noise = max(float(self.noise.sum()), 1e-30)
        return {
            "mpeir": float(self.largest.mean() / np.median(spans)),
            "sqnr_db": float(10.0 * np.log10(self.signal.sum() / noise)),
        }

    def values(self, draws: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """Both measures of every draw, ``[draws, samples]``, as a verdict over these samples had them."""
        span = self.high[draws].max(axis=1) - self.low[draws].min(axis=1) if self.span is None else self.span
        noise = np.maximum(self.noise[draws].sum(axis=1), 1e-30)
        return {
            "mpeir": self.largest[draws].mean(axis=1) / span,
            "sqnr_db": 10.0 * np.log10(self.signal[draws].sum(axis=1) / noise),
        }


def ranks(case: Case, a: argparse.Namespace) -> dict[str, NDArray[np.float64]]:
    """For each measure and subset ``[subsets, 4]``: rank, whether the interval held, the gap to the unseen value as a
    ratio of errors in dB, and the interval's width in dB."""
    random = np.random.default_rng(1)
    found: dict[str, list[tuple[float, ...]]] = {metric: [] for metric in METRICS}
    reference = Reference(build_graph(read_model(case.model)), case.unseen)
    for _ in range(a.subsets):
        chosen = [case.pool[i] for i in random.choice(len(case.pool), a.samples, replace=False)]
        made = odc_mlir.quantize(case.model, scheme=a.scheme, calibration=chosen, help=not a.plain, mixed="off")
        measured = reference.measure(build_graph(read_model(made.to_circle())), keep=True)
        unseen, count = Unseen.of(reference, measured), made.verdict["samples"]["checked_on"]
        chosen_of_unseen = random.integers(0, len(case.unseen), (DRAWS, count))
        draws, wholes = unseen.values(chosen_of_unseen), unseen.whole(chosen_of_unseen)
        for metric in METRICS:
            value, true = made.verdict["metrics"][metric], wholes[metric]
            low, high = made.verdict["intervals"].get(metric, (np.nan, np.nan))
            rank = float(np.mean(draws[metric] < value))
            gap, width = (
                (value - true, high - low)
                if metric == "sqnr_db"
                else (20.0 * np.log10(value / true), 20.0 * np.log10(high / max(low, 1e-12)))
            )
            found[metric].append((rank, low <= true <= high, gap, width))
            if a.verbose:
                print(
                    f"  {metric} {value:.4g} in [{low:.4g}, {high:.4g}], unseen {true:.4g}, rank {rank:.2f}", flush=True
                )
    return {metric: np.array(rows) for metric, rows in found.items()}


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=list(MODELS))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"))
    parser.add_argument("--subsets", type=int, default=40)
    parser.add_argument("--samples", type=int, default=48)
    parser.add_argument("--scheme", default="int8")
    parser.add_argument("--plain", action="store_true", help="without help")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for every subset")
    a = parser.parse_args()
    error, bad = 1.0 / np.sqrt(12.0 * a.subsets), 0
    for name in a.models:
        start = time.process_time()
        rows = ranks(_case(name, a.data), a)
        taken = time.process_time() - start
        for metric, found in rows.items():
            (rank, held, _, _), (_, _, gap, width) = found.mean(axis=0), np.median(found, axis=0)
            fits = abs(rank - 0.5) <= 3.0 * error and held >= 0.9
            bad += not fits
            print(
                f"{Path(name).name:16s} {a.scheme}{' plain' if a.plain else ''} {metric:8s} {'ok' if fits else 'OFF'}  "
                f"rank {rank:.3f} (0.5 ± {3 * error:.3f})  interval holds {100 * held:.0f} %, {width:.1f} dB wide  "
                f"gap {gap:+.2f} dB  {taken:.0f} s",
                flush=True,
            )
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
