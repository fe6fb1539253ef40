"""Import of models into OpenVINO through its TFLite frontend, with ports whose order is known."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from openvino.frontend import FrontEndManager

from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.circle.model import Model, Operator, Tensor
from odc_mlir.formats.circle.writer import write_tflite

INPUT, OUTPUT = "input{}", "output{}"
"""Names of ports by position."""
_MOST_TERMS = 64


@lru_cache(maxsize=1)
def _frontend() -> Any:
    return FrontEndManager().load_by_framework("tflite")


def to_openvino(model: Model) -> Any:
    """Return OpenVINO's form of a model with one subgraph; its ports are named :data:`INPUT` and :data:`OUTPUT`.

    Raises UnsupportedError with OpenVINO's reason, and errors of the TFLite writer.
    """
    (graph,) = model.subgraphs
    names = {tensor: OUTPUT.format(place) for place, tensor in enumerate(graph.outputs)}
    names |= {tensor: INPUT.format(place) for place, tensor in enumerate(graph.inputs)}
    tensors = [replace(tensor, name=names.get(place, f"t{place}")) for place, tensor in enumerate(graph.tensors)]
    operators = [step for operator in graph.operators for step in _average_steps(operator, tensors)]
    plain_graph = replace(graph, tensors=tensors, operators=operators)
    plain = replace(model, subgraphs=[plain_graph], signatures=[], metadata=[])
    data = write_tflite(plain)
    with TemporaryDirectory(prefix="odc-openvino-") as folder:  # the frontend reads files only
        path = Path(folder, "model.tflite")
        path.write_bytes(data)
        try:
            return _frontend().convert(_frontend().load(str(path)))
        except Exception as error:  # OpenVINO has no common class of errors
            raise UnsupportedError(reason_of(error)) from None


def _average_steps(operator: Operator, tensors: list[Tensor]) -> list[Operator]:
    """Return an average over a large window as averages over its columns and rows; any other operator unchanged.

    OpenVINO adds the elements of a window one by one in float32, so the error grows with their number. Each step adds
    fewer. Padding is no part of an average, which keeps the two steps equal to one.
    """
    options = operator.options
    if operator.name != "AVERAGE_POOL_2D" or options["filter_height"] * options["filter_width"] <= _MOST_TERMS:
        return [operator]
    (source,), (result,) = operator.inputs, operator.outputs
    (batch, height, _, channels), (_, _, width, _) = tensors[result].shape or (), tensors[source].shape or ()
    tensors.append(replace(tensors[result], name=f"t{len(tensors)}", shape=(batch, height, width, channels)))
    columns = {**options, "filter_width": 1, "stride_w": 1, "fused_activation_function": "none"}
    rows = {**options, "filter_height": 1, "stride_h": 1}
    between = (len(tensors) - 1,)
    return [replace(operator, outputs=between, options=columns), replace(operator, inputs=between, options=rows)]


def reason_of(error: BaseException) -> str:
    """Return the line of an error of OpenVINO that says most: the last one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
