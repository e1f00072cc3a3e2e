package wal_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/ps/wal"
)

// TestJoinSums: the checksum of two pieces from those of each is that of both in one.
func TestJoinSums(t *testing.T) {
	t.Parallel()
	table := crc32.MakeTable(crc32.Castagnoli)
	rng := rand.New(rand.NewPCG(1, 1))
	all := make([]byte, 1<<20)
	for i := range all {
		all[i] = byte(rng.Uint32())
	}
	for n := range 40 {
		for _, size := range []int{n, 1<<n%len(all) - n%2, rng.IntN(len(all))} {
			size = max(size, 0)
			at := rng.IntN(size + 1)
			a, b := crc32.Checksum(all[:at], table), crc32.Checksum(all[at:size], table)
			if got, want := wal.JoinSums(a, b, size-at), crc32.Checksum(all[:size], table); got != want {
				t.Errorf("%d and %d bytes: %08x, want %08x", at, size-at, got, want)
			}
		}
	}
}

// TestRecordsMadeAhead: records come back in the order in which they were appended, whenever they were made, small ones and large ones between each
// other, and those that were given up do not.
func TestRecordsMadeAhead(t *testing.T) {
	t.Parallel()
	d := newDisk()
	o := options(d)
	o.SegmentBytes = 1 << 16
	l, err := openLog(o)
	if err == nil {
		err = l.Reset(0)
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var want []string
	var wg sync.WaitGroup
	for writer := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(writer)))
			for i := range 60 {
				text := fmt.Sprintf("%d/%d:%s", writer, i, bytes.Repeat([]byte("z"), rng.IntN(3*wal.SmallRecord)))
				half := len(text) / 2
				r, err := l.Record(byte(len(text)), []byte(text[:half]), []byte(text[half:]))
				if err != nil {
					t.Error(err)
					return
				}
				if rng.IntN(4) == 0 {
					l.Discard(r)
					continue
				}
				mu.Lock()
				lsn, err := l.AppendRecord(r)
				if err == nil && rng.IntN(2) == 0 {
					lsn, err = l.Append(1, []byte("s"))
					want = append(want, text, "s")
				} else {
					want = append(want, text)
				}
				mu.Unlock()
				if err == nil {
					err = l.Wait(t.Context(), lsn)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if len(d.files()) < 3 {
		t.Fatalf("%d segments, want several", len(d.files()))
	}
	if got, _, err := replay(t, d); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d records came back of %d, or in another order; %v", len(got), len(want), err)
	}
}

// TestRecordTooLate: a closed log takes no record that was made before, and what a record cannot hold is said when it is made.
func TestRecordTooLate(t *testing.T) {
	t.Parallel()
	l, err := openLog(options(newDisk()))
	if err == nil {
		err = l.Reset(0)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Record(1, make([]byte, 5000))
	if err != nil {
		t.Fatal(err)
	}
	half := make([]byte, wal.MaxRecord/2+1)
	if _, err := l.Record(1, half, half); !errors.Is(err, wal.ErrTooLarge) {
		t.Errorf("a record of more than there may be: %v, want ErrTooLarge", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendRecord(r); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("append after close: %v, want ErrClosed", err)
	}
	l.Discard(r)
}
