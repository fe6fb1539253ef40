"""What was given and is likely why a model is not accurate enough: parameters, headroom and samples of no fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.intervals import output_ends
from odc_mlir.quantizer.policy.names import escaped
from odc_mlir.runtime.execution.graph import Graph

# Of what the values of a tensor span, the part beyond the codes' range that does harm; and the part of that range
# which values must fill at least: less costs two bits and more.
_MOST_BEYOND, _LEAST_FILLED = 0.05, 0.25
# The widest headroom that leaves most codes to values, and that of 16 bits, which have codes to spare.
_WIDEST, _WIDEST_OF_MANY = 1.0, 7.0


def likely_causes(driver: Driver, graph: Graph) -> list[str]:
    """What leaves few codes of the quantised ``graph`` to values or cuts them off, each with what it does."""
    options, found = driver.options, list[str]()
    if driver.differing_units:
        found.append("the samples to check on, which seem to be in another unit than the model was calibrated in")
    headroom = options.headroom or 0.0
    if headroom > (_WIDEST_OF_MANY if options.has_codes_to_spare else _WIDEST):
        found.append(f"--headroom {headroom:g}, which leaves {100.0 / (1.0 + headroom):.2g} % of the codes to values")
    of_values = {name: (seen.minimum, seen.maximum) for name, seen in driver.statistics.items() if seen.runs}
    seen = _of_constants(driver.reference.graph) | of_values
    outputs = zip((info.name for info in graph.output_infos()), output_ends(graph), strict=True)
    ends = {name: found for name, found in outputs if found is not None} | dict(_ends_of_codes(graph))
    for name in options.parameters:
        found += _misfit(f"--parameters of {name!r}", ends.get(name), seen.get(name))
    for name, source in options.copied_parameters.items():
        copied = f"{escaped(name, '=')}={escaped(source, '=')}"
        found += _misfit(f"--copy-parameters {copied}", ends.get(name), seen.get(name))
    return found


def _misfit(option: str, ends: tuple[float, float] | None, seen: tuple[float, float] | None) -> list[str]:
    """What an ``option`` does whose codes reach from one of ``ends`` to the other, if what was ``seen`` is another."""
    if ends is None or seen is None:
        return []
    (least, most), (low, high) = ends, seen
    whole = max(high, 0.0) - min(low, 0.0)  # codes hold zero
    beyond = max(least - low, high - most)
    if whole <= 0.0 or (beyond <= _MOST_BEYOND * whole and whole >= _LEAST_FILLED * (most - least)):
        return []
    return [f"{option}, whose codes reach from {least:.3g} to {most:.3g} where values lie from {low:.3g} to {high:.3g}"]


def _of_constants(graph: Graph) -> dict[str, tuple[float, float]]:
    """The ends of what float constants hold, by name."""
    arrays = ((info.name, info.array()) for info in graph.tensors if info.is_const and info.dtype == "float32")
    return {name: (float(array.min()), float(array.max())) for name, array in arrays if array.size}


def _ends_of_codes(graph: Graph) -> Iterator[tuple[str, tuple[float, float]]]:
    """What the least and the largest code of each tensor with one scale stand for."""
    for info in graph.tensors:
        if info.quant is not None and np.size(info.quant.scales) == 1:
            scale, zero = (float(np.ravel(of)[0]) for of in (info.quant.scales, info.quant.zero_points))
            low, high = info.info.range
            yield info.name, (scale * (low - zero), scale * (high - zero))
