"""NPU hardware as data: one TOML file per target, loaded strictly into frozen records.

``odc_mlir.targets.load`` accepts the name of a shipped target, such as "npu-256", or the path of a target file.
Unknown, missing and mistyped keys raise TargetErrors with file and key.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache, cached_property, lru_cache, reduce
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_type_hints

from odc_mlir.errors import TargetError, parsing
from odc_mlir.isa import fields
from odc_mlir.isa.container import ELEMENT_BYTES
from odc_mlir.isa.fields import Kind
from odc_mlir.isa.instructions import BY_MNEMONIC, MOST_COMPACT_BYTES
from odc_mlir.targets import costs
from odc_mlir.targets.costs import EnergyCosts, HostCosts

MemoryMode = Literal["flash", "sram"]
MEMORY_MODES: tuple[MemoryMode, ...] = ("flash", "sram")
ELEMENT_TYPES = ("int8", "uint8", "int16")
"""Element types of codes."""
TRUTH_TYPE = "bool"
"""Element type of truths: bytes of 0 or 1."""
NUMBER_TYPES = tuple(name for name in ELEMENT_BYTES if name not in (*ELEMENT_TYPES, TRUTH_TYPE))
"""Element types of results that are indices, not codes."""

_FOLDER = Path(__file__).parent
_MAX_FILE_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class MemoryPort:
    """A memory port. It is read-only if ``write_latency_cycles`` is 0."""

    bytes_per_cycle: int
    burst_bytes: int
    read_latency_cycles: int
    write_latency_cycles: int
    strict_outstanding_bursts: int


@dataclasses.dataclass(frozen=True)
class Sram(MemoryPort):
    capacity_bytes: int


@dataclasses.dataclass(frozen=True)
class Local:
    """Local memories: tile, weight, accumulator, parameter and table buffers."""

    tile_bytes: int
    weight_bytes: int
    accumulators: int
    accumulator_bytes: int
    param_entries: int
    param_entry_bytes: int
    table_bytes: int

    @property
    def total_bytes(self) -> int:
        accumulators, params = self.accumulators * self.accumulator_bytes, self.param_entries * self.param_entry_bytes
        return self.tile_bytes + self.weight_bytes + accumulators + params + self.table_bytes


@dataclasses.dataclass(frozen=True)
class TilePorts:
    read_bytes_per_cycle: int
    write_bytes_per_cycle: int
    fetch_bytes: int


@dataclasses.dataclass(frozen=True)
class MacArray:
    """Array of multipliers. An instruction selects one of ``shapes``, pixels x channels computed per step."""

    macs_per_cycle: int
    shapes: tuple[tuple[int, int], ...]
    depthwise_shape: tuple[int, int]
    depthwise_rows: int
    start_cycles: int
    accumulator_ports: int


@dataclasses.dataclass(frozen=True)
class Vector:
    requant_lanes: int
    reduce_lanes: int
    start_cycles: int
    softmax_elements_per_cycle: int
    softmax_start_cycles: int


@dataclasses.dataclass(frozen=True)
class WeightDecoder:
    symbols_per_cycle: int
    start_cycles: int


@dataclasses.dataclass(frozen=True)
class Fetch:
    queue_depth: int
    issue_cycles: int
    semaphore_cycles: int
    buffer_bytes: int
    loop_buffer_bytes: int


@dataclasses.dataclass(frozen=True)
class Dma:
    descriptors_in_flight: int


@dataclasses.dataclass(frozen=True)
class Target:
    """One NPU. Sizes are in bytes, times in cycles of ``clock_hz``.

    ``compares_with`` is a commercial part with the same ports, multipliers and memories, or "". ``host`` and ``energy``
    are not part of the target's identity.
    """

    name: str
    version: int
    compares_with: str
    clock_hz: int
    sram: Sram
    offchip: MemoryPort
    local: Local
    tile_ports: TilePorts
    array: MacArray
    vector: Vector
    decoder: WeightDecoder
    fetch: Fetch
    dma: Dma
    host: HostCosts = dataclasses.field(compare=False, repr=False)
    energy: EnergyCosts = dataclasses.field(compare=False, repr=False)

    @property
    def weight_forms(self) -> Mapping[str, str]:
        """Preferred form of weights by quantisation scheme.

        An instruction has a single zero point for weights. Most layers with a zero point per channel stay on the host.
        """
        return {"uint8": "symmetric"}

    @cached_property
    def canonical(self) -> str:
        """Canonical JSON text of the complete description."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.compare}
        return json.dumps(values, default=dataclasses.asdict, sort_keys=True, separators=(",", ":"))

    def digest(self, memory: MemoryMode) -> bytes:
        """Return the SHA-256 of the canonical text and the memory mode. Binaries store it for comparison."""
        return hashlib.sha256(f"{self.canonical}|{memory}".encode()).digest()


@cache
def names() -> tuple[str, ...]:
    """Return the names of the shipped targets."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.toml")))


def load(target: str | os.PathLike[str]) -> Target:
    """Load the target with this name or file. Raises TargetError."""
    text = str(target)
    if text in names():
        return parse((_FOLDER / f"{text}.toml").read_text("utf-8"), text)
    if not text.endswith(".toml"):
        raise TargetError(f"unknown target {text!r}", hint=f"use one of {', '.join(names())}, or a .toml file")
    try:
        found = parse(_read_file(text), text)
    except (OSError, ValueError) as error:
        raise TargetError(f"cannot read the target description: {error}", location=text) from error
    if found.name in names() and found != load(found.name):
        raise TargetError(f"a shipped target is called {found.name!r}", location=text, hint="choose another name")
    return found


def _read_file(path: str) -> str:
    # If O_NONBLOCK is missing, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TargetError("the target description is not a regular file", location=path)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > _MAX_FILE_BYTES:
        raise TargetError(f"the target description has more than {_MAX_FILE_BYTES} bytes", location=path)
    return data.decode()


def scaled(target: Target, percents: Mapping[str, int]) -> Target:
    """Return ``target`` with values of keys such as ``sram.bytes_per_cycle`` in percent. For shapes, pixels scale."""
    for key, percent in percents.items():
        part, _, name = key.partition(".")
        record: Any = getattr(target, part)
        value = _percentage(getattr(record, name), percent)
        target = dataclasses.replace(target, **{part: dataclasses.replace(record, **{name: value})})
    return target


def _percentage(value: Any, percent: int) -> Any:
    if not isinstance(value, tuple):
        return max(value * percent // 100, min(percent, 1))
    if isinstance(value[0], tuple):
        return tuple(_percentage(shape, percent) for shape in value)
    return _percentage(value[0], percent), *value[1:]


@lru_cache(maxsize=64)
def parse(text: str, location: str) -> Target:
    """Parse TOML ``text`` as a target. ``location`` names it in errors. Equal texts return the same object."""
    with parsing("not valid TOML", TargetError, location=location):
        document = tomllib.loads(text)
    return _target(document, location)


def from_canonical(text: str, location: str) -> Target:
    """Return the target with this :attr:`Target.canonical` text. ``location`` names it in errors."""
    with parsing("not a canonical target description", TargetError, location=location):
        document = json.loads(text)
    return _target(document, location)


def _target(document: Any, location: str) -> Target:
    target: Target = _record(Target, document, location, "")
    for pixels, channels in (*target.array.shapes, target.array.depthwise_shape):
        if pixels * channels != target.array.macs_per_cycle:
            count = target.array.macs_per_cycle
            raise TargetError(
                f"array shape {pixels}x{channels} does not use {count} multipliers",
                location=location,
                hint=_fitting_shapes(target.array, count),
            )
    if len(target.array.shapes) > 4:
        raise TargetError("at most 4 array shapes can be encoded", location=location)
    check_limits(target, location)
    return target


def _fitting_shapes(array: MacArray, count: int) -> str:
    """Return a remedy for shapes that do not use ``count`` multipliers: as many channels, and other pixels."""
    *shapes, depthwise = ([count // max(size, 1), size] for _, size in (*array.shapes, array.depthwise_shape))
    if any(pixels * size != count for pixels, size in (*shapes, depthwise)):
        return "pixels times channels must be macs_per_cycle"
    explored = f"odc-explore --vary array.macs_per_cycle={count} --best FILE.toml"
    return f"use shapes = {shapes} and depthwise_shape = {depthwise}, as {explored} does for a shipped machine"


def _record(cls: Any, value: Any, location: str, path: str) -> Any:
    if not isinstance(value, dict):
        raise TargetError(f"key {path.removesuffix('.')!r} must be a table", location=location)
    if cls is Target:
        value = {"compares_with": "", "host": costs.REFERENCE, "energy": costs.REFERENCE_ENERGY, **value}
    hints = get_type_hints(cls)
    costs.check_keys(value, hints, path, location)
    return cls(**{key: _value(hints[key], value[key], location, path + key) for key in hints})


def _value(hint: Any, value: Any, location: str, path: str) -> Any:
    if hint is HostCosts:
        return costs.parse_host(value, location)
    if hint is EnergyCosts:
        return costs.parse_energy(value, location)
    if dataclasses.is_dataclass(hint):
        return _record(hint, value, location, path + ".")
    if hint is str and isinstance(value, str):
        return value
    if hint is int and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if hint == tuple[int, int] and _is_pair(value):
        return tuple(value)
    if hint == tuple[tuple[int, int], ...] and isinstance(value, list) and value and all(map(_is_pair, value)):
        return tuple(tuple(pair) for pair in value)
    raise TargetError(f"key {path!r} has the value {value!r}, which has the wrong type", location=location)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(v) is int and v > 0 for v in value)


# Legal ranges of all numbers in a description. Most limits follow from the instruction set and from the array.

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
    """Raise TargetError, with key, value, limit and reason, for the first number out of range."""
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
    """Yield the limits of all numbers of ``target`` except ``burst_bytes``. Some depend on other numbers."""
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
    bits = next(field.bits for spec in BY_MNEMONIC.values() for field in spec.fields if field.kind is kind)
    return 1 << bits, f"addresses in instructions have {bits} bits"
