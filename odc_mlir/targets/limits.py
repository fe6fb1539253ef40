"""What the numbers of a target must at least and may at most be, each with its reason.

A description that is well formed but that no machine could be built from, or for which programs would be endless, is
refused when it is read. The reasons are the instruction set's (widths of its fields, sizes of its records) and the
array's (what one step of it works on).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from odc_mlir.errors import TargetError
from odc_mlir.isa.fields import (
    ACCUMULATOR_BITS,
    FULL_RECORD_BYTES,
    LUT_ENTRIES,
    OFFSET_BITS,
    REGION_ALIGNMENT_BYTES,
    SEMAPHORES,
    Kind,
)
from odc_mlir.isa.instructions import BY_MNEMONIC, MOST_COMPACT_BYTES

if TYPE_CHECKING:
    from odc_mlir.targets import Target

_LARGEST = 1 << 48


class TargetLimit(NamedTuple):
    """``key`` is in [least, most]; ``low`` and ``high`` say why."""

    key: str
    least: int = 1
    low: str = "nothing runs without it"
    most: int = _LARGEST
    high: str = "no such hardware exists"


def check_limits(target: Target, location: str) -> None:
    """Raise TargetError, naming key, value, limit and reason, for the first number that is out of its limits."""
    for name, port in (("sram", target.sram), ("offchip", target.offchip)):
        if port.burst_bytes < 1 or REGION_ALIGNMENT_BYTES % port.burst_bytes:
            raise TargetError(
                f"key '{name}.burst_bytes' is {port.burst_bytes}, it must be at least 1 and divide "
                f"{REGION_ALIGNMENT_BYTES}: regions are bound at multiples of that",
                location=location,
            )
    for limit in _limits(target):
        value: Any = reduce(getattr, limit.key.split("."), target)
        if value < limit.least:
            raise TargetError(
                f"key {limit.key!r} is {value}, it must be at least {limit.least}: {limit.low}", location=location
            )
        if value > limit.most:
            raise TargetError(
                f"key {limit.key!r} is {value}, it may be at most {limit.most}: {limit.high}", location=location
            )


def _limits(target: Target) -> Iterator[TargetLimit]:
    macs = target.array.macs_per_cycle
    narrowest = min(channels for _, channels in target.array.shapes)
    pixels = max(pixels for pixels, _ in target.array.shapes)
    entry = ACCUMULATOR_BITS // 8
    yield TargetLimit("clock_hz", most=1 << 40)
    yield from _ports(target)
    yield TargetLimit(
        "sram.capacity_bytes",
        target.local.tile_bytes,
        "the tile buffer is filled from it",
        1 << OFFSET_BITS,
        f"addresses have {OFFSET_BITS} bits",
    )
    yield TargetLimit(
        "local.tile_bytes",
        4 * macs,
        "two slots for inputs and two for results of one step of the array, a byte for each multiplier",
        *_addressable(Kind.TILE),
    )
    yield TargetLimit(
        "local.weight_bytes", 2 * macs, "two slots of a weight for each multiplier", *_addressable(Kind.WEIGHT)
    )
    yield TargetLimit(
        "local.accumulators", pixels, "one for each pixel of a step of the array", *_addressable(Kind.ACCUMULATOR)
    )
    yield TargetLimit(
        "local.accumulator_bytes", entry, why := f"an accumulator has {ACCUMULATOR_BITS} bits", entry, why
    )
    yield TargetLimit(
        "local.param_entries",
        2 * narrowest,
        "two slots of the narrowest array shape's channels",
        *_addressable(Kind.PARAM),
    )
    why = "a bias, a multiplier and an exponent"
    yield TargetLimit("local.param_entry_bytes", FULL_RECORD_BYTES, why, FULL_RECORD_BYTES, why)
    yield TargetLimit("local.table_bytes", LUT_ENTRIES, "one look-up table", *_addressable(Kind.TABLE))
    for key in ("tile_ports.read_bytes_per_cycle", "tile_ports.write_bytes_per_cycle", "tile_ports.fetch_bytes"):
        yield TargetLimit(key)
    for key in ("array.macs_per_cycle", "array.depthwise_rows", "array.accumulator_ports"):
        yield TargetLimit(key, most=1 << 16)
    yield TargetLimit("array.start_cycles", 0)
    yield from map(TargetLimit, ("vector.requant_lanes", "vector.reduce_lanes", "vector.softmax_elements_per_cycle"))
    yield from (
        TargetLimit(key, 0) for key in ("vector.start_cycles", "vector.softmax_start_cycles", "decoder.start_cycles")
    )
    yield TargetLimit("decoder.symbols_per_cycle")
    yield TargetLimit("fetch.queue_depth", most=1 << 16)
    yield from (
        TargetLimit(key, 0) for key in ("fetch.issue_cycles", "fetch.semaphore_cycles", "fetch.loop_buffer_bytes")
    )
    bursts = 2 * max(target.offchip.burst_bytes, target.sram.burst_bytes)
    yield TargetLimit(
        "fetch.buffer_bytes", max(bursts, 2 * MOST_COMPACT_BYTES), "two bursts and two instructions have to fit"
    )
    yield TargetLimit("dma.descriptors_in_flight", most=SEMAPHORES, high=f"there are {SEMAPHORES} semaphores")


def _ports(target: Target) -> Iterator[TargetLimit]:
    for name in ("sram", "offchip"):
        yield TargetLimit(f"{name}.bytes_per_cycle")
        yield TargetLimit(f"{name}.strict_outstanding_bursts")
        yield from (TargetLimit(f"{name}.{side}_latency_cycles", 0) for side in ("read", "write"))


def _addressable(kind: Kind) -> tuple[int, str]:
    """The most units that the addresses of instructions reach, and the reason."""
    bits = next(field.bits for spec in BY_MNEMONIC.values() for field in spec.fields if field.kind is kind)
    return 1 << bits, f"addresses in instructions have {bits} bits"
