"""What a session compiles for: a target that was named, or what this machine has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from odc_mlir.codegen.features import HINT, has_code_generator
from odc_mlir.errors import UnsupportedError
from odc_mlir.plugins import registry
from odc_mlir.plugins.fingerprint import fingerprint
from odc_mlir.plugins.target import Chosen, RuleTable, choose
from odc_mlir.runtime.auto.original import is_quantized
from odc_mlir.runtime.devices import attached, open_device, runs_here
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.targets.cpu import HERE

_REASONS = 3  # that are told
AUTO = "auto"
"""The target of settings that leave it to us."""


@dataclass(frozen=True, slots=True)
class Aim:
    """``name``: as users know it; ``plugin`` compiles, for ``machine`` where one is named.

    ``takes_floats``: the model itself can be compiled; ``takes_codes``: what is quantised of it. ``is_measured``: what
    is made must be faster here, which is no question where the hardware is simulated, or not here. ``facts`` tell one
    target from another: the plugin, its version and files, and the machine. ``twin``: the same of what makes native
    code that may answer in a simulator's place, empty where nothing is simulated or nothing makes it. ``passed_over``:
    the better hardware that is here, each with the reason why it is not what is compiled for; ``others``: what else is
    here, to be aimed at where nothing can be built for this.
    """

    name: str
    plugin: str
    machine: str | None
    takes_floats: bool
    takes_codes: bool
    is_measured: bool
    facts: tuple[str, ...]
    passed_over: tuple[str, ...] = ()
    twin: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def key_facts(self) -> tuple[str, ...]:
        """Of everything that what is made follows from."""
        return (*self.facts, *self.twin)


def aim_at(name: str, graph: Graph | None = None) -> Aim:
    """What ``name``, a setting, stands for here; raises OdcError, and UnsupportedError where there is nothing.

    Hardware that runs nothing of ``graph`` is passed over where there is other hardware.
    """
    if name == AUTO:
        return aim_at_best([target for target, _ in attached()], graph)
    return _aim(name)


def aim_at_best(names: Sequence[str], graph: Graph | None) -> Aim:
    """The first of these targets that may run something of ``graph``; raises OdcError as :func:`aim_at`."""
    name, passed_over = _best_for(graph, names)
    return replace(_aim(name), passed_over=tuple(passed_over), others=tuple(names[names.index(name) + 1 :]))


def _aim(name: str) -> Aim:
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
        twin=() if description is None else _twin_of(description.extension),
    )


def _twin_of(extension: str) -> tuple[str, ...]:
    """What tells native code for the running machine from other code, where files of ``extension`` are simulated."""
    if not open_device(extension).simulated or not has_code_generator():
        return ()
    native = choose(HERE)
    identity = () if native.description is None else native.description.identity(native.machine)
    return tuple(target_facts(native.codegen, identity))


def _best_for(graph: Graph | None, names: Sequence[str]) -> tuple[str, list[str]]:
    """The first target that may run something of ``graph``, and why those before do not; the first where none does."""
    if not names:
        raise UnsupportedError("no device was found, and there is no code generator for the processor", hint=HINT)
    if graph is None or len(names) == 1:
        return names[0], []
    passed_over: list[str] = []
    for name in names:
        try:
            reason = _why_nothing_runs(choose(name), graph)
        except Exception as error:  # whatever the rules of another package do, there are other targets
            reason = f"{type(error).__name__}: {error}"
        if reason is None:
            return name, passed_over
        passed_over.append(f"{name} is not compiled for: {reason}")
    return names[0], []


def _why_nothing_runs(chosen: Chosen, graph: Graph) -> str | None:
    """Why the target runs no operator of ``graph``; None where it may, also because that is not known yet.

    What depends on types is known of models that stay as they are, and on shapes where these are given.
    """
    description = chosen.description
    rules = None if description is None else description.rules(chosen.machine)
    if description is None or not isinstance(rules, RuleTable):
        return None
    nodes = [item.node for item in graph.nodes]
    if not any(node.spec.name in rules.operators for node in nodes):
        return f"it has none of the model's operators, {', '.join(sorted({node.spec.name for node in nodes}))}"
    keeps_types = description.scheme is None or is_quantized(graph)
    if not keeps_types or any(info.shape is None or None in info.shape for info in graph.input_infos()):
        return None
    reasons = [rules.reason_against(node) for node in nodes]
    if None in reasons:
        return None
    return "it runs none of the model's operators: " + "; ".join(
        f"{node.spec.name}: {reason}" for node, reason in list(zip(nodes, reasons, strict=True))[:_REASONS]
    )


def target_facts(plugin: str, identity: Sequence[str]) -> list[str]:
    """The plugin, its version and files, and what its target says of the machine; raises OdcError without a plugin."""
    source = registry.find(plugin)
    return [plugin, source.origin, fingerprint(source), *identity]
