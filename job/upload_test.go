package job_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// uploaded is a job of several epochs and an early stop whose snapshots are copied to url.
func uploaded(t *testing.T, dir, url string, set ...string) *job.Config {
	t.Helper()
	c, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: uploaded
dir: %q
seed: 5
deterministic: true
source: {synthetic: {examples: 4000}}
parse: {features: [{name: user, slot: 1}, {name: item, slot: 2}], label: {column: click}}
model: {deepfm: {dim: 4, hidden: [8], dropout: 0.2}}
train: {batch: 64}
snapshot: {every: 0s, keep: 2, upload: %q}
`, dir, url), "job.yaml", job.LoadOptions{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestMachineLost trains a part of a job, loses the machine with all that it had, and trains on another one, three times: what the store has is all that
// is needed for the bits of a run that nothing has happened to.
func TestMachineLost(t *testing.T) {
	t.Parallel()
	whole, err := job.Run(t.Context(), uploaded(t, filepath.Join(t.TempDir(), "whole"), ""), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := digest(t, whole.Snapshot)
	url := "file://" + filepath.ToSlash(t.TempDir()) + "/models/click"
	for life, most := range []int{700, 1900, 3333, 0} {
		dir := filepath.Join(t.TempDir(), "run")
		var notices []string
		r, err := job.Run(t.Context(), uploaded(t, dir, url, fmt.Sprint("train.max_examples=", most), "ps.shards="+fmt.Sprint(life+1)), job.RunOptions{
			Notice: func(s string) { notices = append(notices, s) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if said := slices.ContainsFunc(notices, func(s string) bool { return strings.Contains(s, "was brought back") }); said != (life > 0) {
			t.Errorf("life %d: %q", life, notices)
		}
		if most == 0 {
			if got := digest(t, r.Snapshot); got != want {
				t.Errorf("after three machines were lost the digest is %s, of a run that nothing has happened to %s", got, want)
			}
		}
		if life == 1 {
			// The same machine continues where it was; what starts over does not, and touches nothing.
			fresh := false
			if _, err := job.Run(t.Context(), uploaded(t, dir, url), job.RunOptions{Resume: &fresh}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "snapshot.upload") {
				t.Errorf("starting over: %v", err)
			}
			if _, err := os.Stat(r.Snapshot); err != nil {
				t.Error(err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}

	// The commands see it too.
	list, err := job.ListSnapshots(t.Context(), url, job.Retention{Keep: 2})
	if err != nil || len(list.Snapshots) != 3 || list.Dir != url || list.Snapshots[0].Path != url+"/snap-00000004" || list.Snapshots[2].Kept != "" {
		t.Fatalf("%+v, %v; three are kept there by default", list, err)
	}
	if checks, err := job.VerifySnapshots(t.Context(), list.Snapshots[1].Path); err != nil || len(checks) != 1 || checks[0].Path != list.Snapshots[1].Path || len(checks[0].Faults) > 0 {
		t.Errorf("%+v, %v", checks, err)
	}
	if _, err := job.PruneSnapshots(t.Context(), list.Snapshots[1].Path, job.Retention{Keep: 2}, true); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("one of a store is pruned: %v", err)
	}
	pruned, err := job.PruneSnapshots(t.Context(), url, job.Retention{Keep: 2}, true)
	if err != nil || !slices.Equal(pruned.Gone, []string{url + "/snap-00000002"}) {
		t.Errorf("%+v, %v", pruned, err)
	}
	cfg := uploaded(t, filepath.Join(t.TempDir(), "fetched"), url)
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := job.FetchJobSnapshot(t.Context(), cfg, job.FetchOptions{})
	if err != nil || digest(t, got.Path) != want || got.Path != filepath.Join(cfg.Dir, "snapshots", "snap-00000004") {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := job.FetchJobSnapshot(t.Context(), cfg, job.FetchOptions{}); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("fetched again: %v", err)
	}
	to := filepath.Join(t.TempDir(), "look")
	if got, err = job.FetchSnapshot(t.Context(), job.FetchOptions{URL: url, To: to, ID: 3}); err != nil || got.Path != filepath.Join(to, "snap-00000003") {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{url + "/nothing", url + "/snap-00000009", "ftp://x/y", "s3://key:secret@bucket/x"} {
		_, err := job.ListSnapshots(t.Context(), bad, job.Retention{})
		if !errors.Is(err, pipeline.ErrConfig) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
