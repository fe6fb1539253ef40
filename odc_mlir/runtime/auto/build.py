"""The steps of making a better model on the device; the only part of it that reaches quantiser and compiler.

Everything here takes long and needs much memory: sessions call it when their user asks for it, and else leave it to a
process of its own (see worker.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from odc_mlir.calibration.recorded import Records, Shapes, shapes_of
from odc_mlir.calibration.records import RecordStore
from odc_mlir.errors import OdcError, SessionError, UnsupportedError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.package import is_package
from odc_mlir.formats.samples import is_finite
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.policy.schemes import scheme as scheme_of
from odc_mlir.runtime.auto.coverage import check_channels, check_samples
from odc_mlir.runtime.auto.measuring import Gain, gain, side_by_side, some_inputs
from odc_mlir.runtime.auto.saturation import normal_shares
from odc_mlir.runtime.auto.status import Level
from odc_mlir.runtime.execution.binding import fits
from odc_mlir.runtime.execution.executor import Executor, HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.execution.specialization import SpecializedGraph, is_static
from odc_mlir.runtime.package import Package

# Fewer raw inputs than this are not enough to choose ranges by, when ranges of more runs are known.
_FEW_SAMPLES = 8

Progress = Callable[[str, int, int | None], None]


class QuantizedModel(NamedTuple):
    """The bytes of a Circle file, and how close it is to the float model."""

    model: bytes
    verdict: dict[str, Any]


def recorded_inputs(records: Path | None, shapes: Shapes | None = None) -> list[list[Array]]:
    """The raw inputs of ``shapes`` (None: of any) in the store at ``records``, oldest first; raises RecordsError.

    There are none where there is no store. Those with NaN or infinities, of which no range can be made, are left out.
    """
    if records is None or not records.is_file():
        return []
    return list(filter(is_finite, RecordStore(records, create=False).inputs(shapes=shapes)))


def quantize(
    model: Path,
    scheme: str,
    *,
    samples: Sequence[Sequence[Array]],
    records: Path | None = None,
    io: str = "float",
    metric: str | None = None,
    limit: float | None = None,
    max_seconds: float | None = None,
    target: str | None = None,
    progress: Progress | None = None,
) -> QuantizedModel:
    """``model`` quantised by ``samples`` of its inputs, as ``target`` likes it, and the verdict; raises OdcError.

    Where ``records``, a store, is of many more runs than there are samples, its ranges are taken instead, and the
    samples only check the result. Schemes that quantise weights alone can do without any. Samples are all of the same
    shapes; where the model says others, it is quantised in theirs and then has its own again.
    """
    if not samples and not scheme_of(scheme).weights_only:
        raise SessionError(
            "nothing has been recorded of this model", hint="run it with set_execute_config('DUMP_MINMAX') first"
        )
    from odc_mlir.runtime import api

    use_records = records is not None and len(samples) < _FEW_SAMPLES and _runs(records) > len(samples)
    with _fitted(model, samples) as (fitted, declared):
        made = api.quantize(
            fitted,
            scheme=scheme,
            calibration=None if use_records else list(samples) or None,
            evaluation=list(samples) if use_records and samples else None,
            records=_records_of(records) if use_records else None,
            io=io,
            metric=metric,
            limit=limit,
            max_seconds=max_seconds,
            target=target,
            progress=progress,
        )
    quantized = bytes(made.to_circle())
    return QuantizedModel(quantized if declared is None else with_shapes(quantized, declared), dict(made.verdict))


def _records_of(path: Path | None) -> Records:
    """The records of the store, of whatever shapes the model was run in."""
    assert path is not None
    found = RecordStore(path, create=False).records()
    found.digest = ""  # the store was looked up by it; a model with other shapes has another one
    return found


@contextmanager
def _fitted(model: Path, samples: Sequence[Sequence[Array]]) -> Iterator[tuple[Path, Shapes | None]]:
    """A file of ``model`` that takes ``samples``, and the input shapes to give back to what is made of another one."""
    shapes = shapes_of(samples[0]) if samples else ()
    declared = [info.shape for info in build_graph(read_model(model)).input_infos()] if samples else []
    if len(declared) != len(shapes) or all(map(fits, declared, shapes)):
        yield model, None
        return
    with TemporaryDirectory() as folder:
        file = Path(folder, model.name)
        file.write_bytes(with_shapes(model, shapes))
        known = [tuple(dim or 0 for dim in shape) for shape in declared if shape is not None and is_static(shape)]
        yield file, tuple(known) if len(known) == len(declared) else None


def check_coverage(model: Path, samples: Sequence[Sequence[Array]], *, wanted: int, channels: bool) -> None:
    """Raise CoverageError when ``samples``, of which so many were ``wanted``, show too little of ``model``.

    ``channels``: of what is inside it, too.
    """
    check_samples(samples, wanted)
    if channels:
        with suppress(UnsupportedError):  # who quantises it says so
            check_channels(HostExecutor(build_graph(read_model(model)), resize=True), samples)


def normal_saturation(model: bytes, samples: Sequence[Sequence[Array]]) -> dict[str, list[float]]:
    """The shares of codes at both ends by tensor name, of a quantised model on ``samples``, where that can run."""
    try:
        return normal_shares(HostExecutor(build_graph(read_model(model)), resize=True), samples)
    except OdcError:
        return {}


def gained(models: Mapping[Level, Path], shapes: Shapes, inputs: Sequence[Array] | None = None) -> Gain:
    """What a run on ``inputs`` (None: zeros) takes of two models or packages, by level, measured side by side."""
    executors = [_opened(path) for path in models.values()]
    for executor in executors:
        executor.prepare(shapes)
    values = some_inputs(executors[0], shapes) if inputs is None else inputs
    return gain(*side_by_side(executors, values))


def _opened(path: Path) -> Executor:
    if is_package(path) and (package := Package.from_path(path)).plan is not None:
        return package.executor(resize=True)
    return HostExecutor(build_graph(read_model(path)), resize=True)


def _runs(records: Path) -> int:
    return RecordStore(records, create=False).runs() if records.is_file() else 0


def with_shapes(model: Path | bytes, shapes: Sequence[Sequence[int]]) -> bytes:
    """The model file with inputs of ``shapes``, and all other shapes of its first subgraph as follows from them.

    Raises OdcError where the model does not take them.
    """
    records = read_model(model)
    shaped = SpecializedGraph(build_graph(records), [tuple(shape) for shape in shapes])
    for tensor, info in zip(records.subgraphs[0].tensors, shaped.tensors, strict=True):
        if not info.is_const and info.shape is not None and is_static(info.shape):
            tensor.shape, tensor.shape_signature = info.static_shape, None
    return bytes(write_model(records))
