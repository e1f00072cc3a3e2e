package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/sinks/metricsink"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// evalRecipe is what executors in other processes need to evaluate a job, beside it.
type evalRecipe struct {
	// Of is the job whose eval section says what is evaluated, where that is another one.
	Of *conf.Raw `json:"of,omitempty"`
	// Snapshot and Folder are absolute paths: what is read, and where predictions are written.
	Snapshot string `json:"snapshot"`
	Folder   string `json:"folder"`
}

// elsewhere reports whether executors are in other processes, of evaluations and predictions.
func elsewhere(c *spec.Config) bool { return c.Submits() && c.Beam.Environment != spec.Loopback }

// checkRunner is what keeps an evaluation from its runner. Errors: [pipeline.ErrConfig].
func (e *evaluation) checkRunner() error {
	name := e.cfg.Runner
	switch {
	case name == spec.RunnerLocal:
	case e.opts.Runners[name] == nil || e.opts.Recipes == nil:
		return fault.Config("job: this program was built without the runner %s", name)
	case name == spec.RunnerDataflow:
		return fault.Config("job: evaluations do not run on %s, which has no folder in common with this process for snapshot and predictions; take --runner=local", name)
	case !elsewhere(e.cfg):
	case len(e.cfg.Eval.Outputs) > 0:
		return fault.Config("job: eval.outputs are not written by executors in other processes; take --runner=local, or beam.environment=loopback")
	case e.limit() > 0:
		return fault.Config("job: executors in other processes have no common count, which %d examples at most would need; take --runner=local, or beam.environment=loopback", e.limit())
	}
	return nil
}

// submission runs the evaluation graph of a job on its runner.
type submission struct {
	e        *evaluation
	cfg      *spec.Config
	snapshot string
}

// run runs a plan whose sink is given, and gathers what executors in other processes have found.
func (s *submission) run(ctx context.Context, plan *pipeline.Plan, sink *metricsink.Sink[*trainstep.Scored], o pipeline.RunOptions) (stats pipeline.RunStats, err error) {
	again := recipe{Run: rand.Text(), Job: s.cfg.Raw()}
	if elsewhere(s.e.cfg) {
		if again.Eval, err = s.recipe(); err != nil {
			return stats, err
		}
		defer func() { // also of an evaluation that was cancelled
			err = errors.Join(err, fault.Unavailable(fsx.RemoveAll(context.WithoutCancel(ctx), fsx.Local{}, again.Eval.Folder)))
		}()
		var end context.CancelCauseFunc
		ctx, end = context.WithCancelCause(ctx)
		defer end(nil)
		quit := make(chan struct{})
		var watch sync.WaitGroup
		defer watch.Wait()
		defer close(quit)
		watch.Go(func() { // executors elsewhere are not told to drain
			select {
			case <-o.Drain:
				end(fmt.Errorf("job: the evaluation was ended before all examples were scored: %w", context.Canceled))
			case <-quit:
			}
		})
	}
	config, done, err := s.e.opts.Recipes.add(again, func() (*Rebuilt, error) { return &Rebuilt{Plan: plan, Env: o.Env}, nil })
	if err != nil {
		return stats, err
	}
	defer done()
	sub := Submission{Recipe: config, Plan: plan, Options: o, Beam: s.e.cfg.Beam, Notice: func(format string, args ...any) { s.e.notice(fmt.Sprintf(format, args...)) }}
	sub.Beam.JobName = cmp.Or(sub.Beam.JobName, s.e.cfg.Name) + "-eval"
	if stats, err = s.e.opts.Runners[s.e.cfg.Runner](ctx, sub); err != nil {
		return stats, err
	}
	if again.Eval != nil {
		if err := sink.Gather(ctx, fsx.Local{}, again.Eval.Folder); err != nil {
			return stats, fmt.Errorf("job: what the executors have written: %w", fault.Unavailable(err))
		}
	}
	stats.Rows = int64(sink.Scores().Rows()) // what was read again does not count again
	return stats, nil
}

// recipe makes the folder that executors write to.
func (s *submission) recipe() (*evalRecipe, error) {
	dir, err := filepath.Abs(filepath.Join(s.e.cfg.Dir, "evals", rand.Text()))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("job: %w: %w", err, pipeline.ErrUnavailable)
	}
	r := &evalRecipe{Folder: dir}
	if r.Snapshot, err = filepath.Abs(s.snapshot); err != nil {
		return nil, err
	}
	if s.cfg != s.e.cfg {
		of := s.e.cfg.Raw()
		r.Of = &of
	}
	return r, nil
}

// rebuild builds the evaluation graph from its job alone, over shards of this process.
func (r *evalRecipe) rebuild(ctx context.Context, cfg *spec.Config, set component.Set, log *slog.Logger) (*Rebuilt, error) {
	if r.Of != nil {
		of, err := spec.Decode(r.Of.Text, r.Of.Name, spec.LoadOptions{Components: set, Set: r.Of.Set, Env: append(os.Environ(), r.Of.Env...), Untrained: true})
		if err != nil {
			return nil, err
		}
		cfg.Eval = of.Eval
	}
	m, err := wiring.Model(cfg)
	if err != nil {
		return nil, err
	}
	bad, err := newBadRows(cfg, stored.WorkerName(), log)
	if err != nil {
		return nil, err
	}
	cluster, err := coordinator.Open(ctx, coordinator.Options{Layout: m.Layout(), NumShards: cfg.PS.Shards, Precision: wiring.Precision(&cfg.PS), Restore: r.Snapshot, ReadOnly: true, Logger: log})
	if err != nil {
		return nil, errors.Join(fault.Unavailable(err), bad.close())
	}
	closeAll := func() error { return errors.Join(cluster.Close(context.WithoutCancel(ctx)), bad.close()) }
	open := func(ctx context.Context, worker int) (*ps.Client, error) {
		return cluster.Client(ctx, fmt.Sprintf("eval-%d", worker))
	}
	plan, err := wiring.EvalGraph(cfg, wiring.EvalReading(cfg), m, open, nil, nil, metricsink.NewIn[*trainstep.Scored](fsx.Local{}, r.Folder))
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	return &Rebuilt{
		Plan:  plan,
		Env:   func(worker int) *pipeline.Env { return &pipeline.Env{Worker: worker, Logger: log, BadRows: bad.policy} },
		Close: closeAll,
	}, nil
}
