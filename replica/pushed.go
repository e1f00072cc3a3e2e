package replica

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
)

// inheritRows is how many rows are taken over at a time.
const inheritRows = 4096

// Pushed is an export with rows that are assigned while it is read: somebody else pushes what training makes of them. The export stays mapped; in memory are the rows that
// are not bit for bit those of the export. Dense weights are those of the export. Its methods may overlap, but for Close.
type Pushed struct {
	base   *native.Export
	layout *param.Layout // of weights alone

	turn   sync.Mutex // one change at a time
	source int64      // guarded by turn

	mu     sync.RWMutex // held for reading by who reads rows, for writing to change them
	tables []*table.Mem
}

// NewPushed makes an export that takes rows, which belongs to it from then on. What they take in memory is taken from memory; nil has no limit.
func NewPushed(base *native.Export, memory *table.Memory) *Pushed {
	p := &Pushed{base: base, layout: base.Model().Graph.Layout().Frozen(), source: rand.Int64()}
	for _, t := range p.layout.Tables {
		p.tables = append(p.tables, table.New(t, p.layout.Seed, memory))
	}
	return p
}

// Model is the model of the export. It belongs to it.
func (p *Pushed) Model() *export.Model { return p.base.Model() }

// Manifest is the checksum of the export's manifest.
func (p *Pushed) Manifest() uint32 { return p.base.Manifest() }

// Changed is that of the export.
func (p *Pushed) Changed(ctx context.Context) error { return p.base.Changed(ctx) }

// Verify is that of the export.
func (p *Pushed) Verify(ctx context.Context) (faults []error, err error) { return p.base.Verify(ctx) }

// VerifyPaced is that of the export.
func (p *Pushed) VerifyPaced(ctx context.Context, pace func(bytes int) error) (faults []error, err error) {
	return p.base.VerifyPaced(ctx, pace)
}

// AsOf is when the snapshot of the export was taken.
func (p *Pushed) AsOf() time.Time { return p.base.Model().From.Created }

// Source tells what rows it has from those of others: it is the same number as long as every row that was ever assigned under it is read, or is in the export. Who assigns only what
// changes starts over with all rows when it is another.
func (p *Pushed) Source() int64 {
	p.turn.Lock()
	defer p.turn.Unlock()
	return p.source
}

// Assign makes rows what they are from now on: rows.Keys has distinct ids for each table of the layout, rows.Values their weights, rounded here to what the table keeps. Readers
// find all of them or none. rows belongs to p from then on. snapshot is the newest one for which training had begun a cut when the rows were read ([ps.Changes].Snapshot);
// [math.MaxInt64] where nobody knows, and the rows outlast every export. Errors: [ps.ErrLayout] where rows are not those of the layout's tables;
// [ps.ErrFull], and nothing is assigned; those of [native.Export.Find].
func (p *Pushed) Assign(rows *param.Rows, snapshot uint64) error {
	if len(rows.Keys) != len(p.tables) || len(rows.Values) != len(p.tables) {
		return fmt.Errorf("replica: rows of %d tables of %d: %w", len(rows.Keys), len(p.tables), ps.ErrLayout)
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	changes := make([]change, len(p.tables))
	for t, keys := range rows.Keys {
		if dim := p.layout.Tables[t].Dim(); len(rows.Values[t]) != dim*len(keys) {
			return fmt.Errorf("replica: table %s: %d weights for %d rows of %d: %w", p.layout.Tables[t].Name, len(rows.Values[t]), len(keys), dim, ps.ErrLayout)
		}
		var err error
		if changes[t], err = p.divide(t, keys, rows.Values[t], nil); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for t, c := range changes {
		if err := p.tables[t].Reserve(c.fresh); err != nil {
			return err
		}
	}
	for t, c := range changes {
		p.tables[t].Remove(c.same)
		p.tables[t].Apply(table.Update{Op: param.Assign, Keys: c.keys, Counts: make([]uint32, len(c.keys)), Grads: c.values, Time: orderOf(snapshot)})
	}
	return nil
}

// orderOf is the order of a row against exports, which its table keeps in place of a time: the number of a snapshot.
func orderOf(snapshot uint64) int64 { return int64(min(snapshot, math.MaxInt64)) }

// change is what rows of a table come to: those that the export has so, and the others, of which so many have no row here.
type change struct {
	same   []int64
	keys   []int64
	values []float32
	orders []int64 // of keys, where there are any
	fresh  int
}

// divide rounds rows and compares them with the export's. The turn is held.
func (p *Pushed) divide(t int, keys []int64, values []float32, orders []int64) (c change, err error) {
	spec := &p.layout.Tables[t]
	dim := spec.Dim()
	at := 0
	for _, s := range spec.Segments {
		if kept := optim.ValuesOf(s.Optimizer); kept != optim.FP32 {
			for i := range keys {
				kept.Round(values[i*dim+at:][:s.Dim])
			}
		}
		at += s.Dim
	}
	has := make([]float32, len(values))
	if _, err := p.base.Find(t, keys, has, nil); err != nil {
		return c, err
	}
	c.keys, c.values, c.orders = keys[:0], values[:0], orders[:0]
	for i, k := range keys {
		row := values[i*dim:][:dim]
		if slices.EqualFunc(row, has[i*dim:][:dim], sameBits) {
			c.same = append(c.same, k)
			continue
		}
		c.keys, c.values = append(c.keys, k), append(c.values, row...)
		if orders != nil {
			c.orders = append(c.orders, orders[i])
		}
	}
	c.fresh = len(c.keys) - p.tables[t].Lookup(c.keys, has[:len(c.values)])
	return c, nil
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// Inherit takes over the rows of another export of the model that were read behind the cut of this one's snapshot: the others are in it. Numbers of snapshots decide, no
// machine's clock. Nothing may have been assigned to p. From then on p has the Source that from had, unless from is of the newer snapshot: then rows that this one needs are
// missing. It takes nothing over from an export of another job. Errors: [ps.ErrFull], those of [native.Export.Find]; then p has a part of the rows, and a Source of its own.
func (p *Pushed) Inherit(from *Pushed) error {
	if p.Model().From.Job != from.Model().From.Job {
		return nil
	}
	from.turn.Lock()
	defer from.turn.Unlock()
	p.turn.Lock()
	defer p.turn.Unlock()
	mine := p.Model().From.Snapshot
	for t := range p.layout.Tables {
		spec := &p.layout.Tables[t]
		f := slices.IndexFunc(from.layout.Tables, func(s param.Table) bool { return s.Name == spec.Name && s.Dim() == spec.Dim() })
		if f < 0 {
			continue
		}
		if err := p.inherit(t, from.tables[f], orderOf(mine)); err != nil {
			return err
		}
	}
	if mine >= from.Model().From.Snapshot {
		p.source, from.source = from.source, p.source
	}
	return nil
}

// inherit takes over the rows of a table that are not of an earlier order. Nobody changes them: both turns are held.
func (p *Pushed) inherit(t int, from *table.Mem, order int64) error {
	var none sync.Mutex // readers of from do not change it, and nobody reads p yet
	var rows table.Rows
	for w, more := from.Walk(nil), true; more; {
		rows.Reset()
		more = w.Next(&none, &rows, inheritRows)
		dim, n := p.layout.Tables[t].Dim(), 0
		for i, at := range rows.Times {
			if at >= order {
				rows.Keys[n], rows.Times[n] = rows.Keys[i], at
				copy(rows.Weights[n*dim:][:dim], rows.Weights[i*dim:][:dim])
				n++
			}
		}
		c, err := p.divide(t, rows.Keys[:n], rows.Weights[:n*dim], rows.Times[:n])
		if err == nil {
			err = p.tables[t].Put(&table.Rows{Keys: c.keys, Times: c.orders, Counts: make([]uint64, len(c.keys)), Weights: c.values})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Rows is how many rows are in memory.
func (p *Pushed) Rows() (n int64) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, t := range p.tables {
		n += int64(t.Len())
	}
	return n
}

// Close gives the memory back, and closes the export. Nobody may read or assign any more.
func (p *Pushed) Close() error {
	for _, t := range p.tables {
		t.Close()
	}
	return p.base.Close()
}

// Reader makes a reader.
func (p *Pushed) Reader() *PushedReader { return &PushedReader{p: p} }

// PushedReader reads a [Pushed] for one goroutine at a time. What it reads between Hold and Release is one state.
type PushedReader struct {
	p   *Pushed
	row table.Rows
}

// Hold keeps the state as it is until Release: not for long, since assignments wait.
func (x *PushedReader) Hold() { x.p.mu.RLock() }

// Release ends what Hold began.
func (x *PushedReader) Release() { x.p.mu.RUnlock() }

// Lookup fills rows.Values for rows.Keys. In the steady state it allocates nothing. Errors: those of [native.Export.Lookup].
func (x *PushedReader) Lookup(ctx context.Context, rows *param.Rows) error {
	if err := x.p.base.Lookup(ctx, rows); err != nil {
		return err
	}
	for t, keys := range rows.Keys {
		m := x.p.tables[t]
		if m.Len() == 0 {
			continue
		}
		dim := x.p.layout.Tables[t].Dim()
		for i, k := range keys {
			if x.row.Reset(); m.Get(k, &x.row) {
				copy(rows.Values[t][i*dim:][:dim], x.row.Weights)
			}
		}
	}
	return nil
}

// Dense copies the dense weights, as [native.Export.Dense] does.
func (x *PushedReader) Dense(ctx context.Context, have uint64, dst []float32) (version uint64, err error) {
	return x.p.base.Dense(ctx, have, dst)
}
