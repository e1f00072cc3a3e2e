"""Asks the server of this example for a prediction, with Python's standard library alone.

  python3 examples/serve/client.py user=7 "item=ice cream"
  python3 examples/serve/client.py --server http://127.0.0.1:8501 user=7 item=soup
"""
import argparse
import json
import sys
import urllib.error
import urllib.request


def predict(server, model, instances):
    """Returns a prediction for each instance, a dict of the features' values by their names."""
    request = urllib.request.Request(
        f"{server}/v1/models/{model}:predict",
        data=json.dumps({"instances": instances}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as e:
        sys.exit(f"{e}: {e.read().decode()}")
    return [prediction[0] for prediction in answer["predictions"]]


def value(text):
    """Numbers are numbers, and all else is text."""
    try:
        return int(text)
    except ValueError:
        return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://127.0.0.1:8501")
    parser.add_argument("--model", default="shop")
    parser.add_argument("values", nargs="+", metavar="NAME=VALUE")
    args = parser.parse_args()
    pairs = (v.split("=", 1) for v in args.values)
    print(predict(args.server, args.model, [{name: value(text) for name, text in pairs}])[0])
