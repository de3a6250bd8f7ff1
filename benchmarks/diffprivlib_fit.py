"""Fit diffprivlib's logistic regression on every .npz file named on standard input, one a line, for every C.

"done" on standard output after each.
Run by accuracy_methods.py under an interpreter that has diffprivlib (speed_rivals.py makes its environment).
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from diffprivlib.models import LogisticRegression

warnings.simplefilter("ignore")
for line in sys.stdin:
    path = Path(line.rstrip("\n"))
    data = np.load(path)
    settings = {"epsilon": float(data["epsilon"]), "data_norm": float(data["norm"]), "max_iter": 1000}
    models = [LogisticRegression(C=float(C), random_state=int(data["seed"]), **settings) for C in data["C"]]
    for model in models:
        model.fit(data["X"], data["y"])
    np.save(path.with_suffix(".npy"), [np.append(model.coef_.ravel(), model.intercept_) for model in models])
    print("done", flush=True)
