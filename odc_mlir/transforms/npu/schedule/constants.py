"""Constants as instructions read them: weights in array order, scaling records, tables."""

from __future__ import annotations

import hashlib

import numpy as np

from odc_mlir.isa.fields import BIAS, FULL_RECORD_BYTES, SCALE, Space
from odc_mlir.isa.weight_coding import coded_bytes
from odc_mlir.transforms.npu.schedule.layers import ConvLayer
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


def packed_weights(layer: ConvLayer, step: Step, columns: int) -> bytes:
    """Weights of one compute instruction in weight-buffer order.

    ``[channel group][ky][kx][input channel][channel in group]`` with groups of ``columns`` channels, the last one as
    wide as what is left; depthwise ``[ky][kx][channel]``.
    """
    last = step.first + step.channels
    if layer.window.depthwise:
        return np.ascontiguousarray(layer.weights[:, :, step.first : last]).tobytes()
    block = layer.weights[step.first : last, :, :, step.k_first : step.k_first + step.k_count]
    groups = [block[start : start + columns].transpose(1, 2, 3, 0) for start in range(0, step.channels, columns)]
    return b"".join(np.ascontiguousarray(group).tobytes() for group in groups)


def stored_bytes(weights: bytes, channels: int) -> int:
    """Estimate of what a convolution's constants take: weights as if they were coded in one piece, and records."""
    return coded_bytes(weights) + FULL_RECORD_BYTES * channels


_FULL = np.dtype([(name, kind) for name, kind, _ in (*BIAS, *SCALE)])
_COMMON = np.dtype([(name, kind) for name, kind, _ in SCALE])


def is_uniform(layer: ConvLayer) -> bool:
    """Whether all channels have the same multiplier and exponent, so that records need to hold biases only."""
    return bool((layer.multiplier == layer.multiplier[0]).all() and (layer.exponent == layer.exponent[0]).all())


def packed_params(layer: ConvLayer, first: int, count: int) -> tuple[bytes, str]:
    """(records of channels ``[first, first + count)``, form of the ``param`` instruction that reads them)."""
    part = slice(first, first + count)
    if is_uniform(layer) and count > 1:
        common = np.zeros(1, _COMMON)
        common["multiplier"], common["exponent"] = layer.multiplier[0], layer.exponent[0]
        return common.tobytes() + layer.bias[part].astype(_FULL["bias"]).tobytes(), "bias"
    records = np.zeros(count, _FULL)
    records["bias"], records["multiplier"] = layer.bias[part], layer.multiplier[part]
    records["exponent"] = layer.exponent[part]
    return records.tobytes(), "full"
