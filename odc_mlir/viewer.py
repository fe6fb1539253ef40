"""``odc-opt --view``: a page with the changes of each pass and each rewrite.

The page compares printed IR, except locations and bytes of constants. If a module has more lines than
:data:`MOST_LINES`, or a pass more rewrites than :data:`MOST_REWRITES`, the page only counts further changes.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import RewritePattern

from odc_mlir.dialects.circle import ConstOp
from odc_mlir.formats.quantities import count_text
from odc_mlir.pages import charts
from odc_mlir.pages.markup import Figure, Html, Section, folded, joined, tag
from odc_mlir.pages.markup import render as render_page
from odc_mlir.support.locations import op_name, value_name
from odc_mlir.support.text import module_text
from odc_mlir.transforms.common.describe import source_of
from odc_mlir.transforms.common.rewriting import observed, unwrapped

MOST_LINES, MOST_REWRITES, MOST_NODES = 4000, 200, 150
MOST_PLAIN = 200_000  # characters of text about passes; longer text is compressed
_CONTEXT, _LONGEST_LINE = 2, 300
_NO_NAME = re.compile(r"\W+")
_MOST_OF_REWRITE = 60  # limit on lines per rewrite


@dataclass
class Rewrite:
    """An application of a pattern: name and source line, matched operation, and changed text."""

    pattern: str
    source: str
    op: str
    difference: list[str]


@dataclass
class PassRun:
    """One run of a pass: ``before`` and ``after`` are lines of text, ``nodes`` the operators after it."""

    stage: str
    name: str
    before: list[str]
    after: list[str] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    patterns: Counter[str] = field(default_factory=Counter)
    nodes: list[charts.DiagramNode] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether the text changed."""
        return self.before != self.after


class Viewer:
    """Observer of passes and rewrites on one module."""

    def __init__(self, module: ModuleOp) -> None:
        self.module = module
        self.steps: list[PassRun] = []
        self._names: dict[SSAValue, str] = {}
        self._located: dict[str, str] = {}  # first name at each location
        self._last = self._lines()
        self._tried = ""

    @contextmanager
    def watching(self, stage: str, name: str) -> Generator[None]:
        """Record the pass that runs in this block."""
        step = PassRun(stage, name, self._last)
        self.steps.append(step)
        with observed(self):
            yield
        self._last = step.after = self._lines()
        if step.changed:
            step.nodes = list(_nodes(self.module))

    def rewriting(self, op: Operation) -> None:
        """Record the matched operation, since the pattern may erase it."""
        self._tried = f"{op.name} {op_name(op)}"

    def rewrote(self, pattern: RewritePattern) -> None:
        """Record a rewrite, with the change if there are not too many."""
        step = self.steps[-1]
        pattern = unwrapped(pattern)
        name = type(pattern).__name__
        step.patterns[name] += 1
        if len(step.rewrites) < MOST_REWRITES and len(self._last) <= MOST_LINES:
            lines = self._lines()
            changed = difference(self._last, lines)[:_MOST_OF_REWRITE]
            step.rewrites.append(Rewrite(name, source_of(type(pattern)), self._tried, changed))
            self._last = lines

    def _lines(self) -> list[str]:
        self._name_values()
        return module_text(self.module, constants="elide", locations=False, names=self._names).splitlines()

    def _name_values(self) -> None:
        """Name every value: as before, or after the hint, the location, or the operation."""
        values: list[SSAValue] = []
        for op in self.module.walk():
            values += (*op.results, *(arg for region in op.regions for block in region.blocks for arg in block.args))
        self._names = {value: self._names[value] for value in values if value in self._names}
        taken, numbers = set(self._names.values()), defaultdict[str, Iterator[int]](count)
        for value in (value for value in values if value not in self._names):
            owner = value.owner.name.partition(".")[2] if isinstance(value.owner, Operation) else "argument"
            place = value_name(value)
            stem = value.name_hint or self._located.get(place) or "v" + _NO_NAME.sub("_", place or owner)
            tries = (f"{stem}_{number}" if number else stem for number in numbers[stem])
            self._names[value] = next(name for name in tries if name not in taken)
            taken.add(self._names[value])
            self._located |= {place: self._located.get(place, self._names[value])} if place else {}


def difference(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return differing lines, marked ``-``, ``+`` or space, with some context, and ``@@`` between groups."""
    found = difflib.unified_diff(before, after, n=_CONTEXT, lineterm="")
    return [line if not line.startswith("@@") else "@@" for line in found if not line.startswith(("---", "+++"))]


def _nodes(module: ModuleOp) -> Iterator[charts.DiagramNode]:
    """Yield the operators of the first function that has any, each with the operators that feed it."""
    blocks = (block for op in module.body.block.ops for region in op.regions for block in region.blocks)
    block = next((found for found in blocks if len(found.ops) > 1), None)
    if block is None:
        return
    places: dict[Operation, int] = {}
    for op in block.ops:
        if isinstance(op, ConstOp):
            continue
        feeding = [places[value.owner] for value in op.operands if value.owner in places]
        places[op] = len(places)
        yield charts.DiagramNode(op.name.partition(".")[2], op_name(op), tuple(feeding))


def render(name: str, views: Sequence[Viewer]) -> str:
    """Return the page about all modules of one input."""
    steps = [step for view in views for step in view.steps]
    changing = sum(step.changed for step in steps)
    growth = f"{count_text(len(steps[0].before))} → {count_text(len(steps[-1].after))}" if steps else "0"
    figures = [
        Figure("passes", count_text(len(steps)), f"{count_text(changing)} with changes"),
        Figure("rewrites", count_text(sum(sum(step.patterns.values()) for step in steps)), "by patterns"),
        Figure("lines of IR", growth, "before and after"),
    ]
    shown = {index: _step(step) for index, step in enumerate(steps, start=1) if step.changed}
    if sum(map(len, shown.values())) > MOST_PLAIN:
        shown = {index: folded("changes of the pass", content, packed=True) for index, content in shown.items()}
    sections = [
        Section(f"{index}. {steps[index - 1].name}", content, _lead(steps[index - 1]))
        for index, content in shown.items()
    ]
    unchanged = [f"{index}. {step.name}" for index, step in enumerate(steps, start=1) if not step.changed]
    sections.append(Section("Passes without changes", tag("p", ", ".join(unchanged)) if unchanged else Html("")))
    note = "without bytes of constants and locations"
    return render_page(f"Passes over {Path(name).name}", figures, sections, note=note)


def _lead(step: PassRun) -> str:
    counted = ", ".join(f"{number} by {name}" for name, number in step.patterns.most_common())
    return f"Stage {step.stage}" + (f"; rewrites: {counted}." if counted else ".")


def _step(step: PassRun) -> Html:
    shown = charts.graph(step.nodes[:MOST_NODES], title=f"operators after {step.name}")
    left = len(step.nodes) - MOST_NODES
    graph = tag("div", shown, tag("p", f"and {count_text(left)} more") if left > 0 else "")
    rewrites = []
    for item in step.rewrites:
        title = joined((tag("strong", item.pattern), f" at {item.op.strip()}, ", tag("code", item.source)))
        rewrites.append(tag("details", tag("summary", title), _text(item.difference)))
    return tag("div", graph, tag("div", *rewrites, _whole(step)), class_="beside")


def _whole(step: PassRun) -> Html:
    if max(len(step.before), len(step.after)) > MOST_LINES:
        return tag("p", f"{count_text(len(step.before))} lines became {count_text(len(step.after))}.")
    summary = tag("summary", "all changes of the pass")
    opened = None if step.rewrites else "open"
    return tag("details", summary, _text(difference(step.before, step.after)), open=opened)


def _text(lines: Iterable[str]) -> Html:
    kinds, found = {"+": "added", "-": "removed", "@": "note"}, []
    for line in lines:
        shown = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …"
        found += [tag("span", shown, class_=kinds.get(line[:1]), title=line if shown != line else None), "\n"]
    return tag("pre", *found, class_="difference")
