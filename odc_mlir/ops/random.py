"""Operators that draw random numbers."""

from __future__ import annotations

from dataclasses import replace

from odc_mlir.ops.infer.common import result, shape_of, static_int
from odc_mlir.ops.spec import STATEFUL, Node, OperatorFamily, ResultType, real_only


def multinomial(node: Node) -> list[ResultType]:
    """Infer ``[batch, samples]`` from logits ``[batch, classes]``."""
    logits = shape_of(node, 0, 2)
    samples = static_int(node, 1)
    if samples is not None and samples < 0:
        raise node.error(f"the number of samples is {samples}; it must not be negative")
    return result(node, node.results[0].dtype, (None if logits is None else logits[0], samples))


_op = OperatorFamily(
    __name__, options="RandomOptions", quant=real_only("random numbers are real values"), traits=STATEFUL, verify=None
)
_shaped = replace(_op, infer="infer.common:shaped")

SPECS = (
    _shaped("RANDOM_UNIFORM", "shape:int", "random numbers, uniform from 0 to 1"),
    _shaped("RANDOM_STANDARD_NORMAL", "shape:int", "random numbers, normal with mean 0 and variance 1"),
    _op("MULTINOMIAL", "logits samples:int", "random classes with the probabilities of logits", gives="output:int"),
)
