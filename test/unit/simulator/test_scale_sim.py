"""The array beside SCALE-Sim 3.0.0: its closed forms, a systolic array stepped by hand, and what differs."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from helpers.npu import program
from odc_mlir import targets
from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.codec import make
from odc_mlir.simulator import simulate

NPU = targets.load("npu-256")
Dataflow = Literal["os", "ws"]


class Layer(NamedTuple):
    """A matrix product: result pixels, products for each result, result channels."""

    pixels: int
    depth: int
    channels: int


# ResNet-8 for 32 x 32 images
RESNET8 = [
    Layer(1024, 27, 16), *[Layer(1024, 144, 16)] * 2,
    Layer(256, 144, 32), Layer(256, 288, 32), Layer(256, 16, 32),
    Layer(64, 288, 64), Layer(64, 576, 64), Layer(64, 32, 64), Layer(1, 64, 10),
]  # fmt: skip


def up(a: int, b: int) -> int:
    return -(-a // b)


def scale_sim(layer: Layer, rows: int, columns: int, dataflow: Dataflow = "os") -> int:
    """The compute cycles that SCALE-Sim reports, counted from 0, without stalls."""
    p, k, n = layer
    if dataflow == "os":
        return up(p, rows) * up(n, columns) * (k + rows + columns - 2) - 1
    return up(k, rows) * up(n, columns) * (p + 2 * rows + columns - 2) - 1


def systolic(layer: Layer, rows: int, columns: int) -> int:
    """An output-stationary array, element by element: the number of the last cycle, from 0.

    Operands move by one element a cycle, so element (r, c) does step k in cycle k + r + c. A tile begins when the one
    before it is out of the array.
    """
    now = 0
    for _ in range(up(layer.pixels, rows) * up(layer.channels, columns)):
        done = {k + r + c for k in range(layer.depth) for r in range(rows) for c in range(columns)}
        now += max(done) + 1
    return now - 1


def ours(layer: Layer, shape: int) -> float:
    """Cycles of the array in our simulator with no port or lane in its way, from its first to its last step."""
    endless = 1 << 40
    fields: dict[str, Any] = {
        "emit": 1, "in_type": "i8", "weight_type": "i8", "out_type": "i8", "shape": shape, "multiplier": 1,
        "in_channels": layer.depth, "in_stride_y": layer.depth, "out_width": 1, "out_height": layer.pixels,
        "channels": layer.channels, "kernel_height": 1, "kernel_width": 1, "stride_y": 1, "stride_x": 1,
        "dilation_y": 1, "dilation_x": 1, "act_min": -1, "act_max": 1, "out_stride_y": layer.channels,
    }  # fmt: skip
    local = dataclasses.replace(NPU.local, tile_bytes=1 << 20, weight_bytes=1 << 20, param_entries=1 << 12)
    ports = dataclasses.replace(NPU.tile_ports, read_bytes_per_cycle=endless, write_bytes_per_cycle=endless)
    lanes = dataclasses.replace(NPU.vector, requant_lanes=endless)
    free = dataclasses.replace(NPU, local=local, tile_ports=ports, vector=lanes)
    loaded = program(f"{format_instruction(make('conv', **fields))}\nhalt", memory="sram")
    result = simulate(dataclasses.replace(loaded, target=free), execute=False, trace=True)
    assert result.trace is not None
    event = result.trace.events[0]
    return round(event.ended - event.started - NPU.array.start_cycles, 3)


SMALL = st.integers(1, 9)


@given(st.builds(Layer, SMALL, SMALL, SMALL), st.integers(1, 5), st.integers(1, 5))
def test_the_closed_form_is_that_of_a_systolic_array(layer: Layer, rows: int, columns: int) -> None:
    assert scale_sim(layer, rows, columns) == systolic(layer, rows, columns)


@given(st.builds(Layer, st.integers(1, 70), st.integers(1, 40), st.integers(1, 70)), st.integers(0, 3))
def test_our_array_is_the_closed_form_without_skew(layer: Layer, shape: int) -> None:
    """Ours takes a pixel word a cycle through a transposer and starts a tile behind the other: no skew between them."""
    rows, columns = NPU.array.shapes[shape]
    tiles = up(layer.pixels, rows) * up(layer.channels, columns)
    assert ours(layer, shape) == scale_sim(layer, rows, columns) + 1 - tiles * (rows + columns - 2)


def test_resnet8_beside_it() -> None:
    """Figures that stand in docs/validation.md; SCALE-Sim itself reports 58,996."""
    assert sum(ours(layer, 1) for layer in RESNET8) == 48_896
    assert sum(scale_sim(layer, 16, 16) for layer in RESNET8) == 58_996
    assert sum(scale_sim(layer, 16, 16, "ws") for layer in RESNET8) == 63_130
    tiles = sum(up(layer.pixels, 16) * up(layer.channels, 16) for layer in RESNET8)
    assert tiles * (16 + 16 - 2) - len(RESNET8) == 58_996 - 48_896


def test_with_start_and_drain_ours_stays_below_it() -> None:
    """What we leave out of a tile's skew, an instruction pays once: start of the array and drain of its last tile."""
    drain = 256 / NPU.vector.requant_lanes
    for layer in RESNET8:
        production = ours(layer, 1) + NPU.array.start_cycles + drain
        assert production <= scale_sim(layer, 16, 16) + 64
