"""Passes that share the records of a program make what each of them makes alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from helpers.npu_layers import Body, make_module, program_of, schedule
from odc_mlir import pipelines
from odc_mlir.support.records import after_pass, records_of, sharing_records
from odc_mlir.support.text import module_text
from odc_mlir.transforms.npu.schedule.instruction_ir import CommandProgram
from odc_mlir.universe import make_context


def two_layers(body: Body) -> SSAValue:
    return body.softmax(body.conv(body.block.args[0], 32, kernel=(3, 3), pads=(1, 1, 1, 1)))


@dataclass(frozen=True)
class Keeping(ModulePass):
    """A pass that leaves IR and records equal."""

    name = "keeping"
    keeps_records: ClassVar[bool] = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Change nothing."""


@dataclass(frozen=True)
class Changing(ModulePass):
    """A pass that knows nothing of records."""

    name = "changing"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Change nothing."""


def scheduled(memory: str, stage: str) -> ModuleOp:
    module = make_module(two_layers, (1, 40, 40, 16), memory=memory)
    schedule(module, stage)
    return module


@pytest.mark.parametrize("memory", ["flash", "sram"])
def test_shared_records_change_nothing(memory: str) -> None:
    together, apart = scheduled(memory, "npu-alloc"), scheduled(memory, "npu-sched")
    context = make_context()
    for _, item in pipelines.passes_until("npu-alloc", after="npu-sched"):
        item.apply(context, apart)
    assert module_text(apart) == module_text(together)


def facts(program: CommandProgram) -> list[object]:
    """All that passes see of a program."""
    found: list[object] = [buffer.name for buffer in program.buffers]
    for item in program.commands:
        places = [(name, b.name, b.address, b.live, offset) for name, (b, offset) in sorted(item.places.items())]
        found.append((item.immediates, item.queue, item.waits, item.posts, places))
    return found


@pytest.mark.parametrize("memory", ["flash", "sram"])
def test_records_are_what_would_be_read_again(memory: str) -> None:
    module = scheduled(memory, "npu-sched")
    context, program = make_context(), program_of(module)
    with sharing_records(context):
        for _, item in pipelines.passes_until("npu-alloc", after="npu-sched"):
            item.apply(context, module)
            after_pass(context, item)
            if getattr(item, "keeps_records", False):
                kept = records_of(context, program, lambda: CommandProgram(program.block))
                assert facts(kept) == facts(CommandProgram(program.block))


def test_records_are_forgotten() -> None:
    module = make_module(two_layers, (1, 8, 8, 16))
    context, program = make_context(), program_of(module)
    read: list[int] = []

    def ask() -> None:
        records_of(context, program, lambda: read.append(1))

    ask(), ask()
    assert len(read) == 2  # outside of a run
    with sharing_records(context):
        ask(), ask()
        after_pass(context, Keeping())
        ask()
        assert len(read) == 3
        after_pass(context, Changing())
        ask()
        assert len(read) == 4
    ask()
    assert len(read) == 5
