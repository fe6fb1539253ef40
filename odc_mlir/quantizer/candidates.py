"""Candidate models: quantised models built from a float model by a recipe, in one scheme.

Ranges of outputs may get room for rare values (:func:`with_output_room`), because users see a clipped output as an
error. Inside a network, other channels compensate for a clipped value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from odc_mlir import pipelines
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.errors import OptionError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Array, QuantParams, TensorInfo, Trait
from odc_mlir.quantizer import models
from odc_mlir.quantizer.execution import float_names
from odc_mlir.quantizer.policy.options import WIDE_HEADROOM, Options, PrecisionChoice
from odc_mlir.quantizer.policy.products import LAYERS, SEQUENCES
from odc_mlir.quantizer.policy.ranges import TAIL, Range, Statistics, with_room
from odc_mlir.quantizer.policy.schemes import FLOAT, SCHEMES, Scheme, ladder_of
from odc_mlir.quantizer.refinement import RefinementCache, refine
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.locations import op_name, value_name
from odc_mlir.transforms.common.tensor_names import outputs_of, values_of
from odc_mlir.transforms.quant.common import ir as quant_ir
from odc_mlir.transforms.quant.common.given import Types, before_moves, moved_to, read_given, write_given
from odc_mlir.transforms.quant.quant_absorb_pairs import QuantAbsorbPairsPass
from odc_mlir.transforms.quant.quant_assign_params import Assignment
from odc_mlir.transforms.quant.quant_attach_ranges import attach_ranges, ranges_of
from odc_mlir.universe import make_context

Parameters = Mapping[str, tuple[float, int]]


def types_of(
    module: ModuleOp, parameters: Parameters, default: Scheme, precisions: Mapping[str, PrecisionChoice]
) -> dict[str, Attribute]:
    """Return quantised types with ``parameters``. Raises OptionError for unknown names and wrong zero points."""
    values = _values(module)
    found: dict[str, Attribute] = {}
    for name, (scale, zero) in parameters.items():
        value = _named(values, name)
        choice = precisions.get(name)
        used = default if choice is None or choice.precision == FLOAT else SCHEMES[choice.precision]
        dtype = used.weights if quant_ir.constant_of(value) is not None else used.activations
        assert dtype is not None
        low, high = DTYPES[dtype].range
        if not low <= zero <= high or (dtype == "int16" and zero):
            allowed = "0" if dtype == "int16" else f"from {low} to {high}"
            raise OptionError(f"the zero point of {name!r} is {zero}, {dtype} allows {allowed}")
        stored = float(np.float32(scale))
        if not 0 < stored < np.inf:
            raise OptionError(f"the scale of {name!r} is {scale:g}, which is {stored:g} in float32")
        found[name] = quant_ir.quantised(dtype, QuantParams((stored,), (zero,)))
    return found


def copied(assigned: ModuleOp, copies: Mapping[str, str]) -> dict[str, Attribute]:
    """Return the types that tensors take from other tensors. Raises OptionError if these have no parameters."""
    values = _values(assigned)
    found: dict[str, Attribute] = {}
    for name, source in copies.items():
        _named(values, name)
        type = quant_ir.assigned_type(_named(values, source))
        if quant_ir.params_of(type) is None:
            raise OptionError(
                f"{name!r} cannot take its parameters from {source!r}, which has none",
                hint="name a result or input that is quantised",
            )
        found[name] = type
    return found


def missing(graph: Graph, types: Types) -> dict[str, str]:
    """Return the actual types that differ from ``types``, keyed by tensor name."""
    found: dict[str, str] = {}
    standing = float_names(graph, dict.fromkeys(types, 0))
    for name, type in types.items():
        wanted = quant_ir.params_of(type)
        assert wanted is not None
        infos = [graph.tensors[index] for index, other in standing.items() if other == name]
        coded = [info for info in infos if info.is_coded]
        if any(_is_same(info, moved_to(wanted[0], wanted[1], info.dtype)) for info in coded):
            continue
        if not coded:
            found[name] = "it stays float" if infos else "the optimised model has no such tensor"
        else:
            seen = coded[0].quant
            assert seen is not None
            found[name] = f"it is {coded[0].dtype} with scale {seen.scales[0]:g} and zero point {seen.zero_points[0]}"
    return found


def _is_same(info: TensorInfo, wanted: QuantParams | None) -> bool:
    close = 1e-6  # relative tolerance of scales, which files store as float32
    if info.quant is None or wanted is None or info.quant.zero_points != wanted.zero_points:
        return False
    return bool(np.allclose(info.quant.scales, wanted.scales, rtol=close, atol=0.0))


def taken_out(module: ModuleOp) -> ModuleOp:
    """Return a copy with the parameters of quantisation-aware training as types, or ``module`` if it has none."""
    made = module.clone()
    QuantAbsorbPairsPass().apply(make_context(), made)
    return made if read_given(made) else module


def codes_brought(graph: Graph) -> list[str]:
    """Return the finding for a model with quantised weights, because the loss of these weights cannot be measured."""
    most_weight_bits = 16  # wider constants are biases
    codes = [info for info in graph.tensors if info.is_const and info.is_coded]
    types = sorted({info.dtype for info in codes if info.info.bits <= most_weight_bits})
    if not types:
        return []
    return [
        f"weights of the model are quantised already ({', '.join(types)}): accuracy is measured against these, not "
        "against the original weights; quantise the float model if there is one"
    ]


def lost(graph: Graph, types: Types) -> list[str]:
    """Return the finding about parameters in the model that the quantised ``graph`` does not keep."""
    named = 3  # limit on the tensors that the finding names
    missed = missing(graph, types)
    if not missed:
        return []
    some = ", ".join(f"{name!r} ({seen})" for name, seen in list(missed.items())[:named])
    return [f"{len(missed)} of {len(types)} tensors have other parameters than those in the model: {some}"]


def _values(module: ModuleOp) -> dict[str, SSAValue]:
    return {value_name(value): value for value in values_of(models.main_of(module))}


def _named(values: Mapping[str, Any], name: str) -> SSAValue:
    if name not in values:
        raise OptionError(
            f"the optimised model has no tensor {name!r}", hint="operators may be fused into their neighbours"
        )
    value: SSAValue = values[name]
    return value


_OTHER_LAYERS = frozenset({"TRANSPOSE_CONV", "BATCH_MATMUL"})


def with_output_room(
    function: FuncOp, ranges: Mapping[str, Range], statistics: Statistics, bits: int
) -> dict[str, tuple[float, float]]:
    """Return ``ranges``, widened for rare values in outputs and in values after the last layer."""
    clear = math.log(9.0)  # logit of a score of 0.9
    found = dict(ranges)
    # Operands at which the result is half a step from the limit (1 or, for TANH, ±1). Larger operands change nothing.
    saturated = {"LOGISTIC": math.log(2.0 ** (bits + 1) - 1.0), "TANH": math.atanh(1.0 - 2.0**-bits)}
    most = {value_name(value): end for kind, end in saturated.items() for value in _squashed(function, kind)}
    for value in _behind_layers(function, statistics):
        if (name := value_name(value)) in found and name in statistics:
            assert isinstance(value.type, TensorType)
            elements = math.prod(max(dim, 1) for dim in value.type.get_shape())
            low, high = with_room(statistics[name], elements, bits)
            end = most.get(name, math.inf)
            found[name] = min(max(low, -end), found[name][0]), max(min(high, end), found[name][1])
    for name in map(value_name, _squashed(function, "LOGISTIC")):
        if name in found:
            low, high = found[name]
            found[name] = (-clear if low >= 0.0 else low, clear if high <= 0.0 else high)
    return found


def has_outputs_with_tails(module: ModuleOp, statistics: Statistics) -> bool:
    """Return whether values after the last layer may exceed the range of the samples far enough to need more room."""
    owners = (value.owner for value in _behind_layers(models.main_of(module), statistics))
    return not all(isinstance(op, CircleOp) and (_moves(op) or _is_sure(op, statistics)) for op in owners)


def _behind_layers(function: FuncOp, statistics: Statistics) -> Iterator[SSAValue]:
    """Yield the outputs, and all values between the last layers and the outputs."""

    def goes_through(op: CircleOp) -> bool:
        return op.SPEC.name not in LAYERS | SEQUENCES | _OTHER_LAYERS and not _is_sure(op, statistics)

    return _traced_back(outputs_of(function), goes_through)


def _is_sure(op: CircleOp, statistics: Statistics) -> bool:
    sure = 0.9  # beyond this SOFTMAX score, larger logits change little
    seen = statistics.get(value_name(op.results[0])) if op.SPEC.name == "SOFTMAX" else None
    return seen is not None and seen.maxima.size > 0 and float(np.quantile(seen.maxima, 1.0 - TAIL)) >= sure


def _squashed(function: FuncOp, kind: str) -> Iterator[SSAValue]:
    """Yield operands of the ``kind`` operators that compute outputs, and operands of moves before and after."""
    made = (value.owner for value in _traced_back(outputs_of(function), _moves))
    read = [op.operands[0] for op in made if isinstance(op, CircleOp) and op.SPEC.name == kind]
    return _traced_back(read, _moves)


def _moves(op: CircleOp) -> bool:
    return Trait.SAME_QUANT in op.SPEC.traits


def _traced_back(values: Sequence[SSAValue], goes_through: Callable[[CircleOp], bool]) -> Iterator[SSAValue]:
    todo, seen = list(values), set[SSAValue]()
    while todo:
        value = todo.pop()
        if value not in seen:
            seen.add(value)
            yield value
            if isinstance(value.owner, CircleOp) and goes_through(value.owner):
                todo.extend(value.owner.operands)


# Limit on the samples for refining codes: 8 to 128 samples give the same SQNR within 0.3 dB on two digit networks.
MOST_REFINING = 64
# Unrefined candidates that are kept: many differ only in refined codes, and a row of help asks for the last five.
_MOST_KEPT = 5


class CandidateBuilder:
    """Builder of candidates in one scheme. ``samples``: the samples by which codes are refined."""

    def __init__(self, options: Options, samples: Sequence[Sequence[Array]]) -> None:
        self.options = options
        self.scheme: Scheme = options.definition
        self._samples = samples[:MOST_REFINING]
        self._context = make_context()
        self.given: dict[str, Attribute] = {}  # types requested for the last model, by tensor name
        self._found: dict[tuple[Any, ...], tuple[Statistics, Mapping[str, Range]]] = {}  # keyed by id and options
        # Last candidates with unrefined codes, keyed by recipe and by ids of model and statistics.
        self._unrefined: dict[tuple[Any, ...], tuple[Statistics, models.Candidate]] = {}

    def build(
        self,
        model: models.FloatModel,
        recipe: models.Recipe,
        statistics: Statistics,
        known: RefinementCache | None = None,
    ) -> models.Candidate:
        """Quantise ``model`` by ``recipe``. The result is not verified. ``known``: cache of refined codes."""
        plain = self.unrefined(model, recipe, statistics)
        if not (recipe.rounding or recipe.correction):
            return plain
        candidate = models.Candidate(model, recipe, plain.module.clone())
        if not self._samples:
            return candidate
        found = refine(
            model.graph,
            plain.graph,
            self._samples,
            rounding=recipe.rounding,
            correction=recipe.correction,
            known=model.known.setdefault(len(self._samples), RefinementCache()) if known is None else known,
        )
        found.apply(candidate.module)
        models.run_passes(self._context, candidate.module, ("dce",), verify=False)
        return candidate

    def verify(self, candidate: models.Candidate) -> models.Candidate:
        """Return ``candidate``. Raises OdcError if it is not a valid model or has impossible parameters."""
        checks = ("dce",) if self.scheme.weights_only else pipelines.QUANTIZE_CHECK
        models.run_passes(self._context, candidate.module, checks)
        return candidate

    def unrefined(self, model: models.FloatModel, recipe: models.Recipe, statistics: Statistics) -> models.Candidate:
        """Return the candidate with every constant rounded to the nearest code, from the cache or newly built."""
        recipe = replace(recipe, rounding=False, correction=False)
        key = (id(model), id(statistics), recipe)
        found = self._unrefined.pop(key, None) or (statistics, self._rounded(model, recipe, statistics))
        self._unrefined[key] = found  # the most recently used is last
        if len(self._unrefined) > _MOST_KEPT:
            del self._unrefined[next(iter(self._unrefined))]
        return found[1]

    def _rounded(self, model: models.FloatModel, recipe: models.Recipe, statistics: Statistics) -> models.Candidate:
        module = model.module.clone()
        if self.scheme.weights_only:
            precisions = dict(recipe.precisions)
            for op in quant_ir.all_ops(models.main_of(module)):
                if (choice := precisions.get(op_name(op))) is not None:
                    quant_ir.write_word(op, quant_ir.PRECISION, choice.precision)
            name, fitted = "quant-weights-only", {"scales": "fitted"} if recipe.fitted else {}
            models.run_passes(self._context, module, (name,), {name: {"dtype": self.scheme.weights, **fitted}})
            quant_ir.write_word(module, quant_ir.SCHEME, self.scheme.name)
            return models.Candidate(model, recipe, module)
        self.assign(module, recipe, statistics)
        options: dict[str, Any] = {"io": self.options.io}
        for end, given in (("inputs", self.options.input_types), ("outputs", self.options.output_types)):
            options[end] = tuple(f"{name}={type}" if name else type for name, type in given.items())
        options = {"convert-circle-to-quant": options}
        models.run_passes(self._context, module, pipelines.QUANTIZE_BUILD, options, verify=False)
        candidate = models.Candidate(model, recipe, module)
        if self.given and (missed := missing(candidate.graph, self.given)):
            name, seen = next(iter(missed.items()))
            raise OptionError(
                f"{name!r} cannot have the parameters given for it: {seen}",
                hint="omit them, or give them to the tensors that share its quantisation",
            )
        return candidate

    def assign(self, module: ModuleOp, recipe: models.Recipe, statistics: Statistics) -> None:
        """Attach ranges and types to the values of ``module``. Propagation may replace types by types of neighbours."""
        options, precisions = self.options, dict(recipe.precisions)
        for output, input in (options.states or {}).items():  # both ends of a state have the same type
            precisions[input] = precisions.get(output, PrecisionChoice(self.scheme.name))
        recipe = replace(recipe, precisions=tuple(precisions.items()))
        self.given = types_of(module, options.parameters, self.scheme, precisions)
        given = before_moves(models.main_of(module), read_given(module)) | self.given
        if options.copied_parameters or options.states:
            fold_model = module.clone()
            write_given(fold_model, given)
            self._assign(fold_model, recipe, statistics)
            models.run_passes(self._context, fold_model, pipelines.QUANTIZE_BUILD[:1])
            copies, values = copied(fold_model, options.copied_parameters), _values(fold_model)
            self.given |= copies
            precisions |= {name: choice for name in copies if (choice := self._as_copied(values[name], copies[name]))}
            recipe = replace(recipe, precisions=tuple(precisions.items()))
            for output, input in (options.states or {}).items():
                type = quant_ir.assigned_type(_named(values, output))
                self.given |= {} if quant_ir.params_of(type) is None else {input: type}
        write_given(module, given | self.given)
        self._assign(module, recipe, statistics)

    def _as_copied(self, value: SSAValue, type: Attribute) -> PrecisionChoice | None:
        """Return the precision that gives ``value`` the element type of ``type``, if needed and possible."""
        own, wanted = (quant_ir.params_of(each) for each in (quant_ir.assigned_type(value), type))
        if own is None or wanted is None or own[0] == wanted[0]:
            return None
        steps = (SCHEMES[step] for step in (self.scheme.name, *ladder_of(self.scheme.name)) if step != FLOAT)
        return next((PrecisionChoice(step.name) for step in steps if step.activations == wanted[0]), None)

    def _assign(self, module: ModuleOp, recipe: models.Recipe, statistics: Statistics) -> None:
        function = models.main_of(module)
        with typed_errors(models.STAGE):
            known = self._known_ranges(statistics, recipe.ranges, dict(recipe.range_options))
            wider = 1.0 + recipe.headroom
            ranges = {name: (wider * low, wider * high) for name, (low, high) in known.items()}
            if recipe.output_room:
                assert self.scheme.activations is not None
                ranges = with_output_room(function, ranges, statistics, DTYPES[self.scheme.activations].bits)
            spared = attach_ranges(function, ranges)
            wide = {name: ends for name, ends in self._wide_ranges(recipe, statistics).items() if name not in spared}
            Assignment(function, self.scheme, dict(recipe.precisions), wide).run()
        quant_ir.write_word(module, quant_ir.SCHEME, self.scheme.name)
        if self.scheme.reader:
            quant_ir.write_word(module, quant_ir.READER, self.scheme.reader)
        quant_ir.write_word(module, quant_ir.GRANULARITY, self.scheme.granularity)
        form = "symmetric" if self.scheme.symmetric_weights else "asymmetric"
        quant_ir.write_word(module, quant_ir.WEIGHTS, form)

    def _known_ranges(self, statistics: Statistics, mode: str, options: Mapping[str, Any]) -> Mapping[str, Range]:
        key = (id(statistics), mode, *sorted(options.items()))
        if key not in self._found:
            self._found[key] = statistics, ranges_of(statistics, mode, options)
        return self._found[key][1]

    def _wide_ranges(self, recipe: models.Recipe, statistics: Statistics) -> dict[str, tuple[float, float]]:
        """Return ranges without clipping for 16-bit values in 8-bit models: 16 bits have codes to spare."""
        if not any(choice.precision in SCHEMES for _, choice in recipe.precisions):
            return {}
        wider = 1.0 + WIDE_HEADROOM
        found = self._known_ranges(statistics, "minmax", {})
        return {name: (wider * low, wider * high) for name, (low, high) in found.items()}
