"""Cycle and traffic formulas of single instructions, as ``docs/npu.md`` charges them.

Estimates for the tiler and the ordering: per instruction and without contention. The simulator has the last word.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

from odc_mlir.isa.instructions import BY_MNEMONIC
from odc_mlir.isa.windows import depthwise_rows_read
from odc_mlir.targets import MemoryMode, MemoryPort, Target


class StridedRuns(NamedTuple):
    """A strided transfer: ``runs`` of ``size`` bytes, ``stride`` apart, ``groups`` of them ``group_stride`` apart."""

    size: int
    runs: int = 1
    stride: int = 0
    groups: int = 1
    group_stride: int = 0


@cache
def mean_bursts(size: int, stride: int, burst: int) -> float:
    """Return the bursts that a run of ``size`` bytes touches, averaged over the alignments of steps of ``stride``."""
    step = math.gcd(stride, burst) or burst
    starts = range(0, burst, step)
    return sum((start + size - 1) // burst + 1 for start in starts) / len(starts)


def picked_bytes(count: int, size: int, burst: int) -> int:
    """Return the bytes that cross the port for ``count`` rows of ``size`` bytes at indices known only at run time."""
    latest = burst - math.gcd(size, burst)
    return count * ((latest + size - 1) // burst + 1) * burst


def transfer_bytes(runs: StridedRuns, burst: int) -> float:
    """Return the bytes that cross the port: whole bursts per contiguous range."""
    size, count, stride, groups, group_stride = runs
    if size <= 0 or count <= 0 or groups <= 0:
        return 0.0
    if count == 1 or stride == size:
        size, count, stride = size * count, 1, 0
    if count == 1:
        if groups == 1 or group_stride == size:
            return math.ceil(size * groups / burst) * float(burst)
        return groups * mean_bursts(size, group_stride, burst) * burst
    return groups * count * mean_bursts(size, stride, burst) * burst


def matrix_load_cycles(target: Target, rows: int, columns: int, row_stride: int, group: int) -> float:
    """Return the cycles to load a matrix of computed codes into the weight buffer, by port or by decoder."""
    decoder, sram = target.decoder, target.sram
    whole, rest = divmod(columns, group)
    turns = whole * -(-group // decoder.symbols_per_cycle) + -(-rest // decoder.symbols_per_cycle)
    moved = transfer_bytes(StridedRuns(columns, rows, row_stride), sram.burst_bytes) / sram.bytes_per_cycle
    return max(moved, rows * turns)


class ArrayWork(NamedTuple):
    """One convolution instruction. ``kernel_run``: contiguous elements of one operand fetch, ``kernel_runs``: how many.
    ``item_bytes``: of an input element, ``passes``: steps of the array for each product.
    """

    pixels: int
    channels: int
    depth: int
    kernel_run: int
    kernel_runs: int
    emit: bool = True
    accumulate: bool = False
    item_bytes: int = 1
    passes: int = 1


COMPACT_SHARE = 0.25  # of an instruction's bytes are left in compact form, on average over programs of real models


@cache
def instruction_bytes(mnemonic: str) -> float:
    """Estimate the bytes of an instruction in a program."""
    return COMPACT_SHARE * BY_MNEMONIC[mnemonic].size_bytes


def step_cycles(target: Target) -> int:
    """Return the overhead of a tile: a transfer and a computation are issued, and one waits for the other twice."""
    return 2 * (target.fetch.issue_cycles + target.fetch.semaphore_cycles)


def conv_cycles(target: Target, shape: int, work: ArrayWork) -> float:
    """Return the cycles of a convolution instruction with array shape ``shape``."""
    array, vector = target.array, target.vector
    rows, columns = array.shapes[shape]
    row_steps, column_steps = -(-work.pixels // rows), -(-work.channels // columns)
    step = work.depth * work.passes
    if work.accumulate:
        step = max(step, rows * columns // array.accumulator_ports)
    busy = float(row_steps * column_steps * step)
    fetch = target.tile_ports.fetch_bytes
    fetches = -(-work.kernel_run * work.item_bytes // fetch)
    read = row_steps * column_steps * rows * work.kernel_runs * fetches * fetch
    busy = max(busy, read / target.tile_ports.read_bytes_per_cycle)
    if work.emit:
        busy = max(busy, work.pixels * work.channels / vector.requant_lanes)
        busy += rows * columns / vector.requant_lanes
    return array.start_cycles + busy


class PlaneWork(NamedTuple):
    """One depthwise instruction."""

    height: int
    width: int
    channels: int
    kernel_height: int
    kernel_width: int
    stride_y: int
    stride_x: int
    dilation_y: int
    dilation_x: int
    item_bytes: int = 1
    passes: int = 1


def depthwise_cycles(target: Target, work: PlaneWork) -> float:
    """Return the cycles of a depthwise instruction."""
    array, vector = target.array, target.vector
    pixels, channels = array.depthwise_shape
    blocks = -(-work.width // pixels) * -(-work.channels // channels)
    span = (pixels - 1) * work.stride_x + (work.kernel_width - 1) * work.dilation_x + 1
    rows = depthwise_rows_read(work.height, work.kernel_height, work.stride_y, work.dilation_y, array.depthwise_rows)
    read = blocks * rows * span * channels * work.item_bytes
    results = work.height * work.width * work.channels
    busy = max(
        work.height * blocks * work.kernel_height * work.kernel_width * work.passes,
        read / target.tile_ports.read_bytes_per_cycle,
        results / vector.requant_lanes,
    )
    return array.start_cycles + busy + pixels * channels / vector.requant_lanes


def vector_cycles(target: Target, results: int, read_bytes: int, *, elements: int = 0) -> float:
    """Return the cycles of a vector instruction: ``results`` to requantise, ``elements`` to reduce."""
    busy = max(
        results / target.vector.requant_lanes,
        elements / target.vector.reduce_lanes,
        read_bytes / target.tile_ports.read_bytes_per_cycle,
    )
    return target.vector.start_cycles + busy


ENTRY_PAIR_BYTES = 4  # of a table of 16-bit codes, for each result


def interpolated_cycles(target: Target, elements: int) -> float:
    """Return the cycles to look up 16-bit codes."""
    return target.vector.start_cycles + ENTRY_PAIR_BYTES * elements / target.vector.requant_lanes


def softmax_cycles(target: Target, elements: int, item_bytes: int) -> float:
    """Return the cycles of a softmax instruction."""
    vector = target.vector
    if item_bytes == 1:
        return vector.softmax_start_cycles + 3 * elements / vector.softmax_elements_per_cycle
    looked_up = 2 * ENTRY_PAIR_BYTES * elements / vector.requant_lanes
    return vector.softmax_start_cycles + elements / vector.softmax_elements_per_cycle + looked_up


class Ports(NamedTuple):
    """The memory ports of one mode: ``constants`` carries constants and the program, ``sram`` activations."""

    sram: MemoryPort
    constants: MemoryPort

    @property
    def staged(self) -> bool:
        """Constants lie off-chip and are copied to SRAM before use."""
        return self.sram is not self.constants


def ports(target: Target, memory: MemoryMode) -> Ports:
    """Return the ports of ``target`` in mode ``memory``."""
    return Ports(target.sram, target.offchip if memory == "flash" else target.sram)
