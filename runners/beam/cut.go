package beam

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/pipeline"
)

// Describe describes how a run with the same arguments would be cut. Splits that cannot be listed are reported in the cut, not as an
// error. Errors: [pipeline.ErrConfig] for options that cannot be.
func Describe(ctx context.Context, plan *pipeline.Plan, o Options) (*pipeline.Cut, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	c := o.capability()
	cut := &pipeline.Cut{
		Runner: o.Runner, Executors: o.executors(),
		Positions: "with the parameters, in the same commit as the gradients; no checkpoint of the runner decides where reading starts",
	}
	if err := checkShuffles(plan, o); err != nil {
		return nil, err
	}
	shuffled := len(plan.Shuffles()) > 0
	for i, s := range plan.Segments {
		sc, partitions := pipeline.SegmentCut{Workers: 1}, 0
		for _, source := range s.Sources() {
			sc.Sources = append(sc.Sources, source.Name)
		}
		for _, info := range plan.Shuffles() {
			if info.To == i {
				partitions += info.Partitions
			}
		}
		splits, err := s.Splits(ctx)
		switch {
		case err != nil:
			sc.Unknown = err.Error()
		case partitions > 0 && !o.Deterministic: // each is a key of its own
			sc.Splits, sc.Elements = len(splits), partitions
			if own := len(splits) - partitions; own > 0 {
				sc.Elements += len(deal(splits[:own], o, c))
			}
		default:
			tasks := deal(splits, o, c)
			sc.Splits, sc.Elements, sc.Workers = len(splits), len(tasks), tasks[0].Lanes
		}
		switch {
		case partitions > 0:
			sc.Form = "a DoFn behind a GroupByKey, which sorts its rows and runs the executor in one bundle"
		case shuffled:
			sc.Form = "a DoFn, whose executor runs in one bundle and sends rows to a GroupByKey"
		case c.keeps(plan):
			sc.Form = "one splittable DoFn with the executor of the element in it, from the first bundle to the end of the splits"
		default:
			sc.Form = "one splittable DoFn, whose bundles renew the lease of the element's executor"
		}
		cut.Segments = append(cut.Segments, sc)
	}
	switch {
	case shuffled || c.keeps(plan):
		cut.Bundles = "an executor runs to its end in one bundle; what it does comes out of it once"
	default:
		cut.Bundles = fmt.Sprintf("each returns after %v with the progress made; an executor without one for %v stops", o.Renew, o.Lease)
	}
	if d := o.destination(); d != nil {
		cut.Checkpoints = d.checkpoints(plan)
	}
	return cut, nil
}

// account is what runners store of an unbounded plan.
const account = "the restriction of each element: an account of the work, which may be older or newer than what is trained"

// executors describes where they are.
func (o *Options) executors() string {
	switch {
	case o.Dataflow != nil:
		return "in containers of " + o.Dataflow.Image + ", one on each machine of the job"
	case o.Service == nil || o.Service.here():
		return "in this process"
	case o.Service.Environment == Process:
		return "in processes that the runner's workers start: " + o.Service.EnvironmentConfig
	case o.Service.Environment == External:
		return "in the worker pool at " + o.Service.EnvironmentConfig + ", one beside each worker of the runner"
	}
	return "in containers of " + o.Service.EnvironmentConfig + " that the runner's workers start"
}

// checkpoints implements [destination].
func (s *Service) checkpoints(plan *pipeline.Plan) string {
	switch {
	case plan.Bounded():
		return "none: the runner begins an element that failed again"
	case s.CheckpointEvery == 0:
		return "none: a job that failed begins again, and continues where the parameter server is"
	}
	return fmt.Sprintf("every %v, %s", s.CheckpointEvery, account)
}

// checkpoints implements [destination].
func (*Dataflow) checkpoints(plan *pipeline.Plan) string {
	if plan.Bounded() {
		return "none: the runner begins an element that failed again"
	}
	return "each bundle, " + account
}
