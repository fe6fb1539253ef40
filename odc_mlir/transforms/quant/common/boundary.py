"""Which element types a quantised model takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from odc_mlir.dialects.circle import tensor_facts
from odc_mlir.errors import OptionError
from odc_mlir.ops.spec import QuantParams
from odc_mlir.quantizer.policy.declarations import QUANTIZED
from odc_mlir.quantizer.policy.options import parse_boundary
from odc_mlir.quantizer.policy.schemes import FLOAT, activation_params, represented_range
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.quant.common.conversion import QuantizedElement
from odc_mlir.transforms.quant.common.given import moved_to
from odc_mlir.transforms.quant.common.ir import is_real, range_of


@dataclass(frozen=True)
class BoundaryTypes:
    """``default``: float or quantized, or a type; ``named``: what single inputs or outputs have instead."""

    default: str
    named: Mapping[str, str]

    @classmethod
    def of(cls, entries: Sequence[str], default: str) -> BoundaryTypes:
        """From ``TYPE`` and ``NAME=TYPE``; raises OptionError."""
        named = parse_boundary(entries)
        return cls(named.pop("", default), named)

    def codes(
        self, what: str, values: Sequence[SSAValue], assigned: Sequence[QuantizedElement | None]
    ) -> list[QuantizedElement | None]:
        """Return the types of values at the function's boundary, None for float; ``assigned``: types inside.

        Raises OptionError for names that no value has, and for types that one cannot have.
        """
        names = [value_name(value) for value in values]
        if unknown := sorted(set(self.named) - set(names)):
            raise OptionError(f"the model has no {what} {unknown[0]!r}", hint=f"it has {', '.join(map(repr, names))}")
        return [
            _crossing(f"{what} {name!r}", value, inside, self.named.get(name, self.default), asked=name in self.named)
            for name, value, inside in zip(names, values, assigned, strict=True)
        ]


def _crossing(
    what: str, value: SSAValue, inside: QuantizedElement | None, wanted: str, *, asked: bool
) -> QuantizedElement | None:
    if not is_real(value):
        if asked:
            raise OptionError(
                f"{what} is {tensor_facts(value.type).dtype}, not float, and cannot be changed", hint="omit its type"
            )
        return None
    if wanted == FLOAT:
        return None
    if wanted == QUANTIZED:
        return inside
    if inside is not None:
        return QuantizedElement(wanted, _same_range(inside, wanted))
    found = range_of(value.type)
    if found is None:
        raise OptionError(f"{what} cannot be {wanted}: it is computed in float, and its range is unknown")
    return QuantizedElement(wanted, activation_params(*found, wanted, symmetric=wanted == "int16"))


def _same_range(codes: QuantizedElement, dtype: str) -> QuantParams:
    """Parameters of ``dtype`` for the same range, code for code where that can be."""
    if (moved := moved_to(codes.dtype, codes.params, dtype)) is not None:
        return moved
    return activation_params(*represented_range(codes.params, codes.dtype), dtype, symmetric=dtype == "int16")
