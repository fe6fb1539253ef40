"""How much of a layer's weights SRAM has no room for beside the tensors that are in use meanwhile.

Weights that are read again for every tile are read from a copy in SRAM. Where there is no room for the copy, each time
goes through the off-chip port, which is narrow: a tiling that reads weights once is better then, although it reads
the image more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from xdsl.ir import Block, Operation, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.odc import YieldOp
from odc_mlir.isa.fields import FULL_RECORD_BYTES
from odc_mlir.transforms.npu.schedule.constants import stored_bytes
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram
from odc_mlir.transforms.npu.schedule.tensor_ir import layer_ops
from odc_mlir.transforms.npu.schedule.views import ViewSources

STEP = 4096  # bytes are rounded up to this, so that layers of one form share a search


def uncopied_weights(job: TargetedProgram) -> dict[Operation, int]:
    """Bytes of weights without room for a copy, by layer; layers whose weights all have room are left out.

    Where memory is preferred, the arena is no larger than tensors make it.
    """
    if job.memory != "flash":
        return {}
    layers = layer_ops(job.block)
    held = held_bytes(job.block, layers)
    arena = min(max(held, default=0), job.sram_bytes) if job.choice.prefer == "memory" else job.sram_bytes
    found: dict[Operation, int] = {}
    for op, taken in zip(layers, held, strict=True):
        room = max(0, arena - taken)
        if not isinstance(op, npu.ConvOp) or op.weights.data.size + FULL_RECORD_BYTES * len(op.bias) <= room:
            continue
        if (short := stored_bytes(op) - room) > 0:
            found[op] = -(-short // STEP) * STEP
    return found


def held_bytes(block: Block, layers: Sequence[Operation]) -> list[int]:
    """Bytes of the tensors of a program that are in use while each of its ``layers`` runs."""
    views, spans = ViewSources(block), dict[SSAValue, tuple[int, int]]()

    def use(value: SSAValue, layer: int) -> None:
        root = views.place(value)[0]
        if not isinstance(root.owner, npu.ConstantOp):
            first, last = spans.get(root, (layer, layer))
            spans[root] = min(first, layer), max(last, layer)

    for argument in block.args:
        if argument.uses:
            use(argument, 0)
    for number, op in enumerate(layers):
        for value in (*op.operands, *op.results):
            use(value, number)
    if isinstance(block.last_op, YieldOp):
        for value in block.last_op.operands:
            use(value, len(layers) - 1)
    change = [0] * (len(layers) + 1)
    for value, (first, last) in spans.items():
        change[first] += npu.size_bytes(value)
        change[last + 1] -= npu.size_bytes(value)
    return list(accumulate(change[:-1]))
