"""Why layers take their cycles, as reports have it: sums over segments, and words for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from odc_mlir.formats.quantities import NOTHING, count_text, share_text

EXPLAINED = ("causes", "binds", "helps")  # of an operator, from the simulator
_CAUSES_SHOWN = 4


def causes_of_segments(explanations: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Cycles by cause, largest first; they add up to the cycles of the segments that are explained."""
    total: Counter[str] = Counter()
    for explanation in explanations:
        total.update(explanation.get("causes", {}))
    return {cause: round(cycles, 3) for cause, cycles in total.most_common()}


def what_ifs(segments: Iterable[tuple[Mapping[str, Any], int]]) -> dict[str, dict[str, Any]]:
    """By change, its text and the cycles of one inference with it; segments that it does not help keep theirs."""
    known = [(explanation["what_if"], cycles) for explanation, cycles in segments if explanation]
    texts = {change: what["text"] for found, _ in known for change, what in found.items()}
    return {
        change: {"text": text, "cycles": sum(found.get(change, {"cycles": c})["cycles"] for found, c in known)}
        for change, text in texts.items()
    }


def live_in_segments(segments: Iterable[tuple[str, int, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """What lies in SRAM over time, by segment of (name, bytes reserved, explanation) that keeps something there."""
    return [
        {"segment": name, "reserved_bytes": reserved, **found["sram_live"]}
        for name, reserved, found in segments
        if found.get("sram_live")
    ]


def energy_line(energy: Mapping[str, Any]) -> str:
    """The estimate of an inference's energy, with its bounds."""
    between = f"between {energy['low_uj']:.3g} and {energy['high_uj']:.3g}"
    return f"energy on the NPU, an estimate: {energy['estimate_uj']:.3g} uJ, {between} ({energy['estimated_with']})"


def help_text(layer: Mapping[str, Any]) -> str:
    """What would help an operator most: ``sram 1.6x``; a dash where nothing would."""
    helps = layer.get("helps", ())
    return f"{helps[0]['change']} {helps[0]['speedup']:.2g}x" if helps else NOTHING


def explanation_lines(
    causes: Mapping[str, float], what_if: Mapping[str, Mapping[str, Any]], cycles: int
) -> Iterator[str]:
    """Lines of text: what the cycles of an inference went to, and what a better machine would make of them."""
    if not causes or not cycles:
        return
    shown = list(causes.items())[:_CAUSES_SHOWN]
    yield "cycles went to " + ", ".join(f"{cause} {share_text(spent / cycles)}" for cause, spent in shown)
    for what in sorted(what_if.values(), key=lambda what: what["cycles"]):
        if 0 < what["cycles"] < cycles:
            speedup = f"{cycles / what['cycles']:.2f}x"
            yield f"with {what['text']}: {count_text(what['cycles'], 'cycles')} ({speedup})"
