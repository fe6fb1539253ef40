"""Table of PyTorch's operators: a pattern per ATen overload, and reasons for operators without a pattern."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from odc_mlir.frontend.torch import elementwise, layers, quantized, shapes
from odc_mlir.frontend.torch.elementwise import Pattern

GROUPS: Mapping[str, Mapping[str, Pattern]] = {
    "elements, reductions, searches": elementwise.ROWS,
    "layers": layers.ROWS,
    "shapes, indices, constants": shapes.ROWS,
}

ROWS: Mapping[str, Pattern] = {name: pattern for rows in GROUPS.values() for name, pattern in rows.items()}
"""Patterns by name of the overload without ``aten.``."""

REASONS: Mapping[str, str] = {
    "rand randn randperm rand_like randn_like bernoulli multinomial native_dropout": "random values; draw them outside",
    "_fft_r2c _fft_c2r _fft_c2c complex view_as_complex view_as_real polar": "complex numbers; use sines and cosines",
    "_native_batch_norm_legit native_batch_norm": "statistics of a training batch; call eval()",
    "masked_scatter masked_select unique_consecutive _unique2": "a result of unknown size; use torch.where",
    "_embedding_bag": "bags of different lengths; use Embedding and a mean over a fixed length",
    "cond while_loop": "branches and loops that depend on values; use torch.where",
    "sym_stride sym_storage_offset": "memory addresses; a graph of values has none",
}
"""Reasons why operators have no pattern, each with a rewrite that helps."""

_SYMBOLIC: Mapping[Callable[..., Any], str] = {
    operator.add: "ADD",
    operator.sub: "SUB",
    operator.mul: "MUL",
    operator.floordiv: "FLOOR_DIV",
    operator.mod: "FLOOR_MOD",
    operator.eq: "EQUAL",
    operator.ge: "GREATER_EQUAL",
    operator.le: "LESS_EQUAL",
    operator.gt: "GREATER",
    operator.lt: "LESS",
}
"""Our operators for Python's operators on sizes that are known only at run time."""


def pattern_of(target: Any) -> Pattern | None:
    """Return the pattern for an overload, or a Python function on sizes, or None."""
    if target is operator.getitem:
        return lambda g, parts, place: parts[place]
    if target in _SYMBOLIC:
        return lambda g, a, b: g(_SYMBOLIC[target], g.cast(a, "int32"), g.cast(b, "int32"))
    name = str(target)
    if name.startswith("quantized_decomposed."):
        return quantized.ROWS.get(name.removeprefix("quantized_decomposed."))
    return ROWS.get(name.removeprefix("aten."))


def reason_for(target: Any) -> str:
    """Return a rewrite that avoids an operator without a pattern, or ""."""
    stem = str(target).removeprefix("aten.").partition(".")[0]
    return next((reason for words, reason in REASONS.items() if stem in words.split()), "")
