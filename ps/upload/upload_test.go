package upload_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/upload"
)

// mem is a store in memory, which may be opened again.
type mem struct{ *fsxtest.Mem }

func (mem) Close() error { return nil }

// machine is a job's dir with its cluster and its uploader.
type machine struct {
	t   *testing.T
	j   pstest.Job
	dir string
	u   *upload.Uploader
	c   *coordinator.Cluster
	// digests are those of what each snapshot holds.
	digests map[uint64]string
}

// options upload quickly, as owner id.
func options(dir, id string, open func(context.Context) (upload.Store, error), keep int) upload.Options {
	return upload.Options{
		Dir: filepath.Join(dir, "snapshots"), URL: "mem://store", Open: open, Owner: id, Retention: snapshot.Retention{Keep: keep},
		Retry: time.Millisecond, RetryMost: 4 * time.Millisecond,
	}
}

// newMachine opens the cluster of a dir as a job does: what the store has comes first.
func newMachine(t *testing.T, o upload.Options, incremental int) (*machine, error) {
	t.Helper()
	m := &machine{t: t, j: pstest.Job{NumSplits: 3, SplitLen: 40000, BatchLen: 7, NumIDs: 997}, dir: o.Dir, u: upload.New(o), digests: map[uint64]string{}}
	_, after, err := m.u.Restore(t.Context(), false)
	if err != nil {
		return nil, err
	}
	m.c, err = coordinator.Open(t.Context(), coordinator.Options{
		Layout: m.j.Layout(), NumShards: 2, Dir: o.Dir, Keep: 2, Incremental: incremental, Uploads: m.u, After: after,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.u.Start(t.Context(), m.c.First().Pause)
	t.Cleanup(m.end)
	return m, nil
}

func must(t *testing.T, o upload.Options, incremental int) *machine {
	t.Helper()
	m, err := newMachine(t, o, incremental)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// end ends the process of the machine, as it were.
func (m *machine) end() {
	m.u.Close()
	if m.c != nil {
		if err := m.c.Close(context.WithoutCancel(m.t.Context())); err != nil {
			m.t.Error(err)
		}
		m.c = nil
	}
}

// train trains some batches and takes a snapshot.
func (m *machine) train(steps int, o ps.SnapshotOptions) ps.SnapshotInfo {
	m.t.Helper()
	cl, err := m.c.Client(m.t.Context(), "w")
	if err != nil {
		m.t.Fatal(err)
	}
	w, err := pstest.NewWorker(m.t.Context(), m.j, cl)
	for range steps {
		if err == nil {
			_, err = w.Step(m.t.Context())
		}
	}
	if err := errors.Join(err, cl.Flush(m.t.Context()), cl.Close()); err != nil {
		m.t.Fatal(err)
	}
	info, err := m.c.Snapshot(m.t.Context(), o)
	if err != nil {
		m.t.Fatal(err)
	}
	if m.digests[info.ID], err = m.c.Digest(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	return info
}

func (m *machine) wait() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	if err := m.u.Wait(ctx); err != nil {
		m.t.Fatal(err)
	}
}

// check reads all that a store has, compares it with what the shards held, and returns the numbers, the newest first.
func (m *machine) check(store fsx.FS) (ids []uint64) {
	m.t.Helper()
	entries, err := snapshot.ListIn(store, ".")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range entries {
		ids = append(ids, e.ID)
		faults, err := snapshot.Verify(m.t.Context(), store, e.Path)
		s, openErr := snapshot.OpenWith(m.t.Context(), e.Path, snapshot.OpenOptions{FS: store})
		if _, gone := snapshot.ReadInfoIn(store, e.Path); errors.Is(gone, fs.ErrNotExist) {
			ids = ids[:len(ids)-1] // what it was kept for was compacted meanwhile
			if openErr == nil {
				if err := s.Close(); err != nil {
					m.t.Error(err)
				}
			}
			continue
		}
		if err != nil || len(faults) > 0 || e.Err != nil || openErr != nil {
			m.t.Errorf("snapshot %d of the store: %v, %v, %v, %v", e.ID, faults, err, e.Err, openErr)
			continue
		}
		d, err := s.Digest()
		if want, known := m.digests[e.ID]; err != nil || known && d != want {
			m.t.Errorf("snapshot %d of the store has digest %s, the shards had %s: %v", e.ID, d, want, err)
		}
		if err := s.Close(); err != nil {
			m.t.Error(err)
		}
	}
	return ids
}

func opening(s upload.Store) func(context.Context) (upload.Store, error) {
	return func(context.Context) (upload.Store, error) { return s, nil }
}

// TestUploads takes snapshots one on the other, with compaction, and finds in the store what its own retention keeps; then the machine is lost, and
// another one continues from there, while the first, should it not be dead after all, uploads no more.
func TestUploads(t *testing.T) {
	t.Parallel()
	for _, incremental := range []int{0, 3} {
		t.Run(fmt.Sprint("incremental=", incremental), func(t *testing.T) {
			t.Parallel()
			store := mem{new(fsxtest.Mem)}
			m := must(t, options(t.TempDir(), "first", opening(store), 4), incremental)
			m.train(400, ps.SnapshotOptions{})
			m.wait()
			pinned := m.train(2, ps.SnapshotOptions{Pin: true})
			m.wait()
			for range 9 {
				m.train(2, ps.SnapshotOptions{})
				m.wait()
			}
			newest := m.digests[11]
			ids := m.check(store)
			if len(ids) < 5 || ids[0] != 11 || !slices.Contains(ids, pinned.ID) || incremental == 0 && len(ids) != 5 {
				t.Errorf("the store has %v, want the newest 4, their bases and pinned %d", ids, pinned.ID)
			}
			if incremental > 0 && slices.Contains(ids, 1) {
				t.Errorf("the store has %v: nothing was compacted there", ids)
			}

			other := must(t, options(t.TempDir(), "second", opening(store), 4), incremental)
			if d, err := other.c.Digest(t.Context()); err != nil || d != newest {
				t.Errorf("another machine has digest %s, want %s: %v", d, newest, err)
			}
			m.train(2, ps.SnapshotOptions{})
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("long enough"))
			defer cancel()
			if err := m.u.Wait(ctx); err == nil || ctx.Err() == nil {
				t.Errorf("two machines upload to one place: %v", err)
			}
			other.digests[12] = ""
			info := other.train(3, ps.SnapshotOptions{})
			other.wait()
			other.end()
			if ids := other.check(store); info.ID != 12 || ids[0] != 12 {
				t.Errorf("the other machine's snapshot is %d, the store has %v", info.ID, ids)
			}
		})
	}
}

// inOrder is a store that looks, whenever a snapshot is complete in it, whether that can be read.
type inOrder struct {
	mem
	seen, added, faults *[]string
}

func (s inOrder) Create(ctx context.Context, name string) (fsx.Writer, error) {
	w, err := s.mem.Create(ctx, name)
	return inOrderWriter{w, s, name}, err
}

type inOrderWriter struct {
	fsx.Writer
	s    inOrder
	name string
}

func (w inOrderWriter) Commit(ctx context.Context) error {
	err := w.Writer.Commit(ctx)
	if err != nil || filepath.Base(w.name) != snapshot.ManifestName {
		return err
	}
	path := filepath.Dir(w.name)
	*w.s.seen = append(*w.s.seen, path)
	info, err := snapshot.ReadInfoIn(w.s.mem, path)
	if err == nil && info.Base != nil {
		*w.s.added = append(*w.s.added, path)
		_, err = snapshot.Chain(w.s.mem, info)
	}
	if err != nil {
		*w.s.faults = append(*w.s.faults, err.Error())
	}
	return nil
}

// TestBasesAreUploadedFirst: where several snapshots wait that add to each other, none is in the store before what it adds to, so that a machine which is lost then is continued from all that is there.
func TestBasesAreUploadedFirst(t *testing.T) {
	t.Parallel()
	var seen, added, faults []string
	store := inOrder{mem{new(fsxtest.Mem)}, &seen, &added, &faults}
	taken := make(chan struct{})
	opened := 0
	m := must(t, options(t.TempDir(), "first", func(ctx context.Context) (upload.Store, error) {
		if opened++; opened > 1 { // the first is Restore's
			select {
			case <-taken:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		return store, nil
	}, 4), 20)
	var ids []uint64
	for _, steps := range []int{400, 2, 2} { // few rows change in two steps
		ids = append(ids, m.train(steps, ps.SnapshotOptions{}).ID)
	}
	close(taken)
	m.wait()
	m.end()
	if len(faults) > 0 {
		t.Errorf("completed in the order %q: %q", seen, faults)
	}
	if len(seen) < len(ids) || len(added) < 2 {
		t.Errorf("of %d snapshots %q were uploaded, and %q add to another: no test", len(ids), seen, added)
	}
}

// gated is a store that takes nothing until it is opened.
type gated struct {
	mem
	begun, open chan struct{}
	once        *sync.Once
}

func (g gated) Create(ctx context.Context, name string) (fsx.Writer, error) {
	if filepath.Base(name) != "owner" {
		g.once.Do(func() { close(g.begun) })
		<-g.open
	}
	return g.mem.Create(ctx, name)
}

// TestSlowStore: a snapshot that is being uploaded stays, with what it adds to, whatever training has taken since; nobody waits for its upload.
func TestSlowStore(t *testing.T) {
	t.Parallel()
	store := gated{mem{new(fsxtest.Mem)}, make(chan struct{}), make(chan struct{}), new(sync.Once)}
	m := must(t, options(t.TempDir(), "me", opening(store), 2), 0)
	m.train(3, ps.SnapshotOptions{})
	<-store.begun
	for range 5 {
		m.train(1, ps.SnapshotOptions{})
	}
	if holds := m.u.Holds(); !slices.Equal(holds, []uint64{1}) {
		t.Fatalf("%v are held", holds)
	}
	here, err := snapshot.List(m.dir)
	if err != nil || len(here) != 3 || here[2].ID != 1 {
		t.Errorf("the dir has %v, %v; want the newest two and the one that is read", here, err)
	}
	close(store.open)
	m.wait()
	if ids := m.check(store.mem); !slices.Equal(ids, []uint64{6, 5}) {
		t.Errorf("the store has %v", ids)
	}
}

// TestOwners: a dir uploads only where it is at home, and nothing is changed elsewhere.
func TestOwners(t *testing.T) {
	t.Parallel()
	store := mem{new(fsxtest.Mem)}
	home := t.TempDir()
	m := must(t, options(home, "home", opening(store), 2), 0)
	m.train(5, ps.SnapshotOptions{})
	m.wait()
	m.end()
	there := files(t, store)

	strange := must(t, options(t.TempDir(), "strange", opening(mem{new(fsxtest.Mem)}), 2), 0)
	strange.train(3, ps.SnapshotOptions{})
	strange.wait()
	strange.end()
	o := options(filepath.Dir(strange.dir), "strange", opening(store), 2)
	if _, _, err := upload.New(o).Restore(t.Context(), false); !errors.Is(err, upload.ErrOwner) || !strings.Contains(err.Error(), "home") {
		t.Errorf("another dir uploads to the place: %v", err)
	}
	if _, _, err := upload.New(options(home, "home", opening(store), 2)).Restore(t.Context(), true); !errors.Is(err, upload.ErrNotEmpty) {
		t.Errorf("what starts over uploads to the place: %v", err)
	}
	if now := files(t, store); !slices.Equal(now, there) {
		t.Errorf("the store has %v, had %v", now, there)
	}
	// The owner itself continues, and so does a copy of its dir.
	for _, id := range []string{"home", "moved"} {
		if _, after, err := upload.New(options(home, id, opening(store), 2)).Restore(t.Context(), false); err != nil || after != 1 {
			t.Errorf("%s: %d, %v", id, after, err)
		}
	}
	// A dir that was put back to what it was must not continue from there, as if nothing had come after.
	m = must(t, options(home, "moved", opening(store), 2), 0)
	m.train(2, ps.SnapshotOptions{})
	m.wait()
	m.end()
	if err := os.RemoveAll(snapshot.Path(m.dir, 2)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := upload.New(options(home, "moved", opening(store), 2)).Restore(t.Context(), false); !errors.Is(err, upload.ErrAhead) {
		t.Errorf("a dir that has lost its newest snapshot: %v", err)
	}
}

// files are the names of all that is in a store.
func files(t *testing.T, store fsx.FS) (out []string) {
	t.Helper()
	var walk func(dir string)
	walk = func(dir string) {
		infos, err := store.List(t.Context(), dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, i := range infos {
			if name := filepath.Join(dir, i.Name); i.Dir {
				walk(name)
			} else {
				out = append(out, name)
			}
		}
	}
	walk(".")
	return out
}

// flaky is a store that fails now and then, at any call.
type flaky struct {
	mem
	p *atomic.Int64 // in a thousand
	r *rand.Rand
	*sync.Mutex
	faults *atomic.Int64
}

func (f flaky) fault(op string) error {
	f.Lock()
	defer f.Unlock()
	if int64(f.r.IntN(1000)) >= f.p.Load() {
		return nil
	}
	f.faults.Add(1)
	return fmt.Errorf("%s: %w", op, fsx.ErrUnreachable)
}

func (f flaky) Open(ctx context.Context, name string) (fsx.File, error) {
	if err := f.fault("open"); err != nil {
		return nil, err
	}
	return f.mem.Open(ctx, name)
}

func (f flaky) Stat(ctx context.Context, name string) (fsx.Info, error) {
	if err := f.fault("stat"); err != nil {
		return fsx.Info{}, err
	}
	return f.mem.Stat(ctx, name)
}

func (f flaky) List(ctx context.Context, dir string) ([]fsx.Info, error) {
	if err := f.fault("list"); err != nil {
		return nil, err
	}
	return f.mem.List(ctx, dir)
}

func (f flaky) Create(ctx context.Context, name string) (fsx.Writer, error) {
	w, err := f.mem.Create(ctx, name)
	return flakyWriter{w, f}, errors.Join(err, f.fault("create"))
}

func (f flaky) Remove(ctx context.Context, name string) error {
	if err := f.fault("remove"); err != nil {
		return err
	}
	return f.mem.Remove(ctx, name)
}

type flakyWriter struct {
	fsx.Writer
	f flaky
}

// Commit fails before or after it has done its work.
func (w flakyWriter) Commit(ctx context.Context) error {
	if err := w.f.fault("commit"); err != nil {
		return err
	}
	return errors.Join(w.Writer.Commit(ctx), w.f.fault("commit"))
}

// TestFlakyStore: whatever fails and however often, training continues, snapshots come to the store in the end, whole, and nobody keeps what need not
// stay.
func TestFlakyStore(t *testing.T) {
	t.Parallel()
	store := flaky{mem{new(fsxtest.Mem)}, new(atomic.Int64), rand.New(rand.NewPCG(5, 6)), new(sync.Mutex), new(atomic.Int64)}
	m := must(t, options(t.TempDir(), "me", opening(store), 3), 2)
	store.p.Store(60)
	for range 12 {
		m.train(3, ps.SnapshotOptions{})
		m.wait()
		m.check(store.mem)
	}
	if n := store.faults.Load(); n < 20 {
		t.Errorf("only %d faults", n)
	}
	store.p.Store(1000) // and now it is gone altogether
	m.train(3, ps.SnapshotOptions{})
	m.train(3, ps.SnapshotOptions{})
	store.p.Store(0)
	m.wait()
	if ids := m.check(store.mem); ids[0] != 14 {
		t.Errorf("after the store was away it has %v", ids)
	}
	for late := time.Now().Add(5 * time.Minute); len(m.u.Holds()) > 0; time.Sleep(time.Millisecond) { // it may look once more at what has been merged meanwhile
		if time.Now().After(late) {
			t.Fatalf("%v are held", m.u.Holds())
		}
	}
}

// TestStoreAway: a dir that has snapshots trains without its store, and one that has none does not begin at all: nobody knows what it would lose.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	store := mem{new(fsxtest.Mem)}
	var down atomic.Bool
	open := func(context.Context) (upload.Store, error) {
		if down.Load() {
			return nil, fmt.Errorf("dial: %w", fsx.ErrUnreachable)
		}
		return store, nil
	}
	dir := t.TempDir()
	m := must(t, options(dir, "me", open, 3), 0)
	m.train(3, ps.SnapshotOptions{})
	m.wait()
	m.end()
	down.Store(true)
	if _, _, err := upload.New(options(t.TempDir(), "me", open, 3)).Restore(t.Context(), false); !errors.Is(err, fsx.ErrUnreachable) {
		t.Errorf("a dir without snapshots begins: %v", err)
	}
	var log lockedBuffer
	o := options(dir, "me", open, 3)
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	m = must(t, o, 0)
	m.train(3, ps.SnapshotOptions{})
	for late := time.Now().Add(5 * time.Minute); !strings.Contains(log.String(), "cannot be uploaded for now"); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("log:\n%s", log.String())
		}
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("long enough"))
	defer cancel()
	if err := m.u.Wait(ctx); err == nil {
		t.Error("all is uploaded to a store that is away")
	}
	down.Store(false)
	m.wait()
	if ids := m.check(store); !slices.Equal(ids, []uint64{2, 1}) {
		t.Errorf("the store has %v", ids)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestFetchDamaged flips a bit in each file of the store's newest snapshot: the one before is brought back, and the number of the damaged one is not used
// again.
func TestFetchDamaged(t *testing.T) {
	t.Parallel()
	store := mem{new(fsxtest.Mem)}
	m := must(t, options(t.TempDir(), "me", opening(store), 5), 0)
	for range 3 {
		m.train(5, ps.SnapshotOptions{})
		m.wait()
	}
	m.end()
	for _, name := range files(t, store) {
		if filepath.Dir(name) != "snap-00000003" {
			continue
		}
		b, err := fsx.ReadFile(t.Context(), store, name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(b)
		bad[len(bad)/3] ^= 1
		if err := fsx.WriteFile(t.Context(), store, name, bad); err != nil {
			t.Fatal(err)
		}
		other := must(t, options(t.TempDir(), "me", opening(store), 5), 0)
		if d, err := other.c.Digest(t.Context()); err != nil || d != m.digests[2] {
			t.Errorf("%s damaged: another machine has digest %s, want that of snapshot 2, %s: %v", name, d, m.digests[2], err)
		}
		other.u.Close() // it has nothing to say to the store here
		if info := other.train(1, ps.SnapshotOptions{}); info.ID != 4 {
			t.Errorf("%s damaged: the next snapshot is number %d, want 4", name, info.ID)
		}
		if err := fsx.WriteFile(t.Context(), store, name, b); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files(t, store) {
		if strings.HasSuffix(name, ".arrow") {
			if err := store.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := newMachine(t, options(t.TempDir(), "me", opening(store), 5), 0); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("none is whole: %v", err)
	}
}

// TestFetch asks for a number, brings back the newest of each label beside it, and puts aside what is in the way.
func TestFetch(t *testing.T) {
	t.Parallel()
	store := mem{new(fsxtest.Mem)}
	m := must(t, options(t.TempDir(), "me", opening(store), 9), 4)
	m.train(200, ps.SnapshotOptions{})
	m.train(2, ps.SnapshotOptions{Label: "best"})
	m.train(2, ps.SnapshotOptions{Label: "best"})
	m.train(2, ps.SnapshotOptions{})
	m.wait()
	m.end()
	if _, err := upload.Fetch(t.Context(), upload.FetchOptions{From: store, To: m.dir}); !errors.Is(err, upload.ErrNotEmpty) {
		t.Errorf("into a folder that has snapshots: %v", err)
	}
	if _, err := upload.Fetch(t.Context(), upload.FetchOptions{From: store, To: t.TempDir(), ID: 77}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a number that there is not: %v", err)
	}
	if info, err := upload.Fetch(t.Context(), upload.FetchOptions{From: new(fsxtest.Mem), To: t.TempDir()}); info != nil || err != nil {
		t.Errorf("of an empty store: %v, %v", info, err)
	}
	for id, want := range map[uint64][]uint64{0: {4, 3, 2, 1}, 1: {1}, 2: {2, 1}} {
		to := filepath.Join(t.TempDir(), "to")
		if err := errors.Join(os.MkdirAll(to, 0o755), os.WriteFile(filepath.Join(to, "floor"), []byte("7\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		info, err := upload.Fetch(t.Context(), upload.FetchOptions{From: store, To: to, ID: id})
		if err != nil || info.ID != want[0] {
			t.Fatalf("number %d: %v, %v", id, info, err)
		}
		if got := m.check(fsx.Sub(fsx.Local{}, to)); !slices.Equal(got, want) {
			t.Errorf("number %d: %v came back, want %v", id, got, want)
		}
		if _, err := os.Stat(to + ".1/floor"); err != nil {
			t.Errorf("what was there is not aside: %v", err)
		}
	}
}

// TestFetchCutShort ends fetching at every file that is read: the folder has nothing, or all; then the next call brings back the rest.
func TestFetchCutShort(t *testing.T) {
	t.Parallel()
	store := mem{new(fsxtest.Mem)}
	m := must(t, options(t.TempDir(), "me", opening(store), 9), 4)
	m.train(200, ps.SnapshotOptions{})
	m.train(2, ps.SnapshotOptions{})
	m.train(2, ps.SnapshotOptions{})
	m.wait()
	m.end()
	to := filepath.Join(t.TempDir(), "to")
	whole := false
	for n := int64(1); !whole; n++ {
		cut := &opens{mem: store}
		cut.left.Store(n)
		_, err := upload.Fetch(t.Context(), upload.FetchOptions{From: cut, To: to})
		whole = err == nil
		if err != nil && !errors.Is(err, fsx.ErrUnreachable) {
			t.Fatal(err)
		}
		entries, err := snapshot.List(to)
		if err != nil || len(entries) != 0 && len(entries) != 3 {
			t.Fatalf("cut short after %d files there are %v, %v", n, entries, err)
		}
	}
	if ids := m.check(fsx.Sub(fsx.Local{}, to)); !slices.Equal(ids, []uint64{3, 2, 1}) {
		t.Errorf("%v came back", ids)
	}
	// What is left of an earlier time, which the store knows nothing of, does not come back.
	to = filepath.Join(t.TempDir(), "to")
	if err := os.CopyFS(to+".fetching", os.DirFS(m.dir)); err != nil {
		t.Fatal(err)
	}
	empty := mem{new(fsxtest.Mem)}
	other := must(t, options(t.TempDir(), "you", opening(empty), 9), 0)
	other.train(7, ps.SnapshotOptions{})
	other.wait()
	if _, err := upload.Fetch(t.Context(), upload.FetchOptions{From: empty, To: to}); err != nil {
		t.Fatal(err)
	}
	if ids := other.check(fsx.Sub(fsx.Local{}, to)); !slices.Equal(ids, []uint64{1}) {
		t.Errorf("%v came back", ids)
	}
}

// changing is a store that something happens to when a file is opened.
type changing struct {
	mem
	then func(name string)
}

func (c changing) Open(ctx context.Context, name string) (fsx.File, error) {
	c.then(name)
	return c.mem.Open(ctx, name)
}

// TestFetchWhileCompacted: a snapshot whose files go while it is fetched, because it became a whole one, is not taken for a damaged one.
func TestFetchWhileCompacted(t *testing.T) {
	t.Parallel()
	store := mem{new(fsxtest.Mem)}
	m := must(t, options(t.TempDir(), "me", opening(store), 1), 4)
	m.train(200, ps.SnapshotOptions{})
	m.train(2, ps.SnapshotOptions{})
	m.wait()
	m.end()
	var once sync.Once
	reading := changing{store, func(name string) {
		if filepath.Dir(name) != "snap-00000002" || filepath.Base(name) == snapshot.ManifestName {
			return
		}
		once.Do(func() {
			whole, err := snapshot.Compact(t.Context(), nil, snapshot.Path(m.dir, 2), m.j.Layout(), nil)
			if err == nil {
				err = snapshot.Copy(t.Context(), whole, snapshot.CopyOptions{To: store, Dir: "."})
			}
			if err == nil {
				_, err = snapshot.Prune(t.Context(), store, ".", snapshot.Retention{Keep: 1}, snapshot.PruneOptions{})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}}
	to := filepath.Join(t.TempDir(), "to")
	info, err := upload.Fetch(t.Context(), upload.FetchOptions{From: reading, To: to})
	if err != nil || info.ID != 2 || info.Base != nil {
		t.Errorf("%+v, %v", info, err)
	}
	m.check(fsx.Sub(fsx.Local{}, to))
}

// opens is a store of which so many files can be opened.
type opens struct {
	mem
	left atomic.Int64
}

func (o *opens) Open(ctx context.Context, name string) (fsx.File, error) {
	if o.left.Add(-1) < 0 {
		return nil, fmt.Errorf("gone: %w", fsx.ErrUnreachable)
	}
	return o.mem.Open(ctx, name)
}
