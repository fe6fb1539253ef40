"""The ``npu`` operation that gives images another size."""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.npu_base import (
    INTS,
    TENSOR,
    Ints,
    NpuTensorOp,
    ResizeKind,
    ResizeKindAttr,
    dtype_of,
    ints,
    shape_of,
)
from odc_mlir.numerics.resize_lines import Line, Lines


@irdl_op_definition
class ResizeOp(NpuTensorOp):
    """``[N, H, W, C]`` with other heights and widths: result ``i`` of an axis lies at ``start + i * step``.

    ``nearest``: positions in units of 2^-24 pixels are rounded down. ``bilinear``: in units of 2^-10; the pixels below
    and above are blended, of both axes together, rounded once, half away from zero. Pixels outside of the image are
    those of its edge. ``start``, ``step``: of rows and of columns.
    """

    name = "npu.resize"

    kind = prop_def(ResizeKindAttr)
    input = operand_def(TENSOR)
    start = prop_def(INTS)
    step = prop_def(INTS)
    output = result_def(TENSOR)

    traits = traits_def(Pure())
    assembly_format = "$kind $input `start` $start `step` $step attr-dict `:` type($input) `->` type($output)"

    def __init__(self, kind: ResizeKind, source: SSAValue, result_type: Attribute, lines: Lines) -> None:
        super().__init__(
            [source],
            [result_type],
            kind=ResizeKindAttr(kind),
            start=ints(line.start for line in lines),
            step=ints(line.step for line in lines),
        )

    @property
    def lines(self) -> Lines:
        """The positions of rows and columns."""
        (top, left), (down, across) = _pair(self.start), _pair(self.step)
        return Lines(Line(top, down), Line(left, across))

    def verify_operation(self) -> None:
        self.check_rank4(self.input, self.output)
        source, result = shape_of(self.input), shape_of(self.output)
        kept = (source[0], source[3], dtype_of(self.input)) == (result[0], result[3], dtype_of(self.output))
        if not kept:
            raise VerifyException(
                f"{self.name} keeps images, channels and codes, {self.input.type} became {self.output.type}"
            )
        self.check_length("start", self.start, 2)
        self.check_length("step", self.step, 2)
        for start, step in zip(_pair(self.start), _pair(self.step), strict=True):
            self.check_fields("resize", start_x=start, step_x=step)


def _pair(values: Ints) -> tuple[int, int]:
    first, second = values.get_values()
    return first, second
