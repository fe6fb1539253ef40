"""onert's interpreter of Circle files as a backend for whole models. Needs the package onert (extra ``onert``).

onert runs a model as a whole or not at all: a rejected model is an error with its reason, without a fallback.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from odc_mlir.errors import OptionError, UnsupportedError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.backends.part import Part, cut_out
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.specialization import SpecializedGraph, is_static
from odc_mlir.runtime.execution.units import Event, Frame

_KERNELS = "cpu"


class OnertUnit:
    """All operators of a graph in a session of onert; results have the shapes that operators define."""

    def __init__(self, graph: Graph, part: Part) -> None:
        self.name = graph.name
        self.operators = part.operators
        self.reads, self.writes = part.inputs, part.outputs
        self._infer = _import_onert()
        self._model = bytes(write_model(part.model))
        self._session: Any = None
        self._shapes: list[tuple[int, ...]] | None = None
        self._results: list[tuple[int, ...] | None] = [None] * len(part.outputs)

    def prepare(self, shaped: SpecializedGraph) -> None:
        """Keep the shapes of results, since onert drops dimensions of some."""
        known = [shaped.tensors[index] for index in self.writes]
        self._results = [info.static_shape if is_static(info.shape) else None for info in known]

    def inner_bytes(self, shaped: SpecializedGraph) -> int:
        """Return 0: onert does not report its memory."""
        return 0

    def run(self, frame: Frame) -> None:
        """Run the model; raise UnsupportedError with onert's message."""
        start = time.perf_counter()
        inputs = [np.ascontiguousarray(frame.value(index)) for index in self.reads]
        try:
            results = self._invoke(inputs)
        except (RuntimeError, ValueError, KeyError) as error:
            self._session = None
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise UnsupportedError(f"onert rejects the model: {text}", hint="run it on the host") from error
        frame.values.update(zip(self.writes, results, strict=True))
        if frame.observe is not None:
            frame.observe(Event(self.name, "ONERT", "host", start, time.perf_counter() - start))

    def _invoke(self, inputs: Sequence[Array]) -> list[Array]:
        shapes = [value.shape for value in inputs]
        if self._session is None or shapes != self._shapes:
            self._session, self._shapes = self._opened(), shapes
        found = self._session.infer(list(inputs))
        return [
            np.array(value).reshape(shape) if shape is not None and value.size == np.prod(shape) else np.array(value)
            for value, shape in zip(found, self._results, strict=True)
        ]

    def _opened(self) -> Any:
        """Open a session, which maps the file into memory."""
        with tempfile.TemporaryDirectory(prefix="odc-onert-") as folder:
            path = Path(folder, "model.circle")
            path.write_bytes(self._model)
            return self._infer.session(str(path), _KERNELS)


class OnertExecutor(Executor):
    """Runs ``graph`` with onert. Only outputs are visible: other tensors share memory."""

    def __init__(
        self,
        graph: Graph,
        *,
        max_bytes: int | None = None,
        resize: bool = False,
        context: Context | None = None,
    ) -> None:
        part = cut_out(graph, graph.tensors, range(len(graph.nodes)), all_tensors=False)
        super().__init__(graph, [OnertUnit(graph, part)], max_bytes=max_bytes, resize=resize, context=context)


def _import_onert() -> Any:
    try:
        from onert import infer
    except ImportError:
        raise OptionError(
            "the onert backend needs the package onert", hint="install odc-mlir with the extra onert"
        ) from None
    return infer
