package beam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/pipeline"
)

// Recipe is how a graph travels to another machine: a builder registered by name, and its configuration. Nothing is
// serialised stage by stage.
type Recipe struct {
	// Name is that of a builder known to [Register].
	Name string
	// Config is handed to the builder as it is; it must be good on every machine and should hold no secrets, since runners
	// store and show it.
	Config []byte
}

// Built is a graph that was built from its recipe.
type Built struct {
	Plan *pipeline.Plan
	// Env makes the environment of a worker; nil: the zero Env. Workers are numbered through all elements of a run.
	Env func(worker int) *pipeline.Env
	// Close releases what the builder opened once the process has no executor of the run left; nil: nothing to do.
	Close func() error

	// The rest connects executors with the process that submitted the run, where a runner has them in others; Beam has nothing
	// for it. Nil: they run until their splits end.

	// Follow is called in a process with such executors, until ctx ends. It calls drain, stop or enough when the run is to end in one
	// of these ways ([Options]), and returns why its executors must stop, if they must.
	Follow func(ctx context.Context, drain, stop, enough func()) error
	// Ended tells the submitting process that the executor of a task has ended in order.
	Ended func(ctx context.Context, task int) error
	// AllEnded is called in the submitting process, and returns once the executors of so many tasks have ended in order.
	AllEnded func(ctx context.Context, tasks int) error
}

// Builder builds a graph from the configuration of its recipe: the same graph everywhere, without I/O in planning. It runs
// once for each run in a process, before the first executor. ctx ends when the run does.
type Builder func(ctx context.Context, config []byte) (*Built, error)

// builders are the recipes of the program.
var builders = struct {
	sync.Mutex
	m map[string]Builder
}{m: map[string]Builder{}}

// Register makes a builder known under a name. Call it before [Init], from main, in every program that may be a worker. It
// panics when b is nil or the name is taken.
func Register(name string, b Builder) {
	builders.Lock()
	defer builders.Unlock()
	if b == nil {
		panic(fmt.Sprintf("beam: recipe %q has no builder", name))
	}
	if builders.m[name] != nil {
		panic(fmt.Sprintf("beam: recipe %q is registered already", name))
	}
	builders.m[name] = b
}

func builder(name string) (Builder, error) {
	builders.Lock()
	defer builders.Unlock()
	if b := builders.m[name]; b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("beam: recipe %q; this program knows %q: %w", name, slices.Sorted(maps.Keys(builders.m)), ErrRecipe)
}

// build builds the graph of a recipe and checks that it is the one with the given hash.
func build(ctx context.Context, r Recipe, hash string) (*Built, error) {
	b, err := builder(r.Name)
	if err != nil {
		return nil, err
	}
	var built *Built
	err = pipeline.Guard(fmt.Sprintf("beam: recipe %q", r.Name), func() (err error) {
		if built, err = b(ctx, r.Config); err != nil {
			err = fmt.Errorf("beam: recipe %q: %w", r.Name, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if got := built.Plan.Hash(); got != hash {
		err = fmt.Errorf("beam: recipe %q makes plan %s, submitted was %s; the worker runs another version of the program or another job: %w", r.Name, got, hash, ErrPlan)
		return nil, errors.Join(err, built.close(r))
	}
	return built, nil
}

// close gives back what was built.
func (b *Built) close(r Recipe) error {
	if b == nil || b.Close == nil {
		return nil
	}
	return r.guard("Close", func() error {
		if err := b.Close(); err != nil {
			return fmt.Errorf("beam: recipe %q: close: %w", r.Name, err)
		}
		return nil
	})
}

// guard calls a function of what was built.
func (r Recipe) guard(function string, f func() error) error {
	return pipeline.Guard(fmt.Sprintf("beam: recipe %q: %s", r.Name, function), f)
}
