"""Whether verdicts are honest: the measure of held-back samples among draws of samples that the quantiser never saw.

    python benchmarks/verdict_ranks.py [--data DIR] [--subsets 40] [--samples 48] [--scheme int8] [--plain] [MODEL ...]

``--data`` holds ``models`` (default: $ODC_TEST_DATA, else ``shared`` beside the repository). Each model is quantised by
many small subsets of its calibration samples. Of every result the verdict's value is ranked among as large draws from
the evaluation samples: an honest verdict's rank is 0.5 on the average, with a standard error of 0.289 / sqrt(subsets).
Its 95 % interval should hold the value of all evaluation samples nearly always. Exits with 1 where a mean rank is three
standard errors off, or fewer than 90 % of the intervals hold.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import odc_mlir
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.evaluation import Measurement, Reference
from odc_mlir.runtime.execution.graph import build_graph

ROOT = Path(__file__).resolve().parents[1]
MODELS = {
    "digits/digits_cnn": ("digits/calibration", "digits/evaluation"),
    "digits/digits_mobile": ("digits/calibration", "digits/evaluation"),
    "trained/sine_forecast": ("trained/sine_forecast.calibration", "trained/sine_forecast.evaluation"),
}
DRAWS = 400
MOST_UNSEEN = 300


def _samples(path: Path) -> list[list[Array]]:
    with np.load(path) as archive:
        data = archive["in_0"]
    return [[data[i : i + 1]] for i in range(len(data))]


def _powers(reference: Reference, measured: Measurement) -> NDArray[np.float64]:
    """Signal and noise of the first output for each sample: ``[samples, 2]``."""
    pairs = [
        (a[0].astype(np.float64), b[0].astype(np.float64))
        for a, b in zip(reference.outputs, measured.reals, strict=True)
    ]
    return np.array([[np.square(a).sum(), np.square(a - b).sum()] for a, b in pairs])


def _sqnr_db(powers: NDArray[np.float64]) -> NDArray[np.float64]:
    signal, noise = np.moveaxis(powers.sum(axis=-2), -1, 0)
    return np.asarray(10.0 * np.log10(signal / np.maximum(noise, 1e-30)))


def ranks(
    model: Path, pool: Sequence[list[Array]], unseen: Sequence[list[Array]], a: argparse.Namespace
) -> list[float]:
    """Mean rank, how often the interval held, mean gap to the unseen value and median width of the interval, in dB."""
    random, found = np.random.default_rng(1), []
    reference = Reference(build_graph(read_model(model.read_bytes())), unseen)
    for _ in range(a.subsets):
        chosen = [pool[i] for i in random.choice(len(pool), a.samples, replace=False)]
        made = odc_mlir.quantize(
            model, scheme=a.scheme, calibration=chosen, help=not a.plain, mixed="off", metric="sqnr"
        )
        (check,) = made.verdict["limits"]
        powers = _powers(reference, reference.measure(build_graph(read_model(made.to_circle())), keep=True))
        draws = random.integers(0, len(powers), (DRAWS, made.verdict["samples"]["checked_on"]))
        value, low, high = check["value"], *(check["interval"] or (np.nan, np.nan))
        whole = float(_sqnr_db(powers))
        found.append((np.mean(_sqnr_db(powers[draws]) < value), low <= whole <= high, value - whole, high - low))
    return [*map(float, np.mean(found, axis=0)[:3]), float(np.median(found, axis=0)[3])]


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=list(MODELS))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"))
    parser.add_argument("--subsets", type=int, default=40)
    parser.add_argument("--samples", type=int, default=48)
    parser.add_argument("--scheme", default="int8")
    parser.add_argument("--plain", action="store_true", help="without help")
    a = parser.parse_args()
    error, bad = 1.0 / np.sqrt(12.0 * a.subsets), 0
    for name in a.models:
        calibration, evaluation = (a.data / "models" / f"{part}.npz" for part in MODELS[name])
        start = time.process_time()
        rank, held, gap, width = ranks(
            a.data / "models" / f"{name}.circle", _samples(calibration), _samples(evaluation)[:MOST_UNSEEN], a
        )
        fits = abs(rank - 0.5) <= 3.0 * error and held >= 0.9
        bad += not fits
        print(
            f"{Path(name).name:16s} {a.scheme} {'ok' if fits else 'OFF'}  rank {rank:.3f} (0.5 ± {3 * error:.3f})  "
            f"interval holds {100 * held:.0f} %, {width:.1f} dB wide  gap {gap:+.2f} dB  "
            f"{time.process_time() - start:.0f} s",
            flush=True,
        )
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
