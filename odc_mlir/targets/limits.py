"""Legal range of every number in a target description, with the reason for each limit.

The reader refuses well-formed descriptions of machines that cannot be built, or for which programs or simulations would
never end. Most limits follow from the instruction set (widths of fields, sizes of records) and from the array (the
operands of one step).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from odc_mlir.errors import TargetError
from odc_mlir.isa import fields
from odc_mlir.isa.fields import Kind
from odc_mlir.isa.instructions import BY_MNEMONIC, MOST_COMPACT_BYTES

if TYPE_CHECKING:
    from odc_mlir.targets import Target

_LARGEST = 1 << 16


class TargetLimit(NamedTuple):
    """Legal range [least, most] of the number ``key``, with the reasons ``low`` and ``high``."""

    key: str
    least: int = 1
    low: str = "nothing runs without it"
    most: int = _LARGEST
    high: str = "no such hardware exists"


_AT_LEAST_ONE = (
    *("sram.bytes_per_cycle", "sram.strict_outstanding_bursts"),
    *("offchip.bytes_per_cycle", "offchip.strict_outstanding_bursts"),
    *("tile_ports.read_bytes_per_cycle", "tile_ports.write_bytes_per_cycle", "tile_ports.fetch_bytes"),
    *("array.macs_per_cycle", "array.depthwise_rows", "array.accumulator_ports"),
    *("vector.requant_lanes", "vector.reduce_lanes", "vector.softmax_elements_per_cycle"),
    *("decoder.symbols_per_cycle", "fetch.queue_depth"),
)
_ZERO_ALLOWED = (
    *("sram.read_latency_cycles", "sram.write_latency_cycles"),
    *("offchip.read_latency_cycles", "offchip.write_latency_cycles"),
    *("array.start_cycles", "vector.start_cycles", "vector.softmax_start_cycles", "decoder.start_cycles"),
    *("fetch.issue_cycles", "fetch.semaphore_cycles"),
)


def check_limits(target: Target, location: str) -> None:
    """Raise TargetError for the first number out of its range; it names key, value, limit and reason."""
    for name, port in (("sram", target.sram), ("offchip", target.offchip)):
        if port.burst_bytes < 1 or fields.REGION_ALIGNMENT_BYTES % port.burst_bytes:
            raise TargetError(
                f"key '{name}.burst_bytes' is {port.burst_bytes}, it must be at least 1 and divide "
                f"{fields.REGION_ALIGNMENT_BYTES}: regions are bound at multiples of that",
                location=location,
            )
    for limit in limits(target):
        value: Any = reduce(getattr, limit.key.split("."), target)
        if value < limit.least:
            raise TargetError(
                f"key {limit.key!r} is {value}, it must be at least {limit.least}: {limit.low}", location=location
            )
        if value > limit.most:
            raise TargetError(
                f"key {limit.key!r} is {value}, it may be at most {limit.most}: {limit.high}", location=location
            )


def limits(target: Target) -> Iterator[TargetLimit]:
    """Return the limits of all numbers of ``target`` except ``burst_bytes``; some depend on other numbers."""
    macs = target.array.macs_per_cycle
    narrowest = min(channels for _, channels in target.array.shapes)
    pixels = max(pixels for pixels, _ in target.array.shapes)
    entry = fields.ACCUMULATOR_BITS // 8
    yield TargetLimit("version", 0, most=(1 << 32) - 1, high="versions have 32 bits")
    yield TargetLimit("clock_hz", most=1 << 40)
    yield from map(TargetLimit, _AT_LEAST_ONE)
    yield from (TargetLimit(key, 0) for key in _ZERO_ALLOWED)
    yield TargetLimit(
        "local.tile_bytes",
        4 * macs,
        "two slots for inputs and two for results of one step of the array, a byte for each multiplier",
        *_addressable(Kind.TILE),
    )
    yield TargetLimit(
        "sram.capacity_bytes",
        target.local.tile_bytes,
        "the tile buffer is filled from it",
        1 << fields.OFFSET_BITS,
        f"addresses have {fields.OFFSET_BITS} bits",
    )
    yield TargetLimit(
        "local.weight_bytes", 2 * macs, "two slots of a weight for each multiplier", *_addressable(Kind.WEIGHT)
    )
    yield TargetLimit(
        "local.accumulators", pixels, "one for each pixel of a step of the array", *_addressable(Kind.ACCUMULATOR)
    )
    yield TargetLimit(
        "local.accumulator_bytes", entry, why := f"an accumulator has {fields.ACCUMULATOR_BITS} bits", entry, why
    )
    yield TargetLimit(
        "local.param_entries",
        2 * narrowest,
        "two slots of the narrowest array shape's channels",
        *_addressable(Kind.PARAM),
    )
    why = "a bias, a multiplier and an exponent"
    yield TargetLimit("local.param_entry_bytes", fields.FULL_RECORD_BYTES, why, fields.FULL_RECORD_BYTES, why)
    yield TargetLimit("local.table_bytes", fields.LUT_ENTRIES, "one look-up table", *_addressable(Kind.TABLE))
    bits = next(field.bits for field in BY_MNEMONIC["loop"].fields if field.name == "body_bytes")
    why = f"instructions give the size of a loop in {bits} bits"
    yield TargetLimit("fetch.loop_buffer_bytes", 0, most=(1 << bits) - 1, high=why)
    bursts = 2 * max(target.offchip.burst_bytes, target.sram.burst_bytes)
    least = max(bursts, 2 * MOST_COMPACT_BYTES)
    yield TargetLimit("fetch.buffer_bytes", least, "two bursts and two instructions have to fit", 1 << 24)
    yield TargetLimit(
        "dma.descriptors_in_flight", most=fields.SEMAPHORES, high=f"there are {fields.SEMAPHORES} semaphores"
    )


def _addressable(kind: Kind) -> tuple[int, str]:
    """Return the largest number of units that instructions can address, and the reason."""
    bits = next(field.bits for spec in BY_MNEMONIC.values() for field in spec.fields if field.kind is kind)
    return 1 << bits, f"addresses in instructions have {bits} bits"
