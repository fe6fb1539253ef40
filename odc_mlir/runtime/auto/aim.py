"""What a session compiles for: a target that was named, or what this machine has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odc_mlir.codegen.features import HINT
from odc_mlir.errors import UnsupportedError
from odc_mlir.plugins import registry
from odc_mlir.plugins.fingerprint import fingerprint
from odc_mlir.plugins.target import choose
from odc_mlir.runtime.devices import attached, runs_here

AUTO = "auto"
"""The target of settings that leave it to us."""


@dataclass(frozen=True, slots=True)
class Aim:
    """``name``: as users know it; ``plugin`` compiles, for ``machine`` where one is named.

    ``takes_floats``: the model itself can be compiled; ``takes_codes``: what is quantised of it. ``is_measured``: what
    is made must be faster here, which is no question where the hardware is simulated, or not here. ``facts`` tell one
    target from another: the plugin, its version and files, and the machine.
    """

    name: str
    plugin: str
    machine: str | None
    takes_floats: bool
    takes_codes: bool
    is_measured: bool
    facts: tuple[str, ...]


def aim_at(name: str) -> Aim:
    """What ``name``, a setting, stands for here; raises OdcError, and UnsupportedError where there is nothing."""
    if name == AUTO:
        name = next((target for target, _ in attached()), "")
        if not name:
            raise UnsupportedError(
                "no device reports itself, and there is no code generator for the processor", hint=HINT
            )
    found = choose(name)
    description = found.description
    identity = () if description is None else description.identity(found.machine)
    return Aim(
        name,
        found.codegen,
        found.machine,
        description is not None and description.takes_floats,
        description is None or description.scheme is not None,
        description is not None and runs_here(description.extension),
        tuple(target_facts(found.codegen, identity)),
    )


def target_facts(plugin: str, identity: Sequence[str]) -> list[str]:
    """The plugin, its version and files, and what its target says of the machine; raises OdcError without a plugin."""
    source = registry.find(plugin)
    return [plugin, source.origin, fingerprint(source), *identity]
