"""``python -m odc_mlir``: the commands without their scripts, see :mod:`odc_mlir.tools.commands`."""

from __future__ import annotations

from odc_mlir.start import run

if __name__ == "__main__":
    raise SystemExit(run("odc_mlir.tools.commands", "python -m odc_mlir"))
