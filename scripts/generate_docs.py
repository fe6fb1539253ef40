"""Fill the generated parts of the documentation from the tables they describe.

    python scripts/generate_docs.py [--check]

A generated part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->`` in a file below ``docs``; NAME is one
of :data:`SECTIONS`. With ``--check`` nothing is written, and the status is 1 when a file is out of date.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

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
    from odc_mlir.pipelines import STAGES

    head = ("stage", "what the IR is after it", "passes that it adds")
    rows = [(code(stage.name), stage.summary, ", ".join(map(code, stage.passes)) or "none") for stage in STAGES]
    return table(head, rows)


def passes() -> str:
    """Every pass of ours: what it does, options."""
    from odc_mlir.transforms import NAMES, load

    return "\n\n".join(_pass(name, load(name)) for name in NAMES)


def _pass(name: str, cls: type) -> str:
    from xdsl.passes import get_pass_option_infos

    # The class says what it does; the module adds the IR before and after.
    text = inspect.cleandoc(cls.__doc__ or "")
    options = [
        f"- `{option.name.replace('_', '-')}`: {' or '.join(_type_name(t) for t in option.types)}"
        + (f", default `{option.default}`" if option.default else "")
        for option in get_pass_option_infos(cls)
    ]
    return "\n\n".join([f"### `{name}`", text, *(["\n".join(options)] if options else [])])


def _type_name(cls: type) -> str:
    return "nothing" if cls is type(None) else cls.__name__


def operators() -> str:
    """Every operator: what it is, whether the NPU has it."""
    from odc_mlir.ops import all_specs
    from odc_mlir.transforms.npu_rules import OPERATORS

    rows = [
        (code(name), spec.summary, str(spec.max_version), "yes" if name in OPERATORS else "")
        for name, spec in sorted(all_specs().items())
    ]
    return table(("operator", "what it does", "up to version", "on the NPU"), rows)


def npu_rules() -> str:
    """What must hold for an operator to run on the NPU."""
    from odc_mlir.transforms.npu_rules import GENERIC, OPERATORS

    lines = ["For every operator:", "", *(f"- {code(rule.name)}: {rule.text}" for rule in GENERIC), ""]
    for name, rules in sorted(OPERATORS.items()):
        lines += [f"{code(name)}:", "", *(f"- {code(rule.name)}: {rule.text}" for rule in rules), ""]
    return "\n".join(lines).rstrip()


SECTIONS: dict[str, Callable[[], str]] = {
    "stages": stages,
    "passes": passes,
    "operators": operators,
    "npu-rules": npu_rules,
}


def updated(text: str) -> str:
    """``text`` with its generated parts made anew; raises KeyError for an unknown part."""
    return PART.sub(lambda part: f"{part['head']}\n{SECTIONS[part['name']]()}\n\n{part['tail']}", text)


def outdated() -> Iterator[tuple[Path, str]]:
    """Files whose generated parts are not what they would be now, with their new text."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        if (new := updated(text)) != text:
            yield path, new


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
