"""From exceptions to one line and an exit code."""

from __future__ import annotations

import argparse
import io
import logging
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from helpers.commands import main_of
from helpers.data import REPOSITORY
from odc_mlir._version import __version__
from odc_mlir.errors import ModelError, TimeLimitError
from odc_mlir.tools import common
from odc_mlir.tools.common import Body, PrintableStream, UsageError, add_time_limit, base_parser, limited_time, run_tool


def _run(body: Body, *argv: str) -> int:
    parser = base_parser("odc-test", "a test")
    parser.add_argument("--count", type=int)
    return run_tool(parser, body, argv)


def _raise(error: BaseException) -> Body:
    def body(arguments: argparse.Namespace) -> None:
        raise error

    return body


def test_success_and_explicit_codes() -> None:
    assert _run(lambda arguments: None) == 0
    assert _run(lambda arguments: 2) == 2


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ModelError("bad", op="ADD", tensor="t"), 1, "error: bad (op ADD, tensor 't')"),
        (FileNotFoundError(2, "No such file or directory", "x.npz"), 1, "error: x.npz: No such file or directory"),
        (OSError("disk is gone"), 1, "error: disk is gone"),
        (MemoryError(), 1, "error: not enough memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_one_line_for_a_users_error(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(_raise(error)) == code
    assert capsys.readouterr().err == f"odc-test: {text}\n"


@pytest.mark.parametrize(
    "error",
    [ModelError(f"the number {'9' * 5000} is large", hint="use less"), OSError("x" * 5000), KeyError("x" * 5000)],
)
def test_no_line_is_long(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert _run(_raise(error)) in (1, 3)
    message = capsys.readouterr().err
    assert len(message) < 800
    assert not isinstance(error, ModelError) or message.endswith("is large; use less\n")
    assert _run(lambda arguments: None, "--count", "9" * 5000 + "x") == 2
    assert len(capsys.readouterr().err) < 500


def test_a_defect_leaves_a_reproducer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert _run(_raise(KeyError("two\nlines")), "--count", "3") == 3
    message = capsys.readouterr().err
    (file,) = tmp_path.iterdir()
    assert message.count("\n") == 1
    assert "internal error: KeyError: 'two\\nlines'; please report" in message
    assert message.endswith(f"with the file {file}\n")
    text = file.read_text()
    assert text.startswith("odc-test --count 3\n")
    assert f"odc-mlir {__version__}, Python" in text
    assert "Traceback" in text
    assert "KeyError" in text


def test_a_defect_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert _run(_raise(RuntimeError())) == 3
    assert capsys.readouterr().err == (
        "odc-test: internal error: RuntimeError; please report this defect of odc-mlir to its maintainers\n"
    )


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(_raise(ModelError("bad")), "--debug") == 1
    message = capsys.readouterr().err
    assert "Traceback" in message
    assert message.endswith("odc-test: error: bad\n")


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(arguments: argparse.Namespace) -> int:
        raise AssertionError("must not run")

    assert _run(fail, "--count", "many") == 2
    assert "invalid int value: 'many'" in capsys.readouterr().err
    assert _run(fail, "--cou", "1") == 2, "abbreviations are refused"
    capsys.readouterr()
    assert _run(_raise(UsageError("give one"))) == 2
    assert capsys.readouterr().err == "odc-test: error: give one\n"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--cuont=3"], "unrecognized arguments: --cuont=3; did you mean --count?"),
        (["--nothing-like-it"], "unrecognized arguments: --nothing-like-it"),
        (["--count"], "argument --count: expected one argument"),
    ],
)
def test_wrong_usage_is_one_line_with_the_nearest_name(
    argv: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(lambda arguments: None, *argv) == 2
    assert capsys.readouterr().err == f"odc-test: error: {expected}\n"


@pytest.mark.parametrize("mark", ["", ";", ",", ".", ":", ")", "=3"])
def test_what_was_given_is_no_guess(mark: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = base_parser("odc-test", "a test")
    parser.add_argument("--help-me", action=argparse.BooleanOptionalAction)
    for message in (f"no use for --no-help-me{mark} leave it out", f"give --help-me, not --help-mee{mark}"):
        assert run_tool(parser, _raise(UsageError(message)), []) == 2
        assert capsys.readouterr().err == f"odc-test: error: {message}\n"
    run_tool(parser, _raise(UsageError(f"no use for --no-helpme{mark}")), [])
    assert capsys.readouterr().err.endswith("; did you mean --no-help-me?\n")


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(_raise(AssertionError()), "--version") == 0
    assert capsys.readouterr().out == f"odc-test {__version__}\n"
    assert _run(_raise(AssertionError()), "--help") == 0
    assert "a test" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "odc-test: warning: careful\n"),
        (["-q"], ""),
        (["-v"], "odc-test: info: going on\nodc-test: warning: careful\n"),
        (
            ["-vv"],
            "odc-test: debug: odc_mlir.test: detail\nodc-test: info: odc_mlir.test: going on\n"
            "odc-test: warning: odc_mlir.test: careful\n",
        ),
    ],
)
def test_log_output(flags: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    def body(arguments: argparse.Namespace) -> None:
        logger = logging.getLogger("odc_mlir.test")
        logger.debug("detail")
        logger.info("going on")
        logger.warning("careful")

    before = list(logging.getLogger("odc_mlir").handlers)
    assert _run(body, *flags) == 0
    assert capsys.readouterr().err == expected
    assert logging.getLogger("odc_mlir").handlers == before


def test_a_closed_pipe_is_no_error() -> None:
    """``odc-… | head`` ends quietly; Python itself would complain when it flushes at exit."""
    code = (
        "import sys; from odc_mlir.tools.common import base_parser, run_tool\n"
        "sys.exit(run_tool(base_parser('odc-test', 'x'), lambda a: print('line\\n' * 100000), []))"
    )
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    os.read(read, 10)
    os.close(read)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, b"")


_PRINTING = (
    "import sys; from odc_mlir.tools.common import base_parser, run_tool\n"
    "def body(arguments):\n"
    "    with open(sys.argv[1], 'w') as file:\n"
    "        file.write('output')\n"
    "    print('done', file=sys.stderr)\n"
    "    print('line')\n"
    "sys.exit(run_tool(base_parser('odc-test', 'x'), body, []))"
)


@pytest.mark.parametrize(
    ("redirection", "code", "errors"),
    [
        (">&-", 0, b"done\n"),
        (">/dev/full", 1, b"done\nodc-test: error: standard output: No space left on device\n"),
        ("2>&-", 0, b""),
        ("2>/dev/full", 1, b""),
        ("<&- >&- 2>&-", 0, b""),
    ],
)
def test_an_output_is_whole_whatever_becomes_of_standard_streams(
    redirection: str, code: int, errors: bytes, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(_PRINTING)
    command = f"{sys.executable} {tmp_path}/program.py {tmp_path}/output {redirection}"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (code, errors)
    assert (tmp_path / "output").read_text() == "output"


def test_unreachable_objects_are_seldom_looked_for() -> None:
    # 400,000 objects that stay: one look at the end of the command, none at the end of the process
    program = (
        "import gc, sys\nfrom odc_mlir.tools.common import base_parser, run_tool\n"
        "def body(arguments):\n"
        "    gc.callbacks.append(lambda phase, info: print(phase, len(gc.get_objects())))\n"
        "    body.kept = [[] for _ in range(400_000)]\n"
        "sys.exit(run_tool(base_parser('odc-test', 'x'), body, []))"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    looks = [int(line.split()[1]) for line in made.stdout.splitlines() if line.startswith("start")]
    assert sum(count > 100_000 for count in looks) <= 1


def test_exit_codes_are_the_documented_ones() -> None:
    assert (common.EXIT_OK, common.EXIT_USER, common.EXIT_USAGE, common.EXIT_BUG) == (0, 1, 2, 3)


@pytest.mark.parametrize(("given", "seen"), [(None, "1"), ("3", "3")])
def test_one_thread_for_matrix_products_unless_told(
    given: str | None, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    found = []
    assert _run(lambda arguments: found.append(os.environ["OPENBLAS_NUM_THREADS"])) == 0
    assert found == [seen]


def test_nothing_that_is_printed_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Output, log, errors and usage alike; a name cannot forge a line of the log."""

    def body(arguments: argparse.Namespace) -> None:
        print("out\x1b[2J\u202e")
        print("err\x9b1m", file=sys.stderr)
        sys.stdout.writelines(["a\x1b", "b\n"])
        logging.getLogger("odc_mlir.x").warning("log\x1b]0;t\x07 of\nodc-test: error: forged")
        raise ValueError("bug\x1b[31m")

    assert _run(body, "--debug") == 3
    assert _run(body, "--\x1b[2J") == 2
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert text.replace("\n", "").isprintable()
    assert "out\\u001b[2J\\u202e" in text
    assert "a\\u001bb" in text
    assert "\nodc-test: error: forged" not in text


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "colours", "shown"),
    [
        (_Terminal(), "", "odc-run: \x1b[1;31merror\x1b[0m: no error: \\u001b"),
        (_Terminal(), "1", "odc-run: error: no error: \\u001b"),
        (io.StringIO(), "", "odc-run: error: no error: \\u001b"),
    ],
)
def test_severities_are_coloured_on_terminals(
    stream: io.StringIO, colours: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", colours)
    monkeypatch.setenv("TERM", "xterm")
    outer = PrintableStream(PrintableStream(stream))
    outer.write("odc-run: error: no error: \x1b")
    assert stream.getvalue() == shown


def test_a_limit_of_time(capsys: pytest.CaptureFixture[str]) -> None:
    parser = base_parser("odc-x", "what it does")
    add_time_limit(parser)
    assert run_tool(parser, lambda arguments: time.sleep(60), ["--time-limit", "0.01"]) == 1
    assert capsys.readouterr().err == (
        "odc-x: error: this takes longer than the time limit of 0.01 s; raise the time limit\n"
    )
    assert run_tool(parser, lambda arguments: None, ["--time-limit", "1e300"]) == 0
    assert run_tool(parser, lambda arguments: time.sleep(0.02), []) == 0
    for seconds in ("0", "-1", "nan"):
        assert run_tool(parser, lambda arguments: None, ["--time-limit", seconds]) == 1
        assert "it must be above 0" in capsys.readouterr().err


def test_a_limit_of_time_that_gets_lost() -> None:
    def deaf() -> None:
        with suppress(TimeLimitError):
            time.sleep(60)
        time.sleep(60)

    with pytest.raises(TimeLimitError), limited_time(0.01):
        deaf()


@pytest.mark.parametrize("command", ["opt", "lint"])
def test_commands_with_a_limit_of_time(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle"
    assert main_of(f"odc-{command}")([str(model), "--time-limit", "1e-5"]) == 1
    assert "this takes longer than the time limit of 1e-05 s" in capsys.readouterr().err


def test_a_wrong_subcommand_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    from odc_mlir.tools import odc_circle

    assert odc_circle.main(["operator"]) == 2
    assert capsys.readouterr().err.endswith("; did you mean operators?\n")
