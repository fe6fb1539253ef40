"""Products of real activations with integer weights: activations are quantised as they come, see numerics.hybrid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from odc_mlir.ops.spec import Node
from odc_mlir.runtime.kernels.sums import Hybrid
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.lowering.layers_products import (
    bytes_of,
    pack,
    padded_input,
    repeated_codes,
    tile_of,
    tile_rows,
)
from odc_mlir.transforms.native.lowering.segment_writer import SegmentFunction, Write, count, refusal
from odc_mlir.transforms.native.lowering.windows import Windows

_LARGEST = 1 << 31


@dataclass(frozen=True)
class Finish:
    """Everything by result channel that turns sums into reals, padded to whole blocks."""

    totals: NDArray[np.int32]
    factors: NDArray[np.float32]
    bias: NDArray[np.float32]
    low: float
    high: float

    @staticmethod
    def of(totals: Any, hybrid: Hybrid, bias: Any, bounds: tuple[float, float], padded: int) -> Finish:
        """For channels whose weights add up to ``totals``."""
        channels = len(totals)
        rows = np.zeros((3, padded), np.float64)
        rows[:, :channels] = totals, np.broadcast_to(hybrid.scales, channels), bias
        return Finish(rows[0].astype(np.int32), rows[1].astype(np.float32), rows[2].astype(np.float32), *bounds)

    def arguments(self, segment: SegmentFunction, codes: HybridCodes, windows: Windows, images: int) -> dict[str, Any]:
        """What kernels take for it."""
        return {
            "totals": segment.constant(self.totals),
            "factors": segment.constant(self.factors),
            "bias": segment.constant(self.bias),
            "scales": codes.scales,
            "zeros": codes.zeros,
            "owners": segment.constant(np.repeat(np.arange(images, dtype=np.int32), windows.pixels // images)),
            "low": self.low,
            "high": self.high,
        }


@dataclass(frozen=True)
class HybridCodes:
    """Buffers of quantised activations: codes, and scale and zero point of every row."""

    codes: SSAValue
    scales: SSAValue
    zeros: SSAValue


def _quantized(segment: SegmentFunction, node: Node, op: Operation, rows: int, *, asymmetric: bool) -> HybridCodes:
    x = node.operand(0)
    found = HybridCodes(segment.allocate(count(x)), segment.allocate(4 * rows), segment.allocate(4 * rows))
    segment.call(
        "quantize_rows",
        {"asymmetric": int(asymmetric)},
        input=segment.tensor(op.operands[0]),
        output=found.codes,
        scales=found.scales,
        zeros=found.zeros,
        rows=rows,
        depth=count(x) // rows,
    )
    return found


Bounds = tuple[float, float]


def product(
    node: Node,
    windows: Windows,
    matrix: NDArray[Any],
    hybrid: Hybrid,
    machine: CpuTarget,
    *,
    bias: NDArray[Any],
    bounds: Bounds,
    asymmetric: bool,
) -> Write:
    """Sums over whole windows with ``matrix [O, K]``; every image of ``windows`` is quantised by its own range."""
    outputs, images = matrix.shape[0], windows.shape[0]
    matrix = matrix.astype(np.int32)
    _check(node, np.abs(matrix).sum(axis=1))
    runs, run_bytes = windows.runs()
    packable, runs, offset = bytes_of(matrix, runs)

    def write(segment: SegmentFunction, op: Operation) -> None:
        rows, vectors = tile_of(windows.pixels, outputs, machine)
        packed, blocks = pack(packable, len(runs), run_bytes, LANES * vectors)
        steps = -(-run_bytes // 4) * 4
        ones = np.zeros(steps, np.int8)
        ones[:run_bytes] = 1
        codes = _quantized(segment, node, op, images, asymmetric=asymmetric)
        finish = Finish.of(matrix.sum(axis=1), hybrid, bias, bounds, blocks * LANES * vectors)
        segment.call(
            "convolve_hybrid",
            {"rows": rows, "vectors": vectors, "offset": int(bool(offset))},
            input=padded_input(segment, codes.codes, windows, codes.zeros),
            weights=segment.constant(packed),
            places=segment.constant(windows.places()),
            runs=segment.constant(runs),
            ones=segment.constant(ones),
            output=segment.result(op.results[0], node.results[0]),
            pixels=windows.pixels,
            channels=outputs,
            blocks=blocks,
            run_count=len(runs),
            run_bytes=steps,
            offset=offset,
            **finish.arguments(segment, codes, windows, images),
        )

    return write


def depthwise(
    node: Node,
    windows: Windows,
    taps: NDArray[Any],
    hybrid: Hybrid,
    machine: CpuTarget,
    *,
    times: int,
    bias: NDArray[Any],
    bounds: Bounds,
) -> Write:
    """A filter ``[taps, channels]``, one tap after the other."""
    x, channels, images = node.operand(0), taps.shape[1], windows.shape[0]
    taps = taps.astype(np.int32)
    _check(node, np.abs(taps).sum(axis=0))

    def write(segment: SegmentFunction, op: Operation) -> None:
        blocks = -(-channels // LANES)
        packed = np.zeros((taps.shape[0], blocks * LANES), np.int16)
        packed[:, :channels] = taps
        codes = _quantized(segment, node, op, images, asymmetric=True)
        finish = Finish.of(taps.sum(axis=0), hybrid, bias, bounds, blocks * LANES)
        repeated = repeated_codes(segment, codes.codes, x, times, 1)
        segment.call(
            "depthwise_hybrid",
            {"rows": tile_rows(windows.pixels, machine.tile_rows)},
            input=padded_input(segment, repeated, windows, codes.zeros),
            weights=segment.constant(packed),
            places=segment.constant(windows.places()),
            taps=segment.constant(windows.taps()),
            output=segment.result(op.results[0], node.results[0]),
            pixels=windows.pixels,
            channels=channels,
            blocks=blocks,
            tap_count=taps.shape[0],
            **finish.arguments(segment, codes, windows, images),
        )

    return write


def _check(node: Node, largest: NDArray[Any]) -> None:
    if int(largest.max()) * 255 >= _LARGEST:
        raise refusal(node, "sums are too large for the native kernel, which has 32 bits")
