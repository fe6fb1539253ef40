"""The vector engine on the simulator equals numerics, and costs what the formula says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.npu import codes, records, run
from odc_mlir import targets
from odc_mlir.errors import SimulationError
from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.codec import make
from odc_mlir.numerics.elementwise import (
    AddParams,
    MulParams,
    ScaleParams,
    add_quantized,
    mul_quantized,
    scale_quantized,
    sub_quantized,
)
from odc_mlir.numerics.fixed import requantize
from odc_mlir.numerics.int16 import (
    SigmoidParams,
    exponential_table,
    logistic16,
    look_up,
    sigmoid_table,
    softmax16_codes,
    softmax16_params,
    tanh16,
)
from odc_mlir.numerics.pooling import PoolWindows, average_pool, max_pool
from odc_mlir.numerics.softmax import softmax_codes, softmax_params
from odc_mlir.simulator import Result

NPU = targets.load("npu-256")
START, LANES = NPU.vector.start_cycles, NPU.vector.requant_lanes
OUTPUT = 8192
TYPES = {"i8": "int8", "u8": "uint8", "i16": "int16", "i32": "int32"}
ADD = AddParams(3, -2, 1, 20, 1 << 30, 0, 1518500250, -1, 1610612736, -18, -100, 101, "int8")


def simulate_one(mnemonic: str, fields: dict[str, Any], x: NDArray[Any], shape: tuple[int, ...], dtype: str) -> Result:
    """``x`` at tile byte 0, one instruction, results (dense) from OUTPUT on."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    text = "\n".join(
        [
            f"load source=inputs:0 size0={x.nbytes} size1=1 size2=1 post=0",
            format_instruction(make(mnemonic, **fields, waits=[0], posts=[1])),
            f"store target=outputs:0 source={OUTPUT} size0={size} size1=1 size2=1 wait=1",
            "halt",
        ]
    )
    return run(text, [x], inputs=[(x.dtype.name, x.shape)], outputs=[(dtype, shape)])


def cycles(result: Result, index: int = 1) -> float:
    assert result.trace is not None
    event = next(event for event in result.trace.events if event.index == index)
    return event.ended - event.started


def vop_fields(kind: str, shape: tuple[int, int, int], **changes: Any) -> dict[str, Any]:
    """Two dense int8 operands, b behind a."""
    size2, size1, size0 = shape
    strides = {"stride0": 1, "stride1": size0, "stride2": size0 * size1}
    values: dict[str, Any] = {"kind": kind, "a_type": "i8", "b_type": "i8", "out_type": "i8"}
    values |= {"size0": size0, "size1": size1, "size2": size2, "b": size0 * size1 * size2, "output": OUTPUT}
    values |= {f"{name}_{key}": value for name in "ab" for key, value in strides.items()}
    values |= {"out_stride1": size0, "out_stride2": size0 * size1, "left_shift": ADD.left_shift}
    names = ("a_zero", "b_zero", "out_zero", "act_min", "act_max")
    names += tuple(f"{n}_{part}" for n in ("a", "b", "out") for part in ("multiplier", "exponent"))
    return values | {name: getattr(ADD, name) for name in names} | changes


PRODUCT = MulParams(3, -2, 1, ADD.out_multiplier, -8, -100, 101, "int8")
RESCALE = ScaleParams(3, 1, 1610612736, 0, -100, 101, "int8")


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("add", {}, lambda a, b: add_quantized(a, b, ADD)),
        ("sub", {}, lambda a, b: sub_quantized(a, b, ADD)),
        ("mul", {"out_exponent": -8}, lambda a, b: mul_quantized(a, b, PRODUCT)),
        ("max", {}, lambda a, b: np.clip(np.maximum(a, b), -100, 101)),
        ("min", {}, lambda a, b: np.clip(np.minimum(a, b), -100, 101)),
        ("scale", {"out_multiplier": 1610612736, "out_exponent": 0}, lambda a, b: scale_quantized(a, RESCALE)),
        ("copy", {}, lambda a, b: a),
    ],
)
def test_kinds(kind: str, changes: dict[str, int], expected: Any) -> None:
    shape = (3, 4, 5)
    x = codes(np.random.default_rng(1), 2, *shape)
    result = simulate_one("vop", vop_fields(kind, shape, **changes), x, shape, "int8")
    assert (result.outputs[0] == expected(x[0], x[1])).all()
    read = 60 if kind in ("scale", "copy") else 120
    assert result.counters.ports["tile_read"].read_bytes == read + 60  # the store reads the results
    assert cycles(result) == START + 60 / LANES


@settings(deadline=None, max_examples=40)
@given(st.tuples(st.booleans(), st.booleans(), st.booleans()), st.tuples(*[st.integers(1, 5)] * 3))
def test_strides_of_zero_broadcast(keep: tuple[bool, bool, bool], shape: tuple[int, int, int]) -> None:
    small = tuple(n if kept else 1 for n, kept in zip(shape, keep, strict=True))
    rng = np.random.default_rng(2)
    a, b = codes(rng, *shape), codes(rng, *small)
    x = np.concatenate([a.reshape(-1), b.reshape(-1)])
    strides = {
        "b_stride0": int(keep[2]),
        "b_stride1": small[2] * keep[1],
        "b_stride2": small[1] * small[2] * keep[0],
    }
    result = simulate_one("vop", vop_fields("add", shape, **strides), x, shape, "int8")
    assert (result.outputs[0] == add_quantized(a, b, ADD)).all()
    read = shape[0] * shape[1] * small[2]  # every run reads its elements of b
    assert result.counters.ports["tile_read"].read_bytes == a.size * 2 + read


@pytest.mark.parametrize(("a_type", "out_type"), [("u8", "i8"), ("i16", "i8"), ("i8", "i16"), ("i32", "u8")])
def test_types(a_type: str, out_type: str) -> None:
    x = codes(np.random.default_rng(3), 12, dtype=TYPES[a_type]) // (1 if a_type != "i32" else 1 << 18)
    low, high = (0, 255) if out_type == "u8" else (-128, 127)
    fields = vop_fields("scale", (1, 1, 12), a_type=a_type, out_type=out_type, act_min=low, act_max=high)
    fields |= {"out_multiplier": 1 << 30, "out_exponent": -3}
    params = ScaleParams(3, 1, 1 << 30, -3, low, high, TYPES[out_type])
    result = simulate_one("vop", fields, x, (12,), TYPES[out_type])
    assert (result.outputs[0] == scale_quantized(x, params)).all()


def test_results_may_replace_an_operand() -> None:
    x = codes(np.random.default_rng(4), 2, 16)
    text = f"""
        load source=inputs:0 size0=32 size1=1 size2=1 post=0
        {format_instruction(make("vop", **vop_fields("add", (1, 1, 16), output=0), waits=[0], posts=[1]))}
        store target=outputs:0 source=0 size0=16 size1=1 size2=1 wait=1
        halt"""
    result = run(text, [x], inputs=[(2, 16)], outputs=[(16,)])
    assert (result.outputs[0] == add_quantized(x[0], x[1], ADD)).all()
    with pytest.raises(SimulationError, match=r"writes 8\.\.23 of the tile buffer, which it reads itself"):
        run(text.replace("output=0", "output=8").replace("out_zero", "output=8 out_zero"), [x], inputs=[(2, 16)])


TABLE_TEXT = """
    table source=constants:0 bytes=256 target=16 post=2
    load source=inputs:0 size0={size} size1=1 size2=1 post=0
    sync@vector wait=2
    {vop}
    store target=outputs:0 source=8192 size0=16 size1=1 size2=1 wait=1
    halt"""


def with_table(vop: dict[str, Any], x: NDArray[Any], table: NDArray[Any]) -> NDArray[Any]:
    text = TABLE_TEXT.format(size=x.nbytes, vop=format_instruction(make("vop", **vop, waits=[0], posts=[1])))
    result = run(text, [x], constants=table.tobytes(), inputs=[(x.dtype.name, x.shape)], outputs=[("uint8", (16,))])
    return result.outputs[0]


def test_look_up() -> None:
    """Tables are indexed by the byte of a code, whatever its type."""
    table = codes(np.random.default_rng(5), 256, dtype="uint8")
    x = codes(np.random.default_rng(6), 16)
    fields = vop_fields("lut", (1, 1, 16), out_type="u8", table=16)
    assert (with_table(fields, x, table) == table[x.view("uint8")]).all()


def test_look_up_after_arithmetic() -> None:
    table = codes(np.random.default_rng(5), 256, dtype="uint8")
    x = codes(np.random.default_rng(6), 2, 16)
    fields = vop_fields("add", (1, 1, 16), lut=1, table=16)
    expected = table[add_quantized(x[0], x[1], ADD).view("uint8")]
    assert (with_table(fields, x, table) == expected).all()


def wide_look_up(fields: dict[str, Any], table: NDArray[Any], x: NDArray[Any]) -> Result:
    text = f"""
        table source=constants:0 bytes={table.nbytes} target=16 post=2
        load source=inputs:0 size0={x.nbytes} size1=1 size2=1 post=0
        sync@vector wait=2
        {format_instruction(make("vop", **fields, waits=[0], posts=[1]))}
        store target=outputs:0 source=8192 size0={x.nbytes} size1=1 size2=1 wait=1
        halt"""
    return run(text, [x], constants=table.tobytes(), inputs=[("int16", x.shape)], outputs=[("int16", x.shape)])


def test_look_up_between_entries() -> None:
    """16-bit codes: four bytes of the table for each result, in as many turns of a lane."""
    rng = np.random.default_rng(5)
    table, x = codes(rng, 513, dtype="int16"), codes(rng, 200, dtype="int16")
    fields = vop_fields("lut", (1, 1, 200), a_type="i16", out_type="i16", table=16)
    result = wide_look_up(fields, table, x)
    assert (result.outputs[0] == look_up(table.astype(np.int64), x).astype(np.int16)).all()
    assert cycles(result, 3) == NPU.vector.start_cycles + 4 * 200 / NPU.vector.requant_lanes


@pytest.mark.parametrize(("kind", "function"), [("logistic", logistic16), ("tanh", tanh16)])
def test_sigmoids(kind: str, function: Callable[..., NDArray[Any]]) -> None:
    x, params = codes(np.random.default_rng(5), 200, dtype="int16"), SigmoidParams(20_000, 3)
    fields = vop_fields(kind, (1, 1, 200), a_type="i16", out_type="i16", table=16)
    fields |= {"a_multiplier": params.multiplier, "a_exponent": -params.shift}
    result = wide_look_up(fields, sigmoid_table().astype("<u2"), x)
    assert (result.outputs[0] == function(x, params)).all()
    assert cycles(result, 3) == NPU.vector.start_cycles + 4 * 200 / NPU.vector.requant_lanes


def test_softmax_of_16_bit_codes() -> None:
    """One pass at 4 elements a cycle, two with four bytes of the table for each."""
    x = codes(np.random.default_rng(11), 3, 20, dtype="int16")
    q, e = softmax16_params(2.0**-12, 1.0)
    table = exponential_table().astype("<i2")
    fields = {"in_type": "i16", "out_type": "i16", "in_stride": 40, "output": OUTPUT, "out_stride": 40, "table": 16}
    fields |= {"rows": 3, "columns": 20, "beta_multiplier": q, "beta_exponent": e}
    text = f"""
        table source=constants:0 bytes={table.nbytes} target=16 post=2
        load source=inputs:0 size0=120 size1=1 size2=1 post=0
        sync@vector wait=2
        {format_instruction(make("softmax", **fields, waits=[0], posts=[1]))}
        store target=outputs:0 source={OUTPUT} size0=120 size1=1 size2=1 wait=1
        halt"""
    result = run(text, [x], constants=table.tobytes(), inputs=[("int16", (3, 20))], outputs=[("int16", (3, 20))])
    assert (result.outputs[0] == softmax16_codes(x, q, e)).all()
    vector = NPU.vector
    passes = 60 / vector.softmax_elements_per_cycle + 2 * 4 * 60 / vector.requant_lanes
    assert cycles(result, 3) == vector.softmax_start_cycles + passes


def test_operand_a_from_the_accumulators() -> None:
    """A residual addition fused behind a pointwise convolution whose sums stayed in the accumulator buffer."""
    rng = np.random.default_rng(7)
    x, w = codes(rng, 6, 4), codes(rng, 4, 4)
    b = codes(rng, 6, 4)
    exponents = [-6, -7, -8, -6]
    conv = make(
        "conv", in_type="i8", weight_type="i8", shape=0, multiplier=1, in_stride_x=4, in_stride_y=24, in_channels=4,
        out_width=6, out_height=1, channels=4, kernel_height=1, kernel_width=1, stride_y=1, stride_x=1,
        dilation_y=1, dilation_x=1, accumulators=5, waits=[0, 1], posts=[2],
    )  # fmt: skip
    vop = make(
        "vop", **vop_fields("add", (1, 6, 4), accumulated=1, b=24, accumulators=5, a_zero=2), waits=[2], posts=[3]
    )
    text = f"""
        wload source=constants:0 coded_bytes=16 bytes=16
        param source=constants:16 count=4 post=0
        load source=inputs:0 size0=48 size1=1 size2=1 post=1
        {format_instruction(conv)}
        {format_instruction(vop)}
        store target=outputs:0 source={OUTPUT} size0=24 size1=1 size2=1 wait=3
        halt"""
    constants = w.T.tobytes() + records([1, 2, 3, 4], [1 << 30] * 4, exponents)
    result = run(text, [np.stack([x, b])], constants=constants, inputs=[(2, 6, 4)], outputs=[(6, 4)])
    sums = x.astype(np.int32) @ w.astype(np.int32).T + np.array([1, 2, 3, 4])
    a = requantize(sums, np.full(4, 1 << 30), np.array(exponents), 2, -128, 127, "int8")
    params = AddParams(2, *[getattr(ADD, f) for f in ADD.__slots__[1:]])
    assert (result.outputs[0] == add_quantized(a, b, params)).all()


POOLS = st.builds(
    dict,
    kind=st.sampled_from(["max", "average"]),
    dtype=st.sampled_from(["i8", "u8", "i16"]),
    height=st.integers(1, 6),
    width=st.integers(1, 6),
    channels=st.integers(1, 5),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    after=st.tuples(st.integers(0, 2), st.integers(0, 2)),
)


def pool_fields(p: dict[str, Any]) -> tuple[dict[str, Any], tuple[int, int]]:
    """Field values for an image padded (with garbage) in the tile buffer, and the number of results."""
    item = 2 if p["dtype"] == "i16" else 1
    pixel = p["channels"] * item
    total = [p[size] + p["pads"][axis] + p["after"][axis] for axis, size in enumerate(("height", "width"))]
    results = [(n - k) // s + 1 for n, k, s in zip(total, p["kernel"], p["stride"], strict=True)]
    fields = {
        "kind": p["kind"], "type": p["dtype"], "input": 0, "in_stride_x": pixel, "in_stride_y": pixel * total[1],
        "out_width": results[1], "out_height": results[0], "channels": p["channels"],
        "kernel_height": p["kernel"][0], "kernel_width": p["kernel"][1],
        "stride_y": p["stride"][0], "stride_x": p["stride"][1],
        "valid_y": p["pads"][0], "valid_x": p["pads"][1], "valid_height": p["height"], "valid_width": p["width"],
        "output": OUTPUT, "out_stride_x": pixel, "out_stride_y": pixel * results[1],
        "act_min": {"i8": -90, "u8": 10, "i16": -30000}[p["dtype"]], "act_max": 90,
    }  # fmt: skip
    return fields, (results[0], results[1])


def sensible(p: dict[str, Any]) -> bool:
    """Every window meets the image."""
    for axis, size in enumerate(("height", "width")):
        total = p[size] + p["pads"][axis] + p["after"][axis]
        if p["kernel"][axis] > total or p["pads"][axis] >= p["kernel"][axis]:
            return False
        if (total - p["kernel"][axis]) // p["stride"][axis] * p["stride"][axis] >= p["pads"][axis] + p[size]:
            return False
    return True


@settings(deadline=None, max_examples=80)
@given(POOLS.filter(sensible), st.integers(0, 5))
def test_any_pool_equals_numerics(p: dict[str, Any], seed: int) -> None:
    x = codes(np.random.default_rng(seed), p["height"], p["width"], p["channels"], dtype=TYPES[p["dtype"]])
    pads = [(p["pads"][0], p["after"][0]), (p["pads"][1], p["after"][1]), (0, 0)]
    fields, results = pool_fields(p)
    shape = (*results, p["channels"])
    got = simulate_one("pool", fields, np.pad(x, pads, constant_values=77), shape, x.dtype.name).outputs[0]
    compute = max_pool if p["kind"] == "max" else average_pool
    bounds = fields["act_min"], fields["act_max"]
    windows = PoolWindows(p["kernel"], p["stride"], p["pads"], results)
    expected = compute(x[None], windows, *bounds)[0]
    assert (got == expected).all()


def test_pool_cycles() -> None:
    p = {"kind": "max", "dtype": "i8", "height": 8, "width": 8, "channels": 16, "kernel": (3, 3), "stride": (1, 1)}
    p |= {"pads": (1, 1), "after": (1, 1)}
    fields, results = pool_fields(p)
    assert results == (8, 8)
    x = np.zeros((10, 10, 16), "int8")
    taps = 64 * 16 * 9
    assert cycles(simulate_one("pool", fields, x, (8, 8, 16), "int8")) == START + taps / NPU.vector.reduce_lanes
    fields |= {"kernel_height": 1, "kernel_width": 1, "valid_y": 0, "valid_x": 0}
    assert cycles(simulate_one("pool", fields, x, (8, 8, 16), "int8")) == START + 64 * 16 / LANES


def reduce_fields(kind: str, shape: tuple[int, int, int], **changes: Any) -> dict[str, Any]:
    height, width, channels = shape
    return {
        "kind": kind, "emit": 1, "in_type": "i8", "out_type": "i8", "input": 0, "in_stride_x": channels,
        "in_stride_y": channels * width, "width": width, "height": height, "channels": channels, "in_zero": -5,
        "out_multiplier": 1 << 30, "out_exponent": -5, "out_zero": 4, "act_min": -100, "act_max": 100,
        "output": OUTPUT,
    } | changes  # fmt: skip


def test_reduce_sum() -> None:
    x = codes(np.random.default_rng(8), 5, 7, 6)
    result = simulate_one("reduce", reduce_fields("sum", (5, 7, 6)), x, (6,), "int8")
    sums = (x.astype(np.int32) + 5).sum(axis=(0, 1), dtype=np.int32)
    assert (result.outputs[0] == requantize(sums, 1 << 30, -5, 4, -100, 100, "int8")).all()
    assert cycles(result) == START + 5 * 7 * 6 / NPU.vector.reduce_lanes


def test_reduce_max_and_argmax() -> None:
    x = codes(np.random.default_rng(9), 5, 7, 6)
    result = simulate_one("reduce", reduce_fields("max", (5, 7, 6), act_min=-128, act_max=127), x, (6,), "int8")
    assert (result.outputs[0] == x.max(axis=(0, 1))).all()
    result = simulate_one("reduce", reduce_fields("argmax", (5, 7, 6), out_type="i32"), x, (5, 7), "int32")
    assert (result.outputs[0] == x.argmax(axis=2)).all()


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_reduce_in_two_parts(kind: str) -> None:
    x = codes(np.random.default_rng(10), 4, 3, 6)
    first = make("reduce", **reduce_fields(kind, (2, 3, 6), emit=0, accumulators=9), waits=[0])
    second = make("reduce", **reduce_fields(kind, (2, 3, 6), init="keep", input=36, accumulators=9), posts=[1])
    text = "\n".join(
        [
            "load source=inputs:0 size0=72 size1=1 size2=1 post=0",
            *map(format_instruction, (first, second)),
            f"store target=outputs:0 source={OUTPUT} size0=6 size1=1 size2=1 wait=1",
            "halt",
        ]
    )
    got = run(text, [x], inputs=[(4, 3, 6)], outputs=[(6,)]).outputs[0]
    assert (got == simulate_one("reduce", reduce_fields(kind, (4, 3, 6)), x, (6,), "int8").outputs[0]).all()


def test_softmax() -> None:
    x = codes(np.random.default_rng(11), 3, 20)
    q, e, diff_min = softmax_params(0.1, 1.0)
    fields = {"in_type": "i8", "out_type": "i8", "input": 0, "in_stride": 20, "output": OUTPUT, "out_stride": 20}
    fields |= {"rows": 3, "columns": 20, "beta_multiplier": q, "beta_exponent": e, "diff_min": diff_min}
    result = simulate_one("softmax", fields, x, (3, 20), "int8")
    assert (result.outputs[0] == softmax_codes(x, q, e, diff_min, "int8")).all()
    vector = NPU.vector
    assert cycles(result) == vector.softmax_start_cycles + 3 * 60 / vector.softmax_elements_per_cycle


SIGMOID = vop_fields("tanh", (1, 1, 4), a_type="i16", out_type="i16")


@pytest.mark.parametrize(
    ("mnemonic", "fields", "message"),
    [
        ("vop", vop_fields("add", (1, 0, 4)), "computes nothing: a size is 0"),
        ("vop", vop_fields("add", (1, 1, 4), act_min=-200), "result range -200..101 is not inside -128..127"),
        ("vop", vop_fields("add", (1, 1, 4), a_exponent=40), "field a_exponent is 40, allowed: -31..31"),
        ("vop", vop_fields("mul", (1, 1, 4), out_exponent=-32), "field out_exponent is -32, allowed: -31..31"),
        ("vop", vop_fields("copy", (1, 1, 4), out_type="i16"), "copy keeps the type"),
        ("vop", vop_fields("copy", (1, 2, 4), out_stride1=2), "some of it more than once"),
        ("vop", vop_fields("copy", (1, 1, 4), a=510), "parts of which were never written"),
        ("vop", vop_fields("lut", (1, 1, 4)), "reads 0..255 of the table buffer, parts of which were never written"),
        ("vop", vop_fields("add", (1, 1, 4), accumulated=1), "accumulator buffer, parts of which were never written"),
        ("vop", vop_fields("copy", (1, 1, 4), output=19166), "writes 19166..19169 of the tile buffer"),
        ("reduce", reduce_fields("sum", (0, 1, 4)), "reduces nothing: a size is 0"),
        ("reduce", reduce_fields("sum", (1, 4, 0)), "reduces nothing: a size is 0"),
        ("reduce", reduce_fields("sum", (1, 2, 4), in_stride_x=3), "in_stride_x is 3, a pixel has 4 bytes"),
        ("reduce", reduce_fields("argmax", (1, 2, 4), emit=0), "argmax needs emit"),
        ("reduce", reduce_fields("argmax", (1, 1, 300), out_type="u8"), "an index of 300 channels does not fit uint8"),
        ("reduce", reduce_fields("sum", (1, 1, 4), in_type="i32"), "field in_type is i32, allowed: u8, i8, i16"),
        ("softmax", {"rows": 1, "columns": 0}, "computes nothing: a size is 0"),
        ("softmax", {"rows": 2, "columns": 4, "in_stride": 3}, "in_stride is 3, a row has 4 bytes"),
        ("softmax", {"rows": 1, "columns": 4, "in_type": "i16"}, "field out_type is u8, allowed: i16"),
        ("vop", vop_fields("tanh", (1, 1, 4)), "field a_type is i8, allowed: i16"),
        ("vop", SIGMOID | {"a_exponent": 1}, "field a_exponent is 1, tanh allows -31..0"),
        ("vop", SIGMOID | {"a_multiplier": 1 << 15}, "field a_multiplier is 32768, allowed: 0..32767"),
        ("vop", vop_fields("lut", (1, 1, 4), a_type="i16"), "field out_type is i8, allowed: i16"),
        ("vop", vop_fields("add", (1, 1, 4), lut=1, out_type="i16"), "only kind lut maps 16-bit codes"),
        ("pool", {"act_max": 1, "type": "i8"}, "a size, stride or kernel along y is 0"),
    ],
)
def test_what_goes_wrong_is_named(mnemonic: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        simulate_one(mnemonic, fields, np.zeros(512, "int8"), (4,), "int8")


@pytest.mark.parametrize(("changes", "axis"), [({"valid_y": 3}, "y"), ({"valid_width": 0, "valid_x": 0}, "x")])
def test_windows_outside_the_image_are_refused(changes: dict[str, int], axis: str) -> None:
    p = {"kind": "max", "dtype": "i8", "height": 3, "width": 3, "channels": 1, "kernel": (3, 3), "stride": (1, 1)}
    fields, _ = pool_fields(p | {"pads": (1, 1), "after": (1, 1)})
    with pytest.raises(SimulationError, match=f"a window along {axis} holds no pixel of the image"):
        simulate_one("pool", fields | changes, np.zeros((5, 5, 1), "int8"), (3, 3, 1), "int8")
