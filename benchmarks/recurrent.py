"""Recurrent networks with states on the simulated NPU, compared with the host bit by bit over many steps.

    python benchmarks/recurrent.py [--memory flash sram] [--steps 1000] [MODEL ...]

MODELs are those of ``test/helpers/stateful.py`` (int8: ``gru``, ``lstm``, ``dtln``, two LSTMs with a mask between them,
and ``ring``, convolutions whose last frames are variables) and of ``test/helpers/streaming.py`` (float, quantised here
with one sequence of 400 frames and with codes as states: ``float-gru``, ``float-lstm`` and others). A step passes one
random frame. The status is 1 unless each model is one segment without operators on the host, keeps all states on the
device, and gives the host's answers and states.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import odc_mlir
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.runtime import Session

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))

from helpers import stateful, streaming

FRAMES = 400


def quantised(name: str) -> bytes:
    """Return a float model of ``streaming``, quantised; its states are codes, which the NPU can keep."""
    made = streaming.MODELS[name]()
    options = {
        "input_types": dict.fromkeys(made.states.values(), "quantized"),
        "output_types": dict.fromkeys(made.states, "quantized"),
    }
    calibration = made.samples(FRAMES, 1)
    found = odc_mlir.quantize(
        made.model, scheme="int8", calibration=calibration, io="quantized", states=made.states, **options
    )
    return bytes(found.to_circle())


MODELS: dict[str, Callable[[], bytes]] = {
    make.__name__: lambda make=make: bytes(write_model(make()))  # type: ignore[misc]
    for make in (stateful.gru, stateful.lstm, stateful.dtln, stateful.ring)
} | {f"float-{name}": partial(quantised, name) for name in streaming.MODELS}


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--memory", nargs="+", choices=("flash", "sram"), default=["flash"])
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    wrong = 0
    for name in arguments.models:
        model = MODELS[name]()
        for memory in arguments.memory:
            package = odc_mlir.compile(model, target="npu-256", memory=memory)
            report, rng, differing = package.report, np.random.default_rng(0), 0
            kept = sum(len(segment.states) for segment in package.plan.segments)
            with Session(package, "host") as host, Session(package, strict=True) as npu:
                host.prepare()
                npu.prepare()
                info = host.input_tensorinfo(0)
                for _ in range(arguments.steps):
                    frame = rng.integers(-128, 128, info.shape).astype(np.int8)
                    if info.dtype == np.float32:
                        frame = rng.normal(0, 0.5, info.shape).astype(np.float32)
                    wanted, found = host.infer([frame]), npu.infer([frame])
                    differing += not all(map(np.array_equal, wanted, found))
                states = npu.get_state()
                changed = sum(not np.array_equal(value, states[key]) for key, value in host.get_state().items())
            good = (report["segment_count"], report["host_op_count"], kept) == (1, 0, len(states))
            wrong += not good or differing + changed > 0
            print(
                f"{name:14s} {memory:5s} {report['segment_count']} segment, {report['host_op_count']} operators on the "
                f"host, {kept} of {len(states)} states on the device, {report['cycles_total']:,} cycles a step; of "
                f"{arguments.steps} steps {differing} differ, at the end {changed} states",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
