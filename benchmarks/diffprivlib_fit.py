"""Fit diffprivlib's logistic regression on rows.npz; run by accuracy_methods.py under an interpreter that has it.

python -m venv .venv-diffprivlib && .venv-diffprivlib/bin/pip install diffprivlib==0.6.6 "scikit-learn<1.6"
DIFFPRIVLIB_PYTHON=.venv-diffprivlib/bin/python python benchmarks/accuracy.py
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from diffprivlib.models import LogisticRegression

path = Path(sys.argv[1])
data = np.load(path)
warnings.simplefilter("ignore")
model = LogisticRegression(
    epsilon=float(data["epsilon"]), data_norm=float(data["norm"]), random_state=int(data["seed"]), max_iter=1000
)
model.fit(data["X"], data["y"])
np.save(path.with_suffix(".npy"), np.append(model.coef_.ravel(), model.intercept_))
