"""Refined codes of a quantised model: weights rounded by the inputs' moments, and corrected biases.

The two models run on the same samples, operator by operator. The moments of a layer's inputs in the float model
determine codes of weights (:mod:`odc_mlir.numerics.weight_rounding`). The difference between the means of a layer's
inputs in the two models corrects the bias. All earlier layers are already refined.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from odc_mlir.errors import InputError, UnsupportedError
from odc_mlir.numerics.bias_correction import believable, bias_deltas, corrected
from odc_mlir.numerics.weight_rounding import Floats, Grid, Moments, round_and_scale, round_weights, shrunk
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Array, QuantParams, TensorInfo
from odc_mlir.quantizer.execution import Stepper, float_names
from odc_mlir.quantizer.policy.products import LAYERS, Product, with_all_states
from odc_mlir.runtime.execution.binding import to_reals
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.execution.units import SpecializedGraph
from odc_mlir.transforms.quant import quant_correct_biases, quant_round_weights

LOG = logging.getLogger(__name__)

Samples = Sequence[Sequence[Array]]
# Key of weight codes in one float model: the layers that read these weights, and the grid of the codes.
_Key = tuple[tuple[str, ...], QuantParams, str]

_MOST_TOGETHER = 1 << 18  # most elements of values in one batch of runs: 1 MiB of float32 stays in a cache
_SYMMETRIC_NARROW = {"int4", "int8", "int16"}  # constants never use the smallest code of these types


@dataclass
class Refinement:
    """Codes and scales of weights, and corrections of biases, keyed by layer name or ``RESULT:OPERAND``."""

    codes: dict[str, Array] = field(default_factory=dict)
    scales: dict[str, Array] = field(default_factory=dict)  # changed scales only
    deltas: dict[str, Array] = field(default_factory=dict)

    def apply(self, module: ModuleOp) -> None:
        """Change the quantised ``module`` in place. Raises ModelError if the refinement was made for another module."""
        quant_round_weights.round_weights(module, self.codes, self.scales)
        quant_correct_biases.correct_biases(module, self.deltas)


@dataclass
class RefinementCache:
    """Cache for a float model and samples: codes, changed scales, and means of inputs, [runs, G, K]."""

    codes: dict[_Key, Array] = field(default_factory=dict)
    scales: dict[_Key, Array] = field(default_factory=dict)
    means: dict[str, Floats] = field(default_factory=dict)


def refine(
    reference: Graph,
    quantised: Graph,
    samples: Samples,
    *,
    rounding: bool = True,
    correction: bool = True,
    known: RefinementCache | None = None,
) -> Refinement:
    """Refine the codes of ``quantised`` towards ``reference``, the float model with the same tensor names.

    ``rounding``: choose codes of weights. ``correction``: choose biases that also compensate for the difference between
    the inputs of the two models. ``known``: cache for this reference and these samples. Models that cannot run operator
    by operator (:class:`odc_mlir.quantizer.execution.Stepper`) are not refined.
    """
    found, known = Refinement(), known or RefinementCache()
    if not samples or not (rounding or correction):
        return found
    layers = layer_pairs(reference, quantised)
    try:
        learn(reference, [Learner(layers, range(len(samples)), known, rounding)], samples)
        macs = sum(node.macs for node in SpecializedGraph(reference, list(map(np.shape, samples[0]))).nodes)
        most_macs, fewest = 1 << 28, 8  # for biases; few samples of large models do, because these average over pixels
        few = samples[: max(fewest, most_macs // max(1, macs))]
        real = Stepper(quantised, few)
    except UnsupportedError as error:
        LOG.info("codes are not refined: %s", error)
        return found
    for layer in layers:
        codes = known.codes.get(layer.key) if rounding else None
        if codes is not None:
            found.codes[layer.name] = codes
            if (scales := known.scales.get(layer.key)) is not None:
                found.scales[layer.name] = scales
                info = replace(layer.weights.info, quant=replace(layer.weights.params, scales=tuple(scales.tolist())))
                layer = replace(layer, weights=replace(layer.weights, info=info))
            layer.weights.replace(real, codes)
        if layer.name not in known.means or layer.bias is None or layer.bias.is_shared:
            continue
        means = seen = known.means[layer.name]
        if correction:
            try:
                real.go_to(layer.quantised)
                seen = _means(layer.product, list(real.reals(layer.quantised.inputs[0])))
                means = means[: len(few)]
            except InputError as error:  # a kernel refuses codes
                LOG.info("later layers are not corrected: %s", error)
        found.deltas[layer.name] = layer.correct(real, codes, means, seen)
    return found


@dataclass
class Learner:
    """Collector of codes and means for the ``layers`` of a quantised model, from separate ``runs`` of the samples."""

    layers: Sequence[_LayerPair]
    runs: Sequence[int]
    known: RefinementCache
    rounding: bool
    _seen: dict[_Key, Moments] = field(default_factory=dict, init=False)
    _waiting: dict[_Key, int] = field(default_factory=dict, init=False)  # later layers per key of weights

    def __post_init__(self) -> None:
        # Wide weights beside narrow ones have 256 times smaller errors, which do not count.
        narrowest = min((layer.weights.info.info.bits for layer in self.layers), default=0)
        refined = [layer for layer in self.layers if self.rounding and layer.weights.info.info.bits < narrowest + 8]
        for layer in refined:
            if layer.key not in self.known.codes and (codes := layer.known_codes(self.known)) is not None:
                self.known.codes[layer.key] = codes
        self._waiting = {layer.key: len(layer.sharing) for layer in refined if layer.key not in self.known.codes}

    def asks_for(self, layer: _LayerPair) -> bool:
        """Return whether codes or means of ``layer`` are still unknown."""
        return bool(self._waiting.get(layer.key)) or (layer.bias is not None and layer.name not in self.known.means)

    def learn(self, layer: _LayerPair, values: Sequence[Array], means: Floats | None) -> None:
        """Learn from ``values``, the inputs of ``layer`` in all runs, using only own runs. ``means``: one per run."""
        known, key, own = self.known, layer.key, [values[run] for run in self.runs]
        if layer.bias is not None and means is not None:
            known.means[layer.name] = means[list(self.runs)]
        if not self._waiting.get(key):
            return
        moments = self._seen.setdefault(key, Moments.empty(layer.product.groups, layer.product.inputs))
        layer.observe(own, known.means.get(layer.name), moments)
        self._waiting[key] -= 1
        if not self._waiting[key]:
            known.codes[key], scales = layer.rounded(self._seen.pop(key), len(own))
            if scales is not None:
                known.scales[key] = scales


def learn(reference: Graph, learners: Sequence[Learner], samples: Samples) -> None:
    """Fill the caches of ``learners`` in one run of the float model. Raises UnsupportedError as ``Stepper`` does."""
    ideal: Stepper | None = None
    pairs = [(layer, learner) for learner in learners for layer in learner.layers]
    for _, group in groupby(sorted(pairs, key=_place), key=_place):
        asking = [(layer, learner) for layer, learner in group if learner.asks_for(layer)]
        if not asking:
            continue
        ideal = ideal or Stepper(reference, samples)
        first, _ = asking[0]
        values = first.values(ideal)
        means = _means(first.product, values) if any(layer.bias is not None for layer, _ in asking) else None
        for layer, learner in asking:
            learner.learn(layer, values, means)


def _place(pair: tuple[_LayerPair, Learner]) -> tuple[int, int]:
    layer, _ = pair
    return layer.reference.index, layer.product.place


def _means(product: Product, values: Sequence[Array]) -> Floats:
    """Return the mean of each input that meets the weights, in each run: ``[runs, G, K]``."""
    parts = _together(values, np.size)
    return np.concatenate([product.means(np.concatenate(part), len(part)) for part in parts])


def _together(values: Sequence[Array], elements: Callable[[Array], int]) -> Iterator[list[Array]]:
    """Yield ``values`` of runs in groups of one shape to compute at once. In small layers, calls take most time."""
    for _, alike in groupby(values, key=np.shape):
        found = list(alike)
        count = max(1, _MOST_TOGETHER // max(1, elements(found[0])))
        yield from (found[start : start + count] for start in range(0, len(found), count))


@dataclass
class _LayerPair:
    product: Product
    reference: GraphNode
    quantised: GraphNode
    weights: _RefinedConstant
    bias: _RefinedConstant | None
    sharing: tuple[str, ...] = ()  # all layers with these weights; empty if other operators use them

    @property
    def name(self) -> str:
        """Name of the layer in the quantised model, with the operand for layers with several matrices."""
        name = self.quantised.node.results[0].name
        return f"{name}{self.product.address.removeprefix(self.product.name)}"

    @property
    def key(self) -> _Key:
        """Key of the layer's weights in a :class:`RefinementCache`."""
        return self.sharing, self.weights.params, self.weights.info.dtype

    def known_codes(self, known: RefinementCache) -> Array | None:
        """Return codes from ``known`` if most rows have them on the same grid. Other rows get the nearest codes."""
        sharing, params, dtype = self.key
        for (others, old, type), codes in known.codes.items():
            if (others, type) == (sharing, dtype) and (others, old, type) not in known.scales:
                ours, theirs = (np.stack(self.product.scales(each)) for each in (params, old))
                same = (ours == theirs).all(axis=0)
                if same.mean() > 0.5:
                    nearest = self.product.matrix(self.weights.info.array())
                    return self.product.weights(np.where(same[..., None], self.product.matrix(codes), nearest))
        return None

    @property
    def _grid(self) -> Grid:
        scales, zero_points = self.product.scales(self.weights.params)
        least, most = DTYPES[self.weights.info.dtype].range
        return Grid(scales, zero_points, least + (self.weights.info.dtype in _SYMMETRIC_NARROW), most)

    def _real_weights(self) -> Floats:
        return self.product.matrix(self.reference.node.operand(self.product.place).array()).astype(np.float64)

    def values(self, ideal: Stepper) -> list[Array]:
        """Return the inputs of the weights in each run of the float model."""
        item = self.reference
        if not self.product.of_state:
            ideal.go_to(item)
            return list(ideal.reals(item.inputs[0]))
        return [self.product.states(result) for result in ideal.results_as(item, with_all_states)]

    def observe(self, values: Sequence[Array], means: Floats | None, moments: Moments) -> None:
        """Add rows of inputs ``values`` to ``moments``, with the mean subtracted if a bias can correct its effect."""
        # Number of rows, over all runs, for second moments: minimum, and number per input.
        least_rows, rows_per_input = 4096, 16
        product = self.product
        free = means is not None and self.bias is not None and not self.bias.is_shared
        centre = np.float32(means.mean(axis=0)[:, np.newaxis]) if free and means is not None else np.float32(0.0)
        most, number = max(least_rows, rows_per_input * product.inputs), 0

        def every(value: Array) -> int:
            return max(1, product.row_count(value) * len(values) // most)

        def elements(value: Array) -> int:
            size = product.groups * product.inputs * max(product.row_count(value), product.inputs)
            return size if every(value) == 1 else _MOST_TOGETHER

        for part in _together(values, elements):
            step = every(part[0])
            rows = product.rows(np.concatenate(part), number % step, step)  # different rows in every run
            moments.add(rows - centre, len(part))
            number += len(part)

    def rounded(self, moments: Moments, runs: int) -> tuple[Array, Array | None]:
        """Return codes of weights that preserve results for inputs with these moments, and scales if changed."""
        product, kept, scales = self.product, shrunk(moments, runs), None
        may_scale = self.weights.read != self.weights.place  # only the constant's real values depend on its scales
        if may_scale and len(self.weights.params.scales) == product.groups * product.outputs:
            codes, scales = round_and_scale(self._real_weights(), self._grid, kept)
            scales = scales.reshape(-1)
        else:
            codes = round_weights(self._real_weights(), self._grid, kept)
        return product.weights(codes.astype(self.weights.info.array().dtype)), scales

    def correct(self, real: Stepper, codes: Array | None, ideal: Floats, seen: Floats) -> Array:
        """Correct the bias in the running model ``real``. Return the correction in units of the bias's codes.

        ``ideal``, ``seen``: means of the inputs in each run of the float model, and of the quantised model.
        """
        assert self.bias is not None
        coded = self.weights.info.array() if codes is None else codes
        rounded = self._grid.real(self.product.matrix(coded).astype(np.float64))
        shifts = _results(self._real_weights(), ideal) - _results(rounded, seen)
        count = len(shifts)
        variances = shifts.var(axis=0, ddof=1) if count > 1 else np.zeros(shifts.shape[1])
        old = self.bias.info
        shift = believable(shifts.mean(axis=0), variances, count)
        bias = self.reference.node.optional(2)
        wanted = np.zeros(len(shift)) if bias is None else bias.array().astype(np.float64).reshape(-1)
        shift = shift + wanted - to_reals(old, old.array()).reshape(-1)
        deltas: Array = shift.astype(np.float32)
        if old.quant is not None:
            deltas = bias_deltas(shift, np.zeros_like(shift), np.asarray(old.quant.scales))
        self.bias.replace(real, corrected(old.array(), deltas)[0])
        return deltas


def _results(weights: Floats, means: Floats) -> Floats:
    """Return the products ``[runs, G * O]`` of ``weights [G, O, K]`` and ``means [runs, G, K]``."""
    return np.asarray(np.einsum("gok,rgk->rgo", weights, means).reshape(len(means), -1))


def layer_pairs(reference: Graph, quantised: Graph) -> list[_LayerPair]:
    """Return the layers with float weights in ``reference`` and codes in ``quantised``, in order."""
    # Weights of layers with more inputs stay rounded to the nearest, because moments would take hundreds of MB.
    most_inputs = 2560
    originals = {graph_node.node.results[0].name: graph_node for graph_node in reference.nodes if graph_node.outputs}
    # Names of outputs stay. The codes before dequantisation have new names.
    names = float_names(quantised, {info.name: index for index, info in enumerate(reference.tensors)})
    makers = quantised.producers()
    found = []
    for item in quantised.nodes:
        original = originals.get(names.get(item.outputs[0], "")) if item.outputs else None
        if original is None or original.node.spec.name != item.node.spec.name:
            continue
        for product in Product.all_of(original.node):
            weights = _constant(quantised, item, product.place, makers)
            if weights is None or product.inputs > most_inputs:
                continue
            if original.node.operand(product.place).quant is not None:
                continue  # the float model already has codes
            bias = _constant(quantised, item, 2, makers, real=True) if product.node.spec.name in LAYERS else None
            found.append(_LayerPair(product, original, item, weights, bias))
    return _with_sharing(found)


def _with_sharing(layers: Sequence[_LayerPair]) -> list[_LayerPair]:
    """Add the names of all layers that share a layer's weights and input, () if other operators read the weights."""
    groups: dict[tuple[int, int, int], list[str]] = {}
    keys = [
        (layer.weights.place, layer.reference.inputs[layer.product.place], layer.product.groups) for layer in layers
    ]
    for key, layer in zip(keys, layers, strict=True):
        groups.setdefault(key, []).append(layer.name)
    return [
        replace(layer, sharing=tuple(groups[key]) if len(groups[key]) == layer.weights.readers else ())
        for key, layer in zip(keys, layers, strict=True)
    ]


@dataclass(frozen=True)
class _RefinedConstant:
    """Constant ``place`` of the quantised graph, read ``readers`` times. ``read``: tensor with the real values."""

    info: TensorInfo
    place: int
    read: int
    readers: int

    @property
    def is_shared(self) -> bool:
        """True if several operands share the constant. The constant then cannot change for a single operand."""
        return self.readers > 1

    @property
    def params(self) -> QuantParams:
        assert self.info.quant is not None
        return self.info.quant

    def replace(self, model: Stepper, array: Array) -> None:
        """Give later operators of ``model`` other codes."""
        model.replace(self.place, array)
        if self.read != self.place:
            model.replace(self.read, to_reals(self.info, array))


def _readers(graph: Graph, tensor: int) -> int:
    count = graph.outputs.count(tensor)
    for item in graph.nodes:
        places = item.inputs.count(tensor)
        count += _readers(graph, item.outputs[0]) if places and item.node.spec.name == "DEQUANTIZE" else places
    return count


def _constant(
    graph: Graph, item: GraphNode, index: int, makers: Mapping[int, GraphNode], *, real: bool = False
) -> _RefinedConstant | None:
    """Return operand ``index`` if it holds constant (maybe dequantised) codes, or is a ``real`` float32 constant."""
    read = item.inputs[index] if index < len(item.inputs) else -1
    if read < 0:
        return None
    maker = makers.get(read)
    place = maker.inputs[0] if maker is not None and maker.node.spec.name == "DEQUANTIZE" else read
    info = graph.tensors[place]
    is_plain = real and info.dtype == "float32" and info.sparsity is None and info.blockwise is None
    if not info.is_const or not (is_plain or (info.info.is_integer and info.quant is not None)):
        return None
    return _RefinedConstant(info, place, read, _readers(graph, place))
