"""Checks of reductions; their shapes follow the shared rule."""

from __future__ import annotations

from odc_mlir.ops.infer.common import reduce, verified, verify_first_dtype

verify_reduce = verified(verify_first_dtype, reduce)
