//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAskedWhileItTrains asks a cluster of processes under way for snapshots, and measures its shards: each snapshot is what one process comes to that
// trains on as many examples and that nobody asks for anything.
func TestAskedWhileItTrains(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 10_000_000, 2000, ", durability: wal")
	shards := c.serve(t)
	worker := start(t, "", "train", c.job, "--worker", "a")
	eventually(t, func() bool { return len(c.snapshots()) > 0 }) // something is trained
	ask := func(result any, code int, args ...string) outcome {
		t.Helper()
		o := monolith(t, append(args, "--json")...)
		env := struct{ Result any }{result}
		if err := json.Unmarshal([]byte(o.stdout), &env); err != nil || o.code != code {
			t.Fatalf("%v: %v, exit code %d, want %d\n%s%s", args, err, o.code, code, o.stdout, o.stderr)
		}
		return o
	}
	type taken struct {
		Path, Note, Kept string
		Examples         int64
	}
	var first, second taken
	ask(&first, 0, "snapshot", "take", c.job, "--pin", "--note", "before")
	if f := failure(t, monolith(t, "bench", "ps", c.job, "--json")); f.Code != "config" || !strings.Contains(f.Message, "workers are training") || !strings.Contains(f.Message, "--while-training") {
		t.Errorf("measured beside a worker: %+v", f)
	}
	var rates []struct {
		Shard        int
		Trainers     int
		Lookup, Push struct {
			Rows float64 `json:"rows_per_second"`
		}
		Disks []struct{ Of, Failed string }
	}
	ask(&rates, 0, "bench", "ps", c.job, "--while-training", "--rounds", "1", "--each", "10ms")
	if len(rates) != 2 {
		t.Fatalf("%d shards, want 2", len(rates))
	}
	for _, r := range rates {
		if r.Trainers != 1 || r.Lookup.Rows <= 0 || r.Push.Rows <= 0 || len(r.Disks) != 2 || r.Disks[0].Of != "log" || r.Disks[0].Failed+r.Disks[1].Failed != "" {
			t.Errorf("got %+v", r)
		}
	}
	ask(&second, 0, "snapshot", "take", c.job)
	if first.Note != "before" || first.Examples == 0 || second.Examples <= first.Examples {
		t.Errorf("asked for %+v and later %+v", first, second)
	}
	worker.end(syscall.SIGTERM).wants(t, 143, "not complete; the same command continues")
	shards[0].end(syscall.SIGTERM).wants(t, 0)
	if _, err := os.Stat(first.Path); err != nil {
		t.Errorf("a pinned snapshot has not stayed: %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(c.dir, "run", "*", ".probe-*"))
	if deep, _ := filepath.Glob(filepath.Join(c.dir, "run", "wal", "*", ".probe-*")); len(left)+len(deep) > 0 {
		t.Errorf("files of a benchmark stay: %v %v", left, deep)
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	c.source = strings.Replace(c.source, "rate: 2000, ", "", 1)
	monolith(t, "train", c.write(t, "alone.yaml", "alone", ""), "--set", fmt.Sprintf("train.max_examples=%d", first.Examples)).wants(t, 0)
	if got, want := digest(t, path, first.Path), digest(t, path, filepath.Join(c.dir, "alone")); got != want {
		t.Errorf("the snapshot of %d examples has digest %s, one process has %s", first.Examples, got, want)
	}
	monolith(t, "snapshot", "take", filepath.Join(c.dir, "run")).wants(t, 2, "is a folder", "give its job file", "monolith snapshot take JOB.yaml")
}
