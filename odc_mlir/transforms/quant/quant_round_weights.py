"""``quant-round-weights``: replace the quantised weights of layers.

Before, with a file that says ``{"dense": [[13, -7], [0, 127]]}``::

    %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32:0, {0.01, 0.02}>>
    %0 = circle.fully_connected(%x, %w, %b) … loc("dense")

After: ``%w`` is ``[13, -7, 0, 127]`` of the same type.

Only the rounding of weights changes, to what calibration data shows to be best, and with ``scales`` the scales of
weights behind a DEQUANTIZE; scales that operators compute with stay. Layers are named by their results. Does nothing
without ``codes``. Rejects unknown names, layers without constant weights, arrays of another shape, values outside the
type; scales that are not positive, are given without codes, or belong to weights that operators read quantised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir.errors import ModelError
from odc_mlir.ops.spec import Array, QuantParams
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.quant.common.layers import LayerConstant, layer_constants, load_arrays


@dataclass(frozen=True)
class QuantRoundWeightsPass(ModulePass):
    """Replace codes of weights; see the module's text."""

    name = "quant-round-weights"

    codes: str = ""
    """An .npz file with the quantised weights of each layer, by the name of its result."""

    scales: str = ""
    """An .npz file with new scales of weights behind a DEQUANTIZE, one for each of the old, by the same names."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.codes:
            scales = load_arrays(self.scales, "scales") if self.scales else {}
            round_weights(op, load_arrays(self.codes, "codes"), scales)


def round_weights(module: ModuleOp, codes: Mapping[str, Array], scales: Mapping[str, Array] | None = None) -> None:
    """Make ``codes``, by result name, the weights of layers of ``module`` in place, with ``scales`` where there are.

    Raises ModelError.
    """
    scales = scales or {}
    for name in scales:
        if name not in codes:
            raise ModelError("scales without codes", tensor=name, hint="give both, or codes alone")
    for weights, array in layer_constants(module, codes, "weights"):
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
        new = array.astype(info.info.numpy)
        params = _scaled(weights, scales[op_name(weights.op)]) if op_name(weights.op) in scales else None
        if params is not None or not np.array_equal(new, info.array()):
            weights.replace(new, params)


def _scaled(weights: LayerConstant, scales: Array) -> QuantParams:
    """The parameters of ``weights`` with other scales; raises ModelError."""
    where = {"op": weights.op.SPEC.name, "tensor": op_name(weights.op)}
    old = weights.info.quant
    if weights.between is None or old is None:
        raise ModelError("the operator computes with the scales of its weights, which cannot change alone", **where)
    new = np.asarray(scales, np.float32).reshape(-1)
    if len(new) != len(old.scales) or not (np.isfinite(new) & (new > 0)).all():
        raise ModelError(f"{len(new)} scales in place of {len(old.scales)}; as many positive ones are needed", **where)
    return replace(old, scales=tuple(new.tolist()))
