package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/onnx"
	"github.com/monolith-go/monolith/export/safetensors"
	"github.com/monolith-go/monolith/export/savedmodel"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
)

// formatNative is the format of package export/native, whose rows are written by a graph and which is completed then.
const formatNative = "native"

// wholeFormats write all of a model, one after the other.
func wholeFormats(rowNumbers bool) []export.Format {
	return []export.Format{savedmodel.Format{}, onnx.Format{RowNumbers: rowNumbers}, safetensors.Format{}}
}

// wholeFormat is the one of a name, or nil.
func wholeFormat(name string, rowNumbers bool) export.Format {
	for _, f := range wholeFormats(rowNumbers) {
		if f.Name() == name {
			return f
		}
	}
	return nil
}

// rowFormats are the sinks of a set that are a [component.FolderSink]: they have the rows alone.
func rowFormats(set component.Set) (names []string) {
	for _, s := range set.Sinks {
		if _, ok := s.New().(component.FolderSink); ok {
			names = append(names, s.Name)
		}
	}
	return names
}

// ExportFormats are the formats of [ExportModelOptions].Format.
func ExportFormats() []string { return exportFormats(components.All()) }

func exportFormats(set component.Set) []string {
	names := []string{formatNative}
	for _, f := range wholeFormats(false) {
		names = append(names, f.Name())
	}
	return append(names, rowFormats(set)...)
}

// checkFormat refuses what is no format.
func checkFormat(set component.Set, name string) error {
	names := exportFormats(set)
	if slices.Contains(names, name) {
		return nil
	}
	return fault.Config("job: models are written as %s, not as %q%s", strings.Join(names, ", "), name, nearest.Suggest(name, names))
}

// ExportModelOptions say which model is written where, and as what. Snapshot, Format and Dir are required; the zero value of everything else works.
type ExportModelOptions struct {
	// Snapshot is a snapshot's folder, or a job's dir or a folder of snapshots for the newest good one in it; or the URL of a snapshot or folder in a store, which this process
	// reads alone.
	Snapshot string
	// Best takes, of several, the one of the best evaluation, if one is marked and not damaged. Set it for jobs with
	// train.early_stop, whose newest snapshot is of a worse epoch.
	Best bool
	// Format is one of [ExportFormats].
	Format string
	// Dir is the folder of exports: the one of snapshot 12 becomes the folder 12 in it. As the URL of a store it needs the runner local.
	Dir string
	// Spool is a folder of this machine where an export is written that goes to a store, and from which it is uploaded; it needs room for all of it. Empty: monolith/spool in the user's
	// folder of caches.
	Spool string
	// Slots are the slots whose rows are written, as numbers or as names of features; empty: all. This and what follows up to State are for formats
	// of rows alone.
	Slots []string
	// UpdatedAfter leaves out rows that were updated last at this time or before it; zero: none.
	UpdatedAfter time.Time
	// MinNorm leaves out rows whose weights have a smaller Euclidean norm, MinCount those that had fewer updates; 0: none.
	MinNorm  float64
	MinCount int64
	// State adds the optimizers' state.
	State bool
	// RowNumbers makes the inputs of an ONNX model numbers of rows, with the ids in files beside it.
	RowNumbers bool
	// WarmupFrom, if not nil, is a job of whose predict.source, or without one whose source, the first WarmupExamples good examples become requests that a server answers before it serves the
	// export, native or savedmodel: [export.WarmupName]. What the records hold is then in the export: ids, hashed or not, and numbers.
	WarmupFrom *spec.Config
	// WarmupExamples is at most [export.MostWarmup]; 0: 256.
	WarmupExamples int
	// RowsPerFile is about how many rows a file has at most, and what is written again after a kill. Default 1,048,576.
	RowsPerFile int64
	// Workers is how many read and write side by side. Default 1.
	Workers int
	// Keep is how many exports stay in Dir, the newest and this one; 0: all. Exempt are the numbers of others that stay.
	Keep   int
	Exempt []uint64
	// OtherJob lets the folder have exports of another job, as where the same model has got another name: otherwise nothing is written where the newest of them is of one.
	OtherJob bool
	// Runner is where the graph runs: local, which is the default, or one of Runners, with the settings in Beam.
	Runner  string
	Runners map[string]Runner
	Recipes *Recipes
	Beam    spec.Beam
	// Components has the formats of rows; the zero value: those of monolith.
	Components component.Set
	// Logger is never a global; nil: discard. Notice is called with one line for the user; nil: nobody is notified. Status is told, about four times a
	// second, how many rows this process has read; nil: nobody is.
	Logger *slog.Logger
	Notice func(string)
	Status func(result.Status)
	// Drain, once closed, makes it complete the files that are begun and return without an error. nil: never.
	Drain <-chan struct{}
}

// exportFile describes, in the folder of an export, what is written there: it keeps those of two snapshots, or of two filters, apart.
const exportFile = stored.ExportFile

// exportLock is held by who writes to a folder of exports.
const exportLock = ".lock"

// exportRecipe is what the graph of an export, or of one table's rows, can be built from again, and what exportFile has but for the places.
type exportRecipe struct {
	Snapshot     string    `json:"snapshot,omitempty"`
	Dir          string    `json:"dir,omitempty"`
	Table        string    `json:"table,omitempty"`
	Of           string    `json:"of"`
	Job          string    `json:"job,omitempty"`
	Created      time.Time `json:"created"`
	Digest       string    `json:"digest"`
	Format       string    `json:"format"`
	Slots        []int     `json:"slots,omitempty"`
	UpdatedAfter int64     `json:"updated_after_micros,omitempty"`
	MinNorm      float64   `json:"min_norm,omitempty"`
	MinCount     int64     `json:"min_count,omitempty"`
	State        bool      `json:"optimizer_state,omitempty"`
	RowNumbers   bool      `json:"row_numbers,omitempty"`
	RowsPerFile  int64     `json:"rows_per_file,omitempty"`
	Warmup       string    `json:"warmup,omitempty"`
}

// ExportModel writes the model of a snapshot, or its rows, to a folder that other programs read. The folder has its name once all is there and durable. A batch graph
// writes it. In formats of rows and the native one there is a graph for each table, whose splits are parts of what the shards wrote, and a run that was killed, or drained, is continued by
// the next with the same options; others are one split, and begin again.
//
// Errors: [pipeline.ErrConfig] for options that cannot be, for what a format has no form for, and for a folder with something else; [snapshot.ErrCorrupt], which names file and
// offset; [pipeline.ErrUnavailable].
func ExportModel(ctx context.Context, o ExportModelOptions) (_ *result.ExportedModel, err error) {
	began := time.Now()
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Workers, o.Components = max(o.Workers, 1), components.Or(o.Components)
	o.WarmupExamples = cmp.Or(o.WarmupExamples, 256)
	if o.Runner == "" {
		o.Runner = spec.RunnerLocal
	}
	if o.Runner == spec.RunnerDataflow {
		return nil, fault.Config("job: exports are not written on %s, which has no folder in common with this process for snapshot and files; take --runner=local", o.Runner)
	}
	if o.Runner != spec.RunnerLocal && (o.Runners[o.Runner] == nil || o.Recipes == nil) {
		return nil, fault.Config("job: this program has no runner %s: it is one of ExportModelOptions.Runners, and ExportModelOptions.Recipes builds graphs again", o.Runner)
	}
	from, err := stored.OpenFolder(ctx, o.Snapshot)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if o.Best {
		from.BestFirst()
	}
	info, damaged, err := from.Good(ctx) // what is written is named after it
	if err != nil {
		return nil, err
	}
	stored.WarnPassedOver(ctx, o.Logger, damaged, from.Name(info.Path))
	switch {
	case from.Local(): // executors may be in other processes
		if info.Path, err = filepath.Abs(info.Path); err != nil {
			return nil, fmt.Errorf("job: %w", err)
		}
	case o.Runner != spec.RunnerLocal:
		return nil, fault.Config("job: %s lies in a store, which this process alone reads: take --runner=local, or fetch it (monolith snapshot fetch)", from.Name(info.Path))
	}
	if len(from.Entries) > 1 { // otherwise it is the snapshot that was named
		best, err := stored.BestIn(from.FS, filepath.Dir(info.Path))
		if err == nil && best != nil && best.ID != info.ID {
			o.Notice(fmt.Sprintf("the newest snapshot is exported; the one of the best evaluation is %s: name its folder to export that", from.Name(best.Path)))
		}
	}
	path := from.Name(info.Path)
	of, err := o.recipe(info)
	if err != nil {
		return nil, err
	}
	e := &exporting{o: &o, of: of, in: from.FS, info: info}
	if !slices.Contains(rowFormats(o.Components), o.Format) {
		if e.model, err = export.OpenIn(ctx, from.FS, info.Path); err != nil {
			return nil, err
		}
	}
	if e.whole = wholeFormat(o.Format, o.RowNumbers); e.whole != nil {
		if err := e.whole.Check(e.model); err != nil {
			return nil, fault.Config("job: the model cannot be written as %s: %w", o.Format, err)
		}
	}
	if e.warmup, of.Warmup, err = o.readWarmup(ctx, e.model, info); err != nil {
		return nil, err
	}
	if e.store, e.root, err = o.openTarget(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.store.close()) }()
	e.unwatch = sync.OnceFunc(e.watch())
	r, err := e.run(ctx)
	e.unwatch()
	if err != nil {
		return nil, err
	}
	r.Snapshot, r.Format, r.Seconds = path, o.Format, time.Since(began).Seconds()
	if r.Rows == 0 && info.Rows() > 0 && !r.Drained && !r.Already {
		o.Notice(fmt.Sprintf("none of the %d rows of %s is wanted: see --slot, --updated-after, --min-count and --min-norm", info.Rows(), path))
	}
	return r, nil
}

// VerifyExport reads all of a native export, or of the newest in a folder of exports. Errors: those of native.Open; the context's.
func VerifyExport(ctx context.Context, dir string) (_ *result.VerifiedExport, err error) {
	e, dir, err := openNewest(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	m := e.Model()
	r := &result.VerifiedExport{Dir: dir, Job: m.From.Job, Snapshot: m.From.Snapshot, Faults: []string{}}
	for _, t := range m.Tables {
		r.Rows += t.Rows
	}
	faults, err := e.Verify(ctx)
	for _, f := range faults {
		r.Faults = append(r.Faults, f.Error())
	}
	return r, err
}
