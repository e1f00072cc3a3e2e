package replica

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
)

// Options say what a replica follows. Layout and Name are required.
type Options struct {
	// Layout is that of the job's model.
	Layout *param.Layout
	// Name is that of the consumer at the shards. No two replicas of a job may have the same.
	Name string
	// Every is how often a shard is asked what has changed; 0: every 250 ms. A shard whose answer takes longer is asked less often.
	Every time.Duration
	// Logger gets trouble, and when a state of another generation is read; nil: nothing is logged.
	Logger *slog.Logger
}

// Replica is a model whose weights follow those of running shards. Its methods may overlap, but for Close.
type Replica struct {
	o      Options
	layout *param.Layout // of weights alone
	shape  string
	log    *slog.Logger

	filled chan struct{} // closed when there is a state
	first  sync.Once

	mu sync.RWMutex // held for reading by who reads rows, for writing to apply a cut
	// set is what is read; nil: nothing yet.
	set *set
	// coming are new parts of the shards that are followed, by shard, which are read when they are of one generation; nil: that shard has none.
	coming []*part
	// version counts dense tensors that were given.
	version uint64
	// more is closed, and replaced, whenever a cut was taken.
	more chan struct{}
}

// set is a state: a part of each shard.
type set struct {
	parts     []*part
	following bool // of shards; otherwise it is that of a snapshot
}

// New makes a replica that has nothing yet.
func New(o Options) *Replica {
	o.Every = cmp.Or(o.Every, 250*time.Millisecond)
	return &Replica{
		o: o, layout: o.Layout.Frozen(), shape: o.Layout.Shape().Hash(), log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), filled: make(chan struct{}), more: make(chan struct{}),
	}
}

// Filled is closed once there is a state to read.
func (r *Replica) Filled() <-chan struct{} { return r.filled }

// Load makes what a snapshot has the state, unless that of shards is there already. Its parameters must be those of the layout. Errors: [ps.ErrLayout] where
// they are not; those of [export.Model.Rows]; [ps.ErrFull].
func (r *Replica) Load(ctx context.Context, from *export.Model) error {
	if is := from.Graph.Layout().Shape().Hash(); is != r.shape {
		return fmt.Errorf("replica: snapshot %d has parameters of the shape %s, the job's model of %s: %w", from.From.Snapshot, is, r.shape, ps.ErrLayout)
	}
	p := newPart(r.layout)
	for t := range r.layout.Tables {
		if err := from.Rows(ctx, t, func(rows *table.Rows) error {
			c := &ps.Changes{Table: t, Rows: *rows}
			if err := p.reserve([]*ps.Changes{c}); err != nil {
				return err
			}
			p.deal(c)
			return nil
		}); err != nil {
			p.close()
			return err
		}
	}
	p.dense, p.asOf = from.Dense, from.From.Created
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set != nil && r.set.following {
		p.close()
		return nil
	}
	r.number(p)
	r.read(&set{parts: []*part{p}})
	return nil
}

// number gives dense tensors that are new a version. The lock is held.
func (r *Replica) number(p *part) {
	r.version++
	p.version = r.version
}

// read makes a set the one that is read, and closes what of the one before is not in it. The lock is held.
func (r *Replica) read(s *set) {
	kept := map[*part]bool{}
	for _, p := range s.parts {
		kept[p] = true
	}
	if r.set != nil {
		for _, p := range r.set.parts {
			if !kept[p] {
				p.close()
			}
		}
	}
	r.set = s
	r.first.Do(func() { close(r.filled) })
	r.tell()
}

// tell wakes those who wait for a cut. The lock is held.
func (r *Replica) tell() {
	close(r.more)
	r.more = make(chan struct{})
}

// AsOf is when all was applied that is read now, and perhaps what came later: when the question to the shard whose cut is the oldest was asked, by the clock of this machine, or when the
// snapshot was taken. It is zero before there is a state.
func (r *Replica) AsOf() time.Time {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.asOf()
}

func (r *Replica) asOf() time.Time {
	var oldest time.Time
	if r.set != nil {
		for i, p := range r.set.parts {
			if i == 0 || p.asOf.Before(oldest) {
				oldest = p.asOf
			}
		}
	}
	return oldest
}

// Await returns when everything is read that was applied before a moment. Errors: the context's.
func (r *Replica) Await(ctx context.Context, since time.Time) error {
	for {
		r.mu.RLock()
		there, more := r.set != nil && !r.asOf().Before(since), r.more
		r.mu.RUnlock()
		if there {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Status describes what is read.
type Status struct {
	// Generation is that of the shards' state; 0: it is that of a snapshot, or there is none.
	Generation uint64
	// Rows is how many embedding rows there are.
	Rows int64
	// Progress is what had been applied at the cut of each shard.
	Progress []map[ps.SplitID]ps.Progress
}

// Status describes what is read.
func (r *Replica) Status() Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out Status
	if r.set == nil {
		return out
	}
	for _, p := range r.set.parts {
		out.Generation = p.generation
		out.Progress = append(out.Progress, maps.Clone(p.progress))
		for _, t := range p.tables {
			out.Rows += int64(t.Len())
		}
	}
	return out
}

// Close gives the memory back. Nobody may follow or read any more.
func (r *Replica) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
	if r.set != nil {
		for _, p := range r.set.parts {
			p.close()
		}
	}
	r.set = nil
	return nil
}

// drop closes the parts that were to come. The lock is held.
func (r *Replica) drop() {
	for _, p := range r.coming {
		p.close()
	}
	r.coming = nil
}
