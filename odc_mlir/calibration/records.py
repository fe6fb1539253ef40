"""A file that gathers records of one model, run after run, process after process.

It is an SQLite database with a rollback journal: what a process adds is there as a whole or not at all, also when it is
killed on the way, and several may add at a time. Each addition is a batch of its own; many of them are joined into one
per set of input shapes. The last raw inputs are kept beside, within bounds, so that a quantised model can be checked on
what the model really gets.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from odc_mlir.calibration.packing import can_pack, pack, unpack
from odc_mlir.calibration.recorded import InputFacts, Records, Shapes, TensorKey, joined, shapes_of
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import CacheError, RecordsDamagedError, RecordsError, is_passing, parsing
from odc_mlir.formats import private

__all__ = ["RECORDS_VERSION", "SQLITE_MAGIC", "RecordStore", "Records", "Shapes", "TensorKey"]

RECORDS_VERSION = 1
DEFAULT_INPUTS = 64
DEFAULT_INPUT_BYTES = 64 << 20

SQLITE_MAGIC = b"SQLite format 3\0"
_APPLICATION = int.from_bytes(b"ODCR", "big")
_HEAD = 100  # bytes, which say whose file it is
_BATCHES_KEPT = 32  # per set of shapes; one more joins them
_WAIT_SECONDS = 60.0  # for another process that is writing
# Advice for files that are ours alone: what somebody else wrote is not to be deleted for us.
_AFRESH = "record the model anew, in another file or after deleting this one"
_NOT_OURS = "give a file that odc-mlir wrote, such as by --save-records, or a minmax.bin"
_BESIDE = ("-journal", "-wal", "-shm")  # what SQLite may keep beside a file

# SQLite's primary result codes: of what may be over soon, and of what no other try can change.
_BUSY = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_REFUSED = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})

_SCHEMA = """
CREATE TABLE about (digest TEXT NOT NULL);
CREATE TABLE batches (id INTEGER PRIMARY KEY AUTOINCREMENT, shapes TEXT NOT NULL, runs INTEGER NOT NULL,
                      inputs TEXT NOT NULL);
CREATE TABLE tensors (batch INTEGER NOT NULL, subgraph INTEGER NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL,
                      PRIMARY KEY (batch, subgraph, name));
CREATE TABLE samples (id INTEGER PRIMARY KEY AUTOINCREMENT, bytes INTEGER NOT NULL, data BLOB NOT NULL);
"""


def is_record_store(head: bytes) -> bool:
    """Whether the file that starts with ``head``, 100 bytes or more of it, is one of ours."""
    return head.startswith(SQLITE_MAGIC) and int.from_bytes(head[68:72], "big") == _APPLICATION


class RecordStore:
    """The records in the file ``path``, of the model with ``digest`` (default: whatever model the file is of).

    The file is made, with rights for its owner alone, when it is not there, unless ``create`` is false. At most
    ``max_inputs`` raw inputs of together ``max_input_bytes`` are kept, the newest. While another process writes, calls
    wait at most ``wait_seconds``. ``private``: the file must be ours, and a regular file; rights that are too wide are
    taken back. Everything raises RecordsError: RecordsDamagedError for a file that is damaged, none of ours or of
    another model, and a ``passing`` one for what may be over soon. Threads and processes may share a file; an object of
    this class holds nothing open between calls.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        digest: str | None = None,
        *,
        create: bool = True,
        max_inputs: int = DEFAULT_INPUTS,
        max_input_bytes: int = DEFAULT_INPUT_BYTES,
        wait_seconds: float = _WAIT_SECONDS,
        private: bool = False,
    ) -> None:
        self.path = Path(path)
        self.wait_seconds = wait_seconds
        self.private = private
        self.max_inputs = max_inputs
        self.max_input_bytes = max_input_bytes
        if create:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RecordsError(
                    f"the folder cannot be made: {error.strerror}", location=str(self.path), passing=is_passing(error)
                ) from None
        elif not os.path.lexists(self.path):
            raise RecordsError("there is no such file of records", location=str(self.path))
        with self._open(write=create) as database:
            self.digest = self._enter(database, digest, create=create)

    @staticmethod
    def move_aside(path: Path) -> Path:
        """Give the file at ``path``, with what SQLite may have left beside it, another name; that. Raises RecordsError.

        For a file that is damaged: someone may want to know what was in it.
        """
        aside = path.with_name(f"{path.name}.damaged-{secrets.token_hex(4)}")
        try:
            # A journal that stays behind would be rolled back into the next file, so it goes first.
            for suffix in (*_BESIDE, ""):
                with suppress(FileNotFoundError):
                    os.rename(f"{path}{suffix}", f"{aside}{suffix}")
        except OSError as error:
            raise RecordsError(f"the file cannot be moved aside: {error.strerror}", location=str(path)) from None
        return aside

    @staticmethod
    def discard(path: str | os.PathLike[str]) -> None:
        """Delete the file at ``path``, whatever it is, with what SQLite may have left beside it."""
        for suffix in (*_BESIDE, ""):
            try:
                Path(f"{os.fspath(path)}{suffix}").unlink(missing_ok=True)
            except OSError as error:
                raise RecordsError(f"the file cannot be deleted: {error.strerror}", location=os.fspath(path)) from None

    def append(self, records: Records, shapes: Shapes, inputs: Sequence[Sequence[NDArray[Any]]] = ()) -> None:
        """Add runs on inputs of ``shapes``, and raw ``inputs``, newest last, all or nothing."""
        self._check_digest(records.digest)
        # Not compressed: recording must not wait for that. Batches that are joined are.
        tensors = [(*key, statistics.to_bytes(level=0)) for key, statistics in records.tensors.items()]
        facts = json.dumps({name: asdict(found) for name, found in records.inputs.items()})
        samples = [_packed_sample(sample) for sample in inputs[-self.max_inputs :] if all(map(can_pack, sample))]
        key = _shapes_text(shapes)
        with self._open(write=True) as database:
            # The file may have been deleted meanwhile, and then is empty again.
            self._enter(database, self.digest, create=True)
            if records.runs or tensors:
                _insert(database, key, records.runs, facts, tensors)
                _compact(database, key, self._where)
            database.executemany("INSERT INTO samples (bytes, data) VALUES (?, ?)", [(len(s), s) for s in samples])
            self._trim(database)

    def _check_digest(self, digest: str) -> None:
        if digest and self.digest and digest != self.digest:
            raise RecordsDamagedError(
                f"the file holds records of the model {self.digest[:12]}, not of {digest[:12]}",
                location=self._where,
                hint="use another file, or the model that was recorded",
            )

    def _trim(self, database: sqlite3.Connection) -> None:
        """Forget the oldest raw inputs beyond the bounds."""
        total = 0
        rows = database.execute("SELECT id, COALESCE(LENGTH(data), 0) FROM samples ORDER BY id DESC").fetchall()
        for place, (identity, size) in enumerate(rows):
            total += size
            if place >= self.max_inputs or total > self.max_input_bytes:
                database.execute("DELETE FROM samples WHERE id <= ?", (identity,))
                return

    def records(self, shapes: Shapes | None = None) -> Records:
        """Return the runs on inputs of ``shapes`` (default: all) in order of insertion."""
        with self._open() as database, _content(self._where):
            result = joined(self._batches(database, shapes))
        result.digest = self.digest
        return result

    def _batches(self, database: sqlite3.Connection, shapes: Shapes | None) -> Iterator[Records]:
        rows = database.execute("SELECT id, shapes, runs, inputs FROM batches ORDER BY id").fetchall()
        for identity, key, runs, inputs in rows:
            if shapes is None or key == _shapes_text(shapes):
                yield _batch(database, identity, runs, inputs, self._where)

    def statistics(self, shapes: Shapes | None = None) -> dict[str, TensorStatistics]:
        """Statistics by tensor name, over all runs on inputs of ``shapes`` (default: of any)."""
        return self.records(shapes).statistics()

    def runs(self, shapes: Shapes | None = None) -> int:
        """How many inferences have been recorded on inputs of ``shapes`` (default: of any)."""
        by_shapes = self.shapes()
        return sum(by_shapes.values()) if shapes is None else by_shapes.get(shapes, 0)

    def shapes(self) -> dict[Shapes, int]:
        """Return the sets of input shapes with their number of runs, in order of first use."""
        with self._open() as database:
            rows = database.execute("SELECT shapes, SUM(runs) FROM batches GROUP BY shapes ORDER BY MIN(id)").fetchall()
        with _content(self._where):
            return {tuple(tuple(map(int, shape)) for shape in json.loads(text)): int(runs) for text, runs in rows}

    def inputs(self, count: int = -1, shapes: Shapes | None = None) -> list[list[NDArray[Any]]]:
        """The raw inputs of ``shapes`` (default: of any) that are kept, or their last ``count``, oldest first."""
        found: list[list[NDArray[Any]]] = []
        with self._open() as database:
            rows = database.execute("SELECT data FROM samples ORDER BY id DESC")
            while len(found) != count and (row := rows.fetchone()) is not None:
                with _content(self._where):
                    sample = list(unpack(row[0])[1].values())
                if shapes is None or shapes_of(sample) == shapes:
                    found.append(sample)
        return found[::-1]

    def reset(self, shapes: Shapes | None = None) -> None:
        """Forget the runs on inputs of ``shapes``; without, all runs and all raw inputs."""
        with self._open(write=True) as database:
            self._enter(database, self.digest, create=True)
            condition, values = ("", ()) if shapes is None else (" WHERE shapes = ?", (_shapes_text(shapes),))
            database.execute(f"DELETE FROM tensors WHERE batch IN (SELECT id FROM batches{condition})", values)
            database.execute(f"DELETE FROM batches{condition}", values)
            if shapes is None:
                database.execute("DELETE FROM samples")

    @property
    def _where(self) -> str:
        return str(self.path)

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection in one transaction, which takes effect at the end unless something is raised."""
        self._check_files(create=write)
        try:
            with closing(sqlite3.connect(self.path, timeout=self.wait_seconds, isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield database
                except BaseException:
                    # The cause counts, not that a broken file cannot roll back either.
                    with suppress(sqlite3.Error):
                        database.execute("ROLLBACK")
                    raise
                database.execute("COMMIT")
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise self._typed(error) from None

    def _check_files(self, *, create: bool) -> None:
        """Raise RecordsError unless SQLite can open the file without waiting; create it if asked."""
        try:
            if create and not os.path.lexists(self.path):
                private.make_empty_file(self.path)
            for suffix in ("", *_BESIDE):
                place = Path(f"{self.path}{suffix}")
                if self.private:
                    private.check_file(place)
                elif not _is_regular(place):
                    raise RecordsError("the records cannot be used: it is not a regular file", location=str(place))
        except CacheError as error:
            raise _of_records(error) from None
        except OSError as error:
            # What is not there any more has just been deleted, and is made anew by another try.
            is_gone = isinstance(error, FileNotFoundError)
            raise RecordsError(
                f"the records cannot be used: {error.strerror}",
                location=self._where,
                passing=is_gone or is_passing(error),
            ) from None

    def _typed(self, error: Exception) -> RecordsError:
        whole = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        code = whole & 0xFF  # the rest says more of it
        if code in _BUSY or whole == sqlite3.SQLITE_READONLY_DBMOVED:  # the file was deleted after it had been opened
            return RecordsError(f"the records cannot be used now: {error}", location=self._where, passing=True)
        if code in _REFUSED:
            return RecordsError(f"the records cannot be used: {error}", location=self._where)
        return self._damaged(str(error))

    def _damaged(self, reason: str) -> RecordsDamagedError:
        return _damage(reason, self._where)

    def _enter(self, database: sqlite3.Connection, digest: str | None, *, create: bool) -> str:
        """Make the tables of an empty file, else check whose they are; the digest of the file's model."""
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if create and not application and not tables:
            for statement in _SCHEMA.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {_APPLICATION}")
            database.execute(f"PRAGMA user_version = {RECORDS_VERSION}")
            database.execute("INSERT INTO about (digest) VALUES (?)", (digest or "",))
            return digest or ""
        if application != _APPLICATION:
            raise _not_ours(self._where)
        if version != RECORDS_VERSION:
            is_newer = version > RECORDS_VERSION
            age, kind = ("newer", RecordsError) if is_newer else ("older", RecordsDamagedError)
            raise kind(
                f"the records are of version {version}, {age} than {RECORDS_VERSION}, which is the one known here",
                location=self._where,
                hint="use another file, or a newer odc-mlir" if is_newer else _AFRESH,
            )
        row = database.execute("SELECT digest FROM about").fetchone()
        if row is None:
            raise self._damaged("it does not say which model it is of")
        self.digest = str(row[0])
        if digest:
            self._check_digest(digest)
        if digest and not self.digest:
            database.execute("UPDATE about SET digest = ?", (digest,))
        return self.digest or digest or ""


def _insert(
    database: sqlite3.Connection, key: str, runs: int, facts: str, tensors: Sequence[tuple[int, str, bytes]]
) -> None:
    row = database.execute("INSERT INTO batches (shapes, runs, inputs) VALUES (?, ?, ?)", (key, runs, facts))
    database.executemany(
        "INSERT INTO tensors (batch, subgraph, name, data) VALUES (?, ?, ?, ?)",
        [(row.lastrowid, *tensor) for tensor in tensors],
    )


def _compact(database: sqlite3.Connection, key: str, where: str) -> None:
    """Join the batches of one set of shapes when they are many."""
    rows = database.execute("SELECT id, runs, inputs FROM batches WHERE shapes = ? ORDER BY id", (key,)).fetchall()
    if len(rows) <= _BATCHES_KEPT:
        return
    with _content(where):  # batch by batch: histograms are large
        whole = joined(_batch(database, identity, runs, inputs, where) for identity, runs, inputs in rows)
    for identity, _, _ in rows:
        database.execute("DELETE FROM tensors WHERE batch = ?", (identity,))
        database.execute("DELETE FROM batches WHERE id = ?", (identity,))
    tensors = [(*name, statistics.to_bytes()) for name, statistics in whole.tensors.items()]
    _insert(database, key, whole.runs, json.dumps({k: asdict(v) for k, v in whole.inputs.items()}), tensors)


def _batch(database: sqlite3.Connection, identity: int, runs: int, inputs: str, where: str) -> Records:
    query = "SELECT subgraph, name, data FROM tensors WHERE batch = ? ORDER BY rowid"
    rows = database.execute(query, (identity,)).fetchall()
    with _content(where):
        tensors = {(int(subgraph), str(name)): TensorStatistics.from_bytes(data) for subgraph, name, data in rows}
        return Records(
            "", int(runs), tensors, {name: InputFacts(**facts) for name, facts in json.loads(inputs).items()}
        )


def _content(where: str) -> AbstractContextManager[None]:
    """Convert errors of decoding rows to RecordsDamagedError. SQL errors are handled elsewhere."""
    return parsing("the file of records is damaged", RecordsDamagedError, location=where, hint=_AFRESH)


def _is_regular(place: Path) -> bool:
    """Whether a regular file is at ``place``, or nothing: SQLite's files beside its own come and go at any time."""
    try:
        return stat.S_ISREG(place.stat().st_mode)
    except FileNotFoundError:
        return True


def _damage(reason: str, where: str) -> RecordsDamagedError:
    """What SQLite finds wrong: a damaged file of ours, or one of another kind, which is no damage of it."""
    with suppress(OSError), Path(where).open("rb") as file:
        if not is_record_store(file.read(_HEAD)):
            return _not_ours(where)
    return RecordsDamagedError(f"the file of records is damaged: {reason}", location=where, hint=_AFRESH)


def _not_ours(where: str) -> RecordsDamagedError:
    return RecordsDamagedError("this is not a file of records", location=where, hint=_NOT_OURS)


def _of_records(error: CacheError) -> RecordsError:
    return RecordsError(error.message, location=error.location, hint=error.hint, passing=error.passing)


def _packed_sample(sample: Sequence[NDArray[Any]]) -> bytes:
    return pack({}, {str(index): array for index, array in enumerate(sample)}, level=0)


def _shapes_text(shapes: Shapes) -> str:
    return json.dumps([[int(dim) for dim in shape] for shape in shapes])
