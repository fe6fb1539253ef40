"""Records of observed tensor ranges and inputs, collected during runs and stored in the background.

Sessions import this module in the first run. Therefore it loads the record store only when it stores something.
"""

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
from typing import TYPE_CHECKING, NamedTuple

from odc_mlir.calibration.recorded import Shapes, shapes_of
from odc_mlir.errors import OdcError, RecordsDamagedError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.auto.background import Background
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.units import Observer
from odc_mlir.runtime.recording import Gathered, Recorder

if TYPE_CHECKING:
    from odc_mlir.calibration.records import RecordStore

_log = logging.getLogger(__name__)

# Size of a batch. A killed process loses at most one batch. With larger batches, runs wait less for statistics.
_RUNS_PER_APPEND = 32
_SECONDS_PER_APPEND = 1.0
_INPUTS_KEPT = 32
# Number of recorders, one per set of input shapes. A new set of shapes gets the least recently used recorder.
_SHAPES_KEPT = 8
# Limit on batches that wait for a locked store. Further batches are dropped and counted.
_BATCHES_WAITING = 32
# Limit on recorded values without statistics. Beyond the limit, the run that adds a batch computes the statistics.
_MOST_UNSEEN_BYTES = 64 << 20
_STORE_WAIT_SECONDS = 0.2
_RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)  # waits between attempts; then the batch is dropped
_LOCK_SECONDS = 1.0
_INPUT_BYTES = 64 << 20  # limit on raw inputs that are not stored yet
LOCK_FILE = "lock"
FINISH_SECONDS = 2.0


class RecordsLocation(NamedTuple):
    """Location ``path`` of the records of the model with ``digest``, in the cache ``root``.

    With ``cache_bytes``, storing the first batch reduces the cache to that size. ``max_inputs``: number of raw inputs
    in the store (None: the default).
    """

    digest: str
    path: Path
    root: Path
    cache_bytes: int | None = None
    max_inputs: int | None = None


@dataclass(slots=True)
class _Gathering:
    """Runs with one set of input shapes that are not in a batch yet. ``inputs``: the raw inputs of the last runs."""

    recorder: Recorder
    runs: int = 0
    inputs: deque[list[Array]] = field(default_factory=lambda: deque(maxlen=_INPUTS_KEPT))


@dataclass(slots=True, eq=False)
class _Batch:
    shapes: Shapes
    gathered: Gathered
    inputs: list[list[Array]]
    runs: int

    @property
    def nbytes(self) -> int:
        """Size of the raw inputs."""
        return sum(map(_nbytes, self.inputs))


class RunRecorder:
    """Recorder of runs of ``graph``. It stores records in the background, at the location from ``find_location``.

    No run waits for the store or fails because of it. ``refused``: the reason why recording has ended. ``failure`` also
    reports temporary problems. A store that is damaged or belongs to another model is moved aside.
    """

    def __init__(self, graph: Graph, find_location: Callable[[], RecordsLocation]) -> None:
        self.refused: str | None = None
        self.keeps_all = False  # the application has requested the records
        self.dropped_runs = 0
        self.last_inputs: list[Array] | None = None
        self._problem: str | None = None
        self._graph, self._find_location = graph, find_location
        self._location: RecordsLocation | None = None
        self._has_pruned = False
        self._background = Background("odc-records", _BATCHES_WAITING)
        self._begin()
        # At the end of Python, wait a short time for pending batches.
        weakref.finalize(self, _end, self._background)

    @property
    def location(self) -> RecordsLocation:
        """Location of the records. Raises OdcError if the cache is unusable."""
        if self._location is None:
            self._location = self._find_location()
        return self._location

    def _begin(self) -> None:
        """Start without runs. A forked child also does this, because the parent keeps these records."""
        self._process = os.getpid()
        self._lock = RLock()  # guards the gathered runs
        self._counts = RLock()  # guards counters; held only for short updates
        self._background.begin()
        self._gatherings: OrderedDict[Shapes, _Gathering] = OrderedDict()
        self._pending: Counter[Shapes] = Counter()  # runs gathered or in batches, but not stored yet
        self._stored: dict[Shapes, int] = {}
        self._waiting: list[_Batch] = []
        self._has_looked = False
        self._appended = time.monotonic()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._begin()

    def run(self, executor: Executor, inputs: Sequence[Array], observe: Observer | None = None) -> list[Array]:
        """Return ``executor.run(inputs, observe=observe)`` and record the run. Raises the errors of this call."""
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
        """Keep copies of raw inputs until the inputs are stored, within a limit. Keep only the last of large inputs."""
        self.last_inputs = [array.copy() for array in inputs]
        gathering.inputs.append(self.last_inputs)
        room = _INPUT_BYTES // len(self._gatherings)
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
        batch = _Batch(shapes, gathering.recorder.leave(), list(gathering.inputs), gathering.runs)
        with self._counts:
            waiting = [*self._waiting, batch]
            self._waiting = waiting
        if sum(item.gathered.nbytes for item in waiting) > _MOST_UNSEEN_BYTES:
            batch.gathered.records()
        if sum(item.nbytes for item in waiting) > _INPUT_BYTES:
            del batch.inputs[:-1]
        gathering.runs = 0
        gathering.inputs.clear()
        if not self._background.submit(lambda: self._persist(batch)):
            self._drop(batch)

    def _leave(self, batch: _Batch) -> None:
        with self._counts:
            self._pending[batch.shapes] -= batch.runs
            self._waiting = [item for item in self._waiting if item is not batch]

    def _drop(self, batch: _Batch) -> None:
        self._leave(batch)
        with self._counts:
            self.dropped_runs += batch.runs

    @property
    def failure(self) -> str | None:
        """The reason why recorded runs are missing in the store, or None."""
        reason = self.refused or self._problem
        if not self.dropped_runs:
            return reason
        return f"runs that were not recorded: {self.dropped_runs}, as {reason or 'the store was too slow'}"

    def runs(self, shapes: Shapes) -> int:
        """Return the number of recorded runs on ``shapes``, including runs that :meth:`look` counted."""
        self._check_process()
        with self._counts:
            return self._stored.get(shapes, 0) + self._pending[shapes]

    def _peek(self) -> RecordStore | None:
        """Return the store, or None if there is no store. Do not wait for the lock. Raises OdcError."""
        return self._store(create=False, wait_seconds=0) if os.path.lexists(self.location.path) else None

    def look(self) -> None:
        """Read counts of other processes' records from the store, in the background if the store is locked."""
        self._check_process()
        if self._has_looked:
            return
        self._has_looked = True
        try:
            if (store := self._peek()) is not None:
                found = store.shapes()
                with self._counts:
                    self._stored = self._stored or found  # counts of a batch stored meanwhile are newer
        except OdcError:
            self._background.submit(lambda: self._persist(None))

    def sample(self, shapes: Shapes) -> list[Array] | None:
        """Return inputs of ``shapes`` from a run of any process, or None."""
        if self.last_inputs is not None and shapes_of(self.last_inputs) == shapes:
            return self.last_inputs
        with suppress(OdcError):
            if (store := self._peek()) is not None:
                return next(iter(store.inputs(1, shapes)), None)
        return None

    def forget(self, shapes: Shapes) -> None:
        """Drop the records of ``shapes``, because nothing will use them."""
        with self._lock:
            gathering = None if self.keeps_all else self._gatherings.pop(shapes, None)
            if gathering is not None:
                with self._counts:
                    self._pending[shapes] -= gathering.runs

    def flush(self, seconds: float = FINISH_SECONDS, then: Callable[[], None] | None = None) -> bool:
        """Store everything recorded, waiting at most ``seconds``. Return whether everything is stored.

        With ``then``, return at once, and call ``then`` in the background after the attempt.
        """
        self.hand_over()
        if then is not None:
            return self._background.submit(then, always=True)
        return self._background.wait(seconds) and self.failure is None

    def hand_over(self) -> None:
        """Store everything recorded in the background."""
        self._check_process()
        with self._lock:
            self._hand_over_all()

    def finish(self) -> None:
        """Store all records. Drop the rest if storing takes too long."""
        self.hand_over()
        _end(self._background)

    # In the background.

    def _persist(self, batch: _Batch | None) -> None:
        """Merge ``batch`` into the store, or only read the store's counts. Retry on temporary problems."""
        records = None
        if batch is not None and self.refused is None:
            # Release the interpreter's lock often, so that runs do not wait for this thread.
            records = batch.gathered.records(between=lambda: time.sleep(0))
        for pause in (*_RETRY_SECONDS, None):
            if self.refused is not None:
                break
            try:
                store = self._opened()
                if batch is not None and records is not None:
                    records.digest = self.location.digest
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
            self._prune()
            return
        if batch is not None:
            self._drop(batch)

    def _count(self, store: RecordStore, batch: _Batch | None) -> None:
        found = None
        with suppress(OdcError):
            found = store.shapes()
        with self._counts:
            if batch is not None:
                self._leave(batch)
                self._stored[batch.shapes] = self._stored.get(batch.shapes, 0) + batch.runs
            self._stored = self._stored if found is None else found

    def _prune(self) -> None:
        if not self._has_pruned and self.location.cache_bytes is not None:
            from odc_mlir.runtime.auto.artefacts import prune

            self._has_pruned = True
            prune(self.location.root, self.location.cache_bytes, keep=frozenset({self.location.digest}))

    def _opened(self) -> RecordStore:
        """Return the store. Create a missing store, and move a damaged store aside first."""
        from odc_mlir.calibration.records import RecordStore
        from odc_mlir.formats import private
        from odc_mlir.runtime.auto.artefacts import file_lock

        path = self.location.path
        private.make_folder(path.parent, within=self.location.root)
        try:
            return self._checked_store()
        except RecordsDamagedError:
            pass
        with file_lock(path.with_name(LOCK_FILE), seconds=_LOCK_SECONDS):
            try:
                return self._checked_store()  # another process may have replaced the store
            except RecordsDamagedError as error:
                aside = RecordStore.move_aside(path)
                _log.warning("%s; recording starts over, the old file is kept as %s", error, aside.name)
                return self._checked_store()

    def _checked_store(self) -> RecordStore:
        store = self._store(create=True, wait_seconds=_STORE_WAIT_SECONDS)
        store.shapes()
        return store

    def _store(self, *, create: bool, wait_seconds: float) -> RecordStore:
        from odc_mlir.calibration.records import RecordStore

        location = self.location
        limit = {} if location.max_inputs is None else {"max_inputs": location.max_inputs}
        return RecordStore(
            location.path, location.digest, create=create, wait_seconds=wait_seconds, private=True, **limit
        )


def _end(background: Background) -> None:
    """Wait a short time for tasks that store batches, then drop the rest."""
    if not background.wait(FINISH_SECONDS / 2):
        background.hurry.set()
        background.wait(FINISH_SECONDS / 2)
        background.hurry.clear()


def _nbytes(inputs: Sequence[Array]) -> int:
    return sum(array.nbytes for array in inputs)
