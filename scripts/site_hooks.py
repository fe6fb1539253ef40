"""What the site has beyond the files below ``docs``: hooks of mkdocs, see ``mkdocs.yml``.

- Pages for documents that stand elsewhere in the repository: README.md is the start.
- A page for each public name of the package, whose text is its docstring.
- A link from each tutorial to its notebook.
- The reference of passes, from their docstrings.
- Links to files that are no pages of the site become plain text.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import generate_docs

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
MODULES = (
    "odc_mlir",
    "odc_mlir.errors",
    "odc_mlir.samples",
    "odc_mlir.runtime",
    "odc_mlir.runtime.onert_session",
    "odc_mlir.plugins.codegen",
    "odc_mlir.simulator",
)
"""Modules whose names are the interface for users; a page each, and one for every name of theirs."""


def pages_of_repository() -> dict[str, Path]:
    """Page -> document outside ``docs`` that it shows."""
    pages = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
    pages["benchmarks.md"] = "benchmarks/README.md"
    pages |= {
        f"examples/{path.parent.name}.md": str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("examples/*/README.md"))
    }
    return {page: ROOT / source for page, source in pages.items()}


def public_names(module: str) -> list[str]:
    """Names of a module that are meant for users: those in ``__all__``, else what it defines without underscore."""
    file = ROOT.joinpath(*module.split("."))
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    body = ast.parse(file.read_text()).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return sorted(name for name in names if not name.startswith("__"))
    found = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return sorted(name for name in found if not name.startswith("_"))


def python_pages() -> Iterator[tuple[str, str]]:
    """Path and Markdown of the pages about Python: a list, and a page for each name."""
    lines = ["# Python", "", "What `import odc_mlir` and its public modules offer.", ""]
    for module in MODULES:
        lines += [f"## `{module}`", ""]
        for name in public_names(module):
            page = f"{module}.{name}.md"
            lines.append(f"- [`{name}`]({page})")
            yield f"python/{page}", f"# {name}\n\n::: {module}.{name}\n"
        lines.append("")
    yield "python/index.md", "\n".join(lines)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file below ``docs`` holds."""
    from mkdocs.structure.files import File

    made = {page: source.read_text() for page, source in pages_of_repository().items()}
    made |= dict(python_pages())
    made["passes.md"] = generate_docs.pass_reference()
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links lead to pages of the site; what is none keeps its text only."""
    uri = page.file.src_uri
    source = pages_of_repository().get(uri, ROOT / "docs" / uri)
    pages = {path: page for page, path in pages_of_repository().items()}

    def link(match: re.Match[str]) -> str:
        text, target = match.groups()
        name, mark, anchor = target.partition("#")
        if not name or re.match(r"[a-z]+:", target):
            return match[0]
        place = Path(os.path.normpath(source.parent / name))
        docs = ROOT / "docs"
        there = pages.get(place) or (place.relative_to(docs).as_posix() if place.is_relative_to(docs) else None)
        if there is None or files.get_file_from_path(there) is None:
            return text
        return f"[{text}]({posixpath.relpath(there, posixpath.dirname(uri) or '.')}{mark}{anchor})"

    if uri.startswith("tutorials/") and not uri.endswith("index.md"):
        stem = Path(uri).stem
        markdown = f"{markdown}\n\nThis page [as a notebook]({stem}.ipynb)."
    return LINK.sub(link, markdown)
