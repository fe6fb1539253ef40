"""Commands of an element-wise operation that is computed with each tile of the convolution in front of it.

The tile never goes to memory: the other operand is loaded to a slot, the result takes the place of the convolution's.
"""

from __future__ import annotations

from collections.abc import Iterator

from odc_mlir.dialects import npu
from odc_mlir.isa.fields import Space
from odc_mlir.transforms.npu.schedule.geometry import Tile, WindowGeometry
from odc_mlir.transforms.npu.schedule.layers import Layer
from odc_mlir.transforms.npu.schedule.local import LocalMemories, Slot
from odc_mlir.transforms.npu.schedule.program import Command, Place, command
from odc_mlir.transforms.npu.schedule.slots import Slots
from odc_mlir.transforms.npu.schedule.transfers import load_tile, store_tile
from odc_mlir.transforms.npu.schedule.vector_stream import vop_fields
from odc_mlir.transforms.npu.schedule.window_tiling import WindowTiling


class FusedElementwise:
    """``layer`` reads the result of a convolution with ``window`` and ``tiling``, and a tensor of the same form.

    ``number``: the layer that its commands say they are of.
    """

    def __init__(
        self,
        layer: Layer[npu.ElementwiseOp],
        window: WindowGeometry,
        tiling: WindowTiling,
        memories: LocalMemories,
        first: bool,
        number: int,
    ) -> None:
        """``first``: the convolution's result is operand ``a``, not ``b``."""
        self.layer, self.window, self.number = layer, window, number
        self.other = layer.sources[1 if first else 0]
        self.names = ("a", "b") if first else ("b", "a")
        slot = Slot("operand", (tiling.rows, tiling.cols, tiling.group), self.other.type)
        self.slots = Slots(memories.take(Space.TILE, [slot] * tiling.operand_slots))
        self.fields = vop_fields(layer)

    def commands(self, tile: Tile, group: tuple[int, int], output: Place) -> Iterator[Command]:
        """Load, computation and store for result channels ``group`` (first, count) of a tile that is at ``output``."""
        slot = self.slots.take()
        yield self._own(load_tile(self.other, self.window, tile, *group, (slot, 0)))
        elements = tile.rows * tile.cols * group[1]
        sizes = {"size0": elements, "size1": 1, "size2": 1, "a_stride0": 1, "b_stride0": 1}
        run = elements * self.layer.result.item_bytes
        strides = {f"{name}_stride{level}": run for name in ("a", "b", "out") for level in (1, 2)}
        places = {self.names[0]: output, self.names[1]: (slot, 0), "output": output}
        yield self._own(command("vop", **self.fields, **sizes, **strides, **places))
        yield self._own(store_tile(self.layer.result, self.window, tile, *group, output))

    def _own(self, made: Command) -> Command:
        made.layer = self.number
        return made
