"""The passes by name. A pass is imported at first use.

A pass is a file in the folder of its level. Subfolders contain shared code. ``circle-infer-shapes`` is
``CircleInferShapesPass`` in ``circle/circle_infer_shapes.py``. :mod:`odc_mlir.pipelines` defines the order of passes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.passes import ModulePass

ROOMS = ("circle", "quant", "partition", "npu", "native")
"""Folders of passes, from models to machines."""


def _names_in(room: str) -> Iterator[str]:
    for module in pkgutil.iter_modules([str(Path(__file__).parent / room)]):
        if not module.ispkg:
            yield module.name.replace("_", "-")


_ROOM_OF = {name: room for room in ROOMS for name in _names_in(room)}

NAMES = tuple(_ROOM_OF)
"""Names of all passes: a file in a room is a pass, without further registration."""


def room_of(name: str) -> str:
    """Return the folder of the pass ``name``. :data:`NAMES` lists all names."""
    return _ROOM_OF[name]


def load(name: str) -> type[ModulePass]:
    """Return the class of the pass ``name``. :data:`NAMES` lists all names."""
    module = importlib.import_module(f"{__name__}.{room_of(name)}.{name.replace('-', '_')}")
    found: type[ModulePass] = getattr(module, "".join(part.capitalize() for part in name.split("-")) + "Pass")
    return found


def all_passes() -> Mapping[str, Callable[[], type[ModulePass]]]:
    """Return, for every pass, a function that imports it, as xDSL's drivers require."""
    return {name: partial(load, name) for name in NAMES}
