package wal_test

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/wal"
)

// gate is a file system whose Sync of files waits for permission.
type gate struct {
	fsx.Disk
	asked chan struct{}
	grant chan error
}

func newGate(on fsx.Disk) *gate {
	return &gate{on, make(chan struct{}), make(chan error)}
}

func (g *gate) Create(path string) (fsx.DiskFile, error) {
	f, err := g.Disk.Create(path)
	return &gateFile{f, g}, err
}

func (g *gate) Update(path string, at int64, direct bool) (fsx.DiskFile, error) {
	f, err := g.Disk.Update(path, at, direct)
	return &gateFile{f, g}, err
}

type gateFile struct {
	fsx.DiskFile
	g *gate
}

func (f *gateFile) Sync() error {
	f.g.asked <- struct{}{}
	if err := <-f.g.grant; err != nil {
		return err
	}
	return f.DiskFile.Sync()
}

// begin opens a gated log; the syncs of the header and of the shard's beginning are let through.
func (g *gate) begin(t *testing.T, o wal.Options) *log {
	t.Helper()
	o.Disk, o.Dir = g, "/log"
	l, err := openLog(o)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range 2 {
			<-g.asked
			g.grant <- nil
		}
	}()
	if err := l.Reset(0); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestGroupCommit: what is appended while a group is synced waits for the next sync, and all of it shares that one.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(newDisk())
		l := g.begin(t, wal.Options{})
		results := make(chan uint64, 100)
		wait := func() {
			lsn, err := l.Append(1, []byte("x"))
			if err != nil {
				t.Error(err)
			}
			go func() {
				if err := l.Wait(t.Context(), lsn); err != nil {
					t.Error(err)
				}
				results <- lsn
			}()
		}
		wait()
		<-g.asked
		for range 50 {
			wait()
		}
		synctest.Wait()
		if len(results) > 0 {
			t.Error("acknowledged before the sync returned")
		}
		g.grant <- nil
		<-g.asked
		synctest.Wait()
		if n := len(results); n != 1 || l.Stats().Durable != 2 {
			t.Errorf("%d acknowledged by the first sync, want 1; durable %d", n, l.Stats().Durable)
		}
		g.grant <- nil
		synctest.Wait()
		if n := len(results); n != 51 {
			t.Errorf("%d acknowledged, want 51", n)
		}
		if s := l.Stats(); s.Syncs != 3 || s.Records != 51 || s.Durable != 52 || s.Next != 53 || s.Pending != 0 {
			t.Errorf("%+v", s)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestShardsShareSyncs: what shards append while one waits for the disk becomes durable by the next sync, of all of them.
func TestShardsShareSyncs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(newDisk())
		l, err := wal.Open(wal.Options{Disk: g, Dir: "/log"})
		if err != nil {
			t.Fatal(err)
		}
		const shards = 5
		go func() {
			for range 1 + shards { // the header's, and each shard's beginning
				<-g.asked
				g.grant <- nil
			}
		}()
		for i := range uint32(shards) {
			if err := l.Shard(i).Reset(0); err != nil {
				t.Fatal(err)
			}
		}
		began := l.Stats().Syncs
		done := make(chan uint32, 10*shards+1)
		push := func(i uint32) {
			lsn, err := l.Shard(i).Append(1, []byte("x"))
			if err == nil {
				err = l.Shard(i).Wait(t.Context(), lsn)
			}
			if err != nil {
				t.Error(err)
			}
			done <- i
		}
		go push(0)
		<-g.asked
		for range 10 {
			for i := range uint32(shards) {
				go push(i)
			}
		}
		synctest.Wait()
		g.grant <- nil
		<-g.asked
		g.grant <- nil
		synctest.Wait()
		for range 10*shards + 1 {
			<-done
		}
		if n := l.Stats().Syncs - began; n != 2 {
			t.Errorf("%d pushes to %d shards took %d syncs, want 2", 10*shards+1, shards, n)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestWaitGivesUp: a waiter that goes away takes nothing with it.
func TestWaitGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(newDisk())
		l := g.begin(t, wal.Options{})
		lsn, err := l.Append(1, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		<-g.asked
		cause := errors.New("the worker went away")
		ctx, cancel := context.WithCancelCause(t.Context())
		gone, stayed := make(chan error), make(chan error)
		go func() { gone <- l.Wait(ctx, lsn) }()
		go func() { stayed <- l.Wait(t.Context(), lsn) }()
		synctest.Wait()
		cancel(cause)
		if err := <-gone; !errors.Is(err, cause) {
			t.Errorf("cancelled wait: %v, want the cause", err)
		}
		g.grant <- nil
		if err := <-stayed; err != nil {
			t.Error(err)
		}
		if err := l.Wait(ctx, lsn); err != nil {
			t.Errorf("wait for what is durable, cancelled: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestBackPressure: Append blocks when too much waits, Room before that, and both continue when it is written.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(newDisk())
		l := g.begin(t, wal.Options{MaxPending: 1000})
		if err := l.Room(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Larger than the limit, but alone.
		if _, err := l.Append(1, make([]byte, 5000)); err != nil {
			t.Fatal(err)
		}
		<-g.asked
		var appended, room bool
		go func() {
			if err := l.Room(t.Context()); err != nil {
				t.Error(err)
			}
			room = true
		}()
		go func() {
			if _, err := l.Append(1, make([]byte, 100)); err != nil {
				t.Error(err)
			}
			appended = true
		}()
		synctest.Wait()
		if appended || room {
			t.Errorf("5000 bytes wait: appended %t, room %t", appended, room)
		}
		g.grant <- nil
		<-g.asked
		synctest.Wait()
		if !appended || !room {
			t.Errorf("nothing waits: appended %t, room %t", appended, room)
		}
		// A caller that waits in Append when the log fails or is closed gets an error.
		fail := make(chan error)
		go func() {
			_, err := l.Append(1, make([]byte, 990))
			fail <- err
		}()
		synctest.Wait()
		broken := errors.New("broken")
		g.grant <- broken
		if err := <-fail; !errors.Is(err, broken) {
			t.Errorf("append: %v, want the failure", err)
		}
		if err := l.Close(); !errors.Is(err, broken) {
			t.Errorf("close: %v, want the failure", err)
		}
	})
}

func TestBasesAndTrim(t *testing.T) {
	t.Parallel()
	d := newDisk()
	o := wal.Options{Disk: d, Dir: "/log", SegmentBytes: 60, Identity: "a"}
	l, err := openLog(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Bases(); len(got) > 0 {
		t.Errorf("bases of nothing: %d", got)
	}
	if err := l.Reset(3); err != nil {
		t.Fatal(err)
	}
	add := func(s ...string) {
		t.Helper()
		for _, s := range s {
			if _, err := l.Append(byte(len(s)), []byte(s)); err != nil {
				t.Fatal(err)
			}
			if err := l.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	rotate := func(base uint64) {
		t.Helper()
		if err := errors.Join(l.Rotate(base), l.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	trim := func(base uint64, want ...uint64) {
		t.Helper()
		if err := l.Trim(base); err != nil {
			t.Fatal(err)
		}
		if got := l.Bases(); !slices.Equal(got, want) {
			t.Errorf("bases after trim of %d: %d, want %d", base, got, want)
		}
		if got, want := len(d.files()), l.Stats().Segments; got != want {
			t.Errorf("%d files, %d segments", got, want)
		}
	}
	add("a", "b", "c")
	rotate(4)
	add("d")
	trim(4, 4, 3) // 3 was durable before 4
	rotate(5)     // comes to nothing
	add("e")
	rotate(6) // comes to nothing
	add("f")
	rotate(6)
	add("g", "h", "i")
	trim(6, 6, 5, 4)
	trim(6, 6, 5, 4)
	trim(5, 6, 5, 4)
	rotate(7)
	trim(7, 7, 6)
	if err := l.Rotate(6); !errors.Is(err, wal.ErrBase) {
		t.Errorf("a border that goes back: %v, want ErrBase", err)
	}
	if err := l.Trim(8); !errors.Is(err, wal.ErrBase) {
		t.Errorf("trim before the border: %v, want ErrBase", err)
	}
	add("j")
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	for base, want := range map[uint64][]string{6: {"g", "h", "i", "j"}, 7: {"j"}, 5: nil, 0: nil} {
		l, err := openLog(o)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		tail, err := l.Replay(t.Context(), base, collect(&got))
		if want == nil {
			if !errors.Is(err, wal.ErrBase) {
				t.Errorf("replay from %d: %v, want ErrBase", base, err)
			}
			if err := l.Begin(); !errors.Is(err, wal.ErrState) {
				t.Errorf("begin after no replay: %v, want ErrState", err)
			}
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil || tail.Records != uint64(len(want)) {
			t.Errorf("from %d: %v %+v\n%s", base, err, tail, diff)
		}
	}
}

// TestResetWins: a log that was thrown away does not come back, even if its files do.
func TestResetWins(t *testing.T) {
	t.Parallel()
	d := build(t, false, 1, texts(50)...)
	old := d.processDeath()
	l, err := openLog(options(d))
	if err == nil {
		err = l.Reset(9)
	}
	if err == nil {
		_, err = l.Append(3, []byte("new"))
	}
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	if n := len(d.files()); n != 1 {
		t.Errorf("%d files, want 1", n)
	}
	maps.Copy(d.names, old.names)
	l, err = openLog(options(d))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint64{9}, l.Bases()); diff != "" {
		t.Error(diff)
	}
	var got []string
	if _, err := l.Replay(t.Context(), 9, collect(&got)); err != nil || !slices.Equal(got, []string{"new"}) {
		t.Errorf("%q, %v", got, err)
	}
	// The next trim takes the old files away.
	if err := errors.Join(l.Begin(), l.Rotate(10), l.Flush(t.Context()), l.Trim(10), l.Close()); err != nil {
		t.Fatal(err)
	}
	if n := len(d.files()); n != 2 {
		t.Errorf("files %v, want 2: of the process before, from base 9 on, and of this one", d.files())
	}
	// A damaged log can be reset too.
	for name := range d.names {
		d.names[name].data = []byte(strings.Repeat("z", 500))
	}
	l, err = openLog(options(d))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Replay(t.Context(), 9, collect(&got)); !errors.Is(err, wal.ErrCorrupt) {
		t.Errorf("replay of garbage: %v, want ErrCorrupt", err)
	}
	if err := errors.Join(l.Reset(11), l.Close()); err != nil {
		t.Fatal(err)
	}
	if got, _, err := replay(t, d); !errors.Is(err, wal.ErrBase) || len(got) > 0 {
		t.Errorf("from 0 after a reset to 11: %q, %v, want ErrBase", got, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	d := build(t, false, 1, "a")
	o := options(d)
	o.Identity = "shard 0 of 2"
	if _, err := wal.Open(o); !errors.Is(err, wal.ErrIdentity) || !strings.Contains(err.Error(), "shard 1 of 2") {
		t.Errorf("another identity: %v, want ErrIdentity that names it", err)
	}
	o.Identity = strings.Repeat("x", wal.MaxIdentity+1)
	if _, err := wal.Open(o); !errors.Is(err, wal.ErrTooLarge) {
		t.Errorf("a long identity: %v, want ErrTooLarge", err)
	}
	// A newer version: the header is whole.
	n := d.names["/ps/wal/"+d.files()[0]]
	n.data = newer(n.data)
	if _, err := wal.Open(options(d)); !errors.Is(err, wal.ErrVersion) {
		t.Errorf("a newer version: %v, want ErrVersion", err)
	}

	l, err := openLog(options(newDisk()))
	if err != nil {
		t.Fatal(err)
	}
	none := func(byte, []byte) error { return nil }
	if _, err := l.Append(1); !errors.Is(err, wal.ErrState) {
		t.Errorf("append before begin: %v", err)
	}
	if err := l.Wait(t.Context(), 0); !errors.Is(err, wal.ErrState) {
		t.Errorf("wait before begin: %v", err)
	}
	if err := l.Begin(); !errors.Is(err, wal.ErrState) {
		t.Errorf("begin before replay: %v", err)
	}
	if _, err := l.Replay(t.Context(), 7, none); !errors.Is(err, wal.ErrBase) {
		t.Errorf("replay of an empty log from 7: %v", err)
	}
	if _, err := l.Replay(t.Context(), 0, none); err != nil {
		t.Error(err)
	}
	if err := l.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := l.Begin(); !errors.Is(err, wal.ErrState) {
		t.Errorf("second begin: %v", err)
	}
	if _, err := l.Replay(t.Context(), 0, none); !errors.Is(err, wal.ErrState) {
		t.Errorf("replay after begin: %v", err)
	}
	if err := l.Wait(t.Context(), 2); !errors.Is(err, wal.ErrState) {
		t.Errorf("wait for what was never appended: %v", err)
	}
	mb := make([]byte, 1<<20)
	if _, err := l.Append(1, append(slices.Repeat([][]byte{mb}, 1024), mb[:1])...); !errors.Is(err, wal.ErrTooLarge) {
		t.Errorf("a record of more than 1 GiB: %v", err)
	}
	if lsn, err := l.Append(1); err != nil || lsn != 2 {
		t.Errorf("an empty record: %d, %v", lsn, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Wait(t.Context(), 2); err != nil {
		t.Errorf("wait after close for what close made durable: %v", err)
	}
	for what, err := range map[string]error{"rotate": l.Rotate(1), "trim": l.Trim(0), "append": second(l.Append(1))} {
		if !errors.Is(err, wal.ErrClosed) {
			t.Errorf("%s after close: %v", what, err)
		}
	}
}

func second(_ uint64, err error) error { return err }

// newer makes a segment one of the next version.
func newer(b []byte) []byte {
	b = slices.Clone(b)
	end := 52 + binary.LittleEndian.Uint32(b[48:])
	b[8]++
	binary.LittleEndian.PutUint32(b[end:], crc32.Checksum(b[:end], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// TestReplayStops: the caller's error and the context end a replay.
func TestReplayStops(t *testing.T) {
	t.Parallel()
	d := build(t, false, 1, texts(20)...)
	l, err := openLog(options(d))
	if err != nil {
		t.Fatal(err)
	}
	mine := errors.New("mine")
	n := 0
	_, err = l.Replay(t.Context(), 0, func(byte, []byte) error {
		if n++; n == 7 {
			return mine
		}
		return nil
	})
	if !errors.Is(err, mine) || n != 7 || !strings.Contains(err.Error(), "record 8 ") {
		t.Errorf("after %d records: %v", n, err)
	}
	if err := l.Begin(); !errors.Is(err, wal.ErrState) {
		t.Errorf("begin after half a replay: %v, want ErrState", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(mine)
	if _, err := l.Replay(ctx, 0, func(byte, []byte) error { return nil }); !errors.Is(err, mine) {
		t.Errorf("cancelled: %v, want the cause", err)
	}
}

// TestWriters appends from many goroutines on the machine's own disk; the order of the numbers is the order of replay.
func TestWriters(t *testing.T) {
	t.Parallel()
	o := wal.Options{Dir: filepath.Join(t.TempDir(), "a", "log"), Identity: "x", SegmentBytes: 20 << 10, MaxPending: 4 << 10}
	l, err := openLog(o)
	if err == nil {
		err = l.Reset(0)
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	want := map[uint64]string{}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 40 {
				p := strings.Repeat(string(rune('a'+w)), 1+(i*37+w)%200)
				if err := l.Room(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				lsn, err := l.Append(byte(len(p)), []byte(p))
				want[lsn] = p
				mu.Unlock()
				if err == nil {
					err = l.Wait(t.Context(), lsn)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	st := l.Stats()
	if st.Syncs > 321 || st.Segments < 2 || st.Pending != 0 {
		t.Errorf("%+v", st)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var size int64
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if size += info.Size(); !strings.HasSuffix(e.Name(), ".log") {
			t.Errorf("%s is left", e.Name())
		}
	}
	if size < st.Bytes || size > st.Bytes+int64(len(entries))*o.SegmentBytes {
		t.Errorf("files have %d bytes, the log says %d", size, st.Bytes)
	}
	if l, err = openLog(o); err != nil {
		t.Fatal(err)
	}
	var got []string
	if _, err := l.Replay(t.Context(), 0, collect(&got)); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i, p := range got {
		if p != want[uint64(i+2)] {
			t.Fatalf("record %d is another", i+1)
		}
	}
}
