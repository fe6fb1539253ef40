"""``odc-fix-batch``: fix the batch size if the model leaves it open.

Before::

    func.func @main(%x: tensor<?x8xi8>) -> tensor<?x4xi8> {
      %0 = circle.fully_connected(%x, %w) : (tensor<?x8xi8>, …) -> tensor<?x4xi8>

After: the first dimension is 1, and the declared types are kept as attributes::

    func.func @main(%x: tensor<1x8xi8>) -> tensor<1x4xi8> attributes {odc.declared_inputs = [tensor<?x8xi8>]} {
      %0 = circle.fully_connected(%x, %w) attributes {odc.declared = [tensor<?x4xi8>]} : … -> tensor<1x4xi8>

An operator that computes shapes may now have a known result, recorded as its attribute ``odc.known``. This result is a
constant for the target, but not for the model.

``restore_batch`` restores the declared types before the model is written. The package's model then accepts any batch
size: segments run the batch size of the compilation, and host kernels run all other batch sizes.

Only the first dimension of inputs is fixed. Operators with other unknown dimensions stay on the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import KNOWN, CircleOp
from odc_mlir.dialects.circle_types import tensor_facts, with_shape
from odc_mlir.dialects.odc import SegmentOp, lowered_symbols
from odc_mlir.errors import OptionError
from odc_mlir.transforms.circle.circle_infer_shapes import forget_known, infer_shapes
from odc_mlir.transforms.common.placement import functions, main_function
from odc_mlir.transforms.common.retyping import retype, set_function_type

DECLARED = "odc.declared"  # result types of an operator in the model
DECLARED_INPUTS = "odc.declared_inputs"  # argument types of a function in the model


@dataclass(frozen=True)
class OdcFixBatchPass(ModulePass):
    """Set open first dimensions of inputs to a fixed size."""

    name = "odc-fix-batch"

    batch: int = 1
    """Samples that segments process per run. Files store size 1 for an open dimension."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.batch < 1:
            raise OptionError(f"the batch size is {self.batch}, it must be at least 1")
        fix_batch(op, self.batch)


def fix_batch(module: ModuleOp, batch: int, *, declare: bool = True) -> bool:
    """Set open first dimensions of the main function's inputs to ``batch`` and return whether there were any.

    ``declare``: whether to record the declared types for :func:`restore_batch`.
    """
    function = main_function(module)
    arguments = list(function.body.block.args)
    inputs = [argument.type for argument in arguments]
    fixed = [_with_batch(type, batch) for type in inputs]
    if fixed == inputs:
        return False
    declared = [list(item.result_types) for item in _operators(function)]
    _retype(arguments, fixed)
    set_function_type(function)
    infer_shapes(function)
    if not declare:
        forget_known(function)
    else:
        function.attributes[DECLARED_INPUTS] = ArrayAttr(inputs)
        for item, types in zip(_operators(function), declared, strict=True):
            if list(item.result_types) != types:
                item.attributes[DECLARED] = ArrayAttr(types)
    return True


def _operators(function: FuncOp) -> list[CircleOp]:
    return [op for op in function.walk() if isinstance(op, CircleOp)]


def _with_batch(type: Attribute, batch: int) -> Attribute:
    shape = tensor_facts(type).shape
    if not shape or shape[0] is not None or not isinstance(type, TensorType):
        return type
    return with_shape(type, (batch, *shape[1:]))


def restore_batch(module: ModuleOp) -> None:
    """Restore the declared types in functions and in circle bodies of segments, in place.

    The function removes NPU programs, because they have a fixed batch size. The module can then be written, but not
    lowered.
    """
    for program in lowered_symbols(module).values():
        Rewriter.erase_op(program)
    for function in functions(module):
        declared = function.attributes.pop(DECLARED_INPUTS, None)
        if not isinstance(declared, ArrayAttr):
            continue
        block = function.body.block
        _retype(block.args, declared)
        for op in block.ops:
            if isinstance(op, SegmentOp):
                _restore_segment(op)
            else:
                _restore(op)
        set_function_type(function)


def _restore(op: Operation) -> None:
    op.attributes.pop(KNOWN, None)
    declared = op.attributes.pop(DECLARED, None)
    if isinstance(declared, ArrayAttr):
        _retype(op.results, declared)


def _restore_segment(segment: SegmentOp) -> None:
    _retype(segment.circle_block.args, segment.operand_types)
    for op in segment.circle_block.ops:
        _restore(op)
    _retype(segment.results, segment.ending.operand_types)


def _retype(values: Iterable[SSAValue], types: Iterable[Attribute]) -> None:
    for value, type in zip(tuple(values), tuple(types), strict=True):
        retype(value, type)
