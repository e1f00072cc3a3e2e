//go:build unix

package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/tfrecord"
)

// Example i of these tests happened i+1 milliseconds after the epoch, so the first backfillUpTo of them are before that second.
const (
	backfillFrom = "1970-01-01T00:00:10Z"
	backfillTo   = "1970-01-01T00:01:00Z"
	backfillHas  = 50_000
	backfillUpTo = 59_999
)

// TestKilledBackfillEndsWithTheSameDigest kills backfills of a topic and of files at random moments, starts them again with the same
// command, here and inside Beam's Prism, and trains on the stream afterwards, which is killed too: the digest is that of a backfill and a training that nobody touched, and
// every example counts as often as it was to be read.
func TestKilledBackfillEndsWithTheSameDigest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	records := killRecords(t)
	addr := startBroker(t)
	fill(t, addr, records, 0, killExamples)
	day := filepath.Join(t.TempDir(), "history")
	for hour := range 4 { // the same examples, as if they had come in hours
		writeTFRecords(t, filepath.Join(day, "2026-03-01", fmt.Sprintf("%02d", hour), fmt.Sprintf("part-%d.tfrecord", 9-hour)), records[hour*5000:(hour+1)*5000])
	}
	files := "\nbackfill: {epochs: 2, shuffle_rows: 3000, source: {tfrecord: {files: ['" + filepath.Join(day, "{yyyy}-{MM}-{dd}", "{HH}", "*") + "']}}}\n"
	for _, tc := range []struct {
		name, runner, section, from, to string
		examples                        int64
	}{
		{"topic", "local", "\n", backfillFrom, backfillTo, backfillHas},
		// The stream begins at its end: its records are older than the files.
		{"files", "local", files, "2026-03-01", "2026-03-02", 40_000},
		{"files", "prism", files, "2026-03-01", "2026-03-02", 40_000},
	} {
		t.Run(tc.name+"/"+tc.runner, func(t *testing.T) {
			more := []string{"--from", tc.from, "--to", tc.to, "--set", "backfill.on_missing=skip"}
			run := func(command, job string, more ...string) (examples int64) {
				t.Helper()
				out, err := exec.CommandContext(t.Context(), path, append([]string{command, job, "--json"}, more...)...).Output()
				if err != nil {
					t.Fatalf("%s: %v\n%s", command, err, stderr(err))
				}
				var r struct{ Result struct{ Examples int64 } }
				if err := json.Unmarshal(out, &r); err != nil {
					t.Fatalf("%v in %s", err, out)
				}
				return r.Result.Examples
			}
			dir, untouched := writeKillJob(t, addr, 2, "\nmodel:", tc.section+"model:")
			if n := run("backfill", untouched, more...); n != tc.examples {
				t.Errorf("the untouched backfill had %d examples, want %d", n, tc.examples)
			}
			rest := int64(killExamples - backfillUpTo)
			if tc.name == "files" {
				rest = 0
			}
			if n := run("train", untouched); n != rest {
				t.Errorf("the untouched training had %d examples, want %d", n, rest)
			}
			want := digest(t, path, dir)

			seed := uint64(time.Now().UnixNano())
			t.Logf("seed of the kills: %d", seed)
			rng := rand.New(rand.NewPCG(seed, 7))
			more = append(more, "--runner="+tc.runner) // untouched it was the local one
			var killed string
			left := 0
			for longest := 400; left < 3; longest /= 2 { // where a machine is faster than kills, they come sooner
				if longest < 20 {
					t.Fatalf("only %d lives were killed: no test", left)
				}
				dir, killed = writeKillJob(t, addr, 2, "\nmodel:", tc.section+"model:")
				pause := func() <-chan time.Time {
					return time.After(time.Duration(longest/4+rng.IntN(longest*3/4)) * time.Millisecond)
				}
				left = 0
				for left < 12 && killCommand(t, pause(), path, append([]string{"backfill", killed}, more...)...) { // until it came to its end
					left++
				}
			}
			run("backfill", killed, more...)
			for range 3 {
				killCommand(t, time.After(time.Duration(100+rng.IntN(300))*time.Millisecond), path, "train", killed, "--runner="+tc.runner)
			}
			run("train", killed, "--runner="+tc.runner)
			if got := digest(t, path, dir); got != want {
				t.Errorf("digest %s after %d kills, %s untouched", got, left, want)
			}
		})
	}
}

// killCommand kills a command once due says so, and reports whether it had not ended by then.
func killCommand(t *testing.T, due <-chan time.Time, path string, args ...string) (killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, &out)
		}
		return false
	case <-due:
	}
	_ = cmd.Process.Signal(syscall.SIGKILL) // it may end this moment
	if err := <-ended; err == nil {
		return false
	}
	return true
}

// killWritten kills a command a while after it has written so much, and reports whether it had not ended by then.
func killWritten(t *testing.T, written func() int, enough int, pause time.Duration, path string, args ...string) (killed bool) {
	t.Helper()
	due, ended := make(chan time.Time, 1), make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case at := <-tick.C:
				if written() < enough {
					continue
				}
				time.Sleep(pause)
				due <- at
				return
			}
		}
	})
	killed = killCommand(t, due, path, args...)
	close(ended)
	watch.Wait()
	return killed
}

// writeTFRecords writes a file and the folders above it.
func writeTFRecords(t *testing.T, path string, records [][]byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tfrecord.NewWriter(&b, nil)
	for _, r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
