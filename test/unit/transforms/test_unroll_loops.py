"""Loops that are written out compute the same as the loops, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from odc_mlir import pipelines
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.support.text import parse_module
from odc_mlir.universe import make_context

LISTS = "tensor<i32>, tensor<4x1x3xf32>, tensor<4x1x3xf32>"
OUTER = "tensor<i32>, tensor<4x1x3xf32>"
TEXT = f"""
func.func @main(%x: tensor<4x1x3xf32> loc("x")) -> tensor<4x1x3xf32> {{
  %zero = circle.const [0] : tensor<i32>
  %0, %1 = circle.while(%zero, %x) {{cond_subgraph_index = @again, body_subgraph_index = @layer}}
    : ({OUTER}) -> ({OUTER}) loc(fused["count", "result"])
  func.return %1 : tensor<4x1x3xf32>
}}
func.func @again(%i: tensor<i32>, %x: tensor<4x1x3xf32>) -> tensor<i1> {{
  %layers = circle.const [LAYERS] : tensor<i32>
  %0 = circle.less(%i, %layers) : (tensor<i32>, tensor<i32>) -> tensor<i1>
  func.return %0 : tensor<i1>
}}
func.func @layer(%i: tensor<i32>, %x: tensor<4x1x3xf32>) -> ({OUTER}) {{
  %zero = circle.const [0] : tensor<i32>
  %one = circle.const [1] : tensor<i32>
  %list = circle.const [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0] : tensor<4x1x3xf32>
  %0, %1, %2 = circle.while(%zero, %list, %x) {{cond_subgraph_index = @more, body_subgraph_index = @step}}
    : ({LISTS}) -> ({LISTS})
  %next = circle.add(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
  func.return %next, %1 : {OUTER}
}}
func.func @more(%i: tensor<i32>, %list: tensor<4x1x3xf32>, %x: tensor<4x1x3xf32>) -> tensor<i1> {{
  %trips = circle.const [TRIPS] : tensor<i32>
  %0 = circle.less(%i, %trips) : (tensor<i32>, tensor<i32>) -> tensor<i1>
  func.return %0 : tensor<i1>
}}
func.func @step(%i: tensor<i32>, %list: tensor<4x1x3xf32>, %x: tensor<4x1x3xf32>) -> ({LISTS}) {{
  %one = circle.const [1] : tensor<i32>
  %three = circle.const [3] : tensor<i32>
  %zeros = circle.const [0, 0] : tensor<2xi32>
  %shape = circle.const [1, 1, 3] : tensor<3xi32>
  %vector = circle.const [1] : tensor<1xi32>
  %last = circle.sub(%three, %i) : (tensor<i32>, tensor<i32>) -> tensor<i32>
  %next = circle.add(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
  %row = circle.gather(%x, %READ) : (tensor<4x1x3xf32>, tensor<i32>) -> tensor<1x3xf32>
  %y = circle.tanh(%row) : (tensor<1x3xf32>) -> tensor<1x3xf32>
  %item = circle.reshape(%y, %shape) : (tensor<1x3xf32>, tensor<3xi32>) -> tensor<1x1x3xf32>
  WRITE
  func.return %next, %written, %x : {LISTS}
}}
"""
UPDATE = """
  %place = circle.reshape(%WROTE, %vector) : (tensor<i32>, tensor<1xi32>) -> tensor<1xi32>
  %start = circle.concatenation(%place, %zeros) : (tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>
  %written = circle.dynamic_update_slice(%list, %item, %start)
    : (tensor<4x1x3xf32>, tensor<1x1x3xf32>, tensor<3xi32>) -> tensor<4x1x3xf32>"""
APPEND = """
  %begin = circle.const [1, 0, 0] : tensor<3xi32>
  %size = circle.const [3, 1, 3] : tensor<3xi32>
  %rest = circle.slice(%list, %begin, %size)
    : (tensor<4x1x3xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<?x1x3xf32>
  %written = circle.concatenation(%rest, %item)
    : (tensor<?x1x3xf32>, tensor<1x1x3xf32>) -> tensor<4x1x3xf32>"""
PREPEND = APPEND.replace("[1, 0, 0]", "[0, 0, 0]").replace("%rest, %item", "%item, %rest")
PREPEND = PREPEND.replace("(tensor<?x1x3xf32>, tensor<1x1x3xf32>)", "(tensor<1x1x3xf32>, tensor<?x1x3xf32>)")
REPLACE = """
  %place = circle.reshape(%i, %vector) : (tensor<i32>, tensor<1xi32>) -> tensor<1xi32>
  %origin = circle.const [0, 0, 0] : tensor<3xi32>
  %ends = circle.const [-1, -1] : tensor<2xi32>
  %before = circle.concatenation(%place, %ends) : (tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>
  %behind = circle.reshape(%next, %vector) : (tensor<i32>, tensor<1xi32>) -> tensor<1xi32>
  %begin = circle.concatenation(%behind, %zeros) : (tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>
  %all = circle.const [-1, -1, -1] : tensor<3xi32>
  %head = circle.slice(%list, %origin, %before)
    : (tensor<4x1x3xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<?x1x3xf32>
  %tail = circle.slice(%list, %begin, %all)
    : (tensor<4x1x3xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<?x1x3xf32>
  %written = circle.concatenation(%head, %item, %tail)
    : (tensor<?x1x3xf32>, tensor<1x1x3xf32>, tensor<?x1x3xf32>) -> tensor<4x1x3xf32>"""


def _names(module: ModuleOp) -> set[str]:
    return {op.name for op in module.walk()}


@pytest.mark.parametrize(
    ("layers", "trips", "read", "write"),
    [
        (2, 4, "i", UPDATE.replace("WROTE", "i")),
        (2, 4, "last", UPDATE.replace("WROTE", "i")),
        (1, 4, "i", UPDATE.replace("WROTE", "last")),
        (1, 3, "last", UPDATE.replace("WROTE", "last")),  # a row of the first list stays
        (2, 4, "i", APPEND),
        (1, 2, "last", APPEND),
        (3, 4, "i", PREPEND),
        (1, 4, "i", REPLACE),  # the parts before the first row and behind the last one are empty
    ],
    ids=["forward", "backward", "reversed", "part", "appended", "appended part", "prepended", "replaced"],
)
def test_results_and_names_are_those_of_the_loop(layers: int, trips: int, read: str, write: str) -> None:
    text = TEXT.replace("LAYERS", str(layers)).replace("TRIPS", str(trips)).replace("READ", read)
    module = parse_module(make_context(), text.replace("WRITE", write))
    x = np.arange(12, dtype=np.float32).reshape(4, 1, 3) / 8
    before = HostExecutor(build_graph(export_model(module))).run([x])
    pipelines.run(make_context(), module, "circle-opt")
    assert not _names(module) & {"circle.while", "circle.gather"}
    assert ("circle.dynamic_update_slice" in _names(module)) == (trips == 3)
    graph = build_graph(export_model(module))
    assert [info.name for info in graph.output_infos()] == ["result"]
    np.testing.assert_array_equal(HostExecutor(graph).run([x]), before)
