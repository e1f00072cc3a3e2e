//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const prismExamples = 30_000

// prismJobs are a bounded and an unbounded job; the latter ends after so many examples.
func prismJobs(addr string) map[string]string {
	text := fmt.Sprintf(killJob, "DIR", addr, prismExamples/killPartitions, 2)
	end := fmt.Sprintf("    end: {0: %[1]d, 1: %[1]d, 2: %[1]d, 3: %[1]d}\n", prismExamples/killPartitions)
	unbounded := strings.Replace(text, end, "", 1)
	unbounded = strings.Replace(unbounded, "train: {batch: 97}", "train: {batch: 97, max_examples: 25000}", 1)
	return map[string]string{"bounded": text, "unbounded": unbounded}
}

func makeJob(t testing.TB, text string) (dir, job string) {
	t.Helper()
	folder := t.TempDir()
	dir, job = filepath.Join(folder, "run"), filepath.Join(folder, "job.yaml")
	if err := os.WriteFile(job, []byte(strings.Replace(text, "DIR", dir, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, job
}

// TestPrismEndsWithTheSameDigest trains the same jobs on the local runner and inside Beam's Prism, and kills the latter.
func TestPrismEndsWithTheSameDigest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	addr := startBroker(t)
	fill(t, addr, killRecords(t)[:prismExamples], 0, prismExamples)
	for name, text := range prismJobs(addr) {
		t.Run(name, func(t *testing.T) {
			want := ""
			for _, runner := range []string{"local", "prism"} {
				dir, job := makeJob(t, text)
				out, err := exec.CommandContext(t.Context(), path, "train", job, "--runner="+runner).CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", runner, err, out)
				}
				got := digest(t, path, dir)
				if want == "" {
					want = got
				}
				if got != want {
					t.Errorf("%s: digest %s, local %s", runner, got, want)
				}
			}
			// Killed and drained on the way it ends the same.
			dir, job := makeJob(t, text)
			seen := map[string]bool{newest(dir): true} // by its third snapshot, however fast the machine is
			killWhen(t, path, job, func() bool {
				seen[newest(dir)] = true
				return len(seen) > 3
			}, "--runner=prism")
			drained := exec.CommandContext(t.Context(), path, "train", job, "--runner=prism", "--json", "--set", "log.level=debug")
			said := &output{}
			drained.Stderr = said
			if err := drained.Start(); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(time.Minute); !strings.Contains(said.String(), "shards are ready"); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("nothing was begun: %s", said)
				}
			}
			time.Sleep(200 * time.Millisecond)
			if err := drained.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if err := drained.Wait(); err != nil && drained.ProcessState.ExitCode() != 130 { // 0: it had ended before
				t.Fatalf("drained: %v", err)
			}
			if out, err := exec.CommandContext(t.Context(), path, "train", job, "--runner=prism").CombinedOutput(); err != nil {
				t.Fatalf("the last life: %v\n%s", err, out)
			}
			if got := digest(t, path, dir); got != want {
				t.Errorf("digest %s after a kill and a drain, %s untouched", got, want)
			}
		})
	}
}

// TestPrismWithShardsInProcesses trains on Prism against monolith ps.
func TestPrismWithShardsInProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	addr := startBroker(t)
	fill(t, addr, killRecords(t)[:prismExamples], 0, prismExamples)
	text := fmt.Sprintf(clusterJob, addr, prismExamples/killPartitions, "none", "rollback")
	p := startShards(t, path, text, 2)
	p.wait(p.launch("worker", "train", p.job, "--runner=prism"))
	dir, job := makeJob(t, strings.Replace(text, "addresses: ADDRESSES, ", "", 1))
	if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, want := digest(t, path, p.dir), digest(t, path, dir); got != want {
		t.Errorf("digest %s, that of one process on the local runner %s", got, want)
	}
}

// evalFiles is a job whose evaluation reads several splits.
const evalFiles = `
version: 1
name: evaluated
dir: DIR
source: {synthetic: {examples: 20000}}
parse:
  features: [{name: user, slot: 1}, {name: item, slot: 2}, {name: price, kind: dense}]
  label: click
model: {fm: {dim: 4}}
train: {workers: 2}
eval:
  source: {tfrecord: {files: [FILES]}}
  group: user
  metrics: [auc, log_loss, calibration, gauc, ndcg@10]
  slices: [{column: item, max: 6}, {column: item, with: user, max: 5}]
`

// makeEvalJob writes a job with the files that it evaluates, and trains it.
func makeEvalJob(t *testing.T, path string) (job string) {
	t.Helper()
	folder := t.TempDir()
	for i := range 4 {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.tfrecord", i)), tfrecords(t, clickRows(2000+700*i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, job = makeJob(t, strings.Replace(evalFiles, "FILES", filepath.Join(folder, "*.tfrecord"), 1))
	if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
		t.Fatalf("train: %v\n%s", err, out)
	}
	return job
}

// evaluated is the JSON of an evaluation, but for what takes time, and what executors elsewhere do not tell.
func evaluated(t *testing.T, path, job string, more ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), path, append([]string{"eval", job, "--json", "--bootstrap", "20"}, more...)...).Output()
	if err != nil {
		t.Fatalf("eval %q: %v\n%s", more, err, stderr(err))
	}
	var r struct{ Result map[string]any }
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if n, ok := r.Result["examples"].(float64); !ok || n != 12200 {
		t.Errorf("eval %q: %v examples", more, r.Result["examples"])
	}
	for _, key := range []string{"seconds", "examples_per_second", "features"} {
		delete(r.Result, key)
	}
	kept, err := json.MarshalIndent(r.Result, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(kept)
}

// TestPrismEvaluates: an evaluation on Prism has the figures of the local runner, to the last digit, and predictions are the same, one of each row.
func TestPrismEvaluates(t *testing.T) {
	if testing.Short() {
		t.Skip("part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	job := makeEvalJob(t, path)
	want := evaluated(t, path, job)
	for _, workers := range []string{"1", "3"} {
		if diff := cmp.Diff(want, evaluated(t, path, job, "--runner=prism", "--set", "train.workers="+workers)); diff != "" {
			t.Errorf("%s workers (-local +prism):\n%s", workers, diff)
		}
	}
	if diff := cmp.Diff(scored(t, path, job), scored(t, path, job, "--runner=prism", "--workers=3")); diff != "" {
		t.Errorf("predictions (-local +prism):\n%s", diff)
	}
}

// scored are the predictions of a job's evaluation source, by place, as `monolith predict` writes them.
func scored(t *testing.T, path, job string, more ...string) map[outputPlace]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "scores")
	args := append([]string{"predict", job, "--examples", "eval", "--fields", "label,user,position,split,prediction", "--to", "tsv", "--dir", dir, "--json"}, more...)
	out, err := exec.CommandContext(t.Context(), path, args...).Output()
	if err != nil {
		t.Fatalf("predict %q: %v\n%s", more, err, stderr(err))
	}
	var r struct{ Result struct{ Rows, Earlier int64 } }
	if err := json.Unmarshal(out, &r); err != nil || r.Result.Rows != 12200 || r.Result.Earlier != 0 {
		t.Errorf("predict %q: %v, %s", more, err, out)
	}
	rows, ordered := tsvPredictions(t, dir)
	if len(rows) != 12200 || !ordered {
		t.Errorf("predict %q: %d predictions, each split in its order: %t", more, len(rows), ordered)
	}
	return rows
}
