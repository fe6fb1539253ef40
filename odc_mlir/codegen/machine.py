"""LLVM's descriptions of processors, features of the running machine, and object code from module texts."""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from odc_mlir.errors import CompileError, OptionError, of_extra
from odc_mlir.processors import HERE, CpuTarget, best_for, flags_of, load

EXTRA = "llvmlite"
HINT = "pip install 'odc-mlir[native]'"

_CPUINFO = Path("/proc/cpuinfo")
_FLAG_LINES = ("flags", "Features")  # on x86 and on Arm
# LLVM's names of features, by Linux's names.
_NAMES = {"avx512_vnni": "avx512vnni", "asimd": "neon", "asimddp": "dotprod", "avx512_bf16": "avx512bf16"}
_ARCHITECTURES = {"AMD64": "x86_64", "arm64": "aarch64"}


def has_code_generator() -> bool:
    """Return whether llvmlite is installed, without importing it."""
    return find_spec(EXTRA) is not None


def architecture() -> str:
    """Return the architecture of the running machine, the first part of its triple."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


@cache
def known_features() -> frozenset[str] | None:
    """Return LLVM's names of the machine's features, or None if the system does not report them."""
    try:
        text = _CPUINFO.read_text("utf-8", "replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, flags = line.partition(":")
        if name.strip() in _FLAG_LINES:
            return frozenset(_NAMES.get(flag, flag) for flag in flags.split())
    return None


def why_not_known_here(wanted: str, features: tuple[str, ...]) -> str | None:
    """Return the reason why code for such a processor cannot run here, or None if it can or nothing is known."""
    return _why_not(wanted, features, architecture(), known_features())


def why_not_here(wanted: str, features: tuple[str, ...]) -> str | None:
    """Return the reason why code for such a processor cannot run here, according to LLVM, or None."""
    return _why_not(wanted, features, running_architecture(), running_features())


def _why_not(wanted: str, features: tuple[str, ...], here: str, known: frozenset[str] | None) -> str | None:
    if wanted != here:
        return f"it is for {wanted}, this machine is {here}"
    missing = sorted(set(features) - known) if known is not None else []
    return f"this machine lacks {', '.join(missing)}" if missing else None


def machine_facts() -> str:
    """Return a digest of the architecture and the features of this machine."""
    features = known_features()
    text = "\0".join([architecture(), *sorted(features if features is not None else {platform.processor()})])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def import_llvm() -> Any:
    """Return llvmlite's binding with all targets initialised. Raises OptionError if it is not installed."""
    with of_extra("native", OptionError, "native code needs the package llvmlite"):
        from llvmlite import binding
    _initialize()
    return binding


@cache
def _initialize() -> None:
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


def running_features() -> frozenset[str]:
    """Return LLVM's names of the running machine's features. Raises OptionError without llvmlite."""
    found = import_llvm().get_host_cpu_features()
    features = {name for name, present in found.items() if present}
    # LLVM does not report NEON on aarch64, where every processor has it.
    return frozenset(features | ({"neon"} if running_architecture() == "aarch64" else set()))


def running_architecture() -> str:
    """Return the architecture of the running machine, according to LLVM."""
    return str(import_llvm().get_default_triple()).partition("-")[0]


def resolve(name: str) -> CpuTarget:
    """Return the processor ``name``. ``cpu`` means the best description of the running machine. Raises OdcError."""
    if name != HERE:
        return load(name)
    return best_for(running_architecture(), running_features())


@cache
def chosen(target: str, triple: str | None, name: str) -> CpuTarget:
    """Return the processor with LLVM's names ``triple`` and ``name``, or without triple ``target``. Raises OdcError."""
    if triple is not None:
        return for_triple(triple, name)
    if name:
        hint = f"add {flags_of(name) or '--triple with the triple of its architecture, such as riscv32-none-elf'}"
        raise OptionError(f"the processor {name!r} has no triple, and code would be for this machine", hint=hint)
    return resolve(target)


def for_triple(triple: str, name: str) -> CpuTarget:
    """Return a processor by LLVM's names. Its kernels use portable arithmetic.

    Raises OptionError for an unknown triple or name, and for a big-endian processor.
    """
    try:
        import_llvm().Target.from_triple(triple)
    except RuntimeError:
        raise OptionError(f"LLVM knows no target {triple!r}", hint="use a triple such as thumbv7em-none-eabi") from None
    _check_cpu(triple, name)
    # LLVM's code generators expect all four parts. If a part is missing, eabihf has no effect on the ABI.
    parts, given = import_llvm().get_triple_parts(triple), triple.split("-")
    if parts.Env != "unknown" and len(given) < 4:
        triple = "-".join((given[0], parts.Vendor, parts.OS, given[-1]))
    # Scheduling keeps more values alive. A Cortex-M without MVE would spill values for lack of registers.
    tuning = ("-use-misched",) if re.match(r"thumbv\d+e?m\b", triple) else ()
    base = "cortex-m55" if triple.startswith("thumbv8.1m") else "generic"
    target = replace(load(base), triple=triple, cpu=name, tuning=tuning)
    if str(target_machine(target).target_data).startswith("E"):
        hint = "use a little-endian triple such as thumbv7em-none-eabi"
        raise OptionError(f"{triple} is big-endian; native code supports little-endian processors only", hint=hint)
    return target


_TRY_CPU = """
import sys
from llvmlite import binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
machine = llvm.Target.from_triple(sys.argv[1]).create_target_machine(cpu=sys.argv[2], reloc="pic")
module = llvm.parse_assembly("define void @f() { ret void }")
module.triple, module.data_layout = sys.argv[1], str(machine.target_data)
machine.emit_object(module)
"""


def _check_cpu(triple: str, name: str) -> None:
    """Raise OptionError for a processor that LLVM does not know for ``triple``.

    LLVM has no such query. It prints a message and ignores the name, or ends the process, so a child process tries it.
    """
    if not name:
        return
    arguments = [sys.executable, "-c", _TRY_CPU, triple, name]
    tried = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if tried.returncode or tried.stdout or tried.stderr:
        raise OptionError(
            f"LLVM knows no processor {name!r} for {triple}", hint="use a name that llc -mcpu=help lists, or none"
        )


def target_machine(target: CpuTarget) -> Any:
    """Return LLVM's code generator for a processor."""
    llvm = import_llvm()
    features = ",".join([*(f"+{name}" for name in target.features), *target.tuning])
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=features, opt=3, reloc="pic"
    )


BROKEN = 1 << 62
"""Count of arrivals at the barrier after a part has failed, which ends all waiting."""

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
    """Return the text of an LLVM module with a body for the barrier ``name`` that the module declares.

    An arriving part increments the count of arrivals, and waits until the count is a multiple of the number of parts.
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
    """Return the ELF file of an LLVM module. Raises CompileError if LLVM rejects it."""
    module, machine = _optimised(text, target)
    return bytes(machine.emit_object(module))


def emit_linkable(text: str, target: CpuTarget, entry: str) -> bytes:
    """Return object code for linking with other code. ``entry`` is its only global name.

    Loops that fill or copy memory do not become calls of ``memset`` and ``memcpy``, which firmware may lack.
    """
    text = re.sub(r"^(define [^{\n]*?)( *\{)?$", r'\1 "no-builtins"\2', text, flags=re.MULTILINE)
    module, machine = _optimised(text, target, entry)
    return bytes(machine.emit_object(module))


def _optimised(text: str, target: CpuTarget, entry: str | None = None) -> tuple[Any, Any]:
    """Return the module after LLVM's passes, and the code generator. Only ``entry``, if given, stays global.

    Vectorisation and unrolling are off, because kernels are already vectorised and unrolled.
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
