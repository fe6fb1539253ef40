"""Commands of products of two computed matrices: convolutions whose weights lie in SRAM as a plain matrix."""

from __future__ import annotations

from collections.abc import Iterator

from odc_mlir.dialects import npu
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.constants import ConstantPool
from odc_mlir.transforms.npu.schedule.geometry import Tile
from odc_mlir.transforms.npu.schedule.layers import WindowLayer
from odc_mlir.transforms.npu.schedule.local import LocalMemories
from odc_mlir.transforms.npu.schedule.program import Command, Place, command
from odc_mlir.transforms.npu.schedule.tensor_ir import output_fields, scale_fields
from odc_mlir.transforms.npu.schedule.window_stream import WeightLoads, product_commands
from odc_mlir.transforms.npu.schedule.window_tiling import ComputeStep, WindowTiling

Matmul = WindowLayer[npu.MatmulOp]


class _Matrix(WeightLoads[npu.MatmulOp]):
    """Loads of the right-hand side; every image has its own."""

    def owner(self, tile: Tile) -> int:
        return tile.image

    def load(self, tile: Tile, step: ComputeStep, target: Place) -> Command:
        matrix, item = self.layer.sources[1], self.layer.window.weight_item_bytes
        _, _, depth, columns = matrix.shape
        first = (tile.image * depth + step.k_first) * columns + step.first
        return command(
            "mload",
            source=matrix.at(first * item),
            target=target,
            rows=step.k_count,
            columns=step.channels * item,
            row_stride=columns * item,
            group=self.columns * item,
        )

    def parameters(self, first: int, count: int, target: Place) -> Command:
        return command("pfill", target=target, count=count, **scale_fields("out", self.layer.op.scale))


def matmul_commands(
    layer: Matmul, tiling: WindowTiling, target: Target, memories: LocalMemories, pool: ConstantPool
) -> Iterator[Command]:
    """The commands of a matrix product in plain order."""
    op, weights = layer.op, layer.sources[1].type
    constant: dict[str, int | str] = {
        "weight_type": weights,
        "wide": int(layer.window.item_bytes > 1),
        "in_zero": op.a_zero.value.data,
        "weight_zero": op.b_zero.value.data,
        **output_fields(op),
    }
    matrix = _Matrix(layer, tiling, target, memories, pool, weights)
    return product_commands(layer, tiling, memories, matrix, constant)
