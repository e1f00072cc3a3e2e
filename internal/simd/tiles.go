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
	for k0 := g.k0; k0 < g.k1; k0 += g.depth {
		kc := min(g.depth, g.k1-k0)
		h, flags := g.height(kc), g.flags(k0, kc)
		special := g.special.Load()
		if g.split {
			special = g.packSplitA(s, i0, i1, k0, kc) || special
		} else {
			g.packTiled(s, i0, i1, k0, kc)
		}
		for j := j0; j < j1; j += g.nr {
			columns, panel := min(g.nr, j1-j), &g.panel(k0, kc, j)[0]
			for i := i0; i < i1; i += blocksAtOnce * g.mr {
				n, x := min(blocksAtOnce*g.mr, i1-i), &s.a[(i-i0)*h]
				at := i*g.ldc + g.j0 + j
				_ = g.c[at+(n-1)*g.ldc+columns-1]
				c, ldc := &g.c[at], g.ldc
				if n%g.mr != 0 || columns < g.nr || special {
					c, ldc = &s.tile[0], g.nr
					for r := 0; r < n && flags&flagAdd != 0; r++ {
						copy(s.tile[r*g.nr:], g.c[at+r*g.ldc:][:columns])
					}
				}
				blocks := (n + g.mr - 1) / g.mr
				if g.split {
					sumSplitAMX((kc+stepDepth-1)/stepDepth, blocks, x, panel, c, 4*ldc, flags, &tileConfig[0])
				} else {
					sumTilesAMX(h/(stepDepth/2), blocks, x, 4*h, panel, c, 4*ldc, flags, &tileConfig[0])
				}
				if special {
					g.sumAgain(s.tile, flags, i, n, j, columns, k0, kc)
				}
				g.end(flags, c, ldc, i, n, j, columns)
				if g.e.Act > Relu && k0+kc == g.k {
					for r := range n {
						g.e.Act.apply(g.c[at+r*g.ldc:][:columns])
					}
				}
			}
		}
	}
}

// end ends the sums of n rows and some columns from i, j on, which are c, rows of which are ldc numbers apart: in C, or to be stored there.
func (g *gemmTask) end(flags int, c *float32, ldc, i, n, j, columns int) {
	to := &g.c[i*g.ldc+g.j0+j]
	if c == to && flags&(flagBias|flagRelu) == 0 {
		return
	}
	var bias *float32
	if flags&flagBias != 0 {
		bias = &g.e.Bias[g.j0+j]
	}
	endTilesAMX(n, columns, c, 4*ldc, to, 4*g.ldc, flags, bias)
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
