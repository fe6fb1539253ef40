"""Constants as instructions read them: weights in array order, scaling records, tables."""

from __future__ import annotations

import hashlib

import numpy as np

from odc_mlir.dialects import npu
from odc_mlir.isa.fields import BIAS, FULL_RECORD_BYTES, SCALE, Space
from odc_mlir.isa.weight_coding import coded_bytes
from odc_mlir.transforms.npu.schedule.program import Buffer
from odc_mlir.transforms.npu.schedule.window_tiling import Step


class ConstantPool:
    """Constant buffers of one program; equal bytes are one buffer."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, Buffer] = {}

    def get(self, name: str, data: bytes) -> Buffer:
        """The buffer that holds ``data``; ``name`` is used when it is new."""
        digest = hashlib.sha256(data).digest()
        buffer = self._by_digest.get(digest)
        if buffer is None:
            buffer = self._by_digest[digest] = Buffer(name, Space.CONSTANTS, len(data), data=data)
        return buffer


def packed_weights(op: npu.ConvOp, step: Step, columns: int) -> bytes:
    """Weights of one compute instruction in weight-buffer order.

    ``[channel group][ky][kx][input channel][channel in group]`` with groups of ``columns`` channels, the last one as
    wide as what is left; depthwise ``[ky][kx][channel]``.
    """
    last = step.first + step.channels
    weights = np.frombuffer(op.weights.bytes, np.int8).reshape(op.weight_shape)
    if op.depthwise:
        return np.ascontiguousarray(weights[:, :, step.first : last]).tobytes()
    block = weights[step.first : last, :, :, step.k_first : step.k_first + step.k_count]
    groups = [block[start : start + columns].transpose(1, 2, 3, 0) for start in range(0, step.channels, columns)]
    return b"".join(np.ascontiguousarray(group).tobytes() for group in groups)


def stored_bytes(weights: bytes, channels: int) -> int:
    """Estimate of what a convolution's constants take: weights as if they were coded as a whole, and records."""
    return coded_bytes(weights) + FULL_RECORD_BYTES * channels


_FULL = np.dtype([(name, kind) for name, kind, _ in (*BIAS, *SCALE)])
_COMMON = np.dtype([(name, kind) for name, kind, _ in SCALE])


def packed_params(op: npu.ConvOp, first: int, count: int) -> tuple[bytes, str]:
    """(records of channels ``[first, first + count)``, form of the ``param`` instruction that reads them).

    Where all channels of the operation have the same multiplier and exponent, records hold biases only.
    """
    bias, multiplier, exponent = (np.frombuffer(v.data.data, np.int32) for v in (op.bias, op.multiplier, op.exponent))
    part = slice(first, first + count)
    uniform = bool((multiplier == multiplier[0]).all() and (exponent == exponent[0]).all())
    if uniform and count > 1:
        return _common_record(int(multiplier[0]), int(exponent[0])) + bias[part].astype(_FULL["bias"]).tobytes(), "bias"
    records = np.zeros(count, _FULL)
    records["bias"], records["multiplier"], records["exponent"] = bias[part], multiplier[part], exponent[part]
    return records.tobytes(), "full"


def uniform_params(count: int, multiplier: int, exponent: int) -> tuple[bytes, str]:
    """As :func:`packed_params`, for ``count`` channels without biases that are scaled alike."""
    return _common_record(multiplier, exponent) + bytes(_FULL["bias"].itemsize * count), "bias"


def _common_record(multiplier: int, exponent: int) -> bytes:
    common = np.zeros(1, _COMMON)
    common["multiplier"], common["exponent"] = multiplier, exponent
    return common.tobytes()
