"""What the README and the quickstart tell people to type works, in the order in which they say it."""

from __future__ import annotations

import glob
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands import COMMANDS, main_of
from helpers.data import REPOSITORY

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(document: str, language: str) -> list[str]:
    """The code blocks of one language, without those that set up an environment."""
    text = (REPOSITORY / document).read_text()
    return [body for found, body in BLOCK.findall(text) if found == language and "scripts/" not in body]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which the repository's examples are seen, and files may be written."""
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    (tmp_path / "out").mkdir()
    return tmp_path


def run(command: list[str], folder: Path) -> str:
    """Standard output of a command run in ``folder`` with our commands on its PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_lines(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script line by line: plain lines of our commands in this process, which saves starting one, others by sh.

    The current folder is ``folder``; commands that our commands start are found too.
    """
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    for line in script.splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] in COMMANDS and not {"|", "||", "&&"} & set(words):
            arguments = [name for word in words[1:] for name in sorted(glob.glob(word)) or [word]]
            assert main_of(words[0])(arguments) == 0, line
        elif words:
            run(["sh", "-ec", line], folder)


def test_the_readme_in_a_shell(checkout: Path) -> None:
    run(["sh", "-ec", "\n".join(blocks("README.md", "sh"))], checkout)


@pytest.mark.parametrize("document", ["docs/quickstart.md", "docs/quantisation.md", "docs/answers.md"])
def test_commands(document: str, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = blocks(document, "sh")
    assert scripts
    monkeypatch.chdir(checkout)
    run_lines("\n".join(scripts), checkout, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("document", ["docs/partitioning.md", "docs/pipeline.md"])
def test_commands_on_a_model_of_ones_own(document: str, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages whose examples say model.circle; what measures this machine is left out."""
    (checkout / "model.circle").symlink_to(REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle")
    scripts = [body for body in blocks(document, "sh") if "benchmarks/" not in body]
    assert scripts
    monkeypatch.chdir(checkout)
    run_lines("\n".join(scripts), checkout, monkeypatch)


def test_python_of_the_readme(checkout: Path) -> None:
    said = run([sys.executable, "-c", "\n".join(blocks("README.md", "python"))], checkout)
    assert said.startswith("original\n")
    assert "cycles" in said


def test_python_of_the_quickstart(checkout: Path) -> None:
    code = "\n".join(blocks("docs/quickstart.md", "python"))
    (checkout / "model.circle").symlink_to(REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle")
    run([sys.executable, "-c", code], checkout)


def test_python_of_quantising(checkout: Path) -> None:
    (code,) = blocks("docs/quantisation.md", "python")
    assert run([sys.executable, "-c", code], checkout).startswith("True")


def test_the_quantising_demo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    demo = REPOSITORY / "examples" / "digits" / "quantize_demo.py"
    easy = ["--model", str(REPOSITORY / "examples" / "on_device" / "digits_cnn.circle")]
    for arguments, outcome in ((easy, "passed"), (["--plain"], "failed")):
        monkeypatch.setattr(sys, "argv", [str(demo), *arguments])
        with pytest.raises(SystemExit, match=r"^0$"):
            runpy.run_path(str(demo), run_name="__main__")
        assert f"to int8: {outcome}" in capsys.readouterr().out


def test_the_demo(checkout: Path) -> None:
    demo = run([sys.executable, str(REPOSITORY / "examples" / "digits" / "run_demo.py")], checkout)
    assert "cycles" in demo
