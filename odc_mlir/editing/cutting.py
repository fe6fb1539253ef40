"""Parts of a model as models: what lies between tensors, and any set of operators."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

from xdsl.dialects.builtin import FunctionType, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp, NoneOp, VariableOp
from odc_mlir.errors import ModelError, OptionError
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.locations import name_loc, value_name

_OF_INTERFACE = ("circle.signatures",)  # what a module says of inputs and outputs that a part has no more


def main_function(module: ModuleOp) -> FuncOp:
    """The function that a model runs; raises ModelError where there is none."""
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and not op.is_declaration:
            return op
    raise ModelError("the model has no subgraph")


def main_operators(module: ModuleOp) -> list[CircleOp]:
    """The operators of the function that a model runs, in order."""
    return [op for op in main_function(module).body.block.ops if isinstance(op, CircleOp)]


def named_values(module: ModuleOp) -> dict[str, SSAValue]:
    """Inputs and results by name, of equal names the first; constants are among them."""
    block = main_function(module).body.block
    found: dict[str, SSAValue] = {}
    for value in (*block.args, *(result for op in block.ops for result in op.results)):
        found.setdefault(value_name(value), value)
    return found


def find_values(module: ModuleOp, names: Iterable[str]) -> list[SSAValue]:
    """Return the values with these names; raise OptionError with a suggestion for an unknown one."""
    known = named_values(module)
    return [known[name] if name in known else _unknown(name, known) for name in names]


def _unknown(name: str, known: Iterable[str]) -> SSAValue:
    near = difflib.get_close_matches(name, list(known), 1)
    hint = f"did you mean {near[0]!r}?" if near else "odc-circle operators lists them"
    raise OptionError(f"there is no tensor {name!r}", hint=hint)


def extract(module: ModuleOp, inputs: Sequence[str], outputs: Sequence[str]) -> ModuleOp:
    """A copy that takes the tensors ``inputs`` and gives the tensors ``outputs``, with what lies between.

    Inputs of the model that the part needs as well stay inputs, before those; without ``outputs`` the model's own are
    given. Raises OptionError for unknown names, for a tensor on both sides, and for inputs that no output needs.
    """
    made = clone_module(module)
    function = main_function(made)
    wanted, taken = find_values(made, outputs), find_values(made, inputs)
    last = function.body.block.last_op
    reached = _read_before(wanted or list(last.operands if last is not None else ()), taken)
    for value in taken:
        if value in wanted:
            raise OptionError(f"{value_name(value)!r} is both an input and an output of the part")
        if value not in reached:
            raise OptionError(
                f"no output of the part depends on {value_name(value)!r}",
                hint="inputs must precede outputs in the model",
            )
        if isinstance(value, OpResult):
            _stand_in(function.body.block, value)
    if wanted:
        _give_back(function.body.block, wanted)
    _tidy(made)
    return made


def _read_before(outputs: Sequence[SSAValue], inputs: Collection[SSAValue]) -> set[SSAValue]:
    """Return the values between ``inputs`` and ``outputs``, both included."""
    seen: set[SSAValue] = set()
    work = list(outputs)
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, OpResult) and value not in inputs:
            work += value.op.operands
    return seen


def keep_operators(module: ModuleOp, kept: Collection[int], *, for_others: bool = True) -> ModuleOp:
    """A copy with those operators of the main function whose numbers are ``kept``.

    What they read of others is an input; what none of them reads, what the model gave and, ``for_others``, what the
    rest of the model reads is an output. Raises OptionError where no operator is left.
    """
    made = clone_module(module)
    block = main_function(made).body.block
    ops = main_operators(made)
    inside = [op for number, op in enumerate(ops) if number in kept]
    if not inside:
        raise OptionError("no operator is kept")
    members, last = set(inside), block.last_op
    given = set(last.operands) if isinstance(last, ReturnOp) else set()
    outside = [op for op in ops if op not in members]
    outputs = [
        result
        for op in inside
        for result in op.results
        if result in given or _is_wanted(result, members, for_others=for_others)
    ]
    for op in outside:
        for result in op.results:
            if any(use.operation in members for use in result.uses):
                _stand_in(block, result)
    _give_back(block, outputs)
    _tidy(made, frozenset(outside))
    return made


def _is_wanted(result: SSAValue, members: Collection[Operation], *, for_others: bool) -> bool:
    inside = [use.operation in members for use in result.uses]
    return not any(inside) or (for_others and not all(inside))


def _stand_in(block: Block, value: SSAValue) -> None:
    """Let an input with the name and type of ``value`` take its place."""
    argument = block.insert_arg(value.type, len(block.args))
    argument.location = name_loc(value_name(value))
    value.replace_all_uses_with(argument)


def _give_back(block: Block, values: Sequence[SSAValue]) -> None:
    last = block.last_op
    if last is not None:
        Rewriter.replace_op(last, ReturnOp(*values))


def _tidy(module: ModuleOp, gone: Collection[CircleOp] = ()) -> None:
    """Drop what nothing needs any more: operators, constants, inputs, functions, and what names the old interface."""
    function = main_function(module)
    block = function.body.block
    for op in reversed(list(block.ops)):
        is_ours = isinstance(op, CircleOp | ConstOp | NoneOp | VariableOp)
        if is_ours and not any(result.uses for result in op.results) and (op.results or op in gone):
            Rewriter.erase_op(op)
    for argument in [item for item in block.args if not item.uses]:
        block.erase_arg(argument)
    last = block.last_op
    outputs = list(last.operand_types) if isinstance(last, ReturnOp) else []
    function.properties["function_type"] = FunctionType.from_lists(list(block.arg_types), outputs)
    for name in _OF_INTERFACE:
        module.attributes.pop(name, None)
    _drop_functions(module, function)


def _drop_functions(module: ModuleOp, main: FuncOp) -> None:
    """Drop the functions that nothing reachable from ``main`` calls."""
    functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}
    reached: dict[str, FuncOp] = {}
    work = [main]
    while work:
        function = work.pop()
        if function.sym_name.data in reached:
            continue
        reached[function.sym_name.data] = function
        for op in function.walk():
            named = [a for a in (*op.properties.values(), *op.attributes.values()) if isinstance(a, SymbolRefAttr)]
            work += [functions[a.root_reference.data] for a in named if a.root_reference.data in functions]
    for name, function in functions.items():
        if name not in reached:
            Rewriter.erase_op(function)
