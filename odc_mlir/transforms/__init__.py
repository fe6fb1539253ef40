"""The passes by name; each is imported when it is first asked for.

Every room is a folder whose files are its passes; what passes share lies in folders below. Pass ``circle-infer-shapes``
is ``CircleInferShapesPass`` in ``circle/circle_infer_shapes.py``. :mod:`odc_mlir.pipelines` says in which order they
run.
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
"""Every pass: a file in a room is one, nothing else makes it known."""


def room_of(name: str) -> str:
    """The folder of the pass called ``name``, one of :data:`NAMES`."""
    return _ROOM_OF[name]


def load(name: str) -> type[ModulePass]:
    """The class of the pass called ``name``, one of :data:`NAMES`."""
    module = importlib.import_module(f"{__name__}.{room_of(name)}.{name.replace('-', '_')}")
    found: type[ModulePass] = getattr(module, "".join(part.capitalize() for part in name.split("-")) + "Pass")
    return found


def all_passes() -> Mapping[str, Callable[[], type[ModulePass]]]:
    """Every pass as a function that imports it: the form that xDSL's drivers take."""
    return {name: partial(load, name) for name in NAMES}
