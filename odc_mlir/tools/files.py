"""Arguments that name files: declared by :func:`add_output` and :func:`add_input`, checked before a command begins.

``run_tool`` rejects inputs that are not files, outputs that would lose work (:mod:`odc_mlir.formats.outputs`), and
outputs that collide. ``-`` is standard input, or standard output for text.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, NamedTuple

from odc_mlir.errors import OdcError, OptionError, bounded, printable
from odc_mlir.formats.kinds import OutputKind

STDOUT_NAME = "standard output"
STANDARD = "-"
"""Name of standard input or output, valid for every file to read and every text to write."""

IS_STEP = ContextVar("is_step", default=False)
"""True in a command that another command runs as a step. The latter suggests the next command."""

Container = argparse.ArgumentParser | argparse._ArgumentGroup
KindOf = Callable[[argparse.Namespace], OutputKind]
PathsOf = Callable[[argparse.Namespace], list[str]]

_ROLE = "role"
_STDIN_PATHS = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_STDIN_FOLDER = "odc-stdin-"


class Output(NamedTuple):
    """Declaration of an output argument. ``paths`` returns the written files (default: the argument's value)."""

    kind: OutputKind | KindOf
    paths: PathsOf | None = None

    def kind_for(self, arguments: argparse.Namespace) -> OutputKind:
        return self.kind if isinstance(self.kind, OutputKind) else self.kind(arguments)


class Input(NamedTuple):
    """Declaration of an input argument. ``stdin``: ``-`` is standard input. ``own``: the command reads it itself."""

    stdin: bool = True
    own: bool = False


def add_output(
    container: Container, *flags: str, kind: OutputKind | KindOf, paths: PathsOf | None = None, **keywords: Any
) -> None:
    """Add an output argument. If ``kind`` or ``paths`` depends on arguments, it is a function of the arguments."""
    vars(container.add_argument(*flags, **keywords))[_ROLE] = Output(kind, paths)


def add_input(container: Container, *flags: str, stdin: bool = True, own: bool = False, **keywords: Any) -> None:
    """Add an input argument."""
    vars(container.add_argument(*flags, **keywords))[_ROLE] = Input(stdin, own)


def add_switch(container: Container, flag: str, help: str) -> None:
    """Add a flag that takes no value."""
    container.add_argument(flag, action="store_true", help=help)


def add_samples(container: Container) -> None:
    """Add ``--samples`` and ``--no-samples``: how to divide loaded arrays, None by default."""
    text = "loaded arrays have a leading sample axis (default: if several fit the batch)"
    container.add_argument("--samples", action=argparse.BooleanOptionalAction, help=text)


def add_json(container: Container, kind: OutputKind, help: str) -> None:
    """Add ``--json [FILE.json]``, a document for programs. If FILE is missing, the output goes to standard output."""
    text = f"write {help} as JSON"
    add_output(container, "--json", metavar="FILE.json", nargs="?", const=STANDARD, kind=kind, help=text)


def add_overwrite(container: Container) -> None:
    """Add the flag of all commands with outputs."""
    add_switch(container, "--overwrite", "also replace files that odc-mlir did not write; inputs are never replaced")


def add_memory(container: Container, help: str = "memory for constants (%(default)s)") -> None:
    """Add the flag that chooses the memory of constants."""
    container.add_argument("--memory", default="flash", choices=("flash", "sram"), help=help)


def add_execution_flags(group: Container) -> None:
    """Add the flags of commands that compile and run models."""
    text = "NPU that the backend npu compiles for (%(default)s)"
    add_input(group, "--target", default="npu-256", metavar="NAME|FILE.toml", stdin=False, help=text)
    add_memory(group, "memory for constants, with the backend npu (%(default)s)")
    add_switch(group, "--strict", "fail instead of falling back to the host")
    add_switch(group, "--trust-code", "run machine code of packages that was not compiled on this machine")
    text = (
        "fixed: integer arithmetic, as on the NPU; litert: as LiteRT's reference kernels, only on the host "
        "(%(default)s)"
    )
    group.add_argument("--numerics", default="fixed", choices=("fixed", "litert"), help=text)


def add_any_reader(container: Container) -> None:
    """Add the flag of commands that write models in a format given by the file's suffix."""
    add_switch(container, "--any-reader", "allow operators in .tflite files that LiteRT does not run")


def role_of(action: argparse.Action) -> Output | Input | None:
    """Return the declaration of an argument."""
    found = vars(action).get(_ROLE)
    return found if isinstance(found, Output | Input) else None


class Files:
    """Outputs of one call. ``kinds``: by argument name. ``uses_stdout``: an output goes to standard output.

    If an output cannot be written, the command still writes the other outputs, and then fails.
    """

    def __init__(self, *, overwrite: bool, quiet: bool) -> None:
        self.overwrite, self.quiet = overwrite, quiet
        self.kinds: dict[str, OutputKind] = {}
        self.paths: dict[str, str] = {}  # argument name -> its first path
        self.uses_stdout = False
        self._written: list[str] = []
        self._failed: list[OdcError | OSError] = []

    def write(self, name: str, make: Callable[[], bytes | str], default: str | None = None) -> bool:
        """Write the result of ``make`` to the file of the argument ``name``, if given. Return whether this succeeded.

        ``default``: the file if the argument is missing
        """
        path = self.paths.get(name, default)
        if path is None:
            return False
        made, before = make(), len(self._failed)
        data = made.encode() if isinstance(made, str) else made
        with self.writing(path):
            if path == STANDARD:
                _write_to_stdout(data)
            else:
                from odc_mlir.formats.outputs import write_output

                write_output(path, data, self.kinds[name], overwrite=self.overwrite)
        return len(self._failed) == before

    @contextmanager
    def writing(self, path: str) -> Iterator[None]:
        """Keep the first failure to write an output in this block. :meth:`finish` raises the failure at the end."""
        try:
            yield
        except (OdcError, OSError) as error:
            self._failed.append(error)
        else:
            self._written.append(path)

    def finish(self) -> None:
        """Raise the first failure to write, with further failures as notes. Closed pipes come last."""
        failed = sorted(self._failed, key=lambda error: isinstance(error, BrokenPipeError))
        if not failed:
            return
        first, *others = failed
        if not isinstance(first, BrokenPipeError):
            for message in self.failure_messages(others):
                first.add_note(message)
            if written := [path for path in self._written if path != STANDARD]:
                first.add_note(f"{' and '.join(written)} {'are' if len(written) > 1 else 'is'} written")
        raise first

    def failure_messages(self, failed: Sequence[OdcError | OSError] | None = None) -> list[str]:
        """Return the messages of failures to write, except for closed pipes."""
        failed = self._failed if failed is None else failed
        return [error_text(error) for error in failed if not isinstance(error, BrokenPipeError)]

    def write_json(self, name: str, make: Callable[[], object]) -> bool:
        """Write the result of ``make`` as JSON text (see :meth:`write`)."""
        from dataclasses import asdict

        return self.write(name, lambda: json.dumps(make(), indent=1, default=asdict) + "\n")

    def show(self, document: object, lines: Iterable[str]) -> None:
        """Write ``document`` to the file of ``--json``, if given, otherwise print ``lines``."""
        if "json" in self.paths:
            self.write_json("json", lambda: document)
        else:
            for line in lines:
                print(line)

    @property
    def messages(self) -> IO[str]:
        """Stream for messages: standard output if no output goes there."""
        return sys.stderr if self.uses_stdout else sys.stdout

    def tell(self, lines: Iterable[str]) -> None:
        """Print lines as messages. With ``-q``, messages are not computed."""
        for line in () if self.quiet else lines:
            print(line, file=self.messages)

    def suggest(self, *words: str, first: str = "") -> None:
        """Print the next command to run, as the last line, except in a step of another command."""
        self.tell([] if IS_STEP.get() else [f"next: {first}{shlex.join(words)}"])


def _write_to_stdout(data: bytes) -> None:
    try:
        with naming(STDOUT_NAME):
            sys.stdout.flush()
            if sys.stdout.isatty():  # only terminals: files and pipes get the exact bytes
                data = printable(data.decode(errors="backslashreplace")).encode()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except OSError:
        discard(sys.stdout)
        raise


def discard(stream: IO[str]) -> None:
    """Redirect ``stream`` to the null device. Otherwise Python fails again at exit."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def error_text(error: OdcError | OSError) -> str:
    """Return the text of an error in one line. For a system error, include the file or stream."""
    if isinstance(error, OdcError):
        return str(error)
    reason = error.strerror or str(error) or type(error).__name__
    return bounded(f"{error.filename}: {reason}" if error.filename is not None else reason)


@contextmanager
def naming(stream: str) -> Iterator[None]:
    """Add the name of a stream to system errors in this block."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        error.filename = stream
        raise


def replace_closed_streams() -> None:
    """Open the null device for each standard stream that was closed at the start of the process.

    Otherwise the next opened file gets the stream's number, and receives the output of libraries.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        mode = "w" if number else "r"
        opened_as = os.open(os.devnull, os.O_WRONLY if number else os.O_RDONLY)
        if opened_as != number:
            os.dup2(opened_as, number)
            os.close(opened_as)
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def shown(text: str) -> str:
    """Return ``text`` with ``<stdin>`` instead of the temporary file's name."""
    return re.sub(rf"[^\s'\"]*{_STDIN_FOLDER}\w+/stdin", "<stdin>", text) if _STDIN_FOLDER in text else text


@contextmanager
def opened(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Iterator[None]:
    """Check all files in ``arguments``, replace ``-`` by a file, and set ``arguments.files``. Raises OdcError."""
    from odc_mlir.formats.outputs import check_output

    actions = list(_actions(parser, arguments))
    _check_any_reader(arguments)
    arguments.files = files = Files(overwrite=getattr(arguments, "overwrite", False), quiet=arguments.quiet)
    inputs = [(action, role) for action in actions if isinstance(role := role_of(action), Input)]
    read = [text for action, role in inputs for text in _checked_inputs(arguments, action, role)]
    taken: dict[str, tuple[str, str, OutputKind]] = {}
    for action in actions:
        role = role_of(action)
        paths = _paths(arguments, action, role) if isinstance(role, Output) else []
        if not isinstance(role, Output) or not paths:
            continue
        kind = files.kinds[action.dest] = role.kind_for(arguments)
        files.paths[action.dest] = paths[0]
        for path in paths:
            name = _name(action)
            place = path if path == STANDARD else os.path.realpath(path)
            if place in taken:
                raise OptionError(f"{name} and {taken[place][0]} both write {path!r}", hint="give each a separate file")
            taken[place] = name, path, kind
    _check_nesting(taken)
    for name, path, kind in taken.values():
        if path != STANDARD:
            check_output(path, kind, overwrite=files.overwrite, inputs=read, makes_folders=False)
        elif not kind.is_text:
            raise OptionError(f"{name} is -, but {kind.name} cannot be written to standard output", hint="name a file")
    files.uses_stdout = STANDARD in taken
    if files.uses_stdout and isinstance(getattr(sys.stdout, "name", None), int):  # int: a replaced stream
        raise OptionError(f"{taken[STANDARD][0]} is -, but standard output is closed", hint="name a file")
    with _standard_input(arguments, inputs):
        try:
            yield
        except BrokenPipeError:  # while printing messages
            files.finish()
            raise
        except Exception as error:
            for message in files.failure_messages():
                error.add_note(message)
            raise
    files.finish()


def _check_any_reader(arguments: argparse.Namespace) -> None:
    if not getattr(arguments, "any_reader", False):
        return
    from odc_mlir.frontend.export_circle import is_tflite

    if not is_tflite(arguments.output or ""):
        raise OptionError("--any-reader applies only to .tflite outputs", hint="leave it out")


def _checked_inputs(arguments: argparse.Namespace, action: argparse.Action, role: Input) -> list[str]:
    """Return the existing files of an argument, except standard input. Raises OptionError."""
    value = getattr(arguments, action.dest, None)
    if role.stdin and value is not None:
        named = [STANDARD if item in _STDIN_PATHS else item for item in (value if isinstance(value, list) else [value])]
        setattr(arguments, action.dest, named if isinstance(value, list) else named[0])
    texts = [text for text in _values(arguments, action) if text != STANDARD]
    for text in texts:
        with suppress(OSError, ValueError):  # the command reports the error
            mode = os.stat(text).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise OptionError(f"{text} is not a regular file")
    return texts


def _check_nesting(taken: Mapping[str, tuple[str, str, OutputKind]]) -> None:
    """Raise OptionError for an output inside another output's folder, which is replaced as a whole."""
    for folder, (owner, _, kind) in taken.items():
        inside = next((place for place in taken if place.startswith(folder + os.sep)), None)
        if kind.is_folder and inside is not None:
            name, path, _ = taken[inside]
            raise OptionError(f"{name} {path!r} is inside the folder of {owner}", hint="choose another path")


def _actions(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from _actions(action.choices[getattr(arguments, action.dest)], arguments)
        else:
            yield action


def _values(arguments: argparse.Namespace, action: argparse.Action) -> list[str]:
    value = getattr(arguments, action.dest, None)
    return [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str) and text]


def _paths(arguments: argparse.Namespace, action: argparse.Action, role: Output) -> list[str]:
    if role.paths is None:
        value = getattr(arguments, action.dest, None)
        if value == "":
            raise OptionError(f"{_name(action)} names no file")
        return _values(arguments, action)
    return role.paths(arguments) if getattr(arguments, action.dest, None) else []


def _name(action: argparse.Action) -> str:
    return max(action.option_strings, key=len) if action.option_strings else str(action.metavar or action.dest)


@contextmanager
def _standard_input(arguments: argparse.Namespace, inputs: list[tuple[argparse.Action, Input]]) -> Iterator[None]:
    """Replace ``-`` by a temporary file with the content of standard input."""
    wanted = [(action, role) for action, role in inputs if STANDARD in _values(arguments, action)]
    if len(wanted) > 1:
        raise OptionError(f"{' and '.join(_name(action) for action, _ in wanted)} both read standard input")
    for action, role in wanted:
        if not role.stdin:
            raise OptionError(f"{_name(action)} is -, but standard input is not supported here", hint="name a file")
    if not wanted or wanted[0][1].own:
        yield
        return
    import tempfile

    ((action, _),) = wanted
    with tempfile.TemporaryDirectory(prefix=_STDIN_FOLDER) as folder:
        path = Path(folder, "stdin")
        path.write_bytes(sys.stdin.buffer.read())
        value = getattr(arguments, action.dest)
        spooled = [str(path) if item == STANDARD else item for item in value] if isinstance(value, list) else str(path)
        setattr(arguments, action.dest, spooled)
        yield
