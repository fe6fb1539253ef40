"""Costs of operators follow their work, come near the simulator's cycles, and a lowering that fails is a reason."""

from __future__ import annotations

from typing import Any

import pytest

import odc_mlir
from helpers.sized_operators import SizedOperator
from odc_mlir import ops, targets
from odc_mlir.errors import CompileError
from odc_mlir.isa.weight_coding import coded_bytes
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.ops.work import host_ns
from odc_mlir.runtime.reporting.report_html import render
from odc_mlir.targets.costs import load_host
from odc_mlir.transforms.common.defects import Defect
from odc_mlir.transforms.common.placement import NPU, operators, place_on, place_on_host
from odc_mlir.transforms.npu.lowering.functions import LowerByTable
from odc_mlir.transforms.npu.lowering.site import Site
from odc_mlir.transforms.partition.plans.costs import npu_works, segment_cycles
from odc_mlir.transforms.partition.plans.plans import OperatorCost
from odc_mlir.universe import make_context

TARGET = targets.load("npu-256")
T = "tensor<1x16x16x16x!quant.uniform<i8:f32, 0.05:3>>"
P = "tensor<1x18x18x16x!quant.uniform<i8:f32, 0.05:3>>"
W = "tensor<16x3x3x16x!quant.uniform<i8:f32, 0.02>>"
TEXT = f"""
func.func @main(%x: {T}) -> {T} {{
  %p = circle.const [0, 0, 1, 1, 1, 1, 0, 0] : tensor<4x2xi32>
  %w = circle.const {[i % 127 for i in range(16 * 9 * 16)]} : {W}
  %n = circle.none
  %a = circle.tanh(%x) : ({T}) -> {T} loc("a")
  %b = circle.pad(%a, %p) : ({T}, tensor<4x2xi32>) -> {P} loc("b")
  %c = circle.conv_2d(%b, %w, %n) {{padding = valid, stride = [1, 1]}} : ({P}, {W}, none) -> {T} loc("c")
  func.return %c : {T}
}}"""


def module(text: str = TEXT) -> Any:
    made = odc_mlir.load(text.encode())
    for op in operators(made):
        place_on(op, NPU)
    return made


def test_works_of_operators() -> None:
    table, padding, convolution = npu_works(make_context(), module(), TARGET, "flash")
    assert isinstance(table, OperatorCost)
    assert table.constant_bytes == 256
    assert padding == OperatorCost()  # the convolution pads
    assert isinstance(convolution, OperatorCost)
    weights = bytes(i % 127 for i in range(16 * 9 * 16))
    assert convolution.constant_bytes == coded_bytes(weights) + 5 + 4 * 16 < len(weights)  # one scale, and biases
    assert convolution.cycles > 16 * 16 * 16 * 9 * 16 / 256 > table.cycles


def test_weights_and_tables_of_an_earlier_layer_are_stored_once() -> None:
    again = f"""%d = circle.tanh(%c) : ({T}) -> {T} loc("d")
      %e = circle.conv_2d(%d, %w, %n) {{padding = same, stride = [1, 1]}} : ({T}, {W}, none) -> {T} loc("e")
      func.return %e : {T}"""
    made = module(TEXT.replace(f"func.return %c : {T}", again))
    works = [work for work in npu_works(make_context(), made, TARGET, "flash") if isinstance(work, OperatorCost)]
    table, _, convolution, second_table, second_convolution = (work.constant_bytes for work in works)
    assert (table, second_table) == (256, 0)
    weights = bytes(i % 127 for i in range(16 * 9 * 16))
    assert second_convolution == convolution - coded_bytes(weights)


def test_host_operators_have_no_work_and_padding_alone_has() -> None:
    made = module()
    place_on_host(list(operators(made))[2], "test")
    _, padding, convolution = npu_works(make_context(), made, TARGET, "flash")
    assert convolution is None
    assert isinstance(padding, OperatorCost)
    assert padding.cycles > 0


def test_estimates_are_near_the_simulator() -> None:
    works = [work for work in npu_works(make_context(), module(), TARGET, "flash") if isinstance(work, OperatorCost)]
    estimate = segment_cycles(TARGET, "flash")(works)
    measured = odc_mlir.compile(TEXT.encode()).report["cycles_total"]
    assert 0.7 * measured < estimate < 1.4 * measured


MACHINES = [(target, memory) for target in targets.names() for memory in targets.MEMORY_MODES]


def errors_of(seeds: range) -> list[float]:
    """How far estimates of random operators alone are from the simulator's cycles, smallest first.

    Sizes and machines are drawn; nothing was fitted to them.
    """
    found = []
    for seed in seeds:
        target, memory = MACHINES[seed // len(MACHINES) % len(MACHINES)]
        package = odc_mlir.compile(
            SizedOperator(seed).model, target=target, memory=memory, placement={"strategy": "supported"}
        )
        for segment in package.report["partition"]["segments"]:
            found.append(abs(segment["estimate"]["npu_ns"] / segment["npu_ns"] - 1))
    return sorted(found)


def test_random_operators_take_what_was_estimated() -> None:
    errors = errors_of(range(9000, 9028))
    assert len(errors) > 24
    assert errors[len(errors) // 2] <= 0.05
    assert errors[-1] <= 0.25


@pytest.mark.parametrize(
    ("seed", "error"),
    [
        (5264, 0.02),  # 134 result channels: in groups of 64 the third has 6, and its store waits for the second's
        (88005, 0.15),  # three strips in a row ring would each start with loads that nothing hides
        (88194, 0.02),  # softmax in one tile: no slot is used twice
    ],
)
def test_what_operators_wait_for_is_estimated(seed: int, error: float) -> None:
    assert errors_of(range(seed, seed + 1))[-1] <= error


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_random_operators_take_what_was_estimated() -> None:
    errors = errors_of(range(5000, 5504))
    assert errors[len(errors) // 2] <= 0.05
    assert errors[-1] <= 0.25


def test_what_is_needed_whole_before_a_layer_starts() -> None:
    """A table is; weights that come in slices of the input channels are not."""
    table, _, convolution = npu_works(make_context(), module(), TARGET, "flash")
    assert isinstance(table, OperatorCost)
    assert isinstance(convolution, OperatorCost)
    assert table.first_bytes == table.constant_bytes == 256
    assert 0 < convolution.first_bytes <= convolution.constant_bytes
    cycles = segment_cycles(TARGET, "flash")
    assert cycles([table]) == cycles([table._replace(first_bytes=0)])  # less than a chunk arrives together
    large = table._replace(constant_bytes=4096.0)
    in_parts = cycles([large._replace(first_bytes=1024.0)])
    assert cycles([large._replace(first_bytes=4096.0)]) >= in_parts + 100
    assert cycles([large._replace(first_bytes=1024.0, left=large.cycles)]) >= in_parts + 100


def test_copies_take_whole_bursts_unless_chunks_share_them() -> None:
    cycles = segment_cycles(TARGET, "flash")
    assert cycles([OperatorCost(10, 10, 1200)]) == pytest.approx(cycles([OperatorCost(10, 10, 1280)]), abs=10)
    assert cycles([OperatorCost(10, 10, 200)] * 2) < cycles([OperatorCost(10, 10, 256)] * 2) - 50


def gathering(rows: int, count: int) -> bytes:
    table, picked = (f"tensor<{n}x64x!quant.uniform<i8:f32, 0.05>>" for n in (rows, count))
    data = [i % 127 for i in range(rows * 64)]
    return f"""
func.func @main(%i: tensor<{count}xi32>) -> {picked} {{
  %t = circle.const {data} : {table}
  %0 = circle.gather(%t, %i) : ({table}, tensor<{count}xi32>) -> {picked} loc("g")
  %1 = circle.tanh(%0) : ({picked}) -> tensor<{count}x64x!quant.uniform<i8:f32, 0.0078125>> loc("y")
  func.return %0 : {picked}
}}""".encode()


@pytest.mark.parametrize(("rows", "copied", "picked"), [(300, 0, 32 * 128), (30, 30 * 64, 0)])
def test_rows_are_read_where_a_large_table_is(rows: int, copied: int, picked: int) -> None:
    made = odc_mlir.load(gathering(rows, 32))
    place_on(next(iter(operators(made))), NPU)
    work = npu_works(make_context(), made, TARGET, "flash")[0]
    assert isinstance(work, OperatorCost)
    assert (work.constant_bytes, work.picked_bytes) == (copied, picked)
    package = odc_mlir.compile(gathering(rows, 32), placement={"strategy": "supported"})
    (segment,) = package.report["partition"]["segments"]
    assert segment["estimate"]["npu_ns"] == pytest.approx(segment["npu_ns"], rel=0.06)


def test_rows_and_copies_share_the_port() -> None:
    cycles = segment_cycles(TARGET, "flash")
    picking, copied = OperatorCost(10, picked_bytes=1024), OperatorCost(10, constant_bytes=8192)
    alone = cycles([picking])
    assert alone >= 1024
    assert cycles([picking, picking]) >= alone + 1024
    assert cycles([picking, copied]) == pytest.approx(cycles([copied]) + 1024)  # each byte once through the port
    few = copied._replace(constant_bytes=256.0)
    assert cycles([picking, few]) == pytest.approx(alone + 256, abs=50)  # which come in between
    assert segment_cycles(TARGET, "sram")([picking]) < alone - 1000


def slicing() -> Any:
    half = "tensor<1x8x16x16x!quant.uniform<i8:f32, 0.05:3>>"
    made = odc_mlir.load(
        f"""
func.func @main(%x: {T}) -> {half} {{
  %b = circle.const [0, 8, 0, 0] : tensor<4xi32>
  %s = circle.const [1, 8, 16, 16] : tensor<4xi32>
  %0 = circle.tanh(%x) : ({T}) -> {T} loc("a")
  %1 = circle.slice(%0, %b, %s) : ({T}, tensor<4xi32>, tensor<4xi32>) -> {half} loc("b")
  %2 = circle.tanh(%1) : ({half}) -> {half} loc("c")
  func.return %2 : {half}
}}""".encode()
    )
    for op in operators(made):
        place_on(op, NPU)
    return made


def test_slices_are_read_in_place_unless_they_leave_the_segment() -> None:
    made = slicing()
    assert npu_works(make_context(), made, TARGET, "flash")[1] == OperatorCost()
    place_on_host(list(operators(made))[2], "test")
    work = npu_works(make_context(), made, TARGET, "flash")[1]
    assert isinstance(work, OperatorCost)
    assert work.cycles > 0


@pytest.mark.parametrize("memory", ["flash", "sram"])
def test_more_work_takes_longer(memory: Any) -> None:
    cycles = segment_cycles(TARGET, memory)
    assert cycles([]) < cycles([OperatorCost(10, 10, 10)]) < cycles([OperatorCost(10, 10, 10)] * 2)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(CompileError("no way", op="X"), "no way"), (KeyError("oops"), "internal error: KeyError: 'oops'")],
)
def test_a_lowering_that_fails_is_a_reason(error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite = LowerByTable.rewrite

    def rewrite_or_fail(self: LowerByTable, site: Site) -> None:
        if site.op.SPEC.name == "TANH":
            raise error
        rewrite(self, site)

    monkeypatch.setattr(LowerByTable, "rewrite", rewrite_or_fail)
    monkeypatch.delenv("ODC_DEFECTS", raising=False)
    found = npu_works(make_context(), module(), TARGET, "flash")[0]
    assert (found.reason if isinstance(found, Defect) else found) == reason
    plan = odc_mlir.compile(TEXT.encode()).plan
    assert plan is not None
    assert plan.host_reasons[0] == f"lowering: {reason}"


def test_host_times() -> None:
    def info(*shape: int) -> TensorInfo:
        return TensorInfo("t", "int8", shape)

    small, large = (Node(ops.get("RELU"), (info(1, size),), (info(1, size),), {}) for size in (10, 1000))
    view = Node(ops.get("RESHAPE"), (info(1, 1000),), (info(1000),), {})
    rates = load_host("reference", "here")
    assert 0 < host_ns(small, rates) < host_ns(large, rates)
    assert host_ns(view, rates) == rates.of_kernel(("RESHAPE", "shape"), True, 0, 0)
    few, many = (
        Node(ops.get("FULLY_CONNECTED"), (info(1, 1000), info(size, 1000)), (info(1, size),), {}) for size in (1, 100)
    )
    assert host_ns(many, rates) > host_ns(few, rates)


def _fail(*_: Any, **__: Any) -> None:
    raise ZeroDivisionError("oops")


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("npu.lowering.site.LowerToNpu.lower", "abc"),
        ("partition.plans.costs._LayerCosts.added", "ac"),
    ],  # the convolution pads
)
def test_defects_are_counted_and_warned_of(
    place: str, names: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The package is right all the same; where the variable says so the exception goes on."""
    monkeypatch.setattr(f"odc_mlir.transforms.{place}", _fail)
    monkeypatch.delenv("ODC_DEFECTS", raising=False)
    package = odc_mlir.compile(TEXT.encode())
    found = package.report["defects"]
    assert "".join(item["tensor"] for item in found) == names
    assert (found[0]["op"], found[-1]["op"]) == ("TANH", "CONV_2D")
    assert {item["exception"] for item in found} == {"ZeroDivisionError: oops"}
    assert all(item["location"].startswith("partition/test_costs.py:") for item in found)
    assert render(package.report).count("ZeroDivisionError: oops") >= len(names)
    assert "TANH 'a' runs on the host because of a defect of the compiler (ZeroDivisionError: oops at" in caplog.text
    assert "please report it" in caplog.text
    monkeypatch.setenv("ODC_DEFECTS", "error")
    with pytest.raises(ZeroDivisionError):
        odc_mlir.compile(TEXT.encode())


def test_what_is_refused_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    package = odc_mlir.compile(TEXT.replace("i8:f32, 0.05:3", "i16:f32, 0.05").encode())
    assert package.report["host_op_count"] > 0
    assert package.report["defects"] == []
    assert "defect" not in caplog.text
