package wal_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/wal"
)

// TestSegmentsAreUsedAgain: a process that takes snapshots writes to the files that these have made superfluous, keeps no more of them than the log
// has segments, and leaves none behind.
func TestSegmentsAreUsedAgain(t *testing.T) {
	t.Parallel()
	p := newProcess(newDisk(), 2)
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	known := map[*node]bool{}
	again, most := 0, 0
	for id := uint64(1); id < 40; id++ {
		segments := 0
		for range 12 {
			before := map[string]bool{}
			for _, name := range p.d.files() {
				before[name] = true
			}
			if err := fill(t.Context(), p, 2); err != nil {
				t.Fatal(err)
			}
			for _, name := range p.d.files() {
				if n := p.d.node("/ps/wal/" + name); !before[name] {
					if segments++; known[n] {
						again++
					}
					known[n] = true
				}
			}
		}
		for _, s := range p.shards {
			cut := len(s.state)
			err := s.log.Rotate(id)
			if err == nil {
				err = s.log.Flush(t.Context())
			}
			if err == nil {
				s.snaps[id] = cut
				err = s.log.Trim(id)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		kept := p.d.temporary()
		if most = max(most, len(kept)); len(kept) > p.log.Stats().Segments+1 { // one may be being filled
			t.Fatalf("%d files are kept for later, the log has %d segments", len(kept), p.log.Stats().Segments)
		}
		for _, name := range kept {
			if n := len(p.d.node(name).data); n > 2*900 {
				t.Fatalf("a file of %d bytes is kept for segments of 900", n)
			}
		}
		if id > 10 && again == 0 {
			t.Fatalf("no file was used again; %d segments", segments)
		}
	}
	if again < 50 || most == 0 {
		t.Errorf("%d files were used again, at most %d kept", again, most)
	}
	if err := p.log.Close(); err != nil {
		t.Fatal(err)
	}
	if left := p.d.temporary(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	for _, s := range p.shards {
		s.acked = len(s.state)
	}
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.log.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFilesForLaterAreGivenBack: a file for the next segment that the disk has no room for is not left there in part, and one that is there goes when others
// want the space, for as long as the segment lasts.
func TestFilesForLaterAreGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newDisk(), 1)
		if err := p.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept := func(what string, want int) {
			t.Helper()
			synctest.Wait() // the writer waits for records, and no file is being made
			if got := p.d.temporary(); len(got) != want {
				t.Fatalf("%s: %v are kept for later, want %d", what, got, want)
			}
		}
		more := func() {
			t.Helper()
			l := p.shards[0].log
			if _, err := l.Append(1, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			if err := l.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		next := func() {
			t.Helper()
			for from := p.log.Stats().Segments; p.log.Stats().Segments == from; {
				more()
			}
		}
		p.d.room(850)
		more()
		kept("no room for a segment of 900", 0)
		p.d.room(1 << 20)
		next()
		kept("room", 1)
		p.log.GiveBack()
		kept("given back", 0)
		more()
		kept("the same segment", 0)
		next()
		kept("the segment behind it", 1)
		if err := p.log.Close(); err != nil {
			t.Fatal(err)
		}
		kept("closed", 0)
	})
}

// room makes the disk full when files have so many bytes more.
func (d *disk) room(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fullAt = d.used() + n
}

// fill appends n records to each shard, each durable before the next.
func fill(ctx context.Context, p *process, n int) error {
	rng := rand.New(rand.NewPCG(1, p.log.Stats().Next))
	for range n {
		for _, s := range p.shards {
			if err := s.add(rng); err != nil {
				return err
			}
			if err := s.log.Flush(ctx); err != nil {
				return err
			}
			s.acked = len(s.state)
		}
	}
	return nil
}

// temporary are the names of files that are no segments.
func (d *disk) temporary() (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.names {
		if strings.HasSuffix(name, ".tmp") {
			out = append(out, name)
		}
	}
	return out
}

func (d *disk) node(path string) *node {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.names[path]
}

// over lays what is new over what a file had.
func over(old, b []byte) []byte {
	out := slices.Clone(old)
	if len(b) > len(out) {
		return slices.Clone(b)
	}
	copy(out, b)
	return out
}

// TestTornOverOldRecords ends the last segment at every byte, with another one's records behind that: those of an earlier one, of a log of before with the
// same numbers, sound ones at the very place where the next would be. What comes back is exactly the records that are whole, and the log continues.
func TestTornOverOldRecords(t *testing.T) {
	t.Parallel()
	identity := options(nil).Identity
	rec := func(i int) wal.Entry { return wal.Entry{Kind: byte(i), Payload: fmt.Append(nil, "record ", i)} }
	const records = 12
	var now []wal.Entry
	for i := range records {
		now = append(now, rec(i))
	}
	first := wal.EncodeSegment(identity, 1, 1, 5, 0, wal.ResetOf(0, 0))
	last := wal.Reuse(wal.EncodeSegment(identity, 2, 2, 6, 1, now...))
	header := len(wal.EncodeSegment(identity, 2, 2, 6, 1))
	long := slices.Repeat(now, 2)
	for name, old := range map[string][]byte{
		"an earlier segment":                wal.EncodeSegment(identity, 1, 1, 77, 0, long...),
		"the same numbers":                  wal.EncodeSegment(identity, 2, 2, 78, 1, long...),
		"the same numbers in flight":        wal.EncodeSegment(identity, 2, 2, 79, 40, long...),
		"larger numbers, a file used twice": wal.Reuse(wal.EncodeSegment(identity, 3, 8, 80, 7, long...)),
		"other records in between":          wal.EncodeSegment(identity+"x", 2, 2, 81, 1, long...),
	} {
		for cut := header; cut <= len(last); cut++ {
			d, data := newDisk(), over(old, last[:cut])
			d.names["/ps/wal/wal-0000000000000001.log"] = &node{data: first}
			d.names["/ps/wal/wal-0000000000000002.log"] = &node{data: data}
			// What the old bytes happen to complete is whole.
			whole, end := 0, header
			for whole < records {
				if end += wal.RecordHead + len(now[whole].Payload); !strings.HasPrefix(string(data), string(last[:end])) {
					break
				}
				whole++
			}
			want := now[:whole]
			var got []wal.Entry
			take := func(kind byte, p []byte) error {
				got = append(got, wal.Entry{Kind: kind, Payload: slices.Clone(p)})
				return nil
			}
			equal := func() bool {
				return slices.EqualFunc(got, want, func(a, b wal.Entry) bool { return a.Kind == b.Kind && string(a.Payload) == string(b.Payload) })
			}
			l, err := openLog(options(d))
			if err != nil {
				t.Fatalf("%s, cut at %d: %v", name, cut, err)
			}
			tail, err := l.Replay(t.Context(), 0, take)
			if err != nil || !equal() {
				t.Fatalf("%s, cut at %d of %d: %d records, want %d: %v", name, cut, len(last), len(got), whole, err)
			}
			if rest := len(data) - int(tail.Offset); tail.TornBytes > int64(rest) || cut == len(last) && name == "an earlier segment" && tail.TornBytes != 0 {
				t.Fatalf("%s, cut at %d: %+v", name, cut, tail)
			}
			if err = l.Begin(); err == nil {
				_, err = l.Append(7, []byte("more"))
			}
			if err = errors.Join(err, l.Close()); err != nil {
				t.Fatal(err)
			}
			if l, err = openLog(options(d)); err != nil {
				t.Fatal(err)
			}
			want, got = append(slices.Clone(want), wal.Entry{Kind: 7, Payload: []byte("more")}), nil
			if _, err := l.Replay(t.Context(), 0, take); err != nil || !equal() {
				t.Fatalf("%s, cut at %d, second time: %d records, want %d: %v", name, cut, len(got), len(want), err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestFlippedBitOverOldRecords changes every bit of a log whose files were all another's: what comes back is an error, or all, or what lacks records of the last
// group. A record that later ones say was durable is damage, and so is one in a segment that was ended.
func TestFlippedBitOverOldRecords(t *testing.T) {
	t.Parallel()
	identity := options(nil).Identity
	rec := func(i int) wal.Entry { return wal.Entry{Kind: 1, Payload: fmt.Append(nil, "record ", i)} }
	old := wal.EncodeSegment(identity, 1, 1, 77, 0, slices.Repeat([]wal.Entry{rec(100)}, 20)...)
	group := func(seq, first, salt uint64, groups ...[]wal.Entry) []byte {
		var out []byte
		at := first
		for i, g := range groups {
			b := wal.EncodeSegment(identity, seq, at, salt, at-1, g...)
			if i == 0 {
				out = wal.Reuse(b)
			} else {
				out = append(out, b[len(wal.EncodeSegment(identity, seq, at, salt, 0)):]...)
			}
			at += uint64(len(g))
		}
		return over(old, out)
	}
	d := newDisk()
	d.names["/ps/wal/wal-0000000000000001.log"] = &node{data: group(1, 1, 5, []wal.Entry{wal.ResetOf(0, 0), rec(0)}, []wal.Entry{rec(1), rec(2)})}
	d.names["/ps/wal/wal-0000000000000002.log"] = &node{data: group(2, 5, 6, []wal.Entry{rec(3), rec(4)}, []wal.Entry{rec(5), rec(6), rec(7)})}
	const records, durable = 8, 5
	want := make([]string, records)
	for i := range want {
		want[i] = fmt.Sprint("record ", i)
	}
	read := func() (got []string, tail wal.Tail, err error) {
		l, err := openLog(options(d))
		if err != nil {
			return nil, tail, err
		}
		tail, err = l.Replay(t.Context(), 0, func(_ byte, p []byte) error { got = append(got, string(p)); return nil })
		return got, tail, errors.Join(err, l.Close())
	}
	if got, tail, err := read(); err != nil || !slices.Equal(got, want) || tail.TornBytes != 0 {
		t.Fatalf("%q, %+v, %v", got, tail, err)
	}
	outcomes := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		data := d.names[name].data
		for i := range data {
			bit := byte(1) << (i % 8)
			data[i] ^= bit
			got, tail, err := read()
			data[i] ^= bit
			switch {
			case errors.Is(err, wal.ErrCorrupt):
				outcomes["corrupt"]++
				if !strings.Contains(err.Error(), "offset") || !strings.Contains(err.Error(), ".log") {
					t.Fatalf("%s byte %d: the error does not say where: %v", name, i, err)
				}
			case err != nil || len(got) < durable || !slices.Equal(got, want[:len(got)]):
				t.Fatalf("%s byte %d: %q, %v", name, i, got, err)
			case len(got) == records:
				outcomes["all"]++ // it is behind the end
				if end := int(tail.Offset); strings.Contains(name, "2.log") && i < end {
					t.Fatalf("%s byte %d of %d: it passed unnoticed", name, i, end)
				}
			case tail.TornBytes == 0 && len(got) < records-1:
				t.Fatalf("%s byte %d: %d records, and good ones behind the end, which is not called torn: %+v", name, i, len(got), tail)
			default:
				outcomes["torn"]++
			}
		}
	}
	size := wal.RecordHead + len("record 0")
	if outcomes["torn"] != 3*size || outcomes["corrupt"] == 0 || outcomes["all"] == 0 {
		t.Errorf("%v, want %d torn: the last group's bytes", outcomes, 3*size)
	}
}

// TestFormatBefore: a log of the format before is continued, one of an older format is refused.
func TestFormatBefore(t *testing.T) {
	t.Parallel()
	for version, ok := range map[byte]bool{3: false, 4: true, 5: true, 6: false} {
		d := build(t, false, 1, texts(9)...)
		for _, n := range d.names {
			for n.data[8] != version {
				n.data = newer(n.data)
			}
		}
		got, _, err := replay(t, d)
		if ok && (err != nil || !slices.Equal(got, texts(9))) || !ok && !errors.Is(err, wal.ErrVersion) {
			t.Errorf("version %d: %d records, %v", version, len(got), err)
		}
	}
}

// trimming is a disk on which a segment is trimmed, and its file used again, between the moment that somebody opens it and the first that he reads.
type trimming struct {
	fsx.Disk
	path string
	trim func() []byte
}

func (d *trimming) Open(path string) (fsx.File, error) {
	f, err := d.Disk.Open(path)
	if err != nil || path != d.path {
		return f, err
	}
	return &trimmedFile{f, d}, nil
}

type trimmedFile struct {
	fsx.File
	d *trimming
}

func (f *trimmedFile) ReadAt(p []byte, at int64) (int, error) {
	return copy(p, f.d.trim()[at:]), nil
}

// TestFollowOverUsedAgain: who follows a log and is overtaken by a trim in the middle of a segment is told that, whatever its file has then.
func TestFollowOverUsedAgain(t *testing.T) {
	t.Parallel()
	disk := newDisk()
	d := &trimming{Disk: disk}
	o := options(disk)
	o.Disk = d
	l, err := openLog(o)
	if err == nil {
		err = l.Reset(0)
	}
	if err != nil {
		t.Fatal(err)
	}
	add := func() {
		for range 20 {
			if _, err := l.Append(1, []byte(strings.Repeat("x", 200))); err != nil {
				t.Fatal(err)
			}
			if err := l.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	add()
	f, err := l.Follow(wal.Place{Base: 0})
	if err != nil {
		t.Fatal(err)
	}
	d.path = "/ps/wal/" + disk.files()[0]
	n := disk.node(d.path)
	was := string(n.data)
	d.trim = func() []byte {
		for id := uint64(1); id < 5; id++ {
			err := l.Rotate(id)
			if err == nil {
				err = l.Flush(t.Context())
			}
			if err == nil {
				err = l.Trim(id)
			}
			if err != nil {
				t.Fatal(err)
			}
			add()
		}
		disk.mu.Lock()
		defer disk.mu.Unlock()
		return slices.Clone(n.data)
	}
	if _, err := f.Next(t.Context()); !errors.Is(err, wal.ErrBase) {
		t.Errorf("%v, want ErrBase", err)
	}
	if string(n.data) == was {
		t.Error("the file was not used again: the test tests nothing")
	}
	if err := errors.Join(f.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
}
