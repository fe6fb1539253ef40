"""One lowering for each family of operators, from ``circle`` to ``npu``."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odc_mlir.transforms.npu.lowering.site import Lowering


@cache
def lowerings() -> Mapping[str, Lowering]:
    """What the tables ``LOWERINGS`` of this package's modules hold, by operator.

    Raises ValueError where two of them hold the same operator.
    """
    found: dict[str, Lowering] = {}
    for item in pkgutil.iter_modules(__path__):
        own: Mapping[str, Lowering] = getattr(import_module(f"{__name__}.{item.name}"), "LOWERINGS", {})
        if twice := found.keys() & own.keys():
            raise ValueError(f"{item.name} lowers {min(twice)}, which another module does")
        found |= own
    return found
