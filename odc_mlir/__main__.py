"""``python -m odc_mlir`` and ``odc-mlir``, see :mod:`odc_mlir.tools.commands`."""

from __future__ import annotations

from odc_mlir.start import start_command


def main() -> int:
    """Run the command. Return the exit code."""
    return start_command("odc_mlir.tools.commands", "odc-mlir")


if __name__ == "__main__":
    raise SystemExit(main())
