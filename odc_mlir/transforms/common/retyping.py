"""Changes of value types, with updates of function types."""

from __future__ import annotations

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.rewriter import Rewriter


def retype(value: SSAValue, type: Attribute) -> SSAValue:
    """Replace ``value``, for all users, by a value with another type and the same name and location.

    The type of a function with this argument or result is updated.
    """
    if value.type == type:
        return value
    new = Rewriter.replace_value_with_new_type(value, type)
    if isinstance(value, BlockArgument) and isinstance(new, BlockArgument):
        new.location = value.location
    owners = [use.operation.parent_op() for use in new.uses if isinstance(use.operation, ReturnOp)]
    owners += [new.block.parent_op()] if isinstance(new, BlockArgument) else []
    for function in owners:
        if isinstance(function, FuncOp):
            set_function_type(function)
    return new


def set_function_type(function: FuncOp) -> None:
    """Set the type of ``function`` from its body."""
    block, last = function.body.block, function.body.block.last_op
    outputs = list(last.operand_types) if isinstance(last, ReturnOp) else []
    function.properties["function_type"] = FunctionType.from_lists(list(block.arg_types), outputs)
