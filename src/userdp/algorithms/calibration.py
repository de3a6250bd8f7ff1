"""What the default fit makes of its private histograms and moments: units, geometry, caps. All of it is post-processing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from userdp.data.blocks import UserBlock
from userdp.losses.base import Floats
from userdp.losses.linear import LinearModel
from userdp.mechanisms.histogram import Bins, signed_log_bins

# An octave a bin, from 10^-9 to 10^9 units of either sign.
FIRST_LOOK = signed_log_bins(2.0**-30, 2.0**30, 2.0)


def gradient_sizes(block: UserBlock, model: LinearModel, theta: Floats) -> Floats:
    """Length of each user's gradient."""
    gradients = model.user_gradients(block, theta)
    return np.asarray(np.sqrt(np.einsum("ki,ki->k", gradients, gradients)))


def visible(counts: Floats, sigma: float, histograms: int) -> NDArray[np.bool_]:
    """The runs of bins that stand out of the noise.

    A run of w = 1, 2, 4 or 8 bins is believed when its sum exceeds σ√w·(½ + √(2 ln N)), N being the number of runs in all
    ``histograms``: the largest of N sums of pure noise is about σ√(2w ln N). Its ends are cut back to bins above σ.
    """
    limit = sigma * (0.5 + math.sqrt(2 * math.log(4 * len(counts) * histograms)))
    believed = np.zeros(len(counts), dtype=bool)
    for width in (1, 2, 4, 8):
        doubtful = np.where(believed, 0.0, counts)  # a run must not live off a bin that stands out alone
        for start in np.flatnonzero(np.convolve(doubtful, np.ones(width), "valid") > limit * math.sqrt(width)):
            solid = start + np.flatnonzero(doubtful[start : start + width] > sigma)
            believed[solid.min() : solid.max() + 1] = True
    return believed


def first_look(counts: Floats, sigma: float, bins: Bins, n_users: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation of every feature from noisy histograms over all magnitudes, (features, bins).

    Magnitudes are sought in the sum of both signs. Where only zeros stand out the column is rare: ones are assumed, in
    half as many rows as could hide in the noise.
    """
    center, scale = np.zeros(len(counts)), np.full(len(counts), math.sqrt(min(2.0 * sigma / n_users, 1.0)))
    zero = len(bins.centers) // 2
    sizes, width = bins.centers[zero + 1 :], bins.widths[zero + 1 :]
    for i, row in enumerate(counts):
        positive, negative = row[zero + 1 :], row[zero - 1 :: -1]
        seen = visible(positive + negative, sigma * math.sqrt(2), len(counts))
        if seen.any():
            total = max(float((positive + negative)[seen].sum()) + max(float(row[zero]), 0.0), 1.0)
            center[i] = float((positive - negative)[seen] @ sizes[seen]) / total
            square = float((positive + negative)[seen] @ (sizes[seen] ** 2 + width[seen] ** 2 / 12)) / total
            least = float(np.min(width[seen] ** 2)) / 12 * 0.5
            scale[i] = math.sqrt(max(square - center[i] ** 2, least))
    return center, scale


def closer_look(
    counts: Floats, sigma: float, bins: Bins, center: Floats, scale: Floats, n_users: int
) -> tuple[Floats, Floats]:
    """Better location and scale from noisy histograms of (x − center)/scale, for features that lie far from zero.

    A feature within two scales of zero needs no better location, and its scale may rest on rare values a histogram of
    the bulk cannot see: it is left alone. Users whose votes stay hidden in the noise count as one scale away.
    """
    center, scale = center.copy(), scale.copy()
    for i, row in enumerate(counts):
        seen = np.where(visible(row, sigma, len(counts)), np.maximum(row, 0.0), 0.0)
        if abs(center[i]) > 2 * scale[i] and seen.any():
            hidden = max(1.0 - float(seen.sum()) / n_users, 0.0)
            move = float(seen @ bins.centers) / float(seen.sum())
            spread = float(seen @ (np.square(bins.centers - move) + np.square(bins.widths) / 12)) / float(seen.sum())
            center[i] += (1 - hidden) * move * scale[i]
            scale[i] *= math.sqrt((1 - hidden) * spread + hidden)
    return center, scale


def whitening(moment: Floats, sigma: float) -> Floats:
    """P with Pᵀ M P ≈ I for a noisy second moment M whose entries carry noise of standard deviation ``sigma``.

    M is shrunk towards a multiple of the identity by as much as noise explains of its spread (Ledoit and Wolf 2004), and
    its eigenvalues are raised by half the noise's spectral size, so that no direction looks smaller than it can be told.
    """
    size = len(moment)
    level = max(float(np.trace(moment)) / size, 1e-3)
    spread = float(np.square(moment - level * np.eye(size)).sum())
    share = min(sigma**2 * size * (size + 1) / 2 / max(spread, 1e-300), 1.0)
    values, vectors = np.linalg.eigh((1 - share) * moment + share * level * np.eye(size))
    floor = max(0.5 * (1 - share) * sigma * math.sqrt(size), 1e-6 * level)
    return np.asarray(vectors / np.sqrt(np.maximum(values, 0.0) + floor))


def clean(counts: Floats, sigma: float) -> Floats:
    """Shares of the bins around a noisy histogram's peak that stand out of the noise; at least one bin remains."""
    smooth = np.convolve(counts, [0.5, 1.0, 0.5], "same")
    peak = first = last = int(np.argmax(smooth))
    while first > 0 and smooth[first - 1] > 1.5 * sigma:
        first -= 1
    while last < len(counts) - 1 and smooth[last + 1] > 1.5 * sigma:
        last += 1
    kept = np.zeros_like(counts)
    kept[first : last + 1] = np.maximum(counts[first : last + 1], 0.0)
    kept[peak] += 1e-9
    return np.asarray(kept / kept.sum())


def choose_cap(shares: Floats, bins: Bins, dimension: int, noise_per_cap: float, alignment: float = 0.12) -> float:
    """The cap that minimizes predicted noise² + bias² of a mean of capped gradients.

    Noise: d·(noise_per_cap·γ)². Bias: capped users lose E(‖g‖ − γ)₊ of pull, of which the share ``alignment`` does not
    cancel between users.
    """
    caps = bins.centers
    lost = np.array([float(shares @ np.maximum(caps - cap, 0.0)) for cap in caps])
    return float(caps[int(np.argmin(dimension * (noise_per_cap * caps) ** 2 + (alignment * lost) ** 2))])
