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
from typing import Any, NamedTuple

import numpy as np

CACHE = Path(__file__).parent / "cache"
# Installed one line after the other: the build of torch that is wanted is there before Opacus asks for one.
ENVIRONMENTS = {
    "diffprivlib": (("diffprivlib==0.6.6", "scikit-learn<1.6"),),  # fails with newer scikit-learn
    "jax-privacy": (("jax-privacy==2.0.0",),),
    "opacus": (("torch==2.13.0",), ("opacus==1.6.0",)),
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
    print(0.0, *map(min, zip(*times)), model.n_iter_[0] + 1)
"""

# Users with about as many rows are stacked, padded to the longest of them: gradients are vectorized over users.
PADDED = """
    import sys, time, warnings
    import numpy as np
    warnings.simplefilter("ignore")
    folder, passes, clip = sys.argv[1], int(sys.argv[2]), 1.0
    X, y, users = (np.load(f"{folder}/{name}.npy") for name in ("X", "y", "users"))
    n = int(users.max()) + 1

    def padded(stacks):
        counts = np.bincount(users)
        by_length = np.argsort(counts, kind="stable")
        rank = np.empty(n, np.min_scalar_type(n))
        rank[by_length] = np.arange(n)
        owner, counts = rank[users], counts[by_length]
        order, ends = np.argsort(owner, kind="stable"), np.concatenate([[0], np.cumsum(counts)])
        out = []
        for part in np.array_split(np.arange(n), stacks):
            first, last = part[0], part[-1] + 1
            chosen = order[ends[first] : ends[last]]
            user = owner[chosen].astype(np.int64)
            to = user - first, np.arange(ends[first], ends[last]) - ends[user]
            rows = np.zeros((len(part), counts[last - 1], X.shape[1]), np.float32)
            labels, weights = np.zeros(rows.shape[:2], np.float32), np.zeros(rows.shape[:2], np.float32)
            rows[to], labels[to], weights[to] = X[chosen], y[chosen], 1 / counts[user]
            out.append((rows, labels, weights))
        return out

    def report(fit_with, settings):
        # The fastest setting in a short trial is measured; stacking is timed on its own.
        fastest = min(settings, key=lambda setting: fit_with(2, *setting)[1])
        times = [fit_with(passes, *fastest) for _ in range(3)]
        print("fastest:", *fastest, file=sys.stderr)
        print(*map(min, zip(*times)), passes)
"""

JAX_PRIVACY = (
    PADDED
    + """
    import jax, jax.numpy as jnp
    from jax_privacy.clipping import clipped_grad

    def loss(w, x, y, weight):
        z = x @ w[:-1] + w[-1]
        return jnp.sum(weight * (jnp.logaddexp(0.0, z) - y * z))

    def fit_with(passes, stacks, size):
        gradient = clipped_grad(
            loss, l2_clip_norm=clip, batch_argnums=(1, 2, 3), keep_batch_dim=False, microbatch_size=size
        )

        @jax.jit
        def step(w, key, data):
            noise = clip * jax.random.normal(key, w.shape)
            return w - 4.0 * (sum(gradient(w, *part) for part in data) + noise) / n

        started = time.perf_counter()
        data = [tuple(jnp.asarray(array) for array in part) for part in padded(stacks)]
        stacked = time.perf_counter() - started
        keys = jax.random.split(jax.random.key(0), passes)
        w = jnp.zeros(X.shape[1] + 1)
        step(w, keys[0], data).block_until_ready()  # compiled before the clock runs
        started, work = time.perf_counter(), time.process_time()
        for key in keys:
            w = step(w, key, data)
        w.block_until_ready()
        return stacked, time.perf_counter() - started, time.process_time() - work

    sizes = [(1, size) for size in (1000, 100) if n % size == 0]
    report(fit_with, [(1, None), (8, None), *sizes])
"""
)

# Ghost clipping is left out: it is quadratic in the rows of a user, and meant for layers far larger than this one.
OPACUS = (
    PADDED
    + """
    import torch
    from opacus.grad_sample import wrap_model
    from opacus.optimizers import DPOptimizer

    def fit_with(passes, mode, stacks, threads):
        torch.set_num_threads(threads)
        started = time.perf_counter()
        data = [tuple(torch.from_numpy(array) for array in part) for part in padded(stacks)]
        stacked = time.perf_counter() - started
        linear = torch.nn.Linear(X.shape[1], 1)
        torch.nn.init.zeros_(linear.weight), torch.nn.init.zeros_(linear.bias)
        model = wrap_model(linear, grad_sample_mode=mode, loss_reduction="sum")
        descent = torch.optim.SGD(model.parameters(), lr=4.0)
        optimizer = DPOptimizer(descent, noise_multiplier=1.0, max_grad_norm=clip, expected_batch_size=n)

        def step():
            for i, (rows, labels, weights) in enumerate(data):
                optimizer.signal_skip_step(i + 1 < len(data))  # one step for all stacks
                losses = torch.nn.functional.binary_cross_entropy_with_logits(
                    model(rows)[..., 0], labels, weights, reduction="sum"
                )
                losses.backward()
                optimizer.step()
                optimizer.zero_grad()

        step()
        started, work = time.perf_counter(), time.process_time()
        for _ in range(passes):
            step()
        return stacked, time.perf_counter() - started, time.process_time() - work

    modes, cores = ("hooks", "ew", "functorch"), sorted({1, torch.get_num_threads()})
    report(fit_with, [(mode, stacks, threads) for mode in modes for stacks in (1, 8) for threads in cores])
"""
)
CODE = {"diffprivlib": DIFFPRIVLIB, "jax-privacy": JAX_PRIVACY, "opacus": OPACUS}


class Measured(NamedTuple):
    """Best seconds of a rival: stacking users (wall), its passes (wall and processor), and the number of passes."""

    stacking: float
    wall: float
    work: float
    passes: float


def interpreter(name: str) -> str:
    """Path of an interpreter that has the package; makes its environment if there is none."""
    if name == "diffprivlib" and "DIFFPRIVLIB_PYTHON" in os.environ:
        return os.environ["DIFFPRIVLIB_PYTHON"]
    folder = CACHE / f"rivals-{name}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"    installing {', '.join(sum(ENVIRONMENTS[name], ()))} into {folder}", flush=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        for packages in ENVIRONMENTS[name]:
            _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
        ready.touch()
    return str(python)


def measured(name: str, X: Any, y: Any, users: Any, *arguments: str) -> Measured:
    """A rival's fit on this data; ``users`` are numbers 0, 1, …"""
    with tempfile.TemporaryDirectory() as folder:
        for part, values in (("X", X), ("y", y), ("users", users)):
            np.save(Path(folder) / f"{part}.npy", values)
        output = _run([interpreter(name), "-c", textwrap.dedent(CODE[name]), folder, *arguments])
    return Measured(*map(float, output.split()[-4:]))


def _run(command: list[str]) -> str:
    # Threads of torch that spin while they wait lose most of their time on a machine that others use too.
    quiet = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, capture_output=True, text=True, env=quiet)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout)[-2000:])
    return done.stdout


if __name__ == "__main__":
    for package in ENVIRONMENTS:
        print(interpreter(package))
