"""SVDF on codes: int8 input and output, int16 memory and time weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import multiply, quantize_multiplier, requantize, wrap32
from odc_mlir.numerics.gates import saturate16
from odc_mlir.numerics.matmul import Matrix

Codes = NDArray[Any]


@dataclass(frozen=True, slots=True)
class SvdfParams:
    """Factors ``(multiplier, exponent)`` of memory entries and results, and zero points of input and result."""

    memory: tuple[int, int]
    result: tuple[int, int]
    in_zero: int
    out_zero: int


def svdf_params(scales: tuple[float, float, float, float, float], in_zero: int, out_zero: int) -> SvdfParams:
    """Return parameters in float64 from the scales of input, feature weights, memory, time weights and result."""
    x, features, memory, time, out = (float(np.float32(scale)) for scale in scales)
    first, second = quantize_multiplier(x * features / memory), quantize_multiplier(memory * time / out)
    return SvdfParams(first, second, in_zero, out_zero)


def feature_codes(x: Codes, features: Matrix, p: SvdfParams) -> NDArray[np.int16]:
    """Return the new memory entries ``[N, F]`` for int8 ``x [N, I]``."""
    sums = features.product(x.astype(np.int32) - p.in_zero)
    return saturate16(multiply(sums, *p.memory).astype(np.int64)).astype(np.int16)


def result_codes(memory: Codes, time: Codes, bias: Codes | None, rank: int, p: SvdfParams) -> NDArray[np.int8]:
    """Return results ``[N, F / rank]`` from the memory ``[N, F, M]`` and time weights ``[F, M]``."""
    sums = np.einsum("nfm,fm->nf", memory.astype(np.int64), time.astype(np.int64))
    units = sums.reshape(len(sums), -1, rank).sum(axis=2)
    total = wrap32(units if bias is None else units + bias)
    return requantize(total, *p.result, p.out_zero, -128, 127, "int8")
