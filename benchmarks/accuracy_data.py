"""Tasks of the accuracy benchmark: rows sorted by user, their loss, the non-private optimum to compare with."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from accuracy_development import DEVELOPMENT
from accuracy_tables import FURTHER, HELD_OUT
from scipy.optimize import minimize, minimize_scalar

from userdp.algorithms.release import LinearRelease
from userdp.data import UserBlock, UserDataset
from userdp.losses import FeatureMap, Hinge, Logistic, Loss, Pinball, Squared
from userdp.losses.kink import widened
from userdp.report.demo import flights

# Shared folders and the task of each that the benchmark fits; the rest are classifications by default.
FOLDERS = {
    "bank": ("bank", None),
    "insteval": ("insteval", None),
    "nlswork": ("nlswork", "clf"),
    "oulad": ("oulad", None),
    "ccdefault": ("ccdefault", None),
    "diabetes130": ("diabetes130", None),
    "nlswork wage": ("nlswork", None),
    "oulad score": ("oulad", "reg"),
}
# n, m, d of the synthetic classifications.
SYNTHETIC = {
    "synthetic 300": (300, 50, 10, 1),
    "synthetic 1000": (1000, 50, 20, 2),
    "synthetic 1000 few": (1000, 10, 20, 3),
}
CLASSIFICATION = ("bank", "insteval", "nlswork", "oulad", "ccdefault", "diabetes130", "flights", *SYNTHETIC)
REGRESSION = ("nlswork wage", "oulad score")
# The same rows under another loss.
KINKS: dict[str, tuple[str, Loss]] = {
    "nlswork wage median": ("nlswork wage", Pinball(0.5)),
    "nlswork wage 0.9-quantile": ("nlswork wage", Pinball(0.9)),
    "synthetic wage median": ("synthetic wage", Pinball(0.5)),
    "bank SVM": ("bank", Hinge()),
    "nlswork SVM": ("nlswork", Hinge()),
    "synthetic 1000 SVM": ("synthetic 1000", Hinge()),
}
TABLES = FURTHER | DEVELOPMENT | HELD_OUT
TABLES_REGRESSION = ("star", "wages", "spanish_firms", "airfare", "michigan", "growth")
# Widths over which the kinks of a loss are smoothed one after another, on the way to the non-private optimum.
WIDTHS = (1.0, 0.1, 0.01, 0.001)


def loss_of(name: str) -> Loss:
    """The loss of a task, its parts included."""
    name = base_name(name)
    if name in KINKS:
        return KINKS[name][1]
    return Squared() if name in (*REGRESSION, *TABLES_REGRESSION) else Logistic()


def base_name(name: str) -> str:
    """The dataset that a task on fewer users or rows, or a mean, is part of."""
    return re.sub(r" [nm]=\d+$", "", name.removeprefix("mean of "))


@dataclass(frozen=True, eq=False)
class Task:
    """Rows in user order; the target of a regression is in units of its standard deviation."""

    name: str
    X: np.ndarray
    y: np.ndarray
    offsets: np.ndarray
    loss: Loss

    @property
    def n_users(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def map(self) -> FeatureMap:
        """Non-private standardization, what the rivals get for free."""
        scale = self.X.std(axis=0)
        return FeatureMap(self.X.mean(axis=0), np.where(scale < 1e-12, 1.0, scale), intercept=True)

    @cached_property
    def rows(self) -> np.ndarray:
        return self.map.rows(self.X)

    @cached_property
    def weights(self) -> np.ndarray:
        counts = np.diff(self.offsets)
        return np.repeat(1.0 / np.maximum(counts, 1), counts) / self.n_users

    @cached_property
    def dataset(self) -> UserDataset:
        names = tuple(f"x{i}" for i in range(self.X.shape[1]))
        return UserDataset((UserBlock(self.X, self.y, self.offsets),), tuple(range(self.n_users)), names)

    def risk(self, model: np.ndarray | LinearRelease) -> float:
        """User-weighted mean loss of a release, or of coefficients on standardized features, the intercept last."""
        predicted = model.predictions(self.X) if isinstance(model, LinearRelease) else self.rows @ model
        return float(self.weights @ self.loss.value(predicted, self.y))

    @cached_property
    def optimum(self) -> np.ndarray:
        """Newton's method with halving; one step for the squared loss."""
        theta, rows = np.zeros(self.rows.shape[1]), self.rows
        if hasattr(self.loss, "kink"):
            return self._sharpened(theta)
        value = self.risk(theta)
        for _ in range(60):
            predicted = rows @ theta
            gradient = rows.T @ (self.weights * self.loss.derivative(predicted, self.y))
            curvature = (rows * (self.weights * self.loss.curvature(predicted, self.y))[:, None]).T @ rows
            step = np.linalg.lstsq(curvature + 1e-9 * np.eye(len(theta)), gradient, rcond=None)[0]
            length = 1.0
            while (new := self.risk(theta - length * step)) > value + 1e-13 and length > 1e-6:
                length /= 2
            theta, value = theta - length * step, min(new, value)
            if np.abs(gradient).max() < 1e-8:
                break
        return theta

    def _sharpened(self, theta: np.ndarray) -> np.ndarray:
        """Minimizers for narrower and narrower kinks, each started at the last one."""

        def value_and_gradient(point: np.ndarray, loss: Loss) -> tuple[float, np.ndarray]:
            predicted = self.rows @ point
            slopes = self.weights * loss.derivative(predicted, self.y)
            return float(self.weights @ loss.value(predicted, self.y)), self.rows.T @ slopes

        options = {"maxiter": 1000, "ftol": 1e-11, "gtol": 1e-7, "maxcor": 30}
        for width in WIDTHS:
            loss = widened(self.loss, width)
            theta = minimize(value_and_gradient, theta, (loss,), method="L-BFGS-B", jac=True, options=options).x
        return theta

    @cached_property
    def best_risk(self) -> float:
        return self.risk(self.optimum)

    @cached_property
    def constant_excess(self) -> float:
        """Excess of the best constant prediction."""
        values, codes = np.unique(self.y, return_inverse=True)
        weights = np.bincount(codes, self.weights)
        found = minimize_scalar(
            lambda constant: float(weights @ self.loss.value(np.full(len(values), constant), values)),
            bounds=(-20.0, 20.0),
            method="bounded",
            options={"xatol": 1e-9},
        )
        return float(found.fun) - self.best_risk

    def fewer_users(self, n_users: int, seed: int) -> Task:
        """A random sample of users."""
        kept = np.sort(np.random.default_rng(seed).permutation(self.n_users)[:n_users])
        return self._take(f"{self.name} n={n_users}", [np.arange(self.offsets[k], self.offsets[k + 1]) for k in kept])

    def fewer_rows(self, limit: int, seed: int) -> Task:
        """At most ``limit`` random rows of every user."""
        generator = np.random.default_rng(seed)
        parts = [
            self.offsets[k] + np.sort(generator.permutation(count)[:limit])
            for k, count in enumerate(np.diff(self.offsets))
        ]
        return self._take(f"{self.name} m={limit}", parts)

    def _take(self, name: str, parts: list[np.ndarray]) -> Task:
        rows = np.concatenate(parts)
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        return Task(name, self.X[rows], self.y[rows], offsets, self.loss)


def load(name: str, folder: Path) -> Task:
    """A task by its name."""
    if name in KINKS:
        base, loss = KINKS[name]
        return replace(load(base, folder), name=name, loss=loss)
    if name in TABLES:
        X, y, users = TABLES[name]()
        return _task(name, X, (y - y.mean()) / y.std() if name in TABLES_REGRESSION else y, users, loss_of(name))
    if name == "synthetic wage":
        return _synthetic_wage(name, 1000, 10, 20, 4)
    if name in SYNTHETIC:
        return _synthetic(name, *SYNTHETIC[name])
    if name == "flights":
        X, y, users, _ = flights()
        return _task(name, X, y, users, Logistic())
    place, kind = FOLDERS[name]
    X, y, users, _ = _loader(folder / place / "load.py")(**({} if kind is None else {"task": kind}))
    if name in REGRESSION:
        y = np.asarray(y, dtype=np.float64)
        return _task(name, X, (y - y.mean()) / y.std(), users, Squared())
    return _task(name, X, np.asarray(y, dtype=np.float64) > 0, users, Logistic())


def _loader(path: Path) -> Callable[..., tuple]:
    spec = importlib.util.spec_from_file_location(f"load_{path.parent.name}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(f"no dataset at {path.parent}: give its folder with --data, or leave it out with --datasets")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load


def _task(name: str, X: np.ndarray, y: np.ndarray, users: np.ndarray, loss: Loss) -> Task:
    _, codes = np.unique(np.asarray(users), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(codes))]).astype(np.int64)
    return Task(name, np.ascontiguousarray(X[order], dtype=np.float64), np.asarray(y, float)[order], offsets, loss)


def _synthetic(name: str, n: int, m: int, d: int, seed: int) -> Task:
    """Gaussian rows, a coefficient vector of length 6/√d."""
    generator = np.random.default_rng(seed)
    theta = generator.normal(size=d)
    theta *= 6 / np.linalg.norm(theta)
    X = generator.normal(size=(n * m, d))
    y = generator.random(n * m) < 1 / (1 + np.exp(-X @ theta / np.sqrt(d)))
    return _task(name, X, y, np.repeat(np.arange(n), m), Logistic())


def _synthetic_wage(name: str, n: int, m: int, d: int, seed: int) -> Task:
    """Gaussian rows, a coefficient vector of length 1, a level for every user and noise with heavy tails."""
    generator = np.random.default_rng(seed)
    theta = generator.normal(size=d)
    X = generator.normal(size=(n * m, d))
    y = X @ theta / np.linalg.norm(theta) + np.repeat(0.5 * generator.normal(size=n), m)
    y += 0.5 * generator.standard_t(3, size=n * m)
    return _task(name, X, (y - y.mean()) / y.std(), np.repeat(np.arange(n), m), Squared())
