"""``odc-optimize``: rewrite a model into an equivalent, cheaper one, and list the rewrites applied."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import ModelError
from odc_mlir.formats.kinds import MODEL_BY_NAME, json_kind
from odc_mlir.formats.quantities import counted
from odc_mlir.tools.common import ARRAY_FORMATS, MODEL_FORMATS, UsageError, base_parser, tool
from odc_mlir.tools.files import add_any_reader, add_input, add_json, add_output, add_overwrite, add_switch

if TYPE_CHECKING:
    from odc_mlir.optimizer import Optimized

REPORT = json_kind("a report of rewrites", "rewrites", "operators")
_KINDS_SHOWN = 8


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-optimize``."""
    from odc_mlir.transforms.circle.rewrites.table import O1, ON_REQUEST, RULES

    parser = base_parser(
        "odc-optimize",
        f"Rewrite a model {MODEL_FORMATS} into an equivalent, cheaper one.",
        epilog="Without a rewrite's flag: --O1. Exit code 1, and OUT is not written, if --verify finds a difference.",
        renamed={"--report-json": ("--json", bool)},
    )
    add_input(parser, "model", metavar="MODEL", help="model file or nnpackage")
    add_output(parser, "-o", "--output", metavar="OUT", kind=MODEL_BY_NAME, help="rewritten model: .circle or .tflite")
    add_overwrite(parser)
    add_any_reader(parser)
    add_switch(parser, "--O1", "every rewrite that preserves results")
    parser.add_argument("--without", metavar="NAME", action="append", default=[], help="disable a rewrite; repeatable")
    text = "keep the layout of inputs and outputs, or store images channels last if this saves work"
    parser.add_argument("--io-layout", choices=("keep", "nhwc"), default="keep", help=text)
    parser.add_argument("--max-rewrites", type=int, metavar="N", help="stop after this many rewrites, to bisect")
    add_switch(parser, "--verify", "run both models on the same inputs and compare them")
    add_input(parser, "--load", metavar="DATA", help=f"inputs to verify on: an {ARRAY_FORMATS} file (default: random)")
    add_json(parser, REPORT, "the rewrites")
    groups = {
        O1: parser.add_argument_group("rewrites of level O1"),
        ON_REQUEST: parser.add_argument_group("rewrites on request, which O1 leaves out"),
    }
    for rule in RULES:
        groups[rule.level].add_argument(
            f"--{rule.name.replace('_', '-')}",
            dest="rewrites",
            action="append_const",
            const=rule.name,
            help=rule.summary.replace("%", "%%"),
        )
    return parser


def _body(arguments: argparse.Namespace) -> int | None:
    from odc_mlir import optimizer

    if not (arguments.output or arguments.json or arguments.verify):
        raise UsageError("give -o, --json or --verify")
    named = arguments.rewrites or []
    made = optimizer.optimize(
        arguments.model,
        level="O1" if arguments.O1 or not named else None,
        rewrites=named,
        without=arguments.without,
        io_layout=arguments.io_layout,
        max_rewrites=arguments.max_rewrites,
        verify=arguments.verify,
        load=arguments.load,
    )
    differs = made.difference is not None and not made.difference.within_tolerance
    if arguments.output and not differs:
        with arguments.files.writing(arguments.output):
            made.save(arguments.output, overwrite=arguments.overwrite, any_reader=arguments.any_reader)
    arguments.files.write_json("json", lambda: report(made))
    arguments.files.tell(summary(made, named))
    if made.difference is not None and differs:
        raise ModelError(
            f"the rewritten model differs: real outputs by {made.difference.relative:.2g} of the largest, integers by "
            f"{made.difference.codes}; rounding explains {made.difference.tolerance:.2g} and 0",
            hint="bisect with --max-rewrites to find the wrong rewrite",
        )
    if arguments.output:
        arguments.files.suggest("odc-mlir", arguments.output)
    return None


def report(made: Optimized) -> Mapping[str, Any]:
    """Return the applied rewrites as a JSON document."""
    document: dict[str, Any] = {
        "rewrites": dict(made.rewrites),
        "operators": {"before": dict(made.before), "after": dict(made.after)},
        "channels_last": {"inputs": list(made.channels_last_inputs), "outputs": list(made.channels_last_outputs)},
    }
    if made.difference is not None:
        found = made.difference
        document["difference"] = {"samples": found.samples, "relative": found.relative, "codes": found.codes}
    return document


def summary(made: Optimized, named: Sequence[str] = ()) -> Iterator[str]:
    """Yield lines with operator counts before and after, applied rewrites, and ``named`` rewrites not applied."""
    before, after = sum(made.before.values()), sum(made.after.values())
    yield f"{counted(before, 'operator')} before, {after} after"
    kinds = sorted({*made.before, *made.after}, key=lambda k: made.after.get(k, 0) - made.before.get(k, 0))
    changed = [k for k in kinds if made.before.get(k, 0) != made.after.get(k, 0)]
    for kind in changed[:_KINDS_SHOWN]:
        yield f"  {kind} {made.before.get(kind, 0)} -> {made.after.get(kind, 0)}"
    if len(changed) > _KINDS_SHOWN:
        yield f"  and {len(changed) - _KINDS_SHOWN} more kinds"
    for name, times in sorted(made.rewrites.items(), key=lambda item: -item[1]):
        yield f"  {name}: {times}"
    for name in dict.fromkeys(named):
        if name not in made.rewrites:
            yield f"  {name}: applies nowhere"
    last = [*(f"input {name!r}" for name in made.channels_last_inputs)]
    last += [f"output {name!r}" for name in made.channels_last_outputs]
    if last:
        yield f"channels last now: {', '.join(last)}"
    if made.difference is not None and made.difference.within_tolerance:
        apart = (
            f"apart by at most {made.difference.relative:.1e} of the largest" if made.difference.relative else "equal"
        )
        yield f"outputs are {apart} on {counted(made.difference.samples, 'input')}"


main = tool(build_parser, _body)
