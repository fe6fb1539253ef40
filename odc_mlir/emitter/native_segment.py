"""``.cpu`` files of segments in the llvm dialect, and object files of whole models."""

from __future__ import annotations

import math
import re
from pathlib import Path
from string import Template
from typing import Any

from xdsl.dialects import llvm
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import BlockArgument
from xdsl.rewriter import Rewriter

from odc_mlir.codegen.loading import read_symbols
from odc_mlir.codegen.machine import emit_linkable, emit_object, import_llvm, with_barrier
from odc_mlir.dialects.circle import BlobAttr, info_of
from odc_mlir.dialects.native_attributes import ARENA_BYTES, CHOOSE, CONSTANTS, INLINE, PART, SCRATCH_BYTES
from odc_mlir.dialects.odc import SegmentOp, lowered_symbols
from odc_mlir.errors import CompileError
from odc_mlir.formats.native_segment import ALIGNMENT_BYTES, BARRIER, SLACK_BYTES, NativeSegment, Port
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.processors import CpuTarget


def emit_native_segment(segment: SegmentOp, target: CpuTarget) -> bytes:
    """Return the ``.cpu`` file of a segment at stage ``native-llvm``.

    Raises CompileError for a segment at an earlier stage, and OptionError without llvmlite.
    """
    module = module_of(segment)
    constants, arena = module.attributes.get(CONSTANTS), module.attributes.get(ARENA_BYTES)
    if not isinstance(constants, BlobAttr) or not isinstance(arena, IntegerAttr):
        raise CompileError("the segment has no constants or no arena", hint="run the stages before native-llvm first")
    part, scratch = module.attributes.get(PART), module.attributes.get(SCRATCH_BYTES)
    text = llvm_text(module)
    return NativeSegment(
        target=target.name,
        triple=target.triple,
        features=target.features,
        entry=segment.sym_name.data,
        part_entry=part.data if isinstance(part, StringAttr) else "",
        inputs=tuple(_port(info_of(value)) for value in segment.circle_block.args),
        outputs=tuple(_port(info_of(value)) for value in segment.ending.operands),
        arena_bytes=arena.value.data,
        scratch_bytes=scratch.value.data if isinstance(scratch, IntegerAttr) else 0,
        alignment_bytes=ALIGNMENT_BYTES,
        slack_bytes=SLACK_BYTES,
        code=emit_object(text if part is None else with_barrier(text, BARRIER, target.architecture), target),
        constants=bytes(constants.data.data),
    ).to_bytes()


def module_of(segment: SegmentOp) -> ModuleOp:
    """Return the module with the functions of a segment. Raises CompileError if there is none."""
    root = segment.parent_op()
    while root is not None and not isinstance(root, ModuleOp):
        root = root.parent_op()
    found = None if root is None else lowered_symbols(root).get(segment.sym_name.data)
    if not isinstance(found, ModuleOp):
        raise CompileError("the segment holds no functions", hint="run the stages before native-llvm first")
    return found


def _port(info: TensorInfo) -> Port:
    return Port(info.name, info.dtype, info.static_shape)


def llvm_text(module: ModuleOp) -> str:
    """Return the LLVM IR text of a module in the llvm dialect, translated by xDSL."""
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
        # xDSL's translation drops linkage and attributes.
        if function.name in private:
            function.linkage = "internal"
        if function.name in inline:
            function.attributes.add("alwaysinline")
        elif function.name in private:
            function.attributes.add("noinline")
            function.attributes.add("optsize")
    return str(translated)


def _define_choice(function: Any) -> None:
    """Define ``function(a, b, x, y)``: select ``x`` if the comparison in the name is true, else ``y``.

    xDSL's comparisons and selections do not accept vectors, but LLVM's do.
    """
    from llvmlite.ir import IRBuilder

    builder = IRBuilder(function.append_basic_block())
    a, b, x, y = function.args
    symbol = {"eq": "==", "gt": ">", "ge": ">="}[function.name.split(".")[-2]]
    builder.ret(builder.select(builder.fcmp_ordered(symbol, a, b), x, y))
    function.name = function.name.removeprefix("llvm.")  # LLVM reserves this prefix
    function.linkage = "internal"
    function.attributes.add("alwaysinline")


MARK = "odc-mlir"
_C_TYPES = {
    "bool": "uint8_t", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "float32": "float",
}  # fmt: skip


def native_object(segment: SegmentOp, target: CpuTarget, name: str) -> tuple[bytes, str]:
    """Return object code of a segment that is a whole model, and the header that declares ``<name>_run``."""
    module = module_of(segment)
    constants, arena = module.attributes[CONSTANTS], module.attributes[ARENA_BYTES]
    assert isinstance(constants, BlobAttr)
    assert isinstance(arena, IntegerAttr)
    ends = segment.ending.operands
    inputs, outputs = [info_of(v) for v in segment.circle_block.args], [info_of(v) for v in ends]
    states = {
        v.index: f"; a state: start elements with {initial_contents(inputs[v.index]).flat[0]:g}, copy output{i} to it "
        "after each inference; two separate buffers"
        for i, v in enumerate(ends)
        if isinstance(v, BlockArgument)
    }
    if isinstance(part := module.attributes.get(PART), StringAttr):
        for op in [op for op in module.ops if isinstance(op, llvm.FuncOp) and op.sym_name.data in (part.data, BARRIER)]:
            Rewriter.erase_op(op)
    text = llvm_text(module) + _entry(segment.sym_name.data, name, len(inputs) + len(outputs), constants.data.data)
    code = emit_linkable(text, target, f"{name}_run")
    ports = [(f"input{i}", info, "const ", states.get(i, "")) for i, info in enumerate(inputs)]
    ports += [(f"output{i}", info, "", "") for i, info in enumerate(outputs)]
    parameters = [*(f"{const}{_C_TYPES[info.dtype]} *{port}" for port, info, const, _ in ports), "void *arena"]
    tensors = "".join(tensor_definitions(f"{name}_{port}", info, text=text) for port, info, _, text in ports)
    texts = {"name": name, "upper": name.upper(), "triple": target.triple, "cpu": target.cpu or "any processor"}
    sizes = {"slack": SLACK_BYTES, "alignment": ALIGNMENT_BYTES, "arena_bytes": arena.value.data + SLACK_BYTES}
    texts |= {"needed": needs(code), "tensors": tensors, "parameters": ", ".join(parameters)}
    return code, fill("object.h", **texts, **sizes)


def needs(code: bytes, subject: str = "It") -> str:
    """Return a sentence with the functions that object code, called ``subject``, needs at link time."""
    symbols = read_symbols(code)
    if symbols is None:
        return "Only the linker can report the functions that it needs, because it is not an ELF file."
    if not symbols.undefined:
        return f"{subject} calls no function of libraries."
    return f"{subject} calls functions of the compiler's runtime or the C library: {', '.join(symbols.undefined)}."


def _entry(inner: str, name: str, tensors: int, constants: memoryview) -> str:
    data = "".join(f"\\{byte:02X}" for byte in constants)
    parameters = [f"ptr %t{i}" for i in range(tensors)] + ["ptr %arena"]
    return (
        f'\n@{name}_constants = internal constant [{len(constants)} x i8] c"{data}", align {ALIGNMENT_BYTES}\n'
        f"define i32 @{name}_run({', '.join(parameters)}) {{\n"
        f"  %status = call i32 @{inner}({', '.join(parameters)}, ptr @{name}_constants)\n  ret i32 %status\n}}\n"
        f'!llvm.ident = !{{!0}}\n!0 = !{{!"{MARK}"}}\n'
    )


def fill(template: str, **texts: object) -> str:
    """Return the text of a C template. ``texts[name]`` replaces ``$name``."""
    return Template(Path(__file__).with_name("c_templates").joinpath(template).read_text()).substitute(texts)


def tensor_definitions(name: str, info: TensorInfo, slack: int = SLACK_BYTES, text: str = "") -> str:
    """Return the header definitions of one input or output, between empty lines. ``text``: end of the comment."""
    prefix = name.upper()
    shape, elements = info.static_shape, math.prod(info.static_shape)
    comment = re.sub(r"[^\x20-\x7e]|\*/|/\*", "?", info.name)
    lines = [
        f"/* {comment}: {_C_TYPES[info.dtype]} {list(shape)}{text} */",
        f"#define {prefix}_ELEMENTS {elements}",
        f"#define {prefix}_BYTES {elements * info.info.numpy.itemsize + slack}",
    ]
    if info.quant is not None and info.quant.per_tensor and info.info.is_integer:
        lines += [f"#define {prefix}_SCALE {info.quant.scale!r}f", f"#define {prefix}_ZERO {info.quant.zero_point}"]
    return "\n".join(["", *lines, ""])
