"""Operators that change how a constant is stored."""

from odc_mlir.ops.spec import MOVES, OperatorFamily, moved

_op = OperatorFamily(__name__)

SPECS = (
    _op(
        "DENSIFY",
        "input",
        "dense form of a sparse constant",
        quant=moved(),
        traits=MOVES,
        infer="infer.common:unary",
    ),
)
