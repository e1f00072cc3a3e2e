"""Loads exports with TensorFlow and onnxruntime and compares what they predict.

The argument is a JSON file with a list of cases: name, rows, share (of the predictions that are to
agree), savedmodel, onnx and numbered (folders; the last is ONNX with row numbers), inputs
(name, kind ids|values|dense, file, width, ids: the .npy of its table), heads (name, width, classes, file), tables (name, rows).
Prints a JSON object a case: the largest differences, and what the files say of themselves.
"""
import functools
import json
import sys

import numpy as np
import onnx
import onnxruntime
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

BATCH = 2500
EXAMPLES = 1500  # rows that are made tf.Examples; protobufs in Python take time


def read(spec, rows, dtype):
    return np.fromfile(spec["file"], dtype=dtype).reshape(rows, spec["width"])


def difference(got, want, share=1.0):
    """The largest difference, or the one that so large a share of all predictions keeps below."""
    if got.shape != want.shape or got.dtype != np.float32:
        raise SystemExit(f"predictions {got.dtype} of the shape {got.shape}, want float32 of {want.shape}")
    if got.size == 0:
        return 0.0
    return float(np.quantile(np.abs(got - want), share)) if np.all(np.isfinite(got)) else float("inf")


def examples(inputs, kinds, rows):
    """Serializes rows as a writer of training data would."""
    out = []
    for r in range(rows):
        e = tf.train.Example()
        for name, x in inputs.items():
            f = e.features.feature[name]
            if kinds[name] == "ids":
                f.int64_list.value.extend(int(v) for v in x[r] if v >= 0)
            elif kinds[name] == "values":
                f.float_list.value.extend(float(v) for v in x[r] if not np.isnan(v))
            elif not np.isnan(x[r]).any():  # what is missing is left away
                f.float_list.value.extend(x[r])
        out.append(e.SerializeToString())
    return out


def prediction_log():
    """The class of tensorflow.serving.PredictionLog, as far as it is needed (tensorflow_serving/apis/prediction_log.proto): it is in no package of TensorFlow's own."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="log.proto", package="tensorflow.serving", syntax="proto3")
    file.dependency.append("tensorflow/core/framework/tensor.proto")

    def message(to, name, *fields):
        m = to.add(name=name)
        for label, number, kind in fields:
            f = m.field.add(name=label, number=number, label=field.LABEL_OPTIONAL, type=field.TYPE_MESSAGE)
            if kind == "string":
                f.type = field.TYPE_STRING
            else:
                f.type_name = kind
        return m

    message(file.message_type, "ModelSpec", ("name", 1, "string"), ("signature_name", 3, "string"))
    request = message(file.message_type, "PredictRequest", ("model_spec", 1, ".tensorflow.serving.ModelSpec"), ("inputs", 2, ".tensorflow.serving.PredictRequest.InputsEntry"))
    request.field[1].label = field.LABEL_REPEATED
    entry = message(request.nested_type, "InputsEntry", ("key", 1, "string"), ("value", 2, ".tensorflow.TensorProto"))
    entry.options.map_entry = True
    message(file.message_type, "PredictLog", ("request", 1, ".tensorflow.serving.PredictRequest"))
    message(file.message_type, "PredictionLog", ("predict_log", 6, ".tensorflow.serving.PredictLog"))
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.serving.PredictionLog"))


PredictionLog = prediction_log()


def warm_up(case, loaded):
    """Answers the warm-up requests, as TensorFlow Serving does before it serves a version, which it refuses when one fails; returns signature and rows of each."""
    out = []
    for record in tf.data.TFRecordDataset(case["savedmodel"] + "/assets.extra/tf_serving_warmup_requests"):
        request = PredictionLog.FromString(record.numpy()).predict_log.request
        signature = request.model_spec.signature_name
        inputs = {name: tf.make_ndarray(t) for name, t in request.inputs.items()}
        got = loaded.signatures[signature](**{name: tf.constant(v) for name, v in inputs.items()})
        rows = {len(v) for v in inputs.values()} | {len(v) for v in got.values()}
        if len(rows) != 1 or len(got) != len(case["heads"]) or not all(np.isfinite(v.numpy()).all() for v in got.values()):
            raise SystemExit(f"{case['name']}: warm-up {request}: {got}")
        out.append(f"{signature} {rows.pop()}")
    return out


def check_savedmodel(case, inputs, kinds, want, worst, difference):
    loaded = tf.saved_model.load(case["savedmodel"], tags=["serve"])
    features = loaded.signatures["features"]
    default = loaded.signatures["serving_default"]
    about = {"signatures": sorted(loaded.signatures)}
    for at in range(0, case["rows"], BATCH):
        part = {k: tf.constant(v[at:at + BATCH]) for k, v in inputs.items()}
        got = features(**part)
        if sorted(got) != sorted(want):
            raise SystemExit(f"{case['name']}: outputs {sorted(got)}")
        for head, w in want.items():
            worst("features", difference(got[head].numpy(), w[at:at + BATCH]))
    n = min(case["rows"], EXAMPLES)
    serialized = tf.constant(examples(inputs, kinds, n))
    got = default(examples=serialized)
    for head in case["heads"]:
        name, w = head["name"], want[head["name"]][:n]
        worst("examples", difference(got[name].numpy(), w))
        if head["width"] == 1:
            worst("regress", difference(loaded.signatures["regress/" + name](inputs=serialized)["outputs"].numpy(), w))
        if head["classes"]:
            c = loaded.signatures["classify/" + name](inputs=serialized)
            worst("classify", difference(c["scores"].numpy(), np.concatenate([1 - w, w], axis=1) if head["width"] == 1 else w))
            if c["classes"].numpy().tolist() != [[label.encode() for label in head["classes"]]] * n:
                raise SystemExit("classes " + str(c["classes"]))
    if np.size(default(examples=tf.constant([], tf.string))[case["heads"][0]["name"]].numpy()) != 0:
        raise SystemExit("predictions of no examples")
    about["warmup"] = warm_up(case, loaded)
    reader = tf.train.load_checkpoint(case["savedmodel"] + "/variables/variables")
    about["rows"] = {}
    for t in case["tables"]:
        ids, rows = (reader.get_tensor(f"tables/{t['name']}/{what}") for what in ("ids", "rows"))
        if len(rows) != len(ids) + 1 or len(np.unique(ids)) != len(ids):
            raise SystemExit(f"table {t['name']}: {len(ids)} ids, {len(rows)} rows")
        about["rows"][t["name"]] = len(ids)
    # A session loads it as servers do, which know nothing of objects: with a resource manager of its own.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], case["savedmodel"])
        signature = meta.signature_def["serving_default"]
        about["method"] = signature.method_name
        about["ops"] = sorted({n.op for n in meta.graph_def.node})
        head = case["heads"][0]["name"]
        feed = {signature.inputs["examples"].name: serialized.numpy()}
        worst("session", difference(session.run(signature.outputs[head].name, feed), want[head][:n]))
    return about


def numbered(case, inputs):
    """Puts numbers of rows in place of ids, as who looks them up in the files beside the model does."""
    out = dict(inputs)
    for spec in case["inputs"]:
        if spec["kind"] != "ids":
            continue
        ids = np.load(spec["ids"])
        rows = {int(id): row for row, id in enumerate(ids)}
        if len(rows) != len(ids) or ids.dtype != np.int64:
            raise SystemExit(f"{spec['ids']}: {ids.dtype} {ids.shape}")
        x = inputs[spec["name"]]
        flat = [-1 if id < 0 else rows.get(id, -2 - id) for id in x.reshape(-1).tolist()]
        out[spec["name"]] = np.array(flat, np.int64).reshape(x.shape)
    return out


def check_onnx(case, what, inputs, want, worst, difference):
    path = case[what] + "/model.onnx"
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [h["name"] for h in case["heads"]]
    for at in range(0, case["rows"], BATCH):
        got = session.run(names, {k: v[at:at + BATCH] for k, v in inputs.items()})
        for name, g in zip(names, got):
            worst(what, difference(g, want[name][at:at + BATCH]))
    for name, none in zip(names, session.run(names, {k: v[:0] for k, v in inputs.items()})):
        worst(what, difference(none, want[name][:0]))
    model = onnx.load(path, load_external_data=False)
    about = {"ir": model.ir_version, "opsets": {o.domain: o.version for o in model.opset_import}, "encoders": []}
    metadata = {p.key: p.value for p in model.metadata_props}
    about["model"] = json.loads(metadata["monolith"])["kind"]
    about["sparse"] = metadata["monolith.sparse"]
    for node in model.graph.node:
        if node.op_type == "LabelEncoder":
            keys = [list(a.ints) for a in node.attribute if a.name == "keys_int64s"][0]
            if len(set(keys)) != len(keys):
                raise SystemExit("an id comes twice")
            about["encoders"].append(len(keys))
    return about


for case in json.load(open(sys.argv[1])):
    dtypes = {"ids": np.int64, "values": np.float32, "dense": np.float32}
    inputs = {i["name"]: read(i, case["rows"], dtypes[i["kind"]]) for i in case["inputs"]}
    kinds = {i["name"]: i["kind"] for i in case["inputs"]}
    want = {h["name"]: read(h, case["rows"], np.float32) for h in case["heads"]}
    differences = {}

    def worst(what, d):
        differences[what] = max(d, differences.get(what, 0))

    compare = functools.partial(difference, share=case["share"])
    result = {"name": case["name"], "differences": differences}
    result["savedmodel"] = check_savedmodel(case, inputs, kinds, want, worst, compare)
    result["onnx"] = check_onnx(case, "onnx", inputs, want, worst, compare)
    result["numbered"] = check_onnx(case, "numbered", numbered(case, inputs), want, worst, compare)
    print(json.dumps(result), flush=True)
