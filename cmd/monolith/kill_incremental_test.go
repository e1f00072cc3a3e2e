//go:build unix

package main_test

import (
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps/snapshot"
)

// TestKilledWithIncrementalSnapshots is [TestKilledAnywhereEndsWithTheSameDigest] for snapshots of what has changed, of chains that are compacted
// all the time.
func TestKilledWithIncrementalSnapshots(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	records := killRecords(t)
	changes := []string{
		"model: {deepfm: {dim: 4, hidden: [256, 256], batch_norm: true, dropout: 0.1}}", "model: {fm: {dim: 8}}",
		"train: {batch: 97}", "train: {batch: 7}",
		"snapshot: {every: 30ms, keep: 2}", "snapshot: {every: 5ms, keep: 2, incremental: 2}",
	}
	filled := startBroker(t)
	fill(t, filled, records, 0, killExamples)
	dir, job := writeKillJob(t, filled, 2, changes...)
	if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
		t.Fatalf("the untouched run: %v\n%s", err, out)
	}
	want := digest(t, path, dir)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed of the kills: %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	addr := startBroker(t)
	dir, job = writeKillJob(t, addr, 2, changes...)
	done, incremental := 0, 0
	for range kills {
		next := done + killExamples/(kills+1)
		fill(t, addr, records, done, next)
		done = next
		killOnce(t, path, job, time.Duration(200+rng.IntN(1000))*time.Millisecond)
		entries, err := snapshot.List(filepath.Join(dir, "snapshots"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Err == nil && e.Info.Base != nil {
				incremental++
			}
		}
	}
	fill(t, addr, records, done, killExamples)
	last := lastLife(t, path, job)
	t.Logf("%d incremental snapshots seen, %d examples in the last life", incremental, last)
	if incremental == 0 || last == 0 {
		t.Error("too few to mean anything")
	}
	if got := digest(t, path, dir); got != want {
		t.Errorf("digest %s after %d kills, %s untouched", got, kills, want)
	}
}
