package ps

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// NumBuckets is the number of virtual buckets that fids map to. Shards own contiguous ranges of them.
const NumBuckets = 1 << bucketBits

const bucketBits = 12

// Bucket returns the virtual bucket of a fid: the highest bits of its [table.Hash].
func Bucket(fid int64) int { return int(table.Hash(fid) >> (64 - bucketBits)) }

// ShardOf returns the shard, of numShards, that owns a bucket.
func ShardOf(bucket, numShards int) int { return bucket * numShards / NumBuckets }

// BucketsOf returns the buckets [from, to) that a shard, of numShards, owns.
func BucketsOf(shard, numShards int) (from, to int) {
	first := func(shard int) int { return (shard*NumBuckets + numShards - 1) / numShards }
	return first(shard), first(shard + 1)
}

// BucketRange is the range of the hashes of the fids of buckets [from, to), of which there is one at least.
func BucketRange(from, to int) table.Range {
	return table.Range{From: uint64(from) << (64 - bucketBits), Last: uint64(to)<<(64-bucketBits) - 1}
}

// tensorShards returns the shard of each dense tensor, which lies there whole. The largest is placed first, each on the shard that has the
// fewest values so far (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969, section 5): a model has few large tensors, and each
// batch moves and updates all of them. It does not depend on their order.
func tensorShards(dense []param.Tensor, numShards int) []int {
	order, of, load := make([]int, len(dense)), make([]int, len(dense)), make([]int, numShards)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(dense[b].Len(), dense[a].Len()), cmp.Compare(dense[a].Name, dense[b].Name))
	})
	for _, i := range order {
		for s, n := range load {
			if n < load[of[i]] {
				of[i] = s
			}
		}
		load[of[i]] += dense[i].Len()
	}
	return of
}

// Placement knows which part of a layout lies on which shard. It is immutable; the methods may overlap.
type Placement struct {
	layout  *param.Layout
	dims    []int               // of the tables
	widths  [][param.NumOps]int // of the tables' values in updates
	shards  int
	shardOf []int // of the dense tensors
	// tensors[s] are the dense tensors of shard s as ranges of the concatenation of all.
	tensors  [][]span
	denseLen []int // of each shard
	// pushes[s] are what a push has of those tensors, as ranges of what it has of all.
	pushes  [][]span
	pushLen []int
	// states[s] are the states of those tensors' optimizers as ranges of the concatenation of all.
	states   [][]span
	stateLen []int
	stateDim []int // of the tables
}

type span struct{ from, to int }

// NewPlacement places a valid layout on so many shards.
func NewPlacement(l *param.Layout, numShards int) Placement {
	p := Placement{
		layout: l, shards: numShards, tensors: make([][]span, numShards), denseLen: make([]int, numShards),
		pushes: make([][]span, numShards), pushLen: make([]int, numShards),
		states: make([][]span, numShards), stateLen: make([]int, numShards),
	}
	for _, t := range l.Tables {
		p.dims, p.stateDim = append(p.dims, t.Dim()), append(p.stateDim, t.StateDim())
		var widths [param.NumOps]int
		for op := range param.NumOps {
			widths[op] = t.Width(op)
		}
		p.widths = append(p.widths, widths)
	}
	at, stateAt, pushAt := 0, 0, 0
	p.shardOf = tensorShards(l.Dense, numShards)
	for i, t := range l.Dense {
		s, n, m, k := p.shardOf[i], t.Len(), t.Optimizer.StateDim(t.Len()), t.PushLen()
		p.tensors[s], p.states[s] = append(p.tensors[s], span{at, at + n}), append(p.states[s], span{stateAt, stateAt + m})
		p.denseLen[s], p.stateLen[s] = p.denseLen[s]+n, p.stateLen[s]+m
		p.pushes[s], p.pushLen[s] = append(p.pushes[s], span{pushAt, pushAt + k}), p.pushLen[s]+k
		at, stateAt, pushAt = at+n, stateAt+m, pushAt+k
	}
	return p
}

// NumShards is how many shards there are.
func (p *Placement) NumShards() int { return p.shards }

// TensorShard returns the shard of a dense tensor of the layout, or -1 for a name that is none's.
func (p *Placement) TensorShard(name string) int {
	if i := slices.IndexFunc(p.layout.Dense, func(t param.Tensor) bool { return t.Name == name }); i >= 0 {
		return p.shardOf[i]
	}
	return -1
}

// DenseStateLen is the number of values of state of a shard's dense tensors.
func (p *Placement) DenseStateLen(shard int) int { return p.stateLen[shard] }

// DenseLen is the number of values of a shard's dense tensors.
func (p *Placement) DenseLen(shard int) int { return p.denseLen[shard] }

// PushLen is the number of values that a push has of a shard's dense tensors.
func (p *Placement) PushLen(shard int) int { return p.pushLen[shard] }

// CheckRows reports whether a lookup fits the layout. Errors: [ErrLayout].
func (p *Placement) CheckRows(r *param.Rows) error {
	if len(r.Keys) != len(p.dims) || len(r.Values) != len(p.dims) {
		return fmt.Errorf("ps: lookup of %d tables with %d values, the layout has %d: %w", len(r.Keys), len(r.Values), len(p.dims), ErrLayout)
	}
	if r.State != nil && len(r.State) != len(p.dims) {
		return fmt.Errorf("ps: lookup of %d tables with state of %d: %w", len(r.Keys), len(r.State), ErrLayout)
	}
	for t, dim := range p.dims {
		if r.State != nil && len(r.State[t]) != len(r.Keys[t])*p.stateDim[t] {
			return fmt.Errorf("ps: table %s: %d values of state for %d fids of %d: %w",
				p.layout.Tables[t].Name, len(r.State[t]), len(r.Keys[t]), p.stateDim[t], ErrLayout)
		}
		if len(r.Values[t]) != len(r.Keys[t])*dim {
			return fmt.Errorf("ps: table %s: %d values for %d fids of dim %d: %w",
				p.layout.Tables[t].Name, len(r.Values[t]), len(r.Keys[t]), dim, ErrLayout)
		}
	}
	return nil
}

// CheckUpdate reports whether an update, with so many dense values or none, fits the layout. Errors: [ErrLayout].
func (p *Placement) CheckUpdate(u *param.Update, denseLen int) error {
	if u.From < 0 || u.To < u.From || u.NumRows < 0 {
		return fmt.Errorf("ps: %s/%s: update of %d examples from %d to %d: %w", u.Source, u.Split, u.NumRows, u.From, u.To, ErrLayout)
	}
	if edit := u.Op != param.Train; u.Op >= param.NumOps || edit && (u.NumRows != 0 || len(u.Dense) > 0 || len(u.Trace) > 0) {
		return fmt.Errorf("ps: %s/%s: an update to %v (%d) with %d examples, %d dense gradients and %d bytes of a trace: %w",
			u.Source, u.Split, u.Op, u.Op, u.NumRows, len(u.Dense), len(u.Trace), ErrLayout)
	}
	if len(u.Keys) != len(u.Counts) || len(u.Keys) != len(u.Grads) || len(u.Keys) != len(p.dims) && len(u.Keys) != 0 {
		return fmt.Errorf("ps: %s/%s: update of %d tables with %d counts and %d gradients, the layout has %d: %w",
			u.Source, u.Split, len(u.Keys), len(u.Counts), len(u.Grads), len(p.dims), ErrLayout)
	}
	for t := range u.Keys {
		if n := len(u.Keys[t]); len(u.Counts[t]) != n || len(u.Grads[t]) != n*p.widths[t][u.Op] {
			return fmt.Errorf("ps: %s/%s: table %s: %d counts and %d gradients for %d fids of %d: %w",
				u.Source, u.Split, p.layout.Tables[t].Name, len(u.Counts[t]), len(u.Grads[t]), n, p.widths[t][u.Op], ErrLayout)
		}
		if u.Op == param.Train {
			continue
		}
		width := p.widths[t][u.Op]
		for i, k := range u.Keys[t] {
			if err := p.layout.Tables[t].CheckEdit(u.Op, u.Grads[t][i*width:][:width]); err != nil {
				return fmt.Errorf("ps: %s/%s: table %s: fid %d: %v: %w: %w", u.Source, u.Split, p.layout.Tables[t].Name, k, u.Op, err, ErrLayout)
			}
		}
	}
	if len(u.Dense) != 0 && len(u.Dense) != denseLen {
		return fmt.Errorf("ps: %s/%s: %d dense gradients of %d: %w", u.Source, u.Split, len(u.Dense), denseLen, ErrLayout)
	}
	return nil
}

// rowsPart is the part of a lookup that goes to one shard. Buffers are reused.
type rowsPart struct {
	rows  param.Rows
	state [][]float32 // of rows, where it is wanted
	at    [][]int32   // row in the whole lookup
	n     int
}

func newRowsPart(tables int) rowsPart {
	return rowsPart{
		rows: param.Rows{Keys: make([][]int64, tables), Values: make([][]float32, tables)}, state: make([][]float32, tables), at: make([][]int32, tables),
	}
}

// split deals the keys of a lookup out to the shards.
func (p *Placement) split(parts []rowsPart, r *param.Rows) {
	for s := range parts {
		parts[s].n = 0
		for t := range p.dims {
			parts[s].rows.Keys[t], parts[s].at[t] = parts[s].rows.Keys[t][:0], parts[s].at[t][:0]
		}
	}
	for t, keys := range r.Keys {
		for i, k := range keys {
			s := &parts[ShardOf(Bucket(k), p.shards)]
			s.rows.Keys[t] = append(s.rows.Keys[t], k)
			s.at[t] = append(s.at[t], int32(i))
			s.n++
		}
		for s := range parts {
			parts[s].rows.Values[t] = sized(parts[s].rows.Values[t], len(parts[s].rows.Keys[t])*p.dims[t])
		}
	}
	for s := range parts {
		parts[s].rows.State, parts[s].rows.Found = nil, p.foundOn(s, r.Found)
		if r.State == nil {
			continue
		}
		for t, n := range p.stateDim {
			parts[s].state[t] = sized(parts[s].state[t], len(parts[s].rows.Keys[t])*n)
		}
		parts[s].rows.State = parts[s].state
	}
}

// join puts the values of a part where they belong.
func (p *Placement) join(part *rowsPart, r *param.Rows) {
	for t, dim := range p.dims {
		for i, at := range part.at[t] {
			copy(r.Values[t][int(at)*dim:][:dim], part.rows.Values[t][i*dim:])
		}
		if n := p.stateDim[t]; r.State != nil && n > 0 {
			for i, at := range part.at[t] {
				copy(r.State[t][int(at)*n:][:n], part.rows.State[t][i*n:])
			}
		}
	}
}

// found makes room for what a lookup finds on all shards, none of which has told yet.
func (p *Placement) found(f []param.Found) []param.Found {
	n := p.shards * len(p.dims)
	f = slices.Grow(f[:0], n)[:n]
	for i := range f {
		f[i] = param.Found{Numbers: f[i].Numbers[:0]}
	}
	return f
}

// foundOn is the part of what a lookup has found that one shard told.
func (p *Placement) foundOn(shard int, f []param.Found) []param.Found {
	if n := len(p.dims); len(f) == p.shards*n {
		return f[shard*n:][:n]
	}
	return nil
}

// updatePart is the part of an update that goes to one shard. Buffers are reused.
type updatePart struct {
	update param.Update
	at     [][]int32 // row in the whole update
}

func newUpdatePart(tables int) updatePart {
	return updatePart{
		update: param.Update{Keys: make([][]int64, tables), Counts: make([][]uint32, tables), Grads: make([][]float32, tables)}, at: make([][]int32, tables),
	}
}

// splitUpdate deals the rows of an update out to the shards, all but their gradients; each part keeps the order of the rows.
func (p *Placement) splitUpdate(parts []updatePart, u *param.Update) {
	for s := range parts {
		q := &parts[s].update
		q.Source, q.Split, q.From, q.To = u.Source, u.Split, u.From, u.To
		q.NumRows, q.Time, q.LR, q.Examples, q.Op = u.NumRows, u.Time, u.LR, u.Examples, u.Op
		for t := range p.dims {
			q.Keys[t], q.Counts[t], parts[s].at[t] = q.Keys[t][:0], q.Counts[t][:0], parts[s].at[t][:0]
		}
		q.Found = p.foundOn(s, u.Found) // the lookup has dealt the same keys out
		q.Exchange = u.Exchange
		// The trace lies with the rest of the worker state on shard 0.
		if q.Trace = nil; s == 0 {
			q.Trace = u.Trace
		}
	}
	for t, keys := range u.Keys {
		counts := u.Counts[t][:len(keys)]
		for i, k := range keys {
			part := &parts[ShardOf(Bucket(k), p.shards)]
			part.update.Keys[t] = append(part.update.Keys[t], k)
			part.update.Counts[t] = append(part.update.Counts[t], counts[i])
			part.at[t] = append(part.at[t], int32(i))
		}
	}
}

// fill gives the part of one shard its gradients. Those of different shards may be filled at the same time: that is most of the work, and they go out at the same time.
func (p *Placement) fill(part *updatePart, shard int, u *param.Update) {
	q := &part.update
	for t, rows := range part.at {
		dim := p.widths[t][u.Op]
		q.Grads[t] = sized(q.Grads[t], len(rows)*dim)
		if len(rows) == 0 { // an update without rows may have no tables either
			continue
		}
		grads, from := q.Grads[t], u.Grads[t]
		for i, at := range rows {
			copy(grads[i*dim:][:dim], from[int(at)*dim:][:dim])
		}
	}
	q.Dense = q.Dense[:0]
	if len(u.Dense) > 0 {
		for _, r := range p.pushes[shard] {
			q.Dense = append(q.Dense, u.Dense[r.from:r.to]...)
		}
	}
}

// sized returns a slice of length n that reuses b where it can.
func sized(b []float32, n int) []float32 {
	if cap(b) < n {
		return make([]float32, n+n/4)[:n]
	}
	return b[:n]
}
