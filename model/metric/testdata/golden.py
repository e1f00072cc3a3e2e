"""Writes golden.json: metrics as scikit-learn computes them, for TestGoldens.

    python3 -m venv v && v/bin/pip install scikit-learn==1.9.1 scipy==1.17.1 && v/bin/python golden.py > golden.json

Numbers are multiples of 1/1024, so that float32 and float64 hold the same. scikit-learn has no expected calibration error,
normalised entropy and grouped AUC: they are put together here of its calibration_curve, log_loss and roc_auc_score, as the
papers say. xauc and xgauc are put together of SciPy's Somers' D, rows being repeated where they have weights.
"""

import json
import random

import numpy as np
import scipy
import sklearn
from scipy.stats import somersd
from sklearn import metrics
from sklearn.calibration import calibration_curve



def xauc(y, p):
    """How often a pair with different labels is predicted in their order; None where there is no such pair."""
    if len(set(y.tolist())) < 2:
        return None
    return 0.5 + 0.5 * somersd(y, p).statistic


random.seed(7)
cases = []
for name, n, weighted, levels in [("plain", 200, False, 1000), ("weighted", 200, True, 1000), ("ties", 300, True, 9)]:
    p = np.array([random.randint(1, levels) / (levels + 1) for _ in range(n)])
    p = np.clip(np.round(p * 1024), 1, 1023) / 1024
    y = np.array([1 if random.random() < (x * 0.7 + 0.1) else 0 for x in p])
    w = np.array([random.randint(0, 4) / 2 if weighted else 1.0 for _ in range(n)])
    groups = np.array([random.randint(0, 24) for _ in range(n)])
    value = np.round(np.array([random.gauss(3, 2) for _ in range(n)]) * 1024) / 1024
    guess = np.round((value * 0.8 + np.array([random.gauss(0, 1) for _ in range(n)])) * 1024) / 1024

    rate = float(np.average(y, weights=w))
    loss = metrics.log_loss(y, p, sample_weight=w)
    # Repeating rows by twice their weight, a whole number, makes the weighted curve of the unweighted one.
    times = (w * 2).astype(int)
    rp, ry = np.repeat(p, times), np.repeat(y, times)
    happened, predicted = calibration_curve(ry, rp, n_bins=15, strategy="uniform")
    counts = np.histogram(np.searchsorted(np.linspace(0, 1, 16)[1:-1], rp), bins=np.arange(16) - 0.5)[0]
    counts = counts[counts > 0]
    ece = float(np.sum(counts * np.abs(happened - predicted)) / np.sum(counts))
    area = total = 0.0
    for g in sorted(set(groups.tolist())):
        at = groups == g
        if w[at & (y == 1)].sum() > 0 and w[at & (y == 0)].sum() > 0:
            weight = w[at].sum()
            area += weight * metrics.roc_auc_score(y[at], p[at], sample_weight=w[at])
            total += weight
    rvalue, rguess, rgroups = (np.repeat(x, times) for x in (value, guess, groups))
    grouped = [(xauc(rvalue[rgroups == g], rguess[rgroups == g]), w[groups == g].sum()) for g in sorted(set(rgroups.tolist()))]
    grouped = [(v, weight) for v, weight in grouped if v is not None]
    cases.append({
        "name": name,
        "predictions": p.tolist(), "labels": y.tolist(), "weights": w.tolist() if weighted else None, "groups": groups.tolist(),
        "values": value.tolist(), "guesses": guess.tolist(),
        "want": {
            "auc": metrics.roc_auc_score(y, p, sample_weight=w),
            "pr_auc": metrics.average_precision_score(y, p, sample_weight=w),
            "gauc": area / total,
            "log_loss": loss,
            "normalized_entropy": loss / metrics.log_loss(y, np.full(n, rate), sample_weight=w),
            "calibration": float(np.average(p, weights=w)) / rate,
            "ece": ece,
            "accuracy": metrics.accuracy_score(y, p > 0.5, sample_weight=w),
            "mse": metrics.mean_squared_error(value, guess, sample_weight=w),
            "rmse": metrics.root_mean_squared_error(value, guess, sample_weight=w),
            "mae": metrics.mean_absolute_error(value, guess, sample_weight=w),
            "r2": metrics.r2_score(value, guess, sample_weight=w),
            "xauc": xauc(rvalue, rguess),
            "xgauc": sum(v * weight for v, weight in grouped) / sum(weight for _, weight in grouped),
        },
    })
print(json.dumps({"source": f"scikit-learn {sklearn.__version__}, numpy {np.__version__}, scipy {scipy.__version__}, golden.py", "cases": cases}, indent=None))
