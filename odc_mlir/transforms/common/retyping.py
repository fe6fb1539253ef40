"""Values with other types, and functions whose types follow."""

from __future__ import annotations

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.rewriter import Rewriter


def retype(value: SSAValue, type: Attribute) -> SSAValue:
    """``value`` with another type, its name and location kept; all readers then read what is returned."""
    if value.type == type:
        return value
    new = Rewriter.replace_value_with_new_type(value, type)
    if isinstance(value, BlockArgument) and isinstance(new, BlockArgument):
        new.location = value.location
    return new


def set_function_type(function: FuncOp) -> None:
    """Make the type of ``function`` that of its body."""
    block, last = function.body.block, function.body.block.last_op
    outputs = list(last.operand_types) if isinstance(last, ReturnOp) else []
    function.properties["function_type"] = FunctionType.from_lists(list(block.arg_types), outputs)
