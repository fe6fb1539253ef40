"""Operators that run other subgraphs or other models, and state that outlives a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, add_model, choosing_model, model_bytes
from odc_mlir.errors import AllocationError, ModelError, UnsupportedError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.ops.context import Context
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.reporting.metrics import compare


def _one(value: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def _growing(limit: int) -> Model:
    """Appends ``x`` to itself while it has fewer than ``limit`` elements: the state changes its shape."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1,)), builder.tensor("y", (1,))
    builder.operator("WHILE", [x], [y], options={"cond_subgraph_index": 1, "body_subgraph_index": 2})
    builder.finish([x], [y])
    builder.begin("condition")
    a, size = builder.tensor("a", (1,)), builder.tensor("size", (1,), "int32")
    most, more = (
        builder.tensor("most", (1,), "int32", data=np.array([limit], np.int32)),
        builder.tensor("more", (1,), "bool"),
    )
    builder.operator("SHAPE", [a], [size], options={"out_type": "int32"})
    builder.operator("LESS", [size, most], [more])
    builder.finish([a], [more])
    builder.begin("body")
    a, b = builder.tensor("a", (1,)), builder.tensor("b", (2,))
    builder.operator("CONCATENATION", [a, a], [b], options={"axis": 0})
    builder.finish([a], [b])
    return builder.model


def test_if_runs_one_branch() -> None:
    executor = HostExecutor(build_graph(choosing_model()))
    x = _one([3, 4])
    np.testing.assert_array_equal(executor.run([_one(True, bool), x])[0], [6, 8])
    np.testing.assert_array_equal(executor.run([_one(False, bool), x])[0], [9, 16])


def test_a_branch_must_take_the_arguments() -> None:
    model = choosing_model()
    model.subgraphs[1].inputs = ()
    model.subgraphs[1].tensors[0].is_variable = True
    with pytest.raises(ModelError, match=r"arguments and inputs of 'double' are 1 and 0; .*op IF"):
        build_graph(model)


def test_while_may_change_shapes() -> None:
    executor = HostExecutor(build_graph(_growing(5)))
    for _ in range(2):
        np.testing.assert_array_equal(executor.run([_one([7])])[0], [7] * 8)


def test_an_endless_loop_ends() -> None:
    model = _growing(5)
    concatenation = model.subgraphs[2].operators[0]
    concatenation.inputs = (0,)
    executor = HostExecutor(build_graph(model), context=Context(max_iterations=10))
    with pytest.raises(ModelError, match=r"the loop has not ended after 10 iterations .*op WHILE"):
        executor.run([_one([7])])


def test_memory_of_growing_state_is_bounded() -> None:
    with pytest.raises(AllocationError, match="more than the limit of 4096"):
        HostExecutor(build_graph(_growing(1 << 30)), max_bytes=4096).run([_one([7])])


def test_endless_recursion_ends() -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1,)), builder.tensor("y", (1,))
    builder.operator("CALL", [x], [y], options={"subgraph": 0})
    with pytest.raises(ModelError, match="more than 32 times deep"):
        HostExecutor(build_graph(builder.finish([x], [y]))).run([_one([1])])


def _with_variable() -> Model:
    """CALL_ONCE assigns 5 to a variable; every run adds x to it and gives the sum."""
    builder = ModelBuilder()
    x, v, old, new = (
        builder.tensor("x", (1,)),
        builder.tensor("v", (), "resource"),
        builder.tensor("old", (1,)),
        builder.tensor("new", (1,)),
    )
    builder.operator("CALL_ONCE", [], [], options={"init_subgraph_index": 1})
    builder.operator("VAR_HANDLE", [], [v], options={"container": "", "shared_name": "total"})
    builder.operator("READ_VARIABLE", [v], [old])
    builder.operator("ADD", [old, x], [new])
    builder.operator("ASSIGN_VARIABLE", [v, new], [])
    builder.finish([x], [new])
    builder.begin("initial")
    handle = builder.tensor("v", (), "resource")
    five = builder.tensor("five", (1,), data=_one([5]))
    builder.operator("VAR_HANDLE", [], [handle], options={"container": "", "shared_name": "total"})
    builder.operator("ASSIGN_VARIABLE", [handle, five], [])
    builder.finish([], [])
    return builder.model


def test_resource_variables_last_until_reset() -> None:
    executor = HostExecutor(build_graph(_with_variable()))
    assert [float(executor.run([_one([2])])[0][0]) for _ in range(3)] == [7, 9, 11]
    executor.reset()
    assert float(executor.run([_one([2])])[0][0]) == 7


def test_models_with_resource_variables_are_compared_and_quantised() -> None:
    """What a handle stands for is each run's own."""
    model = _with_variable()
    samples = [[_one([float(value)])] for value in range(6)]
    executors = [HostExecutor(build_graph(model)) for _ in range(2)]
    assert compare(*executors, samples).first_diverging is None
    made = odc_mlir.quantize(model_bytes(model), scheme="int8", calibration=samples, help=False)
    assert made.verdict["float_reasons"]


def test_a_variable_that_nothing_has_set() -> None:
    model = _with_variable()
    del model.subgraphs[0].operators[0]
    with pytest.raises(ModelError, match="'total' is read before the first assignment"):
        HostExecutor(build_graph(model)).run([_one([2])])


def _looking_up() -> Model:
    """Word numbers by word: a table filled once, its size and what it has for the keys."""
    builder = ModelBuilder()
    keys, values = builder.tensor("keys", (3,), "string"), builder.tensor("values", (3,), "int64")
    table = builder.tensor("table", (), "resource")
    words = np.frombuffer(b"\2\0\0\0\x10\0\0\0\x11\0\0\0\x13\0\0\0abb", np.uint8)
    known = builder.tensor("known", (2,), "string", data=words)
    numbers = builder.tensor("numbers", (2,), "int64", data=np.array([10, 20]))
    other, size = builder.tensor("other", (), "int64", data=np.array(-1)), builder.tensor("size", (1,), "int64")
    kind = {"table_id": 4, "key_dtype": "string", "value_dtype": "int64"}
    builder.operator("HASHTABLE", [], [table], options=kind)
    builder.operator("HASHTABLE_IMPORT", [table, known, numbers], [])
    builder.operator("HASHTABLE_FIND", [table, keys, other], [values])
    builder.operator("HASHTABLE_SIZE", [table], [size])
    return builder.finish([keys], [values, size])


def test_hash_tables() -> None:
    values, size = HostExecutor(build_graph(_looking_up())).run([np.array([b"bb", b"a", b"?"], object)])
    np.testing.assert_array_equal(values, [20, 10, -1])
    np.testing.assert_array_equal(size, [2])


def test_an_empty_hash_table() -> None:
    model = _looking_up()
    del model.subgraphs[0].operators[1]
    with pytest.raises(ModelError, match="hash table 4 is used before its import"):
        HostExecutor(build_graph(model)).run([np.array([b"a"] * 3, object)])


def _running(location: str, signature: str = "") -> Model:
    builder = ModelBuilder()
    a, b, y = (builder.tensor(name, (1, 4)) for name in "aby")
    builder.operator("RUN_MODEL", [a, b], [y], options={"location": location, "signature": signature})
    return builder.finish([a, b], [y])


def _saved(folder: Path, name: str, model: Model) -> Path:
    path = folder / name
    path.write_bytes(model_bytes(model))
    return path


@pytest.mark.parametrize("signature", ["", "serve"])
def test_another_model_runs(tmp_path: Path, signature: str) -> None:
    _saved(tmp_path, "other.circle", add_model())
    graph = build_graph(read_model(_saved(tmp_path, "main.circle", _running("other.circle", signature))))
    (y,) = HostExecutor(graph).run([_one([[1, 2, 3, 4]]), _one([[10, 20, 30, 40]])])
    np.testing.assert_array_equal(y, [[12, 24, 36, 48]])


@pytest.mark.parametrize(
    ("location", "error", "text"),
    [
        ("../other.circle", ModelError, "leads out of the model's folder"),
        ("/etc/other.circle", ModelError, "leads out of the model's folder"),
        ("link.circle", ModelError, "leads out of the model's folder"),
        ("main.circle", ModelError, "runs itself: main.circle -> main.circle"),
        ("none.circle", ModelError, "cannot be read"),
        ("a.circle;b.circle", UnsupportedError, "one file is supported"),
        ("other.bin", UnsupportedError, "an unsupported format"),
        ("", ModelError, "location is empty|an unsupported format"),
    ],
)
def test_models_that_are_not_opened(tmp_path: Path, location: str, error: type[Exception], text: str) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    outside = _saved(tmp_path, "other.circle", add_model())
    (folder / "link.circle").symlink_to(outside)
    path = _saved(folder, "main.circle", _running(location))
    with pytest.raises((error, UnsupportedError), match=text):
        build_graph(read_model(path))


def test_a_model_without_a_folder_or_signature(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="folder, which is unknown"):
        build_graph(_running("other.circle"))
    _saved(tmp_path, "other.circle", add_model())
    with pytest.raises(ModelError, match=r"has no signature 'train' .in other.circle.*; it has 'serve'"):
        build_graph(read_model(_saved(tmp_path, "main.circle", _running("other.circle", "train"))))
