"""Matrix products load an operand from the tensors that a concatenation joins, and compute the same integers."""

from __future__ import annotations

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.dialects.npu_tiling import PARTS


def _product(rows: tuple[int, ...], columns: int, others: int, *, left: bool, wide: bool) -> bytes:
    """A product of two images with an operand of rows of several inputs, each of ``columns`` codes."""
    builder, kind = ModelBuilder(), "int16" if wide else "int8"
    quant = (0.02, 0) if wide else (0.02, 3)
    parts = [builder.tensor(f"part{i}", (2, count, columns), kind, quant=quant) for i, count in enumerate(rows)]
    joined = builder.tensor("joined", (2, sum(rows), columns), kind, quant=quant)
    builder.operator("CONCATENATION", parts, [joined], options={"axis": 1})
    shape = (2, columns, others) if left else (2, others, sum(rows))
    other = builder.tensor("other", shape, kind, quant=(0.05, 0))
    result = (2, sum(rows), others) if left else (2, others, columns)
    y = builder.tensor("y", result, kind, quant=(400.0 if wide else 1.5, 0))
    builder.operator("BATCH_MATMUL", [joined, other] if left else [other, joined], [y])
    return model_bytes(builder.finish([*parts, other], [y]))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns", "others", "options"),
    [
        ((31, 1), 8, 2, {}),
        ((1, 2, 3, 70), 40, 3, {}),  # several groups of channels
        ((5, 200, 6), 33, 70, {"memory": "sram", "prefer": "memory", "sram_limit": 131_072}),  # several tiles
    ],
)
def test_products_of_joined_rows(
    rows: tuple[int, ...], columns: int, others: int, options: dict[str, object], left: bool, wide: bool
) -> None:
    model = _product(rows, columns, others, left=left, wide=wide)
    lowered = odc_mlir.lower(odc_mlir.load(model), "npu", target="npu-256", **options)
    marked = odc_mlir.run_passes(lowered, "npu-alias-moves")
    assert any(PARTS in op.attributes for op in marked.walk())
    rng = np.random.default_rng(1)
    limits = np.iinfo(np.int16 if wide else np.int8)
    shapes = [*((2, count, columns) for count in rows), (2, columns, others) if left else (2, others, sum(rows))]
    inputs = [rng.integers(limits.min, limits.max, shape, limits.dtype, endpoint=True) for shape in shapes]
    (expected,) = odc_mlir.run(model, inputs)
    (found,) = odc_mlir.run(odc_mlir.compile(model, target="npu-256", strict=True, **options), inputs)
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) > 5
