"""A model is told from text by what is in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.func import FuncOp

from odc_mlir.errors import ModelError
from odc_mlir.formats.circle.model import Model, SubGraph, Tensor
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.import_circle import load_module
from odc_mlir.universe import make_context

TEXT = b"func.func @from_text() {\n  func.return\n}\n"
FILE = write_model(Model(subgraphs=[SubGraph("from_file", [Tensor("x", "int8", (1,))], (0,), (0,))]))


def _name(source: str | Path | bytes) -> str:
    function = load_module(make_context(), source).body.block.first_op
    assert isinstance(function, FuncOp)
    return function.sym_name.data


@pytest.mark.parametrize(("content", "name"), [(TEXT, "from_text"), (FILE, "from_file")])
def test_content_decides(content: bytes, name: str, tmp_path: Path) -> None:
    assert _name(content) == name
    for suffix in (".mlir", ".circle", ".tflite", ""):
        path = tmp_path / f"model{suffix}"
        path.write_bytes(content)
        assert _name(path) == name
        assert _name(str(path)) == name


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\x00", r"neither a Circle nor a TFLite file nor MLIR text \(in model\)"),
        (b"func.func @f( {", r"\(in model:5:"),
        (b"func.func @f() -> i8 {\n  func.return\n}", "expected arguments to have the same types"),
        (FILE[:40], "."),
    ],
)
def test_what_is_no_model(content: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_module(make_context(), content, "model", first_line=5)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read the model: No such file"):
        load_module(make_context(), tmp_path / "none.circle")
    with pytest.raises(ModelError, match="cannot read the model: Is a directory"):
        load_module(make_context(), tmp_path)


def test_verifying_can_be_left_out() -> None:
    load_module(make_context(), b"func.func @f() -> i8 {\n  func.return\n}", verify=False)
