package wal_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/ps/wal"
)

// shard is what uses a log, in small: its state is the list of all records it has taken, and a snapshot is a length of it.
type shard struct {
	d     *disk
	log   *wal.Log
	state []string
	acked int
	snaps map[uint64]int // durable snapshots
	next  uint64         // number of the next snapshot
}

// options of the tests: segments so small that they end often.
func options(d *disk) wal.Options {
	return wal.Options{Disk: d, Dir: "/ps/wal", Identity: "shard 1 of 2", SegmentBytes: 900}
}

// payload is text without zeros, so that no sector of it looks unwritten.
func payload(rng *rand.Rand, i int) string {
	return fmt.Sprintf("%d:%s", i, strings.Repeat("x", rng.IntN(300)))
}

func collect(into *[]string) func(byte, []byte) error {
	return func(kind byte, p []byte) error {
		if kind != byte(len(p)) {
			return fmt.Errorf("kind %d of %d bytes", kind, len(p))
		}
		*into = append(*into, string(p))
		return nil
	}
}

// open recovers from the newest snapshot that the log continues from. Every older one must give the same.
func (s *shard) open(ctx context.Context) error {
	l, err := wal.Open(options(s.d))
	if err != nil {
		return err
	}
	bases := l.Bases()
	if len(bases) == 0 {
		bases = []uint64{0}
	}
	slices.Reverse(bases) // oldest first: Begin continues from the last replay
	var got []string
	n := 0
	for _, base := range bases {
		have, ok := s.snaps[base]
		if !ok && base != 0 {
			continue
		}
		state := slices.Clone(s.state[:have])
		if _, err := l.Replay(ctx, base, collect(&state)); err != nil {
			return fmt.Errorf("from base %d: %w", base, err)
		}
		if n++; n > 1 && !slices.Equal(got, state) {
			return fmt.Errorf("base %d gives %d records, an older one %d", base, len(state), len(got))
		}
		got = state
	}
	if n == 0 || n == 1 && len(s.snaps) > 2 {
		return fmt.Errorf("%d of %d snapshots can be used, bases %d", n, len(s.snaps), bases)
	}
	if len(got) < s.acked || len(got) > len(s.state) || !slices.Equal(got, s.state[:len(got)]) {
		return fmt.Errorf("%d records came back, %d were acknowledged, %d appended", len(got), s.acked, len(s.state))
	}
	s.log, s.state, s.acked = l, got, len(got)
	if err := l.Begin(); err != nil {
		return err
	}
	return nil
}

// work appends, acknowledges, takes snapshots and trims until something fails.
func (s *shard) work(ctx context.Context, rng *rand.Rand, steps int) error {
	for range steps {
		for range 1 + rng.IntN(4) {
			p := payload(rng, len(s.state))
			// What Append took may come back.
			if _, err := s.log.Append(byte(len(p)), []byte(p[:len(p)/2]), []byte(p[len(p)/2:])); err != nil {
				return err
			}
			s.state = append(s.state, p)
		}
		if rng.IntN(3) > 0 {
			if err := s.log.Flush(ctx); err != nil {
				return err
			}
			s.acked = len(s.state)
		}
		if rng.IntN(5) == 0 {
			id, cut := s.next, len(s.state)
			s.next++
			if err := s.log.Rotate(id); err != nil {
				return err
			}
			if rng.IntN(4) == 0 {
				s.next = id // it comes to nothing, and the number is used again
				continue
			}
			if err := s.log.Flush(ctx); err != nil {
				return err
			}
			s.acked = len(s.state)
			s.snaps[id] = cut
			if err := s.log.Trim(id); err != nil {
				return err
			}
		}
	}
	return s.log.Close()
}

// TestCrash stops the process or the machine at every operation of a script, twice, and looks at what is left.
func TestCrash(t *testing.T) {
	t.Parallel()
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		for _, power := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed=%d/power=%t", seed, power), func(t *testing.T) {
				t.Parallel()
				for k := 1; ; k++ {
					if !crashAt(t, seed, power, k) {
						t.Logf("%d operations", k)
						break
					}
				}
			})
		}
	}
}

// crashAt reports whether the script was cut short.
func crashAt(t *testing.T, seed uint64, power bool, k int) bool {
	t.Helper()
	ctx := t.Context()
	s := &shard{d: newDisk(), snaps: map[uint64]int{0: 0}, next: 1}
	died := false
	for generation := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(generation)))
		if generation < 2 {
			s.d.killAt = max(1, k/(generation+1))
		}
		err := s.open(ctx)
		if err == nil {
			err = s.work(ctx, rng, 20)
		}
		if s.log != nil {
			_ = s.log.Close() // joins the writer; the error is the one above
		}
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed at operation %d, generation %d: %v; files %v", k, generation, err, s.d.files())
		}
		if generation == 0 {
			died = err != nil
		}
		if power {
			s.d = s.d.powerFailure(rand.New(rand.NewPCG(seed, uint64(k))))
		} else {
			s.d = s.d.processDeath()
		}
	}
	return died
}

// build makes a log with given payloads, one group each or all in one group, and returns its disk.
func build(t *testing.T, together bool, payloads ...string) *disk {
	t.Helper()
	d := newDisk()
	s := &shard{d: d, snaps: map[uint64]int{0: 0}}
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if together {
		d.mu.Lock() // holds the writer at its first operation, so that the rest gathers
	}
	for i, p := range payloads {
		if _, err := s.log.Append(byte(len(p)), []byte(p)); err != nil {
			t.Fatal(err)
		}
		if !together || i == 0 {
			if together {
				continue
			}
			if err := s.log.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if together {
		d.mu.Unlock()
	}
	if err := s.log.Close(); err != nil {
		t.Fatal(err)
	}
	return d
}

func texts(n int) []string {
	rng := rand.New(rand.NewPCG(1, 1))
	out := make([]string, n)
	for i := range out {
		out[i] = payload(rng, i)[:1+rng.IntN(2)] + fmt.Sprint(i, ".")
	}
	return out
}

func replay(t *testing.T, d *disk) ([]string, wal.Tail, error) {
	t.Helper()
	l, err := wal.Open(options(d))
	if err != nil {
		return nil, wal.Tail{}, err
	}
	var got []string
	tail, err := l.Replay(t.Context(), 0, collect(&got))
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	return got, tail, err
}

// TestTornAnywhere cuts the last segment at every byte: what comes back is exactly the records that are whole.
func TestTornAnywhere(t *testing.T) {
	t.Parallel()
	want := texts(60)
	d := build(t, false, want...)
	files := d.files()
	if len(files) < 3 {
		t.Fatalf("%d segments, want several", len(files))
	}
	last := "/ps/wal/" + files[len(files)-1]
	full := len(d.names[last].data)
	header := len(wal.EncodeSegment("shard 1 of 2", 1, 0, 1, 0, 0, false, 0))
	// Ends of the records of the last segment, from after.
	whole := func(cut int) int {
		end, n := full, len(want)
		for end > cut && end > header {
			n--
			end -= 25 + len(want[n])
		}
		return n
	}
	for cut := range full {
		c := d.processDeath()
		c.names[last].data = c.names[last].data[:cut]
		got, tail, err := replay(t, c)
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", cut, full, err)
		}
		n := whole(cut)
		if !slices.Equal(got, want[:n]) {
			t.Fatalf("cut at %d of %d: %d records, want %d", cut, full, len(got), n)
		}
		if cut > header && tail.Offset+tail.TornBytes != int64(cut) || cut <= header && cut > 0 && tail.TornBytes == 0 && cut != header {
			t.Fatalf("cut at %d: tail %+v", cut, tail)
		}
		// And the log continues from there.
		s := &shard{d: c, snaps: map[uint64]int{0: 0}, state: slices.Clone(want), acked: n}
		if err := s.open(t.Context()); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if err := s.work(t.Context(), rand.New(rand.NewPCG(1, 1)), 1); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		again := &shard{d: c, snaps: s.snaps, state: s.state, acked: s.acked}
		if err := again.open(t.Context()); err != nil || len(again.state) != len(s.state) {
			t.Fatalf("cut at %d, second time: %d records, want %d: %v", cut, len(again.state), len(s.state), err)
		}
		if err := again.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFlippedBit changes every bit of a log: what comes back is an error, or a prefix that lacks the last record and says
// so. Records that were in flight together are no exception, as they have no holes.
func TestFlippedBit(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{false, true} {
		want := texts(45)
		d := build(t, together, want...)
		if n := len(d.files()); !together && n < 2 {
			t.Fatalf("%d segments, want several", n)
		}
		torn := 0
		files := d.files()
		for at, name := range files {
			path := "/ps/wal/" + name
			for i := range d.names[path].data {
				bit := byte(1) << (i % 8)
				d.names[path].data[i] ^= bit
				got, tail, err := replay(t, d)
				d.names[path].data[i] ^= bit
				switch {
				case errors.Is(err, wal.ErrCorrupt):
					if !strings.Contains(err.Error(), "offset") || !strings.Contains(err.Error(), ".log") {
						t.Fatalf("%s byte %d: the error does not say where: %v", name, i, err)
					}
					if len(got) >= len(want) || !slices.Equal(got, want[:len(got)]) {
						t.Fatalf("%s byte %d: wrong records before %v", name, i, err)
					}
				case err != nil:
					t.Fatalf("%s byte %d: %v", name, i, err)
				case at < len(files)-1 || tail.TornBytes == 0 || !slices.Equal(got, want[:len(want)-1]):
					t.Fatalf("%s byte %d: %d of %d records, tail %+v", name, i, len(got), len(want), tail)
				default:
					torn++
				}
			}
		}
		if n := 25 + len(want[len(want)-1]); torn != n {
			t.Errorf("together=%t: torn at %d bytes, want the %d of the last record", together, torn, n)
		}
	}
}

// TestHole takes sectors out of a group that was in flight when the machine died, and out of one that was durable.
// TestUnreadable: what the disk cannot give back is damage, wherever it is.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	d := build(t, true, texts(9)...)
	size := int64(0)
	for _, n := range d.names {
		size = max(size, int64(len(n.data)))
	}
	for at := int64(1); at < size; at += 7 {
		d.failRead = at
		l, err := wal.Open(options(d))
		if err == nil {
			_, err = l.Replay(t.Context(), 0, func(byte, []byte) error { return nil })
		}
		if !errors.Is(err, wal.ErrCorrupt) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("bad from byte %d on: %v, want ErrCorrupt", at, err)
		}
	}
}

func TestHole(t *testing.T) {
	t.Parallel()
	big := func(i int) string { return fmt.Sprint(i) + strings.Repeat("y", 1500) }
	want := []string{big(0), big(1), big(2), big(3)}
	for _, together := range []bool{true, false} {
		d := newDisk()
		o := options(d)
		o.SegmentBytes = 1 << 20
		l, err := wal.Open(o)
		if err == nil {
			err = l.Reset(0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if together {
			d.mu.Lock()
		}
		for _, p := range want {
			if _, err := l.Append(byte(len(p)), []byte(p)); err != nil {
				t.Fatal(err)
			}
			if !together {
				if err := l.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if together {
			d.mu.Unlock()
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		data := d.names["/ps/wal/"+d.files()[0]].data
		clear(data[2048:2560]) // in the second record
		got, tail, err := replay(t, d)
		if !slices.Equal(got, want[:1]) {
			t.Errorf("together=%t: %d records, want 1", together, len(got))
		}
		// In one group or two: the writer may have taken the first record before the others came. The second to fourth share one.
		if together && (err != nil || tail.TornBytes == 0) {
			t.Errorf("in flight: %+v, %v, want a torn tail", tail, err)
		}
		if !together && !errors.Is(err, wal.ErrCorrupt) {
			t.Errorf("durable: %+v, %v, want ErrCorrupt", tail, err)
		}
	}
}

// TestMissingSegment removes each segment but those at the ends, whose loss leaves another whole log.
func TestMissingSegment(t *testing.T) {
	t.Parallel()
	d := build(t, false, texts(120)...)
	files := d.files()
	if len(files) < 4 {
		t.Fatalf("%d segments, want several", len(files))
	}
	for _, name := range files[1 : len(files)-1] {
		c := d.processDeath()
		delete(c.names, "/ps/wal/"+name)
		if got, _, err := replay(t, c); !errors.Is(err, wal.ErrCorrupt) || !strings.Contains(err.Error(), name) || len(got) > 0 {
			t.Errorf("without %s: %d records, %v", name, len(got), err)
		}
	}
}

// TestFullDisk fills the disk at every size: the error is sticky and says what to do, what was acknowledged is there, and
// the log can be used again when there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for full := 50; ; full += 97 {
		s := &shard{d: newDisk(), snaps: map[uint64]int{0: 0}, next: 1}
		s.d.fullAt = full
		err := s.open(t.Context())
		if err == nil {
			err = s.work(t.Context(), rand.New(rand.NewPCG(5, 5)), 20)
		}
		if err == nil {
			if full < 1000 {
				t.Fatal("the disk was never full")
			}
			return
		}
		if !errors.Is(err, wal.ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "/ps/wal") {
			t.Fatalf("full after %d: %v", full, err)
		}
		if s.log.Stats().Next > 0 {
			if _, err := s.log.Append(1, []byte("x")); !errors.Is(err, wal.ErrNoSpace) {
				t.Fatalf("full after %d: append: %v, want the same error again", full, err)
			}
			if err := s.log.Rotate(1 << 40); !errors.Is(err, wal.ErrNoSpace) {
				t.Fatalf("full after %d: rotate: %v, want the same error again", full, err)
			}
			if err := s.log.Flush(t.Context()); s.log.Stats().Durable+1 < s.log.Stats().Next && !errors.Is(err, wal.ErrNoSpace) {
				t.Fatalf("full after %d: flush: %v, want the same error again", full, err)
			}
		}
		_ = s.log.Close()
		s.d.fullAt = 0
		if err := s.open(t.Context()); err != nil {
			t.Fatalf("full after %d, then room: %v", full, err)
		}
		if err := s.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailedSync: after one failed fsync nothing more is acknowledged, even if the next would succeed.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	s := &shard{d: newDisk(), snaps: map[uint64]int{0: 0}}
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	lsn, err := s.log.Append(1, []byte("a"))
	if err == nil {
		err = s.log.Wait(t.Context(), lsn)
	}
	if err != nil {
		t.Fatal(err)
	}
	set := func(v bool) {
		s.d.mu.Lock()
		defer s.d.mu.Unlock()
		s.d.failSync = v
	}
	set(true)
	bad, err := s.log.Append(1, []byte("b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.log.Wait(t.Context(), bad); !errors.Is(err, syscall.EIO) {
		t.Errorf("wait: %v, want EIO", err)
	}
	set(false)
	if _, err := s.log.Append(1, []byte("c")); !errors.Is(err, syscall.EIO) {
		t.Errorf("append: %v, want EIO", err)
	}
	if err := s.log.Wait(t.Context(), bad); !errors.Is(err, syscall.EIO) {
		t.Errorf("wait again: %v, want EIO", err)
	}
	if err := s.log.Wait(t.Context(), lsn); err != nil {
		t.Errorf("wait for what was durable: %v", err)
	}
	if err := s.log.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("close: %v, want EIO", err)
	}
}

// TestFailedSyncThenStartedAgain: the records whose fsync failed are read back when the process is started again, and from
// then on others build on them. They must not stay where only the memory of the machine has them: the next fsync of the
// same file would succeed without writing them.
func TestFailedSyncThenStartedAgain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		s := &shard{d: newDisk(), snaps: map[uint64]int{0: 0}, next: 1}
		if err := s.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		add := func() error {
			p := payload(rand.New(rand.NewPCG(seed, uint64(len(s.state)))), len(s.state))
			lsn, err := s.log.Append(byte(len(p)), []byte(p))
			if err != nil {
				return err
			}
			s.state = append(s.state, p)
			return s.log.Wait(t.Context(), lsn)
		}
		if err := add(); err != nil {
			t.Fatal(err)
		}
		s.acked = len(s.state)
		s.d.mu.Lock()
		s.d.failSync = true
		s.d.mu.Unlock()
		if err := add(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("a record whose fsync fails: %v", err)
		}
		_ = s.log.Close()
		s.d = s.d.processDeath()
		if err := s.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.state) != 2 {
			t.Fatalf("%d records are read back, want 2: the machine has them in memory", len(s.state))
		}
		if err := add(); err != nil {
			t.Fatal(err)
		}
		s.acked = len(s.state)
		_ = s.log.Close()
		s.d = s.d.powerFailure(rand.New(rand.NewPCG(seed, 1)))
		if err := s.open(t.Context()); err != nil {
			t.Fatalf("seed %d: after the power failure: %v", seed, err)
		}
		if err := s.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStaleBytes puts an older log's records after the end of a newer one: a re-used block is not a record.
func TestStaleBytes(t *testing.T) {
	t.Parallel()
	old, now := build(t, true, "one", "two", "three"), build(t, true, "1", "2")
	path := "/ps/wal/" + now.files()[0]
	n := now.names[path]
	hdr := len(wal.EncodeSegment("shard 1 of 2", 1, 0, 1, 0, 0, false, 0))
	skip := hdr + 2*25 + len("one") + len("two")
	n.data = append(n.data, old.names[path].data[skip:]...)
	got, tail, err := replay(t, now)
	if err != nil || !slices.Equal(got, []string{"1", "2"}) || tail.TornBytes != int64(25+len("three")) {
		t.Errorf("%q, %+v, %v", got, tail, err)
	}
	if lsn := binary.LittleEndian.Uint64(n.data[len(n.data)-5-25+8:]); lsn != 3 {
		t.Errorf("the stale record has lsn %d: the test tests nothing", lsn)
	}
}

// TestLostRecords: the records of segments join without a gap and without an overlap, borders counted.
func TestLostRecords(t *testing.T) {
	t.Parallel()
	for first, ok := range map[uint64]bool{3: false, 4: true, 5: false} {
		for _, border := range []uint64{0, 1} {
			d := newDisk()
			d.names["/ps/wal/wal-0000000000000001.log"] = &node{data: wal.EncodeSegment("shard 1 of 2", 1, 0, 1, 7, 0, true, 1, []byte("a"), []byte("b"), []byte("c"))}
			d.names["/ps/wal/wal-0000000000000002.log"] = &node{data: wal.EncodeSegment("shard 1 of 2", 2, border, first+border, 8, 3, border == 1, 1, []byte("d"))}
			got, _, err := replay(t, d)
			if ok && (err != nil || len(got) != 4) || !ok && (!errors.Is(err, wal.ErrCorrupt) || len(got) != 3) {
				t.Errorf("second segment from record %d, border %d: %d records, %v", first, border, len(got), err)
			}
		}
	}
}
