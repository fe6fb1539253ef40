"""Semantics and costs of instructions, in one function per instruction."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from odc_mlir.isa.instructions import BY_MNEMONIC
from odc_mlir.simulator.engines.machine import Executor


@cache
def executors() -> Mapping[str, Executor]:
    """Return the functions of this package that execute instructions, by mnemonic.

    Instructions of the fetch engine and ``sync`` have no such function.
    """
    found: dict[str, Executor] = {}
    for item in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{item.name}")
        own = {name: value for name, value in vars(module).items() if name in BY_MNEMONIC}
        found |= {name: value for name, value in own.items() if value.__module__ == module.__name__}
    return found
