"""Records: quantisation parameters, shapes, and which tensors are constant."""

from __future__ import annotations

import numpy as np
import pytest

from odc_mlir.errors import ModelError
from odc_mlir.formats.circle.model import Model, Operator, Quantization, SubGraph, Tensor
from odc_mlir.ops.sparse import DimMetadata
from odc_mlir.ops.spec import QuantParams


def _quantization(scales: list[float], zero_points: list[int], axis: int = 0) -> Quantization:
    return Quantization(np.array(scales, "<f4"), np.array(zero_points, "<i8"), axis)


def test_no_scale_no_parameters() -> None:
    assert Quantization(min=np.zeros(1, "<f4"), max=np.ones(1, "<f4")).params() is None


def test_scales_are_exactly_float32() -> None:
    params = _quantization([0.1], [3]).params()
    assert params == QuantParams((float(np.float32(0.1)),), (3,))


def test_missing_zero_points_are_zero() -> None:
    assert _quantization([0.5, 0.25], [], 1).params() == QuantParams((0.5, 0.25), (0, 0), 1)


@pytest.mark.parametrize(("scales", "rank", "axis"), [([0.5], 4, 0), ([0.5, 0.5], 1, 0), ([0.5, 0.5], 4, 3)])
def test_axis(scales: list[float], rank: int, axis: int) -> None:
    params = _quantization(scales, [0] * len(scales), 3).params(rank)
    assert params is not None
    assert params.axis == axis


def test_numbers_must_agree() -> None:
    with pytest.raises(ModelError, match="2 scales but 3 zero points; their numbers must agree"):
        _quantization([1, 2], [0, 0, 0]).params()


@pytest.mark.parametrize("axis", [-1, 2])
def test_axis_must_exist(axis: int) -> None:
    tensor = Tensor("w", "int8", (2, 2), quantization=_quantization([1, 2], [0, 0], axis))
    with pytest.raises(ModelError, match=f"quantized_dimension {axis} does not exist in a tensor of rank 2 .*'w'"):
        tensor.quant_params()


def test_extent_must_agree() -> None:
    quantization = _quantization([1, 2], [0, 0], 1)
    assert Tensor("w", "int8", (3, 2), quantization=quantization).quant_params() is not None
    assert Tensor("w", "int8", (3, 1), (3, -1), quantization=quantization).quant_params() is not None
    with pytest.raises(ModelError, match=r"2 scales along dimension 1, which has extent 3 .*'w'"):
        Tensor("w", "int8", (2, 3), quantization=quantization).quant_params()


def test_unquantised_tensor() -> None:
    assert Tensor("x", "float32", (1,)).quant_params() is None


@pytest.mark.parametrize(
    ("shape", "signature", "effective"),
    [
        (None, None, None),
        ((), None, ()),
        ((1, 2), None, (1, 2)),
        ((1, 2), (-1, 2), (None, 2)),
        ((-1, 2), None, (None, 2)),
        ((1, 2), (), (1, 2)),
        (None, (-1,), None),
    ],
)
def test_effective_shape(
    shape: tuple[int, ...] | None, signature: tuple[int, ...] | None, effective: tuple[int | None, ...] | None
) -> None:
    assert Tensor("x", "float32", shape, signature).effective_shape == effective


def _model() -> Model:
    data = memoryview(b"abcd")
    tensors = [
        Tensor("input", "int8", (4,), buffer=1),
        Tensor("constant", "int8", (4,), buffer=1),
        Tensor("empty", "int8", (0, 4)),
        Tensor("variable", "int8", (4,), buffer=1, is_variable=True),
        Tensor("result", "int8", (4,), buffer=1),
        Tensor("nothing", "int8", (4,)),
    ]
    operator = Operator("ADD", inputs=(0, 1), outputs=(4,))
    return Model(subgraphs=[SubGraph(None, tensors, (0,), (4,), [operator])], buffers=[memoryview(b""), data])


def test_constants() -> None:
    assert {index: bytes(data) for index, data in _model().constants(0).items()} == {1: b"abcd", 2: b""}


@pytest.mark.parametrize(("index", "expected"), [(0, None), (1, b"abcd"), (2, b""), (3, None), (4, None), (5, None)])
def test_constant(index: int, expected: bytes | None) -> None:
    assert _model().constant(0, index) == expected


def test_quantisation_compares_bit_for_bit() -> None:
    nan = _quantization([float("nan")], [0])
    assert nan == _quantization([float("nan")], [0])
    assert nan != _quantization([1.0], [0])
    assert nan != _quantization([float("nan")], [0], 1)
    assert nan != object()


def test_sparse_levels_compare_with_their_width() -> None:
    narrow, wide = np.array([1], "|u1"), np.array([1], "<u2")
    assert DimMetadata("sparse_csr", 0, narrow, narrow) == DimMetadata("sparse_csr", 0, narrow.copy(), narrow)
    assert DimMetadata("sparse_csr", 0, narrow, narrow) != DimMetadata("sparse_csr", 0, wide, narrow)
    assert DimMetadata("sparse_csr", 0, narrow, None) != DimMetadata("sparse_csr", 0, None, narrow)
    assert DimMetadata("dense", 3) != object()


def test_label() -> None:
    assert Operator("CONV_2D").label == "CONV_2D"
    assert Operator("CUSTOM", custom_code="Erf").label == "CUSTOM(Erf)"
