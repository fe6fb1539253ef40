"""Shape inference of result types: fill in unknown shapes, and replace contradictory ones."""

from __future__ import annotations

import logging

from xdsl.dialects.builtin import FunctionType, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import CircleOp, node_of
from odc_mlir.dialects.circle_ops import UNVERIFIED
from odc_mlir.dialects.circle_types import tensor_facts, with_shape
from odc_mlir.errors import ModelError
from odc_mlir.ops.check import check_node, type_text
from odc_mlir.ops.infer.common import compatible
from odc_mlir.ops.spec import ResultType, Shape
from odc_mlir.support.locations import op_name

LOG = logging.getLogger(__name__)


def refine_function(function: FuncOp) -> None:
    """Refine the result types of all operators of ``function`` in order, then its own type.

    Operators that inference refuses are marked as unverified. Every runtime resizes tensors as operators run, so a
    declared shape that inference contradicts is only a wrong remark of the file's writer: it is replaced and a warning
    is logged.
    """
    for op in function.walk():
        if isinstance(op, CircleOp) and op.SPEC.infer and op.unverified is None:
            try:
                refine_results(op)
            except ModelError as error:
                mark_unverified(op, error)
    terminator = function.get_return_op()
    if terminator is not None:
        function.properties["function_type"] = FunctionType.from_lists(
            function.function_type.inputs.data, list(terminator.operand_types)
        )


def mark_unverified(op: CircleOp, error: ModelError) -> None:
    """Let ``op`` pass the verifier although it breaks a rule; a warning is logged."""
    LOG.warning("%s %r can be imported, but not run: %s", op.SPEC.name, op_name(op), error)
    op.attributes[UNVERIFIED] = StringAttr(error.message)


def refine_results(op: CircleOp) -> bool:
    """Refine the result types of one operator; True if any changed. Raises ModelError where inference refuses."""
    node = node_of(op)
    check_node(node, own_rules=False, result_types=False)  # what shape functions rely on
    changed = False
    for result, inferred in zip(tuple(op.results), node.spec.infer_function(node), strict=False):
        # Converters write an empty shape for "unknown" as well as for a scalar, so it contradicts nothing.
        declared = tensor_facts(result.type).shape or None
        if not compatible(declared, inferred.shape):
            wrong = ResultType(inferred.dtype, declared)
            LOG.warning("%s", node.error(f"the result is declared {type_text(wrong)}, computes {type_text(inferred)}"))
            shape = inferred.shape
        else:
            shape = _merged(declared, inferred.shape)
        if shape != declared:
            Rewriter.replace_value_with_new_type(result, with_shape(result.type, shape))
            changed = True
    return changed


def _merged(declared: Shape | None, inferred: Shape | None) -> Shape | None:
    """Merge two compatible shapes."""
    if declared is None or inferred is None:
        return inferred if declared is None else declared
    return tuple(b if a is None else a for a, b in zip(declared, inferred, strict=True))
