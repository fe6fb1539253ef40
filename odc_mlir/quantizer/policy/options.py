"""Options of the quantiser: their text forms, their defaults and the schemes that they apply to.

Precisions of single layers come from text or from a JSON file in the format of ONE's quantiser::

    {"default_quantization_dtype": "uint8", "default_granularity": "channel",
     "layers": [{"name": "conv1", "dtype": "int16", "granularity": "channel"},
                {"names": ["a", "b"], "dtype": "float"},
                {"name": "c", "dtype": "int16", "alternate": {"fused": ["c;relu"]}}]}

Names are those of results; in option texts a backslash makes a separator part of a name. A layer with ``alternate`` has
several name variants, of which exactly one must be in the graph. ``dtype`` is the name of a scheme, or ``float``.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any

from odc_mlir.errors import OptionError, parsing
from odc_mlir.ops.dtypes import CODE_DTYPES, DTYPES
from odc_mlir.quantizer.policy.ranges import MODES
from odc_mlir.quantizer.policy.readers import LITERT, NPU, READERS, WIDE_WEIGHTS
from odc_mlir.quantizer.policy.schemes import (
    FLOAT,
    GRANULARITIES,
    LADDERS,
    NARROWER,
    PRECISIONS,
    SCHEMES,
    Scheme,
    wider_values,
)
from odc_mlir.quantizer.policy.schemes import (
    scheme as scheme_of,
)


def pieces(text: str, separator: str) -> list[str]:
    """What ``text`` has between separators, without the backslashes before those that belong to names."""
    found = re.split(rf"(?<!\\){re.escape(separator)}", text)
    return [piece.replace(f"\\{separator}", separator) for piece in found]


def escaped(name: str, separator: str) -> str:
    """``name`` as :func:`pieces` reads it."""
    return name.replace(separator, f"\\{separator}")


QUANTIZED = "quantized"
BOUNDARY_TYPES = (FLOAT, QUANTIZED, *CODE_DTYPES)


def parse_boundary(entries: Sequence[str] | Mapping[str, str] | str) -> dict[str, str]:
    """Types by name from ``NAME=TYPE``, under the empty name from ``TYPE`` alone; raises OptionError."""
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
    """Scales and zero points by name from ``NAME=SCALE:ZERO``; raises OptionError."""
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
    """Return the source of each tensor's parameters, from ``TO=FROM``; a backslash escapes ``=`` in names.

    Raises OptionError.
    """
    if isinstance(entries, Mapping):
        return dict(entries)
    return dict(_assigned(entries, "a copy of parameters", "TO=FROM"))


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
    """Precision of one layer, and the granularity of its weights (None: the model's)."""

    precision: str
    granularity: str | None = None


@dataclass(frozen=True, slots=True)
class PrecisionEntry:
    """One entry: names under each of its variants, the one that it is written with first."""

    variants: tuple[tuple[str, ...], ...]
    choice: PrecisionChoice


@dataclass(frozen=True, slots=True)
class PrecisionPlan:
    """Requested precisions; ``scheme`` and ``granularity`` are None if not given."""

    scheme: str | None = None
    granularity: str | None = None
    layers: tuple[PrecisionEntry, ...] = field(default=())

    def resolve(self, names: Sequence[str]) -> dict[str, PrecisionChoice]:
        """Return the choices by layer name; raise OptionError for unknown and repeated names."""
        known, found = set(names), dict[str, PrecisionChoice]()
        for layer in self.layers:
            for name in _variant(layer, known):
                if name in found:
                    raise OptionError(f"layer {name!r} has a precision given twice", hint="name it once")
                found[name] = layer.choice
        return found


def _variant(layer: PrecisionEntry, known: set[str]) -> tuple[str, ...]:
    """The names of the one variant that is there."""
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
    """``name:precision,name:precision`` as layers; a name may contain colons, and ``\\,``. Raises OptionError."""
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
    """Precisions by layer as :func:`parse_overrides` reads them."""
    return ",".join(f"{escaped(name, ',')}:{precision}" for name, precision in precisions.items())


def read_config(path: str | os.PathLike[str]) -> PrecisionPlan:
    """The plan in a JSON file; raises OptionError, naming the file, for one that cannot be read or understood."""
    try:
        with parsing("cannot read the configuration", OptionError), open(path, encoding="utf-8") as file:
            content = json.load(file)
        return plan_of(content)
    except OptionError as error:
        error.location = os.fspath(path)
        raise


def plan_of(content: Any) -> PrecisionPlan:
    """The plan that the content of a JSON file says."""
    fields = _table(content, "the configuration", _FIELDS)
    default, granularity = fields.get("default_quantization_dtype"), fields.get("default_granularity")
    layers = fields.get("layers", [])
    if not isinstance(layers, list):
        raise OptionError(f"layers is {layers!r}, must be a list")
    return PrecisionPlan(
        None if default is None else _known("default_quantization_dtype", default, PRECISIONS[:-1]),
        None if granularity is None else _granularity(granularity),
        tuple(map(_layer, layers)),
    )


def _layer(content: Any) -> PrecisionEntry:
    fields = _table(content, "a layer", _LAYER_FIELDS)
    if ("name" in fields) == ("names" in fields):
        raise OptionError(f"a layer has either name or names, found {', '.join(fields) or 'neither'}")
    names = _names([fields["name"]] if "name" in fields else fields["names"])
    if "dtype" not in fields:
        raise OptionError(f"layer {names[0]!r} has no dtype", hint=f"use one of {', '.join(PRECISIONS)}")
    granularity = fields.get("granularity")
    alternates = fields.get("alternate", {})
    if not isinstance(alternates, dict):
        raise OptionError(f"alternate of layer {names[0]!r} is {alternates!r}, must map tags to lists of names")
    return PrecisionEntry(
        (names, *map(_names, alternates.values())),
        PrecisionChoice(
            _known("dtype", fields["dtype"], PRECISIONS), None if granularity is None else _granularity(granularity)
        ),
    )


def _names(content: Any) -> tuple[str, ...]:
    if not isinstance(content, list) or not content or not all(isinstance(name, str) for name in content):
        raise OptionError(f"names of a layer are {content!r}, must be a list of strings")
    return tuple(content)


def _granularity(value: Any) -> str:
    """ONE calls one scale per tensor ``layer``."""
    return _known("granularity", "tensor" if value == "layer" else value, GRANULARITIES)


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


@dataclass(frozen=True, slots=True)
class Applies:
    """The ``schemes`` that an option applies to, and the values of it that ask for ``nothing`` and fit all schemes.

    ``by_samples``: what it asks for is done by running samples for calibration, which recorded ranges do not replace.
    """

    schemes: Collection[str]
    nothing: tuple[Any, ...] = (None,)
    why: str = ""
    by_samples: bool = False


_VALUES = tuple(name for name, scheme in SCHEMES.items() if not scheme.weights_only)
_WEIGHTS_ONLY = tuple(name for name, scheme in SCHEMES.items() if scheme.weights_only)
_WIDER = tuple(name for name in LADDERS if wider_values(name) != FLOAT)
_MIXED = tuple({*LADDERS, *NARROWER})


def _of_values(why: str, *nothing: Any, by_samples: bool = False) -> Applies:
    return Applies(_VALUES, nothing, f"touches weights only; {why}", by_samples)


_ANY = Applies(tuple(SCHEMES))
_SWITCH = Applies(tuple(SCHEMES), ("auto", "off"), by_samples=True)
_NO_RANGES = "values have no ranges"
_NO_TYPES = "values have no types or parameters"
_NO_PRECISIONS = "layers cannot have precisions of their own"

# Granularity and form of weights are not in it: what they may be depends on the scheme, which checks them.
APPLICABLE: Mapping[str, Applies] = {
    "io": _of_values("the model takes and gives floats", FLOAT),
    "input_types": _of_values(_NO_TYPES, {}),
    "output_types": _of_values(_NO_TYPES, {}),
    "parameters": _of_values(_NO_TYPES, {}),
    "copied_parameters": _of_values(_NO_TYPES, {}),
    "ranges": _of_values(_NO_RANGES, "auto"),
    "range_options": _of_values(_NO_RANGES, {}),
    "scales": Applies(_WEIGHTS_ONLY, ("auto",), "has scales of weights by their ranges"),
    "headroom": _of_values(_NO_RANGES, None),
    "output_room": _of_values(_NO_RANGES, "auto", "off"),
    "equalize": _of_values("scales move between no layers", "auto", "none", by_samples=True),
    "layers": _of_values(_NO_PRECISIONS, ()),
    "mixed": Applies(_MIXED, ("auto", "off"), f"has no wider scheme; {_NO_PRECISIONS}"),
    "visq_file": Applies(_MIXED, (None,), f"has no wider scheme; {_NO_PRECISIONS}"),
    "patterns": Applies(_WIDER, ((),), "has no wider scheme for patterns"),
    **dict.fromkeys(("normalize", "rounding", "correction"), _SWITCH),
    **dict.fromkeys(("help", "metric", "limit", "max_drop", "max_seconds", "max_time_ms", "max_bytes"), _ANY),
    **dict.fromkeys(("target", "min_coverage", "reader"), _ANY),
}


def check_applicable(scheme: str, given: Mapping[str, Any]) -> None:
    """Raise OptionError for the first of the ``given`` options that does not apply to ``scheme``."""
    for name, value in given.items():
        applies = APPLICABLE[name]
        if scheme in applies.schemes or any(value == nothing for nothing in applies.nothing):
            continue
        raise OptionError(
            f"scheme {scheme!r} {applies.why}",
            hint=f"omit {name}, or use one of {', '.join(applies.schemes)}",
        )


def check_samples(given: Mapping[str, Any]) -> None:
    """Raise OptionError for the first of the ``given`` options that needs samples."""
    for name, value in given.items():
        if APPLICABLE[name].by_samples and value not in APPLICABLE[name].nothing:
            raise OptionError(
                f"{name} {value!r} is done by running samples for calibration, and there are none",
                hint=f"give calibration data, or leave {name} out",
            )


IO = (FLOAT, QUANTIZED)
EQUALIZE = ("none", "weights", "activations", "activations:0.8")
AUTO, ON, OFF = "auto", "on", "off"
SWITCH = (AUTO, ON, OFF)
INPUTS, OUTPUTS = "inputs", "outputs"
NORMALIZE = (*SWITCH, INPUTS, OUTPUTS)
RANGE, FITTED = "range", "fitted"
SCALES = (AUTO, RANGE, FITTED)

PAIRS_SUFFIX = ".json"  # of files with pairs of layers to equalise
# Groups of operators that compute one function and may need more bits.
NAMED_PATTERNS = ("layernorm", "softmax")

NO_HEADROOM, WIDE_HEADROOM = 0.0, 1.0

Progress = Callable[[str, int, int | None], None]
"""Is told what is being done, how far it is, and out of how much where that is known."""


@dataclass(frozen=True, slots=True)
class Options:
    """Everything but the data; ``docs/quantisation.md`` explains each.

    ``max_time_ms``: what an inference may take on the target by its model; ``max_bytes``: how large the file may be;
    with one of these the most accurate model within it is looked for.

    ``input_types``, ``output_types``: those that differ from ``io``, by name. ``parameters``: scale and zero point of
    single tensors, by name; ``copied_parameters``: tensors that take theirs from another one.

    ``patterns``: functions of which some operators get more bits (:data:`NAMED_PATTERNS`). ``visq_file``:
    errors of tensors that tell which layers lose accuracy, instead of measuring each.

    ``ranges``: a mode of :data:`odc_mlir.quantizer.policy.ranges.MODES`, or ``auto`` for ``minmax``; ``headroom``: part
    by which ranges are wider than what was seen, None to choose; ``output_room``: whether those of outputs are as wide
    as the tails of their values ask for; ``normalize`` (``inputs`` before they are codes, ``outputs``, or ``on``:
    both), ``scales`` of weights alone (``range``, ``fitted``), ``equalize``, ``rounding`` and ``correction``: ``auto``
    lets measurements decide; ``equalize`` may name a share (:func:`share_moved`), or be a ``.json`` file of pairs of
    layers, as ONE's fm-equalize writes it. ``target``: the machine whose rules limit types; ``min_coverage``: the least
    share of the products that has to be quantised, with a target that it has to run. ``reader``: ``litert`` keeps what
    LiteRT does not run as codes in float. With ``help`` off, ``auto`` means ``minmax``, ``none`` and ``off``.
    """

    scheme: str = "int8"
    granularity: str | None = None
    weights: str | None = None
    io: str = "float"
    input_types: Mapping[str, str] = field(default_factory=dict)
    output_types: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    copied_parameters: Mapping[str, str] = field(default_factory=dict)
    help: bool = True
    ranges: str = AUTO
    range_options: Mapping[str, Any] = field(default_factory=dict)
    headroom: float | None = None
    output_room: str = AUTO
    normalize: str = AUTO
    scales: str = AUTO
    equalize: str = AUTO
    rounding: str = AUTO
    correction: str = AUTO
    mixed: str = AUTO
    plan: PrecisionPlan = field(default_factory=PrecisionPlan)
    patterns: tuple[str, ...] = ()
    visq_file: str | None = None
    metric: str | None = None
    limit: float | None = None
    max_drop: float | None = None
    max_seconds: float | None = None
    max_time_ms: float | None = None
    max_bytes: int | None = None
    target: str | None = None
    min_coverage: float | None = None
    reader: str | None = None

    @property
    def definition(self) -> Scheme:
        """The scheme with its granularity and form of weights; raises OptionError where they contradict."""
        found, granularity = scheme_of(self.scheme), self.granularity
        if self.reader == LITERT and found.activations == "uint8":
            granularity = granularity or "tensor"  # of uint8 weights LiteRT knows no other
        reader, weights = self.reader or (NPU if self.target is not None else ""), self.weights
        if weights is None and reader == NPU and found.weights == "uint8":
            weights = "symmetric"  # an NPU takes twice the products where zero points differ by channel
        return found.read_by(reader).with_options(granularity=granularity, weights=weights)

    def by_name(self) -> dict[str, Any]:
        """The options that :data:`APPLICABLE` declares."""
        return {name: self.plan.layers if name == "layers" else getattr(self, name) for name in APPLICABLE}

    @property
    def equalizations(self) -> tuple[str, ...]:
        """Equalisations to try, the plain one first; none where parameters of tensors are given."""
        if self.equalize == AUTO and self.gives_parameters:
            return EQUALIZE[:1]
        return self._tried(self.equalize, EQUALIZE)

    @property
    def chosen_headroom(self) -> float:
        """Headroom of the first trial, as a part of the observed range.

        Values beyond the range are clipped, which is far worse than rounding to a wider step: with 16 bits there is
        always room. With 8, samples that gave the ranges cannot tell how much would be of use; others may, later.
        """
        if self.headroom is not None:
            return self.headroom
        return WIDE_HEADROOM if self.has_codes_to_spare else NO_HEADROOM

    @property
    def widest_headroom(self) -> float:
        """What leaves values a step between two codes, of as many as there are; without any no headroom is given."""
        if self.definition.activations is None:
            return math.inf
        low, high = DTYPES[self.definition.activations].range
        return float(high - low)

    @property
    def has_codes_to_spare(self) -> bool:
        """Whether ranges may be much wider than values before steps show."""
        return self.definition.activations == "int16"

    def _tried(self, value: str, allowed: Sequence[str]) -> tuple[str, ...]:
        if value != AUTO:
            return (value,)
        return tuple(allowed) if self.help else (allowed[0],)

    def switched(self, value: str) -> tuple[bool, ...]:
        """The states of a switch that are to be tried, off first."""
        if value == AUTO:
            return (False, True) if self.help else (False,)
        return (value == ON,)

    def normalizes(self, kind: str) -> tuple[bool, ...]:
        """The states of normalising this ``kind``, inputs or outputs, that are to be tried, off first."""
        value = self.normalization
        return (value == kind,) if value in (INPUTS, OUTPUTS) else self.switched(value)

    @property
    def fits_scales(self) -> tuple[bool, ...]:
        """Whether scales of weights alone fit these best, as it is to be tried."""
        return (self.scales == FITTED,) if self.scales != AUTO else self.switched(AUTO)

    @property
    def searches_precisions(self) -> bool:
        """Whether layers may be taken to other precisions than asked for."""
        return self.mixed == ON or (self.mixed == AUTO and (self.help or self.has_budget))

    @property
    def gives_parameters(self) -> bool:
        """Whether tensors have parameters that are not to be chosen."""
        return bool(self.parameters or self.copied_parameters)

    @property
    def normalization(self) -> str:
        """The switch of normalising inputs and outputs; those whose parameters are given stay what these are for."""
        return OFF if self.normalize == AUTO and self.gives_parameters else self.normalize

    @property
    def has_budget(self) -> bool:
        """Whether time or bytes are limited."""
        return self.max_time_ms is not None or self.max_bytes is not None


def is_pattern_file(equalize: str) -> bool:
    """Whether a kind of equalisation is the name of a file of pairs of layers."""
    return equalize.endswith(PAIRS_SUFFIX)


def share_moved(equalize: str) -> float:
    """Which part of the ranges of activations moves to weights: a number behind ``activations:``, else a half.

    Raises OptionError for what is no number from 0 to 1.
    """
    kind, colon, text = equalize.partition(":")
    if kind != "activations" or not colon:
        return 0.5
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise OptionError(f"equalize is {equalize!r}", hint="give activations:SHARE, a number from 0 to 1")
    return share


def make_options(*, overrides: Any = None, config: Any = None, mixed: Any = AUTO, **given: Any) -> Options:
    """Checked options.

    ``input_types``, ``output_types``, ``parameters`` and ``copied_parameters``: mappings, or texts as commands take
    them. ``overrides``: text ``NAME:PRECISION,…`` or a mapping of result names to precisions. ``config``: a JSON file
    in ONE's format, or its content. ``mixed``: ``auto``, ``on``, ``off``, or such a file. Switches may be truths.
    Raises OptionError.
    """
    mixed, given = _switch(mixed), given | {name: _switch(given[name]) for name in _SWITCHES & given.keys()}
    if not isinstance(mixed, str) or mixed not in SWITCH:
        if config is not None:
            raise OptionError("a configuration is given twice", hint="give it as config or as mixed")
        config, mixed = mixed, OFF
    plan = _plan(overrides, config)
    given = _of_their_kinds(given)
    for name, read in _READ.items():
        given[name] = read(given.get(name) or ())
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


_SWITCHES = frozenset({"output_room", "normalize", "rounding", "correction"})


def _switch(value: Any) -> Any:
    """Return "on" or "off" for a bool, other values as they are."""
    return (OFF, ON)[value] if isinstance(value, bool) else value


def parse_patterns(names: str | tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Names of patterns, also as one text with commas, in any case; raises OptionError."""
    given = names.split(",") if isinstance(names, str) else list(names)
    found = tuple(dict.fromkeys(name.strip().lower() for name in given if name.strip()))
    if unknown := next((name for name in found if name not in NAMED_PATTERNS), None):
        raise OptionError(f"unknown pattern {unknown!r}", hint=f"use {' or '.join(NAMED_PATTERNS)}")
    return found


_READ: Mapping[str, Callable[[Any], Any]] = {
    "input_types": parse_boundary,
    "output_types": parse_boundary,
    "parameters": parse_parameters,
    "copied_parameters": parse_copies,
    "patterns": parse_patterns,
}


_NUMBER, _TEXTS = "a number", "text, or a list or mapping of it"
_KINDS: Mapping[str, tuple[type, str]] = {
    "float": (Real, _NUMBER),
    "int": (Real, _NUMBER),
    "str": (str, "text"),
    "bool": (bool, "True or False"),
    "Mapping": (Mapping, "a mapping"),
}


def _of_their_kinds(given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` with paths as text; raises OptionError for a value of another kind than the option's.

    None is as if nothing was given.
    """
    found = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in given.items()}
    for item in fields(Options):
        kind = str(item.type).partition("[")[0].removesuffix(" | None")
        if item.name in _READ:
            _check_kind(item.name, found.get(item.name), (Sequence, Mapping), _TEXTS)
        elif kind in _KINDS:
            _check_kind(item.name, found.get(item.name), *_KINDS[kind])
    for name, value in (found.get("range_options") or {}).items():
        _check_kind(f"the option {name!r} of ranges", value, Real, _NUMBER)
    return found


def _check_kind(what: str, value: Any, allowed: type | tuple[type, ...], text: str) -> None:
    is_truth = isinstance(value, bool) and allowed is not bool  # which Python counts among the numbers
    if value is not None and (is_truth or not isinstance(value, allowed)):
        raise OptionError(f"{what} is {value!r}, expected {text}")


def _plan(overrides: Any, config: Any) -> PrecisionPlan:
    plan = PrecisionPlan()
    if config is not None:
        plan = plan_of(config) if isinstance(config, Mapping) else read_config(config)
    if overrides:
        layers = _layers_of(overrides)
        plan = PrecisionPlan(plan.scheme, plan.granularity, (*plan.layers, *layers))
    return plan


def _layers_of(overrides: Any) -> tuple[PrecisionEntry, ...]:
    if isinstance(overrides, str):
        return parse_overrides(overrides)
    if not isinstance(overrides, Mapping):
        raise OptionError(f"overrides are {overrides!r}", hint="give NAME:PRECISION,… or a mapping")
    layers = [{"name": name, "dtype": precision} for name, precision in overrides.items()]
    return plan_of({"layers": layers}).layers


def _check(options: Options) -> None:
    for name, value, allowed in (
        ("io", options.io, IO),
        ("ranges", options.ranges, (AUTO, *MODES)),
        ("normalize", options.normalize, NORMALIZE),
        ("scales", options.scales, SCALES),
        ("equalize", _kind(options.equalize), (AUTO, *EQUALIZE)),
        ("output_room", options.output_room, SWITCH),
        ("rounding", options.rounding, SWITCH),
        ("correction", options.correction, SWITCH),
        ("mixed", options.mixed, SWITCH),
        ("reader", options.reader, (None, *READERS)),
    ):
        if value not in allowed:
            raise OptionError(f"unknown {name} {value!r}", hint=f"use one of {', '.join(filter(None, allowed))}")
    if options.range_options and options.ranges == AUTO:
        raise OptionError("options for ranges need a mode", hint=f"choose one of {', '.join(MODES)}")
    check_applicable(options.definition.name, options.by_name())
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
    if not set(PRECISIONS).issuperset(choice.choice.precision for choice in options.plan.layers):
        raise OptionError(f"unknown precision of a layer; use one of {', '.join(PRECISIONS)}")


def _check_numbers(options: Options) -> None:
    """Raises OptionError for numbers out of their range; a wider headroom leaves values no two codes."""
    for name, number, most in (
        ("max_drop", options.max_drop, math.inf),
        ("headroom", options.headroom, options.widest_headroom),
        ("max_seconds", options.max_seconds, math.inf),
        ("min_coverage", options.min_coverage, 1.0),
        ("max_time_ms", options.max_time_ms, math.inf),
        ("max_bytes", options.max_bytes, math.inf),
    ):
        if number is not None and not (0 <= number <= most and number < math.inf):
            allowed = "of at least 0 that is finite" if most == math.inf else f"from 0 to {most:g}"
            raise OptionError(f"{name} is {number}, expected a number {allowed}")


def _kind(equalize: str) -> str:
    """Return the kind of equalisation of a pairs file or a share; raise OptionError for a bad share."""
    if is_pattern_file(equalize):
        return AUTO
    share_moved(equalize)
    return "activations" if equalize.startswith("activations:") else equalize


def _check_given(options: Options) -> None:
    """Raises OptionError for types and parameters that leave out, or contradict, something else."""
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
