"""From the text of an LLVM module to object code."""

from __future__ import annotations

import re
from typing import Any

from odc_mlir.codegen.machine import import_llvm, target_machine
from odc_mlir.errors import CompileError
from odc_mlir.targets.cpu import CpuTarget


def emit_object(text: str, target: CpuTarget) -> bytes:
    """The ELF file of an LLVM module; raises CompileError for one that LLVM refuses."""
    module, machine = _optimised(text, target)
    return bytes(machine.emit_object(module))


def emit_linkable(text: str, target: CpuTarget, entry: str) -> bytes:
    """Object code to be linked with other code: ``entry`` is its only global name, and it calls no C library for loops.

    Loops that fill or copy would become ``memset`` and ``memcpy``, which firmware need not have.
    """
    text = re.sub(r"^(define [^{\n]*?)( *\{)?$", r'\1 "no-builtins"\2', text, flags=re.MULTILINE)
    module, machine = _optimised(text, target, entry)
    return bytes(machine.emit_object(module))


def emit_assembly(text: str, target: CpuTarget) -> str:
    """What :func:`emit_object` contains, to be read."""
    module, machine = _optimised(text, target)
    return str(machine.emit_assembly(module))


def _optimised(text: str, target: CpuTarget, entry: str | None = None) -> tuple[Any, Any]:
    """The module after LLVM's passes; ``entry``: what alone stays global.

    Kernels are vectorised and unrolled as they are written, so that is left out.
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
