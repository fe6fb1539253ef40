"""Times recording, without and with a store, beside plain inference: CPU seconds per inference as JSON.

python benchmarks/recording.py MODEL SAMPLES ROUNDS

With one thread: others that wait for work count as CPU time, which on a busy machine is more than all the rest.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read once, when numpy loads

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from odc_mlir.calibration.recorded import shapes_of
from odc_mlir.calibration.records import RecordStore
from odc_mlir.formats.calibration import read_calibration
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.recording import record

FEWEST_RUNS = 128


def main() -> None:
    """Time what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("samples", metavar="SAMPLES")
    parser.add_argument("rounds", metavar="ROUNDS", type=int)
    arguments = parser.parse_args()
    executor = open_executor(arguments.model)
    samples = read_calibration(arguments.samples, executor.graph.input_infos()).records
    inputs = [[np.asarray(value, np.float32) for value in sample] for sample in samples]
    inputs *= -(-FEWEST_RUNS // len(inputs))

    def plain() -> None:
        for sample in inputs:
            executor.reset()
            executor.run(sample)

    def recorded() -> None:
        record(executor, inputs)

    def stored() -> None:
        with TemporaryDirectory() as folder:
            store = RecordStore(Path(folder) / "ranges.sqlite")
            store.append(record(executor, inputs), shapes_of(inputs[0]), inputs)

    def seconds(call: Callable[[], None]) -> float:
        begun = time.process_time()
        call()
        return (time.process_time() - begun) / len(inputs)

    plain()
    calls = {"plain": plain, "recorded": recorded, "stored": stored}
    # In turn, so that a machine that gets slower meanwhile slows all.
    rows = [{name: seconds(call) for name, call in calls.items()} for _ in range(arguments.rounds)]
    print(json.dumps({name: [row[name] for row in rows] for name in calls}))


if __name__ == "__main__":
    main()
