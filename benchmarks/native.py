"""Native code beside LiteRT's default kernels (XNNPACK) or onert: CPU time of one run, one thread, in one process.

    .venv/bin/python benchmarks/native.py FOLDER|MODEL... [--peer onert] [--by session] [--rounds 7] [--seconds 0.2]

Every model runs in turn by native code and by the peer, in several rounds that alternate; the median counts. A run
takes its inputs as arrays and gives its outputs as arrays. The ratio is native over the peer, so below 1 is faster.
Outputs are compared with those of host kernels: codes to the bit, reals to a hundred-thousandth of the largest.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Print a line per model and the geometric mean of integer and of float models."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, help="models, or folders of them")
    parser.add_argument("--peer", choices=("litert", "onert"), default="litert")
    parser.add_argument("--by", choices=("package", "session"), default="package", help="what runs the native code")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="CPU time of one round of one side")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    print(f"{'model':34} {'native µs':>10} {'peer µs':>10} {'ratio':>6} {'compile s':>9} {'KiB':>7}  on the host")
    rows = [measure(path, arguments) for path in found(arguments.models)]
    for kind in ("int", "float"):
        ratios = [row["ratio"] for row in rows if row["kind"] == kind and row["ratio"] is not None]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            print(f"{kind}: geometric mean {mean:.2f}, worst {max(ratios):.2f} of {len(ratios)} models")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def found(paths: Sequence[Path]) -> list[Path]:
    """The models among ``paths``, in order of name; of a model in both formats, Circle's."""
    files = [file for path in paths for file in (sorted(path.rglob("*.circle")) if path.is_dir() else [path])]
    return list(dict.fromkeys(files))


def measure(path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of one model, printed as well."""
    import odc_mlir
    from odc_mlir import compiler
    from odc_mlir.runtime import Session
    from odc_mlir.runtime.package import Package

    start = time.process_time()
    package = Package(compiler.compile(path, target="cpu"))
    compile_seconds = time.process_time() - start
    executor = package.executor()
    inputs = [_example(info, seed) for seed, info in enumerate(executor.graph.input_infos())]
    sides: dict[str, Callable[[], Any]] = {"native": lambda: executor.run(inputs)}
    if arguments.by == "session":
        session = Session(package)
        sides["native"] = lambda: session.infer(inputs)
    same = all(map(_agree, sides["native"](), odc_mlir.run(path, inputs, backend="host")))
    peer = _PEERS[arguments.peer](path, inputs)
    if peer is not None:
        sides["peer"] = peer
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, run in sides.items():
            times[name].append(_cpu_seconds(run, arguments.seconds))
    medians = {name: 1e6 * statistics.median(values) for name, values in times.items()}
    plan = package.plan
    assert plan is not None
    left = [package.graph.nodes[index].node.spec.name for index in plan.host_reasons]
    code = sum(len(package.files.segment(step.file)) for step in plan.segments)
    kind = "float" if any(info.dtype == "float32" for info in executor.graph.tensors if not info.is_const) else "int"
    ratio = medians["native"] / medians["peer"] if "peer" in medians else None
    print(
        f"{path.stem:34} {medians['native']:10.1f} {medians.get('peer', math.nan):10.1f} "
        f"{math.nan if ratio is None else ratio:6.2f} {compile_seconds:9.2f} {code / 1024:7.0f}  "
        + ", ".join(f"{left.count(name)} {name}" for name in sorted(set(left)))
        + ("" if same else "  DIFFERS"),
        flush=True,
    )
    return {
        "model": path.stem,
        "kind": kind,
        "ratio": ratio,
        "same": same,
        "compile_seconds": compile_seconds,
        **medians,
    }


def _example(info: Any, seed: int) -> np.ndarray:
    generator, shape = np.random.default_rng(seed), tuple(1 if size is None else size for size in info.shape)
    if info.info.kind == "float":
        return generator.normal(size=shape).astype(info.info.numpy)
    low, high = info.info.range if info.info.bits == 8 else (0, 2)
    return generator.integers(low, high, shape).astype(info.info.numpy)


def _agree(found: np.ndarray, expected: np.ndarray) -> bool:
    if expected.dtype.kind != "f":
        return np.array_equal(found, expected)
    largest = float(np.abs(expected).max(initial=0, where=np.isfinite(expected)))
    return bool(np.allclose(found, expected, rtol=0, atol=1e-5 * largest, equal_nan=True))


def _litert(path: Path, inputs: Sequence[np.ndarray]) -> Callable[[], Any] | None:
    """A run of the model by LiteRT, None where it refuses it."""
    from ai_edge_litert.interpreter import Interpreter

    from odc_mlir.formats.circle.reader import read_model
    from odc_mlir.formats.circle.writer import write_tflite

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
    except Exception as error:
        print(f"{path.stem}: LiteRT refuses: {str(error).splitlines()[0]}")
        return None
    return run


def _onert(path: Path, inputs: Sequence[np.ndarray]) -> Callable[[], Any] | None:
    """A run of the model by onert, None where it refuses it."""
    os.environ["NUM_THREADS"] = "1"
    from onert import infer

    try:
        session = infer.session(str(path), "cpu")
        session.infer(list(inputs))
    except Exception as error:
        print(f"{path.stem}: onert refuses: {str(error).splitlines()[0]}")
        return None
    return lambda: session.infer(list(inputs))


_PEERS = {"litert": _litert, "onert": _onert}


def _cpu_seconds(run: Callable[[], Any], seconds: float) -> float:
    """CPU time of one run, of as many as fit in ``seconds``."""
    run()
    start, count = time.process_time(), 0
    while (spent := time.process_time() - start) < seconds or count < 3:
        for _ in range(5):
            run()
        count += 5
    return spent / count


if __name__ == "__main__":
    main()
