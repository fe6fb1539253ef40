"""The record of a release: what its programs cost, how long compiling them took, and what its tests notice.

    python scripts/release_record.py [--data DIR] [--write] [--times] [--mutations] [MODEL ...]

Compiles the models of ``scripts/cycle_table.py`` and compares cycles, bytes and sizes with the record of this version,
``benchmarks/releases/VERSION.json``, which must be equal to the last unit; fails where one is not. ``--write`` writes
what was found instead. ``--times`` also measures the CPU time of compiling each model, which is shown and never
compared. ``--mutations`` runs the slow check that breaks the scheduler on purpose, and records how many of the ways are
noticed. ``--data`` is as in ``cycle_table.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import cycle_table
from cycle_table import ROOT, Key
from odc_mlir import compiler
from odc_mlir._version import __version__
from odc_mlir.formats.package import PackageFiles

FOLDER = ROOT / "benchmarks" / "releases"
_MUTATIONS = "test/e2e/test_cycles.py"
_TIMED_RUNS = 3
_COMPILE = "import sys\nfrom odc_mlir import compiler\ncompiler.compile(sys.argv[1])"


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one model on one machine: cycles of an inference, operators on the NPU, and bytes.

    ``program_bytes``, ``constant_bytes``: of the binaries, as stored; ``binary_bytes``: of their files; the SRAM peak
    is that of the largest segment.
    """

    cycles: int
    npu_operators: int
    sram_peak_bytes: int
    program_bytes: int
    constant_bytes: int
    binary_bytes: int


Rows = dict[Key, Costs]


def costs(package: PackageFiles) -> Costs:
    """What a compiled package costs."""
    assert package.plan is not None, "compiled packages have a plan"
    found = cycle_table.counted(package)
    return Costs(
        cycles=sum(counters.cycles for counters in found),
        npu_operators=cycle_table.npu_operators(package),
        sram_peak_bytes=max((counters.sram_peak_bytes for counters in found), default=0),
        program_bytes=sum(counters.program_bytes for counters in found),
        constant_bytes=sum(counters.constant_bytes for counters in found),
        binary_bytes=sum(len(package.segment(step.file)) for step in package.plan.segments),
    )


def path_of(version: str = __version__) -> Path:
    """The record of a version."""
    return FOLDER / f"{version}.json"


def read(path: Path) -> dict[str, Any]:
    """The record in a file; an empty one where there is none."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": []}
    return found


def rows_of(record: Mapping[str, Any]) -> Rows:
    """The costs in a record."""
    return {Key(*(row.pop(name) for name in Key._fields)): Costs(**row) for row in map(dict, record["rows"])}


def differences(expected: Rows, found: Rows) -> Iterator[str]:
    """A line for each number of ``found`` that the record has otherwise."""
    for key, now in found.items():
        before = expected.get(key)
        if before is None:
            yield f"{' '.join(key)}: not in the record"
            continue
        for name, value in asdict(now).items():
            if value != (old := getattr(before, name)):
                yield f"{' '.join(key)}: {name} {old:,}, now {value:,} ({value - old:+,})"


def write(path: Path, record: Mapping[str, Any], rows: Rows) -> None:
    """Write a record with ``rows`` in the order of the cycle table."""
    lines = [{**key._asdict(), **asdict(rows[key])} for key in cycle_table.rows() if key in rows]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**record, "version": __version__, "rows": lines}, indent=1) + "\n")


def compile_seconds(model: Path) -> float:
    """CPU seconds of a process that compiles ``model`` for the default machine, the median of a few."""
    times = []
    for _ in range(_TIMED_RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", _COMPILE, model], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(median(times), 2)


def noticed_mutations() -> dict[str, int]:
    """Ways to break the scheduler, and how many of them the quick rows of the cycle table notice."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--soak", "-k", "worse_scheduler", _MUTATIONS]
    text = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed)", text)}
    if not counts:
        raise RuntimeError(f"the mutations did not run:\n{text[-2000:]}")
    return {"noticed": counts.get("passed", 0), "made": sum(counts.values())}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the status is 1 where a number is not what the record says."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("ODC_TEST_DATA", ROOT.parent / "shared"), type=Path)
    parser.add_argument("--write", action="store_true", help="write the record of this version")
    parser.add_argument("--times", action="store_true", help="measure the CPU time of compiling, too")
    parser.add_argument("--mutations", action="store_true", help="count what the tests of the scheduler notice, too")
    parser.add_argument("models", nargs="*", choices=(*cycle_table.MODELS, []), metavar="MODEL", help="default: all")
    arguments = parser.parse_args(argv)
    models = arguments.models or list(cycle_table.MODELS)
    paths = {model: cycle_table.model_path(arguments.data, model) for model in models}
    record = read(path_of())
    expected = rows_of(record)
    found: Rows = {}
    for key in cycle_table.rows(models):
        found[key] = costs(compiler.compile(paths[key.model], target=key.target, memory=key.memory))
    lines = list(differences(expected, found))
    print(*lines, f"{len(lines)} of {len(found)} rows' numbers differ", sep="\n")
    if arguments.times:
        times = {model: compile_seconds(path) for model, path in paths.items()}
        record |= {"compile_cpu_seconds": record.get("compile_cpu_seconds", {}) | times, "machine": platform.platform()}
        print(*(f"{model}: {seconds} CPU seconds" for model, seconds in times.items()), sep="\n")
    if arguments.mutations:
        record["scheduler_mutations"] = noticed_mutations()
        print("mutations of the scheduler: {noticed} of {made} noticed".format(**record["scheduler_mutations"]))
    if arguments.write:
        write(path_of(), record, expected | found)
        return 0
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
