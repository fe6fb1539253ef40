"""Rooms of passes hold nothing but passes, and each is documented and has a lit file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from xdsl.passes import ModulePass

from helpers.lit_runner import run_file, run_lines
from helpers.source import PACKAGE, REPOSITORY, package_files, tree
from odc_mlir import transforms
from odc_mlir.transforms import NAMES
from odc_mlir.transforms.circle.rewrites.table import rules
from odc_mlir.transforms.common.describe import options_of
from odc_mlir.transforms.common.rewriting import PatternPass, RewriteCounts, observed

_PREFIXES = re.compile(r"--check-prefix(?:es)?[= ]([\w,-]+)")
ROOM_FOLDER = PACKAGE / "transforms"


def test_every_room_is_known() -> None:
    rooms = {path.name for path in ROOM_FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == {*transforms.ROOMS, "common"}
    assert [path.name for path in ROOM_FOLDER.glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize("name", transforms.NAMES)
def test_every_file_of_a_room_is_a_pass_of_its_name(name: str) -> None:
    """Helpers lie in the folders below the rooms."""
    found = transforms.load(name)
    assert issubclass(found, ModulePass)
    assert found.name == name


@pytest.mark.parametrize("name", transforms.NAMES)
def test_a_pass_shows_what_it_does_and_a_lit_file_runs_it(name: str) -> None:
    module = ast.parse((ROOM_FOLDER / transforms.room_of(name) / f"{name.replace('-', '_')}.py").read_text())
    text = ast.get_docstring(module) or ""
    assert "After" in text or "hanges nothing" in text, f"{name}: its module does not say what the IR is after it"
    files = (REPOSITORY / "test" / "filecheck").rglob("*.mlir")
    texts = [path.read_text() for path in files if path.stem.startswith(name) or name in path.read_text()]
    assert texts, f"{name}: no lit file runs it"
    assert any(looks_at(text) for text in texts), f"{name}: no lit file that runs it checks anything"


PATTERN_PASSES = {name: kind for name in transforms.NAMES if issubclass(kind := transforms.load(name), PatternPass)}


def test_every_pass_that_applies_patterns_lists_them() -> None:
    applying = re.compile(r"\b(apply_patterns|apply_patterns_to|apply_conversion|PatternRewriteWalker)\b")
    paths = {name: ROOM_FOLDER / transforms.room_of(name) / f"{name.replace('-', '_')}.py" for name in transforms.NAMES}
    missing = [name for name, path in paths.items() if applying.search(path.read_text()) and name not in PATTERN_PASSES]
    assert not missing, f"derive {', '.join(missing)} from PatternPass"


@pytest.mark.parametrize("name", PATTERN_PASSES)
def test_the_lit_files_of_a_pass_apply_each_of_its_patterns(name: str, tmp_path: Path) -> None:
    """Lit files are named after the pass that they test."""
    applied = RewriteCounts()
    with observed(applied):
        for path in sorted((REPOSITORY / "test" / "filecheck" / "transforms").rglob(f"{name}*.mlir")):
            run_file(path, tmp_path)
    missing = [pattern.__name__ for pattern in PATTERN_PASSES[name].patterns() if pattern not in applied.counts]
    assert not missing, f"{name}: no lit file applies {', '.join(missing)}"


def test_every_pattern_says_what_it_rewrites() -> None:
    """Own docstrings: not those of a base, and not the ones that dataclasses make up."""
    classes = {item for name in PATTERN_PASSES for item in PATTERN_PASSES[name].patterns()}
    made_up = [item.__name__ for item in classes if (item.__doc__ or "").startswith(f"{item.__name__}(")]
    silent = [*made_up, *(item.__name__ for item in classes if not item.__doc__)]
    assert not silent, f"patterns without a docstring: {', '.join(silent)}"


@pytest.mark.parametrize("name", transforms.NAMES)
def test_every_option_says_what_it_does(name: str) -> None:
    silent = [option.name for option in options_of(transforms.load(name)) if not option.text]
    assert not silent, f"{name}: no string below the field of {', '.join(silent)}"


def looks_at(text: str) -> bool:
    """Whether a lit file expects something: a line for filecheck with one of its prefixes, or an error."""
    lines = run_lines(text)
    prefixes = [prefix for line in lines for prefix in _PREFIXES.findall(line)] or ["CHECK"]
    found = "|".join(prefix for names in [*prefixes, "CHECK"] for prefix in map(re.escape, names.split(",")))
    if any("filecheck" in line for line in lines) and re.search(rf"^\s*//\s*(?:{found})(?:-[A-Z]+)*:", text, re.M):
        return True
    return any("--verify-diagnostics" in line for line in lines) and "// expected-" in text


LIT_FILES = sorted((REPOSITORY / "test" / "filecheck").rglob("*.mlir"))


@pytest.mark.parametrize("path", LIT_FILES, ids=lambda path: path.stem)
def test_every_lit_file_checks_something(path: Path) -> None:
    assert looks_at(path.read_text()), f"{path.name}: no line of it is one that filecheck looks for"


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        ("// RUN: odc-opt %s | filecheck %s\n// CHECK-NEXT: x", True),
        ("// RUN: odc-opt %s \\\n// RUN:   | filecheck %s --check-prefix=A\n// A: x", True),
        ("// RUN: odc-opt %s --verify-diagnostics\n// expected-error {{x}}", True),
        ("// RUN: odc-opt %s | filecheck %s", False),
        ("// RUN: odc-opt %s | filecheck %s --check-prefix A\n// B: x", False),
        ("// RUN: odc-opt %s\n// CHECK: x", False),
    ],
)
def test_a_lit_file_without_expectations_is_noticed(text: str, looks: bool) -> None:
    assert looks_at(text) is looks


@pytest.mark.parametrize("name", rules())
def test_a_lit_file_has_a_function_named_after_each_rewrite(name: str) -> None:
    files = (REPOSITORY / "test" / "filecheck" / "transforms").glob("circle-optimize*.mlir")
    shown = [path for path in files if f"// CHECK-LABEL: func.func @{name}(" in path.read_text()]
    assert shown, f"{name}: no lit file has a function of that name"
    runs = [re.search(r"rewrites=([\w,]+)", path.read_text()) for path in shown]
    assert any(run is not None and name in run[1].split(",") for run in runs), f"{name}: its file does not ask for it"


def _orders(module: ast.Module) -> list[int]:
    """Lines that put passes in order: a sequence of pass names, or of new passes, or passes applied one by one."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Tuple | ast.List):
            names = [item.value for item in node.elts if isinstance(item, ast.Constant) and item.value in NAMES]
            made = [item for item in node.elts if isinstance(item, ast.Call) and _names_a_pass(item.func)]
            if len(names) > 1 or len(made) > 1:
                found.append(node.lineno)
        elif isinstance(node, ast.FunctionDef):
            applied = [
                inner
                for inner in ast.walk(node)
                if isinstance(inner, ast.Call)
                and isinstance(inner.func, ast.Attribute)
                and inner.func.attr == "apply"
                and isinstance(inner.func.value, ast.Call)
                and _names_a_pass(inner.func.value.func)
            ]
            if len(applied) > 1:
                found.append(node.lineno)
    return found


def _names_a_pass(node: ast.expr) -> bool:
    return ast.unparse(node).rpartition(".")[2].endswith(("Pass", "_pass"))


@pytest.mark.xdist_group("source")
def test_only_the_pipelines_put_passes_in_order() -> None:
    found = {path.relative_to(PACKAGE).as_posix(): lines for path in package_files() if (lines := _orders(tree(path)))}
    assert set(found) == {"pipelines.py"}, found


@pytest.mark.parametrize(
    "source",
    [
        'ORDER = ("canonicalize-unused", "circle-simplify", "circle-infer-shapes")',
        "run([CircleSimplifyPass(), CircleInferShapesPass()])",
        "def f(m):\n    APass().apply(c, m)\n    BPass().apply(c, m)\n",
    ],
)
def test_orders_are_found(source: str) -> None:
    assert _orders(ast.parse(source))
