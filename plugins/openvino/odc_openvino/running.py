"""Runs of a compiled model, by position of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odc_mlir.ops.spec import Array
from odc_openvino.importing import INPUT, OUTPUT


class Runner:
    """A compiled model whose ports have the names of :mod:`odc_openvino.importing`."""

    def __init__(self, compiled: Any, inputs: int, outputs: int) -> None:
        self._request = compiled.create_infer_request()
        # Copies into OpenVINO's own tensors take less time than its checks of arrays from outside.
        self._inputs = [self._tensor(compiled.input(INPUT.format(place))) for place in range(inputs)]
        self._outputs = [self._tensor(compiled.output(OUTPUT.format(place))) for place in range(outputs)]

    def _tensor(self, port: Any) -> Any:
        return self._request.get_tensor(port).data

    def run(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """Execute once and return copies of the outputs; raise RuntimeError if OpenVINO fails."""
        for tensor, value in zip(self._inputs, inputs, strict=True):
            tensor[...] = value
        self._request.infer(share_outputs=True)
        return tuple(tensor.copy() for tensor in self._outputs)
