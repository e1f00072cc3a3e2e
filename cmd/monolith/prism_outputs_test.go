//go:build unix

package main_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/broker"
)

// prismOutputs is what [killJob] writes on Prism: rows, and predictions to two places.
const prismOutputs = `
outputs:
- {name: examples, of: rows, to: {parquet: {dir: %[1]s, rows_per_file: 700, file_every: 300ms}}}
- {name: kept, of: predictions, to: {parquet: {dir: %[1]s-predictions, rows_per_file: 900, file_every: 200ms}}}
- {name: predictions, of: predictions, to: {kafka: {brokers: [%[2]s], topic: %[3]s, commit_every: 60ms}}}
`

// TestPrismOutputsHaveEachRowOnce trains a job with three outputs inside Beam's Prism and kills it at random: rows, predictions and
// digest are those of a run on the local runner that nobody touched. With two executors, whose order is not fixed, each row is once
// in each output all the same.
func TestPrismOutputsHaveEachRowOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	topics := []string{"whole", "once", "fixed", "order", "wal"}
	made := map[string]int{"clicks": killPartitions}
	for _, topic := range topics {
		made[topic] = 3
	}
	b, err := broker.Start(broker.Options{Topics: made})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	addr := strings.Join(b.Addrs(), ",")
	fill(t, addr, killRecords(t)[:outputExamples], 0, outputExamples)
	ids := occurrences(t, outputExamples)
	prepare := func(t *testing.T, topic string) (dir, job string, out *writtenOutputs) {
		out = watchTopic(t, addr, topic)
		text := fmt.Sprintf(killJob, "DIR", addr, outputExamples/killPartitions, 2)
		text = strings.Replace(text, "hidden: [256, 256]", "hidden: [512, 512]", 1)
		text = strings.Replace(text, "every: 30ms", "every: 200ms", 1) // each completes the files
		dir, job = makeJob(t, text+fmt.Sprintf(prismOutputs[1:], out.dir, addr, topic))
		return dir, job, out
	}
	kept := func(t *testing.T, out *writtenOutputs) map[outputPlace]float64 {
		files := &writtenOutputs{dir: out.dir + "-predictions"}
		got := map[outputPlace]float64{}
		for at, row := range files.rows(t) {
			_, rest, _ := strings.Cut(row, " prediction=")
			value, _, _ := strings.Cut(rest, " ")
			p, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("row %v is%s", at, row)
			}
			got[at] = p
		}
		return got
	}

	dir, job, untouched := prepare(t, "whole")
	if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
		t.Fatalf("the untouched run: %v\n%s", err, out)
	}
	want := digest(t, path, dir)
	wantRows, wantPredictions, wantKept := untouched.rows(t), untouched.predictions(t), kept(t, untouched)
	checkRows(t, wantRows, outputExamples)
	for _, c := range []struct {
		topic string
		kills int
		set   []string
	}{
		{"once", 0, nil},
		{"fixed", 6, nil},
		{"order", 5, []string{"deterministic=false", "train.workers=2"}},
		{"wal", 5, []string{"deterministic=false", "train.workers=2", "ps.durability=wal"}},
	} {
		t.Run(c.topic, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed of the kills: %d", seed)
			rng := rand.New(rand.NewPCG(seed, 7))
			dir, job, out := prepare(t, c.topic)
			args := []string{"--runner=prism"}
			for _, set := range c.set {
				args = append(args, "--set", set)
			}
			halfway := 0
			for range c.kills {
				enough := out.count() + 1 + rng.IntN(1500)
				var since time.Time
				pause := time.Duration(rng.IntN(60)) * time.Millisecond
				killWhen(t, path, job, func() bool {
					if since.IsZero() && out.count() >= enough {
						since = time.Now()
					}
					return !since.IsZero() && time.Since(since) >= pause
				}, args...)
				if out.unfinished(t) > 0 {
					halfway++
				}
				out.look(t)
			}
			if c.kills > 0 && halfway == 0 {
				t.Error("no kill left a file unfinished")
			}
			if c.kills > 0 { // and one that ends in order
				drained := exec.CommandContext(t.Context(), path, append([]string{"train", job}, args...)...)
				if err := drained.Start(); err != nil {
					t.Fatal(err)
				}
				out.grows(out.count(), time.Minute)
				if err := drained.Process.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
				if err := drained.Wait(); err != nil && drained.ProcessState.ExitCode() != 130 { // 0: it had ended before
					t.Errorf("drained: %v", err)
				}
			}
			if out, err := exec.CommandContext(t.Context(), path, append([]string{"train", job}, args...)...).CombinedOutput(); err != nil {
				t.Fatalf("the last life: %v\n%s", err, out)
			}
			out.look(t)
			if diff := cmp.Diff(wantRows, out.rows(t)); diff != "" {
				t.Errorf("rows (-local +prism):\n%.2000s", diff)
			}
			for name, got := range map[string][2]map[outputPlace]float64{"topic": {wantPredictions, out.predictions(t)}, "files": {wantKept, kept(t, out)}} {
				if c.set != nil { // trained in another order
					for at := range got[1] {
						if _, ok := got[0][at]; ok {
							got[1][at] = got[0][at]
						}
					}
				}
				if !maps.Equal(got[0], got[1]) {
					t.Errorf("predictions in the %s (-local +prism):\n%.2000s", name, cmp.Diff(got[0], got[1]))
				}
			}
			if snapshots, err := filepath.Glob(filepath.Join(dir, "snapshots", "*")); err != nil || len(snapshots) == 0 {
				t.Errorf("%d snapshots, %v", len(snapshots), err)
			}
			checkOccurrences(t, dir, outputExamples, ids)
			if c.set == nil {
				if got := digest(t, path, dir); got != want {
					t.Errorf("digest %s, local %s", got, want)
				}
			}
		})
	}
}
