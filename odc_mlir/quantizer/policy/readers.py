"""What other readers of a file make of codes: LiteRT (TensorFlow Lite), which ``.tflite`` files are for.

An operator is named here where LiteRT 2.3's reference kernels refuse codes of the type, or compute other numbers of
them than the operator's definition says. A test runs every operator of the table in LiteRT.
"""

from __future__ import annotations

from collections.abc import Mapping

from odc_mlir.ops.spec import Node

LITERT, NPU = "litert", "npu"
READERS = (LITERT,)

# In any type of codes.
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
    "int8": {"MATRIX_DIAG": _OTHER, "REVERSE_SEQUENCE": _NONE},
    "uint8": {
        **dict.fromkeys(("BATCH_MATMUL", "SQUARED_DIFFERENCE", "ABS", "EXP", "LOG", "SQRT", "RSQRT"), _NONE),
        "MATRIX_DIAG": _OTHER,
    },
    "int16": {
        **dict.fromkeys(("SQUARED_DIFFERENCE", "RELU_N1_TO_1", "RELU_0_TO_1", "HARD_SWISH"), _NONE),
        **dict.fromkeys(("SPACE_TO_DEPTH", "DEPTH_TO_SPACE"), _NONE),
        **dict.fromkeys(("ARG_MAX", "ARG_MIN", "ONE_HOT"), _NONE),
        **dict.fromkeys(("EXP", "RSQRT", "PRELU"), _OTHER),
        # It compares codes without their scales.
        **dict.fromkeys(("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"), _OTHER),
    },
}
WIDE_WEIGHTS = "LiteRT has no kernel for weights of int16"
_PRODUCTS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED"})


def litert_refuses(op: str, activations: str, weights: str | None = None, *, per_channel: bool = False) -> str | None:
    """Why LiteRT does not run ``op`` on codes of these types as it is defined, None where it does.

    ``per_channel``: whether weights have several scales.
    """
    seen = _NO_CODES.get(op) or _REFUSED.get(activations, {}).get(op)
    if seen is None and op in _PRODUCTS:
        if activations == "uint8" and per_channel:
            seen = "uint8 weights with one scale only"
        elif weights == "int16":
            return WIDE_WEIGHTS
        elif weights == "int4" and op == "TRANSPOSE_CONV":
            seen = "no kernel for weights of int4"
    return None if seen is None else f"LiteRT has {seen}"


def litert_refuses_node(node: Node) -> str | None:
    """The same of an operator as it stands in a model; None for those on real numbers."""
    coded = [info for info in (*node.operands, *node.results) if info is not None and info.quant is not None]
    moving = [info.dtype for info in coded if not info.is_const and info.dtype in _REFUSED]
    if node.spec.name in ("QUANTIZE", "DEQUANTIZE"):
        wide = any(info.is_const and info.dtype == "int16" for info in coded)
        return WIDE_WEIGHTS if wide else None
    if not moving:
        return None
    weights = next((info for info in coded if info.is_const and info.info.bits <= 16), None)
    several = weights is not None and weights.quant is not None and not weights.quant.per_tensor
    return litert_refuses(node.spec.name, moving[0], None if weights is None else weights.dtype, per_channel=several)
