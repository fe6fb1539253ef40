"""Observation of passes in ``odc-opt``: IR before and after them, their times, and reproducers of failures."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Operation
    from xdsl.passes import ModulePass

_RUN = re.compile(r"// RUN: odc-opt %s -p '(?P<pipeline>[^\n]*)'\n")


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this module."""
    watch = parser.add_argument_group("printing IR and timing, on stderr")
    for when in ("before", "after"):
        watch.add_argument(
            f"--print-ir-{when}", action="append", default=[], metavar="PASS", help=f"print the IR {when} this pass"
        )
        watch.add_argument(f"--print-ir-{when}-all", action="store_true", help=f"print the IR {when} each pass")
    watch.add_argument(
        "--print-ir-after-change",
        action="store_true",
        help="print the IR after passes that changed it, of all or of PASS",
    )
    watch.add_argument(
        "--print-ir-module-scope",
        action="store_true",
        help="print the whole module around passes on npu.program, instead of only the programs",
    )
    watch.add_argument(
        "--print-between-passes", action="store_true", help=argparse.SUPPRESS
    )  # xDSL's name of after-all
    watch.add_argument(
        *("--timing", "--time-passes"),
        dest="timing",
        action="store_true",
        help="print CPU time as a tree, longest first",
    )


@dataclass
class Timing:
    """Tree of CPU times by named part."""

    name: str
    seconds: float = 0.0
    parts: list[Timing] = field(default_factory=list)

    @contextmanager
    def part(self, name: str) -> Generator[Timing]:
        """Time a part; a part with the same name as the previous one continues it."""
        if not self.parts or self.parts[-1].name != name:
            self.parts.append(Timing(name))
        part = self.parts[-1]
        start = time.process_time()
        try:
            yield part
        finally:
            part.seconds += time.process_time() - start

    def lines(self, whole: float | None = None, indent: int = 0) -> Iterator[str]:
        """Return a line for this and each part, longest first, with percent of the whole."""
        whole = self.seconds if whole is None else whole
        percent = 100 * self.seconds / whole if whole else 0.0
        yield f"{self.seconds:10.4f} s {percent:5.1f} %  {'  ' * indent}{self.name}"
        for part in sorted(self.parts, key=lambda part: -part.seconds):
            yield from part.lines(whole, indent + 1)


class IrPrinter:
    """Printer of IR to stderr around the passes that the options name."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.before: Sequence[str] = arguments.print_ir_before
        self.after: Sequence[str] = arguments.print_ir_after
        self.before_all: bool = arguments.print_ir_before_all
        self.after_all: bool = arguments.print_ir_after_all or arguments.print_between_passes
        self.only_changes: bool = arguments.print_ir_after_change
        self.module_scope: bool = arguments.print_ir_module_scope
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
        """Return the texts to print, by suffix of the title: each program for a pass on programs, else the module."""
        from odc_mlir.dialects.npu_program import programs
        from odc_mlir.support.text import module_text
        from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPass

        shown: dict[str, Operation] = {"": module}
        if isinstance(item, ProgramPass) and not self.module_scope:
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

    Its first line is a lit RUN line. Return its path, None if it cannot be written.
    """
    import os
    import tempfile

    from odc_mlir.support.text import module_text

    comment = "".join(f"// {line}\n" for line in trace.splitlines())
    text = f"// RUN: odc-opt %s -p '{pipeline}'\n{comment}{module_text(module, constants='known')}"
    try:
        handle, path = tempfile.mkstemp(prefix="odc-opt-crash-", suffix=".mlir")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return None
    return path


def reproducer_pipeline(text: str) -> str | None:
    """Return the pipeline in a reproducer, None for any other text."""
    match = _RUN.match(text)
    return match["pipeline"] if match is not None else None
