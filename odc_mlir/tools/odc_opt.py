"""``odc-opt``: read a model or IR, run passes over it, write IR, a Circle file or a listing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import OdcError, OptionError, did_you_mean
from odc_mlir.formats.kinds import IR_TEXT, MODEL, PAGE, UNKNOWN, OutputKind, starts_with
from odc_mlir.tools import opt_passes
from odc_mlir.tools.common import (
    EXIT_USER,
    Renamed,
    UsageError,
    add_before,
    add_time_limit,
    add_verify_each,
    base_parser,
    options_below,
    passes_before,
    renamed_options,
    tool,
)
from odc_mlir.tools.files import STANDARD, add_input, add_output, add_overwrite, add_switch

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass
    from xdsl.utils.target import Target

    from odc_mlir.pipelines import StagedPass
    from odc_mlir.support.locations import Positions
    from odc_mlir.support.text import Constants
    from odc_mlir.transforms.common.rewriting import RewriteCounts
    from odc_mlir.viewer import Viewer

EPILOG = """\
Passes run in the order of the command line, whatever flag names them. A pass with options:
--npu-choose-segments='min-macs=1000', or in a pipeline: -p 'canonicalize,npu-choose-segments{min-macs=1000}'.
A stage's name in a pipeline stands for the passes that the stage adds."""

LISTING = starts_with("a listing", b"; segment ")
SEPARATOR = b"// -----"


def _is_format(value: str) -> bool:
    return value.partition("{")[0] in _format_names()


# The stock xdsl-opt has the option --target FORMAT.
RENAMED: Renamed = {"--npu": ("--target", bool), "--target": ("--emit", _is_format)}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-opt``, except flags of passes."""
    parser = base_parser("odc-opt", "Run compiler passes over a model.", epilog=EPILOG, renamed=RENAMED)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_input(
        parser,
        "input",
        nargs="?",
        default="-",
        own=True,
        help="a .circle, .tflite or .mlir file, recognised by content; - is standard input",
    )
    add_output(
        parser,
        "-o",
        "--output",
        "--output-file",  # the name in xdsl-opt
        metavar="OUT",
        kind=_kind_of_output,
        help="write to this file instead of standard output",
    )
    add_overwrite(parser)
    parser.add_argument(
        *("-t", "--emit"),
        dest="format",
        default="mlir",
        metavar="FORMAT",
        help="output format: mlir (default), circle, npu-listing, …; see --list-targets",
    )
    run = parser.add_argument_group("what to run")
    add_input(run, "--target", metavar="NAME|FILE.toml", stdin=False, help="the NPU to compile for (default: npu-256)")
    run.add_argument(
        "-p", "--passes", dest="steps", action=_Collect, default=[], metavar="PIPELINE", help="run these passes"
    )
    run.add_argument(
        "--stage", dest="steps", action=_Collect, metavar="NAME", help="run every pass up to the end of this stage"
    )
    run.add_argument("--PASS-NAME[=OPTIONS]", dest="_", action="store_true", help="run one pass; see --list-passes")
    add_before(run)
    run.add_argument("--run-pass", dest="steps", action=_Collect, help=argparse.SUPPRESS)
    add_switch(run, "--run-reproducer", "run the passes that the input names: a reproducer of a crash")
    add_time_limit(parser)
    text = parser.add_argument_group("text")
    text.add_argument(
        "--constants",
        choices=("keep", "elide"),
        help="print or elide the bytes of large constants (default: keep; on a terminal: elide)",
    )
    add_switch(text, "--print-op-generic", "print every operation in generic syntax")
    add_switch(text, "--print-no-properties", "in generic syntax, print properties as attributes")
    add_switch(text, "--print-debuginfo", "also print locations on a terminal (output to files always has locations)")
    opt_passes.add_watch_options(parser)
    add_verify_each(parser, "the default")
    add_output(
        parser,
        "--view",
        metavar="FILE.html",
        kind=PAGE,
        help="write a page that shows what each pass and rewrite changed",
    )
    read = parser.add_argument_group("input, verification and errors")
    add_switch(read, "--split-input-file", "process the parts between // ----- lines separately")
    add_switch(read, "--allow-unregistered-dialect", "accept operations of any dialect")
    add_switch(read, "--disable-verify", "do not verify the input or output of passes")
    add_switch(
        read,
        "--verify-diagnostics",
        "fail unless the errors match the comments of the input: expected-error @+N {{text}}",
    )
    add_switch(read, "--print-diagnostics", "print errors to standard output and exit with 0")
    _add_lists(parser)
    return parser


def _add_lists(parser: argparse.ArgumentParser) -> None:
    lists = parser.add_argument_group("lists").add_mutually_exclusive_group()
    lists.add_argument(
        "--help-pass", metavar="PASS", help="describe one pass: effect, errors, options; same as --help=PASS"
    )
    add_switch(lists, "--list-passes", "list passes with a summary line and options")
    add_switch(
        lists,
        "--list-patterns",
        "list the patterns of passes with sources, and the number of rewrites if passes run",
    )
    add_switch(lists, "--list-stages", "list the stages in order, with their passes")
    add_switch(lists, "--list-targets", "list the values of --emit and --target")
    add_switch(lists, "--list-rules", "list the NPU's rules for each operator, and the groups")


def _kind_of_output(arguments: argparse.Namespace) -> OutputKind:
    """Return the kind of output that ``-t`` selects. Every kind may go to standard output."""
    kinds = {"mlir": IR_TEXT, "circle": MODEL, "npu-listing": LISTING}
    return kinds.get(arguments.format.partition("{")[0], UNKNOWN)._replace(is_text=True)


class _Collect(argparse.Action):
    """Action that collects passes, pipelines and stages in command-line order as (kind, text)."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        kind = {"-p": "pipeline", "--passes": "pipeline", "--stage": "stage"}.get(option or "", "pass")
        namespace.steps = [*namespace.steps, (kind, values)]


def _pass_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> list[str]:
    """Replace every unknown ``--name[=options]`` by the option that runs a pass. Do not import passes (slow)."""
    known = {*options_below(parser), *renamed_options(parser)}
    argv = [f"--help-pass={word[7:]}" if word.startswith("--help=") else word for word in argv]
    rewritten: list[str] = []
    for index, word in enumerate(argv):
        name = word.partition("=")[0]
        if word == "--":
            return [*rewritten, *argv[index:]]
        rewritten.append(f"--run-pass={word[2:]}" if name.startswith("--") and name not in known else word)
    return rewritten


def _body(arguments: argparse.Namespace) -> int | None:
    if arguments.list_rules:
        from odc_mlir.transforms.partition.rules.table import rules_text

        print(*rules_text(), sep="\n")
        return None
    if arguments.help_pass is not None:
        print(*opt_passes.pass_help(arguments.help_pass), sep="\n")
        return None
    if arguments.list_passes or arguments.list_stages or arguments.list_targets:
        _print_lists(arguments)
        return None
    if (wrong := _wrong_usage(arguments)) is not None:
        raise UsageError(wrong, [f"--{name}" for name in opt_passes.pass_names()])
    if arguments.list_patterns and not arguments.steps:
        print(*opt_passes.pattern_list(None), sep="\n")
        return None
    from odc_mlir.pipelines import added_passes, check_reached, with_added

    before, passes = added_passes(passes_before(arguments)), list(opt_passes.requested(arguments))
    check_reached(before, (item.name for _, item in passes))
    for option in opt_passes.idle_print_options(arguments, list(with_added(before, passes))):
        print(f"odc-opt: warning: {option} prints nothing: that pass does not run", file=sys.stderr)
    run = _Run(arguments, passes, before)
    outputs, differences = run.process_all()
    if differences:
        print(*differences, sep="\n", file=sys.stderr)
        return EXIT_USER
    if arguments.list_patterns:
        outputs = ["".join(f"{line}\n" for line in opt_passes.pattern_list(run.counts)).encode()]
    arguments.files.write("output", lambda: (SEPARATOR + b"\n").join(outputs), default=STANDARD)
    if arguments.view:
        from odc_mlir.viewer import render

        arguments.files.write("view", lambda: render(_name(arguments), run.viewers))
    if arguments.timing:
        run.timing.seconds = sum(part.seconds for part in run.timing.parts)
        print(*run.timing.lines(), sep="\n", file=sys.stderr)
    return None


def _wrong_usage(arguments: argparse.Namespace) -> str | None:
    """Return a message about a usage error that the parser cannot detect: an unknown name of a pass or target."""
    from odc_mlir import targets

    flags = [text.partition("=")[0] for kind, text in arguments.steps if kind == "pass"]
    if unknown := [f"--{name}" for name in flags if name not in opt_passes.pass_names()]:
        return f"unrecognized arguments: {' '.join(unknown)}"
    name = arguments.format.partition("{")[0]
    if name not in ("mlir", "circle") and name not in _format_names():
        is_machine = arguments.format in targets.names() or arguments.format.endswith(".toml")
        machine = "; --target names the machine" if is_machine else ""
        known = ", ".join(_format_names())
        return f"argument -t/--emit: invalid choice: {arguments.format!r} (choose from {known}{machine})"
    if unknown := [
        f"--print-ir-{when}={name}"
        for when in ("before", "after")
        for name in getattr(arguments, f"print_ir_{when}")
        if name not in opt_passes.pass_names()
    ]:
        near = did_you_mean(unknown[0].partition("=")[2], opt_passes.pass_names()).strip()
        return f"no such pass: {unknown[0]}{near and f'; {near}'}"
    return None


def _format_names() -> tuple[str, ...]:
    from odc_mlir.plugins.universes import additions
    from odc_mlir.universe import ALL_TARGETS

    return ("mlir", "circle", *ALL_TARGETS, *additions("targets"))


def _print_lists(arguments: argparse.Namespace) -> None:
    from odc_mlir import pipelines

    if arguments.list_passes:
        print(*opt_passes.pass_list(), sep="\n")
    elif arguments.list_targets:
        from odc_mlir import targets

        print(
            f"formats (--emit): {', '.join(_format_names())}",
            f"machines (--target): {', '.join(targets.names())}",
            sep="\n",
        )
    else:
        width = max(map(len, pipelines.stage_names()))
        for stage in (*pipelines.STAGES, *pipelines.NATIVE_STAGES):
            print(f"{stage.name:{width}}  {stage.summary} ({', '.join(stage.passes) or 'no passes'})")


def _name(arguments: argparse.Namespace) -> str:
    return "<stdin>" if arguments.input == "-" else str(arguments.input)


def _pieces(arguments: argparse.Namespace) -> Iterator[tuple[bytes | None, int]]:
    """Yield the pieces of the input (None: the whole input file) with the numbers of the first lines."""
    if arguments.input != "-" and not (arguments.split_input_file or arguments.verify_diagnostics):
        yield None, 1
        return
    content = sys.stdin.buffer.read() if arguments.input == "-" else Path(arguments.input).read_bytes()
    line = 1
    for piece in content.split(SEPARATOR) if arguments.split_input_file else [content]:
        yield piece, line
        line += piece.count(b"\n")


@dataclass
class _Run:
    """A run of the command: passes over the pieces of the input, with data for timing, pages and lists."""

    arguments: argparse.Namespace
    passes: Sequence[StagedPass]
    before: Mapping[str, Sequence[ModulePass]]
    timing: opt_passes.Timing = field(default_factory=lambda: opt_passes.Timing("total"))
    counts: dict[str, RewriteCounts] = field(default_factory=dict)
    viewers: list[Viewer] = field(default_factory=list)

    def process_all(self) -> tuple[list[bytes], list[str]]:
        """Process each piece of the input. Return the outputs and the differences from expected errors."""
        from odc_mlir.support.locations import Positions

        outputs: list[bytes] = []
        differences: list[str] = []
        for content, first_line in _pieces(self.arguments):
            positions = Positions()
            errors: list[OdcError] = []
            try:
                outputs.append(self.process(content, first_line, positions))
            except ExceptionGroup as found:  # errors of verification
                errors = [error for error in found.exceptions if isinstance(error, OdcError)]
            except OdcError as error:
                if not self.arguments.print_diagnostics:  # its text does not depend on the file's name
                    positions.place(error)
                errors = [error]
            if self.arguments.verify_diagnostics:
                wanted = opt_passes.expectations((content or b"").decode("utf-8", "replace"), first_line)
                differences += opt_passes.unexpected(wanted, errors, _name(self.arguments))
            elif errors and self.arguments.print_diagnostics:
                outputs.append("".join(f"{error}\n" for error in errors).encode())
            elif errors:
                raise errors[0]
        return outputs, differences

    def process(self, content: bytes | None, first_line: int, positions: Positions) -> bytes:
        """Run the passes on a piece of the input and return the output."""
        from odc_mlir.frontend.import_circle import load_module
        from odc_mlir.loading import load
        from odc_mlir.pipelines import refuse_lowered, run_passes
        from odc_mlir.support.diagnostics import verify_errors, verify_module
        from odc_mlir.universe import make_context

        arguments, verify = self.arguments, not self.arguments.disable_verify
        unregistered = arguments.allow_unregistered_dialect
        context = make_context(allow_unregistered=unregistered, before=self.before)
        if arguments.verify_each == "run":
            from odc_mlir.validation import Validator

            context.validator = Validator()

        def read() -> ModuleOp:
            if content is None and arguments.input.endswith(".pt2"):
                return load(arguments.input)
            source = arguments.input if content is None else content
            module = load_module(
                context, source, _name(arguments), first_line=first_line, verify=False, positions=positions
            )
            if verify and (wrong := verify_errors(module, positions)):
                raise ExceptionGroup("wrong operations", wrong)
            return module

        def verified(module: ModuleOp) -> None:
            with self.timing.part("verify"):
                verify_module(module, positions)

        with self.timing.part("read"):
            module = read()
        steps = [] if arguments.run_reproducer else arguments.steps
        if steps and steps[0][0] == "stage":
            refuse_lowered(module)
        around = self._around(context, module, read)
        verifier = verified if verify else None
        run_passes(context, module, self.passes, verify=verify, verifier=verifier, around=around)
        with self.timing.part("write"):
            return _emit(arguments, context, module)

    def _around(
        self, context: Context, module: ModuleOp, read: Callable[[], ModuleOp]
    ) -> Callable[[str | None, ModulePass], AbstractContextManager[None]]:
        """Return a function that creates the context of a pass: printing, timing, pages, counts, and reproducers."""
        from odc_mlir.pipelines import StageWithoutPasses, with_added
        from odc_mlir.support.diagnostics import typed_errors
        from odc_mlir.transforms.common.rewriting import RewriteCounts, observed

        left = [item for _, item in with_added(self.before, self.passes)]
        done: list[ModulePass] = []
        printer, viewer = opt_passes.IrPrinter(self.arguments), self._viewer(module)

        @contextmanager
        def around(stage: str | None, item: ModulePass) -> Iterator[None]:
            name = None if isinstance(item, StageWithoutPasses) else item.name
            printer.start(item, module)
            try:
                with ExitStack() as watching:
                    if viewer is not None:
                        watching.enter_context(viewer.watching(stage or item.name, item.name))
                    if self.arguments.list_patterns:
                        watching.enter_context(observed(self.counts.setdefault(item.name, RewriteCounts())))
                    for label in filter(None, (stage, item.name)):
                        watching.enter_context(self.timing.part(label))
                    with typed_errors(pass_name=name):
                        yield
            except OdcError:
                raise
            except Exception as error:
                error.reproducer = _reproducer(context, read, done, left)  # type: ignore[attr-defined]
                raise
            done.append(left.pop(0))
            printer.end(item, module)

        return around

    def _viewer(self, module: ModuleOp) -> Viewer | None:
        if not self.arguments.view:
            return None
        from odc_mlir.viewer import Viewer

        self.viewers.append(Viewer(module))
        return self.viewers[-1]


def _reproducer(
    context: Context, read: Callable[[], ModuleOp], done: Sequence[ModulePass], left: Sequence[ModulePass]
) -> str | None:
    """Write a reproducer: the passes ``left`` and the IR before these, rebuilt because a pass failed half-way."""
    import traceback

    trace = traceback.format_exc()
    module = read()
    try:
        for item in done:
            item.apply(context, module)
    except Exception:  # a pass in ``done`` fails this time: write the original input and all passes
        module, left = read(), [*done, *left]
    return opt_passes.write_ir_reproducer(module, ",".join(map(opt_passes.text_of, left)), trace)


def _emit(arguments: argparse.Namespace, context: Context, module: ModuleOp) -> bytes:
    from io import StringIO

    name = arguments.format.partition("{")[0]
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
    return arguments.output in (None, STANDARD) and sys.stdout.isatty()


def _constants(arguments: argparse.Namespace) -> Constants:
    wanted: Constants | None = arguments.constants
    return wanted or ("elide" if _on_terminal(arguments) else "known")


def _text_target(arguments: argparse.Namespace) -> Target:
    """Return the output target with options. Listings omit constants' bytes under the same conditions as IR."""
    from dataclasses import replace

    from xdsl.utils.arg_spec import parse_spec

    from odc_mlir.emitter.program import NpuListingTarget
    from odc_mlir.plugins.universes import additions
    from odc_mlir.support.diagnostics import typed_errors
    from odc_mlir.universe import ALL_TARGETS

    with typed_errors():
        spec = parse_spec(arguments.format)
        try:
            known = {**ALL_TARGETS, **{name: added.load for name, added in additions("targets").items()}}
            target = known[spec.name]().from_spec(spec)
            elided = _constants(arguments) == "elide"
            return replace(target, data=False) if elided and isinstance(target, NpuListingTarget) else target
        except ValueError as error:
            raise OptionError(f"format {spec.name!r}: {error}") from error


main = tool(build_parser, _body, _pass_flags)
