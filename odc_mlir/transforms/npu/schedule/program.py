"""Records of programs for emission and analysis: buffers, commands, and the ranges that commands access."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from odc_mlir.dialects.npu_memory import BufferType, buffer_type, element_bytes, flat_type
from odc_mlir.isa.fields import Area, Queue, Space
from odc_mlir.isa.immediates import Immediates, shared
from odc_mlir.targets import Target

MOST_LAYER_COMMANDS = 1 << 16  # limit per layer, above what 25088 x 4096 weights take with 256 multipliers


def local_sizes(target: Target) -> dict[Space, int]:
    """Return the sizes of local memories, in bytes, accumulators or parameter entries."""
    local = target.local
    return {
        Space.TILE: local.tile_bytes,
        Space.WEIGHT: local.weight_bytes,
        Space.ACCUMULATOR: local.accumulators,
        Space.PARAM: local.param_entries,
        Space.TABLE: local.table_bytes,
    }


@dataclass(eq=False, slots=True)
class Buffer:
    """Range of one memory, compared by identity.

    ``size`` is in the unit of the space: bytes, accumulators or parameter entries. ``shape`` is in elements of the type
    ``element``. If neither is given, the buffer is a row of units. ``address`` is the offset in the region or local
    memory, None before allocation. ``data``: content of a constant. ``binds``: numbers of the inputs or outputs in a
    buffer outside of the arena. ``takes``, ``gives``: numbers of the inputs and of the outputs in an arena buffer.
    ``live``: first and last command between which an arena buffer keeps its bytes even if it is not used. Copies of
    constants do not count. ``is_memory``: whether the buffer is a whole memory and contains all its buffers.
    """

    name: str
    space: Space
    size: int
    address: int | None = None
    data: bytes | memoryview | None = None
    binds: tuple[int, ...] = ()
    live: tuple[int, int] | None = None
    shape: tuple[int, ...] = ()
    element: str = ""
    takes: tuple[int, ...] = ()
    gives: tuple[int, ...] = ()
    is_memory: bool = False

    @property
    def type(self) -> BufferType:
        """Type of the buffer in the dialect."""
        if not self.shape:
            return flat_type(self.space, self.size)
        return buffer_type(self.space, self.shape, self.element)


def shaped(
    name: str, space: Space, shape: tuple[int, ...], element: str = "i8", *, binds: tuple[int, ...] = ()
) -> Buffer:
    """Return a buffer of elements of an instruction-set type, of accumulators, or of records."""
    size = math.prod(shape) * element_bytes(element)
    return Buffer(name, space, size, binds=binds, shape=shape, element=element)


Place = tuple[Buffer, int]
"""A buffer and an offset in its unit."""

BufferRange = tuple[Buffer, int, int]
"""A buffer, a first unit and an end unit. This is a plain tuple, because programs have very many ranges."""


@dataclass(eq=False, slots=True)
class Command:
    """One instruction before encoding.

    ``places``: the address fields. ``layer``: index of the tensor operation, or -1 for none.
    """

    immediates: Immediates
    places: dict[str, Place]
    layer: int = -1
    queue: Queue = Queue.FETCH
    waits: tuple[int, ...] = ()
    posts: tuple[int, ...] = ()

    @property
    def mnemonic(self) -> str:
        return self.immediates.mnemonic

    @property
    def values(self) -> Mapping[str, int]:
        """Fields that are not addresses. Fields with value 0 may be missing."""
        return self.immediates.values


def command(mnemonic: str, layer: int = -1, /, **fields: int | str | Place) -> Command:
    """Return a command. Fields are (buffer, offset) tuples, names of enum values, or integers."""
    places: dict[str, Place] = {}
    values: dict[str, int | str] = {}
    for name, value in fields.items():
        if isinstance(value, tuple):
            places[name] = value
        else:
            values[name] = value
    return placed(shared(mnemonic, values), places, layer)


def placed(immediates: Immediates, places: dict[str, Place], layer: int = -1) -> Command:
    """Return a command in the queue of its instruction."""
    queue = immediates.spec.queue
    return Command(immediates, places, layer, Queue.FETCH if queue is None else queue)


def buffers_of(commands: Sequence[Command]) -> Iterator[Buffer]:
    """Yield every buffer once, in order of first use."""
    seen: set[int] = set()
    for item in commands:
        for buffer, _ in item.places.values():
            if id(buffer) not in seen:
                seen.add(id(buffer))
                yield buffer


def spans(places: Mapping[str, Place], area: Area) -> Iterator[BufferRange]:
    """Yield the buffer ranges of ``area``: two if it wraps around in a ring, else one."""
    buffer, start = places[area.field]
    size, ring = area.size, area.ring
    if ring is not None:
        home, base = places[ring[0]]
        end = base + ring[1]
        if start + size > end:
            yield home, base, start + size - ring[1]
            size = end - start
    yield buffer, start, start + size
