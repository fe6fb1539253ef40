"""Islands between 8-bit codes run on the NPU as tables, with the results of the host for every code."""

from __future__ import annotations

import numpy as np
import pytest

import odc_mlir
from odc_mlir.support.text import parse_module
from odc_mlir.transforms.circle.circle_optimize import CircleOptimizePass
from odc_mlir.universe import make_context

REAL, SCALAR = "tensor<1x16x16x4xf32>", "tensor<f32>"
SIGNED = "tensor<1x16x16x4x!quant.uniform<i8:f32, 0.05:3>>"
UNSIGNED = "tensor<1x16x16x4x!quant.uniform<u8:f32, 0.03:90>>"
SCALAR_CODE, TRUTHS = "tensor<!quant.uniform<i8:f32, 0.05:3>>", "tensor<1x16x16x4xi1>"
START = f"%d = circle.dequantize(%r) : (SOURCE) -> {REAL}"
END = f"%q = circle.quantize(%f) : ({REAL}) -> RESULT"
ONE = f"""{START}
  %f = circle.gelu(%d) : ({REAL}) -> {REAL}
  {END}"""
SEVERAL = f"""{START}
  %c = circle.const [3.0] : {SCALAR}
  %a = circle.add(%d, %c) : ({REAL}, {SCALAR}) -> {REAL}
  %b = circle.relu6(%a) : ({REAL}) -> {REAL}
  %f = circle.mul(%d, %b) : ({REAL}, {REAL}) -> {REAL}
  {END}"""
NONE = f"{START}\n{END}".replace("%f", "%d")
MASK = f"""
  %c = circle.const [9] : {SCALAR_CODE}
  %g = circle.greater(%r, %c) : (SOURCE, {SCALAR_CODE}) -> {TRUTHS}
  %q = circle.select_v2(%g, %r, %c) : ({TRUTHS}, SOURCE, {SCALAR_CODE}) -> RESULT"""


@pytest.mark.parametrize(
    ("source", "result", "form"),
    [(SIGNED, UNSIGNED, ONE), (UNSIGNED, SIGNED, SEVERAL), (SIGNED, SIGNED, NONE), (SIGNED, SIGNED, MASK)],
    ids=["one", "several", "none", "mask"],
)
def test_every_code_has_the_result_of_the_host(source: str, result: str, form: str) -> None:
    text = f"""
    func.func @main(%x: {source}) -> {result} {{
      %r = circle.relu(%x) : ({source}) -> {source}
      {form.replace("SOURCE", source).replace("RESULT", result)}
      func.return %q : {result}
    }}"""
    module = parse_module(make_context(), text)
    package = odc_mlir.compile(module)
    assert (package.report["host_op_count"], package.report["segment_count"]) == (0, 1)
    codes = np.arange(1024).astype(np.int8 if source is SIGNED else np.uint8).reshape(1, 16, 16, 4)
    np.testing.assert_array_equal(odc_mlir.run(package, [codes])[0], odc_mlir.run(module, [codes], backend="host")[0])


def _check_one_segment(text: str) -> None:
    """Check that one segment computes the function ``text`` of a SIGNED input, with the results of the host."""
    module = parse_module(make_context(), text)
    package = odc_mlir.compile(module)
    assert (package.report["host_op_count"], package.report["segment_count"]) == (0, 1)
    codes = np.arange(1024).astype(np.int8).reshape(1, 16, 16, 4)
    for found, wanted in zip(
        odc_mlir.run(package, [codes]), odc_mlir.run(module, [codes], backend="host"), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_operators_with_several_quantised_results_are_copied() -> None:
    """Each result is a table, even where a float output shares the operator."""
    text = f"""
    func.func @main(%x: {SIGNED}) -> ({SIGNED}, {UNSIGNED}) {{
      %r = circle.relu(%x) : ({SIGNED}) -> {SIGNED}
      {ONE.replace("SOURCE", SIGNED).replace("RESULT", SIGNED)}
      %p = circle.quantize(%f) : ({REAL}) -> {UNSIGNED}
      func.return %q, %p : {SIGNED}, {UNSIGNED}
    }}"""
    _check_one_segment(text)


HALF = "tensor<1x16x16x2xf32>"
HALF_UNSIGNED = UNSIGNED.replace("16x4x", "16x2x")


def test_moved_floats_are_moved_codes() -> None:
    """Parts of a dequantised value that become functions of codes, one part after two moves."""
    text = f"""
    func.func @main(%x: {SIGNED}) -> ({HALF_UNSIGNED}, {SIGNED}) {{
      %r = circle.relu(%x) : ({SIGNED}) -> {SIGNED}
      %axis = circle.const [3] : tensor<i32>
      %order = circle.const [0, 2, 1, 3] : tensor<4xi32>
      {START.replace("SOURCE", SIGNED)}
      %p0, %p1 = circle.split(%axis, %d) {{num_splits = 2}} : (tensor<i32>, {REAL}) -> ({HALF}, {HALF})
      %g = circle.gelu(%p0) : ({HALF}) -> {HALF}
      %q = circle.quantize(%g) : ({HALF}) -> {HALF_UNSIGNED}
      %t = circle.transpose(%p1, %order) : ({HALF}, tensor<4xi32>) -> {HALF}
      %b = circle.concatenation(%t, %p1) {{axis = 3}} : ({HALF}, {HALF}) -> {REAL}
      %s = circle.quantize(%b) : ({REAL}) -> {SIGNED}
      func.return %q, %s : {HALF_UNSIGNED}, {SIGNED}
    }}"""
    _check_one_segment(text)


@pytest.mark.parametrize("storage", ["i8", "u8", "i16"])
@pytest.mark.parametrize("name", ["prelu", "sub", "squared_difference", "mul", "leaky_relu", "hard_swish"])
def test_operators_on_codes_differ_by_one_code(name: str, storage: str) -> None:
    """Of all operators that the rewrite replaces; one 8-bit function stays a table, which is exact."""
    zero, scale = {"i8": 3, "u8": 120, "i16": 0}[storage], 0.0002 if storage == "i16" else 0.05
    factor = {"squared_difference": 100, "hard_swish": 1}.get(name, 2)  # squares of small numbers lose digits
    source, result = (f"tensor<2x25x8x!quant.uniform<{storage}:f32, {s}:{zero}>>" for s in (scale, scale * factor))
    real, slopes, options = "tensor<2x25x8xf32>", "tensor<8xf32>", "alpha = 0.1" if name == "leaky_relu" else ""
    other = {"prelu": ("%c", slopes), "leaky_relu": None, "hard_swish": None}.get(name, ("%b", real))
    names, types = zip(("%a", real), *([other] if other else []), strict=True)
    text = f"""
    func.func @main(%x: {source}, %z: {source}) -> {result} {{
      %c = circle.const [0.5, -0.25, 0.125, 0.0, 1.0, 0.3, 0.7, -1.0] : {slopes}
      %a = circle.dequantize(%x) : ({source}) -> {real}
      %b = circle.dequantize(%z) : ({source}) -> {real}
      %f = circle.{name}({", ".join(names)}) {{{options}}} : ({", ".join(types)}) -> {real}
      %y = circle.quantize(%f) : ({real}) -> {result}
      func.return %y : {result}
    }}"""
    module, rewritten = (parse_module(make_context(), text) for _ in range(2))
    CircleOptimizePass("none", ("replace_islands_with_integers",)).apply(make_context(), rewritten)
    package = odc_mlir.compile(rewritten, placement={"strategy": "supported"})
    assert package.report["host_op_count"] == 0
    limits, random = np.iinfo({"i8": "int8", "u8": "uint8", "i16": "int16"}[storage]), np.random.default_rng(0)
    xs = [random.integers(limits.min, limits.max + 1, (2, 25, 8)).astype(limits.dtype) for _ in range(2)]
    (found,), (wanted,) = odc_mlir.run(package, xs), odc_mlir.run(module, xs, backend="host")
    assert np.abs(found.astype(np.int32) - wanted).max() <= 1
