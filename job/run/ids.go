package run

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
)

// ValueOptions name values of a feature, whose ids are wanted.
type ValueOptions struct {
	// Feature is the feature's name, Values are texts as its column has them.
	Feature string
	Values  []string
	// Table, if not empty, is where the rows are looked for. It must be the feature's.
	Table string
	// Components are those of the job; the zero value: those of monolith.
	Components component.Set
}

// IDs returns the ids that a job makes of values. Errors: [pipeline.ErrConfig].
func IDs(cfg *spec.Config, o ValueOptions) ([]int64, error) {
	return idsBy(cfg.Recipe().JSON(), o)
}

// IDsStored returns the ids that the model of a snapshot has for values, or that of the newest good one of a
// job's dir or of a folder of snapshots. Errors: [pipeline.ErrConfig], [snapshot.ErrCorrupt] where no snapshot
// is good.
func IDsStored(ctx context.Context, path string, o ValueOptions) (_ []int64, err error) {
	f, err := stored.OpenFolder(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, _, err := f.Use(nil)
	if err != nil {
		return nil, err
	}
	return idsBy(info.Recipe, o)
}

func idsBy(recipe json.RawMessage, o ValueOptions) ([]int64, error) {
	set := components.Or(o.Components)
	c, err := spec.ForFeatures(recipe, set)
	if err != nil {
		return nil, err
	}
	for _, f := range c.Parse.Features {
		if f.Name == o.Feature && f.Table != "" && o.Table != "" && f.Table != o.Table {
			return nil, fault.Config("job: feature %q is in table %q, not in %q", f.Name, f.Table, o.Table)
		}
	}
	opts, err := wiring.RecipeOptions(recipe, set)
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, value := range o.Values {
		ids, err := opts.IDs(o.Feature, value)
		if err != nil {
			return nil, fault.Config("job: --feature %s --value %q: %w", o.Feature, value, err)
		}
		if len(ids) == 0 {
			return nil, fault.Config("job: --feature %s --value %q: the job takes this value for a missing one, so it has no id", o.Feature, value)
		}
		out = append(out, ids...)
	}
	return out, nil
}
