"""The file of records: several writers, sudden death, other versions, damage."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from odc_mlir.calibration import records as module
from odc_mlir.calibration.recorded import InputFacts, Records
from odc_mlir.calibration.records import RECORDS_VERSION, RecordStore
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import RecordsError
from odc_mlir.formats.cache import records_path

SHAPES = ((1, 2),)


def _records(*values: float, digest: str = "") -> Records:
    """One run per value, in which the tensor t of the main graph held just that."""
    stats = TensorStatistics()
    for value in values:
        stats.add(np.array([value], np.float32))
    facts = InputFacts()
    for value in values:
        facts.add(np.array([value]))
    return Records(digest, len(values), {(0, "t"): stats}, {"in": facts})


def test_what_is_added_comes_back_in_order(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "a" / "ranges.sqlite", "d1")
    store.append(_records(1, 2), SHAPES)
    store.append(_records(0.5), ((1, 3),))
    store.append(_records(3), SHAPES)
    again = RecordStore(store.path)
    assert again.digest == "d1"
    assert again.statistics()["t"].maxima.tolist() == [1, 2, 0.5, 3]
    assert again.statistics(SHAPES)["t"].maxima.tolist() == [1, 2, 3]
    assert (again.runs(), again.runs(SHAPES), again.runs(((9,),))) == (4, 3, 0)
    assert list(again.shapes().items()) == [(SHAPES, 3), (((1, 3),), 1)]
    records = again.records()
    assert (records.runs, records.digest) == (4, "d1")
    assert not records.inputs["in"].identical


def test_many_batches_are_joined(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "r")
    count = 2 * module._BATCHES_KEPT + 3
    for k in range(count):
        store.append(_records(k), SHAPES)
    with sqlite3.connect(store.path) as database:
        (batches,) = database.execute("SELECT COUNT(*) FROM batches").fetchone()
        (tensors,) = database.execute("SELECT COUNT(*) FROM tensors").fetchone()
    assert batches == tensors <= module._BATCHES_KEPT
    assert store.statistics()["t"].maxima.tolist() == list(range(count))
    assert store.runs() == count


def test_tensors_of_subgraphs_are_kept_apart(tmp_path: Path) -> None:
    store, records = RecordStore(tmp_path / "r"), _records(1)
    records.tensors[2, "t"] = _records(5).tensors[0, "t"]
    records.tensors[1, "u"] = _records(6).tensors[0, "t"]
    store.append(records, SHAPES)
    assert {key: stats.maximum for key, stats in store.records().tensors.items()} == {
        (0, "t"): 1.0,
        (2, "t"): 5.0,
        (1, "u"): 6.0,
    }
    assert {name: stats.maximum for name, stats in store.statistics().items()} == {"t": 1.0, "u": 6.0}


def test_the_newest_inputs_are_kept_within_bounds(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "r", max_inputs=3)
    store.append(_records(1), SHAPES, [[np.full((1, 2), k, np.float32), np.array([k])] for k in range(5)])
    kept = store.inputs()
    assert [int(sample[1][0]) for sample in kept] == [2, 3, 4]
    assert (kept[0][0].dtype, kept[0][0].shape) == (np.float32, (1, 2))
    store.append(_records(1), SHAPES, [[np.array([5])]])
    assert [int(sample[-1][0]) for sample in store.inputs()] == [3, 4, 5]
    tight = RecordStore(store.path, max_input_bytes=3000)
    tight.append(_records(1), SHAPES, [[np.full(300, k, np.float32)] for k in range(4)])
    assert [int(sample[0][0]) for sample in tight.inputs()] == [2, 3]
    store.append(_records(1), SHAPES, [[np.array([b"text"], object)]])
    assert len(store.inputs()) == 2


def test_reset(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "r", "d")
    for shapes in (SHAPES, ((4,),)):
        store.append(_records(1), shapes, [[np.zeros(1)]])
    store.reset(SHAPES)
    assert (store.runs(), len(store.inputs())) == (1, 2)
    store.reset()
    assert (store.runs(), store.inputs(), store.records().tensors) == (0, [], {})
    assert RecordStore(store.path, create=False).digest == "d"


def test_records_of_another_model_are_refused(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "r", "1" * 64)
    with pytest.raises(RecordsError, match="holds records of the model 111111111111, not of 222222222222"):
        RecordStore(store.path, "2" * 64)
    with pytest.raises(RecordsError, match="not of 222222222222"):
        store.append(_records(1, digest="2" * 64), SHAPES)
    assert RecordStore(store.path, "1" * 64).runs() == 0


def test_a_file_of_no_model_becomes_the_one_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "r"
    RecordStore(path)
    assert RecordStore(path, "d").digest == RecordStore(path).digest == "d"


@pytest.mark.parametrize(
    ("version", "age", "remedy"),
    [(RECORDS_VERSION + 1, "newer", "a newer odc-mlir"), (RECORDS_VERSION - 1, "older", "record the model anew")],
)
def test_other_versions_are_refused(tmp_path: Path, version: int, age: str, remedy: str) -> None:
    path = tmp_path / "r"
    store = RecordStore(path)
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {version}")
    for use in (lambda: RecordStore(path), lambda: store.append(_records(1), SHAPES)):
        with pytest.raises(RecordsError, match=f"of version {version}, {age} than {RECORDS_VERSION}.*{remedy}"):
            use()


@pytest.mark.parametrize(
    "content", [b"no database, but long enough to be looked at" * 30, b"SQLite format 3\0junk" * 99]
)
def test_other_files_are_refused_and_can_be_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(RecordsError, match="this is not a file of records") as raised:
        RecordStore(path)
    assert "delet" not in (raised.value.hint or "discard")  # it is somebody's
    assert path.read_bytes() == content
    RecordStore.discard(path)
    RecordStore(path).append(_records(1), SHAPES)
    assert RecordStore(path).runs() == 1


def test_another_program_s_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE other (x)")
    with pytest.raises(RecordsError, match="this is not a file of records"):
        RecordStore(path)


def test_damage_inside_is_told(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "r")
    store.append(_records(1, 2, 3), SHAPES, [[np.zeros(9)]])
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE tensors SET data = substr(data, 1, length(data) - 3)")
        database.execute("UPDATE samples SET data = x'00'")
    for use in (store.statistics, store.inputs):
        with pytest.raises(RecordsError, match="the file of records is damaged"):
            use()


def test_flipped_bytes_are_typed_errors_or_harmless(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "r")
    for _ in range(3):
        store.append(_records(*np.arange(50)), SHAPES)
    whole, random = store.path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(40):
        data = bytearray(whole)
        for place in random.integers(0, len(data), 30):
            data[place] ^= int(random.integers(1, 256))
        store.path.write_bytes(data)
        try:
            RecordStore(store.path, create=False).records()
        except RecordsError:
            refused += 1
    assert refused > 10


def test_files_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"none does not exist$"):
        RecordStore(tmp_path / "none", create=False)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RecordsError, match="the folder cannot be made"):
        RecordStore(tmp_path / "file" / "r")
    with pytest.raises(RecordsError, match="the records cannot be used"):
        RecordStore(tmp_path)
    store = RecordStore(tmp_path / "r")
    RecordStore.discard(store.path)
    store.append(_records(1), SHAPES)  # makes it anew
    assert store.runs() == 1


def test_the_records_of_a_model_are_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))
    assert records_path("abc") == tmp_path / "records" / "abc" / "ranges.sqlite"


_WRITER = """
import sys
import numpy as np
from odc_mlir.calibration.recorded import Records
from odc_mlir.calibration.records import RecordStore
from odc_mlir.calibration.statistics import TensorStatistics

store, first, count = RecordStore(sys.argv[1], "d"), int(sys.argv[2]), int(sys.argv[3])
for k in range(first, first + count):
    stats = TensorStatistics()
    stats.add(np.array([k], np.float32))
    # Large enough to take several pages, so that a kill can fall between them.
    store.append(Records("d", 1, {(0, "t"): stats}), ((1,),), [[np.full(20000, k, np.float32)]])
    print(k, flush=True)
"""


def _writer(path: Path, first: int, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), str(first), str(count)], stdout=subprocess.PIPE, text=True
    )


def test_several_processes_append_at_once(tmp_path: Path) -> None:
    path = tmp_path / "r"
    writers = [_writer(path, 100 * k, 20) for k in range(3)]
    for writer in writers:
        writer.communicate(timeout=100)
        assert writer.returncode == 0
    store = RecordStore(path, "d")
    values = store.statistics()["t"].maxima
    assert sorted(values) == [100 * k + i for k in range(3) for i in range(20)]
    for k in range(3):  # what one process adds stays in its order
        assert [v for v in values if v // 100 == k] == sorted(v for v in values if v // 100 == k)
    assert len(store.inputs()) == 60


@pytest.mark.parametrize("delay_seconds", [0.0, 0.004, 0.011])
def test_a_killed_process_leaves_whole_runs(tmp_path: Path, delay_seconds: float) -> None:
    path = tmp_path / "r"
    writer = _writer(path, 0, 10**6)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(5)]
    time.sleep(delay_seconds)
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in writer.communicate()[0].split()]
    store = RecordStore(path, "d")
    values = store.statistics()["t"].maxima.tolist()
    # One more may have been written than could be told of.
    assert values in (acknowledged, [*acknowledged, acknowledged[-1] + 1])
    assert [int(sample[0][0]) for sample in store.inputs()] == values[-module.DEFAULT_INPUTS :]
    store.append(_records(7), ((1,),))
    assert store.runs() == len(values) + 1
