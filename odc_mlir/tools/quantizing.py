"""Quantisation flags of several commands, and the conversion to keyword arguments."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from odc_mlir.calibration.record_files import RECORDS
from odc_mlir.errors import AccuracyError, OptionError, TargetError, printable
from odc_mlir.quantizer.policy.declarations import (
    AUTO,
    COMMON,
    FULL_SCHEMES,
    KINDS,
    OPTIONS,
    QuantizeOptions,
    flag_of,
    in_group,
)
from odc_mlir.tools.common import ARRAY_FORMATS, size
from odc_mlir.tools.files import add_input, add_output, add_switch

if TYPE_CHECKING:
    from odc_mlir.formats.calibration import Pictures
    from odc_mlir.ops.spec import Array

_SHOWN_EVERY_SECONDS, _LOGGED_EVERY_SECONDS = 0.05, 20.0  # on a terminal, and in lines of a log
_MOST_OVERRIDES, _LONGEST_OVERRIDES = 4, 240  # limits on printed layers and characters
RANDOM = "random"
_RANDOM_SAMPLES = 16  # the check holds back every second one, and needs eight
COMMON_FLAGS = frozenset({"--calibration", "--labels", "--allow-accuracy-loss", *map(flag_of, in_group(COMMON))})


def add_options(container: argparse.ArgumentParser | argparse._ArgumentGroup, names: Iterable[str]) -> None:
    """Add the flags of options, from :mod:`odc_mlir.quantizer.policy.declarations`."""
    defaults = QuantizeOptions()
    for name in names:
        declared, kind, default = OPTIONS[name], KINDS[name], getattr(defaults, name)
        more: dict[str, Any] = {"dest": _argument(name), "help": declared.help}
        if kind == "bool":
            container.add_argument(flag_of(name), action="store_false", **more)
            continue
        if kind.startswith("Mapping"):
            more |= {"action": "append", "default": None if default is None else []}
        elif default == AUTO:  # other defaults would hide whether the option is given
            more["default"] = default
        if kind.startswith(("float", "int")):
            more["type"] = size if name == "max_bytes" else float
        if declared.metavar is not None:
            more["metavar"] = declared.metavar
        if declared.is_file:
            add_input(container, flag_of(name), stdin="|" not in (declared.metavar or ""), **more)
        else:
            if declared.choices:
                more["choices"] = declared.choices
            container.add_argument(flag_of(name), **more)


def _argument(name: str) -> str:
    return "improve" if name == "help" else name


def add_labels(container: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the flag that measures accuracy against labels."""
    add_switch(container, "--labels", "measure accuracy: labels are array y of the samples' file")


def add_common_flags(group: argparse._ArgumentGroup) -> None:
    """Add the flags of every command that quantises."""
    text = f"samples: {ARRAY_FORMATS}, a folder of raw files or images, a text file that lists raw files, or random"
    add_input(group, "--calibration", metavar="DATA", help=text)
    add_labels(group)
    add_options(group, in_group(COMMON))
    add_switch(group, "--allow-accuracy-loss", "continue if the accuracy limit is missed")


def add_data_flags(group: argparse._ArgumentGroup) -> None:
    """Add further flags for calibration data."""
    add_input(
        group, "--evaluation", metavar="DATA", help="samples for the accuracy check (default: part of --calibration)"
    )
    group.add_argument("--max-samples", type=int, metavar="N", help="use at most this many samples from each source")
    add_input(
        group,
        "--records",
        metavar="FILE",
        help="recorded ranges instead of samples: a file of --save-records, or minmax.bin",
    )
    text = "write the recorded ranges; as minmax.bin if named .bin"
    add_output(group, "--save-records", kind=RECORDS, metavar="FILE", help=text)
    add_pictures(group)


def add_pictures(group: argparse._ActionsContainer) -> None:
    """Add the flags for pixels of images."""
    group.add_argument("--mean", metavar="R[,G,B]", help="for images: subtracted from pixels 0..255 (0)")
    group.add_argument("--scale", metavar="R[,G,B]", help="for images: factor applied to pixels (1/255)")


def common_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments for the given flags of :func:`add_common_flags`."""
    calibration: Any = arguments.calibration
    if calibration == RANDOM and not os.path.exists(RANDOM):
        calibration = _random_samples(arguments.model, getattr(arguments, "max_samples", None) or _RANDOM_SAMPLES)
    data = {"calibration": calibration, "labels": True if arguments.labels else None}
    return _given(data | {name: getattr(arguments, name) for name in in_group(COMMON)})


def _random_samples(model: str, count: int) -> list[list[Array]]:
    """Return ``count`` random samples for ``--calibration random``, with a warning. Unknown dimensions are 1."""
    import logging

    from odc_mlir.formats.samples import random_inputs
    from odc_mlir.runtime.api import open_executor
    from odc_mlir.runtime.execution.graph import index_limits

    logging.getLogger(__name__).warning(
        "%s: ranges are recorded on random inputs; give real ones for an accurate model", model
    )
    graph = open_executor(model, backend="host").graph
    wanted = [(info.info.numpy, tuple(extent or 1 for extent in info.shape or ())) for info in graph.input_infos()]
    return [random_inputs(wanted, seed, index_limits(graph)) for seed in range(count)]


def all_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of ``odc_mlir.quantize`` for all flags. Raises OptionError for unreadable values."""
    options = {name: getattr(arguments, _argument(name)) for name, declared in OPTIONS.items() if declared.group}
    options |= {name: getattr(arguments, name) for name in ("scheme", "evaluation", "max_samples", "records")}
    options["target"] = arguments.target if arguments.target is not None else _target_of_environment()
    options["pictures"] = pictures(arguments)
    return _given(options) | common_options(arguments)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def in_flags(flags: frozenset[str] | None = None) -> Iterator[None]:
    """Rename options in errors of this block to flags.

    ``flags``: the flags of a command that lacks some flags of ``odc-quantize``, which advice about a missing flag names
    """
    try:
        yield
    except AccuracyError as error:
        if flags is not None and set(re.findall(r"--[a-z-]+", error.hint or "")) - flags:
            error.hint = f"{error.hint}; these are options of odc-quantize"
        raise
    except OptionError as error:
        error.message = _in_flags(error.message)
        error.hint = None if error.hint is None else _in_flags(error.hint)
        raise


def _in_flags(text: str) -> str:
    flags = {name: flag_of(name) for name in OPTIONS if "_" in name} | {"max_samples": "--max-samples"}
    return re.sub(rf"\b({'|'.join(flags)})\b", lambda found: flags[found.group()], text)


def flags_of(choices: Mapping[str, Any]) -> Iterator[str]:
    """Yield the flags that request the choices of a verdict."""
    for name, declared in OPTIONS.items():
        if not declared.is_chosen or name not in choices:  # weight-only schemes have no ranges, other schemes no scales
            continue
        value = choices[name]
        text = ("off", "on")[value] if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value
        yield f"{flag_of(name)} {text}"
        if name == "ranges":
            yield from (f"--range-option {key}={number:g}" for key, number in choices["range_options"].items())


def precision_flags(choices: Mapping[str, Any], file: str | None) -> list[str]:
    """Return the flags for per-layer precisions: the ``file`` that holds the precisions, or the precisions as text.

    Return no flags if no layer has a separate precision, if there are too many, or if only a search sets these.
    """
    from odc_mlir.flow import option_words
    from odc_mlir.quantizer.policy.options import overrides_text

    precisions = choices["precisions"]
    if not precisions or choices["scheme"] not in FULL_SCHEMES:
        return []
    if file is not None:
        return [shlex.quote(word) for word in option_words("--mixed", file)]
    text = overrides_text(precisions)
    is_short = len(precisions) <= _MOST_OVERRIDES and len(text) <= _LONGEST_OVERRIDES
    if not is_short or choices.get("granularities"):
        return []
    return ["--mixed off", f"--overrides {shlex.quote(text)}"]


def _target_of_environment() -> str | None:
    name = os.environ.get("ODC_TARGET", "").strip()
    if not name:
        return None
    from odc_mlir import targets
    from odc_mlir.processors import is_cpu
    from odc_mlir.runtime.auto.aim import AUTO

    if name == AUTO:
        return None
    try:
        if not is_cpu(name):
            targets.load(name)
    except TargetError as error:
        raise OptionError(
            f"$ODC_TARGET: {error.message}", location=error.location, hint="give --target, or unset it"
        ) from error
    return name


def pictures(arguments: argparse.Namespace) -> Pictures | None:
    """Return the conversion of pixels to inputs, or None if no flag sets it."""
    if arguments.mean is None and arguments.scale is None:
        return None
    from odc_mlir.formats.calibration import Pictures

    plain = Pictures()
    return Pictures(
        _numbers("--mean", arguments.mean) or plain.mean, _numbers("--scale", arguments.scale) or plain.scale
    )


def _numbers(flag: str, text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise OptionError(f"{flag} is {text!r}, expected one number, or one per channel") from None


def progress_on_stderr(prog: str, quiet: bool) -> Callable[[str, int, int | None], None] | None:
    """Return a function that prints progress in a line of the terminal, or None if ``quiet``.

    Without a terminal, long work prints a line from time to time. The remaining time is estimated from the numbers of
    finished and remaining models.
    """
    if quiet:
        return None
    on_terminal, in_log = ("\r\x1b[K", "", _SHOWN_EVERY_SECONDS), ("", "\n", _LOGGED_EVERY_SECONDS)
    begin, end, every = on_terminal if sys.stderr.isatty() else in_log
    start, last = time.monotonic(), 0.0

    def show(text: str, done: int, total: int | None) -> None:
        nonlocal last
        seconds = time.monotonic() - start
        if (done or end) and seconds - last < every:
            return
        last = seconds
        count = left = ""
        if done:
            count = f", {done} of {total} models" if total else f", {done} models"
            left = f", about {seconds * (total - done) / done:.0f} s left" if total else ""
        _write_to_terminal(f"{begin}{prog}: {printable(text)}{count}, {seconds:.1f} s{left}{end}")

    return show


def _write_to_terminal(text: str) -> None:
    stream = getattr(sys.stderr, "stream", sys.stderr)
    stream.write(text)
    stream.flush()


def end_progress(quiet: bool) -> None:
    """Erase the progress line."""
    if not quiet and sys.stderr.isatty():
        _write_to_terminal("\r\x1b[K")
