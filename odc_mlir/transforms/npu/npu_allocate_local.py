"""``npu-allocate-local``: assign addresses in the local memories, by a solver over the whole program.

Before::

    %s = npu.buffer "input" : !npu.buffer<tile, 4096xi8>
    npu.isa.load source %x target %s …

After::

    %s = npu.buffer "input" at 8192 : !npu.buffer<tile, 4096xi8>
    npu.isa.load source %x target %s …

A group of buffers before instructions contains the slots of a layer. The slots of a layer are adjacent in each memory.
If there is room, they do not overlap the slots of the previous layer. The first transfers of a layer then run during
the last instructions of the previous layer. A buffer in the tile buffer that later layers also use holds a resident
tensor. The resident tensor keeps an address until the last use, and slots use the remaining addresses. Slots also avoid
residents of previous layers, and residents of the next layer that loads or fills write first. Unused slots are
removed. Rejects slots that do not fit, and buffers that already have an address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from xdsl.context import Context
from xdsl.ir import Block
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.npu_isa import BY_MNEMONIC, BufferOp
from odc_mlir.dialects.npu_memory import BufferType
from odc_mlir.errors import AllocationError, CompileError
from odc_mlir.isa.fields import Space
from odc_mlir.support.locations import op_name
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPass, TargetedProgram, integer
from odc_mlir.transforms.npu.schedule.program import local_sizes
from odc_mlir.transforms.npu.schedule.residents import gaps, place_residents
from odc_mlir.transforms.npu.schedule.window_tiling import aligned


class NpuAllocateLocalPass(ProgramPass):
    """Assign addresses in the local memories."""

    name = "npu-allocate-local"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        layers = _read(job.block)
        # Matrix products run ahead: operations of some layers before may still read residents that have ended.
        reach = 4 if any(isinstance(op, BY_MNEMONIC["mload"]) for op in job.block.ops) else 1
        residents = [item for layer in layers for item in layer if item.is_resident]
        place_residents(residents)
        memories = {space: LocalMemory(size) for space, size in local_sizes(job.target).items()}
        for index, layer in enumerate(layers):
            memories[Space.TILE].gaps = gaps(residents, index, job.target.local.tile_bytes)
            near = [r for r in residents if index - reach <= r.last < index or (r.loaded and r.first == index + 1)]
            memories[Space.TILE].near = [(item.address or 0, (item.address or 0) + item.size) for item in near]
            behind = layers[index + 1] if index + 1 < len(layers) else []
            for space, memory in memories.items():
                following = sum(item.size for item in _slots(behind, space))
                _place(memory, _slots(layer, space), following, job.target)
        for item in chain.from_iterable(layers):
            if item.op.buffer.uses:
                item.op.properties["address"] = integer(item.address or 0)
            else:
                Rewriter.erase_op(item.op)


@dataclass(eq=False, slots=True)
class _Local:
    op: BufferOp
    space: Space
    size: int
    first: int
    last: int
    address: int | None = None
    loaded: bool | None = None  # whether the first instruction that uses the buffer is a load or fill

    @property
    def is_resident(self) -> bool:
        return self.space is Space.TILE and self.last > self.first


def _slots(layer: Sequence[_Local], space: Space) -> list[_Local]:
    return [item for item in layer if item.space is space and not item.is_resident]


def _place(memory: LocalMemory, slots: Sequence[_Local], following: int, target: Target) -> None:
    """Assign addresses to the slots of one layer. ``following``: units that the slots of the next layer need."""
    addresses = memory.place([item.size for item in slots], following)
    if addresses is None and slots:  # the last slot needs no alignment at its end
        addresses = memory.place([*(item.size for item in slots[:-1]), slots[-1].op.size], following)
    if addresses is None:
        op, space = slots[0].op, slots[0].space
        needed, largest = sum(item.size for item in slots), max((end - start for start, end in memory.gaps), default=0)
        raise AllocationError(
            f"slots need {needed} units of memory {space.value} at a time, {target.name} has {largest} left",
            op=op.name,
            tensor=op_name(op),
        )
    for item, address in zip(slots, addresses, strict=True):
        item.address = address


def _has_address(op: BufferOp, space: Space) -> CompileError:
    assert op.address is not None
    layer = op_name(op)
    of = f" of {layer!r}" if layer and layer != op.label.data else ""
    return CompileError(
        f"buffer {op.label.data!r}{of} in memory {space} has the address {op.address.value.data} already",
        op=op.name,
        hint="remove the address, or run only the passes after npu-allocate-local",
    )


def _read(block: Block) -> list[list[_Local]]:
    layers: list[list[_Local]] = []
    known: dict[int, _Local] = {}  # by the id of the value, which hashes faster than the value
    declares = False
    for op in block.ops:
        if type(op) is not BufferOp:
            declares = False
            for operand in op._operands:
                if (used := known.get(id(operand))) is not None:
                    used.last = len(layers) - 1
                    if used.loaded is None:
                        used.loaded = isinstance(op, (BY_MNEMONIC["load"], BY_MNEMONIC["fill"]))
            continue
        kind = op.results[0].type
        assert isinstance(kind, BufferType)
        space = kind.space
        if not space.is_local:
            continue
        if not declares:
            layers.append([])
            declares = True
        if op.address is not None:
            raise _has_address(op, space)
        index = len(layers) - 1
        size = aligned(kind.size) if space is Space.TILE else kind.size
        made = known[id(op.results[0])] = _Local(op, space, size, index, index)
        layers[-1].append(made)
    return layers


class LocalMemory:
    """Slots of one memory, allocated layer by layer. ``gaps``: free ranges. ``near``: residents of adjacent layers."""

    def __init__(self, size: int) -> None:
        self.gaps: Sequence[tuple[int, int]] = [(0, size)]
        self.near: Sequence[tuple[int, int]] = ()
        self._last = (0, 0)  # the previous layer's slots: start and end

    def place(self, sizes: Sequence[int], following: int = 0) -> list[int] | None:
        """Return addresses of adjacent slots of ``sizes``, or None if no gap holds all of them.

        ``following``: units that the slots of the next layer need together.
        """
        total = sum(sizes)
        start = self._start(total, following)
        if start is None:
            return None
        if total:
            self._last = (start, start + total)
        return [*accumulate(sizes, initial=start)][:-1]

    def _start(self, total: int, following: int) -> int | None:
        """Return the start of a range of ``total`` units with the least overlap with slots and residents nearby.

        Several starts may be equally good. If the next layer's slots do not fit next to the range, the last start is
        best. It leaves free bytes for the first slots of the next layer.
        """
        _, last = self._last
        candidates = [
            start
            for low, high in self.gaps
            for start in (low, last, *(end for _, end in self.near), high - total)
            if low <= start and start + total <= high
        ]
        if total + following > max((high - low for low, high in self.gaps), default=0):
            candidates.reverse()

        def overlaps(start: int) -> tuple[int, int]:
            shared = [max(0, min(end, start + total) - max(begin, start)) for begin, end in (self._last, *self.near)]
            return shared[0], sum(shared[1:])

        return min(candidates, key=overlaps, default=None)
