"""Shared parts of all commands: common flags, log output, and conversion of exceptions to one line and an exit code.

Exit codes: 0 for success, 1 for a user error (any OdcError or OSError) or a negative result, 2 for wrong usage, 3 for
an internal error (with a reproducer file), 130 for an interrupt. This module imports little, so that ``--help`` is
immediate.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from odc_mlir._version import __version__
from odc_mlir.errors import OdcError, OptionError, TimeLimitError, bounded, printable, shortened
from odc_mlir.formats.quantities import bytes_of
from odc_mlir.start import EXIT_INTERRUPTED, current_handler
from odc_mlir.tools.files import (
    STDOUT_NAME,
    discard,
    error_text,
    naming,
    opened,
    replace_closed_streams,
    shown,
)

if TYPE_CHECKING:
    from typing import TextIO

EXIT_OK, EXIT_USER, EXIT_USAGE, EXIT_BUG = 0, 1, 2, 3
# Formats of model files, and of files of input arrays, for help texts.
MODEL_FORMATS = "(.circle, .tflite, .mlir, .pt2, nnpackage)"
ARRAY_FORMATS = "NPZ, NPY or HDF5"
_LONGEST_SECONDS = 1e8
_AGAIN_SECONDS = 0.5

Body = Callable[[argparse.Namespace], int | None]


Renamed = Mapping[str, tuple[str, Callable[[str], bool]]]
"""Old spelling of an option -> new spelling, and a test of the values that it applies to (``bool``: all)."""


def base_parser(
    prog: str, description: str, *, epilog: str | None = None, renamed: Renamed = MappingProxyType({})
) -> argparse.ArgumentParser:
    """Return a parser with the flags of every command: ``--version``, ``-v``, ``-q`` and ``--debug``.

    Abbreviated long options are errors, so that a new option never changes the meaning of a script.
    """
    parser = _Parser(prog=prog, description=description, epilog=epilog, allow_abbrev=False)
    parser.renamed = renamed
    parser.add_argument("--version", action="version", version=f"{prog} {__version__}")
    _add_output_flags(parser)
    parser.set_defaults(verbose=0, quiet=False, debug=False)
    return parser


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add the output flags with no defaults, so that users may give flags before or after a subcommand."""
    absent = argparse.SUPPRESS
    text = "print more to stderr (repeat for debug output)"
    parser.add_argument("-v", "--verbose", action="count", default=absent, help=text)
    parser.add_argument("-q", "--quiet", action="store_true", default=absent, help="print only errors to stderr")
    text = "print the Python traceback of an error"
    parser.add_argument("--debug", action="store_true", default=absent, help=text)


class _Parser(argparse.ArgumentParser):
    """Argument parser with help that begins with examples. An error is a line with the nearest valid name."""

    renamed: Renamed = MappingProxyType({})

    def format_help(self) -> str:
        from odc_mlir.tools.examples import examples_of

        return "".join(f"$ {line}\n" for line in examples_of(self.prog)) + "\n" + super().format_help()

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, bounded(f"{self.prog}: error: {message}{nearest(self, message)}") + "\n")


def nearest(parser: argparse.ArgumentParser, message: str, others: Iterable[str] = ()) -> str:
    """Return ``; did you mean --overwrite?`` if ``message`` has a name similar to an option or choice, else ""."""
    from difflib import get_close_matches

    known = [option for action in parser._actions for option in action.option_strings] + list(others)
    words = re.findall(r"(?<!\S)--[\w-]+", message)  # options without values or commas after them
    close = (match for word in words if word not in known for match in get_close_matches(word, known, n=1))
    found = [match for match in dict.fromkeys(close) if match not in words]
    if choice := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
        found += get_close_matches(choice[1], re.findall(r"[\w-]+", choice[2]), n=1)
    return f"; did you mean {', '.join(found)}?" if found else ""


def run_tool(parser: argparse.ArgumentParser, body: Body, argv: Sequence[str] | None = None) -> int:
    """Parse ``argv`` (default: the command line), check the files in it, run ``body`` and return the exit code.

    Nothing that a user can cause raises an exception, including wrong usage and ``--help``.
    """
    try:
        with _printable_output():
            words = sys.argv[1:] if argv is None else argv
            arguments = parser.parse_args(list(current_words(parser, [_BARE.get(word, word) for word in words])))
    except SystemExit as stop:  # argparse: 0 after --help and --version, 2 after wrong usage
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    arguments.parser = parser

    def call() -> int | None:
        seconds = arguments.time_limit if getattr(arguments, "is_timed", False) else None
        try:
            with opened(parser, arguments), _seldom_collected(ends_process=argv is None), limited_time(seconds):
                return body(arguments)
        except UsageError as error:
            text = f"{parser.prog}: error: {error.message}{nearest(parser, error.message, error.others)}"
            print(printable(bounded(text)), file=sys.stderr)
            return EXIT_USAGE

    return guarded(
        parser.prog, call, verbose=arguments.verbose, quiet=arguments.quiet, debug=arguments.debug, argv=argv
    )


def current_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[str]:
    """Yield the words with current names of options, and print a note on stderr for each old name.

    Names of options may have ``_`` instead of ``-``.
    """
    known = set(options_below(parser))
    dashed = {option.replace("_", "-"): option for option in known if option.startswith("--")}
    notes: dict[str, str] = {}
    for number, word in enumerate(words):
        if word == "--":
            yield from words[number:]
            break
        flag, equals, value = word.partition("=")
        following = value if equals else next(iter(words[number + 1 :]), "")
        new, applies = renamed_options(parser).get(flag, ("", bool))
        if new and applies(following):
            notes[flag] = new
            yield f"{new}{equals}{value}"
        elif word == "--json" and os.path.exists(following) and not following.endswith(".json"):
            yield "--json=-"  # without "=-", argparse would read the model as the output file
        else:
            yield word if flag in known else f"{dashed.get(flag.replace('_', '-'), flag)}{equals}{value}"
    for old, new in notes.items() if not {"-q", "--quiet"} & set(words) else ():
        note = f"{parser.prog}: note: {old} is {new} now; the old spelling still works in this release"
        print(printable(bounded(note)), file=sys.stderr)


def renamed_options(parser: argparse.ArgumentParser) -> Renamed:
    """Return the old spellings of a command's options."""
    return parser.renamed if isinstance(parser, _Parser) else {}


def options_below(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a parser and of subcommands."""
    yield from parser._option_string_actions
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from options_below(inner)


@contextmanager
def _seldom_collected(*, ends_process: bool) -> Iterator[None]:
    """Raise the garbage collector's threshold in this block. ``ends_process``: skip the collection at the end."""
    from odc_mlir.support.collection import seldom_collected

    atexit.unregister(gc.freeze)  # keeps a single registration if a process runs several commands
    atexit.register(gc.freeze)
    with seldom_collected():
        yield
        if ends_process:
            gc.freeze()


class UsageError(Exception):
    """Contradicting options. ``others``: further options for suggestions of :func:`nearest`."""

    def __init__(self, message: str, others: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.message, self.others = message, others


def tool(
    build_parser: Callable[[], argparse.ArgumentParser],
    body: Body | None = None,
    spelled: Callable[[argparse.ArgumentParser, Sequence[str]], Sequence[str]] | None = None,
) -> Callable[[Sequence[str] | None], int]:
    """Return the ``main`` of a command.

    ``body`` runs the command (default: the subcommand's body). ``spelled`` rewrites the command line before parsing.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        parser = build_parser()
        words = argv if spelled is None else spelled(parser, sys.argv[1:] if argv is None else argv)
        return run_tool(parser, body or (lambda arguments: arguments.body(arguments)), words)

    return main


def add_command(commands: Any, name: str, help: str, body: Body, **keywords: Any) -> argparse.ArgumentParser:
    """Add the subcommand ``name``, which runs ``body``. Return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help, allow_abbrev=False, **{"description": help, **keywords}
    )
    parser.set_defaults(body=body)
    _add_output_flags(parser)
    return parser


_EVERYWHERE = frozenset({"verbose", "quiet", "debug", "overwrite"})  # arguments of every command


def idle_option(arguments: argparse.Namespace, used: Collection[str]) -> str | None:
    """Return the first given option with an argument not in ``used``. Options at default values do not count."""
    for action in arguments.parser._actions:
        is_known = action.dest in used or action.dest in _EVERYWHERE or not hasattr(arguments, action.dest)
        if not is_known and getattr(arguments, action.dest) != action.default:
            return str(action.option_strings[-1])
    return None


def guarded(
    prog: str,
    call: Callable[[], int | None],
    *,
    verbose: int = 0,
    quiet: bool = False,
    debug: bool = False,
    argv: Sequence[str] | None = None,
) -> int:
    """Return the exit code of ``call()``. Print every exception as one line on stderr (see the module's docstring)."""
    # A later import of numpy reads this variable. More threads do not pay off for models of this size.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    interrupts = current_handler()
    try:
        with nullcontext() if interrupts is None else interrupts:
            code = _outcome(prog, call, verbose, quiet, debug, argv)
        if interrupts is not None and interrupts.happened:
            raise KeyboardInterrupt
        return code
    except KeyboardInterrupt:
        if interrupts is not None:
            interrupts.is_told = True
        return _fail(prog, "interrupted", EXIT_INTERRUPTED, debug)


def _outcome(
    prog: str, call: Callable[[], int | None], verbose: int, quiet: bool, debug: bool, argv: Sequence[str] | None
) -> int:
    try:
        with _printable_output(), _logging_to_stderr(prog, verbose, quiet):
            code = call()
            sys.stdout.flush()
        return EXIT_OK if code is None else code
    except BrokenPipeError:
        discard(sys.stdout)  # the reader of the pipe has closed it
        return EXIT_OK
    except OdcError as error:
        code = _fail(prog, _with_notes(f"error: {error}", error), EXIT_USER, debug)
        if error.source is not None:
            print(printable(error.source), file=sys.stderr)
        return code
    except OSError as error:
        if error.filename == STDOUT_NAME:
            discard(sys.stdout)
        return _fail(prog, _with_notes(f"error: {error_text(error)}", error), EXIT_USER, debug)
    except MemoryError:
        return _fail(prog, "error: not enough memory", EXIT_USER, debug)
    except Exception as error:
        if (interrupts := current_handler()) is not None and interrupts.happened:
            raise KeyboardInterrupt from error  # an interrupt during an import may cause other exceptions
        ir = getattr(error, "reproducer", None)
        where = ir or write_reproducer(prog, sys.argv[1:] if argv is None else argv)
        kind = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        kind = bounded(" ".join(kind.split()))
        again = f"; {prog} --run-reproducer {ir} runs the pass again" if ir else ""
        text = f"internal error: {kind}{again}; please report this defect of odc-mlir to its maintainers"
        return _fail(prog, f"{text} with the file {where}" if where else text, EXIT_BUG, debug)


# Flags with an optional value. If "=value" is missing, argparse would take the next word as the value.
_BARE = {"--verify-each": "--verify-each=passes"}


def add_verify_each(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the flag ``--verify-each[=run]``, the argument ``verify`` of ``odc_mlir.compile``."""
    text = (
        f"verify the IR after every pass ({default}); --verify-each=run: also run the IR on random inputs, and "
        "fail if results differ from the model"
    )
    parser.add_argument("--verify-each", default="stages", choices=("passes", "run"), metavar="passes|run", help=text)


def add_before(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the flag ``--before PASS=PIPELINE`` (see :func:`passes_before`)."""
    text = "insert PIPELINE before PASS in all stages"
    parser.add_argument("--before", action="append", default=[], metavar="PASS=PIPELINE", help=text)


def passes_before(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return the pipelines of ``--before`` by pass, for the argument ``before`` of ``odc_mlir.compile``."""
    found: dict[str, list[str]] = {}
    for text in arguments.before:
        name, _, pipeline = text.partition("=")
        if not pipeline:
            raise OptionError(f"--before {text} names no pass to add", hint=f"write --before {name}=PIPELINE")
        found.setdefault(name, []).append(pipeline)
    return found


def add_time_limit(parser: argparse.ArgumentParser) -> None:
    """Add the flag for a time limit that :func:`run_tool` enforces."""
    parser.add_argument("--time-limit", type=float, metavar="S", help="fail when this takes longer than S seconds")
    parser.set_defaults(is_timed=True)


@contextmanager
def limited_time(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimitError in this block after ``seconds``. Raises OptionError unless ``seconds`` is positive."""
    if seconds is None:
        yield
        return
    if not seconds > 0:
        raise OptionError(f"the time limit is {seconds:g} s, it must be above 0")

    def end(number: int, frame: object) -> NoReturn:
        raise TimeLimitError(f"this takes longer than the time limit of {seconds:g} s", hint="raise the time limit")

    handler = signal.signal(signal.SIGALRM, end)
    # The timer repeats the signal, because the exception can get lost, for example in a destructor.
    before = signal.setitimer(signal.ITIMER_REAL, min(seconds, _LONGEST_SECONDS), _AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
        signal.signal(signal.SIGALRM, handler)


def size(text: str) -> int:
    """Parse a number of bytes with an optional unit."""
    try:
        number = bytes_of(text)
    except OdcError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is less than no byte")
    return number


def write_reproducer(prog: str, argv: Sequence[str]) -> str | None:
    """Write the current exception, command line and versions to a new file. Return the path, or None on failure."""
    import platform
    import traceback

    versions = [f"odc-mlir {__version__}", f"Python {platform.python_version()}", platform.platform()]
    versions += [
        f"{name} {getattr(sys.modules[name], '__version__', '?')}"
        for name in ("numpy", "xdsl", "flatbuffers")
        if name in sys.modules
    ]
    text = f"{shlex.join([prog, *argv])}\ndirectory {os.getcwd()}\n{', '.join(versions)}\n\n{traceback.format_exc()}"
    return write_crash_file(prog, ".txt", text)


def write_crash_file(prog: str, suffix: str, text: str) -> str | None:
    """Write ``text`` to a new file in the temporary directory. Return the path, or None on failure."""
    import tempfile

    try:
        handle, path = tempfile.mkstemp(prefix=f"{prog}-crash-", suffix=suffix)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return None
    return path


def _with_notes(text: str, error: Exception) -> str:
    line = "; ".join([text, *getattr(error, "__notes__", ())])
    return line if getattr(error, "is_list", False) else bounded(line)


def _fail(prog: str, text: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        sys.stderr.write(printable(traceback.format_exc()))
    with suppress(OSError):  # the exit code reports the failure too
        print(shown(f"{prog}: {text}"), file=PrintableStream(sys.stderr, "standard error"))
    return code


_SEVERITY = re.compile(r"^(odc-[\w -]+: )((?:internal )?error|warning)(?=:)")


class PrintableStream:
    """Text stream that escapes control characters. It drops output to a closed pipe: files and exit code still matter.

    On a terminal, the words "error" and "warning" of messages are coloured, except if NO_COLOR is set.
    ``stream``: the underlying stream, for progress that moves the cursor. ``name``: name in system errors
    """

    def __init__(self, stream: TextIO, name: str = STDOUT_NAME) -> None:
        self.stream, self._name = stream, name
        is_terminal = not isinstance(stream, PrintableStream) and stream.isatty()
        self._has_colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def write(self, text: str) -> int:
        """Write ``text``, escaped. Return its length."""
        found = printable(text)
        with self._reaching():
            self.stream.write(_SEVERITY.sub("\\1\x1b[1;31m\\2\x1b[0m", found) if self._has_colour else found)
        return len(text)

    def flush(self) -> None:
        """Flush the stream. System errors name the stream."""
        with self._reaching():
            self.stream.flush()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            with naming(self._name):
                yield
        except BrokenPipeError:
            discard(self.stream)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of ``lines``, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def _printable_output() -> Iterator[None]:
    replace_closed_streams()
    out: Any = PrintableStream(sys.stdout)
    err: Any = PrintableStream(sys.stderr, "standard error")
    with redirect_stdout(out), redirect_stderr(err):
        yield


@contextmanager
def _logging_to_stderr(prog: str, verbose: int, quiet: bool) -> Iterator[None]:
    import logging

    class LineFormatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            origin = f"{record.name}: " if verbose > 1 else ""
            line = " ".join(shown(record.getMessage()).split())  # on one line, so that names cannot forge a line
            return f"{prog}: {record.levelname.lower()}: {origin}{bounded(shortened(line))}"

    logger = logging.getLogger("odc_mlir")
    before = logger.level
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    outer, logger.handlers = logger.handlers, [handler]  # a command that another one runs prints warnings once
    logger.setLevel(logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    try:
        yield
    finally:
        logger.handlers = outer
        logger.setLevel(before)
