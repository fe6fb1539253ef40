"""Facts about a model file, counted here from its records alone, independently of the compiler."""

from __future__ import annotations

import math
from pathlib import Path

from odc_mlir.formats.circle.reader import read_model


def operator_names(path: Path) -> list[str]:
    """Kinds of the main subgraph's operators in execution order."""
    return [operator.name for operator in read_model(path).subgraphs[0].operators]


def graph_macs(path: Path) -> int:
    """Multiply-accumulates of the main subgraph's convolutions, matrix products and cells, padding taps included."""
    subgraph = read_model(path).subgraphs[0]
    macs = 0
    for operator in subgraph.operators:
        if operator.name in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            weights = subgraph.tensors[operator.inputs[1]].shape or ()
            results = math.prod(subgraph.tensors[operator.outputs[0]].shape or ())
            # Weights are [O, kh, kw, I], [1, kh, kw, O] and [O, I]: one result takes all of one O.
            channels = weights[-1] if operator.name == "DEPTHWISE_CONV_2D" else weights[0]
            macs += results * math.prod(weights) // channels
        elif operator.name == "UNIDIRECTIONAL_SEQUENCE_LSTM":  # every step, all weights of gates
            batch, steps, _ = subgraph.tensors[operator.inputs[0]].shape or ()
            macs += batch * steps * sum(math.prod(subgraph.tensors[i].shape or ()) for i in operator.inputs[1:9])
    return macs
