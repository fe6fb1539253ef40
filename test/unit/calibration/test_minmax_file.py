"""``minmax.bin``: the layout byte by byte, and files that do not fit."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from helpers.models import ModelBuilder
from odc_mlir.calibration.recorded import Records
from odc_mlir.calibration.records import describe_minmax, is_minmax, read_minmax, write_minmax
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import ModelError, RecordsError
from odc_mlir.formats.circle.model import Model


def _model() -> Model:
    """``p, q = split(x)`` and ``index``, an input that is no float."""
    builder = ModelBuilder()
    index, x = builder.tensor("index", (1,), "int32"), builder.tensor("x", (4,))
    axis = builder.tensor("axis", (), "int32", data=np.array(0, np.int32))
    p, q, s = builder.tensor("p", (2,)), builder.tensor("q", (2,)), builder.tensor("s", (2,))
    builder.operator("SPLIT", [axis, x], [p, q], options={"num_splits": 2})
    builder.operator("ADD", [p, q], [s])
    return builder.finish([index, x], [s])


def _records() -> Records:
    def stats(*pairs: tuple[float, float]) -> TensorStatistics:
        return TensorStatistics.of_extremes(*zip(*pairs, strict=True))

    return Records(
        runs=2,
        tensors={
            (0, "x"): stats((-1, 1), (-2, 2)),
            (0, "p"): stats((0, 3), (0, 4)),
            (0, "q"): stats((0, 5), (0, 6)),
            (0, "s"): stats((7, 8)),
        },
    )


def _file(
    *runs: tuple[list[tuple[float, ...]], list[tuple[float, ...]]], magic: int = 0x4F4D4D44, version: int = 1
) -> bytes:
    parts = [struct.pack("<3I", magic, version, len(runs))]
    for operators, inputs in runs:
        parts.append(struct.pack("<2I", len(operators), len(inputs)))
        parts += [struct.pack("<3I2f", *entry) for entry in (*operators, *inputs)]
    return b"".join(parts)


def test_the_layout() -> None:
    expected = _file(
        ([(0, 0, 0, 0, 3), (0, 0, 1, 7, 8)], [(0, 0, 1, -1, 1)]),
        ([(0, 0, 0, 0, 4)], [(0, 0, 1, -2, 2)]),
    )
    assert write_minmax(_records(), _model()) == expected
    assert is_minmax(expected)


def test_reading_gives_what_was_written() -> None:
    data = write_minmax(_records(), _model())
    found = read_minmax(data, _model())
    assert found.runs == 2
    assert found.tensors.keys() == {(0, "x"), (0, "p"), (0, "s")}
    assert found.tensors[0, "p"].maxima.tolist() == [3, 4]
    assert (found.tensors[0, "x"].minimum, found.tensors[0, "x"].count) == (-2, 0)
    assert write_minmax(found, _model()) == data


def test_description_by_address() -> None:
    document = describe_minmax(write_minmax(_records(), _model()))
    assert document["runs"] == 2
    assert document["ranges"][0] == {
        "model": 0, "subgraph": 0, "kind": "operator", "index": 0, "runs": 2, "minimum": 0.0, "maximum": 4.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "this is not a minmax.bin"),
        (_file(magic=1), "this is not a minmax.bin"),
        (_file(version=2), "minmax.bin is of version 2, expected 1"),
        (_file(([(0, 0, 0, 0, 1)], []))[:-1], "ends after 39 bytes, within run 0"),
        (struct.pack("<3I", 0x4F4D4D44, 1, 2**31), "ends after 12 bytes, within run 0"),
        (_file() + b"\0\0", "has 2 bytes after its 0 runs"),
        (_file(([(0, 0, 2, 0, 1)], [])), "operator 2 in subgraph 0 of model 0"),
        (_file(([(0, 1, 0, 0, 1)], [])), "operator 0 in subgraph 1 of model 0"),
        (_file(([(1, 0, 0, 0, 1)], [])), "operator 0 in subgraph 0 of model 1"),
        (_file(([], [(0, 0, 2, 0, 1)])), "input 2 in subgraph 0 of model 0"),
        (_file(([(0, 0, 0, 2, 1)], [])), "the range of operator 0 is 2 to 1"),
    ],
)
def test_what_does_not_fit_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(RecordsError, match=message):
        read_minmax(data, _model(), location="minmax.bin")


def test_records_of_another_model_cannot_be_written() -> None:
    records = Records(runs=1, tensors={(0, "other"): TensorStatistics.of_extremes([0], [1])})
    with pytest.raises(ModelError, match="the records are of another model"):
        write_minmax(records, _model())


def _activated(name: str, dtype: str = "float32", options: dict[str, str] | None = None) -> Model:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (4,)), builder.tensor("y", (4,), dtype)
    builder.operator(name, [x, x] if name == "ADD" else [x], [y], options=options or {})
    return builder.finish([x], [y])


@pytest.mark.parametrize(
    ("model", "operators", "message"),
    [
        (_activated("RELU6"), [(0, 0, 0, 0, 6)], None),
        (_activated("RELU6"), [(0, 0, 0, -1, 6)], "has -1 as result of operator 0"),
        (_activated("SOFTMAX"), [(0, 0, 0, 0, 1.5)], "has 1.5 as result of operator 0"),
        (_activated("ADD", options={"fused_activation_function": "relu"}), [(0, 0, 0, -3, 1)], "has -3 as result"),
        (_activated("ADD"), [(0, 0, 0, -3, 1)], None),
        (_activated("CAST", "int32"), [(0, 0, 0, 0, 1)], "of operator 0, whose result is int32"),
        (_activated("CAST", "int32"), [], None),
        (_activated("RELU6"), [], "no range of operator 0"),
    ],
)
def test_what_cannot_have_been_recorded_of_this_model_is_refused(
    model: Model, operators: list[tuple[float, ...]], message: str | None
) -> None:
    data = _file((operators, [(0, 0, 0, -1, 1)]))
    if message is None:
        assert read_minmax(data, model).runs == 1
    else:
        with pytest.raises(RecordsError, match=message):
            read_minmax(data, model)
