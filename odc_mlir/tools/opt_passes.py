"""Texts of ``odc-opt`` about passes: the list of passes, the list of patterns, and the help of one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.passes import ModulePass

    from odc_mlir.transforms.common.rewriting import RewriteCounts

_WIDTH = 28


def pass_names() -> tuple[str, ...]:
    """The names of all passes, ours first."""
    from xdsl.transforms import get_all_passes

    from odc_mlir import pipelines

    return (*pipelines.ordered_passes(), *sorted(get_all_passes()))


def pass_list() -> Iterator[str]:
    """A line for each pass and each of its options: ours in the order of the compiler, then xDSL's by name."""
    from xdsl.transforms import get_all_passes

    from odc_mlir import pipelines, transforms

    yield "passes of odc-mlir:"
    for name in pipelines.ordered_passes():
        yield from _entry(name, transforms.load(name))
    yield ""
    yield "passes of xDSL:"
    for name, load in sorted(get_all_passes().items()):
        yield from _entry(name, load())


def _entry(name: str, kind: type[ModulePass]) -> Iterator[str]:
    from odc_mlir.transforms.common.describe import options_of, summary_of

    yield f"  {name:{_WIDTH}} {summary_of(kind)}".rstrip()
    for option in options_of(kind):
        default = "" if option.default is None else f"={option.default}"
        yield f"      {option.name + default:{_WIDTH - 4}} {option.text}".rstrip()


def pattern_list(counts: Mapping[str, RewriteCounts] | None) -> Iterator[str]:
    """Return a line for each pattern of our passes: name, source, summary.

    ``counts``: the passes that ran with the numbers of their rewrites; then only their patterns are listed.
    """
    from odc_mlir import pipelines, transforms
    from odc_mlir.transforms.common.describe import first_line_of, source_of
    from odc_mlir.transforms.common.rewriting import PatternPass

    for name in pipelines.ordered_passes() if counts is None else counts:
        kind = pipelines.find_pass(name)
        if name not in transforms.NAMES or not issubclass(kind, PatternPass):
            continue
        yield name
        for pattern in kind.patterns():
            count = "" if counts is None else f"{counts[name].counts[pattern]:6} "
            yield f"  {count}{pattern.__name__:{_WIDTH}} {source_of(pattern)}  {first_line_of(pattern)}"


def pass_help(name: str) -> Iterator[str]:
    """All that one pass says: what it does, IR before and after, what it refuses, its options. Raises OptionError."""
    from odc_mlir import pipelines
    from odc_mlir.transforms.common.describe import options_of, text_of

    kind = pipelines.find_pass(name)
    stages = [stage.name for stage in (*pipelines.STAGES, *pipelines.NATIVE_STAGES) if name in stage.passes]
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
