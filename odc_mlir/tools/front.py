"""``odc-mlir MODEL``: lint and compile a model, quantised first if it is float; compare, and write a page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from odc_mlir.tools.common import base_parser, tool
from odc_mlir.tools.files import add_input, add_overwrite

PROGRAM = "odc-mlir"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-mlir MODEL``."""
    parser = base_parser(
        PROGRAM,
        "Bring a model to a device: lint it, quantise it if it is float, compile it, compare the package with the "
        f"model, and write a page about the result. `{PROGRAM} COMMAND` runs one of the commands alone.",
        epilog=f"examples: {PROGRAM} net_int8.tflite; {PROGRAM} net.circle --calibration samples.npz -o out",
    )
    add_input(parser, "model", metavar="MODEL", stdin=False, help=".circle or .tflite file, or nnpackage")
    add_input(
        parser, "--calibration", metavar="DATA", stdin=False, help="samples of the inputs; a float model needs them"
    )
    parser.add_argument("-o", "--output", metavar="FOLDER", help="folder for the results (MODEL.odc)")
    parser.add_argument("--target", default="npu-256", metavar="NAME|FILE.toml", help="hardware (%(default)s)")
    add_overwrite(parser)
    return parser


def _body(arguments: argparse.Namespace) -> int:
    import shlex

    from odc_mlir.tools.odc_build import call_command

    folder = Path(arguments.output or f"{Path(arguments.model).stem}.odc")
    for command, words in _steps(arguments, folder):
        if not arguments.quiet:
            print(f"$ {shlex.join([command, *words])}", flush=True)
        if code := call_command(command, words):
            return code
    arguments.files.tell([f"next: open {folder / 'report.html'}, or odc-run {folder / 'package'} --load DATA"])
    return 0


def _steps(arguments: argparse.Namespace, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands with their arguments; raise OptionError for a float model without samples."""
    from odc_mlir.errors import OptionError

    model, target = arguments.model, ["--target", arguments.target]
    more = ["--overwrite"] if arguments.overwrite else []
    yield "odc-lint", [model, *target]
    is_quantized = _is_quantized(model)
    if not is_quantized and not arguments.calibration:
        raise OptionError(
            "the model is float, and quantising it needs samples of its inputs",
            hint="give --calibration DATA (docs/quantisation.md lists the formats)",
            location=arguments.model,
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not is_quantized:
        quantized = str(folder / "quantized.circle")
        yield "odc-quantize", [model, "--calibration", arguments.calibration, "-o", quantized, *target, *more]
        model = quantized
    package, page = str(folder / "package"), str(folder / "report.html")
    yield "odc-compile", [model, "-o", package, "--report-html", page, *target, *more]
    yield "odc-diff", [model, package]


def _is_quantized(model: str) -> bool:
    from odc_mlir.runtime import api
    from odc_mlir.runtime.auto.aim import is_quantized

    return is_quantized(api.open_executor(model, backend="host").graph)


main = tool(build_parser, _body)
