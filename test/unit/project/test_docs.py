"""The scripts that check and generate documentation find what they should."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_docs
import code_references
import generate_docs
from helpers.data import REPOSITORY
from odc_mlir.dialects.circle_options import PAIRS, SHORT_NAMES


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text("# One Title: `code`\n\n## Second\n")
    return path


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("[a](page.md) [b](page.md#second) [c](#one-title-code) [d](https://example.com)", []),
        ("[a](other.md)", ["no such file: other.md"]),
        ("[a](page.md#third)", ["no such heading: page.md#third"]),
    ],
)
def test_links(text: str, problems: list[str], page: Path) -> None:
    assert list(check_docs.bad_links(page, text)) == problems


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("`scripts/check lint` and `test/unit/<room>/` and `docs/*.md`, `model.circle`", []),
        ("`scripts/chekc`", ["no such file: scripts/chekc"]),
    ],
)
def test_paths(text: str, problems: list[str]) -> None:
    assert list(check_docs.bad_paths(text)) == problems


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("```sh\nodc-opt a.circle --stage npu -t mlir  # --no-such\nscripts/demo\n```\n", []),
        ("```sh\nodc-opt a.mlir --npu-choose-tiles=x=1\n```\n", []),
        ("```sh\nodc-opt a.circle \\\n  --no-such\n```\n", ["odc-opt has no --no-such"]),
        ("```sh\nscripts/chekc\n```\n", ["no such file: scripts/chekc"]),
        ("```python\nscripts/chekc\n```\n", []),
    ],
)
def test_commands(text: str, problems: list[str]) -> None:
    assert list(check_docs.bad_commands(text)) == problems


def test_every_document_is_looked_at() -> None:
    names = {str(path.relative_to(REPOSITORY)) for path in check_docs.documents()}
    assert {"README.md", "CONTRIBUTING.md", "docs/pipeline.md", "docs/design/README.md"} <= names


def test_generated_parts_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(generate_docs.SECTIONS, "numbers", lambda: "1 2 3")
    page = "before\n<!-- generated: numbers -->\nold\n<!-- end -->\nafter\n"
    new = generate_docs.updated(page)
    assert new == "before\n<!-- generated: numbers -->\n\n1 2 3\n\n<!-- end -->\nafter\n"
    assert generate_docs.updated(new) == new


def test_tables_escape_bars() -> None:
    assert generate_docs.table(("a",), [("x|y",)]) == "| a |\n| --- |\n| x\\|y |"


def test_docstrings_become_markdown() -> None:
    text = "``a-pass``: does.\n\nBefore::\n\n    %1 = x\n\n    %2 = y\n\nAfter ``%1``::\n\n    z"
    assert generate_docs.markdown(text.removeprefix("``a-pass``: ")) == (
        "Does.\n\nBefore:\n\n```mlir\n%1 = x\n\n%2 = y\n```\n\nAfter `%1`:\n\n```mlir\nz\n```\n"
    )


CODE = """
import numpy as np
from odc_mlir.errors import OdcError
LIMIT = 1
class Tile:
    rows: int = 0
    def area(self) -> int:
        self.seen = True
        return 0
"""


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (":class:`Tile` :func:`Tile.area` :func:`~area` :attr:`rows` :attr:`seen` :data:`LIMIT` :class:`OdcError`", []),
        (":func:`np.sum` :func:`numpy.sum` :mod:`odc_mlir.errors` :class:`odc_mlir.errors.OdcError`", []),
        (":func:`read_program`", ["no such name: read_program"]),
        ("see odc_mlir.transforms.npu.schedule.reader", ["no such name: odc_mlir.transforms.npu.schedule.reader"]),
        (":func:`odc_mlir.errors.printible`", ["no such name: odc_mlir.errors.printible"]),
    ],
)
def test_references_in_docstrings(text: str, problems: list[str], tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(f'"""{text}"""\n{CODE}')
    assert list(code_references.bad_roles(file)) == problems


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("`odc_mlir.compile` and `odc_mlir.errors.OdcError` in `compiler.py`", []),
        ("`odc_mlir.errors.Oops`, `reader_of_nothing.py`", ["odc_mlir.errors.Oops", "reader_of_nothing.py"]),
        ("```python\nodc_mlir.no_such()\n```\n", []),
    ],
)
def test_references_in_documents(text: str, problems: list[str]) -> None:
    assert [problem.rpartition(": ")[2] for problem in code_references.bad_names(text)] == problems


def test_the_map_of_folders() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    assert list(code_references.bad_map(text)) == []
    changed = text.replace("  ops/  ", "  opps/  ")
    assert list(code_references.bad_map(changed)) == [
        "the map names odc_mlir/opps/, which does not exist",
        "the map leaves out odc_mlir/ops/",
    ]
    assert list(code_references.bad_map("no map")) == ["there is no map of folders"]


def test_the_page_of_operators_says_how_text_names_properties() -> None:
    text = " ".join((REPOSITORY / "docs" / "operators.md").read_text().split())
    for name, (first, second) in PAIRS.items():
        assert f"`{first}` and `{second}`: `{name}" in text
    for field, name in SHORT_NAMES.items():
        assert f"`{field}`: `{name}`" in text
