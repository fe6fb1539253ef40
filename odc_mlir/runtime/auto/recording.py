"""Records kept while an application is served: gathered in memory, put into the model's store behind its back."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

from odc_mlir.calibration.recorded import Shapes, shapes_of
from odc_mlir.calibration.records import DEFAULT_INPUT_BYTES, RecordStore
from odc_mlir.errors import OdcError, RecordsDamagedError
from odc_mlir.formats import private
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.auto.background import Background
from odc_mlir.runtime.auto.locks import file_lock
from odc_mlir.runtime.auto.pruning import prune
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.units import Observer
from odc_mlir.runtime.recording import Gathered, Recorder

_log = logging.getLogger(__name__)

# What is lost at most when the process is killed: recording must not make every run wait for its statistics.
_RUNS_PER_APPEND = 32
_SECONDS_PER_APPEND = 1.0
_INPUTS_KEPT = 32
# Each has a recorder of its own, so that runs may alternate between them; another one takes over the longest unused.
_SHAPES_KEPT = 8
# Batches that wait for the store, which may be held by another process; more are dropped, and counted.
_BATCHES_WAITING = 32
# Bytes of values that wait for a look; where there are more, as the store is slow, the run that gave them takes it.
_MOST_UNSEEN_BYTES = 64 << 20
_STORE_WAIT_SECONDS = 0.2
_RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)  # then the batch is dropped
_LOCK_SECONDS = 1.0
LOCK_FILE = "lock"
FINISH_SECONDS = 2.0


@dataclass(slots=True)
class _Gathering:
    """Runs on inputs of one set of shapes that no batch has taken yet, ``inputs`` being the last of them."""

    recorder: Recorder
    runs: int = 0
    inputs: deque[list[Array]] = field(default_factory=lambda: deque(maxlen=_INPUTS_KEPT))


@dataclass(slots=True)
class _Batch:
    """Runs on their way into the store; ``unseen_bytes`` of values wait to be looked at."""

    shapes: Shapes
    gathered: Gathered
    inputs: list[list[Array]]
    runs: int
    unseen_bytes: int

    @property
    def nbytes(self) -> int:
        """Of the raw inputs."""
        return sum(map(_nbytes, self.inputs))


class RunRecorder:
    """Records runs of ``graph``, the model with ``digest``, into the store at ``path`` in the cache ``root``.

    No run waits for the store, or fails because of it: it is read and written in the background. Where that fails for
    good, ``refused`` is the reason, and nothing is recorded any more; ``failure`` is what keeps records from the store,
    be it for a while. A store that is damaged, or of another model, is moved aside and begun anew. With ``cache_bytes``
    the first record sees to it that the cache does not hold more.
    """

    def __init__(
        self, graph: Graph, digest: str, path: Path, root: Path | None = None, *, cache_bytes: int | None = None
    ) -> None:
        self.path = path
        self.refused: str | None = None
        self.dropped_runs = 0
        self.last_inputs: list[Array] | None = None
        self._problem: str | None = None
        self._graph, self._digest = graph, digest
        self._root = path.parent if root is None else root
        self._cache_bytes = cache_bytes
        self._background = Background("odc-records", _BATCHES_WAITING)
        self._begin()
        # Where Python ends, what is on its way still arrives, or is given up soon.
        weakref.finalize(self, _end, self._background)

    def _begin(self) -> None:
        """With nothing gathered: at first, and in a child process, whose parent keeps what was gathered before."""
        self._process = os.getpid()
        self._lock = RLock()  # of what is gathered
        self._counts = RLock()  # of what is counted; never held while anything else is done
        self._background.begin()
        self._gatherings: OrderedDict[Shapes, _Gathering] = OrderedDict()
        self._pending: Counter[Shapes] = Counter()  # gathered, or on the way into the store
        self._stored: dict[Shapes, int] = {}
        self._waiting_bytes = self._unseen_bytes = 0
        self._looked = False
        self._appended = time.monotonic()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._begin()

    def run(self, executor: Executor, inputs: Sequence[Array], observe: Observer | None = None) -> list[Array]:
        """``executor.run(inputs, observe=observe)``, recorded; raises what that raises."""
        self._check_process()
        with self._lock:
            if self.refused is not None:
                return executor.run(inputs, observe=observe)
            shapes = shapes_of(inputs)
            gathering = self._gathering(shapes)
            outputs = gathering.recorder.run(executor, inputs, observe)
            gathering.runs += 1
            with self._counts:
                self._pending[shapes] += 1
            self._keep(gathering, inputs)
            if time.monotonic() - self._appended > _SECONDS_PER_APPEND:
                self._hand_over_all()
            elif gathering.runs >= _RUNS_PER_APPEND:
                self._hand_over(shapes, gathering)
            return outputs

    def _gathering(self, shapes: Shapes) -> _Gathering:
        found = self._gatherings.get(shapes)
        if found is not None:
            self._gatherings.move_to_end(shapes)
            return found
        if len(self._gatherings) < _SHAPES_KEPT:
            found = _Gathering(Recorder(self._graph))
        else:
            unused, found = self._gatherings.popitem(last=False)
            self._hand_over(unused, found)
        self._gatherings[shapes] = found
        return found

    def _keep(self, gathering: _Gathering, inputs: Sequence[Array]) -> None:
        """Keep a copy of raw inputs until they are stored, within bounds; of large ones only the last."""
        self.last_inputs = [array.copy() for array in inputs]
        gathering.inputs.append(self.last_inputs)
        room = DEFAULT_INPUT_BYTES // len(self._gatherings)
        size = _nbytes(inputs)
        while len(gathering.inputs) > 1 and len(gathering.inputs) * size > room:
            gathering.inputs.popleft()

    def _hand_over_all(self) -> None:
        self._appended = time.monotonic()
        for shapes, gathering in self._gatherings.items():
            self._hand_over(shapes, gathering)

    def _hand_over(self, shapes: Shapes, gathering: _Gathering) -> None:
        if not gathering.runs:
            return
        found = gathering.recorder.leave(self._digest)
        batch = _Batch(shapes, found, list(gathering.inputs), gathering.runs, found.nbytes)
        if self._unseen_bytes + batch.unseen_bytes > _MOST_UNSEEN_BYTES:
            found.records()
            batch.unseen_bytes = 0
        gathering.runs = 0
        gathering.inputs.clear()
        with self._counts:
            if self._waiting_bytes + batch.nbytes > DEFAULT_INPUT_BYTES:
                del batch.inputs[:-1]
            self._waiting_bytes += batch.nbytes
            self._unseen_bytes += batch.unseen_bytes
        if not self._background.submit(lambda: self._persist(batch)):
            self._drop(batch)

    def _leave(self, batch: _Batch) -> None:
        """``batch`` waits no more, however that ended."""
        with self._counts:
            self._pending[batch.shapes] -= batch.runs
            self._waiting_bytes -= batch.nbytes
            self._see(batch)

    def _see(self, batch: _Batch) -> None:
        """No value of ``batch`` waits for a look any more."""
        with self._counts:
            self._unseen_bytes -= batch.unseen_bytes
            batch.unseen_bytes = 0

    def _drop(self, batch: _Batch) -> None:
        self._leave(batch)
        with self._counts:
            self.dropped_runs += batch.runs

    @property
    def failure(self) -> str | None:
        """Why not all that was recorded is in the store, None while it is, or is on its way."""
        reason = self.refused or self._problem
        if not self.dropped_runs:
            return reason
        return f"runs that were not recorded: {self.dropped_runs}, as {reason or 'the store was too slow'}"

    def runs(self, shapes: Shapes) -> int:
        """How often inputs of ``shapes`` have been recorded, by whatever process."""
        self._check_process()
        if not self._looked:
            self._look()
        with self._counts:
            return self._stored.get(shapes, 0) + self._pending[shapes]

    def _look(self) -> None:
        """Find out what is in the store: at once where that is possible, else later."""
        self._looked = True
        if not os.path.lexists(self.path):
            return
        try:
            store = RecordStore(self.path, self._digest, create=False, wait_seconds=0, private=True)
            found = store.shapes()
            with self._counts:
                self._stored = self._stored or found  # what was stored meanwhile has been counted, and this, too
        except OdcError:
            self._background.submit(lambda: self._persist(None))

    def sample(self, shapes: Shapes) -> list[Array] | None:
        """Inputs of ``shapes`` that were run before, by whatever process, None where none are at hand."""
        if self.last_inputs is not None and shapes_of(self.last_inputs) == shapes:
            return self.last_inputs
        if not os.path.lexists(self.path):
            return None
        try:
            store = RecordStore(self.path, self._digest, create=False, wait_seconds=0, private=True)
            found = store.inputs(1, shapes)
        except OdcError:
            return None
        return found[0] if found else None

    def flush(self, seconds: float = FINISH_SECONDS, then: Callable[[], None] | None = None) -> bool:
        """Put into the store what is not there yet, waiting at most ``seconds``; whether all is there.

        With ``then`` it does not wait: that is called, in the background, when everything has been tried.
        """
        self.hand_over()
        if then is not None:
            return self._background.submit(then, always=True)
        return self._background.wait(seconds) and self.failure is None

    def hand_over(self) -> None:
        """Let what was recorded be put into the store, without waiting for that."""
        self._check_process()
        with self._lock:
            self._hand_over_all()

    def finish(self) -> None:
        """The last flush: what cannot be put into the store in good time is dropped."""
        self.hand_over()
        _end(self._background)

    # In the background.

    def _persist(self, batch: _Batch | None) -> None:
        """Put ``batch`` into the store, or only look into it; what may be over soon is waited for, for a while."""
        records = None
        if batch is not None and self.refused is None:
            # Runs must not wait for this thread to let go of the interpreter.
            records = batch.gathered.records(between=lambda: time.sleep(0))
            self._see(batch)
        for pause in (*_RETRY_SECONDS, None):
            if self.refused is not None:
                break
            try:
                store = self._opened()
                if batch is not None and records is not None:
                    store.append(records, batch.shapes, batch.inputs)
            except OdcError as error:
                if not error.passing:
                    self.refused = str(error)
                    _log.warning("ranges are not recorded: %s", error)
                    break
                self._problem = str(error)
                if pause is None or self._background.hurry.wait(pause):
                    break
                continue
            self._problem = None
            self._count(store, batch)
            if self._cache_bytes is not None:  # once, as records are bounded for each model
                limit, self._cache_bytes = self._cache_bytes, None
                prune(self._root, limit, keep=frozenset({self._digest}))
            return
        if batch is not None:
            self._drop(batch)

    def _count(self, store: RecordStore, batch: _Batch | None) -> None:
        """``batch`` is in the store."""
        found = None
        with suppress(OdcError):
            found = store.shapes()
        with self._counts:
            if batch is not None:
                self._leave(batch)
                self._stored[batch.shapes] = self._stored.get(batch.shapes, 0) + batch.runs
            self._stored = self._stored if found is None else found

    def _opened(self) -> RecordStore:
        """The store, which is made where there is none; one that is damaged is moved aside before."""
        private.make_folder(self.path.parent, within=self._root)
        try:
            return self._store()
        except RecordsDamagedError:
            pass
        with file_lock(self.path.with_name(LOCK_FILE), seconds=_LOCK_SECONDS):
            try:
                return self._store()  # another process may have done it
            except RecordsDamagedError as error:
                aside = RecordStore.move_aside(self.path)
                _log.warning("%s; recording starts over, the old file is kept as %s", error, aside.name)
                return self._store()

    def _store(self) -> RecordStore:
        store = RecordStore(self.path, self._digest, wait_seconds=_STORE_WAIT_SECONDS, private=True)
        store.shapes()
        return store


def _end(background: Background) -> None:
    """Wait for a moment until nothing is on its way to the store, then let it be dropped."""
    if not background.wait(FINISH_SECONDS / 2):
        background.hurry.set()
        background.wait(FINISH_SECONDS / 2)
        background.hurry.clear()


def _nbytes(inputs: Sequence[Array]) -> int:
    return sum(array.nbytes for array in inputs)
