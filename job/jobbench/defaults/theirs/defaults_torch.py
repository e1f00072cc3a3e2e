"""LR, FM or DeepFM in PyTorch with its usual settings, for job/jobbench/defaults.

usage: python3 defaults_torch.py KIND FOLDER BATCH SEED PASSES. FOLDER has train.libffm and valid.libffm: a label, then
field:index:value entries; entries of one field are a list. It writes seen.txt, the predictions of the first pass before each
step, and after each pass valid.N.txt.

Vectors and weights of ids N(0, .01), dim 16, MLP 400x3 with ReLU, Adam 1e-3 for everything. The first pass keeps the order
of the file; later ones are shuffled.
"""

import os
import sys

import numpy as np
import torch
from torch import nn

kind, folder, batch, seed, passes = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
torch.manual_seed(seed)
DIM = 16


def read(name):
    labels, rows = [], []
    with open(os.path.join(folder, name)) as lines:
        for line in lines:
            label, *entries = line.split()
            labels.append(float(label))
            rows.append([e.split(":") for e in entries])
    return labels, rows


def width_of(rows, widths):  # of each field the most entries of a row
    for row in rows:
        count = {}
        for f, _, _ in row:
            count[int(f)] = count.get(int(f), 0) + 1
        for f, n in count.items():
            widths[f] = max(widths.get(f, 0), n)


def tensors(labels, rows, widths):  # what a row lacks has index 0 and value 0
    begin, width = {}, 0
    for f in sorted(widths):
        begin[f], width = width, width + widths[f]
    index, value = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.float32)
    for r, row in enumerate(rows):
        at = dict(begin)
        for f, i, v in row:
            index[r, at[int(f)]], value[r, at[int(f)]] = int(i), float(v)
            at[int(f)] += 1
    return torch.from_numpy(index), torch.from_numpy(value), torch.tensor(labels)


train, valid, widths = read("train.libffm"), read("valid.libffm"), {}
width_of(train[1], widths)
width_of(valid[1], widths)
x, v, y = tensors(*train, widths)
xv, vv, _ = tensors(*valid, widths)
ids = int(max(x.max(), xv.max())) + 1
slices, at = [], 0
for f in sorted(widths):
    slices.append((at, at + widths[f]))
    at += widths[f]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights, self.bias = nn.Embedding(ids, 1), nn.Parameter(torch.zeros(1))
        nn.init.normal_(self.weights.weight, std=0.01)
        if kind != "lr":
            self.vectors = nn.Embedding(ids, DIM)
            nn.init.normal_(self.vectors.weight, std=0.01)
        if kind == "deepfm":
            layers, width = [], DIM * len(slices)
            for _ in range(3):
                layers += [nn.Linear(width, 400), nn.ReLU()]
                width = 400
            self.deep = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x, v):
        out = self.bias + (self.weights(x).squeeze(2) * v).sum(1)
        if kind == "lr":
            return out
        e = self.vectors(x) * v.unsqueeze(2)
        s = e.sum(1)
        out = out + 0.5 * (s * s - (e * e).sum(1)).sum(1)
        if kind == "deepfm":
            out = out + self.deep(torch.cat([e[:, a:b].sum(1) for a, b in slices], 1)).squeeze(1)
        return out


model = Model()
rule = torch.optim.Adam(model.parameters(), 1e-3)


def save(name, logits):
    np.savetxt(os.path.join(folder, name), torch.sigmoid(torch.cat(logits)).numpy(), fmt="%.7g")


for n in range(1, passes + 1):
    order, seen = torch.arange(len(y)) if n == 1 else torch.randperm(len(y)), []
    for a in range(0, len(y), batch):
        rows = order[a : a + batch]
        rule.zero_grad(set_to_none=True)
        logits = model(x[rows], v[rows])
        nn.functional.binary_cross_entropy_with_logits(logits, y[rows]).backward()
        rule.step()
        seen.append(logits.detach())
    if n == 1:
        save("seen.txt", seen)
    with torch.no_grad():
        save(f"valid.{n}.txt", [model(xv[a : a + 8192], vv[a : a + 8192]) for a in range(0, len(xv), 8192)])
