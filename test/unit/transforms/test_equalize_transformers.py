"""Equalising in transformers: random blocks keep their function, and channels go where they should."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from helpers.equivalence import assert_equivalent, random_inputs, results_of, transformed
from helpers.models import ModelBuilder
from odc_mlir.errors import OptionError
from odc_mlir.formats.channel_factors import decode, encode
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.quantizer.policy.options import make_options, share_moved
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.reporting.metrics import Tolerance, compare
from odc_mlir.transforms.common.placement import operators
from odc_mlir.transforms.common.rewriting import WeightedLayer

EQUALIZE = "circle-equalize-channels"
NORMS = ("mul", "mul-add", "rms")


class Block:
    """A transformer's block of random sizes and forms, whose channels differ in scale by powers of two up to 256."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.builder = ModelBuilder()
        draw = self.random.integers
        self.heads, self.depth, self.rows = (int(draw(1, 4)) for _ in range(3))
        self.width, self.hidden = self.heads * self.depth, int(draw(2, 7))
        self.count = 0

    def build(self) -> ModuleOp:
        fused, shares_values = (bool(self.random.integers(0, 2)) for _ in range(2))
        x = self.builder.tensor("x", (1, self.rows, self.width))
        y = self.add(x, self.attention(self.normalised(x), fused, shares_values and not fused))
        y = self.add(y, self.gated(self.normalised(y)))
        return import_model(self.builder.finish([x], [y]))

    def make(self, kind: str, inputs: Sequence[int], shape: Sequence[int], **options: Any) -> int:
        self.count += 1
        result = self.builder.tensor(f"{kind.lower()}{self.count}", tuple(shape))
        self.builder.operator(kind, inputs, [result], **({"options": options} if options else {}))
        return result

    def constant(self, array: np.ndarray) -> int:
        self.count += 1
        kind = "float32" if array.dtype.kind == "f" else "int32"
        return self.builder.tensor(f"c{self.count}", array.shape, kind, data=array.astype(kind))

    def uneven(self, shape: tuple[int, ...], axis: int) -> np.ndarray:
        scales = np.exp2(self.random.integers(-4, 5, shape[axis]))
        return self.random.standard_normal(shape) * scales.reshape([-1 if i == axis else 1 for i in range(len(shape))])

    def layer(self, x: int, inputs: int, outputs: int) -> int:
        w = self.constant(self.uneven((outputs, inputs), 0) / np.sqrt(inputs))
        b = self.constant(self.uneven((outputs,), 0))
        return self.make("FULLY_CONNECTED", [x, w, b], (1, self.rows, outputs), keep_num_dims=True)

    def normalised(self, x: int) -> int:
        shape = (1, self.rows, self.width)
        gamma = self.constant(self.uneven((self.width,), 0))
        kind = NORMS[self.random.integers(len(NORMS))]
        if kind == "rms":
            return self.make("RMS_NORM", [x, gamma], shape, epsilon=1e-5)
        y = self.make("MUL", [x, gamma], shape)
        return y if kind == "mul" else self.make("ADD", [y, self.constant(self.uneven((1, 1, self.width), 2))], shape)

    def attention(self, x: int, fused: bool, shares_values: bool) -> int:
        q, k, v = self.fused(x) if fused else self.separate(x, shares_values)
        weights = self.make("BATCH_MATMUL", [q, k], (self.heads, self.rows, self.rows), adjoint_rhs=True)
        weights = self.make("SOFTMAX", [weights], (self.heads, self.rows, self.rows), beta=1.0)
        y = self.make("BATCH_MATMUL", [weights, v], (self.heads, self.rows, self.depth))
        y = self.make("TRANSPOSE", [y, self.constant(np.array([1, 0, 2]))], (self.rows, self.heads, self.depth))
        shape = (1, self.rows, self.width)
        return self.layer(self.make("RESHAPE", [y, self.constant(np.array(shape))], shape), self.width, self.width)

    def fused(self, x: int) -> list[int]:
        shape = (1, self.rows, 3, self.heads, self.depth)
        y = self.make("RESHAPE", [self.layer(x, self.width, 3 * self.width), self.constant(np.array(shape))], shape)
        turned = (3, self.heads, self.rows, 1, self.depth)
        y = self.make("TRANSPOSE", [y, self.constant(np.array([2, 3, 1, 0, 4]))], turned)
        part, heads = (1, *turned[1:]), (self.heads, self.rows, self.depth)
        parts = []
        for place in range(3):
            begin = self.constant(np.array([place, 0, 0, 0, 0]))
            cut = self.make("SLICE", [y, begin, self.constant(np.array(part))], part)
            parts.append(self.make("RESHAPE", [cut, self.constant(np.array(heads))], heads))
        return parts

    def separate(self, x: int, shares_values: bool) -> list[int]:
        """Each by its own layer; values may be the same for all heads."""
        q, k = (self.split(self.layer(x, self.width, self.width), self.heads) for _ in range(2))
        heads = 1 if shares_values else self.heads
        v = self.split(self.layer(x, self.width, heads * self.depth), heads)
        if shares_values:
            shape = (self.heads, self.rows, self.depth)
            v = self.make("BROADCAST_TO", [v, self.constant(np.array(shape))], shape)
        return [q, k, v]

    def split(self, x: int, heads: int) -> int:
        shape = (self.rows, heads, self.depth)
        y = self.make("RESHAPE", [x, self.constant(np.array(shape))], shape)
        return self.make("TRANSPOSE", [y, self.constant(np.array([1, 0, 2]))], (heads, self.rows, self.depth))

    def gated(self, x: int) -> int:
        shape = (1, self.rows, self.hidden)
        gate, up = (self.layer(x, self.width, self.hidden) for _ in range(2))
        gate = self.make("MUL", [gate, self.make("LOGISTIC", [gate], shape)], shape)
        return self.layer(self.make("MUL", [gate, up], shape), self.hidden, self.width)

    def add(self, a: int, b: int) -> int:
        return self.make("ADD", [a, b], (1, self.rows, self.width))


def changed_layers(before: ModuleOp, after: ModuleOp) -> int:
    """How many layers have other weights."""
    pairs = zip(operators(before), operators(after), strict=True)
    layers = [
        (a, b)
        for one, two in pairs
        if (a := WeightedLayer.of(one)) is not None and (b := WeightedLayer.of(two)) is not None
    ]
    return sum(not np.array_equal(a.real_weights(), b.real_weights()) for a, b in layers)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 0.8]))
def test_the_function_stays(seed: int, alpha: float) -> None:
    before = Block(seed).build()
    after = transformed(before, f"{EQUALIZE}{{alpha={alpha}}}")
    inputs = random_inputs(before, seed)
    scale = max(float(np.abs(array).max()) for array in results_of(before, inputs))
    assert_equivalent(before, after, inputs, rtol=1e-4, atol=1e-5 * scale)


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1))
def test_powers_of_two_keep_every_bit(seed: int) -> None:
    before = Block(seed).build()
    after = transformed(before, f"{EQUALIZE}{{powers-of-two=true}}")
    assert_equivalent(before, after, random_inputs(before, seed), rtol=0, atol=0)


def test_every_layer_takes_part() -> None:
    """Those that read normalised values, those that make values and gated channels, and those that read these."""
    blocks = [block for seed in range(24) if (block := Block(seed)).depth > 1 and block.hidden > 2]
    for block in blocks:
        before = block.build()
        layers = sum(WeightedLayer.of(op) is not None for op in operators(before))
        assert changed_layers(before, transformed(before, EQUALIZE)) == layers


def test_tensors_are_compared_with_factors_along_several_axes() -> None:
    """Heads are no part of the last axis; without the factors, tensors on the way differ."""
    module = next(
        block.build() for seed in range(50) if (block := Block(seed)).heads > 1 and block.depth > 1 and block.rows > 1
    )
    files = [write_model(export_model(each)) for each in (module, transformed(module, EQUALIZE))]
    ours, theirs = (open_executor(file, all_tensors=True) for file in files)
    factors = decode(theirs.graph.metadata["odc.channel_factors"])
    assert any(array.ndim > 1 for array in factors.values())
    records = [random_inputs(module, seed) for seed in range(2)]
    found = compare(ours, theirs, records, Tolerance(1e-3, 1e-3))
    assert found.first_diverging is None
    theirs.graph.metadata = {}
    bare = compare(ours, theirs, records, Tolerance(1e-3, 1e-3))
    assert {tensor.name for tensor in bare.tensors if tensor.diverges} == factors.keys()


def test_factors_of_several_axes_are_written_and_read() -> None:
    factors = {"a": np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 1, 3), "b": np.ones(2, np.float32)}
    found = decode(encode(factors))
    assert {name: array.shape for name, array in found.items()} == {"a": (2, 1, 3), "b": (2,)}
    np.testing.assert_array_equal(found["a"], factors["a"])


@pytest.mark.parametrize(
    ("kind", "share"), [("activations", 0.5), ("weights", 0.5), ("activations:0.8", 0.8), ("activations:1", 1.0)]
)
def test_shares(kind: str, share: float) -> None:
    assert share_moved(make_options(equalize=kind).equalize) == share


@pytest.mark.parametrize("kind", ["activations:", "activations:2", "activations:nan", "activations:x", "weights:0.3"])
def test_no_shares(kind: str) -> None:
    with pytest.raises(OptionError, match="equalize"):
        make_options(equalize=kind)
