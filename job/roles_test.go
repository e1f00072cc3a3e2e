package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// rolesJob trains on users and items behind shards at an address.
func rolesJob(t *testing.T, dir, address, source, format string, set ...string) *job.Config {
	t.Helper()
	token := filepath.Join(dir, "token")      // a client with it gets both values
	if _, err := os.Stat(token); err != nil { // once: who reads a file while it is written again has no token
		if err := os.WriteFile(token, []byte("a token of the test"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprintf(`
version: 1
name: roles
source: %s
parse: {format: %s, features: [{name: user, slot: 1}, {name: item, slot: 2}], label: y}
model: {deepfm: {dim: 4, hidden: [8]}}
train: {batch: 50}
snapshot: {every: 0s}
ps: {addresses: [%q], retry: 5s, token: {file: %q}}
`, source, format, address, token)
	c, err := job.Decode([]byte(text), "roles.yaml", job.LoadOptions{Set: append([]string{"dir=" + filepath.Join(dir, "run")}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestBackfillThenStream trains one model from two jobs that read other sources in other formats: the shards, started with
// one of them, take both, and positions of both lie side by side. A worker with other slots, another model or other rules
// is refused, whichever source it reads.
func TestBackfillThenStream(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), testbed.FreeAddr(t)
	var lines, records bytes.Buffer
	w := tfrecord.NewWriter(&records, nil)
	for i := range 300 {
		line := fmt.Appendf(nil, `{"y": %d, "user": %d, "item": %d}`, i%2, i%20, i%7)
		lines.Write(append(line, '\n'))
		if err := w.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(filepath.Join(dir, "a.jsonl"), lines.Bytes(), 0o644), os.WriteFile(filepath.Join(dir, "b.tfrecord"), records.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	text, tf := fmt.Sprintf("{text: {files: [%q]}}", filepath.Join(dir, "a.jsonl")), fmt.Sprintf("{tfrecord: {files: [%q]}}", filepath.Join(dir, "b.tfrecord"))
	stream := rolesJob(t, dir, address, tf, "jsonl")
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		_, err := job.Serve(ctx, stream, job.ServeOptions{})
		served <- err
	}()
	defer func() {
		cancel()
		if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	train := func(c *job.Config, worker string) (*job.TrainResult, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		return job.Run(ctx, c, job.RunOptions{Worker: worker})
	}
	backfill := rolesJob(t, dir, address, text, "jsonl", "train.batch=30")
	if r, err := train(backfill, "backfill"); err != nil || r.Examples != 300 {
		t.Fatalf("the backfill: %+v, %v", r, err)
	}
	r, err := train(stream, "stream")
	if err != nil || r.Examples != 300 {
		t.Fatalf("the stream: %+v, %v", r, err)
	}
	info, err := snapshot.ReadInfo(r.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"text", "tfrecord"} {
		rows := int64(0)
		for _, p := range info.Positions[source] {
			rows += p.Rows
		}
		if rows != 300 {
			t.Errorf("%d examples of source %s are in the snapshot, want 300: %v", rows, source, info.Positions)
		}
	}
	var graph struct {
		Version int `json:"version"`
	}
	if info.Model == nil || info.Model.Name != "deepfm" || json.Unmarshal(info.Model.Graph, &graph) != nil || graph.Version != info.Model.Version {
		t.Errorf("the manifest's model is %+v", info.Model)
	}
	for what, x := range map[string]struct {
		c    *job.Config
		want []string
	}{
		"other slots of the same source":   {slotted(t, dir, address, tf), []string{"feature item: slot", "2", "9"}},
		"other slots of another source":    {slotted(t, dir, address, text), []string{"feature item: slot", "2", "9"}},
		"other rules of another source":    {rolesJob(t, dir, address, text, "jsonl", "optimizer.sparse.adagrad.lr=0.5"), []string{"the rules differ"}},
		"another model of another source":  {rolesJob(t, dir, address, text, "jsonl", "model.deepfm.dropout=0.5"), []string{"the models differ"}},
		"other batches of the same source": {rolesJob(t, dir, address, tf, "jsonl", "train.batch=20"), []string{`the plans of source "tfrecord" differ`}},
		"another width of another source":  {rolesJob(t, dir, address, text, "jsonl", "model.deepfm.hidden=[4]"), []string{"the parameters differ"}},
	} {
		_, err := train(x.c, "other")
		for _, want := range x.want {
			if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
	}
}

// TestWrongSourceTakesNothing: a leader of remote shards whose source gives nothing, as it is of the wrong kind, leaves epochs, decisions, trace and sums of the source before as they
// were, in the shards and in the last snapshot; once another source has given examples, they are that one's.
func TestWrongSourceTakesNothing(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), testbed.FreeAddr(t)
	file := filepath.Join(dir, "rows")
	hold := func(n int, format string) {
		t.Helper()
		var out bytes.Buffer
		for i := range n {
			_, _ = fmt.Fprintf(&out, format+"\n", i%2, i%20, i%7)
		}
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = `{"y": %d, "user": %d, "item": %d}`
	cfg := rolesJob(t, dir, address, fmt.Sprintf("{text: {files: [%q]}}", file), "jsonl")
	hold(300, good)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		_, err := job.Serve(ctx, cfg, job.ServeOptions{})
		served <- err
	}()
	defer func() {
		cancel()
		if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	state := func() map[string][]byte {
		t.Helper()
		all, err := snapshot.List(filepath.Join(dir, "run", "snapshots"))
		if err != nil || len(all) == 0 {
			t.Fatal(all, err)
		}
		info, err := snapshot.ReadInfo(all[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		of := map[string][]byte{}
		for _, key := range stored.OfSource() {
			if of[key] = info.State[key]; len(of[key]) == 0 {
				t.Fatalf("nothing under %s", key)
			}
		}
		return of
	}
	train := func() (*job.TrainResult, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		return job.Run(ctx, cfg, job.RunOptions{Worker: "worker"})
	}
	if r, err := train(); err != nil || r.Examples != 300 {
		t.Fatalf("%+v, %v", r, err)
	}
	before := state()
	hold(300, "%d,%d,%d")
	for range 2 {
		if r, err := train(); !errors.Is(err, pipeline.ErrBadData) {
			t.Fatalf("%+v, %v; want bad data", r, err)
		}
		if after := state(); !reflect.DeepEqual(after, before) {
			t.Fatalf("the trainer's state was %s and is %s", before[stored.TrainerKey], after[stored.TrainerKey])
		}
	}
	hold(300, good)
	if r, err := train(); err != nil || r.Examples != 0 || r.Epochs != 1 || r.ProgressiveExamples != 300 {
		t.Fatalf("the source that was read: %+v, %v; want an epoch of 300 examples, none of them new", r, err)
	}
	hold(200, " "+good)
	if r, err := train(); err != nil || r.Examples != 200 || r.ProgressiveExamples != 200 {
		t.Fatalf("another source: %+v, %v", r, err)
	}
	for key, value := range state() {
		if bytes.Equal(value, before[key]) {
			t.Errorf("%s is as it was, though another source was trained on", key)
		}
	}
}

// TestTwoTextSourcesInTurn trains one model from two jobs that read files of the same names in other folders: with names of
// their own the positions of both lie side by side, each job continues where it was, and metrics and batches are their own.
func TestTwoTextSourcesInTurn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, folder := range []string{"history", "recent"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		writeLibfm(t, filepath.Join(dir, folder, "part.libfm"), 300, 1000*i)
	}
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 50, 5000)
	train := func(source string, epochs, batch int) *job.TrainResult {
		t.Helper()
		c := epochsJob(t, dir, source+"/part.libfm", "run", fmt.Sprintf("epochs=%d", epochs), fmt.Sprintf("train.batch=%d", batch), "source_name="+source)
		r, err := job.Run(t.Context(), c, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, step := range []struct {
		source        string
		epochs, batch int
		examples      int64
	}{{"history", 1, 32, 300}, {"recent", 1, 16, 300}, {"history", 1, 32, 0}, {"recent", 2, 16, 300}, {"history", 2, 32, 300}} {
		r := train(step.source, step.epochs, step.batch)
		if r.Examples != step.examples {
			t.Errorf("%+v: %d examples", step, r.Examples)
		}
	}
	info, err := snapshot.ReadInfo(train("recent", 2, 16).Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"history", "recent"} {
		if got := info.Positions[source]["part.libfm"]; len(info.Positions[source]) != 1 || got.Rows != 600 {
			t.Errorf("%s: %+v, want one split with 600 examples", source, info.Positions)
		}
	}
}

// slotted is a job whose item has another slot.
func slotted(t *testing.T, dir, address, source string) *job.Config {
	t.Helper()
	c := rolesJob(t, dir, address, source, "jsonl")
	slot := 9
	c.Parse.Features[1].Slot = &slot
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}
