//go:build unix

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/sources/synthsource"
)

const (
	kills          = 20
	killExamples   = 120_000
	killPartitions = 4
)

// killJob trains deterministically and stores a snapshot as often as it can, so that kills hit them too. The perceptron is
// wide so that twenty lives do not reach the end of a topic that was filled before, on a fast machine either.
const killJob = `
version: 1
name: kill
dir: %[1]s
seed: 3
deterministic: true
source:
  kafka:
    brokers: [%[2]s]
    topic: clicks
    end: {0: %[3]d, 1: %[3]d, 2: %[3]d, 3: %[3]d}
    max_wait: 20ms
parse:
  format: tf_example
  features:
    - {name: user, slot: 1}
    - {name: item, slot: 2}
    - {name: category, slot: 3}
    - {name: history, slot: 4, max: 3, combiner: mean}
    - {name: price, kind: dense}
  label: click
model: {deepfm: {dim: 4, hidden: [256, 256], batch_norm: true, dropout: 0.1}}
optimizer: {sparse: {adam: {lr: 0.01}}, bias: {ftrl: {lr: 0.1}}}
train: {batch: 97}
ps: {shards: %[4]d}
snapshot: {every: 30ms, keep: 2}
`

// writeKillJob writes [killJob] to a file, with changes (what there is, what is to be there), and returns the folder of its run too.
func writeKillJob(t *testing.T, addr string, shards int, changes ...string) (dir, job string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	job = filepath.Join(filepath.Dir(dir), "job.yaml")
	text := strings.NewReplacer(changes...).Replace(fmt.Sprintf(killJob, dir, addr, killExamples/killPartitions, shards))
	if err := os.WriteFile(job, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, job
}

// bin is the program under test, built once.
var bin = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "monolith-bin-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "monolith")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := bin(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// TestKilledAnywhereEndsWithTheSameDigest kills the training process twenty times in a run, at random moments, starts it
// again with the same command, and compares the digest of rows, optimizer state, dense parameters, positions and worker
// state with that of a run that nobody touched, for several numbers of shards, with the topic filled before, and, with queues
// around the step, filled while it trains.
func TestKilledAnywhereEndsWithTheSameDigest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	records := killRecords(t)
	filled := startBroker(t)
	fill(t, filled, records, 0, killExamples)
	dir, job := writeKillJob(t, filled, 1)
	began := time.Now()
	if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
		t.Fatalf("the untouched run: %v\n%s", err, out)
	}
	longest := time.Since(began) / (3 * kills)
	want := digest(t, path, dir)
	t.Logf("untouched: digest %s", want)

	for _, shards := range []int{1, 2, 5} {
		for _, while := range []bool{false, true} {
			t.Run(fmt.Sprintf("shards=%d/filled_while_training=%v", shards, while), func(t *testing.T) {
				seed := uint64(time.Now().UnixNano())
				t.Logf("seed of the kills: %d", seed)
				rng := rand.New(rand.NewPCG(seed, uint64(shards)))
				addr := filled
				if while {
					addr = startBroker(t)
				}
				var changes []string
				if while { // queues must change nothing either
					changes = []string{"train: {batch: 97}", "train: {batch: 97, prefetch: {parse: 4, lookup: 3, push: 3}}"}
				}
				dir, job := writeKillJob(t, addr, shards, changes...)
				done := 0
				for range kills {
					if while { // a part of the stream for each life, so that no life reaches the end
						next := done + killExamples/(kills+1)
						fill(t, addr, records, done, next)
						done = next
					}
					after := time.Duration(50+rng.IntN(350)) * time.Millisecond
					if while {
						killOnce(t, path, job, after)
					} else {
						killEarly(t, path, job, dir, after, longest)
					}
				}
				if while {
					fill(t, addr, records, done, killExamples)
				}
				if lastLife(t, path, job) == 0 {
					t.Error("nothing was left for the last life: the kills came too late to be a test")
				}
				if got := digest(t, path, dir); got != want {
					t.Errorf("digest %s after %d kills, %s untouched", got, kills, want)
				}
			})
		}
	}
}

// TestAsynchronousRunsCountEveryExampleOnce kills asynchronous runs (two workers, lookups ahead, pushes behind) and then
// counts: every shard must have applied every example of every partition once, and each id must have been counted as often
// as it occurs in the stream. Occurrences are counted where gradients are applied, by the same commit.
func TestAsynchronousRunsCountEveryExampleOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	records := killRecords(t)
	addr := startBroker(t)
	fill(t, addr, records, 0, killExamples)
	want := occurrences(t, killExamples)
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprintf("shards=%d", shards), func(t *testing.T) {
			changes := []string{
				"deterministic: true", "deterministic: false",
				"train: {batch: 97}", "train: {batch: 97, workers: 2, prefetch: {parse: 4, lookup: 3, push: 3}}",
			}
			_, job := writeKillJob(t, addr, shards, changes...)
			began := time.Now()
			if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
				t.Fatalf("the untouched run: %v\n%s", err, out)
			}
			longest := time.Since(began) / 30
			dir, job := writeKillJob(t, addr, shards, changes...)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed of the kills: %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			for range 10 {
				killEarly(t, path, job, dir, time.Duration(50+rng.IntN(250))*time.Millisecond, longest)
			}
			if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
				t.Fatalf("the last life: %v\n%s", err, out)
			}
			checkOccurrences(t, dir, killExamples, want)
		})
	}
}

// occurrences counts how often each id is in the first examples of the stream.
func occurrences(t *testing.T, examples int) map[int64]uint64 {
	t.Helper()
	want := map[int64]uint64{}
	count := func(slot int, ids ...int64) {
		for _, id := range ids {
			f, err := fid.New(slot, uint64(id))
			if err != nil {
				t.Fatal(err)
			}
			want[int64(f)]++
		}
	}
	stream, err := synthsource.NewStream(synthsource.Options{Seed: 3, Examples: killExamples})
	if err != nil {
		t.Fatal(err)
	}
	var ex synthsource.Example
	for i := range examples {
		stream.At(int64(i), &ex)
		count(1, ex.User)
		count(2, ex.Item)
		count(3, ex.Category)
		count(4, ex.History[:min(3, len(ex.History))]...)
	}
	return want
}

// checkOccurrences compares the newest snapshot in a job's dir with a stream of so many examples: every partition to its end,
// every id counted as often as it occurs.
func checkOccurrences(t *testing.T, dir string, examples int64, want map[int64]uint64) {
	t.Helper()
	entries, err := snapshot.List(filepath.Join(dir, "snapshots"))
	if err != nil || len(entries) == 0 {
		t.Fatalf("no snapshots: %v", err)
	}
	snap, err := snapshot.Open(t.Context(), entries[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := snap.Close(); err != nil {
			t.Error(err)
		}
	}()
	if n := len(snap.Info().Positions["kafka"]); n != killPartitions {
		t.Errorf("the snapshot knows %d partitions, want %d", n, killPartitions)
	}
	for split, p := range snap.Info().Positions["kafka"] {
		if want := examples / killPartitions; p.Rows != want || int64(p.Position) != want {
			t.Errorf("partition %s: %d examples up to position %d, want %d", split, p.Rows, p.Position, want)
		}
	}
	got := map[int64]uint64{}
	if err := snap.Rows(0, func(rows *table.Rows) error {
		for i, key := range rows.Keys {
			got[key] = rows.Counts[i]
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(want, got) {
		wrong, more := 0, 0
		for key, n := range want {
			if got[key] != n {
				wrong++
			}
			if got[key] > n {
				more++
			}
		}
		t.Errorf("%d rows, want %d; %d of them have another count, %d of these a larger one", len(got), len(want), wrong, more)
	}
}

// lastLife trains to the end, and returns how many examples were left for it.
func lastLife(t *testing.T, path, job string) int64 {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), path, "train", job, "--json").Output()
	if err != nil {
		t.Fatalf("the last life: %v\n%s", err, stderr(err))
	}
	var last struct {
		Result struct{ Examples int64 }
	}
	if err := json.Unmarshal(out, &last); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return last.Result.Examples
}

// killOnce starts a training and kills it after a while; it must not have ended before.
func killOnce(t *testing.T, path, job string, after time.Duration, more ...string) {
	t.Helper()
	began := time.Now()
	killWhen(t, path, job, func() bool { return time.Since(began) >= after }, more...)
}

// killEarly is killOnce that does not wait longer than longest after the training has stored a snapshot in dir: where longest is a small part of an
// untouched run, no machine is so fast that the training ends before.
func killEarly(t *testing.T, path, job, dir string, after, longest time.Duration) {
	t.Helper()
	began, before, since := time.Now(), newest(dir), time.Time{}
	killWhen(t, path, job, func() bool {
		if since.IsZero() && newest(dir) != before {
			since = time.Now()
		}
		return time.Since(began) >= after || !since.IsZero() && time.Since(since) >= longest
	})
}

// newest is the newest snapshot in a job's dir.
func newest(dir string) string {
	entries, err := snapshot.List(filepath.Join(dir, "snapshots"))
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].Path
}

// killWhen starts a training and kills it when something is true, within a minute; it must not have ended before.
func killWhen(t *testing.T, path, job string, when func() bool, more ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, append([]string{"train", job}, more...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(time.Minute); !when(); {
		select {
		case err := <-ended:
			t.Fatalf("the process ended by itself before it was killed: %v\n%s", err, &out)
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Error("what the kill waits for was not there after a minute")
			break
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Fatal("the process ended well in spite of SIGKILL")
	}
}

func digest(t *testing.T, path, dir string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), path, "inspect", dir, "--json").Output()
	if err != nil {
		t.Fatalf("inspect: %v\n%s", err, stderr(err))
	}
	var r struct{ Result struct{ Digest string } }
	if err := json.Unmarshal(out, &r); err != nil || r.Result.Digest == "" {
		t.Fatalf("%v in %s", err, out)
	}
	return r.Result.Digest
}

func stderr(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(exit.Stderr)
	}
	return ""
}

func startBroker(t *testing.T) string {
	t.Helper()
	b, err := broker.Start(broker.Options{Topics: map[string]int{"clicks": killPartitions}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return strings.Join(b.Addrs(), ",")
}

// killRecords makes the stream: partition k holds the examples k, k+4, k+8 ...
func killRecords(t *testing.T) [][]byte {
	t.Helper()
	s, err := synthsource.NewStream(synthsource.Options{Seed: 3, Examples: killExamples})
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]byte, killExamples)
	var ex synthsource.Example
	for i := range out {
		s.At(int64(i), &ex)
		out[i] = ex.AppendTFExample(nil)
	}
	return out
}

// fill publishes the examples [from, to).
func fill(t *testing.T, addr string, records [][]byte, from, to int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for p := range killPartitions {
		var out []broker.Record
		for i := from; i < to; i++ {
			if i%killPartitions == p {
				out = append(out, broker.Record{Value: records[i], Time: time.UnixMilli(int64(i) + 1)})
			}
		}
		if err := broker.Produce(ctx, []string{addr}, "clicks", p, broker.Batch{Size: 500}, out...); err != nil {
			t.Fatal(err)
		}
	}
}
