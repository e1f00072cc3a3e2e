package simd

// Products of float32 by AMX, whose instructions multiply numbers of bfloat16: each number of A and of B is split into three of these, x = x₀+x₁+x₂, of which x₀ is x rounded to 8 bits, x₁ what is missing
// rounded to 8, and x₂ the rest, which has no more. The product is x₀y₂+x₀y₁+x₀y₀+x₁y₀+x₁y₁+x₂y₀; what is left out is at most 2⁻²⁴ of it, as much as a rounding of float32 (Henry, Tang and Heinecke, 2019, "Leveraging the bfloat16 Artificial
// Intelligence Datatype For Higher-Precision Computations"). An instruction multiplies two such numbers exactly. Of 32 numbers along k it adds up the products of the first 16, those of the others, then both, and that to the sum, which begins with what C holds: an
// order that depends on nothing else.

const (
	// splitParts is how many numbers of bfloat16 make one of float32.
	splitParts = 3
	// stepFloats is the room of a step of 32 rows of A, or of 32 columns of B, in floats: of each part two tiles of 16 rows of 16 pairs.
	stepFloats = splitParts * 2 * 256
)

// splitGeometry is how such products are cut; see splitDepth.
var splitGeometry = geometry{mr: 32, nr: 32, tiles: 8}

// splitDepth is the largest depth of a block where n columns of it are packed at once, if this is possible without blocks that are too short: A is split for each group of columns. Sums do not depend on it.
func splitDepth(n int) int {
	panels := (n + 31) / 32
	return min(max(packedFloats/(panels*splitParts*512), 8), 16) * stepDepth
}

// splits reports whether a product is one by AMX. It depends on nothing that may be divided among calls or threads, as its bits are others. Others would be mostly zeros behind their ends.
func splits(n, k int) bool { return n > 16 && k > 16 }

// packSplit is packPanels of parts. A pair is two numbers of a column that are 16 rows of a step apart, the first in the lower half.
func (g *gemmTask) packSplit(s *space, k0, kc, first, last int) {
	steps, gap := (kc+stepDepth-1)/stepDepth, g.nr*g.height(kc)
	split := func(steps, panels int, x []float32, ldb int, y []float32) {
		_ = x[(steps*stepDepth-1)*ldb+panels*g.nr-1]
		if x := splitPanelsAMX(steps, panels, &x[0], 4*ldb, &y[0], 4*gap); x != x {
			g.special.Store(true)
		}
	}
	panels := min(last, g.n/g.nr) - first // whole ones
	if full := kc / stepDepth; !g.transB && panels > 0 && full > 0 {
		split(full, panels, g.b[k0*g.ldb+g.j0+first*g.nr:], g.ldb, g.panel(k0, kc, first*g.nr))
	}
	for ; first < last; first++ {
		j := first * g.nr
		w, dst := min(g.nr, g.n-j), g.panel(k0, kc, j)
		done := 0 // rows
		if !g.transB && w == g.nr {
			done = kc / stepDepth * stepDepth
		}
		if done == kc {
			continue
		}
		s.row = grow(s.row, (steps*stepDepth-done)*g.nr)
		if g.transB {
			packTransposed(g.pool.family, kc, w, g.nr, g.b[(g.j0+j)*g.ldb+k0:], g.ldb, s.row)
		} else {
			for r := done; r < kc; r++ {
				d := s.row[(r-done)*g.nr:][:g.nr]
				clear(d[copy(d, g.b[(k0+r)*g.ldb+g.j0+j:][:w]):])
			}
		}
		clear(s.row[(kc-done)*g.nr:])
		split(steps-done/stepDepth, 1, s.row, g.nr, dst[done/stepDepth*stepFloats:])
	}
}

// packSplitA puts the parts of rows i0 to i1 of A, kc numbers each, into s.a: of a block of 32 rows one step behind the other, of a step one part behind the other, of a part the pairs of one row behind the other. It reports whether parts are not finite.
func (g *gemmTask) packSplitA(s *space, i0, i1, k0, kc int) (special bool) {
	steps := (kc + stepDepth - 1) / stepDepth
	width := steps*stepDepth + 16 // rows of a power of two would lie in few lines of the nearest cache
	for i := i0; i < i1; i += g.mr {
		rows, to := min(g.mr, i1-i), &s.a[(i-i0)*g.height(kc)]
		if !g.transA {
			at := i*g.lda + k0
			_ = g.a[at+(rows-1)*g.lda+kc-1]
			x := splitRowsAMX(rows, kc, &g.a[at], 4*g.lda, to)
			special = special || x != x
			continue
		}
		s.row = grow(s.row, g.mr*width)
		l, at := 0, k0*g.lda+i
		_ = g.a[at+(kc-1)*g.lda+rows-1]
		for ; l+8 <= kc; l += 8 {
			transpose8AVX2(rows, &g.a[at+l*g.lda], 4*g.lda, &s.row[l], 4*width)
		}
		for ; l < kc; l++ {
			for r, x := range g.a[at+l*g.lda:][:rows] {
				s.row[r*width+l] = x
			}
		}
		x := splitRowsAMX(rows, kc, &s.row[0], 4*width, to)
		special = special || x != x
	}
	return special
}

// sumAgain computes those of sums, rows of which are width numbers apart, that are NaN again, one number along k after the other: the parts of a number that is infinite, or rounds to that, add up to NaN. What C holds is still what sums begin with.
func (g *gemmTask) sumAgain(sums []float32, width int, p piece) {
	a, ra, ka := p.i*g.lda+p.k0, g.lda, 1
	if g.transA {
		a, ra, ka = p.k0*g.lda+p.i, 1, g.lda
	}
	b, cb, kb := p.k0*g.ldb+g.j0+p.j, 1, g.ldb
	if g.transB {
		b, cb, kb = (g.j0+p.j)*g.ldb+p.k0, g.ldb, 1
	}
	for r := range p.rows {
		for c, x := range sums[r*width:][:p.columns] {
			if x == x {
				continue
			}
			var sum float32
			if p.flags&flagAdd != 0 {
				sum = g.c[(p.i+r)*g.ldc+g.j0+p.j+c]
			}
			for l := range p.kc {
				sum += float32(g.a[a+r*ra+l*ka] * g.b[b+c*cb+l*kb])
			}
			sums[r*width+c] = sum
		}
	}
}
