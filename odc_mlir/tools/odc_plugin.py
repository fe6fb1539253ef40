"""``odc-plugin``: list targets, plugins and devices, and run the conformance suite against one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from odc_mlir.tools.common import EXIT_USER, base_parser, counted, run_tool


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-plugin``."""
    parser = base_parser("odc-plugin", "List targets, codegen plugins and devices, or check one.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    listed = commands.add_parser("list", help="list all, with their origin", allow_abbrev=False)
    listed.set_defaults(body=_list)

    rules = commands.add_parser("rules", help="print a target's rules for each operator", allow_abbrev=False)
    rules.add_argument("name", metavar="NAME", help="a target, or a plugin such as npu-gen")
    rules.set_defaults(body=_rules)

    check = commands.add_parser(
        "check",
        help="run the conformance suite against a plugin",
        description="Compiles small models, runs them beside host kernels, damages files. The status is 1 when "
        "something does not hold.",
        allow_abbrev=False,
    )
    check.add_argument("name", metavar="NAME", help="a target, or a plugin such as npu-gen")
    check.add_argument("--json", action="store_true", help="print one JSON document")
    check.set_defaults(body=_check)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_tool(build_parser(), lambda arguments: arguments.body(arguments), argv)


def _list(arguments: argparse.Namespace) -> None:
    from odc_mlir.plugins import registry
    from odc_mlir.plugins.registry import DEVICES, TARGETS

    for kind, sources in (
        ("targets", registry.entries(TARGETS)),
        ("codegen plugins", registry.available()),
        ("devices", registry.entries(DEVICES)),
    ):
        print(f"{kind}:")
        for source in sources:
            print(f"  {source.target}  {source.origin}")


def _rules(arguments: argparse.Namespace) -> None:
    from odc_mlir.plugins.target import choose

    chosen = choose(arguments.name)
    target = chosen.description()
    for line in chosen.ask(lambda: list(target.rules_of(chosen.machine).lines())):
        print(line)


def _check(arguments: argparse.Namespace) -> int | None:
    from odc_mlir.runtime.conformance import check_plugin

    found = check_plugin(arguments.name)
    problems = sum(outcome.problem is not None for outcome in found)
    if arguments.json:
        import json
        from dataclasses import asdict

        print(json.dumps([asdict(outcome) for outcome in found], indent=1))
    else:
        for outcome in found:
            mark = "good" if outcome.problem is None else "FAILS"
            print(f"{mark}: {outcome.what}: {outcome.problem or outcome.note}")
        print(f"{counted(len(found), 'check')}, {counted(problems, 'problem')}")
    return EXIT_USER if problems else None


if __name__ == "__main__":
    raise SystemExit(main())
