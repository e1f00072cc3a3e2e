//go:build unix

package main_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"
)

// TestKilledOnASchedule kills training whose learning rates change with every batch, through a warm-up and several cycles, and compares with a run that nobody touched: with a
// log, whose staged batches count as soon as they are decided, and without, on one shard and several, in step and looking up ahead.
func TestKilledOnASchedule(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	addr := startBroker(t)
	fill(t, addr, killRecords(t), 0, killExamples)
	job := func(shards int, durability, prefetch, schedule string) (dir, file string) {
		return writeKillJob(t, addr, shards, "train: {batch: 97}", fmt.Sprintf("train: {batch: 97, prefetch: %s, schedule: %s}", prefetch, schedule),
			fmt.Sprintf("ps: {shards: %d}", shards), fmt.Sprintf("ps: {shards: %d, durability: %s}", shards, durability))
	}
	const queues, schedule = "{parse: 4, lookup: 3, push: 3}", "{kind: polynomial, over: 30000, cycle: true, warm_up: 20000}"
	longest := time.Duration(0)
	untouched := func(schedule string) string {
		dir, file := job(1, "none", queues, schedule)
		began := time.Now()
		if out, err := exec.CommandContext(t.Context(), path, "train", file).CombinedOutput(); err != nil {
			t.Fatalf("the untouched run: %v\n%s", err, out)
		}
		longest = time.Since(began) / (3 * 8)
		return digest(t, path, dir)
	}
	want := untouched(schedule)
	if constant := untouched("{kind: constant}"); constant == want {
		t.Fatal("without a schedule it is the same: the test says nothing")
	}
	for _, c := range []struct {
		shards               int
		durability, prefetch string
	}{{1, "wal", queues}, {2, "none", "{lookup: 0, push: 0}"}, {3, "wal", "{lookup: 0, push: 0}"}} {
		t.Run(fmt.Sprintf("shards=%d/%s", c.shards, c.durability), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed of the kills: %d", seed)
			rng := rand.New(rand.NewPCG(seed, uint64(c.shards)))
			dir, file := job(c.shards, c.durability, c.prefetch, schedule)
			for range 8 {
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
