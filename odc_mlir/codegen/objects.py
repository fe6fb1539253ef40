"""Object code from the text of LLVM modules."""

from __future__ import annotations

import re
from typing import Any

from odc_mlir.codegen.machine import import_llvm, target_machine
from odc_mlir.errors import CompileError
from odc_mlir.targets.cpu import CpuTarget


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
