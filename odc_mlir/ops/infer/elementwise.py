"""Checks of element-wise operators; their shapes follow the shared rules."""

from __future__ import annotations

from odc_mlir.ops.infer.common import binary, unary, verified, verify_first_dtype, verify_same_dtype

verify_binary = verified(verify_same_dtype, binary)
verify_unary = verified(verify_first_dtype, unary)
