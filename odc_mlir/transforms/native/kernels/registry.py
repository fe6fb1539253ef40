"""Registry of kernels: their parameters by options, and the functions that write their loops.

A kernel is a function of loops over flat buffers. Sizes are parameters of the function, so that layers share it.
Options select the code (the shape of a tile of registers) and are part of the function's name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from odc_mlir.errors import CompileError
from odc_mlir.transforms.native.kernels.loops import Loops

Options = Mapping[str, int]
Write = Callable[..., None]

Parameters = Mapping[str, Attribute]

_MODULES = ("products", "pooling", "elementwise", "rows", "reductions", "moves", "recurrent")


@dataclass(frozen=True)
class Kernel:
    """A kernel: ``write(loops, helpers, **options)`` writes the body of a function with ``parameters(options)``.

    ``depth`` is not empty for a kernel whose calls can be divided, see :func:`divisible`.
    """

    name: str
    parameters: Callable[[Options], Parameters]
    write: Write
    depth: tuple[str, ...] = ()

    def symbol(self, options: Options) -> str:
        """Return the name of the function for these options."""
        return "_".join((self.name, *(f"{key}{value}" for key, value in options.items())))


def kernel(**parameters: Attribute) -> Callable[[Write], Kernel]:
    """Return a decorator that makes a kernel of the function that writes it."""
    return lambda write: Kernel(write.__name__, lambda _: parameters, write)


def kernel_by_options(parameters: Callable[[Options], Parameters]) -> Callable[[Write], Kernel]:
    """Return the decorator for a kernel whose parameters depend on its options."""
    return lambda write: Kernel(write.__name__, parameters, write)


BY_PIXEL = ("places", "owners")
"""Parameters with one word per pixel."""


def divisible(*depth: str) -> Callable[[Kernel], Kernel]:
    """Return a decorator for a kernel whose call can be divided into calls for some of the pixels.

    Its result has ``channels`` elements for each of ``pixels``, computed in tiles of ``rows``, an option, and
    ``blocks`` of channels. One element takes as many products as the product of the parameters ``depth``.
    """
    return lambda found: replace(found, depth=depth)


def find_kernel(name: str) -> Kernel:
    """Return the kernel ``name``; raise CompileError if there is none."""
    for module in _MODULES:
        found = getattr(importlib.import_module(f"odc_mlir.transforms.native.kernels.{module}"), name, None)
        if isinstance(found, Kernel):
            return found
    raise CompileError(f"there is no kernel {name!r}")


class Helpers:
    """Small functions that kernels call, made on first use; ``dot`` names the instructions that multiply bytes."""

    def __init__(self, dot: str) -> None:
        self._dot = dot
        self.made: dict[str, FuncOp] = {}

    def __getitem__(self, name: str) -> FuncOp:
        if name not in self.made:
            from odc_mlir.transforms.native.kernels.helpers import HELPERS

            key = f"{name}_{self._dot}" if name in ("dot", "dot_pairs") else name
            if key not in HELPERS:
                raise CompileError(f"there is no helper {key!r}")
            self.made[name] = HELPERS[key](name)
        return self.made[name]


def write_kernel(found: Kernel, options: Options, helpers: Helpers) -> FuncOp:
    """Return the function of a kernel with these options."""
    loops = Loops(found.symbol(options), found.parameters(options))
    found.write(loops, helpers, **options)
    return loops.finish()
