"""What layers may be taken to beside the model's scheme: wider schemes step by step, and narrower weights."""

from __future__ import annotations

from collections.abc import Mapping

from odc_mlir.quantizer.policy.schemes import FLOAT, SCHEMES

NARROW = "int8"  # what targets run most of
WIDE_VALUES = "int16x8"  # values of 16 bits, beside weights of 8
WIDE_WEIGHTS, WIDE_WEIGHTS_ALONE = "int16", "int16_wo"  # weights of 16 bits, beside values of as many or real ones

# What layers of each scheme are taken to, one after the other. A wider scheme is of the same family, whose readers
# know both.
LADDERS: Mapping[str, tuple[str, ...]] = {
    "int8": ("int16x8", FLOAT),
    "int8x4": ("int8", "int16x8", FLOAT),
    "uint8": ("int16", FLOAT),
    "int16": (FLOAT,),
    "int16x8": (FLOAT,),
    "int4_wo": ("int8_wo", WIDE_WEIGHTS_ALONE, FLOAT),
    "int8_wo": (WIDE_WEIGHTS_ALONE, FLOAT),
}

NARROWER: Mapping[str, str] = {"int8": "int8x4", "int8_wo": "int4_wo"}
"""What layers of a scheme may be taken to where a budget asks for less: weights of half the bits."""


def ladder_of(scheme: str) -> tuple[str, ...]:
    """The precisions that layers of ``scheme`` can be taken to, cheapest first; none where nothing is to be gained."""
    return LADDERS.get(scheme, ())


def wider_values(scheme: str) -> str:
    """The first precision on the ladder of ``scheme`` whose values have more bits."""
    return next(step for step in ladder_of(scheme) if step == FLOAT or values_of(step) != values_of(scheme))


def values_of(precision: str) -> str | None:
    """The element type of values in this precision, None for real ones."""
    return None if precision == FLOAT else SCHEMES[precision].activations


def with_wide_weights(scheme: str) -> tuple[str, ...]:
    """The ladder of ``scheme`` with a step for weights too coarse beside values of 16 bits: a target prices it."""
    ladder = ladder_of(scheme)
    if WIDE_VALUES not in (scheme, *ladder):
        return ladder
    place = (scheme, *ladder).index(WIDE_VALUES)
    return (*ladder[:place], WIDE_WEIGHTS, *ladder[place:])
