"""Whether verdicts are honest: their measures of held-out samples among draws of samples that the quantiser never saw.

    python benchmarks/verdict_ranks.py [--data DIR] [--subsets 40] [--samples 48] [--scheme int8] [--plain] [MODEL ...]

``--data`` holds ``models`` (default: $ODC_TEST_DATA, else ``shared`` beside the repository). ``made/friedman`` needs
none: a network of raw columns that scikit-learn trains here, on a function with as many samples as one wants. Each
model is quantised by many small subsets of its samples; those of calibration and of evaluation are shuffled anew for
every subset. (Were each subset of the same few samples, and ranked among the same others, then what these few happen to
be would move all ranks alike.) Of every result the values of MPEIR and SQNR are ranked among as large draws from the
samples left over, measured in the same way, no sample twice in a draw: an honest verdict's rank is 0.5 on the average,
with a standard error of 0.289 / sqrt(subsets). The 95 % interval should hold the value of all these samples nearly
always; the range that MPEIR's errors are parts of is then the median one of the draws. Exits with 1 where a mean rank
is three standard errors off, or fewer than 90 % of the intervals hold.
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
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.reference import Reference
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
MOST_SAMPLES = 500  # of which those that are not chosen are unseen


@dataclass(frozen=True, slots=True)
class Case:
    """A float model, and samples that it was not trained on."""

    model: bytes
    samples: list[list[Array]]


def _case(name: str, data: Path) -> Case:
    if name == FRIEDMAN:
        return _friedman()
    calibration, evaluation = (data / "models" / f"{part}.npz" for part in MODELS[name])
    model = (data / "models" / f"{name}.circle").read_bytes()
    return Case(model, [*_samples(calibration), *_samples(evaluation)][:MOST_SAMPLES])


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
    return Case(bytes(write_model(model)), rows[:MOST_SAMPLES])


def _samples(path: Path) -> list[list[Array]]:
    with np.load(path) as archive:
        data = archive["in_0"]
    return [[data[i : i + 1]] for i in range(len(data))]


@dataclass(frozen=True, slots=True)
class Measures:
    """The first output's measures of each sample, ``[samples]`` each."""

    signal: NDArray[np.float64]
    noise: NDArray[np.float64]
    largest: NDArray[np.float64]  # error
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    span: float | None  # where the output's operator has one by definition

    @classmethod
    def of(cls, reference: Reference, measured: Measurement) -> Measures:
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

    def whole(self, samples: NDArray[np.int64], draws: NDArray[np.int64]) -> dict[str, float]:
        """Both measures of all these ``samples``; the range is the median one of the draws."""
        spans = self.high[draws].max(axis=1) - self.low[draws].min(axis=1) if self.span is None else self.span
        noise = max(float(self.noise[samples].sum()), 1e-30)
        return {
            "mpeir": float(self.largest[samples].mean() / np.median(spans)),
            "sqnr_db": float(10.0 * np.log10(self.signal[samples].sum() / noise)),
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
    reference = Reference(build_graph(read_model(case.model)), case.samples)
    for _ in range(a.subsets):
        chosen, unseen = np.split(random.permutation(len(case.samples)), [a.samples])
        calibration = [case.samples[i] for i in chosen]
        made = odc_mlir.quantize(case.model, scheme=a.scheme, calibration=calibration, help=not a.plain, mixed="off")
        measured = reference.measure(build_graph(read_model(made.to_circle())), keep=True)
        found_all, count = Measures.of(reference, measured), made.verdict["samples"]["checked_on"]
        drawn = np.array([random.permutation(unseen)[:count] for _ in range(DRAWS)])
        draws, wholes = found_all.values(drawn), found_all.whole(unseen, drawn)
        for metric in METRICS:
            value, true = made.verdict["metrics"][metric], wholes[metric]
            low, high = made.verdict["intervals"].get(metric, (np.nan, np.nan))
            rank = float(np.mean(draws[metric] < value) + np.mean(draws[metric] <= value)) / 2.0
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
