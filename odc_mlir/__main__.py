"""``python -m odc_mlir``: the commands without their scripts, see :mod:`odc_mlir.tools.commands`."""

from __future__ import annotations

from odc_mlir.start import start_command

if __name__ == "__main__":
    raise SystemExit(start_command("odc_mlir.tools.commands", "python -m odc_mlir"))
