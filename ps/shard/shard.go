package shard

import (
	"bytes"
	"fmt"
	"maps"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// Shard is the state of one shard: the rows of its virtual buckets, the dense tensors that lie there, what is applied and
// staged of every split, and the sessions of clients. It is plain functions over memory, without I/O or
// goroutines but those that [Shard.SetThreads] allows; a clock says only how long commits have waited at a barrier. Lookup, Dense and the methods that say so may overlap each other; all others exclude everything. The caller
// keeps the lock.
type Shard struct {
	place     ps.Placement
	index     int
	maxStaged int
	tables    []table.Table
	// retained are the tables that have a retention, plain those that have none: all are either.
	retained []*table.Retained
	plain    []*table.Mem
	// tracked take note of what changes in the tables, for incremental snapshots; nil: nothing does.
	tracked []*table.Tracker
	rules   param.Retention
	clock   clock
	dense   []denseTensor
	// threads is how many goroutines an update of these may take.
	threads     int
	denseUpdate denseUpdate
	// version counts changes of the dense tensors from 1.
	version  uint64
	splits   map[ps.SplitID]*split
	sessions map[uint64]*session
	state    map[string][]byte
	trace    score.Ring   // state under [ps.TraceState]
	totals   score.Totals // state under [ps.TotalsState]
	free     *batches     // where staged batches come from and go
	reserved []int        // keys staged of each table
	numBatch int          // staged
	barrier  barrier
	// changes counts changes of what a snapshot holds, since the shard was made or loaded.
	changes uint64
	// commits counts applied updates, since the shard was made.
	commits uint64
	closed  bool
}

// New makes shard index of numShards with the initial values of the layout. Its tables take their memory from mem, which
// may be nil. Errors: [ps.ErrLayout].
func New(l *param.Layout, index, numShards, maxStaged int, mem *table.Memory) (*Shard, error) {
	if err := l.Validate(); err != nil {
		return nil, fmt.Errorf("ps: %w: %w", ps.ErrLayout, err)
	}
	if numShards < 1 || numShards > ps.NumBuckets || index < 0 || index >= numShards {
		return nil, fmt.Errorf("ps: shard %d of %d: between 1 and %d shards are possible: %w", index, numShards, ps.NumBuckets, ps.ErrLayout)
	}
	s := &Shard{
		place: ps.NewPlacement(l, numShards), index: index, maxStaged: max(maxStaged, 1), version: 1, threads: 1,
		splits: map[ps.SplitID]*split{}, sessions: map[uint64]*session{}, state: map[string][]byte{}, reserved: make([]int, len(l.Tables)),
		free: &batches{}, rules: l.Retention,
	}
	for _, t := range l.Tables {
		if !l.Retention.Active() {
			m := table.New(t, l.Seed, mem)
			s.tables, s.plain = append(s.tables, m), append(s.plain, m)
			continue
		}
		r := table.NewRetained(t, l.Seed, mem, l.Retention, numShards)
		s.tables, s.retained = append(s.tables, r), append(s.retained, r)
	}
	push := 0
	for _, t := range l.Dense {
		if s.place.TensorShard(t.Name) != index {
			continue
		}
		d := denseTensor{spec: t, weights: make([]float32, t.Len()), state: make([]float32, t.Optimizer.StateDim(t.Len()))}
		t.Init.Fill(d.weights, l.Seed, param.HashName(t.Name), 0)
		t.Optimizer.Init(d.weights, d.state)
		if t.L2 != 0 || t.L1 != 0 || t.Delay > 0 {
			d.grad = make([]float32, t.Len())
		}
		d.push = push
		push += t.PushLen()
		s.dense = append(s.dense, d)
	}
	return s, nil
}

// SetThreads is [table.Mem.SetThreads] of the tables, and has updates of dense tensors done by as many.
func (s *Shard) SetThreads(n int) {
	s.threads = max(n, 1)
	for _, t := range s.plain {
		t.SetThreads(n)
	}
	for _, t := range s.retained {
		t.SetThreads(n)
	}
}

// Lookup fills rows. It may overlap other lookups. Errors: [ps.ErrLayout], [ps.ErrClosed].
func (s *Shard) Lookup(rows *param.Rows) error {
	if s.closed {
		return ps.ErrClosed
	}
	if err := s.place.CheckRows(rows); err != nil {
		return err
	}
	for t, keys := range rows.Keys {
		switch {
		case len(keys) == 0:
		case rows.State != nil:
			s.tables[t].LookupState(keys, rows.Values[t], rows.State[t])
		case len(rows.Found) == len(rows.Keys):
			s.tables[t].LookupFound(keys, rows.Values[t], &rows.Found[t])
		default:
			s.tables[t].Lookup(keys, rows.Values[t])
		}
	}
	return nil
}

// Dense writes the shard's dense tensors to dst unless their version is have; where dst is longer by the state of their
// optimizers, that goes behind them. It may overlap lookups. Errors: [ps.ErrLayout], [ps.ErrClosed].
func (s *Shard) Dense(have uint64, dst []float32) (version uint64, err error) {
	weights, state := s.place.DenseLen(s.index), s.place.DenseStateLen(s.index)
	switch {
	case s.closed:
		return 0, ps.ErrClosed
	case len(dst) != weights && len(dst) != weights+state:
		return 0, fmt.Errorf("ps: %d dense values of %d, or %d with state: %w", len(dst), weights, weights+state, ps.ErrLayout)
	case have == s.version:
		return have, nil
	}
	withState := len(dst) > weights
	for _, t := range s.dense {
		copy(dst, t.weights)
		dst = dst[len(t.weights):]
	}
	if withState {
		for _, t := range s.dense {
			copy(dst, t.state)
			dst = dst[len(t.state):]
		}
	}
	return s.version, nil
}

// Progress returns what is applied of every split. It may overlap lookups.
func (s *Shard) Progress() map[ps.SplitID]ps.Progress {
	out := map[ps.SplitID]ps.Progress{}
	for id, sp := range s.splits {
		if sp.applied.Position >= 0 {
			out[id] = sp.applied
		}
	}
	return out
}

// Stats adds what the shard holds to st, which has an entry for each table. It may overlap lookups.
func (s *Shard) Stats(st *ps.Stats) {
	for i, t := range s.tables {
		st.Tables[i].Rows += int64(t.Len())
		st.Tables[i].Bytes += t.Bytes()
		if r, ok := t.(*table.Retained); ok {
			st.Tables[i].Removed = r.Removed()
		}
	}
	for _, d := range s.dense {
		st.DenseBytes += int64(4 * (len(d.weights) + len(d.state)))
	}
	st.Staged += s.numBatch
}

// Entries appends the rows of those fids that have one to dst. It may overlap lookups. Errors: [ps.ErrLayout], [ps.ErrClosed].
func (s *Shard) Entries(tbl int, fids []int64, dst *table.Rows) error {
	switch {
	case s.closed:
		return ps.ErrClosed
	case tbl < 0 || tbl >= len(s.tables):
		return fmt.Errorf("ps: table %d of %d: %w", tbl, len(s.tables), ps.ErrLayout)
	}
	for _, fid := range fids {
		s.tables[tbl].Get(fid, dst)
	}
	return nil
}

// PutRows adds rows of a snapshot. Errors: [ps.ErrFull], [table.ErrDuplicate].
func (s *Shard) PutRows(tbl int, rows *table.Rows) error { return s.tables[tbl].Put(rows) }

// replaceRows puts rows in place of those that their fids have. Errors: as PutRows.
func (s *Shard) replaceRows(tbl int, rows *table.Rows) error {
	s.tables[tbl].Remove(rows.Keys)
	return s.PutRows(tbl, rows)
}

// PutWaiting adds what a snapshot has of fids that are counted and have no row; where nothing waits for rows it is dropped. Errors: as PutRows,
// [table.ErrFilter].
func (s *Shard) PutWaiting(tbl int, rows *table.Rows) error {
	if s.retained == nil {
		return nil
	}
	return s.retained[tbl].PutWaiting(rows)
}

// dropWaiting forgets which fids are counted and have no row: every snapshot has all of them.
func (s *Shard) dropWaiting(tbl int) {
	if s.retained != nil {
		s.retained[tbl].DropWaiting()
	}
}

// PutTensor sets a dense tensor, if it lies here. Errors: [ps.ErrLayout].
func (s *Shard) PutTensor(t snapshot.Tensor) (here bool, err error) {
	for _, d := range s.dense {
		if d.spec.Name != t.Name {
			continue
		}
		if len(t.Weights) != len(d.weights) || len(t.State) != len(d.state) {
			return true, fmt.Errorf("ps: dense tensor %s has %d values and %d of state instead of %d and %d: %w",
				t.Name, len(t.Weights), len(t.State), len(d.weights), len(d.state), ps.ErrLayout)
		}
		copy(d.weights, t.Weights)
		copy(d.state, t.State)
		s.version++
		return true, nil
	}
	return false, nil
}

// PutProgress sets what is applied of a split.
func (s *Shard) PutProgress(id ps.SplitID, p ps.Progress) {
	sp := s.split(id)
	sp.applied = p
}

// SetState stores a blob of worker state; nil removes it. The shard keeps value. The key [ps.TraceState] sets the trace; what is
// none ([score.Check]) changes nothing. So do [ps.TotalsState] and [ps.ClockState].
func (s *Shard) SetState(key string, value []byte) {
	if !bytes.Equal(value, s.state[key]) || key == ps.TraceState || key == ps.TotalsState || key == ps.ClockState {
		s.changes++
	}
	switch {
	case key == ps.ClockState:
		if c, err := readClock(value); err == nil { // as below
			s.clock = c
			s.tellTime()
		}
	case key == ps.TraceState:
		_ = s.trace.Set(value) // the caller has checked what others send
	case key == ps.TotalsState:
		_ = s.totals.Set(value)
	case value == nil:
		delete(s.state, key)
	default:
		s.state[key] = value
	}
}

// tellTime tells the tables what the clock shows.
func (s *Shard) tellTime() {
	for _, t := range s.retained {
		t.SetTime(s.clock.now, s.clock.began)
	}
}

// State returns a blob of worker state, which must not be changed, or nil. Those of [ps.TraceState], [ps.TotalsState] and [ps.ClockState] are copies.
func (s *Shard) State(key string) []byte {
	switch key {
	case ps.TraceState:
		return s.trace.Bytes()
	case ps.TotalsState:
		return s.totals.Bytes()
	case ps.ClockState:
		return s.clock.bytes()
	}
	return s.state[key]
}

// Cut is the state of a shard at one moment; the rows are read while updates continue.
type Cut struct {
	Tables []table.Cut
	// Changed are the rows of each table that have changed since the snapshot before; nil: that is not known.
	Changed []*table.Changes
	// Waiting are the fids of each table that are counted and have no row, or the cells of what counts them; nil where none are.
	Waiting  []table.Cut
	Tensors  []snapshot.Tensor
	Progress map[ps.SplitID]ps.Progress
	State    map[string][]byte
	// changes and commits are those of the shard.
	changes, commits uint64
}

// Cut begins a copy on write of the shard as it is.
func (s *Shard) Cut() *Cut {
	c := &Cut{Progress: s.Progress(), State: maps.Clone(s.state), changes: s.changes, commits: s.commits}
	if b := s.trace.Bytes(); b != nil {
		c.State[ps.TraceState] = b
	}
	if b := s.totals.Bytes(); b != nil {
		c.State[ps.TotalsState] = b
	}
	if b := s.clock.bytes(); b != nil && s.index == 0 { // it is the same on all
		c.State[ps.ClockState] = b
	}
	for _, t := range s.tables {
		c.Tables = append(c.Tables, t.Cut())
	}
	c.Waiting = make([]table.Cut, len(s.tables))
	for i, t := range s.retained {
		c.Waiting[i] = t.CutWaiting()
	}
	for _, d := range s.dense {
		t := snapshot.Tensor{Name: d.spec.Name, Weights: append([]float32(nil), d.weights...), State: append([]float32(nil), d.state...)}
		for _, n := range d.spec.Shape {
			t.Shape = append(t.Shape, int64(n))
		}
		c.Tensors = append(c.Tensors, t)
	}
	return c
}

// Track makes the shard take note of which rows change from now on, for incremental snapshots.
func (s *Shard) Track() {
	s.untrack()
	s.tracked = s.track(false)
}

// track begins to take note of what changes in the tables, whatever their kind.
func (s *Shard) track(lists bool) (of []*table.Tracker) {
	for _, t := range s.plain {
		of = append(of, t.Track(lists))
	}
	for _, t := range s.retained {
		of = append(of, t.Track(lists))
	}
	return of
}

// untrack ends to take note of changes.
func (s *Shard) untrack() {
	for _, k := range s.tracked {
		k.Close()
	}
	s.tracked = nil
	if c := s.barrier.cut; c != nil {
		c.Changed = nil
	}
}

// mems are the tables, without those that count fids which have no row.
func (s *Shard) mems() (all []*table.Mem) {
	all = append(all, s.plain...)
	for _, r := range s.retained {
		all = append(all, r.Mem)
	}
	return all
}

// snapshotCut is Cut for a snapshot: what changes after it is counted for the next one.
func (s *Shard) snapshotCut() *Cut {
	c := s.Cut()
	for _, k := range s.tracked {
		c.Changed = append(c.Changed, k.Take())
	}
	return c
}

// giveUp ends a cut that has become no snapshot: what had changed until then counts again.
func (s *Shard) giveUp(c *Cut) {
	c.close(nopLocker{})
	s.returnChanges(c)
}

// returnChanges makes what had changed until a cut count again.
func (s *Shard) returnChanges(c *Cut) {
	if s.closed {
		return
	}
	for t, of := range c.Changed {
		s.tracked[t].Return(of)
	}
	c.Changed = nil
}

// Close gives the memory back. Every later call is answered with [ps.ErrClosed].
func (s *Shard) Close() {
	if s.closed {
		return
	}
	s.closed = true
	for _, t := range s.tables {
		t.Close()
	}
}
