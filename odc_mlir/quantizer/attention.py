"""Whether what a mask hides stays hidden: a SOFTMAX is zero where the float model's is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from odc_mlir.errors import InputError
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.layers import float_names
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph

_SAMPLES = 4  # a mask hides the same in every run, or nearly


def leaked(reference: Graph, quantised: Graph, samples: Sequence[Sequence[Array]]) -> dict[str, float]:
    """By result name, the part of the shares of each SOFTMAX that lies where those of ``reference`` are exactly zero.

    A SOFTMAX that is nowhere zero in the float model is left out.
    """
    ours = {item.outputs[0] for item in reference.nodes if item.node.spec.name == "SOFTMAX"}
    names = {reference.tensors[index].name: index for index in ours}
    wanted = {index: names[name] for index, name in float_names(quantised, names).items()}
    if not wanted:
        return {}
    runs = HostExecutor(reference), HostExecutor(quantised)
    totals: dict[int, list[float]] = {}
    for sample in samples[:_SAMPLES]:
        hidden: dict[int, Array] = {}

        def note(index: int, value: Array, hidden: dict[int, Array] = hidden) -> None:
            if index in ours and not value.all():
                hidden[index] = value == 0

        def compare(index: int, value: Array, hidden: dict[int, Array] = hidden) -> None:
            zero = hidden.pop(wanted.get(index, -1), None)
            if zero is not None and zero.shape == value.shape:
                reals = to_reals(quantised.tensors[index], value)
                sums = totals.setdefault(wanted[index], [0.0, 0.0])
                sums[0] += float(np.abs(reals[zero]).sum(dtype=np.float64))
                sums[1] += float(np.abs(reals).sum(dtype=np.float64))

        for executor in runs:
            executor.reset()
        runs[0].run(sample, watch=note)
        if hidden:
            with suppress(InputError):  # which the measures count
                runs[1].run(list(map(to_codes, quantised.input_infos(), sample)), watch=compare)
    return {
        reference.tensors[index].name: masked / total if total else 0.0
        for index, (masked, total) in sorted(totals.items())
    }
