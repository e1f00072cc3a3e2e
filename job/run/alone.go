package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/model/graph"
)

// alone is a model that is used without its job file: a snapshot, or an export in native format.
type alone struct {
	model  *graph.Graph
	recipe []byte
	// name and created are the snapshot's, job is the one that trained it.
	name, job string
	created   time.Time
	path      string
	export    *native.Export // nil: a snapshot
}

// openAlone opens what a path means: a snapshot, of a folder the newest good one, an export, or a folder of exports for the newest complete one in it. Errors: [pipeline.ErrConfig] where it is none of
// these, and for a snapshot whose model was not stored.
func openAlone(ctx context.Context, path string, log *slog.Logger) (*alone, error) {
	entries, none := stored.FindSnapshots(path)
	if none == nil {
		info, damaged, err := stored.Local(entries).Good(ctx)
		if err != nil {
			return nil, err
		}
		found := info.Path
		stored.WarnPassedOver(ctx, log, damaged, found)
		if info.Model == nil {
			return nil, fault.Config("job: %s does not say what its model is: name the job file instead", found)
		}
		m, err := graph.Unmarshal(info.Model.Graph)
		if err != nil {
			return nil, fault.Config("job: the model of %s: %w", found, err)
		}
		return &alone{model: m, recipe: info.Recipe, name: filepath.Base(found), job: info.Meta["job"], created: info.Created, path: found}, nil
	}
	e, path, err := openNewest(ctx, path)
	if errors.Is(err, native.ErrNone) {
		return nil, fmt.Errorf("%w, or an export in native format", none)
	}
	if err != nil {
		return nil, err
	}
	m := e.Model()
	return &alone{model: m.Graph, recipe: m.Recipe, name: "export " + strconv.FormatUint(m.From.Snapshot, 10), job: m.From.Job, created: m.From.Created, path: path, export: e}, nil
}

// openNewest opens the newest complete export of a folder, which may be one itself, and returns its own folder.
func openNewest(ctx context.Context, path string) (*native.Export, string, error) {
	there, err := native.Find(ctx, fsx.Local{}, path)
	for _, p := range there {
		e, err := native.Open(ctx, p.Dir)
		if !errors.Is(err, native.ErrNone) {
			return e, p.Dir, err
		}
	}
	return nil, "", cmp.Or(err, native.ErrNone)
}

// close gives back what is open.
func (a *alone) close() error {
	if a == nil || a.export == nil {
		return nil
	}
	return a.export.Close()
}

// Alone makes the job by which [Predict] predicts a target, as of [spec.ForTarget], with the model at a path ([PredictOptions].Alone), which need not have a job
// file: what features are made of it says itself. Options put keys such as predict.to over it. Errors: [pipeline.ErrConfig]; those of the target.
func Alone(ctx context.Context, path, target string, opts spec.LoadOptions) (_ *spec.Config, err error) {
	a, err := openAlone(ctx, path, nil) // who predicts is warned
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	dir := filepath.Dir(a.path) // of exports
	if a.export == nil {
		dir = filepath.Dir(dir) // of the job
	}
	return spec.ForRecipe(a.recipe, a.job, dir, target, opts)
}
