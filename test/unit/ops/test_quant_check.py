"""Scales and zero points that arithmetic would not look at are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.models import ModelBuilder
from helpers.nodes import const, node, quant, tensor
from odc_mlir import import_model
from odc_mlir import run as run_model
from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.formats.circle.model import Model, Quantization
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops import all_specs
from odc_mlir.ops.quant_check import check_quantisation
from odc_mlir.ops.sparse import DimMetadata, Sparsity
from odc_mlir.ops.spec import Node, QuantKind, TensorInfo

Q, OTHER = quant(0.5, 3), quant(0.25, 3)
ROWS = quant([0.5, 0.25], 3, 0)


def int8(params: Any = Q, shape: tuple[int, ...] = (2, 2), dtype: str = "int8") -> TensorInfo:
    return tensor(dtype, shape, params)


MOVING = [name for name, spec in all_specs().items() if spec.quant.kind is QuantKind.SAME and name != "CONCATENATION"]


@pytest.mark.parametrize("name", MOVING)
def test_moved_codes_keep_their_meaning(name: str) -> None:
    """Whatever else is wrong with these operands: other parameters of a result are."""
    spec = all_specs()[name]
    operands = [int8() for _ in spec.operands]
    for results, fine in ((OTHER, False), (quant(0.5, 4), False), (Q, True)):
        made = node(name, operands, [int8(results) for _ in spec.results])
        if fine:
            check_quantisation(made)
            continue
        with pytest.raises(ModelError, match="have different scales or zero points; they must be equal"):
            made.spec.kernel_function(made)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (node("ADD", [int8(ROWS), int8()], int8()), "'x' has 2 scales"),
        (node("RELU", [int8()], int8(ROWS)), "'x' has 2 scales"),
        (node("ARG_MAX", [int8(ROWS), const(0)], tensor("int64", (2,))), "'x' has 2 scales"),
        (node("SLICE", [int8(ROWS), const([0, 0]), const([2, 1])], int8(ROWS, (2, 1))), "'x' has 2 scales"),
        (node("TRANSPOSE", [int8(ROWS), const([1, 0])], int8(ROWS)), "'x' has 2 scales"),
        (node("TRANSPOSE", [int8(ROWS), tensor("int32", (2,))], int8(ROWS)), "'x' has 2 scales"),
        (node("RESHAPE", [int8(ROWS), const([1, 2, 2])], int8(quant([0.5, 0.25], 3, 2), (1, 2, 2))), "has 2 scales"),
        (node("ADD", [int8(dtype="int32")] * 2, int8(dtype="int32")), "int32 tensor 'x' has a scale or zero point"),
        (node("LESS", [int8(dtype="int32")] * 2, tensor("bool", (2, 2))), "here it counts as plain integers"),
        (node("FLOOR_DIV", [int8()] * 2, int8()), "int8 tensor 'x' has a scale or zero point"),
    ],
)
def test_refused(made: Node, message: str) -> None:
    with pytest.raises(OdcError, match=message):
        made.spec.kernel_function(made)


@pytest.mark.parametrize(
    "made",
    [
        node("TRANSPOSE", [int8(ROWS), const([1, 0])], int8(quant([0.5, 0.25], 3, 1))),
        node("RESHAPE", [int8(ROWS), const([1, 2, 2])], int8(quant([0.5, 0.25], 3, 1), (1, 2, 2))),
        node("ADD", [int8(quant(1.0), dtype="int32")] * 2, int8(quant(1.0), dtype="int32")),
        node("DEQUANTIZE", [int8(ROWS)], tensor("float32", (2, 2))),
        node("SHAPE", [int8(ROWS)], tensor("int32", (2,))),
    ],
    ids=lambda made: str(made.spec.name),
)
def test_allowed(made: Node) -> None:
    if made.spec.name != "SHAPE":
        made.spec.kernel_function(made)


def relu(quantization: Quantization | None, data: Any = None, sparsity: Sparsity | None = None) -> Model:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (2, 2), "int8", quant=(0.5, 3)) for name in "xy")
    if data is not None:
        c = builder.tensor("c", (2, 2), "int8", quant=(0.5, 3), data=data)
        builder.operator("ADD", [x, c], [y])
    else:
        builder.operator("RELU", [x], [y])
    builder.subgraph.tensors[y].quantization = quantization
    builder.subgraph.tensors[y].sparsity = sparsity
    return builder.finish([x], [y])


ONE, NONE = np.array([0.5], np.float32), np.empty(0, np.float32)
FOREIGN = ("CustomQuantization", {"custom": b"xy"})
RANGE = (np.array([-1.0], np.float32), np.array([1.0], np.float32))


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        (
            Quantization(ONE, np.array([3]), details=("CustomQuantization", {"custom": b"xy"})),
            UnsupportedError,
            "author",
        ),
        (Quantization(NONE, np.array([3])), ModelError, "there are zero points .* but no scale"),
        (Quantization(ONE, np.array([3, 4])), ModelError, "1 scales but 2 zero points"),
        (Quantization(np.repeat(ONE, 2), np.array([3])), ModelError, "2 scales but 1 zero points"),
        (Quantization(np.repeat(ONE, 2), np.array([3, 3]), axis=2), ModelError, "quantized_dimension 2 does not exist"),
        (Quantization(np.repeat(ONE, 2), np.array([3, 3]), axis=-1), ModelError, "quantized_dimension -1 does not"),
        (Quantization(np.repeat(ONE, 3), np.array([3] * 3)), ModelError, "3 scales along dimension 0"),
        (Quantization(np.repeat(ONE, 2), np.array([3, 3])), ModelError, "has 2 scales; one is allowed here"),
        (Quantization(ONE * 0, np.array([3])), ModelError, "scale 0.0 of tensor 'y' must be positive"),
        (Quantization(ONE * np.nan, np.array([3])), ModelError, "scale nan of tensor 'y' must be positive"),
        (Quantization(ONE, np.array([1 << 40])), ModelError, "zero point .* is larger than"),
        (Quantization(min=RANGE[0], max=RANGE[1]), ModelError, "has no scale"),
        (None, ModelError, "has no scale"),
    ],
)
def test_parameters_that_cannot_be_honoured(record: Quantization | None, error: type[OdcError], message: str) -> None:
    """A typed error, wherever it comes from first."""
    x = np.zeros((2, 2), np.int8)
    with pytest.raises(error, match=message):
        run_model(write_model(relu(record)), [x])


def test_only_constants_are_sparse() -> None:
    dense = Sparsity((0, 1), (), (DimMetadata("dense", 2), DimMetadata("dense", 2)))
    model = relu(Quantization(ONE, np.array([3])), sparsity=dense)
    with pytest.raises(ModelError, match="only a constant can be stored sparse"):
        run_model(write_model(model), [np.zeros((2, 2), np.int8)])


def test_what_nobody_can_read_is_kept() -> None:
    """A model that cannot be run can still be imported."""
    record = Quantization(ONE, np.array([3]), details=FOREIGN)
    assert "CustomQuantization" in str(import_model(write_model(relu(record))))
