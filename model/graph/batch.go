package graph

// similarity is the inner products of rows with rows.
type similarity struct{ plain }

// Similarity is the inner product of each row of x with each row of y: [rows, dim] and [rows, dim] -> pairs,
// Sᵢⱼ = ⟨xᵢ, yⱼ⟩. The other rows of the batch are then what a row is distinguished from (in-batch negatives; Yi et al., 2019,
// section 3). The value depends on the other rows of the batch.
func (b *Builder) Similarity(x, y Node) Node { return b.apply(&similarity{}, 1, x, y) }

func (*similarity) name() string             { return "similarity" }
func (*similarity) readsBack(value int) bool { return value != ownValue }
func (o *similarity) String() string         { return o.name() }

func (*similarity) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 2); err != nil {
		return Shape{}, err
	}
	if err := kindOf(in[0], PerRow); err != nil {
		return Shape{}, err
	}
	return Shape{Kind: PerPair}, alike(in)
}

func (*similarity) flops(*Graph, *node, float64) float64 { return 0 }

func (o *similarity) forward(s *Session, n *node) {
	dim := s.g.nodes[n.inputs[0]].dim
	s.gemm(false, true, s.rows, s.rows, dim, s.vals[n.inputs[0]], s.vals[n.inputs[1]], s.vals[n.id], false)
}

func (o *similarity) backward(s *Session, n *node) {
	dim, dz := s.g.nodes[n.inputs[0]].dim, s.grads[n.id]
	x, y := s.vals[n.inputs[0]], s.vals[n.inputs[1]]
	if dx := s.gradSum(n.inputs[0]); dx != nil {
		s.gemm(false, false, s.rows, dim, s.rows, dz, y, dx, true)
	}
	if dy := s.gradSum(n.inputs[1]); dy != nil {
		s.gemm(true, false, s.rows, dim, s.rows, dz, x, dy, true)
	}
}

func (o *similarity) reference(e *evaluation, n *node) []float64 {
	rows, dim := e.in.NumRows, e.g.nodes[n.inputs[0]].dim
	x, y := e.vals[n.inputs[0]], e.vals[n.inputs[1]]
	out := make([]float64, rows*rows)
	for i := range rows {
		for j := range rows {
			for k := range dim {
				out[i*rows+j] += x[i*dim+k] * y[j*dim+k]
			}
		}
	}
	return out
}

// diagonal is each row's pair with itself.
type diagonal struct{ plain }

// Diagonal is the number of each row's pair with itself: pairs -> [rows, 1].
func (b *Builder) Diagonal(x Node) Node { return b.apply(&diagonal{}, 1, x) }

func (*diagonal) name() string       { return "diagonal" }
func (*diagonal) readsBack(int) bool { return false }
func (o *diagonal) String() string   { return o.name() }

func (*diagonal) bind(_ *Builder, in []Node) (Shape, error) { return perRow(1), one(in, PerPair) }

func (*diagonal) flops(*Graph, *node, float64) float64 { return 0 }

func (o *diagonal) forward(s *Session, n *node) {
	x, y := s.vals[n.inputs[0]], s.vals[n.id]
	for r := range y {
		y[r] = x[r*(s.rows+1)]
	}
}

func (o *diagonal) backward(s *Session, n *node) {
	dx := s.gradSum(n.inputs[0])
	for r, d := range s.grads[n.id] {
		dx[r*(s.rows+1)] += d
	}
}

func (o *diagonal) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows)
	for r := range out {
		out[r] = e.vals[n.inputs[0]][r*e.in.NumRows+r]
	}
	return out
}

// batchMean is the mean of each column.
type batchMean struct{ plain }

// BatchMean is the mean of each column over all rows, entries or pairs of the batch: [rows, dim] -> [1, dim], pairs -> [1, 1].
// An empty batch gives zeros.
func (b *Builder) BatchMean(x Node) Node { return b.apply(&batchMean{}, x.shape.Dim, x) }

func (*batchMean) name() string       { return "batch_mean" }
func (*batchMean) readsBack(int) bool { return false }
func (o *batchMean) String() string   { return o.name() }

func (*batchMean) bind(_ *Builder, in []Node) (Shape, error) {
	if err := one(in, PerRow, PerEntry, PerPair); err != nil {
		return Shape{}, err
	}
	return Shape{Kind: PerBatch, Dim: max(in[0].shape.Dim, 1)}, nil
}

func (*batchMean) flops(*Graph, *node, float64) float64 { return 0 }

func (o *batchMean) forward(s *Session, n *node) {
	x, y := s.vals[n.inputs[0]], s.vals[n.id]
	clear(y)
	if len(x) == 0 {
		return
	}
	sumRows(y, x)
	scale(y, float32(n.dim)/float32(len(x)))
}

func (o *batchMean) backward(s *Session, n *node) {
	dx, dy := s.gradSum(n.inputs[0]), s.grads[n.id]
	if dx == nil {
		return
	}
	factor := float32(n.dim) / float32(max(len(dx), 1))
	for at := 0; at < len(dx); at += n.dim {
		addScaled(dx[at:][:n.dim], dy, factor)
	}
}

func (o *batchMean) reference(e *evaluation, n *node) []float64 {
	out, x := make([]float64, n.dim), e.vals[n.inputs[0]]
	for i, v := range x {
		out[i%n.dim] += v * float64(n.dim) / float64(len(x))
	}
	return out
}

// broadcast gives each row the batch's vector.
type broadcast struct{ plain }

// Broadcast gives each row the vector of the batch: [1, dim] -> [rows, dim].
func (b *Builder) Broadcast(x Node) Node { return b.apply(&broadcast{}, x.shape.Dim, x) }

func (*broadcast) name() string       { return "broadcast" }
func (*broadcast) readsBack(int) bool { return false }
func (o *broadcast) String() string   { return o.name() }

func (*broadcast) bind(_ *Builder, in []Node) (Shape, error) {
	if err := one(in, PerBatch); err != nil {
		return Shape{}, err
	}
	return perRow(in[0].shape.Dim), nil
}

func (*broadcast) flops(*Graph, *node, float64) float64 { return 0 }

func (o *broadcast) forward(s *Session, n *node) {
	x, y := s.vals[n.inputs[0]], s.vals[n.id]
	for r := range s.rows {
		copy(y[r*n.dim:], x)
	}
}

func (o *broadcast) backward(s *Session, n *node) {
	if dx := s.gradSum(n.inputs[0]); dx != nil {
		sumRows(dx, s.grads[n.id])
	}
}

func (o *broadcast) reference(e *evaluation, n *node) []float64 {
	var out []float64
	for range e.in.NumRows {
		out = append(out, e.vals[n.inputs[0]]...)
	}
	return out
}
