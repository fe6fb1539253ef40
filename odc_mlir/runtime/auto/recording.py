"""Records kept while an application is served: gathered in memory, put into the model's store a while at a time."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from threading import RLock

from odc_mlir.errors import OdcError, RecordsError
from odc_mlir.ops.spec import Array
from odc_mlir.quantization.recorded import Shapes, shapes_of
from odc_mlir.quantization.records import DEFAULT_INPUT_BYTES, RecordStore
from odc_mlir.runtime.executor import Executor
from odc_mlir.runtime.graph import Graph
from odc_mlir.runtime.recording import Recorder
from odc_mlir.runtime.units import Observer

_log = logging.getLogger(__name__)

# What is lost at most when the process is killed: recording must not make every run wait for the disk.
_RUNS_PER_APPEND = 32
_SECONDS_PER_APPEND = 1.0
_INPUTS_KEPT = 32


class RunRecorder:
    """Records runs of ``graph``, the model with ``digest``, into the store at ``path``.

    A store that cannot be used never fails a run: ``failure`` is the reason, and ``runs`` stays what was stored before.
    One that is damaged, or of another model, is replaced by a new one.
    """

    def __init__(self, graph: Graph, digest: str, path: Path) -> None:
        self.path = path
        self.failure: str | None = None
        self._digest = digest
        self._lock = RLock()
        self._recorder = Recorder(graph)
        self._shapes: Shapes = ()
        self._pending = 0
        self._inputs: deque[list[Array]] = deque(maxlen=_INPUTS_KEPT)
        self._appended = time.monotonic()
        self._store: RecordStore | None = None
        self._stored: dict[Shapes, int] = {}

    def run(self, executor: Executor, inputs: Sequence[Array], observe: Observer | None = None) -> list[Array]:
        """``executor.run(inputs, observe=observe)``, recorded; raises what that raises."""
        with self._lock:
            shapes = shapes_of(inputs)
            if shapes != self._shapes:
                self.flush()
                self._shapes = shapes
            outputs = self._recorder.run(executor, inputs, observe)
            self._pending += 1
            self._keep(inputs)
            if self._pending >= _RUNS_PER_APPEND or time.monotonic() - self._appended > _SECONDS_PER_APPEND:
                self.flush()
            return outputs

    def _keep(self, inputs: Sequence[Array]) -> None:
        """Keep a copy of raw inputs until they are stored, within bounds; of large ones only the last."""
        self._inputs.append([array.copy() for array in inputs])
        size = sum(array.nbytes for array in inputs)
        while len(self._inputs) > 1 and len(self._inputs) * size > DEFAULT_INPUT_BYTES:
            self._inputs.popleft()

    @property
    def last_inputs(self) -> list[Array] | None:
        """Those of the last run recorded."""
        return self._inputs[-1] if self._inputs else None

    def runs(self, shapes: Shapes) -> int:
        """How often inputs of ``shapes`` have been recorded, by whatever process."""
        self._open()
        return self._stored.get(shapes, 0) + (self._pending if shapes == self._shapes else 0)

    def flush(self) -> None:
        """Put into the store what is not there yet."""
        with self._lock:
            self._appended = time.monotonic()
            store = self._open() if self._pending else None
            if store is None:
                return
            try:
                store.append(self._recorder.take(self._digest), self._shapes, tuple(self._inputs)[-self._pending :])
                self._stored = store.shapes()
                self._pending = 0
            except OdcError as error:
                self._give_up(error)

    def _open(self) -> RecordStore | None:
        if self._store is None and self.failure is None:
            try:
                self._store = self._opened()
                self._stored = self._store.shapes()
            except OdcError as error:
                self._give_up(error)
        return self._store

    def _opened(self) -> RecordStore:
        try:
            store = RecordStore(self.path, self._digest)
            store.shapes()
            return store
        except RecordsError as error:
            if not self.path.is_file():
                raise
            _log.warning("%s; the records begin anew", error)
            RecordStore.discard(self.path)
            return RecordStore(self.path, self._digest)

    def _give_up(self, error: OdcError) -> None:
        self.failure, self._store = str(error), None
        _log.warning("ranges are not recorded: %s", error)
