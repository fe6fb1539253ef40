"""What a target is: what a package outside says of its hardware, and what ``npu`` and ``cpu`` say of theirs.

A target is an entry of the group ``odc_mlir.targets`` that names a function without parameters, which gives a
:class:`TargetDescription`. What is expensive in it is behind functions: a description is read in the application's own
process, to choose and to explain, while everything that compiles runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np

from odc_mlir.errors import OdcError, OptionError, TargetError
from odc_mlir.ops.spec import Node
from odc_mlir.plugins import registry
from odc_mlir.plugins.registry import SUFFIX, TARGETS, PluginSource
from odc_mlir.targets.host import HostCosts, parse_host

FLOAT = "float"
"""Among the schemes of a target: models as they are, of real numbers."""
LONGEST_NS = 1e15  # of one operator, eleven days: sums over a model have room in 64 bits


class Rules(Protocol):
    """What a target can run."""

    def reason_against(self, node: Node) -> str | None:
        """Why an operator stays on the host, as ``rule: what was seen``; None where the target runs it."""

    def lines(self) -> Iterator[str]:
        """The rules as text for people."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``text`` says what must hold; ``check`` returns None where it does, else what was seen instead."""

    name: str
    text: str
    check: Callable[[Node], str | None]


@dataclass(frozen=True)
class RuleTable:
    """Rules as a table: of every operator, then of the operator. One that has no entry stays on the host."""

    generic: tuple[Rule, ...]
    operators: Mapping[str, tuple[Rule, ...]]

    def reason_against(self, node: Node) -> str | None:
        """The first rule that does not hold, and what it saw; raises TargetError for a check that fails."""
        own = self.operators.get(node.spec.name)
        if own is None:
            return f"operator: the target has no {node.spec.name}"
        for rule in (*self.generic, *own):
            with _said_by(f"rule {rule.name!r}", node):
                seen = _reason(rule.check(node))
            if seen is not None:
                return f"{rule.name}: {seen}"
        return None

    def lines(self) -> Iterator[str]:
        """One line per operator, and below it one per rule."""
        for name, rules in (("every operator", self.generic), *sorted(self.operators.items())):
            yield name
            yield from (f"  {rule.name}: {rule.text}" for rule in rules)


@dataclass(frozen=True)
class Costs:
    """What decides whether a segment pays: ``operator_ns`` of one operator on the target, ``host`` of everything else.

    A segment takes the sum of its operators, the way there and back, and the tensors that cross.
    """

    operator_ns: Callable[[Node], float]
    host: HostCosts


@dataclass(frozen=True, slots=True)
class SegmentModel:
    """A segment to be compiled: ``model`` is a Circle file of its operators, with its inputs and outputs in order."""

    name: str
    model: bytes


def reason_against(rules: Rules, node: Node, target: str) -> str | None:
    """What the ``rules`` of ``target`` say of an operator; TargetError where that is neither None nor text."""
    with _said_by("its rules", node, target):
        return _reason(rules.reason_against(node))


def operator_ns(costs: Costs, node: Node, target: str) -> float:
    """What an operator takes on ``target``; raises TargetError for what is no time."""
    with _said_by("operator_ns", node, target):
        found: object = costs.operator_ns(node)
        if (
            isinstance(found, bool)
            or not isinstance(found, int | float | np.integer | np.floating)
            or not 0 <= found <= LONGEST_NS
        ):
            raise _UnusableError(f"{found!r}, expected nanoseconds from 0 to {LONGEST_NS:g}")
    return float(found)


def check_costs(costs: object, target: str) -> Costs | None:
    """What ``target`` gives as costs, None where it has none; raises TargetError for what are none."""
    if costs is None:
        return None
    location = f"target {target}"
    if not isinstance(costs, Costs):
        raise TargetError(f"costs are {costs!r}, expected Costs or None", location=location)
    if not callable(costs.operator_ns):
        raise TargetError(
            f"operator_ns is {costs.operator_ns!r}, expected a function of an operator", location=location
        )
    if not isinstance(costs.host, HostCosts):
        raise TargetError(f"the host of the costs is {costs.host!r}, expected HostCosts", location=location)
    parse_host(costs.host.to_dict(), location)
    return costs


def _reason(answer: object) -> str | None:
    if answer is None or (isinstance(answer, str) and answer):
        return answer
    raise _UnusableError(f"{answer!r}, expected None or text")


class _UnusableError(Exception):
    """What another package's code gives is not what was asked for; says both."""


@contextmanager
def _said_by(what: str, node: Node | None, target: str | None = None) -> Iterator[None]:
    """Asking code of another package: what goes wrong is told with the part and target that it comes from."""
    op = None if node is None else node.spec.name
    location = None if target is None else f"target {target}"
    try:
        yield
    except MemoryError:
        raise
    except _UnusableError as error:
        raise TargetError(f"{what} gives {error}", op=op, location=location) from error
    except OdcError as error:
        if error.location is None and error.op is None:
            raise TargetError(f"{what}: {error.message}", op=op, location=location, hint=error.hint) from error
        error.location = error.location or location
        raise
    except Exception as error:
        text = f"{what} raises {type(error).__name__}: {error}"
        raise TargetError(text, op=op, location=location) from error


def _no_machines() -> tuple[str, ...]:
    return ()


def _no_identity(_machine: str | None) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class TargetDescription:
    """One kind of hardware.

    ``extension``: of the files of its segments; the codegen plugin ``<extension>-gen`` makes them and the device of
    that name runs them. ``schemes``: what it likes models in, best first, FLOAT among them where it runs real numbers.
    ``rules`` and ``costs`` are asked for a machine (None: the only one). ``machines``: names of single machines that
    ``--target`` takes, ``machine_files``: paths of descriptions as well. ``identity``: what must be the same for
    something compiled to be of use, beside the plugin itself.
    """

    name: str
    extension: str
    schemes: tuple[str, ...]
    rules: Callable[[str | None], Rules]
    costs: Callable[[str | None], Costs | None] = lambda _machine: None
    machines: Callable[[], Sequence[str]] = _no_machines
    machine_files: str | None = None
    identity: Callable[[str | None], Sequence[str]] = _no_identity
    summary: str = ""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def rules_of(self, machine: str | None) -> Rules:
        """The rules of a machine; raises TargetError where they cannot be had."""
        with _said_by("rules", None, machine or self.name):
            return self.rules(machine)

    def costs_of(self, machine: str | None) -> Costs | None:
        """The costs of a machine, looked at; raises TargetError."""
        with _said_by("costs", None, machine or self.name):
            found = self.costs(machine)
        return check_costs(found, machine or self.name)

    @property
    def codegen(self) -> str:
        """The plugin that compiles for it."""
        return f"{self.extension}{SUFFIX}"

    @property
    def scheme(self) -> str | None:
        """The scheme that models are to be quantised in; None where it runs real numbers alone."""
        return next((scheme for scheme in self.schemes if scheme != FLOAT), None)

    @property
    def takes_floats(self) -> bool:
        """Whether it runs models of real numbers."""
        return FLOAT in self.schemes


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a name stands for: the plugin that compiles, and the machine where one was named.

    ``description`` is None for a codegen plugin that no target is described for.
    """

    codegen: str
    machine: str | None
    description: TargetDescription | None


def described() -> Iterator[tuple[PluginSource, TargetDescription | OptionError]]:
    """Every target, ours first; what cannot be used is the error instead."""
    for source in sorted(registry.entries(TARGETS), key=lambda item: not item.is_ours):
        try:
            found = registry.load_entry(source)
            if not isinstance(found, TargetDescription):
                raise OptionError(f"{source.target!r} of {source.origin} returns {type(found).__name__}, not a target")
        except OptionError as error:
            yield source, error
        else:
            yield source, found


def choose(name: str) -> Chosen:
    """What ``name`` stands for: a target, one of its machines, a file of one, or a codegen plugin.

    Raises OptionError, listing what there is.
    """
    if name.endswith(SUFFIX):
        registry.extension_of(name)
        return Chosen(name, None, next((found for found in _usable() if found.codegen == name), None))
    known: list[str] = []
    for found in _usable():
        machines = tuple(found.machines())
        is_file = found.machine_files is not None and name.endswith(found.machine_files)
        if name == found.name or name in machines or is_file:
            named = None if name == found.name and name not in machines else name
            return Chosen(found.codegen, named, found)
        known += [found.name, *machines]
    raise OptionError(
        f"unknown target {name!r}", hint=f"use one of {', '.join(known)}, a .toml file, or a plugin such as npu{SUFFIX}"
    )


def _usable() -> Iterator[TargetDescription]:
    return (found for _, found in described() if isinstance(found, TargetDescription))
