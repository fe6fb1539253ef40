"""Targets: descriptions of hardware, returned by entry points of the group ``odc_mlir.targets``.

Sessions and commands need only :class:`TargetFacts`. If the target is not ours, :func:`choose` gets the facts from a
separate process. A description is loaded into this process only if the user named the target.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from odc_mlir import processors
from odc_mlir.errors import OdcError, OptionError, TargetError, UnsupportedError, did_you_mean
from odc_mlir.formats.circle.model import EMPTY, LEFT_OUT, Model, Operator, Quantization, SubGraph, Tensor
from odc_mlir.ops.spec import Node
from odc_mlir.plugins import registry
from odc_mlir.plugins.foreign import Answer, call, load, probe, texts
from odc_mlir.plugins.registry import SUFFIX, TARGETS, PluginSource
from odc_mlir.targets.costs import HostCosts, parse_host

FLOAT = "float"
"""The scheme of float models."""
LONGEST_NS = 1e15  # limit on the time of one operator (eleven days), so that 64 bits hold sums over a model
T = TypeVar("T")


class Rules(Protocol):
    """Rules for the choice of operators that a target runs."""

    def reason_against(self, node: Node) -> str | None:
        """Return why an operator stays on the host, as ``rule: value seen``, or None if the target runs it."""

    def lines(self) -> Iterator[str]:
        """Yield the rules as text."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: ``text`` is the condition. ``check`` returns None if it holds, else the value seen."""

    name: str
    text: str
    check: Callable[[Node], str | None]


def _unknown_shape(node: Node) -> str | None:
    for info in (*node.operands, *node.results):
        if info is not None and (info.shape is None or None in info.shape):
            return f"the shape of {info.name!r} is not known"
    return None


STATIC_SHAPE = Rule("static-shape", "all shapes are known at compile time", _unknown_shape)
"""A rule that most targets have."""


@dataclass(frozen=True)
class RuleTable:
    """Table of rules: for every operator, and by operator. An operator that has no entry stays on the host."""

    generic: tuple[Rule, ...]
    operators: Mapping[str, tuple[Rule, ...]]

    def reason_against(self, node: Node) -> str | None:
        """Return the first violated rule with the value seen. Raises TargetError if a check fails."""
        own = self.operators.get(node.spec.name)
        if own is None:
            return f"operator: the target has no {node.spec.name}"
        for rule in (*self.generic, *own):
            with _asking(f"rule {rule.name!r}", node):
                seen = _reason(rule.check(node))
            if seen is not None:
                return f"{rule.name}: {seen}"
        return None

    def lines(self) -> Iterator[str]:
        """Yield a line per operator, followed by a line per rule of the operator."""
        for name, rules in (("every operator", self.generic), *sorted(self.operators.items())):
            yield name
            yield from (f"  {rule.name}: {rule.text}" for rule in rules)


@dataclass(frozen=True)
class Costs:
    """Cost model: ``operator_ns`` estimates an operator on the target, ``host`` all other times.

    The cost of a segment is the time of operators, of the switch to the target and back, and of transfers.
    """

    operator_ns: Callable[[Node], float]
    host: HostCosts


@dataclass(frozen=True, slots=True)
class SegmentModel:
    """A segment to compile: ``model`` is a Circle file of the operators, with inputs and outputs in order."""

    name: str
    model: bytes


def operator_model(node: Node) -> Model:
    """Return a model of one operator, for tools that judge models. The inputs are the operator's dynamic operands.

    Raises ModelError for unknown dimensions, UnsupportedError for control flow and constants in blocks.
    """
    graph, buffers, places = SubGraph("main"), [EMPTY], []
    for info in (*node.operands, *node.results):
        places.append(LEFT_OUT if info is None else len(graph.tensors))
        if info is None:
            continue
        if node.callees or info.blockwise is not None or info.foreign_quant:
            raise UnsupportedError(f"{node.spec.name} cannot be a separate model")
        quant = None
        if (found := info.quant) is not None:
            scales, zero_points = np.array(found.scales, np.float32), np.array(found.zero_points, np.int64)
            quant = Quantization(scales, zero_points, found.axis)
        shape, place = info.static_shape, 0 if info.data is None else len(buffers)
        buffers += [] if info.data is None else [info.data]
        graph.tensors.append(Tensor(f"t{len(graph.tensors)}", info.dtype, shape, None, place, quant))
        graph.tensors[-1].sparsity = info.sparsity
    given, made = tuple(places[: len(node.operands)]), tuple(places[len(node.operands) :])
    graph.inputs = tuple(i for i in given if i != LEFT_OUT and graph.tensors[i].buffer == 0)
    graph.outputs = made
    record = {"custom_code": node.custom_code, "custom_options": memoryview(node.custom_options)}
    fields: dict[str, Any] = {"options_type": node.spec.options, "options": dict(node.options), **record}
    graph.operators.append(Operator(node.spec.name, node.version, inputs=given, outputs=made, **fields))
    return Model(subgraphs=[graph], buffers=buffers)


def rules_reason(rules: Rules, node: Node, target: str) -> str | None:
    """Return the answer of ``rules`` for an operator. Raises TargetError if the answer is neither None nor text."""
    with _asking("its rules", node, target):
        return _reason(rules.reason_against(node))


def operator_ns(costs: Costs, node: Node, target: str) -> float:
    """Return the estimated time of an operator on ``target``. Raises TargetError for an invalid time."""
    with _asking("operator_ns", node, target):
        found: object = costs.operator_ns(node)
        if (
            isinstance(found, bool)
            or not isinstance(found, int | float | np.integer | np.floating)
            or not 0 <= found <= LONGEST_NS
        ):
            raise _UnusableError(f"{found!r}, expected nanoseconds from 0 to {LONGEST_NS:g}")
    return float(found)


def check_costs(costs: object, target: str) -> Costs | None:
    """Return the cost model of ``target``, or None if ``costs`` is None. Raises TargetError for an invalid model."""
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
    """Another package's code returned a value that the interface does not allow."""


@contextmanager
def _asking(part: str, node: Node | None, target: str | None = None) -> Iterator[None]:
    """Convert exceptions of another package's code to TargetErrors that name the part and the target."""
    op = None if node is None else node.spec.name
    location = None if target is None else f"target {target}"
    try:
        yield
    except MemoryError:
        raise
    except _UnusableError as error:
        raise TargetError(f"{part} gives {error}", op=op, location=location) from error
    except OdcError as error:
        if error.location is None and error.op is None:
            raise TargetError(f"{part}: {error.message}", op=op, location=location, hint=error.hint) from error
        error.location = error.location or location
        raise
    except (Exception, SystemExit) as error:
        text = f"{part} raises {type(error).__name__}: {error}"
        raise TargetError(text, op=op, location=location) from error


@dataclass(frozen=True)
class _Hardware:
    name: str
    extension: str
    schemes: tuple[str, ...]

    @property
    def codegen(self) -> str:
        """The plugin that compiles for the target."""
        return f"{self.extension}{SUFFIX}"

    @property
    def scheme(self) -> str | None:
        """The scheme to quantise models in, or None if the target runs only float models."""
        return next((scheme for scheme in self.schemes if scheme != FLOAT), None)

    @property
    def takes_floats(self) -> bool:
        """True if the target runs float models."""
        return FLOAT in self.schemes


@dataclass(frozen=True)
class TargetFacts(_Hardware):
    """The data of a :class:`TargetDescription`.

    ``machine``: the machine with the requested name, if any. ``identity``: inputs of compiled code, for cache keys
    """

    machines: tuple[str, ...]
    summary: str
    machine: str | None
    identity: tuple[str, ...] | None


@dataclass(frozen=True)
class TargetDescription(_Hardware):
    """One kind of hardware.

    ``extension``: file extension of segments. The codegen plugin ``<extension>-gen`` writes segments, and the device
    with this name runs segments. ``schemes``: schemes of models, best first, with FLOAT if it runs float models.
    ``rules`` and ``costs`` take a machine (None: the only one). ``machines``: names of machines for ``--target``.
    ``machine_files``: file suffix of further descriptions. ``identity``: data that compiled code depends on, in
    addition to the plugin.
    """

    rules: Callable[[str | None], Rules]
    costs: Callable[[str | None], Costs | None] = lambda _machine: None
    machines: Callable[[], Sequence[str]] = tuple
    machine_files: str | None = None
    identity: Callable[[str | None], Sequence[str]] = lambda _machine: ()
    summary: str = ""

    def rules_of(self, machine: str | None) -> Rules:
        """Return the rules of a machine. Raises TargetError if the function fails."""
        with _asking("rules", None, machine or self.name):
            return self.rules(machine)

    def costs_of(self, machine: str | None) -> Costs | None:
        """Return the checked cost model of a machine. Raises TargetError."""
        with _asking("costs", None, machine or self.name):
            found = self.costs(machine)
        return check_costs(found, machine or self.name)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Resolved target name: the plugin that compiles, and the machine if the name is a machine's.

    ``facts`` and ``source`` are None for a codegen plugin that has no described target.
    """

    codegen: str
    machine: str | None
    facts: TargetFacts | None = None
    source: PluginSource | None = None

    @property
    def identity(self) -> tuple[str, ...]:
        """Part of cache keys: the target's identity, with the machine for targets of other packages."""
        found = () if self.facts is None else self.facts.identity or ()
        is_ours = self.source is None or self.source.is_ours
        return found if is_ours or self.machine is None else (*found, self.machine)

    def description(self) -> TargetDescription:
        """Load the target, which the user named, into this process. Raises OptionError."""
        if self.source is None:
            raise OptionError(
                f"there is no description of the target of {self.codegen}", hint="name a target; see odc-plugin list"
            )
        found: TargetDescription = load(self.source)
        return found

    def ask(self, function: Callable[[], T]) -> T:
        """Return ``function()``, which runs code of the target, under the plugins' deadline. Raises OdcError."""
        return function() if self.source is None else call(function, self.source)


def describe_target(found: object, question: Answer) -> Answer:
    """Return the fields of a target's TargetFacts for ``question["name"]``. Raises OptionError for another object."""
    if not isinstance(found, TargetDescription):
        raise OptionError(f"it returns {type(found).__name__}, not a target")
    machines, name = texts(found.machines(), "machines"), question["name"]
    is_file = found.machine_files is not None and name.endswith(found.machine_files)
    machine = name if name in machines or is_file else None
    is_named = machine is not None or name in (found.name, found.codegen)
    facts = TargetFacts(
        str(found.name),
        str(found.extension),
        texts(found.schemes, "schemes"),
        machines,
        str(found.summary),
        machine,
        tuple(map(str, found.identity(machine))) if is_named else None,
    )
    return asdict(facts)


def described(name: str = "") -> Iterator[tuple[PluginSource, TargetFacts | OdcError]]:
    """Yield facts, or an error, of all targets for ``name``: ours, the target with this name or prefix, the rest."""
    sources = registry.entries(TARGETS)
    place = os.path.abspath(name) if os.path.isfile(name) else name  # others answer in another working folder
    ours = [source for source in sources if source.is_ours]
    named = [source for source in sources if not source.is_ours and source.target == name.partition("-")[0]]
    others = [source for source in sources if source not in (*ours, *named)]
    for group, asked in ((ours, name), (named, place), (others, place)):  # only if the caller continues
        answers = probe(TargetFacts, group, "odc_mlir.plugins.target:describe_target", {"name": asked})
        yield from zip(group, answers, strict=True)


def check_name(name: str) -> None:
    """Raise OptionError if no target can have this name. Do not run other packages, whose targets may have the name."""
    sources = registry.entries(TARGETS)
    ours = {source.target for source in sources if source.is_ours}
    if name.endswith(SUFFIX):
        registry.extension_of(name)
    elif name.endswith(".toml") or name.partition("-")[0] in ours or len(ours) == len(sources):
        choose(name)


def choose(name: str) -> Chosen:
    """Resolve ``name``: a target, a machine of a target, a file that describes a machine, or a codegen plugin.

    Raises OptionError if the target with this name, or with its part before "-", fails. The error for an unknown name
    lists the known names.
    """
    if name.endswith(SUFFIX):
        registry.extension_of(name)
    known: list[str] = []
    for source, facts in described(name):
        if isinstance(facts, OdcError):
            if source.target == name.partition("-")[0] and not name.endswith(SUFFIX):
                raise facts
            known.append(source.target)
        elif facts.identity is not None:
            return Chosen(facts.codegen, facts.machine, facts, source)
        else:
            known += [facts.name, *facts.machines]
    if name.endswith(SUFFIX):
        return Chosen(name, None)
    names = ", ".join(dict.fromkeys([*known, "a .toml file", "a plugin such as npu-gen"]))
    hint = f"{did_you_mean(name, known)}use one of {names}, or install the package of this target"
    if (flags := processors.flags_of(name)) is not None:
        hint = f"odc-compile MODEL --emit object {flags} -o FILE.o compiles for it"
    raise OptionError(f"unknown target {name!r}", hint=hint)
