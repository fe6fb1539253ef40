"""Costs of operators on the host, of transfers to the NPU, and of energy.

A target file has tables ``[host]`` and ``[energy]``, or names of descriptions in ``hosts/`` and ``energies/`` (default:
``reference`` and ``22nm``). The key ``like`` extends a shipped description. Costs affect the placement of operators but
no results. They are therefore not part of a target's identity.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from odc_mlir.errors import TargetError

REFERENCE = "reference"
DEFAULT = "default"

_LARGEST = 1e12  # limit on nanoseconds, picojoules, bytes per microsecond
_LEAST_RATE = 1e-6


@dataclasses.dataclass(frozen=True)
class HostCosts:
    """Costs of host kernels, and of transfers to the NPU and back, in ns.

    An operator takes ``start_ns``, plus ``element_ns`` per element (of the largest tensor, or of the patches of a
    convolution), plus ``mac_ns`` per multiply-accumulate. An operator that only changes the shape takes its own
    ``start_ns``, or else ``view_ns``. Tables have entries for operators and for families of kernels, with the suffix
    ``-codes`` for quantised operators. The operator's entry has priority over the family's. If both are missing,
    ``operator_ns`` and the tables' ``default`` apply. A segment takes ``switch_ns`` for start and end, ``tensor_ns``
    for each input and output, and the bytes of these tensors divided by ``transfer_bytes_per_us``.
    """

    description: str
    operator_ns: float
    view_ns: float
    switch_ns: float
    tensor_ns: float
    transfer_bytes_per_us: float
    element_ns: Mapping[str, float]
    mac_ns: Mapping[str, float]
    start_ns: Mapping[str, float] = dataclasses.field(default_factory=lambda: MappingProxyType({}))

    def transfer_ns(self, tensors: int, total_bytes: int) -> float:
        """Return the time to pass tensors to or from a segment."""
        return self.tensor_ns * tensors + 1000 * total_bytes / self.transfer_bytes_per_us

    def of_kernel(self, names: tuple[str, ...], is_view: bool, elements: int, macs: int) -> float:
        """Return the time of one run of a kernel, by the first of ``names`` with an entry."""
        if is_view:
            return _found(self.start_ns, names[:1], self.view_ns)
        start = _found(self.start_ns, names, self.operator_ns)
        element = _found(self.element_ns, names, self.element_ns[DEFAULT])
        return start + element * elements + _found(self.mac_ns, names, self.mac_ns[DEFAULT]) * macs

    def restricted_to(self, names: Collection[str]) -> HostCosts:
        """Return the costs with entries for the kernels ``names`` only."""
        kept: dict[str, Any] = {
            key: MappingProxyType({name: cost for name, cost in table.items() if name in (*names, DEFAULT)})
            for key in _TABLES
            if (table := getattr(self, key))
        }
        return dataclasses.replace(self, **kept)

    def to_dict(self) -> dict[str, Any]:
        """Return the table, as :func:`parse_host` accepts it."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {key: dict(value) if isinstance(value, Mapping) else value for key, value in fields.items()}


_TABLES = ("start_ns", "element_ns", "mac_ns")


def _found(table: Mapping[str, float], names: tuple[str, ...], default: float) -> float:
    for suffix in ("", "-codes"):
        for name in names:
            if (cost := table.get(name.removesuffix(suffix))) is not None:
                return cost
    return default


def load_host(name: str, location: str) -> HostCosts:
    """Load the shipped description called ``name``. ``location`` names the reader in errors (TargetError)."""
    return parse_host(_shipped("host", "hosts", name, location), f"{name}.toml")


def _shipped(key: str, folder: str, name: str, location: str) -> dict[str, Any]:
    files = {file.stem: file for file in (Path(__file__).parent / folder).glob("*.toml")}
    if name not in files:
        raise TargetError(f"key {key!r} names {name!r}, known: {', '.join(sorted(files))}", location=location)
    return tomllib.loads(files[name].read_text("utf-8"))


def check_keys(table: Mapping[str, Any], names: Collection[str], path: str, location: str) -> None:
    """Raise TargetError for the first unknown or missing key, with the prefix ``path``."""
    for key in (*table, *names):
        if key not in table or key not in names:
            raise TargetError(f"{'unknown' if key in table else 'missing'} key {path + key!r}", location=location)


def parse_host(table: Any, location: str) -> HostCosts:
    """Parse a table of costs, or load the shipped description called ``table``. Raises TargetError."""
    if isinstance(table, str):
        return load_host(table, location)
    if not isinstance(table, Mapping):
        raise TargetError("key 'host' must be a table or the name of a host", location=location)
    if "like" in table:
        return _like(table, location)
    table = {"start_ns": {}, **table}
    check_keys(table, [field.name for field in dataclasses.fields(HostCosts)], "host.", location)
    values = {key: _value(value, f"host.{key}", location) for key, value in table.items() if key != "description"}
    return HostCosts(description=str(table["description"]), **values)


def _like(table: Mapping[str, Any], location: str) -> HostCosts:
    """Return the costs of the host ``like`` with kernel times multiplied by ``times``. Other keys override."""
    base = load_host(str(table["like"]), location)
    times = number_of(table.get("times", 1), "host.times", location)
    slower: dict[str, Any] = {
        key: MappingProxyType({n: v * times for n, v in getattr(base, key).items()}) for key in _TABLES
    }
    scaled = dataclasses.replace(base, operator_ns=base.operator_ns * times, view_ns=base.view_ns * times, **slower)
    rest = {key: value for key, value in table.items() if key not in ("like", "times")}
    return parse_host(scaled.to_dict() | rest, location)


def _value(value: Any, path: str, location: str) -> Any:
    if path.rpartition(".")[2] in _TABLES:
        if not isinstance(value, Mapping) or (DEFAULT not in value and path != "host.start_ns"):
            raise TargetError(f"key {path!r} must be a table with an entry {DEFAULT!r}", location=location)
        return MappingProxyType({key: number_of(item, f"{path}.{key}", location) for key, item in value.items()})
    return number_of(value, path, location, _LEAST_RATE if path == "host.transfer_bytes_per_us" else 0)


def number_of(value: Any, path: str, location: str, least: float = 0) -> float:
    """Return ``value`` as a float. Raises TargetError if it is not a number from ``least`` to 1e12.

    The upper limit keeps sums and products over whole models finite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= _LARGEST:
        allowed = f"a number from {least:g} to {_LARGEST:g}"
        raise TargetError(f"key {path!r} has the value {value!r}, expected {allowed}", location=location)
    return float(value)


REFERENCE_ENERGY = "22nm"
_NUMBERS = ("value", "low", "high")


@dataclasses.dataclass(frozen=True)
class EnergyFigure:
    """An energy figure with bounds ``low`` and ``high``, and a source."""

    value: float
    low: float
    high: float
    source: str


@dataclasses.dataclass(frozen=True)
class EnergyCosts:
    """Energy per action in pJ, and background power."""

    description: str
    mac_pj: EnergyFigure
    requantisation_pj: EnergyFigure
    tile_byte_pj: EnergyFigure
    weight_byte_pj: EnergyFigure
    accumulator_entry_pj: EnergyFigure
    sram_byte_pj: EnergyFigure
    offchip_byte_pj: EnergyFigure
    background_mw: EnergyFigure


FIGURES = tuple(field.name for field in dataclasses.fields(EnergyCosts) if field.name != "description")


def parse_energy(table: Any, location: str) -> EnergyCosts:
    """Parse a table of figures, or load the shipped description called ``table``. Raises TargetError."""
    if isinstance(table, str):
        return parse_energy(_shipped("energy", "energies", table, location), f"{table}.toml")
    if not isinstance(table, Mapping):
        raise TargetError("key 'energy' must be a table or the name of one", location=location)
    if "like" in table:
        base = _shipped("energy", "energies", str(table["like"]), location)
        table = base | {key: value for key, value in table.items() if key != "like"}
    check_keys(table, ("description", *FIGURES), "energy.", location)
    figures = {key: _figure(table[key], f"energy.{key}", location) for key in FIGURES}
    return EnergyCosts(description=str(table["description"]), **figures)


def _figure(value: Any, path: str, location: str) -> EnergyFigure:
    if not isinstance(value, Mapping) or set(value) != {*_NUMBERS, "source"} or not isinstance(value["source"], str):
        raise TargetError(f"key {path!r} must have exactly value, low, high and source", location=location)
    found, low, high = (number_of(value[name], f"{path}.{name}", location) for name in _NUMBERS)
    if not low <= found <= high:
        raise TargetError(f"key {path!r} has a value that is not between low and high", location=location)
    return EnergyFigure(found, low, high, value["source"])
