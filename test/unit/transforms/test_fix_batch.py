"""A model with an open batch is compiled for one size and written as it was."""

from __future__ import annotations

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir import pipelines
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.support.text import module_text, parse_module
from odc_mlir.transforms.partition.odc_fix_batch import OdcFixBatchPass, restore_batch
from odc_mlir.universe import make_context

TEXT = """
func.func @main(%x: tensor<?x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<?x4x!quant.uniform<i8:f32, 0.5>> {
  %0 = circle.relu(%x) : (tensor<?x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<?x4x!quant.uniform<i8:f32, 0.5>>
  %1 = circle.add(%0, %x) : (tensor<?x4x!quant.uniform<i8:f32, 0.5>>, tensor<?x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<?x4x!quant.uniform<i8:f32, 0.5>>
  func.return %1 : tensor<?x4x!quant.uniform<i8:f32, 0.5>>
}"""  # noqa: E501


@pytest.mark.parametrize("batch", [1, 3])
def test_restoring_undoes_fixing(batch: int) -> None:
    module = parse_module(make_context(), TEXT)
    before = module_text(module)
    OdcFixBatchPass(batch).apply(make_context(), module)
    module.verify()
    fixed = module_text(module)
    assert f"tensor<{batch}x4x" in fixed
    assert "(tensor<?" not in fixed  # neither operands nor signatures: only declared types
    restore_batch(module)
    module.verify()
    assert module_text(module) == before


def test_segments_are_restored_too() -> None:
    """The model that is written is the one before partitioning, dimension for dimension."""
    module = parse_module(make_context(), TEXT)
    expected = export_model(module)
    pipelines.run(make_context(), module, "npu-alloc")
    restore_batch(module)
    module.verify()
    written = export_model(module)
    shapes = [[tensor.effective_shape for tensor in model.subgraphs[0].tensors] for model in (written, expected)]
    assert shapes[0] == shapes[1]
    assert (None, 4) in shapes[0]


def test_a_package_takes_every_batch() -> None:
    """The segment runs the size it was compiled for, the host any other."""
    builder = ModelBuilder()
    x, y = (builder.tensor(n, (1, 4), "int8", signature=(-1, 4), quant=(0.5, 3)) for n in "xy")
    builder.operator("LOGISTIC", [x], [y])
    builder.subgraph.tensors[y].quantization.scale[:] = 1 / 256  # type: ignore[union-attr]
    builder.subgraph.tensors[y].quantization.zero_point[:] = -128  # type: ignore[union-attr]
    package = odc_mlir.compile(model_bytes(builder.finish([x], [y])), placement={"strategy": "supported"})
    assert package.inputs[0].shape == (None, 4)
    assert package.plan is not None
    assert len(package.plan.segments) == 1
    rows = np.arange(-8, 8, dtype=np.int8).reshape(4, 4)
    (together,) = odc_mlir.run(package, [rows])
    single = [odc_mlir.run(package, [row[None]], strict=True)[0] for row in rows]
    np.testing.assert_array_equal(together, np.concatenate(single))
