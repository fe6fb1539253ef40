"""Mutation score: the share of small changes of the package that its tests notice, for each area of the code.

python benchmarks/mutation.py [--count 200] [--seed 1] [--area NAME] [--tests PATH ...] [--resume]

Mutants are drawn with a fixed seed, in each area as many as its lines of code deserve. One copy of the tree holds all
of them, each behind a switch that also records which tests reach it. One process of pytest collects the tests and runs
each mutant in forks until a test fails that passes without it: first all mutants on the test files that name their
modules, then survivors on those of their area and on all others. Once a file has passed, later mutants run only its
tests that reach them. Mutants that run while tests are collected get processes of their own.
``mutation_equivalent.csv`` lists mutants that cannot be noticed, with reasons.

``--resume`` continues an interrupted run, and tries changed test files on the survivors.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import copy
import csv
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("mutation_equivalent.csv")
PLUGIN = "mutation_plugin"  # this file in the copy of the tree, where pytest loads it
LEFT_OUT = ("test/unit/project",)  # checks of the sources, which notice a mutant by its looks

# An area is a list of folders or files of the package; the longest path that fits a file decides.
AREAS = {
    "NPU passes": ("transforms/npu",),
    "quantiser": ("quantizer", "calibration"),
    "circle passes": ("transforms/circle", "transforms/quant"),
    "other passes": ("transforms",),
    "native code": ("transforms/native", "codegen"),
    "kernels": ("runtime/kernels",),
    "operators": ("ops", "dialects", "interpreters"),
    "numerics": ("numerics",),
    "formats": ("formats", "frontend", "editing"),
    "tools": ("tools", "pages"),
    "runtime": ("runtime",),
    "auto": ("runtime/auto",),
    "simulator": ("simulator", "isa", "emitter"),
    "rest": ("",),
}

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
MOST_BYTES = 12 << 30  # of address space of a test process
DEFAULTS = {"bool": "False", "int": "0", "float": "0.0", "str": "''", "list": "[]", "tuple": "()", "dict": "{}"}
Attempt = Callable[[list[pytest.Item]], int]
Key = tuple[str, str, str, str]  # file, function, line before and after
SYMMETRIC = ("min", "max", "isinstance", "issubclass", "hasattr", "cast", "gcd", "lcm")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file: ``text`` replaces the bytes from ``start`` to ``end``."""

    file: str
    line: int
    function: str
    kind: str
    start: int
    end: int
    text: str
    before: str
    after: str
    statement: bool

    @property
    def key(self) -> Key:
        """Identity of a mutant, which survives changes elsewhere in the file."""
        return self.file, self.function, self.before, self.after

    @property
    def area(self) -> str:
        """The area of :data:`AREAS` that the mutant is in."""
        return area_of(self.file.split("/", 1)[1])


def _line_starts(source: bytes) -> list[int]:
    return [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]


class _Finder(ast.NodeVisitor):
    """All mutants of a file."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source = file, source
        self.found: list[Mutant] = []
        self._lines = _line_starts(source)
        self._names: list[str] = []
        self._returns = ""
        self.visit(ast.parse(source))

    def _add(self, kind: str, node: ast.expr | ast.stmt, new: ast.AST | str) -> None:
        start = self._lines[node.lineno - 1] + node.col_offset
        end = self._lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        text = new if isinstance(new, str) else f"({ast.unparse(new)})"
        first, last = self._lines[node.lineno - 1], self._lines[node.end_lineno or node.lineno]
        before = self.source[first:last].decode()
        after = self.source[first:start].decode() + text + self.source[end:last].decode()
        function = ".".join(self._names)
        statement = isinstance(node, ast.stmt)
        lines = " ".join(before.split()), " ".join(after.split())
        self.found.append(Mutant(self.file, node.lineno, function, kind, start, end, text, *lines, statement))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in ("__repr__", "__str__"):
            return
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        returns, self._returns = self._returns, ast.unparse(node.returns) if node.returns else ""
        self._names.append(f"{node.name}()")
        for statement in node.body:
            self.visit(statement)
        self._names.pop()
        self._returns = returns

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in (text := ast.unparse(node.test)) or "__name__" in text:
            return
        self._force(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._force(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._force(test)
        self.generic_visit(node)

    def _force(self, test: ast.expr) -> None:
        self._add("force", test, "True")
        self._add("force", test, "False")

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
            self._add("compare", node, self._with(node, ops=[COMPARISONS[type(node.ops[0])]()]))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
        sides = (node.left, node.right)
        if type(node.op) in ARITHMETIC and not any(isinstance(side, texts) or _is_text(side) for side in sides):
            self._add("arithmetic", node, self._with(node, op=ARITHMETIC[type(node.op)]()))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._add("boolean", node, self._with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And()))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add("not", node, node.operand)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("constant", node, str(not node.value))
        elif isinstance(node.value, int):
            self._add("constant", node, str(node.value + 1))
        elif isinstance(node.value, float):
            self._add("constant", node, repr(node.value * 2 or 1.0))

    def visit_Return(self, node: ast.Return) -> None:
        kind = re.match(r"\w*", self._returns)
        new = DEFAULTS.get(kind[0] if kind else "", "None")
        if node.value is not None and ast.unparse(node.value) != new:
            self._add("return", node.value, new)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and self._names and not _is_logged(node.value):
            self._add("delete", node, "pass")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not isinstance(node.targets[0], (ast.Name, ast.Tuple)):
            self._add("delete", node, "pass")
        if ast.unparse(node.targets[0]) != "__all__":
            self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("delete", node, "pass")
        self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add("delete", node, "pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add("delete", node, "pass")  # what it raises is a message

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func).split(".")[-1]
        if _is_logged(node) or name.endswith("Error") or name == "TypeVar":
            return
        plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
        if plain and len(node.args) > 1 and name not in SYMMETRIC:
            self._add("swap", node, self._with(node, args=[node.args[1], node.args[0], *node.args[2:]]))
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of zip: an invariant
            self.visit(node.value)

    def visit_match_case(self, node: ast.match_case) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave out messages."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave out invariants, which narrow types."""

    @staticmethod
    def _with(node: Any, **fields: Any) -> ast.AST:
        changed: ast.AST = copy.copy(node)
        for name, value in fields.items():
            setattr(changed, name, value)
        return changed


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _is_logged(node: ast.Call) -> bool:
    return re.match(r"(\w+\.)*(_?log|_?logger|logging|warnings)\.", ast.unparse(node.func).lower()) is not None


def area_of(file: str) -> str:
    """Area of a file of the package, named relative to the package."""
    fits = {
        path: name for name, paths in AREAS.items() for path in paths if not path or f"{file}/".startswith(f"{path}/")
    }
    return fits[max(fits, key=len)]


def draw(package: Path, count: int, seed: int) -> list[Mutant]:
    """Draw mutants: areas and files by their lines of code, in a file each kind of mutant as often as the others."""
    rng = random.Random(seed)
    files = {path.relative_to(package).as_posix(): path for path in sorted(package.rglob("*.py"))}
    lines = {name: sum(bool(line.strip()) for line in path.read_text().splitlines()) for name, path in files.items()}
    sizes: Counter[str] = Counter()
    for name, size in lines.items():
        sizes[area_of(name)] += size
    find = cache(lambda name: _Finder(f"{package.name}/{name}", files[name].read_bytes()).found)
    mutants: dict[Key, Mutant] = {}
    for area, share in _shares(sizes, count).items():
        names = [name for name in files if area_of(name) == area]
        wanted = len(mutants) + share
        while len(mutants) < wanted:
            found = find(rng.choices(names, [lines[name] for name in names])[0])
            if found:
                kind = rng.choice(sorted({mutant.kind for mutant in found}))
                mutant = rng.choice([mutant for mutant in found if mutant.kind == kind])
                mutants.setdefault(mutant.key, mutant)
    return list(mutants.values())


def _shares(sizes: Counter[str], count: int) -> dict[str, int]:
    """``count`` divided by size, at least one each, the largest remainders rounded up."""
    exact = {area: count * size / sizes.total() for area, size in sizes.items()}
    shares = {area: max(int(value), 1) for area, value in exact.items()}
    for area in sorted(exact, key=lambda area: exact[area] % 1, reverse=True)[: max(count - sum(shares.values()), 0)]:
        shares[area] += 1
    return {area: shares[area] for area in AREAS if area in shares}


def switched(source: bytes, mutants: list[tuple[int, Mutant]]) -> bytes:
    """The source with all mutants, each behind a switch."""
    places: list[tuple[int, int, int, str]] = []
    for number, mutant in mutants:
        if mutant.statement:
            places.append((mutant.start, 2, 0, f"if not mutation({number}): "))
        else:
            opening = f"({mutant.text} if mutation({number}) else ("
            places += [(mutant.start, 3, -mutant.end, opening), (mutant.end, 0, 0, "))")]
    result = bytearray(source)
    # At one position, ends come first, then statements, then starts of expressions, of which the longest first.
    for at, _, _, text in sorted(places, reverse=True):
        result[at:at] = text.encode()
    return bytes(result)


SWITCH = """
import builtins as _builtins

class _Mutation:
    def __init__(self):
        self.seen = set()
        with open(FOLDER + "/active") as stream:
            self.active = int(stream.read())

    def __call__(self, number):
        if number not in self.seen:
            self.seen.add(number)
            try:
                with open(FOLDER + "/hits", "a") as stream:
                    stream.write(f"{number}\\n")
            except OSError:
                pass
        return number == self.active

_builtins.mutation = _Mutation()
"""


class Run:
    """The tree and the records of one run, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree = folder, folder / "tree"
        self.mutants = [Mutant(**record) for record in json.loads((folder / "mutants.json").read_text())]
        self.reach: dict[str, dict[str, dict[str, Any]]] = {}
        self.items: dict[str, list[pytest.Item]] = defaultdict(list)
        self.failing: set[str] = set()  # tests that fail without a mutant
        for record in _records(folder / "reach.jsonl"):
            self.reach[record["file"]] = record["tests"]
        self.reach = {file: tests for file, tests in self.reach.items() if tests}
        self.results: dict[Key, dict[str, Any]] = {}
        for record in _records(folder / "results.jsonl"):
            self.results[record["file"], record["function"], record["before"], record["after"]] = record

    @staticmethod
    def start(folder: Path, mutants: list[Mutant]) -> None:
        """Copy all tracked files, and put the mutants into the copy."""
        shutil.rmtree(folder, ignore_errors=True)
        tree = folder / "tree"
        listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
        for file in listed.stdout.splitlines():
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / file, tree / file)
        by_file: dict[str, list[tuple[int, Mutant]]] = defaultdict(list)
        for number, mutant in enumerate(mutants):
            by_file[mutant.file].append((number, mutant))
        for file, entries in by_file.items():
            (tree / file).write_bytes(switched((tree / file).read_bytes(), entries))
        start = tree / "odc_mlir/__init__.py"
        before, future, after = start.read_text().partition("from __future__ import annotations\n")
        start.write_text(before + future + SWITCH.replace("FOLDER", repr(str(folder))) + after)
        (folder / "active").write_text("-1")
        (folder / "mutants.json").write_text(json.dumps([asdict(mutant) for mutant in mutants]))

    def test_files(self, paths: list[str]) -> list[str]:
        """Test files below paths, copied to the tree; what has changed has to be recorded again."""
        files = [path.relative_to(REPOSITORY).as_posix() for name in paths for path in _test_files(REPOSITORY / name)]
        files = [file for file in files if not file.startswith(LEFT_OUT)]
        for file in files:
            copied = self.tree / file
            if not copied.exists() or copied.read_bytes() != (REPOSITORY / file).read_bytes():
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / file, copied)
                self._append("reach.jsonl", {"file": file, "tests": None})
        return files

    def _append(self, name: str, record: dict[str, Any]) -> None:
        with (self.folder / name).open("a") as stream:
            stream.write(json.dumps(record) + "\n")

    def survived(self, number: int) -> bool:
        """Whether no test has noticed a mutant so far."""
        return bool(self.results.get(self.mutants[number].key, {}).get("status", "survived") == "survived")

    def try_mutant(self, number: int, files: list[str], limit: float, own: Attempt | None) -> None:
        """Try one mutant on tests and append the result; ``own`` makes processes for it.

        After ``limit`` CPU seconds it counts as survived. A file whose reach is not known yet costs nothing: it is run
        once for all mutants.
        """
        mutant, begun, spent, known = self.mutants[number], time.monotonic(), _cpu_seconds(), 0.0
        tried = dict(self.results.get(mutant.key, {}).get("tried", {}))
        status, killer = "survived", ""
        new = [file for file in files if tried.get(file) != _digest(self.tree / file)]
        step = 12 if own else 1
        for group in (new[at : at + step] for at in range(0, len(new), step)):
            tests = [item for file in group for item in self._chosen(number, file, own is not None)]
            before, is_known = _cpu_seconds(), group[0] in self.reach
            status, killer = self._noticed(number, tests, own)
            known += (_cpu_seconds() - before) * is_known
            tried |= {file: _digest(self.tree / file) for file in group}
            if status != "survived" or known > limit:
                break
        if new:
            reached = sum(number in test["hits"] for tests in self.reach.values() for test in tests.values())
            seconds = round(_cpu_seconds() - spent, 1)
            result = {"status": status, "killer": killer, "reached": reached, "seconds": seconds, "tried": tried}
            self.results[mutant.key] = {**asdict(mutant), **result}
            self._append("results.jsonl", self.results[mutant.key])
            took = f"{seconds:6} s CPU, {time.monotonic() - begun:4.0f} s"
            _say(f"{number:3} {status:8} {took}  {mutant.file}:{mutant.line} {killer[:70]}")

    def _chosen(self, number: int, file: str, early: bool) -> list[pytest.Item]:
        """Tests of a file for a mutant: all if it is unknown which reach it, else those, and the rest of a short file.

        The rest may use what the first ones left in caches.
        """
        items = [item for item in self.items[file] if item.nodeid not in self.failing]
        if early or file not in self.reach:
            return items
        known = {item: self.reach[file].get(item.nodeid, {"hits": [], "seconds": 0}) for item in items}
        hit = sorted((item for item in items if number in known[item]["hits"]), key=lambda item: known[item]["seconds"])
        is_short = hit and sum(test["seconds"] for test in known.values()) < 5
        return hit + [item for item in items if is_short and item not in hit]

    def _noticed(self, number: int, tests: list[pytest.Item], own: Attempt | None) -> tuple[str, str]:
        """Return how a mutant ends on tests, and the test that notices it: one that passes without the mutant."""
        while tests:
            self._activate(number)
            code = own(tests) if own else self._fork(tests, 300, number)
            name = (self.folder / "current").read_text()
            self._activate(-1)
            if code in (0, 5):
                if code == 0 and own is None:
                    self._keep_reach(_file_of(tests[0]))
                break
            item = next((item for item in tests if item.nodeid == name), None)
            if item is None or (self._fork([item], 60, -1) == 0 and self._fails_again(item, number, own)):
                return "timeout" if code == -signal.SIGXCPU else "killed", name or f"exit status {code}"
            self.failing.add(name)
            tests = [other for other in tests if other is not item]
        return "survived", ""

    def _fails_again(self, item: pytest.Item, number: int, own: Attempt | None) -> bool:
        """Repeat a test of whole programs, which may fail on a busy machine."""
        if "/e2e/" not in item.nodeid:
            return True
        self._activate(number)
        code = own([item]) if own else self._fork([item], 300, number)
        self._activate(-1)
        return code not in (0, 5)

    def _keep_reach(self, file: str) -> None:
        """Keep what the tests of a whole file reach, which have just passed."""
        if file not in self.reach:
            self.reach[file] = {record.pop("test"): record for record in _records(self.folder / "part.jsonl")}
            self._append("reach.jsonl", {"file": file, "tests": self.reach[file]})

    def _activate(self, number: int) -> None:
        (self.folder / "active").write_text(str(number))
        (self.folder / "current").write_text("")

    def _fork(self, tests: list[pytest.Item], cpu_seconds: int, number: int) -> int:
        """Run tests in a child process with its own caches and so much CPU time."""
        scratch, part = self.folder / "scratch", self.folder / "part.jsonl"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(exist_ok=True)  # a process that a test left may still write
        part.write_text("")
        process = os.fork()
        if process == 0:
            status = 70
            try:
                os.setsid()
                resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
                resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
                os.environ |= {"ODC_CACHE_DIR": str(scratch / "cache"), "PYTEST_DEBUG_TEMPROOT": str(scratch)}
                if state := getattr(builtins, "mutation", None):
                    state.active = number
                status = _run_tests(tests, self.folder)
            finally:
                os._exit(status)
        _, status = os.waitpid(process, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        return os.waitstatus_to_exitcode(status)

    def report(self) -> None:
        """Print a row per area; write the survivors."""
        equivalent = {tuple(row[:4]) for row in _rows(EQUIVALENT)}
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        survivors = []
        for mutant in self.mutants:
            if mutant.key in self.results:
                status = self.results[mutant.key]["status"]
                if status == "survived":
                    status = "equivalent" if mutant.key in equivalent else status
                    survivors += [(*mutant.key, mutant.line, mutant.kind, self.results[mutant.key]["reached"], status)]
                counts[mutant.area][status] += 1
        counts["all"] = sum(counts.values(), Counter())
        print("| area | mutants | noticed | equivalent | survived | score |\n| --- | --- | --- | --- | --- | --- |")
        for area in (*AREAS, "all"):
            if (found := counts.get(area)) is not None:
                noticed = found["killed"] + found["timeout"]
                score = f"{100 * noticed / max(noticed + found['survived'], 1):.0f} %"
                print(
                    "|",
                    " | ".join(map(str, [area, found.total(), noticed, found["equivalent"], found["survived"], score])),
                    "|",
                )
        with (self.folder / "survivors.csv").open("w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(("file", "function", "before", "after", "line", "kind", "reached by", "status"))
            writer.writerows(survivors)
        left = len(self.mutants) - counts["all"].total()
        print(f"\n{left} mutants have not run; survivors: {self.folder / 'survivors.csv'}")


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines() if path.exists() else ():
        yield json.loads(line)


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as stream:
        return list(csv.reader(stream))[1:]


def _say(text: str) -> None:
    """Print past pytest, which captures what a test writes."""
    with open(os.path.join(os.environ["MUTATION_FOLDER"], "log"), "a") as stream:
        print(text, file=stream, flush=True)


def _file_of(test: pytest.Item) -> str:
    return test.nodeid.split("::")[0]


def _test_files(path: Path) -> list[Path]:
    """Test files below a path: Python, and texts for FileCheck; those of whole programs last, which are slow."""
    if path.is_file():
        return [path]
    found = [*path.rglob("test_*.py"), *(file for file in path.rglob("*.mlir") if "Inputs" not in file.parts)]
    return sorted(found, key=lambda file: ("e2e" in file.parts, file))


def _digest(path: Path) -> int:
    return zlib.crc32(path.read_bytes())


@cache
def _texts(tree: Path) -> list[tuple[str, str, str]]:
    """Name, stem and text of each test file."""
    files = [(path.relative_to(tree).as_posix(), path) for path in _test_files(tree / "test")]
    return [
        (name, path.stem, path.read_text(errors="replace")) for name, path in files if not name.startswith(LEFT_OUT)
    ]


@cache
def near_files(tree: Path, mutant: Mutant) -> list[str]:
    """Test files that name the module of a mutant, its pass or its function, or are named after it; closest first."""
    parts = mutant.file.removesuffix(".py").removesuffix("/__init__").split("/")
    parent, stem, option = ".".join(parts[:-1]), parts[-1].strip("_"), parts[-1].replace("_", "-")
    imported = re.compile(rf"\bfrom {re.escape(parent)} import [^\n]*\b{parts[-1]}\b")
    outer = mutant.function.split(".")[0].strip("()_")
    found = []
    for name, named, text in _texts(tree):
        if name.endswith(".mlir"):
            points = 2 * (option in text) + 2 * (option in named) if "-" in option else 0
        else:
            points = 2 * (".".join(parts) in text or (parent in text and imported.search(text) is not None))
            points += 2 * (f"_{stem}" in named) + (len(outer) > 7 and outer in text)
        if points:
            found.append((-points, len(text), name))
    found.sort()
    return [name for points, _, name in found[:8] if points < -1 or len(found) < 4]


_failed = False


def _run_tests(items: list[pytest.Item], folder: Path) -> int:
    """Run tests up to the first failure, with a record of each in the folder; 1 if one failed."""
    hits = folder / "hits"
    for item, following in zip(items, [*items[1:], None], strict=True):
        if state := getattr(builtins, "mutation", None):
            state.seen.clear()
        hits.write_text("")
        (folder / "current").write_text(item.nodeid)
        begun = _cpu_seconds()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if _failed:
            return 1
        numbers = sorted(set(map(int, hits.read_text().split())))
        record = {"test": item.nodeid, "seconds": round(_cpu_seconds() - begun, 3), "hits": numbers}
        with (folder / "part.jsonl").open("a") as stream:
            stream.write(json.dumps(record) + "\n")
    return 0


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember that a test failed."""
    global _failed
    _failed |= report.failed


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run mutants on the collected tests, in place of the tests alone."""
    run = Run(Path(os.environ["MUTATION_FOLDER"]))
    options = json.loads((run.folder / os.environ["MUTATION_OPTIONS"]).read_text())
    if wanted := set(options["own"]):  # a process for one mutant
        code = _run_tests([item for item in session.items if item.nodeid in wanted], run.folder)
        raise pytest.exit.Exception("tried", returncode=code)
    early = set(builtins.mutation.seen)
    for item in session.items:
        run.items[_file_of(item)].append(item)
    for number, near in options["numbers"]:
        parts = set(run.mutants[number].file.split("/")[1:-1])
        others = sorted(set(run.items) - set(near), key=lambda file: (parts.isdisjoint(file.split("/")), file))
        files = [file for file in near if file in run.items] + ([] if options["near"] else others)

        def own(tests: list[pytest.Item]) -> int:
            names = [item.nodeid for item in tests]
            return _pytest(run, {"own": names}, list(dict.fromkeys(map(_file_of, tests))), 600)

        run.try_mutant(number, files, options["limit"], own if number in early else None)
    return True


def _pytest(run: Run, options: dict[str, Any], files: list[str], cpu_seconds: int = 0) -> int:
    """Run pytest in the tree with this file as a plugin; a process may use so much CPU time (0: any)."""
    environment = {**os.environ, "PYTHONPATH": str(run.tree), "OMP_NUM_THREADS": "1", "ODC_DEFECTS": "error"}
    name = "own" if options["own"] else "options"
    environment |= {"MUTATION_FOLDER": str(run.folder), "MUTATION_OPTIONS": f"{name}.json"}
    (run.folder / f"{name}.json").write_text(json.dumps(options))
    if not options["own"]:
        shutil.copy2(__file__, run.tree / f"{PLUGIN}.py")

    def limit() -> None:
        if cpu_seconds:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))

    flags = ["-p", PLUGIN, "-p", "no:cacheprovider", "-q", "--no-header", "--tb=no"]
    with (run.folder / f"{name}.log").open("w") as stream:
        command = [sys.executable, "-m", "pytest", *flags, *files]
        process = subprocess.Popen(
            command, cwd=run.tree, env=environment, stdout=stream, stderr=stream, preexec_fn=limit
        )
        return process.wait()


def main() -> int:
    """Draw, record, run and report."""
    parser = argparse.ArgumentParser(description="Mutation score of the tests, per area.")
    parser.add_argument("--count", type=int, default=200, help="mutants to draw (200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the drawing (1)")
    parser.add_argument("--area", choices=AREAS, help="run the mutants of one area only")
    parser.add_argument("--tests", nargs="+", default=["test"], metavar="PATH", help="tests to use (test)")
    parser.add_argument("--limit", type=float, default=60, help="CPU seconds of tests per mutant (60)")
    parser.add_argument("--resume", action="store_true", help="continue the run in the folder")
    parser.add_argument("--report", action="store_true", help="only print the table of the run in the folder")
    folder = Path(tempfile.gettempdir()) / "odc-mutation"
    parser.add_argument("--folder", type=Path, default=folder, help=f"tree and results ({folder})")
    options = parser.parse_args()
    print(f"progress: {options.folder / 'log'}", flush=True)
    if not (options.resume or options.report):
        Run.start(options.folder, draw(REPOSITORY / "odc_mlir", options.count, options.seed))
    for near in () if options.report else (True, False):
        run = Run(options.folder)
        tests = run.test_files(options.tests)
        numbers = [
            (number, [file for file in near_files(run.tree, mutant) if file in tests])
            for number, mutant in enumerate(run.mutants)
            if run.survived(number) and options.area in (None, mutant.area)
        ]
        random.Random(options.seed).shuffle(numbers)  # an interrupted run has mutants of all areas
        if near:
            tests = sorted({file for _, files in numbers for file in files})
        settings = {"own": [], "near": near, "limit": options.limit, "numbers": numbers}
        if (tests and numbers) and (code := _pytest(run, settings, tests)):
            print(f"pytest ended with status {code}: see {options.folder / 'options.log'}")
    Run(options.folder).report()
    return 0


if __name__ == "__main__":
    sys.exit(main())
