"""A compile report as text: the operators that take longest, and what each is bound by."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odc_mlir.formats.quantities import NOTHING, count_text, middle_cut, share_text, time_text
from odc_mlir.runtime.reporting.explanation import help_text

_TITLES = ("#", "operator", "result", "placed", "MACs", "cycles", "share", "bound by", "would help")
_NUMBERS = frozenset({"#", "MACs", "cycles", "share"})
_LEAST_NAME = 12
_WIDTH = 120  # of lines that go to a file or pipe


def terminal_width() -> int:
    """Characters on a line of the terminal; 120 where there is none."""
    return shutil.get_terminal_size((_WIDTH, 0)).columns


def headline(report: Mapping[str, Any]) -> str:
    """One line: model, machine, latency, cycles, operators."""
    operators = report["npu_op_count"] + report["host_op_count"]
    where = f"{report['target']} ({report['memory']})"
    return (
        f"{report['model']} on {where}: {time_text(1e6 * report['latency_ms'])} modelled, "
        f"{count_text(report['cycles_total'])} cycles, {report['npu_op_count']} of {operators} operators on the NPU"
    )


def bound_by(layer: Mapping[str, Any]) -> str:
    """What most of an operator's cycles went to, or the engine that was busy longest where that was not found out.

    ``host`` where it runs there, a dash where nothing is known.
    """
    if layer["placed"] != "npu":
        return "host"
    if layer.get("binds"):
        return str(layer["binds"])
    busy: Mapping[str, float] = layer.get("busy_cycles", {})
    return max(busy, key=lambda name: busy[name]) if busy else NOTHING


def layer_lines(report: Mapping[str, Any], *, width: int, top: int) -> Iterator[str]:
    """A table of the ``top`` operators by time, at most ``width`` characters wide where names can be shortened."""
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


def aligned(
    titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[str], width: int, name: str = "result"
) -> Iterator[str]:
    """Lines of a table; the column called ``name`` is shortened in its middle to make lines fit."""
    widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    if name in titles:
        place = titles.index(name)
        spare = width - sum(widths) - 2 * (len(widths) - 1)
        widths[place] = max(min(widths[place], _LEAST_NAME), widths[place] + min(spare, 0))
    for row in (titles, *rows):
        cells = (
            middle_cut(cell, size).rjust(size) if title in numbers else middle_cut(cell, size).ljust(size)
            for title, cell, size in zip(titles, row, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()
