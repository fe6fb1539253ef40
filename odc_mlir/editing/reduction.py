"""The smallest part of a model on which something still happens: delta debugging, as ``circt-reduce`` does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp

from odc_mlir.dialects.circle import BlobAttr, ConstOp
from odc_mlir.editing.cutting import extract, keep_operators, main_function, main_operators
from odc_mlir.errors import OdcError
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.locations import value_name

Check = Callable[[ModuleOp], bool]
_LARGE_BYTES = 64  # constants from here on are worth zeros


@dataclass(frozen=True)
class Reduced:
    """``model``: the smallest found. ``checks``: how often was tried. ``before`` and ``after`` count operators."""

    model: ModuleOp
    checks: int
    before: int
    after: int
    zeroed: int


class _Tries:
    def __init__(self, check: Check, most: int) -> None:
        self.check, self.most, self.count = check, most, 0

    @property
    def are_left(self) -> bool:
        return self.count < self.most

    def __call__(self, make: Callable[[], ModuleOp]) -> ModuleOp | None:
        """The model that ``make`` gives, if it is one and the check holds on it."""
        if not self.are_left:
            return None
        try:
            made = make()
            made.verify()
        except (OdcError, ValueError):
            return None
        self.count += 1
        return made if self.check(made) else None


def reduce(module: ModuleOp, check: Check, *, most_checks: int = 1000, zeros: bool = True) -> Reduced:
    """Drop operators of ``module`` while ``check`` holds; then, with ``zeros``, put zeros in the place of constants.

    ``check`` is called with models to judge, at most ``most_checks`` times; it has to hold on ``module`` itself, and
    is not asked about that. What goes is replaced by inputs.
    """
    tries = _Tries(check, most_checks)
    current = _fewer_outputs(module, tries)
    current = _fewer_operators(current, tries)
    zeroed = 0
    if zeros:
        current, zeroed = _zeros(current, tries)
    return Reduced(current, tries.count, len(main_operators(module)), len(main_operators(current)), zeroed)


def _fewer_outputs(module: ModuleOp, tries: _Tries) -> ModuleOp:
    """One output, where one is enough."""
    last = main_function(module).body.block.last_op
    names = [value_name(value) for value in last.operands] if isinstance(last, ReturnOp) else []
    for name in names if len(names) > 1 else ():
        made = tries(lambda name=name: extract(module, [], [name]))  # type: ignore[misc]
        if made is not None:
            return made
    return module


def _fewer_operators(module: ModuleOp, tries: _Tries) -> ModuleOp:
    """No run of operators, of half of them down to one, can go any more."""
    size = max(len(main_operators(module)) // 2, 1)
    while tries.are_left:
        count = len(main_operators(module))
        found = next(_smaller(module, count, size, tries), None)
        if found is not None:
            module = found
            size = min(size, max(len(main_operators(module)) // 2, 1))
        elif size == 1:
            break
        else:
            size //= 2
    return module


def _smaller(module: ModuleOp, count: int, size: int, tries: _Tries) -> Iterator[ModuleOp]:
    for start in reversed(range(0, count, size)):
        kept = [number for number in range(count) if not start <= number < start + size]
        made = tries(lambda kept=kept: keep_operators(module, frozenset(kept), for_others=False)) if kept else None  # type: ignore[misc]
        if made is not None:
            yield made


def _zeros(module: ModuleOp, tries: _Tries) -> tuple[ModuleOp, int]:
    """Zeros in the place of every large constant whose contents do not matter: nobody has to give weights away."""
    places = [n for n, op in enumerate(_constants(module)) if isinstance(op.value, BlobAttr) and _is_worth(op)]
    zeroed = 0

    def without(chosen: Sequence[int]) -> ModuleOp:
        made = clone_module(module)
        for number, op in enumerate(_constants(made)):
            if number in chosen and isinstance(op.value, BlobAttr):
                op.properties["value"] = BlobAttr.of(np.zeros(op.value.data.size, np.uint8).tobytes())
        return made

    work = [places] if places else []
    while work:
        chosen = work.pop()
        made = tries(lambda chosen=chosen: without(chosen))  # type: ignore[misc]
        if made is not None:
            module, zeroed = made, zeroed + len(chosen)
        elif len(chosen) > 1:
            work += [chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]]
    return module, zeroed


def _constants(module: ModuleOp) -> list[ConstOp]:
    return [op for op in main_function(module).body.block.ops if isinstance(op, ConstOp)]


def _is_worth(op: ConstOp) -> bool:
    value = op.value
    return isinstance(value, BlobAttr) and value.data.size >= _LARGE_BYTES and any(value.data.data)
