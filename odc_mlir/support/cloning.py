"""Copies of modules."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue


def clone_module(module: ModuleOp) -> ModuleOp:
    """Return a copy of ``module``, in time linear in the number of block arguments, unlike ``Operation.clone``."""
    values: dict[SSAValue, SSAValue] = {}
    made = _clone(module, values, {})
    assert isinstance(made, ModuleOp)
    for old, new in zip(module.walk(), made.walk(), strict=True):
        if old._operands:
            new.operands = [values.get(operand, operand) for operand in old._operands]
    return made


def _clone(op: Operation, values: dict[SSAValue, SSAValue], blocks: dict[Block, Block]) -> Operation:
    """Return a copy of ``op`` with no operands. ``values`` and ``blocks`` map values and blocks to the copy's."""
    made = op.clone_without_regions(values, blocks, clone_operands=False)
    for region, copied in zip(op.regions, made.regions, strict=True):
        for block in region.blocks:
            blocks[block] = copy = Block(arg_types=block.arg_types)
            copied.add_block(copy)
            for old, new in zip(block.args, copy.args, strict=True):
                values[old], new.location, new.name_hint = new, old.location, old.name_hint
        for block in region.blocks:
            for inner in block.ops:
                blocks[block].add_op(_clone(inner, values, blocks))
    return made
