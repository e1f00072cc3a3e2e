package simd

import (
	"sync/atomic"
	"unsafe"
)

// Activation is what a product ends with.
type Activation uint8

// The activations.
const (
	// Identity leaves the sum as it is.
	Identity Activation = iota
	// Relu is max(x, 0); of a NaN it is a NaN.
	Relu
	// Logistic is 1/(1+e⁻ˣ), as [Sigmoid].
	Logistic
	// Hyperbolic is tanh x, as [Tanh].
	Hyperbolic
)

// apply is what tiles do not do themselves.
func (a Activation) apply(x []float32) {
	switch a {
	case Logistic:
		Sigmoid(x, x)
	case Hyperbolic:
		Tanh(x, x)
	case Identity, Relu:
	}
}

// Epilogue is what happens to the elements of a product before they are stored, in the order of the fields.
type Epilogue struct {
	// Add adds the product to what C holds; otherwise C is overwritten without being read.
	Add bool
	// Bias, of n elements, is added to each row, unless it is nil.
	Bias []float32
	// Act is applied last.
	Act Activation
}

// Gemm computes C = act(op(A)·op(B) [+ C] [+ bias]) for row-major matrices: op(A) is m by k, op(B) k by n, C m by n. With
// transA the slice a holds the transpose, [k, m], with transB b holds [n, k]. lda, ldb and ldc are the distances between
// the beginnings of rows in floats, at least the length of a row. C must not overlap the others.
//
// Each element is summed over k in blocks whose borders depend on k alone, each in ascending order with one rounding a
// product (two in the portable family). In the family [AMX] products of more than 16 columns and a depth of more than 16 are of numbers that are split into three of bfloat16 (split.go), with errors that are no larger;
// numbers below 2⁻¹⁰⁹ lose digits there, and those below 2⁻¹²⁶ count as zeros. So the bits of a row of C depend neither on m, nor on the threads, nor on how rows
// are divided among calls. It allocates nothing once the pool's buffers have grown to the largest product.
func (p *Pool) Gemm(transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, e Epilogue) {
	checkMatrix("A", transA, m, k, len(a), lda)
	p.multiply(false, transA, transB, m, n, k, a, nil, lda, b, ldb, c, ldc, e)
}

// GemmBF16 is [Pool.Gemm] of the elements of A and B rounded to bfloat16 (to the nearest, ties to even), with sums in float32; what C holds and
// the bias are not rounded: the product of mixed-precision training (Kalamkar et al., 2019, "A Study of BFLOAT16 for Deep Learning
// Training", section 3). It has the bits of Gemm of operands that [RoundBF16] has rounded, but in the family [AMX].
//
// The product of two such numbers has 16 bits of precision and is exact in float32, so that one rounding or two make no difference, and all other families
// give the same bits, unless a number, a product or a sum is smaller than 2⁻¹²⁶. Processors with AVX512-BF16 multiply and add pairs of numbers, in the same order,
// and count such as zeros. So do those with AMX, which has an order of its own: of 32 numbers along k the products of even ones are added up and those of odd ones,
// then both, and that to the sum, which begins with what C holds.
func (p *Pool) GemmBF16(transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, e Epilogue) {
	checkMatrix("A", transA, m, k, len(a), lda)
	p.multiply(true, transA, transB, m, n, k, a, nil, lda, b, ldb, c, ldc, e)
}

// GemmHalf is [Pool.GemmBF16] of an A that lies in memory as bfloat16, [ToBF16] of it, with the same bits. lda is in numbers.
func (p *Pool) GemmHalf(transA, transB bool, m, n, k int, a []uint16, lda int, b []float32, ldb int, c []float32, ldc int, e Epilogue) {
	checkMatrix("A", transA, m, k, len(a), lda)
	p.multiply(true, transA, transB, m, n, k, nil, a, lda, b, ldb, c, ldc, e)
}

// Kept is what products have packed of a matrix B for those that follow. The zero value holds nothing.
type Kept struct {
	parts []keptPart // in the order in which a product packs them
	full  bool
}

type keptPart struct {
	packed  []float32
	special bool
}

// Forget makes the next product pack again, into the same memory: B has other numbers.
func (k *Kept) Forget() { k.full = false }

// Keep makes the next product take what it would pack of B from k, where an earlier one of this pool left it, or else leave it there. B must have been the same then, its shape and transpose too, and both
// products of float32 or both of bfloat16. Few rows gain most: packing B takes as long as multiplying 8 to 32 rows by it.
func (p *Pool) Keep(k *Kept) { p.gemm.kept = k }

func (p *Pool) multiply(round, transA, transB bool, m, n, k int, a []float32, half []uint16, lda int, b []float32, ldb int, c []float32, ldc int, e Epilogue) {
	kept := p.gemm.kept
	p.gemm.kept = nil
	if m <= 0 || n <= 0 {
		return
	}
	k = max(k, 0)
	checkMatrix("B", transB, k, n, len(b), ldb)
	checkMatrix("C", false, m, n, len(c), ldc)
	if e.Bias != nil {
		e.Bias = e.Bias[:n]
	}
	if !round && p.multiplyBLAS(transA, transB, m, n, k, a, lda, b, ldb, c, ldc, e) {
		return
	}
	g := &p.gemm
	g.geometry = geometries[p.family]
	g.split = !round && p.tiles && splits(n, k)
	g.tiled = g.split || round && p.tiles && k > 0
	g.pairs = round && (p.pairs || g.tiled)
	g.special.Store(false)
	switch {
	case g.split:
		g.geometry = splitGeometry
	case g.tiled:
		g.geometry = tiledGeometry
	}
	g.round, g.transA, g.transB, g.m, g.k = round, transA, transB, m, k
	g.a, g.half, g.lda, g.b, g.ldb, g.c, g.ldc, g.e = a, half, lda, b, ldb, c, ldc, e
	if g.split {
		g.kc = splitDepth(n)
	}
	if g.depth = blockDepth(k, g.kc); g.tiled {
		g.depth = (g.depth + stepDepth - 1) / stepDepth * stepDepth
	}
	// What is packed of B at once stays in the cache: so many columns, and of these so many blocks of depth.
	height := g.height(g.depth)
	columns := max(packedFloats/height/g.nr, 1) * g.nr
	own, i := g.packed, 0
	for g.j0 = 0; g.j0 < n; g.j0 += columns {
		g.n = min(columns, n-g.j0)
		rows := max(packedFloats/(g.panels()*g.nr*height), 1) * g.depth
		for g.k0 = 0; g.k0 == 0 || g.k0 < k; g.k0 += rows {
			g.k1 = min(g.k0+rows, k)
			if kept == nil {
				g.pack()
				g.run()
				continue
			}
			if i == len(kept.parts) {
				kept.parts = append(kept.parts, keptPart{})
			}
			part := &kept.parts[i]
			if g.packed = part.packed; kept.full {
				if part.special {
					g.special.Store(true)
				}
			} else {
				g.pack()
				part.packed, part.special = g.packed, g.special.Load()
			}
			g.run()
			i++
		}
	}
	if kept != nil {
		kept.full, g.packed = true, own
	}
	g.a, g.half, g.b, g.c, g.e = nil, nil, nil, nil, Epilogue{}
}

// packedFloats bounds the packed part of B: 1 MiB, so that it is read from a cache.
const packedFloats = 256 << 10

func checkMatrix(name string, trans bool, rows, cols, length, stride int) {
	if trans {
		rows, cols = cols, rows
	}
	if rows <= 0 || cols <= 0 {
		return
	}
	if stride < cols || (rows-1)*stride+cols > length {
		panic("simd: matrix " + name + " is larger than its slice or its stride")
	}
}

// blockDepth cuts k into blocks of nearly equal depth of at most most.
func blockDepth(k, most int) int {
	blocks := max((k+most-1)/most, 1)
	return max((k+blocks-1)/blocks, 1)
}

// geometry is how a family cuts a product.
type geometry struct {
	// mr rows and nr columns are a tile, the columns those of a packed panel.
	mr, nr int
	// kc is the largest depth of a block.
	kc int
	// tiles is how many tiles, one below the other, share a pass over B.
	tiles int
}

var geometries = [...]geometry{
	Portable: {mr: 2, nr: 4, kc: 256, tiles: 32},
	AVX2:     {mr: 6, nr: 16, kc: 256, tiles: 16},
	AVX512:   {mr: 14, nr: 32, kc: 256, tiles: 8},
}

// gemmTask is a product: first its blocks pack B, then they compute C.
type gemmTask struct {
	pool *Pool
	geometry
	round          bool        // A and B are rounded to bfloat16 as they are packed
	pairs          bool        // and are packed as pairs of such numbers, of which the first is in the upper half; see height
	tiled          bool        // for registers of AMX; see tiles.go
	split          bool        // each number as a sum of three of bfloat16; see split.go
	special        atomic.Bool // parts of B are not finite
	kept           *Kept       // of the next product
	transA, transB bool
	m, n, k        int // n columns from j0 on
	j0, k0, k1     int // rows of B from k0 to k1
	a, b, c        []float32
	half           []uint16 // A where it lies in 16 bits; a is nil then
	lda, ldb, ldc  int
	e              Epilogue
	depth          int
	packing        bool
	rowTasks       int
	columnTasks    int
	packed         []float32
	space          []space
}

// space is what one thread needs for itself.
type space struct {
	a    []float32 // packed columns of a transposed A, or rounded rows
	tile []float32 // a tile at the edge of C
	bias []float32
	row  []float32 // numbers of A that were in 16 bits, or pairs of rows of B
	_    [32]byte
}

// panelsAtOnce is how many panels a task packs.
const panelsAtOnce = 4

// height is how many rows a panel of kc rows of B has, and a packed column of A of as many numbers.
func (g *gemmTask) height(kc int) int {
	switch {
	case g.split:
		return (kc + stepDepth - 1) / stepDepth * (stepFloats / 32)
	case g.tiled:
		return (kc + stepDepth - 1) / stepDepth * (stepDepth / 2)
	case g.pairs:
		return (kc + 1) / 2
	default:
		return kc
	}
}

func (g *gemmTask) panels() int { return (g.n + g.nr - 1) / g.nr }

// pack packs the columns and rows of B that are multiplied at once.
func (g *gemmTask) pack() {
	blocks := (g.k1 - g.k0 + g.depth - 1) / g.depth
	g.packed = grow(g.packed, blocks*g.panels()*g.nr*g.height(g.depth))
	g.packing = true
	g.pool.Run(blocks*((g.panels()+panelsAtOnce-1)/panelsAtOnce), g)
	g.packing = false
}

// run multiplies A by them.
func (g *gemmTask) run() {
	// Tasks of equal size, give or take a tile, as many for each thread: fewer than a pass over B is worth, more than make a
	// thread wait that has done its own. Which elements are in one changes none of them.
	threads, tiles := g.pool.Threads(), (g.m+g.mr-1)/g.mr
	most := g.tiles
	if threads > 1 && !g.tiled {
		most = max(most/2, 1)
	}
	g.rowTasks = (tiles + most - 1) / most
	g.rowTasks = min((g.rowTasks+threads-1)/threads*threads, tiles)
	g.columnTasks = 1
	switch {
	case g.tiled: // A is packed for each, and a pass over a panel is longer
		g.columnTasks = min((threads+g.rowTasks-1)/g.rowTasks, g.panels())
	case threads > 1:
		g.columnTasks = min((2*threads+g.rowTasks-1)/g.rowTasks, g.panels())
	}
	g.pool.Run(g.rowTasks*g.columnTasks, g)
}

// part is where the i-th of n nearly equal parts of size things begins, in things of unit elements.
func part(i, n, size, unit, elements int) int { return min(i*size/n*unit, elements) }

// grow returns a slice of n floats that begins on a cache line, reusing s if it can.
func grow(s []float32, n int) []float32 {
	if cap(s) >= n {
		return s[:n]
	}
	s = make([]float32, n+16)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(s)))&63) / 4
	return s[off : off+n : off+n]
}

// Block packs some panels or computes some tiles.
func (g *gemmTask) Block(worker, block int) {
	if g.packing {
		groups := (g.panels() + panelsAtOnce - 1) / panelsAtOnce
		k0, first := g.k0+block/groups*g.depth, block%groups*panelsAtOnce
		kc, last := min(g.depth, g.k1-k0), min(first+panelsAtOnce, g.panels())
		switch {
		case g.split:
			g.packSplit(&g.space[worker], k0, kc, first, last)
			return
		case g.pairs:
			g.packPairs(&g.space[worker], k0, kc, first, last)
			return
		}
		g.packPanels(k0, kc, first, last)
		if g.round { // while they are in a near cache
			packed := g.panel(k0, kc, first*g.nr)[: (last-first)*g.nr*kc : (last-first)*g.nr*kc]
			roundBF16(g.pool.family, packed, packed)
		}
		return
	}
	tiles, i, j := (g.m+g.mr-1)/g.mr, block%g.rowTasks, block/g.rowTasks
	compute := g.compute
	if g.tiled {
		compute = g.computeTiled
	}
	compute(&g.space[worker],
		part(i, g.rowTasks, tiles, g.mr, g.m), part(i+1, g.rowTasks, tiles, g.mr, g.m),
		part(j, g.columnTasks, g.panels(), g.nr, g.n), part(j+1, g.columnTasks, g.panels(), g.nr, g.n))
}

// panel is the packed panel of columns from j on for the rows of B from k0 on, and in its capacity those behind it.
func (g *gemmTask) panel(k0, kc, j int) []float32 {
	h := g.height(kc)
	return g.packed[(k0-g.k0)/g.depth*g.panels()*g.nr*g.height(g.depth)+j*h:][:h*g.nr]
}

// packPanels copies kc rows of B from k0 on into panels: rows of nr columns, one behind the other, with zeros where B has ended.
func (g *gemmTask) packPanels(k0, kc, first, last int) {
	j := first * g.nr
	full := min(last, g.n/g.nr)
	if !g.transB && full > first {
		packRows(g.pool.family, kc, full-first, g.nr, g.b[k0*g.ldb+g.j0+j:], g.ldb, g.panel(k0, kc, j)[:(full-first)*g.nr*kc])
		first = full
	}
	for ; first < last; first++ {
		j := first * g.nr
		w, dst := min(g.nr, g.n-j), g.panel(k0, kc, j)
		if g.transB {
			packTransposed(g.pool.family, kc, w, g.nr, g.b[(g.j0+j)*g.ldb+k0:], g.ldb, dst)
			continue
		}
		for r := range kc {
			d := dst[r*g.nr:][:g.nr]
			clear(d[copy(d, g.b[(k0+r)*g.ldb+g.j0+j:][:w]):])
		}
	}
}

// compute computes rows i0 to i1 and columns j0 to j1 of C.
func (g *gemmTask) compute(s *space, i0, i1, j0, j1 int) {
	if g.transA || g.round {
		s.a = grow(s.a, (i1-i0)*g.height(g.depth))
	}
	s.tile, s.bias = grow(s.tile, g.mr*g.nr), grow(s.bias, g.nr)
	for k0 := g.k0; k0 == g.k0 || k0 < g.k1; k0 += g.depth {
		kc := min(g.depth, g.k1-k0)
		h := g.height(kc)
		flags := g.flags(k0, kc)
		if g.transA && kc > 0 {
			g.packA(s, i0, i1, k0, kc)
		}
		for j := j0; j < j1; j += g.nr {
			columns := min(g.nr, j1-j)
			for i := i0; i < i1; {
				t := tileRows(g.pool.family, i1-i)
				x, rs, cs := unsafe.Pointer(nil), 4*g.lda, 4
				switch {
				case kc == 0:
				case g.transA:
					x, rs, cs = unsafe.Pointer(&s.a[(i-i0)*h]), 4, 4*t
				case g.round:
					if j == j0 { // just before the tile reads them
						for r := i; r < i+t; r++ {
							if to := s.a[(r-i0)*h:]; g.pairs {
								g.packRow(r*g.lda+k0, kc, to)
							} else {
								g.round16(r*g.lda+k0, to[:kc])
							}
						}
					}
					x, rs = unsafe.Pointer(&s.a[(i-i0)*h]), 4*h
				default:
					x = unsafe.Pointer(&g.a[i*g.lda+k0])
				}
				g.tile(s, flags, kc, (*float32)(x), rs, cs, i, t, j, columns, k0)
				if g.e.Act > Relu && k0+kc == g.k { // while the tile is in the nearest cache
					for r := i; r < i+t; r++ {
						g.e.Act.apply(g.c[r*g.ldc+g.j0+j:][:columns])
					}
				}
				i += t
			}
		}
	}
}

// flags are those of tiles over kc rows of B from k0 on.
func (g *gemmTask) flags(k0, kc int) (flags int) {
	if k0 > 0 || g.e.Add {
		flags |= flagAdd
	}
	if k0+kc == g.k {
		if g.e.Bias != nil {
			flags |= flagBias
		}
		if g.e.Act == Relu {
			flags |= flagRelu
		}
	}
	return flags
}

// round16 copies numbers of A from a place on, rounded.
func (g *gemmTask) round16(at int, to []float32) {
	if g.half != nil {
		fromBF16(g.pool.family, to, g.half[at:][:len(to)])
		return
	}
	roundBF16(g.pool.family, g.a[at:][:len(to)], to)
}

// packA copies rows i0 to i1 of a transposed A, tile by tile, so that the columns of a tile are without gaps.
func (g *gemmTask) packA(s *space, i0, i1, k0, kc int) {
	if g.pairs {
		g.packPairsOfA(s, i0, i1, k0, kc)
		return
	}
	if g.half != nil {
		g.packHalf(s, i0, i1, k0, kc)
		return
	}
	for i := i0; i < i1; {
		t := tileRows(g.pool.family, i1-i)
		packColumns(g.pool.family, kc, t, g.a[k0*g.lda+i:], g.lda, s.a[(i-i0)*kc:])
		i += t
	}
	if g.round {
		packed := s.a[:(i1-i0)*kc]
		roundBF16(g.pool.family, packed, packed)
	}
}

// packHalf is packA of 16 bits: what is widened is a row of A's columns at a time.
func (g *gemmTask) packHalf(s *space, i0, i1, k0, kc int) {
	s.row = grow(s.row, i1-i0)
	for r := range kc {
		g.round16((k0+r)*g.lda+i0, s.row)
		for i := i0; i < i1; {
			t := tileRows(g.pool.family, i1-i)
			copy(s.a[(i-i0)*kc+r*t:][:t], s.row[i-i0:])
			i += t
		}
	}
}

// tile computes a tile of rows rows and columns columns at i, j.
func (g *gemmTask) tile(s *space, flags, kc int, x *float32, rs, cs, i, rows, j, columns, k0 int) {
	var bp, bias *float32
	if kc > 0 {
		bp = &g.panel(k0, kc, j)[0]
	}
	f, width := tileOf(g.pool.family, rows, columns)
	if g.pairs {
		f, kc = tilesPairs[rows][width/16-1], g.height(kc)
	}
	at := i*g.ldc + g.j0 + j
	if columns == width {
		if flags&flagBias != 0 {
			bias = &g.e.Bias[g.j0+j]
		}
		f(kc, x, rs, cs, bp, &g.c[at], 4*g.ldc, flags, bias)
		return
	}
	// The same tile beside C, so that nothing beyond its columns is touched.
	for r := range rows {
		d := s.tile[r*width:][:width]
		clear(d)
		if flags&flagAdd != 0 {
			copy(d, g.c[at+r*g.ldc:][:columns])
		}
	}
	if flags&flagBias != 0 {
		clear(s.bias[copy(s.bias, g.e.Bias[g.j0+j:][:columns]):])
		bias = &s.bias[0]
	}
	f(kc, x, rs, cs, bp, &s.tile[0], 4*width, flags, bias)
	for r := range rows {
		copy(g.c[at+r*g.ldc:][:columns], s.tile[r*width:])
	}
}
