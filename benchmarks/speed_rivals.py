"""Rivals' own packages, each in an environment of its own, made on demand under benchmarks/cache.

``make bench-env`` makes them all. DIFFPRIVLIB_PYTHON names an interpreter that has diffprivlib already.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

CACHE = Path(__file__).parent / "cache"
ENVIRONMENTS = {
    "diffprivlib": ("diffprivlib==0.6.6", "scikit-learn<1.6"),  # fails with newer scikit-learn
    "jax-privacy": ("jax-privacy==2.0.0",),
}

DIFFPRIVLIB = """
    import sys, time, warnings
    import numpy as np
    from diffprivlib.models import LogisticRegression
    warnings.simplefilter("ignore")
    X, y = np.load(sys.argv[1] + "/X.npy"), np.load(sys.argv[1] + "/y.npy")
    times = []
    for _ in range(3):
        model = LogisticRegression(epsilon=1.0, data_norm=float(np.linalg.norm(X, axis=1).max()))
        started, work = time.perf_counter(), time.process_time()
        model.fit(X, y)
        times.append((time.perf_counter() - started, time.process_time() - work))
    print(*map(min, zip(*times)), model.n_iter_[0] + 1)
"""

# Users are stacked, padded to the longest: their gradients are vectorized over the first axis.
JAX_PRIVACY = """
    import sys, time
    import jax, jax.numpy as jnp
    import numpy as np
    from jax_privacy.clipping import clipped_grad

    folder, passes, clip = sys.argv[1], int(sys.argv[2]), 1.0
    X, y, users = (np.load(f"{folder}/{name}.npy") for name in ("X", "y", "users"))
    order = np.argsort(users, kind="stable")
    X, y, users = X[order], y[order], users[order]
    counts = np.bincount(users)
    place = np.arange(len(users)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.zeros((len(counts), counts.max(), X.shape[1]), np.float32)
    labels, weights = np.zeros(rows.shape[:2], np.float32), np.zeros(rows.shape[:2], np.float32)
    rows[users, place], labels[users, place] = X, y
    weights[users, place] = 1 / np.repeat(counts, counts)

    def loss(w, x, y, weight):
        z = x @ w[:-1] + w[-1]
        return jnp.sum(weight * (jnp.logaddexp(0.0, z) - y * z))

    def fit_with(size, passes):
        gradient = clipped_grad(
            loss, l2_clip_norm=clip, batch_argnums=(1, 2, 3), keep_batch_dim=False, microbatch_size=size
        )

        @jax.jit
        def step(w, key, *data):
            noise = clip * jax.random.normal(key, w.shape)
            return w - 4.0 * (gradient(w, *data) + noise) / len(counts)

        data = [jnp.asarray(part) for part in (rows, labels, weights)]
        keys = jax.random.split(jax.random.key(0), passes)
        w = jnp.zeros(X.shape[1] + 1)
        step(w, keys[0], *data).block_until_ready()  # compiled before the clock runs
        started, work = time.perf_counter(), time.process_time()
        for key in keys:
            w = step(w, key, *data)
        w.block_until_ready()
        return time.perf_counter() - started, time.process_time() - work

    sizes = [size for size in (None, 1000, 100) if size is None or len(counts) % size == 0]
    fastest = min(sizes, key=lambda size: fit_with(size, 2))
    print(*map(min, zip(*(fit_with(fastest, passes) for _ in range(3)))), passes)
"""


def interpreter(name: str) -> str:
    """Path of an interpreter that has the package; makes its environment if there is none."""
    if name == "diffprivlib" and "DIFFPRIVLIB_PYTHON" in os.environ:
        return os.environ["DIFFPRIVLIB_PYTHON"]
    folder = CACHE / f"rivals-{name}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"    installing {', '.join(ENVIRONMENTS[name])} into {folder}", flush=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *ENVIRONMENTS[name]])
        ready.touch()
    return str(python)


def measured(name: str, X: Any, y: Any, users: Any, *arguments: str) -> list[float]:
    """Best wall and processor seconds of a rival's fit on this data, and the number of its passes over the rows."""
    code = {"diffprivlib": DIFFPRIVLIB, "jax-privacy": JAX_PRIVACY}[name]
    with tempfile.TemporaryDirectory() as folder:
        for part, values in (("X", X), ("y", y), ("users", users)):
            np.save(Path(folder) / f"{part}.npy", values)
        output = _run([interpreter(name), "-c", textwrap.dedent(code), folder, *arguments])
    return [float(number) for number in output.split()[-3:]]


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout)[-2000:])
    return done.stdout


if __name__ == "__main__":
    for package in ENVIRONMENTS:
        print(interpreter(package))
