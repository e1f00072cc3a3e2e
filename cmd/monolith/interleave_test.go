package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// filesJob is a job on files whose examples are few and small; FILES is the source.
const filesJob = `
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

// TestEpochsOfManyFilesEndOneByOne trains three epochs of more files than are read side by side: at once, and epoch by epoch in runs of their
// own. An epoch that began in one file before another file had ended it would show.
func TestEpochsOfManyFilesEndOneByOne(t *testing.T) {
	t.Parallel()
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.tfrecord", i)), tfrecords(t, clickRows(300+60*i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.Replace(filesJob, "FILES", "{tfrecord: {files: ["+folder+"/*.tfrecord]}}", 1)
	train := func(epochs ...int) string {
		dir, job := makeJob(t, text)
		for _, n := range epochs {
			out, err := exec.CommandContext(t.Context(), path, "train", job, "--set", "train.interleave=2", "--set", fmt.Sprint("epochs=", n)).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		return digest(t, path, dir)
	}
	if at, by := train(3), train(1, 2, 3); at != by {
		t.Errorf("digest %s at once, %s epoch by epoch", at, by)
	}
}
