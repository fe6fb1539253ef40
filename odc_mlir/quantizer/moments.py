"""Means and standard deviations of the channels of inputs, and of what they are prepared to and joined with."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from odc_mlir.errors import UnsupportedError
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.policy.sizes import LEAST_RATIO
from odc_mlir.quantizer.stepping import Stepper
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.transforms.quant.common.ir import main_function
from odc_mlir.transforms.quant.quant_normalize_inputs import measured_values

LOG = logging.getLogger(__name__)

Moments = dict[str, NDArray[np.float64]]


def moments_of(module: ModuleOp, graph: Graph, samples: Sequence[Sequence[Array]]) -> Moments:
    """What ``quant-normalize-inputs`` asks for, by name: [2, channels], real values only.

    ``graph`` is that of ``module``. Of models that cannot be run operator by operator there are those of inputs alone.
    """
    infos = enumerate(graph.input_infos())
    of_inputs = {info.name: [sample[place] for sample in samples] for place, info in infos if info.dtype == "float32"}
    found = {name: _moments(values) for name, values in of_inputs.items() if _have_channels(values)}
    function = main_function(module)
    names = set() if function is None else set(measured_values(function))
    if names and len({tuple(map(np.shape, sample)) for sample in samples}) == 1:
        try:
            found |= _inner_moments(graph, samples, names)
        except UnsupportedError as error:
            LOG.info("what inputs are prepared to is not known: %s", error)
    return found


def far_apart(inputs: Iterable[NDArray[np.float64]]) -> bool:
    """Whether one of ``inputs``, each [2, channels], has channels that vary so differently as chance makes none."""
    for _, sizes in inputs:
        lives = sizes[sizes > 0.0]
        if lives.size and lives.max() >= LEAST_RATIO * lives.min():
            return True
    return False


def _inner_moments(graph: Graph, samples: Sequence[Sequence[Array]], names: set[str]) -> Moments:
    stepper, found = Stepper(graph, samples), {}
    for item in graph.nodes:
        asked = [index for index in item.outputs if graph.tensors[index].name in names]
        if not asked:
            continue
        stepper.run(item)
        for info, index in ((graph.tensors[index], index) for index in asked):
            values = list(stepper.reals(index))
            if info.dtype == "float32" and _have_channels(values):
                found[info.name] = _moments(values)
    return found


def _have_channels(values: Sequence[Array]) -> bool:
    """Whether all of ``values`` have the same number of channels, and any at all."""
    return all(value.ndim and value.size for value in values) and len({value.shape[-1] for value in values}) == 1


def _moments(values: Sequence[Array]) -> NDArray[np.float64]:
    rows = np.concatenate([value.reshape(-1, value.shape[-1]) for value in values]).astype(np.float64)
    with np.errstate(all="ignore"):  # what is not finite says nothing
        return np.stack([rows.mean(axis=0), rows.std(axis=0)])
