"""Sessions: model, buffers, and life cycle from loading to running."""

from __future__ import annotations

from odc_mlir.runtime.session.session import CALLS, Session
from odc_mlir.runtime.session.states import State, Status, status_of
from odc_mlir.runtime.session.tensors import tensorinfo

__all__ = ["CALLS", "Session", "State", "Status", "status_of", "tensorinfo"]
