"""Energy estimates beside the energy that MLPerf Tiny publishes for a 22 nm part with an accelerator.

    python scripts/energy_table.py [--data DIR]

``--data`` is a folder with ``models/zoo`` (default: $ODC_TEST_DATA, else ``shared`` beside the repository). The part is
a GreenWaves GAP9 at 0.8 V and 370 MHz with its constants on the chip: MLPerf Tiny 1.0, closed division, median energy
and throughput. Our estimates are for ``npu-256`` with constants in SRAM. Background power counts for as long as the
part takes, because the part is slower. The script prints the power at which the first network agrees, and the target
file has this power, rounded. The other networks are checks.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NamedTuple

import odc_mlir
from odc_mlir import targets

ROOT = Path(__file__).resolve().parents[1]
TARGET = "npu-256"


class Published(NamedTuple):
    """Energy and time of an inference on the part."""

    model: str
    energy_uj: float
    per_second: float


CALIBRATION = Published("pretrainedResnet_quant", 40.356, 1607.976)
CHECKS = (
    Published("ad01_int8", 7.294, 5681.280),
    Published("kws_ref_model", 26.659, 2107.926),
    Published("vww_96_int8", 58.356, 890.551),
)


def actions_uj(model: Path) -> float:
    """Return the estimate for ``model`` without background power."""
    parts = odc_mlir.compile(model, target=TARGET, memory="sram").report["energy"]["parts_uj"]
    return float(sum(energy for action, energy in parts.items() if action != "background"))


def calibrated_mw(actions: float, published: Published) -> float:
    """Return the background power at which actions of ``actions`` uJ agree with the published energy."""
    return (published.energy_uj - actions) * published.per_second / 1e3


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="compare energy estimates with published energy")
    default = os.environ.get("ODC_TEST_DATA") or ROOT.parent / "shared"
    parser.add_argument("--data", type=Path, default=Path(default), help="folder with models/zoo")
    folder = parser.parse_args().data / "models" / "zoo"
    power = targets.load(TARGET).energy.background_mw.value
    for published in (CALIBRATION, *CHECKS):
        actions = actions_uj(folder / f"{published.model}.circle")
        if published is CALIBRATION:
            print(f"background power: {calibrated_mw(actions, published):.1f} mW, in the target file {power:g} mW")
        estimate = actions + power * 1e3 / published.per_second
        text = f"{published.model:24}{actions:6.2f} + background = {estimate:5.2f} uJ"
        print(f"{text}, published {published.energy_uj:.2f} uJ: {estimate / published.energy_uj:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
