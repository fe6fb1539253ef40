"""Translation validation: a module is run after a pipeline and compared with what it was before it.

The module itself runs by host kernels, and a program against the circle body of its segment: of tensor operations by
an interpreter, else emitted and on its device. Only the end of a pipeline is run. If that differs, copies from the ends
of its stages tell which of them was the first to differ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

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
from odc_mlir.transforms.quant.common.ir import SCHEME
from odc_mlir.universe import make_context

LOG = logging.getLogger(__name__)
TOLERANCE = 1e-4  # of the largest output, for reals; codes and integers are equal
SAMPLES = 2  # of each segment
_GIVEN = "given"
_QUANTIZING = "quant"  # the stage that changes values where a scheme is chosen


@dataclass(frozen=True, slots=True)
class _Sample:
    """Drawn inputs of a segment, and outputs of its circle body."""

    inputs: Sequence[Array]
    outputs: Sequence[Array]


@dataclass
class Validator(pipelines.Validation):
    """Validation of the pipelines that run in one context."""

    is_active = True

    segments: dict[str, SegmentOp] = field(default_factory=dict)  # whose programs may be alone in a module
    _kept: list[tuple[str, ModuleOp]] = field(default_factory=list)
    _samples: dict[SegmentOp, list[_Sample]] = field(default_factory=dict)
    _live: ModuleOp | None = None
    _deferred: bool = False

    def start(self, module: ModuleOp) -> None:
        if not self._deferred or module is not self._live:
            self._kept, self._live = [(_GIVEN, clone_module(module))], module

    def keep(self, stage: str, module: ModuleOp) -> None:
        if stage == _QUANTIZING and SCHEME in module.attributes:
            self._kept.clear()  # what is quantised here has other values than before
        self._kept.append((stage, clone_module(module)))

    def check(self) -> None:
        if not self._deferred and self._problem(len(self._kept) - 1):
            self._blame()

    def _blame(self) -> None:
        """Raise TranslationError with the first stage of the pipeline whose result is wrong, if there is one."""
        for number, (stage, _) in enumerate(self._kept):
            if problem := self._problem(number):
                given = stage == _GIVEN
                made = "the given IR" if given else f"the IR after {stage}"
                raise TranslationError(f"{made} means something else: {problem}", stage=None if given else stage)

    @contextmanager
    def of_binaries(self, segments: Sequence[SegmentOp]) -> Iterator[None]:
        self.segments = {segment.sym_name.data: segment for segment in segments}
        self._deferred, self._live = True, None
        try:
            yield
        finally:
            self._deferred = False

    def check_binary(self, segment: SegmentOp, suffix: str, binary: bytes) -> None:
        problem = self._compared(segment, lambda inputs: _run_binary(binary, suffix, inputs))
        if problem:
            self._blame()
            raise TranslationError(f"the binary of a segment means something else: {problem}", stage="package")

    def _problem(self, number: int) -> str | None:
        """Return a description of the difference between the beginning and the result of stage ``number``."""
        (_, before), (_, module) = self._kept[0], self._kept[number]
        segments = dict(self.segments)
        if any(isinstance(op, FuncOp) for op in module.body.block.ops):
            found = optimizer.difference(before, module, samples=1)
            if found.relative > TOLERANCE or found.codes:
                codes = [counted(found.codes, "code")] if found.codes else []
                reals = [f"{found.relative:.1e} of the largest value"] if found.relative else []
                return f"outputs differ by up to {' or '.join(codes + reals)}"
            segments |= {op.sym_name.data: op for op in module.walk() if isinstance(op, SegmentOp)}
        stage = pipelines.stage_of(module)
        for name, lowered in lowered_symbols(module).items():
            if name not in segments:  # a program alone, as in lit files: there is nothing to compare it with
                continue
            if stage is None and not _is_of_tensors(lowered):
                LOG.warning("segment @%s is not checked: the IR is between stages, its program cannot run yet", name)
                continue
            run = self._runner(module, stage, segments[name], lowered)
            if problem := self._compared(segments[name], run):
                return problem
        return None

    def _runner(
        self, module: ModuleOp, stage: pipelines.Stage | None, segment: SegmentOp, lowered: Operation
    ) -> Callable[[Sequence[Array]], Sequence[Array]]:
        """Return a function that runs the lowered form of ``segment`` in ``module``, at the end of ``stage``.

        Only tensor operations can run between stages.
        """
        if isinstance(lowered, ProgramOp) and isinstance(lowered.block.last_op, YieldOp):
            name, body = segment.sym_name.data, lowered.body
            return lambda inputs: make_interpreter(module).run_ssacfg_region(body, tuple(inputs), name)
        assert stage is not None, "instructions between stages are not run"
        backend = backend_of(module)

        def run(inputs: Sequence[Array]) -> Sequence[Array]:
            end = clone_module(module)
            if stage.name not in (backend.last, "package"):
                pipelines.run(make_context(), end, backend.last, after=stage.name, options=backend.passes())
            return _run_binary(_binary(backend, end, segment), backend.suffix, inputs)

        return run

    def _compared(self, segment: SegmentOp, run: Callable[[Sequence[Array]], Sequence[Array]]) -> str | None:
        """Return a description of the difference between results of ``run`` and of the circle body, or None."""
        if segment not in self._samples:
            self._samples[segment] = _samples_of(segment)
        last, where = segment.circle_block.last_op, f"segment @{segment.sym_name.data}"
        assert isinstance(last, YieldOp), "a verified segment ends in its yield"
        for sample in self._samples[segment]:
            try:
                with typed_errors("verify"):
                    outputs = run([value.copy() for value in sample.inputs])
            except (InputError, PackageError, SimulationError) as error:
                return f"{where} fails: {error.message}"
            for value, found, expected in zip(last.operands, outputs, sample.outputs, strict=True):
                if wrong := _disagreeing(found, expected):
                    name = info_of(value).name
                    return f"{where} gives other values of {name!r} in {wrong} of {expected.size} elements"
        return None


def _is_of_tensors(lowered: Operation) -> bool:
    """Return whether ``lowered`` is a program of tensor operations of ours, which the interpreter runs."""
    return (
        isinstance(lowered, ProgramOp)
        and isinstance(lowered.block.last_op, YieldOp)
        and all(isinstance(op, NpuTensorOp | YieldOp) for op in lowered.block.ops)
    )


def _disagreeing(found: Array, expected: Array) -> int:
    """Return the number of elements that differ."""
    if found.shape != expected.shape:
        return expected.size
    if expected.dtype.kind not in "fc":
        return int(np.count_nonzero(found != expected))
    size = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)) or 1.0
    return int(np.count_nonzero(~np.isclose(found, expected, rtol=0.0, atol=TOLERANCE * size, equal_nan=True)))


def _drawn_inputs(segment: SegmentOp, count: int) -> list[list[Array]]:
    """Draw ``count`` sets of inputs of a segment, with indices in range."""
    infos = [info_of(value) for value in segment.circle_block.args]
    limits: Sequence[int | None] = ()
    if any(info.info.is_integer and info.info.numpy.itemsize > 2 for info in infos):
        limits = index_limits(build_graph(read_model(segment_model(segment).model)))
    return [random_inputs([(i.info.numpy, i.static_shape) for i in infos], seed, limits) for seed in range(count)]


def _samples_of(segment: SegmentOp) -> list[_Sample]:
    """Draw inputs of a segment, and run its circle body on them."""
    root, name = segment.get_toplevel_object(), segment.sym_name.data
    assert isinstance(root, ModuleOp), "segments are in modules"
    interpreter = make_interpreter(root)
    found = []
    for inputs in _drawn_inputs(segment, SAMPLES):
        copies = tuple(value.copy() for value in inputs)
        outputs = interpreter.run_ssacfg_region(segment.circle, copies, name)
        found.append(_Sample(inputs, [value.copy() for value in outputs]))
    return found


def _binary(backend: CompilerBackend, module: ModuleOp, segment: SegmentOp) -> bytes:
    """Return the binary of ``segment``, which may be in another module than its lowered form."""
    lowered = lowered_symbols(module)[segment.sym_name.data]
    if not isinstance(lowered, ProgramOp):
        own = next(op for op in module.walk() if isinstance(op, SegmentOp) and op.sym_name == segment.sym_name)
        return backend.emit(module, own)
    choice = target_of(module)
    assert choice is not None, "a module with programs has a target"
    return emit_program(lowered, targets.load(choice.target), cast(targets.MemoryMode, choice.memory))


def _run_binary(binary: bytes, suffix: str, inputs: Sequence[Array]) -> Sequence[Array]:
    return open_device(suffix.removeprefix(".")).load(binary).run(inputs).outputs


def check_runs(segment: SegmentOp, suffix: str, binary: bytes) -> None:
    """Raise CompileError if the binary of ``segment`` fails on drawn inputs, whatever its outputs are."""
    (inputs,) = _drawn_inputs(segment, 1)
    try:
        _run_binary(binary, suffix, inputs)
    except SimulationError as error:
        raise CompileError(
            f"the program of segment @{segment.sym_name.data} fails: {error.message}",
            hint="correct the IR; odc-opt --verify-each=run finds the pass that makes it wrong",
        ) from error
