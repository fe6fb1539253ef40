"""Element-wise operators on tensors of many dimensions that broadcast: NPU and host agree."""

from __future__ import annotations

import numpy as np
import pytest

import odc_mlir


@pytest.mark.parametrize("operator", ["add", "sub", "mul", "maximum", "minimum"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1, 4, 4, 32, 1), (1, 1, 1, 32, 1)),
        ((2, 3, 4, 5, 6), (2, 1, 4, 1, 6)),
        ((2, 1, 2, 3, 4, 5), (3, 1, 1, 4, 1)),
        ((2, 3, 4, 5, 6), (2, 3, 4, 5, 6)),
    ],
)
def test_broadcast(operator: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    def t(shape: tuple[int, ...]) -> str:
        return f"tensor<{'x'.join(map(str, shape))}x!quant.uniform<i8:f32, 0.05:3>>"

    x, y, z = t(a), t(b), t(np.broadcast_shapes(a, b))
    text = f"""func.func @main(%x: {x}, %y: {y}) -> {z} {{
      %r = circle.{operator}(%x, %y) : ({x}, {y}) -> {z}
      func.return %r : {z}
    }}"""
    package = odc_mlir.compile(text.encode(), placement={"strategy": "supported"})
    assert package.plan is not None
    assert not package.plan.host_reasons
    random = np.random.default_rng(0)
    inputs = [random.integers(-128, 128, shape).astype(np.int8) for shape in (a, b)]
    (found,), (wanted,) = odc_mlir.run(package, inputs, strict=True), odc_mlir.run(package, inputs, backend="host")
    np.testing.assert_array_equal(found, wanted)
