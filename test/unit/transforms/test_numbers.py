"""Arithmetic of indices on the NPU gives the integers of the host, and analysed bounds hold for all values."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import odc_mlir
from helpers.interpreting import run_module
from odc_mlir import pipelines
from odc_mlir.support.text import parse_module
from odc_mlir.transforms.common.placement import main_function, operators, reason_of
from odc_mlir.transforms.common.value_bounds import value_bounds
from odc_mlir.transforms.partition.npu_choose_segments import NpuChooseSegmentsPass
from odc_mlir.universe import make_context

SCORES = "tensor<4x9x!quant.uniform<i8:f32, 0.05:3>>"
ROW, ONE = "tensor<4xi32>", "tensor<1xi32>"


def of_index(body: str, result: str) -> str:
    """A function of %i, the index of the largest of nine scores."""
    return f"""
    func.func @main(%x: {SCORES}) -> {result} {{
      %axis = circle.const [1] : {ONE}
      %i = circle.arg_max(%x, %axis) {{output_type = int32}} : ({SCORES}, {ONE}) -> {ROW}
      {body}
      func.return %y : {result}
    }}"""


def each_index() -> NDArray[np.int8]:
    """Scores whose largest ones have the indices 0, 3, 7 and 8."""
    scores = np.full((4, 9), -9, np.int8)
    scores[range(4), [0, 3, 7, 8]] = 5
    return scores


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 10, 128, 181, 4095, 16_384, 23_987])
def test_all_16_bit_numbers_are_divided_and_made_truths(divisor: int) -> None:
    wide, number, truths = "tensor<65536xi32>", "tensor<65536xi16>", "tensor<65536xi1>"
    text = f"""
    func.func @main(%x: {number}) -> ({wide}, {wide}, {truths}) {{
      %k = circle.const [{divisor}] : {ONE}
      %c = circle.cast(%x) {{in_data_type = int16, out_data_type = int32}} : ({number}) -> {wide}
      %q = circle.floor_div(%c, %k) : ({wide}, {ONE}) -> {wide}
      %r = circle.floor_mod(%c, %k) : ({wide}, {ONE}) -> {wide}
      %t = circle.cast(%c) {{in_data_type = int32, out_data_type = bool}} : ({wide}) -> {truths}
      func.return %q, %r, %t : {wide}, {wide}, {truths}
    }}"""
    module, codes = parse_module(make_context(), text), np.arange(-(1 << 15), 1 << 15, dtype=np.int16)
    pipelines.run(make_context(), module, "npu", options=[NpuChooseSegmentsPass("supported")])
    assert not [reason_of(op) for op in operators(module) if reason_of(op)]
    quotients, remainders, found = run_module(module, [codes])
    np.testing.assert_array_equal(quotients, codes.astype(np.int32) // divisor)
    np.testing.assert_array_equal(remainders, codes.astype(np.int32) % divisor)
    np.testing.assert_array_equal(found, codes != 0)


BOUNDED = {
    "%y = circle.add(%i, %k) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": (-4, 4),
    "%y = circle.sub(%k, %i) : (tensor<1xi32>, tensor<4xi32>) -> tensor<4xi32>": (-12, -4),
    "%y = circle.mul(%i, %k) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": (-32, 0),
    "%y = circle.maximum(%i, %three) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": (3, 8),
    "%y = circle.minimum(%i, %three) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": (0, 3),
    "%y = circle.floor_div(%i, %three) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": (0, 2),
    "%y = circle.floor_mod(%i, %three) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": (0, 2),
    "%y = circle.select_v2(%c, %i, %k) : (tensor<4xi1>, tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": (-4, 8),
    "%y = circle.reverse_v2(%i, %zero) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": (0, 8),
    "%y = circle.cumsum(%i, %zero) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": (0, 32),
    "%y = circle.floor_div(%i, %k) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": None,
    "%y = circle.mul(%i, %large) : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": None,
    "%y = circle.add(%i, %k) {activation = relu} : (tensor<4xi32>, tensor<1xi32>) -> tensor<4xi32>": None,
}


@pytest.mark.parametrize("body", BOUNDED)
def test_bounds_follow_from_operands(body: str) -> None:
    """The smallest and the largest bound occur, except for a value of the other choice and zeros between moves."""
    constants = "\n".join(
        f"%{name} = circle.const [{value}] : {ONE}"
        for name, value in (("k", -4), ("three", 3), ("zero", 0), ("large", 1 << 30))
    )
    truths = f"%c = circle.greater(%i, %three) : ({ROW}, {ONE}) -> tensor<4xi1>"
    module = parse_module(make_context(), of_index(f"{constants}\n{truths}\n{body}", ROW))
    *_, last = operators(main_function(module))
    bounds = value_bounds(operators(main_function(module))).get(last.results[0])
    assert bounds == BOUNDED[body]
    if bounds is not None:
        (values,) = run_module(module, [each_index()])
        assert bounds[0] <= values.min() <= values.max() <= bounds[1]


def test_postprocessing_of_a_classifier_is_one_segment() -> None:
    table, rows = "tensor<8x3x!quant.uniform<i8:f32, 0.05:3>>", "tensor<4x3x!quant.uniform<i8:f32, 0.05:3>>"
    body = f"""
      %seven = circle.const [7] : {ONE}
      %a = circle.add(%i, %axis) : ({ROW}, {ONE}) -> {ROW}
      %m = circle.minimum(%a, %seven) : ({ROW}, {ONE}) -> {ROW}
      %s = circle.cast(%m) {{in_data_type = int32, out_data_type = int8}} : ({ROW}) -> tensor<4xi8>
      %w = circle.cast(%s) {{in_data_type = int8, out_data_type = int32}} : (tensor<4xi8>) -> {ROW}
      %t = circle.const {list(range(24))} : {table}
      %y = circle.gather(%t, %w) {{axis = 0, batch_dims = 0}} : ({table}, {ROW}) -> {rows}
      %f = circle.cast(%i) {{in_data_type = int32, out_data_type = bool}} : ({ROW}) -> tensor<4xi1>"""
    text = of_index(body, rows).replace(f"-> {rows} {{", f"-> ({rows}, tensor<4xi1>, tensor<4xi8>, {ROW}) {{")
    text = text.replace(f"return %y : {rows}", f"return %y, %f, %s, %m : {rows}, tensor<4xi1>, tensor<4xi8>, {ROW}")
    module = parse_module(make_context(), text)
    package = odc_mlir.compile(module)
    assert (package.report["host_op_count"], package.report["segment_count"]) == (0, 1)
    found = odc_mlir.run(package, [each_index()])
    for a, b in zip(found, odc_mlir.run(module, [each_index()], backend="host"), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert found[3].tolist() == [1, 4, 7, 7]
