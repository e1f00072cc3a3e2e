"""Asks servers of predictions with the client of TensorFlow Serving.

The argument is a JSON file: servers (name, address, ca, cert, key, token; empty where a server wants none), rows (user, item, price), fids (user, item), and a server pushes to
which rows are pushed. Prints an object a server (servers, pushes): what it answered, and the status codes and sentences with which it refused what is wrong.
"""
import json
import sys

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

TIMEOUT = 120  # seconds, of a machine that has much else to do


def content(name):
    with open(name, "rb") as f:
        return f.read()


def connect(server, token=None, cert=True):
    """A channel to a server, with the token and the certificate that it wants or others."""
    if not server["ca"]:
        return grpc.insecure_channel(server["address"])
    own = {"private_key": content(server["key"]), "certificate_chain": content(server["cert"])} if cert and server["cert"] else {}
    credentials = grpc.ssl_channel_credentials(content(server["ca"]), **own)
    token = server["token"] if token is None else token
    if token:
        credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
    return grpc.secure_channel(server["address"], credentials)


def code(call, request):
    """The status code and the sentence of a call."""
    try:
        call(request, timeout=TIMEOUT)
    except grpc.RpcError as e:
        return [e.code().name, e.details()]
    return ["OK", ""]


def example(row):
    e = tf.train.Example()
    e.features.feature["user"].bytes_list.value.append(row["user"].encode())
    e.features.feature["item"].int64_list.value.append(row["item"])
    e.features.feature["price"].float_list.value.append(row["price"])
    return e


def predict(inputs, signature="", **more):
    r = predict_pb2.PredictRequest(**more)
    r.model_spec.name, r.model_spec.signature_name = "shop", signature
    for name, x in inputs.items():
        r.inputs[name].CopyFrom(tf.make_tensor_proto(x))
    return r


def outputs(response):
    return {name: tf.make_ndarray(t).tolist() for name, t in response.outputs.items()}


def named(request, signature):
    request.model_spec.name, request.model_spec.signature_name = "shop", signature
    return request


def classes(result):
    return [[[c.label, c.score] for c in x.classes] for x in result.classifications]


def values(result):
    return [x.value for x in result.regressions]


def ask(server, rows, fids):
    examples = [example(r) for r in rows]
    users, items = [r["user"] for r in rows], np.array([r["item"] for r in rows])
    prices = np.array([r["price"] for r in rows], np.float32)
    out = {}
    with connect(server) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        control = model_service_pb2_grpc.ModelServiceStub(channel)
        raw = {"user": users, "item": items, "price": prices}
        r = stub.Predict(predict(raw), timeout=TIMEOUT, wait_for_ready=True)
        out["version"] = r.model_spec.version.value
        out["predicted"] = {
            "raw": outputs(r),
            "lists": outputs(stub.Predict(predict({"user": [[u] for u in users], "item": [[int(i)] for i in items], "price": [[float(p)] for p in prices]}), timeout=TIMEOUT)),
            "examples": outputs(stub.Predict(predict({"examples": [e.SerializeToString() for e in examples]}), timeout=TIMEOUT)),
            "features": outputs(stub.Predict(predict({n: np.array([[f] for f in x]) for n, x in fids.items()} | {"price": prices}, "features"), timeout=TIMEOUT)),
            "filtered": outputs(stub.Predict(predict(raw, output_filter=["amount"]), timeout=TIMEOUT)),
        }

        def filled(request):
            request.input.example_list.examples.extend(examples)
            return request

        out["classes"] = classes(stub.Classify(named(filled(classification_pb2.ClassificationRequest()), ""), timeout=TIMEOUT).result)
        out["values"] = values(stub.Regress(named(filled(regression_pb2.RegressionRequest()), "regress/amount"), timeout=TIMEOUT).result)
        shared = regression_pb2.RegressionRequest()
        for e in examples:  # the user of the first one counts for all
            del e.features.feature["user"]
        filled_list = shared.input.example_list_with_context
        filled_list.examples.extend(examples)
        filled_list.context.features.feature["user"].bytes_list.value.append(users[0].encode())
        out["of_first_user"] = values(stub.Regress(named(shared, "regress/amount"), timeout=TIMEOUT).result)

        both = inference_pb2.MultiInferenceRequest()
        both.input.example_list.examples.extend(example(r) for r in rows)
        named(both.tasks.add(method_name="tensorflow/serving/classify"), "classify/click")
        named(both.tasks.add(method_name="tensorflow/serving/regress"), "regress/amount")
        results = stub.MultiInference(both, timeout=TIMEOUT).results
        out["both"] = [classes(results[0].classification_result), values(results[1].regression_result)]

        ask_metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        ask_metadata.model_spec.name = "shop"
        signatures = get_model_metadata_pb2.SignatureDefMap()
        if not stub.GetModelMetadata(ask_metadata, timeout=TIMEOUT).metadata["signature_def"].Unpack(signatures):
            raise SystemExit("the metadata are no SignatureDefMap")

        def described(infos):
            return {n: " ".join([tf.dtypes.as_dtype(i.dtype).name, *(str(d.size) for d in i.tensor_shape.dim)]) for n, i in infos.items()}

        out["signatures"] = {n: [s.method_name, described(s.inputs), described(s.outputs)] for n, s in signatures.signature_def.items()}
        ask_status = get_model_status_pb2.GetModelStatusRequest()
        ask_status.model_spec.name = "shop"
        state = get_model_status_pb2.ModelVersionStatus.State.Name
        out["status"] = [[s.version, state(s.state), s.status.error_code] for s in control.GetModelStatus(ask_status, timeout=TIMEOUT).model_version_status]

        other = predict(raw)
        other.model_spec.name = "shopp"
        old = predict(raw)
        old.model_spec.version.value = 999
        reload = model_management_pb2.ReloadConfigRequest()
        reload.config.model_config_list.config.add(name="shop", base_path="/")
        out["refused"] = {
            "feature": code(stub.Predict, predict({"usr": users})),
            "rows": code(stub.Predict, predict({"user": users, "item": items[:1]})),
            "type": code(stub.Predict, predict({"item": np.array([1 + 2j])})),
            "nan": code(stub.Predict, predict({"price": np.array([np.nan], np.float32)})),
            "bytes": code(stub.Predict, predict({"examples": [b"\xff\xff"]})),
            "signature": code(stub.Predict, predict(raw, "serving")),
            "output": code(stub.Predict, predict(raw, output_filter=["clicks"])),
            "model": code(stub.Predict, other),
            "version": code(stub.Predict, old),
            "reload": code(control.HandleReloadConfigRequest, reload),
        }
    if server["ca"]:
        for name, how in {"no token": {"token": ""}, "another token": {"token": "public"}, "no certificate": {"cert": False}}.items():
            with connect(server, **how) as channel:
                out["refused"][name] = code(prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict, predict(raw))
        with grpc.insecure_channel(server["address"]) as channel:
            out["refused"]["plain text"] = code(prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict, predict(raw))
    return out


def push(server, rows, fids):
    """Pushes a row in both forms of bytedance/monolith's parameter sync: what is answered, and predicted before and after each."""
    out = {"predicted": []}
    with connect(server) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

        def predicted():
            request = predict({"examples": [example(r).SerializeToString() for r in rows]})
            out["predicted"].append(outputs(stub.Predict(request, timeout=TIMEOUT, wait_for_ready=True)))

        predicted()
        ask_metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        ask_metadata.model_spec.name = "shop"
        signatures = get_model_metadata_pb2.SignatureDefMap()
        stub.GetModelMetadata(ask_metadata, timeout=TIMEOUT).metadata["signature_def"].Unpack(signatures)
        inputs = signatures.signature_def["hashtable_assign"].inputs
        dims = {n[: -len("_value")]: inputs[n].tensor_shape.dim[1].size for n in inputs if n.endswith("_value")}
        tables = sorted(dims)
        ids = np.array([fids["user"][0]], np.int64)
        assign = {}
        for n in tables:
            assign[n + "_id"], assign[n + "_value"] = ids, np.full((1, dims[n]), 0.5, np.float32)
        out["assigned"] = outputs(stub.Predict(predict(assign, "hashtable_assign"), timeout=TIMEOUT))
        predicted()
        raw = {
            "id": np.repeat(ids, len(tables)),
            "id_split": np.arange(len(tables) + 1, dtype=np.int64),
            "flat_value": np.concatenate([np.full(dims[n], 0.75, np.float32) for n in tables]),
        }
        out["raw"] = outputs(stub.Predict(predict(raw, "tables/raw_assign"), timeout=TIMEOUT))
        predicted()
        assign[tables[0] + "_value"] = np.full((1, dims[tables[0]] + 1), 0.5, np.float32)
        out["refused"] = code(stub.Predict, predict(assign, "hashtable_assign"))
    return out


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        asked = json.load(f)
    answers = {s["name"]: ask(s, asked["rows"], asked["fids"]) for s in asked["servers"]}
    print(json.dumps({"servers": answers, "pushes": push(asked["pushes"], asked["rows"], asked["fids"])}))
