"""An interrupt ends a command wherever it is: with exit code 130, one line and no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.data import REPOSITORY
from odc_mlir.start import EXIT_INTERRUPTED
from odc_mlir.tools import odc_opt
from odc_mlir.tools.odc_build import main as build

MODEL = REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle"

# Runs a command that interrupts itself at an import statement, the first or any later one.
AT_IMPORT = """
import builtins, os, signal, sys
real, left = builtins.__import__, int(sys.argv.pop(1))
from odc_mlir import start
command = getattr(start, sys.argv[0 + 1]); del sys.argv[1]

def counted(*arguments, **keywords):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGINT)
    return real(*arguments, **keywords)

builtins.__import__ = counted
code = command()
print(left > 0)
raise SystemExit(code)
"""

DEAF = """
import sys, time, types
from odc_mlir import start

def main():
    with start.current_handler():
        text = "ready"
        while True:
            try:
                print(text, flush=True)
                time.sleep(60)
            except KeyboardInterrupt:
                text = "again"

start._GRACE_SECONDS = 0.05
sys.modules["deaf"] = module = types.ModuleType("deaf")
module.main = main
start.start_command("deaf", "odc-deaf")
"""


def _default_interrupts() -> None:
    """Do not inherit that SIGINT is ignored, as in the background of a script."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("at", [1, 3, 10, 30, 100, 300, 1000, 2000])
@pytest.mark.parametrize("command", ["lint", "compile"])
def test_an_interrupt_while_modules_load(command: str, at: int, tmp_path: Path) -> None:
    words = [str(MODEL), *(["-o", str(tmp_path / "package")] if command == "compile" else [])]
    done = subprocess.run(
        [sys.executable, "-c", AT_IMPORT, str(at), command, *words],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_default_interrupts,
    )
    assert (done.returncode, done.stderr) == (EXIT_INTERRUPTED, f"odc-{command}: interrupted\n"), done.stdout


def test_an_interrupt_that_gets_lost() -> None:
    """What takes no notice of the exception is ended by a thread."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", DEAF]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, preexec_fn=_default_interrupts) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(2)
        printed, text = process.communicate()
    assert (process.returncode, printed, text) == (EXIT_INTERRUPTED, b"again\n", b"odc-deaf: interrupted\n")


def test_an_interrupt_within_a_step_of_a_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = tmp_path / "flow.toml"
    flow.write_text(f"[flow]\nmodel = '{MODEL}'\n[import]\n")
    monkeypatch.setattr(odc_opt, "main", lambda words: EXIT_INTERRUPTED)
    assert build([str(flow)]) == EXIT_INTERRUPTED
    assert capsys.readouterr().err == "odc-build: interrupted\n"
