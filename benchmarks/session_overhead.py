"""What a session costs beside the kernels: time per inference of chains of operators whose kernels do nothing.

``python benchmarks/session_overhead.py`` prints microseconds per inference for several lengths, and the line through
them: a fixed part and a part per operator.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from odc_mlir.formats.circle.model import Model, Operator, SubGraph, Tensor
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.runtime import Session
from odc_mlir.runtime.execution import units

LENGTHS = (1, 10, 50, 200)
RUNS, ROUNDS = 200, 7


def chain(length: int) -> bytes:
    """A model of ``length`` operators in a row."""
    tensors = [Tensor(f"t{index}", "float32", (1, 4)) for index in range(length + 1)]
    operators = [Operator("ABS", inputs=(index,), outputs=(index + 1,)) for index in range(length)]
    return bytes(write_model(Model(subgraphs=[SubGraph("main", tensors, (0,), (length,), operators)])))


def session_us(length: int) -> float:
    """Microseconds per inference: the best of several rounds, each the mean of many runs."""
    with Session(chain(length)) as session, patch.object(units, "prepare_kernel", lambda node: _nothing):
        session.prepare()
        session.set_input(0, np.zeros((1, 4), np.float32))
        session.set_output(0, np.zeros((1, 4), np.float32))
        session.run()
        return min(_mean_us(session) for _ in range(ROUNDS))


def _nothing(operands: Sequence[Any]) -> Sequence[Any]:
    return operands


def _mean_us(session: Session) -> float:
    start = time.perf_counter()
    for _ in range(RUNS):
        session.run()
    return 1e6 * (time.perf_counter() - start) / RUNS


def main() -> None:
    """Print the table."""
    times = {length: session_us(length) for length in LENGTHS}
    for length, microseconds in times.items():
        print(f"{length:4d} operators: {microseconds:8.1f} us per inference")
    slope, constant = np.polyfit(list(times), list(times.values()), 1)
    print(f"{constant:.1f} us per inference + {slope:.2f} us per operator (limits: 50 and 5)")


if __name__ == "__main__":
    main()
