"""Translation validation: comparison of a module's results before and after a pipeline.

Host kernels run the module itself. A program is compared with the circle body of the segment. An interpreter runs
programs of tensor operations. Other programs are emitted and run on the device. A program runs twice: at the end of the
pipeline, and before tensor operations become instructions, because instructions have no intermediate values to compare.
If values differ, copies of the module from the ends of stages reveal the first stage with a difference.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.interpreter import Interpreter, PythonValues
from xdsl.ir import Attribute, Operation, Region
from xdsl.passes import ModulePass

from odc_mlir import optimizer, pipelines, targets
from odc_mlir.backends import CompilerBackend, backend_of, segment_model
from odc_mlir.dialects.circle import info_of
from odc_mlir.dialects.npu_base import NpuTensorOp
from odc_mlir.dialects.npu_program import ProgramOp
from odc_mlir.dialects.odc import SegmentOp, YieldOp, lowered_symbols, target_of
from odc_mlir.emitter.program import emit_program
from odc_mlir.errors import CompileError, InputError, PackageError, SimulationError, TranslationError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.quantities import counted
from odc_mlir.formats.samples import random_inputs
from odc_mlir.interpreters.module import make_interpreter
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.devices import open_device
from odc_mlir.runtime.execution.graph import build_graph, index_limits
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.npu.npu_lower_to_tiles import NpuLowerToTilesPass
from odc_mlir.transforms.quant.common.given import GIVEN
from odc_mlir.transforms.quant.common.ir import SCHEME
from odc_mlir.universe import make_context

LOG = logging.getLogger(__name__)
TOLERANCE = 1e-4  # tolerance of float outputs, relative to the largest output; codes and integers must be equal
SAMPLES = 8  # number of samples of each segment for tensor operations
BINARY_SAMPLES = 3  # number of these samples for simulated instructions and machine code, which are slower
_GIVEN = "given"
_QUANTIZING = "quant"  # the stage that changes values if a scheme is chosen

Inputs = Sequence[Array]
_Inner = Mapping[str, list[tuple[Attribute, Array]]]
"""Element type and elements of every value with a given name, in the order of operations."""


class _Answer(NamedTuple):
    """Outputs and intermediate values of a segment. Instructions have no intermediate values."""

    outputs: Sequence[Array]
    inner: _Inner = MappingProxyType({})


class _Recorder(Interpreter.Listener):
    def __init__(self) -> None:
        self.values: dict[str, list[tuple[Attribute, Array]]] = {}

    def did_interpret_op(self, op: Operation, results: PythonValues) -> None:
        for result, array in zip(op.results, results, strict=True):
            if op.operands and isinstance(result.type, TensorType) and (name := value_name(result)):
                self.values.setdefault(name, []).append((result.type.element_type, array.reshape(-1).copy()))


@dataclass
class Validator(pipelines.Validation):
    """Validation of the pipelines that run in one context."""

    is_active = True

    segments: dict[str, SegmentOp] = field(default_factory=dict)  # segments whose programs are in separate modules
    _kept: list[tuple[str, ModuleOp]] = field(default_factory=list)
    _samples: dict[SegmentOp, tuple[Sequence[Inputs], Sequence[_Answer]]] = field(default_factory=dict)
    _live: ModuleOp | None = None
    _deferred: bool = False

    def start(self, module: ModuleOp) -> None:
        if not self._deferred or module is not self._live:
            self._kept, self._live = [(_GIVEN, clone_module(module))], module

    def keep(self, stage: str, module: ModuleOp) -> None:
        if GIVEN in module.attributes or (stage == _QUANTIZING and SCHEME in module.attributes):
            self._kept.clear()  # quantisation changes values
        self._kept.append((stage, clone_module(module)))

    def before_pass(self, stage: str, item: ModulePass, module: ModuleOp) -> None:
        if item.name == NpuLowerToTilesPass.name and self._problem_of_programs(module):
            self.keep(stage, module)
            self._blame()

    def check(self) -> None:
        if not self._deferred and self._problem(len(self._kept) - 1, warn=True):
            self._blame()

    def _blame(self) -> None:
        for number, (stage, _) in enumerate(self._kept):
            if problem := self._problem(number):
                given = stage == _GIVEN
                wrong = "the given IR" if given else f"the IR after {stage}"
                raise TranslationError(f"{wrong} means something else: {problem}", stage=None if given else stage)

    @contextmanager
    def of_binaries(self, segments: Sequence[SegmentOp]) -> Iterator[None]:
        self.segments = {segment.sym_name.data: segment for segment in segments}
        self._deferred, self._live = True, None
        self._samples |= {segment: _samples_of(segment) for segment in segments}  # before passes change bodies
        try:
            yield
        finally:
            self._deferred = False

    def check_binary(self, segment: SegmentOp, suffix: str, binary: bytes) -> None:
        problem = self._compared(segment, lambda drawn: _run_binary(binary, suffix, drawn))
        if problem:
            self._blame()
            raise TranslationError(f"the binary of a segment means something else: {problem}", stage="package")

    def _problem(self, number: int, *, warn: bool = False) -> str | None:
        """Return the difference between the pipeline's input and stage ``number``'s result as text, or None.

        ``warn``: log a warning for each program that cannot run
        """
        (_, before), (_, module) = self._kept[0], self._kept[number]
        if number and any(isinstance(op, FuncOp) for op in module.body.block.ops):
            found = optimizer.difference(before, module, samples=1)
            if found.relative > TOLERANCE or found.codes:
                codes = [counted(found.codes, "code")] if found.codes else []
                reals = [f"{found.relative:.1e} of the largest value"] if found.relative else []
                return f"outputs differ by up to {' or '.join(codes + reals)}"
        return self._problem_of_programs(module, warn=warn)

    def _problem_of_programs(self, module: ModuleOp, *, warn: bool = False) -> str | None:
        """Return a difference between a program and the circle body of the segment as text, or None."""
        functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
        inside = (op for function in functions for op in function.walk() if isinstance(op, SegmentOp))
        segments = self.segments | {op.sym_name.data: op for op in inside}
        stage = pipelines.stage_of(module)
        for name, lowered in lowered_symbols(module).items():
            if name not in segments:  # programs in lit files may have no segment
                continue
            if stage is None and not _is_of_tensors(lowered):
                if warn:
                    LOG.warning("segment @%s is not checked: the IR is between stages, so it cannot run yet", name)
                continue
            run = self._runner(module, stage, segments[name], lowered)
            if problem := self._compared(segments[name], run):
                return problem
        return None

    def _runner(
        self, module: ModuleOp, stage: pipelines.Stage | None, segment: SegmentOp, lowered: Operation
    ) -> Callable[[Sequence[Inputs]], Sequence[_Answer]]:
        """Return a function that runs ``lowered``, the form of ``segment`` in ``module`` at the end of ``stage``.

        Only tensor operations can run between stages.
        """
        if isinstance(lowered, ProgramOp) and isinstance(lowered.block.last_op, YieldOp):
            return lambda drawn: _interpreted(module, lowered.body, drawn)
        assert stage is not None, "instructions between stages are not run"
        backend = backend_of(module)

        def run(drawn: Sequence[Inputs]) -> Sequence[_Answer]:
            end = clone_module(module)
            if stage.name not in (backend.last, "package"):
                pipelines.run(make_context(), end, backend.last, after=stage.name, options=backend.passes())
            return _run_binary(_binary(backend, end, segment), backend.suffix, drawn)

        return run

    def _compared(self, segment: SegmentOp, run: Callable[[Sequence[Inputs]], Sequence[_Answer]]) -> str | None:
        """Return the difference between results of ``run`` and of the circle body as text, or None."""
        if segment not in self._samples:
            self._samples[segment] = _samples_of(segment)
        last, where = segment.circle_block.last_op, f"segment @{segment.sym_name.data}"
        assert isinstance(last, YieldOp), "a verified segment ends in its yield"
        names, (drawn, expected_answers) = [info_of(value).name for value in last.operands], self._samples[segment]
        try:
            with typed_errors("verify"):
                answers = run(drawn)
        except (InputError, PackageError, SimulationError) as error:
            return f"{where} fails: {error.message}"
        for answer, wanted in zip(answers, expected_answers, strict=False):  # binaries run on fewer inputs
            outputs = zip(names, answer.outputs, wanted.outputs, strict=True)
            for name, found, expected in (*_common(answer.inner, wanted.inner), *outputs):
                if wrong := _disagreeing(found, expected):
                    return f"{where} gives other values of {name!r} in {wrong} of {expected.size} elements"
        return None


def _common(found: _Inner, expected: _Inner) -> Iterator[tuple[str, Array, Array]]:
    """Yield the name, the actual and the expected elements of each common intermediate value with equal type and size.

    If several operations replace an operator of the circle body and have its name, the last operation gives the value.
    """
    for name, values in found.items():
        kind, elements = values[-1]
        for wanted, codes in expected.get(name, []):
            if kind == wanted and elements.size == codes.size and len(expected[name]) == 1:
                yield name, elements, codes


def _is_of_tensors(lowered: Operation) -> bool:
    return (
        isinstance(lowered, ProgramOp)
        and isinstance(lowered.block.last_op, YieldOp)
        and all(isinstance(op, NpuTensorOp | YieldOp) for op in lowered.block.ops)
    )


def _disagreeing(found: Array, expected: Array) -> int:
    if found.shape != expected.shape:
        return expected.size
    if expected.dtype.kind not in "fc":
        return int(np.count_nonzero(found != expected))
    size = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)) or 1.0
    return int(np.count_nonzero(~np.isclose(found, expected, rtol=0.0, atol=TOLERANCE * size, equal_nan=True)))


def _drawn_inputs(segment: SegmentOp, count: int) -> list[Inputs]:
    """Draw ``count`` sets of inputs of a segment, with indices in range.

    Successive sets draw codes from the whole range, and from a half and a quarter of the range around the zero point,
    because saturated results hide differences. Further sets have only extreme codes, which reach activation limits.
    """
    infos = [info_of(value) for value in segment.circle_block.args]
    limits: Sequence[int | None] = ()
    if any(info.info.is_integer and info.info.numpy.itemsize > 2 for info in infos):
        limits = index_limits(build_graph(read_model(segment_model(segment).model)))
    found: list[Inputs] = []
    for seed in range(count):
        inputs = random_inputs([(info.info.numpy, info.static_shape) for info in infos], seed, limits)
        for place, (array, info) in enumerate(zip(inputs, infos, strict=True)):
            if info.quant is not None and array.dtype.itemsize <= 2:
                zero, codes = info.quant.zero_point, np.iinfo(array.dtype)
                extremes = np.where(array > (codes.min + codes.max) // 2, codes.max, codes.min)
                nearer = zero + (array.astype(np.int32) - zero) // (1 << seed % 4)
                inputs[place] = (extremes if seed % 4 == 3 else nearer).astype(array.dtype)
        found.append(inputs)
    return found


def _samples_of(segment: SegmentOp) -> tuple[Sequence[Inputs], Sequence[_Answer]]:
    root, drawn = segment.get_toplevel_object(), _drawn_inputs(segment, SAMPLES)
    assert isinstance(root, ModuleOp), "segments are in modules"
    return drawn, _interpreted(root, segment.circle, drawn)


def _interpreted(module: ModuleOp, region: Region, drawn: Sequence[Inputs]) -> Sequence[_Answer]:
    recorder, answers = _Recorder(), []
    interpreter = make_interpreter(module, listeners=[recorder])
    for inputs in drawn:
        recorder.values = {}
        outputs = interpreter.run_ssacfg_region(region, tuple(value.copy() for value in inputs))
        answers.append(_Answer([value.copy() for value in outputs], recorder.values))
    return answers


def _binary(backend: CompilerBackend, module: ModuleOp, segment: SegmentOp) -> bytes:
    """Return the binary of ``segment``. The lowered form may be in another module."""
    lowered = lowered_symbols(module)[segment.sym_name.data]
    if not isinstance(lowered, ProgramOp):
        own = next(op for op in module.walk() if isinstance(op, SegmentOp) and op.sym_name == segment.sym_name)
        return backend.emit(module, own)
    choice = target_of(module)
    assert choice is not None, "a module with programs has a target"
    return emit_program(lowered, targets.load(choice.target), cast(targets.MemoryMode, choice.memory))


def _run_binary(binary: bytes, suffix: str, drawn: Sequence[Inputs]) -> Sequence[_Answer]:
    program, answers = open_device(suffix.removeprefix(".")).load(binary), []
    for inputs in drawn[:BINARY_SAMPLES]:
        outputs = program.run([value.copy() for value in inputs]).outputs
        answers.append(_Answer([value.copy() for value in outputs]))
    return answers


def check_runs(segment: SegmentOp, suffix: str, binary: bytes) -> None:
    """Raise CompileError if the binary of ``segment`` fails on drawn inputs. Outputs are not compared."""
    try:
        _run_binary(binary, suffix, _drawn_inputs(segment, 1))
    except SimulationError as error:
        raise CompileError(
            f"the program of segment @{segment.sym_name.data} fails: {error.message}",
            hint="correct the IR; odc-opt --verify-each=run finds the pass that makes it wrong",
        ) from error
