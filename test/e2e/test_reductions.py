"""Sums and maxima over pixels and along rows: NPU and host agree."""

from __future__ import annotations

import numpy as np
import pytest

import odc_mlir


@pytest.mark.parametrize("kind", ["i8", "u8"])
@pytest.mark.parametrize("operator", ["sum", "reduce_max", "mean"])
@pytest.mark.parametrize(
    ("shape", "axes", "result"),
    [
        ((2, 6, 5, 24), (1, 2), (2, 24)),
        ((3, 40), (1,), (3,)),
        ((2, 5, 7, 3), (3,), (2, 5, 7)),
        ((1, 70, 70, 2), (1, 2), (1, 2)),
    ],
)
def test_reduction(
    kind: str, operator: str, shape: tuple[int, ...], axes: tuple[int, ...], result: tuple[int, ...]
) -> None:
    def t(sizes: tuple[int, ...], scale: str) -> str:
        return f"tensor<{'x'.join(map(str, sizes))}x!quant.uniform<{kind}:f32, {scale}>>"

    source = t(shape, "0.05:3")
    target = t(result, "0.05:3" if operator == "reduce_max" else "0.7:5")
    axis = f"tensor<{len(axes)}xi32>"
    text = f"""func.func @main(%x: {source}) -> {target} {{
      %a = circle.const {list(axes)} : {axis}
      %r = circle.{operator}(%x, %a) {{keep_dims = false}} : ({source}, {axis}) -> {target}
      func.return %r : {target}
    }}"""
    package = odc_mlir.compile(text.encode(), placement={"strategy": "supported"})
    assert package.plan is not None
    assert not package.plan.host_reasons
    low, high = (-128, 127) if kind == "i8" else (0, 255)
    random = np.random.default_rng(0)
    for codes in (random.integers(low, high + 1, shape), random.choice([low, high], shape)):
        inputs = [codes.astype(package.inputs[0].dtype)]
        (found,), (wanted,) = odc_mlir.run(package, inputs, strict=True), odc_mlir.run(package, inputs, backend="host")
        np.testing.assert_array_equal(found, wanted)
