package psbench_test

import (
	"regexp"
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
