package trainstep

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
)

// Insight gathers what the features and the dense tensors of a model do, from batches that a [Score] makes predictions of: each batch is predicted once more for each feature, whose values are
// exchanged among its rows meanwhile (permutation importance: Breiman, 2001, "Random Forests", section 10), and differentiated once, as in training, where each entry of a sparse feature has a
// row of its own, so that gradients are those of the entry alone, whatever others have its id. What is found is a function of the seed and of the batches. One worker of one run at a time.
type Insight struct {
	// Features are in the model's order, and so are Tensors.
	Features []FeatureInsight
	Tensors  []TensorInsight
	// Rows is of how many examples all that is, Batches in how many batches.
	Rows, Batches int64

	seed  uint64
	model model.Model
	in    model.Inputs
}

// FeatureInsight is what is known of a feature.
type FeatureInsight struct {
	// Exchanged are the predictions of all rows where the feature has the values of other rows.
	Exchanged metric.Collection
	// Rows is how many rows have a value: an entry, or a number other than 0. Entries is how many entries there are; 0 of a dense feature.
	Rows, Entries int64
	// Squares adds up the squared lengths of the vectors of its entries (of their weights, where a table has no vectors), or of its numbers in a row, and Gradients those of the gradients of a row's loss by an entry's vector.
	Squares, Gradients float64
}

// TensorInsight is what is known of a dense tensor that is trained.
type TensorInsight struct {
	// Index is its place in the layout.
	Index int
	// Gradients adds up the squared lengths of the gradients of the mean losses of batches.
	Gradients float64
	// Moved says of each column, by its last dimension, whether a gradient of one of its numbers was other than 0.
	Moved []bool
}

// NewInsight makes one for a model, which exchanges by a seed.
func NewInsight(m model.Model, seed uint64) *Insight {
	n := &Insight{seed: seed, model: m, Features: make([]FeatureInsight, len(m.Features()))}
	for i, t := range m.Layout().Dense {
		if s, ok := m.(interface{ IsStatistic(i int) bool }); ok && s.IsStatistic(i) {
			continue
		}
		n.Tensors = append(n.Tensors, TensorInsight{Index: i, Moved: make([]bool, t.Shape[len(t.Shape)-1])})
	}
	return n
}

// batch takes one with its scores, whose predictions it leaves as they are. in maps what the model predicts to what was scored.
func (n *Insight) batch(s model.Session, p *Prepared, scores *score.Batch, in *inData) {
	n.Rows, n.Batches = n.Rows+int64(p.in.NumRows), n.Batches+1
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Origin().Split))
	rng := rand.New(rand.NewPCG(n.seed^h.Sum64(), uint64(p.Origin().From)))
	as := *scores
	as.Heads = append([]score.Head(nil), scores.Heads...)
	place := metric.Place{Split: p.Origin().Split, From: int64(p.Origin().From), Positions: p.batch.Positions()}
	sparse, dense := 0, 0
	for i, f := range n.model.Features() {
		from := rng.Perm(p.in.NumRows)
		n.in = p.in
		if f.Kind == model.Dense {
			n.in.Dense = append([][]float32(nil), p.in.Dense...)
			n.in.Dense[dense] = exchangedNumbers(p.in.Dense[dense], from)
			n.Features[i].numbers(p.in.Dense[dense], p.in.NumRows)
			dense++
		} else {
			n.in.Sparse = append([]model.Ragged(nil), p.in.Sparse...)
			n.in.Sparse[sparse] = exchangedEntries(p.in.Sparse[sparse], from)
			sparse++
		}
		as.SetPredictions(in.of(s.Predict(&n.in)))
		n.Features[i].Exchanged.Add(place, &as)
	}
	n.gradients(s, &p.in)
}

// exchangedNumbers has in row r the numbers of row from[r].
func exchangedNumbers(x []float32, from []int) []float32 {
	out, dim := make([]float32, 0, len(x)), len(x)/max(len(from), 1)
	for _, r := range from {
		out = append(out, x[r*dim:(r+1)*dim]...)
	}
	return out
}

// exchangedEntries has in row r the entries of row from[r].
func exchangedEntries(x model.Ragged, from []int) model.Ragged {
	out := model.Ragged{Offsets: make([]int32, 1, len(x.Offsets)), Index: make([]int32, 0, len(x.Index)), Own: x.Own}
	for _, r := range from {
		lo, hi := x.Offsets[r], x.Offsets[r+1]
		out.Index = append(out.Index, x.Index[lo:hi]...)
		if x.Values != nil {
			out.Values = append(out.Values, x.Values[lo:hi]...)
		}
		out.Offsets = append(out.Offsets, int32(len(out.Index)))
	}
	if x.Values != nil && out.Values == nil {
		out.Values = []float32{}
	}
	return out
}

// numbers adds those of a dense feature.
func (f *FeatureInsight) numbers(x []float32, rows int) {
	dim := len(x) / max(rows, 1)
	for r := range rows {
		squares := squared(x[r*dim : (r+1)*dim])
		if f.Squares += squares; squares != 0 {
			f.Rows++
		}
	}
}

func squared(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

// tells reports whether a segment of a table is looked at: vectors, or where there are none the weights. A weight's gradient is that of the prediction, whatever the feature.
func tells(all []param.Segment, s param.Segment) bool {
	if _, counts := s.Optimizer.(optim.BatchSoftmax); counts { // how often an item occurs
		return false
	}
	return s.Dim > 1 || !slices.ContainsFunc(all, func(o param.Segment) bool { return o.Dim > 1 })
}

// gradients differentiates a batch whose entries have rows of their own.
func (n *Insight) gradients(s model.Session, in *model.Inputs) {
	layout, own := n.model.Layout(), *in
	own.Sparse = append([]model.Ragged(nil), in.Sparse...)
	own.Values = make([][]float32, len(in.Values))
	var tables []int // of each sparse feature
	for _, f := range n.model.Features() {
		if f.Kind == model.Sparse {
			tables = append(tables, f.Table)
		}
	}
	for i, t := range tables {
		r, dim := &own.Sparse[i], layout.Tables[t].Dim()
		index := make([]int32, len(r.Index))
		for e, row := range r.Index {
			index[e] = int32(len(own.Values[t]) / dim)
			own.Values[t] = append(own.Values[t], in.Values[t][int(row)*dim:][:dim]...)
		}
		r.Index, r.Own = index, true
	}
	s.Step(&own, n.seed)
	grads, at, rows := s.Grads(), 0, float64(in.NumRows)
	for i, f := range n.model.Features() {
		if f.Kind != model.Sparse {
			continue
		}
		r, to, table := own.Sparse[at], &n.Features[i], layout.Tables[f.Table]
		at++
		for row := range in.NumRows {
			if r.Offsets[row+1] > r.Offsets[row] {
				to.Rows++
			}
		}
		for _, e := range r.Index {
			lo := int(e) * table.Dim()
			for _, segment := range table.Segments {
				if tells(table.Segments, segment) {
					to.Squares += squared(own.Values[f.Table][lo : lo+segment.Dim])
					to.Gradients += squared(grads[f.Table][lo:lo+segment.Dim]) * rows * rows // losses are means over rows
				}
				lo += segment.Dim
			}
		}
		to.Entries += int64(len(r.Index))
	}
	dense := s.DenseGrad()
	for i := range n.Tensors {
		t := &n.Tensors[i]
		of := dense[layout.DenseOffset(t.Index):][:layout.Dense[t.Index].Len()]
		t.Gradients += squared(of)
		for k, g := range of {
			if g != 0 {
				t.Moved[k%len(t.Moved)] = true
			}
		}
	}
}
