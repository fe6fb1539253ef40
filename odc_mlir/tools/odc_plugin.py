"""``odc-plugin``: list targets, plugins and devices, and run the conformance suite against a target or plugin."""

from __future__ import annotations

import argparse

from odc_mlir.formats.kinds import json_kind
from odc_mlir.formats.quantities import counted
from odc_mlir.tools.common import EXIT_USER, add_command, base_parser, tool
from odc_mlir.tools.files import add_json, add_overwrite

CHECKS = json_kind("checks of a target", "what", "problem", "note")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-plugin``."""
    parser = base_parser("odc-plugin", "List targets, plugins and devices, print rules, or check a target or plugin.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    add_command(commands, "list", "list targets, codegen plugins and devices with their origin", _list)
    rules = add_command(commands, "rules", "print a target's rules for each operator", _rules)
    check = add_command(
        commands,
        "check",
        "run the conformance suite against a target or plugin",
        _check,
        description="Compile small models with it, compare their results with host kernels, and load damaged "
        "files. The exit status is 1 if a check fails.",
    )
    for parser_of_name in (rules, check):
        parser_of_name.add_argument("name", metavar="NAME", help="a target, or a plugin such as npu-gen")
    add_json(check, CHECKS, "the checks")
    add_overwrite(check)
    return parser


def _list(arguments: argparse.Namespace) -> None:
    from odc_mlir.plugins import registry
    from odc_mlir.plugins.target import TargetFacts, described

    print("targets, and their machines:")
    for source, facts in described():
        print(f"  {source.target}  {source.origin}")
        if isinstance(facts, TargetFacts) and facts.machines:
            print(f"    {', '.join(facts.machines)}")
    for kind, sources in (("codegen plugins", registry.available()), ("devices", registry.entries(registry.DEVICES))):
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
    problems = sum(check.problem is not None for check in found)
    marks = ["good" if check.problem is None else "FAILS" for check in found]
    lines = [f"{mark}: {check.what}: {check.problem or check.note}" for mark, check in zip(marks, found, strict=True)]
    arguments.files.show(found, [*lines, f"{counted(len(found), 'check')}, {counted(problems, 'problem')}"])
    return EXIT_USER if problems else None


main = tool(build_parser)
