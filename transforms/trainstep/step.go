package trainstep

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
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
	// Schedule is a factor on all learning rates beside LR, by how many examples were trained on before a batch.
	Schedule optim.Schedule
	// Trained returns how many examples of each split all shards have applied. It is asked before the first batch, and with TrainedEvery again after so many batches
	// of the stage; what this process has resumed it counts itself, exactly. nil: nobody else has trained.
	Trained func(ctx context.Context) (map[pipeline.SplitID]int64, error)
	// TrainedEvery is for stages beside which others train on other splits; 0: Trained is asked once.
	TrainedEvery int64
	// Keys are the key columns ([pipeline.KeyColumn]) whose values go with the scores.
	Keys []string
	// Threads is how many threads a worker's step uses; 0 means 1. Results have the same bits with any number.
	Threads int
	// Observe is notified of every batch; nil: nobody does. The predictions of its scores are those in the data that the
	// model learns from ([model.Head.InData]), as in the update's trace: they are compared with its labels.
	Observe Observer
	// Progressive makes the predictions that are observed, and pushed as the update's trace, as the model would serve
	// them (no dropout, moving statistics), before the batch is trained on (progressive validation, Blum et al., 1999).
	// That costs a pass forward where it differs from training. Otherwise they are those of the training pass.
	Progressive bool
	// MaxStaleness is how many updates of other workers, as far as known, a batch that was looked up ahead may lack at its step; one
	// that lacks more is looked up again. It matters to a [Lookup.Ahead] alone.
	MaxStaleness int64
	// ReferenceBatch is what gradients of rows are sums over the examples of a batch divided by; 0: the batch's own number, which makes them means, as those of
	// dense tensors always are. An optimizer's state of a row is then of one scale whatever the size of batches is.
	ReferenceBatch int
	// Precision is the store's: that of rows that it gives without state and of the gradients that it is given.
	Precision param.Precision
}

// Step is the stage that trains: predict, score, forward, back. A loss or a gradient that is not finite, or far beyond what
// rules can square, ends the run before anything of the batch is pushed: the position stays behind the batch, and what the
// shards and their snapshots hold is as it was.
type Step struct {
	model   model.Model
	open    OpenStore
	opts    StepOptions
	scoring scoring
	pace    *pace // nil: nothing goes by the examples before a batch
}

// NewStep makes the stage for a model.
func NewStep(m model.Model, open OpenStore, opts StepOptions) *Step {
	if opts.LR == 0 {
		opts.LR = 1
	}
	s := &Step{model: m, open: open, opts: opts, scoring: newScoring(m, opts.Keys)}
	if !opts.Schedule.Constant() || m.Layout().Paced() {
		s.pace = newPace(&s.opts)
	}
	return s
}

var _ pipeline.Stage[*Prepared, *Gradients] = (*Step)(nil)

// String implements [pipeline.Stage].
func (s *Step) String() string { return "step" }

// Fingerprint implements [pipeline.Stage]: the options and the model.
func (s *Step) Fingerprint() string {
	f := pipeline.Fingerprint("step", s.opts, "Observe", "Threads", "MaxStaleness", "Precision", "ReferenceBatch", "Schedule", "Trained", "TrainedEvery")
	if s.opts.Schedule != (optim.Schedule{}) {
		f += " schedule " + s.opts.Schedule.String()
	}
	if s.opts.ReferenceBatch != 0 {
		f += fmt.Sprintf(" reference batch %d", s.opts.ReferenceBatch)
	}
	if s.opts.Precision != param.Float32 {
		f += " in " + s.opts.Precision.String()
	}
	if steps := s.model.Layout().Steps(); steps != "" {
		f += " " + steps
	}
	return f + " " + s.model.String()
}

// Schema implements [pipeline.Stage]: the batch must have the columns of the keys.
func (s *Step) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, s.scoring.check(in) }

// Sides implements [pipeline.Sider].
func (s *Step) Sides(in *arrow.Schema) (map[string]*arrow.Schema, error) {
	out, _ := predictionSchema(in, s.model.Heads())
	return map[string]*arrow.Schema{SidePredictions: out}, nil
}

// Open implements [pipeline.Stage].
func (s *Step) Open(ctx context.Context, env *pipeline.Env) (pipeline.Processor[*Prepared, *Gradients], error) {
	store, err := s.open(ctx, env)
	if err != nil {
		return nil, err
	}
	side, err := openPredictions(env, s.model)
	if err != nil {
		return nil, err
	}
	return &step{
		stage: s, worker: env.Worker, runner: newRunner(s.model, store, s.opts.Threads), side: side, inData: newInData(s.model), pool: newPool[Gradients](),
	}, nil
}

// runner is a model's session with dense parameters that follow the store's.
type runner struct {
	session model.Session
	store   Store
	dense   []float32
	version uint64
}

func newRunner(m model.Model, store Store, threads int) runner {
	r := runner{session: m.NewSession(max(threads, 1)), store: store, dense: make([]float32, m.Layout().DenseLen())}
	r.session.SetDense(r.dense)
	return r
}

func (r *runner) refresh(ctx context.Context) error {
	version, err := r.store.Dense(ctx, r.version, r.dense)
	if err == nil {
		r.version = version
	}
	return err
}

type step struct {
	stage  *Step
	worker int
	runner
	side   predictions
	inData *inData
	pool   *pool[Gradients]
	// paced are the splits that the stage's pace has from this worker.
	paced map[pipeline.SplitID]bool
	// replica is made for the first batch that was looked up ahead.
	replica *replica
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
	if pace := s.stage.pace; pace != nil {
		factor, examples, err := pace.factor(ctx, s, o, p.NumRows())
		if err != nil {
			g.Release()
			return err
		}
		g.update.LR *= float32(factor)
		g.update.Examples, p.in.Examples = examples, examples
	}
	if p.ahead && s.replica == nil {
		var err error
		if s.replica, err = newReplica(s.stage.model.Layout(), s.store, s.stage.opts.Precision); err != nil {
			g.Release()
			return err
		}
	}
	if p.NumRows() == 0 { // only the position moves
		if p.ahead && p.lead.number != 0 {
			s.replica.last = p.lead.number
		}
		if err := s.side.emit(p.batch, nil); err != nil {
			g.Release()
			return err
		}
		return emit(g)
	}
	if err := s.parameters(ctx, p, g); err != nil {
		g.Release()
		return err
	}
	scores, err := p.scores(&s.stage.scoring)
	if err != nil {
		g.Release()
		return err
	}
	predicted := s.stage.opts.Progressive && !s.session.PredictsAsTrained()
	if predicted {
		g.before = keep(g.before, s.session.Predict(&p.in)) // Step reuses the session's buffers
		scores.SetPredictions(s.inData.of(g.before))
	}
	seed := param.Mix(param.Mix(s.stage.opts.Seed, param.HashName(o.Source, cmp.Or(s.stage.opts.Identities[o.Split], o.Split))), uint64(o.From))
	predictions, losses := s.session.Step(&p.in, seed)
	if err := s.check(p, losses); err != nil {
		g.Release()
		return err
	}
	observed := g.before
	if !predicted {
		observed = predictions
		scores.SetPredictions(s.inData.of(predictions))
	}
	if err := s.side.emit(p.batch, observed); err != nil {
		g.Release()
		return err
	}
	if observe := s.stage.opts.Observe; observe != nil {
		observe(Observation{Origin: o, Worker: s.worker, Scores: scores, Losses: losses})
	}
	g.trace = s.stage.scoring.encoder.Append(g.trace[:0], scores)
	d := &p.lead
	d.lr, d.examples = g.update.LR, g.update.Examples
	d.grads, g.dense = s.session.TakeGrads(d.grads, g.dense)
	if scale := s.stage.rowScale(p.NumRows()); scale != 1 {
		for t, of := range d.grads {
			scaleRows(scale, of, &s.stage.model.Layout().Tables[t])
		}
	}
	d.push(s.stage.model.Layout().Tables, p.in.Values)
	if precision := s.stage.opts.Precision; p.ahead && precision != param.Float32 {
		for _, g := range d.pushed { // what the store will apply, for the batches behind
			precision.RoundGradients(g, g)
		}
	}
	g.update.Keys, g.update.Counts, g.update.Grads, g.update.Dense = p.rows.Keys, p.counts, d.pushed, g.dense
	if layout := s.stage.model.Layout(); layout.DensePushLen() > len(g.dense) {
		g.sent = layout.AppendDenseSeen(g.sent[:0], g.dense, s.dense)
		g.update.Dense, g.sends = g.sent, true
	}
	g.update.Trace, g.update.Seen, g.update.Found = g.trace, g.seen, p.rows.Found
	g.update.Exchange = !p.ahead // batches behind read the gradients of those in front
	if p.ahead && d.number != 0 {
		s.replica.apply(p, s.dense, g.update.Dense)
	}
	return emit(g)
}

// rowScale is what makes the gradients of rows of a batch, means over its examples, those that are pushed.
func (s *Step) rowScale(examples int) float32 {
	if s.opts.ReferenceBatch == 0 {
		return 1
	}
	return float32(examples) / float32(s.opts.ReferenceBatch)
}

// scaleRows scales the gradients of a table's rows, but for counts ([optim.Counted]).
func scaleRows(scale float32, grads []float32, t *param.Table) {
	if !slices.ContainsFunc(t.Segments, func(s param.Segment) bool { return optim.IsCounted(s.Optimizer) }) {
		simd.Scale(scale, grads)
		return
	}
	for at := 0; at < len(grads); {
		for _, s := range t.Segments {
			if !optim.IsCounted(s.Optimizer) {
				simd.Scale(scale, grads[at:at+s.Dim])
			}
			at += s.Dim
		}
	}
}

// push makes what is pushed of gradients and, in tables with delays, of the weights that they were computed with.
func (d *lead) push(tables []param.Table, values [][]float32) {
	d.pushed = append(d.pushed[:0], d.grads...)
	d.seen = resize(d.seen, len(tables))
	for t, spec := range tables {
		if spec.Width(param.Train) > spec.Dim() {
			d.seen[t] = spec.AppendSeen(d.seen[t][:0], d.grads[t], values[t])
			d.pushed[t] = d.seen[t]
		}
	}
}

// parameters brings the dense parameters and the batch's rows up to date, and notes what both have seen.
func (s *step) parameters(ctx context.Context, p *Prepared, g *Gradients) (err error) {
	g.seen = g.seen[:0]
	if !p.ahead {
		g.seen = append(g.seen, p.rows.Seen...) // the dense parameters are read later
		return s.refresh(ctx)
	}
	g.seen, err = s.replica.complete(ctx, p, s.dense, s.stage.opts.MaxStaleness, g.seen)
	return err
}

// Flush implements [pipeline.Processor].
func (s *step) Flush(context.Context, func(*Gradients) error) error { return nil }

// Close implements [pipeline.Processor].
func (s *step) Close() error {
	s.session.Close()
	return nil
}

// keep copies the predictions of each head.
func keep(dst, predictions [][]float32) [][]float32 {
	dst = resize(dst, len(predictions))
	for i, p := range predictions {
		dst[i] = append(dst[i][:0], p...)
	}
	return dst
}

// Score is the stage that only predicts.
type Score struct {
	model   model.Model
	open    OpenStore
	threads int
	scoring scoring
	insight *Insight // nil: nobody asks
	sampled bool
}

// NewScore makes the stage for a model, with so many threads for each worker. keys are the key columns ([pipeline.KeyColumn]) whose values
// go with the scores.
func NewScore(m model.Model, open OpenStore, threads int, keys ...string) *Score {
	return &Score{model: m, open: open, threads: threads, scoring: newScoring(m, keys)}
}

// Into has an insight gathered of what is scored, nil for none. It changes no prediction.
func (s *Score) Into(n *Insight) *Score {
	s.insight = n
	return s
}

// OfData makes the predictions of the scores those in the data that the model learns from
// ([model.Head.InData]). It is for examples of that data, such as those held out of it. [SidePredictions]
// stay as they are served.
func (s *Score) OfData() *Score {
	s.sampled = true
	return s
}

var _ pipeline.Stage[*Prepared, *Scored] = (*Score)(nil)

// String implements [pipeline.Stage].
func (s *Score) String() string { return "score" }

// Fingerprint implements [pipeline.Stage]: the keys and the model.
func (s *Score) Fingerprint() string {
	of := "score"
	if s.sampled && newInData(s.model) != nil {
		of = "score of the data"
	}
	return fmt.Sprintf("%s keys=%q %s", of, s.scoring.schema.Keys, s.model.String())
}

// Schema implements [pipeline.Stage]: the batch must have the columns of the keys.
func (s *Score) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, s.scoring.check(in) }

// Sides implements [pipeline.Sider].
func (s *Score) Sides(in *arrow.Schema) (map[string]*arrow.Schema, error) {
	out, _ := predictionSchema(in, s.model.Heads())
	return map[string]*arrow.Schema{SidePredictions: out}, nil
}

// Open implements [pipeline.Stage].
func (s *Score) Open(ctx context.Context, env *pipeline.Env) (pipeline.Processor[*Prepared, *Scored], error) {
	store, err := s.open(ctx, env)
	if err != nil {
		return nil, err
	}
	side, err := openPredictions(env, s.model)
	if err != nil {
		return nil, err
	}
	out := &scorer{scoring: &s.scoring, runner: newRunner(s.model, store, s.threads), side: side, insight: s.insight, pool: newPool[Scored]()}
	if s.sampled {
		out.inData = newInData(s.model)
	}
	return out, nil
}

type scorer struct {
	scoring *scoring
	runner
	side    predictions
	insight *Insight
	inData  *inData // nil: predictions stay as they are served
	pool    *pool[Scored]
}

// Process implements [pipeline.Processor].
func (s *scorer) Process(ctx context.Context, p *Prepared, emit func(*Scored) error) error {
	out := s.pool.get()
	out.from, out.pool = p, s.pool
	var err error
	var made [][]float32
	if out.scores, err = p.scores(s.scoring); err != nil {
		out.Release()
		return err
	}
	if p.NumRows() > 0 {
		if err := s.refresh(ctx); err != nil {
			out.Release()
			return err
		}
		out.predictions = keep(out.predictions, s.session.Predict(&p.in))
		made = out.predictions
		if s.inData != nil {
			out.inData = keep(out.inData, s.inData.of(made))
			out.scores.SetPredictions(out.inData)
		} else {
			out.scores.SetPredictions(made)
		}
		if s.insight != nil {
			s.insight.batch(s.session, p, out.scores, s.inData)
		}
	}
	if err := s.side.emit(p.batch, made); err != nil {
		out.Release()
		return err
	}
	return emit(out)
}

// Flush implements [pipeline.Processor].
func (s *scorer) Flush(context.Context, func(*Scored) error) error { return nil }

// Close implements [pipeline.Processor].
func (s *scorer) Close() error {
	s.session.Close()
	return nil
}
