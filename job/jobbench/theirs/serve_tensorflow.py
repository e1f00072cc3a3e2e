"""Predictions of an exported model by TensorFlow, for `monolith bench serve`: what serve_onnxruntime.py says holds here too, with a SavedModel."""

import os
import sys

folder, model, features, rows, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import time
from concurrent.futures import ThreadPoolExecutor

try:
    import numpy as np
    import tensorflow as tf
except Exception as e:  # a broken installation raises many kinds
    print("absent", f"{type(e).__name__}: {e}".splitlines()[0], flush=True)
    sys.exit()

tf.config.threading.set_intra_op_parallelism_threads(2)
tf.config.threading.set_inter_op_parallelism_threads(2)
loaded = tf.saved_model.load(model, tags=["serve"])
predict = loaded.signatures["features"]
x = np.fromfile(os.path.join(folder, "requests.i64"), np.int64).reshape(-1, features, rows, 1)
requests = [{f"f{f:02d}": tf.constant(x[i, f]) for f in range(features)} for i in range(len(x))]
pool = ThreadPoolExecutor(2)


def ask(wanted):
    for i in range(wanted):
        next(iter(predict(**requests[i % len(requests)]).values())).numpy()


value = float(next(iter(predict(**requests[0]).values())).numpy().mean())
ask(4)
print("ready", f"tensorflow {tf.__version__}, {'1 request' if mode == 'threads' else '2 requests'} at a time", flush=True)
for line in sys.stdin:
    wanted, begin = int(line), time.perf_counter()
    if mode == "threads":
        ask(wanted)
    else:
        for done in [pool.submit(ask, (wanted + i) // 2) for i in range(2)]:
            done.result()
    print(wanted, time.perf_counter() - begin, value, flush=True)
