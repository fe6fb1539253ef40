"""Random NPU programs: any instructions in any order, ordered by tokens that never deadlock.

Instructions are made from the table: fields get random values that they hold, and what the simulator refuses is drawn
again. So an instruction is in random programs as soon as it is in the table and runs. A few whose geometry has to fit
together are made by hand besides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from helpers.npu import pack
from odc_mlir import targets
from odc_mlir.errors import SimulationError
from odc_mlir.isa.assembly import format_instruction
from odc_mlir.isa.codec import Instr, make
from odc_mlir.isa.fields import Field, Instruction, Kind, Queue, Region
from odc_mlir.isa.instructions import BY_MNEMONIC, INSTRUCTIONS
from odc_mlir.simulator import Program, load
from odc_mlir.simulator.counters import PortBytes
from odc_mlir.simulator.engines import executors
from odc_mlir.simulator.engines.machine import Machine
from odc_mlir.simulator.memories import Access, Memories
from odc_mlir.simulator.resources import Resource
from odc_mlir.targets import MemoryMode

CONSTANT_BYTES, SRAM_BYTES = 8192, 16384
_DTYPES = ("i8", "i16")
SAMPLES, ATTEMPTS = 40, 50_000  # of an instruction, and how often is drawn for them at most
STEPS, FIELDS_KEPT = 3, 6  # from one sample to the next, and of how many fields one changes in a step
Draw = Callable[..., int]

SMALLEST = targets.load("npu-128")  # what it takes, all targets take
REGIONS = {int(region): SRAM_BYTES for region in (Region.ARENA, Region.INPUTS, Region.OUTPUTS)}
# Largest random value of a number by the bits of its field; of addresses, by their memory.
WIDE_BITS = 16
LARGEST_NUMBERS = {8: 5, 12: 9, 16: 600, 32: 2000}
LARGEST_ADDRESSES = {Kind.MEMORY: 4000, Kind.TILE: 4000, Kind.WEIGHT: 999, Kind.ACCUMULATOR: 99}
# Those that queues and programs are made of; all others are drawn.
CONTROL = tuple(spec.mnemonic for spec in INSTRUCTIONS if spec.queue is Queue.FETCH)
MNEMONICS = tuple(spec.mnemonic for spec in INSTRUCTIONS if spec.mnemonic not in CONTROL)


def random_program(
    seed: int, *, target: str = "npu-256", memory: MemoryMode = "flash", length: int = 30, compact: bool = False
) -> Program:
    """A program of about ``length`` instructions. Only its timing is meant: nothing orders its accesses."""
    rng = np.random.default_rng(seed)

    def draw(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    kinds = [MNEMONICS[draw(0, len(MNEMONICS) - 1)] for _ in range(draw(1, 4))]  # few kinds meet each other often
    program = [_drawn(kinds[draw(0, len(kinds) - 1)], draw) for _ in range(length)]
    _tokens(program, draw)
    if draw(0, 3) == 0:
        program = _looped(program, draw)
    text = "\n".join(map(format_instruction, [*program, make("halt")]))
    sizes: dict[str, Any] = {"inputs": [("uint8", (SRAM_BYTES,))], "outputs": [("uint8", (SRAM_BYTES,))]}
    sizes |= {"constants": bytes(CONSTANT_BYTES), "arena": SRAM_BYTES}
    return load(pack(text, target=target, memory=memory, compact=compact, **sizes))


def instances(mnemonic: str) -> tuple[Instr, ...]:
    """Instances of an instruction, random ones and those made by hand."""
    rng = np.random.default_rng(BY_MNEMONIC[mnemonic].opcode)

    def draw(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    made = [_MAKERS[mnemonic](draw) for _ in range(SAMPLES)] if mnemonic in _MAKERS else []
    return (*samples(mnemonic), *made)


def _drawn(mnemonic: str, draw: Draw) -> Instr:
    """An instance of an instruction, in a random queue where any runs it."""
    if mnemonic in _MAKERS and draw(0, 4):
        return _MAKERS[mnemonic](draw)
    chosen = samples(mnemonic)[draw(0, SAMPLES - 1)]
    queue = list(Queue)[draw(0, len(Queue) - 1)] if chosen.spec.queue is None else chosen.queue
    return Instr(chosen.spec, dict(chosen.values), (), (), queue, None)


@cache
def samples(mnemonic: str) -> tuple[Instr, ...]:
    """Instances of an instruction with random fields that all targets run.

    Few random fields go together: from the first that do, others are reached by drawing some fields again.
    """
    spec = BY_MNEMONIC[mnemonic]
    rng = np.random.default_rng(spec.opcode)
    values: dict[str, int] = {}
    found: list[Instr] = []
    steps = 0
    for _ in range(ATTEMPTS):
        other = _fields(spec, rng)
        if values:
            other = {name: new if rng.integers(FIELDS_KEPT) == 0 else values[name] for name, new in other.items()}
        if not _runs(spec, other) or (_extent(spec, other) < _extent(spec, values or other) and rng.integers(3)):
            continue
        values, steps = other, steps + 1
        if steps % STEPS == 0:
            found.append(make(mnemonic, **values))
        if len(found) == SAMPLES:
            return tuple(found)
    raise AssertionError(f"of {ATTEMPTS} random instances of {mnemonic} only {steps} run")


def _extent(spec: Instruction, values: dict[str, int]) -> int:
    """How large an instance is: small ones run more often, large ones have more to show."""
    return sum(values[field.name].bit_length() for field in spec.fields if field.kind is Kind.INT and not field.signed)


def _fields(spec: Instruction, rng: np.random.Generator) -> dict[str, int]:
    """Random values of all fields. Half of the larger numbers are products of others, as strides mostly are."""
    values: dict[str, int] = {}
    numbers: list[int] = []
    for index in rng.permutation(len(spec.fields)):
        field = spec.fields[index]
        value = _value(field, rng)
        if field.kind is Kind.INT and not field.signed:
            if numbers and field.bits >= WIDE_BITS and rng.integers(2):
                value = min(field.range[1], int(np.prod(rng.choice(numbers, int(rng.integers(1, 4))))))
            numbers.append(value)
        values[field.name] = value
    return values


def _value(field: Field, rng: np.random.Generator) -> int:
    """A value of a field: small numbers more often than large ones, of signed fields around 0."""
    low, high = field.range
    if field.kind in (Kind.ENUM, Kind.FLAG) or high - low < 4:
        return int(rng.integers(low, high + 1))
    if field.kind is Kind.MEMORY:
        region = Region(int(rng.integers(int(field.in_sram), len(Region))))
        return int(region) << 28 | int(rng.integers(LARGEST_ADDRESSES[Kind.MEMORY]))
    if field.kind.is_address:
        return int(rng.integers(LARGEST_ADDRESSES.get(field.kind, 9)))
    largest = next(most for bits, most in LARGEST_NUMBERS.items() if field.bits <= bits)
    if field.signed:
        return int(rng.integers(-min(16, -low), min(16, high) + 1))
    if field.default and rng.integers(2):
        return field.default
    return int(np.exp(rng.uniform(0, np.log(min(largest, high) + 1)))) - int(rng.integers(16) == 0)


def _runs(spec: Instruction, values: dict[str, int]) -> bool:
    """Whether the simulator takes an instruction."""
    if spec.mnemonic not in executors():
        return True
    access = Access({resource: PortBytes() for resource in Resource}, check=False, strict=False)
    memories = Memories(SMALLEST, "flash", bytes(CONSTANT_BYTES), REGIONS, execute=False)
    try:
        executors()[spec.mnemonic](Machine(SMALLEST, "flash", memories, access, False, {}), values)
    except SimulationError:
        return False
    return True


def _address(region: Region, offset: int) -> int:
    return int(region) << 28 | offset


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


def _resize(draw: Draw) -> Instr:
    kind, dtype = ("nearest", "bilinear")[draw(0, 1)], _DTYPES[draw(0, 1)]
    width, out_width, pixel = draw(1, 6), draw(1, 9), draw(1, 20) * (1 + (dtype == "i16"))
    fields: dict[str, Any] = {
        "kind": kind, "type": dtype, "in_stride_x": pixel, "in_stride_y": pixel * width, "in_width": width,
        "in_height": draw(1, 4), "step_x": 400 << 14, "step_y": 900 << 14, "out_width": out_width,
        "out_height": draw(1, 5), "channels": pixel // (1 + (dtype == "i16")), "output": 4096, "out_stride_x": pixel,
        "out_stride_y": pixel * out_width,
    }  # fmt: skip
    return make("resize", **fields)


# Geometries that fit together, which fields drawn one by one seldom do.
_MAKERS: dict[str, Callable[[Draw], Instr]] = {
    "load": _load, "store": _store, "conv": _conv, "vop": _vop, "pool": _pool, "reduce": _reduce, "resize": _resize,
}  # fmt: skip


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
