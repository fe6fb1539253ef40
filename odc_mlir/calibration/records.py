"""Record files of models: our store, onert's ``minmax.bin``, and descriptions of files as JSON data.

The store is an SQLite database with a rollback journal. Several processes can write to it, and may be killed. Each
addition is a batch. When a set of input shapes has many batches, the batches are joined. The last raw inputs are kept.

``minmax.bin`` is little-endian: u32 magic, u32 version, u32 number of runs. Then for each run u32 number of operators,
u32 number of inputs, and an entry for each operator and then for each input: u32 model, u32 subgraph, u32 operator or
input index, f32 minimum, f32 maximum. An operator's entry has the extremes of the first result.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.calibration.recorded import InputFacts, Records, Shapes, TensorKey, coverage, document, joined, shapes_of
from odc_mlir.calibration.statistics import TensorStatistics, can_pack, pack, unpack
from odc_mlir.errors import CacheError, ModelError, RecordsDamagedError, RecordsError, is_passing, of_system, parsing
from odc_mlir.formats import private
from odc_mlir.formats.circle.model import Model, Operator, Tensor
from odc_mlir.ops.dtypes import DTYPES

__all__ = ["RECORDS_VERSION", "SQLITE_MAGIC", "RecordStore", "Records", "Shapes", "TensorKey"]

RECORDS_VERSION = 1
DEFAULT_INPUTS = 64
DEFAULT_INPUT_BYTES = 64 << 20

SQLITE_MAGIC = b"SQLite format 3\0"
_APPLICATION = int.from_bytes(b"ODCR", "big")
_HEAD = 100  # bytes at the start that identify our files
_BATCHES_KEPT = 32  # limit on batches per set of shapes; the next batch joins all
_WAIT_SECONDS = 60.0  # for another process that is writing
# Advice for our own files only: users must not delete files of other programs.
_AFRESH = "record the model anew, in another file or after deleting this one"
_NOT_OURS = "give a file that odc-mlir wrote, such as by --save-records, or a minmax.bin"
_BESIDE = ("-journal", "-wal", "-shm")  # suffixes of SQLite's files beside a database

# SQLite's primary result codes of temporary and of permanent failures.
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
    """Return whether a file is a record store of ours. ``head``: the first 100 bytes or more."""
    return head.startswith(SQLITE_MAGIC) and int.from_bytes(head[68:72], "big") == _APPLICATION


class RecordStore:
    """The records in the file ``path``, of the model with ``digest`` (default: the model of the file).

    If ``create``, a missing file is created, with permissions only for the owner. The newest ``max_inputs`` raw inputs,
    of at most ``max_input_bytes`` together, are kept. While another process writes, calls wait at most
    ``wait_seconds``. ``private``: the file must be ours and regular, and permissions that are too wide are removed. All
    failures raise RecordsError: RecordsDamagedError for a file that is damaged, foreign or of another model, and a
    ``passing`` error for temporary causes. Threads and processes may share a file. An object of this class keeps
    nothing open between calls.
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
            with of_system("the folder cannot be made", RecordsError, location=str(self.path)):
                self.path.parent.mkdir(parents=True, exist_ok=True)
        elif not os.path.lexists(self.path):
            raise RecordsError(f"{self.path} does not exist")
        with self._open(write=create) as database:
            self.digest = self._enter(database, digest, create=create)

    @staticmethod
    def move_aside(path: Path) -> Path:
        """Rename the file at ``path`` and SQLite's auxiliary files. Return the new path. Raise RecordsError.

        Use this for damaged files, because the content may still be of interest.
        """
        aside = path.with_name(f"{path.name}.damaged-{secrets.token_hex(4)}")
        with of_system("the file cannot be moved aside", RecordsError, location=str(path)):
            # A remaining journal would be rolled back into the next file. Therefore it is deleted first.
            for suffix in (*_BESIDE, ""):
                with suppress(FileNotFoundError):
                    os.rename(f"{path}{suffix}", f"{aside}{suffix}")
        return aside

    @staticmethod
    def discard(path: str | os.PathLike[str]) -> None:
        """Delete the file at ``path``, of any kind, and SQLite's auxiliary files."""
        for suffix in (*_BESIDE, ""):
            with of_system("the file cannot be deleted", RecordsError, location=os.fspath(path)):
                Path(f"{os.fspath(path)}{suffix}").unlink(missing_ok=True)

    def append(self, records: Records, shapes: Shapes, inputs: Sequence[Sequence[NDArray[Any]]] = ()) -> None:
        """Add runs on inputs of ``shapes``, and raw ``inputs``, newest last, all or nothing."""
        self._check_digest(records.digest)
        # Recording must not wait for compression. Joined batches are compressed.
        tensors = [(*key, statistics.to_bytes(level=0)) for key, statistics in records.tensors.items()]
        facts = json.dumps({name: asdict(found) for name, found in records.inputs.items()})
        kept = [sample for sample in inputs[-self.max_inputs :] if all(map(can_pack, sample))]
        samples = [pack({}, {str(i): array for i, array in enumerate(sample)}, level=0) for sample in kept]
        key = _shapes_text(shapes)
        with self._open(write=True) as database:
            # Another process may have deleted the file meanwhile. The new file is empty.
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
            rows = database.execute("SELECT id, shapes, runs, inputs FROM batches ORDER BY id").fetchall()
            wanted = [row for row in rows if shapes is None or row[1] == _shapes_text(shapes)]
            result = joined(_batch(database, i, runs, inputs, self._where) for i, _, runs, inputs in wanted)
        result.digest = self.digest
        return result

    def statistics(self, shapes: Shapes | None = None) -> dict[str, TensorStatistics]:
        """Return statistics by tensor name, over all runs on inputs of ``shapes`` (default: any)."""
        return self.records(shapes).statistics()

    def runs(self, shapes: Shapes | None = None) -> int:
        """Return the number of inferences recorded on inputs of ``shapes`` (default: of any)."""
        by_shapes = self.shapes()
        return sum(by_shapes.values()) if shapes is None else by_shapes.get(shapes, 0)

    def shapes(self) -> dict[Shapes, int]:
        """Return the sets of input shapes with numbers of runs, in order of first use."""
        with self._open() as database:
            rows = database.execute("SELECT shapes, SUM(runs) FROM batches GROUP BY shapes ORDER BY MIN(id)").fetchall()
        with _content(self._where):
            return {tuple(tuple(map(int, shape)) for shape in json.loads(text)): int(runs) for text, runs in rows}

    def inputs(self, count: int = -1, shapes: Shapes | None = None) -> list[list[NDArray[Any]]]:
        """Return the stored raw inputs of ``shapes`` (default: any), or the last ``count`` inputs, oldest first."""
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
        """Delete the runs on inputs of ``shapes``. If None, delete all runs and all raw inputs."""
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
        """Open a connection with a transaction, which is committed at the end if no exception was raised."""
        self._check_files(create=write)
        try:
            with closing(sqlite3.connect(self.path, timeout=self.wait_seconds, isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield database
                except BaseException:
                    # The first error matters, not the failing rollback of a broken file.
                    with suppress(sqlite3.Error):
                        database.execute("ROLLBACK")
                    raise
                database.execute("COMMIT")
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise self._typed(error) from None

    def _check_files(self, *, create: bool) -> None:
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
            raise RecordsError(error.message, location=error.location, hint=error.hint, passing=error.passing) from None
        except OSError as error:
            # If the file is missing, another process has just deleted it, and another attempt creates it.
            is_gone = isinstance(error, FileNotFoundError)
            raise RecordsError(
                f"the records cannot be used: {error.strerror}",
                location=self._where,
                passing=is_gone or is_passing(error),
            ) from None

    def _typed(self, error: Exception) -> RecordsError:
        whole = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        code = whole & 0xFF  # primary result code
        if code in _BUSY or whole == sqlite3.SQLITE_READONLY_DBMOVED:  # the file was deleted after it had been opened
            return RecordsError(f"the records cannot be used now: {error}", location=self._where, passing=True)
        if code in _REFUSED:
            return RecordsError(f"the records cannot be used: {error}", location=self._where)
        return self._damaged(str(error))

    def _damaged(self, reason: str) -> RecordsDamagedError:
        return _damage(reason, self._where)

    def _enter(self, database: sqlite3.Connection, digest: str | None, *, create: bool) -> str:
        """Create the tables of an empty file, otherwise check the owner. Return the digest of the file's model."""
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
    rows = database.execute("SELECT id, runs, inputs FROM batches WHERE shapes = ? ORDER BY id", (key,)).fetchall()
    if len(rows) <= _BATCHES_KEPT:
        return
    with _content(where):  # one batch at a time, because histograms are large
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
    """Return whether a file is regular or missing. SQLite may remove auxiliary files at any time."""
    try:
        return stat.S_ISREG(place.stat().st_mode)
    except FileNotFoundError:
        return True


def _damage(reason: str, where: str) -> RecordsDamagedError:
    with suppress(OSError), Path(where).open("rb") as file:
        if not is_record_store(file.read(_HEAD)):
            return _not_ours(where)
    return RecordsDamagedError(f"the file of records is damaged: {reason}", location=where, hint=_AFRESH)


def _not_ours(where: str) -> RecordsDamagedError:
    return RecordsDamagedError("this is not a file of records", location=where, hint=_NOT_OURS)


def _shapes_text(shapes: Shapes) -> str:
    return json.dumps([[int(dim) for dim in shape] for shape in shapes])


MAGIC = 0x4F4D4D44
VERSION = 1

_HEADER = np.dtype([("magic", "<u4"), ("version", "<u4"), ("runs", "<u4")])
_RUN = np.dtype([("operators", "<u4"), ("inputs", "<u4")])
_ENTRY = np.dtype([("model", "<u4"), ("subgraph", "<u4"), ("index", "<u4"), ("low", "<f4"), ("high", "<f4")])


def is_minmax(data: bytes) -> bool:
    """Return whether a file that starts with ``data`` is a ``minmax.bin``."""
    return data[:4] == MAGIC.to_bytes(4, "little")


def read_minmax(data: bytes, model: Model, *, location: str | None = None) -> Records:
    """Read the records of ``model`` in a file. The statistics of tensors have only extremes.

    Each run in the file counts as a run, but onert writes an additional run for each subgraph that an inference calls.
    Raises RecordsError for a file that is damaged, of another version or of another model.
    """
    extremes: dict[TensorKey, list[tuple[float, float]]] = {}
    runs, named = read_runs(data, location), [subgraph.named() for subgraph in model.subgraphs]
    for operators, inputs in runs:
        for entries, of_input in ((operators, False), (inputs, True)):
            for entry in entries.tolist():
                key = _tensor_of(model, named, entry, of_input, location)
                extremes.setdefault(key, []).append((entry[3], entry[4]))
    if runs:
        _check_of_model(extremes, model, named[0], location)
    tensors = {key: TensorStatistics.of_extremes(*zip(*pairs, strict=True)) for key, pairs in extremes.items()}
    return Records("", len(runs), tensors)


# Possible range of results, by operator or fused activation, with a tolerance for rounding.
_BOUNDS = {
    "RELU": (0.0, math.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
    "LOGISTIC": (0.0, 1.0),
    "SOFTMAX": (0.0, 1.0),
    "TANH": (-1.0, 1.0),
    "ABS": (0.0, math.inf),
    "EXP": (0.0, math.inf),
}
_SLACK = 1e-3


def _check_of_model(
    extremes: Mapping[TensorKey, list[tuple[float, float]]], model: Model, tensors: Sequence[Tensor], where: str | None
) -> None:
    """Raise RecordsError if a file cannot have been recorded for ``model``.

    The format does not name the model. A recorder may have fused operators. However, every float output that a single
    operator computes is present, and no result exceeds the possible range of the operator.
    """
    hint = "the file was recorded with another model: record this one"
    main = model.subgraphs[0]
    constants = model.constants(0)
    for index, operator in enumerate(main.operators):
        if len(operator.outputs) != 1:
            continue
        tensor = tensors[operator.outputs[0]]
        is_real = DTYPES[tensor.dtype].kind == "float"
        found = extremes.get((0, tensor.name))
        is_given = operator.outputs[0] in main.outputs
        if found is None and is_given and is_real and any(i >= 0 and i not in constants for i in operator.inputs):
            text = f"the file has no range of operator {index}"
        elif found is not None and not is_real:
            text = f"the file has a range of operator {index}, whose result is {tensor.dtype}"
        elif found is not None and (beyond := _beyond(operator, found)) is not None:
            text = f"the file has {beyond:g} as result of operator {index}, which cannot be"
        else:
            continue
        raise RecordsError(text, op=operator.label, tensor=tensor.name, location=where, hint=hint)


def _beyond(operator: Operator, found: Sequence[tuple[float, float]]) -> float | None:
    fused = str(operator.options.get("fused_activation_function") or "").upper()
    least, most = _BOUNDS.get(fused if fused in _BOUNDS else operator.name, (-math.inf, math.inf))
    return next((end for pair in found for end in pair if end < least - _SLACK or end > most + _SLACK), None)


def read_runs(data: bytes, location: str | None = None) -> list[tuple[NDArray[np.void], NDArray[np.void]]]:
    """Return by run the entries of operators and of inputs, with the fields model, subgraph, index, low, high.

    Raises RecordsError for a file that is damaged or of another version.
    """
    if len(data) < _HEADER.itemsize or not is_minmax(data):
        raise RecordsError("this is not a minmax.bin", location=location)
    _, version, count = np.frombuffer(data, _HEADER, 1)[0].tolist()
    if version != VERSION:
        raise RecordsError(f"minmax.bin is of version {version}, expected {VERSION}", location=location)
    offset = _HEADER.itemsize
    runs: list[tuple[NDArray[np.void], NDArray[np.void]]] = []

    def take(dtype: np.dtype[np.void], number: int) -> NDArray[np.void]:
        nonlocal offset
        if number * dtype.itemsize > len(data) - offset:
            raise RecordsError(f"minmax.bin ends after {len(data)} bytes, within run {len(runs)}", location=location)
        result = np.frombuffer(data, dtype, number, offset)
        offset += number * dtype.itemsize
        return result

    for _ in range(count):
        operators, inputs = take(_RUN, 1)[0].tolist()
        runs.append((take(_ENTRY, operators), take(_ENTRY, inputs)))
    if offset < len(data):
        raise RecordsError(f"minmax.bin has {len(data) - offset} bytes after its {count} runs", location=location)
    return runs


def _tensor_of(
    model: Model,
    named: Sequence[Sequence[Tensor]],
    entry: tuple[int, int, int, float, float],
    of_input: bool,
    where: str | None,
) -> TensorKey:
    model_index, subgraph_index, index, low, high = entry
    kind = "input" if of_input else "operator"
    if not (math.isnan(low) or math.isnan(high)) and low > high:
        raise RecordsError(f"the range of {kind} {index} is {low:g} to {high:g}", location=where)
    if model_index == 0 and subgraph_index < len(model.subgraphs):
        subgraph = model.subgraphs[subgraph_index]
        if of_input and index < len(subgraph.inputs):
            return subgraph_index, named[subgraph_index][subgraph.inputs[index]].name
        if not of_input and index < len(subgraph.operators) and subgraph.operators[index].outputs:
            return subgraph_index, named[subgraph_index][subgraph.operators[index].outputs[0]].name
    raise RecordsError(
        f"the file has a range of {kind} {index} in subgraph {subgraph_index} of model {model_index}",
        location=where,
        hint="the model has none such; the file was recorded with another one",
    )


def write_minmax(records: Records, model: Model) -> bytes:
    """Return the bytes of a ``minmax.bin`` with every run of ``records``. Raises ModelError for a wrong model.

    Variables and the second and further results of operators are left out, because the format cannot express these.
    """
    named = [subgraph.named() for subgraph in model.subgraphs]
    names = {(index, tensor.name) for index, tensors in enumerate(named) for tensor in tensors}
    for key in records.tensors:
        if key not in names:
            raise ModelError("the records are of another model: this one has no such tensor", tensor=key[1])
    operators = list(_addresses(records.tensors, model, named, of_inputs=False))
    inputs = list(_addresses(records.tensors, model, named, of_inputs=True))
    parts = [np.array([(MAGIC, VERSION, records.runs)], _HEADER).tobytes()]
    for run in range(records.runs):
        entries = [_entries(part, run) for part in (operators, inputs)]
        parts.append(np.array([(len(entries[0]), len(entries[1]))], _RUN).tobytes())
        parts += [np.array(part, _ENTRY).tobytes() for part in entries]
    return b"".join(parts)


_Address = tuple[int, int, NDArray[np.float32]]


def _addresses(
    tensors: Mapping[TensorKey, TensorStatistics], model: Model, named: Sequence[Sequence[Tensor]], *, of_inputs: bool
) -> Iterator[_Address]:
    """Return subgraph, operator or input index, and extremes of each recorded tensor."""
    for number, subgraph in enumerate(model.subgraphs):
        firsts = [operator.outputs[0] if operator.outputs else None for operator in subgraph.operators]
        for index, tensor in enumerate(subgraph.inputs if of_inputs else firsts):
            if tensor is not None and DTYPES[subgraph.tensors[tensor].dtype].kind == "float":
                found = tensors.get((number, named[number][tensor].name))
                if found is not None:
                    yield number, index, found.run_extremes


def _entries(addresses: list[_Address], run: int) -> list[tuple[int, int, int, float, float]]:
    """Return the entries of one run, for tensors that have a value in this run."""
    return [
        (0, subgraph, index, float(extremes[0, run]), float(extremes[1, run]))
        for subgraph, index, extremes in addresses
        if run < extremes.shape[1] and extremes[0, run] <= extremes[1, run]
    ]


Document = dict[str, Any]


def describe_records(path: str | os.PathLike[str]) -> Document:
    """Describe the record file at ``path``. Raises RecordsError."""
    store = RecordStore(path, create=False)
    records = store.records()
    inputs = [key for key in records.tensors if key[0] == 0 and key[1] in records.inputs]
    return {
        "format": "records",
        "version": RECORDS_VERSION,
        "digest": store.digest,
        "runs": records.runs,
        "shapes": [{"inputs": [list(s) for s in shapes], "runs": runs} for shapes, runs in store.shapes().items()],
        "raw_inputs": len(store.inputs()),
        "tensors": [_tensor(key, statistics) for key, statistics in records.tensors.items()],
        "findings": document(coverage(records, inputs)),
    }


def _tensor(key: TensorKey, statistics: TensorStatistics) -> Document:
    return {
        "subgraph": key[0],
        "name": key[1],
        "runs": statistics.runs,
        "minimum": _finite(statistics.minimum),
        "maximum": _finite(statistics.maximum),
        "mean": _finite(statistics.mean) if statistics.count else None,
        "deviation": _finite(math.sqrt(statistics.variance)) if statistics.count else None,
        "elements": statistics.count,
        "channels": None if statistics.channels is None else len(statistics.channels.counts),
        "nan": statistics.nan_count,
        "infinite": statistics.infinite_count,
        "lowest": statistics.lowest_count,
        "run_minima": [float(value) for value in statistics.minima],
        "run_maxima": [float(value) for value in statistics.maxima],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def describe_minmax(data: bytes, location: str | None = None) -> Document:
    """Describe a ``minmax.bin`` by indices of operators and inputs. Raises RecordsError."""
    runs = read_runs(data, location)
    found: dict[tuple[int, int, str, int], list[tuple[float, float]]] = {}
    for parts in runs:
        for entries, kind in zip(parts, ("operator", "input"), strict=True):
            for model, subgraph, index, low, high in entries.tolist():
                found.setdefault((model, subgraph, kind, index), []).append((low, high))
    return {
        "format": "minmax",
        "version": VERSION,
        "runs": len(runs),
        "ranges": [
            {
                "model": model,
                "subgraph": subgraph,
                "kind": kind,
                "index": index,
                "runs": len(pairs),
                "minimum": _finite(min(low for low, _ in pairs)),
                "maximum": _finite(max(high for _, high in pairs)),
            }
            for (model, subgraph, kind, index), pairs in found.items()
        ],
    }
