"""``odc-sim``: run the program in a .npu file on the NPU simulator, and show how cycles are spent."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odc_mlir.errors import InputError, OptionError, PackageError
from odc_mlir.formats.kinds import ARRAYS, TRACE, json_kind, starts_with
from odc_mlir.formats.quantities import NOTHING, aligned, count_text, share_text, size_text, time_text
from odc_mlir.tools.common import base_parser, tool
from odc_mlir.tools.files import add_input, add_output, add_overwrite, add_samples, add_switch

if TYPE_CHECKING:
    from odc_mlir.formats.samples import Samples
    from odc_mlir.simulator import MemoryModel, Program, Result
    from odc_mlir.simulator.counters import Counters

COUNTERS = json_kind("a file of counters", "cycles", "queues", "ports")
SEGMENT = starts_with("a compiled segment", b"ONPU")
_SEED = 1


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``odc-sim``."""
    parser = base_parser(
        "odc-sim",
        "Run one compiled segment on the NPU simulator: bit-exact values and the causes of all cycles.",
        epilog="Uses only the file and its inputs; no model or compiler is needed. docs/npu.md describes the machine.",
    )
    add_input(parser, "segment", metavar="SEGMENT.npu", help="a compiled segment, or its listing")
    add_input(parser, "--load", metavar="DATA", help="inputs from an NPZ or HDF5 file (default: random values)")
    add_samples(parser)
    add_output(parser, "--dump", metavar="FILE", kind=ARRAYS, help="outputs to an NPZ or HDF5 file")
    add_output(parser, "--trace", metavar="FILE.json", kind=TRACE, help="timeline, for chrome://tracing or Perfetto")
    add_output(parser, "--assemble", metavar="OUT.npu", kind=SEGMENT, help="write the program of a listing, then stop")
    add_output(parser, "--stats", metavar="FILE.json", kind=COUNTERS, help="all counters")
    add_overwrite(parser)
    text = "stepped: the slow reference, cycle by cycle (%(default)s)"
    parser.add_argument("--mode", default="fast", choices=("fast", "stepped"), help=text)
    text = "parity: each transfer has one latency; strict: bursts in flight are also limited (%(default)s)"
    parser.add_argument("--memory-model", default="parity", choices=("parity", "strict"), help=text)
    add_input(parser, "--target", metavar="NAME|FILE.toml", stdin=False, help="the NPU to run on (default: the file's)")
    parser.add_argument("--cycle-limit", type=int, metavar="N", help="fail if a run takes more than N cycles")
    add_switch(parser, "--timing-only", "compute no values: the same cycles, faster")
    return parser


def _body(arguments: argparse.Namespace) -> None:
    if arguments.mode == "stepped" and arguments.trace:
        raise OptionError("--mode stepped writes no trace", hint="trace with --mode fast")
    from odc_mlir import simulator

    path = Path(arguments.segment)
    if not path.is_file():
        missing = "is a folder, not a file" if path.is_dir() else "does not exist"
        hint = "the programs of a package are the files odc/*/segment-*.npu in it" if path.is_dir() else None
        raise PackageError(f"{path} {missing}", hint=hint)
    binary = _binary(path)
    program = simulator.load(binary, target=arguments.target, location=arguments.segment)
    if arguments.assemble:
        arguments.files.write("assemble", lambda: binary)
        return
    samples = _samples(arguments, program)
    results = [
        simulator.simulate(
            program,
            record,
            mode=arguments.mode,
            memory_model=arguments.memory_model,
            trace=arguments.trace is not None and number == 0,
            execute=not arguments.timing_only,
            cycle_limit=arguments.cycle_limit,
        )
        for number, record in enumerate(samples.records)
    ]
    _write(arguments, samples, results)
    arguments.files.tell(summary(program, results[0].counters))
    if arguments.verbose:
        arguments.files.tell(explanation(program, arguments.memory_model))


def _binary(path: Path) -> bytes:
    from odc_mlir.isa.assembly import read_listing
    from odc_mlir.isa.container import MAGIC, write

    data = path.read_bytes()
    if data.startswith(MAGIC):
        return data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data  # neither a program nor a listing: the loader reports the error
    return write(read_listing(text))


def _samples(arguments: argparse.Namespace, program: Program) -> Samples:
    import numpy as np

    from odc_mlir.formats.samples import Samples, random_inputs, read_samples

    if arguments.timing_only and (arguments.load or arguments.dump):
        raise InputError("--timing-only computes no values, so there is nothing to load or dump")
    if arguments.load:
        shapes = [record.shape for record in program.inputs]
        names = [(record.name,) for record in program.inputs]
        return read_samples(arguments.load, shapes, names=names, sample_axis=arguments.samples)
    wanted = [(np.dtype(record.dtype), record.shape) for record in program.inputs]
    return Samples([random_inputs(wanted, _SEED)], "single")


def _write(arguments: argparse.Namespace, samples: Samples, results: Sequence[Result]) -> None:
    from odc_mlir.formats.samples import write_outputs

    if arguments.dump:
        outputs = [list(result.outputs) for result in results]
        with arguments.files.writing(arguments.dump):
            write_outputs(arguments.dump, outputs, samples.layout, overwrite=arguments.overwrite)
    first = results[0]
    if arguments.trace and first.trace is not None:
        arguments.files.write_json("trace", first.trace.to_chrome)
    arguments.files.write_json("stats", first.counters.to_dict)


def summary(program: Program, counters: Counters) -> Iterator[str]:
    """Yield the measurements of a run as lines of text."""
    target = program.target
    time = time_text(1e9 * counters.cycles / target.clock_hz)
    peak = counters.cycles * target.array.macs_per_cycle
    yield f"target        {counters.target}, memory {counters.memory}, memory model {counters.memory_model}"
    yield f"cycles        {count_text(counters.cycles)} ({time} at {target.clock_hz / 1e6:g} MHz)"
    yield f"MACs          {count_text(counters.macs_useful)} ({share_text(counters.macs_useful / peak)} of peak)"
    yield f"instructions  {count_text(counters.instructions)} ({size_text(counters.program_bytes)})"
    yield f"constants     {size_text(counters.constant_bytes)}, {count_text(counters.constant_bytes_read)} read"
    yield f"SRAM          {size_text(counters.sram_peak_bytes)}"
    for name, port in counters.ports.items():
        yield f"port {name:<11} {size_text(port.read_bytes):>19} read {count_text(port.write_bytes):>13} written"
    for name, queue in counters.queues.items():
        stalls = ", ".join(f"{cause} {share_text(c / counters.cycles)}" for cause, c in queue.stall_cycles.items())
        busy = share_text(queue.busy_cycles / counters.cycles)
        yield f"queue {name:<7} busy {busy:>7}" + (f", waits for {stalls}" if stalls else "")


def explanation(program: Program, memory_model: MemoryModel) -> Iterator[str]:
    """Yield lines that explain a run's cycles: by operator and, in memory model parity, possible improvements."""
    from odc_mlir import simulator
    from odc_mlir.runtime.reporting.report_table import explanation_lines, help_text, terminal_width

    found = simulator.explain(program, memory_model)
    cycles = found["cycles"]
    rows = [
        (
            operator["name"],
            count_text(operator["cycles"]),
            share_text(operator["cycles"] / cycles),
            operator["binds"] or NOTHING,
            help_text(operator),
        )
        for operator in found["operators"]
    ]
    titles = ("result", "cycles", "share", "bound by", "would help")
    if rows:
        yield from aligned(titles, rows, frozenset({"cycles", "share"}), terminal_width())
    yield from explanation_lines(found["causes"], found["what_if"] if memory_model == "parity" else {}, cycles)


main = tool(build_parser, _body)
