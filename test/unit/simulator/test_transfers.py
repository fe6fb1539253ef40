"""Transfers: values, and cycles computed by hand from the target's numbers."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from helpers.npu import codes, records, run
from odc_mlir import targets
from odc_mlir.errors import InputError, SimulationError
from odc_mlir.isa.fields import Queue
from odc_mlir.isa.weight_coding import encode
from odc_mlir.numerics.fixed import multiply
from odc_mlir.simulator import Result
from odc_mlir.simulator.boxes import picked_bytes

NPU = targets.load("npu-256")
SRAM, FLASH = NPU.sram, NPU.offchip


def cycles(result: Result, index: int) -> float:
    """From the start of instruction ``index`` to its end."""
    assert result.trace is not None
    event = next(event for event in result.trace.events if event.index == index)
    return event.ended - event.started


def bytes_of(count: int, seed: int = 0) -> np.ndarray:
    return codes(np.random.default_rng(seed), count, dtype="uint8")


def test_load_and_store_round_trip() -> None:
    x = bytes_of(96).view("i1").reshape(4, 24)
    text = """
        load source=inputs:0 target=8 size0=6 size1=4 size2=4 memory_stride1=6 memory_stride2=24 \
             tile_stride1=10 tile_stride2=50 post=0
        store target=outputs:0 source=8 size0=6 size1=4 size2=4 memory_stride1=6 memory_stride2=24 \
             tile_stride1=10 tile_stride2=50 wait=0
        halt""".replace("\\\n", "")
    result = run(text, [x], inputs=[(4, 24)], outputs=[(4, 24)])
    assert (result.outputs[0] == x).all()


def test_padding_surrounds_groups_and_runs() -> None:
    x = bytes_of(12).view("i1").reshape(2, 3, 2)
    load = (
        "load source=inputs:0 size0=2 size1=3 size2=2 memory_stride1=2 memory_stride2=6 tile_stride1=2 tile_stride2=12"
    )
    pads = "pad_before1=1 pad_after1=2 pad_before2=1 pad_after2=1 pad_value=-7 post=0"
    text = f"{load} {pads}\nstore target=outputs:0 source=0 size0=48 size1=1 size2=1 wait=0\nhalt"
    result = run(text, [x], inputs=[(2, 3, 2)], outputs=[(4, 6, 2)])
    expected = np.pad(x, ((1, 1), (1, 2), (0, 0)), constant_values=-7)
    assert (result.outputs[0] == expected).all()


@pytest.mark.parametrize(("kind", "code", "dtype"), [("i8", -3, "int8"), ("u8", 200, "uint8"), ("i16", -300, "int16")])
def test_fill(kind: str, code: int, dtype: str) -> None:
    text = f"fill target=4 bytes=10 value={code} type={kind} post=0\n"
    text += "store target=outputs:0 source=4 size0=10 size1=1 size2=1 wait=0\nhalt"
    result = run(text, outputs=[(dtype, (10 // np.dtype(dtype).itemsize,))])
    assert (result.outputs[0] == code).all()
    assert cycles(result, 0) == 10 / NPU.tile_ports.write_bytes_per_cycle


STORE_ARENA = "load source=arena:0 size0=64 size1=1 size2=1 wait=0 post=1\n"
STORE_OUT = "store target=outputs:0 source=0 size0=64 size1=1 size2=1 wait=1\nhalt"


def test_copy_from_constants() -> None:
    data = bytes_of(200)
    text = "copy source=constants:100 target=arena:0 bytes=64 post=0\n" + STORE_ARENA + STORE_OUT
    result = run(text, constants=data.tobytes(), outputs=[("uint8", (64,))], arena=64)
    assert (result.outputs[0] == data[100:164]).all()
    # bytes 100..163 touch two bursts of 128 off-chip; latencies of both ports, then the slower port
    assert cycles(result, 0) == FLASH.read_latency_cycles + SRAM.write_latency_cycles + 2 * FLASH.burst_bytes
    assert result.counters.constant_bytes_read == 2 * FLASH.burst_bytes
    assert result.counters.ports["offchip"].read_payload_bytes == 64 + result.counters.program_bytes


def test_copy_within_sram_pays_both_ways() -> None:
    text = "copy source=inputs:0 target=arena:0 bytes=64 post=0\n" + STORE_ARENA + STORE_OUT
    result = run(text, [bytes_of(64)], inputs=[("uint8", (64,))], outputs=[("uint8", (64,))], arena=64)
    assert (result.outputs[0] == bytes_of(64)).all()
    assert cycles(result, 0) == 32 + 32 + 128 / SRAM.bytes_per_cycle


@pytest.mark.parametrize(
    ("shape", "bursts"),
    [
        ("size0=32 size1=1 size2=1", 1),
        ("size0=33 size1=1 size2=1", 2),
        ("size0=8 size1=4 size2=1 memory_stride1=8 tile_stride1=8", 1),  # adjacent runs merge
        ("size0=8 size1=4 size2=1 memory_stride1=32 tile_stride1=8", 4),  # 8 bytes of every burst
        (
            "size0=8 size1=4 size2=1 memory_stride1=30 tile_stride1=8",
            7,
        ),  # starts 0, 30, 60, 90: the last three span two
        ("size0=8 size1=2 size2=4 memory_stride1=8 memory_stride2=64 tile_stride1=8 tile_stride2=16", 4),
    ],
)
def test_loads_move_whole_bursts(shape: str, bursts: int) -> None:
    result = run(f"load source=inputs:0 {shape}\nhalt", [bytes_of(256)], inputs=[("uint8", (256,))])
    assert result.counters.ports["sram"].read_bytes == bursts * SRAM.burst_bytes
    assert cycles(result, 0) == SRAM.read_latency_cycles + bursts * SRAM.burst_bytes / SRAM.bytes_per_cycle


def test_store_cost() -> None:
    text = "fill bytes=64 post=0\nstore target=outputs:16 source=0 size0=64 size1=1 size2=1 wait=0\nhalt"
    with pytest.raises(SimulationError, match="parts of an output were never written"):
        run(text, outputs=[(80,)])
    text = text.replace("outputs:16", "arena:16")
    result = run(text, arena=80)
    assert result.counters.ports["sram"].write_bytes == 3 * SRAM.burst_bytes
    assert cycles(result, 1) == SRAM.write_latency_cycles + 3 * SRAM.burst_bytes / SRAM.bytes_per_cycle


@pytest.mark.parametrize(("memory", "rate", "latency", "moved"), [("flash", 1, 64, 256), ("sram", 8, 32, 160)])
def test_weights_come_through_the_port_of_constants(memory: Any, rate: int, latency: int, moved: int) -> None:
    result = run("wload source=constants:0 coded_bytes=144 bytes=144\nhalt", constants=bytes(144), memory=memory)
    assert cycles(result, 0) == latency + NPU.decoder.start_cycles + moved / rate
    assert result.counters.constant_bytes_read == moved


def test_the_decoder_bounds_weights_from_sram() -> None:
    text = "wload source=inputs:0 coded_bytes=320 bytes=320\nhalt"
    result = run(text, [np.zeros(320, "uint8")], inputs=[("uint8", (320,))])
    assert cycles(result, 0) == SRAM.read_latency_cycles + NPU.decoder.start_cycles + 320 / SRAM.bytes_per_cycle
    big = targets.load("npu-512")
    result = run(text, [np.zeros(320, "uint8")], inputs=[("uint8", (320,))], target="npu-512")
    assert cycles(result, 0) == 32 + big.decoder.start_cycles + 320 / big.sram.bytes_per_cycle


def _three_products(filling: str, code: int) -> str:
    """One code times each of three weights, which constants begin with, scaled by what ``filling`` puts at entry 4."""
    return f"""
        {filling} target=4 post=0
        fill bytes=1 value={code} type=i8 post=1
        wload source=constants:0 coded_bytes=3 bytes=3 post=2
        sync@mac wait=0,1
        conv emit=1 in_type=i8 weight_type=i8 out_type=i8 shape=0 multiplier=1 in_channels=1 out_width=1 \
out_height=1 channels=3 kernel_height=1 kernel_width=1 stride_y=1 stride_x=1 dilation_y=1 dilation_x=1 param=4 \
output=64 act_min=-128 act_max=127 wait=2 post=3
        store target=outputs:0 source=64 size0=3 size1=1 size2=1 wait=3
        halt"""


def test_both_forms_of_scaling_records() -> None:
    """A per-tensor scale takes 5 bytes once and 4 for each bias: results are as with full records."""
    biases = [5, -7, 9]
    full = records(biases, [1 << 30] * 3, [-1] * 3)
    short = struct.pack("<ib", 1 << 30, -1) + struct.pack("<3i", *biases)
    outputs = []
    for form, constants in (("full", full), ("bias", short)):
        text = _three_products(f"param source=constants:0 count=3 form={form}", 0)
        outputs.append(run(text, constants=constants + bytes(16), outputs=[(3,)]).outputs[0].tolist())
    assert outputs[0] == outputs[1] == [2, -2, 3]  # a quarter: halved twice, each time rounded
    assert len(short) < len(full)


def test_one_scale_fills_as_many_entries_as_records_would() -> None:
    """The same results as with a record for each channel, for none of its bytes."""
    weights, scale = np.array([3, -1, 2], "int8").tobytes(), 1 << 30
    constants = weights + bytes(13) + records([0] * 3, [scale] * 3, [-1] * 3)
    results = []
    for filling in ("param source=constants:16 count=3", f"pfill count=3 out_multiplier={scale} out_exponent=-1"):
        text = _three_products(filling, 100)
        results.append(run(text, constants=constants, outputs=[(3,)]))
    assert results[0].outputs[0].tolist() == results[1].outputs[0].tolist() == [75, -25, 50]
    assert cycles(results[1], 0) == 3 * 4 / SRAM.bytes_per_cycle


@pytest.mark.parametrize(("dtype", "wide"), [("int32", 0), ("int64", 1)])
def test_rows_are_taken_by_their_numbers(dtype: str, wide: int) -> None:
    table, places = bytes_of(60), np.array([11, 0, 4, 4], dtype)
    text = f"gather source=constants:0 indices=inputs:0 target=outputs:0 count=4 rows=12 row_bytes=5 wide={wide}\nhalt"
    result = run(text, [places], constants=table.tobytes(), inputs=[(dtype, (4,))], outputs=[("uint8", (4, 5))])
    assert (result.outputs[0] == table.reshape(12, 5)[places]).all()


@pytest.mark.parametrize("place", [-1, 12, 1 << 32])
def test_a_number_of_no_row_is_an_error(place: int) -> None:
    """Of wide ones all bits count."""
    text = "gather source=constants:0 indices=inputs:0 target=outputs:0 count=2 rows=12 row_bytes=5 wide=1\nhalt"
    places = np.array([0, place], "int64")
    with pytest.raises(InputError, match=rf"\(gather\) index {place} is out of range; allowed are 0 to 11$"):
        run(text, [places], constants=bytes(60), inputs=[("int64", (2,))], outputs=[("uint8", (2, 5))])


@pytest.mark.parametrize(("place", "row"), [(-3, 0), (0, 0), (1, 1), (2, 2), (3, 2), (1 << 30, 2)])
def test_rows_of_each_table_are_replaced(place: int, row: int) -> None:
    """The number is limited, so that all rows are in the table."""
    tables, new = bytes_of(40), bytes_of(20) + 100
    text = """\
copy source=inputs:0 target=outputs:0 bytes=40 post=0
scatter source=inputs:128 position=inputs:256 target=outputs:0 count=2 rows=4 row_bytes=5 taken=2 wait=0
halt"""
    inputs = [("uint8", (40,)), ("uint8", (20,)), ("int32", (1,))]
    found = run(text, [tables, new, np.array([place], "int32")], inputs=inputs, outputs=[("uint8", (2, 4, 5))])
    wanted = tables.reshape(2, 4, 5).copy()
    wanted[:, row : row + 2] = new.reshape(2, 2, 5)
    assert (found.outputs[0] == wanted).all()


@pytest.mark.parametrize(
    ("start", "size", "rows", "bursts"),
    [(0, 32, 9, 1), (0, 16, 9, 1), (8, 32, 1, 2), (0, 33, 1, 2), (0, 33, 32, 2), (0, 34, 16, 2), (0, 34, 17, 2),
     (0, 24, 1, 1), (0, 24, 2, 2), (31, 34, 1, 3)],
)  # fmt: skip
def test_rows_are_charged_the_most_bursts_of_any(start: int, size: int, rows: int, bursts: int) -> None:
    assert picked_bytes(start, size, rows, 5, 32) == 5 * bursts * 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gather indices=inputs:0 target=arena:0 count=0 rows=1 row_bytes=1", "takes 0 of 1 rows of 1 bytes"),
        ("gather indices=constants:0 target=arena:0 count=1 rows=1 row_bytes=1", "not with off-chip constants"),
        ("gather indices=inputs:0 target=inputs:2 count=1 rows=1 row_bytes=1", "writes 2..2 of the inputs, which it"),
        ("gather indices=inputs:0 target=arena:0 count=1 rows=9 row_bytes=8", "reads 0..71 of the constants"),
        (
            "scatter source=inputs:0 position=inputs:0 target=arena:0 count=0 rows=1 row_bytes=1 taken=1",
            "writes 1 rows to 0 tables of 1 rows of 1 bytes",
        ),
        (
            "scatter source=inputs:0 position=inputs:0 target=arena:0 count=1 rows=2 row_bytes=1 taken=1",
            "replaces rows of tables that were never written",
        ),
        ("pfill count=0", "fills no entry: count is 0"),
        ("pfill count=2 target=255", "writes 255..256 of the parameter buffer, which has 256 units"),
        ("pfill count=1 out_exponent=-32", "field out_exponent is -32, allowed: -31..31"),
        ("load source=inputs:1 size0=64 size1=1 size2=1", r"reads 1..64 of the inputs, which has 64 units"),
        ("load source=inputs:0 target=19168 size0=1 size1=1 size2=1", "writes 19168..19168 of the tile buffer"),
        ("load source=inputs:0 size0=0 size1=1 size2=1", "reads nothing: a size is 0"),
        ("load source=inputs:0 size0=1 size1=0 size2=1", "a size is 0"),
        ("load source=inputs:0 size0=1 size1=1 size2=0", "a size is 0"),
        ("load source=inputs:0 size0=4 size1=2 size2=1 tile_stride1=3", "runs of 4 bytes are written 3 bytes apart"),
        (
            "load source=inputs:0 size0=4 size1=2 size2=2 tile_stride1=4 tile_stride2=7",
            "groups of 8 bytes are written 7 bytes apart",
        ),
        ("load source=region7:0 size0=1 size1=1 size2=1", "region 7 is not bound to a memory"),
        ("load source=constants:0 size0=1 size1=1 size2=1", "with SRAM only, not with off-chip constants"),
        ("mload source=constants:0 rows=1 columns=1 group=8", "with SRAM only, not with off-chip constants"),
        ("mload source=inputs:0 rows=1 columns=1", "divides columns into groups of 0"),
        ("mload source=inputs:0 rows=2 columns=8 row_stride=60 group=8", "reads 0..67 of the inputs, which has 64"),
        ("mload source=inputs:0 rows=2 columns=8 group=8 target=16370", "writes 16370..16385 of the weight buffer"),
        ("load source=arena:0 size0=8 size1=1 size2=1", "reads 0..7 of the arena, parts of which were never written"),
        ("store target=arena:0 source=0 size0=8 size1=1 size2=1", "reads 0..7 of the tile buffer, parts of which"),
        ("copy source=inputs:0 target=constants:0 bytes=8", "writes 0..7 of the constants, which is read only"),
        ("copy source=inputs:0 target=inputs:4 bytes=8", "writes 4..11 of the inputs, which it reads itself"),
        ("copy source=inputs:0 target=arena:60 bytes=8", "writes 60..67 of the arena, which has 64 units"),
        ("copy source=constants:60 target=arena:0 bytes=8", "reads 60..67 of the constants"),
        ("wload source=constants:0 coded_bytes=8 bytes=9", "8 raw bytes cannot give 9 weights"),
        ("wload source=constants:0 coded_bytes=8 bytes=8 target=16377", "writes 16377..16384 of the weight buffer"),
        ("param source=constants:0 count=0", "loads no entry"),
        ("param source=constants:0 count=1 target=256", "writes 256..256 of the parameter buffer"),
        ("param source=constants:0 count=1", "exponent 99 of a scaling record is outside -31..31"),
        ("table source=constants:0 bytes=8 target=1049", "writes 1049..1056 of the table buffer"),
        ("fill bytes=3 type=i16", "3 bytes are not whole elements of 2 bytes"),
    ],
)
def test_what_goes_wrong_is_named(text: str, message: str) -> None:
    constants = struct.pack("<iib", 0, 0, 99) + bytes(55)
    with pytest.raises(SimulationError, match=message) as raised:
        run(f"{text}\nhalt", [bytes_of(64)], constants=constants, inputs=[("uint8", (64,))], arena=64)
    assert str(raised.value).startswith(f"instruction 0 ({text.split()[0]})")


@pytest.mark.parametrize("coding", ["raw", "rice", "huffman"])
def test_coded_weights_give_the_same_values_and_take_the_time_of_their_bytes(coding: str) -> None:
    """320 weights of one input channel, each times 1: the port carries coded bytes, the decoder all weights."""
    weights = bytes_of(320).view("i1") >> 5
    coded = encode(weights.tobytes(), [coding])
    assert coded.coding == coding
    text = f"""
        wload source=inputs:0 coding={coding} coded_bytes={len(coded.data)} bytes=320 post=0
        param source=constants:0 count=16 form=full post=1
        fill bytes=20 value=1 type=i8 post=2
        sync@mac wait=0,1
        conv emit=1 in_type=i8 weight_type=i8 out_type=i8 shape=1 multiplier=1 in_channels=20 out_width=1 \
out_height=1 channels=16 kernel_height=1 kernel_width=1 stride_y=1 stride_x=1 dilation_y=1 dilation_x=1 output=64 \
act_min=-128 act_max=127 wait=2 post=3
        store target=outputs:0 source=64 size0=16 size1=1 size2=1 wait=3
        halt"""
    constants = records([0] * 16, [1 << 30] * 16, [1] * 16)
    data = np.frombuffer(coded.data, np.uint8)
    result = run(text, [data], inputs=[("uint8", (len(data),))], constants=constants, outputs=[(16,)])
    assert result.outputs[0].tolist() == weights.reshape(20, 16).sum(0, dtype=int).tolist()
    bursts = -(-len(data) // SRAM.burst_bytes) * SRAM.burst_bytes
    moving = max(bursts / SRAM.bytes_per_cycle, 320 / NPU.decoder.symbols_per_cycle)
    assert cycles(result, 0) == SRAM.read_latency_cycles + NPU.decoder.start_cycles + moving


@pytest.mark.parametrize(("shape", "group"), [(0, 8), (1, 16), (2, 32)])
def test_a_matrix_of_sram_is_weights(shape: int, group: int) -> None:
    """Two pixels times 5 x 20 codes that lie 23 bytes apart, zero points of both sides."""
    matrix, pixels = bytes_of(5 * 23).view("i1"), np.array([[1, -2, 3, 4, -5], [100, 0, 7, -128, 9]], "i1")
    text = f"""
        mload source=inputs:0 rows=5 columns=20 row_stride=23 group={group} post=0
        param source=constants:0 count=20 form=full post=1
        load source=inputs:128 size0=10 size1=1 size2=1 post=2
        sync@mac wait=0,1
        conv emit=1 in_type=i8 weight_type=i8 out_type=i8 shape={shape} multiplier=1 in_channels=5 out_width=2 \
in_stride_x=5 out_height=1 channels=20 kernel_height=1 kernel_width=1 stride_y=1 stride_x=1 dilation_y=1 dilation_x=1 \
output=64 out_stride_x=20 in_zero=3 weight_zero=-7 act_min=-128 act_max=127 wait=2 post=3
        store target=outputs:0 source=64 size0=40 size1=1 size2=1 wait=3
        halt"""
    inputs = [matrix[: 4 * 23 + 20].view(np.uint8), pixels.reshape(-1).view(np.uint8)]
    result = run(
        text,
        inputs,
        inputs=[("uint8", (112,)), ("uint8", (10,))],
        constants=records([0] * 20, [1 << 30] * 20, [-6] * 20),
        outputs=[(40,)],
    )
    columns = matrix.reshape(5, 23)[:, :20].astype(int)
    sums = (pixels.astype(int) - 3) @ (columns + 7)
    expected = np.clip(multiply(sums.astype(np.int32), 1 << 30, -6), -128, 127)
    assert result.outputs[0].tolist() == expected.reshape(-1).tolist()
    bursts = 1 + 2 + 2 + 1 + 2  # of rows that begin at bytes 0, 23, 46, 69 and 92
    moved = bursts * SRAM.burst_bytes / SRAM.bytes_per_cycle
    assert cycles(result, 0) == SRAM.read_latency_cycles + NPU.decoder.start_cycles + moved


def test_a_damaged_stream_names_the_instruction() -> None:
    with pytest.raises(SimulationError, match=r"instruction 0 \(wload\) 8 coded bytes give 0 weights, not 9"):
        run("wload source=constants:0 coding=rice coded_bytes=8 bytes=9\nhalt", constants=b"\0" + b"\xff" * 7)


def test_the_last_byte_can_be_used() -> None:
    text = "load source=inputs:63 target=19167 size0=1 size1=1 size2=1\nhalt"
    result = run(text, [bytes_of(64)], inputs=[("uint8", (64,))])
    assert result.counters.local_peak_bytes["tile_buffer"] == NPU.local.tile_bytes


def test_one_engine_takes_two_descriptors_at_a_time() -> None:
    """The third load starts its latency when the first has moved its data; data move in order."""
    loads = [f"load source=inputs:0 target={64 * i} size0=64 size1=1 size2=1" for i in range(3)]
    result = run("\n".join([*loads, "halt"]), [bytes_of(64)], inputs=[("uint8", (64,))], memory="sram")
    assert result.trace is not None
    events = [event for event in result.trace.events if event.queue == Queue.LOAD]
    assert [event.index for event in events] == [0, 1, 2]
    assert events[2].started == events[0].ended
    assert events[1].ended >= events[0].ended + 64 / SRAM.bytes_per_cycle


@pytest.mark.parametrize(("target", "offchip", "sram"), [("npu-256", 1, 4), ("npu-512", 24 * 128 / 500, 4)])
def test_the_strict_memory_model_limits_outstanding_bursts(target: str, offchip: float, sram: float) -> None:
    npu = targets.load(target)
    text = "copy source=constants:0 target=arena:0 bytes=1280\nhalt"
    result = run(text, constants=bytes(1280), arena=1280, target=target, model="strict")
    latency = npu.offchip.read_latency_cycles + npu.sram.write_latency_cycles
    assert cycles(result, 0) == pytest.approx(latency + 1280 / min(offchip, sram))
    text = "load source=inputs:0 size0=1280 size1=1 size2=1\nhalt"
    result = run(text, [bytes_of(1280)], inputs=[("uint8", (1280,))], target=target, model="strict")
    assert cycles(result, 0) == pytest.approx(32 + 1280 / sram)
