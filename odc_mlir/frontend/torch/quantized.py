"""Conversion patterns for quantised programs (PT2E): QUANTIZE and DEQUANTIZE with PyTorch's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import SSAValue

from odc_mlir.dialects.circle import ConstOp, tensor_type
from odc_mlir.errors import UnsupportedError
from odc_mlir.frontend.import_circle import add_named
from odc_mlir.frontend.torch.elementwise import Pattern, rows
from odc_mlir.frontend.torch.graph import Builder, dtype_of
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams
from odc_mlir.support.floats import to_float32
from odc_mlir.support.locations import value_name


def _numbers(g: Builder, item: Any, count: int) -> Sequence[Any]:
    if not isinstance(item, SSAValue):
        return [item or 0] * count
    if (array := g.array(item)) is None:
        raise UnsupportedError("quantisation with computed scales", hint="use static quantisation")
    return list(array.reshape(-1).tolist())


def _params(g: Builder, scale: Any, zero_point: Any, axis: int = 0) -> QuantParams:
    scales = _numbers(g, scale, 1)
    points = _numbers(g, zero_point, len(scales))
    return QuantParams(tuple(map(to_float32, scales)), tuple(map(int, points)), axis)


def quantize(g: Builder, x: SSAValue, scale: Any, zero_point: Any, *rest: Any) -> Any:
    """Convert quantisation with one scale, or one per channel of an axis. Limits of computed codes clamp values."""
    *axis, low, high, dtype = rest
    kind, quant = dtype_of(dtype), _params(g, scale, zero_point, *axis)
    made = g("QUANTIZE", x, dtype=kind, quant=quant)
    for name, code, end in zip(("MAXIMUM", "MINIMUM"), (low, high), DTYPES[kind].range, strict=True):
        if code != end and quant.per_tensor:  # QUANTIZE uses all codes
            limited = g(name, g("DEQUANTIZE", made, dtype="float32"), (code - quant.zero_point) * quant.scale)
            made = g("QUANTIZE", limited, dtype=kind, quant=quant)
    return made


def dequantize(g: Builder, x: SSAValue, scale: Any, zero_point: Any, *rest: Any, **options: Any) -> Any:
    """Convert dequantisation. A constant gets a quantised type with the scales."""
    if isinstance(owner := x.owner, ConstOp):
        quant = _params(g, scale, zero_point, *rest[:-3])
        x = add_named(g.block, ConstOp(owner.value, tensor_type(g.dtype(x), g.shape(x), quant)), value_name(x))
    return g("DEQUANTIZE", x, dtype="float32")


ROWS: Mapping[str, Pattern] = rows(
    ("quantize_per_tensor quantize_per_tensor.tensor quantize_per_tensor.tensor2 quantize_per_channel", quantize),
    ("dequantize_per_tensor dequantize_per_tensor.tensor dequantize_per_tensor.tensor2", dequantize),
    ("dequantize_per_channel", dequantize),
)
