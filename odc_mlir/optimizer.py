"""Rewriting of a model into an equivalent, cheaper one: ``odc_mlir.optimize`` and ``odc-optimize``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from odc_mlir import loading
from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp
from odc_mlir.dialects.odc import state_places
from odc_mlir.errors import InputError, ModelError, OptionError
from odc_mlir.formats.package import ModelSource
from odc_mlir.formats.samples import random_inputs, read_samples
from odc_mlir.frontend.export_circle import ModelFile, export_model
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph, index_limits
from odc_mlir.runtime.package import Package
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.collection import seldom_collected
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.circle_optimize import CircleOptimizePass
from odc_mlir.transforms.circle.rewrites.layout import NHWC
from odc_mlir.transforms.circle.rewrites.table import O1
from odc_mlir.transforms.common import rewriting
from odc_mlir.transforms.common.placement import main_function
from odc_mlir.transforms.common.tensor_names import keep_output_names, tell_apart
from odc_mlir.universe import make_context

TOLERANCE = 1e-5  # tolerance of real outputs, relative to the largest; codes and integers must be equal
ROUNDINGS = 4  # largest tolerance as a multiple of the model's own rounding error, up to MOST_TOLERANCE
MOST_TOLERANCE = 1e-3
DYNAMIC = 2  # extent of dynamic dimensions in comparisons; with 1, their order would not matter
_SAMPLES = 3
_STAGE = "optimize"


@dataclass(frozen=True)
class Difference:
    """Largest differences between outputs before and after optimisation, over ``samples`` inputs.

    ``relative``: largest difference of a real output divided by the largest value of the output. ``codes``: largest
        difference of integers. ``tolerance``: limit on ``relative``.
    """

    samples: int
    relative: float
    codes: int
    tolerance: float = TOLERANCE

    @property
    def within_tolerance(self) -> bool:
        """True if integers are equal, and real outputs within the tolerance."""
        return self.relative <= self.tolerance and self.codes == 0


@dataclass(frozen=True)
class Optimized(ModelFile):
    """Result of optimisation: the new ``model``, and ``rewrites`` with the number of applications by name.

    ``before`` and ``after``: numbers of operators by kind. ``difference``: the result of ``verify``, or None.
    ``channels_last_inputs`` and ``channels_last_outputs``: names of inputs and outputs that ``io_layout`` transposed.
    """

    model: ModuleOp
    rewrites: Mapping[str, int]
    before: Mapping[str, int]
    after: Mapping[str, int]
    difference: Difference | None = None
    channels_last_inputs: tuple[str, ...] = ()
    channels_last_outputs: tuple[str, ...] = ()


@seldom_collected()
def optimize(
    model: ModelSource | Package | ModuleOp,
    *,
    level: str | None = O1,
    rewrites: Iterable[str] = (),
    without: Iterable[str] = (),
    io_layout: str = "keep",
    max_rewrites: int | None = None,
    verify: bool = False,
    load: str | os.PathLike[str] | Sequence[Sequence[Array]] | None = None,
) -> Optimized:
    """Rewrite a copy of ``model`` into an equivalent, cheaper one, until no rewrite applies.

    ``level``: ``O1``, all rewrites that preserve results, or None for only the rewrites in ``rewrites``. ``without``
    disables some. ``io_layout``: ``keep``, or ``nhwc`` to store image inputs and outputs channels last if this saves
    work. ``max_rewrites``: stop after this number, to bisect a failure. ``verify`` compares the two models on the
    inputs of ``load``, a file or lists of arrays (default: random inputs, see ``Optimized.difference``). Raises
    OptionError for unknown names, and other OdcErrors.
    """
    if load is not None and not verify:
        raise OptionError("inputs are given, but nothing is compared on them", hint="verify as well")
    module = loading.copied(model)
    original = clone_module(module) if verify else None
    before = count_operators(module)
    rewrite = CircleOptimizePass(level or "none", tuple(rewrites), tuple(without), io_layout, max_rewrites)
    with typed_errors(_STAGE):
        names = [value_name(value) for value in _interface(module)[1]]
        counts, layouts = rewrite.optimize(make_context(), module)
        keep_output_names(main_function(module), names)
        tell_apart(module)
        module.verify()
    found = None if original is None else difference(original, module, layouts.inputs, layouts.outputs, load=load)
    transposed_names = [
        tuple(value_name(values[number]) for number in numbers)
        for values, numbers in zip(_interface(module), (layouts.inputs, layouts.outputs), strict=True)
    ]
    return Optimized(module, dict(counts), before, count_operators(module), found, *transposed_names)


def _interface(module: ModuleOp) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
    block = main_function(module).body.block
    assert block.last_op is not None
    return block.args, block.last_op.operands


def count_operators(module: ModuleOp) -> Counter[str]:
    """Count operators of all subgraphs by kind, except constants."""
    return Counter(op.SPEC.name for op in module.walk() if isinstance(op, CircleOp))


def difference(
    before: ModuleOp,
    after: ModuleOp,
    inputs: Collection[int] = (),
    outputs: Collection[int] = (),
    *,
    samples: int = _SAMPLES,
    load: str | os.PathLike[str] | Sequence[Sequence[Array]] | None = None,
) -> Difference:
    """Compare the two models on the inputs of ``load``, a file or lists of arrays, or on ``samples`` random inputs.

    The inputs and outputs at the given positions are channels last in ``after``. Dimensions dynamic in the two models
    have the extent :data:`DYNAMIC`. If real outputs differ by more than :data:`TOLERANCE`, the tolerance is a multiple
    of the rounding error of ``before``. Raises OptionError for inputs of unknown rank and for inputs that a model
    rejects, and any error of a run.
    """
    if isinstance(load, str | os.PathLike):
        load = read_samples(load, list(map(rewriting.shape_of, _interface(before)[0]))).records
    found = _measured(before, after, inputs, outputs, samples, load)
    if not TOLERANCE < found.relative <= MOST_TOLERANCE:
        return found
    own = _measured(before, _rounded_otherwise(before), (), (), samples, load).relative
    return replace(found, tolerance=min(MOST_TOLERANCE, max(TOLERANCE, ROUNDINGS * own)))


def _rounded_otherwise(module: ModuleOp) -> ModuleOp:
    """Return a copy with each float constant moved at random to the next larger or smaller number."""
    copy, random = clone_module(module), np.random.default_rng(0)
    for op in copy.walk():
        array = rewriting.real_constant(op.result) if isinstance(op, ConstOp) else None
        if isinstance(op, ConstOp) and array is not None:
            aims = np.where(random.random(array.shape) < 0.5, array.dtype.type(-np.inf), array.dtype.type(np.inf))
            moved = np.where(np.isfinite(array) & (array != 0), np.nextafter(array, aims), array)
            op.value = BlobAttr.of(np.ascontiguousarray(moved).tobytes())
    return copy


def _measured(
    before: ModuleOp,
    after: ModuleOp,
    inputs: Collection[int],
    outputs: Collection[int],
    samples: int,
    load: Sequence[Sequence[Array]] | None,
) -> Difference:
    # Variables of one model may be states of the other.
    lifted = len(state_places(before)) != len(state_places(after))
    runs = [HostExecutor(build_graph(export_model(module), states=lifted)) for module in (before, after)]
    if load is None:
        static, limits = _drawn(runs[0].graph, runs[1].graph, inputs), index_limits(runs[0].graph)
        load = [random_inputs(static, seed, limits) for seed in range(samples)]
    relative, codes = 0.0, 0
    for given in load:
        try:
            old = transposed(runs[0].run(given), outputs)
            new = runs[1].run(transposed(given, inputs))
        except (InputError, ModelError) as error:
            shapes = ", ".join(str(array.shape) for array in given)
            raise OptionError(
                f"the models cannot be compared on inputs of shapes {shapes}: {error.message}",
                op=error.op,
                tensor=error.tensor,
                hint="give inputs by --load, give inputs fixed shapes, or leave out --verify (in Python verify=True)",
            ) from error
        if lifted:
            states = [run.get_states() for run in runs]
            old, new = (
                [*values, *(held[name] for name in states[1])] for values, held in zip((old, new), states, strict=True)
            )
        for a, b in zip(old, new, strict=True):
            found = _apart(a, b)
            relative, codes = (
                (max(relative, found), codes) if a.dtype.kind in "fc" else (relative, max(codes, int(found)))
            )
    return Difference(len(load), relative, codes)


def _drawn(before: Graph, after: Graph, inputs: Collection[int]) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
    """Return for inputs of ``before`` an element type and a shape that ``after`` also accepts."""
    found = []
    for number, (old, new) in enumerate(zip(before.input_infos(), after.input_infos(), strict=True)):
        if old.shape is None or new.shape is None:
            raise OptionError(
                "an input has unknown rank, so the rewritten model cannot be compared on random data", tensor=old.name
            )
        back = [new.shape[NHWC.index(axis)] for axis in range(len(NHWC))] if number in inputs else new.shape
        pairs = zip(old.shape, back, strict=True)
        found.append((old.info.numpy, tuple(next((e for e in pair if e is not None), DYNAMIC) for pair in pairs)))
    return found


def transposed(arrays: Sequence[Array], numbers: Collection[int]) -> list[Array]:
    """Return ``arrays`` with the arrays at positions ``numbers`` transposed to channels last."""
    return [
        np.ascontiguousarray(array.transpose(NHWC)) if number in numbers else array
        for number, array in enumerate(arrays)
    ]


def _apart(old: Array, new: Array) -> float:
    if old.size == 0 or np.array_equal(old, new, equal_nan=old.dtype.kind in "fc"):
        return 0.0
    if old.dtype.kind not in "fc":
        return float(np.abs(old.astype(np.int64) - new.astype(np.int64)).max())
    if not np.array_equal(np.isfinite(old), np.isfinite(new)):
        return float("inf")
    finite = np.isfinite(old)
    size = float(np.abs(old[finite]).max(initial=0.0)) or 1.0
    return float(np.abs(old[finite].astype(np.float64) - new[finite]).max(initial=0.0)) / size
