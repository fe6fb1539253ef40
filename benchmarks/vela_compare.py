"""Cycles of our compiled programs beside a published estimate of Arm Vela for the same models and budget.

    python benchmarks/vela_compare.py [--data DIR] [--json FILE] [--memory flash|sram] [--target npu-256] [MODEL ...]

``--data`` is a folder with ``models/zoo``, ``models/zoo-int16`` and ``baselines/vela.csv``. Vela's cycles are its own
estimate: a sum over operators that leaves out instruction fetch, stalls between operators and contention. Ours are
simulated and include them; ``strict`` is the same with limited outstanding bursts. ``floor`` is what the model's
operators take at the least on this machine, whatever the program, ``ideal`` what our program does (docs/numbers.md);
``x layers`` is over the sum of the layers' own floors: array, lanes or weights, whichever binds each.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

FOLDERS = ("zoo", "zoo-int16")

# The configuration of the baseline with the same budget as (target, memory mode).
COMPARABLE = {
    ("npu-128", "flash"): "u55-128/high-end/Shared_Sram",
    ("npu-128", "sram"): "u55-128/high-end/Sram_Only",
    ("npu-256", "flash"): "u55-256/high-end/Shared_Sram",
    ("npu-256", "sram"): "u55-256/high-end/Sram_Only",
    ("npu-512", "flash"): "u65-512/client-server/Dedicated_Sram",
    ("npu-512", "sram"): "u65-512/client-server/Sram_Only",
}


def baseline(path: Path, config: str) -> dict[str, dict[str, str]]:
    """Rows of one configuration of the baseline, by model."""
    with path.open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["config"] == config]
    return {row["model"]: row for row in rows if row["cycles_total"]}  # models that Vela refused have none


def compare(model: Path, row: dict[str, str], target: str, memory: str) -> dict[str, Any]:
    """Compile ``model`` and set its report against the baseline's ``row``."""
    import odc_mlir

    report = odc_mlir.compile(model, target=target, memory=memory).report
    theirs = int(row["cycles_total"])
    return {
        "model": model.stem,
        "cycles": report["cycles_total"],
        "cycles_strict": report["cycles_total_strict"],
        "floor_cycles": report["model_floor_cycles"],
        "layers_floor_cycles": sum(max(layer["floor"].values()) for layer in report["layers"] if layer.get("floor")),
        "ideal_cycles": report["ideal_cycles"],
        "vela_cycles": theirs,
        "speedup": theirs / report["cycles_total"],
        "sram_bytes": report["sram_peak_bytes"],
        "vela_sram_bytes": int(row["sram_used"]),
        "mac_utilization": report["mac_utilization"],
        "host_ops": report["host_op_count"],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The comparison as aligned text, with the geometric mean of the speed-ups."""
    width = max(len(row["model"]) for row in rows)
    bounds = f"{'floor':>10} {'ideal':>10} {'x floor':>8} {'x layers':>8} {'x ideal':>8}"
    head = f"{'model':{width}} {'cycles':>10} {'strict':>10} {bounds} {'Vela':>10} {'speed-up':>8}"
    lines = [f"{head} {'SRAM KB':>8} {'Vela KB':>8} {'MAC %':>6} {'host':>4}"]
    for r in rows:
        over = [r["cycles"] / r[bound] for bound in ("floor_cycles", "layers_floor_cycles", "ideal_cycles")]
        lines.append(
            f"{r['model']:{width}} {r['cycles']:10} {r['cycles_strict']:10} {r['floor_cycles']:10}"
            f" {r['ideal_cycles']:10} {over[0]:8.2f} {over[1]:8.2f} {over[2]:8.2f} {r['vela_cycles']:10}"
            f" {r['speedup']:8.2f} {r['sram_bytes'] / 1024:8.1f} {r['vela_sram_bytes'] / 1024:8.1f}"
            f" {100 * r['mac_utilization']:6.1f} {r['host_ops']:4}"
        )
    mean = math.exp(sum(math.log(r["speedup"]) for r in rows) / len(rows))
    lines.append(f"geometric mean of the speed-ups: {mean:.2f}")
    return "\n".join(lines)


def main() -> int:
    """Parse the command line, compile, print."""
    parser = argparse.ArgumentParser(description="compare cycles with Vela's estimate")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="model names (default: all of the baseline)")
    default = os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"
    parser.add_argument("--data", type=Path, default=Path(default), help="folder with models/zoo and baselines")
    parser.add_argument("--target", default="npu-256", choices=sorted({target for target, _ in COMPARABLE}))
    parser.add_argument("--memory", default="flash", choices=("flash", "sram"))
    parser.add_argument("--json", type=Path, help="write the comparison here")
    arguments = parser.parse_args()

    file = arguments.data / "baselines" / "vela.csv"
    if not file.is_file():
        parser.error(f"there is no baseline at {file}; give --data or set ODC_TEST_DATA")
    known = baseline(file, COMPARABLE[arguments.target, arguments.memory])
    found = {path.stem: path for folder in FOLDERS for path in (arguments.data / "models" / folder).glob("*.circle")}
    names = arguments.models or [name for name in known if name in found]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"the baseline has no model {unknown[0]!r}; it has {', '.join(known)}")
    rows = []
    for name in names:
        rows.append(compare(found[name], known[name], arguments.target, arguments.memory))
        print(f"{name}: {rows[-1]['cycles']} cycles, {rows[-1]['speedup']:.2f}x", file=sys.stderr)
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps({"schema_version": 1, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
