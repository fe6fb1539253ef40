"""What quantising gives: the model, the verdict, and what they were made from."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
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
from odc_mlir.formats.quantities import counted
from odc_mlir.frontend.model_file import ModelFile
from odc_mlir.quantizer.policy.schemes import FLOAT
from odc_mlir.quantizer.policy.verdict import (
    FAILED,
    FOLLOWING,
    OF_LABELS,
    VARY_MORE,
    Limit,
    describe,
    types_text,
)
from odc_mlir.quantizer.pricing import bits_of
from odc_mlir.quantizer.stages import graph_of

_IN_USE = "in use"  # as samples should be, where a problem says what to give


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
            raise AccuracyError(f"the quantised model {describe(self.verdict)}", hint=self._hint())

    def _hint(self) -> str | None:
        """What to do about a verdict that is not passed; None where its problems, such as a budget, say it."""
        budget = self.verdict["coverage"].get("budget")
        if budget is not None and (budget["holds"] or self.verdict["problems"]):
            return _budget_hint(budget)
        every = self.verdict["limits"]
        if len(every) > 1 and [check["metric"] for check in every if not check["passed"]] == [FOLLOWING.metric]:
            # A limit that nobody asked for, as constant outputs keep all others.
            return None if any(_IN_USE in problem for problem in self.verdict["problems"]) else VARY_MORE
        told = () if self.verdict["samples"].get("outputs_vary", True) else (FOLLOWING.metric,)  # what to do about it
        missed = [check for check in every if not check["passed"] and check["metric"] not in told]
        point = next((point for point in self.verdict["front"] if point["layers"] and point["holds"]), None)
        others = point and self._of_point(point)
        if missed and not self.verdict["problems"] and all(map(_is_open, missed)):
            return self._remedies(missed, others)  # what other precisions would bring is as open
        if not missed:
            return None
        return others or self._remedies(missed)

    def _of_point(self, point: Mapping[str, Any]) -> str | None:
        """What to ask for to get a model of the front that keeps the limits; None where that is asked for already."""
        cost = f"{point['bytes']:,} bytes" if point["time_ns"] is None else f"{point['time_ns'] / 1e6:.3f} ms"
        share = math.floor(100 * point["share"]) / 100
        scheme, precisions = self.verdict["choices"]["scheme"], point["precisions"]
        left = any(name not in precisions for name, type in self.verdict["scheme"].items() if type == scheme)
        if left and point["share"] < self.verdict["coverage"]["least"]:  # no search takes all from the scheme
            layers = counted(point["layers"], "layer")
            return (
                f"--min-coverage {share:g} (in Python min_coverage) lets {layers} have other precisions, which keeps "
                f"the limits in {cost}"
            )
        found = sorted(set(precisions.values()), key=lambda name: name != FLOAT and bits_of(name, of_weights=True))
        if left or FLOAT in found:
            return None
        if len(found) == 1:
            return f"--scheme {found[0]} keeps the limits in {cost}"
        names = " and ".join(found)
        return f"{names} layers keep the limits in {cost}; --scheme {found[-1]} has as many bits in all of them"

    def _remedies(self, missed: Sequence[Mapping[str, Any]], others: str | None = None) -> str:
        """What may help a model that missed these limits, without what was tried, the likeliest first.

        More samples do, where the limits hold on those that the model was made by; where they do not, more change
        nothing. Less is to be asked for only there, and where more of them would not decide, unless ``others``, which
        says how to get other precisions, would do.
        """
        alone = self.verdict["samples"].get("stands_out")
        found = [] if alone is None else [f"look at sample {alone}, whose values lie far from all others'"]
        found += [] if self.verdict["choices"]["help"] else ["let help find better choices"]
        is_open, counts = all(map(_is_open, missed)), [check["deciding"] for check in missed]
        if is_open and all(counts):
            found.append(f"give more samples, about {max(counts)}, as these leave open whether the limit holds")
        elif all(check["inherent"] is False for check in missed):
            found.append("give more samples, as on those that ranges were chosen by the limit holds")
        elif others is not None:
            found.append(others)
        else:
            of_answers = all(check["metric"] in OF_LABELS for check in missed)
            why = ", as more samples would hardly decide whether this one holds" if is_open else ""
            found.append(f"allow more loss ({'--max-drop' if of_answers else '--limit'}){why}")
        return ", or ".join(found)

    def __repr__(self) -> str:
        return f"<Quantized {types_text(self.verdict)}, {describe(self.verdict)}>"


def _is_open(check: Mapping[str, Any]) -> bool:
    """Whether a limit that was missed may hold on other samples: one end of its interval keeps it.

    Not of a model that misses it on those that it was made by as well.
    """
    limit = Limit(check["metric"], check["limit"])
    return not check["inherent"] and check["interval"] is not None and any(map(limit.allows, check["interval"]))


def _budget_hint(budget: Mapping[str, Any]) -> str:
    """What budget can be kept: the least that was found, of models within the limits if there are any."""
    found = "found within the limits" if budget["holds"] else "found"
    if "bytes" in budget:
        size = budget["bytes"]
        what, flag = f"the smallest file {found} has {size:,} bytes", f"--max-size {size} (in Python max_bytes)"
    else:
        least = budget["time_ns"] / 1e6
        kept = math.ceil(1e3 * least) / 1e3
        what, flag = f"the least time {found} is {least:.3f} ms", f"--max-time {kept:.3f} (in Python max_time_ms)"
    return f"{what}: {flag}" if budget["holds"] else f"{what}, and no model found keeps the limits: allow more loss"


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
