package trainstep

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDedupFollowsMap compares with a map over many batches of one dedup, with few and many distinct fids.
func TestDedupFollowsMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var d dedup
	for batch := range 300 {
		d.reset(d.keys[:0], d.counts[:0])
		if batch == 200 {
			d.stamp = ^uint32(0) // the next reset wraps round
		}
		number := map[int64]int32{}
		var keys []int64
		var counts []uint32
		for range 1 + rng.IntN(3) { // features of one table
			fids := make([]int64, rng.IntN(3000))
			for i := range fids {
				fids[i] = rng.Int64N(1+rng.Int64N(5000)) - 100
				if rng.IntN(4) == 0 {
					fids[i] <<= 48 // only high bits differ
				}
			}
			got := make([]int32, len(fids))
			d.index(got, fids)
			want := make([]int32, len(fids))
			for i, f := range fids {
				n, ok := number[f]
				if !ok {
					n = int32(len(keys))
					number[f], keys, counts = n, append(keys, f), append(counts, 0)
				}
				counts[n]++
				want[i] = n
			}
			if !slices.Equal(want, got) {
				t.Fatalf("batch %d: numbers differ: %s", batch, cmp.Diff(want, got))
			}
		}
		if !slices.Equal(keys, d.keys) || !slices.Equal(counts, d.counts) {
			t.Fatalf("batch %d: keys or counts differ", batch)
		}
	}
}

func BenchmarkDedup(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 1, 25_600)
	fids := make([]int64, 512*39)
	for i := range fids {
		fids[i] = int64(i%39)<<48 | int64(zipf.Uint64())
	}
	dst := make([]int32, len(fids))
	var d dedup
	b.ReportAllocs()
	for b.Loop() {
		d.reset(d.keys[:0], d.counts[:0])
		d.index(dst, fids)
	}
	b.ReportMetric(float64(len(fids))*float64(b.N)/b.Elapsed().Seconds(), "fids/s")
}
