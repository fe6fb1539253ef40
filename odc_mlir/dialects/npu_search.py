"""The ``npu`` operations that find places and go by them."""

from __future__ import annotations

from typing import ClassVar

from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.npu_base import INT, NUMBER_TYPES, TENSOR, NpuTensorOp, shape_of


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
