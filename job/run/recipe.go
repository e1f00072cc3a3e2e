package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// Runner runs the one segment of a plan somewhere else than pipeline's own executor would by itself. Errors: [ErrStopped].
type Runner func(ctx context.Context, s Submission) (pipeline.RunStats, error)

// Submission is what a runner is to run.
type Submission struct {
	// Recipe is what the graph can be built from again, by [Recipes.Build], where the runner takes it.
	Recipe  []byte
	Plan    *pipeline.Plan
	Options pipeline.RunOptions
	// Beam is the job's section of the runner; its JobName is set.
	Beam spec.Beam
	// Notice tells the user something.
	Notice func(format string, args ...any)
}

// ErrStopped means that a run was ended at its runner, by somebody else, before its executors had ended. Runners that have executors in
// other processes return it; what was trained is kept, and training is drained.
var ErrStopped = errors.New("the run was stopped at its runner")

// RecipeName is the name under which programs register [Recipes.Build] with a runner.
const RecipeName = "monolith-train"

// Planned is the submission that a run of a job begins with, as far as it is known without its shards: it can be translated and looked
// at, not run.
func Planned(cfg *spec.Config) (Submission, error) {
	s := Submission{Beam: cfg.Beam, Notice: func(string, ...any) {}}
	s.Beam.JobName = cmp.Or(s.Beam.JobName, cfg.Name)
	s.Options = pipeline.RunOptions{
		Workers: cfg.Train.Workers, Deterministic: cfg.Deterministic, MaxRows: cfg.Train.MaxExamples, Interleave: cfg.Train.Interleave,
		Env: func(worker int) *pipeline.Env { return &pipeline.Env{Worker: worker} },
	}
	var err error
	if s.Plan, err = wiring.BuildPlan(cfg); err != nil {
		return s, err
	}
	s.Recipe, err = json.Marshal(recipe{Job: cfg.Raw(), UpTo: cfg.Epochs, LR: 1, Worker: "planned"})
	return s, err
}

// Recipes builds graphs of training, evaluation and prediction again from their recipes: those of runs in this process with their own sessions, metrics
// and policies, others from the job. The zero value works; methods may overlap.
type Recipes struct {
	// Components are what jobs of other processes may name; the zero value: those of monolith.
	Components component.Set
	// Logger, if not nil, makes what executors in other processes log to, from a level on.
	Logger func(level slog.Leveler) *slog.Logger

	mu   sync.Mutex
	here map[string]func() (*Rebuilt, error)
}

// Rebuilt is a graph that was built from its recipe.
type Rebuilt struct {
	Plan *pipeline.Plan
	Env  func(worker int) *pipeline.Env
	// Close, if not nil, gives back what was opened.
	Close func() error
	// Follow and Ended are for executors in other processes than the one that made the recipe, AllEnded is for that one; nil where the
	// shards are in its process. Follow calls drain, stop or enough when the run is to end in one of these ways
	// ([pipeline.RunOptions]), until ctx ends, and returns why executors must stop, if they must. Ended reports that the executor of
	// a task has ended in order, and AllEnded returns once those of so many tasks have.
	Follow   func(ctx context.Context, drain, stop, enough func()) error
	Ended    func(ctx context.Context, task int) error
	AllEnded func(ctx context.Context, tasks int) error
}

// recipe is the configuration of a recipe. It holds no secret: the job names where they are kept.
type recipe struct {
	// Run names the run within its process.
	Run        string   `json:"run"`
	Job        conf.Raw `json:"job"`
	UpTo       int      `json:"up_to"`
	LR         float32  `json:"lr"`
	Generation uint64   `json:"generation"`
	Worker     string   `json:"worker"`
	// Backfill reports whether the run is on what the shards have as the part of the job's history.
	Backfill bool `json:"backfill,omitempty"`
	// Eval, if not nil, makes it a recipe of the evaluation graph.
	Eval *evalRecipe `json:"eval,omitempty"`
	// Predict, if not nil, makes it a recipe of the graph of predictions.
	Predict *predictRecipe `json:"predict,omitempty"`
	// Export, if not nil, makes it a recipe of a graph that writes a snapshot's model, or rows of it.
	Export *exportRecipe `json:"export,omitempty"`
}

// add makes a run of this process known and returns its recipe; done resets it.
func (r *Recipes) add(of recipe, build func() (*Rebuilt, error)) (config []byte, done func(), err error) {
	if config, err = json.Marshal(of); err != nil {
		return nil, nil, fmt.Errorf("job: recipe: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.here == nil {
		r.here = map[string]func() (*Rebuilt, error){}
	}
	r.here[of.Run] = build
	return config, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.here, of.Run)
	}, nil
}

// Build builds a graph again. In another process than the one that made the recipe it needs a job whose shards are in
// processes of their own. Errors: [*spec.ConfigError], [pipeline.ErrConfig], [pipeline.ErrUnavailable].
func (r *Recipes) Build(ctx context.Context, config []byte) (*Rebuilt, error) {
	var of recipe
	if err := json.Unmarshal(config, &of); err != nil {
		return nil, fmt.Errorf("job: recipe: %w: %w", err, pipeline.ErrConfig)
	}
	r.mu.Lock()
	here := r.here[of.Run]
	r.mu.Unlock()
	if here != nil {
		return here()
	}
	if of.Export != nil {
		return of.Export.build(components.Or(r.Components))
	}
	return of.rebuild(ctx, components.Or(r.Components), r.Logger)
}

// rebuild builds the graph from the job alone.
func (of *recipe) rebuild(ctx context.Context, set component.Set, logger func(slog.Leveler) *slog.Logger) (_ *Rebuilt, err error) {
	cfg, err := spec.Decode(of.Job.Text, of.Job.Name, spec.LoadOptions{Components: set, Set: of.Job.Set, Env: append(os.Environ(), of.Job.Env...), Untrained: of.Eval != nil || of.Predict != nil})
	if err != nil {
		return nil, err
	}
	log, err := of.logger(cfg, logger)
	if err != nil {
		return nil, err
	}
	if of.Eval != nil {
		return of.Eval.rebuild(ctx, cfg, set, log)
	}
	if of.Predict != nil {
		return of.Predict.rebuild(ctx, cfg, log)
	}
	if !cfg.PS.Remote() {
		return nil, fmt.Errorf("job: the shards are in the process that made the recipe; to train in others, give the job ps.addresses: %w", pipeline.ErrConfig)
	}
	t := &trainer{cfg: cfg, log: log, worker: fmt.Sprintf("%s/%s", of.Worker, stored.WorkerName()), monitor: newMonitor(cfg, Options{}, nil)}
	if t.model, err = wiring.Model(cfg); err != nil {
		return nil, err
	}
	if t.plan, err = wiring.TrainGraph(cfg, t.model, wiring.TrainReading(cfg, cfg.Epochs), nil, nil, trainstep.StepOptions{Seed: cfg.Seed}); err != nil {
		return nil, err
	}
	if t.bad, err = newBadRows(cfg, t.worker, t.log); err != nil {
		return nil, err
	}
	if err := t.dial(ctx); err != nil {
		return nil, errors.Join(err, t.bad.close())
	}
	if err := t.refer(ctx, nil); err != nil {
		return nil, errors.Join(err, t.close())
	}
	if of.Backfill {
		if err := t.followBackfill(ctx); err != nil {
			return nil, errors.Join(err, t.close())
		}
		cfg = t.cfg
	}
	if err := t.know(ctx); err != nil {
		return nil, errors.Join(err, t.close())
	}
	plan, err := wiring.TrainGraph(cfg, t.model, t.reading(of.UpTo), t.clientOf(of.Generation), &t.outputs, t.stepOptions(of.LR))
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return &Rebuilt{
		Plan: plan,
		Env: func(worker int) *pipeline.Env {
			return &pipeline.Env{Worker: worker, Logger: t.log, BadRows: t.bad.policy, Memory: t.memories.put, State: t.stageStates()}
		},
		Close: t.close,
		Follow: func(ctx context.Context, drain, stop, enough func()) error {
			return of.follow(ctx, t.shards, time.Duration(cfg.PS.Lease), drain, stop, enough)
		},
		Ended: func(ctx context.Context, task int) error {
			_, err := t.shards.Follow(ctx, of.Worker, of.Run, ps.Continue, []int{task})
			return err
		},
	}, nil
}

// logger is what executors log to.
func (of *recipe) logger(cfg *spec.Config, open func(slog.Leveler) *slog.Logger) (*slog.Logger, error) {
	if open == nil {
		return slog.New(slog.DiscardHandler), nil
	}
	level := slog.LevelInfo
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		return nil, err
	}
	return open(level), nil
}

// follow tells executors how the worker that delegates to them wants them to end, until ctx ends. Errors: [ps.ErrFenced] when that worker
// has been gone, or busy with something else, for its lease and as long again: one that lives is back by then.
func (of *recipe) follow(ctx context.Context, s shards, lease time.Duration, drain, stop, enough func()) error {
	how, gone := ps.Continue, time.Time{}
	for {
		next, err := s.Follow(ctx, of.Worker, of.Run, how, nil)
		if errors.Is(err, ps.ErrFenced) && gone.IsZero() {
			gone = time.Now()
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the executors have ended
		case errors.Is(err, ps.ErrFenced) && time.Since(gone) <= 2*lease:
			select {
			case <-time.After(lease / 8):
			case <-ctx.Done():
				return nil
			}
			continue
		case err != nil:
			return fmt.Errorf("job: executors of worker %s stop: %w", of.Worker, err)
		}
		gone = time.Time{}
		if next == how {
			continue
		}
		switch how = next; how {
		case ps.Drain:
			drain()
		case ps.Stop:
			stop()
		case ps.Enough:
			enough()
		}
	}
}
