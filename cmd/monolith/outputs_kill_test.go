//go:build unix

package main_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/monolith-go/monolith/internal/testbed/realkafka"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/sinks/kafkasink"
	"github.com/monolith-go/monolith/sources/synthsource"
)

const outputExamples = 20_000

// outputsSection is what [clusterJob] writes beside its training: rows to a folder, predictions to a topic.
const outputsSection = `
outputs:
- {name: examples, of: rows, to: {parquet: {dir: %[1]s, rows_per_file: 700, file_every: 300ms}}}
- {name: predictions, of: predictions, to: {kafka: {brokers: [%[2]s], topic: %[3]s, commit_every: 60ms}}}
`

// TestKilledOutputsHaveEachRowOnce kills trainers and shards of jobs with two outputs at random moments; the topic of the one is
// Apache Kafka's. In the end each row of the stream is trained once, lies once in the visible Parquet files and once among the
// committed records of the topic. With one worker the digest is that of a run that nobody touched, and predictions are the
// same bits unless shards have a log: then those of a worker's last moments are made again by a model that has learnt from
// them. Files that are visible at a kill are whole, and never change. A worker that was stopped and has lost its splits
// writes nothing more.
func TestKilledOutputsHaveEachRowOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	kafka := realkafka.Start(t).Addr
	records := killRecords(t)[:outputExamples]
	ids := occurrences(t, outputExamples)
	topics := 0
	text := func(t *testing.T, addr, durability, recovery string) (string, *writtenOutputs) {
		topics++
		out := watchOutputs(t, kafka, fmt.Sprint("predictions-", topics))
		job := fmt.Sprintf(clusterJob, addr, outputExamples/killPartitions, durability, recovery)
		job = strings.Replace(job, "hidden: [128, 128]", "hidden: [256, 256]", 1)
		job = strings.Replace(job, "every: 150ms", "every: 400ms", 1)
		return job + fmt.Sprintf(outputsSection[1:], out.dir, kafka, out.topic), out
	}
	alone := func(text string) string { return strings.Replace(text, "addresses: ADDRESSES, ", "", 1) }

	addr := startBroker(t)
	fill(t, addr, records, 0, outputExamples)
	whole, untouched := text(t, addr, "none", "rollback")
	dir, job := makeJob(t, alone(whole))
	if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
		t.Fatalf("the untouched run: %v\n%s", err, out)
	}
	want := digest(t, path, dir)
	wantRows, wantPredictions := untouched.rows(t), untouched.predictions(t)
	checkRows(t, wantRows, outputExamples)

	for _, c := range []struct {
		name, durability, recovery string
		workers, shards            int // shards of 0: within the worker's process
		workerKills, shardKills    int
	}{
		{"one process with rollback", "none", "rollback", 1, 0, 6, 0},
		{"one process with wal", "wal", "rollback", 1, 0, 6, 0},
		{"processes with rollback", "none", "rollback", 1, 2, 4, 3},
		{"processes with wal", "wal", "rollback", 1, 2, 4, 3},
		{"several workers with rollback", "none", "rollback", 3, 2, 4, 3},
		{"several workers with partial", "none", "partial", 3, 2, 4, 3},
		{"several workers with wal", "wal", "rollback", 3, 2, 4, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed of the kills: %d", seed)
			rng := rand.New(rand.NewPCG(seed, 7))
			addr := startBroker(t)
			text, out := text(t, addr, c.durability, c.recovery)
			if c.shards == 0 {
				text = alone(text)
			}
			if c.workers > 1 {
				for _, change := range [][2]string{
					{"deterministic: true", "deterministic: false"},
					{"train: {batch: 97}", "train: {batch: 97, prefetch: {parse: 4, lookup: 3, push: 3}}"},
					{"lease: 3s", "lease: 2s"},
				} {
					text = strings.Replace(text, change[0], change[1], 1)
				}
			}
			p := startShards(t, path, text, c.shards)
			var workers []*process
			for i := range c.workers {
				name := fmt.Sprint("worker-", i)
				workers = append(workers, p.launch(name, "train", p.job, "--worker", name))
			}
			// Each kill has a part of the stream for itself. Most wait until the job has made progress since the last one, and at least half.
			kills, done, hits, halfway := c.workerKills+c.shardKills, 0, 0, 0
			var zombie *process
			var stopped time.Time
			workerKills, shardKills := c.workerKills, c.shardKills
			for left := kills; left > 0; left-- {
				before := out.count()
				next := done + outputExamples/(kills+1)
				fill(t, addr, records, done, next)
				done = next
				if rng.IntN(4) > 0 || hits < (kills-left+1)/2 {
					if !out.grows(before, time.Minute) {
						p.dump()
						t.Fatalf("nothing is written for a minute after %d rows", before)
					}
					time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
				} else {
					time.Sleep(time.Duration(50+rng.IntN(300)) * time.Millisecond)
				}
				if c.workers > 1 && left == kills-1 { // one loses its splits without knowing: it was never killed, and has some
					zombie = workers[len(workers)-1]
					workers = workers[:len(workers)-1]
					p.await(p.procs[shardName(0)], "worker="+zombie.name+"/0")
					zombie.signal(syscall.SIGSTOP)
					stopped = time.Now()
				}
				if out.count() > before {
					hits++
				}
				if rng.IntN(left) < workerKills {
					workerKills--
					workers[rng.IntN(min(len(workers), 2))].kill(t)
				} else {
					victim := rng.IntN(c.shards)
					if shardKills == c.shardKills { // the one that coordinates is among them
						victim = 0
					}
					shardKills--
					p.procs[shardName(victim)].kill(t)
				}
				if out.unfinished(t) > 0 {
					halfway++
				}
				out.look(t)
			}
			fill(t, addr, records, done, outputExamples)
			if zombie != nil { // longer than the lease, for all the time that shard 0 has been there
				time.Sleep(max(0, 4500*time.Millisecond-time.Since(stopped)))
				zombie.signal(syscall.SIGCONT)
			}
			for _, w := range workers {
				p.wait(w)
			}
			if zombie != nil {
				select {
				case <-zombie.done:
				case <-time.After(time.Minute):
					p.dump()
					t.Fatal("the worker that was stopped goes on")
				}
				if text := zombie.log(); zombie.err == nil || !strings.Contains(text, "replaced") {
					t.Errorf("the worker that was stopped ended with %v, want an error that says that it was replaced", zombie.err)
				}
			}
			// The kills are a test only if they hit what was under way.
			died := 0
			for _, pr := range p.procs {
				died += pr.kills
			}
			t.Logf("%d kills, %d of a job that had written rows since the last one, %d with files that were never finished", died, hits, halfway)
			if died != kills || hits < kills/2 || halfway == 0 {
				t.Errorf("%d of %d kills, %d of a job that had made progress, %d with unfinished files", died, kills, hits, halfway)
			}
			out.look(t)
			if diff := cmp.Diff(wantRows, out.rows(t)); diff != "" {
				t.Errorf("rows (-untouched +killed):\n%.2000s", diff)
			}
			got := out.predictions(t)
			// Where shards outlive a worker, an output may be behind them: what it lacks is predicted by the model as it is then.
			if c.durability == "wal" || c.shards > 0 {
				for at := range got {
					if v, ok := wantPredictions[at]; ok {
						got[at] = v
					}
				}
			}
			if diff := cmp.Diff(wantPredictions, got); diff != "" {
				t.Errorf("predictions (-untouched +killed):\n%.2000s", diff)
			}
			checkOccurrences(t, p.dir, outputExamples, ids)
			if c.workers == 1 {
				if got := digest(t, path, p.dir); got != want {
					t.Errorf("digest %s after %d kills, %s untouched", got, kills, want)
				}
			}
			if t.Failed() {
				p.dump()
			}
		})
	}
}

// checkRows compares so many rows with the stream that they come from.
func checkRows(t *testing.T, rows map[outputPlace]string, want int) {
	t.Helper()
	if len(rows) != want {
		t.Errorf("%d rows, want %d", len(rows), want)
	}
	stream, err := synthsource.NewStream(synthsource.Options{Seed: 3, Examples: killExamples})
	if err != nil {
		t.Fatal(err)
	}
	var ex synthsource.Example
	for at, row := range rows {
		var partition int64
		if _, err := fmt.Sscanf(at.split, "clicks-%d", &partition); err != nil {
			t.Fatalf("split %q: %v", at.split, err)
		}
		stream.At((at.position-1)*killPartitions+partition, &ex)
		for slot, id := range map[string]int64{"user": ex.User, "item": ex.Item, "category": ex.Category} {
			f, err := fid.New(map[string]int{"user": 1, "item": 2, "category": 3}[slot], uint64(id))
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(" %s=%d ", slot, int64(f)); !strings.Contains(row, want) {
				t.Fatalf("row %v is%s, want%s", at, row, want)
			}
		}
		label := 0
		if ex.Click {
			label = 1
		}
		if want := fmt.Sprintf(" label=%d ", label); !strings.Contains(row, want) {
			t.Fatalf("row %v is%s, want%s", at, row, want)
		}
	}
}

// outputPlace tells a row of an output apart: its split, and the position behind it.
type outputPlace struct {
	split    string
	position int64
}

// writtenOutputs are the outputs of a job as others see them while it runs.
type writtenOutputs struct {
	dir, topic string
	seen       map[string][sha256.Size]byte // files that were visible

	mu    sync.Mutex
	got   map[outputPlace]float64
	where map[outputPlace]string // the records
	twice []string
	bad   []string
	last  time.Time // of a record
}

// watchOutputs makes a folder and a topic, and reads what is committed there until the test ends.
func watchOutputs(t *testing.T, addr, topic string) *writtenOutputs {
	t.Helper()
	if err := kafkasink.CreateTopic(t.Context(), kafkasink.Options{Brokers: []string{addr}, Topic: topic}, kafkasink.Topic{Partitions: 3, Replication: 1}); err != nil {
		t.Fatal(err)
	}
	return watchTopic(t, addr, topic)
}

// watchTopic is watchOutputs for a topic that is there.
func watchTopic(t *testing.T, addr, topic string) *writtenOutputs {
	t.Helper()
	o := &writtenOutputs{
		dir: filepath.Join(t.TempDir(), "rows"), topic: topic, seen: map[string][sha256.Size]byte{},
		got: map[outputPlace]float64{}, where: map[outputPlace]string{}, last: time.Now(),
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			o.take(c.PollFetches(ctx))
		}
	}()
	t.Cleanup(func() { cancel(); <-done; c.Close() })
	return o
}

func (o *writtenOutputs) take(f kgo.Fetches) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f.EachRecord(func(r *kgo.Record) {
		var row struct {
			Prediction, Label *float64
			Position          int64
		}
		if err := json.Unmarshal(r.Value, &row); err != nil || row.Prediction == nil || row.Label == nil {
			o.bad = append(o.bad, fmt.Sprintf("%s: %v", r.Value, err))
			return
		}
		at := outputPlace{position: row.Position}
		for _, h := range r.Headers {
			if h.Key == kafkasink.HeaderSplit {
				at.split = string(h.Value)
			}
		}
		where := fmt.Sprintf("partition %d offset %d of producer %d epoch %d", r.Partition, r.Offset, r.ProducerID, r.ProducerEpoch)
		if other, ok := o.where[at]; ok {
			o.twice = append(o.twice, fmt.Sprintf("%v: %s, %s", at, other, where))
		}
		o.where[at] = where
		o.got[at], o.last = *row.Prediction, time.Now()
	})
}

// count is how many predictions are committed.
func (o *writtenOutputs) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.got)
}

// grows waits until more than n predictions are committed.
func (o *writtenOutputs) grows(n int, atMost time.Duration) bool {
	for deadline := time.Now().Add(atMost); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if o.count() > n {
			return true
		}
	}
	return false
}

// predictions waits until no more come, and returns all.
func (o *writtenOutputs) predictions(t *testing.T) map[outputPlace]float64 {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		o.mu.Lock()
		n, quiet := len(o.got), time.Since(o.last) > time.Second
		o.mu.Unlock()
		if n >= outputExamples && quiet || time.Now().After(deadline) {
			break
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.twice) > 0 || len(o.bad) > 0 {
		t.Errorf("%d predictions come twice, such as %q; %d are none, such as %q", len(o.twice), o.twice[:min(3, len(o.twice))], len(o.bad), o.bad[:min(1, len(o.bad))])
	}
	return o.got
}

// visible lists the files that readers see.
func (o *writtenOutputs) visible(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(o.dir, "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(found, func(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") })
}

// unfinished counts the files that are not visible.
func (o *writtenOutputs) unfinished(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(o.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), ".") }))
}

// look checks that each visible file is whole, and that those that were visible before are what they were.
func (o *writtenOutputs) look(t *testing.T) {
	t.Helper()
	there := map[string]bool{}
	for _, path := range o.visible(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%s was visible: %v", filepath.Base(path), err)
			continue
		}
		name, sum := filepath.Base(path), sha256.Sum256(data)
		there[name] = true
		if old, ok := o.seen[name]; !ok {
			readRows(t, path, func(outputPlace, string) {})
		} else if old != sum {
			t.Errorf("%s has changed", name)
		}
		o.seen[name] = sum
	}
	for name := range o.seen {
		if !there[name] {
			t.Errorf("%s is gone", name)
		}
	}
}

// rows reads all visible files; each row may be there once.
func (o *writtenOutputs) rows(t *testing.T) map[outputPlace]string {
	t.Helper()
	out, twice := map[outputPlace]string{}, 0
	for _, path := range o.visible(t) {
		readRows(t, path, func(at outputPlace, row string) {
			if _, ok := out[at]; ok {
				twice++
			}
			out[at] = row
		})
	}
	if twice > 0 {
		t.Errorf("%d rows are in the files twice", twice)
	}
	return out
}

// readRows reads a Parquet file with another reader than ours: " name=value" for each value of a row.
func readRows(t *testing.T, path string, each func(at outputPlace, row string)) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r := parquet.NewReader(f)
	defer func() { _ = r.Close() }()
	columns := r.Schema().Columns()
	rows := make([]parquet.Row, 256)
	for total := int64(0); ; {
		n, err := r.ReadRows(rows)
		for _, row := range rows[:n] {
			at, text := outputPlace{}, " "
			for _, v := range row {
				switch name := columns[v.Column()][0]; name {
				case "split":
					at.split = string(v.ByteArray())
				case "position":
					at.position = v.Int64()
				default:
					text += fmt.Sprintf("%s=%v ", name, v)
				}
			}
			each(at, text)
		}
		total += int64(n)
		switch {
		case err == nil:
			continue
		case !errors.Is(err, io.EOF):
			t.Errorf("%s: %v", filepath.Base(path), err)
		case total != r.NumRows() || total == 0:
			t.Errorf("%s has %d rows, and its footer says %d", filepath.Base(path), total, r.NumRows())
		}
		return
	}
}
