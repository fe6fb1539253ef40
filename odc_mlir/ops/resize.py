"""Image resizing."""

from __future__ import annotations

from odc_mlir.ops.quantization import moved
from odc_mlir.ops.spec import Operand, OpSpec


def _resize(name: str, options: str, summary: str) -> OpSpec:
    return OpSpec(
        name,
        (Operand("input"), Operand("size", dtypes=("int32",))),
        (Operand("output"),),
        options,
        "odc_mlir.ops.infer.resize:resize",
        f"odc_mlir.runtime.kernels.resize:{name.lower()}",
        "odc_mlir.ops.infer.resize:verify_resize",
        max_version=4,
        quant=moved(),
        summary=summary,
    )


SPECS = (
    _resize("RESIZE_BILINEAR", "ResizeBilinearOptions", "image resizing by bilinear interpolation"),
    _resize("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", "image resizing by nearest pixels"),
)
