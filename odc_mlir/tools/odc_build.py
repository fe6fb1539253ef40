"""``odc-build``: build a product of a model from the steps in a file, rerunning only steps with changed inputs."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import OptionError
from odc_mlir.formats.kinds import json_kind
from odc_mlir.formats.quantities import counted
from odc_mlir.start import EXIT_INTERRUPTED
from odc_mlir.tools.common import base_parser, current_words, renamed_options, tool
from odc_mlir.tools.files import IS_STEP, Input, Output, add_input, add_output, add_overwrite, add_switch, role_of

if TYPE_CHECKING:
    from odc_mlir.flow import Flow, StepOption

STATE = json_kind("a state of odc-build", "odc_build", "steps")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-build``."""
    parser = base_parser(
        "odc-build",
        "Run the steps of FLOW, which import, optimise, quantise, compile, profile or package a model. Steps with "
        "unchanged inputs, options and outputs are skipped.",
        renamed={"--state": ("--state-file", bool)},
    )
    text = "a .toml file, or a .cfg or workflow .json file of ONE's onecc"
    add_input(parser, "flow", metavar="FLOW", stdin=False, help=text)
    add_switch(parser, "--dry-run", "print the commands without running them")
    add_switch(parser, "--force", "run every step")
    text = "target for ONE's one-codegen if its backend is external (%(default)s)"
    parser.add_argument("--codegen-target", default="npu-256", metavar="NAME", help=text)
    add_output(
        parser,
        "--state-file",
        metavar="FILE",
        kind=STATE,
        paths=lambda arguments: [state_path(arguments)],
        help="file that records completed steps (FLOW.state.json)",
    )
    add_overwrite(parser)
    return parser


def state_path(arguments: argparse.Namespace) -> str:
    """Return the path of the state file, which records completed steps."""
    return str(arguments.state_file or f"{arguments.flow}.state.json")


def _body(arguments: argparse.Namespace) -> int | None:
    import logging

    from odc_mlir.flow import read_state, run, state_document
    from odc_mlir.formats.outputs import check_output, write_output

    flow = read_flow(arguments.flow, arguments.codegen_target)
    for note in flow.notes:
        logging.getLogger(__name__).warning("%s", note)
    for step in flow.steps:  # check the options of all steps before any step runs
        parser = _tool(step.command).build_parser()
        try:
            parser.parse_args(list(current_words(parser, step.words)))
        except SystemExit as stop:  # the parser has reported the error
            if stop.code:
                return int(stop.code)
    if arguments.dry_run:
        for step in flow.steps:
            print(step.text)
        return None
    path = state_path(arguments)
    check_output(path, STATE, overwrite=arguments.overwrite, inputs=[arguments.flow])
    state = {} if arguments.force else read_state(path)

    def keep(found: Mapping[str, Any]) -> None:
        data = (json.dumps(state_document(found), indent=1) + "\n").encode()
        write_output(path, data, STATE, overwrite=arguments.overwrite)

    done = 0
    for step, needed in run(flow, state, call_command, keep, force=arguments.force):
        done += needed
        if not arguments.quiet:
            print(f"$ {step.text}" if needed else f"# up to date: {step.text}", flush=True)
    arguments.files.tell([f"{counted(done, 'step')} run, {len(flow.steps) - done} up to date"])
    for package in [step.writes[0] for step in flow.steps if step.command in ("odc-compile", "odc-package")][-1:]:
        arguments.files.suggest("odc-run", package, "--load", "DATA")
    return None


def _tool(command: str) -> Any:
    return importlib.import_module(f"odc_mlir.tools.{command.replace('-', '_')}")


def options_of(command: str, words: Sequence[str]) -> dict[str, StepOption]:
    """Return the options of a command by name, from the parser. ``words`` name the subcommand."""
    from odc_mlir.flow import StepOption

    parser = _tool(command).build_parser()
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    (chosen,) = [group.choices[word] for group in groups for word in words if word in group.choices] or [parser]
    found = {}
    for action in chosen._actions:
        role, metavar = role_of(action), str(action.metavar)
        suffix = metavar.rpartition("|FILE")[2] if "|FILE" in metavar else ""
        for flag in action.option_strings:
            option = StepOption(flag, isinstance(role, Input), isinstance(role, Output), suffix, metavar == "PREFIX")
            found[flag.lstrip("-").replace("_", "-")] = option
    old = {flag[2:]: new[2:] for flag, (new, applies) in renamed_options(parser).items() if applies is bool}
    return found | {name: found[new] for name, new in old.items() if new in found}


def call_command(command: str, arguments: Sequence[str]) -> int:
    """Run a command of ours in this process and return the exit code. Raises KeyboardInterrupt."""
    token = IS_STEP.set(True)
    try:
        code = int(_tool(command).main(list(arguments)))
    finally:
        IS_STEP.reset(token)
    if code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return code


def read_flow(path: str, target: str) -> Flow:
    """Read the flow in a file. The suffix determines the format. Raises OptionError."""
    from odc_mlir.flow import read_cfg, read_toml, read_workflow

    suffix = Path(path).suffix.lower()
    if suffix == ".toml":
        return read_toml(path, options_of)
    if suffix == ".cfg":
        return read_cfg(path, target=target)
    if suffix == ".json":
        return read_workflow(path, target=target)
    raise OptionError(f"a flow file ends with .toml, .cfg or .json, not {suffix!r}", location=path)


main = tool(build_parser, _body)
