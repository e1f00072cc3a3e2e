package main_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// TestFullDisk trains into a file system of a megabyte. It needs the right to mount one.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		testbed.Require(t, "mount", fmt.Sprintf("a small file system cannot be mounted: %v", err))
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	text := strings.Replace(fmt.Sprintf(smallJob, dir, "{synthetic: {examples: 20000}}"), "model: lr", "model: {deepfm: {dim: 32, hidden: [32]}}", 1)
	text = strings.Replace(text, "batch: 10", "batch: 500", 1)
	job := writeJob(t, text+"snapshot: {keep: 1}\n")
	monolith(t, "train", job, "--set", "train.max_examples=1000").wants(t, 0)
	before := monolith(t, "inspect", filepath.Join(dir, "run"), "--json")
	before.wants(t, 0)
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil { // until the disk is full
		_, err = f.Write(make([]byte, 4096))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	o := monolith(t, "train", job)
	o.wants(t, 3, "no space left", filepath.Join(dir, "run", "snapshots"))
	if after := monolith(t, "inspect", filepath.Join(dir, "run"), "--json"); after.code != 0 || after.stdout != before.stdout {
		t.Errorf("the last good snapshot is not what it was: code %d\n%s%s", after.code, after.stdout, after.stderr)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	monolith(t, "train", job).wants(t, 0, "continuing from snapshot")
}

// TestFullDiskIsNotTrainedOnto fills the disk under an endless run: it is logged once, not at every snapshot, and after
// snapshot.tolerate of them the run ends, unless a log keeps what is trained.
func TestFullDiskIsNotTrainedOnto(t *testing.T) {
	t.Parallel()
	for _, wal := range []bool{false, true} {
		dir, fill := smallDisk(t)
		text := fmt.Sprintf(smallJob, dir, "{synthetic: {examples: 0, rate: 1000}}") + "snapshot: {every: 100ms, keep: 1}\n"
		if wal {
			text += fmt.Sprintf("ps: {durability: wal, wal: {dir: %s}}\n", t.TempDir())
		}
		p := start(t, "", "train", writeJob(t, text))
		waitFor(t, func() bool {
			found, _ := filepath.Glob(filepath.Join(dir, "run", "snapshots", "snap-*", "manifest.json"))
			return len(found) > 0
		})
		free := fill()
		p.says("snapshot failed")
		var o outcome
		if wal {
			time.Sleep(2 * time.Second) // 20 snapshots fail
			free()
			o = p.end(syscall.SIGINT)
			o.wants(t, 0)
		} else {
			o = p.end(0)
			o.wants(t, 3, "5 snapshots in a row have failed", "no space left", "snapshot.tolerate")
			free()
		}
		if n := strings.Count(o.stderr, "snapshot failed"); n != 1 {
			t.Errorf("the failure is said %d times", n)
		}
	}
}

// TestFullDiskDuringExport fills the disk under an export: exit code 3 that says what to do, nothing under its name, and the same command completes it when there is room.
func TestFullDiskDuringExport(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	job := writeJob(t, fmt.Sprintf(smallJob, t.TempDir(), "{synthetic: {examples: 20000}}"))
	monolith(t, "train", job).wants(t, 0)
	for _, format := range []string{"native", "savedmodel", "onnx", "safetensors", "parquet"} {
		free := fill()
		to := filepath.Join(dir, format)
		o := monolith(t, "export", job, "--format", format, "--dir", to)
		o.wants(t, 3, "no space left", "make room")
		if left, err := filepath.Glob(filepath.Join(to, "[0-9]*")); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", format, left, err)
		}
		free()
		monolith(t, "export", job, "--format", format, "--dir", to).wants(t, 0)
		if left, err := filepath.Glob(filepath.Join(to, "[0-9]*")); err != nil || len(left) != 1 {
			t.Errorf("%s: %v, %v", format, left, err)
		}
	}
}

// TestFullDiskUnderAnOutput: the run ends with exit code 3 and says once what is full, and the same command continues when there is room, with every row in the output once.
func TestFullDiskUnderAnOutput(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	text := fmt.Sprintf(smallJob, t.TempDir(), "{synthetic: {examples: 20000}}") + fmt.Sprintf("outputs: [{name: seen, of: predictions, to: {jsonl: {dir: %s}}}]\n", dir)
	job := writeJob(t, text)
	free := fill()
	o := monolith(t, "train", job)
	o.wants(t, 3, "make room", "outputs[0].to.jsonl.dir")
	if n := strings.Count(o.stderr, "no space left"); n != 1 {
		t.Errorf("it is said %d times that there is no room:\n%s", n, o.stderr)
	}
	free()
	monolith(t, "train", job).wants(t, 0)
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows += bytes.Count(plain, []byte("\n"))
	}
	if rows != 20000 {
		t.Errorf("%d rows in %d files, want 20000", rows, len(files))
	}
}
