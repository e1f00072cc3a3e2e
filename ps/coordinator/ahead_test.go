package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// lookUp asks a fleet's shards for rows, as a reader does, in the generation that there is.
func lookUp(f *fleet, j pstest.Job) error {
	cl, err := f.cluster().Reader(f.t.Context(), "reader")
	if err != nil {
		return err
	}
	rows := &param.Rows{}
	for _, spec := range j.Layout().Tables {
		ids := make([]int64, j.NumIDs)
		for i := range ids {
			ids[i] = int64(i)
		}
		rows.Keys, rows.Values = append(rows.Keys, ids), append(rows.Values, make([]float32, len(ids)*spec.Dim()))
	}
	return errors.Join(cl.Lookup(f.t.Context(), rows), cl.Close())
}

// TestScaleWhileShardsRead holds shards in the middle of reading their rows, added ones and such that stay: lookups and pushes are answered until they continue. What came meanwhile
// is in the next snapshot, which holds nothing else, and nothing of all that is lost.
func TestScaleWhileShardsRead(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	j.NumIDs = 397
	for name, x := range map[string]struct {
		logs        bool
		incremental int
		retention   param.Retention
		steps       int
	}{
		"whole": {}, "log": {logs: true}, "incremental": {incremental: 2}, "incremental log": {incremental: 1, logs: true},
		"retention": {steps: 50, retention: param.Retention{Default: param.SlotRetention{Expire: 200, Occurrences: 1}, Admission: param.AdmitExact, MaxJump: 50}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := j
			j.Retention = x.retention
			f := newFleetOf(t, coordinator.Options{Layout: j.Layout(), Incremental: x.incremental, Hold: -1}, 5, 2, 1, x.logs)
			cl, err := f.client("worker")
			if err != nil {
				t.Fatal(err)
			}
			w, err := pstest.NewWorker(t.Context(), j, cl)
			for err == nil && w.Steps < max(10, x.steps) {
				_, err = w.Step(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			// In the first two rounds shard 1 waits before it is asked, shards 0 and 4 with a file.
			held, goOn := make(chan int, 8), make(chan struct{})
			t.Cleanup(func() { close(goOn) })
			var mu sync.Mutex
			asked, opened := 0, map[int]map[string]bool{0: {}, 4: {}} // folders of snapshots
			f.beforePrepare = func(shard int) error {
				if shard != 1 {
					return nil
				}
				if asked++; asked <= 2 {
					held <- shard
					<-goOn
				}
				return nil
			}
			f.beforeOpen.Store(new(func(shard int, name string) {
				if filepath.Ext(name) != ".arrow" {
					return
				}
				mu.Lock()
				of, known := opened[shard], false
				if of != nil {
					known = of[filepath.Dir(name)]
					of[filepath.Dir(name)] = true
				}
				wait := of != nil && !known && len(of) <= 2 && f.cluster().Ready() == nil // not when all wait
				mu.Unlock()
				if wait {
					held <- shard
					<-goOn
				}
			}))
			type answer struct {
				out ps.Scaled
				err error
			}
			done := make(chan answer, 1)
			go func() {
				out, err := f.cluster().Scale(t.Context(), f.addrs(5))
				done <- answer{out, err}
			}()
			for round := range 2 {
				for range 3 {
					for waiting := true; waiting; {
						select {
						case <-held:
							waiting = false
						case a := <-done:
							t.Fatalf("round %d: nobody reads ahead: %+v", round, a)
						default: // a snapshot waits for the worker to pass a marker
							if err := cl.Idle(t.Context()); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				before := w.Steps
				for w.Steps < before+3 {
					if _, err := w.Step(t.Context()); err != nil {
						t.Fatalf("round %d: a push while shards read: %v", round, err)
					}
				}
				if err := lookUp(f, j); err != nil {
					t.Errorf("round %d: a lookup while shards read: %v", round, err)
				}
				if n := f.cluster().NumShards(); n != 2 {
					t.Errorf("round %d: %d shards", round, n)
				}
				for range 3 {
					goOn <- struct{}{}
				}
			}
			var a answer
			for open := true; open; {
				select {
				case a = <-done:
					open = false
				default:
					_ = cl.Idle(t.Context()) // of a generation that ends sooner or later
				}
			}
			if a.err != nil || a.out.From != 2 || a.out.To != 5 {
				t.Fatalf("%+v, %v", a.out, a.err)
			}
			if info, err := snapshot.ReadInfo(a.out.Snapshot); err != nil || info.Base == nil {
				t.Errorf("the last of the snapshots: %v, adds to %+v", err, info.Base)
			}
			_ = cl.Close()
			for s := range 5 {
				n, _ := f.current(s)
				if st, err := n.Status(t.Context()); err != nil || st.Preparing {
					t.Errorf("shard %d afterwards: %+v, %v", s, st, err)
				}
			}
			trained(t, f, j, 1<<20)
			if got, want := digestOf(t, f), reference(t, j); got != want {
				t.Errorf("digest %s, want %s", got, want)
			}
		})
	}
}

// TestScaleWithoutReading: where a shard cannot read ahead for want of memory it reads later; any other fault ends it, and nothing has changed, nor is anything left of it.
func TestScaleWithoutReading(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	f := newFleetOf(t, coordinator.Options{Layout: j.Layout()}, 3, 2, 1, false)
	trained(t, f, j, 10)
	before := digestOf(t, f)
	preparing := func() (n int) {
		for s := range 3 {
			node, _ := f.current(s)
			if st, err := node.Status(t.Context()); err != nil {
				t.Fatal(err)
			} else if st.Preparing {
				n++
			}
		}
		return n
	}
	var fault atomic.Pointer[error]
	f.beforePrepare = func(shard int) error {
		if shard == 1 {
			return *fault.Load()
		}
		return nil
	}
	fault.Store(&ps.ErrCorrupt)
	if out, err := f.cluster().Scale(t.Context(), f.addrs(3)); !errors.Is(err, ps.ErrCorrupt) || out.Snapshot != "" {
		t.Errorf("a shard that cannot read the snapshot: %+v, %v", out, err)
	}
	if n, got := f.cluster().NumShards(), digestOf(t, f); n != 2 || got != before || preparing() != 0 {
		t.Errorf("%d shards, %d prepare, digest %s, want %s", n, preparing(), got, before)
	}
	// What nobody is at any more is ended by the watch.
	node, _ := f.current(1)
	if err := node.Prepare(t.Context(), ps.PrepareOptions{Shards: 3}); err != nil {
		t.Fatal(err)
	}
	if err := f.cluster().EnsureState(); err != nil || preparing() != 0 {
		t.Errorf("%d shards prepare for nothing: %v", preparing(), err)
	}
	fault.Store(&ps.ErrFull)
	if out, err := f.cluster().Scale(t.Context(), f.addrs(3)); err != nil || out.To != 3 {
		t.Fatalf("a shard without room: %+v, %v", out, err)
	}
	if n, got := f.cluster().NumShards(), digestOf(t, f); n != 3 || got != before {
		t.Errorf("%d shards, digest %s, want %s", n, got, before)
	}
}

// TestPrepareStandby: a standby that has read a snapshot ahead begins with it without a file; not with that of another number of shards.
func TestPrepareStandby(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	o := coordinator.Options{Layout: j.Layout(), NumShards: 2, Dir: t.TempDir()}
	c := mustOpen(t, o)
	cl := mustClient(t, c)
	w, err := pstest.NewWorker(t.Context(), j, cl)
	for err == nil && w.Steps < 20 {
		_, err = w.Step(t.Context())
	}
	if err := errors.Join(err, cl.Flush(t.Context()), cl.Close()); err != nil {
		t.Fatal(err)
	}
	info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const shards = 3
	var pair [2]*shard.Node
	for i := range pair {
		no := o.Node(1, shards)
		no.Log = &shard.LogOptions{Dir: t.TempDir(), NoSync: true}
		no.Pair = &shard.PairOptions{Standby: i == 1, Lease: time.Hour}
		if pair[i], err = shard.Open(t.Context(), no); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pair[i].Close() })
	}
	first, standby := pair[0], pair[1]
	if err := standby.Prepare(t.Context(), ps.PrepareOptions{Shards: shards}); !errors.Is(err, ps.ErrNotReady) {
		t.Errorf("who is neither: %v, want ErrNotReady", err)
	}
	a, err := first.Lease(t.Context(), ps.LeaseCall{Coordinator: 1, Call: 1})
	if err == nil {
		_, err = first.Lease(t.Context(), ps.LeaseCall{Coordinator: 1, Call: 2, Process: a.Process, Stamp: a.Stamp})
	}
	if err == nil {
		_, err = standby.Lease(t.Context(), ps.LeaseCall{Coordinator: 1, Call: 3})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Load(t.Context(), ps.LoadOptions{Generation: uint64(time.Now().UnixMicro()), Path: info.Path, ID: info.ID, Shards: shards}); err != nil {
		t.Fatal(err)
	}
	run, err := standby.AwaitStandby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bases, n, err := first.Bases()
	if err != nil || n != shards {
		t.Fatal(bases, n, err)
	}
	for _, as := range []int{shards + 1, shards} {
		if err := standby.Prepare(t.Context(), ps.PrepareOptions{Shards: as, Path: info.Path, ID: info.ID}); err != nil {
			t.Fatal(err)
		}
		if as == shards {
			for _, file := range info.Files {
				if err := os.Remove(filepath.Join(info.Path, file.Name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if base, err := standby.StartOver(run, shards, bases); base != info.ID || err != nil {
			t.Fatalf("as one of %d: %d, %v", as, base, err)
		}
		want, err := first.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if st, err := standby.Status(t.Context()); err != nil || st.Rows != want.Rows || want.Rows == 0 || st.NumShards != shards || st.Preparing {
			t.Errorf("as one of %d: %+v, want %d rows: %v", as, st, want.Rows, err)
		}
	}
	if _, err := standby.StartOver(run, shards, bases); !errors.Is(err, ps.ErrCorrupt) {
		t.Errorf("what was read ahead is used twice: %v, want ErrCorrupt", err)
	}
}

// TestPrepare: what a node has read ahead it need not read again, and it loads nothing else for it.
func TestPrepare(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	l := j.Layout()
	o := coordinator.Options{Layout: l, NumShards: 2, Dir: t.TempDir(), Incremental: 4}
	c := mustOpen(t, o)
	cl := mustClient(t, c)
	w, err := pstest.NewWorker(t.Context(), j, cl)
	if err != nil {
		t.Fatal(err)
	}
	// take takes a snapshot, whose marker the worker passes.
	take := func(o ps.SnapshotOptions) (info ps.SnapshotInfo) {
		t.Helper()
		taken := make(chan error, 1)
		go func() {
			var err error
			info, err = c.Snapshot(t.Context(), o)
			taken <- err
		}()
		for {
			select {
			case err := <-taken:
				if err != nil {
					t.Fatal(err)
				}
				return info
			default:
				if err := cl.Idle(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	var infos []ps.SnapshotInfo
	for _, steps := range []int{30, 33, 36} {
		for w.Steps < steps && err == nil {
			_, err = w.Step(t.Context())
		}
		if err := errors.Join(err, cl.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
		infos = append(infos, take(ps.SnapshotOptions{}))
	}
	if infos[2].Base == nil {
		t.Fatal("the snapshots do not add to each other")
	}
	const shards = 3
	var nodes []*shard.Node
	memory := table.NewMemory(table.MemoryOptions{Limit: 1 << 30, Of: "this test"})
	o.Memory = memory
	for i := range shards {
		n, err := shard.Open(t.Context(), o.Node(i, shards))
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	read := func(i int, info *ps.SnapshotInfo) error {
		return nodes[i].Prepare(t.Context(), ps.PrepareOptions{Shards: shards, Path: info.Path, ID: info.ID})
	}
	hide := func(info *ps.SnapshotInfo) {
		for _, file := range info.Files {
			if err := os.Remove(filepath.Join(info.Path, file.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The files of what was read are not needed to read on, and none are to load.
	for k := range infos {
		for i := range nodes {
			if err := read(i, &infos[k]); err != nil {
				t.Fatal(err)
			}
			if err := read(i, &infos[k]); err != nil { // once more
				t.Fatal(err)
			}
		}
		hide(&infos[k])
	}
	last := infos[2]
	generation := uint64(time.Now().UnixMicro())
	load := func(i, shards int, info *ps.SnapshotInfo) error {
		generation++
		return nodes[i].Load(t.Context(), ps.LoadOptions{Generation: generation, Path: info.Path, ID: info.ID, Shards: shards})
	}
	var got snapshot.Digest
	for i, n := range nodes {
		if err := load(i, shards, &last); err != nil {
			t.Fatal(err)
		}
		d, err := n.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got.Add(&d.Digest)
		if i == 0 {
			for k, v := range d.State {
				got.State(k, v)
			}
			for id, p := range d.Progress {
				got.Split(id.Source, id.Split, p)
			}
		}
	}
	want, err := c.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("digest %s, want %s", got.String(), want)
	}
	// A node that is asked for something else reads that.
	fresh := take(ps.SnapshotOptions{Pin: true})
	added, err := shard.Open(t.Context(), o.Node(1, shards)) // which has no rows that stay
	if err != nil {
		t.Fatal(err)
	}
	empty := memory.Used()
	if err := added.Prepare(t.Context(), ps.PrepareOptions{Shards: shards, Path: fresh.Path, ID: fresh.ID}); err != nil {
		t.Fatal(err)
	}
	if memory.Used() <= empty {
		t.Error("what is read ahead takes no memory")
	}
	if err := added.Prepare(t.Context(), ps.PrepareOptions{}); err != nil || memory.Used() != empty {
		t.Errorf("given up, it has %d bytes of %d: %v", memory.Used(), empty, err)
	}
	if err := errors.Join(read(0, &fresh), read(1, &fresh)); err != nil {
		t.Fatal(err)
	}
	hide(&fresh)
	if err := load(0, 2, &fresh); !errors.Is(err, ps.ErrCorrupt) {
		t.Errorf("as one of another number: %v, want ErrCorrupt of the files that are gone", err)
	}
	if err := load(1, shards, &last); !errors.Is(err, ps.ErrCorrupt) {
		t.Errorf("of another snapshot: %v, want ErrCorrupt", err)
	}
	// A call that was given up, or that another one came before, leaves nothing; one without room says so.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	used := memory.Used()
	if err := nodes[0].Prepare(ctx, ps.PrepareOptions{Shards: shards, Path: fresh.Path, ID: fresh.ID}); err == nil || memory.Used() != used {
		t.Errorf("given up: %v, and it has %d bytes of %d", err, memory.Used(), used)
	}
	again := take(ps.SnapshotOptions{Pin: true})
	small := o
	small.Memory = memory.Limited(4<<10, "4 KiB", "")
	n, err := shard.Open(t.Context(), small.Node(1, shards))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Prepare(t.Context(), ps.PrepareOptions{Shards: shards, Path: again.Path, ID: again.ID}); !errors.Is(err, ps.ErrFull) || !strings.Contains(fmt.Sprint(err), "beside what the process has") {
		t.Errorf("4 KiB are enough: %v", err)
	}
	if st, err := n.Status(t.Context()); err != nil || st.Rows != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	for _, n := range append(nodes, n, added) {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	if memory.Used() != 0 {
		t.Errorf("%d bytes are left", memory.Used())
	}
	if err := n.Prepare(t.Context(), ps.PrepareOptions{Shards: 2}); !errors.Is(err, ps.ErrClosed) {
		t.Errorf("of a closed node: %v", err)
	}
}
