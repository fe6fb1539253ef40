"""What cannot be scheduled leaves its segment alone; the rest stays on the NPU and everything is computed exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import odc_mlir
from odc_mlir import compiler, pipelines, targets
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.dialects.npu_program import programs
from odc_mlir.emitter import program as emitter
from odc_mlir.errors import AllocationError, CompileError, OptionError
from odc_mlir.isa import container
from odc_mlir.runtime.package import Package
from odc_mlir.support.locations import op_name
from odc_mlir.support.text import module_text
from odc_mlir.targets.costs import parse_host

ALL = {"strategy": "supported"}  # whatever it costs

T = "tensor<1x8x8x8x!quant.uniform<i8:f32, 0.05:3>>"
W = "tensor<1x16x16x8x!quant.uniform<i8:f32, 0.05:3>>"
CHAIN = f"""
func.func @main(%x: {T} loc("x")) -> {T} {{
  %a = circle.tanh(%x) : ({T}) -> {T} loc("a")
  %b = circle.add(%a, %x) : ({T}, {T}) -> {T} loc("b")
  %c = circle.logistic(%b) : ({T}) -> {T} loc("c")
  %d = circle.add(%c, %a) : ({T}, {T}) -> {T} loc("d")
  func.return %d : {T}
}}"""


def placements(package: Package) -> dict[str, str]:
    """Operator name -> host reason, or ``npu``."""
    plan, graph = package.plan, package.model.subgraphs[0]
    assert plan is not None
    names = [graph.tensors[operator.outputs[0]].name for operator in graph.operators]
    on_npu = {index for step in plan.segments for index in step.operators}
    return {name: "npu" if i in on_npu else plan.host_reasons[i] for i, name in enumerate(names)}


def check_bits(package: Package, shape: tuple[int, ...] = (1, 8, 8, 8)) -> None:
    codes = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    expected = odc_mlir.run(package, [codes], backend="host")
    for found, wanted in zip(odc_mlir.run(package, [codes], strict=True), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Exception], None]:
    """Make the emitter raise an error for every segment that holds an operator of that name."""
    emit = emitter.emit_program

    def install(name: str, error: Exception) -> None:
        def emit_or_refuse(program: Any, *rest: Any) -> bytes:
            if any(op_name(op) == name for op in program.body.walk()):
                raise error
            return emit(program, *rest)

        monkeypatch.setattr(emitter, "emit_program", emit_or_refuse)

    return install


def test_the_operator_that_an_error_names_is_evicted(refuse: Callable[[str, Exception], None]) -> None:
    refuse("b", CompileError("no way", op="npu.elementwise", tensor="b"))
    package = odc_mlir.compile(CHAIN.encode(), placement=ALL)
    found = placements(package)
    assert found == {"a": "npu", "b": found["b"], "c": "npu", "d": "npu"}
    assert found["b"] == "compile: no way (stage package, op npu.elementwise, tensor 'b')"
    check_bits(package)


def test_an_eviction_compiles_all_programs_again(
    refuse: Callable[[str, Exception], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placed by hand so that ``a`` is a segment and ``c``, ``d`` another, whose operator ``d`` has to go."""
    made: list[list[str]] = []
    run = pipelines.run

    def counting(context: Any, module: Any, stage: str, **options: Any) -> None:
        for program in programs(module).values() if stage == "npu-alloc" else ():
            made.append([op_name(op) for op in program.body.walk() if isinstance(op, CircleOp)])
        run(context, module, stage, **options)

    monkeypatch.setattr(pipelines, "run", counting)
    refuse("d", CompileError("no way", tensor="d"))
    package = odc_mlir.compile(CHAIN.encode(), placement={"host": ["b"], "strategy": "supported"})
    assert [name for name, place in placements(package).items() if place == "npu"] == ["a", "c"]
    assert made == [["a"], ["c", "d"], ["a"], ["c"]]
    assert package.plan is not None
    binaries = [container.read(package.files.segment(step.file)) for step in package.plan.segments]
    assert [binary.metadata["segment"] for binary in binaries] == ["segment_0", "segment_1"]
    check_bits(package)


def test_short_memory_evicts_the_operator_with_the_largest_tensors(refuse: Callable[[str, Exception], None]) -> None:
    refuse("d", AllocationError("too much"))
    found = placements(odc_mlir.compile(CHAIN.encode(), placement=ALL))
    assert found["b"] == "compile: too much (stage package)"
    assert [name for name, place in found.items() if place != "npu"] == ["b", "d"]


def test_an_error_without_a_name_costs_its_segment_only(refuse: Callable[[str, Exception], None]) -> None:
    refuse("c", CompileError("no idea"))
    package = odc_mlir.compile(CHAIN.encode(), placement={**ALL, "host": ["b"]})
    assert [name for name, place in placements(package).items() if place == "npu"] == ["a"]
    check_bits(package)


def test_a_defect_of_ours_does_not_stop_users(
    refuse: Callable[[str, Exception], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse("b", IndexError("oops"))
    monkeypatch.delenv("ODC_DEFECTS", raising=False)
    package = odc_mlir.compile(CHAIN.encode())
    assert placements(package)["b"] == "compile: internal error: IndexError: oops"
    assert ("b", "IndexError: oops") in [(item["tensor"], item["exception"]) for item in package.report["defects"]]
    assert "because of a defect of the compiler (IndexError: oops at" in caplog.text
    monkeypatch.setenv("ODC_DEFECTS", "error")
    with pytest.raises(IndexError):
        odc_mlir.compile(CHAIN.encode())
    with pytest.raises(IndexError):
        odc_mlir.compile(CHAIN.encode(), strict=True)


def test_all_of_memory_is_found_operator_by_operator() -> None:
    """Inputs and results of segments need room too: with a small limit some operators have to go, and are named."""
    package = odc_mlir.compile(CHAIN.encode(), sram_limit=1600, allow_host=True)
    found = placements(package)
    assert "npu" in found.values()
    assert all(place == "npu" or "bytes" in place for place in found.values()), found
    check_bits(package)


@pytest.mark.parametrize("placement", [ALL, {**ALL, "min_operators": 2}, {**ALL, "max_segments": 1}])
def test_packages_of_partitioned_ir_are_placed_with_its_options(
    placement: dict[str, Any], refuse: Callable[[str, Exception], None]
) -> None:
    """The options are in the IR: segments are formed again after ``b`` does not compile."""
    refuse("b", CompileError("no way", tensor="b"))
    options: dict[str, Any] = {"placement": placement, "sram_limit": 4000, "allow_host": True}
    lowered = odc_mlir.lower(odc_mlir.load(CHAIN.encode()), "partition", **options)
    made = odc_mlir.package(odc_mlir.load(module_text(lowered).encode()))
    assert placements(made)["b"].startswith("compile: no way")
    assert made.plan == odc_mlir.compile(CHAIN.encode(), **options).plan
    assert placements(made) != placements(odc_mlir.compile(CHAIN.encode(), sram_limit=4000, allow_host=True))


def test_users_place_operators(tmp_path: Any) -> None:
    part = tmp_path / "net.part"
    part.write_text("[partition]\nbackends=cpu,npu\ndefault=cpu\n[OPCODE]\nADD=npu\n")
    place = {"file": str(part), "npu": ["c"]}
    package = odc_mlir.compile(CHAIN.encode(), placement=place)
    assert placements(package) == {"a": "annotation: placed by the user", "b": "npu", "c": "npu", "d": "npu"}
    check_bits(package)


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ({"gpu": ["a"]}, "unknown placement option 'gpu'; use some of file, host, npu, strategy, min_operators"),
        ({"host": "a"}, "placement option host is 'a'"),
        ({"min_macs": True}, "placement option min_macs is True"),
        ({"max_segments": -1}, "max-segments is -1"),
        ({"host": ["zz"]}, "'zz' is neither an opcode nor"),
    ],
)
def test_wrong_placements(placement: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        compiler.compile(CHAIN.encode(), placement=placement)
    assert message in str(raised.value)


def test_the_plan_keeps_what_was_weighed() -> None:
    plan = compiler.compile(CHAIN.encode()).plan
    assert plan is not None
    assert plan.partition["chosen"]["npu_operators"] == sum(len(step.operators) for step in plan.segments)
    assert plan.partition["chosen"]["estimate_ns"] <= plan.partition["runner_up"]["estimate_ns"]
    assert {entry["name"] for entry in plan.partition["plans"]} >= {"all-host", "all-supported"}
    host = targets.load("npu-256").host
    kernels = {"TANH", "ADD", "LOGISTIC", "activation", "elementwise"}
    kept = host.restricted_to({name + suffix for name in kernels for suffix in ("", "-codes")})
    assert parse_host(plan.partition["host"], "plan") == kept
