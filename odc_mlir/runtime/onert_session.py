"""The interface of onert's Python package on our runtime: scripts need to change only one import.

::

    from onert import infer                                   # before
    from odc_mlir.runtime import onert_session as infer       # after

    session = infer.session("model.circle", "cpu")
    (y,) = session.infer([x])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odc_mlir.runtime.session import Session, tensorinfo

__all__ = ["session", "tensorinfo"]


class session(Session):  # onert's name
    """Session with onert's name and parameters: a model file or nnpackage, and the backends to use."""

    def __init__(self, path: str, backends: str = "cpu") -> None:
        super().__init__(path, backends=backends)
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    @property
    def session(self) -> session:
        """The session of the C interface: this object."""
        return self

    def update_inputs_tensorinfo(self, new_infos: Sequence[tensorinfo]) -> None:
        """Set the shapes of all inputs. Raises SessionError."""
        for index, info in enumerate(new_infos):
            self.set_input_tensorinfo(index, info)

    def infer(self, inputs_array: Any, *, measure: bool = False) -> Any:
        """Run once, and return the outputs, which stay in ``outputs``. With ``measure``, also times in milliseconds."""
        found = super().infer(inputs_array, measure=True)
        self.inputs, (self.outputs, metrics) = list(inputs_array), found
        return (self.outputs, metrics) if measure else self.outputs
