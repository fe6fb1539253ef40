"""Lowering of circle operators to calls of kernels: the function of a segment, and the base of the patterns.

Tensors are flat buffers of bytes. Inside a segment, signed 8-bit values are stored as unsigned values with an offset of
128. An instruction can then multiply unsigned inputs by signed weights, and a kernel serves both types.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import func, memref
from xdsl.dialects.builtin import (
    DictionaryAttr,
    FixedBitwidthType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    UnrealizedConversionCastOp,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects.circle import CircleOp, ConstOp, info_of, node_of
from odc_mlir.dialects.native_attributes import KERNEL, OPTIONS
from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.native_segment import ALIGNMENT_BYTES, SLACK_BYTES
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.processors import CpuTarget
from odc_mlir.transforms.common.conversion import LoweringPattern
from odc_mlir.transforms.native.kernels.loops import BYTES, STORED, WORDS, Loops, buffer
from odc_mlir.transforms.native.kernels.registry import Kernel, find_kernel

ALIGNMENT, SLACK = ALIGNMENT_BYTES, SLACK_BYTES

Array = NDArray[Any]
Number = SSAValue | int | float
Argument = Number | Array | TensorInfo
BIAS = 128
"""Offset of stored 8-bit signed values."""


def refusal(node: Node, message: str) -> UnsupportedError:
    """Return the error for an operator that stays on the host."""
    return UnsupportedError(message, op=node.spec.name, tensor=node.name)


def require_same_codes(node: Node, *infos: TensorInfo) -> None:
    """Refuse tensors with different scales or zero points, because moves between such tensors need arithmetic."""
    first = infos[0]
    for other in infos[1:]:
        if first.quant is None or other.quant is None or not first.info.is_integer:
            continue
        if not first.quant.agrees(other.quant):
            raise refusal(node, f"{first.name!r} and {other.name!r} have different scales or zero points")


def count(info: TensorInfo) -> int:
    """Return the number of elements of a tensor."""
    return math.prod(info.static_shape)


def size_bytes(info: TensorInfo) -> int:
    """Return the size of a tensor in bytes."""
    return count(info) * info.info.numpy.itemsize


def repeated_word(value: int, item_bytes: int) -> int:
    """Return the word, as a signed number, whose elements are all ``value``."""
    return int(np.repeat(np.array(value).astype(f"u{item_bytes}"), 4 // item_bytes).view(np.int32)[0])


def sign_offset(info: TensorInfo) -> int:
    """Return the offset of a tensor's stored elements, which is 0 for most types."""
    return BIAS if info.dtype == "int8" else 0


class SegmentFunction:
    """Function of a segment with inputs, outputs, arena and constants as parameters.

    While a pattern lowers an operator, :meth:`operand` and :meth:`result` return buffers of the operator.
    """

    def __init__(self, name: str, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], machine: CpuTarget):
        self.machine = machine
        names = [*(f"in{i}" for i in range(len(inputs))), *(f"out{i}" for i in range(len(outputs)))]
        parameters: dict[str, Attribute] = dict.fromkeys([*names, "arena", "constants"], BYTES)
        self.loops = Loops(name, parameters, [i32])
        self._status: SSAValue | None = None
        self.loops.op.properties.pop("sym_visibility")
        self.constants = bytearray()  # all constants; equal constants share their bytes
        self._places: dict[bytes, int] = {}
        self.declared: dict[str, func.FuncOp] = {}
        self.reserved: dict[SSAValue, SSAValue] = {}  # output buffers of circle values that the segment returns
        self.operands: Sequence[SSAValue] = ()  # tensors or buffers of the current operator
        self._results: list[SSAValue | None] = []
        self._bytes = {
            self.loops[name]: size_bytes(info) for name, info in zip(names, (*inputs, *outputs), strict=True)
        }

    def lower(self, op: Operation, rewriter: PatternRewriter, emit: EmitCalls) -> None:
        """Replace ``op`` by the calls that ``emit`` adds, and results of ``op`` by buffers."""
        self.loops.insert_by(rewriter, op.location)
        results = self.emit_for(emit, op.operands, [self.reserved.get(result) for result in op.results])
        found = [buffer for buffer in results if buffer is not None]
        rewriter.replace(op, UnrealizedConversionCastOp.get(found, op.result_types))

    def emit_for(
        self, emit: EmitCalls, operands: Sequence[SSAValue], results: Sequence[SSAValue | None] | None = None
    ) -> Sequence[SSAValue | None]:
        """Run ``emit`` with these operands and, if given, these buffers of results, instead of the operator's."""
        outer = self.operands, self._results
        self.operands = operands
        if results is not None:
            self._results = list(results)
        emit(self)
        found = self._results
        self.operands, self._results = outer
        return found

    def operand(self, index: int) -> SSAValue:
        """Return the buffer of an operand. A constant is added to the constants of the segment."""
        value = self.operands[index]
        if isinstance(value, OpResult) and isinstance(value.op, ConstOp):
            info = info_of(value)
            data = np.frombuffer(np.ascontiguousarray(info.array()).tobytes(), np.uint8)
            return self.constant(data ^ np.uint8(sign_offset(info)))
        return buffer_of(value)

    def result(self, info: TensorInfo, index: int = 0) -> SSAValue:
        """Return the buffer of a result: the segment's output, or a new buffer."""
        found = self._results[index]
        if found is None:
            found = self._results[index] = self.allocate(size_bytes(info))
        return found

    def forward(self, source: SSAValue) -> None:
        """Make the only result share the buffer of an operand."""
        self._results[0] = source

    def update(self, index: int, contents: SSAValue) -> None:
        """Replace the contents of operand ``index``, a variable, for the operators that follow."""
        value = self.operands[index]
        found = UnrealizedConversionCastOp.get([contents], [value.type])
        self.loops.run(found)
        value.replace_all_uses_with(found.results[0])

    def allocate(self, size: int) -> SSAValue:
        """Return a new buffer of ``size`` bytes in the arena."""
        found = self.loops.emit(memref.AllocOp([self.loops.constant(size)], [], BYTES))
        self._bytes[found] = size
        return found

    def _view(self, value: SSAValue, type: Attribute) -> SSAValue:
        if value.type == type or not isinstance(type, MemRefType) or value not in self._bytes:
            return value
        assert isinstance(type.element_type, FixedBitwidthType)
        size = self.loops.constant(self._bytes[value] // type.element_type.size)
        return self.loops.emit(memref.ViewOp(value, self.loops.constant(0), [size], type))

    def constant(self, array: Array) -> SSAValue:
        """Return a buffer with the contents of ``array``."""
        type = buffer(STORED[array.dtype.name])
        raw = np.ascontiguousarray(array).tobytes()
        digest = hashlib.sha256(raw).digest()
        if digest not in self._places:
            self.constants += bytes(-len(self.constants) % ALIGNMENT)
            self._places[digest] = len(self.constants)
            self.constants += raw
        place = self.loops.constant(self._places[digest])
        size = self.loops.constant(array.size)
        found = self.loops.emit(memref.ViewOp(self.loops["constants"], place, [size], type))
        self._bytes[found] = array.nbytes
        return found

    def stored(self, arguments: Mapping[str, Argument]) -> dict[str, Number]:
        """Return arguments with constants of the segment for arrays, and with a buffer for the only result."""
        found: dict[str, Number] = {}
        for name, item in arguments.items():
            if isinstance(item, TensorInfo):
                found[name] = self.result(item)
            else:
                found[name] = self.constant(item) if isinstance(item, np.ndarray) else item
        return found

    @property
    def status(self) -> SSAValue:
        """Word that kernels set for a forbidden value. The segment's function returns it."""
        if self._status is None:
            self._status = self.allocate(4)
            self.call("fill_words", {}, output=self._status, count=1, value=0)
        return self._status

    def finish(self) -> None:
        """End the function. The function returns 0 if no kernel read a forbidden value."""
        loops = self.loops
        zero = loops.constant(0)
        found = loops.constant(0, i32) if self._status is None else loops.load(self._view(self._status, WORDS), zero)
        loops.finish(found)

    def fill(self, target: SSAValue, info: TensorInfo, value: int) -> None:
        """Fill a buffer with one element. ``value`` holds the bits of the element as a signed number."""
        size = info.info.numpy.itemsize
        assert size < 8 or value in (0, -1), "words fill elements of 64 bits"
        word = value if size > 2 else repeated_word(value, size)
        self.call("fill_words", {}, output=target, count=-(-size_bytes(info) // 4), value=word)

    def call(self, kernel: str, options: Mapping[str, int], **given: Argument) -> None:
        """Call a kernel with arguments as in :meth:`stored`. Numbers become constants of the parameter's type."""
        arguments = self.stored(given)
        found = find_kernel(kernel)
        symbol, parameters = found.symbol(options), found.parameters(options)
        if symbol not in self.declared:
            self.declared[symbol] = declaration(symbol, kernel, options)
        assert set(arguments) == set(parameters), f"{kernel}: {sorted(set(arguments) ^ set(parameters))}"
        values = [
            self._view(argument, type)
            if isinstance(argument := arguments[name], SSAValue)
            else self.loops.constant(argument, type)
            for name, type in parameters.items()
        ]
        self.loops.run(func.CallOp(symbol, values, []))


def buffer_of(value: SSAValue) -> SSAValue:
    """Return the buffer of a tensor whose operator has already been lowered."""
    if isinstance(value, OpResult) and isinstance(value.op, UnrealizedConversionCastOp):
        return value.op.inputs[value.index]
    return value


def declaration(symbol: str, kernel: str, options: Mapping[str, int]) -> func.FuncOp:
    """Return the declaration of a kernel's function."""
    op = func.FuncOp.external(symbol, list(find_kernel(kernel).parameters(options).values()), [])
    op.attributes[KERNEL] = StringAttr(kernel)
    op.attributes[OPTIONS] = DictionaryAttr({name: IntegerAttr(value, i64) for name, value in options.items()})
    return op


def declared_kernel(op: func.FuncOp) -> tuple[Kernel, dict[str, int]]:
    """Return the kernel and the options that ``op`` declares."""
    name, options = op.attributes[KERNEL], op.attributes[OPTIONS]
    assert isinstance(name, StringAttr)
    assert isinstance(options, DictionaryAttr)
    values = {key: value.value.data for key, value in options.data.items() if isinstance(value, IntegerAttr)}
    return find_kernel(name.data), values


EmitCalls = Callable[[SegmentFunction], object]
"""Function that emits the calls for one operator."""


class KernelPattern(LoweringPattern[CircleOp]):
    """Pattern that lowers circle operators to calls of kernels.

    ``operators``: names in the operator table. The name of a custom operator contains the custom code: ``CUSTOM(Erf)``.
    Patterns for the same operator differ by element types, and the first match lowers the operator.
    """

    def __init__(self, segment: SegmentFunction) -> None:
        self.segment = segment

    def handles(self, kind: type[Operation], /) -> bool:
        return issubclass(kind, CircleOp) and kind.SPEC.name in {name.partition("(")[0] for name in self.operators}

    def matches(self, op: CircleOp, /) -> bool:
        return self.matches_node(node_of(op))

    def lower(self, op: CircleOp, rewriter: PatternRewriter, /) -> None:
        self.segment.lower(op, rewriter, self.checked(node_of(op)))

    @classmethod
    def matches_node(cls, node: Node) -> bool:
        """Return whether the pattern lowers ``node``."""
        return node.spec.name in cls.operators and cls.applies(node)

    @classmethod
    def checked(cls, node: Node) -> EmitCalls:
        """Return the result of :meth:`plan`. Raises OdcError like it, and for tensors that no kernel supports."""
        for index, info in enumerate((*node.operands, *node.results)):
            if info is not None and (info.shape is None or None in info.shape):
                raise refusal(node, f"the shape of {info.name!r} is not fully known")
            if info is not None and info.is_variable and index not in node.mutated:
                raise refusal(node, f"{info.name!r} keeps state from run to run")
            if info is not None and 0 in (info.shape or ()):
                raise refusal(node, f"{info.name!r} has no elements")
        return cls.plan(node)

    @staticmethod
    def applies(node: Node) -> bool:
        """Return whether the pattern is for the element types of ``node``."""
        return True

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        """Return the function that emits the calls. Raises OdcError with the reason if the operator has no kernel."""
        raise NotImplementedError


def planned(
    node: Node,
    kernel: str,
    options: Mapping[str, int],
    source: Callable[[SegmentFunction], SSAValue] = lambda segment: segment.operand(0),
    /,
    **arguments: Argument,
) -> EmitCalls:
    """Plan one call of a kernel that reads the buffer emitted by ``source`` and writes the only result."""
    out = node.results[0]
    return lambda segment: segment.call(kernel, options, **{"input": source(segment), **arguments, "output": out})


def has_float_result(node: Node) -> bool:
    """Return whether the result of an operator is float32."""
    return bool(node.results) and node.results[0].dtype == "float32"
