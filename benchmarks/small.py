"""Cycles of networks with a few hundred to a few thousand weights beside Arm Vela's estimate.

    python benchmarks/small.py --vela PROGRAM

The networks have the shapes of small public models and random int8 weights; they run on ``npu-256`` in memory mode
``flash``. Vela's estimate leaves out the fetch of its command stream and the start of the NPU. Our cycles include both.
The last column adds the bytes of Vela's command stream to its estimate, at a byte per cycle, the width of the off-chip
port. ``keyword_svdf`` compares only fully connected layers and SOFTMAX: both compilers leave SVDF to the host.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import odc_mlir
from fairness import estimate
from odc_mlir.formats.circle.writer import write_tflite

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))

from helpers.stateful import StatefulNet

Quant = tuple[float, int]
INPUT: Quant = (0.05, -10)
HIDDEN: Quant = (0.04, -128)  # results of RELU
RESULT: Quant = (0.06, 4)
WEIGHT_SCALE = 0.004
SEED = 3


class SmallNet(StatefulNet):
    """Adds int8 layers with random weights."""

    def codes(self, name: str, shape: tuple[int, ...], dtype: str, spread: float, scale: float) -> int:
        """Add a constant with normally distributed codes."""
        most = np.iinfo(dtype).max
        data = np.clip(np.round(self.rng.normal(0, spread, shape)), -most, most).astype(dtype)
        return self.tensor(name, shape, dtype, quant=(scale, 0), data=data)

    def layer(self, x: int, units: int, result: Quant) -> int:
        """Add FULLY_CONNECTED, with RELU if ``result`` begins at 0."""
        name, scale = f"y{len(self.subgraph.tensors)}", WEIGHT_SCALE * self.quant(x)[0]
        weights = self.codes(f"{name}/w", (units, self.shape(x)[1]), "int8", 40, WEIGHT_SCALE)
        bias = self.codes(f"{name}/b", (units,), "int32", 2000, scale)
        relu = "relu" if result == HIDDEN else "none"
        inputs = [x, weights, bias]
        return self.apply("FULLY_CONNECTED", name, inputs, (1, units), quant=result, fused_activation_function=relu)

    def svdf(self, x: int, units: int, memory: int = 10) -> int:
        """Add SVDF of rank 1 with RELU."""
        name = f"s{len(self.subgraph.tensors)}"
        feature = self.codes(f"{name}/w", (units, self.shape(x)[1]), "int8", 40, WEIGHT_SCALE)
        time = self.codes(f"{name}/t", (units, memory), "int16", 8000, 0.0001)
        bias = self.codes(f"{name}/b", (units,), "int32", 2000, 1e-7)
        state = self.tensor(f"{name}/s", (1, units * memory), "int16", quant=(0.001, 0), variable=True)
        options = {"quant": HIDDEN, "rank": 1, "fused_activation_function": "relu"}
        return self.apply("SVDF", name, [x, feature, time, bias, state], (1, units), **options)

    def softmax(self, x: int) -> int:
        """Add SOFTMAX."""
        return self.apply("SOFTMAX", "probabilities", [x], self.shape(x), quant=(1 / 256, -128), beta=1.0)


def dense(*widths: int) -> bytes:
    """Return fully connected layers with RELU between them."""
    builder = SmallNet(SEED)
    x = at = builder.tensor("x", (1, widths[0]), "int8", quant=INPUT)
    for units in widths[1:-1]:
        at = builder.layer(at, units, HIDDEN)
    return bytes(write_tflite(builder.finish([x], [builder.layer(at, widths[-1], RESULT)])))


def keyword() -> bytes:
    """Return five SVDF, each before a fully connected layer."""
    builder = SmallNet(SEED)
    x = at = builder.tensor("x", (1, 96), "int8", quant=INPUT)
    for units in (32, 32, 32, 32, 8):
        at = builder.layer(builder.svdf(at, 32), units, RESULT)
    return bytes(write_tflite(builder.finish([x], [builder.softmax(at)])))


def halves() -> bytes:
    """Return SPLIT of the channels and CONCATENATION in the opposite order."""
    builder = SmallNet(SEED)
    x = builder.tensor("x", (1, 8, 8, 8), "int8", quant=INPUT)
    parts = [builder.tensor(name, (1, 8, 8, 4), "int8", quant=INPUT) for name in ("low", "high")]
    builder.operator("SPLIT", [builder.constant("axis", 3, "int32"), x], parts, options={"num_splits": 2})
    y = builder.tensor("y", (1, 8, 8, 8), "int8", quant=INPUT)
    builder.operator("CONCATENATION", parts[::-1], [y], options={"axis": 3})
    return bytes(write_tflite(builder.finish([x], [y])))


MODELS: dict[str, Callable[[], bytes]] = {
    "hello_world": lambda: dense(1, 16, 16, 1),
    "force_int_quant": lambda: dense(36, 64, 32, 1),
    "keyword_svdf": keyword,
    "split_concat": halves,
}


def main() -> int:
    """Print a line per network."""
    parser = argparse.ArgumentParser(description="compare cycles of small networks with Vela's estimate")
    parser.add_argument("--vela", metavar="PROGRAM", required=True, help="Arm Vela")
    arguments = parser.parse_args()
    print("model,cycles,vela,vela_commands,ratio,ratio_with_commands")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in MODELS.items():
            path = Path(folder) / f"{name}.tflite"
            path.write_bytes(make())
            cycles = odc_mlir.compile(path, target="npu-256", memory="flash", strict=False).report["cycles_total"]
            vela, commands = estimate(arguments.vela, path)
            print(f"{name},{cycles},{vela},{commands},{cycles / vela:.3f},{cycles / (vela + commands):.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
