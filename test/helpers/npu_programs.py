"""Random NPU programs: any instructions in any order, ordered by tokens that never deadlock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from helpers.npu import pack
from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.codec import Instr, make
from odc_mlir.isa.fields import Queue, Region
from odc_mlir.simulator import Program, load
from odc_mlir.targets import MemoryMode

CONSTANT_BYTES, SRAM_BYTES = 8192, 16384
Draw = Callable[..., int]
_DTYPES = ("i8", "i16")


def random_program(
    seed: int, *, target: str = "npu-256", memory: MemoryMode = "flash", length: int = 30, compact: bool = False
) -> Program:
    """A program of about ``length`` instructions. Only its timing is meant: nothing orders its accesses."""
    rng = np.random.default_rng(seed)

    def draw(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    makers = [_MAKERS[draw(0, len(_MAKERS) - 1)] for _ in range(draw(1, 4))]  # few kinds meet each other often
    program = [makers[draw(0, len(makers) - 1)](draw) for _ in range(length)]
    _tokens(program, draw)
    if draw(0, 3) == 0:
        program = _looped(program, draw)
    text = "\n".join(map(format_instruction, [*program, make("halt")]))
    sizes: dict[str, Any] = {"inputs": [("uint8", (SRAM_BYTES,))], "outputs": [("uint8", (SRAM_BYTES,))]}
    sizes |= {"constants": bytes(CONSTANT_BYTES), "arena": SRAM_BYTES}
    return load(pack(text, target=target, memory=memory, compact=compact, **sizes))


def _address(region: Region, offset: int) -> int:
    return int(region) << 28 | offset


def _copy(draw: Draw) -> Instr:
    regions = (Region.CONSTANTS, Region.INPUTS)
    return make(
        "copy",
        source=_address(regions[draw(0, 1)], draw(0, 4000)),
        target=_address(Region.ARENA, draw(0, 4000)),
        bytes=draw(1, 1500),
    )


def _strided(draw: Draw) -> dict[str, int]:
    size, runs, groups = draw(1, 60), draw(1, 6), draw(1, 4)
    stride1 = size + draw(0, 1) * draw(0, 40)
    stride2 = (runs - 1) * stride1 + size + draw(0, 1) * draw(0, 40)
    return {"size0": size, "size1": runs, "size2": groups, "memory_stride1": stride1, "memory_stride2": stride2}


def _load(draw: Draw) -> Instr:
    fields = _strided(draw)
    pads = {name: draw(0, 2) for name in ("pad_before1", "pad_after1", "pad_before2", "pad_after2")}
    stride1 = fields["size0"] + draw(0, 3)
    source = _address(Region.INPUTS, draw(0, 2000))
    return make("load", source=source, tile_stride1=stride1, tile_stride2=stride1 * 11, **fields, **pads)


def _store(draw: Draw) -> Instr:
    fields = _strided(draw)
    target = _address(Region.OUTPUTS, draw(0, 2000))
    return make("store", target=target, tile_stride1=fields["size0"], tile_stride2=draw(0, 600), **fields)


def _fill(draw: Draw) -> Instr:
    return make("fill", target=draw(0, 9), bytes=draw(1, 4000))


def _wload(draw: Draw) -> Instr:
    size = draw(1, 2000)
    return make("wload", source=draw(0, 6000), coded_bytes=size, bytes=size)


def _mload(draw: Draw) -> Instr:
    rows, columns = draw(1, 20), draw(1, 80)
    stride, source = draw(0, 1) * (columns + draw(0, 30)), _address(Region.INPUTS, draw(0, 2000))
    return make("mload", source=source, rows=rows, columns=columns, row_stride=stride, group=8 << draw(0, 3))


def _param(draw: Draw) -> Instr:
    return make("param", source=draw(0, 6000), count=draw(1, 120), form=draw(0, 1))


def _table(draw: Draw) -> Instr:
    return make("table", source=draw(0, 6000), bytes=draw(1, 512))


def _conv(draw: Draw) -> Instr:
    depthwise, kind = draw(0, 1), _DTYPES[draw(0, 1)]
    channels, item = draw(1, 24), 1 + (kind == "i16")
    window = {f"{name}_{axis}": draw(1, 2) for name in ("stride", "dilation") for axis in "xy"}
    kh, kw = draw(1, 4), draw(1, 3)
    height, width = draw(1, 4), draw(1, 8)
    columns = (width - 1) * window["stride_x"] + (kw - 1) * window["dilation_x"] + 1
    stride_x = channels * item + draw(0, 1) * 4
    fields: dict[str, Any] = window | {
        "depthwise": depthwise, "init": draw(0, 2), "emit": draw(0, 1), "in_type": kind,
        "weight_type": kind if draw(0, 1) else "i8", "wide": draw(0, 1) if kind == "i16" else 0,
        "out_type": _DTYPES[draw(0, 1)], "shape": draw(0, 3), "multiplier": 1, "in_stride_x": stride_x,
        "in_stride_y": stride_x * columns, "in_channels": channels, "out_width": width, "out_height": height,
        "channels": channels if depthwise else draw(1, 30), "kernel_height": kh, "kernel_width": kw,
        "act_min": -1, "act_max": 1, "out_stride_x": 60, "out_stride_y": 600,
    }  # fmt: skip
    return make("conv", **fields)


def _vop(draw: Draw) -> Instr:
    sizes = draw(1, 40), draw(1, 6), draw(1, 4)
    kind, dtype = ("add", "max", "copy", "lut", "logistic", "tanh")[draw(0, 5)], _DTYPES[draw(0, 1)]
    if kind in ("logistic", "tanh"):
        dtype = "i16"
    run = sizes[0] * (1 + (dtype == "i16"))
    strides = {f"{n}_stride0": draw(0, 1) for n in "ab"} | {f"{n}_stride1": draw(0, 1) * run for n in "ab"}
    fields: dict[str, Any] = strides | {
        "kind": kind, "accumulated": draw(0, 1), "a_type": dtype, "b_type": dtype,
        "out_type": dtype, "size0": sizes[0], "size1": sizes[1], "size2": sizes[2], "out_stride1": run,
        "out_stride2": run * sizes[1], "act_min": -1, "act_max": 1, "output": 4096,
    }  # fmt: skip
    return make("vop", **fields)


def _pool(draw: Draw) -> Instr:
    kh, kw, sy, sx = draw(1, 3), draw(1, 3), draw(1, 4), draw(1, 4)
    height, width, channels = draw(1, 4), draw(1, 6), draw(1, 20)
    columns = (width - 1) * sx + kw
    fields: dict[str, Any] = {
        "kind": "max", "type": "i8", "in_stride_x": channels, "in_stride_y": channels * columns, "out_width": width,
        "out_height": height, "channels": channels, "kernel_height": kh, "kernel_width": kw, "stride_y": sy,
        "stride_x": sx, "valid_x": draw(0, kw - 1), "valid_y": draw(0, kh - 1), "valid_width": draw(1, 9) + columns,
        "valid_height": (height - 1) * sy + 1, "act_min": -1, "act_max": 1, "out_stride_x": channels,
        "out_stride_y": channels * width, "output": 4096,
    }  # fmt: skip
    return make("pool", **fields)


def _reduce(draw: Draw) -> Instr:
    kind = ("sum", "max", "argmax")[draw(0, 2)]
    channels, width, kept = draw(1, 30), draw(1, 9), kind != "argmax"
    fields: dict[str, Any] = {
        "kind": kind, "init": draw(0, 1) if kept else 0, "emit": draw(0, 1) if kept else 1, "in_type": "i8",
        "out_type": "i8", "in_stride_x": channels, "in_stride_y": channels * width, "width": width,
        "height": draw(1, 5), "channels": channels, "act_min": -1, "act_max": 1, "output": 4096,
    }  # fmt: skip
    return make("reduce", **fields)


def _softmax(draw: Draw) -> Instr:
    columns = draw(1, 50)
    kind = _DTYPES[draw(0, 1)]
    row = columns * (1 + (kind == "i16"))
    fields: dict[str, Any] = {"in_type": kind, "out_type": kind, "rows": draw(1, 5), "columns": columns}
    return make("softmax", in_stride=row, out_stride=row, output=4096, **fields)


def _gates(draw: Draw) -> Instr:
    units = draw(1, 40)
    fields = {"units": units, "cell": 1024, "hidden": 4096, "coupled": draw(0, 1), "cell_exponent": -draw(9, 15)}
    return make("gates", accumulators=draw(0, 100), **fields)


def _resize(draw: Draw) -> Instr:
    kind, dtype = ("nearest", "bilinear")[draw(0, 1)], _DTYPES[draw(0, 1)]
    if kind == "bilinear":
        dtype = "i8"
    width, out_width, pixel = draw(1, 6), draw(1, 9), draw(1, 20) * (1 + (dtype == "i16"))
    fields: dict[str, Any] = {
        "kind": kind, "type": dtype, "in_stride_x": pixel, "in_stride_y": pixel * width, "in_width": width,
        "in_height": draw(1, 4), "step_x": 400 << 14, "step_y": 900 << 14, "out_width": out_width,
        "out_height": draw(1, 5), "channels": pixel // (1 + (dtype == "i16")), "output": 4096, "out_stride_x": pixel,
        "out_stride_y": pixel * out_width,
    }  # fmt: skip
    return make("resize", **fields)


def _sync(draw: Draw) -> Instr:
    return make("sync", queue=list(Queue)[draw(0, len(Queue) - 1)])


_MAKERS = (
    _copy, _load, _store, _fill, _wload, _mload, _param, _table, _conv, _vop, _pool, _reduce, _softmax, _gates, _resize,
    _sync,
)  # fmt: skip
MNEMONICS = tuple(maker.__name__.removeprefix("_") for maker in _MAKERS)


def _tokens(program: list[Instr], draw: Draw) -> None:
    """Let some instructions wait for earlier ones: no token is waited for before it is posted, none is left over."""
    for semaphore in range(draw(0, 12)):
        first, second = sorted((draw(0, len(program) - 1), draw(0, len(program) - 1)))
        poster, waiter = program[first], program[second]
        if first < second and len(poster.posts) < 2 and len(waiter.waits) < 2:
            poster.posts += (semaphore,)
            waiter.waits += (semaphore,)


def _looped(program: list[Instr], draw: Draw) -> list[Instr]:
    """The same, in a loop; what ran in one turn ends before the next one begins only where tokens say so."""
    size = sum(instr.size_bytes for instr in program)
    return [make("loop", count=draw(2, 4), body_bytes=size), *program, make("end")]
