"""Constants in the layout that instructions read: weights in array order, scaling records, tables."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.isa.fields import BIAS, BIAS_BYTES, COMMON_RECORD_BYTES, FULL_RECORD_BYTES, SCALE, Space
from odc_mlir.isa.weight_coding import coded_bytes
from odc_mlir.transforms.npu.schedule.program import Buffer
from odc_mlir.transforms.npu.schedule.window_tiling import ComputeStep


class ConstantPool:
    """Constant buffers of one program. Equal bytes share a buffer."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, Buffer] = {}

    def get(self, name: str, data: bytes) -> Buffer:
        """Return the buffer with content ``data``. A new buffer gets ``name``."""
        digest = hashlib.sha256(data).digest()
        buffer = self._by_digest.get(digest)
        if buffer is None:
            buffer = self._by_digest[digest] = Buffer(name, Space.CONSTANTS, len(data), data=data)
        return buffer


def packed_weights(op: npu.ConvOp, step: ComputeStep, columns: int) -> bytes:
    """Return the weights of one compute instruction in weight-buffer order.

    The order is ``[channel group][ky][kx][input channel][channel in group]`` with groups of ``columns`` channels. The
    last group may be smaller. The order of depthwise weights is ``[ky][kx][channel]``.
    """
    last = step.first + step.channels
    stored = np.int8 if op.weight_item_bytes == 1 else np.int16
    weights = np.frombuffer(op.weights.bytes, stored).reshape(op.weight_shape)
    if op.depthwise:
        return np.ascontiguousarray(weights[:, :, step.first : last]).tobytes()
    block = weights[step.first : last, :, :, step.k_first : step.k_first + step.k_count]
    return packed_channels(block, columns)


def packed_channels(block: NDArray[Any], columns: int) -> bytes:
    """Return weights ``[channel, ky, kx, input channel]`` in groups of ``columns`` channels."""
    groups = [block[start : start + columns].transpose(1, 2, 3, 0) for start in range(0, len(block), columns)]
    return b"".join(np.ascontiguousarray(group).tobytes() for group in groups)


def stored_bytes(op: Operation) -> int:
    """Estimate the bytes of an operation's compressed weights, scaling records and tables."""
    if isinstance(op, npu.ConvOp):
        return coded_bytes(bytes(op.weights.data.data)) + record_bytes(op)
    if isinstance(op, npu.LstmOp):
        weights = coded_bytes(bytes(op.input_weights.data.data)) + coded_bytes(bytes(op.recurrent_weights.data.data))
        return weights + FULL_RECORD_BYTES * len(op.bias)
    table = getattr(op, "table", None)
    return len(table.bytes) if isinstance(table, BlobAttr) else 0


_FULL = np.dtype([(name, kind) for name, kind, _ in (*BIAS, *SCALE)])
_COMMON = np.dtype([(name, kind) for name, kind, _ in SCALE])


def packed_params(op: npu.ConvOp, first: int, count: int) -> tuple[bytes, str]:
    """Return (records of channels ``[first, first + count)``, form of the ``param`` instruction that reads them).

    Records contain biases only if all channels of the operation have the same multiplier and exponent.
    """
    bias, multiplier, exponent = (np.frombuffer(v.data.data, np.int32) for v in (op.bias, op.multiplier, op.exponent))
    part = slice(first, first + count)
    if count > 1 and _has_one_scale(op):
        common = np.zeros(1, _COMMON)
        common["multiplier"], common["exponent"] = int(multiplier[0]), int(exponent[0])
        return common.tobytes() + bias[part].astype(_FULL["bias"]).tobytes(), "bias"
    return packed_records(bias[part], multiplier[part], exponent[part]), "full"


def record_bytes(op: npu.ConvOp) -> int:
    """Return the bytes of all scaling records if one instruction reads the records of all channels."""
    count = len(op.bias)
    return COMMON_RECORD_BYTES + BIAS_BYTES * count if count > 1 and _has_one_scale(op) else FULL_RECORD_BYTES * count


def _has_one_scale(op: npu.ConvOp) -> bool:
    multiplier, exponent = (np.frombuffer(v.data.data, np.int32) for v in (op.multiplier, op.exponent))
    return bool((multiplier == multiplier[0]).all() and (exponent == exponent[0]).all())


def packed_records(bias: NDArray[Any], multiplier: NDArray[Any], exponent: NDArray[Any]) -> bytes:
    """Return full records: bias, multiplier and exponent of each channel."""
    records = np.zeros(len(bias), _FULL)
    records["bias"], records["multiplier"], records["exponent"] = bias, multiplier, exponent
    return records.tobytes()
