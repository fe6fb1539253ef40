"""Additions to xDSL: dialects, passes and targets by name, each imported on first use.

A stock ``xdsl-opt`` finds ``UNIVERSE`` through the ``xdsl.universe`` entry point. ``make_context`` creates our
commands' context.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects import get_all_dialects
from xdsl.ir import Attribute, Dialect, Operation, TypeAttribute
from xdsl.passes import ModulePass
from xdsl.universe import Universe
from xdsl.utils.target import Target

from odc_mlir import transforms
from odc_mlir.plugins.universes import additions
from odc_mlir.support.deadline import Deadline, Progress

if TYPE_CHECKING:
    from odc_mlir.pipelines import Validation
    from odc_mlir.transforms.npu.schedule.window_search import Tilings

VERIFY_VARIABLE = "ODC_VERIFY_EACH"

_DIALECTS = MappingProxyType({"circle": "Circle", "npu": "dialect", "odc": "Odc", "quant": "Quant"})


def _dialect(name: str) -> Callable[[], Dialect]:
    def load() -> Dialect:
        found: Dialect | Callable[[], Dialect] = getattr(import_module(f"odc_mlir.dialects.{name}"), _DIALECTS[name])
        return found if isinstance(found, Dialect) else found()

    return load


def _npu_listing() -> type[Target]:
    from odc_mlir.emitter.program import NpuListingTarget

    return NpuListingTarget


ALL_DIALECTS: Mapping[str, Callable[[], Dialect]] = {name: _dialect(name) for name in _DIALECTS}
ALL_TARGETS: Mapping[str, Callable[[], type[Target]]] = {"npu-listing": _npu_listing}

UNIVERSE = Universe(
    all_dialects=dict(ALL_DIALECTS), all_passes=dict(transforms.all_passes()), all_targets=dict(ALL_TARGETS)
)


class OdcContext(Context):
    """Context that creates the class of a circle operator when text first names the operator.

    ``deadline``: time limit of passes, or None. ``progress`` is called with activity, finished steps, and total or
        None. ``verify_each``: verify modules after every pass, not only after every stage. ``tilings``: tilings found
        so far, which ``remember`` keeps in the user's cache. ``before``: inserted passes, by the name of the pass that
        follows them. ``validator``: validation of pipelines.
    """

    deadline: Deadline | None = None
    progress: Progress | None = None
    verify_each: bool = False
    remember: bool = False
    tilings: Tilings | None = None
    before: Mapping[str, Sequence[ModulePass]] = MappingProxyType({})
    validator: Validation | None = None

    def clone(self) -> OdcContext:
        copy = OdcContext(
            self.allow_unregistered,
            self._loaded_dialects.copy(),
            self._loaded_ops.copy(),
            self._loaded_attrs.copy(),
            self._loaded_types.copy(),
            self._registered_dialects.copy(),
        )
        copy.deadline, copy.progress, copy.verify_each = self.deadline, self.progress, self.verify_each
        copy.before, copy.validator = self.before, self.validator
        copy.remember, copy.tilings = self.remember, self.tilings
        return copy

    def load_registered_dialect(self, name: str) -> None:
        if name != "circle":
            super().load_registered_dialect(name)
            return
        from odc_mlir.dialects.circle import Circle

        self._loaded_dialects[name] = Circle
        for attribute in Circle.attributes:
            self.load_attr_or_type(attribute)

    def get_optional_dialect(self, name: str) -> Dialect | None:
        self._look_up(name)
        return super().get_optional_dialect(name)

    def get_optional_type(self, name: str) -> type[TypeAttribute] | None:
        self._look_up(name)
        return super().get_optional_type(name)

    def get_optional_attr(self, name: str) -> type[Attribute] | None:
        self._look_up(name)
        return super().get_optional_attr(name)

    def _look_up(self, name: str) -> None:
        """Register dialects of foreign Python packages if the dialect of ``name`` is not yet registered."""
        if name.partition(".")[0] not in self._registered_dialects:
            for other, added in additions("dialects").items():
                if other not in self._registered_dialects:
                    self.register_dialect(other, added.load)

    def get_optional_op(self, name: str, *, dialect_stack: Sequence[str] = ()) -> type[Operation] | None:
        if "." in name:
            self._look_up(name)
        if name.startswith("circle.") and name not in self._loaded_ops:
            from odc_mlir.dialects.circle import find_operation

            if (found := find_operation(name)) is not None:
                self.load_op(found)
        return super().get_optional_op(name, dialect_stack=dialect_stack)


def make_context(
    *,
    allow_unregistered: bool = False,
    time_limit: float | None = None,
    progress: Progress | None = None,
    verify_each: bool = False,
    remember: bool = False,
    before: Mapping[str, Sequence[ModulePass]] | None = None,
) -> OdcContext:
    """Return a context with our dialects and the xDSL dialects that our IR uses, all loaded on first use.

    ``time_limit``: seconds from now after which passes raise TimeLimitError. The variable ODC_VERIFY_EACH=1 has the
        effect of ``verify_each``. Other options: see :class:`OdcContext`.
    """
    context = OdcContext(allow_unregistered=allow_unregistered)
    context.deadline = None if time_limit is None else Deadline(time_limit)
    context.progress = progress
    context.verify_each = verify_each or os.environ.get(VERIFY_VARIABLE) == "1"
    context.remember = remember
    context.before = before or {}
    for name, load in {**get_all_dialects(), **ALL_DIALECTS}.items():
        context.register_dialect(name, load)
    return context
