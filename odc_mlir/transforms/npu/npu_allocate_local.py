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

In memories that the attribute ``npu.timed`` of the program names ("weight", "param"), slots take bytes whose last use
has probably ended, because many weights are transferred in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, zip_longest

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.npu_isa import BY_MNEMONIC, BufferOp, InstructionOp
from odc_mlir.dialects.npu_memory import BufferType
from odc_mlir.dialects.npu_program import TIMED
from odc_mlir.errors import AllocationError, CompileError
from odc_mlir.isa.fields import Queue, Space
from odc_mlir.support.locations import op_name
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPass, TargetedProgram, integer
from odc_mlir.transforms.npu.schedule.prefetch import transfer_cycles
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
        for space, size in local_sizes(job.target).items():
            _place(layers, space, size, residents if space is Space.TILE else [], reach, job.target)
        if (timed := job.program.attributes.pop(TIMED, None)) is not None:
            _read_times(job.block, layers, job.target)
            for space in _read_timed(timed):
                slots = [[item for item in _slots(layer, space) if item.freed] for layer in layers]
                _place_by_time([*filter(None, slots)], space, job.target)
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
    filled: float = 0.0  # cycles of all transfers of weights before the first use of the slot
    freed: float = 0.0  # the same after the last use
    address: int | None = None
    loaded: bool | None = None  # whether the first instruction that uses the buffer is a load or fill

    @property
    def is_resident(self) -> bool:
        return self.space is Space.TILE and self.last > self.first


def _slots(layer: Sequence[_Local], space: Space) -> list[_Local]:
    return [item for item in layer if item.space is space and not item.is_resident]


def _place(
    layers: Sequence[Sequence[_Local]], space: Space, size: int, residents: Sequence[_Local], reach: int, target: Target
) -> None:
    """Assign addresses to slots in ``space``. They avoid ``residents`` that ended up to ``reach`` layers before."""
    last = (0, 0)
    for index, (layer, behind) in enumerate(zip_longest(layers, layers[1:], fillvalue=())):
        if not (slots := _slots(layer, space)):
            continue
        free = gaps(residents, index, size)
        close = [r for r in residents if index - reach <= r.last < index or (r.loaded and r.first == index + 1)]
        near = [last, *((item.address or 0, (item.address or 0) + item.size) for item in close)]
        needed, following = (sum(item.size for item in items) for items in (slots, _slots(behind, space)))
        padding = slots[-1].size - slots[-1].op.size  # the last slot needs no alignment at its end
        starts = (_start(total, following, free, near) for total in (needed, needed - padding))
        start = next((found for found in starts if found is not None), None)
        if start is None:
            op, largest = slots[0].op, max((end - begin for begin, end in free), default=0)
            text = f"slots need {needed} units of memory {space.value} at a time, {target.name} has {largest} left"
            raise AllocationError(text, op=op.name, tensor=op_name(op))
        last = (start, start + needed)
        for item, address in zip(slots, accumulate((item.size for item in slots), initial=start), strict=False):
            item.address = address


def _start(total: int, following: int, free: Sequence[tuple[int, int]], near: Sequence[tuple[int, int]]) -> int | None:
    """Return the start of ``total`` units with the least overlap with slots of the previous layer, then with residents.

    ``near``: these slots and residents. Several starts may be equally good. If the slots of the next layer, of
    ``following`` units, do not fit next to these, the last start is best. It leaves free bytes for the first of them.
    """
    candidates = [
        start
        for low, high in free
        for start in (low, *(end for _, end in near), high - total)
        if low <= start and start + total <= high
    ]
    if total + following > max((high - low for low, high in free), default=0):
        candidates.reverse()

    def overlaps(start: int) -> tuple[int, int]:
        slots, *residents = [max(0, min(end, start + total) - max(begin, start)) for begin, end in near]
        return slots, sum(residents)

    return min(candidates, key=overlaps, default=None)


_Layout = Sequence[tuple[int, _Local]]  # slots and their addresses
_RECENT = 6  # slots of previous layers that are considered
_ENOUGH = 0.25  # share of the weight buffer: its bytes are free early enough if this much is transferred in between


def _read_timed(attribute: Attribute) -> list[Space]:
    names = attribute.data if isinstance(attribute, ArrayAttr) else ()
    spaces = [space for space in (Space.WEIGHT, Space.PARAM) if StringAttr(space) in names]
    if not spaces or len(spaces) < len(names):
        raise CompileError(f"{TIMED} is {attribute}", hint='write ["weight"], ["param"] or ["weight", "param"]')
    return spaces


def _read_times(block: Block, layers: Sequence[Sequence[_Local]], target: Target) -> None:
    slots: dict[SSAValue, _Local] = {item.op.buffer: item for layer in layers for item in layer}
    now = 0.0
    for op in block.ops:
        if not isinstance(op, InstructionOp) or (queue := op.field_values.queue) not in (Queue.WEIGHT, Queue.MAC):
            continue
        before = now
        now += transfer_cycles(target, op.field_values.immediates) if queue is Queue.WEIGHT else 0.0
        for value in op.operands:
            if (item := slots.get(value)) is not None:
                item.filled, item.freed = item.filled if item.freed else before, now


def _place_by_time(layers: Sequence[Sequence[_Local]], space: Space, target: Target) -> None:
    """Replace the addresses of the slots of ``layers``. Of bytes that are free early enough, the last used are best."""
    size, held = local_sizes(target)[space], list[tuple[int, _Local]]()
    enough = _ENOUGH * size / target.sram.bytes_per_cycle if space is Space.WEIGHT else math.inf
    for slots, following in zip_longest(layers, layers[1:], fillvalue=()):
        best, most = list[tuple[int, _Local]](), (-math.inf, -math.inf)
        for layout in _layouts(slots, held, size):
            if (slack := _slack(layout, held)) < most[0]:
                continue
            both = [*held, *layout]
            later = max((_slack(after, both) for after in _layouts(following, both, size)), default=math.inf)
            if (score := (min(slack, later, enough), -slack)) > most:
                best, most = layout, score
        for address, item in best:
            item.address = address
        held = [*held, *best][-_RECENT:]


def _layouts(slots: Sequence[_Local], held: _Layout, size: int) -> Iterator[list[tuple[int, _Local]]]:
    """Yield adjacent addresses for ``slots``, in order and in reverse, next to each of ``held``."""
    total = sum([item.size for item in slots])
    starts = [start for address, item in reversed(held) for start in (address + item.size, address - total)]
    for start in dict.fromkeys((0, *starts, size - total)):
        for order in (slots, slots[::-1])[: len(slots)] if 0 <= start <= size - total else ():
            yield list(zip(accumulate([item.size for item in order], initial=start), order, strict=False))


def _slack(layout: _Layout, held: _Layout) -> float:
    """Return the cycles of transfers between the last use of the bytes of ``layout`` and the transfer to them."""
    return min(
        [
            new.filled - old.freed
            for address, new in layout
            for place, old in held
            if place < address + new.size and address < place + old.size
        ],
        default=math.inf,
    )


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
