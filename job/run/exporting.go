package run

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/export/onnx"
	"github.com/monolith-go/monolith/export/savedmodel"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/component"
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

// recipe checks the options against a snapshot.
func (o *ExportModelOptions) recipe(info *snapshot.Info) (*exportRecipe, error) {
	var faults []error
	bad := func(text string, args ...any) { faults = append(faults, fault.Config("job: "+text, args...)) }
	of := &exportRecipe{Of: filepath.Base(info.Path), Job: info.Meta["job"], Created: info.Created, Digest: info.Digest, Format: o.Format, MinNorm: o.MinNorm, MinCount: o.MinCount, State: o.State, RowNumbers: o.RowNumbers}
	if err := checkFormat(o.Components, o.Format); err != nil {
		faults = append(faults, err)
	} else if rows := rowFormats(o.Components); !slices.Contains(rows, o.Format) && (len(o.Slots) > 0 || !o.UpdatedAfter.IsZero() || o.MinNorm != 0 || o.MinCount != 0 || o.State) {
		bad("a model as %s has all of its rows and no optimizer state; leave out what is to choose among them, or write rows alone, as %s", o.Format, strings.Join(rows, " or "))
	}
	if o.RowNumbers && o.Format != (onnx.Format{}).Name() {
		bad("row numbers in place of ids are of a model as onnx; the format is %s", o.Format)
	}
	if o.WarmupFrom != nil && o.Format != formatNative && o.Format != (savedmodel.Format{}).Name() {
		bad("warm-up requests are of a model as %s or %s; the format is %s", formatNative, savedmodel.Format{}.Name(), o.Format)
	}
	if o.WarmupExamples < 1 || o.WarmupExamples > export.MostWarmup {
		bad("warm-up requests cannot be made of %d examples: 1 to %d", o.WarmupExamples, export.MostWarmup)
	}
	if o.Dir == "" {
		bad("no folder for exports is named")
	}
	if o.Keep < 0 || o.MinCount < 0 {
		bad("%d exports cannot be kept, and no row has had less than %d updates", o.Keep, o.MinCount)
	}
	if !(o.MinNorm >= 0) {
		bad("the least norm is %v, and must be 0 or more", o.MinNorm)
	}
	if !o.UpdatedAfter.IsZero() {
		if of.UpdatedAfter = o.UpdatedAfter.UnixMicro(); of.UpdatedAfter <= 0 {
			bad("the time %s is before 1970", o.UpdatedAfter.Format(time.RFC3339))
		}
	}
	features := export.Slots(info.Recipe)
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

// text is what exportFile has: all but the places.
func (of exportRecipe) text() ([]byte, error) {
	of.Snapshot, of.Dir = "", ""
	b, err := json.MarshalIndent(of, "", "  ")
	return append(b, '\n'), err
}

// claim makes a folder one of this export, or finds that it is one already.
func (of exportRecipe) claim(ctx context.Context, dir string) error {
	want, err := of.text()
	if err != nil {
		return fmt.Errorf("job: %w", err)
	}
	name := filepath.Join(dir, exportFile)
	have, err := os.ReadFile(name)
	switch {
	case err == nil && !bytes.Equal(have, want):
		return fault.Config("job: %s has another export, which %s describes: name another folder, or remove that one", dir, name)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return cannotExport(err)
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fault.Config("job: %s is not empty, and its files are no export: name another folder", dir)
	}
	return cannotExport(fsx.WriteFile(ctx, fsx.Local{}, name, want))
}

// cannotExport is an error of the folder of exports, unless it is one of what is exported; nil for nil.
func cannotExport(err error) error {
	if err == nil || errors.Is(err, snapshot.ErrCorrupt) || errors.Is(err, native.ErrCorrupt) || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.Mark(fmt.Errorf("job: %w", err), pipeline.ErrUnavailable, "make room or give the right to write there, or name another folder")
}

// plan is the graph of one table. The rows of native exports are written while the snapshot's files are verified; no file is visible before.
func (of exportRecipe) plan(in fsx.FS, info *snapshot.Info, set component.Set) (*pipeline.Plan, *snapshotsource.Source, error) {
	native := of.Format == formatNative
	src, err := snapshotsource.New(info, snapshotsource.Options{FS: in, Table: of.Table, Slots: of.Slots, UpdatedAfter: of.UpdatedAfter, MinNorm: of.MinNorm, MinCount: of.MinCount, State: of.State, Whole: native, Ahead: native})
	if err != nil {
		return nil, nil, err
	}
	sink, err := of.sink(info, set, src)
	if err != nil {
		return nil, nil, err
	}
	g := pipeline.New("rows")
	pipeline.Into(pipeline.Prefetch(pipeline.Read(g, "snapshot", src), "queue", 2), of.Format, sink)
	plan, err := g.Plan()
	return plan, src, err
}

// sink is that of one table, whose rows come from src.
func (of exportRecipe) sink(info *snapshot.Info, set component.Set, src *snapshotsource.Source) (pipeline.Sink[*pipeline.Batch], error) {
	output := of.Of + " table " + of.Table
	if of.Format == formatNative {
		i := slices.IndexFunc(info.Tables, func(t snapshot.Table) bool { return t.Name == of.Table })
		sink, err := native.Rows(of.Dir, of.Table, info.Tables[i].Dim(), of.RowsPerFile, output)
		if err != nil {
			return nil, err
		}
		return sink.ShownIf(src.Settle), nil
	}
	for _, s := range set.Sinks {
		if f, ok := s.New().(component.FolderSink); ok && s.Name == of.Format {
			out, err := f.InFolder(of.Dir, of.RowsPerFile).Sink(component.Writing{Output: output})
			if err != nil {
				return nil, err
			}
			return component.AsSink(out), nil
		}
	}
	return nil, checkFormat(set, of.Format)
}

// build builds the graph in a process that may be another one.
func (of exportRecipe) build(set component.Set) (*Rebuilt, error) {
	if wholeFormat(of.Format, of.RowNumbers) != nil {
		plan, err := of.wholePlan(func(ctx context.Context) (*export.Model, error) { return export.Open(ctx, of.Snapshot) }, nil)
		return &Rebuilt{Plan: plan}, err
	}
	info, err := snapshot.ReadInfo(of.Snapshot)
	if err != nil {
		return nil, err
	}
	plan, _, err := of.plan(fsx.Local{}, info, set)
	return &Rebuilt{Plan: plan}, err
}

// exporting is an export that is being written.
type exporting struct {
	o     *ExportModelOptions
	of    *exportRecipe
	in    fsx.FS // has the snapshot
	info  *snapshot.Info
	model *export.Model // nil: rows alone are written
	whole export.Format // nil: a graph writes the rows
	// warmup are the examples of warm-up requests; nil: none are wanted.
	warmup *export.Examples
	root   string        // of all exports, or of those that are on their way to the store
	store  *exportTarget // nil: they stay on this machine
	read   atomic.Int64  // rows
	// unwatch ends the reports of rows that are read.
	unwatch func()
}

// RowsRead implements [pipeline.RowsReadHook].
func (e *exporting) RowsRead(_, _ string, rows int) { e.read.Add(int64(rows)) }

// watch reports progress until stop is called.
func (e *exporting) watch() (stop func()) {
	if e.o.Status == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		began, tick := time.Now(), time.NewTicker(glanceEvery)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			s := result.Status{Phase: "export", Examples: e.read.Load(), Total: e.info.Rows(), Lag: -1, Rate: math.NaN(), Elapsed: time.Since(began)}
			if s.Examples > 0 { // of executors elsewhere nothing is known
				s.Rate = float64(s.Examples) / s.Elapsed.Seconds()
				e.o.Status(s)
			}
		}
	}()
	return func() { close(quit); <-done }
}

// run writes the export and gives it its name.
func (e *exporting) run(ctx context.Context) (_ *result.ExportedModel, err error) {
	if err := errors.Join(os.MkdirAll(e.root, 0o755), fsx.OS{}.SyncDir(filepath.Dir(e.root))); err != nil {
		return nil, cannotExport(err)
	}
	lock, err := fsx.TryLock(filepath.Join(e.root, exportLock))
	if errors.Is(err, fsx.ErrLocked) {
		return nil, fault.Mark(fmt.Errorf("job: %s: %w", e.root, err), pipeline.ErrUnavailable, "another export is written there: wait for it, or name another folder")
	}
	if err != nil {
		return nil, cannotExport(err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	name := strconv.FormatUint(e.info.ID, 10)
	if err := e.amongOthers(ctx); err != nil {
		return nil, err
	}
	r := &result.ExportedModel{Dir: e.called(name)}
	if e.store != nil {
		if r.Already, err = e.enter(ctx, name); err != nil {
			return nil, err
		}
	}
	if !r.Already {
		if err := e.write(ctx, r, name); err != nil || r.Drained {
			return r, err
		}
	}
	ids, err := e.published(ctx)
	if err != nil {
		return nil, err
	}
	if r.Removed, ids, err = e.prune(ctx, ids); err != nil {
		return nil, err
	}
	return r, cannotExport(e.list(ctx, ids))
}

// amongOthers refuses a folder whose newest export is of another job, which servers of the folder would take for an earlier version of this model, or a later one. One that is older than this one and has a
// higher number is said: it stays the one that they serve.
func (e *exporting) amongOthers(ctx context.Context) error {
	ids, err := e.published(ctx)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(ids) == 0 {
		return nil // it is the first
	}
	if err != nil {
		return err
	}
	newest := strconv.FormatUint(ids[0], 10)
	b, err := fsx.ReadFile(ctx, e.out(), filepath.Join(newest, exportFile), 1<<20)
	if err != nil {
		return cannotExport(err)
	}
	var has exportRecipe
	if json.Unmarshal(b, &has) != nil {
		has = exportRecipe{} // nobody can say of what it is
	}
	if has.Job != "" && e.of.Job != "" && has.Job != e.of.Job && !e.o.OtherJob {
		return fault.Config("job: %s is an export of job %q, and %s one of job %q: a server of the folder serves the highest number, whichever job it is of; name another folder for this job, or say --other-job if it is the same model by another name",
			e.called(newest), has.Job, e.of.Of, e.of.Job)
	}
	if ids[0] > e.info.ID && !has.Created.IsZero() && has.Created.Before(e.info.Created) {
		e.o.Notice(fmt.Sprintf("%s is of an earlier time than %s, and has the higher number: servers of the folder serve it, and not export %d; remove it, or name another folder", e.called(newest), e.of.Of, e.info.ID))
	}
	return nil
}

// out is where exports are, and called what the user knows a name there by.
func (e *exporting) out() fsx.FS {
	if e.store != nil {
		return e.store
	}
	return fsx.Sub(fsx.Local{}, e.root)
}

func (e *exporting) called(elem ...string) string {
	if e.store != nil {
		return e.store.url.Join(filepath.ToSlash(filepath.Join(elem...)))
	}
	return filepath.Join(append([]string{e.root}, elem...)...)
}

// enter claims the name in the store, and removes what is here of another export. already: there is nothing to do.
func (e *exporting) enter(ctx context.Context, name string) (already bool, err error) {
	text, err := e.of.text()
	if err != nil {
		return false, fmt.Errorf("job: %w", err)
	}
	if already, err = e.store.claim(ctx, name, text); err != nil {
		return false, err
	}
	for _, dir := range []string{name, partialName(name)} {
		dir = filepath.Join(e.root, dir)
		if here, err := os.ReadFile(filepath.Join(dir, exportFile)); already || err != nil || !bytes.Equal(here, text) {
			if err := os.RemoveAll(dir); err != nil {
				return false, cannotExport(err)
			}
		}
	}
	return already, nil
}

// write writes the export, gives it its name, and brings it to its store.
func (e *exporting) write(ctx context.Context, r *result.ExportedModel, name string) (err error) {
	target, partial := filepath.Join(e.root, name), filepath.Join(e.root, partialName(name))
	dir := partial
	_, gone := os.Stat(target)
	there := gone == nil
	if there {
		dir = target
	} else if e.whole != nil {
		dir = filepath.Join(partial, rand.Text()) // an executor of a run that was killed may write still
		defer func() { err = errors.Join(err, cannotExport(os.RemoveAll(partial))) }()
		if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o755)); err != nil {
			return cannotExport(err)
		}
	}
	write := e.writeRows
	if e.whole != nil {
		write = e.writeWhole
	} else if err := e.of.claim(ctx, dir); err != nil {
		return err
	}
	if err := write(ctx, r, dir, there); err != nil {
		return err
	}
	if r.Drained {
		if r.Dir = partial; there {
			r.Dir = target
		}
		return nil
	}
	for i := range r.Tables {
		r.Tables[i].Dir = e.called(name, strings.TrimPrefix(r.Tables[i].Dir, dir))
	}
	if !there {
		if err := errors.Join(os.Rename(dir, target), fsx.OS{}.SyncDir(e.root)); err != nil {
			return cannotExport(err)
		}
	}
	if e.store == nil {
		return nil
	}
	return e.upload(ctx, r, target, name)
}

// writeRows writes table after table by a graph, and completes the native format.
func (e *exporting) writeRows(ctx context.Context, r *result.ExportedModel, dir string, there bool) error {
	for _, t := range e.info.Tables {
		of := *e.of
		of.Table, of.Snapshot, of.RowsPerFile = t.Name, e.info.Path, e.o.RowsPerFile
		of.Dir = filepath.Join(dir, export.Folder(t.Name))
		table := result.TableRows{Name: t.Name, Dir: of.Dir, Of: t.Rows}
		if t.Rows > 0 && !r.Drained {
			stats, err := e.table(ctx, of)
			if err != nil {
				return err
			}
			table.Rows, table.Earlier = stats.Rows+stats.Resumed, stats.Resumed
			r.Drained = stats.Drained
		}
		if table.Rows == 0 && !r.Drained && e.of.Format != formatNative {
			if err := e.empty(ctx, of); err != nil {
				return err
			}
		}
		r.Rows += table.Rows
		r.Tables = append(r.Tables, table)
	}
	if e.of.Format != formatNative || there || r.Drained {
		return nil
	}
	if err := e.writeWarmup(ctx, dir); err != nil {
		return cannotExport(err)
	}
	return cannotExport(native.Complete(ctx, fsx.Local{}, dir, e.model))
}

// published are the numbers of the exports in the folder, the newest first. It ends removals that were cut short.
func (e *exporting) published(ctx context.Context) (ids []uint64, err error) {
	out := e.out()
	entries, err := out.List(ctx, ".")
	if err != nil {
		return nil, cannotExport(err)
	}
	for _, d := range entries {
		if e.store == nil && strings.HasSuffix(d.Name, exportRemoved) {
			if err := fsx.RemoveAll(ctx, out, d.Name); err != nil {
				return nil, cannotExport(err)
			}
		}
		id, err := strconv.ParseUint(d.Name, 10, 64)
		if err != nil || strconv.FormatUint(id, 10) != d.Name {
			continue
		}
		if _, err := out.Stat(ctx, filepath.Join(d.Name, exportFile)); err == nil { // others are somebody else's
			ids = append(ids, id)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, cannotExport(err)
		}
	}
	slices.SortFunc(ids, func(a, b uint64) int { return cmp.Compare(b, a) })
	return ids, nil
}

// prune removes exports that are not to stay, and returns their folders and the numbers of the others.
func (e *exporting) prune(ctx context.Context, ids []uint64) (removed []string, stay []uint64, err error) {
	kept := 0
	for _, id := range ids {
		exempt := slices.Contains(e.o.Exempt, id)
		if e.o.Keep == 0 || exempt || kept < e.o.Keep || id == e.info.ID {
			stay = append(stay, id)
			if !exempt {
				kept++
			}
			continue
		}
		name := strconv.FormatUint(id, 10)
		removed = append(removed, e.called(name))
		if e.store != nil {
			if err := e.store.remove(ctx, name); err != nil {
				return removed, stay, cannotExport(err)
			}
			continue
		}
		dir, gone := filepath.Join(e.root, name), filepath.Join(e.root, "."+name+exportRemoved)
		// Nobody sees a part of it.
		if err := errors.Join(os.Rename(dir, gone), fsx.OS{}.SyncDir(e.root), fsx.RemoveAll(ctx, fsx.Local{}, gone)); err != nil {
			return removed, stay, cannotExport(err)
		}
	}
	return removed, stay, nil
}

// list writes [stored.ExportList], the oldest export first: monolith.model_export.ServingModelState in the text format of protocol buffers. The step is the number of the snapshot.
func (e *exporting) list(ctx context.Context, ids []uint64) error {
	var b bytes.Buffer
	for _, id := range slices.Backward(ids) {
		fmt.Fprintf(&b, "entries {\n  export_dir: %q\n  global_step: %d\n}\n", e.called(strconv.FormatUint(id, 10)), id)
	}
	return fsx.WriteFile(ctx, e.out(), stored.ExportList, b.Bytes())
}

// exportRemoved is how the name of an export ends that is being removed.
const exportRemoved = ".removed"

// empty writes a file with the columns of a table of which there is no row.
func (e *exporting) empty(ctx context.Context, of exportRecipe) error {
	_, src, err := of.plan(e.in, e.info, e.o.Components)
	if err != nil {
		return err
	}
	sink, err := of.sink(e.info, e.o.Components, src)
	if err != nil {
		return err
	}
	if s, ok := sink.(component.EmptyWriter); ok {
		return s.WriteEmpty(ctx, src.Schema())
	}
	return nil
}

// table writes the rows of one table.
func (e *exporting) table(ctx context.Context, of exportRecipe) (pipeline.RunStats, error) {
	o := e.o
	plan, src, err := of.plan(e.in, e.info, o.Components)
	if err != nil {
		return pipeline.RunStats{}, err
	}
	env := func(worker int) *pipeline.Env {
		return &pipeline.Env{Worker: worker, Logger: o.Logger, Hooks: pipeline.NewHooks(e)}
	}
	opts := pipeline.RunOptions{Workers: o.Workers, Drain: o.Drain}
	stats, err := e.submit(ctx, of, &Rebuilt{Plan: plan, Env: env}, opts)
	if err != nil && ctx.Err() == nil && o.Runner == spec.RunnerLocal {
		err = cmp.Or(src.SettleAll(ctx), err) // rows of a damaged file may be refused by who writes them
	}
	return stats, err
}

// submit runs a graph where the export is to be written.
func (e *exporting) submit(ctx context.Context, of exportRecipe, built *Rebuilt, opts pipeline.RunOptions) (pipeline.RunStats, error) {
	o := e.o
	opts.Env = built.Env
	if o.Runner == spec.RunnerLocal {
		stats, err := local.Run(ctx, built.Plan, opts)
		return pipeline.Sum(stats...), err
	}
	config, done, err := o.Recipes.add(recipe{Run: rand.Text(), Export: &of}, func() (*Rebuilt, error) { return built, nil })
	if err != nil {
		return pipeline.RunStats{}, err
	}
	defer done()
	s := Submission{Recipe: config, Plan: built.Plan, Options: opts, Beam: o.Beam, Notice: func(format string, args ...any) { o.Notice(fmt.Sprintf(format, args...)) }}
	if s.Beam.JobName == "" {
		s.Beam.JobName = built.Plan.Name + "-" + of.Of
	}
	return o.Runners[o.Runner](ctx, s)
}
