"""``odc-doctor``: report the installation and the cache, and clean the cache."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby

from odc_mlir.tools.common import EXIT_USER, base_parser, counted, run_tool


def build_parser() -> argparse.ArgumentParser:
    """The command line of ``odc-doctor``."""
    parser = base_parser(
        "odc-doctor",
        "Show what is installed, which targets and plugins exist, and what the cache holds.",
        epilog="Exit code 1 if something required is missing or broken.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--clean",
        metavar="KIND",
        nargs="*",
        help="empty the cache, or only these kinds of entry (as listed under cache)",
    )
    parser.add_argument(
        "--prune",
        action="store_true",
        help="remove leftovers of unfinished work, and entries beyond the cache's size limit",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_tool(build_parser(), _body, argv)


def _body(arguments: argparse.Namespace) -> int | None:
    if arguments.clean is not None or arguments.prune:
        _clean(arguments)
        return None
    from odc_mlir.tools.diagnosis import diagnose

    findings = list(diagnose())
    if arguments.json:
        import json
        from dataclasses import asdict

        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        width = max(len(finding.name) for finding in findings)
        for area, members in groupby(findings, lambda finding: finding.area):
            print(f"{area}:")
            for finding in members:
                mark = {"good": " ", "note": "-", "problem": "!"}[finding.status]
                hint = f" ({finding.hint})" if finding.hint else ""
                print(f" {mark} {finding.name:<{width}}  {finding.text}{hint}")
    problems = sum(finding.status == "problem" for finding in findings)
    if not arguments.json:
        print(counted(problems, "problem"))
    return EXIT_USER if problems else None


def _clean(arguments: argparse.Namespace) -> None:
    import json
    from dataclasses import asdict

    from odc_mlir.tools.diagnosis import clean_cache, prune_cache

    removed = prune_cache() if arguments.clean is None else clean_cache(frozenset(arguments.clean) or None)
    if arguments.json:
        print(json.dumps([asdict(usage) for usage in removed], indent=1))
        return
    for usage in removed:
        print(f"removed {usage.kind}: {counted(usage.entries, 'item')}, {counted(usage.nbytes, 'byte')}")
    if not removed:
        print("there is nothing to remove" if arguments.clean is None else "the cache is empty")


if __name__ == "__main__":
    raise SystemExit(main())
