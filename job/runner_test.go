package job_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// TestRunnerFaults finds at load what would keep a job from running on another runner.
func TestRunnerFaults(t *testing.T) {
	t.Parallel()
	const files = "version: 1\nsource: {text: {files: [a.libfm, /b.libfm]}}\nparse: {format: libfm}\nmodel: lr\n"
	at := func(more ...string) []string {
		return append([]string{"runner=flink", "beam.endpoint=127.0.0.1:8099"}, more...)
	}
	for _, c := range []struct {
		name, text string
		set        []string
		want       []string
	}{
		{"good", files, at("beam.options={object_reuse: true, x: 2.5, name: flink}"), nil},
		{"no endpoint", files, []string{"runner=portable"}, []string{"beam.endpoint: is not set, and the runner portable submits the job there: the address of the job server, such as 127.0.0.1:8099"}},
		{"no port", files, []string{"runner=flink", "beam.endpoint=flink"}, []string{`beam.endpoint: is "flink", not host:port such as 127.0.0.1:8099`}},
		{"no runner", files, []string{"runner=flnk"}, []string{`runner: is "flnk", not one of local, prism, flink, portable, dataflow; did you mean "flink"?`}},
		{"checkpoints of files", files, at("beam.checkpoint_every=1m"), nil},
		{"checkpoints of a stream", movielens, at("beam.checkpoint_every=1m"), []string{
			"beam.flink_rest: is not set, and a job with checkpoints does not end in Flink when it is drained: give the address of Flink's REST interface, such as 127.0.0.1:8081",
		}},
		{"config of loopback", files, at("beam.environment_config=x"), []string{`beam.environment_config: is "x", but the executors of environment loopback are in this process`}},
		{"elsewhere", files, at("beam.environment=process"), []string{
			"beam.environment_config: is not set: environment process needs the path of this program where the runner's workers are",
			"ps.addresses: are not set, and executors of environment process are in other processes: start shards with `monolith ps` and give their addresses",
			`source.text.files: is used in other processes, so "a.libfm" must be an absolute path, the same for all of them`,
		}},
		{"dataflow", files, []string{"runner=dataflow"}, []string{
			"beam.dataflow.project: is not set, and the runner dataflow needs it: the project on Google Cloud",
			"beam.dataflow.region: is not set, and the runner dataflow needs it: such as europe-west1",
			"beam.dataflow.staging: is not set, and the runner dataflow needs it: a folder for the job's files, gs://BUCKET/PATH",
			"beam.dataflow.image: is not set, and the runner dataflow needs it: a container image with this program as its entry point, which `make image` builds",
			"ps.addresses: are not set, and executors of the runner dataflow are in other processes: start shards with `monolith ps` and give their addresses",
			`source.text.files: is used in other processes, so "a.libfm" must be an absolute path, the same for all of them`,
		}},
		{"dataflow, wrong", movielens, onDataflow(
			"name=A_job", "beam.dataflow.staging=bucket/x", "beam.dataflow.workers=3", "beam.dataflow.max_workers=2", "beam.dataflow.worker_zone=a", "beam.dataflow.worker_region=b",
			"beam.dataflow.flexrs=FLEXRS_COST_OPTIMIZED", "beam.dataflow.autoscaling=none",
		), []string{
			`beam.dataflow.autoscaling: is "none", not one of NONE, THROUGHPUT_BASED; did you mean "NONE"?`,
			`beam.dataflow.staging: is "bucket/x", not gs://BUCKET/PATH`,
			"beam.dataflow.workers: is 3, more than max_workers, 2",
			`beam.dataflow.worker_zone: is "a" beside worker_region "b": give one of them`,
			"beam.dataflow.flexrs: is for jobs that end, and the source is a stream",
			`beam.job_name: is "A_job", which Dataflow does not accept: lower-case letters, digits and dashes, first a letter`,
		}},
		{"dataflow, right", movielens, onDataflow("name=A_job", "beam.job_name=a-job", "beam.dataflow.labels={team: ranking}"), nil},
		{"paths elsewhere", pathsJob, at("beam.environment=process", "beam.environment_config=/bin/monolith", "ps.addresses=10.0.0.1:7000"), []string{
			`source.text.files: is used in other processes, so "a.libfm" must be an absolute path, the same for all of them`,
			`model.graph.file: is used in other processes, so "graph.json" must be an absolute path, the same for all of them`,
			`outputs[0].to.jsonl.dir: is used in other processes, so "rows" must be an absolute path, the same for all of them`,
			`train.dead_letter.file.path: is used in other processes, so "bad-{worker}" must be an absolute path, the same for all of them`,
			`parse.joins[0].file: is used in other processes, so "side.tsv" must be an absolute path, the same for all of them`,
			`ps.tls.ca: is used in other processes, so "ca.pem" must be an absolute path, the same for all of them`,
			`ps.token.file: is used in other processes, so "token" must be an absolute path, the same for all of them`,
		}},
		{"written in containers", pathsJob, at(
			"beam.environment=docker", "beam.environment_config=image", "ps.addresses=10.0.0.1:7000", "source.text.files=/a", "model.graph.file=/g", "ps.tls.ca=/ca", "ps.token.file=/t", "parse.joins=[]",
			"outputs=[{name: rows, of: rows, to: {jsonl: /rows}}]",
		), []string{
			"outputs[0].to.jsonl.dir: is written by executors of environment docker, whose containers are removed with all that is in them: write to a topic, or run the executors in processes or pools",
			"train.dead_letter.file.path: is written by executors of environment docker, whose containers are removed with all that is in them: write to a topic, or run the executors in processes or pools",
		}},
		{"elsewhere, but not now", files, []string{"beam.environment=process"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := job.Decode([]byte(c.text), "job.yaml", job.LoadOptions{Set: c.set})
			var got []string
			if ce, ok := errors.AsType[*job.ConfigError](err); ok {
				for _, f := range ce.Faults {
					text := f.String()
					got = append(got, text[strings.Index(text, ": ")+2:])
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	c := decode(t, files, job.LoadOptions{Set: at("beam.options={object_reuse: true, x: 2.5, name: flink}")})
	if diff := cmp.Diff(map[string]any{"object_reuse": true, "x": 2.5, "name": "flink"}, c.Beam.Options.Values()); diff != "" {
		t.Error(diff)
	}
}

// pathsJob uses files of every kind.
const pathsJob = `
version: 1
source: {text: {files: [a.libfm]}}
parse: {format: libfm, fields: [a, b], joins: [{file: side.tsv, columns: [a, x], key: a}]}
model: {graph: graph.json}
outputs: [{name: rows, of: rows, to: {jsonl: rows}}]
train: {on_bad_row: dead_letter, dead_letter: {file: "bad-{worker}"}}
ps: {tls: {ca: ca.pem}, token: {file: token}}
`

func onDataflow(more ...string) []string {
	return append([]string{
		"runner=dataflow", "ps.addresses=10.0.0.1:7000,10.0.0.2:7000", "beam.dataflow.project=p", "beam.dataflow.region=r", "beam.dataflow.staging=gs://b/x", "beam.dataflow.image=i",
	}, more...)
}

// TestCheckOfRunner asks whether the runner's services answer, and compares the parallelism with the splits.
func TestCheckOfRunner(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	check := func(set ...string) (out []string) {
		t.Helper()
		const text = "version: 1\nsource: {synthetic: {examples: 10, splits: 2}}\nparse: {features: [{name: user, slot: 1}], label: click}\nmodel: lr\n"
		c := decode(t, text, job.LoadOptions{Set: append([]string{"runner=flink", "dir=" + t.TempDir(), "beam.endpoint=" + addr}, set...)})
		found, err := job.Check(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			out = append(out, f.Path+": "+f.Message)
		}
		return out
	}
	if got := check("beam.parallelism=2"); got != nil {
		t.Errorf("%q, want nothing", got)
	}
	if got := check("beam.parallelism=3"); len(got) != 1 || !strings.Contains(got[0], "beam.parallelism: is 3, and the source has 2 splits") {
		t.Errorf("%q", got)
	}
	remote := []string{"beam.environment=process", "ps.addresses=127.0.0.1:7000"}
	if got := check(append(remote, "beam.environment_config=/no/monolith")...); len(got) != 1 || !strings.Contains(got[0], "beam.environment_config: is what the runner's workers on this machine are to start") {
		t.Errorf("%q", got)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got := check(append(remote, "beam.environment_config="+self)...); got != nil {
		t.Errorf("%q, want nothing", got)
	}
	if got := check("beam.endpoint=192.0.2.1:8099"); len(got) != 2 || !strings.Contains(got[0], "beam.environment: is loopback, and the job service is at 192.0.2.1:8099") {
		t.Errorf("%q", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := check(); len(got) != 1 || !strings.Contains(got[0], "beam.endpoint: nothing answers at "+addr+", where the job server should be") {
		t.Errorf("%q", got)
	}
}

// TestRunnerThatIsNotThere: a program that was built without the runner of a job says so before it asks anybody for anything.
func TestRunnerThatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	c := decode(t, "version: 1\nsource: {synthetic: {examples: 10}}\nparse: {features: [{name: user, slot: 1}], label: click}\nmodel: lr\n", job.LoadOptions{Set: []string{"runner=prism", "dir=" + dir}})
	if _, err := job.Run(t.Context(), c, job.RunOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "has no runner prism") {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the job's dir was made: %v", err)
	}
	if _, err := job.Run(t.Context(), &job.Config{}, job.RunOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "no model is chosen") {
		t.Errorf("a job of nothing: %v", err)
	}
}
