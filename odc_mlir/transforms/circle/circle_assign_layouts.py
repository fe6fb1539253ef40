"""``circle-assign-layouts``: choose dimension orders of operators so that few TRANSPOSEs remain.

Before::

    %0 = circle.conv_2d(%x, %w, %b) : … -> tensor<1x8x8x4xf32>
    %1 = circle.transpose(%0, %to_nchw) : … -> tensor<1x4x8x8xf32>
    %2 = circle.mul(%1, %gamma) : (tensor<1x4x8x8xf32>, tensor<1x4x1x1xf32>) -> tensor<1x4x8x8xf32>
    %3 = circle.transpose(%2, %to_nhwc) : … -> tensor<1x8x8x4xf32>
    %4 = circle.conv_2d(%3, %v, %c) : … -> tensor<1x8x8x4xf32>

After, with ``gamma`` permuted accordingly::

    %2 = circle.mul(%0, %gamma) : (tensor<1x8x8x4xf32>, tensor<1x1x1x4xf32>) -> tensor<1x8x8x4xf32>
    %4 = circle.conv_2d(%2, %v, %c) : … -> tensor<1x8x8x4xf32>

Most operators work in any order that does not move the dimensions on which the operator depends. Softmax needs the last
dimension last. The chosen orders leave the fewest TRANSPOSEs and, among such choices, move the fewest bytes. For
example, a TRANSPOSE moves integers before DEQUANTIZE or after QUANTIZE instead of floats. A TRANSPOSE between layers
costs 4 MiB more than a TRANSPOSE at the model's interface. The search uses variable elimination. It is exact, except
for dense graphs, where some variables are fixed first. A TRANSPOSE that moves only dimensions of extent 1 counts as a
RESHAPE.

Unchanged: tensors that are quantised along an axis, sparse, or of unknown rank. Quantised results are bit-exact. Float
sums may be added in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, op_class, tensor_facts
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.errors import OptionError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.support.locations import name_loc, names_loc, value_name
from odc_mlir.transforms.circle.rewrites.layout import (
    Change,
    LayoutGraph,
    LayoutNode,
    Order,
    equal_in_memory,
    identity,
    moves,
    permuted,
)
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.common.rewriting import behind, indices, make_constant, shape_of

_KEEP, _NHWC = "keep", "nhwc"


@dataclass(frozen=True)
class Layouts:
    """Number of removed TRANSPOSEs, and indices of inputs and outputs that became channels last."""

    saved: int = 0
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class CircleAssignLayoutsPass(ModulePass):
    """Choose orders of dimensions with the fewest TRANSPOSEs."""

    name = "circle-assign-layouts"

    interface: str = _KEEP
    """``keep``: inputs and outputs keep their layout. ``nhwc``: images among them may become channels last."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.assign(op)

    def assign(self, module: ModuleOp) -> Layouts:
        """Rewrite ``module`` in place and return the changes. Raises OptionError for an unknown interface."""
        if self.interface not in (_KEEP, _NHWC):
            raise OptionError(f"interface is {self.interface!r}", hint=f"use {_KEEP} or {_NHWC}")
        functions = [function for function in module.body.block.ops if isinstance(function, FuncOp)]
        saved = 0
        turned = Layouts()
        for number, function in enumerate(functions):
            before = _transposes(function)
            if before:
                # The interfaces of functions that control flow calls stay unchanged.
                made = _assign(function, free_interface=self.interface == _NHWC and number == 0)
                turned = turned if number else made
                saved += before - _transposes(function)
        return replace(turned, saved=saved)


def _transposes(function: FuncOp) -> int:
    return sum(isinstance(op, CircleOp) and op.SPEC.name == "TRANSPOSE" for op in function.body.block.ops)


def _assign(function: FuncOp, *, free_interface: bool) -> Layouts:
    graph = LayoutGraph(function, free_interface=free_interface)
    chosen = graph.solve()
    arguments = [node for node in graph.nodes if isinstance(node.op, BlockArgument)]
    inputs = _numbers(node.gives(chosen.get(node, 0), 0) for node in arguments)
    writing = _Rewrite(function, graph, chosen)
    writing.run()
    return Layouts(0, inputs, _numbers(node.wants(chosen.get(node, 0), 0) for node in writing.returned))


def _numbers(orders: Iterable[Order | None]) -> tuple[int, ...]:
    return tuple(place for place, order in enumerate(orders) if order is not None and order != identity(len(order)))


class _Rewrite:
    def __init__(self, function: FuncOp, graph: LayoutGraph, chosen: Mapping[LayoutNode, int]) -> None:
        self.function = function
        self.block: Block = function.body.block
        self.nodes = {node.op: node for node in graph.nodes if not isinstance(node.op, ReturnOp)}
        self.returned = [node for node in graph.nodes if isinstance(node.op, ReturnOp)]
        self.chosen = chosen
        self.stored: dict[SSAValue, dict[Order, SSAValue]] = {}  # copies by value and order, the producer's first
        self.replaced: list[Operation] = []

    def run(self) -> None:
        self.stored = {argument: {self._order_of(argument): argument} for argument in self.block.args}
        for op in list(self.block.ops):
            if isinstance(op, ReturnOp):
                self._return(op)
            elif isinstance(op, CircleOp):
                self._operator(op, self.nodes[op])
        for op in reversed(self.replaced):
            if not any(result.uses for result in op.results):
                Rewriter.erase_op(op)
        for argument in self.block.args:  # last, because the earlier steps need the model's shapes
            retype(argument, _type_in(argument.type, self._order_of(argument)))
        set_function_type(self.function)

    def _order_of(self, argument: BlockArgument) -> Order:
        node = self.nodes[argument]
        return node.gives(self.chosen.get(node, 0), 0) or _natural(argument)

    def _operator(self, op: CircleOp, node: LayoutNode) -> None:
        choice = self.chosen.get(node, 0)
        orders = node.rule.wants(node.choices[choice]) if node.rule is not None else (None,) * len(op.operands)
        operands = [
            self._in_order(value, order or _natural(value)) if value in self.stored else value
            for value, order in zip(op.operands, orders, strict=True)
        ]
        if node.rule is None or (node.choices[choice] == node.rule.natural and op.SPEC.name != "TRANSPOSE"):
            for place, value in enumerate(operands):
                op.operands[place] = value
            self.stored |= {result: {_natural(result): result} for result in op.results}
            return
        given = node.rule.gives(node.choices[choice])
        if op.SPEC.name == "TRANSPOSE":
            self.stored[op.results[0]] = {given[0]: operands[0]}
        else:
            made = _changed(op, operands, node.rule.change(node.choices[choice]), given)
            self.block.insert_ops_before(made, op)
            for old, new, order in zip(op.results, made[-1].results, given, strict=True):
                self.stored[old] = {order: new}
        self.replaced.append(op)

    def _return(self, op: ReturnOp) -> None:
        for place, (value, node) in enumerate(zip(op.operands, self.returned, strict=True)):
            if value in self.stored:
                order = node.wants(self.chosen.get(node, 0), 0) or _natural(value)
                op.operands[place] = self._in_order(value, order)

    def _in_order(self, value: SSAValue, order: Order) -> SSAValue:
        found = self.stored[value]
        if order not in found:
            first, source = next(iter(found.items()))
            ops = _moved(value, source, first, order)
            Rewriter.insert_op(ops, behind(source))
            found[order] = ops[-1].results[0]
        return found[order]


def _natural(value: SSAValue) -> Order:
    return identity(len(shape_of(value) or ()))


def _type_in(type: Attribute, order: Order) -> Attribute:
    shape = tensor_facts(type).shape
    return type if shape is None else with_shape(type, permuted(shape, order))


def _moved(value: SSAValue, source: SSAValue, given: Order, wanted: Order) -> list[Operation]:
    """Return ``value`` as a TRANSPOSE of ``source`` (``value`` in order ``given``), or a RESHAPE if no data moves."""
    name, shape = value_name(value), shape_of(value)
    suffix = "".join(map(str, wanted))
    called = name if wanted == _natural(value) else f"{name}/order_{suffix}"
    result = _type_in(value.type, wanted)
    extents = None if shape is None else permuted(shape, wanted)
    if extents is not None and None not in extents and equal_in_memory(shape, given, wanted):
        target = make_constant(np.array(extents, np.int32), "int32", f"{called}/shape")
        made = op_class("RESHAPE").make(
            [source, target.result], [result], {"new_shape": list(extents)}, location=name_loc(called)
        )
        return [target, made]
    order = indices(moves(given, wanted), f"{called}/perm")
    return [order, op_class("TRANSPOSE").make([source, order.result], [result], location=name_loc(called))]


def _changed(op: CircleOp, operands: Sequence[SSAValue], change: Change, given: Sequence[Order]) -> list[Operation]:
    types = [_type_in(result.type, order) for result, order in zip(op.results, given, strict=True)]
    names = [value_name(result) for result in op.results]
    if change.reshape_to is not None:
        shape = indices(change.reshape_to, f"{names[0]}/shape")
        view = op_class("RESHAPE").make(
            [operands[0], shape.result], types, {"new_shape": list(change.reshape_to)}, location=names_loc(names)
        )
        return [shape, view]
    values = list(operands)
    constants: list[Operation] = []
    for place, array in change.constants.items():
        values[place] = (
            made := _constant_like(values[place], array, f"{names[0]}/{op.SPEC.operand_name(place)}")
        ).result
        constants.append(made)
    options = {key: op.OPTIONS[key].encode(value) for key, value in change.options.items()}
    copy = type(op).create(
        operands=values,
        result_types=types,
        properties=op.properties | options,
        attributes=dict(op.attributes),
        location=names_loc(names),
    )
    return [*constants, copy]


def _constant_like(old: SSAValue, array: NDArray[np.generic], name: str) -> ConstOp:
    stored = np.ascontiguousarray(array, DTYPES[tensor_facts(old.type).dtype].numpy)
    made = ConstOp(BlobAttr.of(stored.tobytes()), with_shape(old.type, array.shape))
    made.location = name_loc(name)
    return made
