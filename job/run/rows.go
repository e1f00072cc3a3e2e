package run

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sources/snapshotsource"
)

// RowsOptions say which rows of a snapshot are written where. Snapshot, To and Dir are required; the zero value of everything else works.
type RowsOptions struct {
	// Snapshot is a snapshot's folder, or a job's dir or a folder of snapshots for the newest good one in it.
	Snapshot string
	// To is the format of the files: one of [RowsFormats].
	To string
	// Dir is the folder that they come into, with a folder in it for each table.
	Dir string
	// Slots are the slots whose rows are written, as numbers or as names of features; empty: all.
	Slots []string
	// UpdatedAfter leaves out rows that were updated last at this time or before it; zero: none.
	UpdatedAfter time.Time
	// MinNorm leaves out rows whose weights have a smaller Euclidean norm; 0: none.
	MinNorm float64
	// State adds the optimizers' state.
	State bool
	// RowsPerFile is about how many rows a file has at most, and what is written again after a kill. Default 1,048,576.
	RowsPerFile int64
	// Workers is how many read and write side by side. Default 1.
	Workers int
	// Runner is where the graph runs: local, which is the default, or one of Runners, with the settings in Beam.
	Runner  string
	Runners map[string]Runner
	Recipes *Recipes
	Beam    spec.Beam
	// Components has the formats; the zero value: those of monolith.
	Components component.Set
	// Logger is never a global; nil: discard. Notice is called with one line for the user; nil: nobody is notified.
	Logger *slog.Logger
	Notice func(string)
	// Drain, once closed, makes it complete the files that are begun and return without an error. nil: never.
	Drain <-chan struct{}
}

// RowsFormats are the formats of [RowsOptions].To: the sinks of monolith, by name, that are a [component.FolderSink].
func RowsFormats() []string { return rowsFormats(components.All()) }

func rowsFormats(set component.Set) (names []string) {
	for _, s := range set.Sinks {
		if _, ok := s.New().(component.FolderSink); ok {
			names = append(names, s.Name)
		}
	}
	return names
}

// rowsSink is a sink of a format.
func rowsSink(set component.Set, to, dir string, rowsPerFile int64, w component.Writing) (pipeline.Sink[*pipeline.Batch], error) {
	for _, s := range set.Sinks {
		if f, ok := s.New().(component.FolderSink); ok && s.Name == to {
			return f.InFolder(dir, rowsPerFile).Sink(w)
		}
	}
	names := rowsFormats(set)
	return nil, fault.Config("job: rows are written as %s, not as %q%s", strings.Join(names, " or "), to, nearest.Suggest(to, names))
}

// rowsFile describes, in the folder, what is written there: it keeps rows of two snapshots, or of two filters, apart.
const rowsFile = "_rows.json"

// rowsRecipe is what a graph of rows can be built from again, and what rowsFile has but for the places.
type rowsRecipe struct {
	Snapshot     string  `json:"snapshot,omitempty"`
	Dir          string  `json:"dir,omitempty"`
	Table        string  `json:"table,omitempty"`
	Of           string  `json:"of"`
	Digest       string  `json:"digest"`
	To           string  `json:"to"`
	Slots        []int   `json:"slots,omitempty"`
	UpdatedAfter int64   `json:"updated_after_micros,omitempty"`
	MinNorm      float64 `json:"min_norm,omitempty"`
	State        bool    `json:"optimizer_state,omitempty"`
	RowsPerFile  int64   `json:"rows_per_file,omitempty"`
}

// WriteRows writes the rows of a snapshot to files, each row exactly once: a run that was killed, or drained, is continued by the next
// with the same options. Tables are written one after the other, each by a batch graph whose splits are parts of what the shards wrote.
//
// Errors: [pipeline.ErrConfig] for options that cannot be, and for a folder with other rows; [snapshot.ErrCorrupt], which names file and
// offset; [pipeline.ErrUnavailable].
func WriteRows(ctx context.Context, o RowsOptions) (_ *result.Rows, err error) {
	began := time.Now()
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Workers, o.Components = max(o.Workers, 1), components.Or(o.Components)
	if o.Runner == "" {
		o.Runner = spec.RunnerLocal
	}
	if o.Runner == spec.RunnerDataflow {
		return nil, fault.Config("job: rows are not written on %s, which has no folder in common with this process for snapshot and files; take --runner=local", o.Runner)
	}
	if o.Runner != spec.RunnerLocal && (o.Runners[o.Runner] == nil || o.Recipes == nil) {
		return nil, fault.Config("job: this program has no runner %s: it is one of RowsOptions.Runners, and RowsOptions.Recipes builds graphs again", o.Runner)
	}
	path, err := stored.FindSnapshot(o.Snapshot)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil { // executors may be in other processes
		return nil, fmt.Errorf("job: %w", err)
	}
	info, err := snapshot.ReadInfo(path)
	if err != nil {
		return nil, err
	}
	of, err := o.recipe(info)
	if err != nil {
		return nil, err
	}
	if err := of.claim(ctx, o.Dir); err != nil {
		return nil, err
	}
	r := &result.Rows{Snapshot: path, To: o.To, Dir: o.Dir}
	for _, t := range info.Tables {
		of.Table, of.Snapshot, of.RowsPerFile = t.Name, path, o.RowsPerFile
		if of.Dir, err = filepath.Abs(filepath.Join(o.Dir, url.PathEscape(t.Name))); err != nil {
			return nil, fmt.Errorf("job: %w", err)
		}
		table := result.TableRows{Name: t.Name, Dir: of.Dir, Of: t.Rows}
		if t.Rows > 0 && !r.Drained {
			stats, err := o.run(ctx, *of, info)
			if err != nil {
				return nil, err
			}
			table.Rows, table.Earlier = stats.Rows+stats.Resumed, stats.Resumed
			r.Drained = stats.Drained
		}
		r.Rows += table.Rows
		r.Tables = append(r.Tables, table)
	}
	r.Seconds = time.Since(began).Seconds()
	if r.Rows == 0 && info.Rows() > 0 && !r.Drained {
		o.Notice(fmt.Sprintf("none of the %d rows of %s is wanted: see --slot, --updated-after and --min-norm", info.Rows(), path))
	}
	return r, nil
}

// recipe checks the options against a snapshot.
func (o *RowsOptions) recipe(info *snapshot.Info) (*rowsRecipe, error) {
	var faults []error
	bad := func(text string, args ...any) { faults = append(faults, fault.Config("job: "+text, args...)) }
	of := &rowsRecipe{Of: filepath.Base(info.Path), Digest: info.Digest, To: o.To, MinNorm: o.MinNorm, State: o.State}
	if _, err := rowsSink(o.Components, o.To, "rows", 0, component.Writing{}); err != nil {
		faults = append(faults, err)
	}
	if o.Dir == "" {
		bad("no folder for the rows is named")
	}
	if !(o.MinNorm >= 0) {
		bad("the least norm is %v, and must be 0 or more", o.MinNorm)
	}
	if !o.UpdatedAfter.IsZero() {
		if of.UpdatedAfter = o.UpdatedAfter.UnixMicro(); of.UpdatedAfter <= 0 {
			bad("the time %s is before 1970", o.UpdatedAfter.Format(time.RFC3339))
		}
	}
	features := slotsOf(info)
	for _, name := range o.Slots {
		slot, known := features[name]
		if n, err := strconv.Atoi(name); err == nil && !known {
			slot, known = n, n >= 0 && n < fid.NumSlots
			if !known {
				bad("slot %d is none of 0 to %d", n, fid.NumSlots-1)
				continue
			}
		}
		if !known {
			names := make([]string, 0, len(features))
			for f := range features {
				names = append(names, f)
			}
			slices.Sort(names)
			bad("%q is neither a slot nor a sparse feature of the snapshot, which has %q%s", name, names, nearest.Suggest(name, names))
			continue
		}
		of.Slots = append(of.Slots, slot)
	}
	slices.Sort(of.Slots)
	of.Slots = slices.Compact(of.Slots)
	if o.RowsPerFile < 0 {
		bad("a file cannot have %d rows", o.RowsPerFile)
	}
	return of, errors.Join(faults...)
}

// slotsOf are the slots of a snapshot's sparse features, by name, as far as its recipe has them.
func slotsOf(info *snapshot.Info) map[string]int {
	var recipe struct {
		Features []struct {
			Name, Kind string
			Slot       *int
		}
	}
	_ = json.Unmarshal(info.Recipe, &recipe) // who writes a snapshot alone stores none: slots have numbers too
	out := map[string]int{}
	for _, f := range recipe.Features {
		if f.Slot != nil && f.Kind != "dense" {
			out[f.Name] = *f.Slot
		}
	}
	return out
}

// claim makes the folder one of these rows, or finds that it is one already.
func (of rowsRecipe) claim(ctx context.Context, dir string) error {
	want, err := json.MarshalIndent(of, "", "  ")
	if err != nil {
		return fmt.Errorf("job: %w", err)
	}
	name := filepath.Join(dir, rowsFile)
	have, err := os.ReadFile(name)
	if err == nil {
		if !bytes.Equal(bytes.TrimSpace(have), want) {
			return fault.Config("job: %s has other rows, which %s describes: name another folder", dir, name)
		}
		return nil
	}
	cannot := func(err error) error {
		return fault.Mark(fmt.Errorf("job: %w", err), pipeline.ErrUnavailable, "make room or give the right to write there, or name another folder")
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return cannot(err)
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fault.Config("job: %s is not empty, and its files are no rows of a snapshot: name another folder", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return cannot(err)
	}
	if err := fsx.WriteFile(ctx, fsx.Local{}, name, append(want, '\n')); err != nil {
		return cannot(err)
	}
	return nil
}

// plan is the graph of one table.
func (of rowsRecipe) plan(info *snapshot.Info, set component.Set) (*pipeline.Plan, error) {
	src, err := snapshotsource.New(info, snapshotsource.Options{Table: of.Table, Slots: of.Slots, UpdatedAfter: of.UpdatedAfter, MinNorm: of.MinNorm, State: of.State})
	if err != nil {
		return nil, err
	}
	sink, err := rowsSink(set, of.To, of.Dir, of.RowsPerFile, component.Writing{Output: of.Of + " table " + of.Table})
	if err != nil {
		return nil, err
	}
	g := pipeline.New("rows")
	pipeline.Into(pipeline.Prefetch(pipeline.Read(g, "snapshot", src), "queue", 2), of.To, sink)
	return g.Plan()
}

// build builds the graph in a process that may be another one.
func (of rowsRecipe) build(set component.Set) (*Rebuilt, error) {
	info, err := snapshot.ReadInfo(of.Snapshot)
	if err != nil {
		return nil, err
	}
	plan, err := of.plan(info, set)
	if err != nil {
		return nil, err
	}
	return &Rebuilt{Plan: plan}, nil
}

// run writes one table.
func (o *RowsOptions) run(ctx context.Context, of rowsRecipe, info *snapshot.Info) (pipeline.RunStats, error) {
	plan, err := of.plan(info, o.Components)
	if err != nil {
		return pipeline.RunStats{}, err
	}
	env := func(worker int) *pipeline.Env { return &pipeline.Env{Worker: worker, Logger: o.Logger} }
	opts := pipeline.RunOptions{Workers: o.Workers, Env: env, Drain: o.Drain}
	if o.Runner == spec.RunnerLocal {
		stats, err := local.Run(ctx, plan, opts)
		return pipeline.Sum(stats...), err
	}
	config, done, err := o.Recipes.add(recipe{Run: rand.Text(), Rows: &of}, func() (*Rebuilt, error) { return &Rebuilt{Plan: plan, Env: env}, nil })
	if err != nil {
		return pipeline.RunStats{}, err
	}
	defer done()
	s := Submission{Recipe: config, Plan: plan, Options: opts, Beam: o.Beam, Notice: func(format string, args ...any) { o.Notice(fmt.Sprintf(format, args...)) }}
	if s.Beam.JobName == "" {
		s.Beam.JobName = "rows-" + of.Of
	}
	return o.Runners[o.Runner](ctx, s)
}
