package simd

// stepDepth is how many numbers along k an instruction of AMX multiplies: 16 pairs.
const stepDepth = 32

// tiledGeometry is how products of AMX are cut. A panel of the largest depth is 32 KiB and stays in the nearest cache while blocks of A pass.
var tiledGeometry = geometry{mr: 32, nr: 32, kc: 512, tiles: 8}

// blocksAtOnce is how many blocks of 32 rows are multiplied by a panel before the next, and what they end with is done while they are in a near cache.
const blocksAtOnce = 4

// tileConfig says of eight tiles that they are 16 rows of 64 bytes (palette 1; Intel, Architecture Instruction Set Extensions Programming Reference, 3.2).
var tileConfig = func() (c [64]byte) {
	c[0] = 1
	for t := range 8 {
		c[16+2*t], c[48+t] = 64, 16
	}
	return c
}()

// computeTiled is compute by AMX. Sums of whole blocks are in C from the first step on; those at the edges, and of a product with numbers that sumAgain is for, lie in s.tile until they end.
func (g *gemmTask) computeTiled(s *space, i0, i1, j0, j1 int) {
	rows := (i1 - i0 + g.mr - 1) / g.mr * g.mr
	s.a = grow(s.a, rows*g.height(g.depth))
	s.tile = grow(s.tile, blocksAtOnce*g.mr*g.nr)
	flat := i1 // from here on there are so few rows that two panels are multiplied at once
	if rest := (i1 - i0) % g.mr; g.split && rest > 0 && rest <= g.mr/2 {
		flat -= rest
	}
	for k0 := g.k0; k0 < g.k1; k0 += g.depth {
		kc := min(g.depth, g.k1-k0)
		h, p := g.height(kc), piece{flags: g.flags(k0, kc), k0: k0, kc: kc, special: g.special.Load()}
		steps := h / (stepDepth / 2)
		if g.split {
			steps = h * g.nr / stepFloats
			p.special = g.packSplitA(s, i0, i1, k0, kc) || p.special
		} else {
			g.packTiled(s, i0, i1, k0, kc)
		}
		for j := j0; j < j1; j += g.nr {
			columns, panel := min(g.nr, j1-j), &g.panel(k0, kc, j)[0]
			atOnce := blocksAtOnce * g.mr
			narrow := g.split && columns <= g.nr/2
			if narrow {
				atOnce = 2 * g.mr
			}
			for i := i0; i < flat; i += atOnce {
				n, x := min(atOnce, flat-i), &s.a[(i-i0)*h]
				p.i, p.rows, p.j, p.columns = i, n, j, columns
				c, ldc := g.begin(s, p, g.nr, n%g.mr == 0 && columns == g.nr)
				blocks := (n + g.mr - 1) / g.mr
				switch {
				case narrow:
					sumSplitNarrowAMX(steps, x, panel, 4*g.mr*h*(blocks-1), c, 4*ldc, p.flags, &tileConfig[0])
				case g.split:
					sumSplitAMX(steps, blocks, x, panel, c, 4*ldc, p.flags, &tileConfig[0])
				default:
					sumTilesAMX(steps, blocks, x, 4*h, panel, c, 4*ldc, p.flags, &tileConfig[0])
				}
				g.end(s, p, c, ldc)
			}
		}
		for j := j0; j < j1 && flat < i1; j += 2 * g.nr {
			columns, gap := min(2*g.nr, j1-j), 0
			if columns > g.nr {
				gap = 4 * g.nr * h
			}
			p.i, p.rows, p.j, p.columns = flat, i1-flat, j, columns
			c, ldc := g.begin(s, p, 2*g.nr, false)
			sumSplitFlatAMX(steps, &s.a[(flat-i0)*h], &g.panel(k0, kc, j)[0], gap, c, 4*ldc, p.flags, &tileConfig[0])
			g.end(s, p, c, ldc)
		}
	}
}

// piece is what is multiplied at once: rows from i and columns from j on, over kc numbers along k from k0 on.
type piece struct {
	flags                       int
	i, rows, j, columns, k0, kc int
	special                     bool // numbers may be such that sumAgain is for
}

// begin is where the sums of a piece are, with rows so many numbers apart: in C if it is whole, or else in s.tile, with rows of width numbers that begin with what C holds.
func (g *gemmTask) begin(s *space, p piece, width int, whole bool) (c *float32, ldc int) {
	at := p.i*g.ldc + g.j0 + p.j
	_ = g.c[at+(p.rows-1)*g.ldc+p.columns-1]
	if whole && !p.special {
		return &g.c[at], g.ldc
	}
	for r := 0; r < p.rows && p.flags&flagAdd != 0; r++ {
		copy(s.tile[r*width:], g.c[at+r*g.ldc:][:p.columns])
	}
	return &s.tile[0], width
}

// end ends the sums of a piece.
func (g *gemmTask) end(s *space, p piece, c *float32, ldc int) {
	if p.special {
		g.sumAgain(s.tile, ldc, p)
	}
	at := p.i*g.ldc + g.j0 + p.j
	for from := 0; from < p.columns; from += g.nr {
		sums, to, columns, bias := offset(c, 4*from), &g.c[at+from], min(g.nr, p.columns-from), (*float32)(nil)
		if p.flags&flagBias != 0 {
			bias = &g.e.Bias[g.j0+p.j+from]
		}
		if sums != to || p.flags&(flagBias|flagRelu) != 0 {
			endTilesAMX(p.rows, columns, sums, 4*ldc, to, 4*g.ldc, p.flags, bias)
		}
	}
	if g.e.Act > Relu && p.k0+p.kc == g.k {
		for r := range p.rows {
			g.e.Act.apply(g.c[at+r*g.ldc:][:p.columns])
		}
	}
}

// packTiled puts rows i0 to i1 of A, kc numbers each, into s.a: rows of pairs, with zeros up to whole steps.
func (g *gemmTask) packTiled(s *space, i0, i1, k0, kc int) {
	h, used := g.height(kc), (kc+1)/2
	if !g.transA {
		for r := i0; r < i1; r++ {
			to := s.a[(r-i0)*h:]
			g.packRow(r*g.lda+k0, kc, to)
			clear(to[used:h])
		}
		return
	}
	const w = 16 // columns at once
	s.row = grow(s.row, w*h)
	for i := i0; i < i1; i += w {
		t := min(w, i1-i)
		g.packPairsOfColumns(i, t, k0, kc, s.row)
		clear(s.row[used*t : h*t])
		for l := 0; l < h; l += 8 { // eight pairs of t rows
			transpose8AVX2(t, &s.row[l*t], 4*t, &s.a[(i-i0)*h+l], 4*h)
		}
	}
}
