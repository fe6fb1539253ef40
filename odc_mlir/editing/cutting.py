"""Extraction of submodels, division by backend, and reduction of failing models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, NoneOp, VariableOp
from odc_mlir.errors import OdcError, OptionError, UnsupportedError, did_you_mean
from odc_mlir.formats.one import PartitionFile
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.locations import name_loc, op_name, value_name
from odc_mlir.transforms.common.placement import main_function
from odc_mlir.transforms.common.retyping import set_function_type
from odc_mlir.transforms.common.tensor_names import outputs_of

_OF_INTERFACE = ("circle.signatures",)  # module attributes with names of inputs and outputs


def main_operators(module: ModuleOp) -> list[CircleOp]:
    """Return the operators of the main function, in order."""
    return [op for op in main_function(module).body.block.ops if isinstance(op, CircleOp)]


def find_values(module: ModuleOp, names: Collection[str]) -> list[SSAValue]:
    """Return the first values with these names. Raises OptionError, with a suggestion, for an unknown name."""
    block = main_function(module).body.block
    known: dict[str, SSAValue] = {}
    for value in (*block.args, *(result for op in block.ops for result in op.results)):
        known.setdefault(value_name(value), value)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known).strip() or "odc-circle operators lists them"
            raise OptionError(f"there is no tensor {name!r}", hint=hint)
    return [known[name] for name in names]


def extract(module: ModuleOp, inputs: Sequence[str], outputs: Sequence[str]) -> ModuleOp:
    """Return a copy that computes the tensors ``outputs`` (default: the model's outputs) from the tensors ``inputs``.

    Other inputs of the model that the part needs come first. Raises OptionError for unknown names, a tensor that is
    input and output, and inputs that no output needs.
    """
    made = clone_module(module)
    function = main_function(made)
    wanted, taken = find_values(made, outputs), find_values(made, inputs)
    reached = _read_before(wanted or list(outputs_of(function)), taken)
    for value in taken:
        if value in wanted:
            raise OptionError(f"{value_name(value)!r} is both an input and an output of the part")
        if value not in reached:
            hint = "inputs must precede outputs in the model"
            raise OptionError(f"no output of the part depends on {value_name(value)!r}", hint=hint)
        if isinstance(value, OpResult):
            _replace_by_input(function.body.block, value)
    if wanted:
        _return_values(function.body.block, wanted)
    _erase_unused(made)
    return made


def _read_before(outputs: Sequence[SSAValue], inputs: Collection[SSAValue]) -> set[SSAValue]:
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
    """Return a copy with the operators of index ``kept`` in the main function. Raises OptionError for none.

    Tensors of other operators become inputs. Unused results and outputs of the model become outputs, and, if
    ``for_others``, also tensors that removed operators read.
    """
    made = clone_module(module)
    function = main_function(made)
    block, ops = function.body.block, main_operators(made)
    inside = [op for number, op in enumerate(ops) if number in kept]
    if not inside:
        raise OptionError("no operator is kept")
    members, given = set(inside), set(outputs_of(function))
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
                _replace_by_input(block, result)
    _return_values(block, outputs)
    _erase_unused(made, frozenset(outside))
    return made


def _is_wanted(result: SSAValue, members: Collection[Operation], *, for_others: bool) -> bool:
    inside = [use.operation in members for use in result.uses]
    return not any(inside) or (for_others and not all(inside))


def _replace_by_input(block: Block, value: SSAValue) -> None:
    argument = block.insert_arg(value.type, len(block.args))
    argument.location = name_loc(value_name(value))
    value.replace_all_uses_with(argument)


def _return_values(block: Block, values: Sequence[SSAValue]) -> None:
    last = block.last_op
    if last is not None:
        Rewriter.replace_op(last, ReturnOp(*values))


def _erase_unused(module: ModuleOp, gone: Collection[CircleOp] = ()) -> None:
    """Erase unused operators, constants, inputs and functions, and attributes with the old names."""
    function = main_function(module)
    block = function.body.block
    for op in reversed(list(block.ops)):
        is_ours = isinstance(op, CircleOp | ConstOp | NoneOp | VariableOp)
        if is_ours and not any(result.uses for result in op.results) and (op.results or op in gone):
            Rewriter.erase_op(op)
    for argument in [item for item in block.args if not item.uses]:
        block.erase_arg(argument)
    set_function_type(function)
    for name in _OF_INTERFACE:
        module.attributes.pop(name, None)
    _drop_functions(module, function)


def _drop_functions(module: ModuleOp, main: FuncOp) -> None:
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


@dataclass(frozen=True)
class ModelPart:
    """Part of a model: indices of ``operators`` in the main function, and a ``model`` with only these operators."""

    backend: str
    operators: tuple[int, ...]
    model: ModuleOp

    @property
    def inputs(self) -> list[str]:
        return [value_name(argument) for argument in main_function(self.model).body.block.args]

    @property
    def outputs(self) -> list[str]:
        return [value_name(value) for value in outputs_of(main_function(self.model))]


def divide(module: ModuleOp, rules: PartitionFile) -> list[ModelPart]:
    """Return the parts in execution order. Raises UnsupportedError for models with control flow.

    An operator joins the part of an operand if the backends are equal, and no path leaves the part and re-enters it.
    """
    if sum(1 for _ in module.body.block.ops) > 1:
        raise UnsupportedError(
            "a model with several subgraphs cannot be partitioned", hint="extract the main one first"
        )
    ops = main_operators(module)
    backend = [_backend(op, rules) for op in ops]
    part_of: dict[CircleOp, int] = {}
    reaches: list[set[int]] = []  # for each part, its direct and indirect dependencies
    members: list[list[int]] = []
    for number, op in enumerate(ops):
        sources = {part_of[v.owner] for v in op.operands if isinstance(v.owner, CircleOp) and v.owner in part_of}
        behind = set().union(sources, *(reaches[source] for source in sources))
        fitting = [
            part
            for part in sorted(sources)
            if backend[members[part][0]] == backend[number]
            and not any(part in reaches[other] for other in sources if other != part)
        ]
        if fitting:
            chosen = fitting[-1]
            members[chosen].append(number)
            reaches[chosen] |= behind - {chosen}
            for other in reaches:  # parts that depend on this part get its dependencies
                if chosen in other:
                    other |= reaches[chosen]
        else:
            chosen = len(members)
            members.append([number])
            reaches.append(behind)
        part_of[op] = chosen
    order = sorted(range(len(members)), key=lambda part: (len(reaches[part]), members[part][0]))
    return [ModelPart(backend[members[p][0]], tuple(members[p]), keep_operators(module, members[p])) for p in order]


def _backend(op: CircleOp, rules: PartitionFile) -> str:
    key = op.SPEC.name if rules.comply == "opcode" else op_name(op)
    return rules.by_name.get(key, rules.default)


def recipe(module: ModuleOp, parts: list[ModelPart], source: str, files: list[str]) -> dict[str, Any]:
    """Return the instructions for reassembly in the format of ``circle-partitioner``. Tensors join parts by name."""
    main = main_function(module)
    return {
        "source": {
            "file": source,
            "inputs": [value_name(argument) for argument in main.body.block.args],
            "outputs": [value_name(value) for value in outputs_of(main)],
        },
        "parts": [
            {"file": file, "backend": part.backend, "inputs": part.inputs, "outputs": part.outputs}
            for file, part in zip(files, parts, strict=True)
        ],
    }


Check = Callable[[ModuleOp], bool]
_LARGE_BYTES = 64  # smaller constants are not set to zero


@dataclass(frozen=True)
class Reduced:
    """Result of a reduction: the smallest model, number of checks, number of operators ``before`` and ``after``."""

    model: ModuleOp
    checks: int
    before: int
    after: int


class _Tries:
    def __init__(self, check: Check, most: int) -> None:
        self.check, self.most, self.count = check, most, 0

    @property
    def are_left(self) -> bool:
        return self.count < self.most

    def __call__(self, make: Callable[[], ModuleOp]) -> ModuleOp | None:
        if not self.are_left:
            return None
        try:
            made = make()
            made.verify()
        except (OdcError, ValueError):
            return None
        self.count += 1
        return made if self.check(made) else None


def reduce(module: ModuleOp, check: Check, *, most_checks: int = 1000, zeros: bool = True) -> Reduced:
    """Replace operators of ``module`` by inputs while ``check`` holds. If ``zeros``, then set constants to zero.

    ``check`` must hold on ``module`` itself. It is called with at most ``most_checks`` smaller models.
    """
    tries = _Tries(check, most_checks)
    current = _fewer_outputs(module, tries)
    current = _fewer_operators(current, tries)
    if zeros:
        current = _zeros(current, tries)
    return Reduced(current, tries.count, len(main_operators(module)), len(main_operators(current)))


def _fewer_outputs(module: ModuleOp, tries: _Tries) -> ModuleOp:
    outputs = outputs_of(main_function(module))
    for name in map(value_name, outputs) if len(outputs) > 1 else ():
        made = tries(lambda name=name: extract(module, [], [name]))  # type: ignore[misc]
        if made is not None:
            return made
    return module


def _fewer_operators(module: ModuleOp, tries: _Tries) -> ModuleOp:
    """Remove consecutive operators, half of all first, then fewer, until no operator can be removed."""
    size = max(len(main_operators(module)) // 2, 1)
    while tries.are_left:
        count = len(main_operators(module))
        found = next(_smaller(module, count, size, tries), None)
        if found is not None:
            module = found
            size = min(size, max(len(main_operators(module)) // 2, 1))
        elif size == 1:
            break
        else:
            size //= 2
    return module


def _smaller(module: ModuleOp, count: int, size: int, tries: _Tries) -> Iterator[ModuleOp]:
    for start in reversed(range(0, count, size)):
        kept = [number for number in range(count) if not start <= number < start + size]
        made = tries(lambda kept=kept: keep_operators(module, frozenset(kept), for_others=False)) if kept else None  # type: ignore[misc]
        if made is not None:
            yield made


def _zeros(module: ModuleOp, tries: _Tries) -> ModuleOp:
    """Set large constants to zero if the check still holds. The result then reveals no weights."""
    blobs = [(n, op.value.data) for n, op in enumerate(_constants(module)) if isinstance(op.value, BlobAttr)]
    places = [n for n, blob in blobs if blob.size >= _LARGE_BYTES and any(blob.data)]

    def without(chosen: Sequence[int]) -> ModuleOp:
        made = clone_module(module)
        for number, op in enumerate(_constants(made)):
            if number in chosen and isinstance(op.value, BlobAttr):
                op.properties["value"] = BlobAttr.of(np.zeros(op.value.data.size, np.uint8).tobytes())
        return made

    work = [places] if places else []
    while work:
        chosen = work.pop()
        made = tries(lambda chosen=chosen: without(chosen))  # type: ignore[misc]
        if made is not None:
            module = made
        elif len(chosen) > 1:
            work += [chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]]
    return module


def _constants(module: ModuleOp) -> list[ConstOp]:
    return [op for op in main_function(module).body.block.ops if isinstance(op, ConstOp)]
