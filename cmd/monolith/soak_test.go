//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// soakFor is how long [TestSoak] disturbs a cluster.
const soakFor = 10 * time.Minute

// TestSoak trains three workers on five shards with logs, or three of them, all processes of their own, from a broker that gets records all the time, and disturbs them for ten minutes: workers and
// shards are killed, or stopped for a while and let continue, the broker goes away and comes back, shards are removed and added, and somebody asks for snapshots, which are incremental. In the end every
// example was applied once on every shard, and all snapshots that are left are whole.
func TestSoak(t *testing.T) {
	if !testbed.Required("soak") {
		t.Skip("takes ten minutes; make soak runs it")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed: %d", seed)
	rng := rand.New(rand.NewPCG(seed, 10))
	records, b := killRecords(t)[:clusterExamples], keptBroker(t)
	text := fmt.Sprintf(clusterJob, strings.Join(b.Addrs(), ","), 1, "wal", "rollback")
	for _, change := range [][2]string{
		{"    end: {0: 1, 1: 1, 2: 1, 3: 1}\n", ""},
		{"deterministic: true", "deterministic: false"},
		{"train: {batch: 97}", "train: {batch: 97, prefetch: {parse: 4, lookup: 3, push: 3}}"},
		{"every: 150ms, keep: 3", "every: 1s, keep: 3, incremental: 4"},
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("the job has no %q", change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	const shards, fewer, workers = 5, 3, 3
	p := startShards(t, path, text, shards)
	job, err := os.ReadFile(p.job)
	if err != nil {
		t.Fatal(err)
	}
	addrs := strings.Split(regexp.MustCompile(`addresses: \[([^]]*)\]`).FindStringSubmatch(string(job))[1], ", ")
	names := make([]string, workers)
	for i := range names {
		names[i] = fmt.Sprint("worker-", i)
		p.launch(names[i], "train", p.job, "--worker", names[i])
	}
	// worker is one of those at work. One that was slow for longer than its lease has ended, and says so.
	worker := func() *process {
		name := names[rng.IntN(workers)]
		pr := p.procs[name]
		select {
		case <-pr.done:
			if !strings.Contains(pr.last(), "replaced") {
				p.dump()
				t.Fatalf("%s ended by itself: %v\n%s", name, pr.err, pr.last())
			}
			return p.launch(name, "train", p.job, "--worker", name)
		default:
			return pr
		}
	}
	take := func() (examples int64, ok bool) {
		o := monolith(t, "snapshot", "take", p.job, "--json")
		var r struct{ Result struct{ Examples int64 } }
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
			t.Fatalf("%v in %s", err, o.stdout)
		}
		return r.Result.Examples, o.code == 0
	}
	pause := func(pr *process) {
		pr.signal(syscall.SIGSTOP)
		time.Sleep(time.Duration(100+rng.IntN(1400)) * time.Millisecond) // shorter than the lease
		pr.signal(syscall.SIGCONT)
	}
	done, filled := map[string]int{}, 0
	give := func(n int) {
		at := filled % len(records)
		n = min(n, len(records)-at)
		fill(t, b.Addrs()[0], records, at, at+n)
		filled += n
	}
	for begin := time.Now(); time.Since(begin) < soakFor; {
		give(400 + rng.IntN(800))
		time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
		shard := p.procs[shardName(rng.IntN(shards))]
		switch n := rng.IntN(20); {
		case n < 5:
			worker().kill(t)
			done["workers killed"]++
		case n < 10:
			shard.kill(t)
			done["shards killed"]++
		case n < 13:
			pause(shard)
			done["shards stopped for a while"]++
		case n < 16:
			pause(worker())
			done["workers stopped for a while"]++
		case n < 17:
			restart(t, b)
			done["restarts of the broker"]++
		case n < 18:
			at := done["changes of the number of shards"] % 2
			monolith(t, "ps", "scale", p.job, "--to", strings.Join(addrs[:[]int{fewer, shards}[at]], ",")).wants(t, 0)
			done["changes of the number of shards"]++
		default:
			if _, ok := take(); ok {
				done["snapshots asked for"]++
			}
		}
	}
	for filled%len(records) != 0 {
		give(len(records))
	}
	deadline := time.Now().Add(5 * time.Minute)
	for examples := int64(0); examples != int64(filled); time.Sleep(100 * time.Millisecond) {
		for range names {
			worker() // those that have ended begin again
		}
		examples, _ = take()
		if examples > int64(filled) || time.Now().After(deadline) {
			p.dump()
			t.Fatalf("%d examples were applied, and %d are in the topic", examples, filled)
		}
	}
	for _, name := range names {
		p.procs[name].end(syscall.SIGTERM)
	}
	for i := range shards { // shard 0 first: it needs the others for a last snapshot
		p.procs[shardName(i)].end(syscall.SIGTERM)
	}
	for _, what := range slices.Sorted(maps.Keys(done)) {
		t.Logf("%s: %d", what, done[what])
	}
	t.Logf("%d examples, in %d lives of shard 0", filled, p.procs[shardName(0)].lives)
	want := occurrences(t, clusterExamples)
	for id := range want {
		want[id] *= uint64(filled / clusterExamples)
	}
	checkOccurrences(t, p.dir, int64(filled), want)
	monolith(t, "snapshot", "verify", p.dir).wants(t, 0)
	if t.Failed() {
		p.dump()
	}
}
