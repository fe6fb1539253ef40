"""Limits of LiteRT (TensorFlow Lite): operators, types and scales that LiteRT's kernels refuse or compute differently.

The tables hold for the reference kernels of LiteRT 2.3. Some scales abort the LiteRT process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from odc_mlir.numerics.fixed import activation_bounds
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.spec import Node, TensorInfo

NPU = "npu"

# Operators that LiteRT does not run on any type of codes.
_NO_CODES = {
    "SIN": "no kernel for codes",
    "COS": "no kernel for codes",
    "ELU": "no reference kernel",
    "BROADCAST_TO": "no reference kernel",
    "NEG": "no kernel that knows zero points",
    "SUM": "other numbers of codes",
}
_NONE = "no kernel for codes of this type"
_OTHER = "other numbers of codes of this type"
_REFUSED: Mapping[str, Mapping[str, str]] = {
    # DIV shifts quotients near 0 by more than 31 bits, and the result depends on the processor.
    "int8": {"MATRIX_DIAG": _OTHER, "DIV": _OTHER, "REVERSE_SEQUENCE": _NONE},
    "uint8": {
        **dict.fromkeys(("BATCH_MATMUL", "SQUARED_DIFFERENCE", "ABS", "EXP", "LOG", "SQRT", "RSQRT"), _NONE),
        "MATRIX_DIAG": _OTHER,
        "DIV": _OTHER,
    },
    "int16": {
        **dict.fromkeys(("SQUARED_DIFFERENCE", "RELU_N1_TO_1", "RELU_0_TO_1", "HARD_SWISH"), _NONE),
        **dict.fromkeys(("SPACE_TO_DEPTH", "DEPTH_TO_SPACE"), _NONE),
        **dict.fromkeys(("ARG_MAX", "ARG_MIN", "ONE_HOT", "SPARSE_TO_DENSE"), _NONE),
        **dict.fromkeys(("EXP", "LOG", "RSQRT", "PRELU"), _OTHER),
        "SQRT": "no kernel that takes codes below zero",  # rounding may make non-negative values negative
        # It compares codes and ignores scales.
        **dict.fromkeys(("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"), _OTHER),
    },
}
WIDE_WEIGHTS = "LiteRT has no kernel for weights of int16"
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")
_PRODUCTS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED"})


def litert_refuses(op: str, activations: str, weights: str | None = None, *, per_channel: bool = False) -> str | None:
    """Return why LiteRT does not run ``op`` on codes of these types, or None. ``per_channel``: form of weights."""
    seen = _NO_CODES.get(op) or _REFUSED.get(activations, {}).get(op)
    if seen is None and op in _PRODUCTS:
        if activations == "uint8" and per_channel:
            seen = "uint8 weights with one scale only"
        elif weights == "int16":
            return WIDE_WEIGHTS
        elif weights in ("int8", "uint8") and (weights == "uint8") != (activations == "uint8"):
            seen = f"no kernel for weights of {weights} beside {activations}"
        elif weights == "int4" and op == "TRANSPOSE_CONV":
            seen = "no kernel for weights of int4"
    return None if seen is None else f"LiteRT has {seen}"


def litert_refuses_node(node: Node) -> str | None:
    """Return why LiteRT does not run this node, or None for float nodes and for nodes that it runs."""
    coded = [info for info in (*node.operands, *node.results) if info is not None and info.quant is not None]
    moving = [info.dtype for info in coded if not info.is_const and info.dtype in _REFUSED]
    if node.spec.name in _CONVERSIONS:
        wide = any(info.is_const and info.dtype == "int16" for info in coded)
        return WIDE_WEIGHTS if wide else None
    if not moving:
        return None
    weights = next((info for info in coded if info.is_const and info.info.bits <= 16), None)
    several = weights is not None and weights.quant is not None and not weights.quant.per_tensor
    seen = litert_refuses(node.spec.name, moving[0], None if weights is None else weights.dtype, per_channel=several)
    if seen is None and node.spec.name in _IMAGE_FILTERS:  # LiteRT reads computed image filters as 8-bit codes
        filters = [node.optional(place) for place in node.spec.quant.weights]
        seen = WIDE_WEIGHTS if any(info is not None and info.dtype == "int16" for info in filters) else None
    if seen is None and node.spec.name == "FULLY_CONNECTED":  # with such weights, LiteRT reads a bias as 32-bit codes
        types = [None if info is None else info.dtype for info in (node.optional(1), node.optional(2))]
        seen = "LiteRT has no kernel for this bias beside weights of int16" if types == ["int16", "int64"] else None
    fits = _REACH.get(node.spec.name)
    if seen is None and fits is not None and not fits(node):
        return "LiteRT has no kernel for scales like these"
    return seen or (None if _limits_fit(node) else "LiteRT has no kernel for a scale so small")


def litert_refuses_form(node: Node) -> str | None:
    """Return why LiteRT does not run an operator on operands like these, for any scales, or None if it does."""
    name = node.spec.name
    if node.custom_code and node.custom_code not in _CUSTOM:
        return f"LiteRT has no kernel for the custom operator {node.custom_code}"
    shapes = [None if info is None or info.shape is None else len(info.shape) for info in node.operands]
    if any(shapes[place] for place in _SCALARS.get(name, ()) if place < len(shapes)):
        return "LiteRT has no kernel for operands that are no scalars here"
    if name == "ATAN2" and node.operand(0).shape != node.operand(1).shape:
        return "LiteRT has no kernel for operands of different shapes"
    # Recurrent operators need variables as states, even if these begin at zero.
    held = [node.optional(place) for place, operand in enumerate(node.spec.operands) if operand.mutated]
    if any(info is None or not info.is_variable for info in held):
        return _refused_types(node) or "LiteRT has no kernel for state that no variable holds"
    return _refused_types(node) or _refused_values(node)


def litert_misreads(node: Node) -> bool:
    """Return whether LiteRT reads the uint8 weights of a float layer as int8, without an error."""
    x, weights = node.optional(0), node.optional(1)
    return x is not None and weights is not None and x.info.kind == "float" and weights.dtype == "uint8"


def _refused_types(node: Node) -> str | None:
    """Return the reason why LiteRT refuses a node's types, or None."""
    if any(info is not None and info.dtype == "uint4" for info in (*node.operands, *node.results)):
        return "LiteRT has no kernel for codes of uint4"
    if litert_misreads(node):
        return "LiteRT has no kernel for uint8 weights beside real inputs"
    if node.spec.name in _CONVERSIONS:
        source, result = node.operand(0).dtype, node.results[0].dtype
        is_taken = result in _CONVERTED.get(source, (result,))
        return None if is_taken else f"LiteRT has no kernel that converts {source} to {result}"
    x = node.optional(0) if node.spec.name in (*_PRODUCTS, "BATCH_MATMUL") else None
    return None if x is None or x.is_const or x.dtype != "int4" else "LiteRT has no kernel for computed codes of int4"


def _refused_values(node: Node) -> str | None:
    if node.spec.name == "SLICE":
        begin, size = node.operand(1), node.operand(2)
        if (begin.is_const and (begin.array() < 0).any()) or (size.is_const and (size.array() < -1).any()):
            return "LiteRT has no kernel for a begin below 0 or a size below -1"
    loop = node.callees.get(node.options["cond_subgraph_index"]) if node.spec.name == "WHILE" else None
    shape = loop.outputs[0].shape if loop is not None else None
    return None if shape in (None, (), (1,), (None,)) else "LiteRT has no kernel for a condition of several values"


# Types that codes and floats can be converted to. The writer splits a conversion of wider codes to uint8 into two.
_CONVERTED: Mapping[str, tuple[str, ...]] = {
    "float32": (*CODE_DTYPES, "int4"),
    **dict.fromkeys(("int8", "uint8"), (*CODE_DTYPES, "float32")),
    "int16": (*CODE_DTYPES, "int32", "float32"),
    "int32": CODE_DTYPES,
}
# Custom operators with kernels that LiteRT's own resolvers register.
_CUSTOM = frozenset({"TFLite_Detection_PostProcess", "Mfcc", "AudioSpectrogram"})
_SCALARS: Mapping[str, tuple[int, ...]] = {
    "FILL": (1,),
    "RANGE": (0, 1, 2),
    "NON_MAX_SUPPRESSION_V4": (2, 3, 4),
    "NON_MAX_SUPPRESSION_V5": (2, 3, 4, 5),
}
_IMAGE_FILTERS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"})


def _scales(node: Node) -> list[float]:
    return [info.quant.scale for info in node.operands if info is not None and info.quant is not None]


def _scale(info: TensorInfo) -> float:
    return info.quant.scale if info.quant is not None else 1.0


def _is_below_one(multiplied: float, bits: int, scale: float) -> bool:
    """Return whether ``multiplied / (2^bits * scale)`` is below 1. LiteRT computes the divisor in float32."""
    with np.errstate(over="ignore"):
        divisor = np.float32(scale) * np.float32(1 << bits)
    return bool(np.isfinite(divisor)) and multiplied < float(divisor)


def _fits_sum(node: Node) -> bool:
    """Check that steps of sums, 2^-20 (int16: 2^-15) of twice the larger operand's step, are below the result's."""
    bits = 15 if node.results[0].dtype == "int16" else 20
    return _is_below_one(2 * max(_scales(node)), bits, _scale(node.results[0]))


def _fits_softmax(node: Node) -> bool:
    """Check that scaling of 8-bit codes' differences, by a factor with 2^26, does not decrease the differences."""
    wide = node.operand(0).dtype == "int16"
    return wide or float(node.options.get("beta", 1.0)) * _scale(node.operand(0)) * (1 << 26) > 1.0


def _product_scale(node: Node) -> float:
    """Return one step of a sum of products in steps of the result."""
    found = 1.0
    for info in (node.operand(place) for place in FACTORS[node.spec.name]):
        found *= max(info.quant.scales) if info.quant is not None else 1.0
    return found / _scale(node.results[0])


def _fits_connected(node: Node) -> bool:
    """Check that sums, in steps of the result, fit 32 bits. For 8-bit sums, check only that steps are finer."""
    step, weights = _product_scale(node), node.operand(1)
    if node.results[0].dtype != "int16" or not weights.shape or weights.shape[-1] is None:
        return step < 1.0
    return step * weights.shape[-1] * (1 << 14 + weights.info.bits) < 1 << 31


# Operator -> the two operands with scales that are multiplied.
FACTORS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL", "MUL"), (0, 1)),
    "TRANSPOSE_CONV": (1, 2),
}
_REACH: Mapping[str, Callable[[Node], bool]] = {
    "FULLY_CONNECTED": _fits_connected,
    # LiteRT does not shift sums of 16-bit codes to the left.
    **dict.fromkeys(
        ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "BATCH_MATMUL"),
        lambda node: node.results[0].dtype != "int16" or _product_scale(node) < 1 << 14,
    ),
    **dict.fromkeys(("ADD", "SUB"), _fits_sum),
    "SQUARED_DIFFERENCE": lambda node: _is_below_one((2 * max(_scales(node))) ** 2, 14, _scale(node.results[0])),
    **dict.fromkeys(
        ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"), lambda node: max(_scales(node)) < 1.0
    ),
    **dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX"), _fits_softmax),
    # Indices of int16 codes in a table overflow for scales above 5. From 1 on, our tables use real arithmetic.
    **dict.fromkeys(
        ("LOGISTIC", "TANH"), lambda node: node.operand(0).dtype != "int16" or _scale(node.operand(0)) < 1.0
    ),
}
_BOUNDED = ("RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")


def _limits_fit(node: Node) -> bool:
    """Return whether the limits of an activation fit 32-bit codes, with room for the zero point."""
    alone = node.spec.name if node.spec.name in _BOUNDED else ""
    bounds = activation_bounds(alone.lower() or str(node.options.get("fused_activation_function", "none")))
    most = max(abs(bound or 0.0) for bound in bounds)
    return not most or node.results[0].quant is None or most / _scale(node.results[0]) < (1 << 31) - (1 << 16)
