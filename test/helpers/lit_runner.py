"""Run the ``// RUN:`` lines of a lit file inside this process.

A process per RUN line costs about 0.4 s, nearly all of it start-up; the same line in-process takes a few
milliseconds. So pytest runs every lit file through here, and lit itself runs some folders in ``scripts/check`` to
prove that the files are what they say.

Understood: ``command args | command args …`` with the commands of :data:`COMMANDS`, each optionally behind ``not``,
``2>&1`` after a command, and the substitutions %s, %S, %t, %T and %%. Anything else fails with the line: such a test
belongs under ``test/unit/tools``.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

RUN = re.compile(r"^\s*//\s*RUN:\s*(.*?)\s*$", re.MULTILINE)
XFAIL = re.compile(r"^\s*//\s*(XFAIL|UNSUPPORTED|REQUIRES):", re.MULTILINE)
SUBSTITUTION = re.compile(r"%[sStT%](?![\w-])")


class LitFailure(Exception):
    """A RUN line failed, or is not of the shape that this runner understands; the text says which and why."""


@dataclass(frozen=True)
class Command:
    """One command of a RUN line's pipe."""

    name: str
    arguments: tuple[str, ...]
    inverted: bool  # behind ``not``: must fail
    merge_errors: bool  # 2>&1


@dataclass(frozen=True)
class Outcome:
    status: int
    output: bytes
    errors: str


def run_lines(text: str) -> list[str]:
    """The RUN lines of a lit file, continuation lines (ending in a backslash) joined."""
    lines: list[str] = []
    joining = False
    for line in RUN.findall(text):
        content = line.removesuffix("\\").rstrip()
        if joining:
            lines[-1] += " " + content
        else:
            lines.append(content)
        joining = line.endswith("\\")
    return lines


def run_file(path: Path, scratch: Path) -> None:
    """Run every RUN line of ``path``; raises LitFailure. ``scratch``: empty folder for %t and %T."""
    text = path.read_text()
    if match := XFAIL.search(text):
        raise LitFailure(f"{match.group(1)} is not understood here")
    lines = run_lines(text)
    if not lines:
        raise LitFailure("no RUN line")
    substitutions = {
        "%s": str(path),
        "%S": str(path.parent),
        "%t": str(scratch / "tmp"),
        "%T": str(scratch),
        "%%": "%",
    }
    for line in lines:
        expanded = SUBSTITUTION.sub(lambda match: substitutions[match.group()], line)
        _run_pipe(parse_pipe(expanded), expanded)


def parse_pipe(line: str) -> list[Command]:
    """The commands of one RUN line; raises LitFailure for a shape or command that is not understood."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    commands: list[Command] = []
    words: list[str] = []
    for word in [*_merged(list(lexer), line), "|"]:
        if word != "|":
            words.append(word)
            continue
        commands.append(_command(words, line))
        words = []
    return commands


MERGE = "\0merge errors into output"


def _merged(words: list[str], line: str) -> list[str]:
    """Replace the tokens of ``2>&1`` by one; raises LitFailure for every other use of shell operators."""
    merged: list[str] = []
    index = 0
    while index < len(words):
        if words[index : index + 3] == ["2", ">&", "1"]:
            merged.append(MERGE)
            index += 3
            continue
        if set(words[index]) <= set("|&;<>") and words[index] != "|":
            raise LitFailure(f"RUN line uses {words[index]!r}, only pipes and 2>&1 are understood: {line}")
        merged.append(words[index])
        index += 1
    return merged


def _command(words: Sequence[str], line: str) -> Command:
    arguments = [word for word in words if word != MERGE]
    inverted = arguments[:1] == ["not"]
    if inverted:
        del arguments[0]
    if not arguments or arguments[0] not in COMMANDS:
        raise LitFailure(f"RUN line starts something other than {', '.join(sorted(COMMANDS))}: {line}")
    return Command(arguments[0], tuple(arguments[1:]), inverted, MERGE in words)


def _run_pipe(commands: Sequence[Command], line: str) -> None:
    """Run the commands one after the other, as with ``pipefail``: every one must end as expected."""
    data = b""
    for command in commands:
        outcome = _run(command, data)
        if (outcome.status == 0) == command.inverted:
            expected = "failure" if command.inverted else "status 0"
            raise LitFailure(
                f"RUN: {line}\n{command.name} ended with status {outcome.status}, expected {expected}\n"
                f"{outcome.errors}{_shown(command, data, outcome)}"
            )
        data = outcome.output


def _shown(command: Command, data: bytes, outcome: Outcome) -> str:
    """What helps to understand a failure: filecheck's input, any other command's output."""
    label, text = ("input", data) if command.name == "filecheck" else ("output", outcome.output)
    return f"--- {label} of {command.name}\n{text.decode(errors='replace')}"


def _run(command: Command, data: bytes) -> Outcome:
    """Run one command with ``data`` as standard input."""
    output = io.BytesIO()
    stdin = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
    stdout = io.TextIOWrapper(output, encoding="utf-8", write_through=True)
    stderr = stdout if command.merge_errors else io.StringIO()
    with (
        mock.patch.object(sys, "stdin", stdin),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        status = _status(COMMANDS[command.name], list(command.arguments))
        stdout.flush()
    errors = "" if isinstance(stderr, io.TextIOWrapper) else stderr.getvalue()
    return Outcome(status, output.getvalue(), errors)


def _status(run: Callable[[list[str]], int | None], arguments: list[str]) -> int:
    """The exit status a process would have: SystemExit and uncaught exceptions included."""
    try:
        return run(arguments) or 0
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1


def _tool(name: str) -> Callable[[list[str]], int | None]:
    """The ``main`` of one of our commands, imported when first run."""

    def run(arguments: list[str]) -> int | None:
        main: Callable[[list[str]], int | None] = importlib.import_module(f"odc_mlir.tools.{name}").main
        return main(arguments)

    return run


def _filecheck(arguments: list[str]) -> int:
    from filecheck.matcher import Matcher
    from filecheck.options import parse_argv_options

    return Matcher.from_opts(parse_argv_options(["filecheck", *arguments])).run()


def _xdsl_opt(arguments: list[str]) -> int:
    from xdsl.xdsl_opt_main import xDSLOptMain

    xDSLOptMain(args=arguments).run()
    return 0


def _cat(arguments: list[str]) -> int:
    if arguments:
        sys.stdout.write("".join(Path(name).read_text() for name in arguments))
    else:
        sys.stdout.write(sys.stdin.read())
    return 0


COMMANDS: dict[str, Callable[[list[str]], int | None]] = {
    "odc-opt": _tool("odc_opt"),
    "odc-compile": _tool("odc_compile"),
    "odc-run": _tool("odc_run"),
    "odc-sim": _tool("odc_sim"),
    "odc-dump": _tool("odc_dump"),
    "odc-diff": _tool("odc_diff"),
    "odc-package": _tool("odc_package"),
    "odc-doctor": _tool("odc_doctor"),
    "odc-report": _tool("odc_report"),
    "xdsl-opt": _xdsl_opt,
    "filecheck": _filecheck,
    "cat": _cat,
}
