"""Sliding windows: output sizes and padding of convolutions and pools, one axis at a time."""

from __future__ import annotations

from dataclasses import dataclass

from odc_mlir.ops.infer.common import option
from odc_mlir.ops.spec import Node

LARGEST = 1 << 20  # limit of strides, dilations and kernel sizes


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Stride, dilation (each (y, x)) and padding of a window operator, checked to be positive."""

    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: str  # same | valid


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """One axis of a window: result size (None for an unknown input) and padding before and after."""

    output: int | None
    before: int
    after: int


def positive(node: Node, name: str, value: int) -> int:
    """Return ``value``; raise ModelError unless it is in 1 … LARGEST."""
    if not 1 <= value <= LARGEST:
        raise node.error(f"{name} is {value}; it must be from 1 to {LARGEST}")
    return value


def window_options(node: Node, *, dilated: bool = True) -> WindowOptions:
    """Return stride, dilation and padding of a convolution or pool; raise ModelError for invalid ones."""
    names = [("stride_h", "stride_w"), ("dilation_h_factor", "dilation_w_factor")]
    pairs = [
        (positive(node, y, int(option(node, y))), positive(node, x, int(option(node, x))))
        for y, x in names[: 2 if dilated else 1]
    ]
    padding = option(node, "padding")
    if padding not in ("same", "valid"):
        raise node.error(f"padding is {padding!r}; allowed are same, valid")
    return WindowOptions(pairs[0], pairs[1] if dilated else (1, 1), padding)


def axis_window(
    node: Node, name: str, size: int | None, kernel: int, stride: int, dilation: int, padding: str
) -> WindowAxis:
    """Return result size and padding along one axis; the odd element of padding goes after, as in TFLite.

    Raises ModelError if a window without padding does not fit into the input.
    """
    extent = (kernel - 1) * dilation + 1
    if size is None:
        return WindowAxis(None, 0, 0)
    if padding == "same":
        output = -(-size // stride)
        total = max((output - 1) * stride + extent - size, 0) if output else 0
        return WindowAxis(output, total // 2, total - total // 2)
    if extent > size > 0:
        raise node.error(f"the window's {name} is {extent}, the input's {size}; without padding it must fit")
    return WindowAxis(max(-(-(size - extent + 1) // stride), 0), 0, 0)


def transposed_pad(size: int, kernel: int, stride: int, padding: str, output: int) -> int:
    """Return the padding before one axis of a transposed convolution: half of the window's overhang.

    ``size`` is the input's, ``output`` the result's.
    """
    if padding == "valid":
        return 0
    return max((size - 1) * stride + kernel - output, 0) // 2
