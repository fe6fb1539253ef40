"""``quant-round-weights``: replace the quantised weights of layers by given codes.

Before, with a file that contains ``{"dense": [[13, -7], [0, 127]]}``::

    %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32:0, {0.01, 0.02}>>
    %0 = circle.fully_connected(%x, %w, %b) … loc("dense")

After: ``%w`` is ``[13, -7, 0, 127]`` of the same type.

Only the rounding of weights changes, to the best rounding for calibration data. With ``scales``, scales change too, but
only for weights read through a DEQUANTIZE. Results name layers, and ``RESULT:OPERAND`` names one of several matrices of
a recurrent operator. Weights that operators share stay shared if the file has the same codes for all of them. Does
nothing without ``codes``. Rejects unknown names, layers without constant weights, arrays of a different shape, and
values outside the type. Also rejects scales that are not positive, have no codes, or belong to weights that operators
read quantised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir.dialects.circle import ConstOp
from odc_mlir.errors import ModelError
from odc_mlir.ops.spec import Array, QuantParams
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.quant.common.layers import LayerConstant, layer_constants, load_arrays


@dataclass(frozen=True)
class QuantRoundWeightsPass(ModulePass):
    """Replace codes of weights."""

    name = "quant-round-weights"

    codes: str = ""
    """.npz file with the quantised weights of each layer, by the name of its result."""

    scales: str = ""
    """.npz file with the same number of new scales for weights read through a DEQUANTIZE, by the same names."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.codes:
            scales = load_arrays(self.scales, "scales") if self.scales else {}
            round_weights(op, load_arrays(self.codes, "codes"), scales)


def round_weights(module: ModuleOp, codes: Mapping[str, Array], scales: Mapping[str, Array] | None = None) -> None:
    """Replace weights of layers in ``module`` by ``codes``, and scales by ``scales``. Keys are result names.

    Raises ModelError for weights that the pass rejects.
    """
    scales = scales or {}
    found: dict[ConstOp, list[_NewWeights]] = {}
    for name in scales:
        if name not in codes:
            raise ModelError("scales without codes", tensor=name, hint="give both, or codes alone")
    for name, (weights, array) in zip(codes, layer_constants(module, codes, "weights"), strict=True):
        new = _NewWeights(weights, _checked(weights, array), _scaled(weights, scales[name]) if name in scales else None)
        found.setdefault(weights.constant, []).append(new)
    for uses in found.values():
        first = uses[0]
        if len(uses) == first.weights.readers and all(map(first.is_like, uses)):
            first.weights.replace_for_all(first.codes, first.params)
            continue
        for use in uses:
            if use.params is not None or not np.array_equal(use.codes, use.weights.info.array()):
                use.weights.replace(use.codes, use.params)


@dataclass(frozen=True)
class _NewWeights:
    weights: LayerConstant
    codes: Array
    params: QuantParams | None

    def is_like(self, other: _NewWeights) -> bool:
        return self.params == other.params and np.array_equal(self.codes, other.codes)


def _checked(weights: LayerConstant, array: Array) -> Array:
    info = weights.info
    where = {"op": weights.op.SPEC.name, "tensor": op_name(weights.op)}
    if not info.info.is_integer or array.dtype.kind not in "iu":
        raise ModelError(f"the weights are {info.dtype}, the codes {array.dtype}; both must be integers", **where)
    if array.shape != info.static_shape:
        raise ModelError(f"codes of the shape {list(array.shape)} for weights {list(info.static_shape)}", **where)
    least, most = info.info.range
    if array.size and (array.min() < least or array.max() > most):
        seen = f"codes from {array.min()} to {array.max()}"
        raise ModelError(f"{seen}; {info.dtype} has {least} to {most}", **where)
    return array.astype(info.info.numpy)


def _scaled(weights: LayerConstant, scales: Array) -> QuantParams:
    where = {"op": weights.op.SPEC.name, "tensor": op_name(weights.op)}
    old = weights.info.quant
    if weights.between is None or old is None:
        raise ModelError("the operator computes with the scales of its weights, which cannot change alone", **where)
    new = np.asarray(scales, np.float32).reshape(-1)
    if len(new) != len(old.scales) or not (np.isfinite(new) & (new > 0)).all():
        raise ModelError(f"{len(new)} scales in place of {len(old.scales)}; as many positive ones are needed", **where)
    return replace(old, scales=tuple(new.tolist()))
