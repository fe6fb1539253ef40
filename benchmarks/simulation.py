"""Time the simulator alone on a package's segments: one line of JSON. Run by ``run.py``, in a process of its own.

python benchmarks/simulation.py PACKAGE RUNS values|cycles
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from measure import function
from odc_mlir.simulator import load, simulate


def main() -> int:
    """Simulate all segments on zeros, over and over; print the measurement and the cycles of one inference."""
    package, runs, what = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    segments = [load(path.read_bytes()) for path in sorted(package.rglob("*.npu"))]
    inputs = [[np.zeros(t.shape, t.dtype) for t in segment.inputs] for segment in segments]

    def run() -> int:
        pairs = zip(segments, inputs, strict=True)
        return sum(simulate(segment, values, execute=what == "values").counters.cycles for segment, values in pairs)

    measurement = function(what, run, runs=runs)
    print(json.dumps({"cycles": run(), "measurement": asdict(measurement)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
