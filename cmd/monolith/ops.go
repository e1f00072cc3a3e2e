package main

import (
	"context"
	"os"
	"sync"

	"github.com/monolith-go/monolith/cmd/monolith/internal/cli"
	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/internal/simd/simdbench"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/demo"
	"github.com/monolith-go/monolith/job/jobbench"
	"github.com/monolith-go/monolith/ps/psbench"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/runners/beam"
)

// ops wires the library into the commands.
func ops(runners map[string]job.Runner, recipes *job.Recipes) cli.Ops {
	memory := sync.OnceValue(func() *table.Memory { return processMemory(os.DirFS("/")) })
	return cli.Ops{
		Begin: simd.Check,
		Train: func(ctx context.Context, c *job.Config, o job.RunOptions) (*job.TrainResult, error) {
			o.Runners, o.Recipes, o.Memory = runners, recipes, memory()
			return job.Run(ctx, c, o)
		},
		Promote: job.Promote,
		Serve: func(ctx context.Context, c *job.Config, o job.ServeOptions) (*job.ServeResult, error) {
			o.Memory = memory()
			return job.Serve(ctx, c, o)
		},
		ServeModels: func(ctx context.Context, o job.ServeModelsOptions) error {
			o.Limits.Room = roomOf(memory())
			return job.ServeModels(ctx, o)
		},
		Scale: job.Scale,
		Pool:  beam.Pool,
		ExportModel: func(ctx context.Context, o job.ExportModelOptions) (*job.ExportedModel, error) {
			memory() // what the collector goes by
			o.Runners, o.Recipes = runners, recipes
			return job.ExportModel(ctx, o)
		},
		FetchExport:  job.FetchExport,
		VerifyExport: job.VerifyExport,
		Import:       job.Import,
		Export:       job.Export,
		Translate:    translate,
		Eval: func(ctx context.Context, c *job.Config, o job.EvalOptions) (*job.EvalResult, error) {
			o.Runners, o.Recipes, o.Memory = runners, recipes, memory()
			return job.Evaluate(ctx, c, o)
		},
		Predict: func(ctx context.Context, c *job.Config, o job.PredictOptions) (*job.Predicted, error) {
			o.Runners, o.Recipes, o.Memory = runners, recipes, memory()
			return job.Predict(ctx, c, o)
		},
		Tune: func(ctx context.Context, c *job.Config, o job.TuneOptions) (*job.Tuned, error) {
			o.Memory = memory()
			return job.Tune(ctx, c, o)
		},
		Plan: func(c *job.Config) (job.Plan, error) {
			p, err := job.BuildPlan(c)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		Cut: cut,
		Model: func(c *job.Config) ([]byte, error) {
			m, err := job.BuildModel(c)
			if err != nil {
				return nil, err
			}
			return m.Marshal()
		},
		Check: job.Check,
		Need: func(ctx context.Context, c *job.Config, o job.NeedOptions) (*job.MemoryNeed, error) {
			o.Memory = memory()
			return job.Need(ctx, c, o)
		},
		InspectSource:   job.InspectSource,
		Propose:         job.Propose,
		InspectSnapshot: job.InspectSnapshot,
		InspectSlots:    job.InspectSlots,
		Models: cli.ModelOps{
			List: job.ListModels, Measure: jobbench.Model, Describe: job.DescribeModel, DescribeStored: job.DescribeStoredModel, Nearest: job.Nearest, Diff: job.DiffSnapshots,
			Insight: func(ctx context.Context, c *job.Config, o job.InsightOptions) (*job.InsightResult, error) {
				o.Memory = memory()
				return job.Insight(ctx, c, o)
			},
		},
		PS: cli.RowOps{
			LookUp: job.LookUp, LookUpStored: job.LookUpStored, IDs: job.IDs, IDsStored: job.IDsStored, Edit: job.Edit, Slots: job.InspectShards, Changes: job.FollowChanges, Push: job.Push,
		},
		Snapshots: cli.SnapshotOps{
			List: job.ListSnapshots, Verify: job.VerifySnapshots, Prune: job.PruneSnapshots, Take: job.TakeSnapshot,
			Fetch: job.FetchSnapshot, FetchJob: job.FetchJobSnapshot,
		},
		Demo: func(ctx context.Context, o job.DemoOptions) (*job.DemoResult, error) {
			o.Memory = memory()
			return demo.Run(ctx, o)
		},
		Bench: map[string]func(context.Context, bench.Options) ([]bench.Result, error){
			"gemm":     simdbench.Gemm,
			"step":     jobbench.Step,
			"queues":   jobbench.Queues,
			"predict":  jobbench.Predict,
			"serve":    jobbench.Serve,
			"export":   jobbench.Export,
			"size":     jobbench.Size,
			"frappe":   jobbench.Frappe,
			"procs":    jobbench.Procs,
			"month":    jobbench.Month,
			"wire":     psbench.Wire,
			"wal":      psbench.Log,
			"snapshot": snapshots,
			"table":    psbench.Table,
			"large":    psbench.Large,
		},
		BenchShards: jobbench.Shards,
	}
}

// snapshots measures snapshots beside pushes alone, then beside whole jobs.
func snapshots(ctx context.Context, o bench.Options) ([]bench.Result, error) {
	pushed, err := psbench.Snapshot(ctx, o)
	if err != nil {
		return pushed, err
	}
	trained, err := jobbench.Snapshot(ctx, o)
	return append(pushed, trained...), err
}
