package run

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// Options are what a run gets from its caller. The zero value works: it logs nothing, reports nothing and goes
// on from the newest snapshot if there is one.
type Options struct {
	// Logger is never a global; nil: discard.
	Logger *slog.Logger
	// Registerer takes the run's metrics; nil: none are kept.
	Registerer prometheus.Registerer
	// Status is called with how far the run is, about four times a second, from one goroutine at a time; nil: none.
	Status func(result.Status)
	// Ready is called with nil once the run has the parameters that it begins with, of shards or of a snapshot. nil: nobody is notified.
	Ready func(error)
	// Notice is called with one line for the user: that the run continues from a snapshot, or is draining. nil:
	// nobody is notified.
	Notice func(string)
	// Drain, once closed, makes the run stop reading, train what is on its way, take a snapshot and return without an
	// error. Cancelling the context instead stops at once. nil: never.
	Drain <-chan struct{}
	// TakeSnapshot makes the run take a snapshot and continue, once for each value. nil: never.
	TakeSnapshot <-chan struct{}
	// Observe is notified of every batch that is trained on, with the predictions made before; one call at a time. nil: nobody.
	Observe trainstep.Observer
	// Evaluated is notified of every evaluation while training, with the number of epochs done; nil: nobody.
	Evaluated func(epoch int, scores result.Scores)
	// Pin, when not empty, exempts the run's last snapshot from retention and is stored with it as a note.
	Pin string
	// Runners are the runners beside local that a job may name, and Recipes what they build its graph from again.
	Runners map[string]Runner
	Recipes *Recipes
	// Worker names this run among the workers of the job; empty: after the host and the process. A run that begins under
	// the name of another takes its place: give a worker that is started again its old name.
	Worker string
	// Resume is nil to continue from the newest snapshot in the job's dir where there is one; true to demand one; false to
	// start over.
	Resume *bool
	// Backfill, if not nil, trains on that part of the history of the job's stream, rather than on the stream.
	Backfill *Range
	// Memory is what the rows of shards in this process are taken from; nil has no limit.
	Memory *table.Memory
}

// Range is a time range [From, To).
type Range struct{ From, To time.Time }

// ready notifies that there are parameters to work with.
func (o *Options) ready() {
	if o.Ready != nil {
		o.Ready(nil)
	}
}

// EvalOptions say what to evaluate, beside the job.
type EvalOptions struct {
	Options
	// Snapshot is the path of a snapshot, or of those in the job's dir a number, [stored.Newest] or [stored.Best]; empty: the best where
	// train.early_stop is set and there is one, otherwise the newest.
	Snapshot string
	// MaxExamples ends the evaluation early; 0: as the job says.
	MaxExamples int64
	// Bootstrap is the number of replicates that intervals are made of, [metric.MinReplicates] at least; 0: there are none.
	Bootstrap int
	// Compare is a model that scores the same examples; nil: none does.
	Compare *CompareWith
	// Curves asks for what is drawn: ROC, calibration and histograms.
	Curves bool
}

// CompareWith says which model to compare with.
type CompareWith struct {
	// Config is its job, whose features are made of the examples of the evaluated job's eval.source; nil: that job.
	Config *spec.Config
	// Snapshot is as of [EvalOptions].
	Snapshot string
}

// watchMemory has metrics of the memory of this process's tables, where there is somebody to see them and a limit.
func watchMemory(r prometheus.Registerer, m *table.Memory) error {
	if r == nil || m == nil {
		return nil
	}
	return telemetry.RegisterMemory(r, func() (bytes, limit int64) {
		limit, _ = m.Limit()
		return m.Used(), limit
	})
}

// tableMemory is what tables of this process may take: ps.memory, or all that the program has for them.
func tableMemory(cfg *spec.Config, all *table.Memory) *table.Memory {
	if cfg.PS.Memory == 0 {
		return all
	}
	return all.Limited(int64(cfg.PS.Memory), "ps.memory", "raise it, or spread the table over more shards, in processes of their own")
}

// readMemory is what the tables of a snapshot that is read in this process may take: as tableMemory, but other shards would not help.
func readMemory(cfg *spec.Config, all *table.Memory) *table.Memory {
	limit, of := all.Limit()
	do := "take a machine with more"
	if cfg.PS.Memory > 0 {
		limit, of, do = int64(cfg.PS.Memory), "ps.memory", "raise it"
	}
	if limit == 0 {
		return all
	}
	return all.Limited(limit, of, fmt.Sprintf("all rows of the snapshot are read into this process: %s, or predict with a native export, whose rows stay on the disk", do))
}

// warnMemory says that layers and batches alone are more than the process may have, before the system ends it without a word.
func warnMemory(ctx context.Context, log *slog.Logger, cfg *spec.Config, m model.Model, all *table.Memory) {
	if limit, _ := all.Limit(); limit > 0 {
		if least := wiring.LeastBytes(cfg, m); least > limit {
			log.WarnContext(ctx, "layers and batches do not fit into memory, and the system may end the process: take a smaller train.batch, fewer train.workers or narrower layers",
				"least_bytes", least, "limit_bytes", limit)
		}
	}
}

// sayMemory logs what is known of the memory of this process's tables before there are rows: what layers take, what a row of each table takes, and
// how many of the largest there is room for. Rows to come are reckoned by [inspect.Need].
//
// [inspect.Need]: https://pkg.go.dev/github.com/monolith-go/monolith/job/inspect#Need
func sayMemory(ctx context.Context, log *slog.Logger, l *param.Layout, m *table.Memory) {
	rows, largest := make([]string, len(l.Tables)), int64(1)
	for i, t := range l.Tables {
		rows[i] = fmt.Sprintf("%d (%s)", t.RowBytes(), t.Name)
		largest = max(largest, t.RowBytes())
	}
	attrs := []any{"dense_bytes", 4 * (l.DenseLen() + l.DenseStateLen()), "bytes_a_row", strings.Join(rows, ", ")}
	if limit, _ := m.Limit(); limit > 0 {
		attrs = append(attrs, "limit_bytes", limit, "room_for_rows", limit/largest)
	}
	log.InfoContext(ctx, "memory of tables", attrs...)
}
