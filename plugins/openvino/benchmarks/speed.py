"""OpenVINO, or another target, beside native code and LiteRT: CPU time of one run, one thread, in one process.

    python plugins/openvino/benchmarks/speed.py FOLDER|MODEL... [--target iree] [--rounds 7] [--seconds 0.1]

Every float model runs in turn by each, in rounds that alternate; the median counts. A run takes its inputs as arrays
and gives its outputs as arrays. The difference is the largest one from host kernels, divided by the largest value.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import odc_mlir
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_tflite
from odc_mlir.runtime.auto.aim import is_quantized
from odc_mlir.runtime.execution.graph import build_graph

Run = Callable[[], Any]


def main() -> None:
    """Print a row of a table for each model, and geometric means of the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, help="models, or folders of them")
    parser.add_argument("--target", default="openvino-cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="CPU time of one round of one side")
    arguments = parser.parse_args()
    print("| model | operators | difference | µs | native µs | LiteRT µs | to native | to LiteRT |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    ratios: dict[str, list[float]] = {"native": [], "litert": []}
    files = [file for path in arguments.models for file in (sorted(path.glob("*.circle")) if path.is_dir() else [path])]
    for path in files:
        if not is_quantized(build_graph(read_model(path))):
            times = _measure(path, arguments)
            for name, found in ratios.items():
                if name in times and "target" in times:
                    found.append(times["target"] / times[name])
    for name, found in ratios.items():
        if found:
            mean = math.exp(statistics.fmean(map(math.log, found)))
            print(
                f"to {name}: geometric mean {mean:.2f}, worst {max(found):.2f}, best {min(found):.2f} of {len(found)}"
            )


def _measure(path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Return the median CPU time by side in microseconds, after printing the row."""
    random = np.random.default_rng(1)
    package = odc_mlir.compile(path, target=arguments.target)
    infos = package.graph.input_infos()
    inputs = [
        random.normal(size=[size or 1 for size in info.shape]).astype(info.info.numpy)
        if info.info.kind == "float"
        else np.zeros([size or 1 for size in info.shape], info.info.numpy)
        for info in infos
    ]
    native, ours = odc_mlir.compile(path, target="cpu").executor(resize=True), package.executor(resize=True)
    sides: dict[str, Run] = {"native": lambda: native.run(inputs), **_litert(path, inputs)}
    placed = sum(layer["placed"] != "host" for layer in package.report["layers"])
    difference = ""
    if placed:
        sides["target"] = lambda: ours.run(inputs)
        pairs = zip(ours.run(inputs), odc_mlir.run(path, inputs, backend="host"), strict=True)
        difference = f"{max(_difference(found, expected) for found, expected in pairs):.0e}"
    if ours.fallbacks:
        raise RuntimeError(f"{path.name}: {ours.fallbacks}")
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, run in sides.items():
            times[name].append(_cpu_seconds(run, arguments.seconds))
    found = {name: 1e6 * statistics.median(values) for name, values in times.items()}
    cells = [f"{found[name]:.1f}" if name in found else "" for name in ("target", "native", "litert")]
    for name in ("native", "litert"):
        cells.append(f"{found['target'] / found[name]:.2f}" if {"target", name} <= set(found) else "")
    total = len(package.report["layers"])
    print(f"| {path.stem} | {placed} of {total} | {difference} | {' | '.join(cells)} |", flush=True)
    return found


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    if np.array_equal(found, expected, equal_nan=expected.dtype.kind == "f"):
        return 0.0
    largest = float(np.abs(expected).max(initial=0))
    return float(np.abs(found.astype(np.float64) - expected).max(initial=0)) / max(largest, np.finfo(np.float32).tiny)


def _litert(path: Path, inputs: Sequence[np.ndarray]) -> dict[str, Run]:
    """Return a run of the model by LiteRT, nothing if it refuses the model."""
    from ai_edge_litert.interpreter import Interpreter

    try:
        interpreter = Interpreter(model_content=write_tflite(read_model(path)), num_threads=1)
        interpreter.allocate_tensors()
        places = [detail["index"] for detail in interpreter.get_input_details()]
        results = [detail["index"] for detail in interpreter.get_output_details()]

        def run() -> list[np.ndarray]:
            for place, value in zip(places, inputs, strict=True):
                interpreter.set_tensor(place, value)
            interpreter.invoke()
            return [interpreter.get_tensor(place) for place in results]

        run()
    except Exception:  # a message of LiteRT's own
        return {}
    return {"litert": run}


def _cpu_seconds(run: Run, seconds: float) -> float:
    """Return the CPU time of one run, of as many as fit in ``seconds``."""
    run()
    start, count = time.process_time(), 0
    while (spent := time.process_time() - start) < seconds or count < 3:
        for _ in range(5):
            run()
        count += 5
    return spent / count


if __name__ == "__main__":
    main()
