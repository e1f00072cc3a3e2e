package beam

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	sdk "github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/monolith-go/monolith/pipeline"
)

// settle is how long after the end of a job news of its executors may come.
const settle = 5 * time.Second

// grace is how long a run whose context has ended may take to end in order.
const grace = 30 * time.Second

// turn lets one run at a time use Beam: its runners set global flags and the harness a global logger.
var turn = make(chan struct{}, 1)

// Run runs all segments of a plan on a Beam runner and returns their statistics, in the plan's order as runners/local does.
// plan is what the recipe builds in this process; only its sources are asked, for the splits. Statistics are summed over all
// elements of a segment, and complete when the run ends without an error.
//
// An unbounded plan runs until it is drained, has MaxRows, fails, or ctx ends. When ctx ends the executors are stopped and
// joined, or the job cancelled that has them, and Run returns the cause. One run at a time uses Beam in a process; others wait for it.
//
// Errors: [pipeline.ErrConfig] for options and plans that cannot be, [ErrRecipe], [ErrPlan], [ErrInit], and what parts of
// the graph return: the very error where the executor ran in this process, otherwise one with its text.
func Run(ctx context.Context, r Recipe, plan *pipeline.Plan, o Options) ([]pipeline.RunStats, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	return run(ctx, r, plan, o, o.capability())
}

func run(ctx context.Context, r Recipe, plan *pipeline.Plan, o Options, c capability) (_ []pipeline.RunStats, err error) {
	sp, tasks, err := prepare(ctx, r, plan, o, c)
	if err != nil {
		return nil, err
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer logTo(o.Logger)()

	state := process.begin(sp, o.Logger)
	state.tasks = len(tasks)
	return submit(ctx, state, plan, tasks, o, c)
}

// prepare checks that a plan can run and makes the tasks of its run.
func prepare(ctx context.Context, r Recipe, plan *pipeline.Plan, o Options, c capability) (sp spec, _ []task, err error) {
	if !sdk.Initialized() {
		return sp, nil, fmt.Errorf("beam: Init was not called in main: %w", ErrInit)
	}
	if _, err := builder(r.Name); err != nil {
		return sp, nil, err
	}
	if err := checkShuffles(plan, o); err != nil {
		return sp, nil, err
	}
	splits, err := splitsOf(ctx, plan, o)
	if err != nil {
		return sp, nil, err
	}
	tasks, err := dealAll(plan, splits, o, c)
	if err != nil {
		return sp, nil, err
	}
	return spec{
		Run: rand.Text(), Process: process.self, Recipe: r, Hash: plan.Hash(), Deterministic: o.Deterministic, MaxRows: o.MaxRows, Interleave: o.Interleave,
		IdleEvery: int64(o.IdleEvery), Lease: int64(o.Lease), Renew: int64(o.Renew),
	}, tasks, nil
}

// wholeEnd returns what waits until all executors of an unbounded plan have ended in order, in this process or in others; nil where
// that cannot be known, and the job's own end must do.
func (r *runState) wholeEnd(c capability, plan *pipeline.Plan) func(context.Context) error {
	if plan.Bounded() {
		return nil
	}
	if c.oneProcess {
		return func(ctx context.Context) error {
			select {
			case <-r.allEnded:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return func(ctx context.Context) error {
		built, err := r.graph()
		if err == nil && built.AllEnded == nil {
			<-ctx.Done()
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		return r.spec.Recipe.guard("AllEnded", func() error { return built.AllEnded(ctx, r.tasks) })
	}
}

// splitsOf returns the splits to run, of which there is at least one.
func splitsOf(ctx context.Context, plan *pipeline.Plan, o Options) ([]pipeline.Split, error) {
	if o.Splits != nil {
		return o.Splits, nil
	}
	splits, err := plan.Splits(ctx)
	if err != nil {
		return nil, fmt.Errorf("beam: %w", err)
	}
	return splits, nil
}

// graphOf makes the Beam graph of a run.
func graphOf(sp spec, plan *pipeline.Plan, tasks []task, c capability) (*sdk.Pipeline, error) {
	p, s := sdk.NewPipelineWithRoot()
	s = s.Scope(plan.Name)
	var out sdk.PCollection
	if len(plan.Shuffles()) > 0 {
		var err error
		if out, err = shuffled(s, sp, plan, tasks); err != nil {
			return nil, err
		}
	} else {
		elems := make([][]byte, len(tasks))
		for i, t := range tasks {
			var err error
			if elems[i], err = t.encode(); err != nil {
				return nil, fmt.Errorf("beam: task %d: %w", i, err)
			}
		}
		var fn any = &leaseFn{segmentFn{sp}}
		if c.keeps(plan) {
			fn = &boundedFn{segmentFn{sp}}
		}
		out = sdk.ParDo(s, fn, sdk.Reshuffle(s, sdk.CreateList(s, elems)))
	}
	sdk.ParDo0(s, &collectFn{sp}, sdk.Reshuffle(s, out))
	return p, nil
}

// submit runs the Beam graph and ends the run in this process: every executor is joined when it returns.
func submit(ctx context.Context, state *runState, plan *pipeline.Plan, tasks []task, o Options, c capability) ([]pipeline.RunStats, error) {
	p, err := graphOf(state.spec, plan, tasks, c)
	if err != nil {
		return nil, errors.Join(err, state.end(errEnded))
	}
	d := o.destination()

	// Prism ends the process when the context of a job ends, or its deadline passes, at the wrong moment. So executors are
	// cancelled, their error fails the job, and the job's own context is the last resort.
	jobCtx, stopJob := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		drain, stop, enough := o.Drain, o.Stop, o.Enough
		broken := state.broken
		if d == nil {
			broken = nil // the job fails by itself
		}
		for {
			select {
			case <-broken: // its runner would begin it again, as often as it is set to
				stopJob()
				<-over
				return
			case <-drain:
				drain = nil
				state.endEarly(false)
			case <-stop:
				stop = nil
				state.endEarly(true)
			case <-enough:
				enough = nil
				state.allFull(len(plan.Segments))
			case <-ctx.Done():
				state.cancel(context.Cause(ctx))
				if d != nil { // executors elsewhere do not know
					stopJob()
					<-over
					return
				}
				last := time.AfterFunc(grace, stopJob)
				<-over
				last.Stop()
				return
			case <-over:
				return
			}
		}
	})
	var counted pipeline.RunStats
	if d != nil {
		counted, err = d.run(jobCtx, p, plan, len(tasks), state.wholeEnd(c, plan), o.Logger)
	} else {
		_, err = sdk.Run(jobCtx, o.Runner, p)
	}
	close(over)
	watch.Wait()
	stopJob()
	closed := state.end(errEnded)
	stats := state.sum(len(plan.Segments))
	if !c.oneProcess && len(stats) == 1 { // a runner counts for all segments together
		stats[0] = pipeline.Sum(stats[0], counted)
		stats[0].Drained = state.ending() && !stats[0].Full
	}
	if err == nil {
		return stats, closed
	}
	// Beam passes errors on as text, with its own notes; the executor's error is the one that says what is wrong.
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	} else if f := state.failure(); f != nil {
		err = f
	} else {
		err = fmt.Errorf("beam: %s: %w", o.Runner, err)
	}
	if closed != nil {
		err = errors.Join(err, closed)
	}
	return stats, err
}
