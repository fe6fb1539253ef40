"""Operators that draw random numbers."""

from __future__ import annotations

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
    __name__, options="RandomOptions", quant=real_only("random numbers are real values"), traits=STATEFUL
)

SPECS = (
    _op("RANDOM_UNIFORM", "shape:int", "random numbers, uniform from 0 to 1", infer="infer.common:shaped", verify=None),
    _op(
        "RANDOM_STANDARD_NORMAL",
        "shape:int",
        "random numbers, normal with mean 0 and variance 1",
        infer="infer.common:shaped",
        verify=None,
    ),
    _op(
        "MULTINOMIAL",
        "logits samples:int",
        "random classes with the probabilities of logits",
        gives="output:int",
        verify=None,
    ),
)
