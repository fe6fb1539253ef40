"""Resized images on the NPU: tiles of rows, columns and channels, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.npu_layers import Body, binary, check, make_module, schedule, tensor_type
from odc_mlir import targets
from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_isa import BufferOp
from odc_mlir.dialects.npu_memory import BufferType
from odc_mlir.dialects.npu_program import ProgramOp
from odc_mlir.errors import CompileError
from odc_mlir.numerics.resize import Lines, bilinear_lines, nearest_line, resize_bilinear
from odc_mlir.simulator import load, simulate
from odc_mlir.transforms.npu.schedule.resize_stream import plan_resize
from odc_mlir.transforms.partition.plans.costs import OperatorCost, segment_cycles

NEAREST, BILINEAR = npu.ResizeKind.NEAREST, npu.ResizeKind.BILINEAR
HALF, ALIGN = (False, True), (True, False)


def module_of(
    kind: npu.ResizeKind,
    shape: tuple[int, int, int, int],
    size: tuple[int, int],
    modes: tuple[bool, bool] = HALF,
    *,
    before: Callable[[Body], SSAValue] | None = None,
    after: Callable[[Body, SSAValue], SSAValue] | None = None,
    **how: Any,
) -> ModuleOp:
    """A program of one resized image, of what comes ``before`` it, and of what is made of it ``after`` it."""
    dtype = how.get("dtype", "int8")
    batch, height, width, channels = shape
    lines: Lines | None
    if kind is BILINEAR:
        lines = bilinear_lines((height, width), size, dtype, *modes)
    else:
        rows, columns = (nearest_line(a, b, *modes) for a, b in zip((height, width), size, strict=True))
        lines = Lines(rows, columns) if rows and columns else None
    assert lines is not None

    def build(body: Body) -> Any:
        x = body.block.args[0] if before is None else before(body)
        made = body.add(npu.ResizeOp(kind, x, tensor_type((batch, *size, channels), dtype), lines))
        return made if after is None else after(body, made)

    return make_module(build, shape, **how)


@pytest.mark.parametrize("kind", [NEAREST, BILINEAR])
@pytest.mark.parametrize(
    ("shape", "size", "how"),
    [
        ((1, 1, 1, 1), (1, 1), {}),
        ((2, 3, 5, 7), (11, 4), {}),
        ((1, 9, 9, 21), (65, 65), {"modes": ALIGN, "dtype": "uint8"}),  # rows do not fit: columns are cut
        ((1, 4, 4, 3), (8, 8), {"modes": (False, False), "dtype": "uint8", "memory": "sram"}),
        ((1, 2, 2, 5000), (3, 3), {}),  # a pixel does not fit: channels are cut
        ((1, 40, 30, 16), (13, 9), {"target": "npu-128"}),
        ((2, 5, 3, 7), (10, 12), {"dtype": "int16"}),
        ((1, 1, 1, 3), (13, 9), {"dtype": "int16"}),
        ((1, 9, 9, 21), (65, 65), {"modes": ALIGN, "dtype": "int16"}),
        ((1, 2, 2, 3000), (4, 4), {"dtype": "int16"}),
    ],
)
def test_images(
    kind: npu.ResizeKind, shape: tuple[int, int, int, int], size: tuple[int, int], how: dict[str, Any]
) -> None:
    check(module_of(kind, shape, size, **how))


def _layer(body: Body) -> SSAValue:
    return body.conv(body.block.args[0], npu.shape_of(body.block.args[0])[3])


def _padded(body: Body, x: SSAValue) -> SSAValue:
    """Two readers that want padding around what they read, and one that resizes."""
    first = body.conv(x, 8, kernel=(3, 3), pads=(1, 1, 1, 1))
    return body.elementwise(npu.ElementwiseKind.ADD, first, body.conv(x, 8))


def _inner_tensors(program: ProgramOp) -> list[str]:
    """Those that are stored to SRAM and loaded again."""
    buffers = [op for op in program.block.ops if isinstance(op, BufferOp) and op.takes is None and op.gives is None]
    return [
        op.label.data for op in buffers if isinstance(op.buffer.type, BufferType) and op.buffer.type.space == "arena"
    ]


@pytest.mark.parametrize("kind", [NEAREST, BILINEAR])
@pytest.mark.parametrize(("before", "after"), [(_layer, None), (None, _padded), (_layer, _padded)])
def test_images_between_layers_stay_in_the_tile_buffer(kind: npu.ResizeKind, before: Any, after: Any) -> None:
    """Whether they are resized or made so, with the padding that readers want around them."""
    for memory in ("flash", "sram"):
        how: dict[str, Any] = {"before": before, "after": after, "memory": memory}
        check(module_of(kind, (1, 5, 6, 16), (10, 13), **how))
    assert not _inner_tensors(schedule(module_of(kind, (1, 5, 6, 16), (10, 13), **how)))


def test_an_image_that_is_too_large_to_stay_is_stored() -> None:
    """Without stripes, which would keep parts of it."""
    how: dict[str, Any] = {"before": _layer, "memory": "sram", "prefer": "compile-time"}
    check(module_of(NEAREST, (1, 40, 30, 16), (13, 9), **how))
    assert len(_inner_tensors(schedule(module_of(NEAREST, (1, 40, 30, 16), (13, 9), **how)))) == 1


def test_pixels_of_16_bits_take_the_turns_of_8_bits() -> None:
    check(module_of(NEAREST, (1, 5, 6, 40), (12, 13), dtype="int16"))
    short, wide = (check(module_of(BILINEAR, (1, 10, 10, 64), (20, 20), dtype=dtype)) for dtype in ("int8", "int16"))
    assert short.cycles < wide.cycles < 1.2 * short.cycles


@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(*[st.sampled_from([1, 2, 4, 8, 16])] * 2),
    st.sampled_from([HALF, ALIGN, (False, False)]),
    st.booleans(),
)
def test_pixels_of_16_bits_are_those_of_the_host(
    source: tuple[int, int], factors: tuple[int, int], modes: tuple[bool, bool], smaller: bool
) -> None:
    """Larger and smaller images, of random codes and of the smallest and the largest."""
    ends = modes == ALIGN
    height, width = ((length - ends) * factor + ends for length, factor in zip(source, factors, strict=True))
    source, size = ((height, width), source) if smaller else (source, (height, width))
    module = module_of(BILINEAR, (2, *source, 3), size, modes, dtype="int16")
    x = np.random.default_rng(source[0] * source[1]).integers(-32768, 32768, (2, *source, 3)).astype(np.int16)
    x[1] = np.where(x[1] < 0, -32768, 32767)
    (found,) = simulate(load(binary(module)), [x]).outputs
    np.testing.assert_array_equal(found, resize_bilinear(x, size, *modes))


def test_a_pixel_that_does_not_fit_is_refused() -> None:
    target = targets.load("npu-256")
    (op,) = (op for op in module_of(BILINEAR, (1, 4, 4, 3), (8, 8)).walk() if isinstance(op, npu.ResizeOp))
    with pytest.raises(CompileError, match="24 bytes of the tile buffer are too few to resize an image in"):
        plan_resize(op, target, 24)


@pytest.mark.parametrize(
    ("kind", "shape", "size"),
    [
        (BILINEAR, (1, 20, 20, 64), (40, 40)),
        (BILINEAR, (1, 17, 17, 21), (65, 65)),
        (NEAREST, (1, 20, 20, 64), (40, 40)),
        (NEAREST, (1, 14, 14, 5), (35, 49)),
    ],
)
def test_the_estimate_is_near_the_cycles(
    kind: npu.ResizeKind, shape: tuple[int, int, int, int], size: tuple[int, int]
) -> None:
    target, module = targets.load("npu-256"), module_of(kind, shape, size, memory="sram")
    (op,) = (op for op in module.walk() if isinstance(op, npu.ResizeOp))
    plan = plan_resize(op, target, target.local.tile_bytes)
    estimate = segment_cycles(target, "sram")([OperatorCost(plan.cycles, plan.program_bytes)])
    cycles = check(module).cycles
    floor = np.prod(npu.shape_of(op.output)) * (3 if kind is BILINEAR else 1) / target.vector.requant_lanes
    assert estimate == pytest.approx(cycles, rel=0.15)
    assert cycles < 2.2 * floor
