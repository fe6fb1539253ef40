"""Tensor-level operations of the ``npu`` dialect: windows, moves, matrix products, searches, recurrent cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, UnitAttr, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.dialects.npu_base import (
    CODE_TYPES,
    INT,
    INTS,
    NO_PADS,
    TENSOR,
    UNIT_PAIR,
    ZERO,
    ChannelsAttr,
    CodeTypeAttr,
    Ints,
    NpuTensorOp,
    PoolKindAttr,
    ResizeKind,
    ResizeKindAttr,
    ScaleAttr,
    code_range,
    dtype_of,
    item_bytes,
    shape_of,
)
from odc_mlir.dialects.npu_memory import element_bytes
from odc_mlir.numerics.resize import Line, Lines
from odc_mlir.targets import NUMBER_TYPES


@irdl_op_definition
class ConvOp(NpuTensorOp):
    """Convolution, depthwise convolution or matrix product with requantisation.

    ``sum[o] = bias[o] + sum over taps of (x - in_zero) * (w - weight_zero)``. ``code = clamp(multiply(sum,
    multiplier[o], exponent[o]) + out_zero, act_min, act_max)``. ``wide``: sums of 16-bit inputs are scaled by
    ``multiply64`` instead of ``multiply``. ``weights``: codes ``[O, kh, kw, I]``, or depthwise ``[kh, kw, O]`` with ``O
    = I * multiplier``. ``pads``: top, left, bottom, right. Padding has the value ``in_zero``. ``bias``, ``multiplier``,
    ``exponent``: one value per result channel.
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

    assembly_format = (
        "(`depthwise` $depthwise^)? (`wide` $wide^)? $input `kernel` $kernel (`stride` $stride^)?"
        " (`dilation` $dilation^)? (`pads` $pads^)? `weights` $weights $weight_type"
        " `zeros` `(` $in_zero `,` $weight_zero `,` $out_zero `)` `clamp` `(` $act_min `,` $act_max `)`"
        " `bias` $bias `multiplier` $multiplier `exponent` $exponent attr-dict `:` type($input) `->` type($output)"
    )

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """``[O, kh, kw, I]``, or ``[kh, kw, O]`` if depthwise."""
        channels, kernel = shape_of(self.output)[3], tuple(self.kernel.get_values())
        return (*kernel, channels) if self.depthwise else (channels, *kernel, shape_of(self.input)[3])

    @property
    def weight_item_bytes(self) -> int:
        return element_bytes(self.weight_type.data.value)

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates, including multiply-accumulates on padding."""
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
    """Maximum or average over windows. Padding is ignored, and codes are not rescaled."""

    name = "npu.pool"

    kind = prop_def(PoolKindAttr)
    input = operand_def(TENSOR)
    kernel = prop_def(INTS)
    stride = prop_def(INTS, default_value=UNIT_PAIR)
    pads = prop_def(INTS, default_value=NO_PADS)
    act_min = prop_def(INT)
    act_max = prop_def(INT)

    assembly_format = (
        "$kind $input `kernel` $kernel (`stride` $stride^)? (`pads` $pads^)?"
        " `clamp` `(` $act_min `,` $act_max `)` attr-dict `:` type($input) `->` type($output)"
    )

    def verify_operation(self) -> None:
        self.check_rank4(self.input, self.output)
        self.check_window(self.kernel, self.stride, UNIT_PAIR, self.pads, self.input, self.output)
        self.check_images(self.input)
        top, left, bottom, right = self.pads.get_values()
        height, width = self.kernel.get_values()
        if max(top, bottom) >= height or max(left, right) >= width:
            raise VerifyException(f"{self.name}: some windows lie wholly in the padding")
        self.check_fields("pool", **window_fields(self.kernel, self.stride))
        self.check_act_range()


@irdl_op_definition
class PadOp(NpuTensorOp):
    """Padding of images with real zeros. ``pads``: top, left, bottom, right. ``npu-fuse-padding`` removes the op."""

    name = "npu.pad"

    input = operand_def(TENSOR)
    pads = prop_def(INTS)
    zero = prop_def(INT)

    assembly_format = "$input `pads` $pads `zero` $zero attr-dict `:` type($input) `->` type($output)"

    def verify_operation(self) -> None:
        self.check_rank4(self.input, self.output)
        self.check_window(UNIT_PAIR, UNIT_PAIR, UNIT_PAIR, self.pads, self.input, self.output)
        self.check_images(self.input)


def window_fields(kernel: Ints, stride: Ints) -> dict[str, int]:
    """Return kernel sizes and strides by the names of the instruction fields."""
    names = ("kernel_height", "kernel_width", "stride_y", "stride_x")
    return dict(zip(names, (*kernel.get_values(), *stride.get_values()), strict=True))


@irdl_op_definition
class MatmulOp(NpuTensorOp):
    """Product of computed matrices with requantisation: ``[N, 1, M, K]`` by ``[N, 1, K, C]`` to ``[N, 1, M, C]``.

    If one operand has fewer images than the other, an image of this operand is used in several consecutive products.
    ``sum = sum over k of (a - a_zero) * (b - b_zero)``. ``code = clamp(multiply(sum, scale) + out_zero, act_min,
    act_max)``. 16-bit results use ``multiply64`` instead.
    """

    name = "npu.matmul"
    ZEROS: ClassVar = ("a_zero", "b_zero", "out_zero")

    a = operand_def(TENSOR)
    b = operand_def(TENSOR)
    a_zero = prop_def(INT, default_value=ZERO)
    b_zero = prop_def(INT, default_value=ZERO)
    out_zero = prop_def(INT, default_value=ZERO)
    scale = prop_def(ScaleAttr)
    act_min = prop_def(INT)
    act_max = prop_def(INT)

    assembly_format = (
        "$a `,` $b (`a_zero` $a_zero^)? (`b_zero` $b_zero^)? (`out_zero` $out_zero^)? `scale` $scale"
        " `clamp` `(` $act_min `,` $act_max `)` attr-dict `:` type($a) `,` type($b) `->` type($output)"
    )

    @property
    def macs(self) -> int:
        return math.prod(shape_of(self.output)) * shape_of(self.a)[3]

    def verify_operation(self) -> None:
        self.check_rank4(self.a, self.b, self.output)
        (images, _, rows, depth), (others, _, inner, columns) = shape_of(self.a), shape_of(self.b)
        fewer, most = sorted((images, others))
        if (shape_of(self.a)[1], shape_of(self.b)[1]) != (1, 1) or depth != inner or most % fewer:
            a, b = (list(shape_of(value)) for value in (self.a, self.b))
            raise VerifyException(f"{self.name}: {a} by {b} is not a product of [N, 1, M, K] by [N, 1, K, C]")
        if shape_of(self.output) != (most, 1, rows, columns):
            raise VerifyException(f"{self.name} gives {[most, 1, rows, columns]}, not {list(shape_of(self.output))}")
        self.check_properties("conv", "out_zero", in_zero="a_zero", weight_zero="b_zero")
        item = item_bytes(self.b)
        self.check_fields("mload", rows=depth, columns=columns * item, row_stride=columns * item)
        if item_bytes(self.a) != item_bytes(self.output) or item > item_bytes(self.a):
            kinds = ", ".join(str(value.type) for value in (self.a, self.b, self.output))
            raise VerifyException(f"{self.name}: {kinds}: a and result have codes of one size, b none larger")
        self.check_act_range()


HEAD = 3  # number of integers of a copy before its loops


class StridedCopy(NamedTuple):
    """Copy ``output[to + sum(i*w)] = operand[start + sum(i*r)]`` for all ``i`` below ``sizes``, outermost first.

    ``source`` is the index of an operand. ``start``, ``to``, ``reads`` (r) and ``writes`` (w) count elements.
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
    """Copy of operand codes to other positions.

    Each array in ``copies`` is a strided copy: index of the operand, first element read, first element written, then
    ``size, read distance, write distance`` of each loop, outermost first. It computes ``output[to + sum(i*w)] =
    operand[start + sum(i*r)]`` in row-major element order. No element is written twice. Elements that no copy writes
    are ``fill``. Element types other than codes cannot be filled.
    """

    name = "npu.move"
    DTYPES: ClassVar = (*CODE_TYPES, *NUMBER_TYPES)

    inputs = var_operand_def(TENSOR)
    copies = prop_def(ArrayAttr.constr(INTS))
    fill = opt_prop_def(INT)

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
        super().__init__(list(sources), result_type, copies=ArrayAttr(arrays), fill=fill)

    def strided_copies(self) -> Iterator[StridedCopy]:
        for array in self.copies:
            source, start, to, *loops = array.get_values()
            yield StridedCopy(source, start, to, tuple(loops[0::3]), tuple(loops[1::3]), tuple(loops[2::3]))

    def verify_operation(self) -> None:
        total, covered = math.prod(shape_of(self.output)), 0
        for value in self.inputs:
            if dtype_of(value) != dtype_of(self.output):
                raise VerifyException(f"{self.name} keeps the element type, {value.type} became {self.output.type}")
        for array in self.copies:
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


ALL_GATES, COUPLED_GATES = 4, 3


@irdl_op_definition
class LstmOp(NpuTensorOp):
    """LSTM cell over a sequence, by :mod:`odc_mlir.numerics.lstm`: int8 input and output, int16 cell state.

    Operands are ``input [N, T, I]`` (``time_major``: ``[T, N, I]``), ``hidden [N, C]`` and ``cell [N, C]``. Results are
    all outputs, in the order of the input, and the states after the last step.
    Weights are int8 ``[gates * C, I]`` and ``[gates * C, C]``, with gates in the order input, forget, cell, output. If
    the input gate has no weights, the gate is ``1 - forget gate``. Each gate has two scales to Q3, for the input
    product and the recurrent product. ``bias`` has one value per row and includes the input's zero point. ``clip`` is
    the largest cell state, or 0 for no limit. ``product_zero`` is the zero point of hidden values. It may differ from
    the output's, because the reference does not convert them.
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
    product_zero = prop_def(INT, default_value=ZERO)
    output = result_def(TENSOR)
    last_hidden = result_def(TENSOR)
    last_cell = result_def(TENSOR)

    assembly_format = (
        "$input `,` $hidden `,` $cell (`time_major` $time_major^)?"
        " `inputs` $input_weights `bias` $bias `scales` $input_scales"
        " `recurrent` $recurrent_weights (`hidden_zero` $hidden_zero^)? `scales` $recurrent_scales"
        " `cell_exponent` $cell_exponent (`clip` $clip^)? `scale` $out_scale (`out_zero` $product_zero^)?"
        " attr-dict `:` functional-type(operands, results)"
    )

    def __init__(self, operands: Sequence[SSAValue], result_type: Attribute, **values: Any) -> None:
        super().__init__(*operands, [result_type, *(state.type for state in operands[1:])], **values)

    @property
    def gates(self) -> int:
        """Number of gates with weights."""
        return len(self.input_scales)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(steps, batch, features, units)."""
        first, second, features = shape_of(self.input)
        steps, batch = (first, second) if self.time_major else (second, first)
        return steps, batch, features, shape_of(self.cell)[-1]

    @property
    def macs(self) -> int:
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
        self.check_properties("gates", "cell_exponent", "clip", out_zero="product_zero")
        self.check_fields("gates", units=units)


@irdl_op_definition
class ResizeOp(NpuTensorOp):
    """Interpolation of ``[N, H, W, C]`` to another size. Result ``i`` of an axis samples position ``start + i * step``.

    ``nearest``: positions, in units of 2^-24 pixels, are rounded down.
    ``bilinear``: positions, in units of 2^-10 pixels, blend four neighbours. The sum is rounded once, half away from
        zero.
    Pixels outside of the image have the value of the nearest edge pixel. ``start`` and ``step`` have one number for
    rows and one for columns.
    """

    name = "npu.resize"

    kind = prop_def(ResizeKindAttr)
    input = operand_def(TENSOR)
    start = prop_def(INTS)
    step = prop_def(INTS)

    assembly_format = "$kind $input `start` $start `step` $step attr-dict `:` type($input) `->` type($output)"

    def __init__(self, kind: ResizeKind, source: SSAValue, result_type: Attribute, lines: Lines) -> None:
        start, step = ([getattr(line, name) for line in lines] for name in ("start", "step"))
        super().__init__(kind, source, result_type, start=start, step=step)

    @property
    def lines(self) -> Lines:
        """Sampling positions of rows and columns."""
        (top, left), (down, across) = pair(self.start), pair(self.step)
        return Lines(Line(top, down), Line(left, across))

    def verify_operation(self) -> None:
        self.check_rank4(self.input, self.output)
        self.check_images(self.input)
        self.check_length("start", self.start, 2)
        self.check_length("step", self.step, 2)
        for start, step in zip(pair(self.start), pair(self.step), strict=True):
            self.check_fields("resize", start_x=start, step_x=step)


def pair(values: Ints) -> tuple[int, int]:
    """Return the two numbers of an attribute for rows and columns."""
    first, second = values.get_values()
    return first, second


@irdl_op_definition
class ArgMaxOp(NpuTensorOp):
    """Index of the first largest code along the last axis: ``[..., C]`` to ``[...]``, as plain numbers."""

    name = "npu.argmax"
    RESULT_DTYPES: ClassVar = NUMBER_TYPES

    input = operand_def(TENSOR)

    assembly_format = "$input attr-dict `:` type($input) `->` type($output)"

    def verify_operation(self) -> None:
        source, result = shape_of(self.input), shape_of(self.output)
        if not source or source[:-1] != result:
            raise VerifyException(f"{self.name} drops the last axis, {list(source)} became {list(result)}")
        self.check_fields("reduce", channels=source[-1])


@irdl_op_definition
class UpdateOp(NpuTensorOp):
    """Replacement of table rows in ``input``: ``output[k, clamp(position[index], 0, R - N) + n] = rows[k, n]``.

    ``input`` and ``output`` are ``[K, R, C]``, ``rows`` is ``[K, N, C]``.
    """

    name = "npu.update"
    OPERAND_DTYPES: ClassVar = (*CODE_TYPES, "int32")

    input = operand_def(TENSOR)
    rows = operand_def(TENSOR)
    position = operand_def(TENSOR)
    index = prop_def(INT)

    assembly_format = (
        "$input `at` $position `[` $index `]` `to` $rows attr-dict "
        "`:` type($input) `,` type($rows) `,` type($position) `->` type($output)"
    )

    @property
    def row_bytes(self) -> int:
        return shape_of(self.input)[2] * item_bytes(self.input)

    def verify_operation(self) -> None:
        tables, rows, numbers = (shape_of(value) for value in (self.input, self.rows, self.position))
        dtypes = (dtype_of(self.output), dtype_of(self.output), "int32")
        for value, dtype in zip((self.input, self.rows, self.position), dtypes, strict=True):
            if dtype_of(value) != dtype:
                raise VerifyException(f"{self.name} takes {dtype} here, not {dtype_of(value)}")
        fits = len(tables) == len(rows) == 3 and rows[::2] == tables[::2] and 0 < rows[1] <= tables[1]
        if not fits or shape_of(self.output) != tables:
            raise VerifyException(
                f"{self.name} replaces rows of [K, R, C] by [K, N, C], not of {list(tables)} by {list(rows)} "
                f"to {list(shape_of(self.output))}"
            )
        if len(numbers) != 1 or not 0 <= self.index.value.data < numbers[0]:
            raise VerifyException(
                f"{self.name} takes element {self.index.value.data} of a vector, not of {list(numbers)}"
            )
        self.check_fields("scatter", count=tables[0], rows=tables[1], row_bytes=self.row_bytes, taken=rows[1])


@irdl_op_definition
class GatherOp(NpuTensorOp):
    """Table rows selected by computed indices: ``output[b, k, i] = table[b, k, indices[b, i]]``.

    ``table`` is ``[B, K, R, C]``, ``indices`` is ``[B, N]``, ``output`` is ``[B, K, N, C]``.
    """

    name = "npu.gather"
    DTYPES: ClassVar = (*CODE_TYPES, *NUMBER_TYPES)

    table = operand_def(TENSOR)
    indices = operand_def(TENSOR)

    assembly_format = "$table `[` $indices `]` attr-dict `:` type($table) `,` type($indices) `->` type($output)"

    @property
    def row_bytes(self) -> int:
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
