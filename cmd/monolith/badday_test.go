//go:build unix

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/tfrecord"
)

// smallJob trains logistic regression on a source with the features user and item.
const smallJob = `
version: 1
name: small
dir: %s/run
source: %s
parse:
  format: tf_example
  features: [{name: user, slot: 1}, {name: item, slot: 2}]
  label: click
model: lr
train: {batch: 10}
`

type outcome struct {
	code   int
	stdout string
	stderr string
	took   time.Duration
}

// monolith runs one command line to its end.
func monolith(t *testing.T, args ...string) outcome {
	t.Helper()
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience(t))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("monolith %s hangs\n%s", strings.Join(args, " "), &errs)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errs.String(), time.Since(start)}
}

// job writes a job file and returns its path.
func writeJob(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeRecords writes n good examples; change may spoil the bytes of each.
func writeRecords(t *testing.T, path string, n int, change func(i int, e *example.Encoder)) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tfrecord.NewWriter(&b, nil)
	for i := range n {
		var e example.Encoder
		e.Int64s("user", int64(i%7))
		e.Int64s("item", int64(i%3))
		if change == nil {
			e.Floats("click", float32(i%2))
		} else {
			change(i, &e)
		}
		if err := w.Write(e.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (o outcome) wants(t *testing.T, code int, words ...string) {
	t.Helper()
	if o.code != code {
		t.Errorf("exit code %d, want %d", o.code, code)
	}
	for _, w := range words {
		if !strings.Contains(o.stderr, w) {
			t.Errorf("standard error lacks %q", w)
		}
	}
	if strings.Contains(o.stderr, "panic") || strings.Contains(o.stderr, "goroutine ") {
		t.Error("a stack trace is shown")
	}
	if t.Failed() {
		t.Logf("took %v\nstdout: %s\nstderr: %s", o.took, o.stdout, o.stderr)
	}
}

func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "part.tfrecord")
	good := writeRecords(t, file, 100, nil)
	source := fmt.Sprintf("{tfrecord: {files: [%s]}}", file)
	run := func(t *testing.T, args ...string) outcome {
		job := writeJob(t, fmt.Sprintf(smallJob, t.TempDir(), source))
		return monolith(t, append([]string{"train", job, "--json"}, args...)...)
	}
	result := func(t *testing.T, o outcome) (r struct {
		Examples int64
		BadRows  map[string]int64 `json:"bad_rows"`
	},
	) {
		t.Helper()
		env := struct{ Result any }{&r}
		if err := json.Unmarshal([]byte(o.stdout), &env); err != nil {
			t.Fatalf("%v in %s", err, o.stdout)
		}
		return r
	}
	spoil := func(t *testing.T, data []byte) {
		t.Helper()
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	record := len(good) / 100

	t.Run("truncated", func(t *testing.T) {
		spoil(t, good[:len(good)-5])
		for _, policy := range []string{"fail", "skip"} { // what a file ends within is not there yet
			o := run(t, "--set", "train.on_bad_row="+policy)
			if r := result(t, o); o.code != 0 || r.Examples != 99 || len(r.BadRows) != 0 || !strings.Contains(o.stderr, "ends within a record") || !strings.Contains(o.stderr, file) {
				t.Errorf("%s: code %d, %+v, %s", policy, o.code, r, o.stderr)
			}
		}
		complete := []string{"--set", "source.tfrecord.complete=true"}
		o := run(t, complete...)
		if o.code != 1 || !strings.Contains(o.stdout, "truncated") || !strings.Contains(o.stdout, file) {
			t.Errorf("code %d: %s%s", o.code, o.stdout, o.stderr)
		}
		o = run(t, append(complete, "--set", "train.on_bad_row=skip")...)
		if r := result(t, o); o.code != 0 || r.Examples != 99 || len(r.BadRows) != 1 {
			t.Errorf("skip: code %d, %+v", o.code, r)
		}
	})
	t.Run("crc", func(t *testing.T) {
		bad := bytes.Clone(good)
		bad[10*record+record/2] ^= 1
		spoil(t, bad)
		o := run(t)
		if o.code != 1 || !strings.Contains(o.stdout, "crc mismatch") || !strings.Contains(o.stdout, "position") {
			t.Errorf("code %d: %s%s", o.code, o.stdout, o.stderr)
		}
		o = run(t, "--set", "train.on_bad_row=skip")
		if r := result(t, o); o.code != 0 || r.Examples != 99 || r.BadRows["crc mismatch"] != 1 {
			t.Errorf("skip: code %d, %+v", o.code, r)
		}
	})
	t.Run("wrong type", func(t *testing.T) {
		writeRecords(t, file, 100, func(i int, e *example.Encoder) {
			e.Floats("click", 1)
			if i == 42 {
				e.Floats("item", 0.5) // the last one of a name counts
			}
		})
		o := run(t)
		if o.code != 1 || !strings.Contains(o.stdout, "wrong type") || !strings.Contains(o.stdout, "item") {
			t.Errorf("code %d: %s%s", o.code, o.stdout, o.stderr)
		}
		letters := filepath.Join(t.TempDir(), "bad.jsonl")
		o = run(t, "--set", "train.on_bad_row=dead_letter", "--set", "train.dead_letter.file.path="+letters)
		if r := result(t, o); o.code != 0 || r.Examples != 99 || r.BadRows["wrong type"] != 1 {
			t.Errorf("dead_letter: code %d, %+v", o.code, r)
		}
		b, err := os.ReadFile(letters)
		if err != nil || bytes.Count(b, []byte("\n")) != 1 || !bytes.Contains(b, []byte("wrong type")) || !bytes.Contains(b, []byte(file)) {
			t.Errorf("dead letters: %v %s", err, b)
		}
	})
}

func TestMistakesInJobs(t *testing.T) {
	t.Parallel()
	job := writeJob(t, strings.Replace(fmt.Sprintf(smallJob, t.TempDir(), "{text: {files: [nothing-*.csv]}}"), "batch: 10", "bacth: 10", 1))
	monolith(t, "train", job).wants(t, 2, "job.yaml:", "bacth", `"batch"`)
	job = writeJob(t, fmt.Sprintf(smallJob, t.TempDir(), "{tfrecord: {files: [nothing-*.tfrecord]}}"))
	monolith(t, "train", job).wants(t, 2, "nothing-*.tfrecord")
	monolith(t, "trian", job).wants(t, 2, "train")
	monolith(t, "eval", job).wants(t, 2, "eval.source")
	monolith(t, "train", job, "--resume").wants(t, 2, "no snapshot")
}

func TestBrokerTroubles(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Options{Topics: map[string]int{"clicks": 1}})
	if err != nil {
		t.Fatal(err)
	}
	addr := b.Addrs()[0]
	kafka := func(topic string) string {
		return fmt.Sprintf("{kafka: {brokers: [%q], topic: %s, retry_for: 1s}}", addr, topic)
	}
	job := writeJob(t, fmt.Sprintf(smallJob, t.TempDir(), kafka("cliks")))
	monolith(t, "train", job).wants(t, 2, "cliks", "clicks")

	// The broker goes away in the middle: an error with exit code 3 once patience is over, and a snapshot to continue from.
	dir := t.TempDir()
	job = writeJob(t, fmt.Sprintf(smallJob, dir, kafka("clicks")))
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	var records []broker.Record
	for i := range 100 {
		var e example.Encoder
		e.Int64s("user", int64(i))
		e.Int64s("item", int64(i))
		e.Floats("click", 1)
		records = append(records, broker.Record{Value: e.Append(nil)})
	}
	if err := broker.Produce(t.Context(), b.Addrs(), "clicks", 0, broker.Batch{}, records...); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "train", job, "--set", "snapshot.every=50ms")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "run", "snapshots", "snap-*", "manifest.json"))
		return len(found) > 0 // one, because nothing more comes
	})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	outcome{code: cmd.ProcessState.ExitCode(), stderr: errs.String()}.wants(t, 3, addr, "clicks")

	// It is down from the start.
	o := monolith(t, "train", job)
	o.wants(t, 3, addr)
	if o.took > 55*time.Second { // it is a second that the job says, and a minute where it says nothing
		t.Errorf("it took %v to say that the broker is down", o.took)
	}
}

func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testbed.Patience(t)); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

// TestSignals dumps the stacks of a run with SIGUSR1 and drains it with SIGINT: an endless one has then done what it was to do, one that has an end has not.
func TestSignals(t *testing.T) {
	t.Parallel()
	t.Run("stream", func(t *testing.T) { t.Parallel(); signalled(t, 0, 0) })
	t.Run("bounded", func(t *testing.T) { t.Parallel(); signalled(t, 100_000_000, 130) })
}

// signalled signals a run on a source of so many examples (0: without end), which ends with the exit code.
func signalled(t *testing.T, examples, code int) {
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	job := writeJob(t, fmt.Sprintf(smallJob, dir, fmt.Sprintf("{synthetic: {examples: %d, rate: 2000, splits: 2}}", examples)))
	cmd := exec.CommandContext(t.Context(), path, "train", job, "--json", "--set", "snapshot.every=50ms")
	var out bytes.Buffer
	errs := &child{t: t}
	cmd.Stdout, cmd.Stderr = &out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "run", "snapshots", "snap-*", "manifest.json"))
		return len(found) > 1
	})
	if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	// Signals that wait together are not received in the order they were sent in.
	waitFor(t, func() bool { return strings.Contains(errs.text(), "goroutine ") })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != code {
		t.Fatalf("after one SIGINT: %v, want exit code %d\n%s", err, code, errs.text())
	}
	var r struct {
		OK     bool
		Result struct {
			Examples int64
			Drained  bool
			Snapshot string
		}
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.OK != (code == 0) || !r.Result.Drained || r.Result.Examples == 0 || r.Result.Snapshot == "" {
		t.Errorf("%v: %s", err, &out)
	}
	for _, want := range []string{"goroutine", "drain"} {
		if !strings.Contains(errs.text(), want) {
			t.Errorf("standard error lacks %q:\n%s", want, errs.text())
		}
	}
	info, err := os.Stat(r.Result.Snapshot)
	if err != nil || !info.IsDir() {
		t.Errorf("the snapshot is not there: %v", err)
	}
}

// TestTimeoutSignalsTwice ends a run as timeout(1) does, which sends SIGTERM to its child and then to the child's group:
// the run drains and stores its last snapshot.
func TestTimeoutSignalsTwice(t *testing.T) {
	t.Parallel()
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	timeout, err := exec.LookPath("timeout")
	if err != nil {
		testbed.Require(t, "posix", "timeout(1) is not installed")
	}
	for range 3 {
		dir := t.TempDir()
		job := writeJob(t, fmt.Sprintf(smallJob, dir, "{synthetic: {examples: 0, rate: 2000, splits: 2}}"))
		cmd := exec.CommandContext(t.Context(), timeout, "2", path, "train", job)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // timeout signals its group
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 124 || !strings.Contains(out.String(), "ended by") || strings.Contains(errs.String(), "at once by a second") {
			t.Errorf("exit code %d, want 124, and a drained run:\n%s%s", code, &out, &errs)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "run", "snapshots", "*.tmp")); len(left) > 0 {
			t.Errorf("%q are left", left)
		}
		monolith(t, "inspect", filepath.Join(dir, "run")).wants(t, 0)
	}
}
