"""Cycles and traffic of single instructions, without contention: estimates for the tiler and the ordering."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

from odc_mlir.isa.fields import Runs
from odc_mlir.isa.instructions import BY_MNEMONIC
from odc_mlir.targets import MemoryMode, MemoryPort, Target


@cache
def mean_bursts(size: int, stride: int, burst: int) -> float:
    """Return the mean number of bursts that a run of ``size`` bytes touches.

    The mean is over starts at multiples of ``stride``.
    """
    step = math.gcd(stride, burst) or burst
    starts = range(0, burst, step)
    return sum((start + size - 1) // burst + 1 for start in starts) / len(starts)


def picked_bytes(count: int, size: int, burst: int) -> int:
    """Return the port bytes for ``count`` rows of ``size`` bytes whose indices are known only at run time."""
    latest = burst - math.gcd(size, burst)
    return count * ((latest + size - 1) // burst + 1) * burst


def transfer_bytes(runs: Runs, burst: int) -> float:
    """Return the port bytes of a transfer: whole bursts per contiguous range."""
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


COMPACT_SHARE = 0.25  # compact size of an instruction relative to its full size, averaged over programs of real models


@cache
def instruction_bytes(mnemonic: str) -> float:
    """Estimate the bytes of an instruction in a program."""
    return COMPACT_SHARE * BY_MNEMONIC[mnemonic].size_bytes


def step_cycles(target: Target) -> int:
    """Return the overhead of a tile: issue cycles of a transfer and of a computation, with a semaphore for each."""
    return 2 * (target.fetch.issue_cycles + target.fetch.semaphore_cycles)


def instruction_cycles(mnemonic: str, target: Target, **fields: int | str) -> float:
    """Return the cycles of an instruction without contention. Omitted fields are 0."""
    return BY_MNEMONIC[mnemonic].cost.alone(_zeros(mnemonic) | fields, target)


@cache
def _zeros(mnemonic: str) -> dict[str, int | str]:
    return BY_MNEMONIC[mnemonic].words({})


class Ports(NamedTuple):
    """Ports of a memory mode: ``constants`` for constants and the program, ``sram`` for activations."""

    sram: MemoryPort
    constants: MemoryPort

    @property
    def staged(self) -> bool:
        """Whether constants are off-chip and copied to SRAM before use."""
        return self.sram is not self.constants


def ports(target: Target, memory: MemoryMode) -> Ports:
    """Return the ports of ``target`` in mode ``memory``."""
    return Ports(target.sram, target.offchip if memory == "flash" else target.sram)
