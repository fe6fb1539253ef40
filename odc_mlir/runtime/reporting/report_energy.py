"""Energy of an inference on the NPU, by layer and by action. An estimate, always: see the figures of the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from odc_mlir.targets import Target
from odc_mlir.targets.energy import EnergyCosts, EnergyFigure

# Action -> the figure of one, and which counts of the simulator it is multiplied with.
_ACTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "array": ("mac_pj", ("macs",)),
    "requantisation": ("requantisation_pj", ("requant",)),
    "tile_buffer": ("tile_byte_pj", ("tile_read", "tile_write")),
    "weight_buffer": ("weight_byte_pj", ("decoder",)),
    "accumulators": ("accumulator_entry_pj", ("accumulator_read", "accumulator_write")),
    "sram": ("sram_byte_pj", ("sram",)),
    "offchip": ("offchip_byte_pj", ("offchip",)),
}
_BOUNDS = ("low", "value", "high")
_PJ_PER_UJ = 1e6


def estimate(amounts: Mapping[str, float], macs: int, cycles: float, target: Target) -> dict[str, Any]:
    """Microjoules of what ``amounts`` (by resource) and ``macs`` count, and of the background during ``cycles``.

    ``estimate_uj``, its bounds ``low_uj`` and ``high_uj`` (all figures at theirs), and ``parts_uj`` by action.
    """
    costs: EnergyCosts = target.energy
    counts = {**amounts, "macs": macs}
    parts: dict[str, dict[str, float]] = {}
    for action, (name, counted) in _ACTIONS.items():
        parts[action] = _scaled(getattr(costs, name), sum(counts.get(key, 0) for key in counted) / _PJ_PER_UJ)
    seconds = cycles / target.clock_hz
    parts["background"] = _scaled(costs.background_mw, 1e3 * seconds)
    low, value, high = (sum(part[bound] for part in parts.values()) for bound in _BOUNDS)
    return {
        "estimate_uj": round(value, 4),
        "low_uj": round(low, 4),
        "high_uj": round(high, 4),
        "parts_uj": {action: round(part["value"], 4) for action, part in parts.items() if part["value"]},
    }


def _scaled(figure: EnergyFigure, amount: float) -> dict[str, float]:
    return {bound: amount * getattr(figure, bound) for bound in _BOUNDS}


def total(estimates: Iterable[Mapping[str, Any]], description: str | None) -> dict[str, Any]:
    """The sum over segments, and what it was estimated with."""
    parts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for one in estimates:
        parts.update(one["parts_uj"])
        sums.update({key: one[key] for key in ("estimate_uj", "low_uj", "high_uj")})
    return {
        "estimated_with": description,
        **{key: round(sums[key], 4) for key in ("estimate_uj", "low_uj", "high_uj")},
        "parts_uj": {action: round(value, 4) for action, value in parts.most_common()},
    }
