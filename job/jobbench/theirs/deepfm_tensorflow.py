"""DeepFM in TensorFlow, for `monolith bench step`: what deepfm_torch.py says holds here too.

usage: python3 deepfm_tensorflow.py FOLDER BATCH THREADS. One table with sparse gradients and Adagrad, Adam on the rest, the step one
tf.function; XLA made it slower where it was tried.
"""

import os
import sys

folder, batch, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS=str(threads), CUDA_VISIBLE_DEVICES="")

import time

try:
    import numpy as np
    import tensorflow as tf
except Exception as e:  # a broken installation raises many kinds
    print("absent", f"{type(e).__name__}: {e}".splitlines()[0], flush=True)
    sys.exit()

tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.threading.set_inter_op_parallelism_threads(threads)
tf.random.set_seed(1)

FIELDS, IDS, DIM = 39, 25600, 16
count = os.path.getsize(os.path.join(folder, "label.u8"))
y = tf.constant(np.fromfile(os.path.join(folder, "label.u8"), np.uint8).astype(np.float32))
x = tf.constant(np.fromfile(os.path.join(folder, "ids.u32"), np.uint32).reshape(-1, FIELDS).astype(np.int32))

vectors = tf.Variable(tf.random.normal([FIELDS * IDS, DIM], stddev=1e-2))
weights = tf.Variable(tf.zeros([FIELDS * IDS, 1]))
sizes = [FIELDS * DIM, 400, 400, 400, 1]
kernels = [tf.Variable(tf.random.uniform([i, o], -((6 / (i + o)) ** 0.5), (6 / (i + o)) ** 0.5)) for i, o in zip(sizes, sizes[1:])]
biases = [tf.Variable(tf.zeros([o])) for o in sizes[1:]]
dense, sparse = kernels + biases, [vectors, weights]
adam, adagrad = tf.keras.optimizers.Adam(1e-3), tf.keras.optimizers.Adagrad(1e-2)
adam.build(dense)
adagrad.build(sparse)


@tf.function
def train(rows, labels):
    with tf.GradientTape() as tape:
        e = tf.nn.embedding_lookup(vectors, rows)
        s = tf.reduce_sum(e, 1)
        logit = tf.reduce_sum(tf.nn.embedding_lookup(weights, rows)[..., 0], 1) + 0.5 * tf.reduce_sum(s * s - tf.reduce_sum(e * e, 1), 1)
        h = tf.reshape(e, [-1, FIELDS * DIM])
        for i in range(4):
            h = tf.nn.bias_add(tf.matmul(h, kernels[i]), biases[i])
            if i < 3:
                h = tf.nn.relu(h)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logit + h[:, 0]))
    gradients = tape.gradient(loss, dense + sparse)
    adam.apply_gradients(zip(gradients[: len(dense)], dense))
    adagrad.apply_gradients(zip(gradients[len(dense) :], sparse))
    return loss


loss = train(x[:batch], y[:batch])
print("ready", f"tensorflow {tf.__version__}", flush=True)
at = 0
for line in sys.stdin:
    wanted, done, begin = int(line), 0, time.perf_counter()
    while done < wanted:
        if at + batch > count:
            at = 0
        loss = train(x[at : at + batch], y[at : at + batch])
        at += batch
        done += batch
    last = float(loss)
    print(done, time.perf_counter() - begin, last, flush=True)
