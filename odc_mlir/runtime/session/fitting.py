"""Executors behind the ports of a session: whoever computes, users see the element types of the model as loaded."""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.errors import SessionError
from odc_mlir.ops.spec import Array, TensorInfo
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.session.tensors import SessionPort


class Fitted:
    """``executor``, whose inputs and outputs are codes in places where users have real values.

    Raises SessionError when it cannot stand in for the model that ``inputs`` and ``outputs`` are of.
    """

    def __init__(self, executor: Executor, inputs: Sequence[SessionPort], outputs: Sequence[SessionPort]) -> None:
        self.executor = executor
        self._coded_inputs = _coded(inputs, executor.graph.input_infos())
        self._coded_outputs = _coded(outputs, executor.graph.output_infos())

    def encoded(self, arrays: list[Array]) -> list[Array]:
        """The user's arrays as the executor takes them."""
        if self._coded_inputs:
            arrays = list(arrays)
            for place, info in self._coded_inputs:
                arrays[place] = to_codes(info, arrays[place])
        return arrays

    def decoded(self, arrays: list[Array]) -> list[Array]:
        """The executor's outputs as the user knows them."""
        for place, info in self._coded_outputs:
            arrays[place] = to_reals(info, arrays[place])
        return arrays


def _coded(ports: Sequence[SessionPort], infos: Sequence[TensorInfo]) -> tuple[tuple[int, TensorInfo], ...]:
    """Where real values of the user are codes of the executor."""
    found = []
    for place, (port, info) in enumerate(zip(ports, infos, strict=True)):
        reals = port.dtype == "float32" and (info.dtype == "float32" or info.quant is not None)
        if info.dtype != port.info.dtype and not reals:
            raise SessionError(
                f"the model has {info.dtype} where the session promises {port.dtype}", tensor=port.info.name
            )
        if info.dtype != port.dtype:
            found.append((place, info))
    return tuple(found)
