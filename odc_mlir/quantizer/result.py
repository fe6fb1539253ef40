"""What quantising gives: the model, the verdict, and what they were made from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from xdsl.dialects.builtin import ModuleOp

from odc_mlir.calibration.minmax_file import write_minmax
from odc_mlir.calibration.record_files import RECORDS
from odc_mlir.calibration.recorded import Records
from odc_mlir.calibration.records import RecordStore
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import AccuracyError, OptionError
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.outputs import check_output, write_output
from odc_mlir.frontend.model_file import ModelFile
from odc_mlir.quantizer.advice import hint_of
from odc_mlir.quantizer.policy.verdict import FAILED, describe, types_text
from odc_mlir.quantizer.stages import graph_of


@dataclass
class Quantized(ModelFile):
    """A quantised model.

    ``model``: the module, in the circle dialect on quantised types. ``verdict``: how close it is to the float model;
    see docs/quantisation.md for its keys. ``records``: what was recorded of the float model, if anything.
    ``statistics``: of the tensors that ranges were chosen for, after equalisation. ``original``: the float model.
    ``equalization``: between which layers scales were moved, as ``equalize`` takes it in a ``.json`` file.
    """

    model: ModuleOp
    verdict: dict[str, Any]
    records: Records = field(default_factory=Records)
    statistics: Mapping[str, TensorStatistics] = field(default_factory=dict)
    original: Model = field(default_factory=Model)
    equalization: list[dict[str, Any]] = field(default_factory=list)

    of_codes: ClassVar[str] = "quantise with reader='litert', which keeps such operators in float, or "

    @property
    def passed(self) -> bool:
        """Whether the model keeps all limits, on samples that are no made-up inputs."""
        return bool(self.verdict["passed"])

    @property
    def precisions(self) -> dict[str, Any]:
        """The precisions of single layers, as ``mixed`` takes them, in ONE's format."""
        choices = self.verdict["choices"]
        finer = choices.get("granularities", {})
        layers = [
            {"name": name, "dtype": precision, **({"granularity": finer[name]} if name in finer else {})}
            for name, precision in choices["precisions"].items()
        ]
        return {
            "default_quantization_dtype": choices["scheme"],
            "default_granularity": choices["granularity"],
            "layers": layers,
        }

    @property
    def failed(self) -> bool:
        """Whether the model misses a limit, or what else passing takes, on whatever it was checked on."""
        return bool(self.verdict["status"] == FAILED)

    def save_records(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write what was recorded to a new file: onert's format where its name ends with ``.bin``, else ours."""
        save_records(self.records, self.original, path, overwrite=overwrite)

    def report_html(self) -> str:
        """The verdict as a page that stands alone."""
        from odc_mlir.quantizer.report_html import render
        from odc_mlir.quantizer.report_layers import drawing_of

        return render(self.verdict, self.statistics, drawing_of(graph_of(self.model), self.verdict["layers"]))

    def require_passed(self) -> None:
        """Raises AccuracyError, naming the worst layers, where the model misses a limit.

        One that could be checked on made-up inputs only (status "unchecked") is let through.
        """
        if self.failed:
            raise AccuracyError(f"the quantised model {describe(self.verdict)}", hint=hint_of(self.verdict))

    def __repr__(self) -> str:
        return f"<Quantized {types_text(self.verdict)}, {describe(self.verdict)}>"


def save_records(records: Records, model: Model, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write ``records`` of the float ``model`` to a new file: a minmax.bin by the name's end, else a store.

    Records are replaced, any other file with ``overwrite`` only (else OptionError).
    """
    if Path(path).suffix.lower() == ".bin":
        write_output(path, write_minmax(records, model), RECORDS, overwrite=overwrite)
        return
    check_output(path, RECORDS, overwrite=overwrite)
    if os.path.exists(path) and not os.path.isfile(path):  # which would be deleted, and a file put into its place
        raise OptionError(
            "records cannot be written to a device or a pipe", location=os.fspath(path), hint="name a file, or a .bin"
        )
    path = os.path.realpath(path)  # a link keeps pointing to the file
    RecordStore.discard(path)
    RecordStore(path, records.digest or None).append(records, ())
