"""Convolutions on the simulator equal numerics for any geometry, and cost what the formula says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.npu import codes, records, run, weight_bytes
from odc_mlir import targets
from odc_mlir.errors import SimulationError
from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.codec import make
from odc_mlir.numerics.convolution import Window, conv2d, conv_filter, depthwise_filter
from odc_mlir.numerics.fixed import Requantizer, WideRequantizer
from odc_mlir.numerics.matmul import largest_magnitude
from odc_mlir.simulator import Result
from odc_mlir.simulator.engines.convolution import weight_matrix, wrap40

NPU = targets.load("npu-256")
WIDE = 16  # bytes between pixels of results, more than any test has channels


@dataclass(frozen=True)
class Case:
    """One convolution over a whole padded tile."""

    out_height: int = 2
    out_width: int = 3
    in_channels: int = 4
    channels: int = 5
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    depthwise: bool = False
    in_type: str = "i8"
    weight_type: str = "i8"
    out_type: str = "i8"
    in_zero: int = 3
    weight_zero: int = 0
    shape: int = 1
    wide: bool = True  # for inputs of 16 bits

    @property
    def in_height(self) -> int:
        return (self.out_height - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0] + 1

    @property
    def in_width(self) -> int:
        return (self.out_width - 1) * self.stride[1] + (self.kernel[1] - 1) * self.dilation[1] + 1

    @property
    def item(self) -> int:
        return 2 if self.in_type == "i16" else 1

    @property
    def is_wide(self) -> bool:
        return self.wide and self.item == 2

    @property
    def out_item(self) -> int:
        return 2 if self.out_type == "i16" else 1

    @property
    def pixels(self) -> int:
        return self.out_height * self.out_width

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    def fields(self, **changes: Any) -> dict[str, Any]:
        """Field values of the instruction: input at 0, results at 8192."""
        values: dict[str, Any] = {
            "depthwise": self.depthwise,
            "emit": 1,
            "in_type": self.in_type,
            "weight_type": self.weight_type,
            "out_type": self.out_type,
            "shape": self.shape,
            "multiplier": self.channels // self.in_channels if self.depthwise else 1,
            "in_stride_x": self.in_channels * self.item,
            "in_stride_y": self.in_width * self.in_channels * self.item,
            "in_channels": self.in_channels,
            "out_width": self.out_width,
            "out_height": self.out_height,
            "channels": self.channels,
            "kernel_height": self.kernel[0],
            "kernel_width": self.kernel[1],
            "stride_y": self.stride[0],
            "stride_x": self.stride[1],
            "dilation_y": self.dilation[0],
            "dilation_x": self.dilation[1],
            "wide": int(self.is_wide),
            "in_zero": self.in_zero,
            "weight_zero": self.weight_zero,
            "output": 8192,
            "out_stride_x": self.channels * self.out_item,
            "out_stride_y": self.out_width * self.channels * self.out_item,
            "out_zero": 2,
            "act_min": {"i8": -100, "u8": 4, "i16": -20000}[self.out_type],
            "act_max": {"i8": 100, "u8": 250, "i16": 20000}[self.out_type],
        }
        return values | changes


class Data:
    """Random contents for a case, and the results by numerics."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        dtypes = {"i8": "int8", "u8": "uint8", "i16": "int16"}
        self.case = case
        self.x = codes(rng, case.in_height, case.in_width, case.in_channels, dtype=dtypes[case.in_type])
        weights = dtypes[case.weight_type]
        group = NPU.array.shapes[case.shape][1]
        if case.depthwise:
            self.w = codes(rng, *case.kernel, case.channels, dtype=weights)
            self.coded = self.w.tobytes()
        else:
            self.w = codes(rng, case.channels, *case.kernel, case.in_channels, dtype=weights)
            self.coded = weight_bytes(self.w, group)
        shift = (8 if case.is_wide else 0) + 8 * (self.w.itemsize - 1)
        self.biases = rng.integers(-5000, 5000, case.channels)
        self.multipliers = rng.integers(1 << 30, (1 << 31) - 1, case.channels)
        self.exponents = rng.integers(-12, -7, case.channels) - shift

    @property
    def constants(self) -> bytes:
        padded = self.coded + bytes(-len(self.coded) % 16)
        return padded + records(self.biases.tolist(), self.multipliers.tolist(), self.exponents.tolist())

    def sums(self) -> NDArray[Any]:
        """Exact sums with the bias, [out_height, out_width, channels]."""
        x, w = self.x.astype(np.int64)[None] - self.case.in_zero, self.w.astype(np.int64) - self.case.weight_zero
        window = Window(self.case.kernel, self.case.stride, self.case.dilation)
        if self.case.depthwise:
            sums = conv2d(x, depthwise_filter(w, largest_magnitude(x), sums="int64"), window)
        else:
            sums = conv2d(x, conv_filter(w, largest_magnitude(x), sums="int64"), window)
        return np.asarray(sums[0] + self.biases)

    def expected(self) -> NDArray[Any]:
        fields = self.case.fields()
        kind = WideRequantizer if self.case.is_wide else Requantizer
        dtype = {"i8": "int8", "u8": "uint8", "i16": "int16"}[self.case.out_type]
        clamp = fields["act_min"], fields["act_max"]
        sums = self.sums() if self.case.is_wide else self.sums().astype(np.int32)
        return kind(self.multipliers, self.exponents, fields["out_zero"], *clamp, dtype)(sums)


def listing(data: Data, *convs: dict[str, Any], load: str = "") -> str:
    """Load everything, run ``convs`` (field values; the case's own by default), store the results."""
    case = data.case
    size = case.pixels * case.channels * case.out_item
    lines = [
        f"wload source=constants:0 coded_bytes={len(data.coded)} bytes={len(data.coded)}",
        f"param source=constants:{len(data.coded) + -len(data.coded) % 16} count={case.channels} post=0",
        load or f"load source=inputs:0 size0={data.x.nbytes} size1=1 size2=1 post=1",
        "sync@mac wait=0,1",
        *(format_instruction(make("conv", **fields)) for fields in convs or (case.fields(),)),
        "sync@mac post=2",
        f"store target=outputs:0 source=8192 size0={size} size1=1 size2=1 wait=2",
        "halt",
    ]
    return "\n".join(lines)


def simulated(data: Data, *convs: dict[str, Any], load: str = "") -> Result:
    case = data.case
    dtype = {"i8": "int8", "u8": "uint8", "i16": "int16"}[case.out_type]
    return run(
        listing(data, *convs, load=load),
        [data.x],
        constants=data.constants,
        inputs=[(data.x.dtype.name, data.x.shape)],
        outputs=[(dtype, (case.out_height, case.out_width, case.channels))],
    )


def conv_cycles(result: Result, number: int = 0) -> float:
    assert result.trace is not None
    text = result.trace.program.instructions
    events = [event for event in result.trace.events if text[event.index].mnemonic == "conv"]
    return events[number].ended - events[number].started


SMALL = st.integers(1, 3)
CASES = st.builds(
    Case,
    out_height=SMALL,
    out_width=st.integers(1, 5),
    in_channels=st.integers(1, 6),
    channels=st.integers(1, 40),
    kernel=st.tuples(SMALL, SMALL),
    stride=st.tuples(SMALL, SMALL),
    dilation=st.tuples(SMALL, SMALL),
    in_type=st.sampled_from(["i8", "u8", "i16"]),
    weight_type=st.sampled_from(["i8", "u8", "i16"]),
    out_type=st.sampled_from(["i8", "u8", "i16"]),
    in_zero=st.integers(-128, 255),
    weight_zero=st.integers(-128, 255),
    shape=st.integers(0, 3),
    wide=st.booleans(),
).filter(lambda case: case.weight_type != "i16" or case.in_type == "i16")


@settings(deadline=None, max_examples=60)
@given(CASES, st.integers(0, 9))
def test_any_convolution_equals_numerics(case: Case, seed: int) -> None:
    data = Data(case, seed)
    assert (simulated(data).outputs[0] == data.expected()).all()


@settings(deadline=None, max_examples=60)
@given(CASES, st.integers(1, 4), st.integers(0, 9))
def test_any_depthwise_equals_numerics(case: Case, multiplier: int, seed: int) -> None:
    import dataclasses

    data = Data(dataclasses.replace(case, depthwise=True, channels=case.in_channels * multiplier), seed)
    assert (simulated(data).outputs[0] == data.expected()).all()


def test_the_last_weight_group_is_not_padded() -> None:
    w = np.arange(20 * 3, dtype=np.int8).reshape(20, 1, 1, 3)
    coded = weight_bytes(w, 16)
    assert len(coded) == w.size
    assert (weight_matrix(np.frombuffer(coded, np.int8), 20, 16) == w.reshape(20, 3).T).all()


def test_accumulating_over_input_channels_gives_the_same_sums() -> None:
    """Two halves of the channels: the first starts at the bias and stays, the second goes on and emits."""
    case = Case(in_channels=8, kernel=(1, 1))
    data = Data(case)
    group = NPU.array.shapes[case.shape][1]
    halves = [weight_bytes(np.ascontiguousarray(data.w[..., part]), group) for part in (slice(4), slice(4, 8))]
    data.coded = b"".join(halves)
    first = case.fields(in_channels=4, emit=0, init="bias", accumulators=7)
    second = case.fields(in_channels=4, input=4, weights=len(halves[0]), init="keep", accumulators=7)
    result = simulated(data, first, second)
    assert (result.outputs[0] == data.expected()).all()
    assert result.counters.macs_useful == case.pixels * case.channels * 8
    assert result.counters.local_peak_bytes["accumulator_buffer"] == (7 + case.pixels * case.channels) * 5


def test_starting_at_zero_leaves_out_the_bias() -> None:
    data = Data(Case())
    with_zero = simulated(data, data.case.fields(init="zero"))
    data.biases[:] = 0
    assert (with_zero.outputs[0] == data.expected()).all()


def test_rows_wrap_in_a_ring() -> None:
    """The input starts in the ring's last row and goes on in its first."""
    case = Case(out_height=3)
    data = Data(case)
    row = case.in_width * case.in_channels
    load = "\n".join(
        f"load source=inputs:{row * y} target={100 + (y + case.in_height - 1) % case.in_height * row} size0={row}"
        f" size1=1 size2=1{' post=1' if y == case.in_height - 1 else ''}"
        for y in range(case.in_height)
    )
    ring = {"ring_base": 100, "ring_bytes": row * case.in_height, "input": 100 + (case.in_height - 1) * row}
    assert (simulated(data, case.fields(**ring), load=load).outputs[0] == data.expected()).all()


def test_a_ring_may_end_inside_a_row_or_a_pixel() -> None:
    case = Case(out_height=3)
    data = Data(case)
    size = data.x.nbytes
    for split in (1, 4, 10, size - 1):
        load = (
            f"load source=inputs:0 target={100 + size - split} size0={split} size1=1 size2=1\n"
            f"load source=inputs:{split} target=100 size0={size - split} size1=1 size2=1 post=1"
        )
        ring = {"ring_base": 100, "ring_bytes": size, "input": 100 + size - split}
        assert (simulated(data, case.fields(**ring), load=load).outputs[0] == data.expected()).all()


def test_only_what_taps_touch_must_be_there() -> None:
    """A pointwise convolution with stride 2 reads every other pixel of every other row."""
    case = Case(kernel=(1, 1), stride=(2, 2), in_channels=4)
    data = Data(case)
    row = case.in_width * 4
    load = (
        f"load source=inputs:0 size0=4 size1={case.out_width} size2={case.out_height} memory_stride1=8"
        f" memory_stride2={2 * row} tile_stride1=8 tile_stride2={2 * row} post=1"
    )
    assert (simulated(data, load=load).outputs[0] == data.expected()).all()
    with pytest.raises(SimulationError, match="of the tile buffer, parts of which were never written"):
        simulated(data, load=load.replace("size1=3", "size1=2"))


def test_accumulators_hold_40_bits() -> None:
    values = np.array([0, (1 << 39) - 1, 1 << 39, -(1 << 39), -(1 << 39) - 1])
    assert wrap40(values).tolist() == [0, (1 << 39) - 1, -(1 << 39), -(1 << 39), (1 << 39) - 1]


# Cycles: start + array tiles x steps, or what else takes longest, + drain of one array tile.
START, LANES = NPU.array.start_cycles, NPU.vector.requant_lanes
DRAIN = 256 // LANES


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        # 32 pixels on 16x16: 2 tiles of K = 288; reads 2 tiles x 16 pixels x 3 K-runs of 96 bytes
        (Case(out_height=4, out_width=8, in_channels=32, channels=16), START + 2 * 288 + DRAIN),
        # one pixel more: a third tile
        (Case(out_height=3, out_width=11, in_channels=32, channels=16), START + 3 * 288 + DRAIN),
        # one channel more: twice the tiles
        (Case(out_height=4, out_width=8, in_channels=32, channels=17), START + 4 * 288 + DRAIN),
        # 16-bit input: two passes
        (Case(out_height=4, out_width=8, in_channels=32, channels=16, in_type="i16"), START + 4 * 288 + DRAIN),
        # 16-bit weights too: four
        (
            Case(
                out_height=4, out_width=8, in_channels=24, channels=16, kernel=(3, 1), in_type="i16", weight_type="i16"
            ),
            START + 8 * 72 + DRAIN,
        ),
        # pointwise with K = 8: 32 x 16 results at 8 lanes take longer than 2 tiles of 8 steps
        (Case(out_height=4, out_width=8, in_channels=8, channels=16, kernel=(1, 1)), START + 512 // LANES + DRAIN),
        # first layer, 3 channels: K-runs of 9 bytes cost accesses of 16: 2 x 16 x 3 x 16 bytes at 32 a cycle
        (Case(out_height=4, out_width=8, in_channels=3, channels=16), START + 512 // LANES + DRAIN),
        (Case(out_height=4, out_width=8, in_channels=3, channels=2), START + 2 * 27 + DRAIN),
        (Case(out_height=4, out_width=8, in_channels=1, channels=2), START + 2 * 16 * 3 * 16 / 32 + DRAIN),
        # strided input pixels: every tap is a run of its own
        (
            Case(out_height=4, out_width=8, in_channels=1, channels=2, dilation=(1, 2)),
            START + 2 * 16 * 9 * 16 / 32 + DRAIN,
        ),
    ],
)
def test_convolution_cycles(case: Case, expected: float) -> None:
    result = simulated(Data(case))
    assert conv_cycles(result) == expected
    assert result.counters.macs_useful == case.pixels * case.channels * case.taps * case.in_channels


def test_accumulator_ports_bound_short_sums() -> None:
    """One step a tile, but 256 accumulators move through 16 ports."""
    case = Case(out_height=4, out_width=8, in_channels=4, channels=16, kernel=(1, 1))
    result = simulated(Data(case), case.fields(emit=0), case.fields(init="keep"))
    assert conv_cycles(result, 0) == START + 2 * 16
    assert conv_cycles(result, 1) == START + 512 // LANES + DRAIN


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        # 4 rows x 1 x 1 tiles of 9 steps; 18 columns x 16 channels a row; 16 x 16 results at 8 lanes are 32 a row
        (Case(out_height=4, out_width=16, in_channels=16, channels=16, depthwise=True), START + 4 * 32 + DRAIN),
        # 8 results a row leave the reads as the bound: 4 rows and the halo's 2, each of 18 x 16 bytes at 32 a cycle
        (
            Case(out_height=4, out_width=8, in_channels=1, channels=1, depthwise=True),
            START + 6 * 18 * 16 / 32 + DRAIN,
        ),
        # a tall tile has less halo, so 9 steps for each result row bound it
        (
            Case(out_height=10, out_width=2, in_channels=1, channels=1, depthwise=True, kernel=(3, 4)),
            START + 10 * 12 + DRAIN,
        ),
        # stride 2: 33 columns, and 9 rows for 4 result rows
        (
            Case(out_height=4, out_width=8, in_channels=1, channels=1, depthwise=True, stride=(2, 2)),
            START + 9 * 33 * 16 / 32 + DRAIN,
        ),
        # 5 rows of taps: the sums of 3 result rows are held, the fourth reads its rows again
        (
            Case(out_height=4, out_width=8, in_channels=1, channels=1, depthwise=True, kernel=(5, 1)),
            START + (7 + 5) * 16 * 16 / 32 + DRAIN,
        ),
    ],
)
def test_depthwise_cycles(case: Case, expected: float) -> None:
    result = simulated(Data(case))
    assert conv_cycles(result) == expected
    assert result.counters.macs_useful == case.pixels * case.channels * case.taps


def test_array_slots_are_counted_with_idle_lanes() -> None:
    result = simulated(Data(Case(out_height=1, out_width=1, in_channels=4, channels=1, kernel=(1, 1))))
    assert (result.counters.macs_useful, result.counters.macs_array) == (4, 4 * 256)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"out_width": 0}, "field out_width is 0"),
        ({"kernel_height": 0}, "field kernel_height is 0"),
        ({"stride_x": 0}, "field stride_x is 0"),
        ({"dilation_y": 0}, "a dilation or in_channels is 0"),
        ({"in_channels": 0}, "a dilation or in_channels is 0"),
        ({"multiplier": 2}, "field multiplier is 2, only depthwise"),
        ({"depthwise": 1, "multiplier": 1}, "5 depthwise results are not 1 for each of 4 input channels"),
        ({"in_stride_x": 3}, "in_stride_x is 3, a pixel has 4 bytes"),
        ({"in_stride_y": 19}, "in_stride_y is 19, a row has 20 bytes"),
        ({"in_type": "i32"}, "field in_type is i32, allowed: u8, i8, i16"),
        ({"weight_type": "i32"}, "field weight_type is i32, allowed: u8, i8, i16"),
        ({"weight_type": "i16"}, "weights of 16 bits go with inputs of 16 bits"),
        ({"wide": 1}, "wide sums are those of 16-bit inputs"),
        ({"out_type": "i32"}, "field out_type is i32, allowed"),
        ({"act_max": 128}, "result range -100..128 is not inside -128..127"),
        ({"act_min": 101}, "result range 101..100 is not inside"),
        ({"channels": 4000}, "of the weight buffer, which has 16384 units"),
        ({"param": 252}, "reads 252..256 of the parameter buffer, which has 256 units"),
        ({"accumulators": 2047, "emit": 0}, "writes 2047..2076 of the accumulator buffer, which has 2048 units"),
        ({"init": "keep"}, "reads 0..29 of the accumulator buffer, parts of which were never written"),
        ({"weights": 4}, "reads 4..183 of the weight buffer, parts of which were never written"),
        ({"param": 1}, "reads 1..5 of the parameter buffer, parts of which were never written"),
        ({"input": 19167}, "of the tile buffer, which has 19168 units"),
        ({"output": 19160}, "writes 19160..19189 of the tile buffer"),
        ({"output": 60}, "writes 60..89 of the tile buffer, which it reads itself"),
        ({"out_stride_x": 4}, "some of it more than once"),
        ({"ring_base": 0, "ring_bytes": 40}, "input of 80 bytes does not fit in its ring of 40"),
        ({"ring_base": 40, "ring_bytes": 80}, "input 0 is outside its ring"),
    ],
)
def test_what_goes_wrong_is_named(changes: dict[str, Any], message: str) -> None:
    data = Data(Case(out_height=2, out_width=3, kernel=(3, 3)))
    with pytest.raises(SimulationError, match=message) as raised:
        simulated(data, data.case.fields(**changes))
    assert str(raised.value).startswith("instruction 4 (conv)")


def test_wide_scales_have_their_own_limit() -> None:
    data = Data(Case(in_type="i16"))
    data.exponents[2] = 8
    with pytest.raises(SimulationError, match="exponent 8 of a 16-bit convolution's scale, at most 7"):
        simulated(data)


def test_an_array_shape_must_exist() -> None:
    """The smallest target has four shapes too, so one is taken away."""
    import dataclasses

    fewer = dataclasses.replace(NPU, name="less", array=dataclasses.replace(NPU.array, shapes=NPU.array.shapes[:3]))
    data = Data(Case(shape=3))
    with pytest.raises(SimulationError, match="array shape 3 does not exist"):
        run(
            listing(data),
            [data.x],
            constants=data.constants,
            inputs=[data.x.shape],
            outputs=[(2, 3, 5)],
            target=fewer,
        )
