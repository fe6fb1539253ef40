"""Every operation on the NPU gives what its tensor form means, whatever its size and whatever the target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import SSAValue

from helpers.npu_layers import Body, check, make_module, small_target, tensor_type
from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_layers import StridedCopy

TARGETS = ("npu-128", "npu-256", "npu-512")
MEMORIES = ("flash", "sram")
DTYPES = ("int8", "uint8")

shapes = st.tuples(st.integers(1, 2), st.integers(1, 13), st.integers(1, 13), st.integers(1, 40))
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, object]]:
    """An input shape, and kernel, stride, dilation and pads that give at least one result."""
    shape = draw(shapes)
    kernel, stride, dilation = draw(pairs), draw(pairs), draw(pairs)
    pads = [draw(st.integers(0, 2)) for _ in range(4)]
    for axis in (0, 1):
        missing = (kernel[axis] - 1) * dilation[axis] + 1 - shape[axis + 1] - pads[axis] - pads[axis + 2]
        pads[axis] += max(0, missing)
    return shape, {"kernel": kernel, "stride": stride, "dilation": dilation, "pads": tuple(pads)}


@settings(max_examples=40)
@given(
    case=windows(),
    channels=st.integers(1, 70),
    uniform=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    target=st.sampled_from(TARGETS),
    memory=st.sampled_from(MEMORIES),
)
def test_convolution(case, channels, uniform, dtype, target, memory) -> None:  # type: ignore[no-untyped-def]
    shape, window = case

    def build(body: Body) -> SSAValue:
        return body.conv(body.block.args[0], channels, uniform=uniform, **window)

    check(make_module(build, shape, dtype=dtype, target=target, memory=memory))


sizes = st.integers(1, 80)


@settings(max_examples=15)
@given(
    images=st.integers(1, 3),
    sizes=st.tuples(sizes, sizes, sizes),
    constant=st.sampled_from((False, False, True)),
    dtype=st.sampled_from((*DTYPES, "int16")),
    target=st.sampled_from(TARGETS),
    memory=st.sampled_from(MEMORIES),
)
def test_matmul(images, sizes, constant, dtype, target, memory) -> None:  # type: ignore[no-untyped-def]
    rows, depth, columns = sizes

    def build(body: Body) -> SSAValue:
        right = body.constant((images, 1, depth, columns), dtype) if constant else body.block.args[1]
        return body.matmul(body.block.args[0], right)

    shapes = [(images, 1, rows, depth), (images, 1, depth, columns)]
    check(make_module(build, *shapes[: 1 if constant else 2], dtype=dtype, target=target, memory=memory))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize(
    ("rows", "depth", "columns", "local"),
    [
        (70, 200, 300, {}),  # the right matrix exceeds the weight buffer
        (20, 60, 40, {"weight_bytes": 512}),  # column by column, depth in slices
        (3, 500, 20, {"tile_bytes": 1024}),  # not one row of 16-bit codes fits
        (9, 40, 500, {"param_entries": 64}),
    ],
)
def test_matmul_in_parts(
    rows: int, depth: int, columns: int, local: dict[str, int], dtype: str, tmp_path: Path
) -> None:
    target = small_target(tmp_path, **local)

    def build(body: Body) -> SSAValue:
        return body.matmul(*body.block.args)

    check(make_module(build, (2, 1, rows, depth), (2, 1, depth, columns), dtype=dtype, target=target))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_matmul_on_an_array_of_one_pixel_and_many_channels(dtype: str, tmp_path: Path) -> None:
    path = Path(small_target(tmp_path, param_entries=512))
    path.write_text(path.read_text("utf-8").replace("[[32, 8], [16, 16], [8, 32], [4, 64]]", "[[1, 256]]"), "utf-8")

    def build(body: Body) -> SSAValue:
        return body.matmul(*body.block.args)

    check(make_module(build, (2, 1, 3, 20), (2, 1, 20, 300), dtype=dtype, target=str(path)))


def test_matrices_made_in_the_same_program_wait_for_each_other() -> None:
    """Both operands are results of other layers, and the next product reads the result as its right-hand side."""

    def build(body: Body) -> SSAValue:
        x, y = body.block.args
        product = body.matmul(body.scale(x), body.softmax(y))
        return body.matmul(body.scale(x), product)

    check(make_module(build, (4, 1, 33, 33), (4, 1, 33, 33)))


@settings(max_examples=30)
@given(
    case=windows(),
    multiplier=st.integers(1, 3),
    dtype=st.sampled_from(DTYPES),
    target=st.sampled_from(TARGETS),
    memory=st.sampled_from(MEMORIES),
)
def test_depthwise(case, multiplier, dtype, target, memory) -> None:  # type: ignore[no-untyped-def]
    shape, window = case

    def build(body: Body) -> SSAValue:
        return body.conv(body.block.args[0], shape[3] * multiplier, depthwise=True, **window)

    check(make_module(build, shape, dtype=dtype, target=target, memory=memory))


@settings(max_examples=30)
@given(
    shape=shapes,
    kernel=pairs,
    stride=pairs,
    data=st.data(),
    kind=st.sampled_from(npu.PoolKind),
    dtype=st.sampled_from(DTYPES),
    target=st.sampled_from(TARGETS),
)
def test_pool(shape, kernel, stride, data, kind, dtype, target) -> None:  # type: ignore[no-untyped-def]
    kernel = (min(kernel[0], shape[1]), min(kernel[1], shape[2]))
    pads = tuple(data.draw(st.integers(0, kernel[axis % 2] - 1)) for axis in range(4))

    def build(body: Body) -> SSAValue:
        return body.pool(kind, body.block.args[0], kernel, stride, pads)

    check(make_module(build, shape, dtype=dtype, target=target))


@settings(max_examples=30)
@given(
    shape=shapes,
    ones=st.tuples(*[st.sampled_from((0, 0, 1, 2))] * 4),
    kind=st.sampled_from(npu.ElementwiseKind),
    dtype=st.sampled_from(DTYPES),
    memory=st.sampled_from(MEMORIES),
    constant=st.booleans(),
)
def test_elementwise(shape, ones, kind, dtype, memory, constant) -> None:  # type: ignore[no-untyped-def]
    """``ones``: 1 and 2 make that dimension of one of the two operands broadcast."""
    a, b = (tuple(1 if one == which else n for n, one in zip(shape, ones, strict=True)) for which in (1, 2))

    def build(body: Body) -> SSAValue:
        second = body.constant(b, dtype) if constant else body.block.args[1]
        return body.elementwise(kind, body.block.args[0], second)

    check(make_module(build, a, *([] if constant else [b]), dtype=dtype, memory=memory))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(1, 7, 7, 33), (2, 3, 20, 2100), (1, 1, 1, 5), (1, 90, 90, 3)])
def test_reductions(shape: tuple[int, ...], target: str) -> None:
    for kind in npu.ReduceKind:
        check(make_module(lambda body, k=kind: body.reduce(k, body.block.args[0]), shape, target=target))


@pytest.mark.parametrize("shape", [(1, 10), (3, 1001), (300, 21), (1, 1, 1, 2)])
def test_softmax(shape: tuple[int, ...]) -> None:
    check(make_module(lambda body: body.softmax(body.block.args[0]), shape))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 9, 9, 100), (5,), (1, 1, 1, 70_000)])
def test_unary(shape: tuple[int, ...], dtype: str) -> None:
    check(make_module(lambda body: body.scale(body.lut(body.block.args[0])), shape, dtype=dtype))


# Local memories so small that every way of cutting a layer occurs: keys of a target's [local] table.
SMALL = {"tile_bytes": 1024, "weight_bytes": 640, "accumulators": 128, "param_entries": 32, "table_bytes": 256}


@settings(max_examples=40)
@given(case=windows(), channels=st.integers(1, 90), depthwise=st.booleans(), memory=st.sampled_from(MEMORIES))
def test_small_local_memories(case, channels, depthwise, memory, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    shape, window = case
    target = small_target(tmp_path_factory.mktemp("target"), **SMALL)

    def build(body: Body) -> SSAValue:
        results = shape[3] * 2 if depthwise else channels
        return body.conv(body.block.args[0], results, depthwise=depthwise, **window)

    check(make_module(build, shape, target=target, memory=memory))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("pixels", "depth", "channels"), [(1, 1280, 1001), (3, 40_000, 7), (2, 20_000, 20), (49, 960, 160), (400, 3, 513)]
)
def test_matrix_products(pixels: int, depth: int, channels: int, target: str) -> None:
    check(make_module(lambda b: b.conv(b.block.args[0], channels, uniform=True), (1, 1, pixels, depth), target=target))


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize(
    ("shape", "stride"), [((1, 112, 112, 96), (2, 2)), ((1, 3, 5000, 8), (1, 1)), ((1, 5000, 3, 8), (1, 2))]
)
def test_wide_and_tall_images(shape: tuple[int, ...], stride: tuple[int, int], depthwise: bool) -> None:
    def build(body: Body) -> SSAValue:
        channels = shape[3] if depthwise else 16
        return body.conv(
            body.block.args[0], channels, kernel=(3, 3), stride=stride, pads=(1, 1, 1, 1), depthwise=depthwise
        )

    check(make_module(build, shape))


def residual(body: Body) -> SSAValue:
    """Two branches that meet, a pool and a classifier."""
    x = body.conv(body.block.args[0], 24, kernel=(3, 3), pads=(1, 1, 1, 1))
    y = body.conv(x, 48)
    y = body.conv(y, 48, kernel=(3, 3), pads=(1, 1, 1, 1), depthwise=True)
    y = body.conv(y, 24)
    x = body.elementwise(npu.ElementwiseKind.ADD, x, y)
    x = body.pool(npu.PoolKind.AVERAGE, x, (2, 2), (2, 2), (0, 0, 0, 0))
    x = body.reduce(npu.ReduceKind.SUM, x)
    return body.softmax(body.reshape(body.conv(x, 10), (1, 10)))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [4, 33])
def test_networks(size: int, target: str, memory: str) -> None:
    # Stripes would compute some rows twice.
    counters = check(make_module(residual, (1, size, size, 5), target=target, memory=memory, prefer="compile-time"))
    pixels = size * size
    products = 9 * 5 * 24 + 24 * 48 + 9 * 48 + 48 * 24
    assert counters.macs_useful == pixels * products + 24 * 10


def chain(body: Body, steps: list[int]) -> SSAValue:
    """Small layers one after the other, some of which join an earlier result of the same shape."""
    x = body.block.args[0]
    earlier = [x]
    for step in steps:
        depth = npu.shape_of(x)[3]
        match step:
            case 0:
                x = body.conv(x, 3 * depth % 50 + 1, kernel=(3, 3), pads=(1, 1, 1, 1))
            case 1:
                x = body.conv(x, depth, kernel=(3, 3), pads=(2, 1, 0, 3), dilation=(1, 2), depthwise=True)
            case 2:
                x = body.conv(x, 2 * depth % 70 + 1)
            case 3:
                x = body.conv(x, depth, kernel=(2, 2), stride=(2, 2), pads=(0, 0, 1, 1), uniform=True)
            case 4:
                x = body.pool(npu.PoolKind.AVERAGE, x, (3, 3), (1, 1), (1, 1, 1, 1))
            case 5:
                x = body.lut(x)
            case _:
                same = [y for y in earlier if npu.shape_of(y) == npu.shape_of(x)]
                x = body.elementwise(npu.ElementwiseKind.ADD, x, same[step % len(same)]) if same else body.scale(x)
        earlier.append(x)
    return x


@settings(max_examples=40)
@given(
    steps=st.lists(st.integers(0, 9), min_size=2, max_size=9),
    size=st.tuples(st.just(1), st.integers(1, 12), st.integers(1, 12), st.integers(1, 24)),
    target=st.sampled_from(TARGETS),
    dtype=st.sampled_from(DTYPES),
    memory=st.sampled_from(MEMORIES),
)
def test_chains_of_small_layers(steps, size, target, dtype, memory) -> None:  # type: ignore[no-untyped-def]
    check(make_module(lambda body: chain(body, steps), size, dtype=dtype, target=target, memory=memory))


def test_outputs_that_nothing_computes() -> None:
    """An input, a view of one, a constant and a result twice."""

    def build(body: Body) -> list[SSAValue]:
        x = body.block.args[0]
        y = body.lut(x)
        return [x, body.reshape(x, (4, 6)), body.constant((5,)), y, y, body.reshape(y, (24,))]

    check(make_module(build, (2, 3, 4)))


@pytest.mark.parametrize("seed", range(3))
def test_same_input_same_bytes(seed: int) -> None:
    from helpers.npu_layers import binary

    assert len({binary(make_module(residual, (1, 12, 12, 5), seed=seed)) for _ in range(2)}) == 1


def test_timing_does_not_depend_on_values() -> None:
    cycles = {check(make_module(residual, (1, 9, 9, 5), seed=seed)).cycles for seed in range(3)}
    assert len(cycles) == 1
    assert np.isfinite(cycles.pop())


@pytest.mark.parametrize("bits", [32, 64])
def test_numbers_are_moved(bits: int) -> None:
    """Places of elements, turned and two of them left out."""

    def build(body: Body) -> SSAValue:
        kinds = [TensorType(IntegerType(bits), shape) for shape in ([1, 7, 5], [1, 5, 6])]
        found = body.add(npu.ArgMaxOp(body.block.args[0], kinds[0]))
        return body.add(npu.MoveOp([found], kinds[1], copies=[StridedCopy(0, 5, 0, (5, 6), (1, 5), (6, 1))]))

    check(make_module(build, (1, 7, 5, 19)))


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("shape", [(1, 9, 9, 19), (9, 171)])
def test_what_stays_in_the_tile_buffer_is_searched_there(bits: int, shape: tuple[int, ...]) -> None:
    """It is neither loaded nor stored."""

    def build(body: Body) -> SSAValue:
        x = body.scale(body.block.args[0])
        if npu.shape_of(x) != shape:
            x = body.add(npu.ReshapeOp(x, tensor_type(shape)))
        return body.add(npu.ArgMaxOp(x, TensorType(IntegerType(bits), shape[:-1])))

    counters = check(make_module(build, (1, 9, 9, 19), memory="sram"))
    assert counters.ports["sram"].write_bytes < 9 * 9 * 19
