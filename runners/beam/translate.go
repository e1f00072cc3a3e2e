package beam

import (
	"context"
	"encoding/json"
	"fmt"

	sdk "github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/graphx"
	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/pipeline"
)

// Translation is what would be submitted for a run.
type Translation struct {
	// Job is Dataflow's job, as its interface jobs.create takes it; nil for other runners.
	Job json.RawMessage `json:"job,omitempty"`
	// Options are the runner's options by their full names; nil for Dataflow, which has them in the job.
	Options map[string]any `json:"options,omitempty"`
	// Pipeline is the graph in Beam's portable form, beam.org.model.pipeline.v1.Pipeline.
	Pipeline json.RawMessage `json:"pipeline"`
}

// Translate makes what [Run] would submit with the same arguments, and reaches nothing but the plan's sources, which are asked for their
// splits. Errors: those of Run, and [pipeline.ErrConfig] for a runner that nothing is submitted to.
func Translate(ctx context.Context, r Recipe, plan *pipeline.Plan, o Options) (*Translation, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	d := o.destination()
	if d == nil {
		return nil, fmt.Errorf("beam: runner %q runs in this process, so there is nothing to submit: %w", o.Runner, pipeline.ErrConfig)
	}
	c := o.capability()
	sp, tasks, err := prepare(ctx, r, plan, o, c)
	if err != nil {
		return nil, err
	}
	p, err := graphOf(sp, plan, tasks, c)
	if err != nil {
		return nil, err
	}
	return d.translate(ctx, p, plan, len(tasks))
}

// translate implements [destination]. The pool of executors in this process has no address yet.
func (s *Service) translate(ctx context.Context, p *sdk.Pipeline, plan *pipeline.Plan, _ int) (*Translation, error) {
	edges, _, err := p.Build()
	if err != nil {
		return nil, err
	}
	urn, config, err := s.where()
	if err != nil {
		return nil, err
	}
	env, err := graphx.CreateEnvironment(ctx, urn, func(context.Context) string { return config })
	if err != nil {
		return nil, err
	}
	job, err := graphx.Marshal(edges, &graphx.Options{Environment: env})
	if err != nil {
		return nil, err
	}
	options := map[string]any{}
	for name, value := range s.options(plan.Bounded()) {
		options[optionName(name)] = value
	}
	return translation(job, options)
}

// translation renders a pipeline.
func translation(job *pipepb.Pipeline, options map[string]any) (*Translation, error) {
	b, err := protojson.Marshal(job)
	if err != nil {
		return nil, err
	}
	t := &Translation{Options: options}
	t.Pipeline, err = compactJSON(b)
	return t, err
}
