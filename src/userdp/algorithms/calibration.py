"""What the default fit makes of its private histograms and moments: units, geometry, caps. All post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import diags_array

from userdp.algorithms.templates import Magnitudes, read_place
from userdp.data.blocks import UserBlock
from userdp.losses.base import Floats, UserModel, phase_gradients
from userdp.mechanisms.histogram import Bins, magnitude_bins

# An octave a bin, from 10^-9 to 10^15 units; powers of two, what flags are made of, lie in the middle of theirs.
FIRST_LOOK = magnitude_bins(2.0**-30.5, 2.0**49.5, 2.0)
REACH = 5.0  # octaves around the size found in which single bins may add to it
MOVE = 0.6  # a column is moved if its mean is so much of its root mean square
ASIDE = 0.2  # probability that all users lie on one side of zero, from which on a closer look pays
HEAVY = 1.5  # a column on one side of zero but nearer than so many scales has a heavy tail, which closer looks lose
UNCLEAR = 0.5  # a place is unclear if its standard deviation is so much of the column's
SURE = 0.98  # probability that a column lies in a bin or two from which on it is taken for narrow
LOST = 4.0  # deviations of the noise from which on users count as lost in zooms
# A heap no farther from zero than ``NEAR`` that looks find no wider than a bin may be the common value of a
# standardized flag: if so, the share of rows elsewhere follows from its place. For those to be looked at, a column
# nearer than ``MEAN`` may have a tail as heavy as ``HEAVY_MEAN`` allows.
NEAR, MEAN, HEAVY_MEAN = 0.75, 0.55, 1.25
# Rows elsewhere, over those that a rare value would have; and the deviations of noise within which they may be.
LEAST, MOST, AGREES = 0.5, 5.0, 2.5
FLAG = 0.5  # scale of a flag over the distance of its rare value
LARGEST_CODE = 20  # a heap that stays at an integer up to this is one of a flag, a grade or a count
TIES = 1e-3  # of the mean curvature: directions are raised by up to so much, each by another share
WITHIN_OCTAVE = 0.2  # standard deviation of numbers inside an octave, over its middle
RATE_SPREAD = 0.4  # standard deviation of the rates of K classes before they are seen, over 1/K
SMALLEST_RATE = 1e-3


def gradient_sizes(block: UserBlock, model: UserModel, theta: Floats) -> Floats:
    """Length of each user's gradient."""
    gradients = phase_gradients(model, theta)(block)
    return np.asarray(np.sqrt(np.einsum("ki,ki->k", gradients, gradients)))


def class_rates(counts: Floats, sigma: float, n_users: int) -> Floats:
    """Rates of K classes that sum to 1, from noisy counts: noise gives way to equal rates, and none is below it."""
    classes = len(counts)
    error = sigma * math.sqrt(1 - 1 / classes) / n_users
    seen = (counts - counts.mean()) / n_users
    rates = (1 + seen * classes / (1 + (error * classes / RATE_SPREAD) ** 2)) / classes
    rates = np.clip(rates, min(max(error / 2, SMALLEST_RATE), 1 / classes), 1.0)
    return np.asarray(rates / rates.sum())


def threshold(bins: int, histograms: int) -> float:
    """In standard deviations, what the largest of N = 4·bins·histograms sums of pure noise stays below, mostly."""
    return 0.5 + math.sqrt(2 * math.log(4 * bins * histograms))


def first_look(counts: Floats, sigma: float, bins: Bins, n_users: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Location and scale of every column from noisy ``magnitude_histograms``, (columns, 3, bins); and whether a closer
    look pays.

    Templates are fitted to the counts (``algorithms.templates``); bins that clearly differ from what those expect,
    within a few octaves of the size found, are added. A column whose users lie on one side of zero is moved there; the
    others keep 0, which the curvature takes care of. Where all users may lie on one side, which is not so for flags,
    the column may be as narrow as a bin hides.
    """
    size, mean, aside, expected = Magnitudes.over(tuple(bins.centers.tolist())).read(counts, sigma, n_users)
    octaves = np.log2(np.maximum(bins.centers, 2.0**-99)) - np.log2(size)[:, None]
    rest = counts - expected
    rest[np.abs(rest) < sigma * threshold(3 * len(bins.centers), len(counts))] = 0.0
    rest *= (np.abs(octaves) < REACH)[:, None] / n_users
    square = size**2 + rest.sum(axis=1) @ bins.centers**2
    believed = square > 0.25 * size**2
    square = np.where(believed, square, size**2)
    mean = np.where(believed, mean + (rest[:, 2] - rest[:, 0]) @ bins.centers, mean)
    moved = np.abs(mean) > MOVE * np.sqrt(square)
    around = np.maximum(square - mean**2, 0.0) + (WITHIN_OCTAVE * size) ** 2
    center, scale = np.where(moved, mean, 0.0), np.sqrt(np.where(moved, around, square))
    far = np.abs(center)
    pays = (aside > ASIDE) & (far > HEAVY * scale) | moved & (far < MEAN) & (far > HEAVY_MEAN * scale)
    return center, scale, pays


@dataclass(frozen=True, eq=False)
class CloserLook:
    """What noisy histograms of (x − center)/scale say of columns whose rows may lie closer together.

    ``narrow`` columns show in a bin or two: they may be narrower still. In ``unclear`` ones noise hides the place: they
    are worth another look. ``missing`` is the share of users not seen around the place, ``noise`` its deviation.
    ``thin`` heaps are a bin or two, whatever else there is; those of ``whole`` ones lie at a small integer.
    """

    center: Floats
    scale: Floats
    narrow: NDArray[np.bool_]
    unclear: NDArray[np.bool_]
    missing: Floats
    noise: Floats
    thin: NDArray[np.bool_]
    whole: NDArray[np.bool_]


def closer_look(
    counts: Floats,
    sigma: Floats,
    bins: Bins,
    center: Floats,
    scale: Floats,
    n_users: int,
    flags: NDArray[np.bool_] | bool = True,
) -> CloserLook:
    """Better location and scale from noisy histograms of (x − center)/scale; ``sigma`` is the noise of each.

    Rows that do not lie in the heap count as one scale away. Around a narrow place the next look will tell of them
    (``lost_spread``). A standardized flag, which only ``flags`` may be, shows where as many rows as it would have lie
    across zero in the last bin, which holds what lies beyond.
    """
    step = float(bins.widths[0])
    place, width, doubt, strays, thin = read_place(counts, sigma, n_users)
    near = np.abs(np.arange(counts.shape[1]) + 0.5 - place[:, None]) <= 2.5 * np.maximum(width, doubt)[:, None] + 0.5
    missing, noise = 1 - (counts * near).sum(axis=1) / n_users, sigma * np.sqrt(near.sum(axis=1)) / n_users
    thin_heap, heap = (thin > SURE) & (doubt < 2), center + (bins.centers[0] + (place - 0.5) * step) * scale
    across = np.where(heap > 0, 1, -1) * (counts[:, 0] - counts[:, -1]) / n_users
    beyond = across + AGREES * math.sqrt(2) * sigma / n_users > missing / 2
    flag = flags & thin_heap & (missing >= 4 * noise) & beyond & may_be_flag(heap, missing, noise)
    narrow = thin_heap & (missing < 4 * noise) & ~flag
    hidden = np.where(narrow | flag, 0.0, strays)
    move = (1 - hidden) * (heap - center)
    spread = np.minimum((1 - hidden) * (width**2 + doubt**2) * step**2 + hidden, 1.0)
    found = np.where(flag, flag_scale(heap, n_users), np.sqrt(spread) * scale)
    unclear = ~narrow & ~flag & ((doubt > UNCLEAR * width) | ((thin > 1 - SURE) & (missing < 4 * noise)))
    code = np.clip(np.rint(heap), -LARGEST_CODE, LARGEST_CODE)
    whole = thin_heap & (code != 0) & (np.abs(heap - code) < step * scale)
    return CloserLook(center + move, found, narrow, unclear, missing, noise, thin_heap, whole)


def may_be_flag(heap: Floats | float, missing: Floats | float, error: Floats | float) -> NDArray[np.bool_]:
    """Whether ``heap`` may be the common value of a standardized flag, with the share ``missing`` at the rare one.

    Of a flag that is p of the time at √((1 − p)/p), the common value is the inverse of that, across zero. The share of
    rows, which somebody standardized, may be ``LEAST`` to ``MOST`` times the mean one of users, which is seen here.
    """
    share, doubt = np.square(heap) / (1 + np.square(heap)), AGREES * np.asarray(error)
    agrees = (missing + doubt > LEAST * share) & (missing - doubt < MOST * share)
    return np.asarray((np.abs(heap) < NEAR) & agrees)


def flag_scale(heap: Floats | float, n_users: int) -> Floats:
    """Scale of such a flag. Of values that fewer than one user in n has nothing is learnt."""
    return np.asarray(FLAG * np.maximum(1 / np.maximum(np.abs(heap), 1 / math.sqrt(n_users)), 1.0))


def hidden_scale(
    center: float, whole: bool, sizes: Floats, missing: Floats, noise: Floats, n_users: int
) -> float | None:
    """Scale of a column that is a bin or two in several looks; None if its place says nothing of what is elsewhere.

    At a small integer it is one of a flag, a grade or a count, unless looks have lost rows closer by. Near zero it
    is a standardized flag if looks missed as many rows as that would have there, the first, widest one too.
    """
    if whole:
        return None if lost_spread(sizes, missing, noise) else FLAG
    precision = float((1 / noise**2).sum())
    share = float((missing / noise**2).sum()) / precision
    agrees = may_be_flag(center, share, 1 / math.sqrt(precision)) & may_be_flag(center, missing[0], noise[0])
    return float(flag_scale(center, n_users)) if agrees else None


def lost_spread(scales: Floats, missing: Floats, noise: Floats) -> float:
    """What users add to a column's scale who were lost in closer and closer looks with these ``scales``.

    Every look misses the users that an earlier one lost, and those lie about one of its scales away. They count if the
    look that explains the shares best exceeds four deviations of the noise, for the first scales are large. Which look
    lost them is then uncertain: scales are averaged by likelihood, for too small a one does more harm.
    """
    precision = np.cumsum(1 / noise[::-1] ** 2)[::-1]
    share = np.cumsum((missing / noise**2)[::-1])[::-1] / precision  # of users lost in this look, by all later ones
    evidence = np.maximum(share, 0.0) * np.sqrt(precision)
    if evidence.max() < LOST:
        return 0.0
    likely = np.exp(0.5 * (evidence**2 - evidence.max() ** 2))
    return float((likely * np.sqrt(np.clip(share, 0.0, 1.0))) @ scales / likely.sum())


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


def raised(curvature: Floats, share: float) -> Floats:
    """The matrix plus this share of its mean in every direction, and public steps that part equal eigenvalues.

    Of those rounding would choose the vectors, others with another engine, and noise of the same seed would fall into
    other directions.
    """
    size = len(curvature)
    return np.asarray(curvature + np.trace(curvature) / size * np.diag(share + TIES * np.linspace(0.0, 1.0, size)))


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
