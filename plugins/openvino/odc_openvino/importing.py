"""Import of models into OpenVINO through its TFLite frontend, with ports whose order is known."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from openvino.frontend import FrontEndManager

from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.writer import write_tflite

INPUT, OUTPUT = "input{}", "output{}"
"""Names of ports by position."""


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
    plain = replace(model, subgraphs=[replace(graph, tensors=tensors)], signatures=[], metadata=[])
    data = write_tflite(plain)
    with TemporaryDirectory(prefix="odc-openvino-") as folder:  # the frontend reads files only
        path = Path(folder, "model.tflite")
        path.write_bytes(data)
        try:
            return _frontend().convert(_frontend().load(str(path)))
        except Exception as error:  # OpenVINO has no common class of errors
            raise UnsupportedError(reason_of(error)) from None


def reason_of(error: BaseException) -> str:
    """Return the line of an error of OpenVINO that says most: the last one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
