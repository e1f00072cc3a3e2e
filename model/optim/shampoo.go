package optim

import (
	"fmt"
	"math"
	"sync"

	"gonum.org/v1/gonum/blas"
	blasgonum "gonum.org/v1/gonum/blas/gonum"
	"gonum.org/v1/gonum/lapack"
	"gonum.org/v1/gonum/lapack/gonum"

	"github.com/monolith-go/monolith/internal/simd"
)

// The settings of a [Shampoo] that names none (bytedance/monolith: ShampooOptimizer), but for the last, which is ours.
const (
	DefaultShampooLR      = 0.03
	DefaultShampooBeta1   = 0.9
	DefaultShampooBeta2   = 1
	DefaultShampooWarmUp  = 5000
	DefaultShampooRefresh = 200
	DefaultShampooEvery   = 20
	DefaultShampooDamping = 1e-3
	DefaultShampooMaxDim  = 512
)

// Shampoo preconditions the gradient of a matrix from both sides (Gupta, Koren and Singer, 2018, "Shampoo: Preconditioned Stochastic Tensor Optimization", algorithm 1), with the
// warm-up and the length of the steps of bytedance/monolith's ShampooOptimizer. At update t of a tensor with gradient G, all of it element by element but for L, R and P:
//
//	t a multiple of Every:    L = β2ᵉ·L + c·G·Gᵀ    R = β2ᵉ·R + c·Gᵀ·G       e = Every, c = e with β2 = 1, else 1-β2ᵉ
//	d = d + G²
//	m = m + (G/√d - m)·(1-β1)
//	t > WarmUp:               p = p + (P_L·G·P_R - p)·(1-β1)
//	w = w - lr·((1-r)·m + r·‖m‖/‖p‖·p)                                       r = min(max(t/WarmUp - 1, 0), 1)
//
// P_L = L^(-1/4) and P_R = R^(-1/4) are made again at update WarmUp+1 and at multiples of Refresh behind it, of eigenvalues that are Damping at least. So steps are those of Adagrad with momentum
// at first, and later as long as those in the direction that the preconditioners give. A vector has one matrix, R^(-1/2) (algorithm 2 of order 1); a tensor of more than two dimensions is the matrix of its
// last against all others. Of an axis that is longer than MaxDim the diagonal alone is kept, the paper's diagonal variant.
//
// It differs from upstream where that has no reason: between two gradients that are added to L, upstream adds the last one again at each step; it keeps some eigenvectors of P and the mean of the rest, which
// it takes of the wrong eigenvalues; and it adds P·G to p before the first P is there. Here P is whole.
//
// It is a rule of dense tensors, not of rows: see [Shaped]. One update takes 2·rows·columns·(rows+columns) multiplications and additions, one refresh about 10·n³ for each axis of n. State: m [dim], p [dim], d [dim],
// of each axis of n the statistics and the preconditioner, [n, n] each, or [n] where n is above MaxDim, and t in two numbers.
//
// Bits are the same on processors of one architecture with the same kernels.
type Shampoo struct {
	// LR is the learning rate, above 0; 0 means [DefaultShampooLR].
	LR float32 `json:"lr"`
	// Beta1 is the decay of m and p in (0, 1); 0 means [DefaultShampooBeta1].
	Beta1 float32 `json:"beta1"`
	// Beta2 is the decay of L and R for each update, in (0, 1]; 1 sums them up. 0 means [DefaultShampooBeta2].
	Beta2 float32 `json:"beta2"`
	// WarmUp is how many updates have Adagrad's steps alone, and over how many more the preconditioned ones take their place; 0 means [DefaultShampooWarmUp].
	WarmUp int `json:"warm_up"`
	// Refresh is after how many updates the preconditioners are made again; 0 means [DefaultShampooRefresh].
	Refresh int `json:"refresh"`
	// Every is after how many updates a gradient is added to L and R; 0 means [DefaultShampooEvery].
	Every int `json:"every"`
	// Damping is the least eigenvalue, above 0; 0 means [DefaultShampooDamping].
	Damping float32 `json:"damping"`
	// MaxDim is the longest axis with a whole matrix; 0 means [DefaultShampooMaxDim].
	MaxDim int `json:"max_dim"`

	// rows and columns are those of the tensor, 0 of a vector, and space the memory that its updates compute in.
	rows, columns int
	space         *sync.Pool
}

// Shaped is a rule that goes by the shape of a dense tensor. It is none of rows of a table, whose segments are vectors and many.
type Shaped interface {
	Optimizer
	// OfShape returns the rule for a tensor of a shape. One that is not bound to a shape takes whatever it updates for a vector.
	OfShape(shape []int) Optimizer
}

var _ Shaped = Shampoo{}

// OfShape is o for a dense tensor of a shape, where o goes by it, else o.
func OfShape(o Optimizer, shape []int) Optimizer {
	if s, ok := o.(Shaped); ok {
		return s.OfShape(shape)
	}
	return o
}

// IsShaped reports whether a rule is one of dense tensors, by their shape.
func IsShaped(o Optimizer) bool {
	if r, ok := o.(Rounded); ok {
		return IsShaped(r.Rule)
	}
	_, ok := o.(Shaped)
	return ok
}

// OfShape implements [Shaped].
func (o Shampoo) OfShape(shape []int) Optimizer {
	o.rows, o.columns = 0, 0
	if n := len(shape); n > 1 {
		o.rows, o.columns = 1, shape[n-1]
		for _, d := range shape[:n-1] {
			o.rows *= d
		}
	}
	o.space = &sync.Pool{New: func() any { return newShampooSpace() }}
	return o
}

// WithDefaults returns a copy in which every zero field has its default.
func (o Shampoo) WithDefaults() Shampoo {
	o.LR = orDefault(o.LR, DefaultShampooLR)
	o.Beta1 = orDefault(o.Beta1, DefaultShampooBeta1)
	o.Beta2 = orDefault(o.Beta2, DefaultShampooBeta2)
	o.Damping = orDefault(o.Damping, DefaultShampooDamping)
	for _, s := range []struct {
		of  *int
		def int
	}{{&o.WarmUp, DefaultShampooWarmUp}, {&o.Refresh, DefaultShampooRefresh}, {&o.Every, DefaultShampooEvery}, {&o.MaxDim, DefaultShampooMaxDim}} {
		if *s.of == 0 {
			*s.of = s.def
		}
	}
	return o
}

// maxShampooDim is the longest axis that may have a whole matrix: its statistics and preconditioner take half a gigabyte.
const maxShampooDim = 8192

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o Shampoo) Validate() error {
	o = o.WithDefaults()
	whole := func(name string, v, most int) error {
		if v < 1 || v > most {
			return fmt.Errorf("%s %d is not a whole number from 1 to %d", name, v, most)
		}
		return nil
	}
	var decay error
	if !(o.Beta2 > 0 && o.Beta2 <= 1) {
		decay = fmt.Errorf("beta2 %g is not above 0 and at most 1", o.Beta2)
	}
	return validate(
		o.Name(),
		positive("lr", o.LR),
		fraction("beta1", o.Beta1),
		decay,
		whole("warm_up", o.WarmUp, math.MaxInt32),
		whole("refresh", o.Refresh, math.MaxInt32),
		whole("every", o.Every, math.MaxInt32),
		positive("damping", o.Damping),
		whole("max_dim", o.MaxDim, maxShampooDim),
	)
}

// Name is "shampoo".
func (Shampoo) Name() string { return "shampoo" }

// String renders the rule with every setting.
func (o Shampoo) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("shampoo(lr=%g,beta1=%g,beta2=%g,warm_up=%d,refresh=%d,every=%d,damping=%g,max_dim=%d)",
		o.LR, o.Beta1, o.Beta2, o.WarmUp, o.Refresh, o.Every, o.Damping, o.MaxDim)
}

// shape is the matrix that dim weights are; one that is no such matrix is a vector, of one axis.
func (o Shampoo) shape(dim int) (rows, columns int, vector bool) {
	if o.rows > 0 && o.rows*o.columns == dim {
		return o.rows, o.columns, false
	}
	return 1, dim, true
}

// size is how many numbers the statistics of an axis are, and its preconditioner; o has its defaults.
func (o Shampoo) size(n int) int {
	if n > o.MaxDim {
		return n
	}
	return n * n
}

// StateDim is 3·dim+2, and for each axis twice its matrix or diagonal.
func (o Shampoo) StateDim(dim int) int {
	o = o.WithDefaults()
	rows, columns, vector := o.shape(dim)
	n := 3*dim + 2*o.size(columns) + 2
	if !vector {
		n += 2 * o.size(rows)
	}
	return n
}

// Init clears the state: no gradient yet, t = 0.
func (Shampoo) Init(_, state []float32) { clear(state) }

// shampooAxis is one side of a matrix: of n rows or columns, with a matrix of its own or a diagonal.
type shampooAxis struct {
	n           int
	whole       bool
	stats, root []float32
}

// Update applies one gradient.
func (o Shampoo) Update(w, state, grad []float32, lr float32) {
	o = o.WithDefaults()
	s := takeShampooSpace(o.space)
	dim := len(w)
	rows, columns, vector := o.shape(dim)
	m, p, d, rest := state[:dim], state[dim:2*dim], state[2*dim:3*dim], state[3*dim:]
	axis := func(n int) (a shampooAxis) {
		size := o.size(n)
		a = shampooAxis{n: n, whole: n <= o.MaxDim, stats: rest[:size], root: rest[size : 2*size]}
		rest = rest[2*size:]
		return a
	}
	var left shampooAxis
	if !vector {
		left = axis(rows)
	}
	right := axis(columns)
	t := clock(rest) + 1
	setClock(rest, t)
	grad = grad[:dim]
	if t%int64(o.Every) == 0 {
		if !vector {
			s.observe(left, grad, rows, columns, true, o)
		}
		s.observe(right, grad, rows, columns, false, o)
	}
	if t > int64(o.WarmUp) {
		if t == int64(o.WarmUp)+1 || t%int64(o.Refresh) == 0 {
			power := -0.25
			if vector {
				power = -0.5
			}
			s.invert(left, power, float64(o.Damping))
			s.invert(right, power, float64(o.Damping))
		}
		c := float32(1 - float64(o.Beta1))
		for k, v := range s.precondition(left, right, grad, rows, columns) {
			p[k] += float32((v - p[k]) * c)
		}
	}
	o.step(w, m, p, d, grad, t, float64(o.LR)*float64(lr))
	if o.space != nil {
		o.space.Put(s)
	}
}

// step makes m of the gradient, and moves the weights; o has its defaults.
func (o Shampoo) step(w, m, p, d, grad []float32, t int64, rate float64) {
	c := float32(1 - float64(o.Beta1))
	var diagonal, preconditioned float64
	for k, g := range grad {
		d[k] += float32(g * g)
		u := float32(0)
		if d[k] > 0 {
			u = g / sqrt32(d[k])
		}
		m[k] += float32((u - m[k]) * c)
		diagonal += float64(float64(m[k]) * float64(m[k]))
		preconditioned += float64(float64(p[k]) * float64(p[k]))
	}
	share := min(max(float64(t)/float64(o.WarmUp)-1, 0), 1)
	switch {
	case preconditioned-preconditioned != 0: // beyond float32: it starts over
		clear(p)
		share = 0
	case preconditioned == 0:
		share = 0
	}
	a, b := rate*(1-share), 0.0
	if share > 0 {
		b = rate * share * math.Sqrt(diagonal) / math.Sqrt(preconditioned)
	}
	for k := range w {
		w[k] -= float32(float64(a*float64(m[k])) + float64(b*float64(p[k])))
	}
}

// shampooSpace is what one update computes in.
type shampooSpace struct {
	pool *simd.Pool
	// x and y are gradients on the way, gram a product of one with itself.
	x, y, gram []float32
	// matrix, values and work are of an eigen-decomposition.
	matrix, values, work []float64
}

func newShampooSpace() *shampooSpace { return &shampooSpace{pool: simd.NewPool(1)} }

// takeShampooSpace takes one that is there, or makes it.
func takeShampooSpace(p *sync.Pool) *shampooSpace {
	if p == nil {
		return newShampooSpace()
	}
	return p.Get().(*shampooSpace)
}

// room returns n numbers, x where it is long enough.
func room[T float32 | float64](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// observe adds a gradient to the statistics of an axis, that of the rows or of the columns; o has its defaults.
func (s *shampooSpace) observe(a shampooAxis, grad []float32, rows, columns int, ofRows bool, o Shampoo) {
	s.gram = room(s.gram, len(a.stats))
	switch {
	case a.whole && ofRows:
		s.pool.Gemm(false, true, rows, rows, columns, grad, columns, grad, columns, s.gram, rows, simd.Epilogue{})
	case a.whole:
		s.pool.Gemm(true, false, columns, columns, rows, grad, columns, grad, columns, s.gram, columns, simd.Epilogue{})
	default:
		clear(s.gram)
		for k, g := range grad {
			at := k % columns
			if ofRows {
				at = k / columns
			}
			s.gram[at] += float32(g * g)
		}
	}
	keep := math.Pow(float64(o.Beta2), float64(o.Every))
	added := float32(o.Every)
	if o.Beta2 < 1 {
		added = float32(1 - keep)
	}
	for k, v := range s.gram {
		a.stats[k] = float32(float32(keep)*a.stats[k]) + float32(added*v)
	}
}

// invert makes the preconditioner of an axis, its statistics to a power below 0. Of statistics that are not finite, or whose eigenvalues are not found, there is none: the former one stays.
func (s *shampooSpace) invert(a shampooAxis, power, damping float64) {
	raised := func(v, power float64) float64 { return math.Pow(max(v, damping), power) }
	for _, v := range a.stats {
		if v-v != 0 {
			return
		}
	}
	if !a.whole {
		for k, v := range a.stats {
			a.root[k] = float32(raised(float64(v), power))
		}
		return
	}
	n := a.n
	s.matrix, s.values, s.work = room(s.matrix, n*n), room(s.values, n), room(s.work, 34*n)
	for k, v := range a.stats {
		s.matrix[k] = float64(v)
	}
	if n == 0 || !(gonum.Implementation{}).Dsyev(lapack.EVCompute, blas.Upper, n, s.matrix, n, s.values, s.work, len(s.work)) {
		return
	}
	// V·diag(λ^power)·Vᵀ is a matrix times its own transpose.
	for k, v := range s.values {
		s.values[k] = raised(v, power/2)
	}
	for k := range s.matrix {
		s.matrix[k] *= s.values[k%n]
	}
	for i := range n {
		for j := range i + 1 {
			v := float32((blasgonum.Implementation{}).Ddot(n, s.matrix[i*n:], 1, s.matrix[j*n:], 1))
			a.root[i*n+j], a.root[j*n+i] = v, v
		}
	}
}

// precondition multiplies a gradient by the preconditioners of its axes; left has none where there is but one. What it returns is valid until the next call.
func (s *shampooSpace) precondition(left, right shampooAxis, grad []float32, rows, columns int) []float32 {
	s.x, s.y = room(s.x, len(grad)), room(s.y, len(grad))
	switch {
	case left.n == 0:
		copy(s.x, grad)
	case left.whole:
		s.pool.Gemm(false, false, rows, columns, rows, left.root, rows, grad, columns, s.x, columns, simd.Epilogue{})
	default:
		for k, g := range grad {
			s.x[k] = float32(g * left.root[k/columns])
		}
	}
	if right.whole {
		s.pool.Gemm(false, false, rows, columns, columns, s.x, columns, right.root, columns, s.y, columns, simd.Epilogue{})
		return s.y
	}
	for k, v := range s.x {
		s.y[k] = float32(v * right.root[k%columns])
	}
	return s.y
}
