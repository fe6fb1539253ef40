"""What cycles owe to single numbers of the machine: programs as compiled, run on machines with one number changed.

    python scripts/sensitivity.py [--data DIR] [--target NAME] [MODEL ...]

Prints a Markdown table of cycles over those of the target as it is, by model and memory mode. Programs are not compiled
again, so that a compiler could lose less by a worse machine. ``--data`` is as in ``cycle_table.py``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import cycle_table
from odc_mlir import compiler
from odc_mlir.simulator import Program, load, simulate
from odc_mlir.targets import MEMORY_MODES, Target

CHANGES: dict[str, Callable[[Target], Target]] = {
    "1 descriptor for each engine": lambda t: replace(t, dma=replace(t.dma, descriptors_in_flight=1)),
    "4 descriptors for each engine": lambda t: replace(t, dma=replace(t.dma, descriptors_in_flight=4)),
    "half the tile buffer's ports": lambda t: replace(
        t,
        tile_ports=replace(
            t.tile_ports,
            read_bytes_per_cycle=t.tile_ports.read_bytes_per_cycle // 2,
            write_bytes_per_cycle=t.tile_ports.write_bytes_per_cycle // 2,
        ),
    ),
    "half the lanes": lambda t: replace(t, vector=replace(t.vector, requant_lanes=t.vector.requant_lanes // 2)),
    "half the reduction lanes": lambda t: replace(t, vector=replace(t.vector, reduce_lanes=t.vector.reduce_lanes // 2)),
    "half the decoder": lambda t: replace(
        t, decoder=replace(t.decoder, symbols_per_cycle=t.decoder.symbols_per_cycle // 2)
    ),
    "half the accumulator ports": lambda t: replace(
        t, array=replace(t.array, accumulator_ports=t.array.accumulator_ports // 2)
    ),
    "twice the fetch buffer": lambda t: replace(t, fetch=replace(t.fetch, buffer_bytes=2 * t.fetch.buffer_bytes)),
}


def programs(data: Path, model: str, target: str, memory: str) -> list[Program]:
    """The compiled segments of a model below ``data``."""
    package = compiler.compile(cycle_table.model_path(data, model), target=target, memory=memory)
    assert package.plan is not None, "compiled packages have a plan"
    return [load(package.segment(segment.file)) for segment in package.plan.segments]


def ratios(segments: Sequence[Program]) -> list[float]:
    """By change, then for the memory model ``strict``: cycles over those of the machine as it is."""
    before = sum(simulate(program, execute=False).counters.cycles for program in segments)
    after = []
    for change in CHANGES.values():
        changed = [replace(program, target=change(program.target)) for program in segments]
        after.append(sum(simulate(program, execute=False).counters.cycles for program in changed))
    after.append(sum(simulate(p, execute=False, memory_model="strict").counters.cycles for p in segments))
    return [cycles / before for cycles in after]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Print what cycles owe to single numbers of the machine.")
    parser.add_argument(
        "--data", default=os.environ.get("ODC_TEST_DATA", cycle_table.ROOT.parent / "shared"), type=Path
    )
    parser.add_argument("--target", default="npu-256")
    parser.add_argument("models", nargs="*", choices=(*cycle_table.MODELS, []), metavar="MODEL", help="default: all")
    arguments = parser.parse_args(argv)
    print("| model | memory |", *(f"{name} |" for name in (*CHANGES, "`strict`")))
    print("|" + " --- |" * (len(CHANGES) + 3))
    for model in arguments.models or cycle_table.MODELS:
        for memory in MEMORY_MODES:
            found = ratios(programs(arguments.data, model, arguments.target, memory))
            print(f"| {model} | `{memory}` |", *(f"{ratio:.2f} |" for ratio in found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
