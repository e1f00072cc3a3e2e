package main

import (
	"context"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/beam"
)

// runners are the runners that jobs may name, over recipes. It must be called once, first thing in main: in a process that
// a Beam runner has started as its worker it does not return.
func runners(recipes *job.Recipes) map[string]job.Runner {
	beam.Register(job.RecipeName, func(ctx context.Context, config []byte) (*beam.Built, error) {
		b, err := recipes.Build(ctx, config)
		if err != nil {
			return nil, err
		}
		return &beam.Built{Plan: b.Plan, Env: b.Env, Close: b.Close}, nil
	})
	beam.Init()
	return map[string]job.Runner{"prism": onBeam("prism")}
}

// onBeam runs a plan on a Beam runner.
func onBeam(name string) job.Runner {
	return func(ctx context.Context, recipe []byte, plan *pipeline.Plan, o pipeline.RunOptions) (pipeline.RunStats, error) {
		stats, err := beam.Run(ctx, beam.Recipe{Name: job.RecipeName, Config: recipe}, plan, beam.Options{
			Runner: name, Workers: o.Workers, Deterministic: o.Deterministic, MaxRows: o.MaxRows, Splits: o.Splits, Drain: o.Drain, Stop: o.Stop, Enough: o.Enough,
			IdleEvery: o.IdleEvery, Logger: o.Env(0).Log(),
		})
		return pipeline.Sum(stats...), err
	}
}
