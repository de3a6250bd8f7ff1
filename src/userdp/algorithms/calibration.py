"""What the default fit makes of its private histograms and moments: units, geometry, caps. All of it is post-processing."""

from __future__ import annotations

import math

import numpy as np

from userdp.data.blocks import UserBlock
from userdp.losses.base import Floats
from userdp.losses.linear import LinearModel
from userdp.mechanisms.histogram import Bins, signed_log_bins

# Half an octave a bin, from 10^-9 to 10^9 units of either sign.
FIRST_LOOK = signed_log_bins(2.0**-30, 2.0**30, math.sqrt(2.0))


def gradient_sizes(block: UserBlock, model: LinearModel, theta: Floats) -> Floats:
    """Length of each user's gradient."""
    gradients = model.user_gradients(block, theta)
    return np.asarray(np.sqrt(np.einsum("ki,ki->k", gradients, gradients)))


def visible(counts: Floats, sigma: float, histograms: int) -> Floats:
    """The counts of the runs of bins that stand out of the noise, 0 elsewhere.

    A run of w = 1, 2, 4 or 8 bins is believed when its sum exceeds σ√w·(½ + √(2 ln N)), N being the number of runs in all
    ``histograms``: the largest of N sums of pure noise is about σ√(2w ln N). Its ends are cut back to bins above σ.
    """
    limit = sigma * (0.5 + math.sqrt(2 * math.log(4 * len(counts) * histograms)))
    believed = np.zeros(len(counts), dtype=bool)
    for width in (1, 2, 4, 8):
        for start in np.flatnonzero(np.convolve(counts, np.ones(width), "valid") > limit * math.sqrt(width)):
            solid = start + np.flatnonzero(counts[start : start + width] > sigma)
            believed[solid.min() : solid.max() + 1] = True
    return np.where(believed, np.maximum(counts, 0.0), 0.0)


def first_look(counts: Floats, sigma: float, bins: Bins, n_users: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation of every feature from noisy histograms over all magnitudes, (features, bins).

    Where only zeros stand out the column is rare: ones are assumed, in half as many rows as could hide in the noise.
    """
    center, scale = np.zeros(len(counts)), np.full(len(counts), math.sqrt(min(2.0 * sigma / n_users, 1.0)))
    zero = bins.centers == 0
    for i, row in enumerate(counts):
        seen = visible(np.where(zero, 0.0, row), sigma, len(counts))
        if seen.any():
            seen += np.where(zero, np.maximum(row - sigma, 0.0), 0.0)
            center[i], scale[i] = _mean_and_deviation(seen / seen.sum(), bins, np.where(zero, 0.0, bins.widths))
    return center, scale


def closer_look(counts: Floats, sigma: float, bins: Bins, center: Floats, scale: Floats) -> tuple[Floats, Floats]:
    """Better location and scale from noisy histograms of (x − center)/scale, for features that lie far from zero.

    A feature within two scales of zero needs no better location, and its scale may rest on rare values a histogram of
    the bulk cannot see: it is left alone.
    """
    center, scale = center.copy(), scale.copy()
    for i, row in enumerate(counts):
        seen = visible(row, sigma, len(counts))
        if abs(center[i]) > 2 * scale[i] and seen.any():
            move, shrink = _mean_and_deviation(seen / seen.sum(), bins, bins.widths)
            center[i], scale[i] = center[i] + move * scale[i], shrink * scale[i]
    return center, scale


def _mean_and_deviation(shares: Floats, bins: Bins, widths: Floats) -> tuple[float, float]:
    center = float(shares @ bins.centers)
    return center, math.sqrt(float(shares @ (np.square(bins.centers - center) + np.square(widths) / 12)))


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
