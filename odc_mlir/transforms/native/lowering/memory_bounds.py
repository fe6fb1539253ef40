"""Verifier of the memory that native code uses: views and accesses must be inside buffers.

The verifier evaluates the segment's function, and kernels with the numbers that calls pass. It evaluates only the first
and the last iteration of a loop, in which the indices of our kernels are smallest and largest, with the smallest and
the largest number of a constant table. Numbers that depend on data or on the thread are unknown. Accesses that depend
on unknown numbers are not checked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from xdsl.dialects import arith, func, memref, scf, vector
from xdsl.dialects.builtin import FixedBitwidthType, IndexType, IntegerAttr, ModuleOp, VectorType, i32
from xdsl.ir import Attribute, Block, Operation, SSAValue

from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.dialects.native_attributes import ARENA_BYTES, CONSTANTS, PART, THREAD_PARAMETERS
from odc_mlir.errors import CompileError
from odc_mlir.formats.native_segment import ALIGNMENT_BYTES, SLACK_BYTES
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.native.native_allocate_memory import item_bytes


@dataclass(frozen=True)
class Extent:
    """Memory of ``size`` bytes, and the bytes of constants. ``in_arena``: a gap follows into which vectors may run."""

    name: str
    size: int
    in_arena: bool = False
    data: memoryview | None = None

    @cached_property
    def words(self) -> tuple[int, int]:
        """The smallest and the largest 32-bit word of constants."""
        found = np.frombuffer(self.data or b"", "<i4", self.size // 4)
        return int(found.min()), int(found.max())


Value = int | Extent | None
Values = dict[SSAValue, Value]


def verify_bounds(module: ModuleOp) -> None:
    """Raise CompileError for a view or an access of a segment's code beyond the end of its buffer.

    Segments without constants or without an arena are not checked: the emitter refuses such segments.
    """
    constants, arena = module.attributes.get(CONSTANTS), module.attributes.get(ARENA_BYTES)
    if not isinstance(constants, BlobAttr) or not isinstance(arena, IntegerAttr):
        return
    functions = {item.sym_name.data: item for item in module.ops if isinstance(item, func.FuncOp)}
    part = module.attributes.get(PART)
    for function in functions.values():
        if function.sym_visibility is None and len(function.args) > 1:
            args = function.args[: -len(THREAD_PARAMETERS)] if function.sym_name == part else function.args
            given = Extent("the constants", constants.data.size, data=memoryview(constants.data.data))
            buffers = Extent("the arena", arena.value.data, in_arena=True), given
            follower = _Follower(functions)
            for follower.last in (True, False) if function.body.blocks else ():
                follower.follow(function.body.block, dict(zip(args[-2:], buffers, strict=True)))


class _Follower:
    """Evaluation of functions, in the last or first iterations. ``call``: call whose kernel is evaluated."""

    def __init__(self, functions: Mapping[str, func.FuncOp]):
        self.functions, self.last = functions, True
        self.call: func.CallOp | None = None
        self._parts: dict[Block, list[Operation]] = {}  # the operations of blocks that affect addresses

    def follow(self, block: Block, values: Values) -> None:
        """Check a block with the known ``values`` of its arguments."""
        if block not in self._parts:
            self._parts[block] = [
                op for op in block.ops
                if isinstance(op, _KEPT) or not op.results or not isinstance(op.results[0].type, VectorType)
            ]  # fmt: skip
        for op in self._parts[block]:
            if type(op) in _NUMBERS:
                _compute(op, values)
            elif isinstance(op, scf.ForOp):
                self._loop(op, values)
            elif isinstance(op, scf.IfOp):
                self._branch(op, values)
            elif isinstance(op, func.CallOp):
                self._follow_call(op, values)
            elif isinstance(op, memref.ViewOp):
                self._view(op, values)
            elif isinstance(op, memref.LoadOp | memref.StoreOp):
                self._access(op, op.memref, op.indices, values)
            elif isinstance(op, vector.LoadOp | vector.StoreOp):
                self._access(op, op.base, op.indices, values)

    def _loop(self, op: scf.ForOp, values: Values) -> None:
        """Evaluate one iteration. With unknown bounds, evaluate the body with an unknown index."""
        start, end, step = (values.get(value) for value in (op.lb, op.ub, op.step))
        if isinstance(step, int) and step <= 0:
            raise CompileError(f"{self._place(op)} has a loop with the step {step}", op=op.name, hint="use a step >= 1")
        block, others = op.body.block, 0  # iterations after the first
        last = block.last_op
        carried: Values = dict(zip(block.args[1:], map(values.get, op.iter_args), strict=True))
        inner = values | carried
        if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
            if start >= end:
                return
            others = (end - start - 1) // step
            inner[block.args[0]] = start + self.last * others * step
        self.follow(block, inner)
        grows = False
        for argument, result, new in zip(carried, op.results, last.operands if last else (), strict=True):
            before, after = inner[argument], inner.get(new)
            if isinstance(before, int) and isinstance(after, int):
                values[result] = after + others * (after - before)
                inner[argument], grows = before + others * (after - before), others > 0
        if self.last and grows:
            self.follow(block, inner)

    def _branch(self, op: scf.IfOp, values: Values) -> None:
        """Evaluate the selected branch, or nothing if the condition is unknown. The condition may guard accesses."""
        taken = values.get(op.cond)
        region = op.true_region if taken else op.false_region
        if taken is not None and region.blocks:
            self.follow(region.block, values)

    def _follow_call(self, op: func.CallOp, values: Values) -> None:
        callee = self.functions.get(op.callee.root_reference.data)
        if callee is None or not callee.body.blocks:
            return
        outer, self.call = self.call, self.call or op
        given = [values.get(value) for value in op.operands]
        if outer is None:
            given = [
                replace(item, name=repr(value_name(value))) if isinstance(item, Extent) else item
                for item, value in zip(given, op.operands, strict=True)
            ]
        self.follow(callee.body.block, dict(zip(callee.args, given, strict=True)))
        self.call = outer

    def _view(self, op: memref.ViewOp, values: Values) -> None:
        buffer, start, count = values.get(op.source), values.get(op.byte_shift), values.get(op.sizes[0])
        if not isinstance(buffer, Extent) or not isinstance(start, int) or not isinstance(count, int):
            return
        size = count * item_bytes(op.result)
        end = start + size + (SLACK_BYTES if buffer.in_arena else 0)
        text = hint = ""
        if start < 0 or count < 0 or end > buffer.size:
            text = f"the view uses bytes {start} to {end} of {buffer.name}, which has {buffer.size}"
            hint = "correct the view" + (f", or {ARENA_BYTES}" if buffer.in_arena else "")
        elif start % ALIGNMENT_BYTES:
            text = f"the view begins at byte {start} of {buffer.name}"
            hint = f"begin at a multiple of {ALIGNMENT_BYTES}, which vectors require"
        if text and self.call is None:
            raise CompileError(text, op=op.name, tensor=value_name(op.result) or None, hint=hint)
        values[op.result] = Extent("a buffer", size, data=buffer.data and buffer.data[start:end])

    def _access(self, op: Operation, memory: SSAValue, indices: Sequence[SSAValue], values: Values) -> None:
        buffer, index = values.get(memory), values.get(indices[0])
        if not isinstance(buffer, Extent) or not isinstance(index, int):
            return
        moved = op.results[0].type if op.results else op.operands[0].type
        start = index * item_bytes(memory)
        end = start + (_vector_bytes(moved) or item_bytes(memory))
        if start < 0 or end > buffer.size + SLACK_BYTES:
            raise CompileError(
                f"{self._place(op)} uses bytes {start} to {end} of {buffer.name}, which has {buffer.size}",
                op=self.call.name if self.call else op.name,
                tensor=(value_name(self.call.operands[-1]) if self.call else value_name(memory)) or None,
                hint="make the buffer larger, or correct the numbers that the call passes",
            )
        if buffer.data and moved == i32 and op.results:
            values[op.results[0]] = buffer.words[self.last]

    def _place(self, op: Operation) -> str:
        return f"@{self.call.callee.root_reference.data}" if self.call else op.name


_KEPT = (scf.ForOp, vector.LoadOp)
"""Operations on vectors that affect or use addresses."""


def _vector_bytes(type: Attribute) -> int:
    if not isinstance(type, VectorType) or not isinstance(type.element_type, FixedBitwidthType):
        return 0
    return type.element_count() * type.element_type.size


_ORDERS = operator.lt, operator.le, operator.gt, operator.ge
_COMPARISONS: Sequence[Callable[[int, int], bool]] = (operator.eq, operator.ne, *_ORDERS, *_ORDERS)
"""Comparisons by the predicate of ``arith.cmpi``. Signed and unsigned ones are equal for numbers >= 0."""
_UNSIGNED = 6  # first predicate of numbers without sign

_NUMBERS: Mapping[type[Operation], Callable[..., int] | None] = {
    arith.ConstantOp: None,
    arith.CmpiOp: None,
    arith.IndexCastOp: int,
    arith.AddiOp: operator.add,
    arith.SubiOp: operator.sub,
    arith.MuliOp: operator.mul,
    arith.DivUIOp: operator.floordiv,
    arith.DivSIOp: operator.floordiv,
    arith.RemUIOp: operator.mod,
    arith.MinSIOp: min,
    arith.MinUIOp: min,
    arith.MaxSIOp: max,
    arith.MaxUIOp: max,
    arith.AndIOp: operator.and_,
    arith.ShLIOp: operator.lshift,
    arith.ShRSIOp: operator.rshift,
    arith.SelectOp: lambda condition, yes, no: yes if condition else no,
}


def _compute(op: Operation, values: Values) -> None:
    if type(op) is arith.ConstantOp:  # isinstance takes several times as long
        number = op.properties["value"]
        values[op.results[0]] = number.value.data if isinstance(number, IntegerAttr) else None
        return
    function = _NUMBERS[type(op)]
    if function is not None and not isinstance(op.results[0].type, IndexType):
        return
    operands = [found for value in op.operands if isinstance(found := values.get(value), int)]
    if len(operands) < len(op.operands):
        return
    if function is None:
        assert isinstance(op, arith.CmpiOp)
        if (predicate := op.predicate.value.data) >= _UNSIGNED and min(operands) < 0:
            return
        function = _COMPARISONS[predicate]
    try:
        values[op.results[0]] = function(*operands)
    except (ZeroDivisionError, ValueError):
        return  # a division by zero or a negative shift has an unknown result
