"""DeepFM in PyTorch, for `monolith bench step`: 39 fields, dim 16 and weights of first order, 400x3, as fast as that goes on a processor.

usage: python3 deepfm_torch.py FOLDER BATCH THREADS MODE, where MODE is eager, compiled, bf16 (compiled, with autocast to bfloat16) or
torchrec. All rows are in memory before it says that it is ready. Then each line read is a number of examples to train on; the
answer is how many they were, the seconds that took, and the last loss.

One table for all fields with sparse gradients is faster than a table for each or dense gradients; Adagrad on the table and fused Adam on
the rest are the rules of the job that this is compared with. TorchRec's tables update themselves in the pass back.
"""

import os
import sys

folder, batch, threads, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import time

try:
    import numpy as np
    import torch

    if mode == "torchrec":
        import torchrec
        from torchrec import EmbeddingBagConfig, KeyedJaggedTensor
        from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
except Exception as e:  # a broken installation raises many kinds
    print("absent", f"{type(e).__name__}: {e}".splitlines()[0], flush=True)
    sys.exit()

from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

torch.set_num_threads(threads)
torch.set_num_interop_threads(1)
torch.set_flush_denormal(True)
torch.manual_seed(1)

FIELDS, IDS, DIM = 39, 25600, 16
y = torch.from_numpy(np.fromfile(os.path.join(folder, "label.u8"), np.uint8).astype(np.float32))
x = torch.from_numpy(np.fromfile(os.path.join(folder, "ids.u32"), np.uint32).reshape(-1, FIELDS).astype(np.int64))

layers, width = [], FIELDS * DIM
for _ in range(3):
    layers += [nn.Linear(width, 400), nn.ReLU()]
    width = 400
net = nn.Sequential(*layers, nn.Linear(width, 1))
rules = [torch.optim.Adam(net.parameters(), 1e-3, fused=True)]


def head(e, first):
    s = e.sum(1)
    return first.sum(1) + 0.5 * (s * s - (e * e).sum(1)).sum(1) + net(e.flatten(1)).squeeze(1)


if mode == "torchrec":
    names = [f"f{i}" for i in range(FIELDS)]

    def tables(dim, prefix):
        configs = [EmbeddingBagConfig(name=prefix + n, embedding_dim=dim, num_embeddings=IDS, feature_names=[n]) for n in names]
        return FusedEmbeddingBagCollection(configs, optimizer_type=torch.optim.Adagrad, optimizer_kwargs={"lr": 1e-2}, device=torch.device("cpu"))

    vectors, weights = tables(DIM, "e"), tables(4, "l")  # its tables want multiples of 4
    x -= torch.arange(FIELDS) * IDS
    offsets = torch.arange(FIELDS * batch + 1)

    def forward(rows):
        bags = KeyedJaggedTensor(keys=names, values=rows.t().contiguous().view(-1), offsets=offsets)
        e = vectors(bags).values().view(-1, FIELDS, DIM)
        return head(e, weights(bags).values().view(-1, FIELDS, 4)[..., 0])

else:
    vectors, weights = nn.Embedding(FIELDS * IDS, DIM, sparse=True), nn.Embedding(FIELDS * IDS, 1, sparse=True)
    nn.init.normal_(vectors.weight, std=1e-2)
    nn.init.zeros_(weights.weight)
    rules.append(torch.optim.Adagrad([vectors.weight, weights.weight], 1e-2))
    if mode != "eager":
        head = torch.compile(head)

    def forward(rows):
        with torch.autocast("cpu", torch.bfloat16, enabled=mode == "bf16"):
            return head(vectors(rows), weights(rows).squeeze(-1)).float()


def step(a):
    for rule in rules:
        rule.zero_grad(set_to_none=True)
    loss = binary_cross_entropy_with_logits(forward(x[a : a + batch]), y[a : a + batch])
    loss.backward()
    for rule in rules:
        rule.step()
    return loss


try:
    loss = step(0)  # compiles
except Exception as e:
    print("absent", f"{type(e).__name__}: {e}".splitlines()[0], flush=True)
    sys.exit()
print("ready", f"torchrec {torchrec.__version__}" if mode == "torchrec" else f"torch {torch.__version__} {mode}", flush=True)
at = 0
for line in sys.stdin:
    wanted, done, begin = int(line), 0, time.perf_counter()
    while done < wanted:
        if at + batch > len(y):
            at = 0
        loss = step(at)
        at += batch
        done += batch
    last = loss.item()
    print(done, time.perf_counter() - begin, last, flush=True)
