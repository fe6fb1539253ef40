"""Every law of a stage is noticed when it is broken, by an error that names the operation and the stage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, ModuleOp, i32, i64
from xdsl.ir import Operation, SSAValue

from helpers.npu_layers import Body, make_module, program_of, schedule
from odc_mlir import pipelines
from odc_mlir.dialects.npu_isa import BufferOp, make_halt
from odc_mlir.dialects.npu_program import INPUT_OFFSETS
from odc_mlir.dialects.npu_tiling import SLOT_BYTES
from odc_mlir.errors import CompileError
from odc_mlir.legality import LEVELS, check_stage
from odc_mlir.transforms.npu.npu_lower_to_tiles import NpuLowerToTilesPass
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram
from odc_mlir.universe import VERIFY_VARIABLE


def many_tiles(body: Body) -> SSAValue:
    return body.conv(body.block.args[0], 8, kernel=(3, 3), pads=(1, 1, 1, 1))


def module_at(stage: str) -> ModuleOp:
    module = make_module(many_tiles, (1, 96, 96, 8))
    if stage != "npu":
        schedule(module, stage)
    check_stage(module, stage)
    return module


def find(module: ModuleOp, name: str) -> Operation:
    return next(op for op in program_of(module).walk() if op.name == name)


def add_tiling(module: ModuleOp) -> None:
    find(module, "npu.conv").attributes[SLOT_BYTES] = IntegerAttr(64, i64)


def add_address(module: ModuleOp) -> None:
    find(module, "npu.buffer").properties["address"] = IntegerAttr(64, i64)


def add_offsets(module: ModuleOp) -> None:
    program_of(module).attributes[INPUT_OFFSETS] = DenseArrayBase.from_list(i64, [0])


def add_semaphore(module: ModuleOp) -> None:
    find(module, "npu.isa.load").properties["waits"] = DenseArrayBase.from_list(i32, [1])


def take_address(module: ModuleOp) -> None:
    del find(module, "npu.buffer").properties["address"]


def take_offsets(module: ModuleOp) -> None:
    del program_of(module).attributes[INPUT_OFFSETS]


def add_instruction(module: ModuleOp) -> None:
    program_of(module).block.add_op(make_halt())


def add_tensor_operation(module: ModuleOp) -> None:
    conv = find(module_at("npu"), "npu.conv").clone()
    first = program_of(module).block.first_op
    assert first is not None
    program_of(module).block.insert_op_before(conv, first)


MUTATIONS: list[tuple[str, Callable[[ModuleOp], None], str]] = [
    ("npu", add_tiling, "npu.conv has npu.slot_bytes already"),
    ("npu", add_instruction, "npu.isa.halt is of another level"),
    ("npu-sched", add_tensor_operation, "npu.conv is of another level"),
    ("npu-sched", add_address, "npu.buffer buffer .* has an address already"),
    ("npu-sched", add_offsets, "npu.program has npu.input_offsets already"),
    ("npu-sched", add_semaphore, "npu.isa.load has semaphores already"),
    ("npu-alloc", take_address, "npu.buffer buffer .* has no address"),
    ("npu-alloc", take_offsets, "npu.program has no npu.input_offsets"),
    ("npu-alloc", add_tensor_operation, "npu.conv is of another level"),
]


@pytest.mark.parametrize(("stage", "mutate", "message"), MUTATIONS, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_law_is_noticed(stage: str, mutate: Callable[[ModuleOp], None], message: str) -> None:
    module = module_at(stage)
    mutate(module)
    with pytest.raises(CompileError, match=f"illegal at the end of stage {stage}: {message}"):
        check_stage(module, stage)


def test_a_loop_is_of_a_later_level() -> None:
    module = module_at("npu-alloc")
    with pytest.raises(CompileError, match=r"end of stage npu-sched: npu\.(loop|memory) is of another level"):
        check_stage(module, "npu-sched")


def test_a_program_is_of_a_later_level() -> None:
    with pytest.raises(CompileError, match=r"end of stage partition: npu\.program is of another level"):
        check_stage(module_at("npu"), "partition")


def test_every_stage_has_its_row() -> None:
    assert set(LEVELS) == set(pipelines.stage_names())


def test_a_pass_that_breaks_a_law_is_found_where_its_stage_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def lower_with_address(self: NpuLowerToTilesPass, ctx: Context, job: TargetedProgram) -> None:
        lower(self, ctx, job)
        for op in job.block.ops:
            if isinstance(op, BufferOp):
                op.properties["address"] = IntegerAttr(0, i64)

    lower = NpuLowerToTilesPass.apply_to
    monkeypatch.setattr(NpuLowerToTilesPass, "apply_to", lower_with_address)
    monkeypatch.setenv(VERIFY_VARIABLE, "1")
    module = make_module(many_tiles, (1, 8, 8, 8))
    with pytest.raises(CompileError, match=r"npu-sched: npu\.buffer buffer .* has an address already"):
        schedule(module, "npu-sched")
