"""Arguments of commands that name files are declared as such, and nothing is written behind the rule's back."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

import pytest

from helpers.commands import COMMANDS, main_of, parsers
from helpers.source import imports, package_files
from odc_mlir import samples
from odc_mlir.formats.kinds import OutputKind
from odc_mlir.quantizer.policy.declarations import SCHEME_NAMES
from odc_mlir.tools import commands
from odc_mlir.tools.common import base_parser, current_words
from odc_mlir.tools.examples import EXAMPLES
from odc_mlir.tools.files import Input, Output, add_output, role_of

# What an argument of free text may be called that names no file.
NO_FILES = {"NAME", "NAME,…", "NAME[,NAME]", "NAME:TYPE,…", "NAME=NUMBER", "STAGE", "PIPELINE", "SHAPES", "SIZES"}
NO_FILES |= {
    "[NAME=]TYPE",
    "NAME=SCALE:ZERO",
    "TO=FROM",
    "OUT=IN",
    "KEY=VALUES",
    "NUMBERS",
    "MEASURE,…",
    "MEASURE<=LIMIT",
    "ADDRESS",
    "PASS",
    "PASS=PIPELINE",
    "FORMAT",
    "EXT-gen",
    "KIND",
    "M:S:I",
    "M:S:I=M:S:I,…",
    "R[,G,B]",
}
NO_FILES_BY_FLAG = {
    ("odc-opt", "--run-pass"),
    ("odc-quantize", "--metric"),
    ("odc-reduce", "--check"),
    ("odc-reduce", "--match"),
    ("odc-run", "--prompt"),
}


def _undeclared(command: str, parser: argparse.ArgumentParser) -> list[str]:
    free = [action for action in parser._actions if action.nargs != 0 and not action.choices and action.type is None]
    free = [action for action in free if not isinstance(action, argparse._SubParsersAction)]
    return [
        str(action.option_strings or action.dest)
        for action in free
        if role_of(action) is None
        and action.metavar not in NO_FILES
        and not any((command, flag) in NO_FILES_BY_FLAG for flag in action.option_strings)
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_arguments_that_name_files_are_declared(command: str) -> None:
    """With ``add_input`` or ``add_output`` of ``odc_mlir.tools.files``; else add the metavar to those above."""
    for _, parser in parsers(command):
        assert _undeclared(command, parser) == []


def test_a_new_output_would_be_noticed() -> None:
    parser = base_parser("odc-test", "a test")
    assert _undeclared("odc-test", parser) == []
    parser.add_argument("--report-csv", metavar="FILE")
    assert _undeclared("odc-test", parser) == ["['--report-csv']"]
    declared = base_parser("odc-test", "a test")
    add_output(declared, "--report-csv", metavar="FILE", kind=OutputKind("a table", lambda path: False))
    assert _undeclared("odc-test", declared) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_whoever_writes_may_be_told_to_overwrite(command: str) -> None:
    for _, parser in parsers(command):
        writes = any(isinstance(role_of(action), Output) for action in parser._actions)
        assert writes == ("--overwrite" in parser._option_string_actions)


def test_commands_write_by_the_rule_only() -> None:
    tools = [path for path in package_files() if path.parent.name == "tools"]
    found = [item for path in tools for item in imports(path)]
    assert len(tools) > len(COMMANDS)
    assert not [item for item in found if item.target.endswith(".atomic")], "write with arguments.files"


OUTPUTS = [
    (command, words, action)
    for command in COMMANDS
    for words, parser in parsers(command)
    for action in parser._actions
    if isinstance(role_of(action), Output)
]


def _line(command: str, words: list[str], action: argparse.Action, path: Path) -> list[str]:
    """A command line that writes to ``path`` and reads files that are not there."""
    line = list(words)
    (parser,) = [parser for found, parser in parsers(command) if found == words]
    for other in parser._actions:
        if not other.option_strings and other is not action:
            line += ["no such file"] if isinstance(role_of(other), Input) else [str(path)]
    if action.option_strings:
        line += [action.option_strings[0], *([] if action.nargs == 0 else [str(path)])]
    for needed in (other for other in parser._actions if other.required and other.dest != action.dest):
        if needed.option_strings:
            value = "no such file" if isinstance(role_of(needed), Input) else str(path)
            line += [needed.option_strings[0], next(iter(needed.choices or [value]))]
    return line


@pytest.mark.parametrize(("command", "words", "action"), OUTPUTS, ids=lambda item: getattr(item, "dest", None))
def test_outputs_are_checked_before_the_work_begins(
    command: str,
    words: list[str],
    action: argparse.Action,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody asks for the model, which is not there, where the output cannot be written."""
    monkeypatch.chdir(tmp_path)
    role = role_of(action)
    assert isinstance(role, Output)
    arguments = argparse.Namespace(
        emit=None,
        stage=None,
        output="p",
        folder="p",
        min_max_only=False,
        model="no such file",
        backend="auto",
        format="mlir",
    )
    kind = role.kind_for(arguments)
    suffix = ".json" if action.dest == "json" else next(iter(kind.suffixes), "")
    name = f"out{suffix}"
    given = tmp_path / "new" / name
    setattr(arguments, action.dest, str(given))
    (path,) = [Path(text) for text in (role.paths(arguments) if role.paths else [str(given)])]
    line = _line(command, words, action, given)
    path.parent.mkdir(exist_ok=True)
    # A file of the user's, or a folder with one.
    note = path / "note" if kind.is_folder else path
    note.parent.mkdir(exist_ok=True)
    note.write_text("mine")
    assert main_of(command)(line) == 1
    assert "that odc-mlir wrote" in (told := capsys.readouterr().err) or "'note' is in the way" in told
    assert note.read_text() == "mine"
    note.unlink()
    # The wrong sort of thing.
    if kind.is_folder:
        path.rmdir()
        path.write_text("mine")
    else:
        path.mkdir()
    assert main_of(command)([*line, "--overwrite"]) == 1
    assert "in the way" in capsys.readouterr().err


# The value of each option that several commands have; None: a switch. `-o` is the main result, of any kind.
MEANINGS = {
    "--allow-accuracy-loss": {None},
    "--any-reader": {None},
    "--before": {"PASS=PIPELINE"},
    "--calibration": {"DATA"},
    "--cpu": {"NAME"},
    "--csv": {"FILE"},
    "--debug": {None},
    "--dump": {"FILE"},
    "--emit": {"FORMAT", "object"},
    "--help": {None},
    "--evaluation": {"DATA"},
    "--io": {"float,quantized"},
    "--scale": {"R[,G,B]"},
    "--scheme": {"uint8,int8,int8x4,int16,int16x8,int8_wo,int16_wo,int4_wo"},
    "--json": {"FILE.json"},
    "--mean": {"R[,G,B]"},
    "--labels": {None, "FILE.npz"},
    "--load": {"DATA"},
    "--max-drop": {"POINTS"},
    "--max-samples": {"N"},
    "--memory": {"flash,sram"},
    "--min-coverage": {"FRACTION"},
    "--name": {"NAME"},
    "--numerics": {"fixed,litert"},
    "--output": {"FILE.html", "FOLDER", "OUT", "PACKAGE"},
    "--overwrite": {None},
    "--quantize": {"uint8,int16,int8_wo,int16_wo", f"none,{','.join(SCHEME_NAMES)}"},
    "--quiet": {None},
    "--report-html": {"FILE"},
    "--no-samples": {None},
    "--samples": {None},
    "--seed": {"N"},
    "--stage": {"NAME"},
    "--state": {"OUT=IN"},
    "--strict": {None},
    "--target": {"NAME", "NAME|FILE.toml"},
    "--time-limit": {"S"},
    "--triple": {"NAME"},
    "--trace": {"FILE.json"},
    "--trust-code": {None},
    "--verbose": {None},
    "--verify-each": {"passes|run"},
    "--version": {None},
    "-c": {"EXT-gen", "FILE"},  # as in onert_run and in ONE's model2nnpkg
    "-h": {None},
    "-l": {"DATA"},
    "-p": {None, "PIPELINE"},  # as in onert_run and in xdsl-opt
    "-q": {None},
    "-v": {None},
} | {"-o": {"FILE.html", "FOLDER", "OUT", "PACKAGE"}, "-t": {"FORMAT", "object"}}


def test_an_option_means_the_same_in_all_commands() -> None:
    found: dict[str, dict[str, set[str | None]]] = {}
    everywhere = [(parser.prog, parser) for command in COMMANDS for _, parser in parsers(command)]
    for command, parser in [*everywhere, ("odc-mlir", commands.build_parser())]:
        for action in parser._actions:
            value = None if action.nargs == 0 else action.metavar or ",".join(map(str, action.choices or [action.dest]))
            assert value is None or isinstance(value, str)
            for flag in action.option_strings:
                found.setdefault(flag, {}).setdefault(command, set()).add(value)
    shared = {flag: set().union(*users.values()) for flag, users in found.items() if len(users) > 1}
    assert shared == MEANINGS


@pytest.mark.parametrize("words", [["m.circle", "--json"], ["--json=-", "m.circle"], ["--json", "m.circle"]])
def test_json_goes_to_standard_output_without_a_file(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.circle").write_bytes(samples.path("digits_cnn_int8.circle").read_bytes())
    assert main_of("odc-dump")(words) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        ("odc-lint", ["--report-json", "a"], ["--json", "a"]),
        ("odc-compile", ["--report-json=a"], ["--json=a"]),
        ("odc-compile", ["--emit", "npu"], ["--stage", "npu"]),
        ("odc-compile", ["--emit", "object"], None),
        ("odc-opt", ["--npu", "npu-256"], ["--target", "npu-256"]),
        ("odc-opt", ["--target", "npu-listing"], ["--emit", "npu-listing"]),
        ("odc-opt", ["--target=npu-256"], None),
        ("odc-build", ["--state", "a"], ["--state-file", "a"]),
        ("odc-circle", ["implant", "m", "--parameters", "a"], ["implant", "m", "--parameter-file", "a"]),
        ("odc-run", ["--num-runs", "2", "--", "--num-runs"], ["--num_runs", "2", "--", "--num-runs"]),
        ("odc-quantize", ["--max_samples=2"], ["--max-samples=2"]),
    ],
)
def test_old_spellings(command: str, old: list[str], new: list[str] | None, capsys: pytest.CaptureFixture[str]) -> None:
    (parser,) = [parser for words, parser in parsers(command) if not words]
    assert list(current_words(parser, old)) == (new or old)
    told = capsys.readouterr().err
    is_renamed = new is not None and "_" not in "".join([*new, *old])
    assert ("the old spelling still works in this release" in told) == is_renamed
    assert list(current_words(parser, [*old, "-q"])) == [*(new or old), "-q"]
    assert not capsys.readouterr().err


def test_every_help_begins_with_two_examples() -> None:
    own = {"odc-mlir": commands.build_parser()}
    programs = {parser.prog: parser for command in COMMANDS for _, parser in parsers(command)} | own
    for program, parser in programs.items():
        first, second, *_ = parser.format_help().splitlines()
        assert first.startswith(f"$ {program}")
        assert second.startswith(f"$ {program.split()[0]} ")
        assert first != second


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_parse(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *words = shlex.split(line)
    if program == "odc-mlir" and words[0] in ("samples", "completion"):
        assert commands.main([words[0], "--help"]) == 0
        return
    parser = commands.build_parser() if program == "odc-mlir" else next(iter(parsers(program)))[1]
    assert parser.parse_args(list(current_words(parser, words)))
    assert not capsys.readouterr().err
