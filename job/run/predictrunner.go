package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
)

// predictRecipe is what executors in other processes need to predict, beside the job.
type predictRecipe struct {
	// Examples is as of [PredictOptions].
	Examples string `json:"examples,omitempty"`
	// Snapshot is an absolute path.
	Snapshot string `json:"snapshot"`
	// Columns are those of the records; null: they are not known before they are parsed.
	Columns []string `json:"columns"`
	// Identities are those of splits that were predicted before, Seen those of what was last seen of them, and Output tells the predictions from
	// others in the same place.
	Identities map[string]string `json:"identities,omitempty"`
	Seen       map[string]string `json:"seen,omitempty"`
	Follow     map[string]bool   `json:"follow,omitempty"`
	Output     string            `json:"output"`
}

// checkRunner is what keeps predictions from the job's runner. Errors: [pipeline.ErrConfig].
func (o *PredictOptions) checkRunner(c *spec.Config) error {
	const here = "take --runner=local, or beam.environment=loopback"
	switch name := c.Runner; {
	case name == spec.RunnerLocal:
		return nil
	case o.Runners[name] == nil || o.Recipes == nil:
		return fault.Config("job: this program was built without the runner %s", name)
	case name == spec.RunnerDataflow:
		return fault.Config("job: predictions do not run on %s: snapshot and predictions lie in a folder that this process and all executors have, and there is none; take --runner=local, or flink or portable where machines share one", name)
	case !elsewhere(c):
		return nil
	case o.Alone != "":
		return fault.Config("job: executors in other processes build the graph from a job file, and %s is used without one: name the job file, and --snapshot; or %s", o.Alone, here)
	case o.MaxExamples > 0:
		return fault.Config("job: executors in other processes have no common count, which %d examples at most would need; %s", o.MaxExamples, here)
	}
	from, key := c.PredictSource()
	if !from.Bounded() {
		return fault.Config("job: %s.%s does not end, and executors in other processes cannot be told to: give it an end, such as --set %s.%s.end=latest; or %s", key, from.Name(), key, from.Name(), here)
	}
	return errors.Join(
		everywhere(c, key+"."+from.Name(), from.Value()),
		everywhere(c, "predict.to."+c.Predict.To.Name(), c.Predict.To.Value()))
}

// everywhere refuses files of a section that executors in other processes do not have, or leave in a container that is removed.
func everywhere(c *spec.Config, path string, section any) error {
	local, ok := section.(component.Local)
	if !ok {
		return nil
	}
	var faults []error
	for _, p := range local.LocalPaths() {
		key := conf.Join(path, p.Key)
		switch {
		case p.Written && c.Beam.Environment == spec.Docker:
			faults = append(faults, fault.Config("job: %s is written in containers that are removed with all that is in them: write to a topic, or run the executors in processes or pools", key))
		case !filepath.IsAbs(p.Path):
			faults = append(faults, fault.Config("job: %s is used in other processes, so %q must be an absolute path, the same for all of them", key, p.Path))
		}
	}
	return errors.Join(faults...)
}

// notCounted is what a result has not of executors in other processes.
const notCounted = "values of features are not counted: executors are in other processes"

// runElsewhere has executors in other processes run the plan: how many rows there are then the place says, whatever they have told. They are not told to drain: they are ended, and the
// rows of files that they had begun are predicted again.
func (p *prediction) runElsewhere(ctx context.Context, again recipe, plan *pipeline.Plan, o pipeline.RunOptions) (stats pipeline.RunStats, err error) {
	p.notice(notCounted)
	again.Predict = &predictRecipe{Examples: p.opts.Examples, Columns: p.known, Identities: p.reading.Known.Identities, Seen: p.reading.Known.Seen, Follow: p.reading.Known.Follow, Output: p.place.output}
	if again.Predict.Snapshot, err = filepath.Abs(p.path); err != nil {
		return stats, fmt.Errorf("job: %w", err)
	}
	source := plan.Segments[0].Sources()[0].Name
	if stats.Resumed, err = p.written(ctx, source, o.Splits); err != nil {
		return stats, err
	}
	within, end := untilDrained(ctx, o.Drain)
	defer end()
	found, err := p.submit(within, again, plan, o)
	stats.BadRows = found.BadRows
	if err != nil {
		if !wasDrained(ctx, within) {
			return stats, err
		}
		stats.Drained = true
	}
	rows, err := p.written(ctx, source, o.Splits)
	stats.Rows = rows - stats.Resumed
	return stats, err
}

// written is how many rows of some splits are in the place.
func (p *prediction) written(ctx context.Context, source string, splits []pipeline.Split) (rows int64, err error) {
	sink, err := wiring.PredictionSink(p.cfg, p.place.output)
	if err != nil {
		return 0, err
	}
	w, err := sink.Open(ctx, &pipeline.Env{Logger: p.log})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	at, err := w.Resume(ctx, source, splits)
	for _, progress := range at {
		rows += progress.Rows
	}
	return rows, err
}

// rebuild builds the graph of predictions from its job alone, over shards of this process.
func (r *predictRecipe) rebuild(ctx context.Context, cfg *spec.Config, log *slog.Logger) (*Rebuilt, error) {
	p := &prediction{cfg: cfg, opts: PredictOptions{Examples: r.Examples}, log: log, path: r.Snapshot, known: r.Columns}
	if err := p.opts.choose(p.cfg); err != nil {
		return nil, err
	}
	var err error
	if p.model, err = wiring.Model(p.cfg); err != nil {
		return nil, err
	}
	p.reading = wiring.PredictReading(p.cfg)
	p.reading.Known = wiring.Known{Identities: r.Identities, Seen: r.Seen, Follow: r.Follow}
	if p.reading.Fields, err = wiring.FindFields(p.cfg, p.model, p.known); err != nil {
		return nil, err
	}
	bad, err := newBadRows(cfg, stored.WorkerName(), log)
	if err != nil {
		return nil, err
	}
	open, closing, err := p.open(ctx)
	if err != nil {
		return nil, errors.Join(err, bad.close())
	}
	closeAll := func() error { return errors.Join(closing(), bad.close()) }
	plan, _, err := wiring.PredictGraph(p.cfg, p.reading, p.model, open, nil, r.Output)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	return &Rebuilt{
		Plan:  plan,
		Env:   func(worker int) *pipeline.Env { return &pipeline.Env{Worker: worker, Logger: log, BadRows: bad.policy} },
		Close: closeAll,
	}, nil
}
