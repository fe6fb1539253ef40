"""Backends that run whole graphs on the host: our kernels, LiteRT and onert."""

from __future__ import annotations

from odc_mlir.ops.context import Context
from odc_mlir.runtime.execution.executor import Executor, HostExecutor
from odc_mlir.runtime.execution.graph import Graph


def graph_executor(
    graph: Graph,
    backend: str,
    *,
    context: Context | None = None,
    all_tensors: bool = False,
    strict: bool = False,
    max_bytes: int | None = None,
    resize: bool = False,
) -> Executor:
    """Return an executor of ``graph`` on the backend ``host``, ``litert`` or ``onert``.

    ``context`` has the choices for our kernels; ``all_tensors`` makes intermediate results visible in a backend that
    joins operators; ``strict`` makes a fallback to our kernels an error. Raises OptionError if a backend is not
    installed.
    """
    context = Context(custom_ops=graph.custom_ops) if context is None else context
    if backend == "host":
        return HostExecutor(graph, max_bytes=max_bytes, resize=resize, context=context)
    if backend == "onert":
        from odc_mlir.runtime.backends.onert import OnertExecutor

        return OnertExecutor(graph, max_bytes=max_bytes, resize=resize, context=context)
    from odc_mlir.runtime.backends.litert import LitertExecutor

    return LitertExecutor(
        graph, all_tensors=all_tensors, strict=strict, max_bytes=max_bytes, resize=resize, context=context
    )
