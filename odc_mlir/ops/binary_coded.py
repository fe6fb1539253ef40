"""Circle's operators on binary-coded weights."""

from __future__ import annotations

from odc_mlir.ops.quantization import real_only
from odc_mlir.ops.spec import Operand, OpSpec

_INFER = "odc_mlir.ops.infer.binary_coded"
_KERNELS = "odc_mlir.runtime.kernels.binary_coded"
_CODED = real_only("its weights are stored as bits already")
_OUTPUT = (Operand("output"),)

SPECS = (
    OpSpec(
        "BCQ_FULLY_CONNECTED",
        (
            Operand("input"),
            Operand("weights_scales"),
            Operand("weights_binary", dtypes=("int32",)),
            Operand("bias", optional=True),
            Operand("weights_clusters", dtypes=("int32",)),
        ),
        _OUTPUT,
        "BCQFullyConnectedOptions",
        f"{_INFER}:bcq_fully_connected",
        f"{_KERNELS}:bcq_fully_connected",
        f"{_INFER}:verify_bcq_fully_connected",
        quant=_CODED,
        summary="binary-coded weights [O, H] times columns of the input [H, B]",
        macs="odc_mlir.ops.macs:bcq_fully_connected",
    ),
    OpSpec(
        "BCQ_GATHER",
        (
            Operand("input_scales"),
            Operand("input_binary", dtypes=("int32",)),
            Operand("indices", dtypes=("int32", "int64")),
            Operand("input_clusters", dtypes=("int32",)),
        ),
        _OUTPUT,
        "BCQGatherOptions",
        f"{_INFER}:bcq_gather",
        f"{_KERNELS}:bcq_gather",
        f"{_INFER}:verify_bcq_gather",
        quant=_CODED,
        summary="rows or columns of a binary-coded table [O, H]",
    ),
)
