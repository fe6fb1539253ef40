"""``convert-native-to-llvm``: lower functions of loops over buffers to the llvm dialect.

Before::

    func.func private @flip_sign(%input: memref<?xi8>, %output: memref<?xi8>, %count: index) {
      scf.for %i = %c0 to %count step %c64 {
        %0 = vector.load %input[%i] : memref<?xi8>, vector<64xi8>

After: memory is a pointer, an index has 64 bits, and loops are branches::

    llvm.func internal @flip_sign(%input: !llvm.ptr, %output: !llvm.ptr, %count: i64) {
      …
      %1 = llvm.getelementptr inbounds %input[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8
      %2 = llvm.load %1 {alignment = 1 : i64} : !llvm.ptr -> vector<64xi8>

The pass runs after xDSL's ``convert-scf-to-cf``. It does not use xDSL's lowering through ``ptr``, which turns every
address into an integer and does not convert arithmetic. Operations that the llvm dialect cannot express become calls of
LLVM intrinsics by name.

Rejects operations that the llvm dialect cannot express, and buffers of more than one dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.context import Context
from xdsl.dialects import arith, cf, func, llvm, memref, vector
from xdsl.dialects.builtin import (
    DenseArrayBase,
    FixedBitwidthType,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    VectorType,
    i8,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.transforms.convert_scf_to_cf import ConvertScfToCf

from odc_mlir.errors import CompileError
from odc_mlir.legality import ConversionTarget
from odc_mlir.support.locations import name_inside
from odc_mlir.transforms.common.conversion import LoweringPattern, apply_conversion
from odc_mlir.transforms.common.rewriting import PatternPass
from odc_mlir.transforms.native.kernels.loops import scalar_of, suffix
from odc_mlir.transforms.native.lowering.memory_bounds import verify_bounds
from odc_mlir.transforms.native.native_allocate_memory import segment_modules

POINTER = llvm.LLVMPointerType()

_COUNTERPARTS: dict[type[Operation], Callable[..., Operation]] = {
    func.ReturnOp: llvm.ReturnOp,
    arith.SelectOp: llvm.SelectOp,
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
    vector.BitcastOp: llvm.BitcastOp,
    arith.BitcastOp: llvm.BitcastOp,
}
# LLVM intrinsics for operations without a counterpart in xDSL's translation to LLVM IR.
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


def converted_type(type: Attribute) -> Attribute:
    """Return the llvm type of a value: a pointer for memory, 64 bits for an index, other types unchanged."""
    if isinstance(type, MemRefType):
        return POINTER
    return i64 if isinstance(type, IndexType) else type


class LowerFunction(LoweringPattern[func.FuncOp]):
    """Lower ``func.func`` to ``llvm.func``, and convert the types of parameters, block arguments and results."""

    def lower(self, op: func.FuncOp, rewriter: PatternRewriter, /) -> None:
        name_inside(op, op.sym_name.data)
        for argument in [argument for block in op.body.blocks for argument in block.args]:
            if (type := converted_type(argument.type)) != argument.type:
                rewriter.replace_value_with_new_type(argument, type)
        inputs, outputs = op.function_type.inputs, list(op.function_type.outputs)
        result = converted_type(outputs[0]) if outputs else llvm.LLVMVoidType()
        public = op.is_declaration or op.sym_visibility is None or op.sym_visibility.data != "private"
        function = llvm.FuncOp(
            op.sym_name,
            llvm.LLVMFunctionType([converted_type(item) for item in inputs], result),
            llvm.LinkageAttr("external" if public else "internal"),
            body=op.detach_region(op.body),
            extra_attrs=op.attributes,
        )
        function.location = op.location
        rewriter.replace(op, function)


class LowerCall(LoweringPattern[func.CallOp]):
    """Lower ``func.call`` to ``llvm.call``."""

    def lower(self, op: func.CallOp, rewriter: PatternRewriter, /) -> None:
        type = converted_type(op.results[0].type) if op.results else None
        rewriter.replace(op, llvm.CallOp(op.callee.root_reference.data, *op.arguments, return_type=type))


class LowerBranch(LoweringPattern[cf.BranchOp]):
    """Lower ``cf.br`` to ``llvm.br``."""

    def lower(self, op: cf.BranchOp, rewriter: PatternRewriter, /) -> None:
        rewriter.replace(op, llvm.BrOp(op.successor, *op.arguments))


class LowerConditionalBranch(LoweringPattern[cf.ConditionalBranchOp]):
    """Lower ``cf.cond_br`` to ``llvm.cond_br``."""

    def lower(self, op: cf.ConditionalBranchOp, rewriter: PatternRewriter, /) -> None:
        then, other = (op.then_block, op.then_arguments), (op.else_block, op.else_arguments)
        rewriter.replace(op, llvm.CondBrOp(op.cond, *then, *other))


class LowerConstant(LoweringPattern[arith.ConstantOp]):
    """Lower ``arith.constant`` of one number to ``llvm.mlir.constant``. An index gets 64 bits."""

    def lower(self, op: arith.ConstantOp, rewriter: PatternRewriter, /) -> None:
        type, value = converted_type(op.result.type), op.value
        if isinstance(value, IntegerAttr):
            assert isinstance(type, IntegerType)
            value = IntegerAttr(value.value.data, type)
        elif not isinstance(value, FloatAttr):
            raise CompileError(f"a constant {value} has no form in the llvm dialect")
        rewriter.replace(op, llvm.ConstantOp(value, type))


class LowerToCounterpart(LoweringPattern[Operation]):
    """Lower an operation or a conversion to a counterpart with the same operands: ``arith.addi`` to ``llvm.add``."""

    def handles(self, kind: type[Operation], /) -> bool:
        return kind in _COUNTERPARTS or kind in _CASTS

    def lower(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if cast := _CASTS.get(type(op)):
            rewriter.replace(op, cast(op.operands[0], op.results[0].type))
        else:
            rewriter.replace(op, _COUNTERPARTS[type(op)](*op.operands))


class LowerToIntrinsic(LoweringPattern[Operation]):
    """Lower an operation to an LLVM intrinsic for the type of the result: ``arith.minsi`` to ``llvm.smin.v16i32``."""

    def handles(self, kind: type[Operation], /) -> bool:
        return kind in _INTRINSICS

    def lower(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        type_ = op.operands[0].type
        name = f"llvm.{_INTRINSICS[type(op)]}.{suffix(type_)}"
        rewriter.replace(op, llvm.CallIntrinsicOp(name, op.operands, [type_]))


class LowerIndexCast(LoweringPattern[arith.IndexCastOp]):
    """Lower ``arith.index_cast`` to a sign extension or a truncation. Erase it between types of the same width."""

    def lower(self, op: arith.IndexCastOp, rewriter: PatternRewriter, /) -> None:
        value, wanted = op.input, converted_type(op.result.type)
        assert isinstance(value.type, IntegerType)
        assert isinstance(wanted, IntegerType)
        if value.type == wanted:
            rewriter.replace(op, [], [value])
        else:
            wider = value.type.width.data < wanted.width.data
            rewriter.replace(op, (llvm.SExtOp if wider else llvm.TruncOp)(value, wanted))


class LowerComparison(LoweringPattern[arith.CmpiOp | arith.CmpfOp]):
    """Lower ``arith.cmpi`` to ``llvm.icmp`` and ``arith.cmpf`` to ``llvm.fcmp``, with the same predicate."""

    def lower(self, op: arith.CmpiOp | arith.CmpfOp, rewriter: PatternRewriter, /) -> None:
        kind = llvm.ICmpOp if isinstance(op, arith.CmpiOp) else llvm.FCmpOp
        rewriter.replace(op, kind(op.lhs, op.rhs, IntegerAttr(op.predicate.value.data, i64)))


class LowerLoad(LoweringPattern[memref.LoadOp | vector.LoadOp]):
    """Lower ``memref.load`` and ``vector.load`` to ``llvm.load`` at the address of the first element."""

    def lower(self, op: memref.LoadOp | vector.LoadOp, rewriter: PatternRewriter, /) -> None:
        source, *indices = op.operands
        type = op.results[0].type
        address = _address(op, source, indices, type)
        rewriter.replace(op, [address, llvm.LoadOp(address, type, alignment=_alignment(type))])


class LowerStore(LoweringPattern[memref.StoreOp | vector.StoreOp]):
    """Lower ``memref.store`` and ``vector.store`` to ``llvm.store`` at the address of the first element."""

    def lower(self, op: memref.StoreOp | vector.StoreOp, rewriter: PatternRewriter, /) -> None:
        value, target, *indices = op.operands
        address = _address(op, target, indices, value.type)
        rewriter.replace(op, [address, llvm.StoreOp(value, address, alignment=_alignment(value.type))])


class LowerView(LoweringPattern[memref.ViewOp]):
    """Lower ``memref.view`` to the address of its first byte."""

    def lower(self, op: memref.ViewOp, rewriter: PatternRewriter, /) -> None:
        rewriter.replace(op, _address(op, op.source, [op.byte_shift], i8))


def _address(op: Operation, buffer: SSAValue, indices: Sequence[SSAValue], type: Attribute) -> llvm.GEPOp:
    if len(indices) != 1:
        raise CompileError(f"{op.name} with {len(indices)} indices has no form in the llvm dialect, only with one")
    return llvm.GEPOp(buffer, [llvm.GEP_USE_SSA_VAL], scalar_of(type), indices, inbounds=True)


def _alignment(type: Attribute) -> int:
    element = scalar_of(type)
    if not isinstance(element, FixedBitwidthType):
        raise CompileError(f"elements of type {element} cannot be in memory")
    return max(1, element.bitwidth // 8)


class LowerBroadcast(LoweringPattern[vector.BroadcastOp]):
    """Lower ``vector.broadcast`` to ``llvm.shufflevector`` of a vector whose first element is the number."""

    def lower(self, op: vector.BroadcastOp, rewriter: PatternRewriter, /) -> None:
        source, type = op.operands[0], op.results[0].type
        assert isinstance(type, VectorType)
        if not isinstance(source.type, VectorType):
            empty = rewriter.insert(llvm.UndefOp(VectorType(type.element_type, [1])))
            first = rewriter.insert(llvm.ConstantOp(IntegerAttr(0, i64), i64))
            source = rewriter.insert(llvm.InsertElementOp(empty.res, source, first.result)).res
        mask = DenseArrayBase.from_list(i32, [0] * type.get_shape()[0])
        rewriter.replace(op, llvm.ShuffleVectorOp(source, source, mask, type))


class LowerShuffle(LoweringPattern[vector.ShuffleOp]):
    """Lower ``vector.shuffle`` to ``llvm.shufflevector``."""

    def lower(self, op: vector.ShuffleOp, rewriter: PatternRewriter, /) -> None:
        mask = DenseArrayBase.from_list(i32, list(op.mask.get_values()))
        rewriter.replace(op, llvm.ShuffleVectorOp(op.v1, op.v2, mask, op.result.type))


class ConvertNativeToLlvmPass(PatternPass):
    """Lower every function to the llvm dialect."""

    name = "convert-native-to-llvm"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (
            LowerFunction,
            LowerCall,
            LowerBranch,
            LowerConditionalBranch,
            LowerConstant,
            LowerToCounterpart,
            LowerToIntrinsic,
            LowerIndexCast,
            LowerComparison,
            LowerLoad,
            LowerStore,
            LowerView,
            LowerBroadcast,
            LowerShuffle,
        )

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for module in segment_modules(op):
            verify_bounds(module)
            convert_functions(ctx, module)


def convert_functions(context: Context, module: ModuleOp) -> None:
    """Lower the functions of ``module``. Raises CompileError for an operation without a form in the llvm dialect."""
    ConvertScfToCf().apply(context, module)
    target = ConversionTarget(ConvertNativeToLlvmPass.name, ("llvm.",))
    apply_conversion(context, module.body, target, [pattern() for pattern in ConvertNativeToLlvmPass.patterns()])
