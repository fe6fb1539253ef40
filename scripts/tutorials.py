"""The tutorials below ``docs/tutorials``: Markdown whose code runs, as pages, as tests and as notebooks.

    python scripts/tutorials.py NAME     # run one in the working folder; the status is 1 if it prints something else

Blocks of ``python`` share one namespace, blocks of ``sh`` run in the same folder. A block of ``output`` behind one of
them is what it prints; ``...`` in it stands for anything. ``<!-- needs: MODULE -->`` before a block says that it is
left out where the module is not installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>\w+) -->\n)?"
    r"^```(?P<language>python|sh)\n(?P<code>.*?)^```\n"
    r"(?:\n^```output\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Cell:
    """A piece of a tutorial: text, or code with what it prints (None: not said) and the module it needs."""

    language: str
    text: str
    output: str | None = None
    needs: str | None = None


def paths() -> list[Path]:
    """The tutorials; the index is none."""
    return sorted(path for path in FOLDER.glob("*.md") if path.stem != "index")


def cells(text: str) -> Iterator[Cell]:
    """The pieces of a tutorial in order."""
    end = 0
    for match in BLOCK.finditer(text):
        if before := text[end : match.start()].strip():
            yield Cell("markdown", before)
        yield Cell(match["language"], match["code"], match["output"], match["needs"])
        end = match.end()
    if rest := text[end:].strip():
        yield Cell("markdown", rest)


def run(text: str, folder: Path) -> Iterator[tuple[Cell, str]]:
    """Run a tutorial in ``folder``, which becomes the working folder; each code cell with what it printed."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for cell in cells(text):
            if cell.language == "markdown" or (cell.needs and importlib.util.find_spec(cell.needs) is None):
                continue
            printed = _python(cell.text, names) if cell.language == "python" else _shell(cell.text)
            yield cell, printed


def _python(code: str, names: dict[str, Any]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "<tutorial>", "exec"), names)
    return output.getvalue()


def _shell(code: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run = ["sh", "-ec", code]
    done = subprocess.run(
        run, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False, timeout=100
    )
    if done.returncode:
        raise RuntimeError(f"{code}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def matches(expected: str, printed: str) -> bool:
    """Whether ``printed`` is what the tutorial says; runs of blanks count as one, ``...`` as anything."""
    pattern = r"[\s\S]*?".join(re.escape(" ".join(part.split())) for part in expected.split("..."))
    return re.fullmatch(rf"\s*{pattern}\s*".replace(r"\ ", r"\s+"), printed) is not None


def notebook(text: str) -> dict[str, Any]:
    """A tutorial as a notebook (nbformat 4.5)."""
    made = [_notebook_cell(f"cell-{index}", cell) for index, cell in enumerate(cells(text))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _notebook_cell(name: str, cell: Cell) -> dict[str, Any]:
    if cell.language == "markdown":
        return {"cell_type": "markdown", "id": name, "metadata": {}, "source": cell.text}
    source = f"%%sh\n{cell.text}" if cell.language == "sh" else cell.text
    outputs = [] if cell.output is None else [{"output_type": "stream", "name": "stdout", "text": cell.output}]
    return {
        "cell_type": "code",
        "id": name,
        "metadata": {},
        "execution_count": None,
        "source": source.rstrip(),
        "outputs": outputs,
    }


def main() -> int:
    """Run the tutorial that is named, and say where it prints something else than it says."""
    (name,) = sys.argv[1:]
    bad = 0
    for cell, printed in run((FOLDER / f"{name}.md").read_text(), Path.cwd()):
        if cell.output is not None and not matches(cell.output, printed):
            print(f"{cell.text}\nshould print\n\n{cell.output}\nand prints\n\n{printed}", file=sys.stderr)
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
