"""Estimates for operations that have one way to be cut: element-wise, reductions and softmax."""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.cost import instruction_bytes
from odc_mlir.transforms.npu.schedule.window_search import ROLLED_TILES, Choice


def vector_choice(
    mnemonic: str, moved: Sequence[int], compute_cycles: float, room: int, target: Target
) -> tuple[Choice, ...]:
    """The only choice of an operation that loads and stores tensors of ``moved`` bytes through slots in ``room``."""
    port = target.sram
    traffic = sum(moved) / port.bytes_per_cycle
    tiles = max(1, -(-4 * max(moved, default=0) * len(moved) // max(room, 1)))
    latency = min(len(moved), 2) * port.read_latency_cycles
    size = instruction_bytes(mnemonic) + len(moved) * instruction_bytes("load")
    edge = min(traffic, compute_cycles) / tiles
    return (Choice(None, max(traffic, compute_cycles) + edge + latency, size * min(tiles, ROLLED_TILES)),)
