package job

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/sinks/gradsink"
	"github.com/monolith-go/monolith/sinks/metricsink"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// openClient gives a worker's session with the parameter server; nil in a graph that is only planned.
type openClient func(ctx context.Context, worker int) (*ps.Client, error)

type clientKey struct{}

// client is the one session of a worker, shared by its stages and its sink and closed by the runner.
func (open openClient) client(ctx context.Context, env *pipeline.Env) (*ps.Client, error) {
	return pipeline.Resource(ctx, env, clientKey{}, func(ctx context.Context) (*ps.Client, error) {
		return open(ctx, env.Worker)
	})
}

func (open openClient) store(ctx context.Context, env *pipeline.Env) (trainstep.Store, error) {
	return open.client(ctx, env)
}

func (open openClient) pusher(ctx context.Context, env *pipeline.Env) (gradsink.Store, error) {
	return open.client(ctx, env)
}

// trainGraph is source ─> parse ─> batch ─╫─> lookup ─╫─> step ─╫─> push.
func (c *Config) trainGraph(m model.Model, r reading, open openClient, step trainstep.StepOptions) (*pipeline.Plan, error) {
	g := pipeline.New(c.Name)
	examples, err := r.examples(g)
	if err != nil {
		return nil, err
	}
	depth := c.Train.Prefetch
	examples = pipeline.Prefetch(examples, "prefetch", depth.Parse)
	looked := pipeline.Prefetch(pipeline.Via(examples, "lookup", trainstep.NewLookup(m, open.store)), "lookahead", depth.Lookup)
	grads := pipeline.Prefetch(pipeline.Via(looked, "step", trainstep.NewStep(m, open.store, step)), "postpush", depth.Push)
	pipeline.Into(grads, "push", gradsink.New[*trainstep.Gradients](open.pusher))
	return g.Plan()
}

// evalGraph is source ─> parse ─> batch ─╫─> lookup ─> score ─> metrics.
func (c *Config) evalGraph(r reading, m model.Model, open openClient, sink *metricsink.Sink[*trainstep.Scored]) (*pipeline.Plan, error) {
	if r.source == nil {
		return nil, fmt.Errorf("job: eval.source is not set: say where the examples to evaluate come from: %w", pipeline.ErrConfig)
	}
	g := pipeline.New(c.Name + "-eval")
	examples, err := r.examples(g)
	if err != nil {
		return nil, err
	}
	examples = pipeline.Prefetch(examples, "prefetch", max(c.Train.Prefetch.Parse, 1))
	looked := pipeline.Via(examples, "lookup", trainstep.NewLookup(m, open.store))
	pipeline.Into(pipeline.Via(looked, "score", trainstep.NewScore(m, open.store)), "metrics", sink)
	return g.Plan()
}

// BuildPlan makes and checks the training graph of a job without any I/O but reading secrets.
func BuildPlan(c *Config) (*pipeline.Plan, error) {
	m, err := c.model()
	if err != nil {
		return nil, err
	}
	return c.trainGraph(m, c.trainReading(c.Epochs), nil, trainstep.StepOptions{Seed: c.Seed})
}
