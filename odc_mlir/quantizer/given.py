"""Parameters of single tensors that the user gives or copies, or that a model brings, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue

from odc_mlir.errors import OptionError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams
from odc_mlir.quantizer.layers import float_names
from odc_mlir.quantizer.policy.precision import PrecisionChoice
from odc_mlir.quantizer.policy.schemes import FLOAT, SCHEMES, Scheme
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.tensor_names import values_of
from odc_mlir.transforms.quant.common import ir as quant_ir
from odc_mlir.transforms.quant.common.given import given_range, moved_to, read_given
from odc_mlir.transforms.quant.quant_absorb_pairs import QuantAbsorbPairsPass
from odc_mlir.universe import make_context

Parameters = Mapping[str, tuple[float, int]]
Types = Mapping[str, Attribute]

_ROUNDING = frozenset({"QUANTIZE", "FAKE_QUANT"})
_NAMED = 3  # of those whose parameters were lost
_MOST_WEIGHT_BITS = 16  # biases have more
_CLOSE = 1e-6  # of scales, which files keep as float32


def types_of(
    module: ModuleOp, parameters: Parameters, default: Scheme, precisions: Mapping[str, PrecisionChoice]
) -> dict[str, Attribute]:
    """The element types that ``parameters`` mean; raises OptionError for names and zero points that cannot be."""
    values = _values(module)
    found: dict[str, Attribute] = {}
    for name, (scale, zero) in parameters.items():
        value = _named(values, name)
        choice = precisions.get(name)
        used = default if choice is None or choice.precision == FLOAT else SCHEMES[choice.precision]
        dtype = used.weights if quant_ir.constant_of(value) is not None else used.activations
        assert dtype is not None
        low, high = DTYPES[dtype].range
        if not low <= zero <= high or (dtype == "int16" and zero):
            allowed = "0" if dtype == "int16" else f"from {low} to {high}"
            raise OptionError(f"the zero point of {name!r} is {zero}, {dtype} allows {allowed}")
        stored = float(np.float32(scale))
        if not 0 < stored < np.inf:
            raise OptionError(f"the scale of {name!r} is {scale:g}, which is {stored:g} in float32")
        found[name] = quant_ir.quantised(dtype, QuantParams((stored,), (zero,)))
    return found


def copied(assigned: ModuleOp, copies: Mapping[str, str]) -> dict[str, Attribute]:
    """The types that tensors take over, from what is assigned to others; raises OptionError where nothing is."""
    values = _values(assigned)
    found: dict[str, Attribute] = {}
    for name, source in copies.items():
        _named(values, name)
        type = quant_ir.assigned_type(_named(values, source))
        if quant_ir.params_of(type) is None:
            raise OptionError(
                f"{name!r} cannot take its parameters from {source!r}, which has none",
                hint="name a result or input that is quantised",
            )
        found[name] = type
    return found


def check_kept(graph: Graph, types: Types) -> None:
    """Raises OptionError for the first tensor of the quantised ``graph`` that is not of the type given for it."""
    if missed := missing(graph, types):
        name, seen = next(iter(missed.items()))
        raise OptionError(
            f"{name!r} cannot have the parameters given for it: {seen}",
            hint="omit them, or give them to the tensors that share its quantisation",
        )


def missing(graph: Graph, types: Types) -> dict[str, str]:
    """What the tensors of the quantised ``graph`` are that have another type than given for them, by name."""
    found: dict[str, str] = {}
    standing = float_names(graph, dict.fromkeys(types, 0))
    for name, type in types.items():
        wanted = quant_ir.params_of(type)
        assert wanted is not None
        infos = [graph.tensors[index] for index, other in standing.items() if other == name]
        coded = [info for info in infos if info.quant is not None and info.info.is_integer]
        if any(_is_same(info.quant, moved_to(wanted[0], wanted[1], info.dtype)) for info in coded):
            continue
        if not coded:
            found[name] = "it stays real" if infos else "the optimised model has no such tensor"
        else:
            seen = coded[0].quant
            assert seen is not None
            found[name] = f"it is {coded[0].dtype} with scale {seen.scales[0]:g} and zero point {seen.zero_points[0]}"
    return found


def _is_same(seen: QuantParams | None, wanted: QuantParams | None) -> bool:
    if seen is None or wanted is None or seen.zero_points != wanted.zero_points:
        return False
    return bool(np.allclose(seen.scales, wanted.scales, rtol=_CLOSE, atol=0.0))


def taken_out(module: ModuleOp) -> ModuleOp:
    """``module`` without the rounding that it was trained with, whose parameters it then brings; itself without any."""
    function = quant_ir.main_function(module)
    if function is None or not any(op.SPEC.name in _ROUNDING for op in quant_ir.operators(function)):
        return module
    made = module.clone()
    QuantAbsorbPairsPass().apply(make_context(), made)
    return made if read_given(made) else module


def scheme_of(types: Types) -> str:
    """The scheme whose codes most of ``types`` are."""
    counts = Counter(found[0] for type in types.values() if (found := quant_ir.params_of(type)) is not None)
    dtype = counts.most_common(1)[0][0]
    return "int16x8" if dtype == "int16" and counts["int8"] else dtype


def ranges_of(types: Types) -> dict[str, tuple[float, float]]:
    """What the codes of values stand for, by name."""
    found = ((name, given_range(types, name)) for name in types)
    return {name: range for name, range in found if range is not None}


def codes_brought(graph: Graph) -> list[str]:
    """What to say of a model whose weights alone are codes, by which nothing shows what these have lost."""
    codes = [info for info in graph.tensors if info.is_const and info.quant is not None and info.info.is_integer]
    types = sorted({info.dtype for info in codes if info.info.bits <= _MOST_WEIGHT_BITS})
    if not types:
        return []
    return [
        f"weights of the model are codes already ({', '.join(types)}): accuracy is measured against what these stand "
        "for, not against the weights that they were rounded from; quantise the float model if there is one"
    ]


def lost(graph: Graph, types: Types) -> list[str]:
    """What to say of parameters that the model brought and that its quantised ``graph`` has not."""
    missed = missing(graph, types)
    if not missed:
        return []
    some = ", ".join(f"{name!r} ({seen})" for name, seen in list(missed.items())[:_NAMED])
    return [f"{len(missed)} of {len(types)} tensors have other parameters than the model brings: {some}"]


def _values(module: ModuleOp) -> dict[str, SSAValue]:
    function = quant_ir.main_function(module)
    assert function is not None
    return {value_name(value): value for value in values_of(function)}


def _named(values: Mapping[str, Any], name: str) -> SSAValue:
    if name not in values:
        raise OptionError(
            f"the optimised model has no tensor {name!r}", hint="operators may be fused into their neighbours"
        )
    value: SSAValue = values[name]
    return value
