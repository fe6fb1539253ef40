"""Records of the fields of an instruction that are not addresses.

Programs have tens of thousands of instructions that differ mostly in addresses. Instructions with equal immediates
share an object. Derived data are therefore computed once: checks, accessed areas, text, cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from types import MappingProxyType

from odc_mlir.isa.fields import Effects, Field, Instruction
from odc_mlir.isa.instructions import BY_MNEMONIC

_MOST_SHARED = 1 << 16  # limit on cached records, larger than the largest networks need


class Immediates:
    """Immediates of an instruction: a code for each of :attr:`Instruction.immediates`. Created by :func:`shared`."""

    def __init__(self, spec: Instruction, codes: tuple[int, ...]) -> None:
        self.spec = spec
        self.mnemonic = spec.mnemonic
        self.codes = codes
        self._hash = hash((spec.opcode, codes))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Immediates):
            return NotImplemented
        return self.spec.opcode == other.spec.opcode and self.codes == other.codes

    @cached_property
    def values(self) -> Mapping[str, int]:
        """Codes by name. Zero fields may be missing."""
        fields = zip(self.spec.immediates, self.codes, strict=True)
        return MappingProxyType({field.name: code for field, code in fields if code or field.default})

    @cached_property
    def effects(self) -> Effects:
        return self.spec.effects(self.values)

    def __getitem__(self, name: str) -> int:
        return self.values.get(name, 0)

    def replace(self, **fields: int | str) -> Immediates:
        return shared(self.mnemonic, {**self.values, **fields})

    def problem(self) -> str:
        """Return a message for the first field that does not fit the instruction, or "" if all fit."""
        for field, code in zip(self.spec.immediates, self.codes, strict=True):
            low, high = field.range
            if not low <= code <= high:
                return f"{field.name} is {code}, allowed: {low} to {high}"
        return ""


def shared(mnemonic: str, fields: Mapping[str, int | str]) -> Immediates:
    """Return the common record of all equal ``fields``. Enum values are names or codes. Missing fields are 0."""
    return _of_items(mnemonic, tuple(fields.items()))


@lru_cache(maxsize=_MOST_SHARED)
def _of_items(mnemonic: str, items: tuple[tuple[str, int | str], ...]) -> Immediates:
    given = dict(items)
    spec = BY_MNEMONIC[mnemonic]
    codes = tuple(_code(field, given.pop(field.name, 0)) for field in spec.immediates)
    if given:
        raise KeyError(f"{mnemonic} has no field {min(given)}")
    return _of_codes(mnemonic, codes)


@lru_cache(maxsize=_MOST_SHARED)
def _of_codes(mnemonic: str, codes: tuple[int, ...]) -> Immediates:
    return Immediates(BY_MNEMONIC[mnemonic], codes)


def _code(field: Field, value: int | str) -> int:
    return field.values.index(value) if isinstance(value, str) else int(value)
