package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed/realflink"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// flinkFiles is a job on files whose examples are few and small; FILES is the source.
const flinkFiles = `
version: 1
name: backfill
dir: DIR
seed: 5
deterministic: true
source: FILES
parse:
  features:
    - {name: user, slot: 1}
    - {name: item, slot: 2}
    - {name: city, slot: 3}
    - {name: price, kind: dense}
  label: click
model: {deepfm: {dim: 4, hidden: [32, 16]}}
train: {batch: 64}
ps: {shards: 2}
`

// TestFlink trains jobs on a real Flink: the result is that of the local runner, whatever is killed on the way.
func TestFlink(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a JVM; part of the full run")
	}
	server := realflink.Start(t)
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	onFlink := []string{"--runner=flink", "--set", "beam.endpoint=" + server.Endpoint, "--set", "beam.flink_rest=" + server.REST}

	t.Run("files", func(t *testing.T) {
		folder := t.TempDir()
		for i := range 4 {
			rows := clickRows(3000 + 500*i)
			for name, data := range map[string][]byte{"p%d.parquet": parquetOf(t, rows), "t%d.tfrecord": tfrecords(t, rows)} {
				if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf(name, i)), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, source := range []string{"{parquet: {files: [" + folder + "/*.parquet]}}", "{tfrecord: {files: [" + folder + "/*.tfrecord]}}"} {
			text := strings.Replace(flinkFiles, "FILES", source, 1)
			dir, job := makeJob(t, text)
			if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
				t.Fatalf("local: %v\n%s", err, out)
			}
			want := digest(t, path, dir)
			dir, job = makeJob(t, text)
			out, err := exec.CommandContext(t.Context(), path, append([]string{"train", job, "--json"}, onFlink...)...).Output()
			if err != nil {
				t.Fatalf("flink: %v\n%s", err, stderr(err))
			}
			if got := digest(t, path, dir); got != want {
				t.Errorf("%s: digest %s, of the local runner %s", source, got, want)
			}
			var r struct{ Result struct{ Examples int64 } }
			if err := json.Unmarshal(out, &r); err != nil || r.Result.Examples != 15000 {
				t.Errorf("%d examples, %v in %s", r.Result.Examples, err, out)
			}
		}
	})

	t.Run("stream", func(t *testing.T) {
		for _, deterministic := range []bool{true, false} {
			t.Run("deterministic="+strconv.FormatBool(deterministic), func(t *testing.T) {
				flinkStream(t, server, path, onFlink, deterministic)
			})
		}
	})
}

// flinkStream trains on a topic that is filled meanwhile, in worker processes that Flink starts. It kills these, and the submitting process,
// and drains the job.
func flinkStream(t *testing.T, server *realflink.JobServer, path string, onFlink []string, deterministic bool) {
	addr := startBroker(t)
	records := killRecords(t)[:clusterExamples]
	text := fmt.Sprintf(clusterJob, addr, 0, "wal", "rollback")
	text = strings.Replace(text, "    end: {0: 0, 1: 0, 2: 0, 3: 0}\n", "", 1)
	most := clusterExamples
	if deterministic {
		most -= 4000 // its order waits for the splits in turn, also for one that has no more
	}
	text = strings.Replace(text, "train: {batch: 97}", fmt.Sprintf("train: {batch: 97, max_examples: %d}", most), 1)
	if !deterministic {
		text = strings.Replace(text, "deterministic: true", "deterministic: false", 1)
		text = strings.Replace(text, "batch: 97,", "batch: 97, max_batch_delay: 100ms,", 1)
	}
	p := startShards(t, path, text, 2)
	worker := filepath.Join(t.TempDir(), "worker") // of a name of its own, to be found
	if err := os.Link(path, worker); err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"train", p.job, "--worker", "submitter", "--set", "beam.environment=process", "--set", "beam.environment_config=" + worker, "--set", "beam.checkpoint_every=1s",
	}, onFlink...)
	submitter := p.launch("submitter", args...)
	part, done := clusterExamples/5, 0
	more := func() {
		fill(t, addr, records, done, done+part)
		done += part
	}
	applied := func() int64 { return appliedIn(t, p.dir) }
	reaches := func(rows int64, what string) time.Duration {
		t.Helper()
		began := time.Now()
		for applied() < rows {
			if time.Since(began) > time.Minute {
				p.dump()
				t.Fatalf("%s: %d examples after a minute, want %d", what, applied(), rows)
			}
			time.Sleep(20 * time.Millisecond)
		}
		return time.Since(began)
	}
	// Batches that are not full wait for their delay, those of deterministic order for the others.
	almost := func() int64 { return int64(done) - 4*97 }

	more()
	reaches(almost(), "first")
	for i := range 2 {
		pids := pidsOf(t, worker)
		if len(pids) == 0 {
			t.Fatal("there is no worker to be killed")
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("kill %d: %v", pid, err)
			}
		}
		more()
		took := reaches(almost(), fmt.Sprintf("after kill %d of the worker", i))
		t.Logf("all that came after the worker was killed is applied %.1f s later", took.Seconds())
	}
	// The job is left alone, cancelled and started again.
	submitter.end(syscall.SIGKILL)
	server.CancelAll(t)
	submitter = p.launch("submitter", args...)
	more()
	reaches(almost(), "after the job was cancelled and started again")
	submitter.end(syscall.SIGINT)
	if submitter.err != nil {
		p.dump()
		t.Fatalf("drained: %v", submitter.err)
	}
	more()
	last := p.launch("last", args...)
	p.wait(last, 2*time.Minute)
	for began := time.Now(); len(pidsOf(t, worker)) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Errorf("workers are left: %v", pidsOf(t, worker))
			break
		}
	}
	if !deterministic {
		checkOccurrences(t, p.dir, clusterExamples, occurrences(t, clusterExamples))
		return
	}
	dir, job := makeJob(t, strings.Replace(text, "addresses: ADDRESSES, ", "", 1))
	if out, err := exec.CommandContext(t.Context(), path, "train", job).CombinedOutput(); err != nil {
		t.Fatalf("the untouched run: %v\n%s", err, out)
	}
	if got, want := digest(t, path, p.dir), digest(t, path, dir); got != want {
		t.Errorf("digest %s, that of one process on the local runner %s", got, want)
		p.dump()
	}
}

// appliedIn counts the examples in the newest snapshot of a job's dir; there may be none yet.
func appliedIn(t *testing.T, dir string) (rows int64) {
	t.Helper()
	entries, err := snapshot.List(filepath.Join(dir, "snapshots"))
	if err != nil || len(entries) == 0 {
		return 0
	}
	snap, err := snapshot.Open(t.Context(), entries[0].Path)
	if err != nil {
		return 0 // it was the oldest a moment ago
	}
	defer func() { _ = snap.Close() }()
	for _, p := range snap.Info().Positions["kafka"] {
		rows += p.Rows
	}
	return rows
}

// pidsOf lists the processes that run a program.
func pidsOf(t *testing.T, program string) (pids []int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		args, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(args, []byte(program+"\x00")) {
			continue // another one, or it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
