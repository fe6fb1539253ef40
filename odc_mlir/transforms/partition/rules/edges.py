"""Inputs and outputs of the NPU, which must fit in SRAM as a whole even if operators are cut into stripes."""

from __future__ import annotations

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, SSAValue

from odc_mlir.dialects.circle import CircleOp, info_of
from odc_mlir.dialects.odc import YieldOp
from odc_mlir.formats.host_reasons import MemoryReason
from odc_mlir.ops.work import tensor_bytes


def edge_bytes(op: CircleOp) -> int:
    """Return the bytes of operands and results of ``op`` that enter or leave the model or its segment."""
    return sum(map(_size, _entering(op) + _leaving(op)))


def interface_reason(op: CircleOp) -> str | None:
    """Return the reason why ``op`` converts a float input or output on the host, or None if ``op`` does not."""
    if op.SPEC.name == "QUANTIZE" and isinstance(op.operands[0].owner, Block):
        info, way = info_of(op.operands[0]), "takes"
    elif op.SPEC.name == "DEQUANTIZE" and _leaving(op):
        info, way = info_of(op.results[0]), "gives"
    else:
        return None
    kind = "input" if way == "takes" else "output"
    return f"interface: {kind} {info.name!r} is {info.dtype}; a model quantised with --io quantized {way} codes"


def memory_reason(op: CircleOp, needed_bytes: int, allowed_bytes: int) -> str:
    """Return the reason that ``op`` needs too much SRAM, with the name of a large input or output."""
    entering, leaving = _entering(op), _leaving(op)
    if edge_bytes(op) <= allowed_bytes:
        return str(MemoryReason(needed_bytes, allowed_bytes))
    largest = max(leaving + entering, key=_size)
    edge = repr(info_of(largest).name), _size(largest), "leaves" if largest in leaving else "enters"
    return str(MemoryReason(needed_bytes, allowed_bytes, edge))


def _entering(op: CircleOp) -> list[SSAValue]:
    return list(dict.fromkeys(value for value in op.operands if isinstance(value.owner, Block)))


def _leaving(op: CircleOp) -> list[SSAValue]:
    return [value for value in op.results if any(isinstance(use.operation, ReturnOp | YieldOp) for use in value.uses)]


def _size(value: SSAValue) -> int:
    return tensor_bytes(info_of(value))
