package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/ps"
)

// stateOnly is the worker state of shards, with what happens after one is stored.
type stateOnly struct {
	shards
	state  map[string][]byte
	after  func()
	failed map[string]error // by key, of reading
}

func (s *stateOnly) State(_ context.Context, key string) ([]byte, error) {
	return s.state[key], s.failed[key]
}

func (s *stateOnly) SetState(_ context.Context, key string, value []byte) error {
	s.state[key] = value
	if after := s.after; after != nil {
		s.after = nil
		after()
	}
	return nil
}

func (s *stateOnly) Progress(context.Context, string) (map[string]ps.Progress, error) {
	return map[string]ps.Progress{}, nil
}

// Restored implements shards: there is no snapshot.
func (*stateOnly) Restored() *ps.SnapshotInfo { return nil }

// clicksOf is a job on a file of users and clicks, and its model.
func clicksOf(t *testing.T, dir, path string) (*spec.Config, model.Model) {
	t.Helper()
	cfg, err := spec.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {text: {files: [%q]}}
parse: {format: csv, header: true, features: [{name: user}], label: click}
model: lr
`, dir, path), "clicks.yaml", spec.LoadOptions{Components: components.All()})
	if err != nil {
		t.Fatal(err)
	}
	m, err := wiring.Model(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, m
}

// TestWorkersThatSeeAFileGrow: a worker that has seen less of a file stores that over what another has seen, which stores it again before it reads:
// no less is stored than a worker may read. A record of a time when only the first sight was stored is read.
func TestWorkersThatSeeAFileGrow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "part.csv")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cfg, m := clicksOf(t, dir, path)
	s := &stateOnly{state: map[string][]byte{}}
	know := func(w *trainer) splitRecord {
		t.Helper()
		if err := w.know(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := map[string]map[string]splitRecord{}
		if err := json.Unmarshal(s.state[splitsKey], &all); err != nil {
			t.Fatal(err)
		}
		r := all[cfg.SourceNode()]["part.csv"]
		if got := w.known.seen()["part.csv"]; got != r.Seen {
			t.Errorf("the worker may read to %q, and %q is stored", got, r.Seen)
		}
		return r
	}
	a, b := &trainer{cfg: cfg, model: m, shards: s}, &trainer{cfg: cfg, model: m, shards: s}
	write("user,click\n")
	first := know(a)
	if first.Seen != "" || first.Identity == "" {
		t.Fatalf("stored is %+v", first)
	}
	write("user,click\nu1,1\n")
	less := know(a)
	lessState := s.state[splitsKey]
	if less.Seen == "" || less.Identity != first.Identity {
		t.Fatalf("stored is %+v, at first %+v", less, first)
	}
	write("user,click\nu1,1\nu2,0\n")
	s.after = func() { s.state[splitsKey] = lessState }
	if more := know(b); more.Seen == "" || more.Seen == less.Seen || more.Identity != first.Identity {
		t.Errorf("stored is %+v, before %+v", more, less)
	}
	write("user,click\nu3,1\nu4,0\nu5,0\n")
	if another := know(b); another.Identity != first.Identity || len(b.known.names) != 1 || b.known.names[0] != "part.csv~2" {
		t.Errorf("stored is %+v; another file is read as %q", another, b.known.names)
	}
}

// TestUnknownTrainerState: a run that cannot be told how many epochs there were does not go by there having been none.
func TestUnknownTrainerState(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "part.csv")
	if err := os.WriteFile(path, []byte("user,click\nu1,1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, m := clicksOf(t, t.TempDir(), path)
	s := &stateOnly{state: map[string][]byte{}, failed: map[string]error{stored.TrainerKey: ps.ErrUnreachable}}
	if err := (&trainer{cfg: cfg, model: m, shards: s}).know(t.Context()); !errors.Is(err, ps.ErrUnreachable) {
		t.Errorf("the trainer state cannot be read: %v", err)
	}
	if len(s.state) > 0 {
		t.Errorf("stored was %q", s.state)
	}
}
