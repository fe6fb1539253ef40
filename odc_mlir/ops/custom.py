"""Custom operators: the table's ``CUSTOM`` entry, and entries of their own for codes whose meaning is public.

``spec_of_code("Erf", registry)`` is the entry of one operator. A code that the application has registered, and one that
nobody knows, get an entry without rules; the latter can be imported and exported, and is refused when it is to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from odc_mlir.ops.registry import CustomOps
from odc_mlir.ops.spec import Operand, OpSpec

_INFER = "odc_mlir.ops.infer.custom"
_KERNELS = "odc_mlir.runtime.kernels.custom"

_ANY = (Operand("tensors", optional=True, variadic=True),)

SPECS = (
    OpSpec(
        name="CUSTOM",
        operands=_ANY,
        results=_ANY,
        infer=f"{_INFER}:registered",
        kernel=f"{_KERNELS}:registered",
        traits=frozenset(),
        quant="none",
        summary="An operator that the model's author defined, named by its custom code.",
    ),
)


def _label(code: str) -> str:
    """What users know the operator by."""
    return f"CUSTOM({code})"


KNOWN: Mapping[str, OpSpec] = MappingProxyType({})
"""The operators whose meaning is public, by custom code."""


def spec_of_code(code: str, registry: CustomOps) -> OpSpec:
    """The table's entry for the custom operator ``code``."""
    if code in KNOWN and registry.get(code) is None:
        return KNOWN[code]
    (generic,) = SPECS
    return OpSpec(
        name=_label(code),
        operands=generic.operands,
        results=generic.results,
        infer=generic.infer,
        kernel=generic.kernel,
        traits=generic.traits,
        max_version=_ANY_VERSION,
        quant=generic.quant,
        summary=generic.summary,
    )


_ANY_VERSION = 1 << 31  # custom operators count their versions as their authors please
