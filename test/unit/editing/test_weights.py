"""Weights stored in groups of codes: bytes, values, and the tensors that stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.commands import parsers
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.editing.weights import FORMS, store_weights
from odc_mlir.errors import InputError
from odc_mlir.formats.circle.connect import join_signatures
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.numerics.blocks import ENCODERS, decode_blocks, four_bit_groups
from odc_mlir.tools import odc_circle

ROWS, WIDTH = 6, 64
BYTES = {"int4x32": 18 * 2, "int4x64": 34, "ggml_q4_0": 18 * 2, "ggml_q8_0": 34 * 2}  # of a row
LEAST_DB = {"int4x32": 19.0, "int4x64": 18.0, "ggml_q4_0": 20.0, "ggml_q8_0": 43.0}


def embedding(*, also_added: bool = False, width: int = WIDTH) -> Model:
    """A row of a table through a layer, and the table itself as an operand of another operator if ``also_added``."""
    builder, random = ModelBuilder(), np.random.default_rng(0)
    table, weights = (random.normal(size=(ROWS, width)).astype(np.float32) for _ in range(2))
    at, ids = builder.tensor("table", table.shape, data=table), builder.tensor("ids", (1,), "int32")
    layer = builder.tensor("weights", weights.shape, data=weights)
    row, y, sums = (
        builder.tensor("row", (1, width)),
        builder.tensor("y", (1, ROWS)),
        builder.tensor("sums", table.shape),
    )
    builder.operator("GATHER", [at, ids], [row])
    builder.operator("FULLY_CONNECTED", [row, layer, -1], [y])
    if also_added:
        builder.operator("ADD", [at, at], [sums])
    return builder.finish([ids], [y])


@pytest.mark.parametrize("form", FORMS)
def test_bytes_and_values(form: str) -> None:
    model = embedding()
    stored = store_weights(model, form)
    assert [(item.name, item.bytes_before, item.bytes_after) for item in stored] == [
        (name, 4 * ROWS * WIDTH, BYTES[form] * ROWS) for name in ("table", "weights")
    ]
    assert all(LEAST_DB[form] < item.sqnr_db < LEAST_DB[form] + 4 for item in stored)
    for backend in ("host", "native"):
        found, wanted = (
            np.concatenate([odc_mlir.run(data, [np.array([i], np.int32)], backend=backend)[0] for i in range(ROWS)])
            for data in (model_bytes(model), model_bytes(embedding()))
        )
        noise_db = 10 * np.log10(np.square(wanted).sum() / np.square(found - wanted).sum())
        assert LEAST_DB[form] - 6 < noise_db < LEAST_DB[form] + 4


def test_of_signatures_weights_are_stored_once() -> None:
    joint = join_signatures({"a": embedding(), "b": embedding()})
    assert len(store_weights(joint, "int4x32")) == 2
    single = embedding()
    store_weights(single, "int4x32")
    assert sorted(map(bytes, joint.buffers)) == sorted(map(bytes, single.buffers))


def test_other_constants_stay() -> None:
    model = embedding(also_added=True)
    assert [item.name for item in store_weights(model, "ggml_q8_0")] == ["weights"]
    with pytest.raises(InputError, match="no weights can be stored as int4x64; it is for float32 constants"):
        store_weights(embedding(width=96), "int4x64")


@pytest.mark.parametrize("dtype", ENCODERS)
def test_encoded_blocks_are_as_near_as_their_step(dtype: str) -> None:
    x = np.random.default_rng(3).normal(size=(4, 3, 32)).astype(np.float32)
    x[0, 0] = 0
    x[1, 1] *= 1e-30
    found = decode_blocks(ENCODERS[dtype](x), dtype).reshape(x.shape)
    step = np.abs(x).max(-1, keepdims=True) / (8 if dtype == "ggml_q4_0" else 127)
    assert (np.abs(found - x) <= 1.001 * step + 1e-7).all()
    assert not found[0, 0].any()


def test_groups_of_four_bits() -> None:
    x: np.ndarray[Any, Any] = np.array([[[7, -7, 3.4, -0.5], [0, 0, 0, 0]]], np.float32)
    codes, factors = four_bit_groups(x)
    assert codes.tolist() == [[[7, -7, 3, -1], [0, 0, 0, 0]]]
    assert factors.tolist() == [[[1.0], [0.0]]]


def test_the_command_says_bytes_and_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "m.circle", tmp_path / "small.circle"
    path.write_bytes(model_bytes(embedding()))
    assert odc_circle.main(["store-weights", str(path), "--as", "ggml_q4_0", "-o", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(",")[0] for line in lines] == ["table: 1536 to 216 bytes", "weights: 1536 to 216 bytes"]
    assert [tensor.dtype for tensor in read_model(out).subgraphs[0].tensors[:3]] == ["ggml_q4_0", "int32", "ggml_q4_0"]


def test_the_command_offers_every_form() -> None:
    (parser,) = [parser for words, parser in parsers("odc-circle") if words == ["store-weights"]]
    assert [action.choices for action in parser._actions if action.dest == "form"] == [FORMS]
