"""Quantisation flags shared by several commands, and their conversion to keyword arguments."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from odc_mlir.calibration.record_files import RECORDS
from odc_mlir.errors import AccuracyError, OptionError, printable
from odc_mlir.tools.common import size
from odc_mlir.tools.files import add_input, add_output

if TYPE_CHECKING:
    from odc_mlir.formats.calibration import Pictures

_SHOWN_EVERY_SECONDS = 0.05
_MOST_OVERRIDES, _LONGEST_OVERRIDES = 4, 240  # layers, and characters, that are printed
FULL_SCHEMES = ("uint8", "int8", "int8x4", "int16", "int16x8")
COMMON_FLAGS = frozenset({"--calibration", "--labels", "--max-drop", "--io", "--min-coverage", "--allow-accuracy-loss"})
SCHEMES = (*FULL_SCHEMES, "int8_wo", "int16_wo", "int4_wo")


def add_common_flags(group: argparse._ArgumentGroup) -> None:
    """Add the flags of every command that quantises."""
    add_input(
        group,
        "--calibration",
        metavar="DATA",
        help="samples: .npz, HDF5, a folder of raw files or images, or a text file that lists raw files",
    )
    group.add_argument(
        "--labels", action="store_true", help="measure accuracy: labels are array y of the samples' file"
    )
    group.add_argument(
        "--max-drop", type=float, metavar="POINTS", help="largest allowed loss of accuracy (or of PSNR, in dB)"
    )
    group.add_argument("--io", choices=("float", "quantized"), help="types of inputs and outputs (float)")
    group.add_argument(
        "--min-coverage",
        type=float,
        metavar="SHARE",
        help="smallest allowed share of products that are quantised (0.5) or, with a target, that run on it (0.95)",
    )
    group.add_argument("--allow-accuracy-loss", action="store_true", help="continue if the accuracy limit is missed")


def add_data_flags(group: argparse._ArgumentGroup) -> None:
    """Add further flags for calibration data."""
    add_input(
        group, "--evaluation", metavar="DATA", help="samples for the accuracy check (default: part of --calibration)"
    )
    group.add_argument("--max-samples", type=int, metavar="N", help="use at most this many samples from each source")
    add_input(
        group, "--records", metavar="FILE", help="recorded ranges instead of samples: a file of ours, or minmax.bin"
    )
    add_output(
        group,
        "--save-records",
        kind=RECORDS,
        metavar="FILE",
        help="write the recorded ranges; as minmax.bin if named .bin",
    )
    group.add_argument("--mean", metavar="R[,G,B]", help="for images: subtracted from pixels 0..255 (0)")
    group.add_argument("--scale", metavar="R[,G,B]", help="for images: factor applied to pixels (1/255)")


def add_scheme_flags(group: argparse._ArgumentGroup) -> None:
    """Add flags for types of values and weights."""
    group.add_argument("--granularity", choices=("channel", "tensor"), help="granularity of weight scales (channel)")
    group.add_argument(
        "--weights",
        choices=("symmetric", "asymmetric"),
        help="zero points of uint8 weights (asymmetric; with --target: symmetric)",
    )
    for what in ("input", "output"):
        group.add_argument(
            f"--{what}-type",
            action="append",
            default=[],
            metavar="[NAME=]TYPE",
            help=f"of one {what}, or of all: float, quantized, int8, uint8 or int16 (as --io says); repeatable",
        )
    group.add_argument(
        "--parameters",
        action="append",
        default=[],
        metavar="NAME=SCALE:ZERO",
        help="scale and zero point of a tensor, instead of those from its range; repeatable",
    )
    group.add_argument(
        "--copy-parameters",
        action="append",
        default=[],
        metavar="TO=FROM",
        help="give a tensor the scale and zero point of another; repeatable",
    )
    group.add_argument("--overrides", metavar="NAME:TYPE,…", help="types of single layers, or float")
    add_input(
        group,
        "--mixed",
        stdin=False,
        default="auto",
        metavar="auto|on|off|FILE.json",
        help="wider types for layers that need them: found by measuring (auto: unless --no-help), or given by a file "
        "in ONE's format",
    )


def add_sensitivity_flags(group: argparse._ArgumentGroup) -> None:
    """Add flags for layers of higher precision."""
    group.add_argument(
        "--patterns",
        metavar="NAME,…",
        help="wider types inside functions built from several operators: layernorm, softmax",
    )
    add_input(
        group,
        "--visq-file",
        metavar="FILE.json",
        help="tensor errors (odc-diff --visq) that decide which layers to widen first, instead of measuring each",
    )


def add_help_flags(group: argparse._ArgumentGroup) -> None:
    """Add flags for optional accuracy steps."""
    group.add_argument(
        "--no-help", dest="improve", action="store_false", help="quantise without trying to improve accuracy"
    )
    group.add_argument(
        "--ranges",
        default="auto",
        choices=("auto", "minmax", "percentile", "percentile-elements", "moving-average", "mse", "entropy"),
        help="method to choose ranges (%(default)s: minmax)",
    )
    group.add_argument("--range-option", action="append", default=[], metavar="NAME=NUMBER", help="such as high=99.9")
    group.add_argument("--headroom", type=float, metavar="PART", help="widen ranges by this fraction")
    group.add_argument(
        "--output-room",
        default="auto",
        choices=("auto", "on", "off"),
        help="widen ranges of outputs by how far rare values of theirs are likely to lie",
    )
    group.add_argument(
        "--normalize",
        default="auto",
        choices=("auto", "on", "off", "inputs", "outputs"),
        help="normalise inputs, outputs or both (on) in float if their channels differ",
    )
    group.add_argument(
        "--scales",
        default="auto",
        choices=("auto", "range", "fitted"),
        help="scales of weights alone: of their range, or of the least error",
    )
    add_input(
        group,
        "--equalize",
        stdin=False,
        default="auto",
        metavar="auto|none|weights|activations[:SHARE]|FILE.json",
        help="cross-layer equalisation of all pairs, or of those in a file of ONE's fm-equalize; SHARE: the part of "
        "the activations' ranges that moves to weights (0.5)",
    )
    group.add_argument(
        "--rounding", default="auto", choices=("auto", "on", "off"), help="adaptive rounding of weights, by samples"
    )
    group.add_argument(
        "--correction", default="auto", choices=("auto", "on", "off"), help="correction of biases, by samples"
    )
    group.add_argument("--max-seconds", type=float, metavar="S", help="stop trying improvements after this time")


def add_budget_flags(group: argparse._ArgumentGroup) -> None:
    """Add flags for a budget of time or bytes, within which the most accurate model is searched."""
    group.add_argument("--max-time", type=float, metavar="MS", help="limit on the modelled latency on the target")
    group.add_argument("--max-size", type=size, metavar="BYTES", help="limit on the file size")


def add_limit_flags(group: argparse._ArgumentGroup) -> None:
    """Add flags for accuracy limits."""
    group.add_argument(
        "--metric", help="accuracy measure: mpeir, mae, mape, mse, max_abs, sqnr, cosine, top1, top5 or drop"
    )
    group.add_argument("--limit", type=float, metavar="X", help="worst allowed value of --metric")


def add_target_flag(group: argparse._ArgumentGroup) -> None:
    """Add the flag for the target, which restricts types."""
    group.add_argument(
        "--target",
        metavar="NAME",
        help="machine whose rules restrict types: npu-128, npu-256, npu-512 or a .toml file "
        "(default: $ODC_TARGET unless auto, else all types)",
    )


def common_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of the flags of :func:`add_common_flags` that are given."""
    options = {
        "calibration": arguments.calibration,
        "labels": True if arguments.labels else None,
        "max_drop": arguments.max_drop,
        "io": arguments.io,
        "min_coverage": arguments.min_coverage,
    }
    return {name: value for name, value in options.items() if value is not None}


def all_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of all flags of ``odc_mlir.quantize``; raise OptionError for unreadable values."""
    options = {
        "scheme": arguments.scheme,
        "evaluation": arguments.evaluation,
        "max_samples": arguments.max_samples,
        "records": arguments.records,
        "granularity": arguments.granularity,
        "weights": arguments.weights,
        "input_types": arguments.input_type,
        "output_types": arguments.output_type,
        "parameters": arguments.parameters,
        "copied_parameters": arguments.copy_parameters,
        "overrides": arguments.overrides,
        "mixed": arguments.mixed,
        "patterns": arguments.patterns,
        "visq_file": arguments.visq_file,
        "help": arguments.improve,
        "ranges": arguments.ranges,
        "range_options": range_options(arguments),
        "headroom": arguments.headroom,
        "output_room": arguments.output_room,
        "normalize": arguments.normalize,
        "scales": arguments.scales,
        "equalize": arguments.equalize,
        "rounding": arguments.rounding,
        "correction": arguments.correction,
        "max_seconds": arguments.max_seconds,
        "metric": arguments.metric,
        "limit": arguments.limit,
        "max_time_ms": arguments.max_time,
        "max_bytes": arguments.max_size,
        "target": arguments.target if arguments.target is not None else _target_of_environment(),
        "pictures": pictures(arguments),
    }
    return {name: value for name, value in options.items() if value is not None} | common_options(arguments)


# What options are called in Python whose flag has another name; all others have the same.
_FLAGS = {
    "max_bytes": "--max-size",
    "max_time_ms": "--max-time",
    "copied_parameters": "--copy-parameters",
    "input_types": "--input-type",
    "output_types": "--output-type",
    "range_options": "--range-option",
    **{name: f"--{name.replace('_', '-')}" for name in ("max_drop", "max_samples", "max_seconds")},
    **{name: f"--{name.replace('_', '-')}" for name in ("min_coverage", "output_room", "visq_file")},
}


@contextmanager
def in_flags(flags: frozenset[str] | None = None) -> Iterator[None]:
    """Rename options in errors of this block to flags.

    ``flags``: the flags of a command without all of ``odc-quantize``; advice about other flags names that command.
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
    return re.sub(rf"\b({'|'.join(_FLAGS)})\b", lambda found: _FLAGS[found.group()], text)


# What a verdict's choices have that flags ask for, in the order of these.
_CHOSEN = (
    *("ranges", "scales", "headroom", "output_room", "normalize", "equalize", "rounding", "correction"),
    *("max_bytes", "max_time_ms"),
)


def flags_of(choices: Mapping[str, Any]) -> Iterator[str]:
    """Return the flags for choices, which a verdict stores by their Python names."""
    for name in _CHOSEN:
        if name not in choices:  # ranges of weights alone, or scales of these in other schemes
            continue
        value = choices[name]
        text = ("off", "on")[value] if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value
        yield f"{_FLAGS.get(name, f'--{name}')} {text}"
        if name == "ranges":
            yield from (f"--range-option {key}={number:g}" for key, number in choices["range_options"].items())


def precision_flags(choices: Mapping[str, Any], file: str | None) -> list[str]:
    """Return the flags for per-layer precisions: by the ``file`` that holds them, or as text.

    Empty if there are none, if they are too many for a line, or if only a search can set them.
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
    """Return the machine that ``$ODC_TARGET`` names, None if it names none; raise OptionError."""
    from odc_mlir import targets
    from odc_mlir.errors import TargetError
    from odc_mlir.runtime.auto.aim import AUTO
    from odc_mlir.targets.cpu import is_cpu

    name = os.environ.get("ODC_TARGET", "").strip()
    if name in ("", AUTO):
        return None
    try:
        if not is_cpu(name):
            targets.load(name)
    except TargetError as error:
        raise OptionError(
            f"$ODC_TARGET: {error.message}", location=error.location, hint="give --target, or unset it"
        ) from error
    return name


def range_options(arguments: argparse.Namespace) -> dict[str, float | int]:
    """Parse ``--range-option`` as a mapping."""
    result: dict[str, float | int] = {}
    for text in arguments.range_option:
        name, equals, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = None
        if not equals or number is None:
            raise OptionError(f"--range-option {text!r} cannot be read", hint="write NAME=NUMBER")
        result[name] = int(number) if number.is_integer() and "." not in value else number
    return result


def pictures(arguments: argparse.Namespace) -> Pictures | None:
    """Return the conversion of pixels to inputs, None if no flag sets it."""
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
    """Report progress: the current work, and the remaining time estimated from models made and still to make.

    One line that changes on a terminal; in a pipe nothing, where ``-v`` logs it.
    """
    if quiet or not sys.stderr.isatty():
        return None
    import time

    start, last = time.monotonic(), 0.0

    def show(text: str, done: int, total: int | None) -> None:
        nonlocal last
        seconds = time.monotonic() - start
        if done and seconds - last < _SHOWN_EVERY_SECONDS:
            return
        last = seconds
        count = left = ""
        if done:
            count = f", {done} of {total} models" if total else f", {done} models"
            left = f", about {seconds * (total - done) / done:.0f} s left" if total else ""
        _write_to_terminal(f"\r\x1b[K{prog}: {printable(text)}{count}, {seconds:.1f} s{left}")

    return show


def _write_to_terminal(text: str) -> None:
    """Write to stderr without escaping, since progress moves the cursor."""
    stream = getattr(sys.stderr, "stream", sys.stderr)
    stream.write(text)
    stream.flush()


def end_progress(quiet: bool) -> None:
    """Erase the progress line."""
    if not quiet and sys.stderr.isatty():
        _write_to_terminal("\r\x1b[K")
