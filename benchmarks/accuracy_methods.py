"""What is compared: each method takes a task, ε, δ and a seed and returns coefficients on standardized features.

The rivals get the standardization of the features for free, and the hints that their authors leave to the user (clip,
radius, concentration) from the data without paying. Ours gets the rows as they came and nothing else.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from accuracy_data import Task, loss_of
from speed_rivals import interpreter

from userdp import baselines
from userdp.algorithms.fit import fit_linear, fit_location
from userdp.algorithms.release import LinearRelease
from userdp.data import UserDataset
from userdp.losses import FeatureMap, Hinge, LinearModel, Logistic
from userdp.mechanisms.noise import SeededNoise
from userdp.mechanisms.sampling import sample_rows

CLAMP = 3.0  # standard deviations, where a method needs bounded rows
LARGEST_PAIRWISE = 5000  # users, for methods that compare all pairs
LARGEST_GROUPED = 200_000  # rows that are handed to diffprivlib
STRENGTHS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1.0)  # its parameter C; 1 is the default


@dataclass(frozen=True, eq=False)
class MeanTask:
    """Estimating the mean over users of their mean rows, in standard deviations; risk is half the squared distance."""

    task: Task
    best_risk: float = 0.0

    @property
    def name(self) -> str:
        return f"mean of {self.task.name}"

    @property
    def n_users(self) -> int:
        return self.task.n_users

    @property
    def dataset(self) -> UserDataset:
        return self.task.dataset

    @cached_property
    def map(self) -> FeatureMap:
        """Scales from the data, a public centre that is one standard deviation off."""
        known = self.task.map
        return replace(known, center=known.center - known.scale, intercept=False)

    @cached_property
    def points(self) -> np.ndarray:
        """Mean row of every user."""
        rows = self.map.rows(self.task.X)
        return np.add.reduceat(rows, self.task.offsets[:-1], axis=0) / np.diff(self.task.offsets)[:, None]

    def risk(self, theta: np.ndarray) -> float:
        return float(np.sum((theta - self.points.mean(axis=0)) ** 2)) / 2

    @property
    def constant_excess(self) -> float:
        return self.risk(np.zeros(self.points.shape[1]))


@lru_cache(maxsize=4)
def lengths(task: Task) -> np.ndarray:
    """Lengths of the users' gradients at 0, standardized features."""
    return np.linalg.norm(_model(task).user_gradients(task.dataset.blocks[0], np.zeros(task.rows.shape[1])), axis=1)


def _model(task: Task) -> LinearModel:
    return LinearModel(task.loss, task.map)


def _clamped(task: Task) -> LinearModel:
    return LinearModel(task.loss, replace(task.map, bound=CLAMP))


def ours(task: Task, epsilon: float, delta: float, seed: int) -> LinearRelease:
    scale = not isinstance(task.loss, (Logistic, Hinge))
    release, _ = fit_linear(
        task.dataset, task.loss, scale_target=scale, epsilon=epsilon, delta=delta, random_state=seed
    )
    return release


def ours_standardized(task: Task, epsilon: float, delta: float, seed: int) -> LinearRelease:
    """Ours on rows that were standardized beforehand, as pipelines do; the model is for the rows as they came."""
    release = ours(replace(task, X=np.ascontiguousarray(task.rows[:, :-1])), epsilon, delta, seed)
    center, scale = task.map.center, task.map.scale
    coef, lower, upper = release.coef / scale, center + scale * release.lower, center + scale * release.upper
    return replace(release, coef=coef, intercept=release.intercept - coef @ center, lower=lower, upper=upper)


def our_mean(task: MeanTask, epsilon: float, delta: float, seed: int) -> np.ndarray:
    release, _ = fit_location(task.dataset, "mean", epsilon=epsilon, delta=delta, random_state=seed)
    return (release.location - task.map.center) / task.map.scale


def _dpgd(adaptive: bool) -> Callable[..., np.ndarray]:
    def run(task: Task, epsilon: float, delta: float, seed: int) -> np.ndarray:
        clip = float(np.median(lengths(task)))
        settings = {"epsilon": epsilon, "delta": delta, "clip": clip, "adaptive": adaptive, "random_state": seed}
        return baselines.user_dpgd(task.dataset, _model(task), steps=30, rate=4.0, **settings).theta

    return run


def _clamped_method(method: Callable[..., baselines.BaselineRelease], **options: object) -> Callable[..., np.ndarray]:
    def run(task: Task, epsilon: float, delta: float, seed: int) -> np.ndarray:
        budget = {"epsilon": epsilon, "delta": delta, "random_state": seed}
        return method(task.dataset, _clamped(task), **budget, **options).theta

    return run


def group(task: Task, epsilon: float, delta: float, seed: int) -> np.ndarray:
    budget = {"epsilon": epsilon, "delta": delta, "random_state": seed}
    return baselines.group_privacy(task.dataset, _clamped(task), max_rows=_typical_rows(task), **budget).theta


def levy(task: Task, epsilon: float, delta: float, seed: int) -> np.ndarray:
    spread = float(np.quantile(lengths(task), 0.8))
    hints = {"concentration": 2 * spread / math.sqrt(task.rows.shape[1]), "bound": 2 * spread}
    budget = {"epsilon": epsilon, "delta": delta, "random_state": seed}
    return baselines.levy2021(task.dataset, _model(task), **hints, **budget).theta


def asi_liu(task: Task, epsilon: float, delta: float, seed: int) -> np.ndarray:
    spread = 1.5 * float(np.quantile(lengths(task), 0.8))
    budget = {"epsilon": epsilon, "delta": delta, "random_state": seed}
    try:
        return baselines.asi_liu2024(task.dataset, _model(task), concentration=spread, **budget).theta
    except ValueError:  # refused before data was touched: too few users for its proof
        return np.full(task.rows.shape[1], np.nan)


def narayanan(task: Task, epsilon: float, delta: float, seed: int) -> np.ndarray:
    radius = math.sqrt(task.rows.shape[1]) * float(np.quantile(lengths(task), 0.8))
    budget = {"epsilon": epsilon, "delta": delta, "random_state": seed}
    return baselines.narayanan2022(task.dataset, _model(task), radius=radius, rate=0.5, **budget).theta


def _typical_rows(task: Task) -> int:
    return max(int(np.median(np.diff(task.offsets))), 1)


def _grouped_rows(task: Task) -> int:
    """Rows a user that diffprivlib is given: the median, or as many as keep it below ``LARGEST_GROUPED`` altogether."""
    return max(min(_typical_rows(task), LARGEST_GROUPED // task.n_users), 1)


@lru_cache(maxsize=1)
def _worker() -> subprocess.Popen[str]:
    """An interpreter that fits every file it is told of; diffprivlib needs an older scikit-learn than this library."""
    command = [interpreter("diffprivlib"), str(Path(__file__).with_name("diffprivlib_fit.py"))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _diffprivlib(rows: Callable[[Task], int]) -> Callable[..., np.ndarray]:
    """diffprivlib's item-level logistic regression on at most m rows a user, with ε divided by m.

    The best of several strengths of regularization, chosen on the answer: its default leaves little but noise.
    """

    def run(task: Task, epsilon: float, delta: float, seed: int) -> np.ndarray:
        limit = rows(task)
        features, target, _ = sample_rows(task.dataset, limit, SeededNoise(seed)).arrays()
        mapped = np.clip(task.map.rows(features)[:, :-1], -CLAMP, CLAMP)
        norm = CLAMP * math.sqrt(mapped.shape[1])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.npz"
            np.savez(path, X=mapped, y=target, epsilon=epsilon / limit, norm=norm, seed=seed, C=STRENGTHS)
            print(path, file=_worker().stdin, flush=True)
            if _worker().stdout.readline() != "done\n":
                raise RuntimeError("diffprivlib failed: its message is above")
            return min(np.load(path.with_suffix(".npy")), key=task.risk)

    return run


def _mean(method: Callable[..., baselines.BaselineRelease], hint: str) -> Callable[..., np.ndarray]:
    def run(task: MeanTask, epsilon: float, delta: float, seed: int) -> np.ndarray:
        spread = np.linalg.norm(task.points - task.points.mean(axis=0), axis=1)
        size = 2 * float(np.median(spread)) if hint == "distance" else CLAMP
        budget = {"epsilon": epsilon, "delta": delta, "random_state": seed}
        return method(task.dataset, task.map, **{hint: size}, **budget).theta

    return run


METHODS: dict[str, Callable[..., np.ndarray]] = {
    "ours": ours,
    "ours standardized": ours_standardized,
    "user_dpgd fixed": _dpgd(adaptive=False),
    "user_dpgd adaptive": _dpgd(adaptive=True),
    "worst_case_output": _clamped_method(baselines.worst_case_output),
    "worst_case_output phased": _clamped_method(baselines.worst_case_output, phased=True),
    "one_row_per_user output": _clamped_method(baselines.one_row_per_user),
    "one_row_per_user objective": _clamped_method(baselines.one_row_per_user, perturbation="objective"),
    "group_privacy": group,
    "diffprivlib one row": _diffprivlib(lambda task: 1),
    "diffprivlib group": _diffprivlib(_grouped_rows),
    "levy2021": levy,
    "asi_liu2024": asi_liu,
    "narayanan2022": narayanan,
    "our mean": our_mean,
    "friendly_core": _mean(baselines.friendly_core, "distance"),
    "coordinate_clipping": _mean(baselines.coordinate_clipping, "bound"),
}
MEANS = ("our mean", "friendly_core", "coordinate_clipping")
PAIRWISE = ("asi_liu2024", "narayanan2022", "friendly_core")
NEEDS_LIPSCHITZ = tuple(name for name in METHODS if name.startswith(("worst", "one_row", "group", "diffprivlib")))


def why_not(name: str, dataset: str, users: float) -> str | None:
    """Why a method is not run on a task: it is not defined there, or not affordable; None if it is run."""
    if (name in MEANS) != dataset.startswith("mean of"):
        return "another task"
    if name in PAIRWISE and users > LARGEST_PAIRWISE:
        return f"{users * (users - 1) / 2:.1e} pairs"
    if dataset.startswith("mean of"):
        return None
    loss = loss_of(dataset)
    if name.startswith("diffprivlib") and not isinstance(loss, Logistic):
        return "logistic loss only"
    if name in NEEDS_LIPSCHITZ and not math.isfinite(loss.lipschitz):
        return "not Lipschitz"
    if name == "one_row_per_user objective" and not isinstance(loss, Logistic):
        return "not twice differentiable"
    return None
