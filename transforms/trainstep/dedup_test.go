package trainstep

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDedupFollowsMap compares with a map over many batches of one dedup, with few and many distinct fids.
func TestDedupFollowsMap(t *testing.T) {
	for _, d := range []dedup{{}, {narrow: true}, {portable: true}} {
		rng := rand.New(rand.NewPCG(1, 2))
		for batch := range 300 {
			d.reset(d.keys[:0], d.counts[:0])
			number := map[int64]int32{}
			var keys []int64
			var counts []uint32
			slots := 1 + rng.Int64N(4) // from one that all features share to, mostly, one for each
			ids := 1 + rng.Int64N(5000)
			mixed, alike := rng.IntN(3) == 0, rng.IntN(5) == 0
			for range 1 + rng.IntN(12) { // features of one table
				fids := make([]int64, rng.IntN(3000))
				if rng.IntN(200) == 0 { // more than a column is numbered apart with
					fids = make([]int64, 1<<16+rng.IntN(2000)-1000)
				}
				slot := rng.Int64N(slots * slots)
				for i := range fids {
					fids[i] = slot<<48 | rng.Int64N(ids)
					if mixed && rng.IntN(4) == 0 {
						fids[i] = (fids[i] - 100) << 48 // only high bits differ
					}
					if alike && rng.IntN(4) > 0 {
						fids[i] = unspread(uint64(slot)<<32 | uint64(rng.Int64N(ids)))
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
}

// TestScanVectors: columns of all lengths are scanned in assembly as in Go, wherever the least and the greatest fid are.
func TestScanVectors(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	vector, narrow, portable := new(dedup), &dedup{narrow: true}, &dedup{portable: true}
	for n := 1; n < 70; n++ {
		for range 30 {
			fids := make([]int64, n)
			for i := range fids {
				fids[i] = int64(rng.Uint64()) >> rng.IntN(64)
			}
			got, want := make([]int32, n), make([]int32, n)
			low, high := vector.scan(got, fids)
			if l, h := portable.scan(want, fids); low != slices.Min(fids) || high != slices.Max(fids) || low != l || high != h {
				t.Fatalf("%d from %d to %d, in Go from %d to %d", fids, low, high, l, h)
			}
			if !slices.Equal(got, want) || vector.firsts != portable.firsts {
				t.Fatalf("%d: places %d and %d, or their first rows, differ", fids, got, want)
			}
			if l, h := narrow.scan(got, fids); low != l || high != h || !slices.Equal(got, want) || narrow.firsts != portable.firsts {
				t.Fatalf("%d without AVX-512: from %d to %d, places %d in place of %d", fids, l, h, got, want)
			}
		}
	}
}

// unspread returns a fid of which all that spread takes the highest bits of is h: those of small h begin their searches in one place.
func unspread(h uint64) int64 {
	const inverse = 0xf1de83e19937733d
	h *= inverse
	return int64(h ^ h>>32)
}

func BenchmarkDedup(b *testing.B) {
	const fields, ids = 39, 25_600
	for _, rows := range []int{512, 4096} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			zipf := rand.NewZipf(rng, 1.1, 1, ids-1)
			var batches [8][fields][]int64 // one alone is learned by the processor's branch prediction
			for f := range fields {
				scattered := rng.Perm(ids)
				for k := range batches {
					for range rows {
						batches[k][f] = append(batches[k][f], int64(f)<<48|int64(scattered[zipf.Uint64()]))
					}
				}
			}
			dst := make([]int32, rows)
			var d dedup
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				d.reset(d.keys[:0], d.counts[:0])
				for f := range fields {
					d.index(dst, batches[i%len(batches)][f])
				}
			}
			b.ReportMetric(float64(rows*fields)*float64(b.N)/b.Elapsed().Seconds(), "fids/s")
			b.ReportMetric(float64(len(d.keys)), "distinct")
		})
	}
}
