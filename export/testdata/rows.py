"""Reads exports with pyarrow and safetensors and compares them with raw files.

The argument is a JSON file: parquet, arrow (folders), safetensors (a file), dense and tables, each with
what it is to have: name, shape and file; of a table ids and segments. Prints how many rows each has.
"""
import glob
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import safe_open


def raw(spec, dtype):
    return np.fromfile(spec["file"], dtype=dtype).reshape(spec["shape"])


def equal(what, got, want):
    if got.dtype != want.dtype or got.shape != want.shape or got.tobytes() != want.tobytes():
        raise SystemExit(f"{what}: {got.dtype} {got.shape}, want {want.dtype} {want.shape}; {np.sum(got != want)} differ")


def arrow(folder):
    parts = []
    for name in sorted(glob.glob(folder + "/*.arrow")):
        with pa.OSFile(name) as f:
            parts.append(pa.ipc.open_file(f).read_all())
    return pa.concat_tables(parts)


def check_rows(what, t, table):
    t.validate(full=True)
    order = np.argsort(t["fid"].to_numpy())
    ids = t["fid"].to_numpy()[order]
    equal(what + " fid", ids, raw(table["ids"], np.int64))
    equal(what + " slot", t["slot"].to_numpy()[order], ((ids >> 48) & 0x7FFF).astype(np.int32))
    for s in table["segments"]:
        weights = np.array(t["weights_" + s["name"]].to_pylist(), dtype=np.float32).reshape(s["shape"])
        equal(f"{what} {s['name']}", weights[order], raw(s, np.float32))
    return t.num_rows


case = json.load(open(sys.argv[1]))
rows = {}
for table in case["tables"]:
    name = table["name"]
    parquet = pa.concat_tables([pq.read_table(f) for f in sorted(glob.glob(f"{case['parquet']}/{name}/*.parquet"))])
    rows[name] = {
        "parquet": check_rows("parquet " + name, parquet, table),
        "arrow": check_rows("arrow " + name, arrow(f"{case['arrow']}/{name}"), table),
    }
with safe_open(case["safetensors"], framework="numpy") as f:
    kind = json.loads(f.metadata()["monolith"])["kind"]
    names = set(f.keys())
    for d in case["dense"]:
        equal("safetensors " + d["name"], f.get_tensor(d["name"]), raw(d, np.float32))
        names.remove(d["name"])
    for table in case["tables"]:
        name = table["name"]
        ids = f.get_tensor(name + ".ids")
        names.remove(name + ".ids")
        order = np.argsort(ids)
        equal(f"safetensors {name}", ids[order], raw(table["ids"], np.int64))
        for s in table["segments"]:
            equal(f"safetensors {name}.{s['name']}", f.get_tensor(f"{name}.{s['name']}")[order], raw(s, np.float32))
            names.remove(f"{name}.{s['name']}")
        rows[name]["safetensors"] = len(ids)
    if names:
        raise SystemExit(f"there are {names} too")
print(json.dumps({"kind": kind, "rows": rows}))
