"""Buffers that are moved by hand in a finished program: results stay right, or the proof of memory refuses it."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.npu_layers import Array, Body, expected, inputs_of, make_module, program_of, schedule
from odc_mlir import pipelines, targets
from odc_mlir.dialects.npu_isa import BufferOp, InstructionOp
from odc_mlir.dialects.npu_memory import BufferType
from odc_mlir.emitter.program import emit_program
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import Space
from odc_mlir.simulator.program import load
from odc_mlir.simulator.run import simulate
from odc_mlir.transforms.npu.schedule.instruction_ir import integer
from odc_mlir.universe import make_context


def layers(body: Body) -> SSAValue:
    """Layers whose results stay in the tile buffer, with slots of every local memory."""
    x = body.conv(body.block.args[0], 16, kernel=(3, 3), pads=(1, 1, 1, 1))
    x = body.conv(body.lut(x), 16, kernel=(3, 3), pads=(1, 1, 1, 1), depthwise=True)
    return body.conv(x, 8)


def run(module: ModuleOp, pipeline: str) -> None:
    passes = pipelines.passes_of(pipeline)
    pipelines.run_passes(make_context(), module, passes)


def local_buffers(module: ModuleOp, space: Space) -> list[BufferOp]:
    """The buffers of one local memory."""
    found = [op for op in program_of(module).block.ops if isinstance(op, BufferOp)]
    return [op for op in found if isinstance(op.buffer.type, BufferType) and op.buffer.type.space is space]


def order_again(module: ModuleOp) -> None:
    """Give the program the semaphores that its addresses need, so that nothing but its values can be wrong."""
    for op in list(program_of(module).block.ops):
        if op.name == "npu.isa.sync":
            op.detach()
        elif isinstance(op, InstructionOp):
            op.properties.pop("waits", None)
            op.properties.pop("posts", None)
    run(module, "npu-insert-sync")


def results(module: ModuleOp, inputs: list[Array]) -> list[Array]:
    program = load(emit_program(program_of(module), targets.load("npu-256"), "sram"))
    return list(simulate(program, inputs).outputs)


def what_is_wrong(module: ModuleOp) -> str:
    """What the proof of memory says against a program; nothing where it holds."""
    try:
        run(module, "npu-verify-memory")
    except CompileError as error:
        return str(error)
    return ""


def address(op: BufferOp) -> int:
    assert op.address is not None
    return op.address.value.data


@pytest.mark.parametrize("space", [Space.TILE, Space.WEIGHT, Space.PARAM])
def test_buffers_that_are_moved_keep_values_or_are_refused(space: Space) -> None:
    module = make_module(layers, (1, 6, 7, 8), memory="sram")
    inputs = inputs_of(module)
    right = expected(module, inputs)
    schedule(module)
    run(module, "npu-unroll-loops")
    refused = kept = 0
    for number, one in enumerate(local_buffers(module, space)):
        for other in local_buffers(module, space):
            for place in {address(other), address(other) + other.size // 2} - {address(one)}:
                moved = module.clone()
                local_buffers(moved, space)[number].properties["address"] = integer(place)
                order_again(moved)
                if problem := what_is_wrong(moved):
                    refused += "share bytes while both are in use" in problem
                else:
                    assert all((a == b).all() for a, b in zip(results(moved, inputs), right, strict=True))
                    kept += 1
    assert refused
    assert kept
