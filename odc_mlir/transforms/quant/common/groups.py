"""Values that must have one element type, because operators move codes between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.quant.common.ir import params_of


@dataclass(eq=False, slots=True)
class Group:
    """Values of one element type.

    ``fixed``: an operator fixes the type, or it was given. ``settled``: it was taken over from an operator further
    down, and does not change any more.
    """

    type: Attribute
    values: list[SSAValue] = field(default_factory=list)
    fixed: bool = False
    settled: bool = False

    @property
    def dtype(self) -> str:
        """Element type of quantised weights."""
        found = params_of(self.type)
        assert found is not None
        return found[0]


class Groups:
    """Quantised values by group; others are in none."""

    def __init__(self) -> None:
        self._of: dict[SSAValue, Group] = {}

    def add(self, value: SSAValue, type: Attribute, *, fixed: bool = False) -> None:
        """Put ``value`` into a group of its own, unless ``type`` is not quantised."""
        if params_of(type) is not None:
            self._of[value] = Group(type, [value], fixed)

    def of(self, value: SSAValue) -> Group | None:
        """The group of ``value``, None for one that is not quantised."""
        return self._of.get(value)

    def type_of(self, value: SSAValue, otherwise: Attribute) -> Attribute:
        """The element type of ``value``; ``otherwise`` where it is in no group."""
        group = self._of.get(value)
        return otherwise if group is None else group.type

    def merge(self, into: Group, other: Group) -> None:
        """Merge two groups: both get the type of ``into``, or of ``other`` if only that is fixed."""
        if other is into:
            return
        if other.fixed and not into.fixed and other.dtype == into.dtype:
            into.type, into.fixed = other.type, True
        into.values += other.values
        for value in other.values:
            self._of[value] = into

    def join_results(self, group: Group | None, results: Sequence[SSAValue], otherwise: Attribute) -> None:
        """Put ``results`` into ``group``; where there is none, into one of their own of type ``otherwise``."""
        for result in results:
            own = self._of.get(result)
            if own is None:
                continue
            if group is None:
                group, own.type = own, own.type if own.fixed else otherwise
            self.merge(group, own)
