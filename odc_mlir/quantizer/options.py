"""What can be asked of the quantiser, checked before any work."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any

from odc_mlir.errors import OptionError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.quantizer.patterns import parse_patterns
from odc_mlir.quantizer.policy.applicable import APPLICABLE, check_applicable
from odc_mlir.quantizer.policy.boundaries import FLOAT, QUANTIZED, parse_boundary, parse_copies, parse_parameters
from odc_mlir.quantizer.policy.precision import PrecisionEntry, PrecisionPlan, parse_overrides, plan_of, read_config
from odc_mlir.quantizer.policy.ranges import MINMAX, MODES, TRIED_MODES
from odc_mlir.quantizer.policy.readers import LITERT, NPU, READERS, WIDE_WEIGHTS
from odc_mlir.quantizer.policy.schemes import PRECISIONS, Scheme
from odc_mlir.quantizer.policy.schemes import scheme as scheme_of

IO = (FLOAT, QUANTIZED)
EQUALIZE = ("none", "weights", "activations", "activations:0.8")
AUTO, ON, OFF = "auto", "on", "off"
SWITCH = (AUTO, ON, OFF)
INPUTS, OUTPUTS = "inputs", "outputs"
NORMALIZE = (*SWITCH, INPUTS, OUTPUTS)
RANGE, FITTED = "range", "fitted"
SCALES = (AUTO, RANGE, FITTED)

PATTERNS = ".json"  # what the name of a file of pairs to equalise ends with

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

    ``patterns``: functions of which some operators get more bits (:mod:`odc_mlir.quantizer.patterns`). ``visq_file``:
    errors of tensors that tell which layers lose accuracy, instead of measuring each.

    ``ranges``: a mode of :data:`odc_mlir.quantizer.policy.ranges.MODES` or ``auto``; ``headroom``: part by which
    ranges are wider than what was seen, None to choose; ``output_room``: whether those of outputs are as wide as the
    tails of their values ask for; ``normalize`` (``inputs`` before they are codes, ``outputs``,
    or ``on``: both), ``scales`` of weights alone (``range``, ``fitted``), ``equalize``, ``rounding`` and
    ``correction``: ``auto`` lets measurements decide; ``equalize`` may name a share (:func:`share_moved`),
    or be a ``.json`` file of pairs of layers, as ONE's fm-equalize writes it. ``target``: the
    machine whose rules limit types; ``min_coverage``: the least share of the products that has to be quantised, with a
    target that it has to run. ``reader``: ``litert`` keeps what LiteRT does not run as codes in float. With ``help``
    off, ``auto`` means ``minmax``, ``none`` and ``off``.
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
        """The options that :data:`odc_mlir.quantizer.policy.applicable.APPLICABLE` declares."""
        return {name: self.plan.layers if name == "layers" else getattr(self, name) for name in APPLICABLE}

    @property
    def equalizations(self) -> tuple[str, ...]:
        """The equalisations to try, the plain one first; where parameters are given, none moves what they are for."""
        if self.equalize == AUTO and self.gives_parameters:
            return EQUALIZE[:1]
        return self._tried(self.equalize, EQUALIZE)

    @property
    def range_modes(self) -> tuple[str, ...]:
        """The ways to choose ranges that are to be tried, the plain one first.

        With 16 bits there is nothing to be gained by clipping.
        """
        return self._tried(self.ranges, (MINMAX,) if self.has_codes_to_spare else TRIED_MODES)

    @property
    def chosen_headroom(self) -> float:
        """By which part ranges are to be wider than what was seen, to begin with.

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
    return equalize.endswith(PATTERNS)


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
    """``value`` with truths as switches have them: as verdicts say what was chosen."""
    return (OFF, ON)[value] if isinstance(value, bool) else value


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
    """The way to equalise that a file of pairs, or a share, stands for; raises OptionError for no share."""
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
