package simd

import (
	"math"
	"unsafe"
)

// What is multiplied as pairs of bfloat16 numbers is packed here: A and B as in gemm.go, two numbers of a row of A, or of a column of B, being 32
// bits, the first in the upper half. The last pair of an odd number has a zero. Pairs lie in slices of floats and are never taken for such.

// packPairs is packPanels of pairs, h rows of which lie in panels of h0 rows, the others being zeros.
func (g *gemmTask) packPairs(s *space, k0, kc, first, last int) {
	h, h0 := (kc+1)/2, g.height(kc)
	at := func(r, j int) []float32 { return g.b[(k0+r)*g.ldb+g.j0+j:] }
	for p := first; p < last && h0 > h; p++ {
		clear(g.panel(k0, kc, p*g.nr)[h*g.nr:])
	}
	j := first * g.nr
	if full := min(last, g.n/g.nr); !g.transB && full > first {
		panels, dst := full-first, g.panel(k0, kc, j)
		if kc > 1 {
			_, _ = at(kc/2*2-1, j)[panels*g.nr-1], g.panel(k0, kc, (full-1)*g.nr)[(kc/2)*g.nr-1]
			pairRowsAVX512BF16(kc/2, panels, &at(0, j)[0], 4*g.ldb, &dst[0], 4*g.nr*h0)
		}
		for p := range panels {
			if kc%2 != 0 {
				roundBF16(AVX512, at(kc-1, j+p*g.nr)[:g.nr], g.panel(k0, kc, j+p*g.nr)[(h-1)*g.nr:])
			}
		}
		first = full
	}
	for ; first < last; first++ {
		j := first * g.nr
		w, dst := min(g.nr, g.n-j), g.panel(k0, kc, j)
		if g.transB {
			s.row = grow(s.row, w*h)
			for c := range w {
				pairs(g.b[(g.j0+j+c)*g.ldb+k0:][:kc], s.row[c*h:])
			}
			packTransposed(AVX512, h, w, g.nr, s.row, h, dst)
			continue
		}
		for l := range h { // the last columns of B
			d := dst[l*g.nr:][:g.nr]
			clear(d[w:])
			upper, lower := at(2*l, j)[:w], []float32(nil)
			if 2*l+1 < kc {
				lower = at(2*l+1, j)[:w]
			}
			for c, x := range upper {
				b := uint32(toBF16(x)) << 16
				if lower != nil {
					b |= uint32(toBF16(lower[c]))
				}
				d[c] = math.Float32frombits(b)
			}
		}
	}
}

// packRow makes pairs of the n numbers of A from a place on.
func (g *gemmTask) packRow(at, n int, to []float32) {
	if g.half == nil {
		pairs(g.a[at:][:n], to)
		return
	}
	x := g.half[at:][:n]
	_ = to[:(n+1)/2]
	if n > 1 {
		pairsOfHalvesAVX512BF16(n/2, &x[0], &to[0])
	}
	if n%2 != 0 {
		to[n/2] = math.Float32frombits(uint32(x[n-1]) << 16)
	}
}

// pairs makes pairs of x in y.
func pairs(x, y []float32) {
	_ = y[:(len(x)+1)/2]
	pairsAVX512BF16(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
}

// packPairsOfA is packA of pairs.
func (g *gemmTask) packPairsOfA(s *space, i0, i1, k0, kc int) {
	h := g.height(kc)
	for i := i0; i < i1; {
		t := tileRows(g.pool.family, i1-i)
		g.packPairsOfColumns(i, t, k0, kc, s.a[(i-i0)*h:])
		i += t
	}
}

// packPairsOfColumns puts the pairs of t columns of a transposed A from i on, at most 16, into rows of t without gaps.
func (g *gemmTask) packPairsOfColumns(i, t, k0, kc int, to []float32) {
	h, from := (kc+1)/2, k0*g.lda+i
	last := from + (kc-1)*g.lda
	_ = to[:h*t]
	if g.half != nil {
		_ = g.half[last+t-1]
		if kc > 1 {
			pairColumnsOfHalvesAVX512BF16(kc/2, t, &g.half[from], 2*g.lda, &to[0])
		}
		if kc%2 != 0 {
			fromBF16(AVX512, to[(h-1)*t:][:t], g.half[last:][:t])
		}
		return
	}
	_ = g.a[last+t-1]
	if kc > 1 {
		pairColumnsAVX512BF16(kc/2, t, &g.a[from], 4*g.lda, &to[0])
	}
	if kc%2 != 0 {
		roundBF16(AVX512, g.a[last:][:t], to[(h-1)*t:][:t])
	}
}
