package graph

import (
	"errors"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/internal/simd"
)

// fm is the second-order term of a factorization machine.
type fm struct {
	plain
	Dim int `json:"dim"`
	dim int
}

// fmState keeps the sums of the fields' vectors [rows, dim] for the way back.
type fmState struct{ sums []float32 }

// FM adds up the inner products of all pairs of fields, whatever was pooled into each: x [rows, fields·dim] -> [rows, 1],
//
//	Σᵢ<ⱼ ⟨vᵢ, vⱼ⟩ = ½ Σₖ ((Σᵢ vᵢₖ)² - Σᵢ vᵢₖ²)
//
// (Rendle, 2010, lemma 3.1, with the numbers already multiplied into the vectors). Two entries of one field do not meet:
// [Builder.FMEntries] is the paper's model.
func (b *Builder) FM(x Node, dim int) Node { return b.apply(&fm{Dim: dim}, 1, x) }

func (*fm) name() string             { return "fm" }
func (*fm) readsBack(value int) bool { return value != ownValue }
func (o *fm) String() string         { return fmt.Sprintf("fm[dim %d]", o.Dim) }

func (o *fm) bind(_ *Builder, in []Node) (Shape, error) {
	if err := one(in, PerRow); err != nil {
		return Shape{}, err
	}
	if o.Dim < 1 || in[0].shape.Dim%o.Dim != 0 {
		return Shape{}, fmt.Errorf("%d columns are not vectors of %d", in[0].shape.Dim, o.Dim)
	}
	o.dim = o.Dim
	return perRow(1), nil
}

func (o *fm) flops(g *Graph, n *node, _ float64) float64 {
	return 3*float64(g.nodes[n.inputs[0]].dim) + 2*float64(o.dim)
}

func (o *fm) newState() any { return &fmState{} }

func (o *fm) forward(s *Session, n *node) {
	st := s.state[n.id].(*fmState)
	st.sums = resize(st.sums, s.rows*o.dim)
	s.divide(o, n, ahead, s.rows, s.g.nodes[n.inputs[0]].dim, 1)
}

// block uses d/dvᵢₖ = Σⱼ vⱼₖ - vᵢₖ.
func (o *fm) block(s *Session, n *node, p pass, from, to int) {
	x, width, sums := s.vals[n.inputs[0]], s.g.nodes[n.inputs[0]].dim, s.state[n.id].(*fmState).sums
	for r := from; r < to; r++ {
		sums, x := sums[r*o.dim:][:o.dim], x[r*width:][:width]
		if p == ahead {
			s.vals[n.id][r] = simd.FM(x, sums)
		} else {
			simd.AddFMGrad(s.grads[n.id][r], x, sums, s.work.into[r*width:][:width])
		}
	}
}

// addVectors adds the vectors of len(sums) numbers that x is made of to sums, and their squares to squares.
func addVectors(sums, x []float32, squares float32) float32 {
	dim := len(sums)
	for at := 0; at < len(x); at += dim {
		for k, v := range x[at:][:dim] {
			sums[k] += v
			squares += v * v
		}
	}
	return squares
}

// halfDifference is ½ (Σₖ sumsₖ² - squares).
func halfDifference(sums []float32, squares float32) float32 {
	total := float32(0)
	for _, v := range sums {
		total += v * v
	}
	return 0.5 * (total - squares)
}

// addOthers adds d·(sums - v) to dst for each vector v that x is made of: d times the vectors that v meets.
func addOthers(dst, x, sums []float32, d float32) {
	simd.AddFMGrad(d, x, sums, dst)
}

func (o *fm) backward(s *Session, n *node) {
	s.work.into = s.gradSum(n.inputs[0])
	s.divide(o, n, back, s.rows, s.g.nodes[n.inputs[0]].dim, 1)
}

// reference adds up the pairs themselves.
func (o *fm) reference(e *evaluation, n *node) []float64 {
	out, width := make([]float64, e.in.NumRows), e.g.nodes[n.inputs[0]].dim
	for r := range out {
		row := e.vals[n.inputs[0]][r*width : (r+1)*width]
		for i := 0; i < width; i += o.dim {
			for j := i + o.dim; j < width; j += o.dim {
				for k := range o.dim {
					out[r] += row[i+k] * row[j+k]
				}
			}
		}
	}
	return out
}

// fmEntries is the second-order term of a factorization machine over the entries of its features.
type fmEntries struct {
	plain
	pool *pool
	dim  int
	// others is how many of the inputs are vectors of their own, the pooled ones included; after them come values over
	// entries that the pool does not read from a table.
	others int
}

// fmEntriesState keeps the sums of the entries' vectors [rows, dim] for the way back, and which of the pool's features have
// rows with more than one entry.
type fmEntriesState struct {
	sums     []float32
	squares  []float32 // of each column, where the entries are gathered from the tables
	multiple []bool
	any      bool // one of multiple is true
}

// FMEntries adds up the inner products of all pairs of entries, which is the second-order term of Rendle (2010, equation
// 1) over every xᵢ that is not zero:
//
//	Σᵢ<ⱼ ⟨vᵢ, vⱼ⟩ xᵢxⱼ = ½ Σₖ ((Σᵢ vᵢₖxᵢ)² - Σᵢ vᵢₖ²xᵢ²)
//
// pooled is what [Builder.Pool] gives: its entries are those of the features, each weighed by its value and its combiner's
// share, so that entries of one feature meet each other too. others [rows, n·dim] are n further entries each.
// The first sum runs over the pooled vectors. The second is theirs where a feature has one entry in a row; elsewhere the
// entries are gathered once more. So a row costs O(entries·dim), nothing is padded, and with one entry a feature the result
// is that of [Builder.FM] over the same vectors to the last bit.
func (b *Builder) FMEntries(pooled Node, others ...Node) Node {
	return b.apply(&fmEntries{}, 1, append([]Node{pooled}, others...)...)
}

func (*fmEntries) name() string             { return "fm_entries" }
func (*fmEntries) readsBack(value int) bool { return value != ownValue }
func (o *fmEntries) String() string         { return fmt.Sprintf("fm_entries[dim %d]", o.dim) }

func (o *fmEntries) bind(b *Builder, in []Node) (Shape, error) {
	if len(in) == 0 {
		return Shape{}, errors.New("no values")
	}
	p, ok := b.nodes[in[0].id].op.(*pool)
	if !ok {
		return Shape{}, fmt.Errorf("%s is not pooled", b.nodes[in[0].id].op)
	}
	if p.dim == 0 || slices.Contains(p.Combiners, Max) {
		return Shape{}, errors.New("what is pooled must have vectors of one width, and be summed or averaged")
	}
	for _, x := range in[1:] {
		if err := kindOf(x, PerRow); err != nil {
			return Shape{}, err
		}
		if x.shape.Dim%p.dim != 0 {
			return Shape{}, fmt.Errorf("%d columns are not vectors of %d", x.shape.Dim, p.dim)
		}
	}
	o.pool, o.dim, o.others = p, p.dim, len(in)
	return perRow(1), nil
}

// compile reads the entries from where the pool reads them.
func (o *fmEntries) compile(before []node, n *node, _ bool) (op, []int) {
	c := &fmEntries{pool: before[n.inputs[0]].op.(*pool), dim: o.dim, others: o.others}
	return c, append(slices.Clone(n.inputs), before[n.inputs[0]].inputs...)
}

func (o *fmEntries) flops(g *Graph, n *node, entries float64) float64 {
	sum := 2 * float64(o.dim)
	for i, in := range n.inputs[:o.others] {
		f := 3 * float64(g.nodes[in].dim)
		if i == 0 {
			f *= entries
		}
		sum += f
	}
	return sum
}

func (o *fmEntries) newState() any { return &fmEntriesState{} }

// gathers: without others, the sums over the entries are all there is.
func (o *fmEntries) gathers(*pool) bool { return o.others == 1 }

// gathersNow: with one entry in a row at most, a pooled vector is that of the entry.
func (*fmEntries) gathersNow(s *Session, p *pool) bool {
	for i := range p.parts {
		if e := &s.entries[p.parts[i].list]; !e.Single() || e.Weighted() {
			return false
		}
	}
	return true
}

// blockRows is for how many rows the sums and squares of entries lie in a near cache.
func (o *fmEntries) blockRows() int { return max((1<<13)/o.dim, 8) }

// sum gathers the entries' vectors, feature by feature, for a few rows at a time.
func (o *fmEntries) sum(s *Session, n *node, st *fmEntriesState, first, last int) {
	for from, size := first, o.blockRows(); from < last; from += size {
		to := min(from+size, last)
		sums, squares := st.sums[from*o.dim:to*o.dim], st.squares[from*o.dim:to*o.dim]
		clear(sums)
		clear(squares)
		for i := range o.pool.parts {
			p := &o.pool.parts[i]
			l := p.source
			simd.AddFMEntries(p.entriesOf(s, from, to), o.dim, s.in.Values[l.table], l.lo, l.stride, sums, squares)
		}
		simd.FinishFM(s.vals[n.id][from:to], sums, squares, o.dim)
	}
}

// spreadGathered adds to the gradients of the entries of some parts: a few rows at a time where a fid is in one part only, as it has its
// gradients summed in the order of parts, then of rows.
func (o *fmEntries) spreadGathered(s *Session, n *node, parts []part) {
	st, size := s.state[n.id].(*fmEntriesState), s.rows
	if o.pool.apart(s) {
		size = o.blockRows()
	}
	for from := 0; from < s.rows; from += size {
		to := min(from+size, s.rows)
		for i := range parts {
			p := &parts[i]
			l := p.source
			simd.SpreadFMEntries(s.grads[n.id][from:to], p.entriesOf(s, from, to), o.dim, s.in.Values[l.table], l.lo, l.stride,
				st.sums[from*o.dim:to*o.dim], s.tableGrads[l.table])
		}
	}
}

func (o *fmEntries) forward(s *Session, n *node) {
	st := s.state[n.id].(*fmEntriesState)
	st.sums = resize(st.sums, s.rows*o.dim)
	if s.gathered[n.inputs[0]] {
		st.squares = resize(st.squares, s.rows*o.dim)
		s.divide(o, n, ahead, s.rows, o.dim*len(o.pool.parts), 1)
		return
	}
	o.findMultiple(s, st)
	s.divide(o, n, ahead, s.rows, s.g.nodes[n.inputs[0]].dim, 1)
}

// block is of rows, but of parts back where they are gathered.
func (o *fmEntries) block(s *Session, n *node, p pass, from, to int) {
	st := s.state[n.id].(*fmEntriesState)
	switch gathered := s.gathered[n.inputs[0]]; {
	case gathered && p == ahead:
		o.sum(s, n, st, from, to)
		return
	case gathered:
		o.spreadGathered(s, n, o.pool.parts[from:to])
		return
	case p == back:
		o.spread(s, n, from, to)
		return
	}
	y := s.vals[n.id]
	for r := from; r < to; r++ {
		sums := st.sums[r*o.dim:][:o.dim]
		if o.others == 1 && o.single(s, st, r) { // whatever other rows have, so that bits do not depend on them
			width := s.g.nodes[n.inputs[0]].dim
			y[r] = simd.FM(s.vals[n.inputs[0]][r*width:][:width], sums)
			continue
		}
		clear(sums)
		squares := float32(0)
		for i, in := range n.inputs[:o.others] {
			width := s.g.nodes[in].dim
			x := s.vals[in][r*width:][:width]
			if i > 0 || !st.any {
				squares = addVectors(sums, x, squares)
				continue
			}
			for f := range st.multiple {
				vector := x[f*o.dim:][:o.dim]
				if st.multiple[f] && o.count(s, f, r) > 1 {
					add(sums, vector)
					squares = o.addSquares(s, f, r, squares)
				} else {
					squares = addVectors(sums, vector, squares)
				}
			}
		}
		y[r] = halfDifference(sums, squares)
	}
}

// findMultiple notes the features that have a row with more than one entry.
func (o *fmEntries) findMultiple(s *Session, st *fmEntriesState) {
	if st.multiple == nil {
		st.multiple = make([]bool, len(o.pool.parts))
	}
	st.any = false
	for f, p := range o.pool.parts {
		offsets := s.in.Sparse[p.list].Offsets
		st.multiple[f] = false
		for r := range s.rows {
			if offsets[r+1]-offsets[r] > 1 {
				st.multiple[f], st.any = true, true
				break
			}
		}
	}
}

// single reports whether no feature has more than one entry in row r.
func (o *fmEntries) single(s *Session, st *fmEntriesState, r int) bool {
	if !st.any {
		return true
	}
	for f, multiple := range st.multiple {
		if multiple && o.count(s, f, r) > 1 {
			return false
		}
	}
	return true
}

// count is the number of entries of feature f in row r.
func (o *fmEntries) count(s *Session, f, r int) int {
	offsets := s.in.Sparse[o.pool.parts[f].list].Offsets
	return int(offsets[r+1] - offsets[r])
}

// addSquares adds vᵢₖ²xᵢ² of the entries of feature f in row r to sum.
func (o *fmEntries) addSquares(s *Session, f, r int, sum float32) float32 {
	p := &o.pool.parts[f]
	ragged := &s.in.Sparse[p.list]
	from, to := ragged.Offsets[r], ragged.Offsets[r+1]
	factor := p.factor(int(to - from))
	if p.input >= 0 {
		for _, v := range s.vals[p.input][int(from)*o.dim : int(to)*o.dim] {
			sum += (factor * v) * (factor * v)
		}
		return sum
	}
	values, l := s.in.Values[p.source.table], p.source
	for at := from; at < to; at++ {
		x := factor
		if ragged.Values != nil {
			x *= ragged.Values[at]
		}
		for _, v := range values[int(ragged.Index[at])*l.stride+l.lo:][:o.dim] {
			sum += (x * v) * (x * v)
		}
	}
	return sum
}

// backward uses d/dvᵢₖ = xᵢ·Σⱼ vⱼₖxⱼ - vᵢₖxᵢ². Where a feature has one entry in a row, both terms go through its pooled
// vector; elsewhere the first does, and the second goes to the entries' rows themselves.
func (o *fmEntries) backward(s *Session, n *node) {
	if s.gathered[n.inputs[0]] {
		if o.pool.apart(s) {
			s.divide(o, n, back, len(o.pool.parts), s.rows*o.dim, 1)
		} else {
			o.spreadGathered(s, n, o.pool.parts)
		}
		return
	}
	st := s.state[n.id].(*fmEntriesState)
	for i, in := range n.inputs[:o.others] {
		s.work.into, s.work.item = s.gradSum(in), i
		switch width := s.g.nodes[in].dim; {
		case s.work.into == nil:
		case i == 0 && st.any: // rows of entries have fids in common
			o.spread(s, n, 0, s.rows)
		default:
			s.divide(o, n, back, s.rows, width, 1)
		}
	}
}

// spread is backward of one input, for some rows.
func (o *fmEntries) spread(s *Session, n *node, first, last int) {
	st := s.state[n.id].(*fmEntriesState)
	i, dx, in := s.work.item, s.work.into, n.inputs[s.work.item]
	x, width := s.vals[in], s.g.nodes[in].dim
	for r := first; r < last; r++ {
		d := s.grads[n.id][r]
		sums, dst, x := st.sums[r*o.dim:][:o.dim], dx[r*width:][:width], x[r*width:][:width]
		if i > 0 || !st.any {
			addOthers(dst, x, sums, d)
			continue
		}
		for f := range st.multiple {
			at := f * o.dim
			if st.multiple[f] && o.count(s, f, r) > 1 {
				addScaled(dst[at:][:o.dim], sums, d)
				o.subtractOwn(s, f, r, d)
			} else {
				addOthers(dst[at:][:o.dim], x[at:][:o.dim], sums, d)
			}
		}
	}
}

// subtractOwn takes d·vᵢₖxᵢ² off the gradients of the entries of feature f in row r.
func (o *fmEntries) subtractOwn(s *Session, f, r int, d float32) {
	p := &o.pool.parts[f]
	ragged := &s.in.Sparse[p.list]
	from, to := ragged.Offsets[r], ragged.Offsets[r+1]
	factor := p.factor(int(to - from))
	if p.input >= 0 {
		if dx := s.gradSum(p.input); dx != nil {
			addScaled(dx[int(from)*o.dim:int(to)*o.dim], s.vals[p.input][int(from)*o.dim:], -d*factor*factor)
		}
		return
	}
	l := p.source
	values, dvalues := s.in.Values[l.table], s.tableGrads[l.table]
	for at := from; at < to; at++ {
		x := factor
		if ragged.Values != nil {
			x *= ragged.Values[at]
		}
		place := int(ragged.Index[at])*l.stride + l.lo
		addScaled(dvalues[place:][:o.dim], values[place:][:o.dim], -d*x*x)
	}
}

// reference adds up the pairs of entries themselves.
func (o *fmEntries) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows)
	for r := range out {
		var entries [][]float64
		for i := range o.pool.parts {
			entries = append(entries, o.pool.parts[i].entries(e, r)...)
		}
		for _, in := range n.inputs[1:o.others] {
			width := e.g.nodes[in].dim
			for at := r * width; at < (r+1)*width; at += o.dim {
				entries = append(entries, e.vals[in][at:at+o.dim])
			}
		}
		for i := range entries {
			for j := range i {
				for k, v := range entries[i] {
					out[r] += v * entries[j][k]
				}
			}
		}
	}
	return out
}
