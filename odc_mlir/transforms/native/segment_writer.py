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
from xdsl.dialects.builtin import DictionaryAttr, FunctionType, IntegerAttr, MemRefType, StringAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue

from odc_mlir.errors import UnsupportedError
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.registry import find_kernel
from odc_mlir.transforms.native.loops import BYTES, REALS, WORDS, Loops, buffer, f32, i8, i16, i32

ALIGNMENT = 64  # bytes: one cache line, and the longest register
SLACK = 64  # bytes behind every buffer that a vector may read or write

KERNEL, OPTIONS = "native.kernel", "native.options"
"""Attributes of a declared kernel: its name, and what decides its code."""

Number = SSAValue | int
BIAS = 128  # of signed codes held as unsigned ones

ELEMENTS: dict[str, MemRefType[Attribute]] = {"int8": BYTES, "uint8": BYTES, "int32": WORDS, "float32": REALS}
_OF_ARRAYS: dict[str, Attribute] = {"uint8": i8, "int8": i8, "int16": i16, "int32": i32, "float32": f32}


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


def raised(info: TensorInfo) -> int:
    """By how much the codes of a tensor are held higher than they are."""
    return BIAS if info.dtype == "int8" else 0


@dataclass
class Constants:
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


class Segment:
    """The function of one segment: its inputs, its outputs, the arena and the constants."""

    def __init__(self, name: str, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], machine: CpuTarget):
        self.machine = machine
        parameters: dict[str, Attribute] = {f"in{i}": ELEMENTS[info.dtype] for i, info in enumerate(inputs)}
        parameters |= {f"out{i}": ELEMENTS[info.dtype] for i, info in enumerate(outputs)}
        parameters |= {"arena": BYTES, "constants": BYTES}
        self.loops = Loops(name, parameters)
        self.loops.op.properties.pop("sym_visibility")
        self.constants = Constants()
        self.declared: dict[str, func.FuncOp] = {}
        self.tensors: dict[SSAValue, SSAValue] = {}
        self.reserved: dict[SSAValue, SSAValue] = {}

    def tensor(self, value: SSAValue) -> SSAValue:
        """The buffer of a circle value."""
        return self.tensors[value]

    def result(self, value: SSAValue, info: TensorInfo) -> SSAValue:
        """A new buffer for what an operator computes."""
        found = self.reserved.get(value)
        if found is None:
            found = self.allocate(count(info), ELEMENTS[info.dtype])
        self.tensors[value] = found
        return found

    def allocate(self, elements: int, type: MemRefType[Attribute] = BYTES) -> SSAValue:
        """A buffer in the arena."""
        size = self.loops.constant(elements)
        return self.loops.emit(memref.AllocOp([size], [], type))

    def constant(self, array: NDArray[Any]) -> SSAValue:
        """A buffer that holds ``array``."""
        type = buffer(_OF_ARRAYS[array.dtype.name])
        place = self.loops.constant(self.constants.add(array))
        return self.loops.emit(memref.ViewOp(self.loops["constants"], place, [self.loops.constant(array.size)], type))

    def call(self, kernel: str, options: Mapping[str, int], **arguments: Number) -> None:
        """Call a kernel; numbers become constants of the parameter's type."""
        found = find_kernel(kernel)
        symbol = found.symbol(options)
        if symbol not in self.declared:
            self.declared[symbol] = _declaration(symbol, kernel, found.parameters, options)
        assert set(arguments) == set(found.parameters), f"{kernel}: {sorted(set(arguments) ^ set(found.parameters))}"
        values = [self.loops.number(arguments[name], type) for name, type in found.parameters.items()]
        self.loops.run(func.CallOp(symbol, values, []))


def _declaration(symbol: str, kernel: str, parameters: Mapping[str, Attribute], options: Mapping[str, int]) -> Any:
    type = FunctionType.from_lists(list(parameters.values()), [])
    op = func.FuncOp.external(symbol, list(type.inputs), [])
    op.attributes[KERNEL] = StringAttr(kernel)
    op.attributes[OPTIONS] = DictionaryAttr({name: IntegerAttr(value, i64) for name, value in options.items()})
    return op


Write = Callable[[Segment, Operation], None]
"""Writes the calls that compute an operator."""

Plan = Callable[[Node, CpuTarget], Write]
"""Checks an operator, raising OdcError with the reason where it stays on the host, and gives what writes it."""
