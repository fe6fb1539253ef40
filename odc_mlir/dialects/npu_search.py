"""The ``npu`` operations that find places and go by them."""

from __future__ import annotations

from typing import ClassVar

from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.npu_base import (
    CODE_TYPES,
    INT,
    NUMBER_TYPES,
    TENSOR,
    NpuTensorOp,
    dtype_of,
    item_bytes,
    shape_of,
)


@irdl_op_definition
class ArgMaxOp(NpuTensorOp):
    """Where along the last axis the largest code is, the first of equal ones: ``[..., C]`` to ``[...]``, as numbers."""

    name = "npu.argmax"
    RESULT_DTYPES: ClassVar = NUMBER_TYPES

    input = operand_def(TENSOR)
    output = result_def(TENSOR)

    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `->` type($output)"

    def __init__(self, source: SSAValue, result_type: Attribute) -> None:
        super().__init__([source], [result_type])

    def verify_operation(self) -> None:
        source, result = shape_of(self.input), shape_of(self.output)
        if not source or source[:-1] != result:
            raise VerifyException(f"{self.name} drops the last axis, {list(source)} became {list(result)}")
        self.check_fields("reduce", channels=source[-1])


@irdl_op_definition
class PositionOp(NpuTensorOp):
    """One of a few positions as a code: ``clamp(input[index], 0, highest)``, ``[1]`` of int16."""

    name = "npu.position"
    OPERAND_DTYPES: ClassVar = ("int32",)
    DTYPES: ClassVar = ("int16",)

    input = operand_def(TENSOR)
    index = prop_def(INT)
    highest = prop_def(INT)
    output = result_def(TENSOR)

    traits = traits_def(Pure())
    assembly_format = "$input `[` $index `]` `highest` $highest attr-dict `:` type($input) `->` type($output)"

    def __init__(self, source: SSAValue, result_type: Attribute, *, index: int, highest: int) -> None:
        super().__init__([source], [result_type], index=index, highest=highest)

    def verify_operation(self) -> None:
        source, index = shape_of(self.input), self.index.value.data
        if len(source) != 1 or not 0 <= index < source[0]:
            raise VerifyException(f"{self.name} takes element {index} of a vector, not of {list(source)}")
        if shape_of(self.output) != (1,):
            raise VerifyException(f"{self.name} gives one position, not {list(shape_of(self.output))}")
        self.check_clamp(0, self.highest.value.data)


@irdl_op_definition
class GatherOp(NpuTensorOp):
    """Rows of a table whose numbers are computed: ``output[b, k, i] = table[b, k, indices[b, i]]``.

    ``table`` is ``[B, K, R, C]``, ``indices`` ``[B, N]``, ``output`` ``[B, K, N, C]``.
    """

    name = "npu.gather"
    OPERAND_DTYPES: ClassVar = (*CODE_TYPES, *NUMBER_TYPES)

    table = operand_def(TENSOR)
    indices = operand_def(TENSOR)
    output = result_def(TENSOR)

    traits = traits_def(Pure())
    assembly_format = "$table `[` $indices `]` attr-dict `:` type($table) `,` type($indices) `->` type($output)"

    def __init__(self, table: SSAValue, indices: SSAValue, result_type: Attribute) -> None:
        super().__init__([table, indices], [result_type])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the table."""
        return shape_of(self.table)[3] * item_bytes(self.table)

    def verify_operation(self) -> None:
        table, indices, result = (shape_of(value) for value in (self.table, self.indices, self.output))
        for value, dtypes in ((self.table, (dtype_of(self.output),)), (self.indices, NUMBER_TYPES)):
            if dtype_of(value) not in dtypes:
                raise VerifyException(f"{self.name} takes {', '.join(dtypes)} here, not {dtype_of(value)}")
        fits = (len(table), len(indices)) == (4, 2) and indices[:1] == table[:1]
        if not fits or result != (*table[:2], indices[1], table[3]):
            raise VerifyException(
                f"{self.name} takes rows of [B, K, R, C] by [B, N], not of {list(table)} by {list(indices)} "
                f"to {list(result)}"
            )
        self.check_fields("gather", count=indices[1], rows=table[2], row_bytes=self.row_bytes)
