"""Entry points of the quantiser: ``quantize``, ``embed_ranges`` and the result :class:`Quantized`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from odc_mlir import loading
from odc_mlir.calibration.record_files import RECORDS
from odc_mlir.calibration.recorded import Records, joined
from odc_mlir.calibration.records import RecordStore, is_minmax, read_minmax, write_minmax
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.dialects.odc import set_states, states_of
from odc_mlir.errors import AccuracyError, InputError, ModelError, OptionError, RecordsError, parsing
from odc_mlir.formats.cache import content_digest
from odc_mlir.formats.calibration import Pictures
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.outputs import check_output, write_output
from odc_mlir.formats.quantities import model_name
from odc_mlir.formats.samples import Samples
from odc_mlir.formats.states import StatePair, pairs_of
from odc_mlir.frontend.export_circle import ModelFile, export_model
from odc_mlir.ops.spec import Array
from odc_mlir.processors import is_cpu
from odc_mlir.quantizer.candidates import codes_brought, lost, taken_out
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.models import limited_masks, prepare, recorded_ranges
from odc_mlir.quantizer.policy.declarations import AUTO, CPU, EQUALIZE, OFF, OPTIONS, SWITCH
from odc_mlir.quantizer.policy.options import Options, Progress, check_samples, make_options, parse_states
from odc_mlir.quantizer.policy.ranges import MINMAX
from odc_mlir.quantizer.policy.verdict import FAILED, caution, describe, hint_of, types_text
from odc_mlir.quantizer.samples import Calibration, Labels, LoadOptions, check_finite, make_data, units_that_differ
from odc_mlir.quantizer.states import Rollout
from odc_mlir.quantizer.verdict import verdict_of
from odc_mlir.runtime.execution.blas_threads import BlasLimit
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.recording import record
from odc_mlir.transforms.common.states import append_rows
from odc_mlir.transforms.quant.common import ir as quant_ir
from odc_mlir.transforms.quant.common.given import Types, given_ranges, has_source_lines, read_given, scheme_of
from odc_mlir.transforms.quant.quant_attach_ranges import attach_ranges
from odc_mlir.transforms.quant.quant_attach_ranges import ranges_of as ranges_by


@dataclass
class Quantized(ModelFile):
    """Quantised model with a verdict on the accuracy. The page docs/quantisation.md explains the keys.

    ``records``: records of the float model ``original``. ``equalization``: pairs of layers for ``equalize``.
    """

    model: ModuleOp
    verdict: dict[str, Any]
    records: Records = field(default_factory=Records)
    original: Model = field(default_factory=Model)
    equalization: list[dict[str, Any]] = field(default_factory=list)

    of_codes: ClassVar[str] = "quantise with reader='litert', which keeps such operators in float, or "

    @property
    def passed(self) -> bool:
        """True if the model keeps all limits on given or recorded samples. Random samples do not suffice."""
        return bool(self.verdict["passed"])

    @property
    def precisions(self) -> dict[str, Any]:
        """Precisions of layers in ONE's format, as the option ``mixed`` accepts."""
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
        """True if the model misses a limit or has a problem."""
        return bool(self.verdict["status"] == FAILED)

    def save_records(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the records to a file: in onert's format for the suffix ``.bin``, else in ours."""
        save_records(self.records, self.original, path, overwrite=overwrite)

    def report_html(self) -> str:
        """Return the verdict as a self-contained HTML page."""
        from odc_mlir.quantizer.report import render

        return render(self.verdict)

    def require_passed(self) -> None:
        """Raise an AccuracyError that names the worst layers if the model misses a limit. Accept "unchecked" models."""
        if self.failed:
            raise AccuracyError(f"the quantised model {describe(self.verdict)}", hint=hint_of(self.verdict))

    def __str__(self) -> str:
        from odc_mlir.quantizer.summary import next_step, next_target, summary

        compiling = f"odc_mlir.compile(q.model, target={next_target(self.verdict)!r})"
        hint = hint_of(self.verdict) if self.failed else next_step(self.verdict, compiling)
        return "\n".join(summary(self.verdict["model"], self.verdict, hint))

    def _repr_html_(self) -> str:
        """Show the summary in a notebook."""
        from odc_mlir.pages.markup import bullets

        return bullets(line.strip() for line in str(self).splitlines())

    def __repr__(self) -> str:
        return f"<Quantized {types_text(self.verdict)}, {describe(self.verdict)}>"


def save_records(records: Records, model: Model, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write ``records`` of the float ``model`` to a file: minmax.bin for the suffix ``.bin``, else a record store.

    A file of records is replaced. Any other file is replaced only with ``overwrite``. Otherwise raise OptionError.
    """
    if Path(path).suffix.lower() == ".bin":
        write_output(path, write_minmax(records, model), RECORDS, overwrite=overwrite)
        return
    check_output(path, RECORDS, overwrite=overwrite)
    if os.path.exists(path) and not os.path.isfile(path):  # writing would replace it by a regular file
        raise OptionError(
            "records cannot be written to a device or a pipe", location=os.fspath(path), hint="name a file, or a .bin"
        )
    path = os.path.realpath(path)  # a symbolic link stays
    RecordStore.discard(path)
    RecordStore(path, records.digest or None).append(records, ())


LOG = logging.getLogger(__name__)

Source = str | os.PathLike[str] | bytes | ModuleOp
RecordSource = str | os.PathLike[str] | Records

WEIGHTS_ONLY = "int8_wo"
_BY_ITSELF = "quantise its model by itself, and join the quantised models (odc-circle join)"


def quantize(
    model: Source,
    *,
    calibration: Calibration | None = None,
    evaluation: Calibration | None = None,
    labels: Labels | None = None,
    records: RecordSource | None = None,
    max_samples: int | None = None,
    pictures: Pictures | None = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> Quantized:
    """Quantise the float ``model``. The result has a verdict on the accuracy. Raises OdcError.

    See ``odc_mlir.quantize`` for the arguments. ``chosen``: fields of
    :class:`odc_mlir.quantizer.policy.options.Options`. If there are no samples, and none are needed, the model is
    checked on random inputs. The status is then at best "unchecked", and a warning is logged.
    """
    module = loading.copied(model)
    stored_states = _exposed_states(module, chosen)
    stored, ready = export_model(module), taken_out(module)
    brought = read_given(ready)
    options = _with_brought(make_options(**_completed(chosen, brought, ready)), brought)
    _check_sources(calibration, evaluation, labels, records)
    if records is not None and calibration is not None:
        raise OptionError(
            "records and calibration samples both give ranges", hint="give one; evaluation samples may come on top"
        )
    original = build_graph(stored)
    check_finite(original)
    base = prepare(ready, options.definition)
    if not original.outputs:
        raise ModelError("the model has no output by which a quantised one could be judged", location=original.name)
    known, inputs = _known(records, ready, stored, _digest(model))
    rollout = Rollout.of(options.states, stored_states, stored, original)
    loading_options = LoadOptions(max_samples, pictures, rollout=rollout)
    seen = {} if known is None else known.statistics()
    ranges = {name: (item.minimum, item.maximum) for name, item in seen.items() if item.runs}
    data = make_data(original, calibration, evaluation, labels, inputs, ranges, loading_options)
    if rollout is not None and rollout.pairs:
        options = replace(options, states={pair.output: pair.input for pair in rollout.pairs})
    if not data.fit and not options.definition.weights_only:
        if known is None:
            raise InputError(
                "quantising activations needs input samples or recorded ranges",
                hint=f"give calibration data, or use a scheme such as '{WEIGHTS_ONLY}' that quantises weights only",
            )
        base.records = known
    if not data.fit:
        check_samples(options)
    elif not options.definition.weights_only:
        base = limited_masks(base, data.fit)
    # There are many small matrix products. Several threads would mostly wait. Numbers that are not finite make the
    # verdict fail, so numpy need not warn.
    with BlasLimit(1), np.errstate(all="ignore"):
        driver = Driver(original, base, data, options, progress)
        driver.findings[:0] = [f"the signature {key!r} stays float: {_BY_ITSELF}" for key in stored.host_signatures]
        if not brought:  # a fake-quantised model is measured against its own codes
            driver.findings += codes_brought(original)
        if data.fit and known is not None:
            by, among = "the ranges that the model's file has", "calibration samples"
            driver.findings += units_that_differ(original, seen, data.fit, by=by, among=among).values()
        candidate = driver.run()
        driver.findings += lost(candidate.graph, brought)
        verdict = {"model": model_name(model), **verdict_of(driver, candidate)}
    if (text := caution(verdict)) is not None:
        LOG.warning("%s: %s", verdict["model"] or "the quantised model", text)
    found = joined((base.records, *base.held))
    found.digest = _digest(model)
    finished = driver.evaluator.finished(candidate)
    if rollout is not None:
        set_states(finished, rollout.declared_in(candidate.graph))
    verdict["bytes"] = [driver.evaluator.size_of(each) for each in (stored, export_model(finished))]
    return Quantized(finished, verdict, found, stored, candidate.model.equalization)


def _exposed_states(module: ModuleOp, chosen: dict[str, Any]) -> tuple[StatePair, ...]:
    """Make states plain inputs and outputs until the end, given outputs of new rows whole. Return the file's states."""
    if isinstance(states := chosen.get("states"), Mapping | list | tuple | str):
        chosen["states"] = {p.output: p.input for p in append_rows(module, pairs_of(parse_states(states)))}
    stored = states_of(module)
    set_states(module, ())
    return stored


def _check_sources(
    calibration: Calibration | None, evaluation: Calibration | None, labels: Labels | None, records: object
) -> None:
    for what, source in (("calibration", calibration), ("evaluation", evaluation)):
        if not isinstance(source, Iterable | os.PathLike | Samples | None):
            raise InputError(f"{what} is {source!r}, expected samples", hint="give a file, or a list of samples")
    if not isinstance(records, str | os.PathLike | Records | None):
        raise OptionError(f"records is {records!r}", hint="give a file, or what recording returned")
    if not isinstance(labels, bool | None):
        with parsing("the labels are no array", InputError):
            np.asarray(labels)


def _with_brought(options: Options, brought: Types) -> Options:
    """Return plain options for fake-quantised models, because parameters of these models were trained."""
    if not brought:
        return options
    if options.equalize not in (AUTO, EQUALIZE[0]):
        raise OptionError("equalisation would change values whose parameters the model already has", hint="omit it")
    usual = replace(options, headroom=None).chosen_headroom
    plain: dict[str, Any] = {"ranges": MINMAX, **dict.fromkeys(("output_room", "normalize", "rounding"), OFF)}
    allowed = {name: (value, *OPTIONS[name].idle) for name, value in plain.items()} | {"headroom": (None, 0.0, usual)}
    for name, idle in allowed.items():
        if getattr(options, name) not in idle:
            raise OptionError(
                f"{name} would choose parameters that the model already has from its training", hint=f"omit {name}"
            )
    plain |= {"equalize": EQUALIZE[0], "correction": OFF}
    return replace(options, **{name: value for name, value in plain.items() if getattr(options, name) == AUTO})


def _completed(chosen: dict[str, Any], brought: Types, module: ModuleOp) -> dict[str, Any]:
    """Return the options with the scheme of a fake-quantised model, and with the form of weights for the target."""
    says = chosen.get("scheme") or chosen.get("config") or chosen.get("mixed") not in (None, *SWITCH, True, False)
    chosen |= {"scheme": scheme_of(brought, signed=has_source_lines(module))} if brought and not says else {}
    target = chosen.get("target")
    if target is None:
        return chosen
    if is_cpu(target):
        return {**chosen, "target": None, "reader": chosen.get("reader") or CPU}
    from odc_mlir import targets

    form = targets.load(target).weight_forms.get(chosen.get("scheme") or "")
    return {**chosen, "weights": chosen.get("weights") or form}


def embed_ranges(
    model: Source,
    calibration: Calibration,
    *,
    ranges: str = AUTO,
    range_options: Mapping[str, Any] | None = None,
    max_samples: int | None = None,
    pictures: Pictures | None = None,
) -> tuple[ModuleOp, Records]:
    """Return the float ``model`` with recorded ranges in the types, like ONE's record-minmax, and the records.

    ``ranges="auto"`` takes percentiles over runs, as record-minmax does. Raises OdcError.
    """
    module = loading.copied(model)
    function = quant_ir.quantized_function(module)
    if function is None:
        raise InputError("the model has no main function")
    graph = build_graph(export_model(module))
    check_finite(graph)
    data = make_data(graph, calibration, options=LoadOptions(max_samples, pictures, repeats=True))
    samples = data.fit if data.separate else [*data.fit, *data.held]
    records = record(HostExecutor(graph), samples)
    records.digest = _digest(model)
    mode = "percentile" if ranges == AUTO else ranges
    attach_ranges(function, ranges_by(records.statistics(), mode, range_options))
    return module, records


def _digest(model: Source) -> str:
    return content_digest(model) if isinstance(model, str | os.PathLike | bytes) else ""


def check_of_model(records: Records, model: Model, digest: str, where: str | None = None) -> None:
    """Raise RecordsError if ``records`` are not of ``model``. ``digest``: digest of the model's file, or empty."""
    hint = "record this model, or give the one that was recorded"
    if records.digest and digest and records.digest != digest:
        raise RecordsError(
            f"the records are of the model {records.digest[:12]}, not of {digest[:12]}", location=where, hint=hint
        )
    if not records.runs or not any(item.runs for item in records.tensors.values()):
        raise RecordsError("the records are of no run", location=where, hint="record the model first")
    names = {(index, tensor.name) for index, part in enumerate(model.subgraphs) for tensor in part.named()}
    if other := next((key for key in records.tensors if key not in names), None):
        raise RecordsError(f"the records have a tensor {other[1]!r}, the model has not", location=where, hint=hint)


def _known(
    records: RecordSource | None, module: ModuleOp, stored: Model, digest: str
) -> tuple[Records | None, list[list[Array]]]:
    """Return records from a file or from the types of ``module``, and recorded inputs. Raises RecordsError."""
    if records is None:
        ranges = given_ranges(read_given(module)) | recorded_ranges(module)
        tensors = {(0, name): TensorStatistics.of_extremes([low], [high]) for name, (low, high) in ranges.items()}
        return (Records(runs=1, tensors=tensors) if ranges else None), []
    where, inputs = None, list[list[Array]]()
    if isinstance(records, Records):
        found = records
    else:
        path, where = Path(records), os.fspath(records)
        try:
            with path.open("rb") as file:
                head = file.read(4)
        except OSError as error:
            raise RecordsError(f"cannot read the records: {error.strerror}", location=str(path)) from None
        if is_minmax(head):
            found = read_minmax(path.read_bytes(), stored, location=str(path))
        else:
            store = RecordStore(path, create=False)
            found, inputs = store.records(), store.inputs()
    check_of_model(found, stored, digest, where)
    return found, inputs
