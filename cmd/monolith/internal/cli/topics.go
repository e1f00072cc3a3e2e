package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/job"
)

// ExampleJob is the job that `monolith help config` shows. A test loads it.
const ExampleJob = `version: 1
name: movielens
dir: runs/movielens                  # snapshots; train continues from what it finds here
seed: 7
source: {kafka: {brokers: [localhost:9092], topic: ratings}}
parse:
  format: tf_example
  features:
    - {name: user, slot: 1}
    - {name: genres, slot: 7, max: 6, combiner: mean}
    - {name: age, kind: dense, standardise: running}
  label: {name: rating, positive: ">= 4"}
model: {deepfm: {dim: 16, hidden: [400, 400, 400]}}
train: {batch: 512, workers: 2, prefetch: {lookup: 2, push: 2}, on_bad_row: skip}
optimizer: {dense: {adam: {lr: 0.001}}, sparse: {adagrad: {lr: 0.05}}}
snapshot: {every: 5m, keep: 3}
eval: {source: {parquet: {files: [test/*.parquet]}}}
`

// topics are the pages of `monolith help TOPIC` that are no commands.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "config", Short: "Job files", Long: configTopic()},
		{Use: "environment", Short: "Environment variables", Long: environmentTopic()},
		{Use: "exit-codes", Short: "Exit codes", Long: exitTopic},
		{Use: "metrics", Short: "Prometheus metrics", Long: metricsTopic()},
	}
}

func configTopic() string {
	return `A job is one YAML file:

` + indent(ExampleJob) + `
It is strict: unknown keys, values of the wrong kind, keys given twice and values out of range are all reported at once,
each with line, key path and the nearest name.

A value comes from the first of these that sets it:

  1. --set key.path=value          --set train.batch=1024 --set model.deepfm.hidden=64,32
  2. MONOLITH_KEY_PATH=value       MONOLITH_TRAIN_BATCH=1024
  3. the job file
  4. the default

Lists are replaced, never merged. An element of a list is parse.features[0].slot. Of keys that exclude each other
(sources, models, optimizers) the higher layer's choice counts: --set model=fm replaces the file's deepfm. A section
without settings may be written as its name alone: model: fm.

A password is never in a job. Write {env: VARIABLE} or {file: PATH}.

monolith train JOB.yaml --print-config shows each value in force and where it came from; docs/reference/job.md describes
every key.
`
}

func environmentTopic() string {
	var b strings.Builder
	b.WriteString(`Every key of a job outside of lists can be set by an environment variable: MONOLITH_, then the key path in upper case with
underscores for dots. Values are written as with --set. Flags win over variables, variables over the job file.

NO_COLOR, when not empty, turns colours off. Variables that hold secrets are named by the job; a variable of a secret's
own key (MONOLITH_SOURCE_KAFKA_SASL_PASSWORD) holds the secret itself.

MONOLITH_SIMD chooses the kernels that compute: off (portable Go), avx2, avx512 or amx (avx512 but for products of matrices); empty, the
last of these that the processor has. Results of different kernels differ in the last bits.

`)
	var rows [][]string
	for _, k := range job.Keys() {
		if k.Env != "" && k.Type != "section" && k.Path != "version" {
			rows = append(rows, []string{"  " + k.Env, k.Path})
		}
	}
	_ = ui.Table(&b, rows) // a strings.Builder takes everything
	return b.String()
}

const exitTopic = `  0      done; also when a first SIGINT, SIGTERM or SIGHUP ended what has no end of its own: training on a stream, with a snapshot, and servers
  1      failed while running: bad data under on_bad_row: fail, a gap in a topic, a lost split
  2      the command line or the job is wrong, or data and job do not fit together
  3      something outside cannot be reached, is full or in use by another process: broker, disk, the job's dir
  4      it ran, and the answer is no: check found something, eval --min-auc is not reached, all records or more than train.max_bad_share of them are bad
  130    stopped by SIGINT without draining (the second one); of what has an end (training on files, a range of a topic or so many examples, backfill, predict, export, demo), also by the first, before it was reached: the same command continues
  143    the same by SIGTERM; 129 by SIGHUP, as when a terminal is closed, unless it is ignored (nohup)
  141    standard output or standard error was closed by its reader, as by | head (SIGPIPE): what was stored until then is there
  134    the program crashed (SIGABRT): a fault of its own, never of the job; start it again, and report what it printed

The same signal again within a second of the first is not a second one: timeout and some supervisors send two at once.

With --json the object's error.code says the same in a word: failed, usage, config, schema, unavailable, no, interrupted.
`

func metricsTopic() string {
	var b strings.Builder
	b.WriteString(`With metrics.listen set, http://HOST:PORT/metrics serves these to Prometheus, /healthz says ok while the process lives, /readyz
once it has what it works with, with status 503 and what is missing before, and /debug/pprof serves profiles if metrics.pprof is set. The endpoint has no authentication; without a host it listens on
127.0.0.1 only.

`)
	for _, m := range telemetry.Descriptions() {
		labels := ""
		if len(m.Labels) > 0 {
			labels = "{" + strings.Join(m.Labels, ",") + "}"
		}
		fmt.Fprintf(&b, "  %s%s (%s)\n      %s\n", m.Name, labels, m.Type, m.Help)
	}
	return b.String()
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}
