package run

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/arrowfile"
	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/snapshotsource"
)

// editRows are the rows of a request: ids, all different, and of each the values that the operation takes.
type editRows struct {
	table  param.Table
	op     param.Op
	ids    []int64
	values []float32 // [len(ids), table.Width(op)]
}

// readEdits reads the rows of a request, all of them before one is edited. Errors: [pipeline.ErrConfig] for a row that cannot be used, which is named,
// [pipeline.ErrUnavailable] for a file that cannot be read.
func readEdits(ctx context.Context, t param.Table, o EditOptions) (*editRows, error) {
	e := &editRows{table: t, op: o.Op, ids: o.IDs}
	var err error
	switch {
	case len(o.Parquet) > 0:
		err = e.readColumns(ctx, components.Or(o.Components), o.Parquet)
	case len(o.Arrow) > 0:
		err = e.readArrow(ctx, o.Arrow)
	case o.From != nil:
		err = e.readJSON(o.From)
	case t.Width(o.Op) > 0:
		err = fault.Config("job: %s of ids without values", o.Op)
	}
	if err != nil {
		return nil, err
	}
	return e, e.distinct()
}

// add takes a row whose values are the last of values. where names it.
func (e *editRows) add(where string, id int64) error {
	e.ids = append(e.ids, id)
	width := e.table.Width(e.op)
	if err := e.table.CheckEdit(e.op, e.values[len(e.values)-width:]); err != nil {
		return fault.Config("job: %s, id %d: %w", where, id, err)
	}
	return nil
}

// distinct reports an id that is there twice.
func (e *editRows) distinct() error {
	sorted := slices.Sorted(slices.Values(e.ids))
	for i := 1; i < len(sorted); i++ {
		if id := sorted[i]; id == sorted[i-1] {
			first := slices.Index(e.ids, id)
			return fault.Config("job: id %d is there twice, as row %d and row %d of the request, and only one of both could hold", id, first+1, first+2+slices.Index(e.ids[first+1:], id))
		}
	}
	return nil
}

// readJSON reads a JSON object a line, as `monolith ps changes --weights` writes rows.
func (e *editRows) readJSON(from io.Reader) error {
	d := json.NewDecoder(bufio.NewReader(from))
	for n := 1; ; n++ {
		var line struct {
			ID       *int64                `json:"id"`
			Table    string                `json:"table"`
			Weights  []float32             `json:"weights"`
			Segments []result.EntrySegment `json:"segments"`
		}
		where := fmt.Sprintf("object %d of the rows to edit", n)
		err := d.Decode(&line)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fault.Config("job: %s: %w", where, err)
		case line.ID == nil:
			return fault.Config(`job: %s has no "id"`, where)
		case line.Table != "" && line.Table != e.table.Name:
			return fault.Config("job: %s, id %d, is of table %q, and %q is edited", where, *line.ID, line.Table, e.table.Name)
		}
		if e.table.Width(e.op) > 0 {
			if dim := e.table.Dim(); len(line.Weights) != dim {
				return fault.Config("job: %s, id %d: %d weights, the table has %d", where, *line.ID, len(line.Weights), dim)
			}
			e.values = append(e.values, line.Weights...)
		}
		if e.op == param.AssignState {
			if err := e.addStates(line.Segments); err != nil {
				return fault.Config("job: %s, id %d: %w", where, *line.ID, err)
			}
		}
		if err := e.add(where, *line.ID); err != nil {
			return err
		}
	}
}

// addStates takes the states of a row's segments.
func (e *editRows) addStates(segments []result.EntrySegment) error {
	for _, s := range segments {
		if !slices.ContainsFunc(e.table.Segments, func(t param.Segment) bool { return t.Name == s.Name }) {
			return fmt.Errorf("the table has no segment %q", s.Name)
		}
	}
	for _, t := range e.table.Segments {
		n := t.Optimizer.StateDim(t.Dim)
		at := slices.IndexFunc(segments, func(s result.EntrySegment) bool { return s.Name == t.Name })
		switch {
		case at < 0 && n > 0:
			return fmt.Errorf("no state of segment %q, whose rule, %s, keeps %d numbers", t.Name, t.Optimizer.Name(), n)
		case at < 0:
			continue
		case segments[at].Optimizer != "" && segments[at].Optimizer != t.Optimizer.Name():
			return fmt.Errorf("the state of segment %q is of %s, the job's rule is %s", t.Name, segments[at].Optimizer, t.Optimizer.Name())
		case len(segments[at].State) != n:
			return fmt.Errorf("%d numbers of state of segment %q, whose rule, %s, keeps %d", len(segments[at].State), t.Name, t.Optimizer.Name(), n)
		}
		e.values = append(e.values, segments[at].State...)
	}
	return nil
}

// editColumn is a column of the rows to edit, a list of so many numbers.
type editColumn struct {
	name string
	len  int
}

// columns are those that the operation takes, as `monolith export --format parquet` names them.
func (e *editRows) columns() (out []editColumn) {
	if e.table.Width(e.op) == 0 {
		return nil
	}
	for _, s := range e.table.Segments {
		out = append(out, editColumn{snapshotsource.WeightsOf + s.Name, s.Dim})
	}
	for _, s := range e.table.Segments {
		if n := s.Optimizer.StateDim(s.Dim); e.op == param.AssignState && n > 0 {
			out = append(out, editColumn{snapshotsource.StateOf + s.Name, n})
		}
	}
	return out
}

// schema is that of files of columns.
func (e *editRows) schema(columns []editColumn) *arrow.Schema {
	fields := []arrow.Field{{Name: snapshotsource.ColFID, Type: arrow.PrimitiveTypes.Int64}}
	for _, c := range columns {
		fields = append(fields, arrow.Field{Name: c.name, Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)})
	}
	return arrow.NewSchema(fields, nil)
}

// readColumns reads the rows of files of columns, in the order of their names.
func (e *editRows) readColumns(ctx context.Context, set component.Set, files []string) error {
	columns := e.columns()
	src, err := sourceOf(set, files, e.schema(columns))
	if err != nil {
		return fmt.Errorf("job: rows to edit: %w", err)
	}
	splits, err := src.Splits(ctx)
	if err != nil {
		return fmt.Errorf("job: rows to edit: %w", err)
	}
	for _, split := range splits {
		if err := e.readSplit(ctx, src, split, columns); err != nil {
			return err
		}
	}
	return nil
}

// sourceOf reads columns of files.
func sourceOf(set component.Set, files []string, columns *arrow.Schema) (pipeline.Source[*pipeline.Batch], error) {
	for _, kind := range set.Sources {
		if of, ok := kind.New().(component.FileColumns); ok {
			return of.OfFiles(files).OpenColumns(component.Opening{}, columns)
		}
	}
	return nil, fault.Config("job: no source of this program reads columns of files")
}

// readSplit reads the rows of a row group.
func (e *editRows) readSplit(ctx context.Context, src pipeline.Source[*pipeline.Batch], split pipeline.Split, columns []editColumn) (err error) {
	r, err := src.Open(ctx, &pipeline.Env{Source: "rows to edit"}, split, 0)
	if err != nil {
		return fmt.Errorf("job: rows to edit: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		from := r.Position()
		b, err := r.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, pipeline.ErrBadData):
			return fault.Config("job: %w", err)
		case err != nil:
			return fmt.Errorf("job: rows to edit: %w", err)
		}
		err = e.addBatch(b.Record(), "row group "+split.Name, int64(from), columns)
		b.Release()
		if err != nil {
			return err
		}
	}
}

// readArrow reads the rows of Arrow files, in the order of their names.
func (e *editRows) readArrow(ctx context.Context, patterns []string) error {
	files, err := filesplit.Expand(ctx, fsx.Local{}, patterns)
	if err != nil {
		return fault.Config("job: rows to edit: %w", err)
	}
	for _, file := range files {
		err := e.readArrowFile(ctx, file)
		if errors.Is(err, arrowfile.ErrColumns) || errors.Is(err, arrowfile.ErrDamaged) {
			return fault.Config("job: rows to edit: %s: %w", file.Path, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *editRows) readArrowFile(ctx context.Context, file filesplit.File) (err error) {
	unreadable := func(err error) error {
		if err == nil || errors.Is(err, arrowfile.ErrColumns) || errors.Is(err, arrowfile.ErrDamaged) {
			return err
		}
		return fmt.Errorf("job: rows to edit: %s: %w: %w", file.Path, pipeline.ErrUnavailable, err)
	}
	f, err := fsx.Local{}.Open(ctx, file.Path)
	if err != nil {
		return unreadable(err)
	}
	defer func() { err = errors.Join(err, unreadable(f.Close())) }()
	columns := e.columns()
	rows, err := arrowfile.OpenColumns(f, f.Info().Size, e.schema(columns))
	if err != nil {
		return unreadable(err)
	}
	defer rows.Close()
	for before := int64(0); ctx.Err() == nil; {
		rec, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unreadable(err)
		}
		n := rec.NumRows()
		err = e.addBatch(rec, file.Name, before, columns)
		rec.Release()
		if err != nil {
			return err
		}
		before += n
	}
	return context.Cause(ctx)
}

// addBatch takes the rows of a record batch, the first of which has so many before it in what is named.
func (e *editRows) addBatch(rec arrow.RecordBatch, of string, before int64, columns []editColumn) error {
	fids := rec.Column(0).(*array.Int64)
	for i := range int(rec.NumRows()) {
		where := fmt.Sprintf("%s, row %d", of, before+int64(i)+1)
		if fids.IsNull(i) {
			return fault.Config("job: %s: %s is null", where, snapshotsource.ColFID)
		}
		for c, want := range columns {
			list := rec.Column(c + 1).(*array.List)
			numbers := list.ListValues().(*array.Float32)
			from, to := list.ValueOffsets(i)
			switch {
			case list.IsNull(i):
				return fault.Config("job: %s, id %d: %s is null", where, fids.Value(i), want.name)
			case to-from != int64(want.len):
				return fault.Config("job: %s, id %d: %d numbers in %s, want %d", where, fids.Value(i), to-from, want.name, want.len)
			}
			for k := from; k < to; k++ {
				if numbers.IsNull(int(k)) {
					return fault.Config("job: %s, id %d: number %d of %s is null", where, fids.Value(i), k-from, want.name)
				}
			}
			e.values = append(e.values, numbers.Float32Values()[from:to]...)
		}
		if err := e.add(where, fids.Value(i)); err != nil {
			return err
		}
	}
	return nil
}
