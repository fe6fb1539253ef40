"""Facts of single tensor operations that planning and lowering share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from xdsl.ir import Block, Operation

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_base import Ints
from odc_mlir.dialects.npu_isa import ResidentAttr
from odc_mlir.dialects.odc import YieldOp
from odc_mlir.errors import CompileError
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.npu.schedule.geometry import Window, make_window
from odc_mlir.transforms.npu.schedule.residence import Border, Layout

RESIDENT = "npu.resident"
NOTHING_COMPUTED = (npu.ReshapeOp, npu.ConstantOp, YieldOp)


def layer_ops(block: Block) -> list[Operation]:
    """The operations that become instructions, in order."""
    return [op for op in block.ops if not isinstance(op, NOTHING_COMPUTED)]


def window_of(op: npu.ConvOp | npu.PoolOp, *, source_resident: bool, result_resident: bool) -> Window:
    """Geometry of a window operation; the flags say which of its tensors lie in the tile buffer."""
    if isinstance(op, npu.ConvOp):
        dilation, depthwise = _pair(op.dilation), op.depthwise is not None
    else:
        dilation, depthwise = (1, 1), True
    top, left, _, _ = op.pads.get_values()
    return make_window(
        npu.shape_of(op.input),
        npu.shape_of(op.output),
        kernel=_pair(op.kernel),
        stride=_pair(op.stride),
        dilation=dilation,
        pads=(top, left),
        depthwise=depthwise,
        source_resident=source_resident,
        result_resident=result_resident,
    )


def _pair(values: Ints) -> tuple[int, int]:
    first, second = values.get_values()
    return first, second


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """``shape`` as ``[H, W, C]``, None where there are several images."""
    padded = (1,) * (4 - len(shape)) + shape
    if math.prod(padded[:-3]) != 1:
        return None
    return padded[-3], padded[-2], padded[-1]


@dataclass(frozen=True, slots=True)
class Residence:
    """A resident result as its attribute describes it."""

    layout: Layout
    address: int
    fill: int | None


def residence_of(op: Operation) -> Residence | None:
    """Where the result of ``op`` stays in the tile buffer, None where it does not; CompileError if malformed."""
    attribute = op.attributes.get(RESIDENT)
    if attribute is None:
        return None
    image = image_shape(npu.shape_of(op.results[0]))
    known = {"address", "fill", *Border._fields}
    if not isinstance(attribute, ResidentAttr) or image is None or not {key for key, _ in attribute.data} <= known:
        raise CompileError(f"{attribute} does not describe a resident image", op=op.name, tensor=op_name(op))
    values = {key: value for key, value in attribute.data if isinstance(value, int)}
    border = Border(*(values.get(name, 0) for name in Border._fields))
    return Residence(Layout(*image, border), values.get("address", 0), values.get("fill"))
