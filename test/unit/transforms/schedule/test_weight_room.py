"""Weights that SRAM has no room for beside the tensors are read seldom, not again for every tile."""

from __future__ import annotations

from xdsl.ir import SSAValue

from helpers.npu_layers import Body, check, make_module
from odc_mlir.dialects import npu
from odc_mlir.transforms.npu.schedule.constants import stored_bytes
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram, targeted_programs
from odc_mlir.transforms.npu.schedule.layer_plan import STEP, held_bytes, uncopied_weights
from odc_mlir.transforms.npu.schedule.tensor_ir import layer_ops

SHAPE = (1, 8, 6, 64)
PIXELS = 8 * 6


def wide(body: Body) -> SSAValue:
    """The second layer has a million weights, and tiles of few pixels only fit in the tile buffer."""
    return body.conv(body.conv(body.block.args[0], 1024), 1024)


def job_of(**options: object) -> TargetedProgram:
    (job,) = targeted_programs(make_module(wide, SHAPE, **options), "a test")  # type: ignore[arg-type]
    return job


def test_bytes_in_use_at_each_layer() -> None:
    block = job_of().block
    assert held_bytes(block, layer_ops(block)) == [PIXELS * (64 + 1024), PIXELS * 2 * 1024]


def test_tensors_are_held_until_their_last_use() -> None:
    def joined(body: Body) -> SSAValue:
        (x,) = body.block.args
        y = body.elementwise(npu.ElementwiseKind.ADD, x, body.conv(body.conv(x, 32), 64))
        return body.lut(body.reshape(y, (1, 1, 1, PIXELS * 64)))

    (job,) = targeted_programs(make_module(joined, SHAPE), "a test")
    assert held_bytes(job.block, layer_ops(job.block)) == [
        PIXELS * size for size in (64 + 32, 64 + 32 + 64, 3 * 64, 2 * 64)
    ]


def test_what_has_no_room() -> None:
    first, second = layer_ops(job_of().block)
    stored = [stored_bytes(first), stored_bytes(second)]
    assert uncopied_weights(job_of()) == uncopied_weights(job_of(memory="sram", prefer="memory")) == {}
    limit = PIXELS * 2 * 1024 + 300_000
    for options, rooms in (
        ({"prefer": "memory"}, (PIXELS * (1024 - 64), 0)),
        ({"sram_limit": limit}, (stored[0], 300_000)),
    ):
        wanted = [-(-(size - room) // STEP) * STEP for size, room in zip(stored, rooms, strict=True) if size > room]
        assert list(uncopied_weights(job_of(**options)).values()) == wanted


def test_they_cost_little_where_they_are_read_seldom() -> None:
    """Tiles of a few rows would read all of them again each time: that takes twice as many cycles."""
    roomy = check(make_module(wide, SHAPE))
    for options in ({"prefer": "memory"}, {"sram_limit": 150_000}):
        tight = check(make_module(wide, SHAPE, **options))  # type: ignore[arg-type]
        assert tight.sram_peak_bytes <= 150_000 < roomy.sram_peak_bytes // 4
        assert tight.cycles <= 1.25 * roomy.cycles
