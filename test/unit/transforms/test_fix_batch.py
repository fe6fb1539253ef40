"""A model with an open batch is compiled for one size and written as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir import pipelines
from odc_mlir.dialects.circle import info_of
from odc_mlir.editing.parameters import resize
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.support.text import module_text, parse_module
from odc_mlir.transforms.common.placement import main_function
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


Q = "!quant.uniform<i8:f32, 0.5>"
W = f"tensor<4x3x3x4x{Q}>"
# operator: rows of its input, the operand that is computed (batches, rest), operands (%v: that one), result, options
SHAPED: dict[str, tuple[int, Any, Any, str, str, str]] = {
    "transpose_conv": (4, [1, 0, 0, 0], [0, 8, 12, 4], "%v, %w, %x", "8x12x4", "padding = same, stride = [2, 2]"),
    "resize_nearest_neighbor": (4, [0, 0], [8, 12], "%x, %v", "8x12x4", ""),
    "reshape": (4, [1, 0], [0, 96], "%x, %v", "96", ""),
    "slice": (4, [1, 0, 0, 0], [0, 2, 6, 4], "%x, %o, %v", "2x6x4", ""),
    "strided_slice": (4, [1, 0, 0, 0], [0, 3, 6, 4], "%x, %o, %v, %i", "3x6x4", ""),
    "tile": (4, [0, 0, 0, 0], [1, 2, 1, 1], "%x, %v", "8x6x4", ""),
    "broadcast_to": (1, [1, 0, 0, 0], [0, 4, 6, 4], "%x, %v", "4x6x4", ""),
    "pad": (4, [[0, 0]] * 4, [[0, 0], [1, 1], [1, 1], [0, 0]], "%x, %v", "6x8x4", ""),
    "space_to_batch_nd": (4, [[0, 0]] * 2, [[0, 0], [0, 2]], "%x, %t, %v", "2x4x4", ""),
}


def computed_shape(name: str, batch: str, *, written: bool) -> str:
    """A model of two layers; the second one's shape is computed from the input's, or ``written`` out."""
    rows, batches, rest, operands, result, options = SHAPED[name]
    first = "4" if name == "space_to_batch_nd" and batch == "1" else "?" if name == "space_to_batch_nd" else batch
    times, plus = (np.array(item, np.int32) for item in (batches, rest))
    size = "x".join(map(str, plus.shape))
    rows_of, sizes_of = times.reshape(-1).tolist(), plus.reshape(-1).tolist()
    x, y = f"tensor<{batch}x{rows}x6x4x{Q}>", f"tensor<{first}x{result}x{Q}>"
    unknown = f"tensor<*x{Q}>"
    types = {"%x": x, "%w": W, "%v": f"tensor<{size}xi32>", "%t": "tensor<2xi32>"} | dict.fromkeys(
        ("%o", "%i"), "tensor<4xi32>"
    )
    names = operands.split(", ")
    made = (
        f"%v = circle.const {(times + plus).reshape(-1).tolist()} : tensor<{size}xi32>"
        if written
        else f"""
  %s = circle.shape(%r) {{out_type = int32}} : ({x}) -> tensor<4xi32>
  %one = circle.const [1] : tensor<1xi32>
  %zero = circle.const [0] : tensor<1xi32>
  %b = circle.strided_slice(%s, %zero, %one, %one) {{shrink_axis_mask = 1}} : (tensor<4xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<i32>
  %times = circle.const {rows_of} : tensor<{size}xi32>
  %plus = circle.const {sizes_of} : tensor<{size}xi32>
  %m = circle.mul(%times, %b) : (tensor<{size}xi32>, tensor<i32>) -> tensor<{size}xi32>
  %v = circle.add(%m, %plus) : (tensor<{size}xi32>, tensor<{size}xi32>) -> tensor<{size}xi32>"""  # noqa: E501
    )
    call = f"circle.{name}({', '.join('%r' if item == '%x' else item for item in names)})"
    return f"""
func.func @main(%x: {x}) -> {unknown if batch == "1" and not written else y} {{
  %w = circle.const #circle.blob<"0x{bytes(range(144)).hex()}"> : {W}
  %o = circle.const [0, 0, 0, 0] : tensor<4xi32>
  %i = circle.const [1, 1, 1, 1] : tensor<4xi32>
  %t = circle.const [2, 2] : tensor<2xi32>
  %n = circle.none
  %r = circle.conv_2d(%x, %w, %n) {{padding = same, stride = [1, 1]}} : ({x}, {W}, none) -> {x}
  {made}
  %y = {call} {{{options}}} : ({", ".join(types[item] for item in names)}) -> {unknown if batch == "1" and not written else y}
  func.return %y : {unknown if batch == "1" and not written else y}
}}"""  # noqa: E501


@pytest.mark.parametrize("batch", ["1", "?"])
@pytest.mark.parametrize("name", SHAPED)
def test_shapes_that_are_computed_cost_nothing(name: str, batch: str) -> None:
    """All is on the NPU, as fast as with the shape as a constant; another batch runs on the host."""
    found, twin = (
        parse_module(make_context(), computed_shape(name, size, written=written))
        for size, written in ((batch, False), ("1", True))
    )
    package, other = (odc_mlir.compile(item, placement={"strategy": "supported"}) for item in (found, twin))
    assert package.report["host_op_count"] == 0
    assert package.report["cycles_total"] <= 1.05 * other.report["cycles_total"]
    rows = SHAPED[name][0]
    for size in (1, 2) if batch == "?" else (1,):
        x = np.random.default_rng(size).integers(-128, 128, (size, rows, 6, 4)).astype(np.int8)
        (y,) = odc_mlir.run(package, [x], strict=size == 1)
        np.testing.assert_array_equal(y, odc_mlir.run(found, [x], backend="host")[0])
        if size == 1:
            np.testing.assert_array_equal(y, odc_mlir.run(twin, [x], backend="host")[0])


F = "tensor<?x8x6x4xf32>"


def model_in_pieces(source: str) -> str:
    """A shape that is computed from ``source``, used by two segments and returned."""
    x, y = f"tensor<?x8x6x4x{Q}>", f"tensor<?x16x12x4x{Q}>"
    read = F if source == "%x" else x
    return f"""
func.func @main(%x: {F}) -> ({F}, tensor<4xi32>, {y}) {{
  %w = circle.const #circle.blob<"0x{bytes(range(144)).hex()}"> : {W}
  %zero = circle.const [0] : tensor<1xi32>
  %one = circle.const [1] : tensor<1xi32>
  %h = circle.const [16] : tensor<i32>
  %l = circle.const [12] : tensor<i32>
  %c = circle.const [4] : tensor<i32>
  %n = circle.none
  %q = circle.quantize(%x) : ({F}) -> {x}
  %r = circle.conv_2d(%q, %w, %n) {{padding = same, stride = [1, 1]}} : ({x}, {W}, none) -> {x}
  %s = circle.shape({source}) {{out_type = int32}} : ({read}) -> tensor<4xi32>
  %b = circle.strided_slice(%s, %zero, %one, %one) {{shrink_axis_mask = 1}} : (tensor<4xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<i32>
  %v = circle.pack(%b, %h, %l, %c) {{axis = 0, values_count = 4}} : (tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4xi32>
  %t = circle.transpose_conv(%v, %w, %r) {{padding = same, stride = [2, 2]}} : (tensor<4xi32>, {W}, {x}) -> {y}
  %p = circle.conv_2d(%t, %w, %n) {{padding = same, stride = [2, 2]}} : ({y}, {W}, none) -> {x}
  %d = circle.dequantize(%p) : ({x}) -> {F}
  %f = circle.reverse_v2(%d, %one) : ({F}, tensor<1xi32>) -> {F}
  %q2 = circle.quantize(%f) : ({F}) -> {x}
  %r2 = circle.conv_2d(%q2, %w, %n) {{padding = same, stride = [1, 1]}} : ({x}, {W}, none) -> {x}
  %t2 = circle.transpose_conv(%v, %w, %r2) {{padding = same, stride = [2, 2]}} : (tensor<4xi32>, {W}, {x}) -> {y}
  func.return %f, %v, %t2 : {F}, tensor<4xi32>, {y}
}}"""  # noqa: E501


@pytest.mark.parametrize("target", ["npu-256", "cpu"])
@pytest.mark.parametrize("source", ["%x", "%r"])
def test_every_segment_and_the_host_have_the_shapes_that_they_use(source: str, target: str) -> None:
    module = parse_module(make_context(), model_in_pieces(source))
    package = odc_mlir.compile(module, target=target, placement={"strategy": "supported"} if target != "cpu" else None)
    if target != "cpu":
        on_npu = [layer["op"] for layer in package.report["layers"] if layer["placed"] == "npu"]
        own = ["SHAPE", "STRIDED_SLICE", "PACK"] if source == "%r" else []  # the first segment has only %q
        assert on_npu == ["CONV_2D", *own, "TRANSPOSE_CONV", "CONV_2D", "CONV_2D", "TRANSPOSE_CONV"]
    for batch in (1, 2, 1):
        x = np.random.default_rng(batch).normal(size=(batch, 8, 6, 4)).astype(np.float32) * 20
        wanted = odc_mlir.run(module, [x], backend="host")
        for result, expected in zip(odc_mlir.run(package, [x]), wanted, strict=True):
            np.testing.assert_allclose(result, expected, atol=1e-5)


def test_a_resized_model_has_the_shapes_that_it_computes() -> None:
    made = resize(parse_module(make_context(), computed_shape("transpose_conv", "?", written=False)), [(3, 4, 6, 4)])
    assert [info_of(value).shape for value in main_function(made).get_return_op().operands] == [(3, 8, 12, 4)]  # type: ignore[union-attr]
