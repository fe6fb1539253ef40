"""Parts of ``odc-opt``: passes to run, help, printed IR, timing, and ``--verify-diagnostics``.

A comment such as ``// expected-error @below {{scale is inf}}`` in the input expects an error with the text in braces.
``@below``, ``@above``, ``@+2`` or ``@-1`` gives the error's line. The default is the comment's line. ``@unknown``
expects an error that has no line.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from odc_mlir.errors import ModelError, OdcError
from odc_mlir.tools.common import write_crash_file
from odc_mlir.tools.files import add_switch

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Operation
    from xdsl.passes import ModulePass

    from odc_mlir.pipelines import StagedPass
    from odc_mlir.plugins.universes import Addition
    from odc_mlir.transforms.common.rewriting import RewriteCounts


_WIDTH = 28


def pass_names() -> tuple[str, ...]:
    """Return the names of all passes, ours first."""
    from xdsl.transforms import get_all_passes

    from odc_mlir import pipelines
    from odc_mlir.plugins.universes import additions

    return (*pipelines.ordered_passes(), *sorted(get_all_passes()), *sorted(additions("passes")))


def pass_list() -> Iterator[str]:
    """Yield the lines of --list-passes: passes with options, ours in compiler order, then xDSL's, then plugins'."""
    from xdsl.transforms import get_all_passes

    from odc_mlir import pipelines, transforms
    from odc_mlir.plugins.universes import additions

    yield "passes of odc-mlir:"
    for name in pipelines.ordered_passes():
        yield from _entry(name, transforms.load(name))
    yield ""
    yield "passes of xDSL:"
    for name, load in sorted(get_all_passes().items()):
        yield from _entry(name, load())
    for package, members in groupby(sorted(additions("passes").items(), key=_package), key=_package):
        yield ""
        yield f"passes of {package}:"
        for name, added in members:
            yield from _entry(name, added.load())


def _package(item: tuple[str, Addition]) -> str:
    return item[1].package


def _entry(name: str, kind: type[ModulePass]) -> Iterator[str]:
    from odc_mlir.transforms.common.describe import options_of, summary_of

    yield f"  {name:{_WIDTH}} {summary_of(kind)}".rstrip()
    for option in options_of(kind):
        default = "" if option.default is None else f"={option.default}"
        yield f"      {option.name + default:{_WIDTH - 4}} {option.text}".rstrip()


def pattern_list(counts: Mapping[str, RewriteCounts] | None) -> Iterator[str]:
    """Yield a line for each pass and for each pattern of the pass: name, source, summary.

    ``counts``: numbers of rewrites by pass. If given, list only these passes, with the numbers.
    """
    from odc_mlir import pipelines
    from odc_mlir.plugins.universes import additions
    from odc_mlir.transforms.common.describe import first_line_of, source_of
    from odc_mlir.transforms.common.rewriting import PatternPass

    for name in (*pipelines.ordered_passes(), *additions("passes")) if counts is None else counts:
        kind = pipelines.find_pass(name)
        if not issubclass(kind, PatternPass):
            continue
        yield name
        for pattern in kind.patterns():
            count = "" if counts is None else f"{counts[name].counts[pattern]:6} "
            yield f"  {count}{pattern.__name__:{_WIDTH}} {source_of(pattern)}  {first_line_of(pattern)}"


def pass_help(name: str) -> Iterator[str]:
    """Yield the help of a pass: summary, IR before and after, rejected IR, options. Raise OptionError."""
    from odc_mlir import pipelines
    from odc_mlir.transforms.common.describe import options_of, text_of

    kind = pipelines.find_pass(name)
    every = (*pipelines.STAGES, *pipelines.NATIVE_STAGES)
    stages = [stage.name for stage in every if any(spec.name == name for spec in stage.specs)]
    text = text_of(kind)
    yield name + (f" (stage {', '.join(stages)})" if stages else "")
    yield ""
    yield (text[:1].upper() + text[1:]).replace("``", "`")
    if options := options_of(kind):
        yield ""
        yield "options:"
        for option in options:
            default = "must be given" if option.default is None else f"default {option.default}"
            yield f"  {option.name} ({option.type}, {default})"
            yield f"      {option.text}"


def text_of(item: ModulePass) -> str:
    """Return the argument of -p that runs the pass."""
    from odc_mlir.pipelines import StageWithoutPasses

    return item.stage if isinstance(item, StageWithoutPasses) else str(item.spec())


def requested(arguments: argparse.Namespace) -> Iterator[StagedPass]:
    """Yield the passes to run, except ``--before``. Raises OdcError for wrong names, options, reproducers."""
    from odc_mlir import pipelines
    from odc_mlir.transforms.partition.odc_set_target import OdcSetTargetPass

    chosen = [] if arguments.target is None else [OdcSetTargetPass(arguments.target)]
    for kind, text in _words(arguments):
        if kind == "stage":
            yield from pipelines.passes_until(text, options=chosen)
            continue
        if kind == "pass":
            name, given, options = text.partition("=")
            text = f"{name}{{{options}}}" if given else name
        for stage, item in pipelines.passes_of(text):
            yield stage, chosen[0] if chosen and item == OdcSetTargetPass() else item


def _words(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    if arguments.run_reproducer:
        match = _RUN.match(Path(arguments.input).read_text())
        if match is None:
            raise ModelError("this is not a reproducer: it does not start with its RUN line", location=arguments.input)
        yield "pipeline", match["pipeline"]
    yield from arguments.steps


def idle_print_options(arguments: argparse.Namespace, passes: Sequence[StagedPass]) -> Iterator[str]:
    """Yield the options that would print IR before or after a pass that does not run."""
    running = {item.name for _, item in passes}
    for when in ("before", "after"):
        for name in getattr(arguments, f"print_ir_{when}"):
            if name not in running:
                yield f"--print-ir-{when}={name}"


_COMMENT = re.compile(r"expected-(\w+)\s*(@(?:unknown|above|below|[+-]\d+))?\s*\{\{(.*?)\}\}")
_START = re.compile(r"expected-(error|warning|note|remark)")
_LINE = re.compile(r":(\d+):\d+$")


@dataclass(frozen=True, slots=True)
class Expected:
    """Expectation of the comment in ``line``. ``about``: line of the error, None if unknown."""

    kind: str
    line: int
    about: int | None
    text: str


def expectations(text: str, first_line: int) -> list[Expected]:
    """Parse the expectations in comments of ``text``, which begins at ``first_line`` of the file."""
    found: list[Expected] = []
    for number, line in enumerate(text.split("\n"), first_line):
        for match in _COMMENT.finditer(line):
            kind, place, wanted = match.groups()
            steps = {None: 0, "@above": -1, "@below": 1}
            unknown = place == "@unknown"
            about = None if unknown else number + (steps[place] if place in steps else int(place[1:]))
            found.append(Expected(kind, number, about, wanted))
        if len(_START.findall(line)) != len(_COMMENT.findall(line)):
            found.append(Expected("malformed", number, None, line.strip()))
    return found


def unexpected(expected: list[Expected], errors: list[OdcError], name: str) -> list[str]:
    """Return a line for each unexpected error, and for each expected error that did not occur."""
    left, lines = list(expected), []
    for error in errors:
        place = _LINE.search(error.location or "")
        about, text = (int(place[1]) if place else None), str(error)
        match = next((e for e in left if e.kind == "error" and e.about == about and e.text in text), None)
        if match is not None:
            left.remove(match)
        else:
            lines.append(f"{name}{'' if about is None else f':{about}'}: unexpected error: {text}")
    for item in left:
        if item.kind == "malformed":
            lines.append(f"{name}:{item.line}: no expectation: {item.text}; write expected-error @+N {{{{text}}}}")
        else:
            lines.append(f"{name}:{item.line}: expected {item.kind} {item.text!r} was not produced")
    return lines


_RUN = re.compile(r"// RUN: odc-opt %s -p '(?P<pipeline>[^\n]*)'\n")


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this module."""
    watch = parser.add_argument_group("printing IR and timing, on stderr")
    for when in ("before", "after"):
        watch.add_argument(
            f"--print-ir-{when}", action="append", default=[], metavar="PASS", help=f"print the IR {when} this pass"
        )
        watch.add_argument(f"--print-ir-{when}-all", action="store_true", help=f"print the IR {when} each pass")
    add_switch(watch, "--print-ir-after-change", "print changed IR after all passes, or those of --print-ir-after")
    # xDSL's name for --print-ir-after-all.
    watch.add_argument("--print-between-passes", action="store_true", help=argparse.SUPPRESS)
    text = "print CPU time as a tree, longest first"
    watch.add_argument(*("--timing", "--time-passes"), dest="timing", action="store_true", help=text)


@dataclass
class Timing:
    """Tree of CPU times by named part."""

    name: str
    seconds: float = 0.0
    parts: list[Timing] = field(default_factory=list)
    running: list[Timing] = field(default_factory=list)

    @contextmanager
    def part(self, name: str) -> Generator[None]:
        """Time a part of the running part. A part with the same name as the previous part continues it."""
        parts = (self.running[-1] if self.running else self).parts
        if not parts or parts[-1].name != name:
            parts.append(Timing(name))
        self.running.append(parts[-1])
        start = time.process_time()
        try:
            yield
        finally:
            self.running.pop().seconds += time.process_time() - start

    def lines(self, whole: float | None = None, indent: int = 0) -> Iterator[str]:
        """Yield a line for this part and for every inner part, longest first, with percent of the whole."""
        whole = self.seconds if whole is None else whole
        percent = 100 * self.seconds / whole if whole else 0.0
        yield f"{self.seconds:10.4f} s {percent:5.1f} %  {'  ' * indent}{self.name}"
        for part in sorted(self.parts, key=lambda part: -part.seconds):
            yield from part.lines(whole, indent + 1)


class IrPrinter:
    """Printer of IR to stderr before and after the passes in the options."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.before: Sequence[str] = arguments.print_ir_before
        self.after: Sequence[str] = arguments.print_ir_after
        self.before_all: bool = arguments.print_ir_before_all
        self.after_all: bool = arguments.print_ir_after_all or arguments.print_between_passes
        self.only_changes: bool = arguments.print_ir_after_change
        self.generic: bool = arguments.print_op_generic
        self._last: dict[str, str] = {}

    def start(self, item: ModulePass, module: ModuleOp) -> None:
        """Print before the pass ``item``."""
        wanted = self.before_all or item.name in self.before
        texts = self._texts(item, module) if wanted or self.only_changes else {}
        self._last = texts
        if wanted:
            for place, text in texts.items():
                self._show(f"IR before {item.name}{place}:", text)

    def end(self, item: ModulePass, module: ModuleOp) -> None:
        """Print after the pass ``item``."""
        wanted = self.after_all or item.name in self.after or (self.only_changes and not self.after)
        if not wanted:
            return
        for place, text in self._texts(item, module).items():
            title = f"IR after {item.name}{place}:"
            if self.only_changes and text == self._last.get(place):
                print(f"{title} no change", file=sys.stderr)
            else:
                self._show(title, text)

    def _texts(self, item: ModulePass, module: ModuleOp) -> dict[str, str]:
        """Return the texts to print by suffix of the title: for a pass on programs each program, else the module."""
        from odc_mlir.dialects.npu_program import programs
        from odc_mlir.support.text import module_text
        from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPass

        shown: dict[str, Operation] = {"": module}
        if isinstance(item, ProgramPass):
            shown = {f" on {program.name} @{name}": program for name, program in programs(module).items()}
        return {
            place: module_text(op, constants="elide", generic=self.generic, locations=False)
            for place, op in shown.items()
        }

    @staticmethod
    def _show(title: str, text: str) -> None:
        print(title, file=sys.stderr)
        sys.stderr.write(text)


def write_ir_reproducer(module: ModuleOp, pipeline: str, trace: str) -> str | None:
    """Write a file for ``odc-opt --run-reproducer``: the IR before the passes of ``pipeline``, and the pipeline.

    The first line is a lit RUN line. Return its path, or None on failure.
    """
    from odc_mlir.support.text import module_text

    comment = "".join(f"// {line}\n" for line in trace.splitlines())
    text = f"// RUN: odc-opt %s -p '{pipeline}'\n{comment}{module_text(module, constants='known')}"
    return write_crash_file("odc-opt", ".mlir", text)
