//go:build unix

package main_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/tfrecord"
)

const (
	predictFiles = 4
	predictRows  = 60_000 // of each file
)

// predictKillJob predicts files of which the first was trained on.
const predictKillJob = `version: 1
name: scored
seed: 3
source: {text: {files: [%[1]q]}}
parse: {format: csv, columns: [label, user, item], features: [{name: user}, {name: item}], label: label}
model: {deepfm: {dim: 8, hidden: [32, 32]}}
train: {batch: 1024}
predict:
  source: {text: {files: [%[2]q]}}
  fields: [label, user, position, split, prediction]
`

// followKillJob predicts the topic that it was trained on.
const followKillJob = `version: 1
name: followed
seed: 3
dir: %[1]q
source: {kafka: {brokers: [%[2]q], topic: requests, end: latest, discover_every: 20ms}}
parse: {format: csv, columns: [label, user, item], features: [{name: user}, {name: item}], label: label}
model: {deepfm: {dim: 8, hidden: [32, 32]}}
train: {batch: 512}
predict: {fields: [label, position, prediction]}
`

// TestKilledPredictionsAreWrittenOnce kills `monolith predict` at random moments, with one worker and with several, into files of lines, into
// TFRecords and into a topic: in the end each row is predicted once, in the order of its split where it is in files, and all that is written has the
// digest of a run that nobody touched.
func TestKilledPredictionsAreWrittenOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for f := range predictFiles {
		var b strings.Builder
		for i := f * predictRows; i < (f+1)*predictRows; i++ {
			fmt.Fprintf(&b, "%d,%d,%d\n", i*7%11%2, i%9973, i*i%499)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("rows-%d.csv", f)), []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "job.yaml")
	text := fmt.Sprintf(predictKillJob, filepath.Join(dir, "rows-0.csv"), filepath.Join(dir, "rows-*.csv"))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	set := []string{"--set", "dir=" + filepath.Join(dir, "run")}
	run := func(args ...string) []byte {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), path, append(args, set...)...).Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, stderr(err))
		}
		return out
	}
	run("train", file)
	untouched := filepath.Join(dir, "untouched")
	run("predict", file, "--to", "tsv", "--dir", untouched)
	want, _ := tsvPredictions(t, untouched)
	if len(want) != predictFiles*predictRows {
		t.Fatalf("%d predictions of %d rows", len(want), predictFiles*predictRows)
	}

	for _, c := range []struct {
		to      string
		workers int
		read    func(t *testing.T, dir string) (map[outputPlace]string, bool)
	}{{"tsv", 1, tsvPredictions}, {"tsv", 3, tsvPredictions}, {"tfrecord", 2, tfrecordPredictions}, {"kafka", 3, nil}} {
		t.Run(fmt.Sprint(c.to, "-", c.workers), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed of the kills: %d", seed)
			rng := rand.New(rand.NewPCG(seed, 7))
			out := filepath.Join(dir, fmt.Sprint(c.to, c.workers))
			args := slices.Concat([]string{"predict", file, "--workers", fmt.Sprint(c.workers), "--json"}, set)
			least := 0 // of what shows that it is under way
			var written func() int
			var topic *writtenOutputs
			if c.to == "kafka" {
				bed, err := broker.Start(broker.Options{Topics: map[string]int{"scores": 2}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = bed.Close() })
				addr := strings.Join(bed.Addrs(), ",")
				topic = watchTopic(t, addr, "scores")
				args = append(args, "--to", "kafka://"+addr+"/scores", "--set", "predict.to.kafka.commit_every=5ms")
				written, least = topic.count, 3000
			} else {
				args = append(args, "--to", c.to, "--dir", out, "--set", "predict.to."+c.to+".rows_per_file=4096")
				written = func() int {
					found, err := filepath.Glob(filepath.Join(out, "[^._]*"))
					if err != nil {
						t.Error(err)
					}
					return len(found)
				}
			}
			kills := 0
			for ; kills < 8; kills++ {
				was := written()
				more, pause := 1+least+rng.IntN(1+4*max(least, 1)), time.Duration(rng.IntN(60))*time.Millisecond
				if !killWritten(t, written, was+more, pause, path, args...) {
					break
				}
			}
			if kills == 0 {
				t.Error("no run was killed: no test")
			}
			b, err := exec.CommandContext(t.Context(), path, args...).Output()
			if err != nil {
				t.Fatalf("the last life: %v\n%s", err, stderr(err))
			}
			var r struct {
				Result struct{ Rows, Earlier int64 }
			}
			if err := json.Unmarshal(b, &r); err != nil || r.Result.Rows != predictFiles*predictRows || r.Result.Earlier == 0 {
				t.Errorf("%v, %s; want %d rows, some of them from before %d kills", err, b, predictFiles*predictRows, kills)
			}
			if topic != nil {
				for deadline := time.Now().Add(time.Minute); topic.count() < len(want) && time.Now().Before(deadline); {
					time.Sleep(10 * time.Millisecond)
				}
				topic.mu.Lock()
				defer topic.mu.Unlock()
				if len(topic.twice) > 0 || len(topic.bad) > 0 || len(topic.got) != len(want) {
					t.Errorf("%d predictions of %d; %d are there twice, such as %q, and %d are none", len(topic.got), len(want), len(topic.twice), topic.twice[:min(1, len(topic.twice))], len(topic.bad))
				}
				for at, got := range topic.got {
					if fields := strings.Split(want[at], "\t"); fmt.Sprint(got) != fmt.Sprint(number(t, fields[len(fields)-1])) {
						t.Fatalf("%v: %v after %d kills, untouched %q", at, got, kills, want[at])
					}
				}
				return
			}
			got, ordered := c.read(t, out)
			if !ordered {
				t.Error("the rows of a split are not in its order")
			}
			if a, b := digestOf(want), digestOf(got); a != b {
				t.Errorf("%d predictions with digest %s after %d kills, %d with %s untouched", len(got), b, kills, len(want), a)
			}
		})
	}
}

// TestKilledFollowerPredictsEachRowOnce kills `monolith predict --follow` at random moments while the topic that it follows grows, also by a partition: each victim lived, had written since it was started, and has not ended by itself. Then
// one ends in order, and each record has been predicted once, as a run has it that nobody touched and that ends with the topic.
func TestKilledFollowerPredictsEachRowOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"requests": 2, "scores": 2, "untouched": 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bed.Close() })
	made := 0
	happen := func(partition, n int) {
		t.Helper()
		var records []broker.Record
		for range n {
			records = append(records, broker.Record{Value: fmt.Appendf(nil, "%d,%d,%d", made*7%11%2, made%9973, made*made%499)})
			made++
		}
		if err := broker.Produce(t.Context(), bed.Addrs(), "requests", partition, broker.Batch{}, records...); err != nil {
			t.Fatal(err)
		}
	}
	happen(0, 3000)
	happen(1, 3000)
	dir, addr := t.TempDir(), strings.Join(bed.Addrs(), ",")
	file := filepath.Join(dir, "job.yaml")
	text := fmt.Sprintf(followKillJob, filepath.Join(dir, "run"), addr)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) []byte {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), path, args...).Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, stderr(err))
		}
		return out
	}
	run("train", file)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed of the kills: %d", seed)
	rng := rand.New(rand.NewPCG(seed, 7))
	topic := watchTopic(t, addr, "scores")
	args := []string{"predict", file, "--follow", "--workers", "2", "--to", "kafka://" + addr + "/scores", "--set", "predict.to.kafka.commit_every=5ms", "--json"}
	const kills, partitions = 4, 3
	for kill := range kills {
		if kill == 1 {
			if err := bed.AddPartitions(t.Context(), "requests", partitions); err != nil {
				t.Fatal(err)
			}
		}
		before := made
		if kill == 0 {
			before = 0
		}
		for p := range 2 + kill/2 {
			happen(p, 800)
		}
		enough := before + 1 + rng.IntN(1500) // of which nobody before can have written the last one
		if !killWritten(t, topic.count, enough, time.Duration(rng.IntN(30))*time.Millisecond, path, args...) {
			t.Fatal("it ended by itself")
		}
	}
	happen(partitions-1, 500)

	last := exec.CommandContext(t.Context(), path, args...)
	var out, says bytes.Buffer
	last.Stdout, last.Stderr = &out, &says
	if err := last.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- last.Wait() }()
	for late := time.After(5 * time.Minute); topic.count() < made; {
		select {
		case err := <-ended:
			t.Fatalf("the last life ended by itself: %v\n%s", err, &says)
		case <-late:
			t.Fatalf("%d predictions of %d\n%s", topic.count(), made, &says)
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := last.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("the last life: %v\n%s", err, &says)
	}
	var r struct {
		Result struct {
			Rows, Earlier int64
			Drained       bool
		}
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Result.Rows != int64(made) || r.Result.Earlier == 0 || !r.Result.Drained {
		t.Errorf("%v, %s; want %d rows, some of them from before %d kills", err, &out, made, kills)
	}
	untouched := watchTopic(t, addr, "untouched")
	run("predict", file, "--to", "kafka://"+addr+"/untouched", "--set", "predict.to.kafka.commit_every=5ms")
	if !untouched.grows(made-1, 5*time.Minute) {
		t.Fatalf("%d predictions of %d by a run that nobody touched", untouched.count(), made)
	}
	topic.mu.Lock()
	defer topic.mu.Unlock()
	untouched.mu.Lock()
	defer untouched.mu.Unlock()
	if len(topic.twice) > 0 || len(topic.bad) > 0 {
		t.Errorf("%d predictions are there twice, such as %q, and %d are none", len(topic.twice), topic.twice[:min(1, len(topic.twice))], len(topic.bad))
	}
	if diff := cmp.Diff(untouched.got, topic.got); diff != "" {
		t.Errorf("predictions (-untouched +killed):\n%.2000s", diff)
	}
}

func number(t *testing.T, text string) (v float64) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// digestOf names what is written of all rows, in one order.
func digestOf(rows map[outputPlace]string) string {
	var lines []string
	for at, text := range rows {
		lines = append(lines, fmt.Sprintf("%q %d %s\n", at.split, at.position, text))
	}
	slices.Sort(lines)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(lines, ""))))
}

// eachFile reads the visible files of a folder by name, so those of a split in the order of their positions.
func eachFile(t *testing.T, dir string, read func(b []byte)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "[^._]*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b, err = io.ReadAll(z); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		read(b)
	}
}

// tsvPredictions reads the predictions of files of lines: "label\tuser\tprediction" by place, and whether the rows of each split are in its order.
func tsvPredictions(t *testing.T, dir string) (rows map[outputPlace]string, ordered bool) {
	rows, ordered = map[outputPlace]string{}, true
	last := map[string]int64{}
	eachFile(t, dir, func(b []byte) {
		lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		if lines[0] != "label\tuser\tposition\tsplit\tprediction" {
			t.Fatalf("the columns are %q", lines[0])
		}
		for _, line := range lines[1:] {
			f := strings.Split(line, "\t")
			at := outputPlace{f[3], int64(number(t, f[2]))}
			if _, twice := rows[at]; twice {
				t.Errorf("%v is there twice", at)
			}
			rows[at] = f[0] + "\t" + f[1] + "\t" + f[4]
			ordered = ordered && at.position > last[at.split]
			last[at.split] = at.position
		}
	})
	return rows, ordered
}

// tfrecordPredictions is tsvPredictions for TFRecords.
func tfrecordPredictions(t *testing.T, dir string) (rows map[outputPlace]string, ordered bool) {
	rows, ordered = map[outputPlace]string{}, true
	last := map[string]int64{}
	eachFile(t, dir, func(b []byte) {
		for r := tfrecord.NewReader(bytes.NewReader(b), nil); ; {
			record, err := r.Next()
			if err == io.EOF { //nolint:errorlint // it is never wrapped
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			all, err := example.All(record)
			if err != nil {
				t.Fatal(err)
			}
			position, err := all["position"].AppendInt64s(nil)
			if err != nil {
				t.Fatal(err)
			}
			text := func(name string) string { v, _ := all[name].AppendBytes(nil); return string(bytes.Join(v, nil)) }
			float := func(name string) string { v, _ := all[name].AppendFloats(nil); return fmt.Sprint(v[0]) }
			at := outputPlace{text("split"), position[0]}
			if _, twice := rows[at]; twice {
				t.Errorf("%v is there twice", at)
			}
			rows[at] = float("label") + "\t" + text("user") + "\t" + float("prediction")
			ordered = ordered && at.position > last[at.split]
			last[at.split] = at.position
		}
	})
	return rows, ordered
}
