"""Operators that draw random numbers with TensorFlow's generator.

Every operator has a generator, seeded by the options, that continues from run to run until the state is reset. A model
draws the same numbers in every new session. TensorFlow Lite replaces two seeds of 0 by random seeds. We keep zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from odc_mlir.numerics import philox
from odc_mlir.ops.infer.common import check_elements, option, require_dtype
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import computed, input_error, ints, single, wanted_sizes


def _generator(node: Node) -> philox.Philox:
    state = node.private_state()
    if "generator" not in state:
        state["generator"] = philox.Philox.seeded(int(option(node, "seed")), int(option(node, "seed2")))
    found: philox.Philox = state["generator"]
    return found


def _drawn(node: Node, draw: Callable[[philox.Philox, int], Array]) -> Execute:
    require_dtype(node, node.results[0], "float32")

    def compute(shape: Array) -> Array:
        sizes = wanted_sizes(node, shape)
        return draw(_generator(node), math.prod(sizes)).reshape(sizes)

    return computed(node, compute)


random_uniform = partial(_drawn, draw=philox.uniform)
random_standard_normal = partial(_drawn, draw=philox.normal)


def multinomial(node: Node) -> Execute:
    """Draw ``samples`` classes for each row of ``logits [batch, classes]``."""
    dtype = node.results[0].info.numpy
    require_dtype(node, node.operand(0), "float32")

    def compute(logits: Array, count: Array) -> Array:
        samples = int(single(node, count, "the number of samples"))
        if logits.ndim != 2 or samples < 0 or not np.isfinite(logits).any(axis=1).all():
            raise input_error(node, f"cannot draw {samples} samples from logits {list(logits.shape)}")
        check_elements(node, (3, len(logits), samples + logits.shape[1]), "float64")  # weights, sums and draws
        return philox.multinomial(_generator(node), logits, samples).astype(dtype)

    return computed(node, compute)


def stateless_random_uniform(node: Node) -> Execute:
    """Draw numbers in [0, 1) of the shape in operand 0 from the two seeds in operand 1."""
    require_dtype(node, node.results[0], "float32")

    def compute(shape: Array, numbers: Array) -> Array:
        sizes, seeds = wanted_sizes(node, shape), ints(numbers)
        if len(seeds) != 2:
            raise input_error(node, f"there are {len(seeds)} seeds; two are needed")
        return philox.uniform(philox.scrambled(*seeds), math.prod(sizes)).reshape(sizes)

    return computed(node, compute)
