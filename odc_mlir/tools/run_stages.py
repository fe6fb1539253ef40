"""Stages and settings of ``odc-run``: quantise the model, compile it with a plugin, choose the backend."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odc_mlir.errors import OptionError, SessionError
from odc_mlir.formats.kinds import MODEL, MODEL_BY_NAME, OutputKind
from odc_mlir.tools.files import add_output, shown

if TYPE_CHECKING:
    from odc_mlir.ops.spec import Array
    from odc_mlir.runtime.api import Backend
    from odc_mlir.runtime.execution.executor import Executor
    from odc_mlir.runtime.package import Package
    from odc_mlir.runtime.session import Session
    from odc_mlir.runtime.session.settings import Settings


# onert_run's names of schemes, and suffixes of its quantised files.
QUANTIZED_SUFFIXES = {
    "uint8": "_quantized_q8",
    "int16": "_quantized_q16",
    "int8_wo": "_quantized_q8wo",
    "int16_wo": "_quantized_q16wo",
}

Records = Sequence[Sequence["Array"]]


def add_stage_flags(group: argparse._ArgumentGroup) -> None:
    """Add the flags of the two stages."""
    group.add_argument("--quantize", choices=tuple(QUANTIZED_SUFFIXES), help="quantise the model first (or -q SCHEME)")
    text = "path of the quantised model (default: the model's folder, or the cache)"
    add_output(group, "--qpath", metavar="FILE", kind=MODEL_BY_NAME, help=text)
    text = "number of random samples for recording ranges if --load is not given"
    group.add_argument("--minmax_runs", type=int, default=1, metavar="N", help=text)
    group.add_argument("--codegen", "-c", metavar="EXT-gen", help="compile the model with this plugin first")
    text = "path of the compiled model (default: the model's folder, or the cache)"
    add_output(group, "--cpath", metavar="FILE", kind=_compiled_kind, help=text)


def _compiled_kind(arguments: argparse.Namespace) -> OutputKind:
    from odc_mlir.plugins.codegen import OUTPUT

    return OUTPUT


def staged_model(arguments: argparse.Namespace, records: Callable[[str, int], Records]) -> str:
    """Return the path of the model to run: the given model, or the result of the requested stages.

    ``records(model, count)`` returns calibration samples, random if none are loaded. Raises OdcError.
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
    """Return onert_run's path next to a model file or inside a package, or a path in the cache if it is in use."""
    from odc_mlir.formats.outputs import beside_or_in_cache
    from odc_mlir.formats.package import is_package

    path = Path(model)
    suffix = QUANTIZED_SUFFIXES[scheme]
    if is_package(path) and path.is_dir():
        wanted = path / f"{path.resolve().name}{suffix}.circle"
    else:
        wanted = path.with_name(f"{path.name.removesuffix(path.suffix)}{suffix}.circle")
    return str(beside_or_in_cache(model, wanted, MODEL))


_log = logging.getLogger(__name__)


def backend_of_settings(package: Package | None) -> Backend:
    """Return the first backend of BACKENDS that can run the model, or ``auto`` if BACKENDS is not set.

    Raises SessionError if no backend of the environment's list can run it.
    """
    from odc_mlir.runtime.session.loader import HOST, LITERT, NPU, split_backends, usable_backends

    settings = settings_of(package)
    names = split_backends(settings.get("BACKENDS"))
    backends: dict[str, Backend] = {HOST: "host", LITERT: "litert"}
    try:
        first = usable_backends(names, package.plan if package is not None else None)[0] if names else NPU
    except SessionError as error:
        others = settings.without_backends(error.message)
        if others is None or others.get("BACKENDS"):  # None: settings come from environment variables
            raise
        _log.warning("%s", others.ignored[-1])
        return "auto"
    return backends.get(first, "auto")


def settings_of(package: Package | None) -> Settings:
    """Return the settings of the environment and of the package."""
    from odc_mlir.runtime.session.settings import Settings

    return Settings(package.files.config if package is not None else {})


def session_of_settings(
    arguments: argparse.Namespace, model: str, package: Package | None, executor: Executor
) -> Session | None:
    """Return a session that compiles on the device if OnDeviceCompilation is on, else None. Raises OdcError."""
    from odc_mlir.runtime.auto.aim import why_not
    from odc_mlir.runtime.session import Session
    from odc_mlir.runtime.session.settings import ENABLE

    settings = settings_of(package)
    if not settings.flag(ENABLE) or (package is not None and package.plan is not None):
        return None
    asked = {"--backend": arguments.backend != "auto", "--numerics": arguments.numerics != "fixed"}
    asked |= {"--profile": arguments.profile, "--trace": arguments.trace, "--signature": arguments.signature}
    flag = next((name for name, given in asked.items() if given), None)
    reason = f"{flag} is given" if flag is not None else why_not(executor.graph)
    if reason is not None:
        _log.warning("the model is not compiled on the device: %s", reason)
        return None
    session = Session(model, strict=arguments.strict, max_bytes=arguments.max_bytes)
    session.prepare()
    return session
