"""``.cpu`` files of segments in the llvm dialect."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import llvm
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr

from odc_mlir.codegen.barrier import with_barrier
from odc_mlir.codegen.machine import import_llvm
from odc_mlir.codegen.objects import emit_object
from odc_mlir.dialects.circle import BlobAttr, info_of
from odc_mlir.dialects.native_attributes import ARENA_BYTES, CHOOSE, CONSTANTS, INLINE, PART, SCRATCH_BYTES
from odc_mlir.dialects.odc import SegmentOp, YieldOp, lowered_symbols
from odc_mlir.errors import CompileError
from odc_mlir.formats.native_segment import ALIGNMENT_BYTES, BARRIER, SLACK_BYTES, NativePort, NativeSegment
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.targets.cpu import CpuTarget


def emit_native_segment(segment: SegmentOp, target: CpuTarget) -> bytes:
    """Return the ``.cpu`` file of a segment at stage ``native-llvm``; raise CompileError and OptionError."""
    module = module_of(segment)
    constants, arena = module.attributes.get(CONSTANTS), module.attributes.get(ARENA_BYTES)
    if not isinstance(constants, BlobAttr) or not isinstance(arena, IntegerAttr):
        raise CompileError("the segment has no constants or no arena", hint="run the stages before native-llvm first")
    last = segment.circle_block.last_op
    assert isinstance(last, YieldOp)
    part, scratch = module.attributes.get(PART), module.attributes.get(SCRATCH_BYTES)
    text = llvm_text(module)
    return NativeSegment(
        target=target.name,
        triple=target.triple,
        features=target.features,
        entry=segment.sym_name.data,
        part_entry=part.data if isinstance(part, StringAttr) else "",
        inputs=tuple(_port(info_of(value)) for value in segment.circle_block.args),
        outputs=tuple(_port(info_of(value)) for value in last.operands),
        arena_bytes=arena.value.data,
        scratch_bytes=scratch.value.data if isinstance(scratch, IntegerAttr) else 0,
        alignment_bytes=ALIGNMENT_BYTES,
        slack_bytes=SLACK_BYTES,
        code=emit_object(text if part is None else with_barrier(text, BARRIER, target.architecture), target),
        constants=bytes(constants.data.data),
    ).to_bytes()


def module_of(segment: SegmentOp) -> ModuleOp:
    """Return the module with the functions of a segment; raise CompileError if there is none yet."""
    root = segment.parent_op()
    while root is not None and not isinstance(root, ModuleOp):
        root = root.parent_op()
    found = None if root is None else lowered_symbols(root).get(segment.sym_name.data)
    if not isinstance(found, ModuleOp):
        raise CompileError("the segment holds no functions", hint="run the stages before native-llvm first")
    return found


def _port(info: TensorInfo) -> NativePort:
    return NativePort(info.name, info.dtype, info.static_shape)


def llvm_text(module: ModuleOp) -> str:
    """Return the text of the LLVM module of functions in the llvm dialect, translated by xDSL."""
    import_llvm()
    from xdsl.backend.llvm.convert import convert_module

    inline = {op.sym_name.data for op in module.ops if isinstance(op, llvm.FuncOp) and INLINE in op.attributes}
    private = {
        op.sym_name.data for op in module.ops if isinstance(op, llvm.FuncOp) and op.linkage.linkage.data == "internal"
    }
    translated = convert_module(module, fallback_target_triple="")
    for function in translated.functions:
        if function.name.startswith(CHOOSE):
            _define_choice(function)
        # the translation drops linkage and attributes
        if function.name in private:
            function.linkage = "internal"
        if function.name in inline:
            function.attributes.add("alwaysinline")
        elif function.name in private:
            function.attributes.add("noinline")
            function.attributes.add("optsize")
    return str(translated)


def _define_choice(function: Any) -> None:
    """Define ``function(a, b, x, y)``: ``x`` where ``a`` and ``b`` compare as its name says, else ``y``.

    xDSL's comparisons and selections accept no vectors, LLVM's do.
    """
    from llvmlite.ir import IRBuilder

    builder = IRBuilder(function.append_basic_block())
    a, b, x, y = function.args
    symbol = {"eq": "==", "gt": ">", "ge": ">="}[function.name.split(".")[-2]]
    builder.ret(builder.select(builder.fcmp_ordered(symbol, a, b), x, y))
    function.name = function.name.removeprefix("llvm.")  # a prefix that LLVM reserves for its own
    function.linkage = "internal"
    function.attributes.add("alwaysinline")
