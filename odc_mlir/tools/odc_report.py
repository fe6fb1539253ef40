"""``odc-report``: show a compile report as a page, a table or CSV, and compare several."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from odc_mlir.formats.kinds import PAGE, starts_with
from odc_mlir.tools.common import base_parser, tool
from odc_mlir.tools.files import add_input, add_output, add_overwrite

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package

NETWORK_CSV = starts_with("a table of networks", b"network,accelerator_configuration,")
LAYER_CSV = starts_with("a table of operators", b"network,operator,Original Operator,")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-report``."""
    parser = base_parser(
        "odc-report",
        "Show a compile report as a table, a page or CSV. Given several, compare each with the first.",
    )
    text = "file of odc-compile --json, or package"
    add_input(parser, "reports", metavar="REPORT", nargs="+", help=text)
    add_output(parser, "-o", "--output", metavar="FILE.html", kind=PAGE, help="write a page")
    add_output(parser, "--csv", metavar="FILE", kind=NETWORK_CSV, help="write one line per report, with Vela's columns")
    add_output(parser, "--csv-operators", metavar="FILE", kind=LAYER_CSV, help="write one line per operator")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="operators to print (%(default)s)")
    add_overwrite(parser)
    return parser


def _body(arguments: argparse.Namespace) -> None:
    from odc_mlir.runtime.reporting import report_compare, report_html, report_table
    from odc_mlir.runtime.reporting.report import build_report

    sources = [_opened(path) for path in arguments.reports]
    reports = [source if isinstance(source, dict) else dict(build_report(source)) for source in sources]
    if arguments.output:
        if len(reports) > 1:
            page = report_compare.render(reports)
        else:
            code = {} if isinstance(sources[0], dict) else report_html.operator_code(sources[0])
            page = report_html.render(reports[0], code)
        arguments.files.write("output", lambda: page)
    arguments.files.write("csv", lambda: report_table.network_csv(reports))
    arguments.files.write("csv_operators", lambda: report_table.layer_csv(reports))
    arguments.files.tell(_text(reports, max(arguments.top, 0)))


def _opened(path: str) -> Package | dict[str, Any]:
    from odc_mlir.formats.package import is_package

    if os.path.isdir(below := os.path.join(path, "package")) and not os.path.isdir(os.path.join(path, "metadata")):
        path = below  # in the output folder of odc-mlir
    if is_package(path):
        from odc_mlir.runtime import api

        return api.load_package(path)
    from odc_mlir.runtime.reporting.report_object import read_report

    return read_report(path)


def _text(reports: Sequence[dict[str, Any]], top: int) -> Iterator[str]:
    from odc_mlir.runtime.reporting import report_compare, report_table

    if len(reports) > 1:
        yield from report_compare.text_lines(reports, top=top)
        return
    yield report_table.headline(reports[0])
    yield from report_table.layer_lines(reports[0], width=report_table.terminal_width(), top=top)


main = tool(build_parser, _body)
