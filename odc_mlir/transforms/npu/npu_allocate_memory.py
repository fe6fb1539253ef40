"""``npu-allocate-memory``: addresses of everything in the arena and the constants region.

Before::

    %t = npu.buffer "conv1" : !npu.buffer<arena, 12544>

After::

    %t = npu.buffer "conv1" at 25088 : !npu.buffer<arena, 12544>

Buffers of the arena that are in use at different times share bytes. Buffers that have an address already keep it.
Refuses programs that need more SRAM than the target has or the SRAM limit allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, TensorType
from xdsl.ir import Attribute
from xdsl.passes import ModulePass

from odc_mlir.dialects.npu_program import INPUT_OFFSETS, OUTPUT_OFFSETS
from odc_mlir.transforms.npu.schedule.arena import allocate, live_intervals
from odc_mlir.transforms.npu.schedule.instruction_ir import Program, Site, sites
from odc_mlir.transforms.npu.schedule.program import Space
from odc_mlir.transforms.npu.schedule.staging import arena_too_small, too_small


@dataclass(frozen=True)
class NpuAllocateMemoryPass(ModulePass):
    """Allocate; see the module's text."""

    name = "npu-allocate-memory"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for site in sites(op, self.name):
            _allocate(site)


def region_bytes(site: Site) -> dict[Space, int]:
    """Bytes of the input and the output region."""
    program = site.program
    ends = {Space.INPUTS: 0, Space.OUTPUTS: 0}
    for name, space, types in (
        (INPUT_OFFSETS, Space.INPUTS, program.input_types),
        (OUTPUT_OFFSETS, Space.OUTPUTS, program.output_types),
    ):
        offsets = program.attributes[name]
        assert isinstance(offsets, DenseArrayBase), "set when instructions are made"
        for offset, type_ in zip(offsets.get_values(), types, strict=True):
            ends[space] = max(ends[space], offset + _bytes(type_))
    return ends


def _bytes(type_: Attribute) -> int:
    """Bytes of a tensor of one-byte codes."""
    assert isinstance(type_, TensorType), "inputs and outputs are tensors"
    return math.prod(type_.get_shape())


def arena_bytes(site: Site) -> int:
    """SRAM that is left for the arena."""
    held = sum(region_bytes(site).values())
    if held > site.sram_bytes:
        used = allocate(live_intervals(Program(site.block).commands, site.target.sram.burst_bytes))
        text = f"inputs and outputs need {held} bytes of SRAM, {site.sram_bytes} are allowed"
        raise too_small(text, held + used, site.sram_bytes)
    return site.sram_bytes - held


def _allocate(site: Site) -> None:
    program = Program(site.block)
    intervals = live_intervals(program.commands, site.target.sram.burst_bytes)
    limit = arena_bytes(site)
    used = allocate(intervals)
    if used > limit:
        raise arena_too_small(intervals, used, limit, site.sram_bytes - limit)
    end = 0
    alignment = site.target.offchip.burst_bytes if site.memory == "flash" else site.target.sram.burst_bytes
    for buffer in program.buffers:
        if buffer.space is Space.CONSTANTS:
            buffer.address = end
            end += -(-buffer.size // alignment) * alignment
    program.set_addresses()
