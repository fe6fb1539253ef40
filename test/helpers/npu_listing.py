"""A hand-written program with everything a compiled one has: a tiled, double-buffered 3x3 convolution and a max pool.

Stripes of two result rows: load (with padding) -> convolution -> 2x2 max pool -> store, two buffers between any two of
them, weights copied off-chip -> SRAM -> weight buffer. Every semaphore edge in it is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.npu import codes, pack, records, weight_bytes
from helpers.sums import conv2d_sums
from odc_mlir.isa.assembly import assemble, disassemble
from odc_mlir.isa.codec import Instr, make
from odc_mlir.isa.container import MapEntry
from odc_mlir.numerics.fixed import requantize
from odc_mlir.numerics.pooling import PoolWindows, max_pool

HEIGHT, WIDTH, CHANNELS, RESULTS = 16, 16, 8, 24
ROW = WIDTH * CHANNELS
PADDED_ROW = (WIDTH + 2) * CHANNELS
STRIPES = HEIGHT // 2
LOADED, FREED, SUMMED, SUMS_FREED, POOLED, POOLED_FREED, WEIGHTS, COPIED = range(8)
IN_ZERO, MACS = 3, HEIGHT * WIDTH * RESULTS * CHANNELS * 9
GROUP = 16  # array shape 1 of npu-256

_RNG = np.random.default_rng(42)
X: NDArray[Any] = codes(_RNG, 1, HEIGHT, WIDTH, CHANNELS)
W: NDArray[Any] = codes(_RNG, RESULTS, 3, 3, CHANNELS)
BIASES = _RNG.integers(-2000, 2000, RESULTS)
CODED = weight_bytes(W, GROUP)
CONSTANTS = CODED + records(BIASES.tolist(), [1 << 30] * RESULTS, [-9] * RESULTS)
INPUT_BYTES, SUM_BYTES, POOL_BYTES = 4 * PADDED_ROW, 2 * WIDTH * RESULTS, WIDTH // 2 * RESULTS


def expected() -> NDArray[np.int8]:
    """Results by numerics, [1, HEIGHT / 2, WIDTH / 2, RESULTS]."""
    x = np.pad(X.astype(np.int32) - IN_ZERO, ((0, 0), (1, 1), (1, 1), (0, 0)))
    sums = conv2d_sums(x, W.astype(np.int32), (1, 1)) + BIASES
    multipliers, exponents = np.full(RESULTS, 1 << 30), np.full(RESULTS, -9)
    y = requantize(sums, multipliers, exponents, -1, -128, 127, "int8")
    return max_pool(y, PoolWindows((2, 2), (2, 2), (0, 0), (HEIGHT // 2, WIDTH // 2)), -128, 127)


def instructions() -> list[Instr]:
    """The program."""
    size = len(CONSTANTS)
    program = [
        make("copy", source=0, target=1 << 28, bytes=size, posts=[COPIED]),
        make("wload", source=1 << 28, coded_bytes=len(CODED), bytes=len(CODED), waits=[COPIED]),
        make("param", source=(1 << 28) + len(CODED), count=RESULTS, posts=[WEIGHTS]),
        make("sync", queue="mac", waits=[WEIGHTS]),
    ]
    for stripe in range(STRIPES):
        program += _stripe(stripe)
    for queue, semaphore in (("load", FREED), ("mac", SUMS_FREED), ("vector", POOLED_FREED)):
        program.append(make("sync", queue=queue, waits=[semaphore] * 2))
    return [*program, make("halt")]


def _stripe(stripe: int) -> list[Instr]:
    buffer, again = stripe % 2, stripe >= 2
    first, last = stripe == 0, stripe == STRIPES - 1
    source = buffer * INPUT_BYTES
    sums = 2 * INPUT_BYTES + buffer * SUM_BYTES
    pooled = 2 * INPUT_BYTES + 2 * SUM_BYTES + buffer * POOL_BYTES
    return [
        make(
            "load", source=2 << 28 | max(0, 2 * stripe - 1) * ROW, target=source, size0=CHANNELS, size1=WIDTH,
            size2=4 - first - last, memory_stride1=CHANNELS, memory_stride2=ROW, tile_stride1=CHANNELS,
            tile_stride2=PADDED_ROW, pad_before1=1, pad_after1=1, pad_before2=int(first), pad_after2=int(last),
            pad_value=IN_ZERO, waits=[FREED] * again, posts=[LOADED],
        ),
        make(
            "conv", emit=1, in_type="i8", weight_type="i8", out_type="i8", shape=1, multiplier=1, input=source,
            in_stride_x=CHANNELS, in_stride_y=PADDED_ROW, in_channels=CHANNELS, out_width=WIDTH, out_height=2,
            channels=RESULTS, kernel_height=3, kernel_width=3, stride_y=1, stride_x=1, dilation_y=1, dilation_x=1,
            in_zero=IN_ZERO, out_zero=-1, output=sums, out_stride_x=RESULTS, out_stride_y=WIDTH * RESULTS,
            act_min=-128, act_max=127, waits=[LOADED] + [SUMS_FREED] * again, posts=[FREED, SUMMED],
        ),
        make(
            "pool", kind="max", type="i8", input=sums, in_stride_x=RESULTS, in_stride_y=WIDTH * RESULTS,
            out_width=WIDTH // 2, out_height=1, channels=RESULTS, kernel_height=2, kernel_width=2, stride_y=2,
            stride_x=2, valid_width=WIDTH, valid_height=2, output=pooled, out_stride_x=RESULTS,
            out_stride_y=POOL_BYTES, act_min=-128, act_max=127, waits=[SUMMED] + [POOLED_FREED] * again,
            posts=[SUMS_FREED, POOLED],
        ),
        make(
            "store", target=3 << 28 | stripe * POOL_BYTES, source=pooled, size0=POOL_BYTES, size1=1, size2=1,
            waits=[POOLED], posts=[POOLED_FREED],
        ),
    ]  # fmt: skip


OPERATORS = (
    MapEntry(
        "conv", "CONV_2D", MACS, 0, tuple((4 + 4 * stripe + part, 1) for stripe in range(STRIPES) for part in (0, 1))
    ),
    MapEntry("pool", "MAX_POOL_2D", 0, 0, tuple((6 + 4 * stripe, 2) for stripe in range(STRIPES))),
)
OPTIONS: dict[str, Any] = {
    "constants": CONSTANTS,
    "inputs": [X.shape],
    "outputs": [(1, HEIGHT // 2, WIDTH // 2, RESULTS)],
    "arena": len(CONSTANTS),
    "operators": OPERATORS,
}


def packed(program: list[Instr] | None = None, **options: Any) -> bytes:
    """A container with the program, or with a changed one."""
    return pack(disassemble(instructions() if program is None else program), **OPTIONS | options)


def reassembled(program: list[Instr]) -> list[Instr]:
    """The same program, read back from its text."""
    return assemble(disassemble(program))
