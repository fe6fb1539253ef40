"""Keeps tensors of a run that are not outputs, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from odc_mlir.errors import OptionError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.execution.executor import Executor

_MOST_SUGGESTIONS = 3


class Capture:
    """Sees to it that a run's tensors called ``names`` are kept: give it to ``executor.run`` as ``watch``.

    Any tensor of the graph will do, inputs and constants as well; of several with one name the first. Raises
    OptionError for a name that no tensor has, and for a tensor that never leaves the segment that computes it.
    """

    def __init__(self, executor: Executor, names: Iterable[str]) -> None:
        graph = executor.graph
        indices: dict[str, int] = {}
        for index, info in enumerate(graph.tensors):
            indices.setdefault(info.name, index)
        shown = {*graph.inputs, *(tensor for unit in executor.units for tensor in unit.writes)}
        self._wanted = tuple(names)
        self._found: dict[str, Array] = {}
        self._names: dict[int, str] = {}
        for name in self._wanted:
            if name not in indices:
                close = difflib.get_close_matches(name, indices, _MOST_SUGGESTIONS)
                hint = f"close to it are {', '.join(map(repr, close))}" if close else "odc-dump lists its tensors"
                raise OptionError(f"the model has no tensor {name!r}", hint=hint)
            info = graph.tensors[indices[name]]
            if info.is_const:
                self._found[name] = info.array().copy()
            elif indices[name] not in shown:
                raise OptionError(
                    "the tensor is internal to the segment that computes it", tensor=name, hint="use the backend host"
                )
            else:
                self._names[indices[name]] = name

    def __call__(self, index: int, value: Array) -> None:
        """Keep a copy of tensor ``index`` if it is one of those wanted."""
        name = self._names.get(index)
        if name is not None:
            self._found[name] = value.copy()

    @property
    def values(self) -> dict[str, Array]:
        """The tensors of the last run, in the order in which they were asked for."""
        return {name: self._found[name] for name in self._wanted}
