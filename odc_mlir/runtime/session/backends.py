"""Choice of the backend for each operator of a session, and the executor for that choice."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from odc_mlir.errors import OptionError, SessionError, UnsupportedError
from odc_mlir.formats.plan import HostStep, Plan, SegmentStep
from odc_mlir.ops.context import Context
from odc_mlir.runtime.backends import graph_executor
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.package import Package

_log = logging.getLogger(__name__)

HOST, NPU, LITERT, NATIVE = "host", "npu", "litert", "native"
CPU = "cpu"
# Names of other runtimes for kernels on the CPU mean our host kernels.
NAMES: Mapping[str, str] = MappingProxyType(
    {"cpu": HOST, "host": HOST, "builtin": HOST, "npu": NPU, "litert": LITERT, "native": NATIVE}
)
_MAX_LIST_BYTES = 31
_KIND_SEPARATORS = str.maketrans("", "", "_")


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """The choice of backends: ``backends`` in order of preference; empty: the compiled plan, else the host.

    ``by_index`` and ``by_kind`` force the backend of single operators, and of all operators of a kind. ``threads`` is
    the number of threads that run native code together. ``trust_code``: consent to foreign machine code; ``cache``: the
    session's cache folder, None for the user's.
    """

    backends: tuple[str, ...] = ()
    by_index: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    by_kind: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    strict: bool = False
    max_bytes: int | None = None
    threads: int = 1
    trust_code: bool = False
    cache: Path | None = None


def parse_backends(text: str) -> tuple[str, ...]:
    """Split a list such as ``"npu;cpu"``; raise SessionError. The names are looked up later, in prepare."""
    if not isinstance(text, str):
        raise SessionError(f"the backends must be text such as 'npu;cpu', not {type(text).__name__}")
    if len(text.encode()) > _MAX_LIST_BYTES:
        raise SessionError(f"the list of backends is longer than {_MAX_LIST_BYTES} bytes")
    return split_backends(text)


def split_backends(text: str) -> tuple[str, ...]:
    """Return the names between semicolons."""
    return tuple(name.strip() for name in text.split(";") if name.strip())


def parse_assignments(text: str) -> dict[int, str]:
    """Parse ``"0=cpu;1=npu"`` to backends by operator index; raise SessionError."""
    found: dict[int, str] = {}
    for pair in split_backends(text):
        index, separator, name = (part.strip() for part in pair.partition("="))
        if not separator or not (index.isascii() and index.isdecimal()) or not name:
            raise SessionError(f"{pair!r} is not of the form <operator index>=<backend>")
        found[int(index)] = name
    return found


def open_executor(graph: Graph, package: Package | None, choice: BackendChoice, context: Context) -> Executor:
    """Return the executor of ``graph`` for a choice; raise OdcError if no backend can run an operator."""
    plan = package.plan if package is not None and graph.subgraph == 0 else None
    order = usable_backends(choice.backends, plan)
    forced = _forced(graph, choice)
    options: dict[str, Any] = {"strict": choice.strict, "max_bytes": choice.max_bytes, "resize": True}
    if order[0] == NPU and plan is not None and package is not None:
        plan = _with_forced(plan, graph, forced, may_use_host=HOST in order or LITERT in order)
        options |= {"threads": choice.threads, "trust_code": choice.trust_code, "cache": choice.cache}
        return package.plan_executor(graph, plan, context=context, **options)
    for index, name in forced.items():
        if name != order[0]:
            raise _cannot(graph, index, name, f"the model is run by {order[0]}")
    return graph_executor(graph, order[0], context=context, **options)


def wants_native(choice: BackendChoice, plan: Plan | None) -> bool:
    """Return whether the model should be compiled in place for this processor; raise SessionError."""
    return bool(choice.backends) and usable_backends(choice.backends, plan)[0] == NATIVE


def open_native(package: Package, choice: BackendChoice, context: Context) -> Executor:
    """Return the executor of a package of native code; other operators run on the host."""
    shared = context.custom_ops is package.graph.custom_ops
    graph = package.graph if shared else build_graph(package.model, custom_ops=context.custom_ops)
    if choice.by_index or choice.by_kind:
        raise OptionError("single operators cannot be assigned to backends when the model runs as native code")
    if package.plan is None or not package.plan.segments:
        return graph_executor(graph, HOST, context=context, max_bytes=choice.max_bytes, resize=True)
    return open_executor(graph, package, replace(choice, backends=(NPU, HOST)), context)


def usable_backends(names: Sequence[str], plan: Plan | None) -> tuple[str, ...]:
    """Return the backends that can run something here, best first; raise SessionError if none can."""
    if not names:
        return (NPU, HOST) if plan is not None else (HOST,)
    found: list[str] = []
    for name in names:
        known = NAMES.get(name)
        if known is None:
            _log.warning("unknown backend %r; known are %s", name, ", ".join(NAMES))
        elif known == NPU and plan is None:
            _log.warning("the model is not compiled, so there is nothing for the backend npu")
        elif known not in found:
            found.append(known)
    if not found:
        why = "is known here" if NPU not in map(NAMES.get, names) else "can run it: the model is not compiled"
        raise SessionError(
            f"none of the backends {', '.join(map(repr, names))} {why}", hint=f"use one of {', '.join(NAMES)}"
        )
    return tuple(found)


def _forced(graph: Graph, choice: BackendChoice) -> dict[int, str]:
    """Return the backend that each operator must have, by index; unknown indices are ignored with a warning."""
    found: dict[int, str] = {}
    by_kind = {_kind(name): backend for name, backend in choice.by_kind.items()}
    for item in graph.nodes:
        name = choice.by_index.get(item.index, by_kind.get(_kind(item.node.spec.name)))
        if name is not None:
            if name not in NAMES:
                raise _cannot(graph, item.index, name, "there is no such backend")
            found[item.index] = NAMES[name]
    for index in choice.by_index.keys() - range(len(graph.nodes)):
        _log.warning("there is no operator %d, the model has %d", index, len(graph.nodes))
    return found


def _kind(name: str) -> str:
    """Normalise the name of an operator kind: ``Conv2D`` equals ``CONV_2D``."""
    return name.translate(_KIND_SEPARATORS).casefold()


def _with_forced(plan: Plan, graph: Graph, forced: Mapping[int, str], *, may_use_host: bool) -> Plan:
    """Return ``plan`` with a segment on the host if one of its operators must run there."""
    steps: list[HostStep | SegmentStep] = []
    for step in plan.steps:
        if isinstance(step, SegmentStep) and any(forced.get(index, NPU) != NPU for index in step.operators):
            step = HostStep(step.operators)
        steps.append(step)
    for step in steps:
        for index in step.operators if isinstance(step, HostStep) else ():
            wanted = forced.get(index, HOST)
            if wanted != HOST:
                raise _cannot(graph, index, wanted, plan.host_reasons.get(index, "it is not compiled for that"))
            if not may_use_host:
                raise _cannot(graph, index, NPU, plan.host_reasons.get(index, "it is not compiled"))
    return replace(plan, steps=tuple(steps))


def _cannot(graph: Graph, index: int, name: str, why: str) -> SessionError | UnsupportedError | OptionError:
    node = graph.nodes[index].node
    return UnsupportedError(
        f"operator {index} cannot run on {name!r}: {why}", op=node.spec.name, tensor=node.name, stage="prepare"
    )
