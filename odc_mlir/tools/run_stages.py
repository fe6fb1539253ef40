"""What ``odc-run`` can do to a model before it runs: quantise it, and let a codegen plugin compile it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odc_mlir.errors import OptionError
from odc_mlir.formats.kinds import MODEL_BY_NAME, OutputKind
from odc_mlir.tools.files import add_output, shown

if TYPE_CHECKING:
    from odc_mlir.ops.spec import Array

# What onert_run calls the schemes, and how it names the files that it makes of them.
QUANTIZED_SUFFIXES = {
    "uint8": "_quantized_q8",
    "int16": "_quantized_q16",
    "int8_wo": "_quantized_q8wo",
    "int16_wo": "_quantized_q16wo",
}

Records = Sequence[Sequence["Array"]]


def add_stage_flags(group: argparse._ArgumentGroup) -> None:
    """The flags of both stages."""
    group.add_argument("--quantize", choices=tuple(QUANTIZED_SUFFIXES), help="quantise the model first (or -q SCHEME)")
    add_output(
        group,
        "--qpath",
        metavar="FILE",
        kind=MODEL_BY_NAME,
        help="path of the quantised model (default: beside the model, or in the cache)",
    )
    group.add_argument(
        "--minmax_runs",
        type=int,
        default=1,
        metavar="N",
        help="number of random samples to record ranges on, without --load",
    )
    group.add_argument("--codegen", "-c", metavar="EXT-gen", help="compile the model with this plugin first")
    add_output(
        group, "--cpath", metavar="FILE", kind=_compiled_kind, help="path of the compiled model (default: the same)"
    )


def _compiled_kind(arguments: argparse.Namespace) -> OutputKind:
    from odc_mlir.plugins.codegen import OUTPUT

    return OUTPUT


def staged_model(arguments: argparse.Namespace, records: Callable[[str, int], Records]) -> str:
    """The path of the model to run: the one given, or what the stages asked for made of it.

    ``records(model, count)`` gives samples to record ranges on, made-up ones if none are loaded. Raises OdcError.
    """
    model: str = arguments.model
    for flag, path, stage in (("--qpath", "qpath", "quantize"), ("--cpath", "cpath", "codegen")):
        if getattr(arguments, path) is not None and getattr(arguments, stage) is None:
            raise OptionError(f"{flag} names the output of --{stage}, which is not given")
        if getattr(arguments, stage) is not None and getattr(arguments, path) is None and shown(model) != model:
            raise OptionError(
                f"the output of --{stage} for a model from standard input needs a path", hint=f"name one with {flag}"
            )
    if arguments.quantize is not None:
        model = _quantized(arguments, model, records)
    if arguments.codegen is not None:
        from odc_mlir.plugins.codegen import generate

        chosen = {"target": arguments.target, "memory": arguments.memory}
        made = generate(model, arguments.codegen, arguments.cpath, target_options=chosen, overwrite=arguments.overwrite)
        model = os.fspath(made)
        _say_where(arguments, "compiled", model)
    return model


def _quantized(arguments: argparse.Namespace, model: str, records: Callable[[str, int], Records]) -> str:
    from odc_mlir.runtime.api import quantize

    if arguments.minmax_runs < 1:
        raise OptionError(f"--minmax_runs is {arguments.minmax_runs}, it must be at least 1")
    path = arguments.qpath or quantized_path(model, arguments.quantize)
    calibration = None
    if not arguments.quantize.endswith("_wo"):
        calibration = records(model, arguments.minmax_runs)
    made = quantize(model, scheme=arguments.quantize, calibration=calibration, help=False)
    made.save(path, overwrite=arguments.overwrite)
    _say_where(arguments, "quantised", path)
    return str(path)


def _say_where(arguments: argparse.Namespace, kind: str, path: str) -> None:
    if not arguments.quiet:
        print(f"odc-run: the {kind} model is {path}", file=sys.stderr)


def quantized_path(model: str, scheme: str) -> str:
    """Beside a model file, or inside a package's folder, under onert_run's name; in the cache where that is taken."""
    from odc_mlir.formats.kinds import MODEL
    from odc_mlir.formats.outputs import beside_or_in_cache
    from odc_mlir.formats.package import is_package

    path = Path(model)
    suffix = QUANTIZED_SUFFIXES[scheme]
    if is_package(path) and path.is_dir():
        wanted = path / f"{path.resolve().name}{suffix}.circle"
    else:
        wanted = path.with_name(f"{path.name.removesuffix(path.suffix)}{suffix}.circle")
    return str(beside_or_in_cache(model, wanted, MODEL))
