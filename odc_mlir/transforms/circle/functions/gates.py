"""Gates: SiLU, GELU by a logistic function, and squeeze-excite."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.transforms.circle.functions.common import VIEWS, Function, between, pairs, plain
from odc_mlir.transforms.common.rewriting import producer, real_scalar, shape_of

SILU, QUICK_GELU, EXCITE = "SiLU", "GELU", "SqueezeExcite"

_QUICK = 1.702
_CLOSE = 1e-3
_GATE = frozenset({"CONV_2D", "FULLY_CONNECTED", "RELU", "RELU6", "LOGISTIC", "HARD_SWISH", "MUL", "DIV", "ADD"})
_LONGEST_GATE = 24  # operators


def logistic_gate(op: CircleOp) -> Function | None:
    """``x * logistic(x)``, or GELU's approximation ``x * logistic(1.702 x)``."""
    if op.SPEC.name != "MUL" or len(op.results) != 1 or op.unverified is not None:
        return None
    for x, gate in pairs(op):
        inner = producer(gate, "LOGISTIC")
        if inner is None:
            continue
        kind = SILU if inner.operands[0] is x else QUICK_GELU if _is_scaled(inner.operands[0], x) else None
        if kind is not None:
            return Function(kind, op.results[0], between(op.results[0], [x]))
    return None


def _is_scaled(value: SSAValue, x: SSAValue) -> bool:
    product = plain(value, "MUL")
    return product is not None and any(
        first is x and math.isclose(real_scalar(other) or 0.0, _QUICK, rel_tol=_CLOSE)
        for first, other in pairs(product)
    )


def squeeze_excite(op: CircleOp) -> Function | None:
    """An image times what layers make of the means of its channels."""
    if op.SPEC.name != "MUL" or len(op.results) != 1 or op.unverified is not None:
        return None
    for image, gate in pairs(op):
        shape = shape_of(image)
        if shape is None or len(shape) != 4 or shape != shape_of(op.results[0]) or shape_of(gate) == shape:
            continue
        found = between(op.results[0], [image])
        means = [item for item in found if item.SPEC.name in ("MEAN", "AVERAGE_POOL_2D")]
        layers = [item for item in found if item.SPEC.name in ("CONV_2D", "FULLY_CONNECTED")]
        others = {item.SPEC.name for item in found if item not in means} - _GATE - {*VIEWS, "TRANSPOSE"}
        if len(means) != 1 or not layers or others or len(found) > _LONGEST_GATE:
            continue
        if _shows(means[0].operands[0], image):
            return Function(EXCITE, op.results[0], found)
    return None


def _shows(value: SSAValue, image: SSAValue) -> bool:
    while value is not image and (view := producer(value, "TRANSPOSE", *VIEWS)) is not None:
        value = view.operands[0]
    return value is image
