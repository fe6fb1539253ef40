"""``quantize``: what ``odc_mlir.quantize`` and ``odc-quantize`` call."""

from __future__ import annotations

import os
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from odc_mlir import compiler
from odc_mlir.errors import InputError
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.ops.spec import Array
from odc_mlir.quantization.recorded import Records
from odc_mlir.quantization.records import RecordStore
from odc_mlir.quantizer.data import Calibration, Labels, make_data
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.options import Progress, make_options
from odc_mlir.quantizer.result import Quantized
from odc_mlir.quantizer.stages import prepare, recorded_ranges, statistics_of_ranges
from odc_mlir.runtime.graph import build_graph

Source = str | os.PathLike[str] | bytes | ModuleOp

WEIGHTS_ONLY = "int8_wo"


def quantize(
    model: Source,
    *,
    calibration: Calibration | None = None,
    evaluation: Calibration | None = None,
    labels: Labels | None = None,
    records: str | os.PathLike[str] | Records | None = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> Quantized:
    """The float ``model`` quantised, with a verdict on how close it is.

    ``calibration``: samples to choose ranges by, of which some are held back to check on, unless there are samples for
    ``evaluation``. ``labels``: the right answers for those that are checked on (``True``: array ``y`` of their file).
    ``records``: ranges recorded before, instead of calibration samples. ``chosen``: see
    :class:`odc_mlir.quantizer.options.Options`. Raises OdcError.
    """
    options = make_options(**chosen)
    module = model if isinstance(model, ModuleOp) else compiler.load(model)
    original = build_graph(export_model(module))
    base = prepare(module)
    known, inputs = _known(records, module)
    data = make_data(original, calibration, evaluation, labels, inputs)
    if not data.fit and not options.definition.weights_only:
        if known is None:
            raise InputError(
                "quantising activations needs samples of the model's inputs, or recorded ranges",
                hint=f"give calibration data, or use a scheme such as '{WEIGHTS_ONLY}' that touches weights only",
            )
        base.records = known
    driver = Driver(original, base, data, options, progress)
    candidate = driver.run()
    verdict = driver.verdict(candidate)
    return Quantized(candidate.module, verdict, base.all_records, driver.statistics)


def _known(
    records: str | os.PathLike[str] | Records | None, module: ModuleOp
) -> tuple[Records | None, list[list[Array]]]:
    """Records made before, in a store or in the types of ``module``, and the inputs that are kept with them."""
    if isinstance(records, Records):
        return records, []
    if records is not None:
        store = RecordStore(records, create=False)
        return store.records(), store.inputs()
    ranges = recorded_ranges(module)
    return (statistics_of_ranges(ranges) if ranges else None), []
