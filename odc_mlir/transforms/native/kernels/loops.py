"""Writer of functions with loops over flat buffers, in the upstream dialects func, scf, memref, vector and arith.

Buffers are ``memref<?xT>``, indexed in elements. Numbers known at compile time become constants at the start of the
function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.builder import Builder
from xdsl.dialects import arith, func, llvm, memref, scf, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseArrayBase,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    MemRefType,
    UnknownLoc,
    VectorType,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

INDEX = IndexType()


def buffer(element: Attribute) -> MemRefType[Attribute]:
    """Return the type of a flat buffer of any size."""
    return MemRefType(element, [DYNAMIC_INDEX])


BYTES, SHORTS, WORDS, REALS = buffer(i8), buffer(i16), buffer(i32), buffer(f32)

STORED: dict[str, Attribute] = {
    "bool": i8, "int8": i8, "uint8": i8, "int16": i16, "int32": i32, "int64": i64, "float32": f32,
}  # fmt: skip
"""Types of stored elements by dtype."""

Number = SSAValue | int | float

_Binary = Callable[[SSAValue, SSAValue], Operation]
_Cast = Callable[..., Operation]

_BLOCK = 64  # floats per block of a sum


def lanes(count: int, element: Attribute) -> VectorType[Attribute]:
    """Return the type of a vector of ``count`` elements."""
    return VectorType(element, [count])


def scalar_of(type: Attribute) -> Attribute:
    """Return the element type of a vector, or another type itself."""
    return type.element_type if isinstance(type, VectorType) else type


def suffix(type: Attribute) -> str:
    """Return the name of a type in LLVM intrinsics, such as ``v16i32``."""
    return f"v{type.get_shape()[0]}{type.element_type}" if isinstance(type, VectorType) else str(type)


class Loops:
    """Writer of one function. ``arguments``: values of its parameters by name."""

    def __init__(self, name: str, parameters: Mapping[str, Attribute], results: Sequence[Attribute] = ()) -> None:
        op = func.FuncOp(name, (list(parameters.values()), list(results)), visibility="private")
        self._begin(op, dict(zip(parameters, op.body.block.args, strict=True)))
        for text, value in self.arguments.items():
            value.name_hint = text

    @classmethod
    def of(cls, op: func.FuncOp, arguments: dict[str, SSAValue]) -> Loops:
        """Return a writer that adds operations to an existing function, at the position set by :meth:`insert_by`."""
        found = cls.__new__(cls)
        found._begin(op, arguments)
        return found

    def _begin(self, op: func.FuncOp, arguments: dict[str, SSAValue]) -> None:
        self.op, self.arguments = op, arguments
        self.entry: Block = op.body.block
        self._constants: dict[tuple[int | float, Attribute], SSAValue] = {}
        self._last_constant: Operation | None = None
        self._builder = Builder(InsertPoint.at_end(self.entry))
        self.location: LocationAttr = UnknownLoc()  # location of new operations

    def __getitem__(self, name: str) -> SSAValue:
        return self.arguments[name]

    def insert_by(self, builder: Builder, location: LocationAttr) -> None:
        """Insert subsequent operations by ``builder``, with ``location``."""
        self._builder, self.location = builder, location

    def emit(self, op: Operation) -> SSAValue:
        """Add an operation and return its first result."""
        op.location = self.location
        self._builder.insert(op)
        return op.results[0]

    def run(self, op: Operation) -> None:
        """Add an operation without result."""
        op.location = self.location
        self._builder.insert(op)

    def finish(self, *values: SSAValue) -> func.FuncOp:
        """End the function with a return of ``values``."""
        self.run(func.ReturnOp(*values))
        return self.op

    def constant(self, value: int | float, type: Attribute = INDEX) -> SSAValue:
        """Return a constant, created once at the start of the function. A vector has the number in every element."""
        key = (value, type)
        if key not in self._constants:
            if isinstance(type, VectorType):
                op: Operation = vector.BroadcastOp(self.constant(value, type.element_type), type)
            elif type in (f32, f64):
                op = arith.ConstantOp(FloatAttr(float(value), type))
            else:
                assert isinstance(type, IntegerType | IndexType)
                op = arith.ConstantOp(IntegerAttr(int(value), type))
            op.location = self.location
            if self._last_constant is not None:
                self.entry.insert_op_after(op, self._last_constant)
            elif self.entry.first_op is not None:
                self.entry.insert_op_before(op, self.entry.first_op)
            else:
                self.entry.add_op(op)
            self._last_constant = op
            self._constants[key] = op.results[0]
        return self._constants[key]

    def number(self, value: Number, type: Attribute = INDEX) -> SSAValue:
        """Return a number as a constant, and a value unchanged."""
        return value if isinstance(value, SSAValue) else self.constant(value, type)

    # Arithmetic on integers, floats and vectors of either. Adding 0 or multiplying by 1 emits no operation.

    def _combined(self, a: SSAValue, b: Number, whole: _Binary, real: _Binary) -> SSAValue:
        kind = real if scalar_of(a.type) in (f32, f64) else whole
        return self.emit(kind(a, self.number(b, a.type)))

    def add(self, a: SSAValue, b: Number) -> SSAValue:
        return a if isinstance(b, int) and b == 0 else self._combined(a, b, arith.AddiOp, arith.AddfOp)

    def sub(self, a: SSAValue, b: Number) -> SSAValue:
        return self._combined(a, b, arith.SubiOp, arith.SubfOp)

    def mul(self, a: SSAValue, b: Number) -> SSAValue:
        return a if isinstance(b, int) and b == 1 else self._combined(a, b, arith.MuliOp, arith.MulfOp)

    def div(self, a: SSAValue, b: Number) -> SSAValue:
        return self._combined(a, b, arith.DivSIOp, arith.DivfOp)

    def least(self, a: SSAValue, b: Number) -> SSAValue:
        return self._combined(a, b, arith.MinSIOp, arith.MinimumfOp)

    def most(self, a: SSAValue, b: Number) -> SSAValue:
        return self._combined(a, b, arith.MaxSIOp, arith.MaximumfOp)

    def shift_right(self, a: SSAValue, b: Number) -> SSAValue:
        return self.emit(arith.ShRSIOp(a, self.number(b, a.type)))

    def shift_left(self, a: SSAValue, b: Number) -> SSAValue:
        return self.emit(arith.ShLIOp(a, self.number(b, a.type)))

    def logical_and(self, a: SSAValue, b: Number) -> SSAValue:
        return self.emit(arith.AndIOp(a, self.number(b, a.type)))

    def xor(self, a: SSAValue, b: Number) -> SSAValue:
        return self.emit(arith.XOrIOp(a, self.number(b, a.type)))

    def fused(self, a: SSAValue, b: Number, c: Number) -> SSAValue:
        """Return ``a * b + c`` for vectors of floats, rounded once."""
        return self.emit(vector.FMAOp(a, self.number(b, a.type), self.number(c, a.type)))

    def compare(self, a: SSAValue, predicate: str, b: Number) -> SSAValue:
        kind = arith.CmpfOp if a.type in (f32, f64) else arith.CmpiOp
        return self.emit(kind(a, self.number(b, a.type), predicate))

    def select(self, condition: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.emit(arith.SelectOp(condition, a, b))

    # Conversions. xDSL's integer casts in arith reject vectors. The casts in llvm accept vectors.

    def to_index(self, a: SSAValue) -> SSAValue:
        return self.emit(arith.IndexCastOp(a, INDEX))

    def to_real(self, a: SSAValue) -> SSAValue:
        """Convert a vector of signed integers to float32."""
        assert isinstance(a.type, VectorType)
        return self.emit(llvm.SIToFPOp(a, lanes(a.type.get_shape()[0], f32)))

    def widen(self, a: SSAValue, type: Attribute) -> SSAValue:
        """Extend with the sign."""
        return self._cast(a, type, llvm.SExtOp, arith.ExtSIOp)

    def widen_unsigned(self, a: SSAValue, type: Attribute) -> SSAValue:
        return self._cast(a, type, llvm.ZExtOp, arith.ExtUIOp)

    def narrow(self, a: SSAValue, type: Attribute) -> SSAValue:
        """Keep the low bits."""
        return self._cast(a, type, llvm.TruncOp, arith.TruncIOp)

    def _cast(self, a: SSAValue, type: Attribute, many: _Cast, one: _Cast) -> SSAValue:
        return self.emit((many if isinstance(type, VectorType) else one)(a, type))

    # Memory.

    def load(self, source: SSAValue, index: SSAValue) -> SSAValue:
        return self.emit(memref.LoadOp.get(source, [index]))

    def store(self, value: SSAValue, target: SSAValue, index: SSAValue) -> None:
        self.run(memref.StoreOp.get(value, target, [index]))

    def load_lanes(self, source: SSAValue, index: SSAValue, count: int) -> SSAValue:
        """Load ``count`` elements from ``index``."""
        assert isinstance(source.type, MemRefType)
        return self.emit(vector.LoadOp(source, [index], lanes(count, source.type.element_type)))

    def store_lanes(self, value: SSAValue, target: SSAValue, index: SSAValue) -> None:
        self.run(vector.StoreOp(value, target, [index]))

    # Vectors.

    def broadcast(self, a: SSAValue, count: int) -> SSAValue:
        """Return a vector with ``a``, a number or a vector of one element, in every element."""
        return self.emit(vector.BroadcastOp(a, lanes(count, scalar_of(a.type))))

    def bitcast(self, a: SSAValue, type: Attribute) -> SSAValue:
        return self.emit(vector.BitcastOp(a, type))

    def shuffle(self, a: SSAValue, b: SSAValue, mask: Sequence[int]) -> SSAValue:
        assert isinstance(a.type, VectorType)
        result = lanes(len(mask), a.type.element_type)
        return self.emit(vector.ShuffleOp(a, b, DenseArrayBase.from_list(i64, mask), result_type=result))

    def only(self, a: SSAValue) -> SSAValue:
        """Return the element of a vector of one element."""
        return self.emit(llvm.BitcastOp(a, scalar_of(a.type)))

    def intrinsic(self, name: str, arguments: Sequence[SSAValue], result: Attribute) -> SSAValue:
        """Call an LLVM intrinsic."""
        return self.emit(llvm.CallIntrinsicOp(name, arguments, [result]))

    def function(self, name: str, *operands: SSAValue) -> SSAValue:
        """Call an LLVM intrinsic with operands and a result of the same type: ``sqrt``, ``fabs``, ``trunc`` …"""
        type = operands[0].type
        return self.intrinsic(f"llvm.{name}.{suffix(type)}", operands, type)

    def call(self, function: func.FuncOp, *arguments: SSAValue) -> SSAValue:
        """Call a helper function that returns one value."""
        return self.emit(func.CallOp(function.sym_name.data, arguments, list(function.function_type.outputs)))

    # Loops.

    def loop(
        self,
        first: Number,
        end: Number,
        step: Number,
        body: Callable[[SSAValue, Sequence[SSAValue]], Sequence[SSAValue]],
        initial: Sequence[SSAValue] = (),
    ) -> Sequence[SSAValue]:
        """Write ``for i in range(first, end, step): values = body(i, values)`` and return the last values."""
        begin, limit, stride = (self.number(value) for value in (first, end, step))
        block = Block(arg_types=[INDEX, *(value.type for value in initial)])
        op = scf.ForOp(begin, limit, stride, list(initial), Region(block))
        self._builder.insert(op)
        outer, self._builder = self._builder, Builder(InsertPoint.at_end(block))
        values = body(block.args[0], block.args[1:])
        self._builder.insert(scf.YieldOp(*values))
        self._builder = outer
        return op.results

    def when(self, condition: SSAValue, body: Callable[[], None]) -> None:
        """Execute the operations that ``body`` adds only if ``condition`` is true."""
        block = Block()
        self.run(scf.IfOp(condition, [], Region(block)))
        outer, self._builder = self._builder, Builder(InsertPoint.at_end(block))
        body()
        self.run(scf.YieldOp())
        self._builder = outer

    def sum_in_blocks(
        self, first: SSAValue, end: SSAValue, step: int, add: Callable[[SSAValue, SSAValue], SSAValue], zero: SSAValue
    ) -> SSAValue:
        """Add floats: ``for i in range(first, end, step): sum = add(i, sum)``.

        Blocks of 64 floats have separate sums, similar to numpy's pairwise summation. Errors then grow with the square
        root of the number of floats, not with the number itself.
        """

        def block(begin: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            limit = self.least(self.add(begin, _BLOCK * step), end)
            part = self.loop(begin, limit, step, lambda i, inner: [add(i, inner[0])], [zero])[0]
            return [self.add(state[0], part)]

        return self.loop(first, end, _BLOCK * step, block, [zero])[0]

    def each(self, first: Number, end: Number, step: Number, body: Callable[[SSAValue], None]) -> None:
        """Loop without values: ``for i in range(first, end, step): body(i)``."""

        def round_(index: SSAValue, _: Sequence[SSAValue]) -> Sequence[SSAValue]:
            body(index)
            return ()

        self.loop(first, end, step, round_)
