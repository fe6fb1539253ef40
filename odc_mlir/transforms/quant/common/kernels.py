"""Support of operators on assigned element types, by our kernel and by a table of LiteRT's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from xdsl.ir import Attribute

from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.errors import OdcError
from odc_mlir.ops.check import check_node
from odc_mlir.ops.constants import encode_constant
from odc_mlir.ops.quantization import StateParameters
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.quantizer.policy.declarations import CPU, LITERT
from odc_mlir.quantizer.policy.readers import FACTORS, litert_refuses_node
from odc_mlir.quantizer.policy.schemes import SMALLEST_SCALE, Scheme, bias_params, quantize_constant
from odc_mlir.runtime.kernels import conditions
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.quant.common.ir import constant_of, info_as, is_real, params_of
from odc_mlir.transforms.quant.common.roles import Ranges, Role, contents_of, role_of


def refusal(
    op: CircleOp, operands: Sequence[Attribute], results: Sequence[Attribute], used: Scheme, ranges: Ranges
) -> str | None:
    """Return why ``op`` cannot run with these element types, None if it can."""
    seen = _unfit_values(op, operands, ranges) or _vanishing_product(op, operands)
    if seen := seen or _shared_state(op) or _linear_cell(op):
        return seen
    try:
        node = _node(op, operands, results, used)
        check_node(node)
    except OdcError as error:
        return error.message
    if (refused := conditions.refusal(node)) is not None:
        return refused.message
    if used.reader == CPU:
        return _refused_by_processors(node, node_of(op))
    return litert_refuses_node(node) if used.reader == LITERT else None


def _refused_by_processors(node: Node, real: Node) -> str | None:
    """Return why object code has no kernel for ``node`` on codes, if it has one for the ``real`` operator."""
    from odc_mlir.transforms.native.lowering.operators import reason_against

    seen = reason_against(node)
    return None if seen is None or reason_against(real) is not None else seen


def _linear_cell(op: CircleOp) -> str | None:
    """Return whether the cell of an LSTM has another activation than TANH, which kernels for codes always compute."""
    if StateParameters.CELL not in op.SPEC.quant.states.values():
        return None
    activation = str(node_of(op).options["fused_activation_function"]).lower()
    return None if activation == "tanh" else f"its cell has the activation {activation}; codes know tanh only"


def _unfit_values(op: CircleOp, operands: Sequence[Attribute], ranges: Ranges) -> str | None:
    """Return the problem of constant operands' values for any element type, or None."""
    rule = op.SPEC.quant
    for index in rule.not_negative:
        found = ranges.of(op.operands[index])
        if found is not None and found[0] < 0:
            return f"its operand has values from {found[0]:g}, of which there is no root"
    for index in rule.not_zero:
        element = params_of(operands[index])
        if element is None:
            continue
        if constant_of(op.operands[index]) is None:
            return "its divisor is computed; one that rounds to zero would be refused"
        dtype, params = element
        if (quantize_constant(contents_of(op.operands[index]), params, dtype) == params.zero_point).any():
            return "an element of its divisor rounds to zero"
    return None


def _vanishing_product(op: CircleOp, operands: Sequence[Attribute]) -> str | None:
    """Return whether the product of its scales underflows float32, which kernels and readers use."""
    found = 1.0
    for index in FACTORS.get(op.SPEC.name, ()):
        element = params_of(operands[index])
        found *= max(element[1].scales) if element is not None else 1.0
    if found >= SMALLEST_SCALE:
        return None
    names = " and ".join(repr(value_name(op.operands[index])) for index in FACTORS[op.SPEC.name])
    return f"the scales of {names} have a product of {found:.3g}; choose units for them that are closer to 1"


def _shared_state(op: CircleOp) -> str | None:
    """Return whether other operators see state that is to become codes."""
    for index in op.SPEC.quant.states:
        if index < len(op.operands) and len(list(op.operands[index].uses)) > 1 and is_real(op.operands[index]):
            return f"its state {op.SPEC.operand_name(index)} is used by other operators"
    return None


def _node(op: CircleOp, operands: Sequence[Attribute], results: Sequence[Attribute], used: Scheme) -> Node:
    """Describe ``op`` on codes; constants that would be quantised are zeros here, to save time."""
    real = node_of(op)
    infos = [
        None if info is None else _as_codes(info, element)
        for info, element in zip(real.operands, operands, strict=True)
    ]
    for index, bias in op.SPEC.quant.biases.items():
        value = infos[index] if index < len(infos) else None
        x, weights = params_of(operands[bias.input]), params_of(operands[bias.weights])
        if value is not None and x is not None and weights is not None and role_of(op, index) is Role.BIAS:
            assert used.bias is not None
            infos[index] = _zeros(TensorInfo(value.name, used.bias, value.shape, bias_params(x[1], weights[1])))
    made = tuple(info_as(info, element) for info, element in zip(real.results, results, strict=True))
    return replace(real, operands=tuple(infos), results=made)


def _as_codes(info: TensorInfo, element: Attribute) -> TensorInfo:
    found = info_as(info, element)
    return _zeros(found) if found is not info and info.is_const else found


def _zeros(info: TensorInfo) -> TensorInfo:
    info.data = memoryview(encode_constant(np.zeros(info.static_shape, info.info.numpy), info.dtype))
    return info
