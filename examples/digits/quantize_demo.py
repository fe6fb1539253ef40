"""Quantise a float digit classifier, show what the verdict says, and run it on the NPU.

    python examples/digits/quantize_demo.py [--model FILE] [--scheme int8] [--plain]

The default model is hard to quantise: some of its channels are a thousand times as large as others. ``--plain`` shows
what becomes of it without help.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import odc_mlir
from odc_mlir.runtime.api import open_executor

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "on_device" / "digits_mobile_hard.circle"
CALIBRATION = HERE / "calibration.npz"
EVALUATION = HERE / "evaluation.npz"
PICTURES = 100


def right_answers(model: bytes | Path, backend: str) -> float:
    """Per cent of the evaluation pictures that ``model`` reads as their labels say."""
    with np.load(EVALUATION) as data:
        pictures, labels = data["in_0"][:PICTURES], data["y"][:PICTURES]
    executor = open_executor(model, backend=backend)  # type: ignore[arg-type]
    answers = [int(np.argmax(executor.run([picture[np.newaxis]])[0])) for picture in pictures]
    return 100.0 * float(np.mean(np.array(answers) == labels))


def main() -> int:
    """Run the demonstration; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--scheme", default="int8", choices=("int8", "uint8", "int16", "int16x8"))
    parser.add_argument("--plain", action="store_true", help="without help, one scale for all weights of a layer")
    arguments = parser.parse_args()
    plain = {"help": False, "granularity": "tensor"} if arguments.plain else {}
    made = odc_mlir.quantize(arguments.model, scheme=arguments.scheme, calibration=CALIBRATION, **plain)
    verdict = made.verdict
    print(f"{arguments.model.name} to {arguments.scheme}: {'passed' if verdict['passed'] else 'failed'}")
    for check in verdict["limits"]:
        print(f"  {check['metric']} is {check['value']:.4g}, the limit is {check['limit']:g}")
    for step in verdict["steps"]:
        if step["kept"]:
            print(f"  kept: {step['step']} {step['value']}")
    print("what each layer alone does to the outputs, the worst first:")
    for layer in verdict["worst_layers"][:4]:
        print(f"  {layer['output_sqnr_db']:6.1f} dB  {layer['name']} ({layer['op']}, {layer['scheme']})")
    model = made.to_circle()
    print(f"{len(model)} bytes instead of {arguments.model.stat().st_size}")
    print(f"right answers: {right_answers(arguments.model, 'host'):.1f} % float", end="")
    print(f", {right_answers(model, 'host'):.1f} % on the host, {right_answers(model, 'npu'):.1f} % on the NPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
