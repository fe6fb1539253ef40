"""The target of a session's compilation, and reasons not to replace the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from odc_mlir.codegen.machine import HINT, has_code_generator
from odc_mlir.errors import CacheError, OdcError, UnsupportedError
from odc_mlir.formats import private
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.states import StatePair
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Trait
from odc_mlir.plugins import registry
from odc_mlir.plugins.foreign import Answer, fingerprint, probe
from odc_mlir.plugins.target import Chosen, RuleTable, TargetDescription, choose, rules_reason
from odc_mlir.processors import HERE
from odc_mlir.runtime.devices import attached, device_facts
from odc_mlir.runtime.execution.executor import Executor, HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph

_CUSTOM = "CUSTOM"


@dataclass(frozen=True)
class ExecutorOptions:
    """Options of all executors of a session. ``context`` creates contexts.

    ``cache``: folder of the session's cache, or None for the user's cache
    """

    context: Callable[[], Context]
    max_bytes: int | None = None
    cache: Path | None = None


@dataclass(frozen=True)
class Original:
    """The loaded model: executor, bytes and digest.

    ``path``: a file whose content has ``digest``, or None. ``package``: the nnpackage of the model. ``states``: outputs
    and inputs of the model between which the session carries states.
    """

    executor: Executor
    digest: str
    path: Path | None
    read: Callable[[], bytes]
    package: Path | None = None
    states: Sequence[StatePair] = ()

    @property
    def graph(self) -> Graph:
        return self.executor.graph

    def another(self, options: ExecutorOptions) -> Callable[[], Executor] | None:
        """Return a function that creates executors for other threads, or None if operators were registered."""
        graph = self.graph
        if any(item.node.spec.name == _CUSTOM for item in graph.nodes):
            return None
        return lambda: HostExecutor(graph, resize=True, max_bytes=options.max_bytes, context=options.context())

    def file(self, folder: Path) -> Path:
        """Return a file of the model. If the model has no file, write it to the cache ``folder``. Raises OdcError."""
        if self.path is not None:
            return self.path
        path = folder / "models" / f"{self.digest}.circle"
        private.make_folder(path.parent, within=folder)
        try:
            if private.digest_file(path) == self.digest:
                os.utime(path)  # marks the file as used
                return path
        except (CacheError, OSError):  # the file is written again below
            pass
        private.write_file(path, self.read())
        return path


def is_quantized(graph: Graph) -> bool:
    """Return whether the graph computes quantised values."""
    computed = {index for item in graph.nodes for index in item.outputs}
    return any(graph.tensors[i].info.is_integer and graph.tensors[i].quant is not None for i in computed)


def why_not(graph: Graph) -> str | None:
    """Return the reason why the session must not replace the model between two runs, or None."""
    if not graph.nodes:
        return "the model computes nothing"
    seen, work = set[int](), [graph]
    while work:
        called = work.pop()
        if id(called) in seen:
            continue
        seen.add(id(called))
        if called.states or any(info.is_variable for info in called.tensors):
            return "the model keeps state from run to run, which an exchange would lose"
        for item in called.nodes:
            node = item.node
            if item.calls and node.spec.name != "CALL_ONCE":  # CALL_ONCE is itself stateful
                work += item.calls.values()
            elif Trait.STATEFUL in node.spec.traits:
                return f"{node.spec.name} {node.name!r} keeps state from run to run, which an exchange would lose"
    return None


_MOST_REASONS = 3  # limit on the reasons in a note
AUTO = "auto"
"""Value of the target setting for a choice by the session."""

ModelFile = Callable[[], Path]
"""Function that returns a file of the session's model. Raises OdcError."""


@dataclass(frozen=True, slots=True)
class Aim:
    """The target ``name`` of a compilation. ``plugin`` compiles for it, or for the variant ``machine``.

    ``takes_floats``: it runs float models. ``takes_codes``: it runs quantised models. ``is_measured``: compiled code
    must be faster than host kernels. False for simulated or absent hardware. ``facts`` are parts of the cache's keys:
    plugin, version and files of the plugin, and machine. ``twin``: facts of the native code that answers instead of a
    simulator. Empty if the target has no simulator or there is no code generator. ``competitor``: facts of the native
    code that code of a float model must beat, if the user chose no target. ``passed_over``: notes on problems with
    better hardware. ``others``: further targets to try.
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
    competitor: tuple[str, ...] = ()

    @property
    def key_facts(self) -> tuple[str, ...]:
        """All facts that determine the compiled code."""
        return (*self.facts, *self.twin, *self.competitor)


def aim_at(name: str, model: ModelFile | None = None) -> Aim:
    """Return the target ``name``. Raise UnsupportedError if there is no hardware, OdcError for other problems.

    AUTO skips hardware that runs no part of ``model``, if there is other hardware. Plugins of other packages are probed
    until a deadline. Do not call it while an application waits.
    """
    if name != AUTO:
        return _aim(name, choose(name))
    names, problems = attached()
    try:
        found = aim_at_best(names, model)
    except UnsupportedError as error:
        error.message = "; ".join([error.message, *problems])
        raise
    return replace(found, passed_over=(*problems, *found.passed_over))


def aim_at_best(names: Sequence[str], model: ModelFile | None) -> Aim:
    """Return the first usable target that runs a part of the model, else the first usable target.

    Raises the errors of :func:`aim_at`.
    """
    if not names:
        hint = f"{HINT}, or name a target (ODC_TARGET=npu-256 is simulated)"
        raise UnsupportedError("there is no device, and no code generator for the processor", hint=hint)
    notes: list[str] = []
    first: Aim | None = None
    for index, name in enumerate(names):
        try:
            chosen = choose(name)
            reason = _why_nothing_runs(chosen, model) if len(names) > 1 else None
            if reason is None or first is None:
                others = tuple(names[index + 1 :])
                found = replace(_aim(name, chosen), passed_over=tuple(notes), others=others)
                if HERE in others and found.is_measured:
                    found = replace(found, competitor=_facts(choose(HERE)))
        except OdcError as error:
            notes.append(f"{name} is not compiled for: {error.message}")
            continue
        if reason is None:
            return found
        first = first or found
        notes.append(f"{name} is not compiled for: {reason}")
    if first is None:
        raise UnsupportedError("; ".join(notes))
    return first


def _aim(name: str, chosen: Chosen) -> Aim:
    target = chosen.facts
    device = None if target is None else device_facts(target.extension)
    is_simulated = device is not None and device.simulated
    return Aim(
        name,
        chosen.codegen,
        chosen.machine,
        target is not None and target.takes_floats,
        target is None or target.scheme is not None,
        device is not None and not device.simulated,
        _facts(chosen),
        twin=_facts(choose(HERE)) if is_simulated and has_code_generator() else (),
    )


def _facts(chosen: Chosen) -> tuple[str, ...]:
    return tuple(target_facts(chosen.codegen, chosen.identity))


def _why_nothing_runs(chosen: Chosen, model: ModelFile | None) -> str | None:
    source = chosen.source
    if source is None or source.is_ours or model is None:
        return None
    question = {"machine": chosen.machine, "model": str(model())}
    (found,) = probe(_Verdict, [source], f"{__name__}:judge_model", question)
    if isinstance(found, OdcError):
        raise found
    return found.reason


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Reason why a target runs no operator of a model, or None if the target may run an operator."""

    reason: str | None


def judge_model(target: TargetDescription, question: Answer) -> Answer:
    """Return why a target runs no operator of the file ``question["model"]``. Runs in the process of the plugin.

    The reason is None if the target may run an operator, or if types or shapes are not known yet.
    """
    rules = target.rules_of(question["machine"])
    try:
        graph = build_graph(read_model(question["model"]))
    except OdcError:  # for example a custom operator of the application
        return {"reason": None}
    nodes = [item.node for item in graph.nodes]
    has_fixed_types = target.scheme is None or is_quantized(graph)
    has_fixed_shapes = all(info.shape is not None and None not in info.shape for info in graph.input_infos())
    if isinstance(rules, RuleTable) and not any(node.spec.name in rules.operators for node in nodes):
        kinds = ", ".join(sorted({node.spec.name for node in nodes}))
        return {"reason": f"it has none of the model's operators, {kinds}"}
    if not (has_fixed_types and has_fixed_shapes):
        return {"reason": None}
    found: list[str] = []
    for node in nodes:
        if (reason := rules_reason(rules, node, target.name)) is None:
            return {"reason": None}  # rules may be slow, as they may call tools of the vendor
        found.append(f"{node.spec.name}: {reason}")
    return {"reason": f"it runs none of the model's operators: {'; '.join(found[:_MOST_REASONS])}"}


def target_facts(plugin: str, identity: Sequence[str]) -> list[str]:
    """Return plugin, version and files of the plugin, and machine. Raises OdcError for a missing plugin."""
    source = registry.find(plugin)
    return [plugin, source.origin, fingerprint(source), *identity]
