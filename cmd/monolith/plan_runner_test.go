package main_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// TestPlanShowsHowRunnersCut has the plan of a job for each runner: how many elements there are, where their executors are, what bundles and
// checkpoints mean.
func TestPlanShowsHowRunnersCut(t *testing.T) {
	t.Parallel()
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	const text = `
version: 1
name: click
dir: DIR
source: {synthetic: {examples: 1000, splits: 6}}
parse: {features: [{name: user, slot: 1}, {name: item, slot: 2}], label: click}
model: lr
train: {workers: 2}
ps: {addresses: ["127.0.0.1:7000"]}
beam: {endpoint: "127.0.0.1:8099", dataflow: {project: p, region: r, staging: "gs://b/x", image: i}}
`
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"local", []string{"--runner=local"}, `
on local
  elements     1, with the 6 splits of synthetic, for 2 workers
               one executor, whose workers take the splits
  executors    in this process
  positions    with the parameters, in the same commit as the gradients
`},
		{"prism", []string{"--runner=prism"}, `
on prism
  elements     2, among which the 6 splits of synthetic are dealt
               one splittable DoFn, whose bundles renew the lease of the element's executor
  executors    in this process
  bundles      each returns after 200ms with the progress made; an executor without one for 10s stops
  positions    with the parameters, in the same commit as the gradients; no checkpoint of the runner decides where reading starts
`},
		{"flink, in processes", []string{"--runner=flink", "--set", "beam.environment=process", "--set", "beam.environment_config=/bin/monolith"}, `
on flink
  elements     6, one for each split of synthetic
               one splittable DoFn with the executor of the element in it, from the first bundle to the end of the splits
  executors    in processes that the runner's workers start: /bin/monolith
  bundles      an executor runs to its end in one bundle; what it does comes out of it once
  checkpoints  none: the runner begins an element that failed again
  positions    with the parameters, in the same commit as the gradients; no checkpoint of the runner decides where reading starts
`},
		{"flink, without a broker", []string{
			"--runner=flink", "--set", "source={kafka: {brokers: [127.0.0.1:1], topic: clicks}}", "--set", "parse.format=tf_example", "--set", "beam.environment=external", "--set", "beam.environment_config=localhost:50000",
			"--set", "beam.checkpoint_every=1m", "--set", "beam.flink_rest=127.0.0.1:8081",
		}, `
               one splittable DoFn, whose bundles renew the lease of the element's executor
  executors    in the worker pool at localhost:50000, one beside each worker of the runner
  bundles      each returns after 200ms with the progress made; an executor without one for 10s stops
  checkpoints  every 1m0s, the restriction of each element: an account of the work, which may be older or newer than what is trained
  positions    with the parameters, in the same commit as the gradients; no checkpoint of the runner decides where reading starts
`},
		{"dataflow", []string{"--runner=dataflow"}, `
on dataflow
  elements     6, one for each split of synthetic
               one splittable DoFn with the executor of the element in it, from the first bundle to the end of the splits
  executors    in containers of i, one on each machine of the job
  bundles      an executor runs to its end in one bundle; what it does comes out of it once
  checkpoints  none: the runner begins an element that failed again
  positions    with the parameters, in the same commit as the gradients; no checkpoint of the runner decides where reading starts
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, job := makeJob(t, text)
			args := append([]string{"plan", job}, c.args...)
			out, err := exec.CommandContext(t.Context(), path, args...).Output()
			if err != nil {
				t.Fatalf("%v: %s", err, stderr(err))
			}
			if !strings.HasPrefix(string(out), "graph click ") || !strings.HasSuffix(string(out), c.want) {
				t.Errorf("%s\nwant at its end%s", out, c.want)
			}
			out, err = exec.CommandContext(t.Context(), path, append(args, "--format=json")...).Output()
			if err != nil {
				t.Fatalf("%v: %s", err, stderr(err))
			}
			var all struct {
				Segments []any
				Cut      struct{ Runner string }
			}
			if err := json.Unmarshal(out, &all); err != nil || !strings.Contains(c.name, all.Cut.Runner) || all.Cut.Runner == "" || len(all.Segments) == 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
