"""``convert-native-to-llvm``: lower functions of loops over buffers to the llvm dialect.

Before::

    func.func private @flip_sign(%input: memref<?xi8>, %output: memref<?xi8>, %count: index) {
      scf.for %i = %c0 to %count step %c64 {
        %0 = vector.load %input[%i] : memref<?xi8>, vector<64xi8>

After: memory is a pointer, an index has 64 bits, loops are branches::

    llvm.func internal @flip_sign(%input: !llvm.ptr, %output: !llvm.ptr, %count: i64) {
      …
      %1 = llvm.getelementptr inbounds %input[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8
      %2 = llvm.load %1 {alignment = 1 : i64} : !llvm.ptr -> vector<64xi8>

xDSL's own lowering through ``ptr`` turns every address into an integer and does not convert arithmetic, so this pass
lowers upstream dialects to the llvm dialect directly, after xDSL's ``convert-scf-to-cf``. Operations that the llvm
dialect cannot express become calls of LLVM intrinsics by name.

Rejects operations without such a form, and buffers that are not flat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith, cf, func, llvm, memref, vector
from xdsl.dialects.builtin import (
    DenseArrayBase,
    Float32Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    MemRefType,
    ModuleOp,
    VectorType,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.transforms.convert_scf_to_cf import ConvertScfToCf

from odc_mlir.errors import CompileError
from odc_mlir.support.locations import name_inside
from odc_mlir.transforms.native.native_allocate_memory import segment_modules

POINTER = llvm.LLVMPointerType()

_BINARY: dict[type[Operation], Callable[[SSAValue, SSAValue], Operation]] = {
    arith.AddiOp: llvm.AddOp,
    arith.SubiOp: llvm.SubOp,
    arith.MuliOp: llvm.MulOp,
    arith.DivSIOp: llvm.SDivOp,
    arith.DivUIOp: llvm.UDivOp,
    arith.RemSIOp: llvm.SRemOp,
    arith.AndIOp: llvm.AndOp,
    arith.OrIOp: llvm.OrOp,
    arith.XOrIOp: llvm.XOrOp,
    arith.ShLIOp: llvm.ShlOp,
    arith.ShRSIOp: llvm.AShrOp,
    arith.ShRUIOp: llvm.LShrOp,
    arith.AddfOp: llvm.FAddOp,
    arith.SubfOp: llvm.FSubOp,
    arith.MulfOp: llvm.FMulOp,
    arith.DivfOp: llvm.FDivOp,
}
_CASTS: dict[type[Operation], Callable[[SSAValue, Attribute], Operation]] = {
    arith.ExtSIOp: llvm.SExtOp,
    arith.ExtUIOp: llvm.ZExtOp,
    arith.TruncIOp: llvm.TruncOp,
    arith.SIToFPOp: llvm.SIToFPOp,
    arith.ExtFOp: llvm.FPExtOp,
    arith.TruncFOp: llvm.FPTruncOp,
    llvm.SIToFPOp: llvm.SIToFPOp,
    llvm.SExtOp: llvm.SExtOp,
    llvm.ZExtOp: llvm.ZExtOp,
    llvm.TruncOp: llvm.TruncOp,
    vector.BitcastOp: llvm.BitcastOp,
    arith.BitcastOp: llvm.BitcastOp,
}
# Operations without a counterpart in the dialect, or without one that is translated: LLVM's intrinsics.
_INTRINSICS: dict[type[Operation], str] = {
    arith.MinSIOp: "smin",
    arith.MaxSIOp: "smax",
    arith.MinUIOp: "umin",
    arith.MaxUIOp: "umax",
    arith.MaxnumfOp: "maxnum",
    arith.MinnumfOp: "minnum",
    arith.MaximumfOp: "maximum",
    arith.MinimumfOp: "minimum",
    vector.FMAOp: "fma",
}
_REDUCTIONS = {
    "maxsi": "smax",
    "minsi": "smin",
    "maxui": "umax",
    "minui": "umin",
    "add": "add",
    "maximumf": "fmaximum",
    "minimumf": "fminimum",
}


def converted_type(type: Attribute) -> Attribute:
    """Memory as a pointer, an index as 64 bits; anything else as it is."""
    if isinstance(type, MemRefType):
        return POINTER
    return i64 if isinstance(type, IndexType) else type


def suffix(type: Attribute) -> str:
    """How LLVM's intrinsics name a type: ``v16i32``."""
    if isinstance(type, VectorType):
        return f"v{type.get_shape()[0]}{suffix(type.element_type)}"
    return str(type)


@dataclass(frozen=True)
class ConvertNativeToLlvmPass(ModulePass):
    """Rewrite every function in the llvm dialect."""

    name = "convert-native-to-llvm"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for module in segment_modules(op):
            convert_functions(ctx, module)


def convert_functions(context: Context, module: ModuleOp) -> None:
    """Rewrite the functions of a module."""
    ConvertScfToCf().apply(context, module)
    for function in [item for item in module.ops if isinstance(item, func.FuncOp)]:
        converted = _Function(function).convert()
        name_inside(converted, function.sym_name.data)
        module.body.block.insert_op_before(converted, function)
        Rewriter.erase_op(function)


class _Function:
    """One function on its way; ``values`` and ``blocks`` map what was to what is."""

    def __init__(self, source: func.FuncOp) -> None:
        self.source = source
        self.values: dict[SSAValue, SSAValue] = {}
        self.blocks: dict[Block, Block] = {}
        self.block = Block()
        self.location: LocationAttr = source.location

    def convert(self) -> llvm.FuncOp:
        source = self.source
        outputs = list(source.function_type.outputs)
        result = converted_type(outputs[0]) if outputs else llvm.LLVMVoidType()
        type = llvm.LLVMFunctionType([converted_type(item) for item in source.function_type.inputs], result)
        body = Region()
        for block in source.body.blocks:
            new = Block(arg_types=[converted_type(item) for item in block.arg_types])
            self.blocks[block] = new
            body.add_block(new)
            for old, arg in zip(block.args, new.args, strict=True):
                arg.name_hint = old.name_hint
                self.values[old] = arg
        for block, new in self.blocks.items():
            self.block = new
            for op in block.ops:
                self.location = op.location
                self.operation(op)
        public = source.is_declaration or source.sym_visibility is None or source.sym_visibility.data != "private"
        linkage = llvm.LinkageAttr("external" if public else "internal")
        attributes = dict(source.attributes)
        return llvm.FuncOp(source.sym_name, type, linkage, body=body, extra_attrs=attributes)

    def emit(self, op: Operation) -> SSAValue:
        self.add(op)
        return op.results[0]

    def add(self, op: Operation) -> None:
        """Add an operation in the place of the one that is being converted."""
        op.location = self.location
        self.block.add_op(op)

    def of(self, value: SSAValue) -> SSAValue:
        return self.values[value]

    def all(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        return [self.values[value] for value in values]

    def integer(self, value: int, type: Attribute = i64) -> SSAValue:
        assert isinstance(type, IntegerType)
        return self.emit(llvm.ConstantOp(IntegerAttr(value, type), type))

    def operation(self, op: Operation) -> None:
        kind = type(op)
        if kind in _BINARY:
            new = self.emit(_BINARY[kind](*self.all(op.operands)))
        elif kind in _CASTS:
            new = self.emit(_CASTS[kind](self.of(op.operands[0]), op.results[0].type))
        elif kind in _INTRINSICS:
            operands = self.all(op.operands)
            name = f"llvm.{_INTRINSICS[kind]}.{suffix(operands[0].type)}"
            new = self.emit(llvm.CallIntrinsicOp(name, operands, [operands[0].type]))
        elif kind in _HANDLERS:
            found = _HANDLERS[kind](self, op)
            if found is None:
                return
            new = found
        else:
            raise CompileError(f"operation {op.name} has no form in the llvm dialect")
        if op.results:
            self.values[op.results[0]] = new
            new.name_hint = op.results[0].name_hint

    def address(self, source: SSAValue, indices: Sequence[SSAValue]) -> tuple[SSAValue, int]:
        """Pointer to an element of a flat buffer, and the alignment that its type promises."""
        assert isinstance(source.type, MemRefType)
        element = source.type.element_type
        if len(indices) != 1:
            raise CompileError(f"a buffer of type {source.type} is not flat")
        pointer = self.emit(
            llvm.GEPOp(self.of(source), [llvm.GEP_USE_SSA_VAL], element, [self.of(indices[0])], inbounds=True)
        )
        return pointer, _size(element)


def _size(type: Attribute) -> int:
    width = getattr(type, "bitwidth", None)
    if width is None:
        raise CompileError(f"elements of type {type} cannot be in memory")
    return max(1, int(width) // 8)


def _constant(f: _Function, op: Operation) -> SSAValue:
    assert isinstance(op, arith.ConstantOp)
    type, value = converted_type(op.result.type), op.value
    if isinstance(value, IntegerAttr):
        assert isinstance(type, IntegerType)
        value = IntegerAttr(value.value.data, type)
    elif not isinstance(value, FloatAttr):
        raise CompileError(f"a constant {op.value} has no form in the llvm dialect")
    return f.emit(llvm.ConstantOp(value, type))


def _cast_index(f: _Function, op: Operation) -> SSAValue:
    value = f.of(op.operands[0])
    wanted = converted_type(op.results[0].type)
    if value.type == wanted:
        return value
    assert isinstance(value.type, IntegerType)
    assert isinstance(wanted, IntegerType)
    if value.type.width.data < wanted.width.data:
        return f.emit(llvm.SExtOp(value, wanted))
    return f.emit(llvm.TruncOp(value, wanted))


def _compare(f: _Function, op: Operation) -> SSAValue:
    assert isinstance(op, arith.CmpiOp)
    lhs, rhs = f.all(op.operands)
    return f.emit(llvm.ICmpOp(lhs, rhs, IntegerAttr(op.predicate.value.data, i64)))


def _compare_reals(f: _Function, op: Operation) -> SSAValue:
    assert isinstance(op, arith.CmpfOp)
    lhs, rhs = f.all(op.operands)
    return f.emit(llvm.FCmpOp(lhs, rhs, IntegerAttr(op.predicate.value.data, i64)))


def _load(f: _Function, op: Operation) -> SSAValue:
    pointer, alignment = f.address(op.operands[0], op.operands[1:])
    return f.emit(llvm.LoadOp(pointer, op.results[0].type, alignment=alignment))


def _store(f: _Function, op: Operation) -> None:
    value, target, *indices = op.operands
    pointer, alignment = f.address(target, indices)
    f.add(llvm.StoreOp(f.of(value), pointer, alignment=alignment))


def _broadcast(f: _Function, op: Operation) -> SSAValue:
    source, type = f.of(op.operands[0]), op.results[0].type
    assert isinstance(type, VectorType)
    count = type.get_shape()[0]
    if isinstance(source.type, VectorType):
        one = source
    else:
        single = VectorType(type.element_type, [1])
        undefined = f.emit(llvm.UndefOp(single))
        one = f.emit(llvm.InsertElementOp(undefined, source, f.integer(0)))
    return f.emit(llvm.ShuffleVectorOp(one, one, DenseArrayBase.from_list(i32, [0] * count), type))


def _shuffle(f: _Function, op: Operation) -> SSAValue:
    assert isinstance(op, vector.ShuffleOp)
    mask = DenseArrayBase.from_list(i32, list(op.mask.get_values()))
    return f.emit(llvm.ShuffleVectorOp(f.of(op.v1), f.of(op.v2), mask, op.result.type))


def _reduce(f: _Function, op: Operation) -> SSAValue:
    assert isinstance(op, vector.ReductionOp)
    value = f.of(op.vector)
    kind = op.kind.data.value
    if kind not in _REDUCTIONS:
        raise CompileError(f"a reduction by {kind} has no form in the llvm dialect")
    if kind == "add" and isinstance(op.dest.type, Float32Type):
        start = f.emit(llvm.ConstantOp(FloatAttr(0.0, op.dest.type), op.dest.type))
        name = f"llvm.vector.reduce.fadd.{suffix(value.type)}"
        return f.emit(llvm.CallIntrinsicOp(name, [start, value], [op.dest.type]))
    name = f"llvm.vector.reduce.{_REDUCTIONS[kind]}.{suffix(value.type)}"
    return f.emit(llvm.CallIntrinsicOp(name, [value], [op.dest.type]))


def _select(f: _Function, op: Operation) -> SSAValue:
    return f.emit(llvm.SelectOp(*f.all(op.operands)))


def _intrinsic(f: _Function, op: Operation) -> SSAValue:
    assert isinstance(op, llvm.CallIntrinsicOp)
    return f.emit(llvm.CallIntrinsicOp(op.intrin, f.all(op.args), [item.type for item in op.results]))


def _call(f: _Function, op: Operation) -> SSAValue | None:
    assert isinstance(op, func.CallOp)
    type = converted_type(op.results[0].type) if op.results else None
    new = llvm.CallOp(op.callee.root_reference.data, *f.all(op.arguments), return_type=type)
    f.add(new)
    return new.results[0] if op.results else None


def _return(f: _Function, op: Operation) -> None:
    f.add(llvm.ReturnOp(*f.all(op.operands)))


def _branch(f: _Function, op: Operation) -> None:
    assert isinstance(op, cf.BranchOp)
    f.add(llvm.BrOp(f.blocks[op.successor], *f.all(op.arguments)))


def _branch_if(f: _Function, op: Operation) -> None:
    assert isinstance(op, cf.ConditionalBranchOp)
    f.add(
        llvm.CondBrOp(
            f.of(op.cond),
            f.blocks[op.then_block],
            f.all(op.then_arguments),
            f.blocks[op.else_block],
            f.all(op.else_arguments),
        )
    )


def _view(f: _Function, op: Operation) -> SSAValue:
    assert isinstance(op, memref.ViewOp)
    return f.emit(
        llvm.GEPOp(f.of(op.source), [llvm.GEP_USE_SSA_VAL], IntegerType(8), [f.of(op.byte_shift)], inbounds=True)
    )


_HANDLERS: dict[type[Operation], Callable[[_Function, Operation], SSAValue | None]] = {
    arith.ConstantOp: _constant,
    arith.IndexCastOp: _cast_index,
    arith.CmpiOp: _compare,
    arith.CmpfOp: _compare_reals,
    arith.SelectOp: _select,
    memref.LoadOp: _load,
    memref.StoreOp: _store,
    memref.ViewOp: _view,
    vector.LoadOp: _load,
    vector.StoreOp: _store,
    vector.BroadcastOp: _broadcast,
    vector.ShuffleOp: _shuffle,
    vector.ReductionOp: _reduce,
    llvm.CallIntrinsicOp: _intrinsic,
    func.CallOp: _call,
    func.ReturnOp: _return,
    cf.BranchOp: _branch,
    cf.ConditionalBranchOp: _branch_if,
}
