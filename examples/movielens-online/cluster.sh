#!/usr/bin/env bash
# Learning on from Kafka with two shards and two workers, one of each killed on the way. See --help and the README.
set -euo pipefail

usage() {
  cat <<'HELP'
Usage: examples/movielens-online/cluster.sh

Trains DeepFM on the history of MovieLens-1M, then starts two shards and two workers, publishes the later ratings to
Kafka, kills (-9) a worker and a shard meanwhile and starts them again, and says in the end whether every rating was
trained once, and what learning on was worth. Takes a minute or two.

Environment:
  MONOLITH_DATA   folder that holds datasets/ml1m-bin (required; the README says where the data come from)
  BROKERS         host:port of your Kafka; by default a broker is started that keeps its topics in memory
  DIR             folder for binaries, logs and snapshots, new or empty; default runs/movielens-cluster-DATE-TIME
  RATE            ratings published a second, default 600
  MOVIELENS_SHARD_0, MOVIELENS_SHARD_1
                  addresses of the shards, default 127.0.0.1:7400 and :7401
HELP
}

case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  "") ;;
  *) usage >&2; exit 2 ;;
esac

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
example="$root/examples/movielens-online"
now="$(date +%Y%m%d-%H%M%S)"
dir="${DIR:-$root/runs/movielens-cluster-$now}"
data="${MONOLITH_DATA:?names the folder of the data sets; see $example/README.md}"
for file in train.tsv.gz val.tsv.gz users.dat movies.dat; do
  if [[ ! -e "$data/datasets/ml1m-bin/$file" ]]; then
    echo "$data/datasets/ml1m-bin/$file is missing; $example/README.md says what it must hold" >&2
    exit 3
  fi
done
if [[ -n "$(ls -A "$dir" 2>/dev/null)" ]]; then
  echo "$dir is not empty; name another folder in DIR" >&2
  exit 2
fi
mkdir -p "$dir/logs"
dir="$(cd "$dir" && pwd)"
logs="$dir/logs"

begun=$SECONDS
say() { printf '%3ds  %s\n' $((SECONDS - begun)) "$*"; }

# Processes by name. Whatever still runs ends with the script.
declare -A pid
clean_up() {
  local code=$? name
  trap - EXIT
  for name in "${!pid[@]}"; do kill -KILL "${pid[$name]}" 2>/dev/null || true; done
  wait 2>/dev/null || true
  if ((code != 0)); then echo "failed with exit code $code; the logs are in $logs" >&2; fi
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start() { # NAME COMMAND...: its result goes to NAME.json, what it says to NAME.log
  local name=$1
  shift
  "$@" >"$logs/$name.json" 2>>"$logs/$name.log" &
  pid[$name]=$!
}
start_shard() { start "shard-$1" "$monolith" ps "$example/cluster.yaml" --shard "$1" --json; }
# A worker that is started again under its name takes its place at once.
start_worker() { start "worker-$1" "$monolith" train "$example/cluster.yaml" --worker "$1" --json; }

kill_hard() {
  kill -KILL "${pid[$1]}"
  wait "${pid[$1]}" 2>/dev/null || true # it was killed, which is not news
  unset "pid[$1]"
}
finish() { # NAME: waits until it has ended by itself, and well
  local code=0
  wait "${pid[$1]}" || code=$?
  unset "pid[$1]"
  if ((code != 0)); then
    echo "$1 ended with exit code $code:" >&2
    tail -n 5 "$logs/$1.log" "$logs/$1.json" >&2
    exit 1
  fi
}
published() { tail -n 1 "$logs/publish.json" 2>/dev/null | { read -r _ n && echo "$n"; } || echo 0; }
until_published() {
  while (($(published) < $1)); do
    kill -0 "${pid[publish]}" 2>/dev/null || return 0 # it has ended; finish says how
    sleep 0.2
  done
}

say "building; everything is kept in $dir"
monolith="$dir/bin/monolith" helper="$dir/bin/movielens-online"
(cd "$root" && go build -o "$dir/bin/" ./cmd/monolith ./examples/movielens-online)

export MONOLITH_DATA="$data" MOVIELENS_RUN="$dir/job" MOVIELENS_TOPIC="movielens-$now-$$"
say "training on the history: 800,141 ratings"
start history "$monolith" train "$example/batch.yaml" --json
finish history
say "evaluating the model as it is now: the frozen one"
start frozen "$monolith" eval "$example/batch.yaml" --json
finish frozen

export MOVIELENS_BROKER="${BROKERS:-}"
if [[ -z "$MOVIELENS_BROKER" ]]; then
  start broker "$helper" broker
  while [[ ! -s "$logs/broker.json" ]]; do
    kill -0 "${pid[broker]}" || finish broker
    sleep 0.1
  done
  read -r MOVIELENS_BROKER <"$logs/broker.json"
fi
say "publishing the later ratings to topic $MOVIELENS_TOPIC at $MOVIELENS_BROKER, ${RATE:-600} a second"
start publish "$helper" publish -broker "$MOVIELENS_BROKER" -topic "$MOVIELENS_TOPIC" -partitions 4 -rate "${RATE:-600}"
until_published 1
say "starting two shards and two workers"
start_shard 0
start_shard 1
start_worker a
start_worker b

until_published 6000
kill_hard worker-a
say "killed worker a when $(published) ratings were published; b gets its partitions"
until_published 9000
start_worker a
say "started worker a again; it gets partitions back"
until_published 12000
kill_hard shard-1
say "killed shard 1 when $(published) ratings were published; the workers wait"
until_published 13000
start_shard 1
say "started shard 1 again; it comes back with what its log holds"
until_published 16000
kill_hard shard-0
say "killed shard 0, which coordinates, when $(published) ratings were published"
until_published 17000
start_shard 0
say "started shard 0 again; the workers join it again"
finish publish
say "all $(published) ratings are published"
finish worker-a
finish worker-b
say "the workers have read them all; now the shards are stopped, 0 first: it takes a last snapshot"
for shard in 0 1; do
  kill -TERM "${pid[shard-$shard]}"
  finish "shard-$shard"
done
echo
"$helper" report -dir "$dir/job" -published "$(published)" -frozen "$logs/frozen.json" -online "$logs/worker-a.json"
echo
say "the logs are in $logs, the snapshots in $dir/job"
