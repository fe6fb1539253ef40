"""What each operator of a quantised model costs, and which cost most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

WORST_LAYERS = 8


@dataclass(slots=True)
class LayerError:
    """How wrong one operator of the quantised model is.

    ``isolated``: measures of its results when it is fed what the float model computes. ``accumulated``: the same in a
    run of the whole quantised model. ``effect_db``: SQNR of the model's outputs when nothing but this operator is
    quantised, None where they are not touched. ``noise`` is the same as a ratio of powers, 0 where not touched;
    ``lacking``: for how many samples outputs then lack numbers, which count as zeros.
    """

    name: str
    op: str
    precision: str
    isolated: dict[str, float | None] = field(default_factory=dict)
    accumulated: dict[str, float | None] = field(default_factory=dict)
    noise: float = 0.0
    effect_db: float | None = None
    lacking: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a verdict."""
        return {
            "name": self.name,
            "op": self.op,
            "scheme": self.precision,
            "output_sqnr_db": self.effect_db,
            "lacking": self.lacking,
            "isolated": dict(self.isolated),
            "accumulated": dict(self.accumulated),
        }


def worst_layers(layers: Sequence[LayerError], count: int = WORST_LAYERS) -> list[LayerError]:
    """The ``count`` layers that harm the outputs most, worst first; those that harm nothing are left out.

    Ranked by the noise that each alone adds to the outputs; where that is not known for any, by isolated SQNR.
    """
    if any(layer.noise for layer in layers):
        harmful = [layer for layer in layers if layer.noise]
        return sorted(harmful, key=lambda layer: (-layer.noise, layer.name))[:count]
    measured = [(value, layer) for layer in layers if (value := layer.isolated.get("sqnr_db")) is not None]
    return [layer for _, layer in sorted(measured, key=lambda pair: (pair[0], pair[1].name))[:count]]
