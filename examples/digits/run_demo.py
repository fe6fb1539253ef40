"""Compile a digit classifier for the NPU, run it on the simulator, and show what came out and what it cost.

    python examples/digits/run_demo.py [--target npu-256] [--memory flash]

The model and the pictures lie beside this file; nothing else is needed but odc-mlir itself.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import odc_mlir

HERE = Path(__file__).resolve().parent
MODEL = HERE / "digits_cnn_int8.circle"
PICTURES = HERE / "digits.txt"

SIZE, BLACK = 8, 16
SHADES = " .:-=+*#%@"
PICTURES_PER_ROW = 5

Picture = NDArray[np.int64]


def read_pictures(path: Path = PICTURES) -> list[tuple[int, Picture]]:
    """Labels and pictures ``[8, 8]`` of 0..16 from a text file: ``label N``, then eight rows of numbers."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    result = []
    for start in range(0, len(lines), SIZE + 1):
        rows = [[int(number) for number in line.split()] for line in lines[start + 1 : start + 1 + SIZE]]
        result.append((int(lines[start].removeprefix("label ")), np.array(rows)))
    return result


def to_codes(picture: Picture, spec: Any) -> NDArray[np.int8]:
    """A picture as the model's input: pixels from 0 to 1, divided by the scale, rounded, around the zero point."""
    codes = np.round(picture / BLACK / spec.scale) + spec.zero_point
    return np.clip(codes, -128, 127).astype(np.int8).reshape(spec.shape)


def draw(pictures: list[Picture], captions: list[str]) -> str:
    """Pictures side by side, two characters a pixel, with a line of text below each."""
    lines = []
    for y in range(SIZE):
        rows = ("".join(SHADES[value * (len(SHADES) - 1) // BLACK] * 2 for value in picture[y]) for picture in pictures)
        lines.append("  ".join(rows))
    lines.append("  ".join(f"{caption:{2 * SIZE}}" for caption in captions))
    return "\n".join(line.rstrip() for line in lines)


def placement_table(report: dict[str, Any]) -> str:
    """One line for each operator of the model: where it runs, and what it costs there."""
    lines = [f"{'operator':20}{'result':14}{'placed':8}{'MACs':>9}{'cycles':>9}  reason"]
    lines += [
        f"{layer['op']:20}{layer['name']:14.13}{layer['placed']:8}{layer['macs']:9,}{layer['cycles']:9,}"
        f"  {layer['reason'] or ''}".rstrip()
        for layer in report["layers"]
    ]
    return "\n".join(lines)


def main() -> int:
    """Parse the command line and run the demonstration; 0 when host and NPU agree on every picture."""
    parser = argparse.ArgumentParser(description="compile a digit classifier for the NPU and run it on the simulator")
    parser.add_argument("--target", default="npu-256", help="an NPU (%(default)s)")
    parser.add_argument("--memory", default="flash", choices=("flash", "sram"), help="where weights live")
    arguments = parser.parse_args()

    package = odc_mlir.compile(MODEL, target=arguments.target, memory=arguments.memory)
    (image,), (probabilities,) = package.inputs, package.outputs
    pictures = read_pictures()
    right = agreed = 0
    captions = []
    for label, picture in pictures:
        codes = to_codes(picture, image)
        (on_npu,) = odc_mlir.run(package, [codes])
        (on_host,) = odc_mlir.run(MODEL, [codes])
        agreed += bool((on_npu == on_host).all())
        guess = int(np.argmax(on_npu))
        right += guess == label
        confidence = (int(on_npu[0, guess]) - probabilities.zero_point) * probabilities.scale
        captions.append(f"{label} read as {guess} {100 * confidence:.0f}%")

    for start in range(0, len(pictures), PICTURES_PER_ROW):
        part = slice(start, start + PICTURES_PER_ROW)
        print(draw([picture for _, picture in pictures[part]], captions[part]), end="\n\n")

    report = package.report
    print(placement_table(report), end="\n\n")
    print(f"{right} of {len(pictures)} pictures read correctly; host and NPU agree bit for bit on {agreed}")
    print(
        f"{report['cycles_total']:,} cycles on {report['target']} ({report['memory']}), "
        f"latency {report['latency_ms']:.3g} ms, modelled at {report['clock_hz'] / 1e6:.0f} MHz; "
        f"this program cannot take less than {report['ideal_cycles']:,}, "
        f"the model on this machine not less than {report['model_floor_cycles']:,}"
    )
    return 0 if agreed == len(pictures) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
