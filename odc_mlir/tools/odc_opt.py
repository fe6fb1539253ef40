"""``odc-opt``: read a model or IR, run passes over it, write IR, a Circle file or a listing."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.formats.kinds import IR_TEXT, MODEL, UNKNOWN, Kind, starts_with
from odc_mlir.tools.common import base_parser, run_tool, usage_error
from odc_mlir.tools.files import STANDARD, add_input, add_output, add_overwrite

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass
    from xdsl.utils.target import Target

    from odc_mlir.errors import OdcError
    from odc_mlir.support.text import Constants

EPILOG = """\
Passes run in the order of the command line, whatever flag names them. A pass with options:
--npu-form-segments='min-macs=1000', or in a pipeline: -p 'canonicalize,npu-form-segments{min-macs=1000}'.
A stage's name in a pipeline stands for the passes that the stage adds."""

LISTING = starts_with("a listing", b"; segment ")
SEPARATOR = b"// -----"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = build_parser()
    words = _pass_flags(parser, sys.argv[1:] if argv is None else argv)
    return run_tool(parser, lambda arguments: _body(parser, arguments), words)


def build_parser() -> argparse.ArgumentParser:
    """The command line of ``odc-opt``, but for the flags of passes."""
    parser = base_parser("odc-opt", "Run compiler passes over a model.", epilog=EPILOG)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_input(
        parser,
        "input",
        nargs="?",
        default="-",
        own=True,
        help="a .circle, .tflite or .mlir file, told by content; - is standard input",
    )
    add_output(
        parser,
        "-o",
        "--output-file",
        metavar="OUT",
        kind=_kind_of_output,
        help="write to this file instead of standard output",
    )
    add_overwrite(parser)
    parser.add_argument("-t", "--target", default="mlir", help="what to write: mlir (default), circle, npu-listing, …")
    run = parser.add_argument_group("what to run")
    run.add_argument(
        "-p", "--passes", dest="steps", action=_Step, default=[], metavar="PIPELINE", help="run these passes"
    )
    run.add_argument(
        "--stage", dest="steps", action=_Step, metavar="NAME", help="run every pass up to the end of this stage"
    )
    run.add_argument(
        "--PASS-NAME[=OPTIONS]", dest="_", action="store_true", help="run one pass; --list-passes tells their names"
    )
    run.add_argument("--run-pass", dest="steps", action=_Step, help=argparse.SUPPRESS)
    text = parser.add_argument_group("text")
    text.add_argument(
        "--constants",
        choices=("keep", "elide"),
        help="print bytes of large constants or leave them out (default: keep what is known, on a terminal elide)",
    )
    text.add_argument("--print-op-generic", action="store_true", help="print every operation in generic syntax")
    text.add_argument(
        "--print-no-properties", action="store_true", help="in generic syntax, print properties as attributes"
    )
    text.add_argument(
        "--print-debuginfo", action="store_true", help="print locations on a terminal too (elsewhere they always are)"
    )
    text.add_argument("--print-between-passes", action="store_true", help="print the IR after each pass on stderr")
    text.add_argument("--time-passes", action="store_true", help="print the seconds that each pass took on stderr")
    read = parser.add_argument_group("reading")
    read.add_argument("--split-input-file", action="store_true", help="take the pieces between lines of // ----- apart")
    read.add_argument("--allow-unregistered-dialect", action="store_true", help="accept operations of any dialect")
    read.add_argument("--disable-verify", action="store_true", help="check neither the input nor the output of passes")
    read.add_argument(
        "--verify-diagnostics", action="store_true", help="print what is wrong with the IR and exit with 0"
    )
    read.add_argument("--parsing-diagnostics", action="store_true", help="print what does not parse and exit with 0")
    lists = parser.add_argument_group("lists").add_mutually_exclusive_group()
    lists.add_argument("--list-passes", action="store_true", help="print the names of all passes")
    lists.add_argument("--list-stages", action="store_true", help="print the stages in order and what each adds")
    lists.add_argument("--list-targets", action="store_true", help="print what -t accepts")
    lists.add_argument("--list-rules", action="store_true", help="print what the NPU asks of each operator, and groups")
    return parser


def _kind_of_output(arguments: argparse.Namespace) -> Kind:
    """What ``-t`` writes; every form may go to standard output."""
    kinds = {"mlir": IR_TEXT, "circle": MODEL, "npu-listing": LISTING}
    return kinds.get(arguments.target.partition("{")[0], UNKNOWN)._replace(is_text=True)


class _Step(argparse.Action):
    """Collects passes, pipelines and stages in command-line order as (kind, text)."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        kind = {"-p": "pipeline", "--passes": "pipeline", "--stage": "stage"}.get(option or "", "pass")
        namespace.steps = [*namespace.steps, (kind, values)]


def _pass_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> list[str]:
    """``argv`` with every ``--name[=options]`` that is no option of ours turned into the option that runs a pass.

    Names of passes are not known yet here: finding out costs the start-up time that ``--help`` must not take.
    """
    known = {option for action in parser._actions for option in action.option_strings}
    rewritten: list[str] = []
    for index, word in enumerate(argv):
        name = word.partition("=")[0]
        if word == "--":
            return [*rewritten, *argv[index:]]
        rewritten.append(f"--run-pass={word[2:]}" if name.startswith("--") and name not in known else word)
    return rewritten


def _body(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int | None:
    if arguments.list_rules:
        from odc_mlir.transforms.npu_rules import rules_text

        print(*rules_text(), sep="\n")
        return None
    if arguments.list_passes or arguments.list_stages or arguments.list_targets:
        _print_lists(arguments)
        return None
    if (wrong := _wrong_usage(arguments)) is not None:
        return usage_error(parser, wrong, [f"--{name}" for name in _pass_names()])
    from odc_mlir.errors import OdcError

    steps = list(_passes(arguments))
    outputs: list[bytes] = []
    for content, first_line in _pieces(arguments):
        try:
            outputs.append(_process(arguments, steps, content, first_line))
        except OdcError as error:
            if not _is_expected(arguments, error):
                raise
            outputs.append(f"{error}\n".encode())
    _write(arguments, (SEPARATOR + b"\n").join(outputs))
    return None


def _wrong_usage(arguments: argparse.Namespace) -> str | None:
    """What the parser could not know to be wrong: names of passes and targets."""
    flags = [text.partition("=")[0] for kind, text in arguments.steps if kind == "pass"]
    if unknown := [f"--{name}" for name in flags if name not in _pass_names()]:
        return f"unrecognized arguments: {' '.join(unknown)}"
    if arguments.target.partition("{")[0] not in _target_names():
        return f"argument -t/--target: invalid choice: {arguments.target!r} (choose from {', '.join(_target_names())})"
    return None


def _pass_names() -> tuple[str, ...]:
    from xdsl.transforms import get_all_passes

    from odc_mlir import transforms

    return (*transforms.NAMES, *sorted(get_all_passes()))


def _target_names() -> tuple[str, ...]:
    from odc_mlir.universe import ALL_TARGETS

    return ("mlir", "circle", *ALL_TARGETS)


def _print_lists(arguments: argparse.Namespace) -> None:
    from odc_mlir import pipelines

    if arguments.list_passes:
        print(*_pass_names(), sep="\n")
    elif arguments.list_targets:
        print(*_target_names(), sep="\n")
    else:
        width = max(map(len, pipelines.stage_names()))
        for stage in pipelines.STAGES:
            print(f"{stage.name:{width}}  {stage.summary} ({', '.join(stage.passes) or 'no passes'})")


def _passes(arguments: argparse.Namespace) -> Iterator[tuple[str, ModulePass]]:
    """The passes to run in order, each with the name that stands in errors."""
    from odc_mlir import pipelines

    for kind, text in arguments.steps:
        if kind == "stage":
            yield from pipelines.passes_until(text)
            continue
        if kind == "pass":
            name, given, options = text.partition("=")
            text = f"{name}{{{options}}}" if given else name
        for spec in pipelines.expand(text):
            yield spec.name, pipelines.build_pass(spec)


def _is_expected(arguments: argparse.Namespace, error: OdcError) -> bool:
    """Whether the user asked to see this diagnostic instead of failing."""
    from xdsl.utils.exceptions import ParseError

    wanted = "parsing_diagnostics" if isinstance(error.__cause__, ParseError) else "verify_diagnostics"
    return bool(getattr(arguments, wanted))


def _pieces(arguments: argparse.Namespace) -> Iterator[tuple[bytes | None, int]]:
    """The pieces of the input, each with the line that it starts at; None stands for the whole input file."""
    if arguments.input != "-" and not arguments.split_input_file:
        yield None, 1
        return
    content = sys.stdin.buffer.read() if arguments.input == "-" else Path(arguments.input).read_bytes()
    line = 1
    for piece in content.split(SEPARATOR) if arguments.split_input_file else [content]:
        yield piece, line
        line += piece.count(b"\n")


def _process(
    arguments: argparse.Namespace, steps: Sequence[tuple[str, ModulePass]], content: bytes | None, first_line: int
) -> bytes:
    """What one piece of the input becomes."""
    from odc_mlir.frontend.load import load_module
    from odc_mlir.support.diagnostics import typed_errors
    from odc_mlir.universe import make_context

    context = make_context(allow_unregistered=arguments.allow_unregistered_dialect)
    verify = not arguments.disable_verify
    source = arguments.input if content is None else content
    name = "<stdin>" if arguments.input == "-" else arguments.input
    module = load_module(context, source, name, first_line=first_line, verify=verify)
    for stage, item in steps:
        start = time.perf_counter()
        with typed_errors(stage):
            item.apply(context, module)
            if verify:
                module.verify()
        _tell(arguments, item.name, time.perf_counter() - start, module)
    return _emit(arguments, context, module)


def _tell(arguments: argparse.Namespace, name: str, seconds: float, module: ModuleOp) -> None:
    """What was asked to be shown on stderr after a pass."""
    if arguments.time_passes:
        print(f"pass {name} took {seconds:.6f} seconds", file=sys.stderr)
    if arguments.print_between_passes:
        from odc_mlir.support.text import write_module

        print(f"IR after {name}:", file=sys.stderr)
        write_module(module, sys.stderr, constants="elide", generic=arguments.print_op_generic, locations=False)


def _emit(arguments: argparse.Namespace, context: Context, module: ModuleOp) -> bytes:
    """The module in the form that ``-t`` names."""
    from io import StringIO

    name = arguments.target.partition("{")[0]
    if name == "circle":
        from odc_mlir.formats.circle.writer import write_model
        from odc_mlir.frontend.export_circle import export_model

        return write_model(export_model(module))
    text = StringIO()
    if name == "mlir":
        from odc_mlir.support.text import write_module

        write_module(
            module,
            text,
            constants=_constants(arguments),
            generic=arguments.print_op_generic,
            locations=arguments.print_debuginfo or not _on_terminal(arguments),
            properties=not arguments.print_no_properties,
        )
    else:
        _text_target(arguments).emit(context, module, text)
    return text.getvalue().encode()


def _on_terminal(arguments: argparse.Namespace) -> bool:
    return arguments.output_file in (None, STANDARD) and sys.stdout.isatty()


def _constants(arguments: argparse.Namespace) -> Constants:
    """Which constants' bytes are written."""
    wanted: Constants | None = arguments.constants
    return wanted or ("elide" if _on_terminal(arguments) else "known")


def _text_target(arguments: argparse.Namespace) -> Target:
    """The output target with its options; bytes of constants are left out of listings as they are out of IR."""
    from dataclasses import replace

    from xdsl.utils.arg_spec import parse_spec

    from odc_mlir.emitter.npu_listing import NpuListingTarget
    from odc_mlir.errors import OptionError
    from odc_mlir.support.diagnostics import typed_errors
    from odc_mlir.universe import ALL_TARGETS

    with typed_errors():
        spec = parse_spec(arguments.target)
        try:
            target = ALL_TARGETS[spec.name]().from_spec(spec)
            elided = _constants(arguments) == "elide"
            return replace(target, data=False) if elided and isinstance(target, NpuListingTarget) else target
        except ValueError as error:
            raise OptionError(f"target {spec.name!r}: {error}") from error


def _write(arguments: argparse.Namespace, content: bytes) -> None:
    arguments.files.write(arguments.output_file or STANDARD, content, "output_file")


if __name__ == "__main__":
    raise SystemExit(main())
