#!/usr/bin/env python3
"""Example weights in logistic regression, in float64, as TestExampleWeightsFollowNumpy compares them.

Each batch's loss is sum(w * cross entropy) / rows; every parameter is updated by SGD once a batch.
Written with numpy 2.4.6, Python 3.11.7:  python3 weights.py > weights.json
"""
import json

import numpy as np

rng = np.random.default_rng(8)
NUM_IDS, NUM_DENSE, LR = 12, 2, 0.3


def train(ids, x, y, w, batch):
    bias, dense, embedding, losses = 0.0, np.zeros(NUM_DENSE), np.zeros(NUM_IDS), []
    for at in range(0, len(y), batch):
        rows = slice(at, min(at + batch, len(y)))
        z = bias + x[rows] @ dense + embedding[ids[rows]].sum(axis=1)
        n = len(z)
        losses.append(float((w[rows] * (np.logaddexp(0, z) - y[rows] * z)).sum() / n))
        g = w[rows] * (1 / (1 + np.exp(-z)) - y[rows]) / n
        bias -= LR * g.sum()
        dense -= LR * (x[rows].T @ g)
        step = np.zeros(NUM_IDS)
        np.add.at(step, ids[rows], g[:, None])
        embedding -= LR * step
    return {"batch": batch, "losses": losses, "bias": bias, "dense": dense.tolist(), "embedding": embedding.tolist()}


rows = 60
ids = np.stack([rng.integers(0, 6, rows), rng.integers(6, NUM_IDS, rows)], axis=1)
x = rng.normal(size=(rows, NUM_DENSE)).astype(np.float32).astype(np.float64)
y = rng.integers(0, 2, rows).astype(float)
w = rng.choice([0.0, 0.01, 0.5, 1.0, 3.0], rows)
w = w.astype(np.float32).astype(np.float64)
print(json.dumps({
    "lr": LR, "ids": ids.tolist(), "x": x.tolist(), "labels": y.tolist(), "weights": w.tolist(),
    "runs": [train(ids, x, y, w, b) for b in (1, 7, 60)],
}))
