package job_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
)

// state is what a process lacks, or nothing.
type state struct{ missing error }

// readiness is what a process said of itself last, and how to end it.
type readiness struct {
	t     *testing.T
	who   string
	said  chan state // the last, if it was not taken yet
	drain chan struct{}
	kill  func()
}

// begin serves shards of a job.
func begin(t *testing.T, cfg *job.Config, who string, standby bool, shards ...int) *readiness {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &readiness{t: t, who: who, said: make(chan state, 1), drain: make(chan struct{})}
	done := make(chan struct{})
	r.kill = func() { cancel(); <-done }
	t.Cleanup(r.kill)
	go func() {
		defer close(done)
		_, err := job.Serve(ctx, cfg, job.ServeOptions{Shards: shards, Standby: standby, Drain: r.drain, Ready: func(missing error) {
			select {
			case <-r.said: // nobody is interested in what was
			default:
			}
			r.said <- state{missing}
		}})
		if err != nil && ctx.Err() == nil {
			t.Errorf("%s: %v", who, err)
		}
	}()
	return r
}

// becomes waits until the process says that it lacks something with these words, "" for nothing.
func (r *readiness) becomes(words string) {
	r.t.Helper()
	var last error
	for deadline := time.After(5 * time.Minute); ; {
		select {
		case now := <-r.said:
			if last = now.missing; last == nil && words == "" || last != nil && words != "" && strings.Contains(last.Error(), words) {
				return
			}
		case <-deadline:
			r.t.Fatalf("%s says %v, want %q", r.who, last, words)
		}
	}
}

func readyJob(t *testing.T, ps string) *job.Config {
	t.Helper()
	cfg, err := job.Decode([]byte(`
version: 1
name: ready
source: {synthetic: {examples: 2000, splits: 2}}
parse:
  features: [{name: user, slot: 1}, {name: item, slot: 2}]
  label: click
model: {lr: {}}
ps: {`+ps+`}
`), "ready.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(t.TempDir(), "run")}})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestShardsAreReady: shards that wait for each other, or for a state, are not; those that have one are, also while shard 0 is away, and one that ends is not.
func TestShardsAreReady(t *testing.T) {
	t.Parallel()
	cfg := readyJob(t, `addresses: ["`+testbed.FreeAddr(t)+`", "`+testbed.FreeAddr(t)+`"]`)
	zero := begin(t, cfg, "shard 0", false, 0)
	zero.becomes("shard 1")
	one := begin(t, cfg, "shard 1", false, 1)
	zero.becomes("")
	one.becomes("")
	one.kill()
	again := begin(t, cfg, "shard 1 anew", false, 1)
	again.becomes("")
	zero.kill()
	again.becomes("")
	alone := begin(t, cfg, "shard 0 anew", false, 0)
	alone.becomes("")
	close(alone.drain)
	alone.becomes("the process ends")
	alone.kill()
	again.kill()
	lonely := begin(t, cfg, "shard 1 before shard 0", false, 1)
	lonely.becomes("shard 1 has no state yet")
}

// TestPairsAreReady: both processes of a shard are, the one in charge and the standby that has all; and who has lost its lease is not.
func TestPairsAreReady(t *testing.T) {
	t.Parallel()
	cfg := readyJob(t, `addresses: ["`+testbed.FreeAddr(t)+`", "`+testbed.FreeAddr(t)+`"], durability: wal, standby: {addresses: ["", "`+testbed.FreeAddr(t)+`"]}`)
	alone := begin(t, cfg, "shard 1 before shard 0", false, 1)
	alone.becomes("has not said yet which")
	alone.kill()
	zero, second := begin(t, cfg, "shard 0", false, 0), begin(t, cfg, "the standby", true, 1)
	second.becomes("has not caught up") // there is nothing to catch up with
	one := begin(t, cfg, "shard 1", false, 1)
	zero.becomes("")
	one.becomes("")
	second.becomes("")
	zero.kill()
	one.becomes("shard 0 has not been heard of")
	second.becomes("")
	begin(t, cfg, "shard 0 anew", false, 0).becomes("")
	one.becomes("")
	one.kill()
	second.becomes("")
}

// TestRunsAreReady: training, predicting and evaluating are once they have parameters to begin with.
func TestRunsAreReady(t *testing.T) {
	t.Parallel()
	cfg := readyJob(t, "shards: 2")
	said := 0
	o := job.RunOptions{Ready: func(missing error) {
		if said++; missing != nil {
			t.Errorf("%v", missing)
		}
	}}
	if _, err := job.Predict(t.Context(), cfg, job.PredictOptions{Options: o}); err == nil || said != 0 {
		t.Errorf("predictions without a snapshot: %v, ready %d times", err, said)
	}
	if _, err := job.Run(t.Context(), cfg, o); err != nil || said != 1 {
		t.Errorf("training: %v, ready %d times", err, said)
	}
	remote := readyJob(t, `addresses: ["`+testbed.FreeAddr(t)+`"], retry: 0s`)
	if _, err := job.Run(t.Context(), remote, o); err == nil || errors.Is(err, context.Canceled) || said != 1 {
		t.Errorf("training without shards: %v, ready %d times", err, said)
	}
}
