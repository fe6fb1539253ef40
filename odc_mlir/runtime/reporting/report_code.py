"""What operators became: each one as the model has it, with the instructions of the program that compute it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odc_mlir.formats.quantities import count_text
from odc_mlir.isa import container
from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.compact import read_code
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.pages.markup import Html, joined, tag

if TYPE_CHECKING:
    from odc_mlir.runtime.package import Package

MOST_INSTRUCTIONS = 24  # shown of one operator
_EXTENSION = "npu"


@dataclass(frozen=True, slots=True)
class OperatorCode:
    """``source``: the operator as text; ``instructions``: number and text of each, in order of the program."""

    source: str
    segment: str
    instructions: Sequence[tuple[int, str]]


def operator_code(package: Package) -> dict[int, OperatorCode]:
    """By place in the model, the operators that a program of ours computes; none for other targets' packages."""
    if package.plan is None or package.plan.extension != _EXTENSION:
        return {}
    found: dict[int, OperatorCode] = {}
    graph = package.executor().graph
    for step in package.plan.segments:
        program = container.read(package.files.segment(step.file))
        lines = [format_instruction(instr) for instr in read_code(program.code).instructions]
        ranges: dict[str, list[Sequence[tuple[int, int]]]] = {}
        for entry in program.operators:
            ranges.setdefault(entry.name, []).append(entry.ranges)
        nodes = [graph.nodes[index].node for index in step.operators]
        results = program.result_names([[info.name for info in node.results] for node in nodes])
        for index, node, names in zip(step.operators, nodes, results, strict=True):
            own = [spans for name in names if ranges.get(name) for spans in ranges[name].pop(0)]
            places = [place for first, count in own for place in range(first, first + count)]
            instructions = [(place, lines[place]) for place in sorted(places)]
            found[index] = OperatorCode(_source(node), step.name, instructions)
    return found


def _source(node: Node) -> str:
    operands = ", ".join(_typed(info) for info in node.operands if info is not None)
    options = ", ".join(f"{name} = {value}" for name, value in node.options.items() if not isinstance(value, bytes))
    results = ", ".join(_typed(info) for info in node.results)
    return f"{results} = {node.spec.name}({operands}) {{{options}}}"


def _typed(info: TensorInfo) -> str:
    return f"{info.name}: {type_text(info)}"


def type_text(info: TensorInfo) -> str:
    """``int8[1, 8, 8, 24]``, with a question mark for what is not known."""
    extents = "?" if info.shape is None else ", ".join("?" if n is None else str(n) for n in info.shape)
    return f"{info.dtype}[{extents}]"


def anchor(operator: int) -> str:
    """The id of an operator's instructions on the page."""
    return f"operator-{operator}"


def section(code: Mapping[int, OperatorCode]) -> Html:
    """A part to unfold for every operator."""
    return joined(_details(operator, item) for operator, item in code.items())


def _details(operator: int, item: OperatorCode) -> Html:
    count = len(item.instructions)
    counted = f"{count_text(count)} instruction{'' if count == 1 else 's'} of {item.segment}" if count else "none"
    kind = item.source.partition(" = ")[2].partition("(")[0]
    summary = tag("summary", tag("strong", f"{operator} {kind}"), f" {counted}")
    return tag("details", summary, tag("pre", *_lines(item), class_="difference"), id=anchor(operator))


def _lines(item: OperatorCode) -> Iterator[Html]:
    yield joined((tag("strong", item.source), "\n"))
    if not item.instructions:
        yield Html("it is part of another operator's instructions, or moves nothing\n")
    for place, line in item.instructions[:MOST_INSTRUCTIONS]:
        yield joined((tag("span", f"{place:6d}  ", class_="note"), line, "\n"))
    if (left := len(item.instructions) - MOST_INSTRUCTIONS) > 0:
        yield tag("span", f"and {count_text(left)} more: odc-dump --listing", class_="note")
