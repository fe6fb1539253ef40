"""Rounding of weights that minimises the error of a layer's results.

A layer computes ``Y = W X + b`` for inputs X from calibration data. Rounding every weight to the nearest code minimises
``|W - Q|``, but the error of results is ``|(W - Q) X|``, a quadratic form in the second moments of X. Columns are
rounded one by one. Later columns compensate the error, by means of the inverse moments (Frantar et al., "GPTQ", 2022,
after Hassibi's optimal brain surgeon). The bias compensates the mean error, so the moments are central moments.

A layer is given as ``weights [G, O, K]``: G groups with separate inputs (1 for plain layers, the channels of a
depthwise convolution), O results and K inputs per group. This module is independent of graphs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import round_half_away

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

DAMPING = 0.01  # share of the mean variance added to every input's variance, because few samples are unreliable
# Scales to try, relative to the first scale, and the largest number of multiplications for all scales.
_FACTORS = (0.98, 1.02, 0.96, 1.04, 0.94, 1.06, 0.92, 1.08, 0.9, 1.1)
_MOST_SCALING_PRODUCTS = 1 << 33
_BLOCK = 64  # columns rounded before their errors are compensated in all later columns


@dataclass
class Moments:
    """Second moments of G groups of K inputs, summed over rows. Initially empty.

    ``parts``: number of added parts.
    ``spread``: sum over parts of the squared mean products of two different inputs.
    """

    count: int
    second: Floats  # [G, K, K]
    parts: int = 0
    spread: float = 0.0

    @classmethod
    def empty(cls, groups: int, inputs: int) -> Moments:
        return cls(0, np.zeros((groups, inputs, inputs)))

    def add(self, rows: NDArray[Any], parts: int = 1) -> None:
        """Add rows ``[G, N, K]`` (or ``[N, K]`` of one group) that consist of ``parts`` parts of equal size.

        The result is bit-identical to adding the parts one by one.
        """
        stacked = rows[np.newaxis] if rows.ndim == 2 else rows
        groups, count, inputs = stacked.shape
        apart = stacked.reshape(groups, parts, count // parts, inputs).swapaxes(0, 1)
        narrow = np.ascontiguousarray(apart, np.float32)  # float32 products are ten times as fast, and rows are few
        products = np.matmul(narrow.transpose(0, 1, 3, 2), narrow).astype(np.float64)
        squares = _squares_of_pairs(products)
        for part, square in zip(products, squares, strict=True):
            self.second += part
            self.spread += square / max(1, count // parts) ** 2
        self.count += count
        self.parts += parts

    @property
    def mean(self) -> Floats:
        """Mean products of every two inputs, ``[G, K, K]``, or zeros if there are no rows."""
        return self.second / max(1, self.count)


def shrunk(moments: Moments, runs: int) -> Floats:
    """Return the mean products ``[G, K, K]`` of ``moments``, shrunk by the noise of few ``runs``.

    Products of different inputs shrink by the sampling noise (Ledoit and Wolf, "A well-conditioned estimator for
    large-dimensional covariance matrices", 2004). The variation between runs estimates this noise, because rows of a
    run are similar and a few large rows may dominate. Variances below the mean grow as if one more run had the mean
    variance. Otherwise, an input with little activity would have to compensate the errors of all other inputs.
    """
    known = moments.mean
    squares = _squares_of_pairs(known[np.newaxis])[0]
    chance = max(0.0, moments.spread / max(1, moments.parts) - squares) / max(1, runs - 1)
    part = min(1.0, chance / squares) if runs > 1 and 0 < squares < np.inf else 1.0
    variances = np.einsum("gkk->gk", known)
    missing = np.maximum(variances.mean(axis=1, keepdims=True) - variances, 0.0)
    own = part * variances + missing / (1 + runs)
    return np.asarray((1 - part) * known + own[:, :, np.newaxis] * np.eye(known.shape[1]))


def _squares_of_pairs(products: Floats) -> list[float]:
    own = np.einsum("pgkk->pgk", products)
    with np.errstate(over="ignore", invalid="ignore"):
        pairs = zip(products, own, strict=True)
        return [float(np.vdot(part, part) - np.vdot(squares, squares)) for part, squares in pairs]


@dataclass(frozen=True)
class Grid:
    """Grid of quantised weights: ``scale * (code - zero_point)``, codes ``least`` to ``most``, per row."""

    scales: Floats  # [G, O], positive
    zero_points: Floats  # [G, O]
    least: int
    most: int

    def nearest(self, values: Floats, at: slice | int = slice(None)) -> Floats:
        """Return the codes nearest to ``values [G, O, …]``."""
        extra = (np.newaxis,) * (values.ndim - 2)
        scales, zeros = self.scales[(..., *extra)], self.zero_points[(..., *extra)]
        rounded = round_half_away(values / scales)
        rounded += zeros
        np.maximum(rounded, self.least, out=rounded)
        return np.asarray(np.minimum(rounded, self.most, out=rounded))

    def real(self, codes: Floats) -> Floats:
        """Return the real values of ``codes [G, O, …]``."""
        extra = (np.newaxis,) * (codes.ndim - 2)
        return self.scales[(..., *extra)] * (codes - self.zero_points[(..., *extra)])


def round_weights(weights: Floats, grid: Grid, covariance: Floats) -> Codes:
    """Return codes ``[G, O, K]`` of ``weights [G, O, K]`` for inputs with ``covariance [G, K, K]``.

    Weights of a constant input get the nearest codes, because the bias compensates the error. A row keeps the nearest
    codes if compensation does not reduce its error or cannot be computed.
    """
    return _RoundingProblem.of(weights, covariance).codes(grid)[0]


def round_and_scale(weights: Floats, grid: Grid, covariance: Floats) -> tuple[Codes, NDArray[np.float32]]:
    """Return codes like :func:`round_weights`, and the best scales ``[G, O]`` near the scales of ``grid``.

    Every result has its own scale. Layers with few inputs gain most. For large layers, fewer scales are tried.
    """
    rounding = _RoundingProblem.of(weights, covariance)
    scales = grid.scales.astype(np.float32)
    codes, least = rounding.codes(grid)
    for factor in _FACTORS[: _MOST_SCALING_PRODUCTS // max(1, weights.size * weights.shape[2])]:
        tried = (grid.scales * factor).astype(np.float32)
        found, losses = rounding.codes(replace(grid, scales=tried.astype(np.float64)))
        better = (losses < least) & (tried > 0)
        codes, least = np.where(better[:, :, np.newaxis], found, codes), np.where(better, losses, least)
        scales = np.where(better, tried, scales)
    return codes, scales


@dataclass(frozen=True)
class _RoundingProblem:
    """Weights ``[G, O, K]``, the order of rounding, and the factors of error compensation."""

    weights: Floats
    covariance: Floats
    order: NDArray[np.intp]  # [G, K]
    factors: Floats | None  # in the order of rounding; None if they cannot be computed

    @classmethod
    def of(cls, weights: Floats, covariance: Floats) -> _RoundingProblem:
        order = np.argsort(-np.einsum("gkk->gk", covariance), axis=1, kind="stable")
        in_order = np.take_along_axis(
            np.take_along_axis(covariance, order[:, :, np.newaxis], 1), order[:, np.newaxis, :], 2
        )
        try:
            factors: Floats | None = inverse_factors(in_order, DAMPING)
        except np.linalg.LinAlgError:
            factors = None
        known = factors is not None and np.isfinite(factors).all()
        return cls(weights.astype(np.float64), covariance, order, factors if known else None)

    def codes(self, grid: Grid) -> tuple[Codes, Floats]:
        nearest = grid.nearest(self.weights)
        least = loss(self.weights - grid.real(nearest), self.covariance)
        if self.factors is None:
            return nearest.astype(np.int64), least
        found = self._compensated_codes(grid, self.factors)
        lost = loss(self.weights - grid.real(found), self.covariance)
        better = lost <= least
        return np.where(better[:, :, np.newaxis], found, nearest).astype(np.int64), np.where(better, lost, least)

    def _compensated_codes(self, grid: Grid, factors: Floats) -> Floats:
        """Return codes. The code of each column compensates the rounding errors of previous columns."""
        size = self.weights.shape[2]
        left = np.take_along_axis(self.weights, self.order[:, np.newaxis, :], 2)
        codes = np.zeros_like(left)
        own = np.einsum("gkk->kg", factors)[:, :, np.newaxis]  # [K, G, 1]
        for start in range(0, size, _BLOCK):
            stop = min(start + _BLOCK, size)
            # Columns are contiguous: [columns, G, O].
            ahead = np.ascontiguousarray(left[:, :, start:stop].transpose(2, 0, 1))
            moves = np.ascontiguousarray(factors[:, start:stop, start:stop].transpose(1, 2, 0))[..., np.newaxis]
            found, losses = np.empty_like(ahead), np.empty_like(ahead)
            for column, values in enumerate(ahead):
                found[column] = chosen = grid.nearest(values)
                lost = np.divide(values - grid.real(chosen), own[start + column], out=losses[column])
                ahead[column + 1 :] -= lost * moves[column, column + 1 :]
            codes[:, :, start:stop] = found.transpose(1, 2, 0)
            if stop < size:
                left[:, :, stop:] -= np.ascontiguousarray(losses.transpose(1, 2, 0)) @ factors[:, start:stop, stop:]
        back = np.argsort(self.order, axis=1, kind="stable")
        return np.take_along_axis(codes, back[:, np.newaxis, :], 2)


def inverse_factors(covariance: Floats, damping: float) -> Floats:
    """Return upper triangular U with ``Uᵀ U = (covariance + damping)⁻¹`` for each group."""
    inverse = np.linalg.inv(covariance + _damping_matrix(covariance, damping))
    symmetric = (inverse + inverse.transpose(0, 2, 1)) / 2
    return np.asarray(np.linalg.cholesky(symmetric), np.float64).transpose(0, 2, 1)


def loss(differences: Floats, covariance: Floats) -> Floats:
    """Return the mean squared error ``[G, O]`` of results with ``differences [G, O, K]`` of weights."""
    return np.asarray(np.einsum("gok,gok->go", differences @ covariance, differences))


def _damping_matrix(covariance: Floats, damping: float) -> Floats:
    size = covariance.shape[1]
    parts = damping * np.einsum("gkk->g", covariance) / max(1, size)
    return np.asarray(np.where(parts > 0, parts, 1.0)[:, np.newaxis, np.newaxis] * np.eye(size))
