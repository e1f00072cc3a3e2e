package simd

import "unsafe"

// Gemv computes y = op(A)·x, or adds it to y: for row-major A, m by n with rows lda floats apart, y[m] = A·x[n], or with trans
// y[n] = Aᵀ·x[m]. Each element is a sum whose order depends on its length alone, with trans
// from the first row to the last. So threads and parts of A give the same bits. It allocates nothing.
func (p *Pool) Gemv(trans bool, m, n int, a []float32, lda int, x, y []float32, add bool) {
	checkMatrix("A", false, m, n, len(a), lda)
	m, n = max(m, 0), max(n, 0)
	rows, columns := m, n
	if trans {
		rows, columns = n, m
	}
	x, y = x[:columns], y[:rows]
	if m == 0 || n == 0 {
		if !add {
			clear(y)
		}
		return
	}
	g := &p.gemv
	g.trans, g.m, g.n, g.a, g.lda, g.x, g.y, g.add = trans, m, n, a, lda, x, y, add
	g.parts = 1
	if threads := p.Threads(); threads > 1 && m*n >= gemvParallel {
		g.parts = min(2*threads, (rows+gemvUnit-1)/gemvUnit)
	}
	p.Run(g.parts, g)
	g.a, g.x, g.y = nil, nil, nil
}

const (
	// gemvParallel is from how many elements of A on a second thread is worth waking: those are read in some microseconds.
	gemvParallel = 64 << 10
	// gemvUnit is the number of elements of y of which parts are multiples: four cache lines.
	gemvUnit = 64
)

// gemvTask is one call of Gemv.
type gemvTask struct {
	pool  *Pool
	trans bool
	m, n  int
	a     []float32
	lda   int
	x, y  []float32
	add   bool
	parts int
}

// Block computes a part of y.
func (g *gemvTask) Block(_, block int) {
	units := (len(g.y) + gemvUnit - 1) / gemvUnit
	from, to := part(block, g.parts, units, gemvUnit, len(g.y)), part(block+1, g.parts, units, gemvUnit, len(g.y))
	if from == to {
		return
	}
	y := g.y[from:to]
	if !g.add {
		clear(y)
	}
	if g.trans {
		gemvTrans(g.pool.family, g.m, len(y), g.a[from:], g.lda, g.x, y)
	} else {
		gemvRows(g.pool.family, len(y), g.n, g.a[from*g.lda:], g.lda, g.x, y)
	}
}

// gemvRows adds the products of rows and x to y.
func gemvRows(f Family, rows, n int, a []float32, lda int, x, y []float32) {
	px, py := unsafe.SliceData(x), unsafe.SliceData(y)
	switch f {
	case AVX512:
		gemvRowsAVX512(rows, n, unsafe.SliceData(a), 4*lda, px, py)
	case AVX2:
		gemvRowsAVX2(rows, n, unsafe.SliceData(a), 4*lda, px, py)
	default:
		for r := range rows {
			sum := float32(0)
			for i, v := range a[r*lda:][:n] {
				sum += float32(v * x[i])
			}
			y[r] += sum
		}
	}
}

// gemvTrans adds rows times elements of x to y, from the first to the last.
func gemvTrans(f Family, rows, n int, a []float32, lda int, x, y []float32) {
	px, py := unsafe.SliceData(x), unsafe.SliceData(y)
	switch f {
	case AVX512:
		gemvColumnsAVX512(rows, n, unsafe.SliceData(a), 4*lda, px, py)
	case AVX2:
		gemvColumnsAVX2(rows, n, unsafe.SliceData(a), 4*lda, px, py)
	default:
		for r := range rows {
			addScaledGo(x[r], a[r*lda:][:n], y)
		}
	}
}
