package trainstep

import (
	"cmp"
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
)

// StepOptions configure [Step].
type StepOptions struct {
	// Seed makes dropout masks, together with the split and position of a batch.
	Seed uint64
	// Identities are those of splits ([pipeline.Split].Identity), by name: masks are drawn by them where they are known, so
	// that a copy of the data is trained with the same.
	Identities map[string]string
	// LR multiplies every learning rate; 0 means 1.
	LR float32
	// Observe hears of every batch; nil: nobody does.
	Observe Observer
	// Progressive makes the predictions that are observed, and pushed as the update's trace, as the model would serve
	// them (no dropout, moving statistics), before the batch is trained on (progressive validation, Blum et al., 1999).
	// That costs a pass forward where it differs from training. Otherwise they are those of the training pass.
	Progressive bool
}

// Step is the stage that trains: predict, score, forward, back. A loss or a gradient that is not finite, or far beyond what
// rules can square, ends the run before anything of the batch is pushed: the position stays behind the batch, and what the
// shards and their snapshots hold is as it was.
type Step struct {
	model model.Model
	open  OpenStore
	opts  StepOptions
}

// NewStep makes the stage for a model.
func NewStep(m model.Model, open OpenStore, opts StepOptions) *Step {
	if opts.LR == 0 {
		opts.LR = 1
	}
	return &Step{m, open, opts}
}

var _ pipeline.Stage[*Prepared, *Gradients] = (*Step)(nil)

// String implements [pipeline.Stage].
func (s *Step) String() string { return "step" }

// Fingerprint implements [pipeline.Stage]: the options and the model.
func (s *Step) Fingerprint() string {
	return pipeline.Fingerprint("step", s.opts, "Observe") + " " + s.model.String()
}

// Schema implements [pipeline.Stage].
func (s *Step) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }

// Open implements [pipeline.Stage].
func (s *Step) Open(ctx context.Context, env *pipeline.Env) (pipeline.Processor[*Prepared, *Gradients], error) {
	store, err := s.open(ctx, env)
	if err != nil {
		return nil, err
	}
	return &step{stage: s, worker: env.Worker, runner: newRunner(s.model, store), pool: newPool[Gradients]()}, nil
}

// runner is a model's session with dense parameters that follow the store's.
type runner struct {
	session model.Session
	store   Store
	dense   []float32
	version uint64
}

func newRunner(m model.Model, store Store) runner {
	return runner{session: m.NewSession(), store: store, dense: make([]float32, m.Layout().DenseLen())}
}

func (r *runner) refresh(ctx context.Context) error {
	version, err := r.store.Dense(ctx, r.version, r.dense)
	if err != nil {
		return err
	}
	if version != r.version {
		r.session.SetDense(r.dense)
		r.version = version
	}
	return nil
}

type step struct {
	stage  *Step
	worker int
	runner
	pool *pool[Gradients]
}

// Process implements [pipeline.Processor].
func (s *step) Process(ctx context.Context, p *Prepared, emit func(*Gradients) error) error {
	o := p.Origin()
	g := s.pool.get()
	g.from, g.pool = p, s.pool
	g.update = param.Update{
		Source: o.Source, Split: o.Split, From: int64(o.From), To: int64(o.To), NumRows: p.NumRows(),
		Time: p.time, LR: s.stage.opts.LR,
	}
	if p.NumRows() == 0 { // only the position moves
		return emit(g)
	}
	if err := s.refresh(ctx); err != nil {
		g.Release()
		return err
	}
	var before []float32
	if s.stage.opts.Progressive && !s.session.PredictsAsTrained() {
		before = s.session.Predict(&p.in)[0]
	}
	if before != nil { // Step reuses the session's buffers
		g.dense = append(g.dense[:0], before...)
		before = g.dense
	}
	seed := param.Mix(param.Mix(s.stage.opts.Seed, param.HashName(o.Source, cmp.Or(s.stage.opts.Identities[o.Split], o.Split))), uint64(o.From))
	predictions, losses := s.session.Step(&p.in, seed)
	loss := losses[0]
	if err := s.check(p, loss); err != nil {
		g.Release()
		return err
	}
	if before == nil {
		before = predictions[0]
	}
	if observe := s.stage.opts.Observe; observe != nil {
		observe(Observation{Origin: o, Worker: s.worker, Probs: before, Labels: p.in.Labels[0], Weights: p.in.Weights, Loss: loss})
	}
	g.trace = AppendTrace(g.trace[:0], before, p.in.Labels[0], p.in.Weights)
	grads := s.session.Grads()
	g.buf = resize(g.buf, len(grads))
	for t := range grads {
		g.buf[t] = append(g.buf[t][:0], grads[t]...)
	}
	g.dense = append(g.dense[:0], s.session.DenseGrad()...)
	g.update.Keys, g.update.Counts, g.update.Grads, g.update.Dense = p.rows.Keys, p.counts, g.buf, g.dense
	g.update.Trace = g.trace
	return emit(g)
}

// Flush implements [pipeline.Processor].
func (s *step) Flush(context.Context, func(*Gradients) error) error { return nil }

// Close implements [pipeline.Processor].
func (s *step) Close() error { return nil }

// Score is the stage that only predicts.
type Score struct {
	model model.Model
	open  OpenStore
}

// NewScore makes the stage for a model.
func NewScore(m model.Model, open OpenStore) *Score { return &Score{m, open} }

var _ pipeline.Stage[*Prepared, *Scored] = (*Score)(nil)

// String implements [pipeline.Stage].
func (s *Score) String() string { return "score" }

// Fingerprint implements [pipeline.Stage]: the model.
func (s *Score) Fingerprint() string { return "score " + s.model.String() }

// Schema implements [pipeline.Stage].
func (s *Score) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }

// Open implements [pipeline.Stage].
func (s *Score) Open(ctx context.Context, env *pipeline.Env) (pipeline.Processor[*Prepared, *Scored], error) {
	store, err := s.open(ctx, env)
	if err != nil {
		return nil, err
	}
	return &score{newRunner(s.model, store), newPool[Scored]()}, nil
}

type score struct {
	runner
	pool *pool[Scored]
}

// Process implements [pipeline.Processor].
func (s *score) Process(ctx context.Context, p *Prepared, emit func(*Scored) error) error {
	out := s.pool.get()
	out.from, out.pool, out.probs = p, s.pool, out.probs[:0]
	if p.NumRows() > 0 {
		if err := s.refresh(ctx); err != nil {
			out.Release()
			return err
		}
		out.probs = append(out.probs, s.session.Predict(&p.in)[0]...)
	}
	return emit(out)
}

// Flush implements [pipeline.Processor].
func (s *score) Flush(context.Context, func(*Scored) error) error { return nil }

// Close implements [pipeline.Processor].
func (s *score) Close() error { return nil }
