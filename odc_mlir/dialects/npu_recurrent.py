"""The ``npu`` operation that goes through a sequence: an LSTM cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, UnitAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.dialects.npu_base import (
    INT,
    TENSOR,
    ZERO,
    ChannelsAttr,
    NpuTensorOp,
    ScaleAttr,
    dtype_of,
    shape_of,
)

ALL_GATES, COUPLED_GATES = 4, 3


@irdl_op_definition
class LstmOp(NpuTensorOp):
    """An LSTM cell over a sequence, by :mod:`odc_mlir.numerics.lstm`: int8 input and output, int16 cell state.

    ``input [N, T, I]`` (``time_major``: ``[T, N, I]``), ``hidden [N, C]`` and ``cell [N, C]`` give all outputs in the
    order of the input, and the states after the last step.

    Weights are int8 ``[gates * C, I]`` and ``[gates * C, C]``, gates in the order input, forget, cell, output; without
    an input gate it is one minus the forget gate. Each gate has a scale for each of the two, to Q3. ``bias``, one value
    for each row, contains the input's zero point. ``clip``: largest cell state, 0 for any.
    """

    name = "npu.lstm"
    DTYPES: ClassVar = ("int8", "int16")

    input = operand_def(TENSOR)
    hidden = operand_def(TENSOR)
    cell = operand_def(TENSOR)
    time_major = opt_prop_def(UnitAttr)
    input_weights = prop_def(BlobAttr)
    bias = prop_def(ChannelsAttr)
    input_scales = prop_def(ArrayAttr[ScaleAttr])
    recurrent_weights = prop_def(BlobAttr)
    hidden_zero = prop_def(INT, default_value=ZERO)
    recurrent_scales = prop_def(ArrayAttr[ScaleAttr])
    cell_exponent = prop_def(INT)
    clip = prop_def(INT, default_value=ZERO)
    out_scale = prop_def(ScaleAttr)
    out_zero = prop_def(INT, default_value=ZERO)
    output = result_def(TENSOR)
    last_hidden = result_def(TENSOR)
    last_cell = result_def(TENSOR)

    traits = traits_def(Pure())
    assembly_format = (
        "$input `,` $hidden `,` $cell (`time_major` $time_major^)?"
        " `inputs` $input_weights `bias` $bias `scales` $input_scales"
        " `recurrent` $recurrent_weights (`hidden_zero` $hidden_zero^)? `scales` $recurrent_scales"
        " `cell_exponent` $cell_exponent (`clip` $clip^)? `scale` $out_scale (`out_zero` $out_zero^)?"
        " attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self,
        operands: Sequence[SSAValue],
        result_type: Attribute,
        *,
        time_major: bool,
        input_weights: BlobAttr,
        bias: ChannelsAttr,
        input_scales: Sequence[ScaleAttr],
        recurrent_weights: BlobAttr,
        hidden_zero: int,
        recurrent_scales: Sequence[ScaleAttr],
        cell_exponent: int,
        clip: int,
        out_scale: ScaleAttr,
        out_zero: int,
    ) -> None:
        states = [value.type for value in operands[1:]]
        super().__init__(
            operands,
            [result_type, *states],
            time_major=UnitAttr() if time_major else None,
            input_weights=input_weights,
            bias=bias,
            input_scales=ArrayAttr(input_scales),
            recurrent_weights=recurrent_weights,
            hidden_zero=hidden_zero,
            recurrent_scales=ArrayAttr(recurrent_scales),
            cell_exponent=cell_exponent,
            clip=clip,
            out_scale=out_scale,
            out_zero=out_zero,
        )

    @property
    def gates(self) -> int:
        """How many gates have weights."""
        return len(self.input_scales)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(steps, batch, features, units)."""
        first, second, features = shape_of(self.input)
        steps, batch = (first, second) if self.time_major else (second, first)
        return steps, batch, features, shape_of(self.cell)[-1]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole operation."""
        steps, batch, features, units = self.sizes
        return steps * batch * self.gates * units * (features + units)

    def verify_operation(self) -> None:
        for name, rank in (("input", 3), ("hidden", 2), ("cell", 2)):
            found = len(shape_of(getattr(self, name)))
            if found != rank:
                raise VerifyException(f"{self.name}: the {name} has rank {found}, not {rank}")
        steps, batch, features, units = self.sizes
        outer = (steps, batch) if self.time_major else (batch, steps)
        states = ("hidden", "int8"), ("cell", "int16"), ("last_hidden", "int8"), ("last_cell", "int16")
        for name, shape, dtype in (
            ("input", shape_of(self.input), "int8"),
            ("output", (*outer, units), "int8"),
            *((state, (batch, units), dtype) for state, dtype in states),
        ):
            value = getattr(self, name)
            if (shape_of(value), dtype_of(value)) != (shape, dtype):
                raise VerifyException(
                    f"{self.name}: the {name} is {dtype_of(value)} {list(shape_of(value))}, not {dtype} {list(shape)}"
                )
        if self.gates not in (COUPLED_GATES, ALL_GATES) or len(self.recurrent_scales) != self.gates:
            raise VerifyException(
                f"{self.name} needs {ALL_GATES} scales of either kind, or {COUPLED_GATES},"
                f" not {self.gates} and {len(self.recurrent_scales)}"
            )
        rows = self.gates * units
        self.check_length("bias", self.bias, rows)
        for name, columns in (("input_weights", features), ("recurrent_weights", units)):
            size = getattr(self, name).data.size
            if size != rows * columns:
                raise VerifyException(f"{self.name} needs {rows * columns} {name}, the blob has {size}")
        self.check_properties("conv", in_zero="hidden_zero")
        self.check_fields("conv", in_channels=max(features, units), channels=rows)
        self.check_properties("gates", "cell_exponent", "clip", "out_zero")
        self.check_fields("gates", units=units)
