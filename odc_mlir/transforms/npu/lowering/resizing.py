"""The pattern that lowers image resizing if source positions grow by constant steps."""

from __future__ import annotations

from odc_mlir.dialects import npu
from odc_mlir.isa.instructions import field_range
from odc_mlir.numerics.resize_lines import Lines, bilinear_lines, nearest_line
from odc_mlir.ops.resize import resize_modes
from odc_mlir.ops.spec import Node
from odc_mlir.transforms.npu.lowering.site import LowerToNpu, Site

_LARGEST_STEP = field_range("resize", "start_x")[1]  # so that the start of every tile fits as well


def resize_lines(node: Node) -> Lines | str:
    """Return the source positions of a resize operator, or the reason for positions that do not lie on lines."""
    (_, *source, _), (_, *result, _) = node.operand(0).static_shape, node.results[0].static_shape
    size, output = (source[0], source[1]), (result[0], result[1])
    dtype, modes = node.operand(0).dtype, resize_modes(node)
    what = f"{size[0]}x{size[1]} to {output[0]}x{output[1]}"
    lines: Lines | None
    if node.spec.name == "RESIZE_BILINEAR":
        lines = bilinear_lines(size, output, dtype, *modes)
        if lines is None:
            return f"{dtype} is interpolated in real numbers, and {what} with these options is not exact"
    else:
        rows, columns = (nearest_line(a, b, *modes) for a, b in zip(size, output, strict=True))
        if rows is None or columns is None:
            return f"{what} with these options has positions that rounding moves"
        lines = Lines(rows, columns)
    if max(line.step for line in lines) > _LARGEST_STEP:
        return f"{what} has steps that the instruction does not hold"
    return lines


class LowerResize(LowerToNpu):
    """RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR, to ``npu.resize``."""

    operators = ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")

    def rewrite(self, site: Site) -> None:
        lines = resize_lines(site.node)
        assert not isinstance(lines, str), "the placement rules require lines"
        bilinear = site.node.spec.name == "RESIZE_BILINEAR"
        kind = npu.ResizeKind.BILINEAR if bilinear else npu.ResizeKind.NEAREST
        site.finish(npu.ResizeOp(kind, site.operand(0), site.result_type, lines))
