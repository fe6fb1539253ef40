"""``odc-mlir``: commands by name, completion for shells, sample files, and all steps for a model.

``odc-mlir compile MODEL`` is ``odc-compile MODEL``. ``odc-mlir MODEL`` lints, quantises, compiles and compares a model.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import OptionError, UnsupportedError, did_you_mean, of_extra
from odc_mlir.formats.kinds import FOLDER
from odc_mlir.tools.common import EXIT_USAGE, MODEL_FORMATS, base_parser, guarded, run_tool, tool
from odc_mlir.tools.files import add_input, add_memory, add_overwrite

if TYPE_CHECKING:
    from types import ModuleType

PROGRAM = "odc-mlir"
SHELLS = ("bash", "zsh", "fish")
_COMPARED = "4"  # samples; simulating one may take seconds
_DONE_NEXT = ("--ignore", "float-model", "--ignore", "batch-norm")  # findings with a remedy that is the next step
_OF_QUANTIZING = ("scheme", "io", "evaluation", "labels", "mean", "scale")  # options that odc-quantize gets


def commands() -> dict[str, str]:
    """Return modules by command name without ``odc-``. For example, ``compile`` is the module of ``odc-compile``."""
    files = sorted(Path(__file__).parent.glob("odc_*.py"))
    return {path.stem.removeprefix("odc_"): f"odc_mlir.tools.{path.stem}" for path in files}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if name in (own := {"completion": _completion, "samples": _samples}):
        return own[name](rest)
    if (module := commands().get(name.removeprefix("odc-"))) is not None:
        code: int = importlib.import_module(module).main(rest)
        return code
    if name in ("", "-h", "--help"):
        return guarded(PROGRAM, _print_commands)
    if name.startswith("-") or Path(name).suffix or os.path.lexists(name):
        return _main_of_model(arguments)
    known = [*commands(), *own]
    text = f"there is neither a model file nor a command {name!r}; {did_you_mean(name, known)}commands:"
    print(f"{PROGRAM}: error: {text} {', '.join(known)}", file=sys.stderr)
    return EXIT_USAGE


def _print_commands() -> None:
    build_parser().print_help()
    print("\ncommands, each with --help:")
    for command, where in commands().items():
        print(f"  {command:<12} {_summary(where)}")
    print("  completion   print the completion script for a shell: bash, zsh or fish")
    print("  samples      copy sample models and images to a folder")


def _summary(module: str) -> str:
    """Return the first line of the docstring of a command's module, except the command's name."""
    with (Path(__file__).parent / f"{module.rpartition('.')[2]}.py").open(encoding="utf-8") as source:
        return source.readline().strip().strip('"').partition(": ")[2]


def _completion(arguments: Sequence[str]) -> int:
    parser = base_parser(
        f"{PROGRAM} completion",
        "Print a script that completes commands' options; evaluate or source it in the shell.",
    )
    parser.add_argument("shell", choices=SHELLS)
    name: dict[str, Any] = {"type": lambda text: text.removeprefix("odc-"), "choices": [*commands()]}
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="only this one", **name)
    return run_tool(parser, _print_completion, arguments)


def _print_completion(arguments: argparse.Namespace) -> None:
    with of_extra("completion", UnsupportedError, "completion needs shtab"):
        import shtab
    for name, where in commands().items():
        if arguments.command in (None, name):
            module: ModuleType = importlib.import_module(where)
            built: argparse.ArgumentParser = module.build_parser()
            print(shtab.complete(built, shell=arguments.shell))


def _samples(arguments: Sequence[str]) -> int:
    parser = base_parser(f"{PROGRAM} samples", "Copy sample models and pictures of handwritten digits to a folder.")
    parser.add_argument("folder", metavar="FOLDER", help="new or empty folder, or one of samples")
    add_overwrite(parser)
    return run_tool(parser, _copy_samples, arguments)


def _copy_samples(arguments: argparse.Namespace) -> None:
    from odc_mlir import samples
    from odc_mlir.formats.kinds import UNKNOWN
    from odc_mlir.formats.outputs import check_output, write_output

    folder = Path(arguments.folder)
    found = {name: samples.path(name).read_bytes() for name in samples.FILES}
    # A second copy to the same folder changes nothing.
    is_copy = folder.is_dir() and all(
        path.name in found and path.is_file() and path.read_bytes() == found[path.name] for path in folder.iterdir()
    )
    check_output(folder, FOLDER, overwrite=arguments.overwrite or is_copy)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in found.items():
        write_output(folder / name, data, UNKNOWN, overwrite=arguments.overwrite)
    arguments.files.suggest(PROGRAM, str(folder / "digits_cnn_int8.circle"))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-mlir MODEL``."""
    from odc_mlir.tools.quantizing import add_labels, add_options, add_pictures

    parser = base_parser(
        PROGRAM,
        "Bring a model to a device: lint it, quantise it if it is float, compile it, compare the package with the "
        f"compiled model on samples, and write a page about it. `{PROGRAM} COMMAND` runs one of the commands alone.",
    )
    add_input(parser, "model", metavar="MODEL", stdin=False, help=f"model {MODEL_FORMATS}")
    add_input(
        parser, "--calibration", metavar="DATA", stdin=False, help="samples of the inputs; a float model needs them"
    )
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="folder for the results (MODEL.odc in the current folder)"
    )
    parser.add_argument("--target", default="npu-256", metavar="NAME|FILE.toml", help="hardware (%(default)s)")
    add_memory(parser)
    add_options(parser, ("scheme", "io"))
    add_input(
        parser, "--evaluation", metavar="DATA", stdin=False, help="samples for the accuracy check of a float model"
    )
    add_labels(parser)
    add_pictures(parser)
    add_overwrite(parser)
    return parser


def _body(arguments: argparse.Namespace) -> int:
    from odc_mlir.tools.odc_build import call_command
    from odc_mlir.tools.odc_compile import why_no_page
    from odc_mlir.tools.quantizing import RANDOM

    folder = Path(arguments.output or f"{Path(arguments.model).stem}.odc")
    arguments.samples = None if arguments.calibration == RANDOM else arguments.calibration
    arguments.quantized = folder / f"{Path(arguments.model).stem}-quantized.circle"  # reports name the model after it
    why = why_no_page(arguments.target)
    arguments.page = folder / "report.html" if why is None else None
    arguments.not_compared, arguments.reference, was_float = "", "", False
    for command, words in _steps(arguments, folder):
        was_float |= command == "odc-quantize"
        if not arguments.quiet:
            print(f"$ {shlex.join([command, *words])}", flush=True)
        if code := call_command(command, ["-q", *words] if arguments.quiet else words):
            return code
    for line in _result(arguments, folder, was_float):
        print(line)
    page = f"open {arguments.page}, or" if arguments.page else f"(no page: {why})"
    there = "copy the package to its machine, and there run " if arguments.not_compared else ""
    arguments.files.tell([f"next: {page} {there}odc-run {folder / 'package'} --load DATA"])
    return 0


def _result(arguments: argparse.Namespace, folder: Path, was_float: bool) -> Iterator[str]:
    """Yield what was compared with what."""
    compared = "samples" if arguments.samples else "a random input (--calibration DATA: on samples)"
    is_equal = f"= {arguments.reference} on {compared}"
    yield f"{folder / 'package'} {arguments.not_compared or is_equal}"
    if was_float:
        from odc_mlir.quantizer.summary import conclusion, figure

        accuracy = json.loads((folder / "accuracy.json").read_text(encoding="utf-8"))
        yield f"{arguments.quantized} against {arguments.model}: {figure(accuracy)}; {conclusion(accuracy)}"


def _steps(arguments: argparse.Namespace, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands with arguments. Raises OptionError for a float model if no samples are given."""
    from odc_mlir.formats.package import MODEL_NAME
    from odc_mlir.runtime import api
    from odc_mlir.runtime.auto.aim import is_quantized
    from odc_mlir.runtime.validity import PackageState, check

    model, target = arguments.model, ["--target", arguments.target]
    more = ["--overwrite"] if arguments.overwrite else []
    is_float = not is_quantized(api.open_executor(model, backend="host").graph)
    chosen = {name: value for name in _OF_QUANTIZING if (value := getattr(arguments, name))}
    if chosen and not is_float:
        raise OptionError(f"--{next(iter(chosen))} is for float models, and {model} is quantised")
    if is_float and not arguments.calibration:
        raise OptionError(
            "the model is float, and quantising it needs samples of its inputs",
            hint="give --calibration DATA (docs/quantisation.md lists the formats)",
            location=arguments.model,
        )
    folder.mkdir(parents=True, exist_ok=True)
    yield "odc-lint", [model, *target, *(_DONE_NEXT if is_float else ())]
    if is_float:
        quantized, verdict = str(arguments.quantized), str(folder / "accuracy.json")
        words = [model, "--calibration", arguments.calibration, "-o", quantized, "--json", verdict]
        for name, value in chosen.items():
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        yield "odc-quantize", [*words, *target, *more]
        model = quantized
        yield "odc-lint", [model, *target]  # some findings need the values of weights that were stored as float16
    package, page = str(folder / "package"), ["--report-html", str(arguments.page)] if arguments.page else []
    yield "odc-compile", [model, "-o", package, *page, "--memory", arguments.memory, *target, *more]
    if (found := check(package)).state != PackageState.RUNS:
        arguments.not_compared = f"is not compared, as its code does not run here: {found.reason}"
        return
    samples = ["--load", arguments.samples, "--max-samples", _COMPARED] if arguments.samples else []
    # A program that PyTorch quantised differs from its integers by single codes. The package has the integers.
    arguments.reference = str(Path(package) / MODEL_NAME) if model.endswith(".pt2") else model
    yield "odc-diff", [arguments.reference, package, *samples]


_main_of_model = tool(build_parser, _body)
