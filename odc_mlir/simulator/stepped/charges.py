"""What one instruction costs, read from docs/npu.md ("Time") and from nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from odc_mlir.isa.codec import split_address
from odc_mlir.isa.fields import COMMON_RECORD_BYTES, FULL_RECORD_BYTES, Region
from odc_mlir.isa.instructions import BY_MNEMONIC, TYPES
from odc_mlir.simulator.resources import Resource
from odc_mlir.targets import MemoryMode, Port, Target

Values = Mapping[str, int]
_ELEMENT_BYTES = {"u8": 1, "i8": 1, "i16": 2, "i32": 4}
_TWO_OPERANDS = ("add", "sub", "mul", "max", "min")


@dataclass
class Charge:
    """Cycles and amounts of one instruction, in the order in which they pass."""

    latency: float = 0.0
    start: float = 0.0
    shortest: float = 0.0
    amounts: dict[Resource, float] = field(default_factory=dict)
    drain: float = 0.0

    def use(self, resource: Resource, amount: float) -> None:
        """Add to what is needed of a resource."""
        self.amounts[resource] = self.amounts.get(resource, 0.0) + amount


def charge(mnemonic: str, v: Values, target: Target, memory: MemoryMode, *, strict: bool) -> Charge:
    """The cost of an instruction with field values ``v``."""
    c = Charge()
    if mnemonic in ("copy", "load", "store", "fill", "wload", "mload", "param", "table"):
        _transfer(c, mnemonic, v, _Machine(target, memory, strict))
    elif mnemonic == "conv":
        _conv(c, v, target)
    elif mnemonic != "sync":
        _vector(c, mnemonic, v, target)
    return c


@dataclass(frozen=True)
class _Machine:
    target: Target
    memory: MemoryMode
    strict: bool

    def port(self, address: int) -> tuple[Port, Resource]:
        """The port that an address lies behind."""
        if split_address(address)[0] == Region.CONSTANTS and self.memory == "flash":
            return self.target.offchip, Resource.OFFCHIP
        return self.target.sram, Resource.SRAM

    def move(self, c: Charge, address: int, runs: Iterator[tuple[int, int]], *, write: bool = False) -> None:
        """Charge latency and bursts for contiguous ``runs`` of (first byte, bytes) from ``address``."""
        port, resource = self.port(address)
        offset = split_address(address)[1]
        bursts = 0
        for first, size in runs:
            bursts += (offset + first + size - 1) // port.burst_bytes - (offset + first) // port.burst_bytes + 1
        moved = bursts * port.burst_bytes
        latency = port.write_latency_cycles if write else port.read_latency_cycles
        c.latency += latency
        c.use(resource, moved)
        if self.strict:
            in_flight = port.strict_outstanding_bursts * port.burst_bytes
            c.shortest = max(c.shortest, moved * latency / in_flight)


def _transfer(c: Charge, mnemonic: str, v: Values, m: _Machine) -> None:
    whole = v["size0"] * v["size1"] * v["size2"] if mnemonic in ("load", "store") else 0
    if mnemonic == "copy":
        m.move(c, v["source"], iter([(0, v["bytes"])]))
        m.move(c, v["target"], iter([(0, v["bytes"])]), write=True)
    elif mnemonic == "load":
        m.move(c, v["source"], _runs(v))
        rows = v["pad_before1"] + v["size1"] + v["pad_after1"]
        c.use(Resource.TILE_WRITE, v["size0"] * rows * (v["pad_before2"] + v["size2"] + v["pad_after2"]))
    elif mnemonic == "store":
        m.move(c, v["target"], _runs(v), write=True)
        c.use(Resource.TILE_READ, whole)
    elif mnemonic == "fill":
        c.use(Resource.TILE_WRITE, v["bytes"])
    elif mnemonic == "wload":
        m.move(c, v["source"], iter([(0, v["coded_bytes"])]))
        c.start = m.target.decoder.start_cycles
        c.use(Resource.DECODER, v["bytes"])
    elif mnemonic == "mload":
        _matrix(c, v, m)
    elif mnemonic == "param":
        biases = v["count"] * (FULL_RECORD_BYTES - COMMON_RECORD_BYTES)
        m.move(
            c,
            v["source"],
            iter([(0, biases + COMMON_RECORD_BYTES * (v["count"] if _name(mnemonic, "form", v) == "full" else 1))]),
        )
    else:
        m.move(c, v["source"], iter([(0, v["bytes"])]))


def _matrix(c: Charge, v: Values, m: _Machine) -> None:
    """Rows from memory; in the weight buffer, one row of one group after the other."""
    rows, columns, group, stride = v["rows"], v["columns"], v["group"], v["row_stride"]
    in_one = rows == 1 or stride == columns
    m.move(c, v["source"], iter([(0, rows * columns)] if in_one else [(row * stride, columns) for row in range(rows)]))
    c.start = m.target.decoder.start_cycles
    width = m.target.decoder.symbols_per_cycle
    for first in range(0, columns, group):
        c.use(Resource.DECODER, rows * _up(min(group, columns - first), width) * width)


def _runs(v: Values) -> Iterator[tuple[int, int]]:
    """The contiguous runs of a strided transfer, as seen from its first byte in memory."""
    size, count, stride = v["size0"], v["size1"], v["memory_stride1"]
    groups, group_stride = v["size2"], v["memory_stride2"]
    if count == 1 or stride == size:  # a group is one run
        size, count = size * count, 1
        if groups == 1 or group_stride == size:
            size, groups = size * groups, 1
    for group in range(groups):
        for run in range(count):
            yield group * group_stride + run * stride, size


def _conv(c: Charge, v: Values, target: Target) -> None:
    array, item = target.array, _ELEMENT_BYTES[TYPES[v["in_type"]]]
    width, height, n, channels = v["out_width"], v["out_height"], v["channels"], v["in_channels"]
    kh, kw, p = v["kernel_height"], v["kernel_width"], v["out_width"] * v["out_height"]
    emit, keep = bool(v["emit"]), _name("conv", "init", v) == "keep"
    pt, nt = array.depthwise_shape if v["depthwise"] else array.shapes[v["shape"]]
    if v["depthwise"]:
        tiles, k = height * _up(width, pt) * _up(n, nt), kh * kw
        span = (pt - 1) * v["stride_x"] + (kw - 1) * v["dilation_x"] + 1
        rows = _rows(height, kh, v["stride_y"], v["dilation_y"], array.depthwise_rows)
        c.use(Resource.TILE_READ, _up(width, pt) * _up(n, nt) * rows * nt * item * span)
    else:
        tiles, k = _up(p, pt) * _up(n, nt), kh * kw * channels
        adjacent = v["in_stride_x"] == channels * item and v["dilation_x"] == 1
        runs, run = (kh, kw * channels * item) if adjacent else (kh * kw, channels * item)
        fetch = target.tile_ports.fetch_bytes
        c.use(Resource.TILE_READ, tiles * pt * runs * _up(run, fetch) * fetch)
    steps = k * item * _ELEMENT_BYTES[TYPES[v["weight_type"]]]
    if keep or not emit:
        steps = max(steps, _up(pt * nt, array.accumulator_ports))
    c.start = array.start_cycles
    c.shortest = tiles * steps
    if keep:
        c.use(Resource.ACCUMULATOR_READ, p * n)
    if emit:
        c.use(Resource.REQUANT, p * n)
        c.use(Resource.TILE_WRITE, p * n * _ELEMENT_BYTES[TYPES[v["out_type"]]])
        c.drain = pt * nt / target.vector.requant_lanes
    else:
        c.use(Resource.ACCUMULATOR_WRITE, p * n)


def _rows(results: int, kernel: int, stride: int, dilation: int, held: int) -> int:
    """Input rows that pass by for one block of columns: counted one by one."""

    def different(first: int, last: int) -> int:
        return len({y * stride + tap * dilation for y in range(first, last) for tap in range(kernel)})

    if _up(kernel, stride) <= held and 1 in (stride, dilation):
        return different(0, results)
    return sum(different(y, min(y + held, results)) for y in range(0, results, held))


def _vector(c: Charge, mnemonic: str, v: Values, target: Target) -> None:
    vector = target.vector
    c.start = vector.softmax_start_cycles if mnemonic in ("softmax", "gates") else vector.start_cycles
    if mnemonic == "vop":
        _vop(c, v)
        if _looks_up_pairs(v):
            c.shortest = 4 * v["size0"] * v["size1"] * v["size2"] / vector.requant_lanes
    elif mnemonic == "pool":
        item = _ELEMENT_BYTES[TYPES[v["type"]]]
        results = v["out_width"] * v["out_height"] * v["channels"]
        taps = results * v["kernel_height"] * v["kernel_width"]
        rows = _valid(v["out_height"], v["stride_y"], v["kernel_height"], v["valid_y"], v["valid_height"])
        columns = _valid(v["out_width"], v["stride_x"], v["kernel_width"], v["valid_x"], v["valid_width"])
        c.shortest = taps / vector.reduce_lanes
        c.use(Resource.REQUANT, results)
        c.use(Resource.TILE_READ, max(taps, rows * columns * v["channels"]) * item)
        c.use(Resource.TILE_WRITE, results * item)
    elif mnemonic == "reduce":
        _reduce(c, v, target)
    elif mnemonic == "resize":
        item = _ELEMENT_BYTES[TYPES[v["type"]]]
        results = v["out_width"] * v["out_height"] * v["channels"]
        tile = v["in_width"] * v["in_height"] * v["channels"]
        blended = _name("resize", "kind", v) == "bilinear"
        c.use(Resource.REQUANT, (3 if blended else 1) * results)
        c.use(Resource.TILE_READ, max((4 if blended else 1) * results, tile) * item)
        c.use(Resource.TILE_WRITE, results * item)
    elif mnemonic == "gates":
        gates, units = 3 if v["coupled"] else 4, v["units"]
        c.shortest = 2 * (gates + 1) * units / vector.softmax_elements_per_cycle
        c.use(Resource.REQUANT, (gates + 3) * units)
        c.use(Resource.ACCUMULATOR_READ, gates * units)
        c.use(Resource.TILE_READ, 2 * (gates + 1) * units)
        c.use(Resource.TILE_WRITE, 3 * units)
    else:
        count, item = v["rows"] * v["columns"], _ELEMENT_BYTES[TYPES[v["in_type"]]]
        c.shortest = 3 * count / vector.softmax_elements_per_cycle
        if item == 2:
            c.shortest = count / vector.softmax_elements_per_cycle + 8 * count / vector.requant_lanes
        c.use(Resource.REQUANT, count)
        c.use(Resource.TILE_READ, 3 * count * item)
        c.use(Resource.TILE_WRITE, count * _ELEMENT_BYTES[TYPES[v["out_type"]]])


def _looks_up_pairs(v: Values) -> bool:
    """Whether each result of a ``vop`` is found between two entries of a table."""
    kind = _name("vop", "kind", v)
    return kind in ("logistic", "tanh") or (kind == "lut" and TYPES[v["a_type"]] == "i16")


def _vop(c: Charge, v: Values) -> None:
    runs = v["size1"] * v["size2"]
    count = runs * v["size0"]
    c.use(Resource.REQUANT, count)
    c.use(Resource.TILE_WRITE, count * _ELEMENT_BYTES[TYPES[v["out_type"]]])
    if v["accumulated"]:
        c.use(Resource.ACCUMULATOR_READ, count)
    for name in ("a", "b"):
        if (name == "a" and v["accumulated"]) or (name == "b" and _name("vop", "kind", v) not in _TWO_OPERANDS):
            continue
        elements = v["size0"] if v[f"{name}_stride0"] else 1
        c.use(Resource.TILE_READ, runs * elements * _ELEMENT_BYTES[TYPES[v[f"{name}_type"]]])


def _reduce(c: Charge, v: Values, target: Target) -> None:
    elements = v["width"] * v["height"] * v["channels"]
    argmax = _name("reduce", "kind", v) == "argmax"
    results = v["width"] * v["height"] if argmax else v["channels"]
    c.shortest = elements / target.vector.reduce_lanes
    c.use(Resource.TILE_READ, elements * _ELEMENT_BYTES[TYPES[v["in_type"]]])
    if _name("reduce", "init", v) == "keep" and not argmax:
        c.use(Resource.ACCUMULATOR_READ, v["channels"])
    if v["emit"]:
        c.use(Resource.REQUANT, results)
        c.use(Resource.TILE_WRITE, results * _ELEMENT_BYTES[TYPES[v["out_type"]]])
    else:
        c.use(Resource.ACCUMULATOR_WRITE, v["channels"])


def _valid(results: int, stride: int, kernel: int, first: int, inside: int) -> int:
    """Rows (columns) from the first valid one to the last one that a window reaches."""
    last = min((results - 1) * stride + kernel, first + inside)
    return last - first


def _name(mnemonic: str, field_name: str, v: Values) -> str:
    """The name of an enum field's value."""
    return next(f.values for f in BY_MNEMONIC[mnemonic].fields if f.name == field_name)[v[field_name]]


def _up(a: int, b: int) -> int:
    return -(-a // b)
