"""``odc-diff``: run two models, packages or backends on the same inputs and report where they differ."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import InputError, OptionError, did_you_mean
from odc_mlir.formats.kinds import json_kind
from odc_mlir.formats.quantities import aligned, counted, distinct_cuts
from odc_mlir.tools.common import ARRAY_FORMATS, EXIT_OK, EXIT_USER, MODEL_FORMATS, UsageError, base_parser, tool
from odc_mlir.tools.files import add_execution_flags, add_input, add_json, add_output, add_overwrite, add_samples, shown

if TYPE_CHECKING:
    from odc_mlir.ops.spec import Array, TensorInfo
    from odc_mlir.runtime.execution.executor import Executor
    from odc_mlir.runtime.reporting.metrics import Comparison, TensorComparison

_BACKENDS = ("auto", "host", "npu", "native", "litert", "onert")
VISQ = json_kind("errors of layers", "meta", "error")
VISQ_METRICS = ("mpeir", "mse", "tae", "srmse")
_SEED = 1
COMPARISON = json_kind("a comparison", "reference", "other", "tensors")
SCHEMA_VERSION = 1

# Names from converters may have hundreds of characters. The JSON document and the verdict print full names.
_NAME_WIDTH = 48
_OF_CLASSES = frozenset({"SOFTMAX", "LOG_SOFTMAX"})


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-diff``."""
    parser = base_parser(
        "odc-diff",
        "Run A (the reference) and B on the same inputs, and compare every tensor that both models compute.",
        epilog="Outputs are matched by position, other tensors by name. Exit code 0: all agree; 1: some differ, or "
        "code of a package did not run.",
    )
    backends = ", ".join(_BACKENDS)
    text = f"a model {MODEL_FORMATS}, FILE@BACKEND, or a BACKEND ({backends}) for the file of the other argument"
    add_input(parser, "a", metavar="A", help=text)
    add_input(parser, "b", metavar="B", nargs="?", help="as A")
    parser.add_argument(
        "--with", dest="other", choices=_BACKENDS, help="compare A with A on this backend, instead of B"
    )
    add_input(parser, "--load", "-l", metavar="DATA", help=f"inputs from an {ARRAY_FORMATS} file (default: random)")
    add_input(parser, "--load-b", metavar="DATA", help="other inputs for B, with as many samples as --load")
    add_samples(parser)
    text = "load at most N samples, from data of any form that calibration accepts"
    parser.add_argument("--max-samples", type=int, metavar="N", help=text)
    parser.add_argument("--atol", type=_tolerance, default=1e-5, metavar="X", help="absolute tolerance (%(default)s)")
    parser.add_argument(
        "--rtol", type=_tolerance, default=1e-4, metavar="X", help="relative tolerance, not for integers (%(default)s)"
    )
    add_execution_flags(parser)
    add_json(parser, COMPARISON, "every tensor and measure")
    add_output(parser, "--visq", metavar="FILE.json", kind=VISQ, help="write tensor errors in the format of ONE's visq")
    parser.add_argument(
        "--visq-metric", default="mpeir", choices=VISQ_METRICS, help="error measure of --visq (%(default)s)"
    )
    add_overwrite(parser)
    return parser


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a tolerance")
    return value


def _body(arguments: argparse.Namespace) -> int:
    from odc_mlir.runtime.api import open_executor
    from odc_mlir.runtime.execution.plan import PlanExecutor
    from odc_mlir.runtime.reporting.metrics import Tolerance, compare
    from odc_mlir.tools.measure import telling

    if (arguments.b is None) == (arguments.other is None):
        missing = "the following arguments are required: B or --with"
        raise UsageError("B and --with exclude each other" if arguments.other else missing)
    sides = _sides(arguments.a, arguments.b or arguments.other)
    names = ("target", "memory", "strict", "numerics", "trust_code")
    options: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    executors = [open_executor(file, backend=backend, all_tensors=True, **options) for file, backend in sides]
    records, others = _records(arguments, executors), _records_of_b(arguments, executors[1])
    if others is not None and len(others) != len(records):
        raise InputError(
            f"B has {counted(len(others), 'record')}, A {counted(len(records), 'record')}",
            location=arguments.load_b,
            hint="use the same number for both",
        )
    told = telling("odc-diff", records, quiet=arguments.quiet)
    found = compare(executors[0], executors[1], told, Tolerance(arguments.atol, arguments.rtol), others)
    replaced = sorted(name for each in executors if isinstance(each, PlanExecutor) for name in each.fallbacks)
    _write_errors(arguments, found)
    if arguments.json:
        arguments.files.write_json("json", lambda: document(found, sides) | {"replaced_by_host": replaced})
    else:
        of = "sample" if arguments.load else "random input"
        arguments.files.tell(report(found, every=arguments.verbose > 0, of=of))
        if replaced:
            arguments.files.tell([f"not compared: compiled code of {', '.join(replaced)}, which did not run"])
    return EXIT_OK if found.first_diverging is None and not replaced else EXIT_USER


def _write_errors(arguments: argparse.Namespace, found: Comparison) -> None:
    from odc_mlir.formats import one

    if not arguments.visq:
        return
    metric = arguments.visq_metric
    values = {tensor.name: getattr(tensor.errors, metric) for tensor in found.tensors if tensor.errors is not None}
    errors = {name: value for name, value in values.items() if value is not None}
    if not errors:
        hint = "compare with a quantised model" if metric == "srmse" else None
        raise InputError(f"no tensor has an error in {metric}", hint=hint)
    arguments.files.write_json("visq", lambda: one.document(Path(arguments.a).name, metric, errors))


def _sides(a: str, b: str) -> list[tuple[str, Any]]:
    parsed = [_side(text) for text in (a, b)]
    files = [file for file, _ in parsed if file is not None]
    if not files:
        raise OptionError(f"neither {a!r} nor {b!r} is an existing file", hint="give at least one model or package")
    return [(files[0] if file is None else file, backend) for file, backend in parsed]


def _side(text: str) -> tuple[str | None, str]:
    """Parse one side: a path if ``text`` names a file or folder, else a backend or ``PATH@BACKEND``."""
    if not Path(text).exists():
        if text in _BACKENDS:
            return None, text
        file, separator, backend = text.rpartition("@")
        if separator and backend in _BACKENDS:
            return file, backend
        if not Path(text).suffix and os.sep not in text:
            hint = f"{did_you_mean(text, _BACKENDS)}backends are {', '.join(_BACKENDS)}"
            raise OptionError(f"{text!r} is neither an existing file nor a backend", hint=hint)
    return text, "auto"


def _records(arguments: argparse.Namespace, executors: Sequence[Executor]) -> list[list[Array]]:
    from odc_mlir.runtime.execution.graph import index_limits

    infos = executors[0].graph.input_infos()
    if not arguments.load:
        if arguments.samples is not None:
            raise OptionError("--samples describes the file of --load, which is not given")
        return [_made_up(infos, executors[1].graph.input_infos(), index_limits(executors[0].graph))]
    return _loaded(arguments, arguments.load, infos)


def _records_of_b(arguments: argparse.Namespace, executor: Executor) -> list[list[Array]] | None:
    if not arguments.load_b:
        return None
    if not arguments.load:
        raise OptionError("--load-b sets inputs of B, but A has none", hint="give --load as well")
    return _loaded(arguments, arguments.load_b, executor.graph.input_infos())


def _loaded(arguments: argparse.Namespace, file: str, infos: Sequence[TensorInfo]) -> list[list[Array]]:
    from odc_mlir.formats.calibration import read_calibration
    from odc_mlir.formats.samples import read_samples
    from odc_mlir.runtime.execution.binding import to_codes

    if arguments.max_samples is None:
        shapes, names = [info.shape for info in infos], [(info.name, info.alias) for info in infos]
        return read_samples(file, shapes, names=names, sample_axis=arguments.samples).records
    found = read_calibration(file, infos, most=arguments.max_samples).records
    return [list(map(to_codes, infos, record)) for record in found]


def _made_up(ours: Sequence[TensorInfo], theirs: Sequence[TensorInfo], limits: Sequence[int | None]) -> list[Array]:
    """Return random inputs that the two sides accept: codes if either side takes codes."""
    from odc_mlir.formats.samples import random_inputs

    infos = [b if b.quant is not None and a.quant is None else a for a, b in zip(ours, theirs, strict=False)]
    shapes = [tuple(1 if dim is None else dim for dim in info.shape or ()) for info in infos]
    return random_inputs([(info.info.numpy, shape) for info, shape in zip(infos, shapes, strict=True)], _SEED, limits)


def document(found: Comparison, sides: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return all results as JSON data. Undefined measures and an infinite SQNR are null."""
    from dataclasses import asdict

    first = found.first_diverging
    return {
        "schema_version": SCHEMA_VERSION,
        "reference": {"file": shown(sides[0][0]), "backend": sides[0][1]},
        "other": {"file": shown(sides[1][0]), "backend": sides[1][1]},
        "records": found.records,
        **asdict(found.tolerance),
        "agrees": first is None,
        "first_diverging": None if first is None else first.name,
        "tensors": [{**asdict(tensor), "diverges": tensor.diverges} for tensor in found.tensors],
    }


def report(found: Comparison, *, every: bool, of: str) -> Iterator[str]:
    """Yield a table of outputs and diverging tensors, and the verdict.

    ``every``: all tensors, and measures that may not apply, such as the top-1 match. ``of``: what a record is
    """
    shown = [tensor for tensor in found.tensors if every or tensor.diverges or tensor.kind == "output"]
    head = ("", "tensor", "op", "type", "differ", "max abs", "MAE", "MAPE %", "MPEIR", "MSE", "SQNR dB", "cosine")
    names = distinct_cuts([tensor.name for tensor in shown], _NAME_WIDTH)
    rows = [_row(tensor, names[tensor.name], every) for tensor in shown]
    columns = [column for column in zip((*head, "top-1", "top-5"), *rows, strict=True) if any(column[1:])]
    if rows:
        titles, *lines = zip(*columns, strict=True)
        yield from aligned(titles, lines)
    inside = len(found.tensors) - len(found.outputs)
    compared = f"{counted(len(found.outputs), 'output')} and {counted(inside, 'other tensor')}"
    parts = [sum(t.diverges for t in found.outputs), sum(t.diverges for t in found.tensors if t.kind != "output")]
    over = f"over {counted(found.records, of)}, atol {found.tolerance.atol:g}, rtol {found.tolerance.rtol:g}"
    first = found.first_diverging
    if first is None:
        yield f"all agree: {compared} {over}"
    else:
        yield "!: beyond atol and rtol; MPEIR: largest error of a sample, divided by the tensor's range, on average"
        outputs = f"{parts[0]} of {counted(len(found.outputs), 'output')}"
        yield f"{outputs} and {parts[1]} of {counted(inside, 'other tensor')} differ {over}"
        yield f"first diverging tensor: {first.name!r} ({_what(first)})"


def _what(tensor: TensorComparison) -> str:
    if tensor.errors is None:
        text = f"{tensor.reference_type} and {tensor.other_type}, {tensor.misfit}"
    else:
        text = f"{tensor.errors.differing} of {tensor.errors.elements} elements"
        if tensor.errors.max_abs is not None:
            text += f", by up to {tensor.errors.max_abs:g}{' codes' if tensor.unit == 'code' else ''}"
    return f"{tensor.op}: {text}" if tensor.op else text


def _row(tensor: TensorComparison, name: str, every: bool) -> tuple[str, ...]:
    types = tensor.reference_type
    if tensor.other_type != types:
        types += f" / {tensor.other_type}"
    mark = ("out " if tensor.kind == "output" else "") + ("!" if tensor.diverges else "")
    start = (mark.strip(), name, tensor.op, types)
    errors = tensor.errors
    if errors is None:
        return (*start, tensor.misfit, *[""] * 9)
    relative = errors.mape_percent if every or tensor.unit == "value" else None
    measures = (errors.max_abs, errors.mae, relative, errors.mpeir, errors.mse)
    tops = (errors.top1_match, errors.top5_match) if every or tensor.op in _OF_CLASSES else (None, None)
    sqnr = "inf" if errors.mse == 0 else _number(errors.sqnr_db)
    return (*start, str(errors.differing), *map(_number, measures), sqnr, *map(_number, (errors.cosine, *tops)))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


main = tool(build_parser, _body)
