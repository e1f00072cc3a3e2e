//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/testbed"
)

// soakFor is how long [TestSoak] disturbs a cluster, one half of it in each scene.
const soakFor = 10 * time.Minute

// soak is a cluster of processes that is disturbed.
type soak struct {
	t       *testing.T
	rng     *rand.Rand
	p       *processes
	b       *broker.Broker
	workers []string
	records [][]byte
	// filled is how many records the topic has, done what has happened, by name.
	filled int
	done   map[string]int
}

// worker is one of those at work. One that was slow for longer than its lease has ended, and says so.
func (s *soak) worker() *process {
	s.t.Helper()
	name := s.workers[s.rng.IntN(len(s.workers))]
	pr := s.p.procs[name]
	select {
	case <-pr.done:
		if !strings.Contains(pr.last(), "replaced") {
			s.p.dump()
			s.t.Fatalf("%s ended by itself: %v\n%s", name, pr.err, pr.last())
		}
		return s.p.launch(name, "train", s.p.job, "--worker", name)
	default:
		return pr
	}
}

// take asks for a snapshot.
func (s *soak) take() (examples int64, ok bool) {
	s.t.Helper()
	o := monolith(s.t, "snapshot", "take", s.p.job, "--json")
	var r struct{ Result struct{ Examples int64 } }
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		s.t.Fatalf("%v in %s", err, o.stdout)
	}
	return r.Result.Examples, o.code == 0
}

// pause stops a process for a while.
func (s *soak) pause(pr *process, least, most time.Duration) {
	pr.signal(syscall.SIGSTOP)
	time.Sleep(least + time.Duration(s.rng.Int64N(int64(most-least))))
	pr.signal(syscall.SIGCONT)
}

// give puts some records into the topic: those of the data set, again and again.
func (s *soak) give(n int) {
	s.t.Helper()
	at := s.filled % len(s.records)
	n = min(n, len(s.records)-at)
	fill(s.t, s.b.Addrs()[0], s.records, at, at+n)
	s.filled += n
}

// disturb does something again and again, for a while, and counts it under the name that act returns; "": nothing came of it.
func (s *soak) disturb(long time.Duration, act func(n int) string) {
	for begin := time.Now(); time.Since(begin) < long; {
		s.give(400 + s.rng.IntN(800))
		time.Sleep(time.Duration(s.rng.IntN(600)) * time.Millisecond)
		what := ""
		switch n := s.rng.IntN(20); {
		case n < 3:
			s.worker().kill(s.t)
			what = "workers killed"
		case n < 5:
			s.pause(s.worker(), 100*time.Millisecond, 1500*time.Millisecond) // shorter than the lease
			what = "workers stopped for a while"
		case n < 6:
			restart(s.t, s.b)
			what = "restarts of the broker"
		case n < 8:
			if _, ok := s.take(); ok {
				what = "snapshots asked for"
			}
		default:
			what = act(n - 8)
		}
		if what != "" {
			s.done[what]++
		}
	}
}

// stop ends the workers and then the shards, shard 0 first: it needs the others for a last snapshot.
func (s *soak) stop(shards ...string) {
	for _, name := range slices.Concat(s.workers, shards) {
		s.p.procs[name].end(syscall.SIGTERM)
		s.done["lives of processes"] += s.p.procs[name].lives
	}
}

// TestSoak trains three workers from a broker that gets records all the time, on shards with logs, all processes of their own, and disturbs them for ten minutes: processes are killed,
// or stopped for a while and let continue, the broker goes away and comes back, what goes to a shard and to a standby comes late or not at all, and somebody asks for snapshots, which are
// incremental. Shards are added and removed; in the second half they have standbys, which take over because the other process was stopped, or on command. In the end
// every example was applied once on every shard, and all snapshots that are left are whole.
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
	const shards, fewer, workers = 5, 3, 3
	s := &soak{
		t: t, rng: rand.New(rand.NewPCG(seed, 10)), p: newProcesses(t, path), b: keptBroker(t), records: killRecords(t)[:clusterExamples], done: map[string]int{},
	}
	p := s.p
	text := fmt.Sprintf(clusterJob, strings.Join(s.b.Addrs(), ","), 1, "wal", "rollback")
	const section = "lease: 3s}"
	for _, change := range [][2]string{
		{"    end: {0: 1, 1: 1, 2: 1, 3: 1}\n", ""},
		{"deterministic: true", "deterministic: false"},
		{"train: {batch: 97}", "train: {batch: 97, prefetch: {parse: 4, lookup: 3, push: 3}}"},
		{"every: 150ms, keep: 3", "every: 1s, keep: 3, incremental: 4"},
		{section, section}, // the other scene changes it
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("the job has no %q", change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}

	// Shard 1 and the standby of shard 2 are slow peers: connections to them go through a relay.
	var relays []*testbed.Relay
	relayed := func(to string) string {
		r, err := testbed.NewRelay(testbed.FreeAddr(t), to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		relays = append(relays, r)
		return r.Addr()
	}
	disturbRelay := func() string {
		r := relays[s.rng.IntN(len(relays))]
		if s.rng.IntN(3) > 0 {
			r.Delay(time.Duration(s.rng.IntN(120)) * time.Millisecond)
			return "peers that become slower or faster"
		}
		r.Cut(true)
		time.Sleep(time.Duration(s.rng.IntN(2000)) * time.Millisecond)
		r.Cut(false)
		return "peers cut off for a while"
	}
	addrs, listen := make([]string, shards), make([]string, shards)
	for i := range addrs {
		addrs[i] = testbed.FreeAddr(t)
		listen[i] = addrs[i]
	}
	addrs[1] = relayed(listen[1])
	p.write(text, addrs)
	launch := func(shards int) (names []string) {
		for i := range shards {
			names = append(names, shardName(i))
			p.launch(names[i], "ps", p.job, "--shard", fmt.Sprint(i), "--listen", listen[i], "-v")
		}
		return names
	}
	train := func() {
		for _, name := range s.workers {
			p.launch(name, "train", p.job, "--worker", name)
		}
	}
	for i := range workers {
		s.workers = append(s.workers, fmt.Sprint("worker-", i))
	}

	names := launch(shards)
	train()
	now := shards
	scale := func(to int) string {
		monolith(t, "ps", "scale", p.job, "--to", strings.Join(addrs[:to], ",")).wants(t, 0)
		now = to
		return "changes of the number of shards"
	}
	s.disturb(soakFor/2, func(n int) string {
		victim := p.procs[names[s.rng.IntN(shards)]]
		switch {
		case n < 5:
			victim.kill(t)
			return "shards killed"
		case n < 8:
			s.pause(victim, 100*time.Millisecond, 1500*time.Millisecond)
			return "shards stopped for a while"
		case n < 10:
			return disturbRelay()
		}
		return scale(shards + fewer - now)
	})
	for _, r := range relays {
		r.Delay(0)
	}
	if now != fewer {
		scale(fewer)
	}
	s.stop(names...)
	t.Logf("%d examples in the topic, %d or %d shards from now on, with standbys", s.filled, fewer, fewer+1)

	// The other scene: the same job, with standbys.
	const lease = time.Second
	seconds := []string{testbed.FreeAddr(t), testbed.FreeAddr(t), testbed.FreeAddr(t)}
	p.write(strings.Replace(text, section, fmt.Sprintf("lease: 3s, standby: {addresses: [\"\", \"%s\", \"%s\", \"%s\"], lease: %v}}", seconds[0], relayed(seconds[1]), seconds[2], lease), 1), addrs[:fewer+1])
	now = fewer + 1
	names = launch(now)
	for i := 1; i <= fewer; i++ {
		name := "standby-" + fmt.Sprint(i)
		names = append(names, name)
		p.launch(name, "ps", p.job, "--shard", fmt.Sprint(i), "--standby", "--listen", seconds[i-1], "-v")
	}
	train()
	term := func(shard int) int {
		b, err := os.ReadFile(filepath.Join(p.dir, "snapshots", fmt.Sprintf("term-%04d", shard)))
		if err != nil {
			return 0 // never
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	s.disturb(soakFor/2, func(n int) string {
		shard := 1 + s.rng.IntN(fewer-1)
		switch {
		case n < 3:
			p.procs[names[s.rng.IntN(len(names))]].kill(t)
			return "shards and standbys killed"
		case n < 4:
			s.pause(p.procs[names[0]], 100*time.Millisecond, 2*lease)
			return "shard 0 stopped for a while"
		case n < 7: // the one in charge, for long enough
			s.pause(p.procs[[]string{shardName(shard), "standby-" + fmt.Sprint(shard)}[term(shard)%2]], lease, 4*lease)
			return "processes in charge stopped for longer than the lease"
		case n < 8:
			return scale(fewer + fewer + 1 - now)
		case n < 10:
			switch o := monolith(t, "ps", "promote", p.job, "--shard", fmt.Sprint(shard)); o.code {
			case 0:
				return "standbys that have taken over on command"
			case 3:
				return "promotions refused"
			default:
				o.wants(t, 0)
			}
			return ""
		}
		return disturbRelay()
	})

	for s.filled%len(s.records) != 0 {
		s.give(len(s.records))
	}
	deadline := time.Now().Add(testbed.Patience(t))
	for examples := int64(0); examples != int64(s.filled); time.Sleep(100 * time.Millisecond) {
		for range s.workers {
			s.worker() // those that have ended begin again
		}
		examples, _ = s.take()
		if examples > int64(s.filled) || time.Now().After(deadline) {
			p.dump()
			t.Fatalf("%d examples were applied, and %d are in the topic", examples, s.filled)
		}
	}
	s.stop(names...)
	for i := 1; i <= fewer; i++ {
		s.done["take-overs"] += term(i)
	}
	for _, what := range slices.Sorted(maps.Keys(s.done)) {
		t.Logf("%s: %d", what, s.done[what])
	}
	t.Logf("%d examples", s.filled)
	for _, what := range []string{"take-overs", "standbys that have taken over on command", "changes of the number of shards"} {
		if s.done[what] == 0 {
			t.Errorf("%s: none in %v", what, soakFor)
		}
	}
	want := occurrences(t, clusterExamples)
	for id := range want {
		want[id] *= uint64(s.filled / clusterExamples)
	}
	checkOccurrences(t, p.dir, int64(s.filled), want)
	monolith(t, "snapshot", "verify", p.dir).wants(t, 0)
	if t.Failed() {
		p.dump()
	}
}
