"""Options of the quantiser: text forms, defaults, and checks against the scheme.

Text, or a JSON file in the format of ONE's quantiser, gives precisions of single layers by result names. An entry with
``alternate`` has several variants of names, and exactly one variant must be in the graph.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from odc_mlir.errors import OptionError, did_you_mean, located, parsing
from odc_mlir.formats.states import pairs_of
from odc_mlir.ops.dtypes import CODE_DTYPES, DTYPES
from odc_mlir.quantizer.policy import declarations, schemes
from odc_mlir.quantizer.policy.declarations import AUTO, EQUALIZE, INPUTS, LITERT, OFF, ON, OPTIONS, SWITCH
from odc_mlir.quantizer.policy.readers import NPU, WIDE_WEIGHTS
from odc_mlir.quantizer.policy.schemes import FLOAT, PRECISIONS, SCHEMES, Scheme


def pieces(text: str, separator: str) -> list[str]:
    """Split ``text`` at separators, and remove backslashes before escaped separators."""
    found = re.split(rf"(?<!\\){re.escape(separator)}", text)
    return [piece.replace(f"\\{separator}", separator) for piece in found]


def escaped(name: str, separator: str) -> str:
    """Return ``name`` escaped for :func:`pieces`."""
    return name.replace(separator, f"\\{separator}")


BOUNDARY_TYPES = (FLOAT, declarations.QUANTIZED, *CODE_DTYPES)


def parse_boundary(entries: Sequence[str] | Mapping[str, str] | str) -> dict[str, str]:
    """Return types by name from ``NAME=TYPE``. ``TYPE`` alone has the empty name. Raise OptionError."""
    if isinstance(entries, Mapping):
        entries = [f"{name}={type}" if name else str(type) for name, type in entries.items()]
    elif isinstance(entries, str):
        entries = [entries]
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, type = str(entry).rpartition("=")
        if equals and not name:
            raise OptionError(f"{str(entry)!r} has an empty name", hint="write NAME=TYPE, or TYPE alone")
        if type not in BOUNDARY_TYPES:
            raise OptionError(
                f"unknown type {type!r} of an input or output", hint=f"use one of {', '.join(BOUNDARY_TYPES)}"
            )
        if name in found:
            whose = f"of {name!r}" if name else "of all inputs or outputs"
            raise OptionError(f"the type {whose} has been given twice")
        found[name] = type
    return found


def parse_parameters(entries: Sequence[str] | Mapping[str, tuple[float, int]]) -> dict[str, tuple[float, int]]:
    """Return scales and zero points by name from ``NAME=SCALE:ZERO``. Raises OptionError."""
    given = (
        {name: f"{scale!r}:{zero}" for name, (scale, zero) in entries.items()}
        if isinstance(entries, Mapping)
        else dict(_assigned(entries, "parameters", "NAME=SCALE:ZERO"))
    )
    found: dict[str, tuple[float, int]] = {}
    for name, text in given.items():
        scale, _, zero = text.partition(":")
        try:
            found[name] = float(scale), int(zero or "0")
        except ValueError:
            raise OptionError(f"parameters {text!r} of {name!r} cannot be read", hint="write SCALE:ZERO") from None
        if not 0 < found[name][0] < math.inf:
            raise OptionError(f"the scale of {name!r} is {scale}, expected a finite number above 0")
    return found


def parse_copies(entries: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Return the source of each tensor's parameters from ``TO=FROM`` with escaped ``=``. Raises OptionError."""
    if isinstance(entries, Mapping):
        return dict(entries)
    return dict(_assigned(entries, "a copy of parameters", "TO=FROM"))


def parse_states(entries: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Return states as output -> input of the next run, from ``OUT=IN``. ``none`` means no states."""
    if isinstance(entries, str):
        entries = [entries]
    pairs = () if not isinstance(entries, Mapping) and list(entries) == ["none"] else pairs_of(entries)
    return {pair.output: pair.input for pair in pairs}


def _assigned(entries: Sequence[str], what: str, form: str) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for entry in entries:
        *names, value = pieces(entry, "=")
        name = "=".join(names)
        if not name or not value:
            raise OptionError(f"{entry!r} is not {what}", hint=f"write {form}")
        if name in found:
            raise OptionError(f"{name!r} has parameters given twice", hint="name it once")
        found[name] = value
    return list(found.items())


_FIELDS = ("default_quantization_dtype", "default_granularity", "layers")
_LAYER_FIELDS = ("name", "names", "dtype", "granularity", "alternate")


@dataclass(frozen=True, slots=True)
class PrecisionChoice:
    """Precision of a layer, and the granularity of the weights (None: the granularity of the model)."""

    precision: str
    granularity: str | None = None


@dataclass(frozen=True, slots=True)
class PrecisionEntry:
    """An entry with names of layers by variant. The first variant is the name as written."""

    variants: tuple[tuple[str, ...], ...]
    choice: PrecisionChoice


@dataclass(frozen=True, slots=True)
class PrecisionPlan:
    """Requested precisions. ``scheme`` and ``granularity`` are None if not given."""

    scheme: str | None = None
    granularity: str | None = None
    layers: tuple[PrecisionEntry, ...] = field(default=())

    def resolve(self, names: Sequence[str]) -> dict[str, PrecisionChoice]:
        """Return the choices by layer name. Raises OptionError for unknown and repeated names."""
        known, found = set(names), dict[str, PrecisionChoice]()
        for layer in self.layers:
            for name in _variant(layer, known):
                if name in found:
                    raise OptionError(f"layer {name!r} has a precision given twice", hint="name it once")
                found[name] = layer.choice
        return found


def _variant(layer: PrecisionEntry, known: set[str]) -> tuple[str, ...]:
    there = [variant for variant in layer.variants if known.issuperset(variant)]
    if len(there) == 1:
        return there[0]
    if len(layer.variants) == 1:
        missing = next(name for name in layer.variants[0] if name not in known)
        raise OptionError(f"no operator has a result {missing!r}", hint="odc-dump lists the names of a model")
    what = "none is" if not there else f"{len(there)} are"
    variants = " or ".join(", ".join(variant) for variant in layer.variants)
    raise OptionError(f"exactly one of the variants of a layer ({variants}) must be in the graph; {what}")


def parse_overrides(text: str) -> tuple[PrecisionEntry, ...]:
    """Parse ``name:precision,name:precision``. Names may contain colons, and commas as ``\\,``. Raise OptionError."""
    layers = []
    for entry in filter(None, pieces(text, ",")):
        name, colon, precision = entry.rpartition(":")
        if not colon or not name:
            raise OptionError(
                f"{entry!r} is not an override",
                hint="write NAME:PRECISION, separated by commas; a name has \\, for its own",
            )
        layers.append(PrecisionEntry(((name,),), PrecisionChoice(_known("precision", precision, PRECISIONS))))
    return tuple(layers)


def overrides_text(precisions: Mapping[str, str]) -> str:
    """Return the text of precisions by layer for :func:`parse_overrides`."""
    return ",".join(f"{escaped(name, ',')}:{precision}" for name, precision in precisions.items())


def read_config(path: str | os.PathLike[str]) -> PrecisionPlan:
    """Return the plan in a JSON file. Raises an OptionError that names the file if it is unreadable or invalid."""
    with located(os.fspath(path)):
        with parsing("cannot read the configuration", OptionError), open(path, encoding="utf-8") as file:
            content = json.load(file)
        return plan_of(content)


def plan_of(content: Any) -> PrecisionPlan:
    """Return the plan for the content of a JSON file."""
    fields = _table(content, "the configuration", _FIELDS)
    default, granularity = fields.get("default_quantization_dtype"), fields.get("default_granularity")
    layers = fields.get("layers", [])
    if not isinstance(layers, list):
        raise OptionError(f"layers is {layers!r}, must be a list")
    return PrecisionPlan(
        None if default is None else _known("default_quantization_dtype", default, PRECISIONS[:-1]),
        _granularity(granularity),
        tuple(map(_layer, layers)),
    )


def _layer(content: Any) -> PrecisionEntry:
    fields = _table(content, "a layer", _LAYER_FIELDS)
    if ("name" in fields) == ("names" in fields):
        raise OptionError(f"a layer has either name or names, found {', '.join(fields) or 'neither'}")
    names = _names([fields["name"]] if "name" in fields else fields["names"])
    if "dtype" not in fields:
        raise OptionError(f"layer {names[0]!r} has no dtype", hint=f"use one of {', '.join(PRECISIONS)}")
    alternates = fields.get("alternate", {})
    if not isinstance(alternates, dict):
        raise OptionError(f"alternate of layer {names[0]!r} is {alternates!r}, must map tags to lists of names")
    return PrecisionEntry(
        (names, *map(_names, alternates.values())),
        PrecisionChoice(_known("dtype", fields["dtype"], PRECISIONS), _granularity(fields.get("granularity"))),
    )


def _names(content: Any) -> tuple[str, ...]:
    if not isinstance(content, list) or not content or not all(isinstance(name, str) for name in content):
        raise OptionError(f"names of a layer are {content!r}, must be a list of strings")
    return tuple(content)


def _granularity(value: Any) -> str | None:
    """Parse a granularity, which may be missing. ``layer`` is ONE's name for one scale per tensor."""
    return (
        None if value is None else _known("granularity", "tensor" if value == "layer" else value, schemes.GRANULARITIES)
    )


def _known(what: str, value: Any, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise OptionError(f"unknown {what} {value!r}", hint=f"use one of {', '.join(allowed)}")
    return str(value)


def _table(content: Any, what: str, allowed: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise OptionError(f"{what} is {content!r}, must be a table")
    if unknown := sorted(content.keys() - set(allowed)):
        raise OptionError(f"{what} has an unknown field {unknown[0]!r}", hint=f"allowed are {', '.join(allowed)}")
    return content


PAIRS_SUFFIX = ".json"  # suffix of files with pairs of layers to equalise
WIDE_HEADROOM = 1.0  # headroom of 16-bit values: a step of twice the size costs 6 dB of the 98 dB of 16 bits

Progress = Callable[[str, int, int | None], None]
"""Callback with the current activity, the number of models built, and the number expected, if known."""

_OF_VALUES = tuple(name for name, scheme in SCHEMES.items() if not scheme.weights_only)
# Kind of schemes in declarations of options -> names of the schemes. BY_SCHEME is missing: the scheme checks it.
SCHEMES_OF: Mapping[str, tuple[str, ...]] = {
    declarations.ANY: tuple(SCHEMES),
    declarations.OF_VALUES: _OF_VALUES,
    declarations.OF_WEIGHTS: tuple(name for name in SCHEMES if name not in _OF_VALUES),
    declarations.OF_WIDER: tuple(name for name in schemes.LADDERS if schemes.wider_values(name) != FLOAT),
    declarations.OF_MIXED: tuple(dict.fromkeys((*schemes.LADDERS, *schemes.NARROWER))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(declarations.QuantizeOptions):
    """Checked options. ``plan`` holds the precisions of ``overrides``, ``config`` or a file given as ``mixed``."""

    plan: PrecisionPlan = field(default_factory=PrecisionPlan)

    @property
    def definition(self) -> Scheme:
        """The scheme with granularity and form of weights. Raises OptionError if these contradict."""
        found, granularity = schemes.scheme(self.scheme), self.granularity
        if self.reader == LITERT and found.activations == "uint8":
            granularity = granularity or "tensor"  # LiteRT's only granularity of uint8 weights
        reader, weights = self.reader or (NPU if self.target is not None else ""), self.weights
        if weights is None and reader == NPU and found.weights == "uint8":
            weights = "symmetric"  # with zero points per channel, NPUs need twice the multiplications
        return found.read_by(reader).with_options(granularity=granularity, weights=weights)

    @property
    def equalizations(self) -> tuple[str, ...]:
        """Equalisations to try, first none. If parameters of tensors are given, only none."""
        if self.equalize != AUTO:
            return (self.equalize,)
        return EQUALIZE if self.help and not self.gives_parameters else EQUALIZE[:1]

    @property
    def chosen_headroom(self) -> float:
        """Headroom of the first trial, as a part of the observed range. With 8 bits, help may choose more later."""
        if self.headroom is not None:
            return self.headroom
        return WIDE_HEADROOM if self.has_codes_to_spare else 0.0

    @property
    def has_codes_to_spare(self) -> bool:
        """True if ranges may be much wider than values without a visible loss by wider steps."""
        return self.definition.activations == "int16"

    def switched(self, value: str) -> tuple[bool, ...]:
        """Return the states of a switch to try, off first."""
        if value == AUTO:
            return (False, True) if self.help else (False,)
        return (value == ON,)

    def normalizes(self, kind: str) -> tuple[bool, ...]:
        """Return the states to try for normalising inputs or outputs (``kind``), off first."""
        value = self.normalization
        return (value == kind,) if value in (INPUTS, declarations.OUTPUTS) else self.switched(value)

    @property
    def fits_scales(self) -> tuple[bool, ...]:
        """States to try for fitting scales of weights, off first."""
        return (self.scales == declarations.FITTED,) if self.scales != AUTO else self.switched(AUTO)

    @property
    def searches_precisions(self) -> bool:
        """True if layers may get precisions other than the scheme's."""
        return self.mixed == ON or (self.mixed == AUTO and (self.help or self.has_budget))

    @property
    def gives_parameters(self) -> bool:
        return bool(self.parameters or self.copied_parameters)

    @property
    def normalization(self) -> str:
        """Switch of normalising inputs and outputs, except for states and tensors with given parameters."""
        return OFF if self.normalize == AUTO and (self.gives_parameters or self.states) else self.normalize

    @property
    def has_budget(self) -> bool:
        return self.max_time_ms is not None or self.max_bytes is not None


def is_pattern_file(equalize: str) -> bool:
    """Return whether an equalisation is a file with pairs of layers."""
    return equalize.endswith(PAIRS_SUFFIX)


def share_moved(equalize: str) -> float:
    """Return the part of activation ranges that moves to weights, by default a half. Raises OptionError."""
    kind, colon, text = equalize.partition(":")
    if kind != "activations" or not colon:
        return 0.5
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise OptionError(f"equalize is {equalize!r}", hint="give activations:FRACTION, a number from 0 to 1")
    return share


def make_options(*, overrides: Any = None, config: Any = None, mixed: Any = AUTO, **given: Any) -> Options:
    """Return checked options. None counts as not given, and switches may be bools. Raises OptionError."""
    if unknown := next((name for name in given if name not in OPTIONS), None):
        raise OptionError(f"unknown option {unknown!r}", hint=f"{did_you_mean(unknown, OPTIONS)}see the documentation")
    given = {name: _plain(name, value) for name, value in given.items() if value is not None}
    mixed = _plain("mixed", mixed)
    if not isinstance(mixed, str) or mixed not in SWITCH:
        if config is not None:
            raise OptionError("a configuration is given twice", hint="give it as config or as mixed")
        config, mixed = mixed, OFF
    plan = _plan(overrides, config)
    for name, value in given.items():
        _check_kind(name, value)
    given |= {name: read(given[name]) for name, read in _READ.items() if name in given}
    scheme = given.pop("scheme", None)
    if None not in (scheme, plan.scheme) and scheme != plan.scheme:
        raise OptionError(
            f"the scheme is {scheme}, and the file of precisions has {plan.scheme} for all other layers",
            hint="omit the scheme, or the file's default_quantization_dtype",
        )
    scheme = scheme or plan.scheme or "int8"
    granularity = given.pop("granularity", None) or plan.granularity
    options = Options(scheme=scheme, granularity=granularity, mixed=mixed, plan=plan, **given)
    _check(options)
    return options


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, bool) and ON in OPTIONS[name].choices:
        return (OFF, ON)[value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def parse_patterns(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return names of patterns from a list or a text with commas, in any case. Raises OptionError for unknown names."""
    given = names.split(",") if isinstance(names, str) else list(names)
    found = tuple(dict.fromkeys(name.strip().lower() for name in given if name.strip()))
    if unknown := next((name for name in found if name not in declarations.NAMED_PATTERNS), None):
        raise OptionError(f"unknown pattern {unknown!r}", hint=f"use {' or '.join(declarations.NAMED_PATTERNS)}")
    return found


def parse_numbers(entries: Sequence[str] | Mapping[str, float]) -> dict[str, float]:
    """Return numbers by name from ``NAME=NUMBER``. Raises OptionError for other text and values."""
    if isinstance(entries, Mapping):
        for name, number in entries.items():
            _check_type(f"the option {name!r} of ranges", number, Real, _NUMBER)
        return dict(entries)
    found: dict[str, float] = {}
    for text in entries:
        name, _, value = text.partition("=")
        try:
            found[name] = float(value) if "." in value or not float(value).is_integer() else int(float(value))
        except ValueError:
            raise OptionError(f"range_options {text!r} cannot be read", hint="write NAME=NUMBER") from None
    return found


_READ: Mapping[str, Callable[[Any], Any]] = {
    "input_types": parse_boundary,
    "output_types": parse_boundary,
    "parameters": parse_parameters,
    "copied_parameters": parse_copies,
    "patterns": parse_patterns,
    "states": parse_states,
    "range_options": parse_numbers,
}
_NUMBER = "a number"
_TYPES: Mapping[str, tuple[type, str]] = {
    "float": (Real, _NUMBER),
    "int": (Real, _NUMBER),
    "str": (str, "text"),
    "bool": (bool, "True or False"),
}


def _check_kind(name: str, value: Any) -> None:
    kind = declarations.KINDS[name].partition("[")[0].removesuffix(" | None")
    if name in _READ:
        _check_type(name, value, (Sequence, Mapping), "text, or a list or mapping of it")
    elif kind in _TYPES:
        _check_type(name, value, *_TYPES[kind])


def _check_type(what: str, value: Any, allowed: type | tuple[type, ...], text: str) -> None:
    is_truth = isinstance(value, bool) and allowed is not bool  # bool is an int in Python
    if is_truth or not isinstance(value, allowed):
        raise OptionError(f"{what} is {value!r}, expected {text}")


def _plan(overrides: Any, config: Any) -> PrecisionPlan:
    plan = PrecisionPlan()
    if config is not None:
        plan = plan_of(config) if isinstance(config, Mapping) else read_config(config)
    if not overrides:
        return plan
    if isinstance(overrides, str):
        layers = parse_overrides(overrides)
    elif isinstance(overrides, Mapping):
        entries = [{"name": name, "dtype": precision} for name, precision in overrides.items()]
        layers = plan_of({"layers": entries}).layers
    else:
        raise OptionError(f"overrides are {overrides!r}", hint="give NAME:PRECISION,… or a mapping")
    return PrecisionPlan(plan.scheme, plan.granularity, (*plan.layers, *layers))


def _check(options: Options) -> None:
    for name, declared in OPTIONS.items():
        value = getattr(options, name)
        if name == "equalize":  # a file of pairs, or a share, which share_moved checks
            share_moved(value)
            kind = "activations" if value.startswith("activations:") else value
            value = AUTO if is_pattern_file(value) else kind
        if declared.choices and declared.applies_to in SCHEMES_OF and value not in (*declared.choices, None):
            raise OptionError(f"unknown {name} {value!r}", hint=f"use one of {', '.join(declared.choices)}")
    if options.range_options and options.ranges == AUTO:
        modes = declarations.RANGE_MODES
        raise OptionError("options for ranges need a mode", hint=f"choose one of {', '.join(modes)}")
    _check_applicable(options)
    if options.reader == LITERT and options.definition.weights_only and options.definition.weights == "int16":
        raise OptionError(f"{options.scheme}: {WIDE_WEIGHTS}", hint="use int8_wo, or write a .circle file")
    _check_given(options)
    _check_numbers(options)
    if options.max_time_ms is not None and options.max_bytes is not None:
        raise OptionError(
            "budgets for time and for size are both given", hint="give only one; accuracy limits can be added"
        )
    if options.max_time_ms is not None and options.target is None:
        raise OptionError("a time budget needs a target", hint="give a target (--target)")
    if options.has_budget and options.mixed == OFF and not options.plan.layers:
        raise OptionError("a budget needs mixed precision, which is off", hint="omit mixed")


def _check_applicable(options: Options) -> None:
    scheme = options.definition.name
    for name, declared in OPTIONS.items():
        value = options.plan.layers if name == "overrides" else getattr(options, name)
        is_idle, allowed = value in declared.idle, SCHEMES_OF.get(declared.applies_to, (scheme,))
        if scheme not in allowed and not is_idle:
            weights_alone = "touches weights only; " if declared.applies_to == declarations.OF_VALUES else ""
            raise OptionError(
                f"scheme {scheme!r} {weights_alone}{declared.why}",
                hint=f"omit {'layers' if name == 'overrides' else name}, or use one of {', '.join(allowed)}",
            )


def check_samples(options: Options) -> None:
    """Raise OptionError for the first option that needs samples for calibration."""
    for name, declared in OPTIONS.items():
        if declared.needs_samples and (value := getattr(options, name)) not in declared.idle:
            raise OptionError(
                f"{name} {value!r} needs samples for calibration, and none are given",
                hint=f"give calibration samples, or omit {name}",
            )


def _check_numbers(options: Options) -> None:
    for name, declared in OPTIONS.items():
        number, most = getattr(options, name), declared.most
        if name == "headroom" and options.definition.activations is not None:
            low, high = DTYPES[options.definition.activations].range
            most = float(high - low)  # so that values have at least one step between two codes
        if most is not None and number is not None and not (0 <= number <= most and number < math.inf):
            allowed = "of at least 0 that is finite" if most == math.inf else f"from 0 to {most:g}"
            raise OptionError(f"{name} is {number}, expected a number {allowed}")


def _check_given(options: Options) -> None:
    if options.gives_parameters and options.equalize not in (AUTO, EQUALIZE[0]):
        raise OptionError("equalisation would change values whose parameters are given", hint="omit one of the two")
    if options.normalize not in (AUTO, OFF) and options.io != FLOAT:
        raise OptionError("inputs are normalised before they are codes, and io asks for codes", hint="leave one out")
    if options.visq_file is not None and not options.searches_precisions:
        raise OptionError("layer errors are for mixed precision, which is off", hint="omit mixed")
    if both := sorted(set(options.parameters) & set(options.copied_parameters)):
        raise OptionError(f"{both[0]!r} has parameters given twice", hint="give or copy them")
    if chained := sorted(set(options.copied_parameters) & set(options.copied_parameters.values())):
        raise OptionError(
            f"{chained[0]!r} is both a source and a destination of parameters",
            hint="copy them from the original source",
        )
