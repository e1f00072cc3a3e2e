package psbench_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/ps/psbench"
)

// TestWire: each kind of comparison runs, and nothing is left open.
func TestWire(t *testing.T) {
	t.Parallel()
	if bench.CPUSeconds() == 0 {
		t.Skip("no processor time on this system")
	}
	o := bench.Options{Rounds: 1, Each: 10 * time.Millisecond, Only: regexp.MustCompile("64 KiB")}
	results, err := psbench.Wire(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	against := map[string]string{
		"wire lookup 64 KiB": "tcp framing", "wire push 64 KiB": "tcp framing",
		"wire lookup 64 KiB with a shard": "in process", "wire push 64 KiB with a shard": "in process",
		"wire lookup 64 KiB in bf16": "float32", "wire push 64 KiB in bf16": "float32",
		"wire lookup 64 KiB in fp16": "float32", "wire push 64 KiB in fp16": "float32",
		"wire lookup 64 KiB over TLS": "plain", "wire push 64 KiB over TLS": "plain",
	}
	if len(results) != len(against) {
		t.Errorf("%d results, want %d", len(results), len(against))
	}
	for _, r := range results {
		if r.Ours <= 0 || r.Theirs[against[r.Name]] <= 0 || r.Ratio <= 0 || r.Control <= 0 {
			t.Errorf("got %+v", r)
		}
	}
}

// TestLog and TestSnapshot: they run to their end on small tables, and leave no files.
func TestLog(t *testing.T) {
	t.Parallel()
	o := bench.Options{Rounds: 1, Each: time.Millisecond, Rows: 5000, Dir: t.TempDir()}
	results, err := psbench.Log(t.Context(), o)
	if err != nil || len(results) != 4*3 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i := 0; i < len(results); i += 3 {
		push, piece, disk := results[i], results[i+1], results[i+2]
		if push.Ours <= 0 || push.Theirs["no log"] <= 0 || push.Theirs["wal without sync"] <= 0 || push.Ratio <= 0 || push.Control <= 0 {
			t.Errorf("got %+v", push)
		}
		// A push has 2,000 rows of a fid, a count and 16 numbers; eight workers may have one each in a piece, four shards a
		// part each, and the commit before it one of its own.
		one := 2000. * (8 + 4 + 4*16) / 1024
		if piece.Unit != "KiB" || piece.Ours < one/16 || piece.Ours > 8*one+16 {
			t.Errorf("got %+v", piece)
		}
		if disk.Unit != "MB/s" || disk.Ours <= 0 || disk.Theirs["disk"] <= 0 || disk.Ratio <= 0 || disk.Control <= 0 {
			t.Errorf("got %+v", disk)
		}
	}
	empty(t, o.Dir)
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	o := bench.Options{Rounds: 1, Each: 10 * time.Millisecond, Rows: 20_000, Dir: t.TempDir()}
	results, err := psbench.Snapshot(t.Context(), o)
	if bench.CPUSeconds() > 0 && len(results) > 4 {
		if r := results[4]; r.Ours <= 0 || r.Theirs["without"] <= 0 || r.Ratio <= 0 || r.Control <= 0 {
			t.Errorf("got %+v", r)
		}
		results = slices.Delete(results, 4, 5)
	}
	if err != nil || len(results) != 4+2*2*3+1 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i := 5; i < 16; i += 2 { // bytes of .1, 1 and 10 %, of rows that may expire and of others
		if r := results[i]; r.Unit != "MB" || r.Ours <= 0 || r.Ratio <= 0 || r.Ratio > .5 {
			t.Errorf("got %+v", r)
		}
	}
	for _, r := range append(results[:2:2], results[16]) {
		if r.Ours <= 0 || r.Theirs["without"] <= 0 || r.Ratio <= 0 || r.Control <= 0 {
			t.Errorf("got %+v", r)
		}
	}
	if results[3].Ours <= 0 {
		t.Errorf("got %+v", results[3])
	}
	empty(t, o.Dir)
}

// TestLarge: it runs to its end on a small table, which comes back as it was, and leaves no files.
func TestLarge(t *testing.T) {
	t.Parallel()
	o := bench.Options{Rounds: 1, Each: time.Millisecond, Rows: 200_000, Dir: t.TempDir()}
	results, err := psbench.Large(t.Context(), o)
	if err != nil || len(results) != 9 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		if r.Ours <= 0 {
			t.Errorf("got %+v", r)
		}
	}
	if whole, changed := results[4], results[6]; changed.Ours > whole.Ours/20 {
		t.Errorf("a hundredth of %v MB takes %v", whole.Ours, changed.Ours)
	}
	empty(t, o.Dir)
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
