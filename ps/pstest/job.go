package pstest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// Source is the source of every update that [Job] pushes.
const Source = "examples"

// Job is a small training job whose gradients depend on the rows of all shards, so that a batch that sees half of another
// one's update changes the bits of the result. Everything in it is a function of positions.
type Job struct {
	NumSplits, SplitLen int
	// BatchLen should not divide SplitLen: then the last batch of a split is short.
	BatchLen int
	NumIDs   int64
	// EditEvery is after how many batches rows are edited; 0: never.
	EditEvery int
	// Retention is that of the layout.
	Retention param.Retention
}

// SmallJob takes some milliseconds.
func SmallJob() Job { return Job{NumSplits: 3, SplitLen: 200, BatchLen: 7, NumIDs: 97, EditEvery: 5} }

// Layout has tables of one and of two segments, dense tensors, and every kind of rule.
func (j Job) Layout() *param.Layout {
	return &param.Layout{
		Seed: 11, Retention: j.Retention,
		Tables: []param.Table{
			{Name: "user", Segments: []param.Segment{
				{Name: "bias", Dim: 1, Optimizer: optim.FTRL{LR: 0.1}},
				{Name: "vec", Dim: 3, Init: param.Normal(0, 0.1), Optimizer: optim.Adam{}, L2: 0.001, Clip: 0.3, Schedule: optim.Schedule{WarmUp: 200, WarmUpFrom: 0.1}},
			}},
			{Name: "item", Segments: []param.Segment{
				{Name: "vec", Dim: 3, Init: param.Uniform(-0.1, 0.1), Optimizer: optim.Adagrad{LR: 0.1}, Delay: 0.5},
			}},
		},
		Dense: []param.Tensor{
			{Name: "w0", Shape: []int{3, 2}, Init: param.GlorotUniform(3, 2), Optimizer: optim.Adam{}},
			{Name: "b0", Shape: []int{2}, Optimizer: optim.SGD{LR: 0.1}, L2: 0.01, L1: 0.003, Schedule: optim.Schedule{Kind: optim.PolynomialSchedule, Over: 300, Power: 2, End: 0.1}},
			{Name: "w1", Shape: []int{2}, Init: param.Uniform(-1, 1), Optimizer: optim.Adagrad{LR: 0.05}, Delay: 0.5},
		},
	}
}

// Splits names the splits.
func (j Job) Splits() []string {
	out := make([]string, j.NumSplits)
	for i := range out {
		out[i] = fmt.Sprint("split-", i)
	}
	return out
}

// Worker runs a [Job] over a client.
type Worker struct {
	job    Job
	client *ps.Client
	splits []string
	pos    []int
	editor *ps.Editor
	dense  []float32
	have   uint64
	// Steps counts batches pushed by this worker.
	Steps int
}

// NewWorker takes over all splits.
func NewWorker(ctx context.Context, j Job, c *ps.Client) (*Worker, error) {
	w := &Worker{job: j, client: c, splits: j.Splits(), pos: make([]int, j.NumSplits), dense: make([]float32, j.Layout().DenseLen())}
	progress, err := c.Resume(ctx, Source, w.splits)
	if err != nil {
		return nil, err
	}
	for i, name := range w.splits {
		w.pos[i] = int(max(progress[name].Position, 0))
	}
	if j.EditEvery > 0 {
		w.editor, err = c.Edit(ctx, "job")
	}
	return w, err
}

// Step trains on one batch, synchronously, and reports whether there was one; the edits that are due come before. The next split follows from
// positions alone, so a resumed worker makes the same choice.
func (w *Worker) Step(ctx context.Context) (bool, error) {
	for w.job.EditEvery > 0 {
		batches := 0
		for _, p := range w.pos {
			batches += (p + w.job.BatchLen - 1) / w.job.BatchLen
		}
		n := int(w.editor.Done() / editLen)
		if n >= batches/w.job.EditEvery {
			break
		}
		if err := w.edit(ctx, n); err != nil {
			return false, err
		}
	}
	best := -1
	for s, p := range w.pos {
		if p < w.job.SplitLen && (best < 0 || p < w.pos[best]) {
			best = s
		}
	}
	if best < 0 {
		return false, nil
	}
	from, to := w.pos[best], min(w.pos[best]+w.job.BatchLen, w.job.SplitLen)
	u, err := w.update(ctx, best, from, to)
	if err != nil {
		return false, err
	}
	if err := w.client.Push(ctx, u); err != nil {
		return false, err
	}
	w.pos[best] = to
	w.Steps++
	return true, nil
}

// editLen is how many rows are edited at once.
const editLen = 6

// edit makes edit number n of the job.
func (w *Worker) edit(ctx context.Context, n int) error {
	r := rand.New(rand.NewPCG(uint64(n), 21))
	op, tbl := param.Op(1+n%int(param.NumOps-1)), r.IntN(2)
	fids := Distinct(r, editLen, w.job.NumIDs)
	for i := range fids {
		fids[i] *= int64(1 - 2*tbl)
	}
	return w.editor.Apply(ctx, op, tbl, fids, editValues(r, w.job.Layout().Tables[tbl], op, editLen))
}

func (w *Worker) update(ctx context.Context, split, from, to int) (*param.Update, error) {
	l := w.job.Layout()
	n := len(l.Tables)
	u := &param.Update{
		Source: Source, Split: w.splits[split], From: int64(from), To: int64(to), NumRows: to - from, LR: 1, Examples: int64(from), Time: int64(1000 + to),
		Keys: make([][]int64, n), Counts: make([][]uint32, n), Grads: make([][]float32, n), Dense: make([]float32, len(w.dense)),
	}
	if w.job.Retention.Active() && from%13 == 5 {
		u.Time += 1 << 40 // a bad row: twelve days ahead
	}
	at := make([]map[int64]int, n)
	ids := func(r int) [2]int64 {
		return [2]int64{int64(r*31+split*7) % w.job.NumIDs, -int64(r*r+split) % w.job.NumIDs}
	}
	for t := range n {
		at[t] = map[int64]int{}
		for r := from; r < to; r++ {
			id := ids(r)[t]
			if _, ok := at[t][id]; !ok {
				at[t][id] = len(u.Keys[t])
				u.Keys[t] = append(u.Keys[t], id)
				u.Counts[t] = append(u.Counts[t], 0)
			}
			u.Counts[t][at[t][id]]++
		}
	}
	rows := &param.Rows{Keys: u.Keys, Values: make([][]float32, n), Found: []param.Found{}}
	for t, spec := range l.Tables {
		rows.Values[t] = make([]float32, len(u.Keys[t])*spec.Dim())
		u.Grads[t] = make([]float32, len(u.Keys[t])*spec.Dim())
	}
	if err := w.client.Lookup(ctx, rows); err != nil {
		return nil, err
	}
	var err error
	if w.have, err = w.client.Dense(ctx, w.have, w.dense); err != nil {
		return nil, err
	}
	for r := from; r < to; r++ {
		sum := float32(0.1)
		for t, id := range ids(r) {
			dim := l.Tables[t].Dim()
			for _, v := range rows.Values[t][at[t][id]*dim:][:dim] {
				sum += v
			}
		}
		for i, v := range w.dense {
			sum += v * float32(i%3-1)
		}
		g := float32(math.Tanh(float64(sum))) - float32((r+split)%2)
		for t, id := range ids(r) {
			dim := l.Tables[t].Dim()
			for k := range dim {
				u.Grads[t][at[t][id]*dim+k] += g * float32(1+k)
			}
		}
		for i := range u.Dense {
			u.Dense[i] += g * 0.1 * float32(i+1)
		}
	}
	for t, spec := range l.Tables {
		u.Grads[t] = spec.AppendSeen(nil, u.Grads[t], rows.Values[t])
	}
	u.Dense = l.AppendDenseSeen(nil, u.Dense, w.dense)
	u.Found = rows.Found
	return u, nil
}
