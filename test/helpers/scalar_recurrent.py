"""Recurrent cells once more, for lists of Python integers: slow, and sharing no code with the package."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from helpers.scalar import clamp, half_away, multiply, quantize_multiplier, rdbpot, wrap

LOW, HIGH = -(2**15), 2**15 - 1
Vector = list[int]
Matrix = Sequence[Sequence[int]]


def saturate(x: int) -> int:
    return clamp(x, LOW, HIGH)


def high_product(a: int, b: int) -> int:
    """16-bit saturating rounding doubling high product."""
    return min(math.floor(Fraction(a * b, 2**15) + Fraction(1, 2)), HIGH)


def power(x: int, n: int) -> int:
    return saturate(x * 2**n) if n >= 0 else rdbpot(x, -n)


def constant(real: float) -> int:
    """A Q0 constant as gemmlowp makes it: rounded to 32 bits, then to 16."""
    return half_away(Fraction(half_away(Fraction(real) * 2**31), 2**16))


def exp_negative(x: int, k: int) -> int:
    """e^x in Q0 for x <= 0 with k integer bits."""
    if x == 0:
        return HIGH
    if k > 5 and Fraction(x, 2 ** (15 - k)) < -32:
        return 0
    quarter = 2 ** (13 - k)
    remainder = x % quarter - quarter
    y = power(remainder, k) + 2**12
    y2 = high_product(y, y)
    fourth, third = power(high_product(y2, y2), -2), high_product(y2, y)
    tail = power(high_product(fourth + third, constant(1 / 3)) + y2, -1)
    start = constant(math.exp(-1 / 8))
    result = saturate(start + high_product(start, y + tail))
    for j in range(-2, 5):
        if k > j and (remainder - x) // 2 ** (15 - k + j) % 2:
            result = high_product(result, constant(math.exp(-(2.0**j))))
    return result


def newton(a: int) -> int:
    """2 / (1 + a) in Q2."""
    half = half_away(Fraction(a + HIGH, 2))
    v = half_away(Fraction(48 * 2**13, 17)) + high_product(half, half_away(Fraction(-32 * 2**13, 17)))
    for _ in range(3):
        v += power(high_product(v, 2**13 - high_product(half, v)), 2)
    return v


def logistic(x: int) -> int:
    """In Q0, of a number in Q3."""
    if x == 0:
        return 2**14
    positive = power(newton(exp_negative(-abs(x), 3)), 1)
    return positive if x > 0 else HIGH - positive


def tanh(x: int, k: int) -> int:
    """In Q0, of a number with k integer bits."""
    magnitude = power(newton(exp_negative(-abs(x), k + 1)) - 2**13, 2) if x else 0
    return magnitude if x > 0 else -magnitude


def inverse_root(n: int) -> tuple[int, int]:
    """Multiplier and exponent of 1/sqrt(n): the exact root, since fixed-point Newton steps come that close."""
    return quantize_multiplier(1 / math.sqrt(n))


def dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def truncated(a: int, b: int) -> int:
    return int(Fraction(a, b))


def layer_norm(x: Vector, weights: Vector, bias: Vector, scale: float, root: tuple[int, int] | None = None) -> Vector:
    """A row of gate sums, normalised; ``root`` is the factor 1/deviation, where it is known better."""
    count = len(x)
    mean = truncated(sum(x) * 1024, count)
    variance = truncated(sum(v * v for v in x) * (2**20 // count) - mean * mean, 2**20)
    if variance < 1:
        variance = max(1, int(10000 * scale))
    q, e = root or inverse_root(variance)
    factor = quantize_multiplier(scale)
    result = []
    for value, weight, offset in zip(x, weights, bias, strict=True):
        weighted = wrap(multiply(1024 * value - mean, q, e) * weight + offset)
        rounded = truncated(weighted + 512 if weighted > 0 else weighted - 512, 1024)
        result.append(saturate(multiply(rounded, factor[0], factor[1] + 12)))
    return result


Factors = Mapping[str, tuple[int, int]]


def integer_step(
    x: Vector,
    h: Vector,
    c: Vector,
    weights: Mapping[str, Matrix],
    vectors: Mapping[str, Vector],
    factors: Factors,
    zeros: tuple[int, int, int],
    cell_exponent: int,
    clips: tuple[int, int],
) -> tuple[Vector, Vector]:
    """One step of one batch: output and cell state.

    ``weights`` and ``vectors`` by the operator's names of operands, ``factors`` too (and "hidden"), ``zeros`` of
    input, output and hidden values.
    """

    def gate(name: str, cell: Vector) -> Vector:
        sums = []
        for row in range(len(c)):
            from_x = weights[f"input_to_{name}_weights"][row]
            from_h = weights[f"recurrent_to_{name}_weights"][row]
            first = dot(from_x, [v - zeros[0] for v in x]) + vectors[f"{name}_gate_bias"][row]
            total = saturate(multiply(first, *factors[f"input_to_{name}_weights"]))
            second = dot(from_h, [v - zeros[1] for v in h])
            total = saturate(total + multiply(second, *factors[f"recurrent_to_{name}_weights"]))
            seen = f"cell_to_{name}_weights"
            if seen in vectors:
                total = saturate(total + multiply(vectors[seen][row] * cell[row], *factors[seen]))
            sums.append(total)
        return sums

    forget = [logistic(v) for v in gate("forget", c)]
    modulation = [tanh(v, 3) for v in gate("cell", c)]
    if "input_to_input_weights" in weights:
        entry = [logistic(v) for v in gate("input", c)]
    else:
        entry = [HIGH - v for v in forget]
    new = [
        saturate(rdbpot(f * old, 15) + rdbpot(i * g, 30 + cell_exponent))
        for f, old, i, g in zip(forget, c, entry, modulation, strict=True)
    ]
    if clips[0]:
        new = [clamp(v, -clips[0], clips[0]) for v in new]
    output = [logistic(v) for v in gate("output", new)]
    products = [o * tanh(v, 15 + cell_exponent) for o, v in zip(output, new, strict=True)]
    projected = "projection_weights" in weights
    offset = -zeros[2] if projected else zeros[1]
    hidden = [clamp(multiply(p, *factors["hidden"]) + offset, -128, 127) for p in products]
    if not projected:
        return hidden, new
    result = []
    for row, offset in zip(weights["projection_weights"], vectors["projection_bias"], strict=True):
        total = dot(row, [v + zeros[2] for v in hidden]) + offset
        code = clamp(multiply(total, *factors["projection_weights"]) + zeros[1], -128, 127)
        result.append(clamp(code, -clips[1], clips[1]) if clips[1] else code)
    return result, new
