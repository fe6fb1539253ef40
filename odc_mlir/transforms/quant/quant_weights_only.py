"""``quant-weights-only``: weights as codes, everything else as it is.

Before::

    %w = circle.const [2.0, -1.0, …] : tensor<2x4xf32>
    %0 = circle.fully_connected(%x, %w, %b) : (tensor<1x4xf32>, tensor<2x4xf32>, tensor<2xf32>) -> tensor<1x2xf32>

After::

    %w = circle.const [127, -64, …] : tensor<2x4x!quant.uniform<i8:f32:0, {0.015748, 0.03125}>>
    %1 = circle.dequantize(%w) : … -> tensor<2x4xf32>
    %0 = circle.fully_connected(%x, %1, %b) : (tensor<1x4xf32>, tensor<2x4xf32>, tensor<2xf32>) -> tensor<1x2xf32>

Codes are symmetric, with one scale for each result channel. DEQUANTIZE of a constant runs once, when a model is loaded,
and every runtime computes with the weights that the codes stand for. ``form=direct`` gives the codes to the operator
itself, which is smaller; but where weights are int8 or int4, runtimes then round activations to 8 bits as well.

Of CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED with constant weights. Left alone: weights in other layouts, computed
ones, those that are codes already, and those with elements that are not finite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, info_of, tensor_type
from odc_mlir.errors import ModelError
from odc_mlir.formats.names import Names
from odc_mlir.ops.constants import encode_constant
from odc_mlir.quantizer.policy.parameters import quantize_constant, weight_params
from odc_mlir.transforms.common.placement import functions
from odc_mlir.transforms.common.tensor_names import named, names_in
from odc_mlir.transforms.quant.common.conversion import conversion
from odc_mlir.transforms.quant.common.ir import constant_of, is_real, operators

OPERATORS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")

_SMALLEST_SCALE = 1e-10  # weights have no bias to make room for: only what is next to nothing needs a bound


@dataclass(frozen=True)
class QuantWeightsOnlyPass(ModulePass):
    """Turn weights into codes; see the module's text."""

    name = "quant-weights-only"

    dtype: Literal["int8", "int16", "int4"] = "int8"
    """Element type of the codes."""

    form: Literal["dequantize", "direct"] = "dequantize"
    """Whether weights are made real again before the operator, or the operator takes the codes."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            _Weights(self.dtype, self.form == "direct", names_in(function)).convert(function)


@dataclass
class _Weights:
    """The weights of one function; each constant is converted once for each channel axis."""

    dtype: str
    direct: bool
    names: Names
    made: dict[tuple[ConstOp, int], SSAValue | None] = field(default_factory=dict)

    def convert(self, function: FuncOp) -> None:
        uses = list(_weights(function))
        counts = Counter(use.constant for use in uses)
        for use in uses:
            key = use.constant, use.axis
            if key not in self.made:
                stays = len(set(use.constant.result.uses)) > counts[use.constant]
                self.made[key] = self._codes(*key, stays=stays or any(done is use.constant for done, _ in self.made))
            weights = self.made[key]
            if weights is not None:
                use.op.operands[use.index] = weights
                counts[use.constant] -= 1
        for constant in counts:
            if constant.result.first_use is None:
                Rewriter.erase_op(constant)

    def _codes(self, constant: ConstOp, axis: int, *, stays: bool) -> SSAValue | None:
        """What takes the place of the constant; it leaves its name unless it ``stays``. None where it has no codes."""
        info = info_of(constant.result)
        info.data = constant.blob.data  # raises an error where the bytes are missing
        array = info.array()
        try:
            params = weight_params(array, axis, self.dtype, symmetric=True, smallest=_SMALLEST_SCALE)
        except ModelError:
            return None
        codes = encode_constant(quantize_constant(array, params, self.dtype), self.dtype)
        made = ConstOp(BlobAttr.of(codes), tensor_type(self.dtype, info.shape, params))
        named(made, self.names.fresh(f"{info.name}_quantized") if stays else info.name)
        Rewriter.insert_op(made, InsertPoint.before(constant))
        if self.direct:
            return made.result
        back = conversion("DEQUANTIZE", made.result, tensor_type("float32", info.shape))
        named(back, self.names.fresh(f"{info.name}_dequantized"))
        Rewriter.insert_op(back, InsertPoint.after(made))
        return back.results[0]


@dataclass(frozen=True, slots=True)
class _Use:
    """Operand ``index`` of ``op``, the weights ``constant`` with their channel axis."""

    op: CircleOp
    index: int
    axis: int
    constant: ConstOp


def _weights(function: FuncOp) -> Iterator[_Use]:
    for op in operators(function):
        if op.SPEC.name not in OPERATORS or op.option("weights_format") not in (None, "default"):
            continue
        for index, axis in op.SPEC.quant.weights.items():
            constant = constant_of(op.operands[index])
            if constant is not None and axis is not None and is_real(op.operands[0]) and is_real(constant.result):
                yield _Use(op, index, axis, constant)
