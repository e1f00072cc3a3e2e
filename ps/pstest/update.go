package pstest

import (
	"math/rand/v2"
	"slices"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
)

// CountingLayout counts examples: every row should end at the number of examples.
func CountingLayout() *param.Layout {
	return &param.Layout{Tables: []param.Table{{Name: "n", Segments: []param.Segment{{Name: "n", Dim: 1, Optimizer: Counting{}}}}}}
}

// CountingUpdate adds the number of examples to each of ids.
func CountingUpdate(split string, from, to int64, ids []int64) *param.Update {
	u := &param.Update{
		Source: "s", Split: split, From: from, To: to, NumRows: int(to - from), LR: 1, Time: to,
		Keys: [][]int64{ids}, Counts: [][]uint32{make([]uint32, len(ids))}, Grads: [][]float32{make([]float32, len(ids))},
	}
	for i := range ids {
		u.Counts[0][i], u.Grads[0][i] = uint32(to-from), float32(to-from)
	}
	return u
}

// RandomUpdate is a function of its arguments.
func RandomUpdate(l *param.Layout, split string, from, to int64) *param.Update {
	r := rand.New(rand.NewPCG(uint64(from), uint64(split[0])))
	n := len(l.Tables)
	u := &param.Update{
		Source: "s", Split: split, From: from, To: to, NumRows: int(to - from), LR: 0.5, Examples: from, Time: 1000 + to, Trace: Trace(float32(to), float32(split[0])),
		Keys: make([][]int64, n), Counts: make([][]uint32, n), Grads: make([][]float32, n), Dense: make([]float32, l.DensePushLen()),
	}
	for t, spec := range l.Tables {
		u.Keys[t] = Distinct(r, 1+r.IntN(8), 60)
		for range u.Keys[t] {
			u.Counts[t] = append(u.Counts[t], 1+r.Uint32N(3))
			for range spec.Width(param.Train) {
				u.Grads[t] = append(u.Grads[t], r.Float32()-0.5)
			}
		}
	}
	for i := range u.Dense {
		u.Dense[i] = r.Float32() - 0.5
	}
	return u
}

// BenchLayout is one table of Adagrad rows and a dense tensor.
func BenchLayout(dim int) *param.Layout {
	return &param.Layout{
		Tables: []param.Table{{Name: "t", Segments: []param.Segment{
			{Name: "v", Dim: dim, Init: param.Uniform(-0.1, 0.1), Optimizer: optim.Adagrad{LR: 0.05}},
		}}},
		Dense: []param.Tensor{{Name: "w", Shape: []int{64}, Optimizer: optim.SGD{}}},
	}
}

// BenchUpdate is one example on each of keys.
func BenchUpdate(keys []int64, dim int) *param.Update {
	u := &param.Update{
		Source: "s", Split: "x", LR: 1, NumRows: len(keys), Dense: make([]float32, 64),
		Keys: [][]int64{keys}, Counts: [][]uint32{make([]uint32, len(keys))}, Grads: [][]float32{make([]float32, len(keys)*dim)},
	}
	for i := range u.Counts[0] {
		u.Counts[0][i] = 1
	}
	for i := range u.Grads[0] {
		u.Grads[0][i] = 0.01
	}
	return u
}

// Distinct returns n fids below limit, each once.
func Distinct(r *rand.Rand, n int, limit int64) []int64 {
	seen := map[int64]bool{}
	for len(seen) < n {
		seen[r.Int64N(limit)] = true
	}
	out := make([]int64, 0, n)
	for k := range seen {
		out = append(out, k)
	}
	slices.Sort(out)
	r.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Trace is the trace of examples whose predictions are these, of one head.
func Trace(predictions ...float32) []byte {
	e, err := score.NewEncoder(score.Schema{Heads: []score.HeadSchema{{Width: 1, NumLabels: 1}}})
	if err != nil {
		panic(err)
	}
	return e.Append(nil, &score.Batch{Rows: len(predictions), Heads: []score.Head{{Width: 1, NumLabels: 1, Predictions: predictions, Labels: predictions}}})
}
