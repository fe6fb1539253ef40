"""Rewrites proved with z3: on integers for every value of small widths, on reals for all of them.

Each proof states what an operator gives before and after, by the operators' definitions, under the condition that the
rewrite asks for; the same without that condition has to be refuted where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import pytest

from odc_mlir.transforms.circle.rewrites.table import rules

z3 = pytest.importorskip("z3", reason="needs the extra proofs: pip install 'odc-mlir[proofs]'")

Term = Any
BITS = 8


class Law(NamedTuple):
    """``before`` is ``after`` wherever all of ``conditions`` hold; ``needs_conditions``: and not everywhere."""

    before: Term
    after: Term
    conditions: Sequence[Term] = ()
    needs_conditions: bool = True


def _real(name: str) -> Term:
    return z3.Real(name)


def _code(name: str) -> Term:
    return z3.BitVec(name, BITS)


def _lower(a: Term, b: Term) -> Term:
    return z3.If(a < b, a, b)


def _higher(a: Term, b: Term) -> Term:
    return z3.If(a > b, a, b)


def _clamp(x: Term, low: Term, high: Term) -> Term:
    return _lower(_higher(x, low), high)


def _sum(terms: Sequence[Term]) -> Term:
    return reduce(lambda a, b: a + b, terms)


def _layer(inputs: Sequence[Term], weights: Sequence[Term], bias: Term) -> Term:
    return _sum([x * w for x, w in zip(inputs, weights, strict=True)]) + bias


def _reals(name: str, count: int) -> list[Term]:
    return [_real(f"{name}{number}") for number in range(count)]


def _behind(factor: bool) -> Callable[[], Law]:
    """A product or a sum behind a layer goes into its weights and bias."""

    def law() -> Law:
        x, w, bias, number = _reals("x", 3), _reals("w", 3), _real("b"), _real("k")
        if factor:
            return Law(_layer(x, w, bias) * number, _layer(x, [v * number for v in w], bias * number))
        return Law(_layer(x, w, bias) + number, _layer(x, w, bias + number))

    return law


def _before(factor: bool) -> Callable[[], Law]:
    """A product or a sum before a layer that is fully connected."""

    def law() -> Law:
        x, w, bias, k = _reals("x", 3), _reals("w", 3), _real("b"), _reals("k", 3)
        if factor:
            scaled = [a * b for a, b in zip(x, k, strict=True)]
            return Law(_layer(scaled, w, bias), _layer(x, [a * b for a, b in zip(w, k, strict=True)], bias))
        moved = [a + b for a, b in zip(x, k, strict=True)]
        return Law(_layer(moved, w, bias), _layer(x, w, bias + _sum([a * b for a, b in zip(w, k, strict=True)])))

    return law


def _mean_of_mean() -> Law:
    x = _reals("x", 6)
    rows = [_sum(x[at : at + 3]) / 3 for at in (0, 3)]
    return Law(_sum(rows) / 2, _sum(x) / 6)


def _two_layers() -> Law:
    x, v, w, b, c = _reals("x", 3), _reals("v", 3), _reals("w", 3), _real("b"), _real("c")
    return Law(_layer(x, v, b) + _layer(x, w, c), _layer(x, [a + d for a, d in zip(v, w, strict=True)], b + c))


def _clamped() -> Law:
    x = _real("x")
    return Law(_higher(_lower(x, z3.RealVal(6)), z3.RealVal(0)), _clamp(x, z3.RealVal(0), z3.RealVal(6)))


def _clamped_codes() -> Law:
    """RELU behind a layer of codes: both clamp, the second from the zero point on."""
    x, low, high, zero = _code("x"), _code("low"), _code("high"), _code("zero")
    conditions = [low <= high, zero <= high]
    return Law(_higher(_clamp(x, low, high), zero), _clamp(x, _higher(low, zero), high), conditions)


def _leaky() -> Law:
    x, slope = _real("x"), _real("a")
    return Law(_higher(x, slope * x), z3.If(x < 0, slope * x, x), [slope >= 0, slope <= 1])


def _prelu() -> Law:
    x, slope = _real("x"), _real("a")
    size = z3.If(x < 0, -x, x)
    return Law(_higher(x, z3.RealVal(0)) + slope * (x - size) / 2, z3.If(x < 0, slope * x, x))


def _hard_swish() -> Law:
    x = _real("x")
    gate = _clamp(x + 3, z3.RealVal(0), z3.RealVal(6))
    return Law(x * gate / 6, x * (gate / 6))


def _guard() -> Law:
    """FLOOR_MOD has the divisor's sign; indices may be counted from the end otherwise."""
    index, extent = z3.Int("index"), z3.Int("extent")
    return Law((index + extent) % extent, index, [index >= 0, index < extent, extent > 0])


def _padding() -> Law:
    a, b, value = _real("a"), _real("b"), _real("p")
    largest = _higher(a, b)
    return Law(_higher(largest, value), _higher(largest, z3.RealVal(0)), [a >= 0, b >= 0, value <= 0])


def _quotient() -> Law:
    a, b, x = _real("a"), _real("b"), _real("x")
    return Law((a / x) * b, (a * b) / x, [x != 0], needs_conditions=False)


def _root() -> Law:
    """``r`` is the root of y, ``s`` its inverse."""
    x, y, r, s = _real("x"), _real("y"), _real("r"), _real("s")
    return Law(x / r, x * s, [y > 0, r > 0, r * r == y, s > 0, s * s * y == 1])


def _batch_norm_before() -> Law:
    """``relu(x * g + b) * w`` is ``relu(x + b / g) * (g * w)`` for a positive g."""
    x, gamma, beta, weight = _real("x"), _real("g"), _real("b"), _real("w")
    zero = z3.RealVal(0)
    return Law(
        _higher(x * gamma + beta, zero) * weight, _higher(x + beta / gamma, zero) * (gamma * weight), [gamma > 0]
    )


def _permuted(order: Sequence[int], index: Sequence[Term]) -> list[Term]:
    """Where TRANSPOSE by ``order`` takes the element at ``index`` from."""
    found: list[Term] = [None] * len(order)
    for place, axis in enumerate(order):
        found[axis] = index[place]
    return found


def _turned_twice() -> Law:
    """Every pair of permutations of three dimensions, of a tensor that nothing is known of."""
    from itertools import permutations

    tensor = z3.Function("tensor", z3.IntSort(), z3.IntSort(), z3.IntSort(), z3.RealSort())
    index = [z3.Int(f"i{axis}") for axis in range(3)]
    pairs = [(p, q) for p in permutations(range(3)) for q in permutations(range(3))]
    before = [tensor(*_permuted(p, _permuted(q, index))) for p, q in pairs]
    after = [tensor(*_permuted([p[axis] for axis in q], index)) for p, q in pairs]
    return Law(z3.And([a == b for a, b in zip(before, after, strict=True)]), z3.BoolVal(True))


def _pixels() -> Law:
    """The channel that a pixel of PixelShuffle has is the one that DEPTH_TO_SPACE takes of channels in its order."""
    channel, row, column, block, channels = (z3.Int(name) for name in ("c", "i", "j", "r", "n"))
    place = (row * block + column) * channels + channel  # of DEPTH_TO_SPACE
    pixel, rest = place / channels, place % channels
    return Law(
        rest * block * block + pixel,  # the layer's row that is put there
        channel * block * block + row * block + column,
        [
            channel >= 0,
            channel < channels,
            row >= 0,
            row < block,
            column >= 0,
            column < block,
            channels <= 4,
            block <= 4,
        ],
    )


LAWS: dict[str, Callable[[], Law]] = {
    "remove_unnecessary_add": lambda: Law(_code("x") + 0, _code("x")),
    "remove_unnecessary_mul": lambda: Law(_code("x") * 1, _code("x")),
    "replace_sub_with_add": lambda: Law(_code("x") - _code("c"), _code("x") + (-_code("c"))),
    "fuse_add_with_conv": _behind(False),
    "fuse_mul_with_conv": _behind(True),
    "fuse_add_to_fullyconnected_bias": _before(False),
    "fuse_mul_to_fullyconnected_weights": _before(True),
    "fuse_horizontal_fc_layers": _two_layers,
    "fuse_mean_with_mean": _mean_of_mean,
    "fuse_mul_with_div": _quotient,
    "transform_sqrt_div_to_rsqrt_mul": _root,
    "transform_min_max_to_relu6": _clamped,
    "fuse_activation_function": _clamped_codes,
    "fuse_leakyrelu": _leaky,
    "fuse_prelu": _prelu,
    "fuse_hardswish": _hard_swish,
    "fuse_preactivation_batchnorm": _batch_norm_before,
    "fuse_depth_to_space": _pixels,
    "remove_redundant_transpose": _turned_twice,
    "remove_gather_guard": _guard,
    "substitute_padv2_to_pad": _padding,
}


def _counterexample(law: Law, conditions: Sequence[Term]) -> Term | None:
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.add(*conditions, law.before != law.after)
    found = solver.check()
    assert found != z3.unknown, solver.reason_unknown()
    return solver.model() if found == z3.sat else None


@pytest.mark.parametrize("name", LAWS)
def test_the_law_behind_a_rewrite(name: str) -> None:
    assert name in rules()
    law = LAWS[name]()
    assert _counterexample(law, law.conditions) is None
    if law.conditions and law.needs_conditions:
        assert _counterexample(law, ()) is not None, "the condition is not needed"
