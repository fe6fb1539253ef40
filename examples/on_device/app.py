"""An application: it opens its package, runs its model, and knows nothing of quantising or compiling.

    python examples/on_device/app.py PACKAGE [--seconds 120]

What it prints beside its answers is only for us to watch: which of them came from where.
"""

from __future__ import annotations

import argparse
import time
from itertools import groupby
from pathlib import Path

import numpy as np

from odc_mlir.runtime import Session

PICTURES = Path(__file__).resolve().parent / "digits.npz"
PAUSE_SECONDS = 0.03  # between pictures, as from a camera


def main() -> int:
    """Classify pictures over and over, until the model has been compiled and some more, or time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0, help="stop after this time at the latest")
    arguments = parser.parse_args()
    with np.load(PICTURES) as archive:
        pictures, labels = archive["pictures"].astype(np.float32) / 16, archive["y"]

    start = time.monotonic()
    served: list[tuple[str, bool]] = []
    left = len(labels)  # answers to give when all is settled
    with Session(arguments.package) as session:
        while time.monotonic() - start < arguments.seconds:
            index = len(served) % len(labels)
            (scores,) = session.infer([pictures[index : index + 1]])
            if not served:
                print(f"first answer after {1000 * (time.monotonic() - start):.0f} ms")
            status = session.odc_status
            served.append((str(status.serving), int(scores.argmax()) == int(labels[index])))
            if status.phase not in ("active", "rejected"):
                time.sleep(PAUSE_SECONDS)
                continue
            left -= 1
            if not left:
                break
        status = session.odc_status
    for level, answers in groupby(served, key=lambda item: item[0]):
        right = [correct for _, correct in answers]
        print(f"{len(right):5d} answers from {level:9} {100 * np.mean(right):5.1f} % right")
    print(f"{status.phase}" + (f": {status.reason}" if status.reason else ""))
    for fallback in status.fallbacks:
        print(f"without {fallback.level} ({fallback.stage}): {fallback.reason}")
    if status.verdict is not None:
        for step in status.verdict.get("steps", ()):
            if "quality_db" in step:
                kept = " *" if step["kept"] else ""
                print(f"  tried {step['step']} {step['value']}: {step['quality_db']:.1f} dB{kept}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
