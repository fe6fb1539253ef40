"""Operator table: ``get("CONV_2D")`` and ``all_specs()``. Each module of a family has a ``SPECS`` tuple."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache

from odc_mlir.errors import UnsupportedError
from odc_mlir.ops.spec import OpSpec

FAMILIES = (
    "convolution",
    "elementwise",
    "pooling",
    "shape",
    "activation",
    "reduction",
    "quantize",
    "resize",
    "logic",
    "normalization",
    "spectral",
    "layout",
    "indexing",
    "filling",
    "search",
    "lookup",
    "matrix",
    "attention",
    "recurrent",
    "binary_coded",
    "control",
    "custom",
    "random",
    "resource",
    "storage",
)


@cache
def all_specs() -> Mapping[str, OpSpec]:
    """Return all operators by schema name, in table order."""
    table: dict[str, OpSpec] = {}
    for family in FAMILIES:
        for spec in importlib.import_module(f"odc_mlir.ops.{family}").SPECS:
            if spec.name in table:
                raise ValueError(f"operator {spec.name} is declared twice")
            table[spec.name] = spec
    return table


def get(name: str) -> OpSpec:
    """Return the operator called ``name``. Raises UnsupportedError."""
    try:
        return all_specs()[name]
    except KeyError:
        raise UnsupportedError("this operator is not supported", op=name) from None
