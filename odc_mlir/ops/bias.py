"""In which units the bias of a sum of products is stored."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from odc_mlir.ops.spec import QuantParams, TensorInfo

_SAME_SCALE = 2.0**-16  # relative: scales that differ less are the product of the others, rounded


def in_units_of_sums(quant: QuantParams, x_scale: float, weight_scales: tuple[float, ...]) -> bool:
    """Whether a bias with these parameters has zero point 0 and the scale ``input scale * weight scale``."""
    if any(quant.zero_points):
        return False
    return bool((np.abs(scale_ratios(quant, x_scale, weight_scales) - 1) <= _SAME_SCALE).all())


def scale_ratios(quant: QuantParams, x_scale: float, weight_scales: tuple[float, ...]) -> NDArray[np.float64]:
    """The bias's scales in units of sums; all scales must be positive and finite."""
    return np.asarray(quant.scales, np.float64) / (x_scale * np.asarray(weight_scales, np.float64))


def defined_by_kernels(x: TensorInfo, bias: QuantParams) -> bool:
    """Whether a bias counts in units of sums whatever its scales say.

    uint8 activations with a bias of several scales are ONE's form, and its runtimes, the only ones that run it, do not
    look at these scales: models exist where they are left over from before the weights were changed.
    """
    return x.dtype == "uint8" and not bias.per_tensor and not any(bias.zero_points)
