"""``odc-lift-variables``: turn variables into states, which are inputs and outputs of the main function.

Before::

    func.func @main(%x: …) -> … {
      circle.call_once() {init_subgraph_index = @initial} : () -> ()
      %v = circle.var_handle() {shared_name = "ring"} : () -> tensor<*x!circle.resource>
      %old = circle.read_variable(%v) : …
      %new = …
      circle.assign_variable(%v, %new) : …
      func.return %y : …
    }
    func.func @initial() { … circle.assign_variable(%v, %start) : … }

After::

    builtin.module attributes {odc.states = [{output = 1, input = 1, initial = #circle.blob<…>}]} {
      func.func @main(%x: …, %ring: …) -> (…, …) {
        %new = …
        func.return %y, %new : …
      }
    }

Values replace reads. Operators before and after a read can therefore be in one segment. A variable stays if it has no
constant initial value, if another function uses it, or if its reads and writes differ in type.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp
from odc_mlir.dialects.circle_types import tensor_facts
from odc_mlir.dialects.odc import put_states, state_places
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.transforms.common.placement import functions, main_function
from odc_mlir.transforms.common.retyping import set_function_type

_HANDLE, _READ, _ASSIGN, _ONCE = "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"


class OdcLiftVariablesPass(ModulePass):
    """Replace variables by arguments and results."""

    name = "odc-lift-variables"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        main = main_function(op)
        taken = {value_name(argument) for argument in main.body.block.args}
        found = {item.name: _lift(op, main, item) for item in _variables(main) if item.name not in taken}
        if lifted := {name: initial for name, initial in found.items() if initial is not None}:
            set_function_type(main)
            block, count = main.body.block, len(lifted)
            assert block.last_op is not None, "a verified function ends in its return"
            first, source = len(block.last_op.operands) - count, len(block.args) - count
            made = [(first + i, source + i, initial) for i, initial in enumerate(lifted.values())]
            put_states(op, [*state_places(op), *made])
        for once in [item for item in main.body.block.ops if _is(item, _ONCE)]:
            _drop_if_idle(op, once)


@dataclass
class _Variable:
    name: str
    handles: list[Operation] = field(default_factory=list)
    uses: list[Operation] = field(default_factory=list)


def _is(op: Operation, *kinds: str) -> bool:
    return isinstance(op, CircleOp) and op.SPEC.name in kinds


def _name(handle: Operation) -> str:
    assert isinstance(handle, CircleOp), "a handle is an operator"
    return "/".join(filter(None, (handle.option("container"), handle.option("shared_name"))))


def _variables(function: FuncOp) -> list[_Variable]:
    """Return the variables of ``function``, whose block has no nested regions."""
    found: dict[str, _Variable] = {}
    owner: dict[SSAValue, _Variable] = {}
    for op in function.body.block.ops:
        if _is(op, _HANDLE):
            variable = owner[op.results[0]] = found.setdefault(_name(op), _Variable(_name(op)))
            variable.handles.append(op)
        for operand in op.operands:
            if operand in owner:
                owner[operand].uses.append(op)
    return list(found.values())


def _lift(module: ModuleOp, main: FuncOp, variable: _Variable) -> bytes | None:
    """Replace ``variable`` by an argument and an additional result and return its initial bytes.

    If that is not possible, change nothing and return None.
    """
    reads = [op for op in variable.uses if _is(op, _READ)]
    writes = [op for op in variable.uses if _is(op, _ASSIGN) and op.operands[0].owner in variable.handles]
    types: set[Attribute] = {op.results[0].type for op in reads} | {op.operands[1].type for op in writes}
    start = _initial(module, main, variable)
    if start is None or len(reads) + len(writes) != len(variable.uses) or not reads or len(types) != 1:
        return None
    (kind,) = types
    assign, initial = start
    facts, given = tensor_facts(kind), tensor_facts(initial.result.type)
    if (facts.dtype, facts.shape) != (given.dtype, given.shape) or facts.shape is None or None in facts.shape:
        return None
    block, last = main.body.block, main.body.block.last_op
    assert isinstance(last, ReturnOp), "a verified function ends with a return"
    argument = block.insert_arg(kind, len(block.args))
    argument.location = name_loc(variable.name)
    value: SSAValue = argument
    for op in variable.uses:
        if op in writes:
            value = op.operands[1]
        else:
            op.results[0].replace_all_uses_with(value)
        Rewriter.erase_op(op)
    handle = assign.operands[0].owner
    Rewriter.erase_op(assign)
    for unused in (*variable.handles, handle):
        assert isinstance(unused, Operation), "handles are results"
        Rewriter.erase_op(unused)
    end = ReturnOp(*last.operands, value)
    end.location = last.location
    Rewriter.replace_op(last, end)
    return bytes(initial.blob.data)


def _initial(module: ModuleOp, main: FuncOp, variable: _Variable) -> tuple[Operation, ConstOp] | None:
    """Return (assignment, constant) that initialise ``variable`` in a function called once, before all uses.

    Return None if there is no such function, or if another function also uses the variable.
    """
    found: list[tuple[Operation, ConstOp]] = []
    once = {_called(op) for op in main.body.block.ops if _is(op, _ONCE)}
    for function in functions(module):
        for op in function.walk() if function is not main else ():
            if not _is(op, _HANDLE) or _name(op) != variable.name:
                continue
            uses = [use.operation for use in op.results[0].uses]
            if function.sym_name.data not in once or len(uses) != 1 or not _is(uses[0], _ASSIGN):
                return None
            source = uses[0].operands[1]
            if not isinstance(source, OpResult) or not isinstance(source.op, ConstOp):
                return None
            found.append((uses[0], source.op))
    before = next((op for op in main.body.block.ops if _is(op, _ONCE) or op in variable.uses), None)
    return found[0] if len(found) == 1 and before is not None and _is(before, _ONCE) else None


def _called(op: Operation) -> str:
    assert isinstance(op, CircleOp), "a caller is an operator"
    return str(op.option("init_subgraph_index"))


def _drop_if_idle(module: ModuleOp, once: Operation) -> None:
    name = _called(once)
    callee = next(item for item in functions(module) if item.sym_name.data == name)
    if any(isinstance(op, CircleOp) for op in callee.walk()):
        return
    Rewriter.erase_op(once)
    symbol, signatures = SymbolRefAttr(name), module.attributes.get("circle.signatures")
    named = {
        entry.data.get("subgraph")
        for entry in (signatures if isinstance(signatures, ArrayAttr) else ())
        if isinstance(entry, DictionaryAttr)
    }
    if symbol not in named and not any(symbol in op.properties.values() for op in module.walk()):
        Rewriter.erase_op(callee)
