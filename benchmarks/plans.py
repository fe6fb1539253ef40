"""Promises of plans: more SRAM, another preference or a better machine never make a program slower.

    python benchmarks/plans.py [--data DIR] [--prefer fewest-cycles] [--only limits|machines|claims] [MODEL ...]

``limits``: cycles at eight SRAM limits and without one, for speed and for memory; neither a smaller limit nor the
preference for memory may be faster. ``machines``: half of the lanes, of the decoder or of a port, and twice a port,
without a limit and at one. ``claims``: cycles after compiling for the machines of ``what_if`` with
``--prefer fewest-cycles``, at most what it says.

Programs are simulated without values. The status is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from odc_mlir import compiler, targets
from odc_mlir.errors import AllocationError
from odc_mlir.explore.space import toml_lines
from odc_mlir.simulator import load, simulate
from odc_mlir.simulator.explaining import WHAT_IFS, WhatIf, explain
from odc_mlir.targets import MemoryMode, Target

ROOT = Path(__file__).resolve().parents[1]
MODELS = {
    "kws_ref_model": "zoo",
    "vww_96_int8": "zoo",
    "pretrainedResnet_quant": "zoo",
    "ad01_int8": "zoo",
    "digits_cnn_int8": "digits",
}
LIMITS = 8  # from the least one to the SRAM used without a limit
PARTS = ("vector.requant_lanes", "decoder.symbols_per_cycle", "sram.bytes_per_cycle", "offchip.bytes_per_cycle")
SLACK = {"limits": 1.005, "machines": 1.005, "claims": 1.002}


class Promise(NamedTuple):
    """``found`` cycles, ``allowed`` ones, and the programs that they are of."""

    text: str
    found: int
    allowed: int


class Cycles:
    """Cycles of the programs of one model by limit, preference and machine, each compiled once."""

    def __init__(self, path: Path, speed: str) -> None:
        self.path, self.speed, self.seconds, self.programs = path, speed, 0.0, dict[Any, Any]()

    def program(
        self,
        limit: int | None = None,
        prefer: str = "",
        machine: Target | None = None,
        memory: MemoryMode = "flash",
    ) -> Any:
        """The only segment; the error if the limit is too small."""
        key = limit, prefer or self.speed, machine, memory
        if key not in self.programs:
            self.programs[key] = self._compiled(*key)
        return self.programs[key]

    def _compiled(self, limit: int | None, prefer: str, machine: Target | None, memory: MemoryMode) -> Any:
        shipped, started = targets.load("npu-256"), time.process_time()
        machine = shipped if machine is None else replace(machine, name="changed")  # names of targets are unique
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "machine.toml"
            target.write_text("\n".join(toml_lines(json.loads(machine.canonical))))
            try:
                made = compiler.compile(
                    self.path,
                    target=str(target),
                    memory=memory,
                    prefer=prefer,
                    sram_limit=limit,
                    placement={"strategy": "supported"},
                    remember=True,
                )
            except AllocationError as error:
                return error
            finally:
                self.seconds += time.process_time() - started
            (segment,) = made.plan.segments
            return load(made.segment(segment.file), target=machine)

    def at(self, *key: Any) -> int:
        """The cycles; 0 if the limit is too small."""
        found = self.program(*key)
        return 0 if isinstance(found, AllocationError) else simulate(found, execute=False).counters.cycles

    def limits(self) -> list[int]:
        """Limits in equal ratios."""
        most, refused = self.program().container.arena_bytes, self.program(1)
        least = refused.needed_bytes
        return [int(least * (most / least) ** (step / (LIMITS - 1))) for step in range(LIMITS)]


def limits(cycles: Cycles) -> Iterator[Promise]:
    """Compare each limit with all smaller ones, and the preferences."""
    least = dict.fromkeys((cycles.speed, "memory"), (1 << 60, ""))
    for limit in (*cycles.limits(), None):
        found = {prefer: cycles.at(limit, prefer) for prefer in least}
        print(f"    {limit}:", *found.values(), flush=True)
        for prefer, (best, at) in least.items():
            yield Promise(f"{prefer} at {limit}, more than {at}", found[prefer], best)
            least[prefer] = min((best, at), (found[prefer], str(limit)))
        yield Promise(f"{cycles.speed} at {limit}, beside memory", found[cycles.speed], found["memory"])


def machines(cycles: Cycles) -> Iterator[Promise]:
    """Compare the machine with one that has half of something, or twice the ports."""
    base, middle = targets.load("npu-256"), cycles.limits()[LIMITS // 2]
    choices = [(None, cycles.speed), (middle, cycles.speed), (middle, "memory")]
    for part in PARTS:
        room, _, name = part.partition(".")
        record: Any = getattr(base, room)
        half = getattr(record, name) // 2
        poorer = replace(base, **{room: replace(record, **{name: half})})
        for choice in choices if half else ():
            yield Promise(f"at {choice}, beside half of {part}", cycles.at(*choice), cycles.at(*choice, poorer))
    for part in PARTS[-2:]:
        better = WhatIf("", (), {part: 2}).better(base)
        for choice in choices:
            yield Promise(f"at {choice} with twice of {part}", cycles.at(*choice, better), cycles.at(*choice))


def claims(cycles: Cycles) -> Iterator[Promise]:
    """Compile for the machines that the report of a program recommends."""
    for memory in targets.MEMORY_MODES:
        for name, claim in explain(cycles.program(memory=memory))["what_if"].items():
            better = WHAT_IFS[name].better(targets.load("npu-256"))
            found = cycles.at(None, "fewest-cycles", better, memory)
            yield Promise(f"{memory}, {claim['text']}", found, claim["cycles"])


def main() -> int:
    """Parse the command line, compile, print."""
    parser = argparse.ArgumentParser(description="check the promises of plans")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="model names (default: all)")
    default = os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"
    parser.add_argument("--data", type=Path, default=Path(default), help="folder with models")
    parser.add_argument("--prefer", default="performance", choices=("performance", "fewest-cycles"), help="for speed")
    parser.add_argument("--only", choices=SLACK, help="check only these")
    arguments = parser.parse_args()
    made = {"limits": limits, "machines": machines, "claims": claims}
    kept = dict.fromkeys(made, 0)
    asked = dict.fromkeys(made, 0)
    for model in arguments.models or MODELS:
        cycles = Cycles(arguments.data / "models" / MODELS[model] / f"{model}.circle", arguments.prefer)
        for kind in [arguments.only] if arguments.only else made:
            print(f"{model}: {kind}")
            for promise in made[kind](cycles):
                asked[kind] += 1
                kept[kind] += promise.found <= promise.allowed * SLACK[kind]
                if promise.found > promise.allowed:
                    more = promise.found / promise.allowed - 1
                    print(f"  {promise.text}: {promise.found} cycles, not {promise.allowed} ({more:+.2%})", flush=True)
        print(f"  {len(cycles.programs)} compilations, {cycles.seconds:.1f} s CPU")
    print(*(f"{kind}: {kept[kind]} of {asked[kind]} kept" for kind in made), sep="\n")
    return int(kept != asked)


if __name__ == "__main__":
    sys.exit(main())
