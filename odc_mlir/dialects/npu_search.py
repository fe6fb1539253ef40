"""The ``npu`` operation that finds the largest code of each row."""

from __future__ import annotations

from typing import ClassVar

from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.npu_base import NUMBER_TYPES, TENSOR, NpuTensorOp, shape_of


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
        super().__init__(operands=[source], result_types=[result_type])

    def verify_operation(self) -> None:
        source, result = shape_of(self.input), shape_of(self.output)
        if not source or source[:-1] != result:
            raise VerifyException(f"{self.name} drops the last axis, {list(source)} became {list(result)}")
        self.check_fields("reduce", channels=source[-1])
