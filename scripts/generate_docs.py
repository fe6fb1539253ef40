"""Fill the generated parts of the documentation from the tables they describe.

    python scripts/generate_docs.py [--check]

A generated part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->`` in a file below ``docs``; NAME is one
of :data:`SECTIONS`. A notebook stands beside each tutorial. With ``--check`` nothing is written, and the status is 1
when a file is out of date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tutorials

if TYPE_CHECKING:
    from xdsl.passes import ModulePass

    from odc_mlir.isa.fields import Field
    from odc_mlir.ops.spec import OpSpec

DOCS = Path(__file__).resolve().parents[1] / "docs"
PART = re.compile(r"(?P<head><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<tail><!-- end -->)", re.DOTALL)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    """``text`` as inline code."""
    return f"`{text}`"


def stages() -> str:
    """The stages of the pipeline with their passes."""
    from odc_mlir.pipelines import NATIVE_STAGES, STAGES

    head = ("stage", "what the IR is after it", "passes that it adds")
    rows = [
        (code(stage.name), stage.summary, ", ".join(map(code, stage.passes)) or "none")
        for stage in (*STAGES, *NATIVE_STAGES)
    ]
    return table(head, rows)


def passes() -> str:
    """The passes: one line each, with the names of their options."""
    from odc_mlir.pipelines import ordered_passes
    from odc_mlir.transforms import load
    from odc_mlir.transforms.common.describe import options_of, summary_of

    rows = []
    for name in ordered_passes():
        cls = load(name)
        rows.append((code(name), summary_of(cls), ", ".join(code(option.name) for option in options_of(cls))))
    return table(("pass", "what it does", "options"), rows)


def pass_reference() -> str:
    """A page of the site: the text of every pass with IR before and after, and its options."""
    from odc_mlir.pipelines import ordered_passes
    from odc_mlir.transforms import load

    return "# Passes\n\n" + "\n\n".join(_pass(name, load(name)) for name in ordered_passes())


def _pass(name: str, cls: type[ModulePass]) -> str:
    from odc_mlir.transforms.common.describe import options_of, text_of

    paragraphs = [f"## `{name}`", markdown(text_of(cls))]
    options = [
        f"- `{option.name}` ({option.type}"
        + (f", default `{option.default}`" if option.default else "")
        + f"): {option.text}"
        for option in options_of(cls)
    ]
    return "\n\n".join([*paragraphs, *(["Options:", "\n".join(options)] if options else [])])


def markdown(text: str) -> str:
    """Docstring text as Markdown: code in single backquotes, indented blocks behind ``::`` fenced, first word large."""
    lines: list[str] = []
    block = False
    for line in text.splitlines():
        if block and line and not line.startswith("    "):
            _close(lines)
            block = False
        if block:
            lines.append(line.removeprefix("    "))
            continue
        block = line.endswith("::")
        lines.append(line.removesuffix(":").replace("``", "`") if block else line.replace("``", "`"))
        if block:
            lines += ["", "```mlir"]
    if block:
        _close(lines)
    joined = "\n".join(lines).replace("```mlir\n\n", "```mlir\n")
    return joined[:1].upper() + joined[1:]


def _close(lines: list[str]) -> None:
    """End a fenced block before the blank lines that follow it."""
    while lines and not lines[-1]:
        lines.pop()
    lines += ["```", ""]


def _version(spec: OpSpec) -> str:
    """The newest version known; custom operators have any."""
    from odc_mlir.ops.custom import ANY_VERSION

    return "any" if spec.max_version >= ANY_VERSION else str(spec.max_version)


def operators() -> str:
    """Every operator: what it is, whether the NPU has it."""
    from odc_mlir.ops import all_specs
    from odc_mlir.transforms.partition.rules.table import rules_of

    rows = [
        (code(name), spec.summary, _version(spec), "" if rules_of(spec) is None else "yes")
        for name, spec in sorted(all_specs().items())
    ]
    return table(("operator", "what it does", "up to version", "on the NPU"), rows)


def npu_types() -> str:
    """What Vela places on an NPU, and with which types of codes it is placed here, by the rules."""
    sys.path.insert(0, str(DOCS.parent / "test"))
    from helpers.placements import TYPES, placements

    rows, everywhere = [], []
    for name, reasons in placements():
        failed = {dtype: reason.partition(": ")[::2] for dtype, reason in reasons.items() if reason}
        notes = "; ".join(f"{dtype}: {code(rule)} fails, {seen}" for dtype, (rule, seen) in failed.items())
        if not notes:
            everywhere.append(code(name))
            continue
        rows.append((code(name), *("" if reasons[dtype] else "yes" for dtype in TYPES), notes))
    text = f"On the NPU in {', '.join(TYPES)}: {', '.join(everywhere)}. All other operators:"
    return f"{text}\n\n{table(('operator', *TYPES, 'reason for the host'), rows)}"


def npu_rules() -> str:
    """Return the constraints on operators of the NPU."""
    from odc_mlir.transforms.common.rewriting import VIEWS
    from odc_mlir.transforms.partition.rules.checks import COMPARISONS
    from odc_mlir.transforms.partition.rules.operator_checks import PRODUCTS
    from odc_mlir.transforms.partition.rules.table import BY_TABLE, GENERIC, GENERIC_LAST, MOVERS, OPERATORS

    groups = {"moves": MOVERS, "views": VIEWS, "comparisons": COMPARISONS, "products": PRODUCTS}
    groups |= {"sums": ("ADD", "MUL", "SUB"), "selections": ("MAXIMUM", "MINIMUM", "SELECT", "SELECT_V2")}

    def shortened(names: list[str]) -> str:
        """Name groups instead of their members."""
        whole = [group for group, members in groups.items() if set(members) <= set(names)]
        rest = [name for name in names if not any(name in groups[group] for group in whole)]
        return ", ".join((*whole, *map(code, rest)))

    users: dict[tuple[str, str], list[str]] = {}
    for name, rules in sorted(OPERATORS.items()):
        for rule in rules:
            users.setdefault((rule.name, rule.text), []).append(name)
    rows = [(code(rule.name), rule.text, "all") for rule in (*GENERIC, *GENERIC_LAST)]
    rows += [(code(name), text, shortened(names)) for (name, text), names in sorted(users.items())]
    rows += [(code(rule.name), rule.text, "other element-wise operators") for rule in BY_TABLE]
    free = ", ".join(code(name) for name, rules in sorted(OPERATORS.items()) if not rules)
    members = "".join(f"\n- {group}: {', '.join(map(code, names))}" for group, names in groups.items())
    found = table(("rule", "it holds if", "operators"), rows)
    return f"{found}\n{members}\n\nOnly general rules apply to {free}."


def npu_prefix() -> str:
    """The prefix that all NPU instructions share."""
    from odc_mlir.isa.fields import PREFIX

    return _fields(PREFIX)


def npu_instruction(mnemonic: str) -> str:
    """Fields and cost of one NPU instruction."""
    from odc_mlir.isa.instructions import BY_MNEMONIC

    spec = BY_MNEMONIC[mnemonic]
    queue = "any queue" if spec.queue is None else f"queue {spec.queue.name}"
    head = f"Opcode `{spec.opcode:#04x}`, {queue}, {spec.size_bytes} bytes: {spec.doc}."
    parts = [head, _fields(spec.fields)] if spec.fields else [head]
    if spec.cost.text:
        parts.append(f"[Cost](#what-an-instruction-costs):\n\n```\n{spec.cost.text}\n```")
    return "\n\n".join(parts)


def _fields(fields: Iterable[Field]) -> str:
    rows = []
    for field in fields:
        low, high = field.range
        values = ", ".join(map(code, field.values)) if field.values else f"{low}..{high}"
        rows.append((code(field.name), str(field.bits), field.kind.value, values, field.doc))
    return table(("field", "bits", "kind", "values", "meaning"), rows)


def npu_targets() -> str:
    """Every number of every shipped target, by key; the tables of host kernels are long, and in files of their own."""
    import dataclasses
    from collections.abc import Mapping

    from odc_mlir import targets
    from odc_mlir.targets.costs import EnergyFigure

    def flat(record: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
        for field in dataclasses.fields(record):
            value = getattr(record, field.name)
            if isinstance(value, EnergyFigure):
                yield prefix + field.name, f"{value.value:g} ({value.low:g} to {value.high:g})"
            elif dataclasses.is_dataclass(value):
                yield from flat(value, f"{field.name}.")
            elif not isinstance(value, Mapping):
                pairs = value if isinstance(value, tuple) and isinstance(value[0], tuple) else (value,)
                text = ", ".join("x".join(map(str, pair)) if isinstance(pair, tuple) else str(pair) for pair in pairs)
                yield prefix + field.name, text.replace("(", "").replace(")", "")

    columns = {name: dict(flat(targets.load(name))) for name in sorted(targets.names(), key=_size)}
    keys = [key for key in next(iter(columns.values())) if key not in ("name", "version")]
    rows = [(code(key), *(column[key] for column in columns.values())) for key in keys]
    common = [row[:2] for row in rows if len(set(row[1:])) == 1]
    differing = [row for row in rows if len(set(row[1:])) > 1]
    return f"{table(('key', *columns), differing)}\n\n{table(('key', 'all targets'), common)}"


def _size(target: str) -> int:
    return int(target.rpartition("-")[2])


def _npu_instructions() -> dict[str, Callable[[], str]]:
    from odc_mlir.isa.instructions import INSTRUCTIONS

    return {f"npu-{spec.mnemonic}": partial(npu_instruction, spec.mnemonic) for spec in INSTRUCTIONS}


def rewrites() -> str:
    """Every rewrite of ``odc-optimize`` with its level."""
    from odc_mlir.transforms.circle.rewrites.table import RULES

    return table(("rewrite", "level", "what it does"), [(code(r.name), r.level, r.summary) for r in RULES])


def cycles() -> str:
    """The pinned cycles beside Vela's estimates, with geometric means."""
    import csv
    import math

    import cycle_table

    with (DOCS.parent / "benchmarks" / "vela.csv").open(newline="") as stream:
        lines = csv.DictReader(line for line in stream if not line.startswith("#"))
        theirs = {cycle_table.Key(row["model"], row["target"], row["memory"]): int(row["cycles"]) for row in lines}
    ours = cycle_table.read()
    columns = [(target, memory) for target in cycle_table.TARGETS for memory in cycle_table.MEMORIES]
    rows, ratios = [], {column: list[float]() for column in columns}
    for model in dict.fromkeys(key.model for key in theirs):
        row = [code(model)]
        for column in columns:
            key = cycle_table.Key(model, *column)
            if key in theirs:
                ratios[column].append(ours[key].cycles / theirs[key])
            row.append(f"{ours[key].cycles:,}" + (f" ({ratios[column][-1]:.2f})" if key in theirs else ""))
        rows.append(row)
    means = [
        f"{math.exp(sum(map(math.log, found)) / len(found)):.2f}, worst {max(found):.2f}" for found in ratios.values()
    ]
    head = ("model", *(f"{target} {memory}" for target, memory in columns))
    return table(head, [*rows, ["ratio to Vela, geometric mean", *means]])


_CONDITIONS = {
    "as above": ("parity", "vela"),
    "Vela's commands added to its estimate": ("parity", "fetched"),
    "our strict memory model": ("strict", "vela"),
    "constant and unused channels kept": ("all_channels", "vela"),
    "SRAM limited to Vela's peak": ("at_velas_sram", "vela"),
    "4 lanes, decoder of 8 symbols a cycle": ("narrow", "vela"),
    "previous three together": ("all_three", "vela"),
    "Vela's deprecated core": ("parity", "vela_legacy"),
    "the same three, better core of Vela": ("all_three", "better"),
    "the same three, Vela's commands added": ("all_three", "fetched"),
}


def fairness() -> str:
    """Return cycles over Vela's estimate under conditions that favour Vela: geometric mean and worst model."""
    import csv
    import math

    with (DOCS.parent / "benchmarks" / "fairness.csv").open(newline="") as stream:
        found = [{name: int(text) for name, text in row.items() if name != "model"} for row in csv.DictReader(stream)]
    for row in found:
        row["better"] = min(row["vela"], row["vela_legacy"])
        row["fetched"] = row["vela"] + row["vela_commands"]  # the off-chip port carries a byte a cycle
    rows = []
    for condition, (ours, theirs) in _CONDITIONS.items():
        ratios = [row[ours] / row[theirs] for row in found]
        rows.append((condition, f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}", f"{max(ratios):.2f}"))
    return table(("condition", "geometric mean", "worst"), rows)


def releases() -> str:
    """Sizes and times in the record of this version, by model on the default machine."""
    import cycle_table
    import release_record

    record = release_record.read(release_record.path_of())
    rows, seconds = release_record.rows_of(record), record.get("compile_cpu_seconds", {})
    found = [
        (model, rows[key], seconds.get(model))
        for model in cycle_table.MODELS
        if (key := cycle_table.Key(model, "npu-256", "flash")) in rows
    ]
    head = ("model", "cycles", "peak SRAM", "binary", "compile, CPU s")
    lines = [
        [code(model), *(f"{getattr(cost, name):,}" for name in _RECORDED), "" if time is None else f"{time:.2f}"]
        for model, cost, time in found
    ]
    parts = [table(head, lines)]
    if score := record.get("scheduler_mutations"):
        parts.append(f"Mutations of the scheduler that tests detect: {score['noticed']} of {score['made']}.")
    return "\n\n".join(parts)


_RECORDED = ("cycles", "sram_peak_bytes", "binary_bytes")


def commands() -> str:
    """The arguments of every command and subcommand, and first the arguments that many commands have."""
    import importlib

    from odc_mlir.tools import commands as tools

    parsers = [
        tools.build_parser(),
        *(importlib.import_module(module).build_parser() for module in tools.commands().values()),
    ]
    uses = Counter(row for parser in parsers for row in _rows(parser))
    common = {row for row, count in uses.items() if count > 4 and not row[0].startswith("`-o")}
    text = "Many commands have these arguments. The tables below omit them. `--help` lists all arguments of a command:"
    parts = ["## Common arguments", text, table(("argument", "meaning"), sorted(common))]
    for parser in parsers:
        parts += [f"## `{parser.prog}`", parser.description, *_arguments(parser, common)]
    return "\n\n".join(parts)


def _rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """The rows of the tables of a command and its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                yield from _rows(own)
        elif row := _row(parser, action):
            yield row


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str] | None:
    """The row of an argument; None for one that every command has, and for the flag of a rewrite."""
    hidden = {"-h", "--version", "-v", "-q", "--debug"}
    if action.help == argparse.SUPPRESS or action.dest == "rewrites" or hidden & {*action.option_strings}:
        return None
    values = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    shown = action.metavar or values
    names = " ".join(filter(None, (", ".join(action.option_strings), None if action.nargs == 0 else shown)))
    return code(names), parser._get_formatter()._expand_help(action) if action.help else ""


def _arguments(parser: argparse.ArgumentParser, common: Collection[tuple[str, str]]) -> Iterator[str]:
    """The arguments of a command as a table, except ``common`` arguments, followed by the subcommands."""
    rows, below = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = [(item.dest, item.help, action.choices[item.dest]) for item in action._choices_actions]
        elif (row := _row(parser, action)) and row not in common:
            rows.append(row)
    if any(action.dest == "rewrites" for action in parser._actions):
        rows.append((code("--REWRITE"), "apply this [rewrite](optimizing.md#rewrites); repeatable"))
    if rows:
        yield table(("argument", "meaning"), rows)
    for name, text, own in below:
        yield f"### `{parser.prog} {name}`"
        yield f"{text[:1].upper()}{text[1:]}."
        yield from _arguments(own, common)


def pytorch() -> str:
    """PyTorch's operators that the importer converts by group, and the reasons for others."""
    from odc_mlir.frontend.torch.table import GROUPS, REASONS

    stems = {group: dict.fromkeys(name.partition(".")[0] for name in rows) for group, rows in GROUPS.items()}
    converted = [(group, code(" ".join(names))) for group, names in stems.items()]
    return table(("group", "ATen operators"), [*converted, *((why, code(names)) for names, why in REASONS.items())])


SECTIONS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "cycles": cycles,
    "fairness": fairness,
    "releases": releases,
    "stages": stages,
    "passes": passes,
    "operators": operators,
    "pytorch": pytorch,
    "rewrites": rewrites,
    "npu-types": npu_types,
    "npu-rules": npu_rules,
    "npu-prefix": npu_prefix,
    "npu-targets": npu_targets,
    **_npu_instructions(),
}


def updated(text: str) -> str:
    """``text`` with its generated parts made anew; raises KeyError for an unknown part."""
    return PART.sub(lambda part: f"{part['head']}\n{SECTIONS[part['name']]()}\n\n{part['tail']}", text)


def outdated() -> Iterator[tuple[Path, str]]:
    """Files that differ from what the tables and the tutorials give now, with their new text."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        if (new := updated(text)) != text:
            yield path, new
    for path in tutorials.paths():
        notebook = path.with_suffix(".ipynb")
        new = f"{json.dumps(tutorials.notebook(path.read_text()), indent=1, ensure_ascii=False)}\n"
        if not notebook.exists() or notebook.read_text() != new:
            yield notebook, new


def main() -> int:
    """Write what is out of date, or with --check only name it."""
    parser = argparse.ArgumentParser(description="fill the generated parts of the documentation")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 when something is out of date")
    check = parser.parse_args().check
    stale = list(outdated())
    for path, text in stale:
        print(f"{path.relative_to(DOCS.parent)}: {'out of date, run scripts/generate_docs.py' if check else 'written'}")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
