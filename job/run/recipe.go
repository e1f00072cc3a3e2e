package run

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// Runner runs the one segment of a plan somewhere else than pipeline's own executor would by itself. recipe is what the
// graph can be built from again, by [Recipes.Build], where the runner takes it.
type Runner func(ctx context.Context, recipe []byte, plan *pipeline.Plan, o pipeline.RunOptions) (pipeline.RunStats, error)

// RecipeName is the name under which programs register [Recipes.Build] with a runner.
const RecipeName = "monolith-train"

// Recipes builds training graphs again from their recipes: those of runs in this process with their own sessions, metrics
// and policies, others from the job. The zero value works; methods may overlap.
type Recipes struct {
	// Components are what jobs of other processes may name; the zero value: those of monolith.
	Components component.Set

	mu   sync.Mutex
	here map[string]func() (*Rebuilt, error)
}

// Rebuilt is a graph that was built from its recipe.
type Rebuilt struct {
	Plan *pipeline.Plan
	Env  func(worker int) *pipeline.Env
	// Close, if not nil, gives back what was opened.
	Close func() error
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
}

// add makes a run of this process known and returns its recipe; done resets it.
func (r *Recipes) add(of recipe, build func() (*Rebuilt, error)) (config []byte, done func(), err error) {
	of.Run = rand.Text()
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
	return of.rebuild(ctx, components.Or(r.Components))
}

// rebuild builds the graph from the job alone.
func (of *recipe) rebuild(ctx context.Context, set component.Set) (_ *Rebuilt, err error) {
	cfg, err := spec.Decode(of.Job.Text, of.Job.Name, spec.LoadOptions{Components: set, Set: of.Job.Set, Env: append(os.Environ(), of.Job.Env...)})
	if err != nil {
		return nil, err
	}
	if !cfg.PS.Remote() {
		return nil, fmt.Errorf("job: the shards are in the process that made the recipe; to train in others, give the job ps.addresses: %w", pipeline.ErrConfig)
	}
	t := &trainer{cfg: cfg, log: slog.New(slog.DiscardHandler), worker: fmt.Sprintf("%s/%s", of.Worker, stored.WorkerName()), monitor: newMonitor(cfg, Options{}, nil)}
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
	if err := t.know(ctx); err != nil {
		return nil, errors.Join(err, t.close())
	}
	step := trainstep.StepOptions{Seed: cfg.Seed, Identities: t.known.identities(), LR: of.LR, Progressive: progressive(cfg)}
	plan, err := wiring.TrainGraph(cfg, t.model, t.reading(of.UpTo), t.clientOf(of.Generation), &t.outputs, step)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return &Rebuilt{
		Plan: plan,
		Env: func(worker int) *pipeline.Env {
			return &pipeline.Env{Worker: worker, Logger: t.log, BadRows: t.bad.policy, Memory: t.memories.put, State: t.stageStates()}
		},
		Close: t.close,
	}, nil
}
