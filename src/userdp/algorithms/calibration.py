"""What the default fit makes of its private histograms and moments: units, geometry, caps. All post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import diags_array

from userdp.data.blocks import UserBlock
from userdp.losses.base import Floats, UserModel
from userdp.mechanisms.histogram import Bins, magnitude_bins

# An octave a bin, from 10^-9 to 10^15 units.
FIRST_LOOK = magnitude_bins(2.0**-30, 2.0**50, 2.0)


def gradient_sizes(block: UserBlock, model: UserModel, theta: Floats) -> Floats:
    """Length of each user's gradient."""
    gradients = model.user_gradients(block, theta)
    return np.asarray(np.sqrt(np.einsum("ki,ki->k", gradients, gradients)))


def threshold(bins: int, histograms: int) -> float:
    """In standard deviations, what the largest of N = 4·bins·histograms sums of pure noise stays below, mostly."""
    return 0.5 + math.sqrt(2 * math.log(4 * bins * histograms))


def visible(counts: Floats, sigma: float, histograms: int) -> NDArray[np.bool_]:
    """The runs of bins that stand out of the noise.

    A run of w = 1, 2, 4 or 8 bins is believed when its sum exceeds σ√w·(½ + √(2 ln N)), N being the number of runs in
    all ``histograms``: the largest of N sums of pure noise is about σ√(2w ln N). Its ends are cut back to bins above
    σ.
    """
    limit = sigma * threshold(len(counts), histograms)
    believed = np.zeros(len(counts), dtype=bool)
    for width in (1, 2, 4, 8):
        doubtful = np.where(believed, 0.0, counts)  # a run must not live off a bin that stands out alone
        for start in np.flatnonzero(np.convolve(doubtful, np.ones(width), "valid") > limit * math.sqrt(width)):
            solid = start + np.flatnonzero(doubtful[start : start + width] > sigma)
            believed[solid.min() : solid.max() + 1] = True
    return believed


def first_look(counts: Floats, sigma: float, bins: Bins, n_users: int) -> tuple[Floats, Floats]:
    """Location and scale of every column from noisy ``magnitude_histograms``, (columns, 3, bins).

    A column whose users lie on one side of zero is moved there; the others keep 0, which the curvature takes care of.
    Where only zeros stand out the column is rare: ones are assumed, in half as many rows as could hide in the noise.
    Where zeros are few, the likeliest magnitude is taken.
    """
    center, scale = np.zeros(len(counts)), np.full(len(counts), math.sqrt(min(2.0 * sigma / n_users, 1.0)))
    sizes, width, spread = bins.centers[1:], bins.widths[1:], sigma * math.sqrt(3)
    for i, column in enumerate(counts):
        zeros, (below, around, above) = float(column[:, 0].sum()), column[:, 1:]
        everywhere = below + around + above
        seen = visible(everywhere, spread, len(counts))
        if seen.any():
            votes = np.maximum(everywhere[seen], 0.0)
            total = max(float(votes.sum()) + max(zeros - spread, 0.0), 1.0)
            square = float(votes @ sizes[seen] ** 2) / total
            mean = float((above - below)[seen] @ sizes[seen]) / total
            scale[i] = math.sqrt(square)
            if abs(mean) > 0.6 * scale[i]:
                within = float(votes @ width[seen] ** 2) / 12 / max(float(votes.sum()), 1.0)
                center[i], scale[i] = mean, math.sqrt(max(square - mean**2, 0.0) + within)
        elif n_users - zeros > n_users / 2:
            scale[i] = _likeliest_size(everywhere, spread, sizes, n_users - zeros)
    return center, scale


def _likeliest_size(counts: Floats, sigma: float, sizes: Floats, votes: float) -> float:
    """Middle of the two bins most likely to hold ``votes``, a priori e times less likely for every octave from 1."""
    each = votes / 2
    likelihood = (each * (counts[1:] + counts[:-1]) - each**2) / sigma**2
    middle = np.sqrt(sizes[1:] * sizes[:-1])
    return float(middle[int(np.argmax(likelihood - np.abs(np.log2(middle))))])


def far(center: Any, scale: Any) -> Any:
    """Whether a column lies so far from zero that its location matters: by more than its scale."""
    return np.abs(center) > scale


def closer_look(
    counts: Floats, sigma: float, bins: Bins, center: Floats, scale: Floats, n_users: int
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Better location and scale from noisy histograms of (x − center)/scale, for features that lie far from zero; and
    which of them lie in one bin or two, so that they may be narrower still.

    A feature that is not ``far`` from zero needs no better location, and its scale may rest on rare values a histogram
    of the bulk cannot see: it is left alone. Users whose votes stay hidden, by more than two deviations of the noise,
    count as one scale away.
    """
    center, scale, narrow = center.copy(), scale.copy(), np.zeros(len(counts), dtype=bool)
    for i, row in enumerate(counts):
        seen = np.where(visible(row, sigma, len(counts)), np.maximum(row, 0.0), 0.0)
        if far(center[i], scale[i]) and seen.any():
            found, noise = float(seen.sum()), sigma * math.sqrt(np.count_nonzero(seen))
            hidden = max(1.0 - (found + 2 * noise) / n_users, 0.0)
            move = float(seen @ bins.centers) / float(seen.sum())
            spread = float(seen @ (np.square(bins.centers - move) + np.square(bins.widths) / 12)) / float(seen.sum())
            center[i] += (1 - hidden) * move * scale[i]
            scale[i] *= math.sqrt((1 - hidden) * spread + hidden)
            narrow[i] = np.count_nonzero(seen) <= 2 and found + 4 * noise > n_users
    return center, scale, narrow


@dataclass(frozen=True, eq=False)
class Geometry:
    """Coordinates θ = √L Uᵀ w of the coefficients w, in which the matrix U diag(L) Uᵀ of curvatures is the identity.

    Without ``vectors`` U is the identity, and P and its inverse are vectors that stand for diagonal matrices.
    """

    values: Floats
    vectors: Floats | None = None

    @classmethod
    def of(cls, curvature: Floats) -> Geometry:
        """Coordinates for a positive definite matrix."""
        values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
        # Their signs are anybody's choice, and rounding would choose: the largest entry of each is made positive.
        largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(len(values))]
        return cls(np.maximum(values, 1e-12 * values[-1]), vectors * np.where(largest < 0, -1.0, 1.0))

    @property
    def matrix(self) -> Floats:
        """P with w = Pθ."""
        return np.asarray((1.0 if self.vectors is None else self.vectors) / np.sqrt(self.values))

    @property
    def inverse(self) -> Floats:
        """P⁻¹."""
        return np.asarray(((1.0 if self.vectors is None else self.vectors) * np.sqrt(self.values)).T)

    @property
    def covariance(self) -> Any:
        """PPᵀ, a sparse matrix if it is diagonal."""
        return diags_array(1 / self.values) if self.vectors is None else self.matrix @ self.matrix.T

    def pulled(self, diagonal: Floats) -> Floats:
        """Pᵀ diag(…) P."""
        full = np.diag(self.matrix) if self.vectors is None else self.matrix
        return np.asarray(full.T @ (diagonal[:, None] * full))


def denoise(moment: Floats, sigma: float) -> Floats:
    """A positive definite estimate of a second moment whose entries carry noise of standard deviation ``sigma``
    (σ on the diagonal, σ/√2 beside it).

    Diagonal and off-diagonal parts are shrunk, towards their mean and towards zero, by as much as noise explains of
    their spread (the idea of Ledoit and Wolf 2004); eigenvalues are then raised by half the noise's spectral size.
    """
    size = len(moment)
    diagonal = np.diag(moment)
    level = max(float(diagonal.mean()), 1e-3 * float(np.abs(diagonal).max()), 1e-12)
    share = min(sigma**2 * size / max(float(np.square(diagonal - level).sum()), 1e-300), 1.0)
    beside = moment - np.diag(diagonal)
    lost = min(sigma**2 * size * (size - 1) / 2 / max(float(np.square(beside).sum()), 1e-300), 1.0)
    shrunk = np.diag(np.maximum((1 - share) * diagonal + share * level, 0.1 * level)) + (1 - lost) * beside
    values, vectors = np.linalg.eigh(shrunk)
    floor = max(0.5 * (1 - lost) * sigma * math.sqrt(size), 1e-4 * level)
    return np.asarray((vectors * (np.maximum(values, 0.0) + floor)) @ vectors.T)


def shrink(point: Floats, variance: float, prior: Floats) -> Floats:
    """Posterior mean of θ_j ~ N(0, τ·prior_j) seen with noise N(0, variance), τ by maximum marginal likelihood."""
    strengths = np.concatenate([[0.0], np.logspace(-4, 3, 60)])[:, None] * prior
    total = strengths + variance
    best = strengths[int(np.argmin((np.log(total) + point**2 / total).sum(axis=1)))]
    return np.asarray(point * best / (best + variance))


def clean(counts: Floats, sigma: float, bins: Bins, expected: float) -> Floats:
    """Shares of the bins around a noisy histogram's peak that stand out of the noise; at least one bin remains.

    When noise makes several peaks, one σ of height is worth an octave of distance from the ``expected`` value.
    """
    smooth = np.convolve(counts, [0.5, 1.0, 0.5], "same") - sigma * np.abs(np.log2(bins.centers / expected))
    peak = first = last = int(np.argmax(smooth))
    while first > 0 and smooth[first - 1] > 1.5 * sigma:
        first -= 1
    while last < len(counts) - 1 and smooth[last + 1] > 1.5 * sigma:
        last += 1
    kept = np.zeros_like(counts)
    kept[first : last + 1] = np.maximum(counts[first : last + 1], 0.0)
    kept[peak] = max(float(kept[peak]), 1.0)
    return np.asarray(kept / kept.sum())


def choose_cap(
    shares: Floats, bins: Bins, noise_per_cap: float, alignment: float, least: float = 0.0
) -> tuple[float, float]:
    """The cap that minimizes predicted noise² + bias² of a mean of capped vectors, and the share of length it keeps.

    Only caps of at least ``least`` are considered (up to rounding, and the largest bin always).

    Noise: (noise_per_cap·γ)². Bias: capped users lose E(‖v‖ − γ)₊, of which the share ``alignment`` does not cancel.
    """
    caps = bins.centers
    lost = np.maximum(caps[None, :] - caps[:, None], 0.0) @ shares
    predicted = (noise_per_cap * caps) ** 2 + (alignment * lost) ** 2
    predicted[:-1][caps[:-1] < least * (1 - 1e-9)] = math.inf
    best = int(np.argmin(predicted))
    return float(caps[best]), max(float(np.minimum(1.0, caps[best] / caps) @ shares), 1 / 3)
