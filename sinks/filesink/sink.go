package filesink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
)

// Sink writes batches with whatever columns the format has a form for. All files of a run have the same columns. It is safe for
// concurrent use.
type Sink struct {
	format Format
	opts   Options
	shown  func(ctx context.Context, split string) error // nil: all files are
}

var _ pipeline.Sink[*pipeline.Batch] = (*Sink)(nil)

// New describes a sink. It opens nothing. Errors: [pipeline.ErrConfig], all faults of the options at once.
func New(format Format, opts Options) (*Sink, error) {
	var faults []error
	opts.Check(func(text string, args ...any) {
		faults = append(faults, fmt.Errorf("%ssink: "+text+": %w", slices.Concat([]any{format.Name()}, args, []any{pipeline.ErrConfig})...))
	})
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Sink{format, opts.WithDefaults(), nil}, nil
}

// ShownIf returns the sink with a question about a split that is asked before each file of it becomes visible, and may take its time: an error of it keeps the file from becoming so.
func (s *Sink) ShownIf(ask func(ctx context.Context, split string) error) *Sink {
	out := *s
	out.shown = ask
	return &out
}

// String implements [pipeline.Sink].
func (s *Sink) String() string { return s.format.Name() + " " + s.opts.Dir }

// Fingerprint implements [pipeline.Sink].
func (s *Sink) Fingerprint() string { return s.format.Fingerprint() }

// WriteEmpty writes one file with the columns and no row, for an input that has none: without it nothing says which columns there are. A file that is there already stays. Errors: as
// [Writer].Write.
func (s *Sink) WriteEmpty(ctx context.Context, columns *arrow.Schema) error {
	w := &Writer{format: s.format, opts: s.opts}
	const source = "empty"
	name := fileName(stem(source, ""), 0, s.format.Extension())
	if _, err := os.Stat(filepath.Join(s.opts.Dir, name)); err == nil {
		return nil
	}
	if err := os.MkdirAll(s.opts.Dir, 0o755); err != nil {
		return w.unavailable(err)
	}
	f, err := begin(ctx, s.opts.Dir, name, s.format, columns, 0)
	if err != nil {
		return w.cannotWrite(ctx, err)
	}
	if err := f.publish(ctx, covered{output: s.opts.Output, source: source}); err != nil {
		return w.cannotWrite(ctx, err)
	}
	return nil
}

// Open implements [pipeline.Sink]. It makes the folder. Errors: [pipeline.ErrUnavailable].
func (s *Sink) Open(ctx context.Context, env *pipeline.Env) (pipeline.Writer[*pipeline.Batch], error) {
	w, err := s.OpenWriter(ctx, env)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// OpenWriter is Open with the writer's own type.
func (s *Sink) OpenWriter(context.Context, *pipeline.Env) (*Writer, error) {
	w := &Writer{format: s.format, opts: s.opts, shown: s.shown, splits: map[pipeline.SplitID]*split{}}
	if err := os.MkdirAll(s.opts.Dir, 0o755); err != nil {
		return nil, w.unavailable(err)
	}
	return w, nil
}

// Writer writes the files of a worker's splits. It is not for concurrent use.
type Writer struct {
	format  Format
	opts    Options
	shown   func(ctx context.Context, split string) error // nil: all files are
	columns *arrow.Schema                                 // nil before the first batch
	splits  map[pipeline.SplitID]*split
	totals  struct{ files, rows, bytes int64 }
	closed  bool
}

var (
	_ pipeline.Writer[*pipeline.Batch] = (*Writer)(nil)
	_ pipeline.Resumer                 = (*Writer)(nil)
	_ pipeline.Storer                  = (*Writer)(nil)
	_ pipeline.Idler                   = (*Writer)(nil)
)

// split is how far a split has been written.
type split struct {
	id      pipeline.SplitID
	stem    string
	at      pipeline.Progress // of what was taken
	stored  pipeline.Position // the end of what is visible
	from    pipeline.Position // where the next file begins: at stored, or where the split does
	columns *arrow.Schema     // of what was taken last, which may have had no rows
	file    *file             // nil: none is begun
	failed  error             // of a file that did not become visible: the next one must not begin after it
}

// fault gives an error the name of the format's package.
func (w *Writer) fault(text string, args ...any) error {
	return fmt.Errorf("%ssink: "+text, slices.Concat([]any{w.format.Name()}, args)...)
}

// unavailable is what the user can do something about outside the process.
func (w *Writer) unavailable(err error) error {
	do, _ := fsx.Advice(err)
	return w.fault("folder %s: %w: %w; %s, or name another folder in %sdir", w.opts.Dir, err, pipeline.ErrUnavailable, do, w.opts.Keys)
}

// Resume implements [pipeline.Resumer]: it removes what earlier owners have not finished, which keeps them from finishing
// it, and returns the end of what is visible. Errors: [pipeline.ErrUnavailable]; [pipeline.ErrBadData] for a last file of a
// split that is damaged; [pipeline.ErrConfig] for one of another output.
func (w *Writer) Resume(ctx context.Context, source string, splits []pipeline.Split) (map[string]pipeline.Progress, error) {
	if w.closed {
		return nil, w.errClosed()
	}
	out := make(map[string]pipeline.Progress, len(splits))
	stems := make([]string, len(splits))
	for i, sp := range splits {
		stems[i] = stem(source, sp.Name)
	}
	// Removing goes before listing: what another owner publishes in between is found.
	names, err := w.names()
	if err != nil {
		return nil, err
	}
	for _, s := range stems {
		for _, name := range names {
			if !unfinished(s, w.format.Extension(), name) {
				continue
			}
			if err := os.Remove(filepath.Join(w.opts.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, w.unavailable(err)
			}
		}
	}
	if names, err = w.names(); err != nil {
		return nil, err
	}
	for i, sp := range splits {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		id := pipeline.SplitID{Source: source, Split: sp.Name}
		at, err := w.last(id, stems[i], names)
		if err != nil {
			return nil, err
		}
		if old := w.splits[id]; old != nil && old.file != nil {
			old.file.abandon()
		}
		w.splits[id] = &split{id: id, stem: stems[i], at: at, stored: at.Position, from: at.Position}
		if at.Position != pipeline.NoPosition {
			out[sp.Name] = at
		}
	}
	return out, nil
}

func (w *Writer) names() ([]string, error) {
	entries, err := os.ReadDir(w.opts.Dir)
	if err != nil {
		return nil, w.unavailable(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// last reads how far the visible files of a split go, from the last of them. NoPosition: there is none.
func (w *Writer) last(id pipeline.SplitID, stem string, names []string) (pipeline.Progress, error) {
	newest := pipeline.NoPosition
	for _, name := range names {
		if from, ok := parseName(stem, w.format.Extension(), name); ok {
			newest = max(newest, from)
		}
	}
	if newest == pipeline.NoPosition {
		return pipeline.Progress{Position: pipeline.NoPosition}, nil
	}
	path := filepath.Join(w.opts.Dir, fileName(stem, newest, w.format.Extension()))
	c, err := w.readFile(path)
	if err == nil && (c.source != id.Source || c.split != id.Split || c.from != newest) {
		err = fmt.Errorf("it says that it holds %s/%s from position %s on: %w", c.source, c.split, c.from.Text(), ErrDamaged)
	}
	switch {
	case errors.Is(err, ErrDamaged):
		return pipeline.Progress{}, w.fault("%s: %w; what %s has from position %s on is written again when this file is gone", path, err, id, newest.Text())
	case err != nil:
		return pipeline.Progress{}, w.unavailable(err)
	case c.output != w.opts.Output:
		return pipeline.Progress{}, w.fault("%s has rows of output %q, and those of %q are to be written; name another folder in %sdir: %w",
			path, c.output, w.opts.Output, w.opts.Keys, pipeline.ErrConfig)
	}
	return c.Progress, nil
}

func (w *Writer) readFile(path string) (c covered, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return c, err
	}
	return readCovered(w.format, f, info.Size())
}

// Write implements [pipeline.Writer]. Rows are not visible before their file is complete. A split that Resume was not asked
// about is resumed by its first batch, which must begin where the files end. Errors: [pipeline.ErrSchema] for columns that
// cannot be written, or other ones than before; [pipeline.ErrFenced] when the split has another owner;
// [pipeline.ErrUnavailable].
func (w *Writer) Write(ctx context.Context, b *pipeline.Batch) error {
	defer b.Release()
	if w.closed {
		return w.errClosed()
	}
	o := b.Origin()
	sp := w.splits[o.ID()]
	if sp == nil {
		if _, err := w.Resume(ctx, o.Source, []pipeline.Split{{Name: o.Split}}); err != nil {
			return err
		}
		sp = w.splits[o.ID()]
	}
	if sp.failed != nil {
		return sp.failed
	}
	if sp.at.Position == pipeline.NoPosition {
		sp.at.Position, sp.from = o.From, o.From
	}
	if o.From != sp.at.Position {
		return w.fault("%s does not begin at position %s, where what is written ends: %w", o, sp.at.Position.Text(), pipeline.ErrConfig)
	}
	if n := b.NumRows(); n > 0 {
		if err := w.put(ctx, sp, b); err != nil {
			sp.failed = err
			return err
		}
		sp.at.Rows += int64(n)
		sp.at.Batches++
	}
	sp.at.Position, sp.columns = o.To, b.Record().Schema()
	if f := sp.file; f != nil && (f.rows >= w.opts.RowsPerFile || f.Size() >= w.opts.BytesPerFile || f.old(w.opts.FileEvery)) {
		return w.finish(ctx, sp)
	}
	return nil
}

func (w *Writer) put(ctx context.Context, sp *split, b *pipeline.Batch) error {
	columns := b.Record().Schema()
	if w.columns == nil {
		w.columns = columns
	} else if w.columns != columns && !w.columns.Equal(columns) {
		return w.fault("%s has columns %s, earlier ones %s: %w", b.Origin(), columns, w.columns, pipeline.ErrSchema)
	}
	if sp.file == nil {
		// From where the last file ends, also where what comes first has no rows: the next file has one name, whatever batches an owner makes.
		if err := w.begin(ctx, sp, columns); err != nil {
			return err
		}
	}
	if err := sp.file.write(b); err != nil {
		return w.cannotWrite(ctx, err)
	}
	return nil
}

// begin begins the next file of a split, at the end of what is visible.
func (w *Writer) begin(ctx context.Context, sp *split, columns *arrow.Schema) (err error) {
	if sp.file, err = begin(ctx, w.opts.Dir, fileName(sp.stem, sp.from, w.format.Extension()), w.format, columns, sp.from); err != nil {
		return w.cannotWrite(ctx, err)
	}
	return nil
}

// cannotWrite is the error of a file that cannot be written: for the columns, or for the disk.
func (w *Writer) cannotWrite(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, pipeline.ErrSchema):
		return w.fault("%w", err)
	}
	return w.unavailable(err)
}

// finish makes the file of a split visible.
func (w *Writer) finish(ctx context.Context, sp *split) error {
	f := sp.file
	sp.file = nil
	if f == nil {
		return nil
	}
	if w.shown != nil {
		if err := w.shown(ctx, sp.id.Split); err != nil {
			f.abandon()
			sp.failed = err
			return err
		}
	}
	err := f.publish(ctx, covered{output: w.opts.Output, source: sp.id.Source, split: sp.id.Split, from: f.from, Progress: sp.at})
	switch {
	case err == nil:
		sp.stored, sp.from = sp.at.Position, sp.at.Position
		w.totals.files, w.totals.rows, w.totals.bytes = w.totals.files+1, w.totals.rows+f.rows, w.totals.bytes+f.Size()
		return nil
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
		err = w.fault("positions %s to %s of %s: %w: %w", f.from.Text(), sp.at.Position.Text(), sp.id, err, pipeline.ErrFenced)
	default:
		err = w.cannotWrite(ctx, err)
	}
	sp.failed = err
	return err
}

// Stored implements [pipeline.Storer].
func (w *Writer) Stored(id pipeline.SplitID) pipeline.Position {
	if sp := w.splits[id]; sp != nil {
		return sp.stored
	}
	return pipeline.NoPosition
}

// Totals returns how many files this writer has made visible, and how many rows and about how many bytes they have.
func (w *Writer) Totals() (files, rows, bytes int64) {
	return w.totals.files, w.totals.rows, w.totals.bytes
}

// Flush implements [pipeline.Writer]: it completes all files, so that what was written is visible, and writes one without rows for a range that had none.
// Errors: as Write.
func (w *Writer) Flush(ctx context.Context) error {
	return w.each(ctx, func(sp *split) (bool, error) {
		if sp.file == nil && sp.at.Position > sp.from {
			if err := w.begin(ctx, sp, sp.columns); err != nil {
				sp.failed = err
				return false, err
			}
		}
		return sp.file != nil, nil
	})
}

// Idle implements [pipeline.Idler]: it completes the files that are old enough.
func (w *Writer) Idle(ctx context.Context) error {
	return w.each(ctx, func(sp *split) (bool, error) { return sp.file != nil && sp.file.old(w.opts.FileEvery), nil })
}

func (w *Writer) each(ctx context.Context, when func(*split) (bool, error)) error {
	if w.closed {
		return w.errClosed()
	}
	var errs []error
	for _, sp := range w.splits {
		if sp.failed != nil {
			errs = append(errs, sp.failed)
			continue
		}
		now, err := when(sp)
		if now {
			err = w.finish(ctx, sp)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Close implements [pipeline.Writer]: files that are not complete are removed.
func (w *Writer) Close() error {
	for _, sp := range w.splits {
		if sp.file != nil {
			sp.file.abandon()
			sp.file = nil
		}
	}
	w.closed = true
	return nil
}

func (w *Writer) errClosed() error {
	return w.fault("writer to %s: %w", w.opts.Dir, pipeline.ErrClosed)
}
