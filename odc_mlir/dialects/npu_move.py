"""The ``npu`` operation that moves codes: concatenation, slices, transpositions, repetition and the like."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def, result_def, traits_def, var_operand_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.npu_base import (
    CODE_TYPES,
    INT,
    INTS,
    NUMBER_TYPES,
    TENSOR,
    NpuTensorOp,
    code_range,
    dtype_of,
    shape_of,
)

HEAD = 3  # integers of a copy before its loops


class StridedCopy(NamedTuple):
    """``output[to + sum(i*w)] = operand[start + sum(i*r)]`` for all ``i`` below ``sizes``, outermost first.

    ``source`` is the number of an operand; ``start``, ``to``, ``reads`` (r) and ``writes`` (w) count elements.
    """

    source: int
    start: int
    to: int
    sizes: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)


@irdl_op_definition
class MoveOp(NpuTensorOp):
    """Codes of the operands at other places; nothing is computed.

    Each array in ``copies`` is a strided copy: operand, first element read, first element written, then for each loop,
    outermost first, ``size, read distance, write distance``: ``output[to + sum(i*w)] = operand[start + sum(i*r)]``,
    counting elements in row-major order. No element is written twice; those that no copy writes get the code ``fill``.
    Numbers that are not codes are moved as well, and never filled.
    """

    name = "npu.move"
    DTYPES: ClassVar = (*CODE_TYPES, *NUMBER_TYPES)

    inputs = var_operand_def(TENSOR)
    copies = prop_def(ArrayAttr.constr(INTS))
    fill = opt_prop_def(INT)
    output = result_def(TENSOR)

    traits = traits_def(Pure())
    assembly_format = "$inputs `copies` $copies (`fill` $fill^)? attr-dict `:` type($inputs) `->` type($output)"

    def __init__(
        self,
        sources: Sequence[SSAValue],
        result_type: Attribute,
        *,
        copies: Sequence[StridedCopy],
        fill: int | None = None,
    ) -> None:
        arrays = []
        for copy in copies:
            loops = zip(copy.sizes, copy.reads, copy.writes, strict=True)
            flat = [copy.source, copy.start, copy.to, *(value for loop in loops for value in loop)]
            arrays.append(DenseArrayBase.from_list(i32, flat))
        super().__init__([list(sources)], [result_type], copies=ArrayAttr(arrays), fill=fill)

    def strided_copies(self) -> Iterator[StridedCopy]:
        """The copies as records."""
        for array in self.copies:
            assert isinstance(array, DenseArrayBase)
            source, start, to, *loops = array.get_values()
            yield StridedCopy(source, start, to, tuple(loops[0::3]), tuple(loops[1::3]), tuple(loops[2::3]))

    def verify_operation(self) -> None:
        total, covered = math.prod(shape_of(self.output)), 0
        for value in self.inputs:
            if dtype_of(value) != dtype_of(self.output):
                raise VerifyException(f"{self.name} keeps the element type, {value.type} became {self.output.type}")
        for array in self.copies:
            assert isinstance(array, DenseArrayBase)
            if len(array) <= HEAD or len(array) % 3:
                raise VerifyException(f"{self.name}: a copy has {len(array)} integers, expected 3 and 3 for each loop")
        for copy in self.strided_copies():
            if not 0 <= copy.source < len(self.inputs) or min(copy.sizes) < 1:
                raise VerifyException(f"{self.name}: a copy reads operand {copy.source} in loops of {list(copy.sizes)}")
            sizes = (math.prod(shape_of(self.inputs[copy.source])), total)
            for what, first, steps, size in (
                ("reads", copy.start, copy.reads, sizes[0]),
                ("writes", copy.to, copy.writes, sizes[1]),
            ):
                ends = [(count - 1) * step for count, step in zip(copy.sizes, steps, strict=True)]
                low, high = first + sum(min(0, e) for e in ends), first + sum(max(0, e) for e in ends)
                if not 0 <= low <= high < size:
                    raise VerifyException(f"{self.name} {what} elements {low} to {high} of {size}")
            covered += math.prod(copy.sizes)
        if covered > total or (covered < total) != (self.fill is not None):
            given = "no fill code" if self.fill is None else "a fill code"
            raise VerifyException(f"{self.name} moves {covered} of {total} elements and has {given}")
        if self.fill is not None:
            self._check_fill(self.fill.value.data)

    def _check_fill(self, fill: int) -> None:
        if dtype_of(self.output) in NUMBER_TYPES:
            raise VerifyException(f"{self.name} fills codes, not {dtype_of(self.output)}")
        low, high = code_range(dtype_of(self.output))
        if not low <= fill <= high:
            raise VerifyException(f"{self.name}: the fill code is {fill}, allowed {low} to {high}")
