"""Tensor names of a function: renaming of values, and creation of unused names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from odc_mlir.dialects.circle import ConstOp, NoneOp
from odc_mlir.dialects.odc import SegmentOp, YieldOp
from odc_mlir.formats.quantities import Names, tensor_names
from odc_mlir.support.locations import hint_of, name_loc, names_loc, value_name


def values_of(function: FuncOp) -> Iterator[SSAValue]:
    """Yield the arguments of ``function`` and the results of all its operations, in program order."""
    yield from function.args
    for op in function.walk():
        if op is not function:
            yield from op.results


def names_in(function: FuncOp) -> Names:
    """Return the names of a function's values, to which new names can be added."""
    return Names(value_name(value) for value in values_of(function))


def outputs_of(function: FuncOp) -> Sequence[SSAValue]:
    """Return the outputs of ``function``, or nothing for a function without a body."""
    last = None if function.is_declaration else function.body.blocks[-1].last_op
    return last.operands if isinstance(last, ReturnOp) else ()


def keep_output_names(function: FuncOp, names: Sequence[str]) -> None:
    """Rename the returned values to ``names``, except inputs. Of several names, the first wins."""
    named = set[SSAValue](function.args)
    for value, name in zip(outputs_of(function), names, strict=True):
        if value not in named:
            named.add(value)
            rename(value, name)


def tell_apart(module: ModuleOp) -> None:
    """Make the names of values unique within a function, and name unnamed values.

    Names of inputs and outputs stay, because users know these names. Computed values follow in program order, then
    constants. Operands and results of a segment get the same names as the values inside, because they are the same
    tensors.
    """
    for function in module.body.block.ops:
        if isinstance(function, FuncOp):
            same = _passed_on(function)
            values = [
                value for value in values_of(function) if value not in same and not isinstance(value.owner, NoneOp)
            ]
            ends = {same.get(value, value) for value in (*function.args, *outputs_of(function))}
            ends = {value for value in ends if value_name(value)}
            values.sort(key=lambda value: 0 if value in ends else 2 if isinstance(value.owner, ConstOp) else 1)
            own = [value_name(value) for value in values]
            for value, before, name in zip(values, own, tensor_names(own), strict=True):
                if before != name:
                    rename(value, name)
            for value, source in same.items():
                if value_name(value) != value_name(source):
                    rename(value, value_name(source))


def _passed_on(function: FuncOp) -> dict[SSAValue, SSAValue]:
    """Map block arguments and results of segments in ``function`` to the values of the same tensors."""
    found: dict[SSAValue, SSAValue] = {}
    for segment in function.walk():
        if isinstance(segment, SegmentOp):
            block, last = segment.circle_block, segment.circle_block.last_op
            outer = list(zip(block.args, segment.operands, strict=True))
            inner = list(zip(segment.results, last.operands if isinstance(last, YieldOp) else (), strict=True))
            for value, source in (*outer, *inner):
                found[value] = found.get(source, source)
    return found


def rename(value: SSAValue, name: str) -> None:
    """Rename ``value`` to ``name``. Other results of the operation keep the old names."""
    value.name_hint = hint_of(name)
    if isinstance(value, BlockArgument):
        value.location = name_loc(name)
    elif isinstance(value, OpResult):
        owner = value.op
        names = [name if result is value else value_name(result) for result in owner.results]
        owner.location = names_loc(names)


def named(op: Operation, name: str) -> Operation:
    """Name the only result of the new operation ``op`` and return ``op``. An empty name changes nothing."""
    if name:
        op.location = name_loc(name)
        op.results[0].name_hint = hint_of(name)
    return op
