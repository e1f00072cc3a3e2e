package pstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// TestSnapshots checks what a parameter server leaves on disk: that it is all there or not at all, whatever fails.
func TestSnapshots(t *testing.T, open OpenFunc) {
	t.Helper()
	s := suite{open}
	t.Run("full disk at every write", s.testFullDisk)
	t.Run("killed at every file operation", s.testFileKills)
	t.Run("damaged newest", s.testDamaged)
	t.Run("other model", s.testOtherModel)
	t.Run("kept and pinned", s.testKept)
	t.Run("one snapshot by name", s.testRestoreOne)
	t.Run("taken by itself", s.testPeriodic)
	t.Run("first one soon", s.testSoon)
	t.Run("only when something has changed", s.testIfChanged)
	t.Run("no folder", func(t *testing.T) {
		t.Parallel()
		c := s.must(t, coordinator.Options{Layout: countLayout()})
		if _, err := c.Snapshot(t.Context(), ps.SnapshotOptions{}); !errors.Is(err, ps.ErrNoDir) {
			t.Errorf("Snapshot: %v, want ErrNoDir", err)
		}
	})
	t.Run("worker that does not answer", func(t *testing.T) {
		t.Parallel()
		c := s.must(t, coordinator.Options{Layout: countLayout(), Dir: t.TempDir(), NumShards: 2})
		cl := client(t, c, "sleepy")
		if _, err := cl.Resume(t.Context(), Source, []string{"x"}); err != nil {
			t.Fatal(err)
		}
		for within := 20 * time.Millisecond; ; within *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, err := c.Snapshot(ctx, ps.SnapshotOptions{})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Snapshot: %v, want the context's error", err)
			}
			if strings.Contains(err.Error(), "sleepy") {
				break
			}
			if within > 5*time.Minute { // a busy machine may not have asked the worker within less
				t.Fatalf("Snapshot: %v, want one that names the worker", err)
			}
		}
		// The attempt is abandoned: nobody waits for it.
		for n := range int64(3) {
			if err := cl.Push(t.Context(), countUpdate("x", n, n+1, someIDs(4))); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// fill pushes some batches of a job and leaves.
func fill(t *testing.T, j Job, c Cluster, steps int) {
	t.Helper()
	cl := client(t, c, "w")
	w, err := NewWorker(t.Context(), j, cl)
	if err != nil {
		t.Fatal(err)
	}
	for range steps {
		if _, err := w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(cl.Flush(t.Context()), cl.Close()); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, c Cluster, o ps.SnapshotOptions) ps.SnapshotInfo {
	t.Helper()
	info, err := c.Snapshot(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// testIfChanged: a snapshot that is wanted only if there is something new is the one before where there is not, also after a
// restart.
func (s suite) testIfChanged(t *testing.T) {
	t.Parallel()
	j, dir := SmallJob(), t.TempDir()
	opts := coordinator.Options{Layout: j.Layout(), NumShards: 2, Dir: dir}
	ifChanged := ps.SnapshotOptions{IfChanged: true}
	c := s.must(t, opts)
	none := take(t, c, ifChanged) // there is none before, so an empty one is taken
	fill(t, j, c, 3)
	first := take(t, c, ifChanged)
	again, whether := take(t, c, ifChanged), take(t, c, ps.SnapshotOptions{})
	if none.Path == first.Path || first.Rows() == 0 || again.Path != first.Path || whether.Path == first.Path {
		t.Errorf("taken were %q, %q with %d rows, %q and, in any case, %q", none.Path, first.Path, first.Rows(), again.Path, whether.Path)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c = s.must(t, opts)
	if restored := take(t, c, ifChanged); restored.Path != whether.Path {
		t.Errorf("taken was %q after a restart from %q", restored.Path, whether.Path)
	}
	fill(t, j, c, 1)
	if last := take(t, c, ifChanged); last.Path == whether.Path {
		t.Errorf("taken was %q though a batch was applied", last.Path)
	}
}

func (s suite) testFullDisk(t *testing.T) {
	t.Parallel()
	j, dir := SmallJob(), t.TempDir()
	for at := 1; ; at++ {
		fs := NewFaultFS(fsx.OS{}, 0, 0)
		c := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: 2, Dir: dir, FS: fsx.Local{Disk: fs}})
		if c.Restored() == nil {
			fill(t, j, c, 10)
			take(t, c, ps.SnapshotOptions{})
		}
		good := digest(t, c)
		fill(t, j, c, 1)
		_, before := fs.Ops()
		fs.mu.Lock()
		fs.fullAt = before + at
		fs.mu.Unlock()
		_, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
		if err == nil {
			if at < 5 {
				t.Fatalf("only %d writes", at-1)
			}
			return
		}
		if !errors.Is(err, ps.ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir) {
			t.Fatalf("write %d: %v, want ErrNoSpace that names the folder", at, err)
		}
		names, err := os.ReadDir(dir)
		if err != nil || len(names) != 1 {
			t.Errorf("write %d: %d entries left in the folder (%v), want the good one", at, len(names), err)
		}
		// Training continues, and so does the next snapshot once there is room.
		fill(t, j, c, 1)
		again := s.must(t, coordinator.Options{Layout: j.Layout(), Dir: dir})
		if d := digest(t, again); d != good {
			t.Fatalf("write %d: restored %s, want %s", at, d, good)
		}
		if at == 3 {
			fs.Empty()
			info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
			if err != nil {
				t.Fatalf("with room again: %v", err)
			}
			if err := os.RemoveAll(info.Path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (s suite) testFileKills(t *testing.T) {
	t.Parallel()
	for _, incremental := range []int{0, 2} {
		t.Run(fmt.Sprintf("incremental=%d", incremental), func(t *testing.T) {
			t.Parallel()
			s.killAtFiles(t, incremental)
		})
	}
}

// killAtFiles takes a snapshot of few changes, and ends the process at every operation on files.
func (s suite) killAtFiles(t *testing.T, incremental int) {
	j := Job{NumSplits: 3, SplitLen: 400, BatchLen: 7, NumIDs: 397}
	for at := 1; ; at++ {
		dir := t.TempDir()
		c := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: 2, Dir: dir})
		fill(t, j, c, 50)
		old := take(t, c, ps.SnapshotOptions{})

		fs := NewFaultFS(fsx.OS{}, 0, 0)
		c = s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: 2, Dir: dir, FS: fsx.Local{Disk: fs}, Keep: 1, Incremental: incremental})
		fill(t, j, c, 2)
		want := digest(t, c)
		ops, _ := fs.Ops()
		fs.mu.Lock()
		fs.killAt = ops + at
		fs.mu.Unlock()
		info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
		if !fs.Dead() {
			if err != nil || at < 10 {
				t.Fatalf("ended after %d operations: %v", at-1, err)
			}
			if (info.Base != nil) != (incremental > 0) {
				t.Errorf("the base is %v", info.Base)
			}
			return
		}
		// What was not synced is lost with the power.
		for _, name := range fs.Unsynced() {
			if err := os.Truncate(name, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		again := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: 5, Dir: dir})
		if again.Restored() == nil {
			t.Fatalf("operation %d: nothing was restored", at)
		}
		if d := digest(t, again); d != old.Digest && d != want {
			t.Errorf("operation %d: restored %s, want that of before or after the snapshot", at, d)
		}
		if err == nil && digest(t, again) != want {
			t.Errorf("operation %d: the snapshot was reported and is gone", at)
		}
		left(t, at, dir)
	}
}

// left looks for what is no part of a snapshot.
func left(t *testing.T, at int, dir string) {
	t.Helper()
	folders, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		path := filepath.Join(dir, f.Name())
		info, err := snapshot.ReadInfo(path)
		if err != nil {
			t.Errorf("operation %d: left over %s: %v", at, path, err)
			continue
		}
		known := map[string]bool{snapshot.ManifestName: true}
		for _, f := range info.Files {
			known[f.Name] = true
		}
		files, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !known[f.Name()] {
				t.Errorf("operation %d: %s is left over in %s", at, f.Name(), path)
			}
		}
	}
}

func (s suite) testDamaged(t *testing.T) {
	t.Parallel()
	j := SmallJob()
	for _, damage := range []struct {
		name string
		do   func(path string) error
	}{
		{"flipped bit", func(p string) error {
			b, err := os.ReadFile(p)
			if err == nil {
				b[len(b)/2] ^= 1
				err = os.WriteFile(p, b, 0o644)
			}
			return err
		}},
		{"cut short", func(p string) error { return os.Truncate(p, 100) }},
		{"missing", os.Remove},
	} {
		for _, file := range []string{"rows-0000-0000.arrow", "state-0000-0000.arrow", "dense-0000.arrow", snapshot.ManifestName} {
			dir := t.TempDir()
			c := s.must(t, coordinator.Options{Layout: j.Layout(), Dir: dir})
			fill(t, j, c, 5)
			first := take(t, c, ps.SnapshotOptions{})
			fill(t, j, c, 5)
			second := take(t, c, ps.SnapshotOptions{})
			if err := damage.do(filepath.Join(second.Path, file)); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			again := s.must(t, coordinator.Options{Layout: j.Layout(), Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if again.Restored() == nil || again.Restored().ID != first.ID || digest(t, again) != first.Digest {
				t.Errorf("%s %s: the snapshot before was not restored: %+v", damage.name, file, again.Restored())
			}
			named := strings.Contains(log.String(), second.Path) && strings.Contains(log.String(), file)
			if damage.name == "missing" && file == snapshot.ManifestName {
				named = strings.Contains(log.String(), "unfinished") && strings.Contains(log.String(), filepath.Base(second.Path))
			}
			if !named {
				t.Errorf("%s %s: the log does not name it: %s", damage.name, file, log.String())
			}
			// Its number is not used again. One without a manifest is none, and was removed.
			if info := take(t, again, ps.SnapshotOptions{}); info.ID <= second.ID && (damage.name != "missing" || file != snapshot.ManifestName) {
				t.Errorf("snapshot %d after %d", info.ID, second.ID)
			}
			if err := os.RemoveAll(filepath.Dir(first.Path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "snap-00000001"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "snap-00000001", snapshot.ManifestName), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.open(t.Context(), coordinator.Options{Layout: j.Layout(), Dir: dir}); !errors.Is(err, ps.ErrCorrupt) {
		t.Errorf("nothing but damage: %v, want ErrCorrupt", err)
	}
}

func (s suite) testOtherModel(t *testing.T) {
	t.Parallel()
	j, dir := SmallJob(), t.TempDir()
	c := s.must(t, coordinator.Options{Layout: j.Layout(), Dir: dir})
	fill(t, j, c, 2)
	take(t, c, ps.SnapshotOptions{})
	l := j.Layout()
	l.Tables[1].Segments[0].Optimizer = optim.SGD{LR: 0.5}
	l.Dense = append(l.Dense, param.Tensor{Name: "extra", Shape: []int{1}, Optimizer: optim.SGD{}})
	_, err := s.open(t.Context(), coordinator.Options{Layout: l, Dir: dir})
	if !errors.Is(err, ps.ErrLayout) {
		t.Fatalf("Open: %v, want ErrLayout", err)
	}
	for _, part := range []string{
		"table item segment vec: the snapshot has the state of adagrad", "the model's optimizer is sgd", "tensor extra: the snapshot has none, the model one of shape [1]", dir,
		"restore: {tables: {item.vec: init}, tensors: {extra: init}}",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not contain %q: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), "user") {
		t.Errorf("error names what is the same: %v", err)
	}
}

func (s suite) testKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := s.must(t, coordinator.Options{Layout: countLayout(), Dir: dir, Keep: 2, Meta: map[string]string{"job": "j"}})
	var want []uint64
	for i := range 6 {
		info := take(t, c, ps.SnapshotOptions{Pin: i == 1})
		if i == 1 || i >= 4 {
			want = append([]uint64{info.ID}, want...)
		}
	}
	entries, err := snapshot.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for _, e := range entries {
		got = append(got, e.ID)
		if e.Err != nil || e.Info.Meta["job"] != "j" {
			t.Errorf("%s: %+v, %v", e.Path, e.Info, e.Err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("snapshots kept (-want +got):\n%s", diff)
	}
}

func (s suite) testRestoreOne(t *testing.T) {
	t.Parallel()
	j, dir := SmallJob(), t.TempDir()
	c := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: 3, Dir: dir})
	fill(t, j, c, 5)
	first := take(t, c, ps.SnapshotOptions{})
	fill(t, j, c, 5)
	take(t, c, ps.SnapshotOptions{})
	again := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: 4, Dir: t.TempDir(), Restore: first.Path})
	if d := digest(t, again); d != first.Digest {
		t.Errorf("digest %s, want %s", d, first.Digest)
	}
	if _, err := s.open(t.Context(), coordinator.Options{Layout: j.Layout(), Restore: filepath.Join(dir, "none")}); !errors.Is(err, ps.ErrCorrupt) {
		t.Errorf("a folder that is not there: %v, want ErrCorrupt", err)
	}
	sn, err := snapshot.Open(t.Context(), first.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sn.Close(); err != nil {
			t.Error(err)
		}
	}()
	if d, err := sn.Digest(); err != nil || d != first.Digest {
		t.Errorf("digest of the files %s, %v; want %s", d, err, first.Digest)
	}
}

// testPeriodic lets simulated time pass; the disk is real. Turns in which nothing has changed take no snapshot.
func (s suite) testPeriodic(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		fs := NewFaultFS(fsx.OS{}, 0, 1)
		c, err := s.open(t.Context(), coordinator.Options{Layout: countLayout(), Dir: dir, Every: time.Minute, Soon: time.Minute, FS: fsx.Local{Disk: fs}})
		if err != nil {
			t.Fatal(err)
		}
		change := func(v string) {
			if err := c.SetState(t.Context(), "k", []byte(v)); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(130 * time.Second) // nothing has changed since the beginning
		change("a")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		fs.Empty() // two failed
		time.Sleep(time.Minute)
		change("b")
		time.Sleep(time.Minute)
		change("b")
		time.Sleep(5 * time.Minute) // the same again is no change
		synctest.Wait()
		st, err := c.Stats(t.Context())
		if err != nil || st.SnapshotFailures != 2 {
			t.Errorf("%d failures counted, want 2: %v", st.SnapshotFailures, err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		entries, err := snapshot.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		var taken []uint64
		for _, e := range entries {
			taken = append(taken, e.ID)
		}
		if diff := cmp.Diff([]uint64{4, 3}, taken); diff != "" {
			t.Errorf("snapshots taken, newest first (-want +got):\n%s", diff)
		}
	})
}

// testSoon: a folder without a snapshot has one soon after something was trained, and from then on they come in their turns.
func (s suite) testSoon(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		count := func() int {
			entries, err := snapshot.List(dir)
			if err != nil {
				t.Fatal(err)
			}
			return len(entries)
		}
		for life, want := range [][]int{{0, 1, 1, 2}, {2, 2, 2, 3}} { // the second one has a snapshot from the beginning
			c, err := s.open(t.Context(), coordinator.Options{Layout: countLayout(), Dir: dir, Every: 5 * time.Minute, Keep: 9})
			if err != nil {
				t.Fatal(err)
			}
			for i, sleep := range []time.Duration{45 * time.Second, 20 * time.Second, 3 * time.Minute, 2 * time.Minute} {
				time.Sleep(sleep)
				synctest.Wait()
				if got := count(); got != want[i] {
					t.Errorf("life %d: %d snapshots in the end of wait %d, want %d", life, got, i, want[i])
				}
				if err := c.SetState(t.Context(), "k", fmt.Appendf(nil, "%d %d", life, i)); err != nil {
					t.Error(err)
				}
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
