"""Sums and maxima over pixels and along rows, and normalised rows: NPU and host agree."""

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


def rms_norm(kind: str, zero: int, shape: tuple[int, ...], gamma: str, epsilon: float, scale: float = 0.02) -> str:
    """A model of one RMS_NORM; ``gamma``: constant and its type."""
    element = f"!quant.uniform<{kind}:f32, {scale}{f':{zero}' if zero else ''}>"
    source = f"tensor<{'x'.join(map(str, shape))}x{element}>"
    target = source.replace(str(scale), "0.0003" if kind == "i16" else "0.04")
    return f"""func.func @main(%x: {source}) -> {target} {{
      %g = circle.const {gamma}
      %r = circle.rms_norm(%x, %g) {{epsilon = {epsilon:.6f}}} : ({source}, {gamma.split(" : ")[1]}) -> {target}
      func.return %r : {target}
    }}"""


GAMMAS = {
    "one": "[1.0] : tensor<1xf32>",
    "reals": f"{np.random.default_rng(3).uniform(-2, 3, 64).round(3).tolist()} : tensor<64xf32>",
    "codes": f"{np.random.default_rng(4).integers(0, 120, 64).tolist()} : tensor<64x!quant.uniform<KIND:f32, 0.01>>",
}


@pytest.mark.parametrize(("gamma", "epsilon"), [("one", 0.0), ("reals", 1e-5), ("codes", 1e4)])
@pytest.mark.parametrize(("kind", "zero"), [("i8", 7), ("u8", 120), ("i16", 0)])
@pytest.mark.parametrize("shape", [(1, 1, 64), (2, 3, 5, 64)])
def test_rms_norm(kind: str, zero: int, shape: tuple[int, ...], epsilon: float, gamma: str) -> None:
    text = rms_norm(kind, zero, shape, GAMMAS[gamma].replace("KIND", kind), epsilon)
    package = odc_mlir.compile(text.encode(), placement={"strategy": "supported"})
    assert package.plan is not None
    assert not package.plan.host_reasons
    dtype, random = package.inputs[0].dtype, np.random.default_rng(0)
    limits = np.iinfo(dtype)
    few = np.clip(zero + random.integers(-2, 3, shape), limits.min, limits.max)
    all_codes = random.integers(limits.min, limits.max + 1, shape)
    for codes in (all_codes, random.choice([limits.min, limits.max], shape), few, np.full(shape, zero)):
        inputs = [codes.astype(dtype)]
        (found,), (wanted,) = odc_mlir.run(package, inputs, strict=True), odc_mlir.run(package, inputs, backend="host")
        np.testing.assert_array_equal(found, wanted)
