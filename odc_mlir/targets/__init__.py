"""NPU hardware as data: one TOML file per target, loaded strictly into frozen records.

``odc_mlir.targets.load("npu-256")`` or a path to a file of the same shape. Unknown, missing or mistyped keys are
TargetErrors that name file and key.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Mapping
from functools import cache, cached_property, lru_cache
from importlib import resources
from typing import Any, Literal, get_type_hints

from odc_mlir.errors import TargetError, parsing
from odc_mlir.targets import costs
from odc_mlir.targets.costs import EnergyCosts, HostCosts
from odc_mlir.targets.limits import check_limits

MemoryMode = Literal["flash", "sram"]
MEMORY_MODES: tuple[MemoryMode, ...] = ("flash", "sram")
ELEMENT_TYPES = ("int8", "uint8", "int16")
"""Element types of the instruction set."""

_MAX_FILE_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class MemoryPort:
    """A memory port. ``write_latency_cycles`` 0 means read only."""

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
    """``shapes``: pixels x channels computed per step, selectable per instruction."""

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
    """One NPU. Lengths in bytes, times in cycles of ``clock_hz``.

    ``compares_with`` names a commercial part with the same ports, multipliers and memories, or is empty.
    ``host`` and ``energy`` are no part of its identity.
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
    def element_types(self) -> tuple[str, ...]:
        """Return all element types that the machine computes."""
        return ELEMENT_TYPES

    @property
    def weight_forms(self) -> Mapping[str, str]:
        """Return, by scheme, the form of weights that the machine prefers.

        An instruction has one zero point for all its weights, so weights with one zero point per channel mostly stay on
        the host.
        """
        return {"uint8": "symmetric"}

    @cached_property
    def canonical(self) -> str:
        """Return canonical JSON text of everything that describes the NPU."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.compare}
        return json.dumps(values, default=dataclasses.asdict, sort_keys=True, separators=(",", ":"))

    def digest(self, memory: MemoryMode) -> bytes:
        """Return the SHA-256 of the canonical text and the memory mode, which binaries store for comparison."""
        return hashlib.sha256(f"{self.canonical}|{memory}".encode()).digest()


@cache
def names() -> tuple[str, ...]:
    """Return the names of the shipped targets."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")))


def load(target: str | os.PathLike[str]) -> Target:
    """Load the target with this name or file; raise TargetError."""
    text = str(target)
    if text in names():
        return parse((resources.files(__name__) / f"{text}.toml").read_text("utf-8"), text)
    if not text.endswith(".toml"):
        raise TargetError(f"unknown target {text!r}", hint=f"use one of {', '.join(names())}, or a .toml file")
    try:
        return parse(_read_file(text), text)
    except (OSError, ValueError) as error:
        raise TargetError(f"cannot read the target description: {error}", location=text) from error


def _read_file(path: str) -> str:
    """Read the text of a regular file; raise OSError, ValueError and TargetError."""
    # Opening a pipe without this flag would wait for a writer.
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


@lru_cache(maxsize=64)
def parse(text: str, location: str) -> Target:
    """Parse TOML ``text`` as a target; ``location`` names it in errors. Equal texts return the same object."""
    with parsing("not valid TOML", TargetError, location=location):
        document = tomllib.loads(text)
    return _target(document, location)


def from_canonical(text: str, location: str) -> Target:
    """Return the target with this :attr:`Target.canonical` text; ``location`` names it in errors."""
    with parsing("not a canonical target description", TargetError, location=location):
        document = json.loads(text)
    return _target(document, location)


def _target(document: Any, location: str) -> Target:
    target: Target = _record(Target, document, location, "")
    for pixels, channels in (*target.array.shapes, target.array.depthwise_shape):
        if pixels * channels != target.array.macs_per_cycle:
            raise TargetError(
                f"array shape {pixels}x{channels} does not use {target.array.macs_per_cycle} multipliers",
                location=location,
            )
    if len(target.array.shapes) > 4:
        raise TargetError("at most 4 array shapes can be encoded", location=location)
    check_limits(target, location)
    return target


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
