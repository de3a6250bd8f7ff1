"""User-level DP gradient descent for many settings in one pass over the rows: what the oracle tunes.

The same algorithm as ``userdp.baselines.user_dpgd`` (tests/baselines/test_grid.py compares them), in single precision
and with noise that is not fit for publishing: the rows are read once for a whole batch of (clip, step, ε, seed).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np
from accuracy_data import Task

from userdp.accounting import gdp_of
from userdp.losses.fused import LOGISTIC, RESIDUAL, slope_of

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.95)
STEPS = (10, 30, 100)
RATES = (0.5, 1.0, 2.0, 4.0)
BATCH = 64
SIZE = 2 * len(QUANTILES) * len(STEPS) * len(RATES)  # settings, the last point and the mean counting as two


@dataclass(frozen=True)
class Setting:
    """One run: the clip is this quantile of the users' gradient lengths at 0."""

    epsilon: float
    quantile: float
    steps: int
    rate: float
    seed: int


def settings(epsilons: tuple[float, ...], steps: int, seeds: int) -> list[Setting]:
    """All runs with so many steps."""
    grid = itertools.product(epsilons, QUANTILES, RATES, range(seeds))
    return [Setting(epsilon, quantile, steps, rate, seed) for epsilon, quantile, rate, seed in grid]


class Grid:
    """One dataset, ready for many runs."""

    def __init__(self, task: Task, delta: float) -> None:
        self.task, self.delta = task, delta
        self.rows = np.ascontiguousarray(task.rows, dtype=np.float32)
        self.y = task.y.astype(np.float32)
        slope = slope_of(task.loss)
        if slope is None:
            raise ValueError(f"the grid has no kernel for {task.loss}")
        largest = float(np.finfo(np.float32).max)
        lower, upper = max(slope.lower, -largest), min(slope.upper, largest)
        self.slope = (slope.kind, np.float32(lower), np.float32(upper), np.float32(slope.width))
        _, norms = self.mean_gradients(np.zeros((self.rows.shape[1], 1)), np.ones(1))
        self.clips = {quantile: float(np.quantile(norms[:, 0], quantile)) for quantile in QUANTILES}

    def mean_gradients(self, thetas: np.ndarray, clips: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Clipped mean gradient at every column of ``thetas``, and the users' lengths before clipping."""
        parts, norms = _clipped(
            self.rows, self.y, self.task.offsets, thetas.astype(np.float32), clips.astype(np.float32), *self.slope
        )
        return parts.sum(axis=0, dtype=np.float64) / self.task.n_users, norms

    def run(self, wanted: list[Setting]) -> Iterator[tuple[Setting, bool, float]]:
        """(setting, averaged?, excess risk) of runs with the same number of steps, a batch at a time."""
        for start in range(0, len(wanted), BATCH):
            batch = wanted[start : start + BATCH]
            last, mean = self._descend(batch)
            for averaged, thetas in ((False, last), (True, mean)):
                for setting, risk in zip(batch, self.risks(thetas)):
                    yield setting, averaged, float(risk) - self.task.best_risk

    def risks(self, thetas: np.ndarray) -> np.ndarray:
        """User-weighted mean loss at every column."""
        return _risks(self.rows, self.y, self.task.offsets, thetas.astype(np.float32), *self.slope).sum(axis=0)

    def _descend(self, batch: list[Setting]) -> tuple[np.ndarray, np.ndarray]:
        steps, dimension, n = batch[0].steps, self.rows.shape[1], self.task.n_users
        clips = np.array([self.clips[s.quantile] for s in batch])
        rates = np.array([s.rate for s in batch])
        sigma = clips * np.array([2 * math.sqrt(steps) / (n * gdp_of(s.epsilon, self.delta)) for s in batch])
        generators = [np.random.default_rng([s.seed, s.steps, int(100 * s.quantile), int(10 * s.rate)]) for s in batch]
        theta, total = np.zeros((dimension, len(batch))), np.zeros((dimension, len(batch)))
        for t in range(steps):
            noise = np.stack([generator.standard_normal(dimension) for generator in generators], axis=1)
            theta = theta - rates * (self.mean_gradients(theta, clips)[0] + sigma * noise)
            if t >= steps // 2:
                total += theta
        return theta, total / (steps - steps // 2)


@numba.njit(fastmath=True, parallel=True, cache=True, error_model="numpy")
def _clipped(X, y, offsets, thetas, clips, kind, lower, upper, kink):  # type: ignore[no-untyped-def]
    parts, n, dimension, width = 16, len(offsets) - 1, X.shape[1], thetas.shape[1]
    out = np.zeros((parts, dimension, width), np.float32)
    norms = np.zeros((n, width), np.float32)
    for part in numba.prange(parts):
        gradient = np.zeros((dimension, width), np.float32)
        z, size = np.zeros(width, np.float32), np.zeros(width, np.float32)
        total = np.zeros((dimension, width), np.float32)
        for k in range(n * part // parts, n * (part + 1) // parts):
            if offsets[k + 1] == offsets[k]:
                continue
            gradient[:] = 0
            share = np.float32(1.0 / (offsets[k + 1] - offsets[k]))
            for i in range(offsets[k], offsets[k + 1]):
                z[:] = 0
                for j in range(dimension):
                    if X[i, j] != 0:
                        for q in range(width):
                            z[q] += X[i, j] * thetas[j, q]
                if kind == LOGISTIC:
                    for q in range(width):
                        z[q] = (_sigmoid(z[q]) - y[i]) * share
                elif kind == RESIDUAL:
                    for q in range(width):
                        z[q] = min(max((z[q] - y[i]) / kink, lower), upper) * share
                else:
                    sign = np.float32(1) if y[i] > 0.5 else np.float32(-1)
                    for q in range(width):
                        z[q] = -sign * min(max((np.float32(1) - sign * z[q]) / kink, lower), upper) * share
                for j in range(dimension):
                    if X[i, j] != 0:
                        for q in range(width):
                            gradient[j, q] += X[i, j] * z[q]
            size[:] = 0
            for j in range(dimension):
                for q in range(width):
                    size[q] += gradient[j, q] * gradient[j, q]
            for q in range(width):
                size[q] = np.sqrt(size[q])
                norms[k, q] = size[q]
                size[q] = clips[q] / size[q] if size[q] > clips[q] else np.float32(1)
            for j in range(dimension):
                for q in range(width):
                    total[j, q] += gradient[j, q] * size[q]
        out[part] = total
    return out, norms


@numba.njit(fastmath=True, parallel=True, cache=True, error_model="numpy")
def _risks(X, y, offsets, thetas, kind, lower, upper, kink):  # type: ignore[no-untyped-def]
    parts, n, width = 16, len(offsets) - 1, thetas.shape[1]
    out = np.zeros((parts, width))
    for part in numba.prange(parts):
        z, own = np.zeros(width, np.float32), np.zeros(width)
        for k in range(n * part // parts, n * (part + 1) // parts):
            own[:] = 0
            for i in range(offsets[k], offsets[k + 1]):
                z[:] = 0
                for j in range(X.shape[1]):
                    if X[i, j] != 0:
                        for q in range(width):
                            z[q] += X[i, j] * thetas[j, q]
                for q in range(width):
                    if kind == LOGISTIC:
                        own[q] += max(z[q], np.float32(0)) + np.log1p(np.exp(-abs(z[q]))) - y[i] * z[q]
                    else:
                        sign = np.float32(1) if y[i] > 0.5 else np.float32(-1)
                        t = z[q] - y[i] if kind == RESIDUAL else np.float32(1) - sign * z[q]
                        slope = min(max(t / kink, lower), upper)
                        own[q] += slope * t - np.float32(0.5) * kink * slope * slope
            for q in range(width):
                out[part, q] += own[q] / (max(offsets[k + 1] - offsets[k], 1) * n)
    return out


@numba.njit(fastmath=True, inline="always")
def _sigmoid(z):  # type: ignore[no-untyped-def]
    """½ + ½ tanh(z/2), tanh by a rational function that vectorizes; correct to single precision."""
    t = min(max(z * np.float32(0.5), np.float32(-7.9)), np.float32(7.9))
    s = t * t
    p = s * np.float32(-2.76076847742355e-16) + np.float32(2.00018790482477e-13)
    p = s * p + np.float32(-8.60467152213735e-11)
    p = s * p + np.float32(5.12229709037114e-08)
    p = s * p + np.float32(1.48572235717979e-05)
    p = s * p + np.float32(6.37261928875436e-04)
    p = (s * p + np.float32(4.89352455891786e-03)) * t
    q = s * np.float32(1.19825839466702e-06) + np.float32(1.18534705686654e-04)
    q = s * q + np.float32(2.26843463243900e-03)
    q = s * q + np.float32(4.89352518554385e-03)
    return np.float32(0.5) + np.float32(0.5) * p / q
