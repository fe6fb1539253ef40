"""Object code by LLVM, from the text of modules, with the barrier between the parts of a segment."""

from __future__ import annotations

import re
from typing import Any

from odc_mlir.codegen.machine import import_llvm, target_machine
from odc_mlir.errors import CompileError
from odc_mlir.targets.cpu import CpuTarget

BROKEN = 1 << 62
"""The number of arrivals that ends all waiting: the barrier is set to it if a part fails."""

_SPINS = 512  # pauses before the thread yields the processor: a few microseconds
_PAUSES = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}
_DECLARATIONS = {"x86_64": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)"}
_TEXT = """
declare i32 @sched_yield()
{declaration}
define internal void @{name}(ptr %arrivals, i64 %parts) noinline {{
entry:
  %before = atomicrmw add ptr %arrivals, i64 1 acq_rel
  %round = udiv i64 %before, %parts
  %next = add i64 %round, 1
  %enough = mul i64 %next, %parts
  br label %look
look:
  %spins = phi i64 [ 0, %entry ], [ %more, %pause ], [ %spins, %give ]
  %now = load atomic i64, ptr %arrivals acquire, align 8
  %all = icmp uge i64 %now, %enough
  %broken = icmp uge i64 %now, {broken}
  %done = or i1 %all, %broken
  br i1 %done, label %leave, label %wait
wait:
  %short = icmp ult i64 %spins, {spins}
  br i1 %short, label %pause, label %give
pause:
  {pause}
  %more = add i64 %spins, 1
  br label %look
give:
  %ignored = call i32 @sched_yield()
  br label %look
leave:
  ret void
}}
"""


def with_barrier(text: str, name: str, architecture: str) -> str:
    """Return the text of an LLVM module with the body of the barrier that it declares by this name.

    A part that arrives increments the count and waits until it is a multiple of the number of parts.
    """
    body = _TEXT.format(
        name=name,
        declaration=_DECLARATIONS.get(architecture, ""),
        pause=_PAUSES.get(architecture, ""),
        spins=_SPINS,
        broken=BROKEN,
    )
    return re.sub(rf'^declare void @"?{re.escape(name)}"?\(.*$', "", text, flags=re.MULTILINE) + body


def emit_object(text: str, target: CpuTarget) -> bytes:
    """Return the ELF file of an LLVM module; raise CompileError if LLVM rejects it."""
    module, machine = _optimised(text, target)
    return bytes(machine.emit_object(module))


def emit_linkable(text: str, target: CpuTarget, entry: str) -> bytes:
    """Return object code for linking with other code: ``entry`` is its only global name.

    Loops that fill or copy do not become calls of ``memset`` and ``memcpy``, which firmware need not have.
    """
    text = re.sub(r"^(define [^{\n]*?)( *\{)?$", r'\1 "no-builtins"\2', text, flags=re.MULTILINE)
    module, machine = _optimised(text, target, entry)
    return bytes(machine.emit_object(module))


def emit_assembly(text: str, target: CpuTarget) -> str:
    """Return the assembly text of :func:`emit_object`."""
    module, machine = _optimised(text, target)
    return str(machine.emit_assembly(module))


def _optimised(text: str, target: CpuTarget, entry: str | None = None) -> tuple[Any, Any]:
    """Return the module after the passes of LLVM, and the code generator; only ``entry``, if given, stays global.

    Vectorisation and unrolling are off: kernels are written so already.
    """
    llvm = import_llvm()
    machine = target_machine(target)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM rejects the module: {str(error).splitlines()[0]}") from error
    if entry is not None:
        for function in module.functions:
            if not function.is_declaration and function.name != entry:
                function.linkage = "internal"
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return module, machine
