package wal_test

import (
	"bytes"
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

// log is a log of one shard, number 0, or the part of it.
type log struct {
	*wal.Log
	*wal.ShardLog
}

func openLog(o wal.Options) (*log, error) {
	l, err := wal.Open(o)
	if err != nil {
		return nil, err
	}
	return &log{l, l.Shard(0)}, nil
}

// shard is what uses a part of a log, in small: its state is the list of all records it has taken, and a snapshot is a length of it.
type shard struct {
	log   *wal.ShardLog
	state []string
	acked int
	snaps map[uint64]int // durable snapshots
	next  uint64         // number of the next snapshot
}

// process is some shards with one log.
type process struct {
	d      *disk
	log    *wal.Log
	nosync bool
	shards []*shard
}

func newProcess(d *disk, shards int) *process {
	p := &process{d: d}
	for range shards {
		p.shards = append(p.shards, &shard{snaps: map[uint64]int{0: 0}, next: 1})
	}
	return p
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

// open recovers all shards.
func (p *process) open(ctx context.Context) error {
	o := options(p.d)
	o.NoSync = p.nosync
	l, err := wal.Open(o)
	if err != nil {
		return err
	}
	p.log = l
	for i, s := range p.shards {
		s.log = l.Shard(uint32(i))
	}
	for i, s := range p.shards {
		if err := s.open(ctx); err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	return nil
}

// open recovers from the newest snapshot that the log continues from. Every older one must give the same.
func (s *shard) open(ctx context.Context) error {
	l := s.log
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
	s.state, s.acked = got, len(got)
	return l.Begin()
}

// work appends to shards in turn, acknowledges, takes snapshots and trims until something fails.
func (p *process) work(ctx context.Context, rng *rand.Rand, steps int) error {
	for range steps {
		s := p.shards[rng.IntN(len(p.shards))]
		for range 1 + rng.IntN(4) {
			if err := s.add(rng); err != nil {
				return err
			}
		}
		if rng.IntN(3) > 0 {
			if err := s.log.Flush(ctx); err != nil {
				return err
			}
			for _, s := range p.shards { // a sync is everybody's
				s.acked = len(s.state)
			}
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
	return p.log.Close()
}

// add appends a record.
func (s *shard) add(rng *rand.Rand) error {
	p := payload(rng, len(s.state))
	if rng.IntN(4) == 0 { // one that stays where it was made
		p += strings.Repeat("y", wal.SmallRecord+rng.IntN(wal.SmallRecord))
	}
	// What Append took may come back.
	if _, err := s.log.Append(byte(len(p)), []byte(p[:len(p)/2]), []byte(p[len(p)/2:])); err != nil {
		return err
	}
	s.state = append(s.state, p)
	return nil
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
			for _, shards := range []int{1, 3} {
				if shards > 1 && seed%3 > 0 {
					continue
				}
				t.Run(fmt.Sprintf("seed=%d/power=%t/shards=%d", seed, power, shards), func(t *testing.T) {
					t.Parallel()
					for k := 1; ; k++ {
						if !crashAt(t, seed, power, shards, k) {
							t.Logf("%d operations", k)
							break
						}
					}
				})
			}
		}
	}
}

// crashAt reports whether the script was cut short.
func crashAt(t *testing.T, seed uint64, power bool, shards, k int) bool {
	t.Helper()
	ctx := t.Context()
	p := newProcess(newDisk(), shards)
	died := false
	for generation := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(generation)))
		if generation < 2 {
			p.d.killAt = max(1, k/(generation+1))
		}
		err := p.open(ctx)
		if err == nil {
			err = p.work(ctx, rng, 20)
		}
		if p.log != nil {
			_ = p.log.Close() // joins the writer; the error is the one above
		}
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed at operation %d, generation %d: %v; files %v", k, generation, err, p.d.files())
		}
		if generation == 0 {
			died = err != nil
		}
		if power {
			p.d = p.d.powerFailure(rand.New(rand.NewPCG(seed, uint64(k))))
		} else {
			p.d = p.d.processDeath()
		}
	}
	return died
}

// build makes a log with given payloads, of shards in turn, one group each or all in one group, and returns its disk. No file has
// more than its records.
func build(t *testing.T, together bool, shards int, payloads ...string) *disk {
	t.Helper()
	d := newDisk()
	p := newProcess(d, shards)
	p.nosync = true
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if together {
		d.mu.Lock() // holds the writer at its first operation, so that the rest gathers
	}
	for i, text := range payloads {
		s := p.shards[i%shards]
		if _, err := s.log.Append(byte(len(text)), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if !together {
			if err := s.log.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if together {
		d.mu.Unlock()
	}
	if err := p.log.Close(); err != nil {
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
	l, err := openLog(options(d))
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

// TestTornAnywhere ends the last segment at every byte, with nothing or with zeros after it: what comes back to each shard is
// exactly its records that are whole.
func TestTornAnywhere(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		for _, filled := range []bool{false, true} {
			t.Run(fmt.Sprintf("shards=%d/filled=%t", shards, filled), func(t *testing.T) {
				t.Parallel()
				tornAnywhere(t, shards, filled)
			})
		}
	}
}

func tornAnywhere(t *testing.T, shards int, filled bool) {
	want := texts(60)
	d := build(t, false, shards, want...)
	files := d.files()
	if len(files) < 3 {
		t.Fatalf("%d segments, want several", len(files))
	}
	last := "/ps/wal/" + files[len(files)-1]
	full := len(d.names[last].data)
	header := len(wal.EncodeSegment("shard 1 of 2", 1, 1, 0, 0))
	// whole is how many records there are up to a cut of the last segment.
	whole := func(cut int) int {
		end, n := full, len(want)
		for end > cut && end > header {
			n--
			end -= wal.RecordHead + len(want[n])
		}
		return n
	}
	of := func(i, n int) (out []string) {
		for k := i; k < n; k += shards {
			out = append(out, want[k])
		}
		return out
	}
	for cut := range full {
		c := d.processDeath()
		if c.names[last].data = c.names[last].data[:cut:cut]; filled {
			c.names[last].data = append(c.names[last].data, make([]byte, 900)...)
		}
		l, err := wal.Open(options(c))
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", cut, full, err)
		}
		n := whole(cut)
		// A checksum may end in zeros.
		has := c.names[last].data
		torn := !bytes.Equal(has[:min(header, len(has))], d.names[last].data[:header])
		for i := range shards {
			var got []string
			tail, err := l.Shard(uint32(i)).Replay(t.Context(), 0, collect(&got))
			if torn {
				// It has its name only once its header is durable.
				if !errors.Is(err, wal.ErrCorrupt) {
					t.Fatalf("cut at %d in the header: %v, want ErrCorrupt", cut, err)
				}
				continue
			}
			if err != nil || !slices.Equal(got, of(i, n)) {
				t.Fatalf("cut at %d of %d, shard %d: %d records, want %d: %v", cut, full, i, len(got), len(of(i, n)), err)
			}
			// What is torn may end in zeros, which nobody can tell from those behind it.
			if end := max(len(bytes.TrimRight(c.names[last].data, "\x00")), int(tail.Offset)); int(tail.Offset+tail.TornBytes) != end {
				t.Fatalf("cut at %d: tail %+v, want its end at %d", cut, tail, end)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if torn {
			continue
		}
		// And the log continues from there.
		p := newProcess(c, shards)
		for i, s := range p.shards {
			s.state, s.acked = of(i, len(want)), len(of(i, n))
		}
		if err := p.open(t.Context()); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if err := p.work(t.Context(), rand.New(rand.NewPCG(1, 1)), 1); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		for _, s := range p.shards {
			s.acked = len(s.state)
		}
		if err := p.open(t.Context()); err != nil {
			t.Fatalf("cut at %d, second time: %v", cut, err)
		}
		if err := p.log.Close(); err != nil {
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
		d := build(t, together, 1, want...)
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
		if n := wal.RecordHead + len(want[len(want)-1]); torn != n {
			t.Errorf("together=%t: torn at %d bytes, want the %d of the last record", together, torn, n)
		}
	}
}

// TestUnreadable: what the disk cannot give back is damage, wherever it is.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	d := build(t, true, 1, texts(9)...)
	size := int64(0)
	for _, n := range d.names {
		size = max(size, int64(len(n.data)))
	}
	for at := int64(1); at < size; at += 7 {
		d.failRead = at
		l, err := openLog(options(d))
		if err == nil {
			_, err = l.Replay(t.Context(), 0, func(byte, []byte) error { return nil })
		}
		if !errors.Is(err, wal.ErrCorrupt) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("bad from byte %d on: %v, want ErrCorrupt", at, err)
		}
	}
}

// TestHole takes sectors out of a group that was in flight when the machine died, and out of one that was durable.
func TestHole(t *testing.T) {
	t.Parallel()
	big := func(i int) string { return fmt.Sprint(i) + strings.Repeat("y", 1500) }
	want := []string{big(0), big(1), big(2), big(3)}
	for _, together := range []bool{true, false} {
		d := newDisk()
		o := options(d)
		o.SegmentBytes = 1 << 20
		l, err := openLog(o)
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
		if together && !slices.Equal(got, want[:1]) {
			t.Errorf("%d records, want 1", len(got))
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
	d := build(t, false, 1, texts(120)...)
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
		p := newProcess(newDisk(), 2)
		p.d.fullAt = full
		err := p.open(t.Context())
		if err == nil {
			err = p.work(t.Context(), rand.New(rand.NewPCG(5, 5)), 20)
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
		if s := p.shards[1]; p.log.Stats().Next > 1 && s.log.Bases() != nil {
			// It is the end for all shards.
			if _, err := s.log.Append(1, []byte("x")); !errors.Is(err, wal.ErrNoSpace) {
				t.Fatalf("full after %d: append: %v, want the same error again", full, err)
			}
			if err := s.log.Rotate(1 << 40); !errors.Is(err, wal.ErrNoSpace) {
				t.Fatalf("full after %d: rotate: %v, want the same error again", full, err)
			}
			if err := s.log.Flush(t.Context()); p.log.Stats().Durable+1 < p.log.Stats().Next && !errors.Is(err, wal.ErrNoSpace) {
				t.Fatalf("full after %d: flush: %v, want the same error again", full, err)
			}
		}
		_ = p.log.Close()
		p.d.fullAt = 0
		if err := p.open(t.Context()); err != nil {
			t.Fatalf("full after %d, then room: %v", full, err)
		}
		if err := p.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNextSegmentTakesNoRoom: what is kept ready for the next segment is given back before a record is refused for want of room.
func TestNextSegmentTakesNoRoom(t *testing.T) {
	t.Parallel()
	const full, record = 40_000, 500
	d := newDisk()
	d.fullAt = full
	o := options(d)
	o.SegmentBytes = full - 1000 // there is no room for two
	l, err := openLog(o)
	if err == nil {
		err = l.Reset(0)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil; n++ {
		if _, err = l.Append(1, make([]byte, record)); err == nil {
			err = l.Flush(t.Context())
		}
	}
	if !errors.Is(err, wal.ErrNoSpace) {
		t.Fatal(err)
	}
	if got := n * (record + wal.RecordHead); got < full-2*record {
		t.Errorf("full after %d bytes of records, want almost all of %d", got, full)
	}
	_ = l.Close()
}

// TestFailedSync: after one failed fsync nothing more is acknowledged, even if the next would succeed.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	p := newProcess(newDisk(), 1)
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := p.shards[0]
	lsn, err := s.log.Append(1, []byte("a"))
	if err == nil {
		err = s.log.Wait(t.Context(), lsn)
	}
	if err != nil {
		t.Fatal(err)
	}
	set := func(v bool) {
		p.d.mu.Lock()
		defer p.d.mu.Unlock()
		p.d.failSync = v
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
	if err := p.log.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("close: %v, want EIO", err)
	}
}

// TestFailedSyncThenStartedAgain: the records whose fsync failed are read back when the process is started again, and from
// then on others build on them. They must not stay where only the memory of the machine has them: the next fsync of the
// same file would succeed without writing them.
func TestFailedSyncThenStartedAgain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		p := newProcess(newDisk(), 1)
		if err := p.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := p.shards[0]
		add := func() error {
			text := payload(rand.New(rand.NewPCG(seed, uint64(len(s.state)))), len(s.state))
			lsn, err := s.log.Append(byte(len(text)), []byte(text))
			if err != nil {
				return err
			}
			s.state = append(s.state, text)
			return s.log.Wait(t.Context(), lsn)
		}
		if err := add(); err != nil {
			t.Fatal(err)
		}
		s.acked = len(s.state)
		p.d.mu.Lock()
		p.d.failSync = true
		p.d.mu.Unlock()
		if err := add(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("a record whose fsync fails: %v", err)
		}
		_ = p.log.Close()
		p.d = p.d.processDeath()
		if err := p.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.state) != 2 {
			t.Fatalf("%d records are read back, want 2: the machine has them in memory", len(s.state))
		}
		if err := add(); err != nil {
			t.Fatal(err)
		}
		s.acked = len(s.state)
		_ = p.log.Close()
		p.d = p.d.powerFailure(rand.New(rand.NewPCG(seed, 1)))
		if err := p.open(t.Context()); err != nil {
			t.Fatalf("seed %d: after the power failure: %v", seed, err)
		}
		if err := p.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStaleBytes puts an older log's records after the end of a newer one: a re-used block is not a record.
func TestStaleBytes(t *testing.T) {
	t.Parallel()
	old, now := build(t, true, 1, "one", "two", "three"), build(t, true, 1, "1", "2")
	path := "/ps/wal/" + now.files()[0]
	n := now.names[path]
	hdr := len(wal.EncodeSegment("shard 1 of 2", 1, 1, 0, 0, wal.ResetOf(0, 0)))
	skip := hdr + 2*wal.RecordHead + len("one") + len("two")
	n.data = append(n.data, old.names[path].data[skip:]...)
	got, tail, err := replay(t, now)
	if err != nil || !slices.Equal(got, []string{"1", "2"}) || tail.TornBytes != int64(wal.RecordHead+len("three")) {
		t.Errorf("%q, %+v, %v", got, tail, err)
	}
	if lsn := binary.LittleEndian.Uint64(n.data[len(n.data)-5-wal.RecordHead+8:]); lsn != 4 {
		t.Errorf("the stale record has lsn %d: the test tests nothing", lsn)
	}
}

// TestLostRecords: the records of segments join without a gap and without an overlap, those of other shards and borders counted.
func TestLostRecords(t *testing.T) {
	t.Parallel()
	for first, ok := range map[uint64]bool{4: false, 5: true, 6: false} {
		for _, other := range []uint32{0, 1} {
			d := newDisk()
			rec := func(shard uint32, s string) wal.Entry { return wal.Entry{Shard: shard, Kind: 1, Payload: []byte(s)} }
			d.names["/ps/wal/wal-0000000000000001.log"] = &node{data: wal.EncodeSegment("shard 1 of 2", 1, 1, 7, 0, wal.ResetOf(0, 0), rec(0, "a"), rec(other, "b"), rec(0, "c"))}
			d.names["/ps/wal/wal-0000000000000002.log"] = &node{data: wal.EncodeSegment("shard 1 of 2", 2, first, 8, 4, wal.BorderOf(0, 1), rec(0, "d"))}
			got, _, err := replay(t, d)
			if ok && (err != nil || len(got) != 4-int(other)) || !ok && (!errors.Is(err, wal.ErrCorrupt) || len(got) > 0) {
				t.Errorf("second segment from record %d, other shard %d: %d records, %v", first, other, len(got), err)
			}
			// A border behind the gap has nothing to do with it.
			l, err := openLog(options(d))
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			if _, err := l.Replay(t.Context(), 1, collect(&got)); err != nil || !slices.Equal(got, []string{"d"}) {
				t.Errorf("second segment from record %d: from its border %q, %v", first, got, err)
			}
		}
	}
}
