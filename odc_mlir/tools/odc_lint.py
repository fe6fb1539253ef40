"""``odc-lint``: find properties of a model that cost accuracy or speed, each with a remedy."""

from __future__ import annotations

import argparse

from odc_mlir.formats.kinds import json_kind
from odc_mlir.formats.quantities import counted, distinct_cuts
from odc_mlir.tools.common import EXIT_USER, MODEL_FORMATS, add_time_limit, base_parser, tool
from odc_mlir.tools.files import add_input, add_json, add_overwrite, add_switch

FINDINGS = json_kind("findings about a model", "findings")
_TENSORS_SHOWN = 4
_NAME_WIDTH = 48


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-lint``."""
    parser = base_parser(
        "odc-lint",
        f"Find properties of a model {MODEL_FORMATS} that cost accuracy or speed, such as "
        "operators that no NPU supports. Each finding has a remedy. The model is neither changed nor run.",
        renamed={"--report-json": ("--json", bool)},
    )
    add_input(parser, "model", metavar="MODEL", help="model file or nnpackage")
    text = "check operators against an NPU, cpu, or a plugin's target (all NPUs)"
    add_input(parser, "--target", metavar="NAME|FILE.toml", stdin=False, help=text)
    add_switch(parser, "--fail", "exit with 1 if there are findings")
    parser.add_argument(
        "--ignore", metavar="KIND", action="append", default=[], help="suppress a kind of finding; repeatable"
    )
    add_time_limit(parser)
    add_json(parser, FINDINGS, "the findings")
    add_overwrite(parser)
    return parser


def _body(arguments: argparse.Namespace) -> int | None:
    from odc_mlir.linter import lint

    found = [item for item in lint(arguments.model, target=arguments.target) if item.kind not in arguments.ignore]
    arguments.files.write_json("json", lambda: {"findings": list(found)})
    for item in found:
        names = ", ".join(distinct_cuts(item.tensors[:_TENSORS_SHOWN], _NAME_WIDTH).values())
        more = f", and {len(item.tensors) - _TENSORS_SHOWN} more" if len(item.tensors) > _TENSORS_SHOWN else ""
        where = [f"    at {names}{more}"] if names else []
        arguments.files.tell([f"{item.kind}: {item.text}", *where, f"    remedy: {item.remedy}"])
    arguments.files.tell([counted(len(found), "finding")])
    return EXIT_USER if found and arguments.fail else None


main = tool(build_parser, _body)
