package wiring

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/sinks/gradsink"
	"github.com/monolith-go/monolith/sinks/metricsink"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// OpenClient gives a worker's session with the parameter server; nil in a graph that is only planned.
type OpenClient func(ctx context.Context, worker int) (*ps.Client, error)

type clientKey struct{}

// client is the one session of a worker, shared by its stages and its sink and closed by the runner.
func (open OpenClient) client(ctx context.Context, env *pipeline.Env) (*ps.Client, error) {
	return pipeline.Resource(ctx, env, clientKey{}, func(ctx context.Context) (*ps.Client, error) {
		return open(ctx, env.Worker)
	})
}

func (open OpenClient) store(ctx context.Context, env *pipeline.Env) (trainstep.Store, error) {
	return open.client(ctx, env)
}

// Stores opens the sessions as what is only read from.
func (open OpenClient) Stores() trainstep.OpenStore { return open.store }

func (open OpenClient) pusher(ctx context.Context, env *pipeline.Env) (gradsink.Store, error) {
	return open.client(ctx, env)
}

// Names of nodes that others go by: metrics, which know the phases of a step, and the progress of an evaluation.
const (
	NodeLookup  = "lookup"
	NodeStep    = "step"
	NodePush    = "push"
	NodeMetrics = "metrics"
)

// TrainGraph is source ─> parse ─> batch ─╫─> lookup ─╫─> step ─╫─> push, with the job's outputs of rows downstream of the first queue
// and those of predictions beside the step. outs gets the writers of these; nil in a graph that is only planned.
func TrainGraph(c *spec.Config, m model.Model, r Reading, open OpenClient, outs *Outputs, step trainstep.StepOptions) (*pipeline.Plan, error) {
	if outs == nil {
		outs = &Outputs{}
	}
	g := pipeline.New(c.Name)
	examples, err := r.examples(g)
	if err != nil {
		return nil, err
	}
	step.Keys, step.Threads, step.Precision = traceKeys(c), c.StepThreads(), Precision(&c.PS)
	step.Schedule = c.Train.Schedule.Factor()
	if step.ReferenceBatch == 0 { // only planned
		step.ReferenceBatch = c.Train.ReferenceBatch
	}
	depth := c.Train.Prefetch
	examples = pipeline.Prefetch(examples, "prefetch", depth.Parse)
	of := outputList{c, c.Outputs, "outputs"}
	endRows, err := outs.shareRows(of, &examples)
	if err != nil {
		return nil, err
	}
	lookup := trainstep.NewLookup(m, open.store)
	if depth.Ahead() {
		lookup, step.MaxStaleness = lookup.Ahead(), c.Train.MaxStaleness
	}
	if c.InTurn() {
		lookup = lookup.InTurn(c.ExamplesBefore)
	}
	looked := pipeline.Prefetch(pipeline.Via(examples, NodeLookup, lookup), "lookahead", depth.Lookup)
	grads := pipeline.Via(looked, NodeStep, trainstep.NewStep(m, open.store, step))
	endPredictions, err := outs.sharePredictions(of, func() pipeline.Stream[*pipeline.Batch] {
		return pipeline.Side[*pipeline.Batch](grads, trainstep.SidePredictions)
	})
	if err != nil {
		return nil, err
	}
	pipeline.Into(pipeline.Prefetch(grads, "postpush", depth.Push), NodePush, gradsink.New[*trainstep.Gradients](open.pusher))
	endRows()
	endPredictions()
	return g.Plan()
}

// EvalGraph is source ─> parse ─> batch ─╫─> lookup ─> score ─> metrics, with the outputs of the evaluation beside as those of
// training are. outs gets the writers of these; nil in a graph without them.
func EvalGraph(c *spec.Config, r Reading, m model.Model, open OpenClient, outs *Outputs, insight *trainstep.Insight, sink *metricsink.Sink[*trainstep.Scored]) (*pipeline.Plan, error) {
	if r.Source == nil {
		return nil, fmt.Errorf("job: neither eval.source nor eval.holdout is set: say where the examples to evaluate come from: %w", pipeline.ErrConfig)
	}
	g := pipeline.New(c.Name + "-eval")
	examples, err := r.examples(g)
	if err != nil {
		return nil, err
	}
	examples = pipeline.Prefetch(examples, "prefetch", max(c.Train.Prefetch.Parse, 1))
	of := outputList{c, c.Eval.Outputs, "eval.outputs"}
	if outs == nil {
		outs, of.list = &Outputs{}, nil
	}
	endRows, err := outs.shareRows(of, &examples)
	if err != nil {
		return nil, err
	}
	looked := pipeline.Via(examples, NodeLookup, trainstep.NewLookup(m, open.store))
	score := trainstep.NewScore(m, open.store, c.StepThreads(), c.Eval.Keys()...).Into(insight)
	if c.HoldoutIsSampled() {
		score = score.OfData()
	}
	scored := pipeline.Via(looked, "score", score)
	endPredictions, err := outs.sharePredictions(of, func() pipeline.Stream[*pipeline.Batch] {
		return pipeline.Side[*pipeline.Batch](scored, trainstep.SidePredictions)
	})
	if err != nil {
		return nil, err
	}
	pipeline.Into(scored, NodeMetrics, sink)
	endRows()
	endPredictions()
	return g.Plan()
}

// BuildPlan makes and checks the training graph of a job without any I/O but reading secrets and what the model is made of.
func BuildPlan(c *spec.Config) (*pipeline.Plan, error) {
	m, err := Model(c)
	if err != nil {
		return nil, err
	}
	return TrainGraph(c, m, TrainReading(c, c.Epochs), nil, nil, trainstep.StepOptions{Seed: c.Seed})
}
