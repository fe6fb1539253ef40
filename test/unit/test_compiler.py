"""The top level of the compiler: sources, host and NPU side by side, strictness, falling back, plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from odc_mlir import compiler
from odc_mlir.backends import NpuBackend
from odc_mlir.emitter import program as emitter
from odc_mlir.errors import AllocationError, CompileError, ModelError, OptionError, TargetError, UnsupportedError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.plan import HostStep, SegmentStep
from odc_mlir.support.text import module_text

T = "tensor<1x4x4x8x!quant.uniform<i8:f32, 0.05:3>>"
F = "tensor<1x4x4x8xf32>"

# npu, host, npu: %b joins the first segment, %e waits for the host.
MIXED = f"""
func.func @main(%x: {T} loc("x")) -> ({T}, {T}) {{
  %a = circle.relu(%x) : ({T}) -> {T} loc("a")
  %f = circle.dequantize(%a) : ({T}) -> {F} loc("f")
  %g = circle.softmax(%f) {{beta = 1.0}} : ({F}) -> {F} loc("g")
  %b = circle.leaky_relu(%a) {{alpha = 0.5}} : ({T}) -> {T} loc("b")
  %c = circle.quantize(%g) : ({F}) -> {T} loc("c")
  %e = circle.add(%b, %c) : ({T}, {T}) -> {T} loc("e")
  func.return %e, %b : {T}, {T}
}}"""


def codes(seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-128, 128, (1, 4, 4, 8)).astype(np.int8)


def test_progress_is_told() -> None:
    """Every stage, and within the long ones every layer or segment; the result is the same."""
    told: list[tuple[str, int, int | None]] = []
    package = odc_mlir.compile(MIXED.encode(), progress=lambda *step: told.append(step))
    assert told[0] == ("reading the model", 0, None)
    stages = list(dict.fromkeys(text.partition(":")[0] for text, _, _ in told[1:]))
    assert [stage for stage in stages if stage != "partition"][-3:] == ["npu-sched", "npu-alloc", "package"]
    counted = [(done, total) for text, done, total in told if text == "npu-sched: npu-lower-to-tiles" and done]
    assert counted == [(1, 2), (2, 2), (1, 1)]  # the layers of both segments
    assert package.files.members == odc_mlir.compile(MIXED.encode()).files.members


def test_host_and_npu_take_turns() -> None:
    package = odc_mlir.compile(MIXED.encode())
    plan = package.plan
    assert plan is not None
    first, host, second = plan.steps
    names = [tensor.name for tensor in package.model.subgraphs[0].tensors]
    operators = [operator.name for operator in package.model.subgraphs[0].operators]
    assert isinstance(first, SegmentStep)
    assert ([names[i] for i in first.inputs], [names[i] for i in first.outputs]) == (["x"], ["a", "b"])
    assert [operators[i] for i in first.operators] == ["RELU", "LEAKY_RELU"]
    assert isinstance(host, HostStep)
    assert [operators[i] for i in host.operators] == ["DEQUANTIZE", "SOFTMAX", "QUANTIZE"]
    assert isinstance(second, SegmentStep)
    assert ([names[i] for i in second.inputs], [names[i] for i in second.outputs]) == (["b", "c"], ["e"])
    assert [step.file for step in plan.segments] == ["segment-0.npu", "segment-1.npu"]
    assert plan.host_reasons[host.operators[0]] == "operator: DEQUANTIZE is not supported by the NPU"
    assert plan.host_reasons[host.operators[1]] == "element-type: 'f' is float32"
    expected = odc_mlir.run(package, [codes()], backend="host")
    for found, wanted in zip(odc_mlir.run(package, [codes()], strict=True), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_same_input_same_bytes() -> None:
    first, second = (compiler.compile(MIXED.encode()) for _ in range(2))
    assert first.members == second.members


def test_the_module_given_is_not_changed() -> None:
    module = odc_mlir.load(MIXED.encode())
    before = module_text(module)
    odc_mlir.compile(module)
    odc_mlir.lower(module, "npu-alloc")
    assert module_text(module) == before


def test_strict_names_the_operators_that_stay_and_why() -> None:
    with pytest.raises(UnsupportedError) as caught:
        compiler.compile(MIXED.encode(), strict=True)
    assert str(caught.value) == (
        "3 operators stay on the host: DEQUANTIZE 'f' (operator: DEQUANTIZE is not supported by the NPU), "
        "SOFTMAX 'g' (element-type: 'f' is float32), QUANTIZE 'c' (element-type: 'g' is float32); "
        "compile without strict to allow this"
    )


def test_strict_names_some_of_many() -> None:
    chain = "\n".join(f'%{i + 1} = circle.tanh(%{i}) : ({F}) -> {F} loc("t{i + 1}")' for i in range(10))
    text = f"func.func @main(%0: {F}) -> {F} {{\n{chain}\nfunc.return %10 : {F}\n}}"
    with pytest.raises(UnsupportedError, match=r"^10 operators stay .* 't8' \([^)]*\) and 2 more; "):
        compiler.compile(text.encode(), strict=True)


def test_strict_accepts_what_runs_on_the_npu_alone() -> None:
    text = f"func.func @main(%x: {T}) -> {T} {{\n%y = circle.relu(%x) : ({T}) -> {T}\nfunc.return %y : {T}\n}}"
    assert compiler.compile(text.encode(), strict=True).plan is not None


def test_a_model_for_the_host_alone_has_one_host_step() -> None:
    text = f"func.func @main(%x: {F}) -> {F} {{\n%y = circle.tanh(%x) : ({F}) -> {F}\nfunc.return %y : {F}\n}}"
    plan = compiler.compile(text.encode()).plan
    assert plan is not None
    assert plan.steps == (HostStep((0,)),)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second segment cannot be emitted."""
    emit = emitter.emit_program

    def emit_or_refuse(program: Any, *rest: Any) -> bytes:
        if program.sym_name.data == "segment_1":
            raise AllocationError("this takes too much memory")
        return emit(program, *rest)

    monkeypatch.setattr(emitter, "emit_program", emit_or_refuse)


@pytest.mark.usefixtures("refused")
def test_a_segment_that_fails_runs_on_the_host() -> None:
    package = odc_mlir.compile(MIXED.encode())
    plan = package.plan
    assert plan is not None
    first, host = plan.steps
    assert isinstance(first, SegmentStep)
    operators = [operator.name for operator in package.model.subgraphs[0].operators]
    assert [operators[i] for i in host.operators] == ["DEQUANTIZE", "SOFTMAX", "QUANTIZE", "ADD"]
    assert plan.host_reasons[host.operators[-1]] == "compile: this takes too much memory (stage package)"
    expected = odc_mlir.run(package, [codes()], backend="host")
    for found, wanted in zip(odc_mlir.run(package, [codes()], strict=True), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.usefixtures("refused")
def test_strict_raises_what_a_segment_fails_with() -> None:
    module = odc_mlir.lower(odc_mlir.load(MIXED.encode()), "partition")
    with pytest.raises(AllocationError, match="too much memory"):
        compiler.compile_segments(compiler.make_context(), module, NpuBackend("npu-256"), strict=True)


def test_a_limit_that_nothing_fits_leaves_everything_on_the_host() -> None:
    plan = compiler.compile(MIXED.encode(), sram_limit=64, allow_host=True).plan
    assert plan is not None
    assert not plan.segments
    assert plan.host_reasons[0] == "fits-sram: 128 bytes of 64; 'x' of 128 bytes enters the NPU as a whole"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": "npu-1"}, TargetError, "unknown target 'npu-1'"),
        ({"memory": "tape"}, OptionError, "memory is 'tape', allowed: flash, sram"),
        ({"prefer": "luck"}, OptionError, "prefer is 'luck'"),
        ({"sram_limit": 0}, OptionError, "the SRAM limit is 0 bytes, allowed: 1 to 4194304"),
        ({"sram_limit": 4_194_305}, OptionError, "the SRAM limit is 4194305 bytes"),
    ],
)
@pytest.mark.parametrize("entry", [compiler.compile, lambda text, **o: odc_mlir.lower(odc_mlir.load(text), "npu", **o)])
def test_wrong_options(entry: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        entry(MIXED.encode(), **options)


def test_lowering_checks_the_stage_first() -> None:
    with pytest.raises(OptionError, match="unknown stage 'x'"):
        odc_mlir.lower(odc_mlir.load(MIXED.encode()), "x")


def test_sources_are_told_apart_by_content(tmp_path: Path) -> None:
    """A model file may be called .mlir and text .circle."""
    model, text = tmp_path / "model.mlir", tmp_path / "text.circle"
    model.write_bytes(compiler.compile(MIXED.encode()).model)
    text.write_text(MIXED)
    graphs = [compiler.compile(source).model for source in (model, text, model.read_bytes())]
    assert read_model(graphs[0]) == read_model(graphs[1])
    assert graphs[0] == graphs[2]


def test_compile_needs_a_function() -> None:
    with pytest.raises((ModelError, CompileError), match="no function"):
        compiler.compile(b"builtin.module {\n}\n")
