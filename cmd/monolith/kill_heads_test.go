//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"
)

// killHeads replaces the model of [killJob]: two heads, one of them a regression over the rows that were clicked, a sequence
// that attends to the item's category, and a table of the users' own.
var killHeads = []string{
	"{name: user, slot: 1}", "{name: user, slot: 1, table: users}",
	"{name: history, slot: 4, max: 3, combiner: mean}", "{name: history, slot: 3, attends: category}",
	"  label: click\n", "heads: [{name: click}, {name: minutes, loss: poisson, weight: 0.1, mask: click}]\n",
	"deepfm: {dim: 4,", "shared_bottom: {dim: 4,",
	"optimizer:", "tables: [{name: users, dim: 3, sparse: {adagrad: {lr: 0.1}}}]\noptimizer:",
}

// headKills is how often each run is killed.
const headKills = 5

// TestKilledWithHeadsEndsWithTheSameDigest kills the training of two heads on two tables and a sequence, each time after it has
// stored a snapshot, on one and on three shards: rows, optimizer state, dense parameters, positions and worker state are those of a run that nobody touched, and
// so are the metrics of both heads over the last examples.
func TestKilledWithHeadsEndsWithTheSameDigest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	addr := startBroker(t)
	fill(t, addr, killRecords(t), 0, killExamples)
	end := func(t *testing.T, job string) (examples int64, metrics map[string]any) {
		out, err := exec.CommandContext(t.Context(), path, "train", job, "--json").Output()
		if err != nil {
			t.Fatalf("train: %v\n%s", err, stderr(err))
		}
		var r struct {
			Result struct {
				Examples int64
				Metrics  map[string]any
			}
		}
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		return r.Result.Examples, r.Result.Metrics
	}
	dir, untouched := writeKillJob(t, addr, 1, killHeads...)
	began := time.Now()
	_, wantMetrics := end(t, untouched)
	// The kills together wait for at most a third of an untouched run, so that no machine is too fast to have some left.
	longest := min(800*time.Millisecond, time.Since(began)/(3*headKills))
	want := digest(t, path, dir)
	t.Logf("untouched: digest %s, %v", want, wantMetrics)
	for _, name := range []string{"click.progressive_auc", "minutes.progressive_rmse"} {
		if wantMetrics[name] == nil {
			t.Errorf("%s is not among the metrics %v", name, wantMetrics)
		}
	}
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprintf("shards=%d", shards), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed of the kills: %d", seed)
			rng := rand.New(rand.NewPCG(seed, uint64(shards)))
			dir, killed := writeKillJob(t, addr, shards, killHeads...)
			for range headKills {
				before, after, since := newest(dir), time.Duration(rng.Int64N(int64(longest))), time.Time{}
				killWhen(t, path, killed, func() bool {
					if since.IsZero() && newest(dir) != before {
						since = time.Now()
					}
					return !since.IsZero() && time.Since(since) >= after
				})
			}
			left, metrics := end(t, killed)
			t.Logf("%d examples were left for the last life", left)
			if left == 0 || left == killExamples {
				t.Error("the kills came too late, or too early, to be a test")
			}
			if got := digest(t, path, dir); got != want {
				t.Errorf("digest %s after %d kills, %s untouched", got, headKills, want)
			}
			if !maps.Equal(metrics, wantMetrics) {
				t.Errorf("metrics %v after %d kills, %v untouched", metrics, headKills, wantMetrics)
			}
		})
	}
}
