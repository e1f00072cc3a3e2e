package job

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// InspectSnapshot describes a snapshot, or the newest good one of a job's dir or of a folder of snapshots. All its files
// are read and checked.
func InspectSnapshot(_ context.Context, path string) (*SnapshotInfo, error) {
	found, err := findSnapshot(path)
	if err != nil {
		return nil, err
	}
	s, err := snapshot.Open(found)
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // it was only read
	digest, err := s.Digest()
	if err != nil {
		return nil, err
	}
	info := s.Info()
	out := &SnapshotInfo{
		Path: found, ID: int64(info.ID), Created: info.Created, Digest: digest, Rows: info.Rows(), Meta: info.Meta,
		Positions: map[string]map[string]PositionInfo{},
	}
	for _, t := range info.Tables {
		out.Tables = append(out.Tables, TableInfo{Name: t.Name, Rows: t.Rows, Dim: t.Dim()})
	}
	tensors, err := s.Tensors()
	if err != nil {
		return nil, err
	}
	for _, t := range tensors {
		out.Dense = append(out.Dense, TensorInfo{Name: t.Name, Shape: t.Shape})
	}
	for source, splits := range info.Positions {
		out.Positions[source] = map[string]PositionInfo{}
		for split, p := range splits {
			out.Positions[source][split] = PositionInfo{Position: p.Position, Rows: p.Rows, Batches: p.Batches}
		}
	}
	return out, nil
}

// InspectSource reads the first rows of a job's source: as features where the job says how to parse them, as records
// otherwise. Rows are taken from the splits in order.
func InspectSource(ctx context.Context, cfg *Config, opts InspectOptions) (*SourceInfo, error) {
	r := cfg.trainReading(1)
	g := pipeline.New("inspect")
	sink := &headSink{want: opts.Rows}
	var described interface {
		Bounded() bool
		Splits(context.Context) ([]pipeline.Split, error)
		String() string
		Schema() *arrow.Schema
	}
	if cfg.Source.Parquet == nil && len(cfg.Parse.Features) == 0 {
		src, err := r.blocks()
		if err != nil {
			return nil, err
		}
		described = src
		pipeline.Into(pipeline.Read(g, r.name(), src), "head", pipeline.Sink[*pipeline.Block](headOf[*pipeline.Block]{sink}))
	} else {
		r.batch.Rows = max(opts.Rows, 1)
		examples, err := r.examples(g)
		if err != nil {
			return nil, err
		}
		pipeline.Into(examples, "head", pipeline.Sink[*pipeline.Batch](headOf[*pipeline.Batch]{sink}))
	}
	plan, err := g.Plan()
	if err != nil {
		return nil, err
	}
	if described == nil {
		_, any := plan.Segments[0].Source()
		described = any.(pipeline.Source[*pipeline.Block])
	}
	splits, err := described.Splits(ctx)
	if err != nil {
		return nil, err
	}
	out := &SourceInfo{Source: described.String(), Bounded: described.Bounded()}
	for _, s := range splits {
		out.Splits = append(out.Splits, SplitInfo{Name: s.Name, Start: int64(s.Start), End: int64(s.End)})
	}
	bad, err := cfg.badRows(workerName())
	if err != nil {
		return nil, err
	}
	defer bad.close() //nolint:errcheck // see above
	if opts.Rows > 0 {
		env := func(int) *pipeline.Env { return &pipeline.Env{Logger: opts.Logger, BadRows: bad.policy} }
		if _, err := plan.Segments[0].Run(ctx, pipeline.RunOptions{MaxRows: int64(opts.Rows), Splits: splits, Env: env, Deterministic: true}); err != nil {
			return nil, err
		}
	}
	out.Schema, out.Rows = sink.columns, sink.rows
	if sink.columns == nil {
		out.Schema = columnsOf(described.Schema())
	}
	return out, nil
}

// headSink keeps the first rows it gets, as text.
type headSink struct {
	want    int
	columns []ColumnInfo
	rows    [][]string
}

type tabular interface {
	pipeline.Element
	Record() arrow.RecordBatch
}

// headOf makes a [pipeline.Sink] of one element type of a headSink.
type headOf[T tabular] struct{ s *headSink }

func (h headOf[T]) String() string { return "head" }

func (h headOf[T]) Fingerprint() string { return "head" }

func (h headOf[T]) Open(context.Context, *pipeline.Env) (pipeline.Writer[T], error) { return h, nil }

func (h headOf[T]) Write(_ context.Context, e T) error {
	defer e.Release()
	h.s.add(e.Record())
	return nil
}

func (h headOf[T]) Flush(context.Context) error { return nil }
func (h headOf[T]) Close() error                { return nil }

func columnsOf(s *arrow.Schema) []ColumnInfo {
	var out []ColumnInfo
	for _, f := range s.Fields() {
		out = append(out, ColumnInfo{Name: f.Name, Type: f.Type.String()})
	}
	return out
}

func (h *headSink) add(rec arrow.RecordBatch) {
	if h.columns == nil {
		h.columns = columnsOf(rec.Schema())
	}
	for i := 0; i < int(rec.NumRows()) && len(h.rows) < h.want; i++ {
		row := make([]string, rec.NumCols())
		for c := range row {
			row[c] = cell(rec.Column(c), i)
		}
		h.rows = append(h.rows, row)
	}
}

// cell renders a value for people; bytes that are no text are shown by their number.
func cell(col arrow.Array, i int) string {
	b, ok := col.(*array.Binary)
	if !ok {
		return clip(col.ValueStr(i))
	}
	if b.IsNull(i) {
		return ""
	}
	v := b.Value(i)
	if !utf8.Valid(v) {
		return fmt.Sprintf("(%d bytes)", len(v))
	}
	for _, r := range string(v) {
		if !unicode.IsPrint(r) && r != '\t' {
			return fmt.Sprintf("(%d bytes)", len(v))
		}
	}
	return clip(string(v))
}

func clip(s string) string {
	const most = 60
	if q := strconv.Quote(s); len(q) != len(s)+2 {
		s = q
	}
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// Check looks for everything that would keep a job from running, without reading data: the graph is planned, secrets,
// files and brokers are looked for. Findings are what is wrong with the job; an error says that the check itself failed.
func Check(ctx context.Context, cfg *Config) ([]Finding, error) {
	var findings []Finding
	add := func(path string, err error) {
		for _, e := range flatten(err) {
			findings = append(findings, Finding{Path: path, Message: e.Error()})
		}
	}
	if _, err := BuildPlan(cfg); err != nil {
		add("", err)
	}
	look := func(path string, r reading) {
		if r.source == nil {
			return
		}
		var err error
		if r.source.Parquet != nil {
			opts := r.parseOptions()
			var src pipeline.Source[*pipeline.Batch]
			if src, err = r.parquet(opts); err == nil {
				_, err = src.Splits(ctx)
			}
		} else {
			var src pipeline.Source[*pipeline.Block]
			if src, err = r.blocks(); err == nil {
				_, err = src.Splits(ctx)
			}
		}
		if err != nil {
			add(path, err)
		}
	}
	look("source", cfg.trainReading(1))
	look("eval.source", cfg.evalReading())
	if m, err := cfg.model(); err == nil { // else the plan has told
		if path, err := findSnapshot(cfg.snapshotsIn()); err == nil {
			info, err := snapshot.ReadInfo(path)
			switch {
			case err != nil:
				add("dir", err)
			case info.LayoutHash != m.Layout().Hash():
				add("dir", fmt.Errorf("the newest snapshot %s is of another model; train with another dir, or begin anew with --resume=false", path))
			}
		}
	}
	return findings, nil
}

// flatten takes joined errors and plan faults apart.
func flatten(err error) []error {
	if plan, ok := errors.AsType[*pipeline.PlanError](err); ok {
		return plan.Faults
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok && fmt.Sprintf("%T", err) == "*errors.joinError" {
		var out []error
		for _, e := range j.Unwrap() {
			out = append(out, flatten(e)...)
		}
		return out
	}
	return []error{err}
}
