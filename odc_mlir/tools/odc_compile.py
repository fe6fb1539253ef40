"""``odc-compile``: compile a model for an NPU or a processor to a package, and explain the result."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import OptionError, did_you_mean
from odc_mlir.formats.kinds import HEADER, IR_TEXT, OBJECT, PAGE, OutputKind, json_kind, package_kind
from odc_mlir.formats.quantities import count_text, counted, model_name, share_text, size_text, time_text
from odc_mlir.quantizer.policy.declarations import SCHEME_NAMES
from odc_mlir.tools import quantizing
from odc_mlir.tools.common import (
    MODEL_FORMATS,
    UsageError,
    add_before,
    add_verify_each,
    base_parser,
    idle_option,
    limited_time,
    passes_before,
    size,
    tool,
)
from odc_mlir.tools.files import add_input, add_json, add_memory, add_output, add_overwrite, add_switch

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from odc_mlir.runtime.package import Package
    from odc_mlir.runtime.reporting.report_object import UnmodelledReport

REPORT = json_kind("a report", "schema_version", "compiler_version", "layers")
_OPERATORS_SHOWN = 20
_REASONS_SHOWN = 12
_OBJECT = "object"
_FORMATS = frozenset({_OBJECT, "asm", "c", "elf", "h", "header", "llvm", "o", "obj"})  # never meant as stages

_OF_OBJECT_ALONE = frozenset({"triple", "cpu", "header"})
_OF_OBJECT = _OF_OBJECT_ALONE | {"model", "output", "emit", "target", "time_limit", "quantize"}
_OF_PACKAGE_ALONE = frozenset({"strict", "no_cache", "json", "report_html"})


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-compile``."""
    parser = base_parser(
        "odc-compile",
        f"Compile a model {MODEL_FORMATS} for an NPU, or for a processor (cpu).",
        epilog="An operator that the NPU cannot run stays on the host; the summary and the reports say why. "
        "The summary simulates one inference; -q skips it.",
        renamed={"--report-json": ("--json", bool), "--emit": ("--stage", lambda value: value not in _FORMATS)},
    )
    add_input(parser, "model", metavar="MODEL", help="model file or nnpackage")
    text = "package: a folder, or a zip file if the name ends with .zip; with --stage or --emit, their output"
    add_output(parser, "-o", "--output", metavar="OUT", kind=_kind_of_output, help=text)
    text = "hardware; cpu: this machine; NAME or NAME-gen: a plugin's target (%(default)s)"
    add_input(parser, "--target", default="npu-256", metavar="NAME|FILE.toml", stdin=False, help=text)
    add_memory(parser)
    parser.add_argument("--sram-limit", type=size, metavar="BYTES", help="largest amount of SRAM to use (all)")
    add_switch(parser, "--allow-host", "move operators that do not fit in --sram-limit by themselves to the host")
    parser.add_argument(
        "--prefer",
        default="performance",
        choices=("performance", "memory", "compile-time", "fewest-cycles"),
        help="what to optimise for (%(default)s)",
    )
    text = (
        "keep the output OUT as the input IN of the next run; repeatable; none: no states (default: as the model "
        "declares)"
    )
    parser.add_argument("--state", metavar="OUT=IN", action="append", help=text)
    parser.add_argument(
        "--time-limit", type=float, metavar="S", help="fail, and write nothing, when compiling takes longer (seconds)"
    )
    add_verify_each(parser, "default: after every stage except npu-sched and npu-alloc")
    add_before(parser)
    add_switch(parser, "--no-cache", "search every tiling again instead of looking it up in the cache")
    add_switch(parser, "--strict", "fail if any operator stays on the host")
    parser.add_argument(
        "--stage", metavar="NAME", help="print the IR after this stage and stop (odc-opt --list-stages lists them)"
    )
    parser.add_argument(
        "-t", "--emit", choices=(_OBJECT,), help="output format other than a package: object code for firmware"
    )
    parser.add_argument("--triple", metavar="NAME", help="LLVM target triple, for --emit object")
    parser.add_argument("--cpu", default="", metavar="NAME", help="LLVM processor name, for --emit object")
    add_output(parser, "--header", metavar="FILE.h", kind=HEADER, help="write the C header of --emit object")
    add_overwrite(parser)
    add_json(parser, REPORT, "the report")
    add_output(parser, "--report-html", metavar="FILE", kind=PAGE, help="write the report as an HTML page")
    place = parser.add_argument_group("placement of operators; NAME is an opcode or the name of a result")
    add_input(place, "--partition", metavar="FILE.ini", help="partition file: backends for opcodes and names")
    place.add_argument("--host", metavar="NAME,…", action="append", default=[], help="put these on the host")
    place.add_argument("--npu", metavar="NAME,…", action="append", default=[], help="put these on the NPU if possible")
    add_switch(place, "--all-supported", "run all supported operators on the NPU, even if they are slower there")
    place.add_argument("--min-operators", type=int, metavar="N", help="fewest compute operators in a segment")
    place.add_argument("--min-macs", type=int, metavar="N", help="fewest multiply-accumulates in a segment")
    place.add_argument("--max-segments", type=int, metavar="N", help="largest number of segments")
    quantise = parser.add_argument_group("quantising a float model first (odc-quantize has more options)")
    quantise.add_argument(
        "--quantize", default="none", choices=("none", *SCHEME_NAMES), help="element types (%(default)s)"
    )
    quantizing.add_common_flags(quantise)
    return parser


def _kind_of_output(arguments: argparse.Namespace) -> OutputKind:
    return OBJECT if arguments.emit else IR_TEXT if arguments.stage else package_kind(arguments.output)


def _body(arguments: argparse.Namespace) -> int | None:
    of_package = {action.dest for action in arguments.parser._actions} - _OF_OBJECT_ALONE
    of_stage = of_package - _OF_PACKAGE_ALONE
    of_quantizing = {a.dest for a in arguments.parser._actions if quantizing.COMMON_FLAGS & {*a.option_strings}}
    used = _OF_OBJECT | of_quantizing if arguments.emit else of_stage if arguments.stage else of_package
    if (idle := idle_option(arguments, used)) is not None:
        flag = "--emit object" if arguments.emit else "--stage" if arguments.stage else None
        is_of_object = idle.lstrip("-").replace("-", "_") in _OF_OBJECT_ALONE and not arguments.emit
        remedy = "add --emit object" if is_of_object else f"leave out {flag}"
        raise UsageError(f"{flag or 'a package'} has no use for {idle}; leave it out, or {remedy}")
    if arguments.emit and not arguments.output:
        raise UsageError("--emit object needs -o FILE.o")
    if arguments.stage:
        from odc_mlir.pipelines import stage_names

        if arguments.stage not in (names := tuple(stage_names())):
            hint = f"{did_you_mean(arguments.stage, names)}use one of {', '.join(names)}; --emit takes only {_OBJECT}"
            raise OptionError(f"unknown stage {arguments.stage!r}", hint=hint)
    if arguments.emit or arguments.stage:
        with quantizing.in_flags(quantizing.COMMON_FLAGS), limited_time(arguments.time_limit):
            (_emit_object if arguments.emit else _emit)(arguments)
        return None
    if not (arguments.output or arguments.json or arguments.report_html):
        raise UsageError("give -o, --stage or a report to write")
    _compile(arguments)
    return None


def _quantising(arguments: argparse.Namespace) -> dict[str, Any]:
    chosen = quantizing.common_options(arguments)
    if arguments.quantize == "none":
        if chosen or arguments.allow_accuracy_loss:
            flag = next(iter([*chosen, "allow_accuracy_loss"])).replace("_", "-")
            raise OptionError(f"--{flag} is for quantising, which was not requested", hint="add --quantize int8")
        return {}
    return {"quantize": arguments.quantize, "allow_accuracy_loss": arguments.allow_accuracy_loss, **chosen}


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.sram_limit is not None and arguments.sram_limit <= 0:
        raise OptionError(f"--sram-limit is {arguments.sram_limit}, expected a positive number of bytes")
    same = ("target", "memory", "prefer", "sram_limit", "allow_host", "time_limit")
    given: dict[str, Any] = {
        "file": arguments.partition,
        "host": [name for text in arguments.host for name in text.split(",")],
        "npu": [name for text in arguments.npu for name in text.split(",")],
        "strategy": "supported" if arguments.all_supported else None,
        "min_operators": arguments.min_operators,
        "min_macs": arguments.min_macs,
        "max_segments": arguments.max_segments,
    }
    return {
        **{name: getattr(arguments, name) for name in same},
        "placement": {key: value for key, value in given.items() if value not in (None, [])},
        "states": () if arguments.state == ["none"] else arguments.state,
        "verify": arguments.verify_each,
        "before": passes_before(arguments),
    }


def _emit_object(arguments: argparse.Namespace) -> None:
    from odc_mlir import compiler
    from odc_mlir.codegen import machine
    from odc_mlir.emitter.native_segment import needs

    target = arguments.target if arguments.target != "npu-256" else "cpu"
    processor = machine.chosen(target, arguments.triple, arguments.cpu)
    model, described = _loaded(arguments, target)
    code, header = compiler.compile_object(
        model,
        name=re.sub(r"\W", "_", Path(arguments.output).stem, flags=re.ASCII),
        target=target,
        triple=arguments.triple,
        cpu=arguments.cpu,
        time_limit=arguments.time_limit,
    )
    is_written = arguments.files.write("output", lambda: code)
    arguments.files.write("header", lambda: header)
    if is_written:
        where = f"{processor.triple} ({processor.cpu or 'any processor'})"
        arguments.files.tell([*described, f"{arguments.output}: {size_text(len(code))} for {where}. {needs(code)}"])


def _loaded(arguments: argparse.Namespace, target: str) -> tuple[ModuleOp, Sequence[str]]:
    """Return the model, quantised if requested, and lines about its accuracy."""
    from odc_mlir.runtime import api

    chosen = _quantising(arguments)
    if not chosen:
        return api.load(arguments.model), ()
    allowed, scheme = chosen.pop("allow_accuracy_loss"), chosen.pop("quantize")
    show = quantizing.progress_on_stderr("odc-compile", arguments.quiet)
    made = api.quantize(arguments.model, scheme=scheme, target=target, progress=show, **chosen)
    quantizing.end_progress(arguments.quiet)
    if not allowed:
        made.require_passed()
    return made.model, tuple(_accuracy(arguments, made.verdict))


def _accuracy(arguments: argparse.Namespace, verdict: Mapping[str, Any]) -> Iterator[str]:
    from odc_mlir.quantizer.summary import conclusion, headline

    yield headline(model_name(arguments.model), verdict)
    yield f"  {conclusion(verdict)}"


def _emit(arguments: argparse.Namespace) -> None:
    from odc_mlir import compiler
    from odc_mlir.support.text import module_text

    module = compiler.lower(_loaded(arguments, arguments.target)[0], arguments.stage, **_options(arguments))
    # Files contain all constants. Terminals get IR with the bytes of constants left out.
    if arguments.output:
        arguments.files.write("output", lambda: module_text(module))
    else:
        sys.stdout.write(module_text(module, constants="elide" if sys.stdout.isatty() else "keep"))


def _compile(arguments: argparse.Namespace) -> None:
    from odc_mlir.runtime import api
    from odc_mlir.runtime.reporting import report_object

    _refuse_page(arguments, why_no_page(arguments.target))
    show = quantizing.progress_on_stderr("odc-compile", arguments.quiet)
    options = {**_options(arguments), **_quantising(arguments)}
    try:
        with quantizing.in_flags(quantizing.COMMON_FLAGS), limited_time(arguments.time_limit):
            package = api.compile(
                arguments.model,
                strict=arguments.strict,
                progress=show,
                remember=not arguments.no_cache,
                **options,
            )
    finally:
        quantizing.end_progress(arguments.quiet)
    is_modelled = package.plan is None or report_object.is_modelled(package.plan)  # IR names its own target
    if not is_modelled and package.plan is not None:
        _refuse_page(arguments, f"there is no model of code for {package.plan.target or arguments.target}")
    if arguments.output:
        with arguments.files.writing(arguments.output):
            package.save(arguments.output, overwrite=arguments.overwrite)
    arguments.files.write_json("json", lambda: package.report)
    if arguments.report_html:
        from odc_mlir.runtime.reporting.report_html import operator_code, render

        arguments.files.write("report_html", lambda: render(package.report, operator_code(package)))
    arguments.files.tell(_described(arguments, package, is_modelled))
    for key in package.model.host_signatures:
        arguments.files.tell([f"  host: the signature {key!r}: only the first is compiled; compile this one by itself"])
    if arguments.output:
        arguments.files.suggest("odc-run", arguments.output, "--load", "DATA")
    if arguments.quiet and (is_modelled or package.plan is None):
        from odc_mlir.runtime.reporting.report_partition import host_warning

        # Scripts need a warning if most of the work stays on the host.
        if (warning := host_warning(package)) is not None:
            print(f"odc-compile: warning: {warning}", file=sys.stderr)


def why_no_page(target: str) -> str | None:
    """Return the reason why packages for ``target`` have no page, or None: our NPUs and described machines have one."""
    from odc_mlir import targets

    is_modelled = target in targets.names() or target.endswith(".toml")
    return None if is_modelled else f"there is no model of code for {target}"


def _refuse_page(arguments: argparse.Namespace, why: str | None) -> None:
    if arguments.report_html and why is not None:
        raise OptionError(
            f"the page {arguments.report_html!r} cannot be written: {why}",
            hint="use --json, which has sizes and placement, and measure runs with odc-run --profile",
        )


def _described(arguments: argparse.Namespace, package: Package, is_modelled: bool) -> Iterator[str]:
    if package.verdict is not None:
        yield from _accuracy(arguments, package.verdict)
    if not is_modelled and package.plan is not None:
        from odc_mlir.runtime.reporting.report_object import unmodelled_report

        yield from _native_summary(unmodelled_report(package, package.plan))
        return
    from odc_mlir.runtime.reporting.report import build_report

    asked = arguments.json or arguments.report_html
    report = package.report if asked else build_report(package, quick=not arguments.verbose)
    yield from _summary(report)
    if arguments.verbose:
        from odc_mlir.runtime.reporting import report_table

        yield from report_table.layer_lines(report, width=report_table.terminal_width(), top=_OPERATORS_SHOWN)
        yield from report_table.explanation_lines(report["causes"], report["what_if"], report["cycles_total"])
        yield from report_table.memory_lines(report)
        yield from [report_table.energy_line(report["energy"])] if report["segment_count"] else []


def _native_summary(report: UnmodelledReport) -> Iterator[str]:
    from collections import Counter

    yield report.headline()
    reasons = Counter((layer["op"], layer["reason"]) for layer in report["layers"] if layer["segment"] is None)
    for (name, reason), count in reasons.most_common(_REASONS_SHOWN):
        yield f"  host: {count} x {name}: {reason}"
    if len(reasons) > _REASONS_SHOWN:
        yield f"  host: {len(reasons) - _REASONS_SHOWN} more reasons"


def _summary(report: Mapping[str, Any]) -> Iterator[str]:
    from odc_mlir.runtime.reporting.report_partition import host_groups, plan_lines

    total = report["npu_op_count"] + report["host_op_count"]
    placed = f"{report['npu_op_count']} of {counted(total, 'operator')}"
    where = f" in {counted(report['segment_count'], 'segment')}" if report["segment_count"] else ""
    yield f"{report['model']}: {placed} on {report['target']} ({report['memory']}){where}"
    groups = host_groups(report["layers"], report["target"], quantized=report["quantization"] is not None)
    for group in groups[:_REASONS_SHOWN]:
        yield f"  host: {group.line(report['macs'])}"
    if len(groups) > _REASONS_SHOWN:
        yield f"  host: {len(groups) - _REASONS_SHOWN} more reasons, see --json"
    for line in plan_lines(report):
        yield f"  {line}"
    if report["segment_count"]:
        yield (
            f"  {count_text(report['cycles_total'], 'cycles')} "
            f"(lower bounds: {count_text(report['ideal_cycles'])} for this program, "
            f"{count_text(report['model_floor_cycles'])} for any program of the model), "
            f"{share_text(report['mac_utilization'])} of the multipliers, "
            f"{size_text(report['sram_peak_bytes'])} of SRAM"
        )
    times = {key: time_text(1e6 * value) for key, value in report["modelled"].items()}
    between = time_text(1e6 * (report["modelled"]["transfer_ms"] + report["modelled"]["switch_ms"]))
    parts = f"{times['npu_ms']} on the NPU, {times['host_ms']} on the host, {between} for switching between them"
    yield f"  latency {times['latency_ms']}, modelled: {parts}"
    if report["defects"]:
        yield f"  {counted(len(report['defects']), 'defect')} of the compiler, see the warnings; please report them"


main = tool(build_parser, _body)
