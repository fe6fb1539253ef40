"""The compile report for Python and notebooks: JSON data with ways to show it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_ROWS = 12  # of operators, in a notebook


@dataclass(frozen=True, slots=True)
class ReportedOperator:
    """An operator of the model. Cycles are 0 on the host, ``host_ns`` is its modelled time on the host.

    ``name``: of its result; ``op``: kind; ``placed``: npu or host; ``reason``: for the host; ``bound_by``: the engine
    that was busy longest for it, host, or a dash if unknown.
    """

    index: int
    name: str
    op: str
    placed: str
    segment: str | None
    reason: str | None
    macs: int
    cycles: int
    host_ns: int
    bound_by: str


class Report(dict[str, Any]):
    """Report of a compilation: a plain dictionary that can show itself; :mod:`.report` describes its keys.

    ``json.dumps(report)`` and ``report["cycles_total"]`` work as ever.
    """

    @property
    def latency_ms(self) -> float:
        """Return the modelled latency of one inference."""
        return float(self["latency_ms"])

    @property
    def cycles(self) -> int:
        """Return the NPU cycles of one inference."""
        return int(self["cycles_total"])

    @property
    def operators(self) -> tuple[ReportedOperator, ...]:
        """Return the model's operators, in its order."""
        from odc_mlir.runtime.reporting.report_table import bound_by

        same = ("name", "op", "placed", "segment", "reason", "macs", "cycles")
        return tuple(
            ReportedOperator(
                index=layer["operator"],
                host_ns=layer["host_modelled_ns"],
                bound_by=bound_by(layer),
                **{key: layer[key] for key in same},
            )
            for layer in self["layers"]
        )

    def to_json(self) -> str:
        """Return the report as JSON text, as ``--report-json`` writes it."""
        return json.dumps(self, indent=1) + "\n"

    def to_html(self) -> str:
        """Return the report as a self-contained page."""
        from odc_mlir.runtime.reporting.report_html import render

        return render(self)

    def to_csv(self) -> str:
        """Return one line per operator; see docs/reports.md."""
        from odc_mlir.runtime.reporting.report_table import layer_csv

        return layer_csv([self])

    def compare(self, *others: Report) -> str:
        """Describe the differences of ``others`` from this report, as text."""
        from odc_mlir.runtime.reporting.report_compare import text_lines

        return "\n".join(text_lines([self, *others], top=_ROWS))

    def __str__(self) -> str:
        from odc_mlir.runtime.reporting.report_table import headline, layer_lines, terminal_width

        return "\n".join((headline(self), *layer_lines(self, width=terminal_width(), top=_ROWS)))

    def _repr_html_(self) -> str:
        """Show the summary and the slowest operators in a notebook."""
        from odc_mlir.formats.quantities import NOTHING, count_text, time_text
        from odc_mlir.runtime.reporting.report_table import headline

        rows = []
        for item in sorted(self.operators, key=lambda item: (-item.cycles, -item.host_ns))[:_ROWS]:
            host = time_text(item.host_ns) if item.placed != "npu" else NOTHING
            counts = (count_text(item.macs), count_text(item.cycles))
            rows.append((item.op, item.name, item.placed, *counts, host, item.bound_by))
        titles = ("operator", "result", "placed", "MACs", "cycles", "host, modelled", "bound by")
        return small_table(headline(self), titles, rows)


def small_table(lead: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a sentence and a table as markup without style, for notebooks."""
    from odc_mlir.pages.markup import joined, short_name, tag

    head = tag("tr", *(tag("th", title) for title in titles))
    body = [tag("tr", *(tag("td", short_name(cell)) for cell in row)) for row in rows]
    return joined((tag("p", lead), tag("table", tag("thead", head), tag("tbody", *body))))
