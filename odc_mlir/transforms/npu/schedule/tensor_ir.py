"""Properties of tensor operations that planning and lowering share, and views of tensors.

A view is a tensor with another shape, a contiguous slice of a tensor, or a tensor that is computed directly in a
concatenation. Tensors joined along rows may also stay separate: a matrix product then loads all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, OpResult, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_layers import StridedCopy, pair
from odc_mlir.dialects.npu_tiling import PARTS, RESIDENT, SLOT_BYTES, TILING, VIEW, ResidentAttr, Tiling, TilingAttr
from odc_mlir.dialects.odc import YieldOp
from odc_mlir.errors import CompileError
from odc_mlir.support.locations import op_name
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.geometry import WindowGeometry, make_window
from odc_mlir.transforms.npu.schedule.residents import Layout, PaddingBorder

Elementwise = npu.ElementwiseOp | npu.ScaleOp | npu.LutOp | npu.SigmoidOp
BY_ROWS = Elementwise | npu.ConvOp | npu.PoolOp | npu.ResizeOp | npu.SoftmaxOp | npu.ArgMaxOp
"""Operations that compute each row of an image from some rows of the operands."""
NOTHING_COMPUTED = (npu.ReshapeOp, npu.ConstantOp, YieldOp)


def layer_ops(block: Block) -> list[Operation]:
    """Return the operations that become instructions, in order."""
    return [op for op in block.ops if becomes_instructions(op)]


def becomes_instructions(op: Operation) -> bool:
    """Return whether ``op`` computes or moves anything."""
    return not isinstance(op, NOTHING_COMPUTED) and VIEW not in op.attributes and PARTS not in op.attributes


def window_of(
    op: npu.ConvOp | npu.PoolOp | npu.MatmulOp, *, source_resident: bool, result_resident: bool
) -> WindowGeometry:
    """Return the geometry of a window operation with or without resident source and result."""
    if isinstance(op, npu.MatmulOp):
        return make_window(
            (npu.shape_of(op.output)[0], *npu.shape_of(op.a)[1:]),
            npu.shape_of(op.output),
            weights_per_image=True,
            item_bytes=npu.item_bytes(op.a),
            weight_item_bytes=npu.item_bytes(op.b),
            source_resident=source_resident,
            result_resident=result_resident,
        )
    if isinstance(op, npu.ConvOp):
        dilation, depthwise = pair(op.dilation), op.depthwise is not None
    else:
        dilation, depthwise = (1, 1), True
    top, left, _, _ = op.pads.get_values()
    return make_window(
        npu.shape_of(op.input),
        npu.shape_of(op.output),
        kernel=pair(op.kernel),
        stride=pair(op.stride),
        dilation=dilation,
        pads=(top, left),
        depthwise=depthwise,
        item_bytes=npu.item_bytes(op.input),
        weight_item_bytes=op.weight_item_bytes if isinstance(op, npu.ConvOp) else 1,
        source_resident=source_resident,
        result_resident=result_resident,
    )


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Return ``shape`` as ``[H, W, C]``, or None for several images."""
    padded = (1,) * (4 - len(shape)) + shape
    if math.prod(padded[:-3]) != 1:
        return None
    return padded[-3], padded[-2], padded[-1]


def resident_image(op: Operation) -> tuple[Layout, int | None] | None:
    """Return (layout, fill code) of a resident result, or None.

    Raises CompileError if the result has several images.
    """
    attribute = op.attributes.get(RESIDENT)
    if attribute is None:
        return None
    image = image_shape(npu.shape_of(op.results[0]))
    if not isinstance(attribute, ResidentAttr) or image is None:
        raise CompileError(f"{attribute} does not describe a resident image", op=op.name, tensor=op_name(op))
    residency = attribute.data
    border = PaddingBorder(*(getattr(residency, name) for name in PaddingBorder._fields))
    return Layout(*image, border, npu.item_bytes(op.results[0])), residency.fill


def given_tiling(op: Operation) -> Tiling | None:
    """Return the tiling attribute of ``op``, or None."""
    attribute = op.attributes.get(TILING)
    return attribute.data if isinstance(attribute, TilingAttr) else None


def has_tilings(block: Block) -> bool:
    """Return whether an operation in ``block`` has a tiling."""
    return any(TILING in op.attributes for op in block.ops)


def tiling_of(op: Operation, target: Target, window: WindowGeometry) -> Tiling:
    """Return the tiling of ``op``. Raises CompileError if it is missing or does not fit ``window``."""
    tiling = given_tiling(op)
    if tiling is None:
        raise CompileError(
            "the operation has no tiling", op=op.name, tensor=op_name(op), hint="run npu-choose-tiles first"
        )
    channels = window.out_channels if window.depthwise else window.in_channels
    for name, low, high in (
        ("rows", 1, window.out_height),
        ("cols", 1, window.out_width),
        ("group", 1, window.out_channels),
        ("k_slice", 1, channels),
        ("shape", 0, len(target.array.shapes) - 1),
    ):
        if (size := getattr(tiling, name)) > high:
            raise CompileError(
                f"{name} of the tiling is {size}, allowed: {low} to {high}", op=op.name, tensor=op_name(op)
            )
    return tiling


def slot_bytes(op: Operation, target: Target) -> int:
    """Return the tile-buffer bytes for the slots of ``op``."""
    attribute = op.attributes.get(SLOT_BYTES)
    if attribute is None:
        return target.local.tile_bytes
    if not isinstance(attribute, IntegerAttr) or attribute.value.data < 0:
        raise CompileError(f"{SLOT_BYTES} is {attribute}, not a number of bytes", op=op.name, tensor=op_name(op))
    return attribute.value.data


def output_fields(
    op: npu.ConvOp | npu.MatmulOp | npu.PoolOp | npu.ElementwiseOp | npu.ScaleOp | npu.ReduceOp,
) -> dict[str, int]:
    """Return the instruction fields that convert results to codes."""
    fields = {"act_min": op.act_min.value.data, "act_max": op.act_max.value.data}
    return fields if isinstance(op, npu.PoolOp) else {"out_zero": op.out_zero.value.data, **fields}


def scale_fields(name: str, scale: npu.ScaleAttr | None) -> dict[str, int]:
    """Return the multiplier and exponent fields of an instruction. Both are 0 if ``scale`` is None."""
    multiplier, exponent = (0, 0) if scale is None else scale.values
    return {f"{name}_multiplier": multiplier, f"{name}_exponent": exponent}


class ViewSources:
    """Base tensors of the values of a program, through reshapes and through moves marked as views.

    Raises CompileError for a marked move that is not a view.
    """

    def __init__(self, block: Block) -> None:
        self._joined: dict[SSAValue, tuple[SSAValue, int]] = {}
        for op in block.ops:
            if isinstance(op, npu.MoveOp) and VIEW in op.attributes and slice_of(op) is None:
                if not joins_whole(op):
                    raise CompileError("the move is not a view", op=op.name, tensor=op_name(op))
                for copy in op.strided_copies():
                    self._joined[viewed(op.inputs[copy.source])] = (op.output, copy.to * npu.item_bytes(op.output))

    def parts(self, value: SSAValue) -> list[RowPart]:
        """Return the joined tensors that matrix products load for ``value``, or an empty list."""
        op = viewed(value).owner
        if not isinstance(op, npu.MoveOp) or PARTS not in op.attributes:
            return []
        found = row_parts(op)
        if found is None or not loads_parts(op):
            raise CompileError(
                "the tensors that the move joins cannot be loaded one by one", op=op.name, tensor=op_name(op)
            )
        return found

    def roots(self, value: SSAValue) -> list[SSAValue]:
        """Return the base tensors of ``value``: several if matrix products load it in parts."""
        return [self.place(item)[0] for item in [part.value for part in self.parts(value)] or [value]]

    def place(self, value: SSAValue) -> tuple[SSAValue, int]:
        """Return the base tensor of ``value``, and the byte offset of ``value`` in it."""
        start = 0
        while True:
            value = viewed(value)
            if value in self._joined:
                value, offset = self._joined[value]
            elif isinstance(value, OpResult) and isinstance(value.op, npu.MoveOp) and VIEW in value.op.attributes:
                copy = slice_of(value.op)
                if copy is None:
                    return value, start
                value, offset = value.op.inputs[0], copy.start * npu.item_bytes(value)
            else:
                return value, start
            start += offset


def viewed(value: SSAValue) -> SSAValue:
    """Return the source of a chain of reshapes, or ``value`` itself."""
    while isinstance(value, OpResult) and isinstance(value.op, npu.ReshapeOp):
        value = value.op.input
    return value


def aliases(value: SSAValue) -> Iterator[SSAValue]:
    """Yield ``value`` and its reshapes."""
    yield value
    for use in value.uses:
        if isinstance(use.operation, npu.ReshapeOp):
            yield from aliases(use.operation.output)


def readers(value: SSAValue) -> Iterator[Operation]:
    """Return the operations that read ``value`` or a reshape of it."""
    uses = (use.operation for alias in aliases(value) for use in alias.uses)
    return (user for user in uses if not isinstance(user, npu.ReshapeOp))


def is_slice_view(op: Operation) -> bool:
    """Return whether ``op`` is a move marked as a view of a slice."""
    return isinstance(op, npu.MoveOp) and VIEW in op.attributes and slice_of(op) is not None


def slice_of(op: npu.MoveOp) -> StridedCopy | None:
    """Return the copy if ``op`` moves one contiguous slice of one tensor, else None."""
    copies = list(op.strided_copies())
    if op.fill is not None or len(copies) != 1 or len(op.inputs) != 1 or not is_run(copies[0]):
        return None
    return copies[0]


def joins_whole(op: npu.MoveOp) -> bool:
    """Return whether a move concatenates whole tensors, each once."""
    sources, copies = [viewed(value) for value in op.inputs], list(op.strided_copies())
    if op.fill is not None or len(set(sources)) != len(sources) or len(copies) != len(sources):
        return False
    sizes = [math.prod(npu.shape_of(value)) for value in sources]
    whole = all(copy.elements == sizes[copy.source] and copy.start == 0 and is_run(copy) for copy in copies)
    return whole and {copy.source for copy in copies} == set(range(len(sources)))


class RowPart(NamedTuple):
    """Tensor in a concatenation along the second last axis: ``rows`` rows from row ``first``."""

    value: SSAValue
    first: int
    rows: int


def row_parts(op: npu.MoveOp) -> list[RowPart] | None:
    """Return the tensors of a move that joins whole tensors along the second last axis, or None.

    Each tensor occurs once.
    """
    shape, copies = npu.shape_of(op.output), list(op.strided_copies())
    if op.fill is not None or len(shape) < 2 or sorted(copy.source for copy in copies) != list(range(len(op.inputs))):
        return None
    images, row = math.prod(shape[:-2]), shape[-1]
    found = []
    for copy in copies:
        value = op.inputs[copy.source]
        rows, first = math.prod(npu.shape_of(value)) // (images * row), copy.to // row
        if copy != row_copy(copy.source, (images, rows, row), rows, shape[-2], 0, first):
            return None
        found.append(RowPart(value, first, rows))
    return sorted(found, key=lambda part: part.first)


def row_slice(op: npu.MoveOp) -> range | None:
    """Return the rows that a move copies from the only operand, along the second last axis, or None."""
    copies, shape = list(op.strided_copies()), npu.shape_of(op.output)
    if op.fill is not None or len(copies) != 1 or len(op.inputs) != 1 or len(shape) < 2:
        return None
    images, rows, row = math.prod(shape[:-2]), shape[-2], shape[-1]
    first, total = copies[0].start // row, math.prod(npu.shape_of(op.inputs[0])) // (images * row)
    is_slice = copies[0] == row_copy(0, (images, rows, row), total, rows, first, 0)
    return range(first, first + rows) if is_slice else None


def row_copy(source: int, sizes: tuple[int, int, int], read: int, written: int, first: int, to: int) -> StridedCopy:
    """Return the copy of rows of each image, from row ``first`` of the source to row ``to`` of the result.

    ``sizes``: images, copied rows, elements per row. ``read``, ``written``: rows of a source and of a result image.
    """
    images, rows, row = sizes
    run = rows * row
    loops = [(images, read * row, written * row), (run, 1, 1)][images == 1 :]
    return StridedCopy(source, first * row, to * row, *zip(*loops, strict=True))


def loads_parts(op: npu.MoveOp, *, sliced: bool = False) -> bool:
    """Return whether only matrix products read a move's result, each as an operand with the same rows.

    With ``sliced``, moves of some of the rows do not count, because ``npu-alias-moves`` makes them read the operands.
    """
    shape = npu.shape_of(op.output)
    users = [user for user in readers(op.output) if not (sliced and isinstance(user, npu.MoveOp) and row_slice(user))]
    return bool(users) and all(
        isinstance(user, npu.MatmulOp)
        and all(npu.shape_of(value)[1:] == (1, *shape[-2:]) for value in user.operands if viewed(value) is op.output)
        for user in users
    )


def is_run(copy: StridedCopy) -> bool:
    """Return whether ``copy`` moves one contiguous run in order."""
    distance = 1
    for size, read, write in reversed(list(zip(copy.sizes, copy.reads, copy.writes, strict=True))):
        if size > 1 and not read == write == distance:
            return False
        distance *= size
    return True
