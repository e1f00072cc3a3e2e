package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// TestPartsShareMemory: of many parts that one process writes at the same time, as many work as their memory suffices for. The others wait, and what is written
// is the same.
func TestPartsShareMemory(t *testing.T) {
	t.Parallel()
	const shards = 8
	l := layout()
	rows := randomRows(rand.New(rand.NewPCG(3, 4)), l.Tables[0], 20_000)
	// part writes one part and returns its digest. At most, if not nil, is how many are in the middle of it.
	part := func(mem *table.Memory, shard, threads int, dir string, working, most *atomic.Int64) (string, error) {
		p := snapshot.NewPart(snapshot.PartOptions{
			Dir: dir, Layout: l, Shard: shard, Memory: mem, Context: t.Context(), Threads: func() int { return threads },
		})
		next, begun := feed(&rows, l.Tables[0], 0, len(rows.Keys)), false
		err := p.Rows(0, func(dst *table.Rows, limit int) bool {
			if !begun {
				begun = true
				for n := working.Add(1); ; {
					if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
			}
			more := next(dst, limit)
			if !more {
				working.Add(-1) // it keeps its memory for a moment longer
			}
			return more
		})
		return p.Part().Digest.String(), err
	}
	var working, most atomic.Int64
	want, err := part(nil, 0, 1, t.TempDir(), &working, &most)
	if err != nil {
		t.Fatal(err)
	}
	const work = 1 << 20
	fits := snapshot.Writers(l, work)
	if fits < 1 || fits >= shards || snapshot.Writers(l, 0) < shards {
		t.Fatalf("%d writers fit", fits)
	}
	for _, threads := range []int{1, 3} {
		working.Store(0)
		most.Store(0)
		mem := table.NewMemory(table.MemoryOptions{Limit: 1 << 30, Work: work})
		dir := t.TempDir()
		var wg sync.WaitGroup
		for shard := range shards {
			wg.Go(func() {
				if got, err := part(mem, shard, threads, dir, &working, &most); err != nil || got != want {
					t.Errorf("shard %d with %d threads: %v, digest %s, want %s", shard, threads, err, got, want)
				}
			})
		}
		wg.Wait()
		if n := most.Load(); n > int64(fits) {
			t.Errorf("%d parts were written at the same time, want %d at most", n, fits)
		}
	}
}

// TestPartGivesUpWaiting: a part that waits for memory ends with its context.
func TestPartGivesUpWaiting(t *testing.T) {
	t.Parallel()
	mem := table.NewMemory(table.MemoryOptions{Limit: 1 << 30, Work: 1000})
	all, err := mem.Borrow(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := fmt.Errorf("the snapshot is given up")
	cancel(why)
	p := snapshot.NewPart(snapshot.PartOptions{Dir: t.TempDir(), Layout: layout(), Memory: mem, Context: ctx})
	if err := p.Rows(0, func(*table.Rows, int) bool { t.Error("it works without memory"); return false }); !errors.Is(err, why) {
		t.Errorf("a part that waits: %v", err)
	}
	all.Release()
	if _, err := mem.Borrow(t.Context(), 1000); err != nil {
		t.Error(err)
	}
}

// TestVerifyComparesTheDigest: a manifest whose digest is not that of its files is found, also where all checksums and counts are right.
func TestVerifyComparesTheDigest(t *testing.T) {
	t.Parallel()
	rows := randomRows(rand.New(rand.NewPCG(1, 1)), layout().Tables[0], 100)
	info := write(t, t.TempDir(), 1, &rows, 1)
	if faults, err := snapshot.Verify(t.Context(), nil, info.Path); err != nil || len(faults) > 0 {
		t.Fatalf("a whole snapshot: %v, %v", faults, err)
	}
	changed := *info
	if changed.Digest = "0" + info.Digest[1:]; changed.Digest == info.Digest {
		changed.Digest = "1" + info.Digest[1:]
	}
	b, err := changed.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(info.Path, snapshot.ManifestName), b, 0o644); err != nil {
		t.Fatal(err)
	}
	faults, err := snapshot.Verify(t.Context(), nil, info.Path)
	if err != nil || len(faults) != 1 || !errors.Is(faults[0], snapshot.ErrCorrupt) || !strings.Contains(faults[0].Error(), info.Digest) {
		t.Errorf("with another digest: %v, %v", faults, err)
	}
}
