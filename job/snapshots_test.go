package job_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// TestSnapshotCommands trains a job that is asked for snapshots, and lists, verifies, compares and prunes what it has stored.
func TestSnapshotCommands(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	c, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {synthetic: {examples: 38704}}
parse: {features: [{name: user, slot: 1}, {name: item, slot: 2}], label: {column: click}}
model: {fm: {dim: 4}}
train: {batch: 16}
snapshot: {every: 0s, keep: 20, incremental: 2}
`, dir), "job.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	requests, batches, asked := make(chan struct{}), 0, 0
	ask := func(trainstep.Observation) {
		if batches++; batches < 200 || asked == 4 {
			return
		}
		// The one under way waits for this worker, so that this must not wait for its end.
		select {
		case requests <- struct{}{}:
			asked++
		case <-time.After(200 * time.Millisecond):
		}
	}
	var notices []string
	if _, err := job.Run(t.Context(), c, job.RunOptions{Observe: ask, TakeSnapshot: requests, Notice: func(s string) { notices = append(notices, s) }}); err != nil {
		t.Fatal(err)
	}
	list, err := job.ListSnapshots(t.Context(), dir, job.RetentionOf(c))
	if err != nil {
		t.Fatal(err)
	}
	incremental := 0
	for i, e := range list.Snapshots {
		if e.Kind == "incremental" {
			incremental++
		}
		if e.Rows == 0 || e.Bytes == 0 || e.Shards != 1 || e.Splits == 0 || e.Batches == 0 || e.Kept != "one of the newest 20" {
			t.Errorf("%+v", e)
		}
		if want := "asked for by a signal"; i > 0 && e.Note != want {
			t.Errorf("snapshot %d: note %q, want %q", e.ID, e.Note, want)
		}
	}
	if n := len(list.Snapshots); n < 3 || list.Snapshots[0].Examples != 38704 || incremental == 0 || !strings.Contains(strings.Join(notices, "\n"), "snapshot "+list.Snapshots[1].Path+" taken") {
		t.Fatalf("%d snapshots, %d of them incremental, the newest after %d examples; notices %q", n, incremental, list.Snapshots[0].Examples, notices)
	}
	newest, before := list.Snapshots[0], list.Snapshots[1]

	// Compare.
	d, err := job.DiffSnapshots(t.Context(), before.Path, dir)
	if err != nil {
		t.Fatal(err)
	}
	var added, changed, same int64
	for _, table := range d.Tables {
		added, changed, same = added+table.Added, changed+table.Changed, same+table.Same
		if table.Removed != 0 {
			t.Errorf("%d rows of %s are gone", table.Removed, table.Name)
		}
	}
	if d.B != newest.Path || added != newest.Rows-before.Rows || changed == 0 || added+changed+same != newest.Rows {
		t.Errorf("%d rows added, %d changed, %d the same, from %d to %d: %+v", added, changed, same, before.Rows, newest.Rows, d)
	}
	if len(d.Positions) != 1 || d.Positions[0].Examples != newest.Examples-before.Examples || len(d.Tensors) == 0 {
		t.Errorf("positions %+v, tensors %+v", d.Positions, d.Tensors)
	}

	// Prune: what would go, what goes, and what a running job says. All but the newest and those it adds to go; a slow
	// machine has taken so few that it adds to all of them.
	gone := 0
	for next, rest := newest.ID, list.Snapshots; len(rest) > 0; rest = rest[1:] {
		if rest[0].ID != next {
			gone++
			continue
		}
		next = rest[0].Base
	}
	r := job.Retention{Keep: 1}
	would, err := job.PruneSnapshots(t.Context(), dir, r, false)
	if err != nil || len(would.Gone)+len(would.Kept) != len(list.Snapshots) || len(would.Gone) != gone || would.Removed {
		t.Errorf("%+v, %v", would, err)
	}
	lock, err := fsx.TryLock(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.PruneSnapshots(t.Context(), dir, r, true); !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), "is running") {
		t.Errorf("while a job is running: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := job.PruneSnapshots(t.Context(), newest.Path, r, true); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("one snapshot: %v", err)
	}
	if pruned, err := job.PruneSnapshots(t.Context(), filepath.Join(dir, "snapshots"), r, true); err != nil || len(pruned.Gone) != len(would.Gone) || !pruned.Removed {
		t.Errorf("%+v, %v", pruned, err)
	}

	// Verify: all are whole, and then what is read by a damaged file is not.
	checks, err := job.VerifySnapshots(t.Context(), dir)
	if err != nil || len(checks) != len(would.Kept) {
		t.Fatalf("%+v, %v", checks, err)
	}
	for _, c := range checks {
		if len(c.Faults) > 0 || c.Bytes == 0 || len(c.Reads) == 0 {
			t.Errorf("%+v", c)
		}
	}
	oldest := checks[len(checks)-1].Path
	files, err := filepath.Glob(filepath.Join(oldest, "rows-*.arrow"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := os.Truncate(files[0], 100); err != nil {
		t.Fatal(err)
	}
	if checks, err = job.VerifySnapshots(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range checks { // each of them is read by the oldest
		if len(c.Faults) != 1 || !strings.Contains(c.Faults[0], files[0]) && !strings.Contains(c.Faults[0], filepath.Base(files[0])) {
			t.Errorf("%+v", c)
		}
	}

	if _, err := job.ListSnapshots(t.Context(), t.TempDir(), r); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := job.TakeSnapshot(t.Context(), c, job.TakeOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "SIGUSR2") {
		t.Errorf("a job without addresses: %v", err)
	}
}
