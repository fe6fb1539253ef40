"""The model as loaded, and reasons not to replace it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from odc_mlir.calibration.recorded import Shapes
from odc_mlir.errors import CacheError
from odc_mlir.formats import private
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Trait
from odc_mlir.runtime.execution.executor import Executor, HostExecutor
from odc_mlir.runtime.execution.graph import Graph

_CUSTOM = "CUSTOM"


@dataclass(frozen=True)
class ExecutorOptions:
    """Options of all executors of a session: a new context for each, a memory limit, threads of native code.

    ``cache`` is the folder of the session's cache, None for the user's.
    """

    context: Callable[[], Context]
    max_bytes: int | None = None
    threads: int = 1
    cache: Path | None = None


@dataclass(frozen=True)
class Original:
    """The model as loaded: its executor, its bytes and its digest.

    ``path`` is a file that holds exactly the bytes with ``digest``, None where there is none; ``package`` is the
    nnpackage that it comes from.
    """

    executor: Executor
    digest: str
    path: Path | None
    read: Callable[[], bytes]
    package: Path | None = None

    @property
    def graph(self) -> Graph:
        """Graph of the model."""
        return self.executor.graph

    def other_shapes(self, shapes: Shapes) -> Shapes | None:
        """Return ``shapes``, or None if they are the model's own input shapes."""
        return None if [info.shape for info in self.graph.input_infos()] == list(shapes) else shapes

    def another(self, options: ExecutorOptions) -> Callable[[], Executor] | None:
        """Return a maker of executors for other threads; None if the application has operators of its own."""
        graph = self.graph
        if any(item.node.spec.name == _CUSTOM for item in graph.nodes):
            return None
        return lambda: HostExecutor(graph, resize=True, max_bytes=options.max_bytes, context=options.context())

    def file(self, folder: Path) -> Path:
        """Return a file of the model, made in the cache ``folder`` if there is none; raises OdcError."""
        if self.path is not None:
            return self.path
        path = folder / "models" / f"{self.digest}.circle"
        private.make_folder(path.parent, within=folder)
        try:
            if private.digest_file(path) == self.digest:
                os.utime(path)  # it is in use
                return path
        except (CacheError, OSError):  # what lies there is replaced
            pass
        private.write_file(path, self.read())
        return path


def is_quantized(graph: Graph) -> bool:
    """Return whether the graph computes quantised values."""
    computed = {index for item in graph.nodes for index in item.outputs}
    return any(graph.tensors[i].info.is_integer and graph.tensors[i].quant is not None for i in computed)


def why_not(graph: Graph) -> str | None:
    """Return the reason why the model must not be replaced between two runs, or None."""
    if any(info.is_variable for info in graph.tensors):
        return "the model keeps state from run to run, which an exchange would lose"
    for item in graph.nodes:
        if Trait.STATEFUL in item.node.spec.traits:
            return f"{item.node.spec.name} {item.node.name!r} keeps state from run to run, which an exchange would lose"
    if not graph.nodes:
        return "the model computes nothing"
    return None
