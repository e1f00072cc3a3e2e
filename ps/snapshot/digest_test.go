package snapshot_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// TestDigestOfATrace: what the heads are called is not in the digest, what was predicted is.
func TestDigestOfATrace(t *testing.T) {
	t.Parallel()
	digest := func(head string, prediction float32) string {
		e, err := score.NewEncoder(score.Schema{Heads: []score.HeadSchema{{Name: head, Width: 1, NumLabels: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		var d snapshot.Digest
		d.State("trace", e.Append(nil, &score.Batch{Rows: 1, Heads: []score.Head{{Width: 1, NumLabels: 1, Predictions: []float32{prediction}, Labels: []float32{1}}}}))
		return d.String()
	}
	// The digest of the 12 bytes of the record alone.
	var plain snapshot.Digest
	plain.State("trace", []byte{0, 0, 0, 0x3f, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f})
	if got := digest("a", 0.5); got != digest("another", 0.5) || got != plain.String() {
		t.Errorf("%s, under another name %s, of the record %s", got, digest("another", 0.5), plain.String())
	}
	if digest("a", 0.5) == digest("a", 0.25) {
		t.Error("two predictions have one digest")
	}
}

// TestDigestInLanes: rows that are digested many at once, where the processor can, have the digest of each of them alone.
func TestDigestInLanes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	floats := func(n int) []float32 {
		f := make([]float32, n)
		for i := range f {
			f[i] = math.Float32frombits(r.Uint32())
		}
		return f
	}
	for dim := range 36 { // the padding begins at every byte of a block that it may begin at, and needs a block of its own or not
		for _, name := range []string{"t", "ab", "abc", "abcd"} {
			stateDim, n := r.IntN(4), r.IntN(70)
			rows := table.Rows{Weights: floats(n * dim), State: floats(n * stateDim)}
			var want, got snapshot.Digest
			for i := range n {
				rows.Keys = append(rows.Keys, int64(r.Uint64()))
				rows.Times = append(rows.Times, int64(r.Uint64()))
				rows.Counts = append(rows.Counts, r.Uint64())
				want.Rows(name, dim, stateDim, &table.Rows{
					Keys: rows.Keys[i:], Times: rows.Times[i:], Counts: rows.Counts[i:],
					Weights: rows.Weights[i*dim : (i+1)*dim], State: rows.State[i*stateDim : (i+1)*stateDim],
				})
			}
			got.Rows(name, dim, stateDim, &rows)
			if got.String() != want.String() {
				t.Fatalf("%d rows of %q, %d weights, %d of state: %s, one by one %s", n, name, dim, stateDim, &got, &want)
			}
		}
	}
}

func BenchmarkDigest(b *testing.B) {
	const n = 1024
	for _, c := range []struct{ dim, stateDim int }{{1, 2}, {17, 18}} {
		b.Run(fmt.Sprintf("dim=%d", c.dim), func(b *testing.B) {
			b.ReportAllocs()
			rows := table.Rows{
				Keys: make([]int64, n), Times: make([]int64, n), Counts: make([]uint64, n), Weights: make([]float32, n*c.dim), State: make([]float32, n*c.stateDim),
			}
			var d snapshot.Digest
			for b.Loop() {
				d.Rows("t", c.dim, c.stateDim, &rows)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/row")
		})
	}
}
