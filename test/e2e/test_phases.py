"""Transposed and grouped convolutions, bilinear interpolation, weights with several zero points: NPU and host agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir

SCALES = "{0.01, 0.02, 0.03, 0.04, 0.05, 0.06}"


class Text:
    """Builds one function: constants of random values, one operation."""

    def __init__(self, dtype: str, scale: str = "0.05:3") -> None:
        self.kind, self.scale, self.lines = dtype, scale, list[str]()
        self.random = np.random.default_rng(3)

    def tensor(self, *shape: int) -> str:
        return f"tensor<{'x'.join(map(str, shape))}x!quant.uniform<{self.kind}:f32, {self.scale}>>"

    def const(self, name: str, kind: str, values: Any) -> str:
        """Type of a new constant."""
        values = np.asarray(values)
        made = f"tensor<{'x'.join(map(str, values.shape))}x{kind}>"
        self.lines.append(f"%{name} = circle.const {values.reshape(-1).tolist()} : {made}")
        return made

    def codes(self, *shape: int) -> Any:
        low, high = (-127, 128) if self.kind == "i8" else (0, 256)
        return self.random.integers(low, high, shape)

    def check(self, source: str, result: str) -> None:
        """Compile it, run it on both sides with random codes and with extreme ones."""
        body = "\n".join(self.lines)
        text = f"func.func @main(%x: {source}) -> {result} {{\n{body}\nfunc.return %r : {result}\n}}"
        package = odc_mlir.compile(text.encode(), placement={"strategy": "supported"})
        assert package.plan is not None
        assert not package.plan.host_reasons
        (spec,) = package.inputs
        limits, shape = np.iinfo(str(spec.dtype)), spec.shape
        low, high = limits.min, limits.max
        for sample in (self.random.integers(low, high + 1, shape), self.random.choice([low, high], shape)):
            codes = sample.astype(spec.dtype)
            (found,), (wanted,) = (odc_mlir.run(package, [codes], backend=b) for b in ("npu", "host"))  # type: ignore[call-overload]
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["i8", "u8"])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "output"),
    [(2, 3, 2, "same", 4), (4, 3, 2, "valid", 9), (3, 4, 2, "same", 6), (3, 5, 3, "same", 9), (4, 3, 1, "same", 4)],
)
def test_transposed_convolution(kind: str, size: int, kernel: int, stride: int, padding: str, output: int) -> None:
    text = Text(kind)
    x, y = text.tensor(2, size, size, 8), text.tensor(2, output, output, 6)
    weights = f"!quant.uniform<i8:f32:0, {SCALES}>" if kind == "i8" else "!quant.uniform<u8:f32, 0.02:120>"
    w = text.const("w", weights, text.codes(6, kernel, kernel, 8))
    b = text.const("b", "i32", text.random.integers(-1000, 1000, 6))
    o = text.const("o", "i32", [2, output, output, 6])
    options = f"{{padding = {padding}, stride_h = {stride}, stride_w = {stride}}}"
    text.lines.append(f"%r = circle.transpose_conv(%o, %w, %x, %b) {options} : ({o}, {w}, {x}, {b}) -> {y}")
    text.check(x, y)


@pytest.mark.parametrize("kind", ["i8", "u8", "i16"])
@pytest.mark.parametrize("half_pixel", ["true", "false"])
@pytest.mark.parametrize("factors", [(2, 2), (4, 2)])
def test_bilinear_interpolation(kind: str, half_pixel: str, factors: tuple[int, int]) -> None:
    text = Text(kind, "0.05" if kind == "i16" else "0.05:3")
    height, width = 3 * factors[0], 5 * factors[1]
    x, y = text.tensor(2, 3, 5, 8), text.tensor(2, height, width, 8)
    o = text.const("o", "i32", [height, width])
    options = f"{{align_corners = false, half_pixel_centers = {half_pixel}}}"
    text.lines.append(f"%r = circle.resize_bilinear(%x, %o) {options} : ({x}, {o}) -> {y}")
    text.check(x, y)


@pytest.mark.parametrize("groups", [2, 4])
def test_grouped_convolution(groups: int) -> None:
    text = Text("i8")
    x, y = text.tensor(1, 6, 6, 4 * groups), text.tensor(1, 3, 3, 2 * groups)
    w = text.const("w", "!quant.uniform<i8:f32, 0.02>", text.codes(2 * groups, 3, 3, 4))
    b = text.const("b", "i32", text.random.integers(-1000, 1000, 2 * groups))
    options = "{padding = same, stride = [2, 2], activation = relu}"
    text.lines.append(f"%r = circle.conv_2d(%x, %w, %b) {options} : ({x}, {w}, {b}) -> {y}")
    text.check(x, y)


@pytest.mark.parametrize("operator", ["conv_2d", "depthwise_conv_2d"])
def test_zero_points_far_apart(operator: str) -> None:
    text = Text("u8", "0.05:120")
    x, y = text.tensor(2, 5, 5, 6), text.tensor(2, 5, 5, 6)
    deep = operator == "depthwise_conv_2d"
    scales = ", ".join(f"0.0{i + 1}:{zero}" for i, zero in enumerate((0, 255, 3, 128, 250, 2)))
    shape = (1, 3, 3, 6) if deep else (6, 3, 3, 6)
    w = text.const("w", f"!quant.uniform<u8:f32:{3 if deep else 0}, {{{scales}}}>", text.codes(*shape))
    b = text.const("b", "i32", text.random.integers(-1000, 1000, 6))
    more = ", depth_multiplier = 1" if deep else ""
    options = f"{{padding = same, stride = [1, 1], activation = relu6{more}}}"
    text.lines.append(f"%r = circle.{operator}(%x, %w, %b) {options} : ({x}, {w}, {b}) -> {y}")
    text.check(x, y)


def test_zero_points_far_apart_in_a_transposed_convolution() -> None:
    text = Text("u8", "0.05:120")
    x, y = text.tensor(2, 3, 3, 4), text.tensor(2, 6, 6, 6)
    scales = ", ".join(f"0.0{i + 1}:{zero}" for i, zero in enumerate((0, 255, 3, 128, 250, 2)))
    w = text.const("w", f"!quant.uniform<u8:f32:0, {{{scales}}}>", text.codes(6, 3, 3, 4))
    b = text.const("b", "i32", text.random.integers(-1000, 1000, 6))
    o = text.const("o", "i32", [2, 6, 6, 6])
    options = "{padding = same, stride_h = 2, stride_w = 2}"
    text.lines.append(f"%r = circle.transpose_conv(%o, %w, %x, %b) {options} : ({o}, {w}, {x}, {b}) -> {y}")
    text.check(x, y)


def test_zero_points_far_apart_in_a_matrix() -> None:
    text = Text("u8", "0.05:120")
    x, y = text.tensor(3, 20), text.tensor(3, 6)
    scales = ", ".join(f"0.0{i + 1}:{zero}" for i, zero in enumerate((0, 255, 3, 128, 250, 2)))
    w = text.const("w", f"!quant.uniform<u8:f32:0, {{{scales}}}>", text.codes(6, 20))
    b = text.const("b", "i32", text.random.integers(-1000, 1000, 6))
    text.lines.append(f"%r = circle.fully_connected(%x, %w, %b) : ({x}, {w}, {b}) -> {y}")
    text.check(x, y)


@pytest.mark.parametrize("operator", ["conv_2d", "depthwise_conv_2d"])
def test_several_zero_points(operator: str) -> None:
    text = Text("u8", "0.05:120")
    x, y = text.tensor(1, 5, 5, 6), text.tensor(1, 5, 5, 6)
    deep = operator == "depthwise_conv_2d"
    zeros = (100, 110, 120, 130, 140, 127)
    scales = ", ".join(f"0.0{i + 1}:{zero}" for i, zero in enumerate(zeros))
    shape = (1, 3, 3, 6) if deep else (6, 3, 3, 6)
    near = np.asarray(zeros).reshape((1, 1, 1, 6) if deep else (6, 1, 1, 1))
    w = text.const("w", f"!quant.uniform<u8:f32:{3 if deep else 0}, {{{scales}}}>", near + text.codes(*shape) // 3 - 40)
    b = text.const("b", "i32", text.random.integers(-1000, 1000, 6))
    more = ", depth_multiplier = 1" if deep else ""
    options = f"{{padding = same, stride = [1, 1], activation = none{more}}}"
    text.lines.append(f"%r = circle.{operator}(%x, %w, %b) {options} : ({x}, {w}, {b}) -> {y}")
    text.check(x, y)
