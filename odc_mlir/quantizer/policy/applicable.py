"""Which options apply to which schemes and need samples: the one declaration that refuses what would be ignored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from odc_mlir.errors import OptionError
from odc_mlir.quantizer.policy.ladders import LADDERS, NARROWER, wider_values
from odc_mlir.quantizer.policy.schemes import FLOAT, SCHEMES


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
    """Raises OptionError for the first of ``given`` options, by name, that asks for what ``scheme`` does not do."""
    for name, value in given.items():
        applies = APPLICABLE[name]
        if scheme in applies.schemes or any(value == nothing for nothing in applies.nothing):
            continue
        raise OptionError(
            f"scheme {scheme!r} {applies.why}",
            hint=f"omit {name}, or use one of {', '.join(applies.schemes)}",
        )


def check_samples(given: Mapping[str, Any]) -> None:
    """Raises OptionError for the first of ``given`` options, by name, that asks for what takes samples to do."""
    for name, value in given.items():
        if APPLICABLE[name].by_samples and value not in APPLICABLE[name].nothing:
            raise OptionError(
                f"{name} {value!r} is done by running samples for calibration, and there are none",
                hint=f"give calibration data, or leave {name} out",
            )
