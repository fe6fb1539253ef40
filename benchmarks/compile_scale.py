"""How compiling grows with the network: CPU time and memory of ``odc-compile`` beside the instructions that it emits.

    .venv/bin/python benchmarks/compile_scale.py [MODEL…] [--large]

Without MODEL: chains of 10 to 1,000 operators; ``--large`` adds ResNet-50. Each is compiled in a process of its own,
without the cache of tilings.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "test"))

CHAINS = (10, 30, 100, 300, 1000)


def compile_once(model: Path, folder: Path) -> tuple[float, float]:
    """(CPU seconds, peak MiB) of one compile of ``model`` into ``folder``."""
    command = [sys.executable, "-m", "odc_mlir", "compile", str(model), "-o", str(folder), "-q", "--no-cache"]
    process = os.posix_spawn(sys.executable, command, os.environ)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{model} does not compile")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def instructions(folder: Path) -> int:
    """How many instructions the programs of a package issue: those of loops count as often as they run."""
    from odc_mlir.isa import compact, container

    total = 0
    for path in folder.rglob("*.npu"):
        times = 1
        for item in compact.read_code(container.read(path.read_bytes()).code).instructions:
            if item.mnemonic == "loop":
                times = item["count"]
            elif item.mnemonic == "end":
                times = 1
            else:
                total += times
    return total


def main() -> None:
    """Print a row per network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="*", type=Path)
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        models = arguments.model or list(made(Path(name), large=arguments.large))
        print(f"{'model':20} {'CPU s':>8} {'MiB':>6} {'instructions':>12} {'ms each':>8}")
        for number, model in enumerate(models):
            folder = Path(name) / f"out{number}"
            seconds, mib = compile_once(model, folder)
            count = instructions(folder)
            print(f"{model.stem:20} {seconds:8.2f} {mib:6.0f} {count:12} {1000 * seconds / count:8.3f}", flush=True)


def made(folder: Path, *, large: bool) -> list[Path]:
    """The files of the networks."""
    from helpers.large_networks import chain, resnet50

    found = {f"chain-{size}": chain(size) for size in CHAINS}
    if large:
        found["resnet50"] = resnet50()
    for name, data in found.items():
        (folder / f"{name}.circle").write_bytes(data)
    return [folder / f"{name}.circle" for name in found]


if __name__ == "__main__":
    main()
