//go:build unix

package main_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"
)

// TestKilledWhileRowsComeAndGo kills training whose ids wait for rows, lose them by age and for want of room, and compares with a run that nobody touched:
// with a log and without, on any number of shards.
func TestKilledWhileRowsComeAndGo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	addr := startBroker(t)
	fill(t, addr, killRecords(t), 0, killExamples)
	job := func(shards int, durability, retention string, incremental int) (dir, file string) {
		return writeKillJob(t, addr, shards, "train: {batch: 97}", "train: {batch: 97}\nretention: "+retention,
			fmt.Sprintf("ps: {shards: %d}", shards), fmt.Sprintf("ps: {shards: %d, durability: %s}", shards, durability),
			"snapshot: {every: 30ms, keep: 2}", fmt.Sprintf("snapshot: {every: 30ms, keep: 2, incremental: %d}", incremental))
	}
	seen := map[string]string{}
	for _, retention := range []string{
		"{expire: 5s, occurrences: 2, table_memory: 2MiB, when_full: evict_oldest, features: [{name: category, occurrences: 0, expire: 0s}]}",
		"{expire: 20s, max_jump: 1s, max_step: 20ms, occurrences: 3, admission: probabilistic, table_memory: 2MiB, when_full: evict_rarest}",
		"{occurrences: 2, admission: sliding_hash_filter, filter_capacity: 4096, filter_splits: 5}",
	} {
		dir, file := job(1, "none", retention, 0)
		began := time.Now()
		if out, err := exec.CommandContext(t.Context(), path, "train", file).CombinedOutput(); err != nil {
			t.Fatalf("the untouched run: %v\n%s", err, out)
		}
		longest := time.Since(began) / (3 * 6)
		want := digest(t, path, dir)
		if other, ok := seen[want]; ok {
			t.Fatalf("%s and %s give the same: the test says nothing", retention, other)
		}
		seen[want] = retention
		for _, c := range []struct {
			shards     int
			durability string
		}{{1, "wal"}, {2, "none"}, {5, "wal"}} {
			t.Run(fmt.Sprintf("shards=%d/%s/%.12s", c.shards, c.durability, retention), func(t *testing.T) {
				seed := uint64(time.Now().UnixNano())
				t.Logf("seed of the kills: %d", seed)
				rng := rand.New(rand.NewPCG(seed, uint64(c.shards)))
				dir, file := job(c.shards, c.durability, retention, 2)
				for range 6 {
					killEarly(t, path, file, dir, time.Duration(100+rng.IntN(500))*time.Millisecond, longest)
				}
				if out, err := exec.CommandContext(t.Context(), path, "train", file).CombinedOutput(); err != nil {
					t.Fatalf("the last life: %v\n%s", err, out)
				}
				if got := digest(t, path, dir); got != want {
					t.Errorf("digest %s after kills, %s untouched", got, want)
				}
			})
		}
	}
}
