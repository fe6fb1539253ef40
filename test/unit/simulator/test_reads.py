"""What is charged for the tile buffer is at least what is read: bytes by hand, one by one, for any instruction."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.npu_programs import samples
from odc_mlir import targets
from odc_mlir.errors import SimulationError
from odc_mlir.isa.codec import Instr, make
from odc_mlir.isa.fields import Instruction, Kind, Region, Runs
from odc_mlir.isa.instructions import BY_MNEMONIC
from odc_mlir.simulator.counters import PortBytes
from odc_mlir.simulator.engines import executors
from odc_mlir.simulator.engines.convolution import depthwise_rows_read, touched
from odc_mlir.simulator.engines.machine import InstructionCost, Machine
from odc_mlir.simulator.memories import Access, Memories
from odc_mlir.simulator.resources import Resource, widths
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.cost import instruction_cycles

TARGETS = {name: targets.load(name) for name in targets.names()}
REGIONS = {int(region): 1 << 20 for region in (Region.ARENA, Region.INPUTS, Region.OUTPUTS)}
BYTES = {"i8": 1, "i16": 2, "i32": 4}
SMALL, KERNEL, RATE = st.integers(1, 4), st.integers(1, 7), st.integers(1, 4)


def charges(mnemonic: str, fields: dict[str, Any], npu: Target) -> tuple[InstructionCost, list[float]]:
    """What the simulator charges for one instruction, and of that the amounts of every resource."""
    access = Access({resource: PortBytes() for resource in Resource}, check=False, strict=False)
    memories = Memories(npu, "flash", bytes(64), REGIONS, execute=False)
    work = executors()[mnemonic](Machine(npu, "flash", memories, access, False, {}), make(mnemonic, **fields).values)
    access.demands[Resource.REQUANT] += work.lanes
    return work, access.demands


def charged(mnemonic: str, fields: dict[str, Any], npu: Target) -> float:
    """Bytes of tile buffer reads that the simulator charges for one instruction."""
    return charges(mnemonic, fields, npu)[1][Resource.TILE_READ]


def runs(start: int, *levels: tuple[int, int]) -> Iterator[int]:
    """Addresses of nested loops: (count, bytes between)."""
    for place in product(*(range(count) for count, _ in levels)):
        yield start + sum(i * stride for i, (_, stride) in zip(place, levels, strict=True))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[dict[str, Any], set[int]]:
    kind = draw(st.sampled_from(["i8", "i16"]))
    item, depthwise, multiplier = BYTES[kind], draw(st.booleans()), draw(st.integers(1, 3))
    channels = draw(st.integers(1, 20))
    kh, kw, sy, sx = draw(KERNEL), draw(KERNEL), draw(RATE), draw(RATE)
    dy, dx = draw(RATE), draw(RATE)
    height, width = draw(SMALL), draw(st.integers(1, 20))
    rows, columns = (height - 1) * sy + (kh - 1) * dy + 1, (width - 1) * sx + (kw - 1) * dx + 1
    stride_x = channels * item + draw(st.sampled_from([0, 0, 3]))
    stride_y = (columns - 1) * stride_x + channels * item + draw(st.sampled_from([0, 5]))
    length = (rows - 1) * stride_y + (columns - 1) * stride_x + channels * item
    ring = draw(st.sampled_from([0, length, length + 7]))
    fields = {
        "depthwise": int(depthwise), "emit": 1, "in_type": kind, "weight_type": "i8", "out_type": "i8",
        "shape": draw(st.integers(0, 3)), "multiplier": multiplier if depthwise else 1, "in_channels": channels,
        "input": draw(st.integers(0, ring - 1)) if ring else 0, "in_stride_x": stride_x, "in_stride_y": stride_y,
        "ring_base": 0, "ring_bytes": ring, "out_width": width, "out_height": height,
        "channels": channels * multiplier if depthwise else draw(st.integers(1, 40)),
        "kernel_height": kh, "kernel_width": kw, "stride_y": sy, "stride_x": sx, "dilation_y": dy, "dilation_x": dx,
        "act_min": -128, "act_max": 127, "output": 16000, "out_stride_x": 80, "out_stride_y": 1600,
    }  # fmt: skip
    taps = runs(
        fields["input"], (height, sy * stride_y), (kh, dy * stride_y), (width, sx * stride_x), (kw, dx * stride_x)
    )
    return fields, {b % ring if ring else b for a in set(taps) for b in range(a, a + channels * item)}


@st.composite
def pools(draw: st.DrawFn) -> tuple[dict[str, Any], set[int]]:
    kind, channels = draw(st.sampled_from(["i8", "i16"])), draw(st.integers(1, 20))
    kh, kw, sy, sx = draw(KERNEL), draw(KERNEL), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    height, width = draw(SMALL), draw(SMALL)
    pixel = channels * BYTES[kind]
    columns = (width - 1) * sx + kw
    fields = {
        "kind": "max", "type": kind, "in_stride_x": pixel, "in_stride_y": pixel * columns, "out_width": width,
        "out_height": height, "channels": channels, "kernel_height": kh, "kernel_width": kw, "stride_y": sy,
        "stride_x": sx, "valid_height": (height - 1) * sy + kh, "valid_width": columns, "output": 16000,
        "out_stride_x": pixel, "out_stride_y": pixel * width, "act_min": -128, "act_max": 127,
    }  # fmt: skip
    taps = runs(0, (height, sy * pixel * columns), (kh, pixel * columns), (width, sx * pixel), (kw, pixel))
    return fields, {b for a in set(taps) for b in range(a, a + pixel)}


@st.composite
def elementwise(draw: st.DrawFn) -> tuple[dict[str, Any], set[int]]:
    sizes = draw(st.tuples(SMALL, SMALL, SMALL))
    fields: dict[str, Any] = {"kind": draw(st.sampled_from(["max", "copy"])), "out_type": "i8", "output": 16000}
    fields |= {f"size{i}": size for i, size in enumerate(sizes)} | {"act_min": -128, "act_max": 127}
    fields |= {"out_stride1": sizes[0], "out_stride2": sizes[0] * sizes[1]}
    seen: set[int] = set()
    for name, start in (("a", 0), ("b", 512)):
        kind = "i8" if fields["kind"] == "copy" else draw(st.sampled_from(["i8", "i16", "i32"]))
        item = BYTES[kind]
        strides = [draw(st.sampled_from([0, whole])) for whole in (1, sizes[0] * item, sizes[0] * sizes[1] * item)]
        fields |= {name: start, f"{name}_type": kind} | {f"{name}_stride{i}": s for i, s in enumerate(strides)}
        if name == "a" or fields["kind"] == "max":
            steps = (strides[0] * item, *strides[1:])
            seen |= {b for a in runs(start, *zip(sizes, steps, strict=True)) for b in range(a, a + item)}
    return fields, seen


@st.composite
def reductions(draw: st.DrawFn) -> tuple[dict[str, Any], set[int]]:
    height, width, channels = draw(SMALL), draw(SMALL), draw(SMALL)
    pixel, gap = channels * 2, draw(st.integers(0, 3))
    fields = {
        "kind": draw(st.sampled_from(["sum", "max", "argmax"])), "emit": 1, "in_type": "i16", "out_type": "i8",
        "in_stride_x": pixel + gap, "in_stride_y": (pixel + gap) * width + gap, "width": width, "height": height,
        "channels": channels, "act_min": -128, "act_max": 127, "output": 16000, "init": "zero",
    }  # fmt: skip
    pixels = runs(0, (height, fields["in_stride_y"]), (width, fields["in_stride_x"]))
    return fields, {b for a in pixels for b in range(a, a + pixel)}


@st.composite
def rows(draw: st.DrawFn) -> tuple[dict[str, Any], set[int]]:
    count, columns, gap = draw(SMALL), draw(st.integers(1, 9)), draw(st.integers(0, 3))
    fields = {
        "in_type": "i8", "out_type": "i8", "rows": count, "columns": columns, "in_stride": columns + gap,
        "output": 16000, "out_stride": columns,
    }  # fmt: skip
    return fields, set(runs(0, (count, columns + gap), (columns, 1)))


@st.composite
def cells(draw: st.DrawFn) -> tuple[dict[str, Any], set[int]]:
    units, coupled = draw(st.integers(1, 40)), draw(st.integers(0, 1))
    fields = {"units": units, "coupled": coupled, "cell": 4096, "hidden": 8192, "cell_exponent": -12}
    return fields, {*range(2 * (4 - coupled) * units), *range(4096, 4096 + 2 * units)}


@st.composite
def resized(draw: st.DrawFn) -> tuple[dict[str, Any], set[int]]:
    """Every pixel of a tile: an image of as many rows and columns, or of more, whose steps pass none of them by."""
    kind = draw(st.sampled_from(["nearest", "bilinear"]))
    height, width, channels = draw(SMALL), draw(SMALL), draw(SMALL)
    more = draw(st.integers(1, 3))
    step = (1 << (24 if kind == "nearest" else 10)) // more
    fields = {
        "kind": ("nearest", "bilinear").index(kind), "type": 1, "in_stride_x": channels,
        "in_stride_y": channels * width, "in_width": width, "in_height": height, "step_x": step, "step_y": step,
        "out_width": width * more, "out_height": height * more, "channels": channels, "output": 8192,
        "out_stride_x": channels, "out_stride_y": channels * width * more,
    }  # fmt: skip
    return fields, set(range(height * width * channels))


@st.composite
def stores(draw: st.DrawFn) -> tuple[dict[str, Any], set[int]]:
    sizes, strides = draw(st.tuples(SMALL, SMALL, SMALL)), draw(st.tuples(st.integers(0, 9), st.integers(0, 40)))
    fields = {f"size{i}": size for i, size in enumerate(sizes)} | {"memory_stride1": 16, "memory_stride2": 64}
    fields |= {"tile_stride1": strides[0], "tile_stride2": strides[1], "target": int(Region.OUTPUTS) << 28}
    return fields, set(runs(0, *zip(sizes, (1, *strides), strict=True)))


CASES: dict[str, st.SearchStrategy[tuple[dict[str, Any], set[int]]]] = {
    "conv": convolutions(),
    "pool": pools(),
    "vop": elementwise(),
    "reduce": reductions(),
    "softmax": rows(),
    "gates": cells(),
    "resize": resized(),
    "store": stores(),
}


def _reads_tiles(spec: Instruction) -> bool:
    """Whether an instruction reads the tile buffer when all its fields are 0."""
    return any(spec[area.field].kind is Kind.TILE for area in spec.effects(make(spec.mnemonic).values).reads)


def declared(instr: Instr) -> set[int]:
    """Bytes of the tile buffer that an instruction reads by its effects."""
    seen: set[int] = set()
    for area in instr.spec.effects(instr.values).reads:
        if instr.spec[area.field].kind is Kind.TILE:
            size, count1, stride1, count2, stride2 = area.runs or Runs(area.size)
            seen |= set(runs(instr[area.field], (count2, stride2), (count1, stride1), (size, 1)))
    return seen


READERS = [name for name in executors() if _reads_tiles(BY_MNEMONIC[name])]


@pytest.mark.parametrize("mnemonic", CASES)
def test_no_byte_is_read_for_nothing(mnemonic: str) -> None:
    @settings(deadline=None, max_examples=40, database=None)
    @given(CASES[mnemonic], st.sampled_from(sorted(TARGETS)))
    def check(case: tuple[dict[str, Any], set[int]], target: str) -> None:
        fields, read = case
        try:
            bytes_charged = charged(mnemonic, fields, TARGETS[target])
        except SimulationError as error:
            if "which has" not in error.message:  # the case is larger than a local memory
                raise
            return
        assert bytes_charged >= len(read)

    check()


def _local_needs(mnemonic: str, v: dict[str, Any], npu: Target) -> dict[str, tuple[float, float]]:
    """(units that an instruction takes from ports that are not charged, width of the port)."""
    lanes, entries = npu.vector.requant_lanes, npu.array.accumulator_ports
    if mnemonic == "vop":
        count = v["size0"] * v["size1"] * v["size2"]
        return {"tables": (count * v.get("lut", 0), lanes), "records": (count * v.get("accumulated", 0), lanes)}
    taps = v["kernel_height"] * v["kernel_width"]
    pixels, channels = npu.array.depthwise_shape if v["depthwise"] else npu.array.shapes[v["shape"]]
    blocks = -(-v["channels"] // channels)
    if v["depthwise"]:
        weights = v["out_height"] * -(-v["out_width"] // pixels) * blocks * taps * channels
    else:
        weights = -(-v["out_width"] * v["out_height"] // pixels) * blocks * taps * v["in_channels"] * channels
    results = v["out_width"] * v["out_height"] * v["channels"]
    return {
        "weights": (weights, channels),
        "records": (results * v["emit"], lanes),
        "biases": (results * (1 - v["emit"]), entries),
    }


@pytest.mark.parametrize("mnemonic", ["conv", "vop"])
def test_ports_that_are_not_charged_never_bind(mnemonic: str) -> None:
    """They carry what an instruction needs in the time that it takes alone; who shares it only has more time."""

    @settings(deadline=None, max_examples=40, database=None)
    @given(CASES[mnemonic], st.sampled_from(sorted(TARGETS)), st.integers(0, 1))
    def check(case: tuple[dict[str, Any], set[int]], name: str, flag: int) -> None:
        npu, fields = TARGETS[name], case[0] | ({"emit": flag} if mnemonic == "conv" else {"accumulated": flag})
        if mnemonic == "vop":
            fields |= {"a_type": "i8", "lut": flag if fields["kind"] == "max" else 0}
        roomy = dataclasses.replace(npu.local, tile_bytes=1 << 20, accumulators=1 << 16, weight_bytes=1 << 20)
        roomy = dataclasses.replace(roomy, param_entries=1 << 12)
        work, demands = charges(mnemonic, fields, dataclasses.replace(npu, local=roomy))
        cycles = max(work.shortest, *(amount / width for amount, width in zip(demands, widths(npu), strict=True)))
        for port, (units, width) in _local_needs(mnemonic, fields, npu).items():
            assert units <= width * cycles, port

    check()


def test_the_accumulator_port_is_shared() -> None:
    """An array that keeps its sums and a vector engine that scales others would both have all of it, alone."""
    vop = {"kind": "copy", "accumulated": 1, "a_type": "i8", "out_type": "i8", "size0": 64, "size1": 4, "size2": 1}
    npu = TARGETS["npu-256"]
    _, demands = charges("vop", vop | {"out_stride1": 64, "act_max": 1}, npu)
    assert demands[Resource.ACCUMULATOR_READ] == 256
    assert widths(npu)[Resource.ACCUMULATOR_READ] == npu.array.accumulator_ports


@pytest.mark.parametrize("mnemonic", [name for name in READERS if name not in ("conv", "pool")])
def test_declared_reads_are_charged(mnemonic: str) -> None:
    """Of windows the effects enclose what taps leave out, and what lies outside of the image."""
    for instr in samples(mnemonic):
        assert charged(mnemonic, dict(instr.values), TARGETS["npu-256"]) >= len(declared(instr))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 3 * 18 * 16),  # one result row of 3x3: three input rows of 16 + 2 columns
        ({"out_height": 5}, 7 * 18 * 16),  # rows pass by once
        ({"stride_y": 2, "out_height": 5}, 11 * 18 * 16),
        ({"stride_x": 2}, 3 * 33 * 16),
        ({"kernel_height": 5, "out_height": 6}, 2 * 7 * 18 * 16),  # three result rows at a time
        ({"kernel_height": 5, "out_height": 4}, (7 + 5) * 18 * 16),
        ({"kernel_height": 5, "out_height": 6, "stride_y": 2}, 15 * 18 * 16),  # at most three overlap
        ({"dilation_y": 2, "out_height": 5}, 9 * 18 * 16),
        ({"dilation_y": 4, "out_height": 2}, 6 * 18 * 16),  # what no tap touches is not read
        ({"out_width": 17}, 2 * 3 * 18 * 16),
        ({"in_channels": 17, "channels": 17}, 2 * 3 * 18 * 16),
        ({"in_type": "i16"}, 3 * 18 * 32),
    ],
)
def test_depthwise_reads_by_hand(changes: dict[str, Any], expected: int) -> None:
    fields = {
        "depthwise": 1, "emit": 1, "in_type": "i8", "weight_type": "i8", "out_type": "i8", "shape": 1, "multiplier": 1,
        "in_channels": 16, "in_stride_x": 64, "in_stride_y": 64 * 40, "out_width": 16, "out_height": 1, "channels": 16,
        "kernel_height": 3, "kernel_width": 3, "stride_y": 1, "stride_x": 1, "dilation_y": 1, "dilation_x": 1,
        "act_min": -128, "act_max": 127, "out_stride_x": 32, "out_stride_y": 600,
    } | changes  # fmt: skip
    npu = TARGETS["npu-256"]
    roomy = dataclasses.replace(npu, local=dataclasses.replace(npu.local, tile_bytes=1 << 16))
    assert charged("conv", fields, roomy) == expected


@given(*[st.integers(1, 9)] * 4)
def test_touched(results: int, kernel: int, stride: int, dilation: int) -> None:
    seen = {y * stride + k * dilation for y in range(results) for k in range(kernel)}
    assert touched(results, kernel, stride, dilation) == len(seen)


@given(*[st.integers(1, 9)] * 5)
def test_every_touched_row_is_read(results: int, kernel: int, stride: int, dilation: int, held: int) -> None:
    least = touched(results, kernel, stride, dilation)
    assert least <= depthwise_rows_read(results, kernel, stride, dilation, held) <= results * kernel
    if held >= results:
        assert depthwise_rows_read(results, kernel, stride, dilation, held) == least


def test_the_cost_model_charges_the_same() -> None:
    """A depthwise instruction that its reads bound: 27 columns of a stride of 8, so two blocks of 123 columns."""
    npu = TARGETS["npu-256"]
    fields = {"depthwise": 1, "emit": 1, "out_height": 4, "out_width": 27, "channels": 16, "in_channels": 16}
    fields |= {"kernel_height": 3, "kernel_width": 3, "stride_y": 1, "stride_x": 8, "dilation_y": 1, "dilation_x": 1}
    read = 2 * 6 * (15 * 8 + 3) * 16 / npu.tile_ports.read_bytes_per_cycle
    assert instruction_cycles("conv", npu, **fields) == npu.array.start_cycles + read + 256 / npu.vector.requant_lanes
