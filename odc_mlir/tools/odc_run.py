"""``odc-run``: run a model file or a compiled package on given or random data, and measure it."""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from odc_mlir.errors import InputError, OptionError, UnsupportedError
from odc_mlir.formats.kinds import ARRAYS, PROFILE, TRACE, UNKNOWN
from odc_mlir.formats.quantities import bytes_of, counted
from odc_mlir.tools.common import ARRAY_FORMATS, MODEL_FORMATS, base_parser, size, tool
from odc_mlir.tools.files import add_execution_flags, add_input, add_output, add_overwrite, add_samples, add_switch
from odc_mlir.tools.generating import add_generation_flags, generate_text
from odc_mlir.tools.measure import TIMES, csv_path, telling
from odc_mlir.tools.run_stages import QUANTIZED_SUFFIXES, add_stage_flags, staged_model

if TYPE_CHECKING:
    from odc_mlir.formats.samples import Samples
    from odc_mlir.ops.spec import Array, TensorInfo
    from odc_mlir.runtime.execution.executor import Executor
    from odc_mlir.runtime.execution.units import Observer
    from odc_mlir.runtime.session import Session
    from odc_mlir.tools.measure import Run

_SEED = 1
_log = logging.getLogger(__name__)

_MODEL_OPTIONS = ("--modelfile", "--nnpackage", "--path")  # of onert_run; here the model is an argument
_SWITCHES = ("-g", "-m", "-p", "--gpumem_poll", "--mem_poll", "--write_report")  # which take 0 or 1 in onert_run
_MOST_DIGITS = 9  # limit on the digits of a number of runs


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-run``."""
    parser = base_parser("odc-run", f"Run a model {MODEL_FORMATS}.")
    add_input(parser, "model", metavar="MODEL_OR_PACKAGE", help="model file or package")
    add_overwrite(parser)
    where = parser.add_argument_group("where to run")
    where.add_argument(
        "--backend",
        default="auto",
        choices=("auto", "host", "npu", "native", "litert", "onert"),
        help="auto (default): host for a model, the compiled target for a package; npu and native compile first",
    )
    add_execution_flags(where)
    where.add_argument("--signature", metavar="NAME", help="run the subgraph of this signature")
    where.add_argument("--max-bytes", type=size, metavar="N", help="limit on the bytes of live operands and results")
    where.add_argument(
        "--threads", type=int, metavar="N", help="threads of native code and matrix products (NUM_THREADS)"
    )
    _add_data_flags(parser.add_argument_group("data"))
    add_generation_flags(parser.add_argument_group("text"))
    _add_measuring_flags(parser.add_argument_group("measuring"))
    add_stage_flags(parser.add_argument_group("before the run"))
    return parser


def _add_data_flags(group: argparse._ArgumentGroup) -> None:
    add_input(
        group,
        "--load",
        "-l",
        metavar="DATA",
        help=f"inputs from an {ARRAY_FORMATS} file (NPZ: in_0, in_1, … or the names of inputs)",
    )
    add_input(
        group, "--load:raw", dest="load_raw", metavar="PREFIX", stdin=False, help="inputs from PREFIX.0, PREFIX.1 ..."
    )
    add_samples(group)
    add_input(
        group,
        "--labels",
        nargs="?",
        const="",
        metavar="FILE.npz",
        help="measure accuracy, with array y of this file (default: the file of --load) as labels; implies --samples",
    )
    add_output(group, "--dump", "-d", metavar="FILE", kind=ARRAYS, help="outputs to an NPZ or HDF5 file")
    for flag, name, text in (
        ("--dump:raw", "dump_raw", "outputs to PREFIX.0, PREFIX.1 ..."),
        ("--dump_input:raw", "dump_input_raw", "inputs to PREFIX.0, PREFIX.1 ..."),
    ):
        add_output(group, flag, dest=name, metavar="PREFIX", kind=UNKNOWN, paths=_first_of(name), help=text)
    group.add_argument(
        "--dump-tensor",
        action="append",
        default=[],
        metavar="NAME[,NAME]",
        help="intermediate tensors to write to the file of --dump (without --dump: a summary on stdout)",
    )
    add_switch(group, "--fixed_input", "use the same random inputs in every run")
    add_switch(group, "--force_float", "use float32 values for inputs and outputs of quantised models")
    shapes = "'[0,[1,2],2,[]]': input 0 is 1x2, input 2 a scalar; or h5: as loaded"
    group.add_argument("--shape_prepare", metavar="SHAPES", default="", help=f"input shapes, {shapes}")
    group.add_argument(
        "--shape_run", metavar="SHAPES", default="", help="input shapes; takes precedence over --shape_prepare"
    )
    group.add_argument(
        "--output_sizes", metavar="SIZES", default="", help="buffers: '[0,40,2,80]' gives output 2 80 bytes"
    )
    group.add_argument(
        "--output_shape", metavar="SHAPES", default="", help="shapes of dumped outputs, in the form of --shape_prepare"
    )


def _add_measuring_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--num_runs", "-r", type=_natural, default=1, metavar="N", help="timed runs (%(default)s)")
    group.add_argument(
        "--warmup_runs", "-w", type=_natural, default=0, metavar="N", help="untimed runs at the start (%(default)s)"
    )
    group.add_argument("--run_delay", "--t", type=int, default=-1, metavar="US", help="sleep between timed runs")
    group.add_argument("--gpumem_poll", "-g", action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--mem_poll", "-m", action="store_true", help="report resident memory after each phase")
    add_output(
        group,
        "--write_report",
        "-p",
        action="store_true",
        kind=TIMES,
        paths=lambda arguments: [csv_path(arguments.model, arguments.backend)],
        help="write odc-run-MODEL-BACKEND.csv here",
    )
    group.add_argument("--verbose_level", type=int, default=0, choices=(0, 1, 2), help="1: time of each run (or -v N)")
    add_output(group, "--profile", metavar="FILE.json", kind=PROFILE, help="times by operator, measured here")
    text = "trace for a viewer: the modelled inference of a package, or all timed runs of a model"
    add_output(group, "--trace", metavar="FILE.json", kind=TRACE, help=text)


def _first_of(name: str) -> Callable[[argparse.Namespace], list[str]]:
    """Return a function that returns the first raw file of the prefix in argument ``name``."""
    return lambda arguments: [f"{getattr(arguments, name)}.0"]


def _natural(text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of runs, of at most {_MOST_DIGITS} digits")
    return int(text)


def _with_onert_spellings(parser: argparse.ArgumentParser, argv: Iterable[str]) -> list[str]:
    """Convert onert_run's options that differ here: the model, ``-t``, values of other options, and prefixes."""
    known = set(parser._option_string_actions)
    theirs = [*_MODEL_OPTIONS, *(option for option in known if "_" in option or ":" in option)]
    words, result = list[str](), list[str]()
    for word in argv:
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and flag not in known:
            full = [option for option in theirs if option.startswith(flag)]
            flag = full[0] if len(full) == 1 else flag
        words += [flag, value] if equals and flag in (*_MODEL_OPTIONS, *_SWITCHES) else [f"{flag}{equals}{value}"]
    for word in words:
        last = result[-1] if result else ""
        if last == "-v" and word in ("0", "1", "2"):
            result[-1:] = ["--verbose_level", word]
        elif last == "-q" and word in QUANTIZED_SUFFIXES:
            result[-1:] = ["--quantize", word]
        elif last in _MODEL_OPTIONS:
            result[-1] = word
        elif last in _SWITCHES and word in ("0", "1", "false", "true"):
            result[-1:] = [last] if word in ("1", "true") else []
        else:
            result.append("--run_delay" if word == "-t" else word)
    return result


def _body(arguments: argparse.Namespace) -> None:
    from odc_mlir.formats.package import is_package
    from odc_mlir.runtime.api import open_executor
    from odc_mlir.runtime.execution.binding import bind_inputs
    from odc_mlir.runtime.execution.plan import PlanExecutor
    from odc_mlir.runtime.package import Package
    from odc_mlir.runtime.reporting.clocks import LatencyProfile
    from odc_mlir.tools.measure import MemoryPoll, Run, describe_values
    from odc_mlir.tools.run_stages import backend_of_settings, session_of_settings, settings_of

    shapes = _parse_shapes(arguments.shape_run or arguments.shape_prepare)
    memory = MemoryPoll(arguments.mem_poll)
    measurement = LatencyProfile()
    if arguments.gpumem_poll:
        raise UnsupportedError("there is no GPU, so its memory cannot be reported", hint="use --mem_poll")
    _check_prompt(arguments)
    model = staged_model(arguments, lambda model, count: _recorded_on(arguments, model, shapes, count))
    if arguments.prompt is not None:
        generate_text(arguments, model)
        return
    start = time.perf_counter()
    package = Package.from_path(model, trust_code=arguments.trust_code) if is_package(model) else None
    executor = open_executor(
        model if package is None else package,
        backend=arguments.backend if arguments.backend != "auto" else backend_of_settings(package),
        target=arguments.target,
        memory=arguments.memory,
        strict=arguments.strict,
        numerics=arguments.numerics,
        max_bytes=arguments.max_bytes,
        threads=settings_of(package).threads if arguments.threads is None else arguments.threads,
        resize=shapes is not None,
        signature=arguments.signature,
        all_tensors=bool(arguments.dump_tensor),
    )
    measurement.load_seconds = time.perf_counter() - start
    memory.sample("MODEL_LOAD")
    samples = _samples(arguments, executor, shapes)
    start = time.perf_counter()
    # Check shapes before the run, because errors of runs name operators inside the model.
    bound = bind_inputs(executor.graph.input_infos(), samples.records[0], resize=shapes is not None)
    executor.prepare([array.shape for array in bound])
    measurement.prepare_seconds = time.perf_counter() - start
    memory.sample("PREPARE")
    session = session_of_settings(arguments, model, package, executor)
    run = Run(arguments, executor, samples, measurement, memory)
    if arguments.backend == "npu" and isinstance(executor, PlanExecutor) and not run.segments:
        text = "%s: the host runs everything, nothing is for %s (%s); quantise a float model first: %s"
        plan, remedy = executor.plan, "--quantize uint8 --load DATA"
        _log.warning(text, model, plan.target, next(iter(plan.host_reasons.values()), "it has no operators"), remedy)
    outputs = _run_all(run, session)
    tensors = _tensors(arguments, executor, samples)
    _write_results(run, outputs, tensors)
    _tell(run, outputs)
    if session is not None:
        session.wait_for_auto_compilation()  # a compile process ends with its session
        arguments.files.tell([f"ON DEVICE    {session.odc_status}"])
        session.close()
    if not arguments.dump:
        for name, value in tensors[0].items() if tensors else ():
            print(f"{name}: {describe_values(value)}", file=arguments.files.messages)


def _check_prompt(arguments: argparse.Namespace) -> None:
    group = argparse.ArgumentParser(add_help=False).add_argument_group()
    if arguments.prompt is None:
        add_generation_flags(group)
        problem, hint = "needs the text of --prompt, which is not given", "add --prompt TEXT"
    else:
        _add_data_flags(group)
        _add_measuring_flags(group)
        problem, hint = "does not apply to texts (--prompt)", "leave it out"
    allowed = ("load", "load_raw", "samples") if arguments.quantize is not None else ()
    for action in group._group_actions:
        if getattr(arguments, action.dest) != action.default and action.dest not in allowed:
            raise OptionError(f"{action.option_strings[0]} {problem}", hint=hint)
    if arguments.prompt is not None and arguments.numerics != "fixed":
        raise OptionError(f"--numerics {problem}", hint=hint)


def _parse_shapes(text: str) -> dict[int, tuple[int, ...]] | None:
    """Parse ``'[0,[1,2],2,[]]'`` as {0: (1, 2), 2: ()}. Return {} for ``h5``, and None for empty text."""
    import json

    if not text:
        return None
    if text == "h5":
        return {}
    try:
        items = json.loads(text)
        pairs = dict(zip(items[::2], items[1::2], strict=True))
        valid = all(type(i) is int and all(type(d) is int and d > 0 for d in shape) for i, shape in pairs.items())
    except (ValueError, TypeError, RecursionError):
        valid = False
    if not valid:
        raise OptionError(
            f"the shapes {text!r} cannot be read", hint="write [0,[1,2],2,[]], or h5 for the shapes of --load"
        )
    return {index: tuple(shape) for index, shape in pairs.items()}


def _recorded_on(
    arguments: argparse.Namespace, model: str, shapes: dict[int, tuple[int, ...]] | None, count: int
) -> list[list[Array]]:
    from odc_mlir.formats.samples import random_inputs
    from odc_mlir.runtime.api import open_executor
    from odc_mlir.runtime.execution.graph import index_limits

    executor = open_executor(model, backend="host")
    records = _samples(arguments, executor, shapes).records
    if arguments.load or arguments.load_raw:
        return records
    _log.warning("%s: ranges are recorded on random inputs; load real ones for an accurate model", model)
    wanted = _wanted(executor.graph.input_infos(), shapes)
    limits = index_limits(executor.graph)
    return [random_inputs(wanted, _SEED + number, limits) for number in range(count)]


def _check_sizes(text: str, outputs: list[list[Array]]) -> None:
    for index, room in _parse_sizes(text, len(outputs[0]) if outputs else None).items():
        for record in outputs:
            if record[index].nbytes > room:
                raise InputError(f"output {index} has {record[index].nbytes} bytes, --output_sizes gives it {room}")


def _parse_sizes(text: str, count: int | None) -> dict[int, int]:
    if not text:
        return {}
    try:
        items = [bytes_of(item) for item in text.strip()[1:-1].split(",")]
        sizes = dict(zip(items[::2], items[1::2], strict=True))
        valid = min(items) >= 0 and text.strip()[0] + text.strip()[-1] == "[]"
    except (ValueError, OptionError):
        valid = False
    if not valid:
        raise OptionError(f"the sizes {text!r} cannot be read", hint="write [0,40,2,80]: output, bytes, output, bytes")
    if count is not None and (wrong := next((index for index in sizes if index >= count), None)) is not None:
        raise OptionError(f"a size is given for output {wrong}, the model has {counted(count, 'output')}")
    return sizes


def _reshaped(text: str, outputs: list[list[Array]]) -> list[list[Array]]:
    shapes = _parse_shapes(text) or {}
    for index, shape in shapes.items():
        if outputs and not 0 <= index < len(outputs[0]):
            raise OptionError(
                f"a shape is given for output {index}, the model has {counted(len(outputs[0]), 'output')}"
            )
        for record in outputs:
            if math.prod(shape) != record[index].size:
                raise OptionError(f"output {index} has {record[index].size} elements, which are not {list(shape)}")
            record[index] = record[index].reshape(shape)
    return outputs


def _samples(arguments: argparse.Namespace, executor: Executor, shapes: dict[int, tuple[int, ...]] | None) -> Samples:
    from odc_mlir.formats.samples import Samples, random_inputs, read_labels, read_raw, read_samples
    from odc_mlir.runtime.execution.binding import to_codes
    from odc_mlir.runtime.execution.graph import index_limits

    infos = executor.graph.input_infos()
    if arguments.labels is not None and not arguments.load:
        raise OptionError("--labels needs samples, and none are loaded", hint="add --load FILE")
    if arguments.samples is not None and not arguments.load:
        raise OptionError("--samples describes the file of --load, which is not given")
    if arguments.load_raw:
        samples = Samples([read_raw(arguments.load_raw, _wanted(infos, shapes, arguments.force_float))], "single")
    elif arguments.load:
        several = arguments.samples if shapes is None or arguments.samples else False
        shapes_known, names = [info.shape for info in infos], [(info.name, info.alias) for info in infos]
        samples = read_samples(
            arguments.load, shapes_known, names=names, sample_axis=arguments.labels is not None or several
        )
        if arguments.labels:
            samples = Samples(samples.records, samples.layout, read_labels(arguments.labels))
        elif arguments.labels is not None and samples.labels is None:
            raise InputError("the file has no labels (an array y)", location=arguments.load)
    else:
        return Samples([random_inputs(_wanted(infos, shapes), _SEED, index_limits(executor.graph))], "single")
    if arguments.force_float:
        pairs = [list(map(to_codes, infos, record)) for record in samples.records]
        samples = Samples(pairs, samples.layout, samples.labels)
    return samples


def _wanted(
    infos: Sequence[TensorInfo], shapes: dict[int, tuple[int, ...]] | None, as_float: bool = False
) -> list[tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of every input. Unknown dimensions outside ``shapes`` are 1."""
    import numpy as np

    for index in shapes or {}:
        if not 0 <= index < len(infos):
            raise OptionError(f"a shape is given for input {index}, the model has {counted(len(infos), 'input')}")
    dtypes = (np.dtype(np.float32) if as_float and info.quant is not None else info.info.numpy for info in infos)
    known = (tuple(1 if dim is None else dim for dim in info.shape or ()) for info in infos)
    return [(dtype, (shapes or {}).get(i, shape)) for i, (dtype, shape) in enumerate(zip(dtypes, known, strict=True))]


def _run_all(run: Run, session: Session | None) -> list[list[Array]]:
    """Run warm-up and timed runs over all samples, by ``session`` if given. Return the outputs of the last pass."""
    from odc_mlir.formats.samples import random_inputs
    from odc_mlir.runtime.execution.graph import index_limits

    arguments, executor, samples, measurement = run.arguments, run.executor, run.samples, run.measurement
    made_up = not (arguments.load or arguments.load_raw)
    observe = measurement.events.append if arguments.profile or arguments.trace else None
    for unit in run.segments:
        unit.keep_trace = arguments.trace is not None
    measurement.warmup_runs = max(arguments.warmup_runs, int(arguments.mem_poll))
    for _ in range(measurement.warmup_runs):
        _run_once(executor, session, samples.records[0])
    run.memory.sample("EXECUTE")
    outputs: list[list[Array]] = []
    for number in range(arguments.num_runs):
        if made_up and number and not arguments.fixed_input:
            described = [(array.dtype, array.shape) for array in samples.records[0]]
            samples.records[0] = random_inputs(described, _SEED + number, index_limits(executor.graph))
        if number and arguments.run_delay > 0:
            time.sleep(1e-6 * arguments.run_delay)
        outputs = []
        for record in telling("odc-run", samples.records, quiet=arguments.quiet):
            executor.reset()
            start = time.perf_counter()
            outputs.append(_run_once(executor, session, record, observe))
            measurement.run_seconds.append(time.perf_counter() - start)
    return outputs


def _run_once(
    executor: Executor, session: Session | None, record: list[Array], observe: Observer | None = None
) -> list[Array]:
    return executor.run(record, observe=observe) if session is None else session.infer(record)


def _tensors(arguments: argparse.Namespace, executor: Executor, samples: Samples) -> list[dict[str, Array]]:
    """Return the tensors of --dump-tensor for every sample, from a separate run."""
    from odc_mlir.runtime.execution.executor import Capture

    known = {info.name for info in executor.graph.tensors}
    names = [name for text in arguments.dump_tensor for name in ([text] if text in known else text.split(","))]
    captures = [Capture(executor, names) for _ in samples.records] if names else []
    for capture, record in zip(captures, samples.records, strict=False):
        executor.reset()
        executor.run(record, watch=capture)
    return [capture.values for capture in captures]


def _write_results(run: Run, outputs: list[list[Array]], tensors: list[dict[str, Array]]) -> None:
    from odc_mlir.formats.samples import write_outputs, write_raw
    from odc_mlir.runtime.execution.binding import to_reals

    arguments, samples = run.arguments, run.samples
    dumps = (arguments.dump, arguments.dump_raw, arguments.dump_input_raw)
    changing = not (arguments.load or arguments.load_raw or arguments.fixed_input) and arguments.num_runs > 1
    if any(dumps) and changing:
        raise OptionError("the inputs differ from run to run", hint="add --fixed_input or load some to dump results")
    if any(dumps) and not outputs:
        raise OptionError("no run was made, so there are no outputs to dump", hint="use --num_runs 1")
    if (arguments.dump_raw or arguments.dump_input_raw) and len(outputs) > 1:
        raise OptionError("raw files hold one sample, but there are several", hint="use --dump with .npz or .h5")
    if arguments.force_float:
        infos = run.executor.graph.output_infos()
        outputs[:] = [list(map(to_reals, infos, record)) for record in outputs]
    _check_sizes(arguments.output_sizes, outputs)
    if arguments.output_shape:
        outputs = _reshaped(arguments.output_shape, [list(record) for record in outputs])
    files = arguments.files
    if arguments.dump:
        with files.writing(arguments.dump):
            write_outputs(arguments.dump, outputs, samples.layout, tensors, overwrite=files.overwrite)
    for path, records in ((arguments.dump_raw, outputs), (arguments.dump_input_raw, samples.records)):
        if path:
            with files.writing(path):
                write_raw(path, records[0], overwrite=files.overwrite)


def _tell(run: Run, outputs: list[list[Array]]) -> None:
    from odc_mlir.quantizer.outputs import answering
    from odc_mlir.runtime.execution.binding import to_reals
    from odc_mlir.runtime.reporting.labels import doubt
    from odc_mlir.runtime.reporting.scores import score_lines

    arguments, samples, graph = run.arguments, run.samples, run.executor.graph
    if arguments.profile:
        run.write_profile()
    if arguments.trace:
        run.write_trace()
    if arguments.write_report:
        run.write_csv()
    arguments.files.tell(run.summary(each_run=max(arguments.verbose_level, arguments.verbose) > 0))
    if samples.labels is not None and outputs:
        found = answering(graph, outputs[0], samples.labels[:1].size)
        info = graph.output_infos()[found.output]
        answers = [to_reals(info, found.of(record)) for record in outputs]
        for line in score_lines(answers, samples.labels):
            print(line, file=arguments.files.messages)
        if (wrong := doubt(answers, samples.labels, "the model")) is not None:
            print(f"odc-run: warning: {wrong}", file=sys.stderr)


main = tool(build_parser, _body, _with_onert_spellings)
