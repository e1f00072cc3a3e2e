package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/beam"
)

// runners are the runners that jobs may name, over recipes. It must be called once, first thing in main: in a process that
// a Beam runner has started as its worker it does not return.
func runners(recipes *job.Recipes) map[string]job.Runner {
	recipes.Logger = beam.WorkerLogger
	beam.Register(job.RecipeName, func(ctx context.Context, config []byte) (*beam.Built, error) {
		b, err := recipes.Build(ctx, config)
		if err != nil {
			return nil, err
		}
		return &beam.Built{Plan: b.Plan, Env: b.Env, Close: b.Close, Follow: b.Follow, Ended: b.Ended, AllEnded: b.AllEnded}, nil
	})
	beam.Init()
	return map[string]job.Runner{"prism": onBeam("prism", false), "flink": onBeam("flink", true), "portable": onBeam("portable", true)}
}

// onBeam runs a plan on a Beam runner; submits: one with a job service.
func onBeam(name string, submits bool) job.Runner {
	return func(ctx context.Context, s job.Submission) (pipeline.RunStats, error) {
		o := s.Options
		opts := beam.Options{
			Runner: name, Workers: o.Workers, Deterministic: o.Deterministic, MaxRows: o.MaxRows, Splits: o.Splits, Drain: o.Drain, Stop: o.Stop, Enough: o.Enough,
			IdleEvery: o.IdleEvery, Logger: o.Env(0).Log(),
		}
		if submits {
			opts.Service = &beam.Service{
				Endpoint: s.Beam.Endpoint, Environment: s.Beam.Environment, EnvironmentConfig: s.Beam.EnvironmentConfig, JobName: s.Beam.JobName,
				Parallelism: s.Beam.Parallelism, CheckpointEvery: time.Duration(s.Beam.CheckpointEvery), Savepoint: s.Beam.Savepoint,
				BundleTime: time.Duration(s.Beam.BundleTime), FlinkREST: s.Beam.FlinkREST, Options: s.Beam.Options.Values(),
				Submitted: func(id string) { s.Notice("submitted to %s as job %s", s.Beam.Endpoint, id) },
			}
		}
		stats, err := beam.Run(ctx, beam.Recipe{Name: job.RecipeName, Config: s.Recipe}, s.Plan, opts)
		if errors.Is(err, beam.ErrCancelled) && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", job.ErrStopped, err)
		}
		return pipeline.Sum(stats...), err
	}
}
