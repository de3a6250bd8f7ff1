"""What noisy histograms say, read with templates: every shape that a histogram may have gets its likelihood.

Counts of n users are n times a distribution plus noise N(0, σ²) in every bin. Single bins are lost in the noise long
before the whole is: a template t, a distribution over the bins, is exp((n⟨t, counts⟩ − n²‖t‖²/2)/σ²) times as likely as
empty counts. What is read off is a mean over all templates by their posterior probability, so that noise gives way to
the public prior smoothly. All post-processing.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from userdp.losses.base import Floats

# Spreads of users' sizes around a place, in octaves (0: all in one bin; the second straddles an edge).
SPREADS = (0.0, 0.5, 0.7, 1.1, 1.7, 2.5, 3.5)
ZEROS = (0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 0.93, 0.97, 0.99)
# Shares of the users whose values lie below zero, around it and above it.
SIDES = np.array(
    [
        (0, 1, 0),
        (0, 0, 1),
        (1, 0, 0),
        (0.25, 0.5, 0.25),
        (0, 0.6, 0.4),
        (0.4, 0.6, 0),
        (0, 0.2, 0.8),
        (0.8, 0.2, 0),
    ]
)
USUAL_OCTAVE = -1.0  # sizes between a rare flag and a standardized column are usual
STRANGEST = 8.0  # no size is less likely than e^-8 of a usual one: one column in a hundred is strange
HAS_ZEROS = 2.0  # a column has zeros only if they are seen: one far from zero has none
# Spreads in bins of a column that a zoom looks at, and shares of its rows that may lie anywhere.
WIDTHS = (0.0, 0.6, 1.0, 1.6, 2.5, 4.0, 6.5, 10.0, 16.0)
STRAYS = (0.0, 0.1, 0.3)
AROUND = 0.19  # standard deviation of a place around the middle of the histogram, over the whole of it
WITHIN = 0.29  # standard deviation inside a bin, in bins
CHUNK = 64  # columns at a time: their likelihoods take 20 MB


def normalized(scores: Floats) -> Floats:
    """Probabilities from log-likelihoods, along all axes but the first."""
    flat = scores.reshape(len(scores), -1)
    with np.errstate(under="ignore"):
        flat = np.exp(flat - flat.max(axis=1, keepdims=True))
    return np.asarray((flat / flat.sum(axis=1, keepdims=True)).reshape(scores.shape))


@dataclass(frozen=True, eq=False)
class Magnitudes:
    """Templates of ``magnitude_histograms``: a share of zeros × shares of the sides × a spread around a place.

    ``shapes``, (profiles, bins), are distributions of the sizes alone; a template is a triple (z, side, profile).
    """

    sizes: Floats
    shapes: Floats

    @classmethod
    @lru_cache(maxsize=4)
    def over(cls, centers: tuple[float, ...]) -> Magnitudes:
        """Templates for bins of these sizes, the zero bin first."""
        sizes = np.array(centers[1:])
        places, shapes = np.arange(len(sizes)), []
        for place, spread in itertools.product(places, SPREADS):
            if spread in (0.0, 0.5):
                shape = np.zeros(len(sizes))
                shape[place : place + 1 + (spread > 0)] = 1.0
            else:
                distance = (places - place) / spread
                shape = np.where(np.abs(distance) <= math.ceil(2.5 * spread) / spread, np.exp(-0.5 * distance**2), 0.0)
            shapes.append(shape / shape.sum())
        return cls(sizes, np.array(shapes))

    def read(self, counts: Floats, sigma: float, n_users: int) -> tuple[Floats, ...]:
        """Root mean square and mean over users of columns with noisy ``counts``, (columns, 3, bins); the probability
        that all users lie on one side of zero; and what the templates expect of the counts.
        """
        parts = [self._read(counts[i : i + CHUNK], sigma, n_users) for i in range(0, len(counts), CHUNK)]
        return tuple(np.concatenate(part) for part in zip(*parts))

    def _read(self, counts: Floats, sigma: float, n_users: int) -> tuple[Floats, ...]:
        other = 1 - np.array(ZEROS)[:, None, None]  # axes of templates: zeros, sides, profiles
        square, mean = self.shapes @ self.sizes**2, self.shapes @ self.sizes
        seen = SIDES @ (counts[:, :, 1:] @ self.shapes.T)  # (columns, sides, profiles)
        likely = other * seen[:, None] + (1 - other) * counts[:, 1, 0][:, None, None, None]
        length = (
            other**2 * np.square(SIDES).sum(axis=1)[:, None] * np.square(self.shapes).sum(axis=1) + (1 - other) ** 2
        )
        size = 0.5 * np.log(other[:, 0] * square)  # (zeros, profiles)
        prior = -np.minimum(np.abs(size / math.log(2) - USUAL_OCTAVE), STRANGEST) - HAS_ZEROS * (other[:, 0] < 1)
        weights = normalized(n_users * (likely - 0.5 * n_users * length) / sigma**2 + prior[:, None])
        balance = (SIDES[:, 2] - SIDES[:, 0])[:, None] * np.sqrt(other) * mean / np.sqrt(square)
        found = np.exp(np.einsum("czsp,zp->c", weights, size))
        expected = np.empty_like(counts)
        expected[:, :, 1:] = np.einsum("czsp,zu,st->ctp", weights, other[:, 0], SIDES, optimize=True) @ self.shapes
        expected[:, :, 0] = 0.0
        expected[:, 1, 0] = np.einsum("czsp,zu->c", weights, 1 - other[:, 0])
        aside = weights[:, 0, np.abs(SIDES[:, 2] - SIDES[:, 0]) == 1].sum(axis=(1, 2))
        return found, found * np.einsum("czsp,zsp->c", weights, balance), aside, n_users * expected


@lru_cache(maxsize=4)
def _places(bins: int) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Templates over equal bins, (templates, bins): places and spreads in bins, and log priors; spreads are alike."""
    middle, found = np.arange(bins) + 0.5, []
    for width in WIDTHS:
        at = middle if width == 0 else np.arange(0.0, bins, max(0.5, width / 2))
        for place, stray in itertools.product(at, STRAYS):
            if width == 0:
                shape = (middle == place).astype(np.float64)
            else:
                shape = np.exp(-0.5 * np.square((middle - place) / width)) / (math.sqrt(2 * math.pi) * width)
                shape /= max(float(shape.sum()), 0.9)
            prior = -math.log(len(at)) - 2.5 * (stray > 0) - 0.5 * ((place - bins / 2) / (AROUND * bins)) ** 2
            found.append(((1 - stray) * shape + stray / bins, place, math.hypot(width, WITHIN), stray, prior))
    shapes, places, widths, strays, priors = (np.array(part) for part in zip(*found))
    return shapes, places, widths, strays, priors


def read_place(counts: Floats, sigma: Floats, n_users: int) -> tuple[Floats, ...]:
    """Place and spread, in bins, of the heap in each noisy histogram; how sure the place is; the share of rows that may
    lie anywhere; and the probability that the heap is a bin or two.
    """
    shapes, places, widths, strays, priors = _places(counts.shape[1])
    fit = n_users * (counts @ shapes.T - 0.5 * n_users * np.square(shapes).sum(axis=1)) / np.square(sigma)[:, None]
    weights = normalized(fit + priors)
    place = weights @ places
    doubt = np.sqrt(np.maximum(weights @ places**2 - place**2, 0.0))
    return place, np.exp(weights @ np.log(widths)), doubt, weights @ strays, weights @ (widths < 1.3)
