package snapshot

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// Convert writes a snapshot in which the parameters of from fit o.Layout, as fit says: a model that has got a feature, a
// head or a layer continues from there. Shards and Recipe are those of from, and so is where it was in its sources, positions
// and worker state, when keep says so; otherwise the new snapshot has no positions, and o.State. Rows are read and written one batch after the
// other, so that no more of them is in memory. Errors: [ErrCorrupt], [ErrNoSpace], the context's; nothing is left behind.
func Convert(ctx context.Context, from *Snapshot, fit *param.Fit, o Options, keep bool, home func(tensor string) int) (*Info, error) {
	was := from.info
	o.Shards = was.Shards
	if keep {
		o.Positions, o.State = was.Positions, was.State
	}
	tensors, err := from.Tensors()
	if err != nil {
		return nil, err
	}
	converted := convertTensors(tensors, was.Dense, fit, o.Layout)
	w, err := Create(o)
	if err != nil {
		return nil, err
	}
	for shard := range was.Shards {
		p := NewPart(PartOptions{FS: w.fs, Dir: w.Dir(), Layout: o.Layout, Shard: shard, Need: o.Need})
		err := convertTables(ctx, from, fit, o.Layout, p)
		if err == nil {
			err = p.Dense(slices.DeleteFunc(slices.Clone(converted), func(t Tensor) bool { return home(t.Name) != shard }))
		}
		if err != nil {
			return nil, errors.Join(err, w.Abort())
		}
		w.Add(p.Part())
	}
	info, err := w.Commit()
	if err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return info, nil
}

// convertTables writes the rows of the part's shard.
func convertTables(ctx context.Context, from *Snapshot, fit *param.Fit, l *param.Layout, p *PartWriter) error {
	for t, spec := range l.Tables {
		tf := fit.Tables[t]
		if tf.From < 0 {
			continue
		}
		if err := convertTable(ctx, from, tf.From, p, t, &conversion{spec: spec, was: from.info.Tables[tf.From], fit: tf, seed: l.Seed}); err != nil {
			return err
		}
	}
	return nil
}

// convertTable writes table was of a snapshot as table t of a part: the rows, converted, and what counts fids without one as it is.
func convertTable(ctx context.Context, from *Snapshot, was int, p *PartWriter, t int, c *conversion) error {
	err := convertRows(ctx, c, func(each func(*table.Rows) error) error { return from.RowsOf(was, p.o.Shard, each) },
		func(next func(dst *table.Rows, limit int) bool) error { return p.Rows(t, next) })
	for _, kind := range countedKinds {
		if err != nil {
			break
		}
		err = convertRows(ctx, &conversion{copies: true}, func(each func(*table.Rows) error) error { return from.WaitingOf(was, p.o.Shard, kind, each) },
			func(next func(dst *table.Rows, limit int) bool) error { return p.Waiting(t, kind, next) })
	}
	return err
}

// convertRows writes what read gives.
func convertRows(ctx context.Context, c *conversion, read func(each func(*table.Rows) error) error, write func(next func(dst *table.Rows, limit int) bool) error) error {
	var failed error
	next, stop := iter.Pull(func(yield func(*table.Rows) bool) {
		failed = read(func(rows *table.Rows) error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if !yield(rows) {
				return errStopped
			}
			return nil
		})
	})
	err := write(func(dst *table.Rows, limit int) bool {
		for c.at == len(c.rows.Keys) {
			rows, ok := next()
			if !ok {
				return false
			}
			c.rows, c.at = *rows, 0
		}
		c.take(dst, limit)
		return true
	})
	stop()
	if errors.Is(failed, errStopped) {
		failed = nil
	}
	return errors.Join(err, failed)
}

var errStopped = errors.New("no more rows are wanted")

// conversion is that of the rows of one table.
type conversion struct {
	spec param.Table
	was  Table
	fit  param.TableFit
	seed uint64
	// copies: rows are taken as they are.
	copies bool
	rows   table.Rows // being converted, up to at
	at     int
}

// take converts at most limit rows.
func (c *conversion) take(dst *table.Rows, limit int) {
	n := min(limit, len(c.rows.Keys)-c.at)
	dim, stateDim := c.was.Dim(), c.was.StateDim()
	if c.copies {
		piece := part(&c.rows, dim, stateDim, c.at, c.at+n)
		dst.Keys, dst.Times, dst.Counts = append(dst.Keys, piece.Keys...), append(dst.Times, piece.Times...), append(dst.Counts, piece.Counts...)
		dst.Weights, dst.State = append(dst.Weights, piece.Weights...), append(dst.State, piece.State...)
		c.at += n
		return
	}
	for i := c.at; i < c.at+n; i++ {
		fid := c.rows.Keys[i]
		dst.Keys = append(dst.Keys, fid)
		dst.Times = append(dst.Times, c.rows.Times[i])
		dst.Counts = append(dst.Counts, c.rows.Counts[i])
		weights, state := c.rows.Weights[i*dim:][:dim], c.rows.State[i*stateDim:][:stateDim]
		for s, seg := range c.spec.Segments {
			c.segment(dst, seg, c.fit.Segments[s], fid, weights, state)
		}
	}
	c.at += n
}

func (c *conversion) segment(dst *table.Rows, seg param.Segment, f param.SegmentFit, fid int64, weights, state []float32) {
	w, s := len(dst.Weights), len(dst.State)
	dst.Weights = append(dst.Weights, make([]float32, seg.Dim)...)
	dst.State = append(dst.State, make([]float32, seg.Optimizer.StateDim(seg.Dim))...)
	is, st := dst.Weights[w:], dst.State[s:]
	seg.Init.Fill(is, c.seed, param.HashName(c.spec.Name, seg.Name), uint64(fid))
	seg.Optimizer.Init(is, st)
	if f.From < 0 || f.Dim == 0 {
		return
	}
	for _, old := range c.was.Segments[:f.From] {
		weights, state = weights[old.Dim:], state[old.StateDim:]
	}
	old := c.was.Segments[f.From]
	param.Take(seg.Optimizer, is, st, weights[:old.Dim], state[:old.StateDim], []int{seg.Dim}, []int{old.Dim}, f.State)
	if !f.State {
		seg.Optimizer.Init(is, st) // of the weights that it has now
	}
}

func convertTensors(tensors []Tensor, was []param.TensorShape, fit *param.Fit, l *param.Layout) []Tensor {
	byName := map[string]Tensor{}
	for _, t := range tensors {
		byName[t.Name] = t
	}
	var out []Tensor
	for i, spec := range l.Dense {
		f := fit.Dense[i]
		t := Tensor{Name: spec.Name, Weights: make([]float32, spec.Len()), State: make([]float32, spec.Optimizer.StateDim(spec.Len()))}
		for _, d := range spec.Shape {
			t.Shape = append(t.Shape, int64(d))
		}
		spec.Init.Fill(t.Weights, l.Seed, param.HashName(spec.Name), 0)
		spec.Optimizer.Init(t.Weights, t.State)
		if f.From >= 0 {
			shape := was[f.From]
			old := byName[shape.Name]
			param.Take(spec.Optimizer, t.Weights, t.State, old.Weights, old.State, spec.Shape, shape.Shape, f.State)
			if !f.State {
				spec.Optimizer.Init(t.Weights, t.State)
			}
		}
		out = append(out, t)
	}
	return out
}
