"""The Python API on IR: passes by position, packages and simulation of modules of any stage."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr
from xdsl.parser import Parser
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

import odc_mlir
from helpers.data import REPOSITORY
from odc_mlir import compiler, pipelines
from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_isa import BufferOp
from odc_mlir.dialects.npu_tiling import TILING, Residency, ResidentAttr, Tiling, TilingAttr
from odc_mlir.dialects.odc import TARGET, TargetAttr, TargetChoice
from odc_mlir.errors import (
    CompileError,
    ForeignPassError,
    ModelError,
    OptionError,
    PackageError,
    TimeLimitError,
    TranslationError,
    UnsupportedError,
)
from odc_mlir.isa import container
from odc_mlir.isa.assembly import write_listing
from odc_mlir.isa.fields import Space
from odc_mlir.support.text import module_text
from odc_mlir.tools import odc_sim
from odc_mlir.universe import make_context

DIGITS = str(REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle")
F = "tensor<4xf32>"
STAGES = [stage.name for stage in pipelines.STAGES]


def image() -> np.ndarray:
    return np.random.default_rng(3).integers(-128, 128, (1, 8, 8, 1)).astype(np.int8)


@dataclass(frozen=True)
class Counting(ModulePass):
    """Count the convolutions that the pass sees."""

    name = "counting"
    seen: list[int]

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.seen.append(sum(isinstance(item, npu.ConvOp) for item in op.walk()))


def clamp(module: ModuleOp) -> None:
    """Limit the results of the first convolution to a single code."""
    conv = next(op for op in module.walk() if isinstance(op, npu.ConvOp))
    conv.properties["act_max"] = conv.properties["act_min"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_module_of_any_stage_runs(stage: str) -> None:
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), stage)
    (found,), (expected,) = odc_mlir.run(lowered, [image()]), odc_mlir.run(DIGITS, [image()])
    np.testing.assert_array_equal(found, expected)


def test_the_lowered_program_runs_and_not_the_circle_body() -> None:
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), "npu")
    clamp(lowered)
    (found,), (expected,) = odc_mlir.run(lowered, [image()]), odc_mlir.run(DIGITS, [image()])
    assert (found != expected).any()


@pytest.mark.parametrize("stage", [stage.name for stage in pipelines.NATIVE_STAGES])
def test_native_code_of_any_stage_runs(stage: str) -> None:
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), stage, target="cpu")
    (found,), (expected,) = odc_mlir.run(lowered, [image()]), odc_mlir.run(DIGITS, [image()])
    np.testing.assert_array_equal(found, expected)
    assert odc_mlir.package(lowered).plan is not None


def test_a_broken_program_is_an_error_and_no_reason_to_run_the_circle_body() -> None:
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), "npu-alloc")
    conv = next(op for op in lowered.walk() if op.name == "npu.isa.conv")
    conv.detach()
    with pytest.raises(CompileError, match="races with"):
        odc_mlir.run(lowered, [image()])


def test_verify_is_one_of_three_words() -> None:
    with pytest.raises(OptionError, match="verify is 'always'; use one of stages, passes, run"):
        odc_mlir.lower(odc_mlir.load(DIGITS), "circle", verify="always")  # type: ignore[arg-type]


@pytest.mark.parametrize("stage", ["partition", "npu", "npu-sched", "npu-alloc"])
def test_packages_of_lowered_modules_have_the_cycles_of_compiling(stage: str) -> None:
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), stage)
    cycles = odc_mlir.compile(DIGITS).report["cycles_total"]
    assert odc_mlir.simulate(lowered).cycles == cycles
    assert odc_mlir.package(lowered).report["cycles_total"] == cycles


def test_simulating_with_inputs_gives_outputs() -> None:
    found = odc_mlir.simulate(odc_mlir.load(DIGITS), [image()])
    assert found.outputs is not None
    np.testing.assert_array_equal(found.outputs[0], odc_mlir.run(DIGITS, [image()])[0])
    assert odc_mlir.simulate(odc_mlir.load(DIGITS)).outputs is None


def test_passes_run_by_name_on_a_copy() -> None:
    module = odc_mlir.lower(odc_mlir.load(DIGITS), "npu")
    before = str(module)
    scheduled = odc_mlir.run_passes(module, "npu-sched,npu-alloc")
    assert odc_mlir.simulate(scheduled).cycles == odc_mlir.simulate(module).cycles
    assert str(module) == before
    with pytest.raises(OptionError, match="unknown pass 'npu-shed'"):
        odc_mlir.run_passes(module, "npu-shed")


def test_passes_are_added_by_position() -> None:
    seen: list[int] = []
    before = {"npu-search-plans": [Counting(seen)]}
    assert odc_mlir.compile(DIGITS, before=before).files == odc_mlir.compile(DIGITS).files
    assert seen
    assert min(seen) > 0
    seen.clear()
    partitioned = odc_mlir.lower(odc_mlir.load(DIGITS), "partition")
    odc_mlir.lower(partitioned, "npu-sched", after="partition", before=before)
    assert len(seen) == 1
    with pytest.raises(OptionError, match="no stage runs a pass 'npu-choose-tile'"):
        odc_mlir.lower(partitioned, "npu", before={"npu-choose-tile": []})


@dataclass(frozen=True)
class Breaking(ModulePass):
    """Take the options of the first layer away, or ``erase`` it while its result is used."""

    name = "breaking"
    erase: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        layer = next(item for item in op.walk() if item.name in ("circle.conv_2d", "npu.conv"))
        layer.properties.clear()
        if self.erase:
            layer.detach()
            layer.erase(safe_erase=False)


@pytest.mark.parametrize("place", ["circle-simplify", "npu-elide-reshapes"])
@pytest.mark.parametrize(("erase", "text"), [(False, "VerifyException"), (True, "ValueError: Erased SSA value")])
def test_invalid_ir_of_a_pass_that_was_added_ends_compiling(place: str, erase: bool, text: str) -> None:
    with pytest.raises(ForeignPassError, match=f"^pass breaking of test made invalid IR: {text}") as raised:
        odc_mlir.compile(DIGITS, before={place: [Breaking(erase)]})
    assert raised.value.pass_name == "breaking"


@dataclass(frozen=True)
class Doing(ModulePass):
    """Call a function with the module."""

    name = "doing"
    act: Callable[[ModuleOp], object]

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.act(op)


def leave(module: ModuleOp) -> None:
    raise SystemExit(0)


def lose_programs(module: ModuleOp) -> None:
    for op in [op for op in module.body.block.ops if op.name == "npu.program"]:
        op.detach()


@pytest.mark.parametrize("verify", ["stages", "run"])
@pytest.mark.parametrize(
    ("act", "text"),
    [(leave, "^pass doing of test failed: SystemExit: 0"), (lose_programs, "^after doing of test, compiling fails: ")],
)
def test_what_a_pass_causes_names_its_package(act: Callable[[ModuleOp], None], text: str, verify: Any) -> None:
    with pytest.raises(ForeignPassError, match=text):
        odc_mlir.compile(DIGITS, before={"npu-choose-tiles": [Doing(act)]}, verify=verify)


def test_a_pass_that_takes_too_long_ends_the_pipeline() -> None:
    with pytest.raises(TimeLimitError):
        odc_mlir.run_passes(odc_mlir.load(DIGITS), [Doing(lambda module: time.sleep(0.2))], time_limit=0.1)


def test_passes_to_insert_are_a_mapping() -> None:
    with pytest.raises(OptionError, match=r"^before is \[\]; give a mapping"):
        odc_mlir.compile(DIGITS, before=[])  # type: ignore[arg-type]


@pytest.mark.parametrize("entry", ["package", "simulate", "run_passes"])
def test_values_are_defined_before_they_are_used(entry: str) -> None:
    module = odc_mlir.lower(odc_mlir.load(DIGITS), "npu")
    first = next(op for op in module.walk() if op.name == "npu.conv")
    block = first.parent
    assert block is not None
    assert block.last_op is not None
    first.detach()
    block.insert_op_before(first, block.last_op)
    with pytest.raises(ModelError, match="operand conv1 is defined by a later operation"):
        getattr(odc_mlir, entry)(module, *([[]] if entry == "run_passes" else []))


def test_a_segment_without_its_program_is_refused() -> None:
    module = odc_mlir.lower(odc_mlir.load(DIGITS), "npu-alloc")
    program = next(op for op in module.body.block.ops if op.name == "npu.program")
    program.properties["sym_name"] = StringAttr("another")
    with pytest.raises(CompileError, match="the IR is between stages"):
        odc_mlir.package(module)


def test_buffers_of_edited_programs_do_not_overlap() -> None:
    module = odc_mlir.lower(odc_mlir.load(DIGITS), "npu-alloc")
    buffers = [op for op in module.walk() if isinstance(op, BufferOp) and op.buffer.type.space is Space.TILE]
    buffers[0].properties["address"] = buffers[1].properties["address"]
    with pytest.raises(CompileError, match="share bytes while both are in use"):
        odc_mlir.package(module)


def test_passes_are_objects_names_or_sequences_of_these() -> None:
    seen: list[int] = []
    module, counting = odc_mlir.lower(odc_mlir.load(DIGITS), "npu"), Counting(seen)
    for given in (counting, [counting], ["cse,dce", counting]):
        odc_mlir.run_passes(module, given)
        odc_mlir.lower(module, "npu-sched", after="npu", before={"npu-search-plans": given})
    assert len(seen) == 6
    for wrong in (Counting, [Counting], 5):
        with pytest.raises(OptionError, match="is not a pass"):
            odc_mlir.run_passes(module, wrong)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="is not a pass"):
            odc_mlir.lower(module, "npu-sched", after="npu", before={"npu-choose-tiles": wrong})  # type: ignore[dict-item]


def test_a_pass_before_one_that_does_not_run_is_refused() -> None:
    module = odc_mlir.load(DIGITS)
    before = {"npu-mark-supported": [Counting([])]}
    with pytest.raises(OptionError, match="no pass can be inserted before 'npu-mark-supported'"):
        odc_mlir.lower(module, "circle", before=before)
    with pytest.raises(OptionError, match="no pass can be inserted before 'npu-mark-supported'"):
        odc_mlir.compile(DIGITS, target="cpu", before=before)
    with pytest.raises(OptionError, match="no pass can be inserted before 'npu-mark-supported'"):
        compiler.compile(odc_mlir.lower(module, "npu"), before=before)


@pytest.mark.parametrize("stage", ["partition", "npu", "npu-sched", "npu-alloc"])
@pytest.mark.parametrize("host", [[], ["MAX_POOL_2D"]])
def test_text_of_any_stage_compiles_to_the_package_of_the_model(stage: str, host: list[str]) -> None:
    """With an operator on the host there are two segments, one of which reads what the other computes."""
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), stage, placement={"host": host})
    assert compiler.compile(module_text(lowered).encode()) == compiler.compile(DIGITS, placement={"host": host})


def test_text_of_native_stages_compiles_to_the_package_of_the_model() -> None:
    for stage in ("native-partition", "native-alloc"):
        lowered = odc_mlir.lower(odc_mlir.load(DIGITS), stage, target="x86-64-avx2")
        assert compiler.compile(module_text(lowered).encode()) == compiler.compile(DIGITS, target="x86-64-avx2")


@pytest.mark.parametrize("stage", STAGES)
def test_xdsl_prints_and_reads_constants_of_any_stage(stage: str) -> None:
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), stage)
    context, stream = make_context(), StringIO()
    module = Parser(context, module_text(lowered)).parse_module()
    printer = Printer(stream, print_debuginfo=True)
    printer.print_op(module)
    printer.print_metadata(context.loaded_dialects)
    Parser(make_context(), stream.getvalue()).parse_module()
    assert module_text(odc_mlir.load(stream.getvalue().encode())) == module_text(lowered)


def test_a_program_that_fails_is_not_compiled() -> None:
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), "npu-sched")
    Rewriter.erase_op(next(op for op in lowered.walk() if op.name == "npu.isa.param"))
    with pytest.raises(CompileError, match=r"the program of segment @segment_0 fails: .* never written"):
        compiler.compile(lowered)


GATHER = """
!q = !quant.uniform<i8:f32, 0.05>
func.func @main(%x: tensor<40x8x!q>, %z: tensor<4xi32>) -> tensor<4x8x!q> {
  %y = circle.gather(%x, %z) : (tensor<40x8x!q>, tensor<4xi32>) -> tensor<4x8x!q>
  func.return %y : tensor<4x8x!q>
}
"""


def test_a_program_runs_on_indices_that_are_in_range() -> None:
    module = odc_mlir.load(GATHER.encode())
    lowered = odc_mlir.lower(module, "npu-alloc", placement={"strategy": "supported"})
    assert compiler.compile(lowered) == odc_mlir.package(lowered).files


def edited_listing(module: ModuleOp) -> str:
    """Return the listing of the digits model with one field changed."""
    files = odc_mlir.package(module).files
    listing = write_listing(container.read(files.segment("segment-0.npu")))
    return listing.replace("in_zero=-128", "in_zero=-120", 1)


def test_a_listing_goes_back_into_a_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = odc_mlir.load(DIGITS)
    made, listing = odc_mlir.package(module), edited_listing(module)
    (tmp_path / "edited.txt").write_text(listing)
    assert odc_sim.main([str(tmp_path / "edited.txt"), "--assemble", str(tmp_path / "edited.npu")]) == 0
    assert capsys.readouterr().out == ""
    program = (tmp_path / "edited.npu").read_bytes()
    edited = made.with_program("segment-0.npu", listing)
    assert edited.files == made.with_program("segment-0.npu", program).files
    edited.save(tmp_path / "package")
    (found,), (expected,) = (
        odc_mlir.run(str(tmp_path / "package"), [image()], strict=True),
        odc_mlir.run(DIGITS, [image()]),
    )
    assert (found != expected).any()
    with pytest.raises(PackageError, match=r"there is no segment 'segment-1\.npu'; there are: segment-0\.npu"):
        made.with_program("segment-1.npu", program)


def test_a_tiling_of_ones_own_is_kept() -> None:
    module = odc_mlir.lower(odc_mlir.load(DIGITS), "npu")
    conv = next(op for op in module.walk() if isinstance(op, npu.ConvOp))
    conv.attributes[TILING] = TilingAttr(Tiling(2, 8, group=16, block=16, k_slice=1))
    chosen = odc_mlir.run_passes(module, "npu-choose-tiles")
    assert next(op for op in chosen.walk() if isinstance(op, npu.ConvOp)).attributes[TILING] == conv.attributes[TILING]
    again = odc_mlir.run_passes(chosen, "npu-sched,npu-alloc", verify="run")
    assert (
        odc_mlir.simulate(again).cycles
        == odc_mlir.simulate(module).cycles
        > odc_mlir.simulate(odc_mlir.load(DIGITS)).cycles
    )


def test_numbers_of_a_tiling_are_whole() -> None:
    tiling = Tiling(2, 8, group=16, block=16, k_slice=1)
    with pytest.raises(VerifyException, match=r"rows is 2\.5, allowed: int"):
        TilingAttr(replace(tiling, rows=2.5))  # type: ignore[arg-type]
    with pytest.raises(VerifyException, match="sliced is 1, allowed: bool"):
        TilingAttr(replace(tiling, sliced=1))  # type: ignore[arg-type]
    with pytest.raises(VerifyException, match=r"fill is 1\.5, allowed: int \| None"):
        ResidentAttr(Residency(fill=1.5))  # type: ignore[arg-type]


def test_ir_between_stages_is_refused() -> None:
    module = odc_mlir.run_passes(odc_mlir.lower(odc_mlir.load(DIGITS), "npu"), "npu-choose-tiles")
    with pytest.raises(CompileError, match="between stages"):
        odc_mlir.package(module)


def test_a_program_without_semaphores_is_no_package() -> None:
    module = odc_mlir.lower(odc_mlir.load(DIGITS), "npu-sched", target="npu-256")
    passes = "npu-allocate-local,npu-hoist-transfers,npu-prefetch-constants,npu-allocate-memory"
    with pytest.raises(CompileError, match="races with"):
        odc_mlir.package(odc_mlir.run_passes(module, passes))


def test_ir_between_stages_is_checked_as_far_as_it_can_run(caplog: pytest.LogCaptureFixture) -> None:
    given = odc_mlir.run_passes(odc_mlir.lower(odc_mlir.load(DIGITS), "npu"), "npu-choose-tiles")
    assert odc_mlir.run_passes(given, "canonicalize", verify="run") is not given
    conv = next(op for op in given.walk() if op.name == "npu.conv")
    conv.properties["act_max"] = IntegerAttr(-100, 32)
    with pytest.raises(TranslationError, match="the given IR means something else"):
        odc_mlir.run_passes(given, "canonicalize", verify="run")
    lowered = odc_mlir.run_passes(odc_mlir.lower(odc_mlir.load(DIGITS), "npu-sched"), "npu-allocate-local")
    odc_mlir.run_passes(lowered, "cse", verify="run")
    assert "segment @segment_0 is not checked: the IR is between stages" in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("in_zero", IntegerAttr(-120, 32), "in_zero is -120, allowed is the zero point in the type"),
        ("weights", {1}, r"npu.conv: weights is \{1\}, an object of type set; it takes an attribute of xDSL"),
    ],
)
@pytest.mark.parametrize("entry", ["package", "simulate", "run_passes", "lower"])
def test_a_module_that_does_not_verify_is_refused(entry: str, name: str, value: object, text: str) -> None:
    module = odc_mlir.lower(odc_mlir.load(DIGITS), "npu")
    conv = next(op for op in module.walk() if op.name == "npu.conv")
    conv.properties[name] = value  # type: ignore[assignment]
    options = {"run_passes": ([],), "lower": ("npu-alloc",)}.get(entry, ())
    with pytest.raises(ModelError, match=text):
        getattr(odc_mlir, entry)(module, *options, **({"after": "npu"} if entry == "lower" else {}))


def test_a_model_for_the_host_has_no_cycles() -> None:
    text = f"func.func @main(%x: {F}) -> {F} {{\n%y = circle.tanh(%x) : ({F}) -> {F}\nfunc.return %y : {F}\n}}".encode()
    with pytest.raises(UnsupportedError, match="no NPU program"):
        odc_mlir.simulate(odc_mlir.load(text))


def test_options_hold_for_lowered_ir() -> None:
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), "npu", placement={"host": ["SOFTMAX"]})
    assert odc_mlir.compile(lowered).report["host_op_count"] == 1
    with pytest.raises(UnsupportedError, match="1 operator stays on the host"):
        odc_mlir.compile(lowered, strict=True)
    with pytest.raises(TimeLimitError):
        odc_mlir.compile(lowered, time_limit=1e-6)


def test_ir_for_a_target_of_another_package_is_refused() -> None:
    lowered = odc_mlir.lower(odc_mlir.load(DIGITS), "partition")
    lowered.attributes[TARGET] = TargetAttr(TargetChoice("mya"))
    with pytest.raises(CompileError, match="'mya', a target of a plugin"):
        odc_mlir.package(lowered)
