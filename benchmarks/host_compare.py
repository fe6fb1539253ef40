"""Our host kernels beside LiteRT's reference kernels, or our litert backend beside LiteRT itself; one thread each.

    python benchmarks/host_compare.py [--backend host|litert] [--data DIR] [--seconds S] [--json FILE] [PATTERN ...]

``--data`` is a folder with ``models`` and ``conformance`` (default: $ODC_TEST_DATA, else ``shared`` beside the
repository); PATTERNs choose models by name. Both sides run warm in this process, turn by turn; times are medians of CPU
time. A model passes when ours takes no longer than LiteRT where that takes 1 ms and more, and at most 4 times as long
where it takes less; for ``--backend litert`` the limits are 1.2 times from 0.5 ms on, and 50 us more below. Needs
ai-edge-litert.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read once, when numpy loads

import argparse
import fnmatch
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odc_mlir.errors import OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_tflite
from odc_mlir.formats.samples import random_inputs
from odc_mlir.runtime.api import open_executor

ROOT = Path(__file__).resolve().parents[1]
GROUPS = ("models/zoo", "models/zoo-int16", "models/digits", "conformance/models")
RESOLVERS = {"host": "BUILTIN_REF", "litert": "BUILTIN_WITHOUT_DEFAULT_DELEGATES"}
SEED = 1
# One measurement takes at least this long, so that the clock's own cost does not count.
SAMPLE_SECONDS = 3e-4
LEAST_ROUNDS = 7


@dataclass(frozen=True)
class Row:
    """Medians of one model; ``limit_ms`` is the most that ours may take."""

    model: str
    litert_ms: float
    ours_ms: float
    ratio: float
    limit_ms: float
    rounds: int

    @property
    def passes(self) -> bool:
        return self.ours_ms <= self.limit_ms


def limit_ms(backend: str, litert_ms: float) -> float:
    """How long ours may take where LiteRT takes ``litert_ms``."""
    if backend == "litert":
        return 1.2 * litert_ms if litert_ms >= 0.5 else litert_ms + 0.05
    return litert_ms if litert_ms >= 1 else 4 * litert_ms


def models(data: Path, patterns: list[str]) -> Iterator[Path]:
    """Model files whose name fits one of ``patterns`` (all without any)."""
    for group in GROUPS:
        for path in sorted((data / group).glob("*.circle")):
            if not patterns or any(fnmatch.fnmatch(path.stem, pattern) for pattern in patterns):
                yield path


def inputs_of(path: Path, infos: Any) -> list[Any]:
    """The first set of expected values' inputs where there is one, else random ones."""
    known = path.parent.parent / "data" / f"{path.stem}.npz"
    if known.is_file():
        with np.load(known) as archive:
            return [archive[f"in_0_{j}"] for j in range(len(infos))]
    shapes = [tuple(1 if dim is None else dim for dim in info.shape or ()) for info in infos]
    return random_inputs([(info.info.numpy, shape) for info, shape in zip(infos, shapes, strict=True)], SEED)


def litert_runner(path: Path, resolver: str, inputs: list[Any]) -> Callable[[], object]:
    """One inference by LiteRT: inputs in, outputs out."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=write_tflite(read_model(path)),
        num_threads=1,
        experimental_op_resolver_type=OpResolverType[resolver],
    )
    where = [detail["index"] for detail in interpreter.get_input_details()]
    for index, value in zip(where, inputs, strict=True):
        interpreter.resize_tensor_input(index, value.shape)
    interpreter.allocate_tensors()
    results = [detail["index"] for detail in interpreter.get_output_details()]

    def run() -> object:
        for index, value in zip(where, inputs, strict=True):
            interpreter.set_tensor(index, value)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in results]

    return run


def repeats_for(call: Callable[[], object]) -> int:
    """How many calls make up one measurement, after a warm-up."""
    for _ in range(3):
        call()
    begun = time.process_time()
    call()
    return max(1, int(SAMPLE_SECONDS / max(time.process_time() - begun, 1e-7)))


def timed(call: Callable[[], object], repeats: int) -> float:
    """Seconds of CPU time of one call."""
    begun = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - begun) / repeats


def measure(path: Path, backend: str, seconds: float) -> Row:
    """Measure both sides turn by turn; raises what either raises for a model that it cannot run."""
    executor = open_executor(path, backend=backend)
    inputs = inputs_of(path, executor.graph.input_infos())
    theirs = litert_runner(path, RESOLVERS[backend], inputs)

    def ours() -> object:
        return executor.run(inputs)

    their_repeats, our_repeats = repeats_for(theirs), repeats_for(ours)
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(pairs) < LEAST_ROUNDS or time.perf_counter() < end:
        pairs.append((timed(theirs, their_repeats), timed(ours, our_repeats)))
    litert_ms = 1e3 * statistics.median(pair[0] for pair in pairs)
    ratio = statistics.median(ours / theirs for theirs, ours in pairs)
    return Row(path.stem, litert_ms, ratio * litert_ms, ratio, limit_ms(backend, litert_ms), len(pairs))


def table(rows: list[Row]) -> str:
    """The rows as aligned text."""
    width = max(len(row.model) for row in rows)
    lines = [f"{'model':{width}} {'LiteRT ms':>10} {'ours ms':>10} {'ratio':>7} {'limit ms':>9}"]
    for row in rows:
        verdict = "" if row.passes else "  too slow"
        times = f"{row.litert_ms:10.4f} {row.ours_ms:10.4f} {row.ratio:7.2f} {row.limit_ms:9.4f}"
        lines.append(f"{row.model:{width}} {times}{verdict}")
    passed = sum(row.passes for row in rows)
    mean = statistics.geometric_mean(row.ratio for row in rows)
    lines.append(f"{passed} of {len(rows)} within their limits, geometric mean of the ratios {mean:.2f}")
    return "\n".join(lines)


def main() -> int:
    """Parse the command line, measure, print; the status is 1 when a model is too slow."""
    parser = argparse.ArgumentParser(description="compare host inference with LiteRT's")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="models by name (default: all)")
    default = os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"
    parser.add_argument("--data", type=Path, default=Path(default), help="folder with models and conformance")
    parser.add_argument("--backend", default="host", choices=tuple(RESOLVERS))
    parser.add_argument("--seconds", type=float, default=0.5, help="how long to measure each model (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the measurements here")
    arguments = parser.parse_args()

    rows: list[Row] = []
    for path in models(arguments.data, arguments.patterns):
        try:
            row = measure(path, arguments.backend, arguments.seconds)
        except (OdcError, RuntimeError, ValueError) as error:
            print(f"{path.stem}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        rows.append(row)
        print(f"{row.model}: {row.litert_ms:.4f} ms, ours {row.ours_ms:.4f} ms", file=sys.stderr)
    if not rows:
        parser.error("no such model runs on both sides; give --data or other names")
    print(table(rows))
    if arguments.json:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "numpy": np.__version__}
        record = {"schema_version": 1, "backend": arguments.backend, "machine": machine}
        record["rows"] = [{**asdict(row), "passes": row.passes} for row in rows]
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(row.passes for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
