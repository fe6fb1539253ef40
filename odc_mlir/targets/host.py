"""What operators cost on the machine beside the NPU, and what it costs to change over: data for the partitioner.

A target file has a table ``[host]``, or ``host = "NAME"`` for a description shipped in ``hosts/``; one that has
neither gets ``reference``. Host costs decide where operators run, never what is computed, so they are no part of a
target's identity.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Any

from odc_mlir.errors import TargetError

REFERENCE = "reference"
DEFAULT = "default"


@dataclasses.dataclass(frozen=True)
class HostCosts:
    """Nanoseconds of host kernels and of the way to the NPU and back.

    An operator takes ``operator_ns`` (``view_ns`` if it only shows the same bytes in another shape), plus
    ``element_ns`` of its kernel's family times the elements of its largest tensor, plus ``mac_ns`` of the operator
    times its multiply-accumulates. A segment takes ``switch_ns`` for starting it and being told of its end,
    ``tensor_ns`` for each input and output, and their bytes at ``transfer_bytes_per_us``.
    """

    description: str
    operator_ns: float
    view_ns: float
    switch_ns: float
    tensor_ns: float
    transfer_bytes_per_us: float
    element_ns: Mapping[str, float]
    mac_ns: Mapping[str, float]

    def transfer_ns(self, tensors: int, total_bytes: int) -> float:
        """Passing this many tensors to or from a segment."""
        return self.tensor_ns * tensors + 1000 * total_bytes / self.transfer_bytes_per_us

    def to_dict(self) -> dict[str, Any]:
        """What :func:`parse_host` reads."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {key: dict(value) if isinstance(value, Mapping) else value for key, value in fields.items()}

    def of_element(self, family: str) -> float:
        """``element_ns`` of a family of kernels."""
        return self.element_ns.get(family, self.element_ns[DEFAULT])

    def of_mac(self, operator: str) -> float:
        """``mac_ns`` of an operator."""
        return self.mac_ns.get(operator, self.mac_ns[DEFAULT])


def load_host(name: str, location: str) -> HostCosts:
    """The shipped description called ``name``; ``location`` names who asks in errors (TargetError)."""
    folder = resources.files(__package__) / "hosts"
    known = sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))
    if name not in known:
        raise TargetError(f"key 'host' names {name!r}, known: {', '.join(known)}", location=location)
    text = (folder / f"{name}.toml").read_text("utf-8")
    return parse_host(tomllib.loads(text), f"{name}.toml")


def parse_host(table: Any, location: str) -> HostCosts:
    """The costs in a table, or in the shipped description that a string names; raises TargetError."""
    if isinstance(table, str):
        return load_host(table, location)
    if not isinstance(table, Mapping):
        raise TargetError("key 'host' must be a table or the name of a host", location=location)
    names = [field.name for field in dataclasses.fields(HostCosts)]
    for key in table:
        if key not in names:
            raise TargetError(f"unknown key 'host.{key}'", location=location)
    for key in names:
        if key not in table:
            raise TargetError(f"missing key 'host.{key}'", location=location)
    values = {key: _value(table[key], f"host.{key}", location) for key in names if key != "description"}
    if values["transfer_bytes_per_us"] == 0:
        raise TargetError("key 'host.transfer_bytes_per_us' must be above 0", location=location)
    return HostCosts(description=str(table["description"]), **values)


def _value(value: Any, path: str, location: str) -> Any:
    if path.rpartition(".")[2] in ("element_ns", "mac_ns"):
        if not isinstance(value, Mapping) or DEFAULT not in value:
            raise TargetError(f"key {path!r} must be a table with an entry {DEFAULT!r}", location=location)
        return MappingProxyType({key: _number(item, f"{path}.{key}", location) for key, item in value.items()})
    return _number(value, path, location)


def _number(value: Any, path: str, location: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise TargetError(f"key {path!r} has the value {value!r}, expected a number from 0", location=location)
    return float(value)
