"""Better codes for a model that is quantised: weights rounded by what inputs show, biases that keep the means.

Both models run on the same samples, operator by operator. At each layer that has quantised weights, the inputs of the
float model and those that the quantised model really computes, with all layers before already refined, give their
moments; from these follow codes of the weights and corrections of the bias (:mod:`odc_mlir.numerics.weight_rounding`).
Scales, zero points and element types stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from odc_mlir.errors import UnsupportedError
from odc_mlir.numerics.bias_correction import believable, bias_deltas, corrected
from odc_mlir.numerics.weight_rounding import (
    DAMPING,
    Floats,
    Grid,
    Moments,
    difference_variance,
    loss,
    round_weights,
    shrunk,
)
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Array, QuantParams, TensorInfo
from odc_mlir.quantizer.layers import float_names
from odc_mlir.quantizer.policy.products import Product
from odc_mlir.quantizer.stepping import Stepper
from odc_mlir.runtime.execution.binding import to_reals
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.transforms.quant import quant_correct_biases, quant_round_weights

LOG = logging.getLogger(__name__)

Samples = Sequence[Sequence[Array]]

# Products over more inputs than this stay rounded to the nearest: their moments alone would take hundreds of MB.
_MOST_INPUTS = 2560
# Rows of all runs together that second moments are taken of: at least, and for each input.
_LEAST_ROWS, _ROWS_PER_INPUT = 4096, 16
_ROWS_PER_RUN = 64  # that count as independent: neighbours in one image are much alike
_SYMMETRIC_NARROW = {"int4", "int8", "int16"}  # types whose smallest code constants do not use


@dataclass
class Refinement:
    """Codes of weights and corrections of biases, by the names of the layers' results."""

    codes: dict[str, Array] = field(default_factory=dict)
    deltas: dict[str, Array] = field(default_factory=dict)

    def apply(self, module: ModuleOp) -> None:
        """Change the quantised ``module`` in place; raises ModelError where it is not the one this was made for."""
        quant_round_weights.round_weights(module, self.codes)
        quant_correct_biases.correct_biases(module, self.deltas)


def refine(
    reference: Graph,
    quantised: Graph,
    samples: Samples,
    *,
    rounding: bool = True,
    correction: bool = True,
    damping: float = DAMPING,
) -> Refinement:
    """What makes ``quantised`` compute more like ``reference``, the float model whose tensors have the same names.

    ``samples`` are inputs of the float model. ``rounding`` chooses codes of weights, ``correction`` biases that make up
    for the difference between the inputs of the two models as well. Nothing is found for models that cannot be run
    operator by operator: with state, control flow, or shapes that depend on values.
    """
    found = Refinement()
    if not samples or not (rounding or correction):
        return found
    try:
        ideal, real = Stepper(reference, samples), Stepper(quantised, samples)
    except UnsupportedError as error:
        LOG.info("codes are not refined: %s", error)
        return found
    for layer in _layers(reference, quantised):
        if layer.reference.index < ideal.has_passed:
            continue  # the models' orders differ: its inputs are gone
        ideal.go_to(layer.reference)
        real.go_to(layer.quantised)
        layer.observe(ideal, real, len(samples), both=correction)
        layer.refine_into(found, real, rounding=rounding, correction=correction, damping=damping)
    return found


@dataclass
class _Layer:
    """A layer of both models with what its inputs were."""

    product: Product
    reference: GraphNode
    quantised: GraphNode
    weights: _Codes
    bias: _Codes | None
    ideal: Moments
    seen: Moments
    cross: Floats  # sums of ideal times seen inputs
    runs: int = 0
    ideal_mean: Floats = field(default_factory=lambda: np.zeros(1))
    seen_mean: Floats = field(default_factory=lambda: np.zeros(1))

    @property
    def name(self) -> str:
        """The name of the layer in the quantised model."""
        return self.quantised.node.results[0].name

    def observe(self, ideal: Stepper, real: Stepper, runs: int, *, both: bool) -> None:
        """Take in the inputs of the runs, of the quantised model too where ``both`` are asked for."""
        product = self.product
        truths, values = ideal.reals(self.reference.inputs[0]), real.reals(self.quantised.inputs[0])
        for truth, value in zip(truths, values, strict=True):
            rows = product.rows(truth)
            every = max(1, rows.shape[1] * runs // max(_LEAST_ROWS, _ROWS_PER_INPUT * product.inputs))
            chosen = slice(self.runs % every, None, every)  # other places in every run
            self.runs += 1
            self.ideal_mean = self.ideal_mean + rows.mean(axis=1, dtype=np.float64) / runs
            self.ideal.add(rows[:, chosen])
            if both:
                others = product.rows(value)
                self.seen_mean = self.seen_mean + others.mean(axis=1, dtype=np.float64) / runs
                self.seen.add(others[:, chosen])
                self.cross += np.matmul(rows[:, chosen].transpose(0, 2, 1), others[:, chosen])

    def refine_into(
        self, found: Refinement, real: Stepper, *, rounding: bool, correction: bool, damping: float
    ) -> None:
        """Choose codes, and let the quantised model go on with them."""
        product, info = self.product, self.weights.info
        assert info.quant is not None
        weights = product.matrix(self.reference.node.operand(1).array()).astype(np.float64)
        grid = _grid(product, info.quant, info.dtype)
        codes = product.matrix(info.array()).astype(np.float64)
        covariance = self._moments(self.ideal)
        if rounding:
            moments = shrunk(covariance, covariance, self._known())
            codes = round_weights(weights, grid, moments, damping=damping).astype(np.float64)
            array = product.weights(codes.astype(info.array().dtype))
            found.codes[self.name] = array
            self.weights.replace(real, array)
        if self.bias is not None:
            rounded = grid.real(codes)
            shift = self._mean_of(weights - rounded, self.ideal_mean, loss(weights - rounded, covariance))
            if correction:
                noise = difference_variance(rounded, rounded, covariance, self.seen.covariance, self._cross())
                shift += self._mean_of(rounded, self.ideal_mean - self.seen_mean, noise)
            old = self.bias.info
            shift += self._real_bias() - to_reals(old, old.array()).reshape(-1)
            found.deltas[self.name] = self._shift_bias(real, shift)

    def _mean_of(self, weights: Floats, mean: Floats, variances: Floats) -> Floats:
        """What ``weights`` make of inputs with this mean, for each result, as far as it is no chance."""
        found = np.einsum("gok,gk->go", weights, mean)
        return believable(found.reshape(-1), variances.reshape(-1), self.runs)

    def _shift_bias(self, real: Stepper, shift: Floats) -> Array:
        """What ``shift`` is in the bias's own numbers, which the quantised model goes on with."""
        assert self.bias is not None
        info = self.bias.info
        deltas: Array = shift.astype(np.float32)
        if info.quant is not None:
            deltas = bias_deltas(shift, np.zeros_like(shift), np.asarray(info.quant.scales))
        self.bias.replace(real, corrected(info.array(), deltas)[0])
        return deltas

    def _known(self) -> int:
        """How many rows count as independent."""
        return min(self.ideal.count, self.runs * _ROWS_PER_RUN)

    def _moments(self, of: Moments) -> Floats:
        """What rounding keeps small: about the mean where a bias can take that, else about zero."""
        return of.second / max(1, of.count) if self.bias is None else of.covariance

    def _cross(self) -> Floats:
        """Covariance of ideal with seen inputs."""
        plain = self.cross / max(1, self.ideal.count)
        return plain - self.ideal.mean[:, :, np.newaxis] * self.seen.mean[:, np.newaxis, :]

    def _real_bias(self) -> Floats:
        bias = self.reference.node.optional(2)
        size = self.product.groups * self.product.outputs
        return np.zeros(size) if bias is None else bias.array().astype(np.float64).reshape(-1)


def _grid(product: Product, params: QuantParams, dtype: str) -> Grid:
    scales, zero_points = product.scales(params)
    least, most = DTYPES[dtype].range
    return Grid(scales, zero_points, least + (dtype in _SYMMETRIC_NARROW), most)


def _layers(reference: Graph, quantised: Graph) -> list[_Layer]:
    """The layers that have real weights in one model and codes in the other, in the order of the quantised model."""
    originals = {graph_node.node.results[0].name: graph_node for graph_node in reference.nodes if graph_node.outputs}
    # What the model gives keeps its name, and the codes that it is made of get another.
    names = float_names(quantised, {info.name: index for index, info in enumerate(reference.tensors)})
    makers = {index: item for item in quantised.nodes for index in item.outputs}
    found = []
    for item in quantised.nodes:
        original = originals.get(names.get(item.outputs[0], "")) if item.outputs else None
        if original is None or original.node.spec.name != item.node.spec.name:
            continue
        product = Product.of(original.node)
        weights = _codes(quantised, item, 1, makers)
        if product is None or weights is None or product.inputs > _MOST_INPUTS:
            continue
        if original.node.operand(1).quant is not None:
            continue  # codes already in the float model: nothing is rounded here
        bias = _codes(quantised, item, 2, makers) or _real(quantised, item, 2)
        empty = [Moments.empty(product.groups, product.inputs) for _ in range(2)]
        cross = np.zeros_like(empty[0].second)
        found.append(_Layer(product, original, item, weights, bias, empty[0], empty[1], cross))
    return found


@dataclass(frozen=True)
class _Codes:
    """Constant ``place`` of the quantised graph, whose real values tensor ``read`` has where that differs."""

    info: TensorInfo
    place: int
    read: int

    def replace(self, model: Stepper, array: Array) -> None:
        """Let ``model`` go on with other codes."""
        model.replace(self.place, array)
        if self.read != self.place:
            model.replace(self.read, to_reals(self.info, array))


def _real(graph: Graph, item: GraphNode, index: int) -> _Codes | None:
    """Operand ``index`` if it is a float32 constant, which is its own code."""
    if index >= len(item.inputs) or item.inputs[index] < 0:
        return None
    info = graph.tensors[item.inputs[index]]
    is_plain = info.is_const and info.dtype == "float32" and info.sparsity is None and info.blockwise is None
    return _Codes(info, item.inputs[index], item.inputs[index]) if is_plain else None


def _codes(graph: Graph, item: GraphNode, index: int, makers: Mapping[int, GraphNode]) -> _Codes | None:
    """Operand ``index`` if it is constant codes, perhaps behind a DEQUANTIZE."""
    if index >= len(item.inputs) or item.inputs[index] < 0:
        return None
    read = item.inputs[index]
    maker = makers.get(read)
    place = maker.inputs[0] if maker is not None and maker.node.spec.name == "DEQUANTIZE" else read
    info = graph.tensors[place]
    if not info.is_const or not info.info.is_integer or info.quant is None:
        return None
    return _Codes(info, place, read)
