"""The ``npu`` operations that slide a window over an image: convolution and pooling."""

from __future__ import annotations

import math

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.dialects.npu_base import (
    INT,
    INTS,
    NO_PADS,
    TENSOR,
    UNIT_PAIR,
    ChannelsAttr,
    CodeType,
    CodeTypeAttr,
    Ints,
    NpuTensorOp,
    PoolKind,
    PoolKindAttr,
    dtype_of,
    ints,
    item_bytes,
    shape_of,
)
from odc_mlir.dialects.npu_memory import element_bytes


@irdl_op_definition
class ConvOp(NpuTensorOp):
    """Convolution, depthwise convolution or matrix product with requantisation.

    ``sum[o] = bias[o] + sum over taps of (x - in_zero) * (w - weight_zero)``;
    ``code = clamp(multiply(sum, multiplier[o], exponent[o]) + out_zero, act_min, act_max)``; of 16-bit inputs
    where ``wide``, by ``multiply64``.

    ``weights``: codes as ``[O, kh, kw, I]``; depthwise ``[kh, kw, O]`` where ``O = I * multiplier``.
    ``pads``: top, left, bottom, right; padding counts as ``in_zero``.
    ``bias``, ``multiplier``, ``exponent``: one value per result channel.
    """

    name = "npu.conv"

    input = operand_def(TENSOR)
    depthwise = opt_prop_def(UnitAttr)
    wide = opt_prop_def(UnitAttr)
    kernel = prop_def(INTS)
    stride = prop_def(INTS, default_value=UNIT_PAIR)
    dilation = prop_def(INTS, default_value=UNIT_PAIR)
    pads = prop_def(INTS, default_value=NO_PADS)
    weights = prop_def(BlobAttr)
    weight_type = prop_def(CodeTypeAttr)
    in_zero = prop_def(INT)
    weight_zero = prop_def(INT)
    out_zero = prop_def(INT)
    act_min = prop_def(INT)
    act_max = prop_def(INT)
    bias = prop_def(ChannelsAttr)
    multiplier = prop_def(ChannelsAttr)
    exponent = prop_def(ChannelsAttr)
    output = result_def(TENSOR)

    traits = traits_def(Pure())
    assembly_format = (
        "(`depthwise` $depthwise^)? (`wide` $wide^)? $input `kernel` $kernel (`stride` $stride^)?"
        " (`dilation` $dilation^)? (`pads` $pads^)? `weights` $weights $weight_type"
        " `zeros` `(` $in_zero `,` $weight_zero `,` $out_zero `)` `clamp` `(` $act_min `,` $act_max `)`"
        " `bias` $bias `multiplier` $multiplier `exponent` $exponent attr-dict `:` type($input) `->` type($output)"
    )

    def __init__(
        self,
        source: SSAValue,
        result_type: Attribute,
        *,
        depthwise: bool,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        dilation: tuple[int, int],
        pads: tuple[int, int, int, int],
        weights: BlobAttr,
        weight_type: CodeType,
        in_zero: int,
        weight_zero: int,
        out_zero: int,
        clamp: tuple[int, int],
        bias: ChannelsAttr,
        multiplier: ChannelsAttr,
        exponent: ChannelsAttr,
        wide: bool = False,
    ) -> None:
        super().__init__(
            [source],
            [result_type],
            depthwise=UnitAttr() if depthwise else None,
            wide=UnitAttr() if wide else None,
            kernel=ints(kernel),
            stride=ints(stride),
            dilation=ints(dilation),
            pads=ints(pads),
            weights=weights,
            weight_type=CodeTypeAttr(weight_type),
            in_zero=in_zero,
            weight_zero=weight_zero,
            out_zero=out_zero,
            bias=bias,
            multiplier=multiplier,
            exponent=exponent,
            clamp=clamp,
        )

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """``[O, kh, kw, I]``, depthwise ``[kh, kw, O]``."""
        channels, kernel = shape_of(self.output)[3], tuple(self.kernel.get_values())
        return (*kernel, channels) if self.depthwise else (channels, *kernel, shape_of(self.input)[3])

    @property
    def weight_item_bytes(self) -> int:
        """Bytes of a weight."""
        return element_bytes(self.weight_type.data.value)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole operation, as the graph counts them: padding taps included."""
        taps = math.prod(self.weight_shape) // shape_of(self.output)[3]
        return math.prod(shape_of(self.output)) * taps

    def verify_operation(self) -> None:
        self.check_rank4(self.input, self.output)
        self.check_window(self.kernel, self.stride, self.dilation, self.pads, self.input, self.output)
        (batch, _, _, channels), (out_batch, _, _, out_channels) = shape_of(self.input), shape_of(self.output)
        if batch != out_batch:
            raise VerifyException(f"{self.name}: input batch {batch} and result batch {out_batch} differ")
        if self.depthwise and out_channels % channels:
            raise VerifyException(f"{self.name}: {out_channels} result channels for {channels} input channels")
        for name in ("bias", "multiplier", "exponent"):
            self.check_length(name, getattr(self, name), out_channels)
        item, weight_item = item_bytes(self.input), self.weight_item_bytes
        if item != item_bytes(self.output):
            raise VerifyException(f"{self.name}: codes of {self.input.type} and {self.output.type} differ in size")
        if item == 1 and (weight_item > 1 or self.wide is not None):
            raise VerifyException(f"{self.name}: 16-bit weights and wide sums go with 16-bit inputs")
        weights = math.prod(self.weight_shape) * weight_item
        if self.weights.data.size != weights:
            shape = list(self.weight_shape)
            raise VerifyException(
                f"{self.name} needs {weights} bytes of weights {shape}, the blob has {self.weights.data.size}"
            )
        self.check_properties("conv", "in_zero", "weight_zero", "out_zero")
        self.check_fields("conv", **window_fields(self.kernel, self.stride))
        dilation_y, dilation_x = self.dilation.get_values()
        self.check_fields("conv", dilation_y=dilation_y, dilation_x=dilation_x)
        self.check_act_range()


@irdl_op_definition
class PoolOp(NpuTensorOp):
    """Maximum or average over windows; taps in the padding are left out. Codes are not rescaled."""

    name = "npu.pool"

    kind = prop_def(PoolKindAttr)
    input = operand_def(TENSOR)
    kernel = prop_def(INTS)
    stride = prop_def(INTS, default_value=UNIT_PAIR)
    pads = prop_def(INTS, default_value=NO_PADS)
    act_min = prop_def(INT)
    act_max = prop_def(INT)
    output = result_def(TENSOR)

    traits = traits_def(Pure())
    assembly_format = (
        "$kind $input `kernel` $kernel (`stride` $stride^)? (`pads` $pads^)?"
        " `clamp` `(` $act_min `,` $act_max `)` attr-dict `:` type($input) `->` type($output)"
    )

    def __init__(
        self,
        kind: PoolKind,
        source: SSAValue,
        result_type: Attribute,
        *,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        pads: tuple[int, int, int, int],
        clamp: tuple[int, int],
    ) -> None:
        super().__init__(
            [source],
            [result_type],
            kind=PoolKindAttr(kind),
            kernel=ints(kernel),
            stride=ints(stride),
            pads=ints(pads),
            clamp=clamp,
        )

    def verify_operation(self) -> None:
        self.check_rank4(self.input, self.output)
        self.check_window(self.kernel, self.stride, UNIT_PAIR, self.pads, self.input, self.output)
        if dtype_of(self.input) != dtype_of(self.output):
            raise VerifyException(f"{self.name} keeps the element type, {self.input.type} became {self.output.type}")
        source, result = shape_of(self.input), shape_of(self.output)
        if (source[0], source[3]) != (result[0], result[3]):
            raise VerifyException(f"{self.name} keeps batch and channels, {list(source)} became {list(result)}")
        top, left, bottom, right = self.pads.get_values()
        height, width = self.kernel.get_values()
        if max(top, bottom) >= height or max(left, right) >= width:
            raise VerifyException(f"{self.name}: some windows lie wholly in the padding")
        self.check_fields("pool", **window_fields(self.kernel, self.stride))
        self.check_act_range()


@irdl_op_definition
class PadOp(NpuTensorOp):
    """Real zero around every image: ``pads`` are top, left, bottom, right. ``npu-fuse-padding`` removes it again."""

    name = "npu.pad"

    input = operand_def(TENSOR)
    pads = prop_def(INTS)
    zero = prop_def(INT)
    output = result_def(TENSOR)

    traits = traits_def(Pure())
    assembly_format = "$input `pads` $pads `zero` $zero attr-dict `:` type($input) `->` type($output)"

    def __init__(self, source: SSAValue, result_type: Attribute, *, pads: tuple[int, int, int, int], zero: int) -> None:
        super().__init__([source], [result_type], pads=ints(pads), zero=zero)

    def verify_operation(self) -> None:
        self.check_rank4(self.input, self.output)
        self.check_window(UNIT_PAIR, UNIT_PAIR, UNIT_PAIR, self.pads, self.input, self.output)
        source, result = shape_of(self.input), shape_of(self.output)
        if (source[0], source[3]) != (result[0], result[3]) or dtype_of(self.input) != dtype_of(self.output):
            raise VerifyException(f"{self.name} pads height and width, {self.input.type} became {self.output.type}")


def window_fields(kernel: Ints, stride: Ints) -> dict[str, int]:
    """Kernel and stride by the names of the instruction fields that hold them."""
    names = ("kernel_height", "kernel_width", "stride_y", "stride_x")
    return dict(zip(names, (*kernel.get_values(), *stride.get_values()), strict=True))
