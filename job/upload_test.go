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
	for life, most := range []int{704, 1920, 3328, 0} {
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
	cfg := uploaded(t, filepath.Join(t.TempDir(), "fetched"), url) // a dir that is not there, as on another machine
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

// TestMachineLostWhileRowsComeAndGo: as [TestMachineLost], with ids that wait for rows and rows that expire, in snapshots that hold what has changed. What the store has is whole before and after it is pruned, and comparing two of its snapshots shows rows that are gone.
func TestMachineLostWhileRowsComeAndGo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes ten seconds, minutes under the race detector; part of the full run")
	}
	settings := []string{"source.synthetic.examples=40000", "retention={occurrences: 2, expire: 8000s}", "snapshot.incremental=3"}
	whole, err := job.Run(t.Context(), uploaded(t, filepath.Join(t.TempDir(), "whole"), "", settings...), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := digest(t, whole.Snapshot)
	url := "file://" + filepath.ToSlash(t.TempDir()) + "/models/click"
	incremental, removed, last := 0, int64(0), ""
	for life, most := range []int{8960, 20992, 33344, 0} {
		dir := filepath.Join(t.TempDir(), "run")
		var r *job.TrainResult
		for _, less := range []int{256, 128, 0} { // what a hundred examples change is little beside all rows
			end := most - less
			if most == 0 && less > 0 {
				end = 40000 - less
			}
			if r, err = job.Run(t.Context(), uploaded(t, dir, url, append(settings, fmt.Sprint("train.max_examples=", end), "ps.shards="+fmt.Sprint(1+life/2))...), job.RunOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		list, err := job.ListSnapshots(t.Context(), url, job.Retention{Keep: 9})
		if err != nil || len(list.Snapshots) == 0 {
			t.Fatalf("%+v, %v", list, err)
		}
		for _, e := range list.Snapshots {
			if e.Kind == "incremental" {
				incremental++
			}
		}
		if last != "" {
			d, err := job.DiffSnapshots(t.Context(), last, r.Snapshot)
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range d.Tables {
				removed += table.Removed
			}
		}
		if most == 0 {
			if got := digest(t, r.Snapshot); got != want {
				t.Errorf("after three machines were lost the digest is %s, of a run that nothing has happened to %s", got, want)
			}
		}
		got, err := job.FetchSnapshot(t.Context(), job.FetchOptions{URL: url, To: filepath.Join(t.TempDir(), "kept")})
		if err != nil || digest(t, got.Path) != digest(t, r.Snapshot) {
			t.Fatalf("what was fetched is not what was trained: %+v, %v", got, err)
		}
		last = got.Path
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d snapshots of the store hold what has changed, %d rows are gone between lives", incremental, removed)
	if incremental == 0 || removed == 0 {
		t.Errorf("%d snapshots of the store hold what has changed, %d rows are gone between lives: too few to mean anything", incremental, removed)
	}
	for range 2 {
		checks, err := job.VerifySnapshots(t.Context(), url)
		if err != nil || len(checks) == 0 {
			t.Fatalf("%+v, %v", checks, err)
		}
		for _, c := range checks {
			if len(c.Faults) > 0 {
				t.Errorf("%+v", c)
			}
		}
		if _, err := job.PruneSnapshots(t.Context(), url, job.Retention{Keep: 1}, true); err != nil {
			t.Fatal(err)
		}
	}
	list, err := job.ListSnapshots(t.Context(), url, job.Retention{Keep: 1})
	if err != nil || len(list.Snapshots) > 4 {
		t.Errorf("%+v, %v after pruning; want one and the three that it adds to at most", list, err)
	}
	got, err := job.FetchSnapshot(t.Context(), job.FetchOptions{URL: url, To: filepath.Join(t.TempDir(), "pruned")})
	if err != nil || digest(t, got.Path) != want {
		t.Errorf("after pruning: %+v, %v", got, err)
	}
}
