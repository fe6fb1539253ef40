"""Islands between 8-bit codes run on the NPU as tables, with the results of the host for every code."""

from __future__ import annotations

import numpy as np
import pytest

import odc_mlir
from odc_mlir.support.text import parse_module
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
