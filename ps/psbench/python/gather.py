"""Rows of 16 floats gathered from a plain array by PyTorch, for `monolith bench table`, by one thread.

usage: python3 gather.py ROWS QUERIES    QUERIES: a file of uint32, each the number of a row

It says "ready", or "absent" and why. Then for each line "WAY N" on its input it gathers the next N rows, of which as many go into one call as is fastest
for it, and prints the processor time that took in seconds. The array is in huge pages where the kernel gives them, and what is gathered goes where the
call before has put its own: with fresh memory for each call it is slower.
"""

import mmap
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
try:
    import numpy as np
    import torch
except Exception as e:  # a broken installation raises many kinds
    print("absent", f"{type(e).__name__}: {e}".splitlines()[0], flush=True)
    sys.exit()

torch.set_num_threads(1)
torch.set_num_interop_threads(1)

DIM, CALL = 16, 16384
rows = int(sys.argv[1])
memory = mmap.mmap(-1, rows * DIM * 4)
if hasattr(mmap, "MADV_HUGEPAGE"):
    memory.madvise(mmap.MADV_HUGEPAGE)
table = torch.frombuffer(memory, dtype=torch.float32).view(rows, DIM)
table.copy_((torch.arange(rows) % 4096).float().unsqueeze(1).expand(rows, DIM))
ids = torch.from_numpy(np.fromfile(sys.argv[2], dtype=np.uint32).astype(np.int64))
out = torch.empty(CALL, DIM)
torch.index_select(table, 0, ids[:CALL], out=out)
if not bool((out[:, DIM - 1] == (ids[:CALL] % 4096).float()).all()):
    sys.exit("PyTorch gathers other rows than those that were asked for")
print("ready", flush=True)
at = 0
for line in sys.stdin:
    left = int(line.split()[1])
    begin = time.process_time()
    while left > 0:
        n = min(left, CALL, len(ids) - at)
        torch.index_select(table, 0, ids[at : at + n], out=out[:n])
        left, at = left - n, (at + n) % len(ids)
    print(f"{time.process_time() - begin:.9f}", flush=True)
