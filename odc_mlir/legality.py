"""Legality: one table of legal operations and constraints for every stage, and targets of conversions.

Verifiers of operations do not depend on the stage. This table adds rules for each stage. For example, no buffer has an
address before ``npu-alloc``, and no operation of an earlier level remains after a lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.dialects.native_attributes import ARENA_BYTES, CONSTANTS, KERNEL, PART
from odc_mlir.dialects.npu_program import INPUT_OFFSETS, OUTPUT_OFFSETS, ProgramOp
from odc_mlir.dialects.odc import SegmentOp, YieldOp, lowered_symbols
from odc_mlir.errors import CompileError
from odc_mlir.support.locations import op_name


class Breach(NamedTuple):
    """An illegal operation, with the problem and a remedy."""

    op: Operation
    problem: str
    hint: str | None = None


Law = Callable[[Any], Iterator[Breach]]
"""Constraint on a program. At stages of native code, constraint on the module of a segment."""

OFFSETS = (INPUT_OFFSETS, OUTPUT_OFFSETS)


def no_tilings(program: ProgramOp) -> Iterator[Breach]:
    """All operations compute tensors and have no decisions about the tile buffer. Tilings are allowed."""
    from odc_mlir.dialects.npu import TENSOR_OPS, PadOp  # the quantiser checks its stages without this dialect
    from odc_mlir.dialects.npu_tiling import PARTS, RESIDENT, SLOT_BYTES, VIEW

    for op in program.block.ops:
        if not isinstance(op, (*TENSOR_OPS, YieldOp)) or isinstance(op, PadOp):  # PadOps are part of others
            yield Breach(op, "is of another level")
        for name in (VIEW, PARTS, RESIDENT, SLOT_BYTES):
            if name in op.attributes:
                yield Breach(op, f"has {name} already")


def no_addresses(program: ProgramOp) -> Iterator[Breach]:
    """No buffer has an address. No input or output has an offset in a region."""
    from odc_mlir.dialects.npu_isa import BufferOp

    for op in program.block.ops:
        if type(op) is BufferOp and op.address is not None:
            yield Breach(op, f"buffer {op.label.data!r} has an address already", "leave it out: npu-alloc gives it one")
    for name in OFFSETS:
        if name in program.attributes:
            yield Breach(program, f"has {name} already", "leave it out: npu-alloc gives it")


def all_addresses(program: ProgramOp) -> Iterator[Breach]:
    """Every buffer has an address. Every input and output has an offset in a region."""
    from odc_mlir.dialects.npu_isa import ADDRESS_HINT, BufferOp

    for op in program.block.ops:
        if type(op) is BufferOp and op.address is None:
            yield Breach(op, f"buffer {op.label.data!r} has no address", ADDRESS_HINT)
    for name in OFFSETS:
        if name not in program.attributes:
            yield Breach(program, f"has no {name}", "npu-allocate-memory gives it")


def no_semaphores(program: ProgramOp) -> Iterator[Breach]:
    """No instruction waits for or posts semaphores."""
    from odc_mlir.dialects.npu_isa import is_instruction

    for op in program.block.ops:
        if ("waits" in op.properties or "posts" in op.properties) and is_instruction(op):
            yield Breach(op, "has semaphores already")


def _absent(name: str, stage: str) -> Law:
    """The module has no attribute ``name`` before ``stage``, which sets it."""

    def law(module: ModuleOp) -> Iterator[Breach]:
        if name in module.attributes:
            yield Breach(module, f"has {name} already", f"leave it out: {stage} gives it")

    return law


def an_arena(module: ModuleOp) -> Iterator[Breach]:
    """Buffers have offsets in the arena."""
    if ARENA_BYTES not in module.attributes:
        yield Breach(module, f"has no {ARENA_BYTES}", "native-allocate-memory gives it")


def places_inside(module: ModuleOp) -> Iterator[Breach]:
    """Buffers with a numeric address begin inside the arena, and such constants inside the block of constants."""
    from xdsl.dialects import llvm  # only native code needs this dialect

    arena, constants = (module.attributes.get(name) for name in (ARENA_BYTES, CONSTANTS))
    entry = next(
        (op for op in module.body.block.ops if isinstance(op, llvm.FuncOp) and op.sym_name == module.sym_name), None
    )
    if entry is None or not (isinstance(arena, IntegerAttr) and isinstance(constants, BlobAttr)):
        return
    sizes = {ARENA_BYTES: arena.value.data, CONSTANTS: len(constants.data.data)}
    for value, (name, size) in zip(entry.body.block.args[-2:], sizes.items(), strict=True):
        for op in (use.operation for use in value.uses):
            index = op.operands[-1].owner
            number = index.value if isinstance(index, llvm.ConstantOp) else None
            if isinstance(number, IntegerAttr) and not 0 <= number.value.data <= size:
                yield Breach(op, f"is at byte {number.value.data} of {size}", f"take 0 to {size}, or change {name}")


def no_kernels(module: ModuleOp) -> Iterator[Breach]:
    """Every kernel is written as loops."""
    for op in module.body.block.ops:
        if KERNEL in op.attributes:
            yield Breach(op, f"is the kernel {op.attributes[KERNEL]}", "native-write-kernels writes its loops")


@dataclass(frozen=True)
class ConversionTarget:
    """Legal operations after a conversion: prefixes of names, and a condition on some operations."""

    conversion: str  # the name of the pass
    names: tuple[str, ...]
    condition: Callable[[Operation], bool] | None = None

    def is_legal(self, op: Operation) -> bool:
        """Return whether ``op`` may remain after the conversion."""
        return op.name.startswith(self.names) and (self.condition is None or self.condition(op))


class StageLegality(NamedTuple):
    """Legal contents of a module at the end of a stage.

    ``around``: name prefixes of operations outside of programs. ``inside``: name prefixes of operations in programs.
    ``laws``: constraints on each program or segment module. Without laws, the module may contain neither.
    """

    around: tuple[str, ...]
    inside: tuple[str, ...] = ()
    laws: tuple[Law, ...] = ()


_MODEL = ("builtin.", "func.", "circle.")
_SEGMENTS = (*_MODEL, "odc.")
_INSTRUCTIONS = ("npu.buffer", "npu.isa.")
NPU_INSTRUCTIONS = ConversionTarget("npu-lower-to-tiles", _INSTRUCTIONS)
_BUFFERS = (*_SEGMENTS, "arith.", "memref.")
_LOOPS = (*_BUFFERS, "llvm.", "scf.", "vector.")

LEVELS = {
    "circle": StageLegality(_MODEL),
    "circle-opt": StageLegality(_MODEL),
    "quant": StageLegality(_MODEL),
    "partition": StageLegality(_SEGMENTS),
    "npu": StageLegality(_SEGMENTS, ("npu.", YieldOp.name), (no_tilings,)),
    "npu-sched": StageLegality(_SEGMENTS, _INSTRUCTIONS, (no_addresses, no_semaphores)),
    "npu-alloc": StageLegality(_SEGMENTS, (*_INSTRUCTIONS, "npu.loop", "npu.memory"), (all_addresses,)),
    "package": StageLegality(_SEGMENTS, (*_INSTRUCTIONS, "npu.loop", "npu.memory"), (all_addresses,)),
    "native-partition": StageLegality(_SEGMENTS),
    "native": StageLegality(_BUFFERS, laws=(_absent(ARENA_BYTES, "native-alloc"),)),
    "native-alloc": StageLegality(_BUFFERS, laws=(an_arena, _absent(PART, "native-divide"))),
    "native-divide": StageLegality((*_BUFFERS, "scf."), laws=(an_arena,)),
    "native-loops": StageLegality(_LOOPS, laws=(an_arena, no_kernels)),
    "native-llvm": StageLegality((*_SEGMENTS, "llvm."), laws=(an_arena, places_inside, no_kernels)),
}
"""Legal contents of a module at the end of each stage."""


def check_stage(module: ModuleOp, stage: str) -> None:
    """Raise a CompileError that names operation and stage if ``module`` violates a constraint of ``stage``."""
    level = LEVELS[stage]
    for op, problem, hint in _breaches(module, level):
        raise CompileError(
            f"illegal at the end of stage {stage}: {op.name} {problem}",
            op=op.name,
            tensor=op_name(op) or None,
            hint=hint or "insert a pass that lowers it in the same stage",
        )


def fitting_stages(module: ModuleOp) -> Iterator[str]:
    """Yield the stages with rules that ``module`` meets. For lowered segments, only stages of segments."""
    lowered = any(isinstance(op, ProgramOp | ModuleOp) for op in module.body.block.ops)
    for stage, level in LEVELS.items():
        if bool(level.laws) == lowered and next(_breaches(module, level), None) is None:
            yield stage


def _breaches(module: ModuleOp, level: StageLegality) -> Iterator[Breach]:
    if level.laws and (symbols := lowered_symbols(module)):
        segments = (
            op for top in module.ops if isinstance(top, FuncOp) for op in top.walk() if isinstance(op, SegmentOp)
        )
        lost = (op for op in segments if op.sym_name.data not in symbols)
        yield from (Breach(op, f"@{op.sym_name.data} has no lowered form", "name its program after it") for op in lost)
    known: dict[type[Operation], bool] = {}
    for top in module.body.block.ops:
        kinds = (ProgramOp,) if level.inside else (ModuleOp,) if level.laws else ()
        if isinstance(top, ProgramOp | ModuleOp) and not isinstance(top, kinds):
            yield Breach(top, "is of another level")
        if not isinstance(top, ProgramOp):
            others = (op for op in top.walk() if not op.name.startswith(level.around))
            yield from (Breach(op, "is of another level") for op in others)
        for op in top.block.ops if isinstance(top, ProgramOp) else ():
            kind = type(op)
            if kind not in known:
                known[kind] = op.name.startswith(level.inside)
            if not known[kind]:
                yield Breach(op, "is of another level")
        for law in level.laws if isinstance(top, ProgramOp | ModuleOp) else ():
            yield from law(top)
