package coordinator_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/table"
)

// written is what each file of a snapshot holds.
func written(t *testing.T, info *ps.SnapshotInfo) map[string]string {
	t.Helper()
	if info.Base != nil {
		t.Errorf("%s adds to another snapshot", info.Path)
	}
	files := map[string]string{}
	for _, f := range info.Files {
		files[fmt.Sprint(f.Kind, " of table ", f.Table, ", shard ", f.Shard)] = fmt.Sprint(f.Rows, " ", f.SHA256)
	}
	return files
}

// rowsOpened counts the files of rows that shards of a fleet open while there is no state to work with.
func rowsOpened(f *fleet) *[5]atomic.Int64 {
	var n [5]atomic.Int64
	f.beforeOpen.Store(new(func(shard int, name string) {
		if strings.HasPrefix(filepath.Base(name), "rows-") && f.cluster() != nil && f.cluster().Ready() != nil {
			n[shard].Add(1)
		}
	}))
	return &n
}

// TestScaleLikeRestoring goes through many numbers of shards. After each change every file of the next snapshot is, bit for bit, that of a cluster of as many shards which has read all of the
// snapshot that the others went to. No row is read at the change, but of shards with retention, whose rows are all read ahead.
func TestScaleLikeRestoring(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	j.NumIDs = 1997
	for name, x := range map[string]struct {
		logs        bool
		incremental int
		half        bool
		retention   param.Retention
	}{
		"plain": {}, "log": {logs: true}, "incremental log": {logs: true, incremental: 3}, "half": {half: true, incremental: 1},
		"retention": {retention: param.Retention{Default: param.SlotRetention{Expire: 200, Occurrences: 2}, Admission: param.AdmitExact, MaxJump: 50}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := j
			j.Retention = x.retention
			l := j.Layout()
			if x.half {
				j.EditEvery = 0 // they are made for other rules
				l.Tables[1].Segments[0].Optimizer = optim.Stored(l.Tables[1].Segments[0].Optimizer, optim.BF16)
			}
			f := newFleetOf(t, coordinator.Options{Layout: l, Incremental: x.incremental}, 5, 2, 1, x.logs)
			opened := rowsOpened(f)
			r := rand.New(rand.NewPCG(uint64(len(name)), 5))
			for round, to := range []int{3, 5, 3, 2, 3, 1 + r.IntN(5), 1 + r.IntN(5)} {
				if to == f.cluster().NumShards() {
					continue
				}
				trained(t, f, j, 5*r.IntN(3)) // sometimes nothing
				out, err := f.cluster().Scale(t.Context(), f.addrs(to))
				if err != nil {
					t.Fatal(err)
				}
				for s := range opened {
					if n := opened[s].Swap(0); n > 0 {
						t.Errorf("round %d, to %d shards: shard %d opened %d files of rows at the change", round, to, s, n)
					}
				}
				got, err := f.cluster().Snapshot(t.Context(), ps.SnapshotOptions{})
				if err != nil {
					t.Fatal(err)
				}
				twin := mustOpen(t, coordinator.Options{Layout: l, NumShards: to, Restore: out.Snapshot, Dir: t.TempDir()})
				want, err := twin.Snapshot(t.Context(), ps.SnapshotOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if g, w := written(t, &got), written(t, &want); !maps.Equal(g, w) || got.Digest != want.Digest {
					t.Errorf("round %d, to %d shards: the next snapshot has\n%v\nwant\n%v", round, to, g, w)
				}
			}
			trained(t, f, j, 1<<20)
			if !x.half {
				if got, want := digestOf(t, f), reference(t, j); got != want {
					t.Errorf("digest %s, want %s", got, want)
				}
			}
		})
	}
}

// TestScaleAfterTheHold: where commits were not held long enough the last round is taken again, and in the end the shards read their rows at the change: nothing is lost or doubled.
func TestScaleAfterTheHold(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	j.NumIDs = 397
	f := newFleetOf(t, coordinator.Options{Layout: j.Layout(), Hold: 4 * time.Nanosecond}, 3, 2, 1, false)
	opened := rowsOpened(f)
	cl, err := f.client("worker")
	if err != nil {
		t.Fatal(err)
	}
	w, err := pstest.NewWorker(t.Context(), j, cl)
	for err == nil && w.Steps < 10 {
		_, err = w.Step(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	rounds := 0
	ask, stepped := make(chan bool), make(chan bool)
	f.beforePrepare = func(shard int) error {
		if shard == 1 {
			rounds++
			ask <- true
			<-stepped
		}
		return nil
	}
	var out ps.Scaled
	done := make(chan error, 1)
	go func() {
		var err error
		out, err = f.cluster().Scale(t.Context(), f.addrs(3))
		done <- err
	}()
	for open := true; open; {
		select {
		case <-ask:
			_, err := w.Step(t.Context())
			if err := errors.Join(err, cl.Flush(t.Context())); err != nil {
				t.Errorf("round %d: %v", rounds, err)
			}
			stepped <- true
		case err = <-done:
			open = false
		default:
			_ = cl.Idle(t.Context()) // of a generation that ends sooner or later
		}
	}
	if err != nil || out.Again == 0 || rounds < 4 {
		t.Errorf("%+v after %d rounds, want 4 or, where they take long, more: %v", out, rounds, err)
	}
	if opened[0].Load() == 0 || opened[1].Load() == 0 || opened[2].Load() != 0 {
		t.Errorf("shards opened %d, %d and %d files of rows at the change, want some, some and none", opened[0].Load(), opened[1].Load(), opened[2].Load())
	}
	f.beforePrepare = nil
	_ = cl.Close()
	trained(t, f, j, 1<<20)
	if got, want := digestOf(t, f), reference(t, j); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// TestStayingRows has one shard of two become one of three, from a snapshot whose files it cannot open any more. It needs none of them where its rows are those of the snapshot, and
// notices where they are not.
func TestStayingRows(t *testing.T) {
	t.Parallel()
	l := pstest.CountingLayout()
	c := mustOpen(t, coordinator.Options{Layout: l, NumShards: 2, Dir: t.TempDir(), Incremental: 4})
	var ids []int64
	// after trains on as many updates, of 50 rows of which 10 are new, and takes a snapshot.
	at := int64(0)
	after := func(updates int) ps.SnapshotInfo {
		cl := mustClient(t, c)
		_, err := cl.Resume(t.Context(), "s", []string{"x"})
		for range updates {
			some := make([]int64, 50)
			for i := range some {
				some[i] = 10*at + int64(i)
			}
			ids = append(ids, some...)
			err = errors.Join(err, cl.Push(t.Context(), pstest.CountingUpdate("x", at, at+1, some)))
			at++
		}
		if err := errors.Join(err, cl.Flush(t.Context()), cl.Close()); err != nil {
			t.Fatal(err)
		}
		info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	former, info, later := after(200), after(3), after(1)
	if info.Base == nil {
		t.Fatalf("%s adds to nothing", info.Path)
	}
	const from, to = 2, 3
	// One that stays on shard 1.
	stays := ids[slices.IndexFunc(ids, func(id int64) bool {
		return ps.ShardOf(ps.Bucket(id), from) == 1 && ps.ShardOf(ps.Bucket(id), to) == 1
	})]
	p := ps.PrepareOptions{Shards: to, Path: info.Path, ID: info.ID}
	load := func(t *testing.T, n *shard.Node, generation uint64, shards int) error {
		return n.Load(t.Context(), ps.LoadOptions{Generation: generation, Path: info.Path, ID: info.ID, Shards: shards})
	}
	open := func(t *testing.T, f fsx.FS) *shard.Node {
		n, err := shard.Open(t.Context(), shard.Options{Layout: l, Index: 1, NumShards: from, Dir: filepath.Dir(info.Path), FS: f})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	digest := func(t *testing.T, n *shard.Node) string {
		d, err := n.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(d.Digest.String(), d.Progress)
	}
	whole := open(t, nil)
	if err := load(t, whole, 1, to); err != nil {
		t.Fatal(err)
	}
	want := digest(t, whole)
	for name, x := range map[string]struct {
		between func(n *shard.Node) error // of what is read and what is loaded
		needs   bool
	}{
		"nothing":     {func(*shard.Node) error { return nil }, false},
		"asked again": {func(n *shard.Node) error { return n.Prepare(t.Context(), p) }, false},
		"ended":       {func(n *shard.Node) error { return n.Prepare(t.Context(), ps.PrepareOptions{}) }, true},
		"another number": {func(n *shard.Node) error {
			return n.Prepare(t.Context(), ps.PrepareOptions{Shards: 4, Path: p.Path, ID: p.ID})
		}, true},
		"another state": {func(n *shard.Node) error { return load(t, n, 2, from) }, true},
		"the snapshot before": {func(n *shard.Node) error {
			return errors.Join(n.Prepare(t.Context(), ps.PrepareOptions{Shards: to, Path: former.Path, ID: former.ID}), n.Prepare(t.Context(), p))
		}, false},
		"a later snapshot": {func(n *shard.Node) error {
			return errors.Join(n.Prepare(t.Context(), ps.PrepareOptions{Shards: to, Path: later.Path, ID: later.ID}), n.Prepare(t.Context(), p))
		}, false},
		"the snapshot before, for another number": {func(n *shard.Node) error {
			return errors.Join(n.Prepare(t.Context(), ps.PrepareOptions{Shards: 4, Path: former.Path, ID: former.ID}), n.Prepare(t.Context(), p))
		}, false},
		"an update": {func(n *shard.Node) error {
			conn, err := n.Connect(t.Context(), 7, 1, "worker")
			if err == nil {
				_, _, err = conn.Acquire(t.Context(), ps.SplitID{Source: "s", Split: "y"}, 1)
			}
			if err == nil {
				_, err = conn.Stage(t.Context(), nil, 1, pstest.CountingUpdate("y", 0, 1, []int64{stays}))
			}
			if err == nil {
				_, err = conn.Control(t.Context(), []ps.Control{{Kind: ps.Commit, Split: ps.SplitID{Source: "s", Split: "y"}, Epoch: 1, To: 1}})
			}
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			hidden := &hidingDisk{}
			n := open(t, fsx.Local{Disk: hidden})
			if err := load(t, n, 1, from); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(n.Prepare(t.Context(), p), x.between(n)); err != nil {
				t.Fatal(err)
			}
			before := digest(t, n)
			hidden.hides.Store(true)
			if err := load(t, n, 3, to); x.needs == (err == nil) || err != nil && !errors.Is(err, ps.ErrCorrupt) {
				t.Fatalf("loaded without files: %v", err)
			} else if err != nil {
				if got := digest(t, n); got != before {
					t.Errorf("what is there when nothing could be loaded: %s, want %s as before", got, before)
				}
				hidden.hides.Store(false)
				if err := load(t, n, 3, to); err != nil {
					t.Fatal(err)
				}
			}
			if got := digest(t, n); got != want {
				t.Errorf("digest %s, want %s of a shard that has read it", got, want)
			}
			if got, err := n.Status(t.Context()); err != nil || got.Preparing {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// hidingDisk is a disk on which no file is found while hides is set.
type hidingDisk struct {
	fsx.OS
	hides atomic.Bool
}

func (d *hidingDisk) Open(name string) (fsx.File, error) {
	if d.hides.Load() {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return d.OS.Open(name)
}

// TestScaleTakesWhatItGains: what a shard that stays takes while the number of shards changes is what it has and what it gains, and what goes comes back.
func TestScaleTakesWhatItGains(t *testing.T) {
	t.Parallel()
	const rows, dim = 120_000, 8
	l := &param.Layout{Tables: []param.Table{{Name: "t", Segments: []param.Segment{{Name: "v", Dim: dim, Optimizer: optim.Adagrad{LR: .1}}}}}}
	dir := t.TempDir()
	memory := table.NewMemory(table.MemoryOptions{Limit: 1 << 30, Of: "this test"})
	c := mustOpen(t, coordinator.Options{Layout: l, NumShards: 2, Dir: dir})
	cl := mustClient(t, c)
	_, err := cl.Resume(t.Context(), "s", []string{"x"})
	for at := 0; at < rows && err == nil; at += 20_000 {
		u := &param.Update{Source: "s", Split: "x", From: int64(at), To: int64(at + 20_000), NumRows: 1, LR: 1, Keys: make([][]int64, 1), Counts: make([][]uint32, 1), Grads: make([][]float32, 1)}
		for i := range 20_000 {
			u.Keys[0], u.Counts[0] = append(u.Keys[0], int64(at+i)), append(u.Counts[0], 1)
		}
		u.Grads[0] = make([]float32, dim*20_000)
		err = cl.Push(t.Context(), u)
	}
	if err := errors.Join(err, cl.Flush(t.Context()), cl.Close()); err != nil {
		t.Fatal(err)
	}
	info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	generation := uint64(time.Now().UnixMicro())
	load := func(n *shard.Node, shards int) {
		t.Helper()
		generation++
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: generation, Path: info.Path, ID: info.ID, Shards: shards}); err != nil {
			t.Fatal(err)
		}
	}
	// Shard 0 has half of all rows, a sixth goes and comes again. Of shard 1 a third goes when a sixth comes, and the other way round.
	for index, gains := range [][2]int64{{0, rows / 6}, {rows / 6, rows / 3}} {
		n, err := shard.Open(t.Context(), shard.Options{Layout: l, Index: index, NumShards: 2, Dir: dir, Memory: memory})
		if err != nil {
			t.Fatal(err)
		}
		load(n, 2)
		perRow := memory.Used() / (rows / 2)
		for i, shards := range []int64{3, 2} {
			before := memory.Used()
			if err := n.Prepare(t.Context(), ps.PrepareOptions{Shards: int(shards), Path: info.Path, ID: info.ID}); err != nil {
				t.Fatal(err)
			}
			// Memory is made ready ahead for a quarter more rows than there are.
			got, most := (memory.Used()-before)/perRow, gains[i]+(rows/2+gains[i])/4
			if gains[i] == 0 {
				most = 0
			}
			if got > most {
				t.Errorf("shard %d, to %d shards: reading ahead takes %d rows, %d come", index, shards, got, gains[i])
			}
			load(n, int(shards))
			eventually(t, "rows have gone", func() bool { return memory.Used()/perRow < rows/shards*5/4 })
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	if used := memory.Used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}
