"""The ``npu`` dialect at tensor level: NPU operations with all integers that instructions will have.

Operands and results are the quantised tensors of the ``circle`` dialect. Multipliers and exponents replace scales, so
no later pass rounds a real number. Tensors have layout NHWC, and instructions will loop over ``N``.
:mod:`odc_mlir.dialects.npu_isa` defines the instruction level of the same dialect.

:mod:`odc_mlir.numerics` defines all arithmetic. :mod:`odc_mlir.interpreters.module` executes these operations.
"""

from __future__ import annotations

import math
from functools import cache
from typing import ClassVar

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, Dialect, Operation
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.dialects.npu_base import (
    CODE_TYPES,
    INT,
    KINDS,
    TENSOR,
    ZERO,
    ElementwiseKindAttr,
    ReduceKindAttr,
    SigmoidKindAttr,
    broadcast,
    same_shape,
)
from odc_mlir.dialects.npu_base import ChannelsAttr as ChannelsAttr
from odc_mlir.dialects.npu_base import CodeType as CodeType
from odc_mlir.dialects.npu_base import ElementwiseKind as ElementwiseKind
from odc_mlir.dialects.npu_base import Int as Int
from odc_mlir.dialects.npu_base import Ints as Ints
from odc_mlir.dialects.npu_base import NpuTensorOp as NpuTensorOp
from odc_mlir.dialects.npu_base import PoolKind as PoolKind
from odc_mlir.dialects.npu_base import ReduceKind as ReduceKind
from odc_mlir.dialects.npu_base import ResizeKind as ResizeKind
from odc_mlir.dialects.npu_base import ScaleAttr as ScaleAttr
from odc_mlir.dialects.npu_base import SigmoidKind as SigmoidKind
from odc_mlir.dialects.npu_base import code_range as code_range
from odc_mlir.dialects.npu_base import dtype_of as dtype_of
from odc_mlir.dialects.npu_base import ints as ints
from odc_mlir.dialects.npu_base import item_bytes as item_bytes
from odc_mlir.dialects.npu_base import shape_of as shape_of
from odc_mlir.dialects.npu_base import size_bytes as size_bytes
from odc_mlir.dialects.npu_layers import ArgMaxOp as ArgMaxOp
from odc_mlir.dialects.npu_layers import ConvOp as ConvOp
from odc_mlir.dialects.npu_layers import GatherOp as GatherOp
from odc_mlir.dialects.npu_layers import LstmOp as LstmOp
from odc_mlir.dialects.npu_layers import MatmulOp as MatmulOp
from odc_mlir.dialects.npu_layers import MoveOp as MoveOp
from odc_mlir.dialects.npu_layers import PadOp as PadOp
from odc_mlir.dialects.npu_layers import PoolOp as PoolOp
from odc_mlir.dialects.npu_layers import ResizeOp as ResizeOp
from odc_mlir.dialects.npu_layers import UpdateOp as UpdateOp
from odc_mlir.isa.fields import LARGEST_SHIFT, LUT_ENTRIES, SIGMOID_TABLE_BYTES, WIDE_LUT_BYTES
from odc_mlir.targets import NUMBER_TYPES


@irdl_op_definition
class ConstantOp(NpuTensorOp):
    """A constant tensor that element-wise operations read."""

    name = "npu.constant"
    DTYPES: ClassVar = (*CODE_TYPES, *NUMBER_TYPES)

    value = prop_def(BlobAttr)

    assembly_format = "$value attr-dict `:` type($output)"

    def __init__(self, value: BlobAttr, result_type: Attribute) -> None:
        super().__init__(result_type, value=value)

    def verify_operation(self) -> None:
        size = size_bytes(self.output)
        if self.value.data.size != size:
            raise VerifyException(f"{self.name} needs {size} bytes, the blob has {self.value.data.size}")


@irdl_op_definition
class ElementwiseOp(NpuTensorOp):
    """Element-wise arithmetic of two tensors. Dimensions of size 1 broadcast. Shapes align at the right.

    ``add``, ``sub``: ``multiply(scaled(a) +- scaled(b), out_scale) + out_zero`` with ``scaled(a) = multiply((a -
        a_zero) << left_shift, a_scale)``.
    ``mul``: ``multiply((a - a_zero) * (b - b_zero), out_scale) + out_zero``.
    ``max``, ``min``: maximum and minimum of the codes, without scales.
    All results are clamped to ``act_min..act_max``.
    """

    name = "npu.elementwise"
    ZEROS: ClassVar = ("a_zero", "b_zero", "out_zero")
    DTYPES: ClassVar = (*CODE_TYPES, "int32")

    kind = prop_def(ElementwiseKindAttr)
    a = operand_def(TENSOR)
    b = operand_def(TENSOR)
    a_zero = prop_def(INT, default_value=ZERO)
    b_zero = prop_def(INT, default_value=ZERO)
    out_zero = prop_def(INT, default_value=ZERO)
    left_shift = prop_def(INT, default_value=ZERO)
    a_scale = opt_prop_def(ScaleAttr)
    b_scale = opt_prop_def(ScaleAttr)
    out_scale = opt_prop_def(ScaleAttr)
    act_min = prop_def(INT)
    act_max = prop_def(INT)

    assembly_format = (
        "$kind $a `,` $b (`a_zero` $a_zero^)? (`b_zero` $b_zero^)? (`out_zero` $out_zero^)? (`shift` $left_shift^)?"
        " (`a_scale` $a_scale^)? (`b_scale` $b_scale^)? (`out_scale` $out_scale^)?"
        " `clamp` `(` $act_min `,` $act_max `)` attr-dict `:` type($a) `,` type($b) `->` type($output)"
    )

    _SCALES: ClassVar = {
        ElementwiseKind.ADD: ("a_scale", "b_scale", "out_scale"),
        ElementwiseKind.SUB: ("a_scale", "b_scale", "out_scale"),
        ElementwiseKind.MUL: ("out_scale",),
        ElementwiseKind.MAX: (),
        ElementwiseKind.MIN: (),
    }

    @property
    def has_zeros(self) -> bool:
        return self.out_scale is not None

    def verify_operation(self) -> None:
        expected = self._SCALES[self.kind.data]
        for name in ("a_scale", "b_scale", "out_scale"):
            if (getattr(self, name) is not None) != (name in expected):
                verb = "needs" if name in expected else "takes no"
                raise VerifyException(f"{self.name} {self.kind.data} {verb} {name}")
        if broadcast(shape_of(self.a), shape_of(self.b)) != shape_of(self.output):
            a, b, result = (list(shape_of(v)) for v in (self.a, self.b, self.output))
            raise VerifyException(f"{self.name}: shapes {a} and {b} do not broadcast to {result}")
        self.check_properties("vop", "a_zero", "b_zero", "out_zero", "left_shift")
        self.check_act_range()


@irdl_op_definition
class ReduceOp(NpuTensorOp):
    """Reduction over all pixels of each image: ``[N, H, W, C]`` to ``[N, 1, 1, C]``.

    ``sum``: ``clamp(multiply(sum of (x - in_zero), scale) + out_zero, act_min, act_max)``. The scale of a mean includes
        the division.
    ``max``: the largest code, without zero points and scale.
    """

    name = "npu.reduce"
    ZEROS: ClassVar = ("in_zero", "out_zero")

    kind = prop_def(ReduceKindAttr)
    input = operand_def(TENSOR)
    in_zero = prop_def(INT, default_value=ZERO)
    out_zero = prop_def(INT, default_value=ZERO)
    scale = opt_prop_def(ScaleAttr)
    act_min = prop_def(INT)
    act_max = prop_def(INT)

    assembly_format = (
        "$kind $input (`in_zero` $in_zero^)? (`out_zero` $out_zero^)? (`scale` $scale^)?"
        " `clamp` `(` $act_min `,` $act_max `)` attr-dict `:` type($input) `->` type($output)"
    )

    @property
    def has_zeros(self) -> bool:
        return self.scale is not None

    def verify_operation(self) -> None:
        self.check_rank4(self.input, self.output)
        batch, _, _, channels = shape_of(self.input)
        if shape_of(self.output) != (batch, 1, 1, channels):
            raise VerifyException(f"{self.name} gives {[batch, 1, 1, channels]}, not {list(shape_of(self.output))}")
        if (self.scale is None) != (self.kind.data is ReduceKind.MAX):
            verb = "needs a" if self.scale is None else "takes no"
            raise VerifyException(f"{self.name} {self.kind.data} {verb} scale")
        self.check_properties("reduce", "in_zero", "out_zero")
        self.check_act_range()


@irdl_op_definition
class SoftmaxOp(NpuTensorOp):
    """Softmax along the last axis.

    8-bit codes: ``scale`` is beta times the input scale, in Q5.26. The result has scale 1/256, and the smallest code as
    zero point. Differences from the maximum below ``diff_min`` yield the smallest code.
    16-bit codes: ``scale`` is beta times the input scale in steps of 10/65535, and ``table`` holds 513 exponentials.
    The result has scale 1/32768.
    """

    name = "npu.softmax"

    input = operand_def(TENSOR)
    scale = prop_def(ScaleAttr)
    diff_min = prop_def(INT, default_value=ZERO)
    table = opt_prop_def(BlobAttr)

    assembly_format = (
        "$input `scale` $scale (`diff_min` $diff_min^)? (`table` $table^)?"
        " attr-dict `:` type($input) `->` type($output)"
    )

    def verify_operation(self) -> None:
        same_shape(self, self.input, self.output)
        wide = item_bytes(self.input) > 1
        if item_bytes(self.output) != item_bytes(self.input):
            raise VerifyException(f"{self.name}: codes of {self.input.type} and {self.output.type} differ in size")
        if wide != (self.table is not None):
            raise VerifyException(f"{self.name} of {dtype_of(self.input)} {'needs a' if wide else 'takes no'} table")
        check_table(self, self.table, WIDE_LUT_BYTES)


@irdl_op_definition
class LutOp(NpuTensorOp):
    """Table lookup ``output = table[code]``: 256 result codes, indexed by the input code's byte (int8 -1 is index 255).

    For 16-bit codes, the table has 513 entries over the whole range, and the result is ``t[i] + (((t[i+1] - t[i]) * o +
    64) >> 7)`` with ``i = 256 + (code >> 7)`` and ``o = code & 127``.
    """

    name = "npu.lut"

    input = operand_def(TENSOR)
    table = prop_def(BlobAttr)

    assembly_format = "$input `table` $table attr-dict `:` type($input) `->` type($output)"

    def verify_operation(self) -> None:
        same_shape(self, self.input, self.output)
        wide = item_bytes(self.input) > 1
        if item_bytes(self.output) != item_bytes(self.input):
            raise VerifyException(f"{self.name}: codes of {self.input.type} and {self.output.type} differ in size")
        check_table(self, self.table, WIDE_LUT_BYTES if wide else LUT_ENTRIES)


@irdl_op_definition
class SigmoidOp(NpuTensorOp):
    """Logistic function or hyperbolic tangent of 16-bit codes, with results of scale 1/32768.

    ``table`` holds 65536 times the logistic function at k/24 for k = 0 to 255, unsigned. The index into the table, with
    fraction bits, is ``(code * multiplier + half) >> shift``.
    """

    name = "npu.sigmoid"
    DTYPES: ClassVar = ("int16",)

    kind = prop_def(SigmoidKindAttr)
    input = operand_def(TENSOR)
    multiplier = prop_def(INT)
    shift = prop_def(INT)
    table = prop_def(BlobAttr)

    assembly_format = (
        "$kind $input `multiplier` $multiplier `shift` $shift `table` $table"
        " attr-dict `:` type($input) `->` type($output)"
    )

    def verify_operation(self) -> None:
        same_shape(self, self.input, self.output)
        multiplier, shift = self.multiplier.value.data, self.shift.value.data
        if not 0 <= multiplier < 1 << 15 or not 0 <= shift <= LARGEST_SHIFT:
            raise VerifyException(f"{self.name}: the multiplier has 15 bits and the shift is 0 to {LARGEST_SHIFT}")
        check_table(self, self.table, SIGMOID_TABLE_BYTES)


def check_table(op: NpuTensorOp, table: BlobAttr | None, size: int) -> None:
    """Raise VerifyException unless the table has ``size`` bytes."""
    if table is not None and table.data.size != size:
        raise VerifyException(f"{op.name} needs a table of {size} bytes, not {table.data.size}")


@irdl_op_definition
class ScaleOp(NpuTensorOp):
    """Requantisation: ``clamp(multiply(x - in_zero, scale) + out_zero, act_min, act_max)``.

    If ``shifted``, ``out_zero`` is an offset such as the base value of a sum of tables, not a zero point.
    """

    name = "npu.scale"
    ZEROS: ClassVar = ("in_zero", "out_zero")

    input = operand_def(TENSOR)
    shifted = opt_prop_def(UnitAttr)
    in_zero = prop_def(INT, default_value=ZERO)
    out_zero = prop_def(INT, default_value=ZERO)
    scale = prop_def(ScaleAttr)
    act_min = prop_def(INT)
    act_max = prop_def(INT)

    assembly_format = (
        "(`shifted` $shifted^)? $input (`in_zero` $in_zero^)? (`out_zero` $out_zero^)? `scale` $scale"
        " `clamp` `(` $act_min `,` $act_max `)`"
        " attr-dict `:` type($input) `->` type($output)"
    )

    @property
    def has_zeros(self) -> bool:
        return self.shifted is None

    def verify_operation(self) -> None:
        same_shape(self, self.input, self.output)
        self.check_properties("vop", "out_zero", a_zero="in_zero")
        self.check_act_range()


@irdl_op_definition
class ReshapeOp(NpuTensorOp):
    """A view of the same bytes with another shape. It emits no instruction."""

    name = "npu.reshape"
    DTYPES: ClassVar = (*CODE_TYPES, *NUMBER_TYPES)

    input = operand_def(TENSOR)

    assembly_format = "$input attr-dict `:` type($input) `->` type($output)"

    def verify_operation(self) -> None:
        source, result = shape_of(self.input), shape_of(self.output)
        if math.prod(source) != math.prod(result) or dtype_of(self.input) != dtype_of(self.output):
            raise VerifyException(f"{self.name} keeps all elements, {self.input.type} became {self.output.type}")


TENSOR_OPS = (
    ArgMaxOp,
    ConstantOp,
    ConvOp,
    ElementwiseOp,
    GatherOp,
    LstmOp,
    LutOp,
    MatmulOp,
    MoveOp,
    PadOp,
    PoolOp,
    ReduceOp,
    ReshapeOp,
    ResizeOp,
    ScaleOp,
    SigmoidOp,
    SoftmaxOp,
    UpdateOp,
)


@cache
def dialect() -> Dialect:
    """Return the dialect with both levels. Only this function imports the instruction level and programs."""
    from odc_mlir.dialects import npu_isa
    from odc_mlir.dialects.npu_program import ProgramOp

    operations: list[type[Operation]] = [*TENSOR_OPS, *npu_isa.OPS, ProgramOp]
    return Dialect("npu", operations, [ScaleAttr, ChannelsAttr, *KINDS.values(), *npu_isa.ATTRIBUTES])
