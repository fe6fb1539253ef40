"""Declarations of options of quantising: name, type, default, help and schemes.

The signature of ``odc_mlir.quantize``, the flags of ``odc-quantize``, the checks in
:mod:`odc_mlir.quantizer.policy.options` and the tables of ``docs/commands.md`` derive from :class:`QuantizeOptions`.
The module imports nothing heavy, because commands build parsers before they need numpy.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

FULL_SCHEMES = ("uint8", "int8", "int8x4", "int16", "int16x8")
SCHEME_NAMES = (*FULL_SCHEMES, "int8_wo", "int16_wo", "int4_wo")
RANGE_MODES = ("minmax", "percentile", "moving-average")
FLOAT = "float"  # the precision of an operator that is not quantised
QUANTIZED = "quantized"
EQUALIZE = ("none", "weights", "activations", "activations:0.8")
AUTO, ON, OFF = "auto", "on", "off"
SWITCH = (AUTO, ON, OFF)
INPUTS, OUTPUTS = "inputs", "outputs"
RANGE, FITTED = "range", "fitted"
NAMED_PATTERNS = ("layernorm", "softmax")  # groups of operators that compute one function and may need more bits
LITERT, CPU = "litert", "cpu"

Function = TypeVar("Function", bound=Callable[..., Any])

# Schemes that an option applies to: all schemes, schemes that quantise values, weight-only schemes, schemes with a
# wider scheme for values, schemes that mix with another scheme. BY_SCHEME: the scheme itself checks the option.
ANY, OF_VALUES, OF_WEIGHTS, OF_WIDER, OF_MIXED, BY_SCHEME = "any", "values", "weights", "wider", "mixed", "by scheme"
# Groups of flags. Options with no group have no separate flag.
COMMON, TYPES, ACCURACY, BUDGET, LIMITS = "common", "types", "accuracy", "budget", "limits"


@dataclass(frozen=True, slots=True)
class OptionDeclaration:
    """Properties of an option in addition to name, type and default."""

    help: str = ""
    group: str = ""
    flag: str = ""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    applies_to: str = ANY
    idle: tuple[Any, ...] = (None,)  # values without effect, which all schemes accept
    why: str = ""  # reason in the message for a scheme that the option does not apply to
    needs_samples: bool = False  # whether recorded ranges do not suffice
    most: float | None = None  # largest number; None: not checked
    is_file: bool = False  # whether the value can be a file
    is_chosen: bool = False  # whether the verdict records the value


def option(default: Any, help: str = "", group: str = "", **more: Any) -> Any:
    """Return a dataclass field with a declaration. A callable ``default`` is a factory."""
    metadata = {"option": OptionDeclaration(help, group, **more)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def _of_values(why: str, *idle: Any, **more: Any) -> dict[str, Any]:
    return {"applies_to": OF_VALUES, "why": why, "idle": idle, **more}


_MIXED: Mapping[str, Any] = {
    "applies_to": OF_MIXED,
    "why": "has no wider scheme; layers cannot have precisions of their own",
    "is_file": True,
}
_SWITCHED: Mapping[str, Any] = {"idle": (AUTO, OFF), "needs_samples": True, "is_chosen": True}
_NO_TYPES = _of_values("values have no types or parameters", {})
_NO_RANGES = "values have no ranges"
_BOUNDARY = "type of one {0}, or of all: float, quantized, int8, uint8 or int16 (default: as --io); repeatable"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeOptions:
    """Options of quantising, except the samples. ``docs/quantisation.md`` explains each."""

    scheme: str = option("int8", "element types (int8)", choices=SCHEME_NAMES, applies_to=BY_SCHEME)
    max_drop: float | None = option(
        None, "largest allowed loss of accuracy, or of PSNR in dB", COMMON, metavar="POINTS", most=math.inf
    )
    io: str = option(
        FLOAT,
        "types of inputs and outputs (float)",
        COMMON,
        choices=(FLOAT, QUANTIZED),
        **_of_values("the model takes and gives floats", FLOAT),
    )
    min_coverage: float | None = option(
        None,
        "least share of MACs that are quantised (0.5); with --target, least share of MACs on the target (0.95)",
        COMMON,
        metavar="FRACTION",
        most=1.0,
    )
    granularity: str | None = option(
        None, "granularity of weight scales (channel)", TYPES, choices=("channel", "tensor"), applies_to=BY_SCHEME
    )
    weights: str | None = option(
        None,
        "zero points of uint8 weights (asymmetric; with --target: symmetric)",
        TYPES,
        choices=("symmetric", "asymmetric"),
        applies_to=BY_SCHEME,
    )
    input_types: Mapping[str, str] = option(
        dict, _BOUNDARY.format("input"), TYPES, flag="--input-type", metavar="[NAME=]TYPE", **_NO_TYPES
    )
    output_types: Mapping[str, str] = option(
        dict, _BOUNDARY.format("output"), TYPES, flag="--output-type", metavar="[NAME=]TYPE", **_NO_TYPES
    )
    parameters: Mapping[str, tuple[float, int]] = option(
        dict,
        "set scale and zero point of a tensor; repeatable (default: from its range)",
        TYPES,
        metavar="NAME=SCALE:ZERO",
        **_NO_TYPES,
    )
    copied_parameters: Mapping[str, str] = option(
        dict,
        "give a tensor the scale and zero point of another; repeatable",
        TYPES,
        flag="--copy-parameters",
        metavar="TO=FROM",
        **_NO_TYPES,
    )
    states: Mapping[str, str] | None = option(
        None,
        "declare that an output is an input of the next run: accuracy is then checked over sequences of samples; "
        "repeatable; none: no states (default: found by names)",
        TYPES,
        flag="--state",
        metavar="OUT=IN",
    )
    overrides: str | Mapping[str, str] | None = option(
        None,
        "set types of single layers: a scheme, or float",
        TYPES,
        metavar="NAME:TYPE,…",
        **_of_values("layers cannot have precisions of their own", ()),
    )
    config: str | Mapping[str, Any] | None = option(
        None, "precisions of single layers in ONE's format: a file or its content"
    )
    mixed: str = option(
        AUTO,
        "wider types for some layers: searched (on), searched except with --no-help (auto), or read from a file in "
        "ONE's format",
        TYPES,
        metavar="auto|on|off|FILE.json",
        choices=SWITCH,
        idle=(AUTO, OFF),
        **_MIXED,
    )
    patterns: tuple[str, ...] = option(
        (),
        "wider types for operators that form these functions: layernorm, softmax",
        TYPES,
        metavar="NAME,…",
        applies_to=OF_WIDER,
        idle=((),),
        why="has no wider scheme for patterns",
    )
    visq_file: str | None = option(
        None,
        "errors of layers (odc-diff --visq): layers with large errors get wider types first",
        TYPES,
        metavar="FILE.json",
        **_MIXED,
    )
    target: str | None = option(
        None,
        "machine whose rules restrict types: cpu, an NPU such as npu-256 or a .toml file "
        "(default: $ODC_TARGET; no restriction if it is unset or auto)",
        TYPES,
        metavar="NAME|FILE.toml",
        is_file=True,
    )
    # The flag sets it to False.
    help: bool = option(True, "do not try steps that improve accuracy", ACCURACY, flag="--no-help")
    ranges: str = option(
        AUTO,
        "method to choose ranges (auto: minmax or percentile)",
        ACCURACY,
        choices=(AUTO, *RANGE_MODES),
        **_of_values(_NO_RANGES, AUTO, is_chosen=True),
    )
    range_options: Mapping[str, Any] = option(
        dict,
        "parameter of --ranges: for percentile low or high (99), for moving-average batch or constant; repeatable",
        ACCURACY,
        flag="--range-option",
        metavar="NAME=NUMBER",
        **_of_values(_NO_RANGES, {}),
    )
    scales: str = option(
        AUTO,
        "scales in weight-only schemes: by the range of weights, or by the least error of results",
        ACCURACY,
        choices=(AUTO, RANGE, FITTED),
        applies_to=OF_WEIGHTS,
        idle=(AUTO,),
        why="has scales of weights by their ranges",
        is_chosen=True,
    )
    headroom: float | None = option(
        None,
        "widen ranges by this fraction",
        ACCURACY,
        metavar="FRACTION",
        most=math.inf,
        **_of_values(_NO_RANGES, None, is_chosen=True),
    )
    output_room: str = option(
        AUTO,
        "widen ranges of outputs to hold rare values, estimated from the samples",
        ACCURACY,
        choices=SWITCH,
        **_of_values(_NO_RANGES, AUTO, OFF, is_chosen=True),
    )
    normalize: str = option(
        AUTO,
        "normalise inputs, outputs or both (on) in float if their channels differ",
        ACCURACY,
        choices=(*SWITCH, INPUTS, OUTPUTS),
        **_SWITCHED,
    )
    equalize: str = option(
        AUTO,
        "cross-layer equalisation of all pairs, or of the pairs in a file of ONE's fm-equalize; FRACTION of the "
        "activations' ranges moves to weights (0.5)",
        ACCURACY,
        metavar="auto|none|weights|activations[:FRACTION]|FILE.json",
        choices=(AUTO, *EQUALIZE),
        is_file=True,
        **_of_values("scales move between no layers", AUTO, EQUALIZE[0], needs_samples=True, is_chosen=True),
    )
    rounding: str = option(AUTO, "adaptive rounding of weights, by samples", ACCURACY, choices=SWITCH, **_SWITCHED)
    correction: str = option(AUTO, "correction of biases, by samples", ACCURACY, choices=SWITCH, **_SWITCHED)
    max_seconds: float | None = option(
        None, "stop trying improvements after this time", ACCURACY, metavar="S", most=math.inf
    )
    max_time_ms: float | None = option(
        None,
        "limit on the modelled latency on the target",
        BUDGET,
        flag="--max-time",
        metavar="MS",
        most=math.inf,
        is_chosen=True,
    )
    max_bytes: int | None = option(
        None, "limit on the file size", BUDGET, flag="--max-size", metavar="BYTES", most=math.inf, is_chosen=True
    )
    metric: str | None = option(
        None,
        "accuracy measure: mpeir, mae, mape, mse, max_abs, sqnr, cosine, r2, top1, top1_decided, top5, drop, "
        "recall_drop or column_drop",
        LIMITS,
    )
    limit: float | None = option(None, "worst allowed value of --metric", LIMITS, metavar="X")
    reader: str | None = option(
        None,
        "program that runs the file, litert or cpu (object code): operators that it does not run on codes stay float",
        choices=(LITERT, CPU),
    )


OPTIONS: Mapping[str, OptionDeclaration] = {item.name: item.metadata["option"] for item in fields(QuantizeOptions)}
KINDS: Mapping[str, str] = {item.name: str(item.type) for item in fields(QuantizeOptions)}  # name -> annotation


def flag_of(name: str) -> str:
    """Return the flag of the option called ``name``."""
    return OPTIONS[name].flag or f"--{name.replace('_', '-')}"


def in_group(group: str) -> list[str]:
    """Return the names of the options in a group of flags."""
    return [name for name, declared in OPTIONS.items() if declared.group == group]


def takes_options(function: Function) -> Function:
    """Give a function with ``**options`` the signature and documentation of all quantisation options."""
    found = inspect.signature(function)
    own = [item for item in found.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
    lines = [inspect.getdoc(function) or "", "", "Options:", ""]
    for item in fields(QuantizeOptions):
        default = {} if item.default is MISSING else item.default
        own.append(inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=item.type))
        text = f"{'False: ' if item.type == 'bool' else ''}{OPTIONS[item.name].help}"
        lines.append(f"``{item.name}`` ({item.type}, default {default!r}): {text}.")
    vars(function)["__signature__"] = found.replace(parameters=own)
    function.__doc__ = "\n".join(lines)
    return function
