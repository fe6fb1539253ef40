"""``odc-quantize``: quantise a float model, measure its accuracy, and explain the result."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import shortened
from odc_mlir.formats.kinds import MODEL, MODEL_BY_NAME, PAGE, OutputKind, json_kind
from odc_mlir.formats.quantities import (
    counted,
    decibel_text,
    model_name,
    quality_name,
    quality_text,
    score_text,
    share_text,
    without_far_text,
)
from odc_mlir.quantizer.policy.declarations import ACCURACY, BUDGET, FULL_SCHEMES, LIMITS, TYPES, in_group
from odc_mlir.tools import quantizing
from odc_mlir.tools.common import MODEL_FORMATS, UsageError, base_parser, idle_option, tool
from odc_mlir.tools.files import add_any_reader, add_input, add_json, add_output, add_overwrite, add_switch, shown

if TYPE_CHECKING:
    from odc_mlir.quantizer.quantize import Quantized


def _holds_pairs(path: Path) -> bool:
    found = json.loads(path.read_bytes())
    return isinstance(found, list) and all({"front", "back", "type"} <= entry.keys() for entry in found)


PRECISIONS = json_kind("precisions of layers", "layers")._replace(suffixes=(".json",))
VERDICT = json_kind("a verdict", "schema_version", "passed", "metrics")
PAIRS = OutputKind("pairs of layers", _holds_pairs, suffixes=(".json",), is_text=True)
CIRCLE = MODEL._replace(suffixes=(".circle",))
_LAYERS_SHOWN = 5
_SIDES, _SIDE_NAMES = ("float", "quantized"), ("float", "quantised")
_FINDINGS_SHOWN = 8

# Arguments of recording. All other arguments are for quantising.
RECORDING = frozenset(
    {"model", "output", "min_max_only", "calibration", "max_samples", "mean", "scale", "save_records"}
    | {"ranges", "range_options"}
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-quantize``."""
    parser = base_parser(
        "odc-quantize",
        f"Quantise a float model {MODEL_FORMATS} and check its accuracy.",
        epilog="If the accuracy limit is missed, the exit code is 1 and OUT is not written, "
        "unless --allow-accuracy-loss is given.",
        renamed={"--report-json": ("--json", bool)},
    )
    add_input(parser, "model", metavar="MODEL", help="float model file or nnpackage")
    add_output(
        parser,
        "-o",
        "--output",
        metavar="OUT",
        kind=lambda arguments: CIRCLE if arguments.min_max_only else MODEL_BY_NAME,
        help="quantised model: .circle or .tflite",
    )
    add_overwrite(parser)
    add_any_reader(parser)
    quantizing.add_options(parser, ["scheme"])
    add_switch(parser, "--min-max-only", "write the float model with recorded ranges, like record-minmax")
    data = parser.add_argument_group("data and result")
    quantizing.add_common_flags(data)
    quantizing.add_data_flags(data)
    groups = {
        TYPES: "element types",
        ACCURACY: "accuracy",
        BUDGET: "budget (the most accurate model within it; only one)",
        LIMITS: "limit (default: mpeir 0.1, and top1 0.99 for classifiers)",
    }
    for group, title in groups.items():
        quantizing.add_options(parser.add_argument_group(title), in_group(group))
    reports = parser.add_argument_group("reports")
    add_json(reports, VERDICT, "the verdict")
    text = "write the pairs of layers with moved scales, for --equalize"
    add_output(reports, "--save-equalization", metavar="FILE.json", kind=PAIRS, help=text)
    text = "write the precisions of single layers, for --mixed"
    add_output(reports, "--save-precisions", metavar="FILE.json", kind=PRECISIONS, help=text)
    add_output(reports, "--report-html", metavar="FILE", kind=PAGE, help="write the verdict as a page with charts")
    return parser


def _body(arguments: argparse.Namespace) -> int | None:
    written = (arguments.output, arguments.json, arguments.report_html, arguments.save_records)
    if not (any(written) or arguments.save_equalization or arguments.save_precisions):
        raise UsageError("give -o, a report to write, --save-records, --save-equalization or --save-precisions")
    if arguments.min_max_only:
        if not arguments.output or not arguments.calibration:
            raise UsageError("--min-max-only needs --calibration and -o")
        if (idle := idle_option(arguments, RECORDING)) is not None:
            raise UsageError(f"--min-max-only quantises nothing and has no use for {idle}; leave it out")
        _record_only(arguments)
        return None
    _quantize(arguments)
    return None


def _record_only(arguments: argparse.Namespace) -> None:
    from odc_mlir.formats.circle.writer import write_model
    from odc_mlir.frontend.export_circle import export_model
    from odc_mlir.quantizer.policy.options import parse_numbers
    from odc_mlir.quantizer.quantize import embed_ranges, save_records
    from odc_mlir.runtime.api import load

    module, records = embed_ranges(
        load(arguments.model),
        arguments.calibration,
        ranges=arguments.ranges,
        range_options=parse_numbers(arguments.range_options),
        max_samples=arguments.max_samples,
        pictures=quantizing.pictures(arguments),
    )
    stored = export_model(module)
    is_written = arguments.files.write("output", lambda: write_model(stored))
    if arguments.save_records:
        with arguments.files.writing(arguments.save_records):
            save_records(records, stored, arguments.save_records, overwrite=arguments.overwrite)
    if is_written:
        arguments.files.tell([f"{arguments.output}: ranges of {counted(records.runs, 'sample')}"])
        arguments.files.tell(f"  note: {shortened(str(finding))}" for finding in records.findings[:_FINDINGS_SHOWN])


def _quantize(arguments: argparse.Namespace) -> None:
    from odc_mlir.frontend.export_circle import is_tflite
    from odc_mlir.quantizer import summary
    from odc_mlir.runtime import api

    show = quantizing.progress_on_stderr("odc-quantize", arguments.quiet)
    try:
        reader = "litert" if is_tflite(arguments.output or "") and not arguments.any_reader else None
        with quantizing.in_flags():
            made = api.quantize(arguments.model, progress=show, reader=reader, **quantizing.all_options(arguments))
    finally:
        quantizing.end_progress(arguments.quiet)
    accepted = not made.failed or arguments.allow_accuracy_loss
    _write(arguments, made, accepted)
    arguments.files.tell(_summary(arguments, made.verdict))
    if accepted and arguments.output:
        target = arguments.target or summary.next_target(made.verdict)
        compiling = ("odc-compile", arguments.output, "--target", target, "-o", "out/package")
        arguments.files.suggest(*compiling, first=summary.next_step(made.verdict, ""))
    if not accepted:
        made.require_passed()


def _write(arguments: argparse.Namespace, made: Quantized, accepted: bool) -> None:
    files = arguments.files
    if arguments.output and accepted:
        with files.writing(arguments.output):
            made.save(arguments.output, overwrite=arguments.overwrite, any_reader=arguments.any_reader)
    if arguments.save_records:
        with files.writing(arguments.save_records):
            made.save_records(arguments.save_records, overwrite=arguments.overwrite)
    files.write_json("save_equalization", lambda: made.equalization)
    files.write_json("save_precisions", lambda: made.precisions)
    files.write_json("json", lambda: made.verdict)
    files.write("report_html", made.report_html)


def _precisions_file(arguments: argparse.Namespace) -> str | None:
    is_given = arguments.mixed not in ("auto", "on", "off") and not arguments.overrides
    return arguments.save_precisions or (arguments.mixed if is_given else None)


def _summary(arguments: argparse.Namespace, verdict: Mapping[str, Any]) -> Iterator[str]:
    from odc_mlir.quantizer.summary import summary

    yield from summary(model_name(shown(arguments.model)), verdict)
    if arguments.verbose:
        yield from details(verdict, _precisions_file(arguments))


def details(verdict: Mapping[str, Any], precisions: str | None = None) -> Iterator[str]:
    """Yield all measures with intervals, and the choices. ``precisions``: the file of per-layer precisions."""
    from odc_mlir.quantizer.policy.verdict import check_name

    checked = verdict["samples"]
    count = counted(checked["checked_on"], "made-up input" if checked["made_up"] else "sample")
    for check in verdict["limits"]:
        metric = check["metric"]
        limit = f" (limit {quality_text(metric, check['limit'])})"
        seen = _measured(metric, check["value"], check["interval"], count, check["limit"])
        yield f"  {check_name(check)} {seen}{limit}"
    value = verdict["metrics"].get("sqnr_db")
    if value is not None and all(check["metric"] != "sqnr_db" for check in verdict["limits"]):
        yield f"  {quality_name('sqnr_db')} {_measured('sqnr_db', value, verdict['intervals'].get('sqnr_db'), count)}"
    if states := verdict.get("states"):
        what = counted(states["sequences"], "sequence")
        yield f"  SQNR over the frames of {what}: {', '.join(map(_frames, states['steps']))}"
    yield from _coverage(verdict["coverage"])
    yield from _front(verdict["front"], verdict["coverage"]["least"])
    if verdict["scores"]:
        scores = verdict["scores"]
        which = f" of column {scores['column']}, which loses most," if "column" in scores else ""
        yield f"  {scores['metric']}{which} {_sides(scores['metric'], scores)}"
        if near := scores.get("without_far"):
            yield f"  {without_far_text(near['far'])} {_sides(scores['metric'], near)}"
    yield from _chosen(verdict["choices"], precisions)
    yield from _precisions(verdict)


def _frames(step: Mapping[str, Any]) -> str:
    numbers = f"{step['first']} to {step['last']}" if step["first"] < step["last"] else f"{step['first']}"
    return f"{numbers}: {'exact' if step['sqnr_db'] is None else decibel_text(step['sqnr_db'])}"


def _sides(metric: str, values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{score_text(metric, values[side])} {name}" for side, name in zip(_SIDES, _SIDE_NAMES, strict=True)
    )


def _chosen(choices: Mapping[str, Any], file: str | None) -> Iterator[str]:
    flags = quantizing.precision_flags(choices, file)
    yield f"  chosen: {' '.join([*quantizing.flags_of(choices), *flags])}"
    if (layers := choices["precisions"]) and not flags:
        count = counted(len(layers), "layer")
        if choices["scheme"] in FULL_SCHEMES:
            yield f"  and, for the precisions of {count}, --mixed FILE.json, written by --save-precisions FILE.json"
        else:
            yield f"  and {count} in other precisions, which only a new search can set"


def _measured(
    metric: str, value: float | None, interval: Sequence[float] | None, count: str, limit: float | None = None
) -> str:
    text = "unknown" if value is None else quality_text(metric, value, limit)
    if interval is None:
        return f"{text} on {count}"
    return f"{' to '.join(quality_text(metric, end) for end in interval)} (95 %), {text} on {count}"


def _coverage(coverage: Mapping[str, Any]) -> Iterator[str]:
    from odc_mlir.quantizer.layers import UNIT_NAMES

    units = ("layers", "weights", "macs")
    totals = {unit: sum(counts[unit] for counts in coverage["precisions"].values()) for unit in units}
    for name, counts in coverage["precisions"].items():
        shares = (f"{share_text(counts[u] / totals[u])} of {UNIT_NAMES[u]}" for u in units if totals[u])
        yield f"  {name}: {', '.join(shares)}"


def _front(points: Sequence[Mapping[str, Any]], least: float) -> Iterator[str]:
    """Yield lines about measured models on the Pareto front of accuracy over time or bytes.

    ``least``: the minimum share of quantised multiplications. If no target is given, mark models below this share.
    """
    from odc_mlir.quantizer.policy.verdict import cost_text

    if points:
        yield "  accuracy by cost, with layers in other precisions:"
    for point in points:
        cost = cost_text(point)
        share = "" if point["runs"] is None else f", {100 * point['runs']:.1f} % of the products"
        if point["runs"] is None and point["share"] < least:
            share = f", {share_text(point['share'])} of the products quantised, too few"
        kept = f", keeps the limits{'' if point['confirmed'] else ' in the search'}" if point["holds"] else ""
        notes = f"{kept}{', chosen' if point['chosen'] else ''}"
        found = point["search"]["sqnr_db"]
        sqnr = "" if found is None else f", SQNR in the search {found:.1f} dB"
        yield f"    {counted(point['layers'], 'other layer')}: {cost}{share}{sqnr}{notes}"


def _precisions(verdict: Mapping[str, Any]) -> Iterator[str]:
    counts = Counter(verdict["scheme"].values())
    if len(counts) > 1:
        yield f"  layers: {', '.join(f'{count} {name}' for name, count in counts.most_common())}"
    reasons = Counter(verdict["float_reasons"].values())
    for reason, count in reasons.most_common(_LAYERS_SHOWN):
        yield f"  float: {counted(count, 'operator')}: {reason}"


main = tool(build_parser, _body)
