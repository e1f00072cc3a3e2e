// Package trainstep holds the stages of a training graph around a model: [Lookup] turns a batch into a model's inputs
// and fetches the embedding rows it needs, [Step] runs the model forward and back and emits the gradients, and [Score]
// runs it forward only, for evaluation.
package trainstep

import (
	"context"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/pipeline"
)

// Store is where parameters are read from. One worker's stages share one store: a lookup and a read of the dense
// parameters may overlap each other and the pushes of the worker.
type Store interface {
	// Lookup fills rows.Values for rows.Keys and changes nothing in the store.
	Lookup(ctx context.Context, rows *param.Rows) error
	// Dense copies the dense parameters into dst unless the caller has that version already, and returns the version.
	// Version 0 is none.
	Dense(ctx context.Context, have uint64, dst []float32) (version uint64, err error)
}

// OpenStore gives the store of a worker. It is called once for each stage; the store is the caller's to close.
type OpenStore func(ctx context.Context, env *pipeline.Env) (Store, error)

// Observation is what a step knows about one batch. Everything in it is valid during the call only.
type Observation struct {
	Origin pipeline.Origin
	Worker int
	// Scores are the predictions that [StepOptions].Progressive is about, with what they are measured by.
	Scores *score.Batch
	// Losses are those of the heads in the training pass.
	Losses []float64
}

// Observer is notified of every step, from the goroutine of its worker.
type Observer func(Observation)

// Prepared is a batch as a model sees it, with the embedding rows it looked up. It implements [pipeline.Element].
type Prepared struct {
	batch *pipeline.Batch
	in    model.Inputs
	rows  param.Rows
	// rounded are the values of the rows, where the step has not them themselves.
	rounded [][]float32
	counts  [][]uint32
	time    int64     // of the newest row, microseconds since 1970
	offs    [][]int32 // offsets that begin at 0, for columns whose do not
	// Buffers of the inputs: labels that several columns make up, the rows of masks and the numbers of groups.
	labels          [][]float32
	masks, maskOf   [][]bool
	groups, groupOf [][]int32
	scored          score.Batch
	lead            lead
	ahead           bool // looked up ahead: lead says of what
	pool            *pool[Prepared]
}

// Origin implements [pipeline.Element].
func (p *Prepared) Origin() pipeline.Origin { return p.batch.Origin() }

// NumRows implements [pipeline.Element].
func (p *Prepared) NumRows() int { return p.in.NumRows }

// Inputs returns the model's inputs, valid until Release.
func (p *Prepared) Inputs() *model.Inputs { return &p.in }

// Release implements [pipeline.Element].
func (p *Prepared) Release() {
	p.batch.Release()
	p.batch = nil
	p.dropSources()
	p.drop()
}

// Gradients is what one step changes. It implements [pipeline.Element].
type Gradients struct {
	update param.Update
	from   *Prepared // owns the keys, counts and gradients of rows
	dense  []float32
	// sent is what is pushed of dense, where tensors have delays.
	sent   []float32
	sends  bool // it is
	seen   []int64
	before [][]float32 // predictions, where the session needs its own again
	trace  []byte
	pool   *pool[Gradients]
}

// Origin implements [pipeline.Element].
func (g *Gradients) Origin() pipeline.Origin { return g.from.Origin() }

// NumRows implements [pipeline.Element].
func (g *Gradients) NumRows() int { return g.update.NumRows }

// Update returns the update to push, valid until Release.
func (g *Gradients) Update() *param.Update { return &g.update }

// Release implements [pipeline.Element].
func (g *Gradients) Release() {
	g.takeBack()
	g.from.Release()
	g.from = nil
	g.pool.put(g)
}

// takeBack makes the memory that a shard has left in the update's place the element's own ([param.Update].Exchange). That of slices of slices
// is there already: they are the same.
func (g *Gradients) takeBack() {
	if !g.update.Exchange {
		return
	}
	if g.sends {
		g.sent = g.update.Dense
	} else {
		g.dense = g.update.Dense
	}
	d := &g.from.lead
	for t, pushed := range d.pushed {
		if d.seen[t] != nil {
			d.seen[t] = pushed
		} else {
			d.grads[t] = pushed
		}
	}
	d.pushed = d.pushed[:0]
}

// Scored is a batch with its predictions. It implements [pipeline.Element].
type Scored struct {
	from        *Prepared
	predictions [][]float32
	inData      [][]float32  // the predictions as scores has them, where they differ
	scores      *score.Batch // the Prepared's
	pool        *pool[Scored]
}

// Origin implements [pipeline.Element].
func (s *Scored) Origin() pipeline.Origin { return s.from.Origin() }

// NumRows implements [pipeline.Element].
func (s *Scored) NumRows() int { return s.from.NumRows() }

// Scores returns the predictions with what they are measured by, valid until Release.
func (s *Scored) Scores() *score.Batch { return s.scores }

// Positions are the positions after each row, or nil where the batch has none, valid until Release.
func (s *Scored) Positions() []int64 { return s.from.batch.Positions() }

// Batch returns the batch that was scored, valid until Release.
func (s *Scored) Batch() *pipeline.Batch { return s.from.batch }

// Release implements [pipeline.Element].
func (s *Scored) Release() {
	s.from.Release()
	s.from, s.scores = nil, nil
	s.pool.put(s)
}

// pool is a free list of elements that travel from one goroutine to another and back. What does not fit is left to the
// garbage collector, so a pool never blocks.
type pool[T any] struct{ free chan *T }

func newPool[T any]() *pool[T] { return &pool[T]{make(chan *T, 64)} }

func (p *pool[T]) get() *T {
	select {
	case v := <-p.free:
		return v
	default:
		return new(T)
	}
}

func (p *pool[T]) put(v *T) {
	select {
	case p.free <- v:
	default:
	}
}

// resize returns s with length n, reusing its memory where it suffices.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}
