"""Rows read by sliding windows, and repetitions: charges of the array and the cost model (docs/npu.md, "conv")."""

from __future__ import annotations

import math


def touched(results: int, kernel: int, stride: int, dilation: int) -> int:
    """Return the number of different rows (or columns) read by ``results`` windows of ``kernel`` taps."""
    step = math.gcd(stride, dilation)
    # tap k + stride / step of result y - dilation / step reads the row that tap k of result y reads
    again = max(0, results - dilation // step) * max(0, kernel - stride // step)
    return results * kernel - again


def depthwise_rows_read(results: int, kernel: int, stride: int, dilation: int, held: int) -> int:
    """Input rows that a depthwise instruction reads for each of its column blocks.

    The array holds the sums of ``held`` result rows. Where so many are enough while rows pass by, every row is read
    once; otherwise the results are computed ``held`` rows at a time.
    """
    if -(-kernel // stride) <= held and 1 in (stride, dilation):
        return touched(results, kernel, stride, dilation)
    whole, rest = divmod(results, held)
    rows = whole * touched(held, kernel, stride, dilation)
    return rows + (touched(rest, kernel, stride, dilation) if rest else 0)
