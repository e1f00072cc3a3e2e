"""DeepFM on Frappe in PyTorch, for `monolith bench frappe`: the published settings (BARS, frappe_x1), until the validation AUC is reached.

usage: python3 frappe_torch.py FOLDER DATASET THREADS SEED TARGET. DATASET has the libfm files. All rows are in memory before it says that
it is ready. A line read is the most epochs; the answer is how many it took, the seconds of training and validation, and the AUC.

dim 10, 400x3 with batch normalisation, dropout .2, L2 of all rows (.05 / 2), Adam, gradients clipped to a norm of 10; rates are a tenth
after an epoch that was no better.
"""

import gzip
import os
import sys
import time

dataset, threads, seed, target = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)

try:
    import numpy as np
    import torch
    from torch import nn
except Exception as e:  # a broken installation raises many kinds
    print("absent", f"{type(e).__name__}: {e}".splitlines()[0], flush=True)
    sys.exit()

torch.set_num_threads(threads)
torch.set_num_interop_threads(1)
torch.set_flush_denormal(True)
torch.manual_seed(seed)


def read(name):
    with gzip.open(os.path.join(dataset, name), "rt") as lines:
        rows = np.array([[float(t.split(":")[0]) for t in line.split()] for line in lines])
    return torch.from_numpy(rows[:, 1:].astype(np.int64)), torch.from_numpy((rows[:, 0] > 0).astype(np.float32))


x, y = read("frappe.train.rebuilt.libfm.gz")
xv, yv = read("frappe.validation.libfm.gz")
IDS, FIELDS, DIM, BATCH = int(max(x.max(), xv.max())) + 1, x.shape[1], 10, 4096
vectors, weights = nn.Embedding(IDS, DIM), nn.Embedding(IDS, 1)
nn.init.normal_(vectors.weight, std=1e-4)
nn.init.normal_(weights.weight, std=1e-4)
layers, width = [], FIELDS * DIM
for _ in range(3):
    layers += [nn.Linear(width, 400), nn.BatchNorm1d(400), nn.ReLU(), nn.Dropout(0.2)]
    width = 400
net = nn.Sequential(*layers, nn.Linear(width, 1))
for m in net:
    if isinstance(m, nn.Linear):
        nn.init.xavier_normal_(m.weight)
        nn.init.zeros_(m.bias)
parameters = [*vectors.parameters(), *weights.parameters(), *net.parameters()]
rule = torch.optim.Adam(parameters, 1e-3, fused=True)


def forward(rows):
    e = vectors(rows)
    s = e.sum(1)
    return weights(rows).sum((1, 2)) + 0.5 * (s * s - (e * e).sum(1)).sum(1) + net(e.flatten(1)).squeeze(1)


def auc():
    net.eval()
    with torch.no_grad():
        p = torch.cat([forward(xv[a : a + 8192]) for a in range(0, len(yv), 8192)]).numpy()
    net.train()
    _, place, count = np.unique(p, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]  # ties have the mean of theirs
    positive = yv.numpy() > 0
    n = positive.sum()
    return (rank[positive].sum() - n * (n + 1) / 2) / (n * (len(p) - n))


print("ready", f"torch {torch.__version__}", flush=True)
for line in sys.stdin:
    begin, best, epoch = time.perf_counter(), 0.0, 0
    while epoch < int(line) and best < target:
        epoch += 1
        order = torch.randperm(len(y))
        for a in range(0, len(y), BATCH):
            rows = order[a : a + BATCH]
            rule.zero_grad(set_to_none=True)
            loss = nn.functional.binary_cross_entropy_with_logits(forward(x[rows]), y[rows])
            loss = loss + 0.025 * (vectors.weight.square().sum() + weights.weight.square().sum())
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 10.0)
            rule.step()
        got = auc()
        if got <= best + 1e-6:
            for group in rule.param_groups:
                group["lr"] *= 0.1
        best = max(best, got)
    print(epoch, time.perf_counter() - begin, best, flush=True)
