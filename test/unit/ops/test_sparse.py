"""Constants that are stored sparse or coded by blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers.nodes import const, node, tensor
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.ops.sparse import DimMetadata, Sparsity, densify
from odc_mlir.ops.spec import Blockwise, TensorInfo


def _indices(*values: int, width: type = np.int32) -> np.ndarray:
    return np.array(values, width)


def _dense(size: int) -> DimMetadata:
    return DimMetadata("dense", size)


def _rows(segments: np.ndarray, indices: np.ndarray) -> DimMetadata:
    return DimMetadata("sparse_csr", 0, segments, indices)


DIAGONAL = Sparsity((0, 1), (), (_dense(3), _rows(_indices(0, 1, 2, 3), _indices(0, 1, 2, width=np.uint8))))
BLOCKED = Sparsity((0, 1, 2, 3), (0, 1), (_dense(2), _rows(_indices(0, 1, 2), _indices(1, 0)), _dense(2), _dense(2)))


def test_compressed_rows() -> None:
    np.testing.assert_array_equal(densify(np.array([1, 2, 3]), DIAGONAL, (3, 3)), np.diag([1, 2, 3]))


def test_other_traversal_order() -> None:
    columns = Sparsity((1, 0), (), (_dense(2), _rows(_indices(0, 2, 3), _indices(0, 2, 1))))
    np.testing.assert_array_equal(densify(np.array([1, 2, 3]), columns, (3, 2)), [[1, 0], [0, 3], [2, 0]])


def test_blocks() -> None:
    expected = [[0, 0, 1, 2], [0, 0, 3, 4], [5, 6, 0, 0], [7, 8, 0, 0]]
    np.testing.assert_array_equal(densify(np.arange(1, 9), BLOCKED, (4, 4)), expected)


@pytest.mark.parametrize(
    ("sparsity", "count", "text"),
    [
        (DIAGONAL, 2, "describe 3 elements, 2 are stored"),
        (Sparsity((0, 0), (), DIAGONAL.dims), 3, "traversal order"),
        (Sparsity((0, 1, 2), (5,), (*DIAGONAL.dims, _dense(1))), 3, "block map"),
        (Sparsity((0, 1), (), (_dense(3), _rows(_indices(0, 1), _indices(0)))), 1, "do not divide"),
        (Sparsity((0, 1), (), (_dense(3), _rows(_indices(0, 2, 1, 3), _indices(0, 1, 2)))), 3, "do not divide"),
        (Sparsity((0, 1), (), (_dense(3), _rows(_indices(0, 1, 2, 3), _indices(0, 1, 3)))), 3, "outside its extent"),
        (Sparsity((0, 1), (), (_dense(1 << 40), _dense(3))), 3, "more than the 9"),
        (Sparsity((0, 1), (), (_dense(3), DimMetadata("sparse_csr"))), 3, "no segments or indices"),
    ],
)
def test_descriptions_that_contradict_themselves(sparsity: Sparsity, count: int, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        densify(np.arange(count), sparsity, (3, 3))


def test_what_lies_beyond_the_last_place_is_padding() -> None:
    """As LiteRT reads it: writers round buffers up."""
    np.testing.assert_array_equal(densify(np.arange(1, 9), DIAGONAL, (3, 3)), np.diag([1, 2, 3]))
    more = Sparsity((0, 1), (), (_dense(3), _rows(_indices(0, 1, 2, 3), _indices(0, 1, 2, 9))))
    np.testing.assert_array_equal(densify(np.arange(1, 4), more, (3, 3)), np.diag([1, 2, 3]))
    stored = const(np.arange(1, 9), "int16")
    padded = memoryview(bytes(stored.data or b"") + b"\0")
    info = replace(stored, shape=(3, 3), data=padded, sparsity=DIAGONAL)
    np.testing.assert_array_equal(info.array(), np.diag([1, 2, 3]))


def test_densify() -> None:
    stored = const([1.0, 2.0, 3.0], "float32")
    sparse = replace(stored, shape=(3, 3), sparsity=DIAGONAL)
    made = node("DENSIFY", [sparse], tensor("float32", (3, 3)))
    np.testing.assert_array_equal(made.spec.kernel_function(made)([None])[0], np.diag([1, 2, 3]))


def test_four_bit_sparse_constants_are_refused() -> None:
    info = TensorInfo("w", "int4", (3, 3), data=memoryview(b"\1\2"), sparsity=DIAGONAL)
    with pytest.raises(UnsupportedError, match="sparse constant cannot have the element type int4"):
        info.array()


def _coded(size: int = 2, scales: int = 4, zero_points: TensorInfo | None = None) -> TensorInfo:
    factors = const(np.arange(1, scales + 1), "float32")
    data = memoryview(np.arange(8, dtype=np.int8).tobytes())
    return TensorInfo("w", "float32", (2, 4), data=data, blockwise=Blockwise("int8", size, factors, zero_points))


def test_constants_coded_by_blocks() -> None:
    np.testing.assert_array_equal(_coded().array(), [[0, 1, 4, 6], [12, 15, 24, 28]])
    shifted = _coded(zero_points=const([1, 1, 1, 1]))
    np.testing.assert_array_equal(shifted.array(), [[-1, 0, 2, 4], [9, 12, 20, 24]])


@pytest.mark.parametrize(("size", "scales", "text"), [(3, 4, "multiple of the block size 3"), (2, 3, "4 are needed")])
def test_blocks_that_do_not_fit(size: int, scales: int, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        _coded(size, scales).array()
