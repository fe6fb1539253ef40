"""Kernels by name: what they take and who writes their loops.

A kernel is a function of loops over flat buffers. Sizes are parameters of the function, so that layers share it; what
decides the code itself (the shape of a tile of registers) are options, and part of the function's name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from odc_mlir.errors import CompileError
from odc_mlir.transforms.native.lowering.loops import Loops

Options = Mapping[str, int]
Write = Callable[..., None]

Parameters = Mapping[str, Attribute]

_MODULES = ("products", "pooling", "elementwise", "rows", "reductions", "moves", "recurrent")


@dataclass(frozen=True)
class Kernel:
    """``write(loops, helpers, **options)`` fills a function of ``parameters(options)``.

    ``depth``: of a kernel that can be divided by pixels, see :func:`divisible`; else empty.
    """

    name: str
    parameters: Callable[[Options], Parameters]
    write: Write
    depth: tuple[str, ...] = ()

    def symbol(self, options: Options) -> str:
        """The function's name for these options."""
        return "_".join((self.name, *(f"{key}{value}" for key, value in options.items())))


def kernel(**parameters: Attribute) -> Callable[[Write], Kernel]:
    """Makes a kernel of the function that writes it, called after that."""
    return lambda write: Kernel(write.__name__, lambda _: parameters, write)


def kernel_by_options(parameters: Callable[[Options], Parameters]) -> Callable[[Write], Kernel]:
    """The same where options decide the parameters' types."""
    return lambda write: Kernel(write.__name__, parameters, write)


BY_PIXEL = ("places", "owners")
"""Parameters of kernels that hold one word for each pixel."""


def divisible(*depth: str) -> Callable[[Kernel], Kernel]:
    """Marks a kernel whose call can be divided into calls for some of its pixels each.

    Its result has ``channels`` elements for each of ``pixels``, computed by tiles of ``rows``, an option, and
    ``blocks`` of channels; one takes as many products as the parameters ``depth`` say together.
    """
    return lambda found: replace(found, depth=depth)


def find_kernel(name: str) -> Kernel:
    """The kernel called ``name``; raises CompileError."""
    for module in _MODULES:
        found = getattr(importlib.import_module(f"odc_mlir.transforms.native.kernels.{module}"), name, None)
        if isinstance(found, Kernel):
            return found
    raise CompileError(f"there is no kernel {name!r}")


class Helpers:
    """Small functions that kernels call, made when first asked for; ``dot`` says how the machine multiplies bytes."""

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
    """The function of a kernel with these options."""
    loops = Loops(found.symbol(options), found.parameters(options))
    found.write(loops, helpers, **options)
    return loops.finish()
