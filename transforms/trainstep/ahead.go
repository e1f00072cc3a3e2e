package trainstep

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
)

// # Looking up ahead
//
// With queues around the step, a batch is looked up before the batches in front of it have been pushed:
//
//	lookup 5 ─╫─ 4 3 ─╫─> step 2 ─╫─ 1 ─╫─> push 0
//
// What 5 reads then lacks the updates of 0 to 4. The worker makes them itself: it knows the gradients of every update of its
// own, and reads the optimizers' state with the rows, so that a row and a gradient give it the bits that the shard will have.
//
//   - When a batch is looked up, each of its fids is looked for in the batches in front of it whose pushes are not decided
//     yet ([AheadStore.Pushed]), and the nearest that has it is noted (a link). The batch shares that one's buffers until its step.
//   - Before a batch's step, rows with a link are made of the linked batch: its row and state as its own step had them, and its
//     gradient. That batch's row was complete in the same way, so one update a row suffices, however deep the queues are.
//   - Dense tensors are read with their state once; after each step the worker applies the step's gradient to its copy.
//
// In another precision than float32 the rows that a step has are rounded copies of those, and the gradients are rounded before anybody
// makes rows of them, as the store does both.
//
// So with one worker every step has the bits that it has without queues, and no step waits for a push or a read. Nothing is
// patched that the shard does not change: the worker's updates are predictions of what the shards will hold, and are dropped
// with the batch.
//
// Updates of other workers come with what is read. A row that is made of a linked batch's has seen only what that one has, so
// what a batch has seen is the least of both; it is measured when it is pushed, and a batch that lacks more than
// [StepOptions].MaxStaleness updates of others is read again before its step, once everything in front of it is pushed. So are
// the dense tensors.
//
// What is read only for the sake of outputs that lack it, and will not be pushed ([AheadStore.Applied]), changes nothing here.

// AheadStore is a [Store] that may be read ahead of the worker's own pushes. [*ps.Client] is one.
type AheadStore interface {
	Store
	// DenseState writes the dense parameters and the state of their optimizers, and returns what they have seen
	// ([param.Rows].Seen), in the memory of seen.
	DenseState(ctx context.Context, weights, state []float32, seen []int64) ([]int64, error)
	// Pushed is how many updates of this worker's are decided: what is read from now on has them.
	Pushed() uint64
	// AwaitPushed waits until so many are.
	AwaitPushed(ctx context.Context, n uint64) error
	// Applied is how far a split had been applied when the worker began with it: what lies before is not pushed again.
	Applied(source, split string) position.Position
	// Behind is how many updates of others, as far as known, a read that has seen so many lacks.
	Behind(seen []int64) int64
}

// link says that a row of a batch is to be made of a row of one in front of it.
type link struct {
	row, of int32
	from    int32 // number in sources
}

// lead is what a batch that was looked up ahead has beside.
type lead struct {
	// number counts the batches of the worker that are pushed, from 1; 0: this one is not.
	number uint64
	// links are those of each table, by row; sources are the batches that they lead to, each of which is held.
	links   [][]link
	sources []*Prepared
	// grads are the gradients of the step, lr what multiplies its rates.
	grads [][]float32
	lr    float32
	// pushed is what is pushed of rows: the gradients, or seen, which has them and the weights that they were computed with.
	pushed, seen [][]float32
	// examples is how many examples the model was trained on before, as schedules go.
	examples int64
	// holders are the batch's owner, its successors with links to it, and the tracker.
	holders atomic.Int32
}

// hold shares the buffers of p: not its batch, which Release gives back.
func (p *Prepared) hold() { p.lead.holders.Add(1) }

func (p *Prepared) drop() {
	if p.lead.holders.Add(-1) == 0 {
		p.pool.put(p)
	}
}

// dropSources lets go of the batches that p is linked to.
func (p *Prepared) dropSources() {
	for i, q := range p.lead.sources {
		q.drop()
		p.lead.sources[i] = nil
	}
	p.lead.sources = p.lead.sources[:0]
}

// tracker finds, for each fid of a batch, the nearest batch in front of it that has the fid and is not pushed. It belongs to
// the lookup.
type tracker struct {
	store  AheadStore
	last   uint64 // number of the last batch that is to be pushed
	tables []recent
	// waiting are the batches that were not pushed when last asked, by number, without a gap.
	waiting []*Prepared
	at      []int32 // number in sources of each waiting batch, for the batch at hand; -1: none
}

func newTracker(store AheadStore, tables int) *tracker {
	return &tracker{store: store, tables: make([]recent, tables)}
}

// isPushed reports whether a batch will be pushed: pipeline keeps from a sink what it has.
func (k *tracker) isPushed(o pipeline.Origin) bool {
	applied := k.store.Applied(o.Source, o.Split)
	return o.To > applied || o.From >= applied
}

// enter numbers a batch, whose fids are known, and links it to those in front of it. It comes before the batch is looked up.
func (k *tracker) enter(p *Prepared) {
	pushed := k.store.Pushed()
	n := 0
	for n < len(k.waiting) && k.waiting[n].lead.number <= pushed {
		k.waiting[n].drop()
		n++
	}
	k.waiting = append(k.waiting[:0], k.waiting[n:]...)
	k.at = resize(k.at, len(k.waiting))
	for i := range k.at {
		k.at[i] = -1
	}
	d := &p.lead
	d.number = 0
	if k.isPushed(p.batch.Origin()) {
		k.last++
		d.number = k.last
	}
	first := uint64(0)
	if len(k.waiting) > 0 {
		first = k.waiting[0].lead.number
	}
	d.links = resize(d.links, len(k.tables))
	for t := range k.tables {
		d.links[t] = k.tables[t].enter(d.links[t][:0], p.rows.Keys[t], d.number, pushed, first)
		for i := range d.links[t] {
			l := &d.links[t][i]
			if k.at[l.from] < 0 {
				k.at[l.from] = int32(len(d.sources))
				d.sources = append(d.sources, k.waiting[l.from])
				k.waiting[l.from].hold()
			}
			l.from = k.at[l.from]
		}
	}
	if d.number != 0 {
		p.hold()
		k.waiting = append(k.waiting, p)
	}
}

func (k *tracker) close() {
	for _, p := range k.waiting {
		p.drop()
	}
	k.waiting = nil
}

// recent remembers, for each fid of a table, in which batch it was last, in two hash tables: a young one for the latest batches
// and an old one, which is emptied and becomes the young one as soon as all of its batches are pushed.
type recent struct{ young, old era }

type era struct {
	slots []eraSlot // a power of two, at most half full
	n     int
	stamp uint32 // of the slots that are in use
	last  uint64 // number of the newest batch in it
}

type eraSlot struct {
	key    int64
	number uint64
	row    int32
	stamp  uint32
}

// enter appends the links of a batch with these distinct keys to batches that are not pushed; from counts from the first of
// them. Then it remembers the batch, unless its number is 0.
func (r *recent) enter(dst []link, keys []int64, number, pushed, first uint64) []link {
	if r.old.last <= pushed && r.young.n > 0 {
		r.old, r.young = r.young, r.old
		r.young.reset()
	}
	if number != 0 {
		r.young.room(len(keys))
		r.young.last = number
	}
	young, old := r.young.last > pushed && r.young.n > 0, r.old.last > pushed
	for i, key := range keys {
		h := param.Mix(0, uint64(key))
		var s, hit *eraSlot
		if number != 0 || young {
			if s = r.young.find(h, key); s.stamp == r.young.stamp {
				hit = s
			}
		}
		if hit == nil && old {
			if o := r.old.find(h, key); o.stamp == r.old.stamp {
				hit = o
			}
		}
		if hit != nil && hit.number > pushed {
			dst = append(dst, link{row: int32(i), of: hit.row, from: int32(hit.number - first)})
		}
		if number != 0 {
			if s.stamp != r.young.stamp {
				r.young.n++
			}
			*s = eraSlot{key, number, int32(i), r.young.stamp}
		}
	}
	return dst
}

// find returns the slot of a key, or the free one where it belongs. There must be slots.
func (e *era) find(h uint64, key int64) *eraSlot {
	mask := uint64(len(e.slots) - 1)
	for at := h & mask; ; at = (at + 1) & mask {
		if s := &e.slots[at]; s.stamp != e.stamp || s.key == key {
			return s
		}
	}
}

// reset empties the table.
func (e *era) reset() {
	e.n, e.last = 0, 0
	if e.stamp++; e.stamp == 0 { // after 2^32 times old stamps could look valid
		clear(e.slots)
		e.stamp = 1
	}
}

// room makes room for so many more keys.
func (e *era) room(more int) {
	need := 2 * (e.n + more)
	if need <= len(e.slots) {
		return
	}
	size := max(1024, len(e.slots))
	for size < need {
		size *= 2
	}
	was := e.slots
	stamp := e.stamp
	e.slots, e.stamp = make([]eraSlot, size), 1
	for i := range was {
		if s := &was[i]; s.stamp == stamp && stamp != 0 {
			t := e.find(param.Mix(0, uint64(s.key)), s.key)
			*t = *s
			t.stamp = 1
		}
	}
}

// replica is the worker's copy of the dense parameters, and what makes rows and tensors of gradients. It belongs to the step.
type replica struct {
	store     AheadStore
	layout    *param.Layout
	precision param.Precision
	rules     []*param.RowRule
	state     []float32 // of the dense parameters' optimizers
	sum       []float32 // scratch
	read      bool      // the dense parameters have been
	seen      []int64   // by them
	last      uint64    // number of the last batch that is to be pushed
}

func aheadOf(store Store) (AheadStore, error) {
	ahead, ok := store.(AheadStore)
	if !ok {
		return nil, fmt.Errorf("%T cannot be read ahead of pushes; put no queue between lookup and push: %w", store, pipeline.ErrConfig)
	}
	return ahead, nil
}

func newReplica(l *param.Layout, store Store, precision param.Precision) (*replica, error) {
	ahead, err := aheadOf(store)
	if err != nil {
		return nil, err
	}
	r := &replica{store: ahead, layout: l, precision: precision, state: make([]float32, l.DenseStateLen())}
	for _, t := range l.Tables {
		r.rules = append(r.rules, param.NewRowRule(t))
	}
	longest := 0
	for i := range l.Dense {
		if t := &l.Dense[i]; t.L2 != 0 || t.Delay > 0 {
			longest = max(longest, t.Len())
		}
	}
	r.sum = make([]float32, longest)
	return r, nil
}

// complete gives p the rows, and dense the tensors, that its step is to have: every update of the worker's own in front of it,
// and all but limit of those of others that are known of. It appends to seen what both have seen.
func (r *replica) complete(ctx context.Context, p *Prepared, dense []float32, limit int64, seen []int64) ([]int64, error) {
	var err error
	if !r.read || r.store.Behind(r.seen) > limit {
		if err := r.store.AwaitPushed(ctx, r.last); err != nil {
			return seen, err
		}
		if r.seen, err = r.store.DenseState(ctx, dense, r.state, r.seen); err != nil {
			return seen, err
		}
		r.read = true
	}
	for _, q := range p.lead.sources {
		least(p.rows.Seen, q.rows.Seen)
	}
	if r.store.Behind(p.rows.Seen) > limit {
		if err := r.store.AwaitPushed(ctx, r.last); err != nil {
			return seen, err
		}
		if err := r.store.Lookup(ctx, &p.rows); err != nil {
			return seen, err
		}
	} else {
		r.patch(p)
	}
	p.dropSources()
	r.round(p)
	seen = append(seen, p.rows.Seen...)
	least(seen, r.seen)
	return seen, nil
}

// round gives the step what a lookup in step with it would have: rows in the store's precision. Those that were made stay as they
// are, for the batches behind that are made of them.
func (r *replica) round(p *Prepared) {
	if r.precision == param.Float32 {
		return
	}
	p.rounded = resize(p.rounded, len(p.rows.Values))
	for t, v := range p.rows.Values {
		p.rounded[t] = resize(p.rounded[t], len(v))
		r.precision.RoundRows(p.rounded[t], v)
	}
	p.in.Values = p.rounded
}

// patch makes the rows that have links.
func (r *replica) patch(p *Prepared) {
	for t, links := range p.lead.links {
		dim, stateDim, rule := r.layout.Tables[t].Dim(), r.layout.Tables[t].StateDim(), r.rules[t]
		width := r.layout.Tables[t].Width(param.Train)
		values, state := p.rows.Values[t], p.rows.State[t]
		for _, l := range links {
			q, row, of := p.lead.sources[l.from], int(l.row), int(l.of)
			w, s := values[row*dim:][:dim], state[row*stateDim:][:stateDim]
			copy(w, q.rows.Values[t][of*dim:])
			copy(s, q.rows.State[t][of*stateDim:])
			rule.Update(w, s, q.lead.pushed[t][of*width:][:width], q.lead.lr, q.lead.examples)
		}
	}
}

// apply gives the dense parameters what a step pushes of them. Its batch must be one that is pushed.
func (r *replica) apply(p *Prepared, dense, push []float32) {
	r.last = p.lead.number
	state := r.state
	for i := range r.layout.Dense {
		t := &r.layout.Dense[i]
		n, k := t.Len(), t.PushLen()
		m := t.Optimizer.StateDim(n)
		t.Update(dense[:n], state[:m], push[:k], r.sum, p.lead.lr, p.lead.examples)
		dense, state, push = dense[n:], state[m:], push[k:]
	}
}

// least makes a the element-wise least of both.
func least(a, b []int64) {
	for i := range a {
		a[i] = min(a[i], b[i])
	}
}
