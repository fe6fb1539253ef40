"""A compile report as text and CSV: the slowest operators, the limit of each, and the explanation of cycles.

Columns with the same meaning as in Arm Vela's tables have the same names (``cycles_total``, ``Op Cycles``, …). The
tables can thus be compared side by side.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from odc_mlir.formats.quantities import NOTHING, aligned, count_text, csv_text, share_text, size_text, time_text

EXPLAINED = ("causes", "binds", "helps", "spans")  # keys of an operator's explanation by the simulator
_CAUSES_SHOWN = 4


def causes_of_segments(explanations: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return cycles by cause, largest first. The cycles add up to the cycles of explained segments."""
    total: Counter[str] = Counter()
    for explanation in explanations:
        total.update(explanation.get("causes", {}))
    return {cause: round(cycles, 3) for cause, cycles in total.most_common()}


def what_ifs(segments: Iterable[tuple[Mapping[str, Any], int]]) -> dict[str, dict[str, Any]]:
    """Return changes to the machine as texts, with the cycles of an inference after the change."""
    known = [(explanation["what_if"], cycles) for explanation, cycles in segments if explanation]
    texts = {change: what["text"] for found, _ in known for change, what in found.items()}
    return {
        change: {"text": text, "cycles": sum(found.get(change, {"cycles": c})["cycles"] for found, c in known)}
        for change, text in texts.items()
    }


_LEAST_WAITS = 0.05
_LEAST_SPEEDUP = 1.05  # smaller ones are printed as 1x


def energy_line(energy: Mapping[str, Any]) -> str:
    """Format the estimate of an inference's energy, with bounds."""
    between = f"between {energy['low_uj']:.3g} and {energy['high_uj']:.3g}"
    return f"energy on the NPU, an estimate: {energy['estimate_uj']:.3g} uJ, {between} ({energy['estimated_with']})"


def help_text(layer: Mapping[str, Any]) -> str:
    """Format the change that speeds up an operator most, such as ``sram 1.6x``, or a dash."""
    helps = [what for what in layer.get("helps", ()) if what["speedup"] >= _LEAST_SPEEDUP]
    return f"{helps[0]['change']} {helps[0]['speedup']:.2g}x" if helps else NOTHING


def explanation_lines(
    causes: Mapping[str, float], what_if: Mapping[str, Mapping[str, Any]], cycles: int
) -> Iterator[str]:
    """Yield lines with an inference's cycles by cause, and cycles on better machines (upper bounds)."""
    if not causes or not cycles:
        return
    shown = list(causes.items())[:_CAUSES_SHOWN]
    yield "cycles went to " + ", ".join(f"{cause} {share_text(spent / cycles)}" for cause, spent in shown)
    for what in sorted(what_if.values(), key=lambda what: what["cycles"]):
        found, speedup = count_text(what["cycles"], "cycles"), f"{cycles / what['cycles']:.2f}x"
        yield f"with {what['text']}, compiled with --prefer fewest-cycles: at most {found} ({speedup})"


def memory_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line that proposes constants in SRAM, if they fit there and reading them from flash costs cycles."""
    waits = report.get("causes", {}).get("offchip", 0.0) / (report["cycles_total"] or 1)
    capacity = report["hardware"].get("sram_capacity_bytes", 0)
    constants, peak = report["weights_encoded_bytes"], report["sram_peak_bytes"]
    if report["memory"] == "flash" and waits >= _LEAST_WAITS and constants + peak <= capacity:
        yield (
            f"with --memory sram: no constants from flash, which causes {share_text(waits)} of the cycles; "
            f"{size_text(constants)} of constants fit beside {size_text(peak)} of data"
        )


_TITLES = ("#", "operator", "result", "placed", "MACs", "cycles", "share", "bound by", "would help")
_NUMBERS = frozenset({"#", "MACs", "cycles", "share"})
_WIDTH = 120  # width of lines written to a file or pipe


def terminal_width() -> int:
    """Return the width of the terminal, or 120 if there is none."""
    return shutil.get_terminal_size((_WIDTH, 0)).columns


def headline(report: Mapping[str, Any]) -> str:
    """Format model, machine, latency, cycles and operators in one line."""
    operators = report["npu_op_count"] + report["host_op_count"]
    where = f"{report['target']} ({report['memory']})"
    return (
        f"{report['model']} on {where}: {time_text(1e6 * report['latency_ms'])} modelled, "
        f"{count_text(report['cycles_total'])} cycles, {report['npu_op_count']} of {operators} operators on the NPU"
    )


def bound_by(layer: Mapping[str, Any]) -> str:
    """Return the cause of most of an operator's cycles, or the busiest engine if causes are unknown.

    Return ``host`` if the operator runs on the host, and a dash if nothing is known.
    """
    if layer["placed"] != "npu":
        return "host"
    if layer.get("binds"):
        return str(layer["binds"])
    busy: Mapping[str, float] = layer.get("busy_cycles", {})
    return max(busy, key=lambda name: busy[name]) if busy else NOTHING


def layer_lines(report: Mapping[str, Any], *, width: int, top: int) -> Iterator[str]:
    """Yield a table of the ``top`` operators by time, with names shortened to fit into ``width`` characters."""
    clock = report["clock_hz"] or 1

    def nanoseconds(layer: Mapping[str, Any]) -> float:
        return float(layer["cycles"] / clock * 1e9 if layer["placed"] == "npu" else layer["host_modelled_ns"])

    layers = sorted(report["layers"], key=nanoseconds, reverse=True)
    total = report["cycles_total"] or 1
    rows = [
        (
            str(layer["operator"]),
            layer["op"],
            layer["name"],
            layer["segment"] or layer["placed"],
            count_text(layer["macs"]),
            count_text(layer["cycles"]) if layer["placed"] == "npu" else time_text(layer["host_modelled_ns"]),
            share_text(layer["cycles"] / total) if layer["placed"] == "npu" else NOTHING,
            bound_by(layer),
            help_text(layer),
        )
        for layer in layers[:top]
    ]
    yield from aligned(_TITLES, rows, _NUMBERS, width)
    if len(layers) > top:
        yield f"and {len(layers) - top} more operators"


# Keys of the report by column.
_NETWORK = (
    ("network", "model"),
    ("accelerator_configuration", "target"),
    ("memory_mode", "memory"),
    ("core_clock", "clock_hz"),
    ("inference_time", "latency_s"),
    ("inferences_per_second", "inferences_per_second"),
    ("sram_memory_used", "sram_peak_bytes"),
    ("nn_macs", "macs"),
    ("cycles_total", "cycles_total"),
    ("cycles_total_strict", "cycles_total_strict"),
    ("model_floor_cycles", "model_floor_cycles"),
    ("ideal_cycles", "ideal_cycles"),
    ("mac_utilization", "mac_utilization"),
    ("offchip_read_bytes", "offchip_read_bytes"),
    ("sram_read_bytes", "sram_read_bytes"),
    ("sram_write_bytes", "sram_write_bytes"),
    ("weights_raw_bytes", "weights_raw_bytes"),
    ("weights_encoded_bytes", "weights_encoded_bytes"),
    ("program_bytes", "program_bytes"),
    ("npu_operators", "npu_op_count"),
    ("host_operators", "host_op_count"),
)
_LAYER = (
    ("network", "model"),
    ("operator", "operator"),
    ("Original Operator", "op"),
    ("Target", "placed"),
    ("segment", "segment"),
    ("Op Cycles", "cycles"),
    ("Network% (cycles)", "share"),
    ("MAC Count", "macs"),
    ("Network% (MAC)", "mac_share"),
    ("host_modelled_ns", "host_modelled_ns"),
    ("first_cycle", "first_cycle"),
    ("last_cycle", "last_cycle"),
    ("Name", "name"),
    ("reason", "reason"),
    ("source", "source"),
)


def network_csv(reports: Iterable[Mapping[str, Any]]) -> str:
    """Return one line per report."""
    lines = []
    for report in reports:
        seconds = report["latency_ms"] / 1000
        lines.append({**report, "latency_s": seconds, "inferences_per_second": 1 / seconds if seconds else None})
    return _csv(_NETWORK, lines)


def layer_csv(reports: Iterable[Mapping[str, Any]]) -> str:
    """Return one line per operator. Busy cycles of every engine follow the common columns."""
    reports = list(reports)
    engines = sorted({name for r in reports for layer in r["layers"] for name in layer.get("busy_cycles", {})})
    lines = []
    for report in reports:
        macs = report["macs"] or 1
        cycles = report["cycles_total"] or 1
        for layer in report["layers"]:
            shares = {"share": 100 * layer["cycles"] / cycles, "mac_share": 100 * layer["macs"] / macs}
            busy = {f"busy {name}": value for name, value in layer.get("busy_cycles", {}).items()}
            lines.append({**layer, **shares, **busy, "model": report["model"]})
    return _csv((*_LAYER, *((f"busy {name}", f"busy {name}") for name in engines)), lines)


def _csv(columns: Sequence[tuple[str, str]], lines: Iterable[Mapping[str, Any]]) -> str:
    cells = ([_text(line.get(key)) for _, key in columns] for line in lines)
    return csv_text([[title for title, _ in columns], *cells])


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) and value != round(value) else str(value)
