"""The ``npu`` operation that multiplies two computed matrices."""

from __future__ import annotations

import math

from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.npu_base import INT, TENSOR, ZERO, NpuTensorOp, ScaleAttr, item_bytes, shape_of


@irdl_op_definition
class MatmulOp(NpuTensorOp):
    """Products of computed matrices with requantisation: ``[N, 1, M, K]`` by ``[N, 1, K, C]`` to ``[N, 1, M, C]``.

    ``sum = sum over k of (a - a_zero) * (b - b_zero)``;
    ``code = clamp(multiply(sum, scale) + out_zero, act_min, act_max)``, of 16-bit results by ``multiply64``.
    """

    name = "npu.matmul"

    a = operand_def(TENSOR)
    b = operand_def(TENSOR)
    a_zero = prop_def(INT, default_value=ZERO)
    b_zero = prop_def(INT, default_value=ZERO)
    out_zero = prop_def(INT, default_value=ZERO)
    scale = prop_def(ScaleAttr)
    act_min = prop_def(INT)
    act_max = prop_def(INT)
    output = result_def(TENSOR)

    traits = traits_def(Pure())
    assembly_format = (
        "$a `,` $b (`a_zero` $a_zero^)? (`b_zero` $b_zero^)? (`out_zero` $out_zero^)? `scale` $scale"
        " `clamp` `(` $act_min `,` $act_max `)` attr-dict `:` type($a) `,` type($b) `->` type($output)"
    )

    def __init__(
        self,
        a: SSAValue,
        b: SSAValue,
        result_type: Attribute,
        *,
        zeros: tuple[int, int, int],
        scale: ScaleAttr,
        clamp: tuple[int, int],
    ) -> None:
        super().__init__(
            [a, b], [result_type], a_zero=zeros[0], b_zero=zeros[1], out_zero=zeros[2], scale=scale, clamp=clamp
        )

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole operation."""
        return math.prod(shape_of(self.output)) * shape_of(self.a)[3]

    def verify_operation(self) -> None:
        self.check_rank4(self.a, self.b, self.output)
        (images, _, rows, depth), (others, _, inner, columns) = shape_of(self.a), shape_of(self.b)
        if (shape_of(self.a)[1], shape_of(self.b)[1]) != (1, 1) or (images, depth) != (others, inner):
            a, b = (list(shape_of(value)) for value in (self.a, self.b))
            raise VerifyException(f"{self.name}: {a} by {b} is not a product of [N, 1, M, K] by [N, 1, K, C]")
        if shape_of(self.output) != (images, 1, rows, columns):
            raise VerifyException(f"{self.name} gives {[images, 1, rows, columns]}, not {list(shape_of(self.output))}")
        self.check_properties("conv", "out_zero", in_zero="a_zero", weight_zero="b_zero")
        item = item_bytes(self.b)
        self.check_fields("mload", rows=depth, columns=columns * item, row_stride=columns * item)
        if item_bytes(self.a) != item_bytes(self.output) or item > item_bytes(self.a):
            kinds = ", ".join(str(value.type) for value in (self.a, self.b, self.output))
            raise VerifyException(f"{self.name}: {kinds}: a and result have codes of one size, b none larger")
        self.check_act_range()
