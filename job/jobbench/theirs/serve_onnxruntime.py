"""Predictions of an exported model by onnxruntime, for `monolith bench serve`.

usage: python3 serve_onnxruntime.py FOLDER MODEL FEATURES ROWS MODE. FOLDER/requests.i64 has the requests: for each one the ids of each feature, int64 [FEATURES, ROWS]. They are in
memory before the time begins. MODE is `threads`, one request at a time on two threads, or `requests`, two at a time on one thread each.
"""

import os
import sys

folder, model, features, rows, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]

import time
from concurrent.futures import ThreadPoolExecutor

try:
    import numpy as np
    import onnxruntime as ort
except Exception as e:  # a broken installation raises many kinds
    print("absent", f"{type(e).__name__}: {e}".splitlines()[0], flush=True)
    sys.exit()

options = ort.SessionOptions()
options.intra_op_num_threads = 2 if mode == "threads" else 1
options.inter_op_num_threads = 1
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
x = np.fromfile(os.path.join(folder, "requests.i64"), np.int64).reshape(-1, features, rows, 1)
requests = [{f"f{f:02d}": np.ascontiguousarray(x[i, f]) for f in range(features)} for i in range(len(x))]
names = [session.get_outputs()[0].name]
pool = ThreadPoolExecutor(2)


def ask(wanted):
    for i in range(wanted):
        session.run(names, requests[i % len(requests)])


value = float(session.run(names, requests[0])[0].mean())
ask(4)
print("ready", f"onnxruntime {ort.__version__}, {'1 request on 2 threads' if mode == 'threads' else '2 requests at a time'}", flush=True)
for line in sys.stdin:
    wanted, begin = int(line), time.perf_counter()
    if mode == "threads":
        ask(wanted)
    else:
        for done in [pool.submit(ask, (wanted + i) // 2) for i in range(2)]:
            done.result()
    print(wanted, time.perf_counter() - begin, value, flush=True)
