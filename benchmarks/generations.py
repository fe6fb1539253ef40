"""Compare texts from the NPU with the host's, while the device fails at random tokens.

    python benchmarks/generations.py [--model FILE] [--state OUT=IN ...] [--generations 1000] [--tokens 24] [--seed 0]

Without ``--model`` it is the one of ``examples/stories``. Each generation draws a prompt and tokens by its own seed,
on host kernels and on the simulated NPU. In most of them the device fails at a random step, once or from then on, with
or without the states that it holds. Exits with 1 if a token differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import odc_mlir
from odc_mlir.errors import SimulationError
from odc_mlir.runtime import Session
from odc_mlir.runtime.devices.simulator import SimulatorProgram

STORIES = Path(__file__).parents[1] / "examples" / "stories" / "stories_int8.circle"
LONGEST_PROMPT, FAILURES = 4, ("none", "none", "once", "from then on", "once, state lost", "from then on, state lost")


@contextmanager
def failing(kind: str, step: int) -> Iterator[None]:
    """Let the device fail at run number ``step``, as one of ``FAILURES``."""
    works, reads, runs = SimulatorProgram.run, SimulatorProgram.read_states, [0]

    def run(self: SimulatorProgram, values: Any, **options: Any) -> Any:
        runs[0] += 1
        if kind != "none" and (runs[0] == step or (runs[0] > step and kind.startswith("from"))):
            raise SimulationError("the device is gone")
        return works(self, values, **options)

    def read_states(self: SimulatorProgram) -> Any:
        if runs[0] >= step and kind.endswith("lost"):
            raise SimulationError("the device is gone")
        return reads(self)

    with mock.patch.multiple(SimulatorProgram, run=run, read_states=read_states):
        yield


def main() -> int:
    """Run the comparison; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(STORIES))
    parser.add_argument("--state", action="append", metavar="OUT=IN")
    parser.add_argument("--generations", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    package = odc_mlir.compile(arguments.model, target="npu-256", prefer="compile-time", states=arguments.state)
    wrong = tokens = 0
    for seed in range(arguments.seed, arguments.seed + arguments.generations):
        rng = np.random.default_rng(seed)
        prompt = [1, *rng.integers(3, 259, int(rng.integers(LONGEST_PROMPT))).tolist()]
        kind, step = str(rng.choice(FAILURES)), int(rng.integers(1, len(prompt) + arguments.tokens))
        chosen = (prompt, arguments.tokens, float(rng.choice([0.0, 0.8])), 40, seed)
        with Session(package, "host") as host, Session(package) as npu, failing(kind, step):
            wanted, found = host.generate(*chosen), npu.generate(*chosen)
        tokens += len(wanted)
        differing = sum(a != b for a, b in zip(wanted, found, strict=True))
        wrong += differing
        if differing:
            print(f"generation {seed}: {differing} tokens differ (failure: {kind}, step {step})", flush=True)
    print(f"{arguments.generations} generations, {tokens} tokens, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
