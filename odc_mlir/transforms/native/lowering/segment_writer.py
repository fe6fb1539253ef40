"""A segment while its function is written: buffers of tensors, packed constants, calls of kernels.

Signed 8-bit codes are held as unsigned ones that are 128 higher, from the segment's inputs to its outputs: a product of
unsigned inputs with signed weights is one instruction, and every kernel on codes exists once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import func, memref
from xdsl.dialects.builtin import DictionaryAttr, FixedBitwidthType, IntegerAttr, MemRefType, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.native_segment import ALIGNMENT_BYTES, SLACK_BYTES
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.registry import find_kernel
from odc_mlir.transforms.native.lowering.loops import BYTES, WORDS, Loops, buffer, f32, i8, i16, i32, i64

ALIGNMENT, SLACK = ALIGNMENT_BYTES, SLACK_BYTES

KERNEL, OPTIONS = "native.kernel", "native.options"
"""Attributes of a declared kernel: its name, and what decides its code."""

Number = SSAValue | int | float
BIAS = 128  # of signed codes held as unsigned ones

HELD = ("int8", "uint8", "int16", "int32", "int64", "float32", "bool")
"""Element types of tensors that segments hold."""

_OF_ARRAYS: dict[str, Attribute] = {
    "uint8": i8, "int8": i8, "bool": i8, "int16": i16, "int32": i32, "int64": i64, "float32": f32
}  # fmt: skip


def refusal(node: Node, message: str) -> UnsupportedError:
    """Why an operator stays on the host."""
    return UnsupportedError(message, op=node.spec.name, tensor=node.name)


def require_same_codes(node: Node, *infos: TensorInfo) -> None:
    """Refuse tensors whose codes do not mean the same reals: moving them would need arithmetic."""
    first = infos[0]
    for other in infos[1:]:
        if first.quant is None or other.quant is None or not first.info.is_integer:
            continue
        if (first.quant.scales, first.quant.zero_points) != (other.quant.scales, other.quant.zero_points):
            raise refusal(node, f"{first.name!r} and {other.name!r} have different scales or zero points")


def count(info: TensorInfo) -> int:
    """Elements of a tensor."""
    return math.prod(info.static_shape)


def size_bytes(info: TensorInfo) -> int:
    """Bytes of a tensor."""
    return count(info) * info.info.numpy.itemsize


def raised(info: TensorInfo) -> int:
    """By how much the codes of a tensor are held higher than they are."""
    return BIAS if info.dtype == "int8" else 0


def held_constant(segment: SegmentFunction, info: TensorInfo) -> SSAValue:
    """The bytes of a constant operand as tensors are held: signed codes are raised."""
    data = np.frombuffer(np.ascontiguousarray(info.array()).tobytes(), np.uint8)
    return segment.constant(data ^ np.uint8(raised(info)))


@dataclass
class PackedConstants:
    """Packed constants of a segment: one run of bytes, equal ones once."""

    data: bytearray = field(default_factory=bytearray)
    _places: dict[bytes, int] = field(default_factory=dict)

    def add(self, array: NDArray[Any]) -> int:
        """Where the bytes of ``array`` are."""
        raw = np.ascontiguousarray(array).tobytes()
        digest = hashlib.sha256(raw).digest()
        if digest not in self._places:
            self.data += bytes(-len(self.data) % ALIGNMENT)
            self._places[digest] = len(self.data)
            self.data += raw
        return self._places[digest]


class SegmentFunction:
    """The function of one segment: its inputs, its outputs, the arena and the constants."""

    def __init__(self, name: str, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], machine: CpuTarget):
        self.machine = machine
        names = [*(f"in{i}" for i in range(len(inputs))), *(f"out{i}" for i in range(len(outputs)))]
        parameters: dict[str, Attribute] = dict.fromkeys([*names, "arena", "constants"], BYTES)
        self.loops = Loops(name, parameters, [i32])
        self._status: SSAValue | None = None
        self.loops.op.properties.pop("sym_visibility")
        self.constants = PackedConstants()
        self.declared: dict[str, func.FuncOp] = {}
        self.tensors: dict[SSAValue, SSAValue] = {}
        self.reserved: dict[SSAValue, SSAValue] = {}
        self._bytes = {
            self.loops[name]: size_bytes(info) for name, info in zip(names, (*inputs, *outputs), strict=True)
        }

    def tensor(self, value: SSAValue) -> SSAValue:
        """The buffer of a circle value."""
        return self.tensors[value]

    def result(self, value: SSAValue, info: TensorInfo) -> SSAValue:
        """A new buffer for what an operator computes."""
        found = self.reserved.get(value)
        if found is None:
            found = self.allocate(size_bytes(info))
        self.tensors[value] = found
        return found

    def allocate(self, size: int) -> SSAValue:
        """A buffer of ``size`` bytes in the arena."""
        found = self.loops.emit(memref.AllocOp([self.loops.constant(size)], [], BYTES))
        self._bytes[found] = size
        return found

    def _seen_as(self, value: SSAValue, type: Attribute) -> SSAValue:
        """A buffer of bytes as one of other elements."""
        if value.type == type or not isinstance(type, MemRefType) or value not in self._bytes:
            return value
        assert isinstance(type.element_type, FixedBitwidthType)
        size = self.loops.constant(self._bytes[value] // type.element_type.size)
        return self.loops.emit(memref.ViewOp(value, self.loops.constant(0), [size], type))

    def constant(self, array: NDArray[Any]) -> SSAValue:
        """A buffer that holds ``array``."""
        type = buffer(_OF_ARRAYS[array.dtype.name])
        place = self.loops.constant(self.constants.add(array))
        size = self.loops.constant(array.size)
        found = self.loops.emit(memref.ViewOp(self.loops["constants"], place, [size], type))
        self._bytes[found] = array.nbytes
        return found

    @property
    def status(self) -> SSAValue:
        """A word that kernels set where a value is not allowed; the function returns it."""
        if self._status is None:
            self._status = self.allocate(4)
            self.call("fill_words", {}, output=self._status, count=1, value=0)
        return self._status

    def finish(self) -> func.FuncOp:
        """End the function, which returns 0 unless a kernel met a value that is not allowed."""
        loops = self.loops
        zero = loops.constant(0)
        found = loops.constant(0, i32) if self._status is None else loops.load(self._seen_as(self._status, WORDS), zero)
        return loops.finish(found)

    def fill(self, target: SSAValue, info: TensorInfo, value: int) -> None:
        """Equal elements, given by their bits as a signed number or code."""
        size = info.info.numpy.itemsize
        if size == 1:
            self.call("fill_bytes", {}, output=target, count=count(info), value=value - 256 if value > 127 else value)
            return
        assert size < 8 or value in (0, -1), "elements of 64 bits are filled by words"
        word = value if size > 2 else int(np.array([value, value], np.int16).view(np.int32)[0])
        self.call("fill_words", {}, output=target, count=-(-size_bytes(info) // 4), value=word)

    def call(self, kernel: str, options: Mapping[str, int], **arguments: Number) -> None:
        """Call a kernel; numbers become constants of the parameter's type."""
        found = find_kernel(kernel)
        symbol, parameters = found.symbol(options), found.parameters(options)
        if symbol not in self.declared:
            self.declared[symbol] = declaration(symbol, kernel, options)
        assert set(arguments) == set(parameters), f"{kernel}: {sorted(set(arguments) ^ set(parameters))}"
        values = [
            self._seen_as(argument, type)
            if isinstance(argument := arguments[name], SSAValue)
            else self.loops.constant(argument, type)
            for name, type in parameters.items()
        ]
        self.loops.run(func.CallOp(symbol, values, []))


def declaration(symbol: str, kernel: str, options: Mapping[str, int]) -> func.FuncOp:
    """A kernel's function still without its loops."""
    op = func.FuncOp.external(symbol, list(find_kernel(kernel).parameters(options).values()), [])
    op.attributes[KERNEL] = StringAttr(kernel)
    op.attributes[OPTIONS] = DictionaryAttr({name: IntegerAttr(value, i64) for name, value in options.items()})
    return op


Write = Callable[[SegmentFunction, Operation], None]
"""Writes the calls that compute an operator."""

CallPlanner = Callable[[Node, CpuTarget], Write]
"""Checks an operator, raising OdcError with the reason where it stays on the host, and gives what writes it."""
