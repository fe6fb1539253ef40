"""Compile on the device, behind an application that only runs its model.

    python examples/on_device/run_story.py [--out out/on_device]

A float model is put into an nnpackage whose config.cfg says ``OnDeviceCompilation 1``. The application (app.py) runs
it: the first answers are the float model's, later ones come from the NPU, without a pause and without a word in the
application. The result becomes part of the package, so that the second process starts with it. A second model is one
that plain 8-bit quantisation ruins.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import odc_mlir

HERE = Path(__file__).resolve().parent
CONFIG = """# read by the session that opens this package
OnDeviceCompilation 1
ODC_RECORDS = 20           # runs to look at before anything is quantised
ODC_UPDATE_PACKAGE = 1     # what is made becomes part of the package
"""
MANIFEST = """{
  "major-version": "1", "minor-version": "2", "patch-version": "0",
  "configs": ["config.cfg"],
  "models": ["model.circle"], "model-types": ["circle"]
}
"""


def make_package(model: Path, folder: Path) -> Path:
    """An nnpackage with ``model``, as an application would be shipped with."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "MANIFEST").write_text(MANIFEST)
    (folder / "metadata" / "config.cfg").write_text(CONFIG)
    shutil.copy(model, folder / "model.circle")
    return folder


def run_app(package: Path, cache: Path) -> str:
    """What the application prints, run as a process of its own."""
    root = str(HERE.parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "ODC_CACHE_DIR": str(cache.absolute()), "PYTHONPATH": path}
    command = [sys.executable, str(HERE / "app.py"), str(package)]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def naive_verdict(model: Path) -> str:
    """What the accuracy check says of a model that is quantised without any help."""
    with np.load(HERE / "digits.npz") as archive:
        samples = [[picture[None].astype(np.float32) / 16] for picture in archive["pictures"][:40]]
    made = odc_mlir.quantize(model, scheme="int8", granularity="tensor", calibration=samples, help=False)
    verdict = made.verdict
    outcome = "passed" if verdict["passed"] else "refused"
    return f"{outcome}: {verdict['metric']} is {verdict['value']:.3f}, the limit is {verdict['limit']:.3f}"


def main() -> int:
    """Tell the story."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/on_device"))
    out = parser.parse_args().out
    cache = out / "cache"
    shutil.rmtree(cache, ignore_errors=True)

    package = make_package(HERE / "digits_cnn.circle", out / "digits")
    print("--- a float model in an nnpackage; the first process")
    print(run_app(package, cache))
    shutil.rmtree(cache / "compiled")  # the package holds the result, the cache the record that it was made here
    print("--- the second process")
    print(run_app(package, cache))
    odc = sorted(path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file())
    print("the package holds:", *odc, sep="\n  ")

    hard = HERE / "digits_mobile_hard.circle"
    print("\n--- a model that is hard to quantise")
    print("one scale for each tensor, and no help:", naive_verdict(hard))
    print(run_app(make_package(hard, out / "hard"), cache))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
