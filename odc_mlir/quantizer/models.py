"""Float models ready for quantising: optimised, normalised and equalised models, with limited masks.

A :class:`FloatModel` holds the module and statistics of tensors. A :class:`Recipe` holds all choices of a quantised
model. The same recipe gives the same model. To compare choices, a candidate is built for each choice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir import pipelines
from odc_mlir.calibration.recorded import Records, joined
from odc_mlir.calibration.statistics import Channels
from odc_mlir.dialects.circle import CircleOp, ConstOp, info_of
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.execution import Stepper, run_with
from odc_mlir.quantizer.layers import Coverage
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.outputs import CASTS, Columns
from odc_mlir.quantizer.policy.declarations import INPUTS
from odc_mlir.quantizer.policy.options import PrecisionChoice, is_pattern_file, share_moved
from odc_mlir.quantizer.policy.ranges import LEAST_RATIO, Range, Statistics, extremes, sizes_differ
from odc_mlir.quantizer.policy.readers import NPU
from odc_mlir.quantizer.policy.schemes import FLOAT, Scheme
from odc_mlir.quantizer.refinement import RefinementCache
from odc_mlir.runtime.execution.binding import to_reals
from odc_mlir.runtime.execution.graph import Graph, GraphNode, build_graph
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.locations import op_name, value_name
from odc_mlir.transforms.circle.circle_clip_masks import clip_masks
from odc_mlir.transforms.circle.circle_equalize_channels import CircleEqualizeChannelsPass, patterns_of
from odc_mlir.transforms.circle.circle_fold_constants import CircleFoldConstantsPass
from odc_mlir.transforms.circle.rewrites.equalizing import Pair
from odc_mlir.transforms.common.masks import TermSource, argument_of, is_seen_beyond, may_be_limited, sources
from odc_mlir.transforms.common.retyping import retype, set_function_type
from odc_mlir.transforms.common.rewriting import WeightedLayer, real
from odc_mlir.transforms.common.tensor_names import keep_output_names, outputs_of, tell_apart
from odc_mlir.transforms.quant.common import ir as quant_ir
from odc_mlir.transforms.quant.common.given import rounds_again
from odc_mlir.transforms.quant.quant_attach_ranges import attach_ranges, ranges_of
from odc_mlir.transforms.quant.quant_normalize_inputs import LEAST_RATIO as LEAST_INPUT_RATIO
from odc_mlir.transforms.quant.quant_normalize_inputs import measured_values, normalize_inputs
from odc_mlir.transforms.quant.quant_normalize_outputs import NORMALISED, moved_to_outputs, normalize_outputs
from odc_mlir.transforms.quant.quant_split_columns import split_columns
from odc_mlir.universe import make_context

LOG = logging.getLogger(__name__)

Moments = dict[str, NDArray[np.float64]]


def moments_of(module: ModuleOp, graph: Graph, samples: Sequence[Sequence[Array]]) -> Moments:
    """Return moments, [2, channels], for ``quant-normalize-inputs``, only of inputs if the graph cannot run."""
    infos = enumerate(graph.input_infos())
    of_inputs = {info.name: [sample[place] for sample in samples] for place, info in infos if info.dtype == "float32"}
    found = {name: _moments(values) for name, values in of_inputs.items() if _have_channels(values)}
    names = set(measured_values(main_of(module)))
    if names and len({tuple(map(np.shape, sample)) for sample in samples}) == 1:
        try:
            found |= _inner_moments(graph, samples, names)
        except UnsupportedError as error:
            LOG.info("moments of prepared inputs are unknown: %s", error)
    return found


def _inner_moments(graph: Graph, samples: Sequence[Sequence[Array]], names: set[str]) -> Moments:
    stepper, found = Stepper(graph, samples), {}
    for item in graph.nodes:
        if asked := [index for index in item.outputs if graph.tensors[index].name in names]:
            stepper.run(item)
        for info, index in ((graph.tensors[index], index) for index in asked):
            values = list(stepper.reals(index))
            if info.dtype == "float32" and _have_channels(values):
                found[info.name] = _moments(values)
    return found


def _have_channels(values: Sequence[Array]) -> bool:
    return all(value.ndim and value.size for value in values) and len({value.shape[-1] for value in values}) == 1


def _moments(values: Sequence[Array]) -> NDArray[np.float64]:
    rows = np.concatenate([value.reshape(-1, value.shape[-1]) for value in values]).astype(np.float64)
    with np.errstate(all="ignore"):  # moments may be infinite or NaN
        return np.stack([rows.mean(axis=0), rows.std(axis=0)])


STAGE = "quant"
OPTIMISED = "circle-opt"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Choices, except the scheme, for a quantised model."""

    normalize: bool = False
    normalize_outputs: bool = False
    equalize: str = "none"
    ranges: str = "minmax"
    range_options: tuple[tuple[str, Any], ...] = ()
    headroom: float = 0.0  # part by which ranges exceed observed ones
    output_room: bool = False  # whether outputs get room for rare values
    fitted: bool = False  # whether weight-only schemes fit scales
    rounding: bool = False
    correction: bool = False
    precisions: tuple[tuple[str, PrecisionChoice], ...] = ()  # layers with another precision than the scheme's

    def normalizing(self, kind: str, model: FloatModel) -> Recipe:
        """Return the recipe with columns of inputs or outputs normalised as in ``model``."""
        if kind == INPUTS:
            return replace(self, normalize=True)
        found = precisions_in(model, dict(self.precisions))
        return replace(self, normalize_outputs=True, precisions=tuple(sorted(found.items())))

    def with_precisions(self, precisions: Mapping[str, str], fixed: Mapping[str, PrecisionChoice]) -> Recipe:
        """Return the recipe with these precisions. Precisions ``fixed`` by the user take precedence."""
        chosen = {name: PrecisionChoice(precision) for name, precision in precisions.items()}
        return replace(self, precisions=tuple(sorted({**chosen, **fixed}.items())))


@dataclass
class FloatModel:
    """Float model ready to be quantised. The ``module`` has no ranges."""

    module: ModuleOp
    records: Records = field(default_factory=Records)  # of the calibration samples
    held: list[Records] = field(default_factory=list)  # of each part of the held-out samples
    known: dict[int, RefinementCache] = field(default_factory=dict)  # by number of samples
    equalization: list[dict[str, Any]] = field(default_factory=list)  # pairs of layers as in ONE's fm-equalize
    mends_columns: bool = False  # whether small columns of inputs, which had few codes, were scaled or separated

    @cached_property
    def graph(self) -> Graph:
        return graph_of(self.module)

    @cached_property
    def fitted(self) -> Statistics:
        """Statistics of the calibration samples, which decide choices."""
        return self.records.statistics()

    @cached_property
    def complete(self) -> Statistics:
        """Statistics of all samples."""
        return joined((self.records, *self.held)).statistics()

    @cached_property
    def without_parts(self) -> list[Statistics]:
        """For each part of the held-out samples, statistics of all samples except this part."""
        parts = range(len(self.held))
        return [joined((self.records, *(self.held[i] for i in parts if i != part))).statistics() for part in parts]


@dataclass
class Candidate:
    """Quantised model, built from ``model`` by ``recipe``, and measures of the quantised model."""

    model: FloatModel
    recipe: Recipe
    module: ModuleOp
    measured: Measurement | None = None  # on the held-out samples
    measured_itself: Measurement | None = None  # on all samples
    unseen: Measurement | None = None  # of models built without the measured samples, as is ``by_halves``
    by_halves: Measurement | None = None
    intervals: dict[str, Range] | None = None
    coverage: Coverage | None = None

    @cached_property
    def graph(self) -> Graph:
        return graph_of(self.module)


def graph_of(module: ModuleOp) -> Graph:
    """Return the graph of a module's first subgraph. Raises OdcError if the module is not a model that can run."""
    return build_graph(export_model(module))


def main_of(module: ModuleOp) -> FuncOp:
    """Return the main function of a module. The module must have a main function."""
    function = quant_ir.quantized_function(module)
    assert function is not None
    return function


def run_passes(
    context: Context,
    module: ModuleOp,
    names: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    *,
    verify: bool = True,
) -> None:
    """Run passes of the quantising stage in place. ``options``: by pass name. ``verify``: verify the results."""
    passes = ((STAGE, pipelines.find_pass(name)(**options.get(name, {}))) for name in names)
    pipelines.run_passes(context, module, passes, verify=verify)


def prepare(module: ModuleOp, scheme: Scheme | None = None) -> FloatModel:
    """Return an optimised copy of an imported module with folded constants. Raises ModelError if it is quantised.

    Quantised weights become float weights if the type differs from the scheme's type. For weight-only schemes, factors
    of inputs that differ widely are not folded into weights. Names of outputs stay.
    """
    context, ready = make_context(), module.clone()
    function = quant_ir.quantized_function(ready)
    if function is None:
        raise ModelError("the model has no main function to quantise")
    for op in quant_ir.all_ops(main_of(module)):
        for result in op.results:
            if quant_ir.params_of(getattr(result.type, "element_type", None)) is not None and not rounds_again(op):
                raise ModelError(
                    "the model is quantised already",
                    op=op.SPEC.name,
                    tensor=value_name(result),
                    hint="quantise the float model, or use this one as it is",
                )
    names = [value_name(value) for value in outputs_of(function)]
    _decode_weights(function, None if scheme is None else scheme.weights)
    pipelines.run(context, ready, OPTIMISED, options=[CircleFoldConstantsPass(decode=True)])
    weights_only = scheme is not None and scheme.weights_only
    options: dict[str, dict[str, Any]] = {
        "circle-fuse-patterns": {"circle": scheme is not None and scheme.reader == NPU}
    }
    options |= {"circle-fuse-batch-norm": {"most_ratio": LEAST_INPUT_RATIO}} if weights_only else {}
    run_passes(context, ready, pipelines.QUANTIZE_PREPARE, options)
    keep_output_names(function, names)
    tell_apart(ready)
    return FloatModel(ready)


def _decode_weights(function: FuncOp, kept: str | None) -> None:
    for op in quant_ir.all_ops(function):
        for index, operand in enumerate(op.operands):
            constant = quant_ir.constant_of(operand)
            if constant is None or op.SPEC.name == "DEQUANTIZE":
                continue
            info = info_of(operand)
            if not info.is_coded or info.dtype == kept:
                continue
            made = real(to_reals(info, info.array()), value_name(operand))
            Rewriter.insert_op(made, InsertPoint.before(op))
            op.operands[index] = made.result


def recorded_ranges(module: ModuleOp) -> dict[str, tuple[float, float]]:
    """Return the ranges that other recorders stored in the model, by tensor name."""
    function = main_of(module)
    values = [*function.args, *(result for op in quant_ir.all_ops(function) for result in op.results)]
    found = ((value_name(value), quant_ir.range_of(value.type)) for value in values)
    return {name: range for name, range in found if range is not None}


def equalized(model: FloatModel, kind: str, statistics: Statistics) -> FloatModel | None:
    """Return a copy with equalised channels and no records, or None if nothing changes. ``kind``: see ``equalize``."""
    module = model.module.clone()
    function = main_of(module)
    attach_ranges(function, ranges_of(statistics, "minmax"))
    patterns = kind if is_pattern_file(kind) else ""
    arrays = _channel_magnitudes(statistics)
    if kind == "weights":  # only factors of normalised columns tell how much each column contributes
        ops = quant_ir.all_ops(function)
        kept = {op_name(op) for op in ops if quant_ir.read_word(op, quant_ir.PRECISION) == FLOAT}
        arrays = {name: found for name, found in arrays.items() if name in kept}
    equalizing = CircleEqualizeChannelsPass(patterns=patterns, alpha=share_moved(kind), relu6="recorded")
    pairs: list[Pair] = []
    if not _changed(module, lambda: pairs.extend(equalizing.equalize(module, arrays))):
        return None
    for value in (*function.args, *(result for op in quant_ir.all_ops(function) for result in op.results)):
        retype(value, quant_ir.without_range(value.type))
    set_function_type(function)
    return FloatModel(module, equalization=patterns_of(pairs))


def normalized(
    model: FloatModel, samples: Sequence[Sequence[Array]], *, columns: bool = False, by_weights: bool = False
) -> FloatModel | None:
    """Return a copy with centred and scaled input channels, without records, or None if this is unnecessary.

    ``columns``: give large columns of single-channel images separate channels. ``by_weights``: scale channels by the
    first layer's weights, if these differ much, without ``samples``.
    """
    moments, sizes = {} if by_weights else moments_of(model.module, model.graph, samples), {}
    for place, info in enumerate(model.graph.input_infos()) if columns else ():
        if len({np.shape(sample[place])[1:] for sample in samples if info.shape}) == 1:
            items = [np.abs(sample[place]).max(axis=0) for sample in samples if np.size(sample[place])]
            sizes[info.name] = np.max(items, axis=0).astype(np.float64)
    module = model.module.clone()
    may_change = by_weights or bool(moments)
    changed = may_change and _changed(module, lambda: normalize_inputs(module, moments, by_weights=by_weights))
    split = bool(sizes) and _changed(module, lambda: split_columns(module, sizes))
    of_inputs = [moments[info.name] for info in model.graph.input_infos() if changed and info.name in moments]
    lives = [sizes[sizes > 0.0] for _, sizes in of_inputs]
    mends = split or any(sizes.size and sizes.max() >= LEAST_RATIO * sizes.min() for sizes in lives)
    return FloatModel(module, mends_columns=mends) if changed or split else None


def precisions_in(model: FloatModel, precisions: Mapping[str, PrecisionChoice]) -> dict[str, PrecisionChoice]:
    """Return ``precisions`` keyed by names in ``model``, where layers before a scaling of columns have new names."""
    known = set(layer_names(model.module))
    return {inner if (inner := f"{name}{NORMALISED}") in known else name: of for name, of in precisions.items()}


def outputs_normalized(
    model: FloatModel,
    axes: Mapping[str, int],
    moved: Set[str],
    statistics: Statistics,
    samples: Sequence[Sequence[Array]],
) -> FloatModel | None:
    """Return a copy that scales output columns to units of columns after the last layer, or None if nothing changes.

    ``axes``: column axes, keyed by output name. ``moved``: outputs with columns that operators only move.
    """
    channels = {name: statistics[name].channels for name in axes if name in statistics}
    differ = {name for name, found in channels.items() if found is not None and sizes_differ(*_ends(found))}
    asked = {name: axis for name, axis in axes.items() if axis != -1 or name in differ}
    layers = _moved_layers(model.module, moved, statistics)
    found = _ranges_of_columns(model.graph, asked | dict.fromkeys(layers, -1), samples)
    of_outputs, of_layers = ({name: found[name] for name in names} for names in (asked, layers))
    module = model.module.clone()
    changed = bool(found) and _changed(module, lambda: normalize_outputs(module, of_outputs, of_layers))
    return FloatModel(module) if changed else None


def _ends(channels: Channels) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return channels.minima.astype(np.float64), channels.maxima.astype(np.float64)


def _moved_layers(module: ModuleOp, moved: Set[str], statistics: Statistics) -> list[str]:
    """Return layers with columns that differ in size and reach outputs only through moving operators."""
    found = []
    for op in computing(module):
        layer = WeightedLayer.of(op)
        channels = None if layer is None or layer.name not in statistics else statistics[layer.name].channels
        if layer is not None and channels is not None:
            moving, outputs = moved_to_outputs(layer.result)
            columns = Columns(*_ends(channels), values=int(channels.counts.min(initial=0)))
            if moving and outputs <= moved and columns.differ and columns.are_single:
                found.append(layer.name)
    return found


def _ranges_of_columns(graph: Graph, axes: Mapping[str, int], samples: Sequence[Sequence[Array]]) -> dict[str, Array]:
    """Return widened ranges of tensors, keyed by name: a range per index of the axis, in a shape that broadcasts."""
    if not axes:
        return {}
    places = {index: info.name for index, info in enumerate(graph.tensors) if info.name in axes}
    run, found = run_with(graph, places), dict[str, Columns]()
    behind: dict[str, int] = {}
    for sample in samples:
        for index, array in run(sample)[1].items():
            name = places[index]
            if name in found:
                found[name].add([array])
            else:
                found[name], behind[name] = Columns.of([array], axes[name]), (-1 - axes[name]) % max(1, array.ndim)
    return {name: columns.wider_ranges.reshape(2, -1, *[1] * behind[name]) for name, columns in found.items()}


def _changed(module: ModuleOp, change: Callable[[], object]) -> bool:
    """Apply ``change``. Return whether it changed constants or assigned precisions of ``module``."""
    before = _contents(module)
    with typed_errors(STAGE):
        change()
    run_passes(make_context(), module, ("dce",))
    return _contents(module) != before


def _contents(module: ModuleOp) -> list[str | None]:
    ops = list(module.walk())
    digests = [op.blob.digest for op in ops if isinstance(op, ConstOp)]
    return [*digests, *(quant_ir.read_word(op, quant_ir.PRECISION) for op in ops if isinstance(op, CircleOp))]


def _channel_magnitudes(statistics: Statistics) -> dict[str, Any]:
    result = {}
    for name, item in statistics.items():
        if item.channels is not None and item.count:
            low, high = item.channels.minima, item.channels.maxima
            # A channel with no values has inf and -inf. The limit of the channel is 0.
            result[name] = np.where(low <= high, np.maximum(np.abs(low), np.abs(high)), 0.0).astype(np.float64)
    return result


def computing(module: ModuleOp) -> list[CircleOp]:
    """Return the operators of the main function, without type conversions, in program order."""
    return [op for op in quant_ir.all_ops(main_of(module)) if op.SPEC.name not in CASTS]


def layer_names(module: ModuleOp) -> list[str]:
    """Return the result names of the operators of the main function, without type conversions, in program order."""
    return [op_name(op) for op in computing(module)]


def float_reasons(module: ModuleOp) -> dict[str, str]:
    """Return, keyed by result name, the reasons why operators of a quantised module stayed float."""
    found = ((op_name(op), quant_ir.read_word(op, quant_ir.REASON)) for op in quant_ir.all_ops(main_of(module)))
    return {name: reason for name, reason in found if reason}


def limited_masks(model: FloatModel, samples: Sequence[Sequence[Array]]) -> FloatModel:
    """Return a copy with mask values no larger than necessary. ``model`` itself if it has no masks.

    No softmax score of the first samples changes, except scores of fully masked rows.
    """
    terms = _masks_by_softmax(model)
    if not terms:
        return model
    most_samples = 8  # a mask hides the same positions in nearly every run
    samples = samples[:most_samples]
    names = {value_name(source.value) for found in terms.values() for source in found}
    seen_values = _values(model.graph, samples, names | terms.keys())
    ranges = {name: extremes(seen_values.get(name, ())) for name in names}
    changed: set[str] = set()
    while True:
        kept = [source for softmax, found in terms.items() if softmax not in changed for source in found]
        seen = {
            name: ranges[name] for source in kept if is_seen_beyond(source, ranges[name := value_name(source.value)])
        }
        if not seen:
            return model
        module = model.module.clone()
        clip_masks(module, seen)
        tell_apart(module)
        run_passes(make_context(), module, ("dce",))
        found = _values(graph_of(module), samples, terms.keys())
        pairs = {name: zip(seen_values[name], found[name], strict=True) for name in terms if name not in changed}
        wrong = {
            name for name, every in pairs.items() if not all(_are_equal_unless_masked(old, new) for old, new in every)
        }
        if not wrong:
            return FloatModel(module)
        changed |= wrong


def _masks_by_softmax(model: FloatModel) -> dict[str, list[TermSource]]:
    function = main_of(model.module)
    result = {}
    for op in quant_ir.all_ops(function):
        argument = argument_of(op)
        found = [] if argument is None else [source for source in sources(*argument) if may_be_limited(source)]
        if found:
            result[value_name(op.results[0])] = found
    return result


def _values(graph: Graph, samples: Sequence[Sequence[Array]], names: Set[str]) -> dict[str, list[Array]]:
    infos = enumerate(graph.tensors)
    wanted = {index: info.name for index, info in infos if info.name in names and not info.is_const}
    run = run_with(graph, wanted)
    every = [run(sample)[1] for sample in samples]
    return {name: [found[index] for found in every] for index, name in wanted.items()}


def _are_equal_unless_masked(old: Array, new: Array) -> bool:
    all_hidden = (old == old[..., :1]).all(axis=-1) if old.ndim else np.False_
    return bool(((old == new).all(axis=-1) | all_hidden).all())


_MOVES = frozenset({"RESHAPE", "EXPAND_DIMS", "SQUEEZE", "BROADCAST_TO"})
_SQUARES = frozenset({"SQUARE", "SQUARED_DIFFERENCE", "MUL", "POW"})


class _Makers:
    def __init__(self, graph: Graph) -> None:
        self._by_tensor = graph.producers()

    def of(self, index: int) -> GraphNode | None:
        """Return the operator that computes a tensor's values, traced through moves, or None if there is none."""
        found = self._by_tensor.get(index)
        while found is not None and found.node.spec.name in _MOVES:
            found = self._by_tensor.get(found.inputs[0])
        return found

    def operand(self, item: GraphNode | None, *names: str) -> GraphNode | None:
        """Return the first producer of an operand of ``item`` that is an operator in ``names``."""
        makers = () if item is None else (self.of(index) for index in item.inputs)
        return next((maker for maker in makers if maker is not None and maker.node.spec.name in names), None)


def _norms(makers: _Makers, item: GraphNode) -> Iterator[GraphNode]:
    if item.node.spec.name not in ("RSQRT", "SQRT"):
        return
    total = makers.operand(item, "ADD")
    variance = makers.operand(total if total is not None else item, "MEAN")
    squares = makers.operand(variance, *_SQUARES)
    if variance is None or squares is None:
        return
    if squares.node.spec.name == "MUL" and squares.inputs[0] != squares.inputs[1]:
        return
    yield from (squares, variance, *([total] if total is not None else []), item)


def _softmaxes(makers: _Makers, item: GraphNode) -> Iterator[GraphNode]:
    if item.node.spec.name != "DIV":
        return
    top, total = (makers.of(index) for index in item.inputs)
    if top is None or total is None or top.node.spec.name != "EXP" or total.node.spec.name != "SUM":
        return
    difference = makers.operand(top, "SUB")
    if makers.of(total.inputs[0]) is not top or makers.operand(difference, "REDUCE_MAX") is None:
        return
    assert difference is not None
    yield from (difference, top)


# Pattern -> function that yields the operators of a match, given the last one.
PATTERNS: Mapping[str, Callable[[_Makers, GraphNode], Iterator[GraphNode]]] = {
    "layernorm": _norms,
    "softmax": _softmaxes,
}


def layers_of(graph: Graph, pattern: str) -> list[str]:
    """Return the result names of the operators in matches of a pattern."""
    makers = _Makers(graph)
    found = (graph.tensors[part.outputs[0]].name for item in graph.nodes for part in PATTERNS[pattern](makers, item))
    return list(dict.fromkeys(found))
