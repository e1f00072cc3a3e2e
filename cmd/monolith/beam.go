package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/beam"
	"github.com/monolith-go/monolith/runners/local"
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
	all := map[string]job.Runner{}
	for _, name := range []string{"prism", "flink", "portable", "dataflow"} {
		all[name] = onBeam(name)
	}
	return all
}

// onBeam runs a plan on a Beam runner.
func onBeam(name string) job.Runner {
	return func(ctx context.Context, s job.Submission) (pipeline.RunStats, error) {
		stats, err := beam.Run(ctx, beam.Recipe{Name: job.RecipeName, Config: s.Recipe}, s.Plan, beamOptions(name, s))
		if errors.Is(err, beam.ErrCancelled) && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", job.ErrStopped, err)
		}
		return pipeline.Sum(stats...), err
	}
}

// beamOptions are those of a submission to a Beam runner.
func beamOptions(name string, s job.Submission) beam.Options {
	o, b := s.Options, s.Beam
	opts := beam.Options{
		Runner: name, Workers: o.Workers, Deterministic: o.Deterministic, MaxRows: o.MaxRows, Interleave: o.Interleave, Splits: o.Splits, Drain: o.Drain, Stop: o.Stop, Enough: o.Enough,
		IdleEvery: o.IdleEvery, Logger: o.Env(0).Log(),
	}
	switch name {
	case "flink", "portable":
		opts.Service = &beam.Service{
			Endpoint: b.Endpoint, Environment: b.Environment, EnvironmentConfig: b.EnvironmentConfig, JobName: b.JobName,
			Parallelism: b.Parallelism, CheckpointEvery: time.Duration(b.CheckpointEvery), Savepoint: b.Savepoint,
			BundleTime: time.Duration(b.BundleTime), FlinkREST: b.FlinkREST, Options: b.Options.Values(),
			Submitted: func(id string) { s.Notice("submitted to %s as job %s", b.Endpoint, id) },
		}
	case "dataflow":
		d := b.Dataflow
		opts.Dataflow = &beam.Dataflow{
			Project: d.Project, Region: d.Region, Staging: d.Staging, Temp: d.Temp, Image: d.Image, JobName: b.JobName,
			Workers: d.Workers, MaxWorkers: d.MaxWorkers, Threads: d.Threads, Autoscaling: d.Autoscaling, MachineType: d.MachineType, MinCPUPlatform: d.MinCPUPlatform,
			DiskGB: d.DiskGB, DiskType: d.DiskType, WorkerRegion: d.WorkerRegion, WorkerZone: d.WorkerZone, Network: d.Network, Subnetwork: d.Subnetwork,
			PrivateIPs: !d.PublicIPs, ServiceAccount: d.ServiceAccount, KMSKey: d.KMSKey, FlexRS: d.FlexRS, Labels: d.Labels, Experiments: d.Experiments, ServiceOptions: d.ServiceOptions,
			Submitted: func(id string) {
				s.Notice("submitted to Dataflow, project %s, region %s, as job %s", d.Project, d.Region, id)
			},
		}
	}
	return opts
}

// translate makes what training a job would submit to its runner.
func translate(ctx context.Context, cfg *job.Config) (json.RawMessage, error) {
	s, err := job.Planned(cfg)
	if err != nil {
		return nil, err
	}
	t, err := beam.Translate(ctx, beam.Recipe{Name: job.RecipeName, Config: s.Recipe}, s.Plan, beamOptions(cfg.Runner, s))
	if err != nil {
		return nil, err
	}
	return json.Marshal(t)
}

// cutPatience is how long the splits of a source may take to be listed for [cut].
const cutPatience = 5 * time.Second

// cut describes how the runner of a job would cut its training graph. Splits are listed; a source that does not answer is part of the description.
func cut(ctx context.Context, cfg *job.Config) (*pipeline.Cut, error) {
	s, err := job.Planned(cfg)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, cutPatience)
	defer stop()
	if cfg.Runner == "local" {
		return local.Describe(ctx, s.Plan, s.Options), nil
	}
	return beam.Describe(ctx, s.Plan, beamOptions(cfg.Runner, s))
}
