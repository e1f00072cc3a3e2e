package run

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/memsource"
)

// wholePlan is the graph of a model in a format that has all of it in files that refer to one another: of one split with one record, the snapshot's name, so that one executor writes it, wherever a
// runner has that. progress is called with how many more rows were written; nil: nobody asks.
func (of exportRecipe) wholePlan(open func(context.Context) (*export.Model, error), progress func(rows int64)) (*pipeline.Plan, error) {
	g := pipeline.New("model")
	src := memsource.Records(map[string][][]byte{of.Of: {[]byte(of.Snapshot)}}, memsource.Options{})
	pipeline.Into(pipeline.Read(g, "snapshot", src), of.Format, pipeline.Sink[*pipeline.Block](&wholeSink{of: of, open: open, progress: progress}))
	return g.Plan()
}

// wholeSink writes the model of a snapshot to the recipe's folder, which is there once all is in it. An executor that begins while another one writes, as after one that a runner took for dead, writes
// for itself: who is done first has the name.
type wholeSink struct {
	of       exportRecipe
	open     func(context.Context) (*export.Model, error)
	progress func(rows int64)
}

var (
	_ pipeline.Sink[*pipeline.Block]   = (*wholeSink)(nil)
	_ pipeline.Writer[*pipeline.Block] = (*wholeSink)(nil)
)

// Open implements [pipeline.Sink].
func (s *wholeSink) Open(context.Context, *pipeline.Env) (pipeline.Writer[*pipeline.Block], error) {
	return s, nil
}

// String implements [pipeline.Sink].
func (s *wholeSink) String() string { return s.of.Format }

// Fingerprint implements [pipeline.Sink]. Folders are no part of it.
func (s *wholeSink) Fingerprint() string {
	return pipeline.Fingerprint("model", s.of, "Snapshot", "Dir")
}

// Write implements [pipeline.Writer].
func (s *wholeSink) Write(ctx context.Context, b *pipeline.Block) (err error) {
	b.Release()
	if s.of.has() {
		return nil
	}
	m, err := s.open(ctx)
	if err != nil {
		return err
	}
	text, err := s.of.text()
	if err != nil {
		return fmt.Errorf("job: %w", err)
	}
	dir := s.of.Dir + "." + rand.Text()
	err = wholeFormat(s.of.Format, s.of.RowNumbers).Write(ctx, m, export.Target{FS: fsx.Local{}, Dir: dir, Progress: s.progress})
	if err == nil {
		err = fsx.WriteFile(ctx, fsx.Local{}, filepath.Join(dir, exportFile), text)
	}
	if err == nil {
		err = errors.Join(os.Rename(dir, s.of.Dir), fsx.OS{}.SyncDir(filepath.Dir(dir)))
	}
	if err == nil {
		return nil
	}
	gone := os.RemoveAll(dir)
	if s.of.has() {
		return gone
	}
	return errors.Join(err, gone)
}

// Flush implements [pipeline.Writer].
func (*wholeSink) Flush(context.Context) error { return nil }

// Close implements [pipeline.Writer].
func (*wholeSink) Close() error { return nil }

// has reports whether the folder is there, with this export.
func (of exportRecipe) has() bool {
	want, err := of.text()
	have, gone := os.ReadFile(filepath.Join(of.Dir, exportFile))
	return err == nil && gone == nil && bytes.Equal(have, want)
}

// writeWhole writes all that the model has to a folder that is not there.
func (e *exporting) writeWhole(ctx context.Context, r *result.ExportedModel, dir string, there bool) error {
	for _, t := range e.info.Tables {
		table := result.TableRows{Name: t.Name, Dir: dir, Rows: t.Rows, Of: t.Rows}
		if there {
			table.Earlier = t.Rows
		}
		r.Rows += t.Rows
		r.Tables = append(r.Tables, table)
	}
	if there {
		return e.of.claim(ctx, dir)
	}
	of := *e.of
	of.Snapshot, of.Dir = e.info.Path, dir
	plan, err := of.wholePlan(func(context.Context) (*export.Model, error) { return e.model, nil }, func(n int64) { e.read.Add(n) })
	if err != nil {
		return err
	}
	within, end := untilDrained(ctx, e.o.Drain)
	defer end()
	env := func(worker int) *pipeline.Env { return &pipeline.Env{Worker: worker, Logger: e.o.Logger} }
	_, err = e.submit(within, of, &Rebuilt{Plan: plan, Env: env}, pipeline.RunOptions{Workers: 1})
	if err == nil {
		err = e.writeWarmup(ctx, dir)
	}
	if err != nil && wasDrained(ctx, within) {
		r.Drained, r.Rows, r.Tables = true, 0, nil
		return nil
	}
	return cannotExport(err)
}
