"""What can run the operators that stay on the host, all behind the protocol of base.py."""

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
    """What runs all of ``graph`` by the backend ``host``, ``litert`` or ``onert``.

    ``context`` are choices for our kernels; with ``all_tensors`` a backend that joins operators still shows what each
    of them computes; ``strict`` makes it an error when our kernels have to stand in. Raises OptionError when a backend
    is not installed.
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
