"""Stopping after any stage: the text stands alone and reads back, names survive, stock tools accept it."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.data import GoldenModel, golden_models
from odc_mlir import pipelines, targets
from odc_mlir.dialects.npu_isa import InstructionOp, LoopOp
from odc_mlir.dialects.npu_program import programs
from odc_mlir.emitter.program import emit_program
from odc_mlir.isa import container
from odc_mlir.isa.assembly import read_listing, write_listing
from odc_mlir.isa.compact import read_code
from odc_mlir.support.text import module_text
from odc_mlir.targets import MemoryMode
from odc_mlir.tools import odc_compile, odc_opt

STAGES = pipelines.stage_names()
PER_AXIS = ("!per_axis", "#qparams")  # aliases
MODELS = ["digits/digits_cnn_int8", pytest.param("zoo/pretrainedResnet_quant", marks=pytest.mark.soak)]


def _odc_opt(*arguments: object) -> None:
    assert odc_opt.main([str(argument) for argument in arguments]) == 0


@pytest.fixture(scope="module")
def stopped(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """``stopped(model, stage)``: the text after a stage, made once."""

    @cache
    def stop(name: str, stage: str) -> Path:
        path = tmp_path_factory.mktemp("stopped") / f"{stage}.mlir"
        _odc_opt(test_data / "models" / f"{name}.circle", "--stage", stage, "-o", path)
        return path

    return stop


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", MODELS)
def test_text_reads_back(name: str, stage: str, stopped: Callable[[str, str], Path], tmp_path: Path) -> None:
    once, twice = stopped(name, stage), tmp_path / "twice.mlir"
    _odc_opt(once, "-o", twice)
    assert once.read_text() == twice.read_text()


ENDS = ("package", "native-llvm")  # of the two ways
PREFIXES = [(stage.name, end) for end in ENDS for stage in pipelines.stages_until(end)[:-1]]


@pytest.mark.parametrize(("stage", "end"), PREFIXES, ids=map("-".join, PREFIXES))
def test_stages_compose(stage: str, end: str, stopped: Callable[[str, str], Path], tmp_path: Path) -> None:
    """Going on from the text of a stage gives the same end as going through in one piece."""
    resumed = tmp_path / "resumed.mlir"
    passes = ",".join(left.name for left in pipelines.stages_until(end, stage))
    _odc_opt(stopped("digits/digits_cnn_int8", stage), "-p", passes, "-o", resumed)
    assert resumed.read_text() == stopped("digits/digits_cnn_int8", end).read_text()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", MODELS)
def test_every_operation_keeps_a_name(name: str, stage: str, test_data: Path) -> None:
    from xdsl.dialects.builtin import ModuleOp, UnknownLoc
    from xdsl.dialects.func import FuncOp

    module = odc_mlir.lower(odc_mlir.load(test_data / "models" / f"{name}.circle"), stage=stage, target="npu-256")
    module.verify()
    structure = (ModuleOp, FuncOp)
    nameless = [op for op in module.walk() if not isinstance(op, structure) and isinstance(op.location, UnknownLoc)]
    assert not nameless, f"{len(nameless)} without a name, first {nameless[0].name}"


@pytest.mark.parametrize("stage", STAGES)
def test_stock_xdsl_accepts_elided_generic_text(stage: str, test_data: Path, tmp_path: Path) -> None:
    from xdsl.context import Context
    from xdsl.dialects.builtin import Builtin
    from xdsl.dialects.func import Func
    from xdsl.parser import Parser
    from xdsl.printer import Printer

    path = tmp_path / "generic.mlir"
    model = test_data / "models" / "digits" / "digits_cnn_int8.circle"
    _odc_opt(model, "--stage", stage, "--constants", "elide", "--print-op-generic", "-o", path)
    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    module = Parser(context, path.read_text()).parse_module()
    text = io.StringIO()
    Printer(text, print_generic_format=True).print_op(module)
    assert "circle.conv_2d" in text.getvalue()


def _of_several_kinds() -> Iterator[Any]:
    """A model of each kind; all of them in the soak lane."""
    for kind in ("zoo", "digits", "tico"):
        for index, found in enumerate(golden_models(kind)):
            yield pytest.param(*found.values, id=found.id, marks=[*found.marks, *([pytest.mark.soak] if index else [])])


@pytest.mark.parametrize("model", [*_of_several_kinds()])
def test_stock_xdsl_opt_stands_between_our_commands(model: GoldenModel, tmp_path: Path) -> None:
    ours, stock = tmp_path / "ours.mlir", tmp_path / "stock.mlir"
    package, direct = tmp_path / "package", tmp_path / "direct"
    _odc_opt(model.circle, "-o", ours)
    xdsl_opt = Path(sys.executable).with_name("xdsl-opt")
    subprocess.run([xdsl_opt, "-p", "canonicalize", ours, "-o", stock], check=True)
    assert odc_compile.main([str(stock), "-o", str(package)]) == 0
    assert odc_compile.main([str(model.circle), "-o", str(direct)]) == 0
    for sample in islice(model.samples(), 2):
        found, expected = (odc_mlir.run(odc_mlir.load_package(path), sample.inputs) for path in (package, direct))
        np.testing.assert_equal(found, expected)


def _in_both_modes() -> Iterator[Any]:
    """Every model in every memory mode; the largest takes minutes, and models that are not small one mode."""
    for found in golden_models("zoo", "digits", quantised=True):
        for memory in ("flash", "sram"):
            soak = found.id.startswith("mobilenet_v2" if memory == "flash" else ("mobilenet", "vww"))
            marks = [*found.marks, pytest.mark.soak] if soak else found.marks
            yield pytest.param(*found.values, memory, id=f"{found.id}-{memory}", marks=marks)


@pytest.mark.parametrize(("model", "memory"), [*_in_both_modes()])
def test_ir_listing_and_binary_are_the_same_instructions(model: GoldenModel, memory: MemoryMode) -> None:
    target = targets.load("npu-256")
    module = odc_mlir.lower(odc_mlir.load(model.circle), stage="npu-alloc", target=target.name, memory=memory)
    text = module_text(module, constants="elide")
    assert len(text) <= 1_500_000
    assert max(len(line) for line in text.splitlines() if not line.startswith(PER_AXIS)) <= 1000
    for program in programs(module).values():
        binary = emit_program(program, target, memory)
        listing = write_listing(container.read(binary))
        assert container.write(read_listing(listing)) == binary
        expected: list[str] = []
        for op in program.block.ops:
            if isinstance(op, LoopOp):
                expected += ["loop", *(inner.SPEC.mnemonic for inner in op.instructions), "end"]
            elif isinstance(op, InstructionOp):
                expected.append(op.SPEC.mnemonic)
        assert [instr.mnemonic for instr in read_code(container.read(binary).code).instructions] == expected
        lines = [line for line in listing.splitlines() if not line.startswith(".")]
        assert [line.split()[0].partition("@")[0] for line in lines] == expected
