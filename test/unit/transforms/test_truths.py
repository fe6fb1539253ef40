"""Comparisons, logic and choices on the NPU give the results of the host for all codes, without host operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import odc_mlir
from helpers.interpreting import run_module
from odc_mlir import pipelines
from odc_mlir.support.text import parse_module
from odc_mlir.transforms.common.placement import operators, reason_of
from odc_mlir.transforms.partition.npu_choose_segments import NpuChooseSegmentsPass
from odc_mlir.universe import make_context

NAMES = ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")


def codes(storage: str) -> NDArray[Any]:
    """All codes, or for 16 bits extreme ones and some near zero."""
    if storage == "i16":
        return np.append(np.arange(-126, 128), [-32768, 32767]).astype(np.int16)
    return np.arange(256, dtype=np.uint8).view({"i8": np.int8, "u8": np.uint8}[storage])


def check(text: str, inputs: list[NDArray[Any]]) -> None:
    """Compare operations of the NPU with host kernels."""
    module = parse_module(make_context(), text)
    wanted = run_module(module, inputs)
    pipelines.run(make_context(), module, "npu", options=[NpuChooseSegmentsPass("supported")])
    assert not [reason_of(op) for op in operators(module) if reason_of(op)]
    compare(run_module(module, inputs), wanted)


def check_package(text: str, inputs: list[NDArray[Any]]) -> None:
    module = parse_module(make_context(), text)
    package = odc_mlir.compile(module, placement={"strategy": "supported"})
    assert (package.report["host_op_count"], package.report["segment_count"]) == (0, 1)
    compare(odc_mlir.run(package, inputs), odc_mlir.run(module, inputs, backend="host"))


def compare(found: Sequence[NDArray[Any]], wanted: Sequence[NDArray[Any]]) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        assert len(np.unique(b)) > 1, "equal results compare nothing"
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("scales", [("0.05", "0.05"), ("0.0007", "0.004")], ids=["same", "other"])
@pytest.mark.parametrize(("storage", "zero", "other"), [("i8", 3, -5), ("u8", 130, 7), ("i16", 0, 0)])
def test_all_pairs_are_compared(storage: str, zero: int, other: int, scales: tuple[str, str]) -> None:
    other = zero if scales[0] == scales[1] else other
    x = f"tensor<256x1x!quant.uniform<{storage}:f32, {scales[0]}:{zero}>>"
    z = f"tensor<256x!quant.uniform<{storage}:f32, {scales[1]}:{other}>>"
    truths = "tensor<256x256xi1>"
    body = "\n".join(f"%{name} = circle.{name}(%x, %z) : ({x}, {z}) -> {truths}" for name in NAMES)
    results = ", ".join(f"%{name}" for name in NAMES)
    types = ", ".join([truths] * len(NAMES))
    text = f"func.func @main(%x: {x}, %z: {z}) -> ({types}) {{\n{body}\nfunc.return {results} : {types}\n}}"
    check(text, [codes(storage).reshape(256, 1), codes(storage)])


@pytest.mark.parametrize(("storage", "zero", "code"), [("i8", 3, -128), ("u8", 130, 255), ("i16", 0, 77)])
def test_all_pairs_are_chosen_from(storage: str, zero: int, code: int) -> None:
    """By a truth of each pair: from two tensors, from a tensor and a constant on either side, from two constants."""

    def kind(shape: str) -> str:
        return f"tensor<{shape}x!quant.uniform<{storage}:f32, 0.05:{zero}>>"

    kinds, truths = {"%x": kind("256x1"), "%z": kind("256"), "%k": kind("1"), "%l": kind("1")}, "tensor<256x256xi1>"
    pairs = (("%x", "%z"), ("%x", "%k"), ("%k", "%z"), ("%k", "%l"))
    body = [f"%k = circle.const [{code}] : {kind('1')}", f"%l = circle.const [9] : {kind('1')}"]
    for number, (a, b) in enumerate(pairs):
        types = f"({truths}, {kinds[a]}, {kinds[b]}) -> {kind('256x256')}"
        body.append(f"%y{number} = circle.select_v2(%c, {a}, {b}) : {types}")
    results = ", ".join(f"%y{number}" for number in range(len(pairs)))
    types = ", ".join([kind("256x256")] * len(pairs))
    text = (
        f"func.func @main(%c: {truths}, %x: {kinds['%x']}, %z: {kinds['%z']}) -> ({types}) {{\n"
        + "\n".join(body)
        + f"\nfunc.return {results} : {types}\n}}"
    )
    truth = np.random.default_rng(0).integers(0, 2, (256, 256)).astype(np.bool_)
    check(text, [truth, codes(storage).reshape(256, 1), codes(storage)])


def test_logic_of_truths() -> None:
    truths = "tensor<8xi1>"
    text = f"""
    func.func @main(%x: {truths}, %z: {truths}, %c: {truths}) -> ({truths}, {truths}) {{
      %n = circle.logical_not(%x) : ({truths}) -> {truths}
      %a = circle.logical_and(%n, %z) : ({truths}, {truths}) -> {truths}
      %o = circle.logical_or(%a, %c) : ({truths}, {truths}) -> {truths}
      %e = circle.equal(%x, %o) : ({truths}, {truths}) -> {truths}
      %s = circle.select(%c, %x, %z) : ({truths}, {truths}, {truths}) -> {truths}
      func.return %e, %s : {truths}, {truths}
    }}"""
    table = np.array(list(np.ndindex(2, 2, 2)), np.bool_)
    check_package(text, list(np.ascontiguousarray(table.T)))


def test_a_window_of_vectors_becomes_codes() -> None:
    """Truths that are no function of one code begin an island; a comparison of floats ends one."""
    code, row, truths = (
        "tensor<4x1x!quant.uniform<i8:f32, 0.05:3>>",
        "tensor<3x!quant.uniform<i8:f32, 0.05:3>>",
        "tensor<4x3xi1>",
    )
    real, result, small = "tensor<4x3xf32>", "tensor<4x3x!quant.uniform<u8:f32, 0.004:7>>", "tensor<4x1xf32>"
    text = f"""
    func.func @main(%x: {code}) -> ({result}, tensor<4x1xi1>) {{
      %low = circle.const [-20, 3, 40] : {row}
      %high = circle.const [10, 50, 90] : {row}
      %g = circle.greater_equal(%x, %low) : ({code}, {row}) -> {truths}
      %l = circle.less(%x, %high) : ({code}, {row}) -> {truths}
      %a = circle.logical_and(%g, %l) : ({truths}, {truths}) -> {truths}
      %f = circle.cast(%a) {{in_data_type = bool, out_data_type = float32}} : ({truths}) -> {real}
      %q = circle.quantize(%f) : ({real}) -> {result}
      %half = circle.const [0.5] : tensor<f32>
      %d = circle.dequantize(%x) : ({code}) -> {small}
      %e = circle.less(%d, %half) : ({small}, tensor<f32>) -> tensor<4x1xi1>
      func.return %q, %e : {result}, tensor<4x1xi1>
    }}"""
    check_package(text, [np.array([[-30], [5], [45], [100]], np.int8)])
