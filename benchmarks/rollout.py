"""Compare verdicts over models with state with what the models do on unseen sequences.

    python benchmarks/rollout.py [--schemes int8,int16x8] [--seeds 1,2,3] [--frames 400] [MODEL ...]

The models are those of ``test/helpers/streaming.py``: GRU, LSTM, plain recurrent step, denoiser of two LSTMs, attention
with a cache, moving average. ``--seeds`` choose their weights. Each is calibrated with one sequence of ``--frames``.
Prints the SQNR of the first output in the verdict, over four unseen sequences of 400 frames together, and of each.
Exits with 1 if both differ by more than 3 dB while the verdict is certain.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

import numpy as np

import odc_mlir

sys.path.insert(0, str(Path(__file__).parents[1] / "test"))

from helpers.streaming import MODELS, rolled, sqnr_db

FRAMES, SEQUENCES, MOST_OFF_DB = 400, 4, 3.0


def main() -> int:
    """Run the comparison; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--schemes", default="int8")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--frames", type=int, default=FRAMES)
    arguments = parser.parse_args()
    wrong = 0
    for name, seed in product(arguments.models, map(int, arguments.seeds.split(","))):
        streaming = MODELS[name](seed)
        unseen = [streaming.frames(FRAMES, 100 + seed) for seed in range(SEQUENCES)]
        expected = np.stack([rolled(streaming.model, streaming, frames) for frames in unseen])
        for scheme in arguments.schemes.split(","):
            made = odc_mlir.quantize(streaming.model, scheme=scheme, calibration=streaming.samples(arguments.frames, 1))
            quantised = made.to_circle()
            found = np.stack([rolled(quantised, streaming, frames) for frames in unseen])
            told, used = made.verdict["outputs"][0]["sqnr_db"], sqnr_db(expected, found)
            parts = ", ".join(f"{sqnr_db(a, b):.1f}" for a, b in zip(expected, found, strict=True))
            status = f"{made.verdict['status']}{', certain' if made.verdict['certain'] else ''}"
            print(
                f"{name:10s} {seed} {scheme:8s} {status:16s} {told:5.1f} dB told, {used:5.1f} dB in use ({parts})",
                flush=True,
            )
            wrong += made.verdict["certain"] and abs(told - used) > MOST_OFF_DB
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
