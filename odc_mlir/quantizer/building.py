"""What a recipe makes of a float model: candidates in one scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import ConstOp, info_of
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.given import check_kept, copied, types_of
from odc_mlir.quantizer.options import WIDE_HEADROOM, Options
from odc_mlir.quantizer.policy.ranges import Range
from odc_mlir.quantizer.policy.schemes import SCHEMES, Scheme
from odc_mlir.quantizer.refinement import Known, refine
from odc_mlir.quantizer.rooms import roomy
from odc_mlir.quantizer.stages import (
    STAGE,
    Candidate,
    FloatModel,
    Recipe,
    Statistics,
    computing,
    dead_code_pass,
    graph_of,
    make_pass,
    run_passes,
)
from odc_mlir.runtime.execution.binding import to_reals
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.locations import op_name, value_name
from odc_mlir.transforms.common.rewriting import real
from odc_mlir.transforms.quant.common import ir as quant_ir
from odc_mlir.transforms.quant.common.given import read_given, write_given
from odc_mlir.transforms.quant.quant_assign_params import Assignment
from odc_mlir.transforms.quant.quant_attach_ranges import attach_ranges, ranges_of
from odc_mlir.transforms.quant.quant_narrow_ranges import narrow_ranges
from odc_mlir.universe import make_context

_PROPAGATE = "quant-propagate-params"
# Ways to choose ranges that weigh the codes to be had, and so are told how many there are.
_KNOW_CODES = frozenset({"mse", "entropy"})
# Samples that codes are refined by: moments of inputs change little with more.
MOST_REFINING = 64
# Bytes of constants of the last candidates without refined codes that are kept: others often differ in these alone.
_MOST_KEPT = 64 << 20


class CandidateBuilder:
    """Builds candidates in one scheme; ``samples`` are those that codes may be refined by."""

    def __init__(self, options: Options, samples: Sequence[Sequence[Array]]) -> None:
        self.options = options
        self.scheme: Scheme = options.definition
        self._samples = samples[:MOST_REFINING]
        self._context = make_context()
        self.given: dict[str, Attribute] = {}  # what the last model was asked to have, by tensor name
        self._found: dict[tuple[Any, ...], tuple[Statistics, Mapping[str, Range]]] = {}  # by identity of the first
        # Candidates without refined codes and their bytes, by recipe and by the identity of what they are made of.
        self._unrefined: dict[tuple[Any, ...], tuple[FloatModel, Statistics, Candidate, int]] = {}

    def add_samples(self, samples: Sequence[Sequence[Array]]) -> bool:
        """Refine codes by these samples as well from now on; False where there are enough without them."""
        room = MOST_REFINING - len(self._samples)
        if room <= 0 or not self._samples:
            return False
        self._samples = [*self._samples, *samples[:room]]
        return True

    def build(self, model: FloatModel, recipe: Recipe, statistics: Statistics, known: Known | None = None) -> Candidate:
        """``model`` quantised as ``recipe`` says, with ranges from ``statistics``; raises OdcError.

        Most candidates are measured and let go: what is kept is to be verified (:meth:`verify`). ``known``: what the
        samples have shown of the model, by default what the model knows of so many.
        """
        plain = self.unrefined(model, recipe, statistics)
        if not (recipe.rounding or recipe.correction):
            return plain
        candidate = Candidate(recipe, plain.module.clone())
        if not self._samples:
            return candidate
        found = refine(
            model.graph,
            plain.graph,
            self._samples,
            rounding=recipe.rounding,
            correction=recipe.correction,
            known=model.known.setdefault(len(self._samples), Known()) if known is None else known,
        )
        found.apply(candidate.module)
        run_passes(self._context, candidate.module, [dead_code_pass()], verify=False)
        return candidate

    def verify(self, candidate: Candidate) -> Candidate:
        """``candidate``; raises OdcError where it is no valid model, or has parameters that cannot be."""
        checks = [] if self.scheme.weights_only else [make_pass("quant-verify-params")]
        run_passes(self._context, candidate.module, [*checks, dead_code_pass()])
        return candidate

    def unrefined(self, model: FloatModel, recipe: Recipe, statistics: Statistics) -> Candidate:
        """The candidate with every constant rounded to the nearest code: one of the last few, or made anew."""
        recipe = replace(recipe, rounding=False, correction=False)
        key = (id(model), id(statistics), recipe)
        if key in self._unrefined:
            self._unrefined[key] = self._unrefined.pop(key)  # the last one again
        else:
            made = self._rounded(model, recipe, statistics)
            size = sum(op.blob.size for op in made.module.walk() if isinstance(op, ConstOp))
            self._unrefined[key] = model, statistics, made, size
            while len(self._unrefined) > 1 and sum(kept[-1] for kept in self._unrefined.values()) > _MOST_KEPT:
                del self._unrefined[next(iter(self._unrefined))]
        return self._unrefined[key][2]

    def _rounded(self, model: FloatModel, recipe: Recipe, statistics: Statistics) -> Candidate:
        """The candidate with every constant rounded to the nearest code."""
        module = model.module.clone()
        if self.scheme.weights_only:
            precisions = dict(recipe.precisions)
            for op in quant_ir.operators(_main(module)):
                if (choice := precisions.get(op_name(op))) is not None:
                    quant_ir.write_word(op, quant_ir.PRECISION, choice.precision)
            scales = "fitted" if recipe.fitted else None
            made = make_pass("quant-weights-only", dtype=self.scheme.weights, scales=scales)
            run_passes(self._context, module, [made])
            quant_ir.write_word(module, quant_ir.SCHEME, self.scheme.name)
            return Candidate(recipe, module)
        self.assign(module, recipe, statistics)
        run_passes(
            self._context,
            module,
            [
                make_pass(_PROPAGATE),
                make_pass(
                    "convert-circle-to-quant",
                    io=self.options.io,
                    inputs=_entries(self.options.input_types),
                    outputs=_entries(self.options.output_types),
                ),
                make_pass("quant-insert-requantize"),
                dead_code_pass(),
            ],
            verify=False,
        )
        candidate = Candidate(recipe, module)
        if self.given:
            check_kept(candidate.graph, self.given)
        return candidate

    def assign(self, module: ModuleOp, recipe: Recipe, statistics: Statistics) -> None:
        """Attach ranges and say which type each value of ``module`` is to get, if its neighbours agree."""
        options, precisions = self.options, dict(recipe.precisions)
        self.given = types_of(module, options.parameters, self.scheme, precisions)
        given = read_given(module) | self.given
        if options.copied_parameters:
            twin = module.clone()
            write_given(twin, given)
            self._assign(twin, recipe, statistics)
            run_passes(self._context, twin, [make_pass(_PROPAGATE)])
            self.given |= copied(twin, options.copied_parameters)
        write_given(module, given | self.given)
        self._assign(module, recipe, statistics)

    def _assign(self, module: ModuleOp, recipe: Recipe, statistics: Statistics) -> None:
        function = quant_ir.main_function(module)
        assert function is not None
        with typed_errors(STAGE):
            ranges = self._ranges(recipe, statistics)
            if recipe.output_room:
                assert self.scheme.activations is not None
                ranges = roomy(function, ranges, statistics, DTYPES[self.scheme.activations].bits)
            spared = attach_ranges(function, ranges)
            if self.scheme.activations is not None:
                narrow_ranges(function, DTYPES[self.scheme.activations].bits)
            wide = {name: ends for name, ends in self._wide_ranges(recipe, statistics).items() if name not in spared}
            Assignment(function, self.scheme, dict(recipe.precisions), wide).run()
        quant_ir.write_word(module, quant_ir.SCHEME, self.scheme.name)
        if self.scheme.reader:
            quant_ir.write_word(module, quant_ir.READER, self.scheme.reader)
        quant_ir.write_word(module, quant_ir.GRANULARITY, self.scheme.granularity)
        form = "symmetric" if self.scheme.symmetric_weights else "asymmetric"
        quant_ir.write_word(module, quant_ir.WEIGHTS, form)

    def _ranges(self, recipe: Recipe, statistics: Statistics) -> dict[str, tuple[float, float]]:
        options = dict(recipe.range_options)
        if recipe.ranges in _KNOW_CODES:
            assert self.scheme.activations is not None
            options.setdefault("bits", DTYPES[self.scheme.activations].bits)
            options.setdefault("symmetric", self.scheme.symmetric_activations)
        found = self._known_ranges(statistics, recipe.ranges, options)
        wider = 1.0 + recipe.headroom
        return {name: (wider * low, wider * high) for name, (low, high) in found.items()}

    def _known_ranges(self, statistics: Statistics, mode: str, options: Mapping[str, Any]) -> Mapping[str, Range]:
        """The ranges of ``statistics``, chosen once: candidates differ in other things more often."""
        key = (id(statistics), mode, *sorted(options.items()))
        if key not in self._found:
            self._found[key] = statistics, ranges_of(statistics, mode, options)
        return self._found[key][1]

    def _wide_ranges(self, recipe: Recipe, statistics: Statistics) -> dict[str, tuple[float, float]]:
        """Ranges of values that get 16 bits beside others of 8: with codes to spare nothing is clipped."""
        if not any(choice.precision in SCHEMES for _, choice in recipe.precisions):
            return {}
        wider = 1.0 + WIDE_HEADROOM
        found = self._known_ranges(statistics, "minmax", {})
        return {name: (wider * low, wider * high) for name, (low, high) in found.items()}

    def fake_quantized(self, model: FloatModel, candidate: Candidate, statistics: Statistics) -> Graph:
        """The float model with every quantised value rounded to its codes: shows what integer arithmetic adds."""
        module = model.module.clone()
        self.assign(module, candidate.recipe, statistics)
        run_passes(self._context, module, [make_pass(_PROPAGATE), make_pass("quant-fake-quantize")])
        _take_constants(module, candidate.module)
        return graph_of(module)


def _main(module: ModuleOp) -> FuncOp:
    function = quant_ir.main_function(module)
    assert function is not None
    return function


def _entries(types: Mapping[str, str]) -> tuple[str, ...]:
    """Types of inputs or outputs as passes take them."""
    return tuple(f"{name}={type}" if name else type for name, type in types.items())


def _take_constants(fake: ModuleOp, quantised: ModuleOp) -> None:
    """Give the operators of ``fake`` the constants that those of ``quantised`` really have: codes may be refined."""
    ours, theirs = computing(fake), computing(quantised)
    assert [op.SPEC.name for op in ours] == [op.SPEC.name for op in theirs], "both are made of one float model"
    for op, other in zip(ours, theirs, strict=True):
        for index, operand in enumerate(other.operands):
            constant = quant_ir.constant_of(operand)
            if constant is None or quant_ir.constant_of(op.operands[index]) is None:
                continue
            info = info_of(operand)
            if info.quant is not None and info.info.is_integer and quant_ir.is_real(op.operands[index]):
                made = real(to_reals(info, info.array()), value_name(op.operands[index]))
                Rewriter.insert_op(made, InsertPoint.before(op))
                op.operands[index] = made.result
