"""``quant-round-weights``: give layers of a quantised model other codes as weights.

Before, with a file that says ``{"dense": [[13, -7], [0, 127]]}``::

    %w = circle.const [12, -7, 1, 127] : tensor<2x2x!quant.uniform<i8:f32:0, {0.01, 0.02}>>
    %0 = circle.fully_connected(%x, %w, %b) … loc("dense")

After: ``%w`` is ``[13, -7, 0, 127]`` of the same type.

Scales stay: only which code stands for a weight changes, as calibration data shows to be best. Layers are named by
their results; weights may stand behind a DEQUANTIZE. Does nothing without ``codes``. Refused: names that no layer has,
layers without constant weights, arrays of another shape, and codes that the type does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir.errors import ModelError
from odc_mlir.ops.spec import Array
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.quant.common.layers import layer_constants, load_arrays


@dataclass(frozen=True)
class QuantRoundWeightsPass(ModulePass):
    """Replace codes of weights; see the module's text."""

    name = "quant-round-weights"

    codes: str = ""
    """An .npz file with the codes of each layer's weights, by the name of its result."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.codes:
            round_weights(op, load_arrays(self.codes, "codes"))


def round_weights(module: ModuleOp, codes: Mapping[str, Array]) -> None:
    """Make ``codes``, by result name, the weights of layers of ``module`` in place; raises ModelError."""
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
        if not np.array_equal(new, info.array()):
            weights.replace(new)
