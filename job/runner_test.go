package job_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
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
			`source.text.files: are read in other processes, so "a.libfm" must be an absolute path that is the same for all of them`,
		}},
		{"dataflow", files, []string{"runner=dataflow"}, []string{
			"beam.dataflow.project: is not set, and the runner dataflow needs it: the project on Google Cloud",
			"beam.dataflow.region: is not set, and the runner dataflow needs it: such as europe-west1",
			"beam.dataflow.staging: is not set, and the runner dataflow needs it: a folder for the job's files, gs://BUCKET/PATH",
			"beam.dataflow.image: is not set, and the runner dataflow needs it: a container image with this program as its entry point, which `make image` builds",
			"ps.addresses: are not set, and executors of the runner dataflow are in other processes: start shards with `monolith ps` and give their addresses",
			`source.text.files: are read in other processes, so "a.libfm" must be an absolute path that is the same for all of them`,
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
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := check(); len(got) != 1 || !strings.Contains(got[0], "beam.endpoint: nothing answers at "+addr+", where the job server should be") {
		t.Errorf("%q", got)
	}
}
