package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/sources/epochsource"
	"github.com/monolith-go/monolith/transforms/batch"
	"github.com/monolith-go/monolith/transforms/parse"
)

// Reading describes how a source of a job is read: in training with the job's epochs and shuffle, in evaluation once and in
// order.
type Reading struct {
	Job     *spec.Config
	Key     string // of the source in the job
	Source  *spec.Source
	Name    string // of the source's node, under which positions are stored
	Format  string
	Columns []string // names of csv and tsv columns
	Header  bool     // the first line of each file names them
	Epochs  int      // 0: as it is
	Shuffle spec.Shuffle
	Known   Known
	Batch   batch.Options
	Log     *slog.Logger // of what listing splits waits for; may be nil
	// Fields, if not nil, are what the reading is for, other than training and evaluation: rows need no labels, and have weights, labels
	// and keys as far as fields want them.
	Fields *Fields
	// Memory is what this process may take, of which windows of the shuffle have a share; nil has no limit.
	Memory *table.Memory
	// Phase chooses the job's stages.
	Phase spec.Phase
	// Side is the part of the source that is read where the job holds some of it out (eval.holdout); empty: all of it.
	Side parse.Side
}

// Known is what earlier runs found out about a source. The zero value knows nothing.
type Known struct {
	// Identities identify splits by their content, by name; Seen those that have grown by what they held last.
	Identities, Seen map[string]string
	// Follow are splits whose positions say exactly which bytes were read: a longer file that begins with theirs continues them, whatever it is called.
	Follow map[string]bool
	// Orders and Starts are those of the epochs of each split, OneSplit the name of the one split of shuffle.one_split; empty:
	// the usual one.
	Orders   map[string][]epochsource.Order
	Starts   map[string]pipeline.Position
	OneSplit string
}

// TrainReading reads the training source up to the given epoch (of cfg.Epochs); a source without end has none. 0 epochs
// are the source as it is, without epochs and order.
func TrainReading(c *spec.Config, epochs int) Reading {
	return Reading{
		Job: c, Key: c.SourceKey(), Source: &c.Source, Name: c.SourceNode(), Format: c.Parse.Format, Columns: c.Parse.Columns, Header: c.Parse.Header, Epochs: epochs, Shuffle: c.Shuffle,
		Batch: batch.Options{Rows: c.Train.Batch, MaxDelay: maxBatchDelay(c)}, Side: parse.Rest, Phase: spec.PhaseTrain,
	}
}

// maxBatchDelay is train.max_batch_delay, or what it is when the job does not say.
func maxBatchDelay(c *spec.Config) time.Duration {
	const streamDelay = 5 * time.Second
	switch d := c.Train.MaxBatchDelay; {
	case d != nil:
		return time.Duration(*d)
	case c.Deterministic || c.Source.Bounded():
		return 0
	}
	return streamDelay
}

// EvalReading reads the evaluation source once, or what is held out of the training source.
func EvalReading(c *spec.Config) Reading {
	e, name := &c.Eval, ""
	if from, _ := c.EvalSource(); from != nil && e.Source == nil {
		r := TrainReading(c, 0)
		r.Shuffle, r.Batch, r.Side, r.Phase = spec.Shuffle{}, batch.Options{Rows: evalBatch}, parse.Held, spec.PhaseEval
		return r
	}
	if e.Source != nil {
		name = e.Source.Name()
	}
	return Reading{
		Job: c, Key: "eval.source", Source: e.Source, Name: name, Format: e.Format, Columns: e.Columns, Header: e.Header != nil && *e.Header,
		Batch: batch.Options{Rows: evalBatch}, Phase: spec.PhaseEval,
	}
}

// evalBatch is the number of rows that are scored at once: large enough for full speed, small enough for any memory.
const evalBatch = 4096

// repeats reports whether the source is read through an epoch source, whose positions count epochs. That is so for one epoch
// too, with the source's own positions: more epochs, or another order, then continue from them.
func (r Reading) repeats() bool {
	_, stream := r.Source.Stream()
	return r.Epochs > 0 && r.Source.Bounded() && !stream
}

// examples adds source, parse, the stages of the phase and batch to a graph.
func (r Reading) examples(g *pipeline.Graph) (pipeline.Stream[*pipeline.Batch], error) {
	var none pipeline.Stream[*pipeline.Batch]
	opts := r.ParseOptions()
	var parsed pipeline.Stream[*pipeline.Batch]
	if r.Source.Columnar() {
		src, err := r.OpenColumns(opts)
		if err != nil {
			return none, err
		}
		parsed = pipeline.Via(pipeline.Read(g, r.Name, src), "parse", parse.NewColumns(opts))
	} else {
		src, err := r.OpenBlocks()
		if err != nil {
			return none, err
		}
		opts.Format = parse.Format(r.Format)
		parsed = pipeline.Via(pipeline.Read(g, r.Name, src), "parse", parse.New(opts))
	}
	for i := range r.Job.Stages {
		s := &r.Job.Stages[i]
		if !s.RunsIn(r.Phase) {
			continue
		}
		stage, err := s.Value().Stage()
		if err != nil {
			return none, err
		}
		parsed = pipeline.Via(parsed, s.Name(), stage)
	}
	b := r.Batch
	b.Epochs = r.repeats()
	return pipeline.Via(parsed, "batch", batch.New(b)), nil
}

// repeat wraps a source into the job's epochs and shuffle where there are any.
func repeat[T pipeline.Element](r Reading, src pipeline.Source[T]) (pipeline.Source[T], error) {
	if !r.repeats() {
		return src, nil
	}
	o := epochsource.Options{Epochs: r.Epochs, ShuffleRows: r.Shuffle.Rows, Seed: r.Job.Seed, OneSplit: r.Shuffle.OneSplit}
	r.boundWindows(&o)
	o.Orders, o.Starts, o.SplitName = r.Known.Orders, r.Known.Starts, r.Known.OneSplit
	return epochsource.New(src, o)
}

// boundWindows keeps what the workers of a process shuffle, and keep of an epoch for the next, within the memory that there is: a window takes up to twice its rows,
// so that half of the memory is for those that are permuted, an eighth for what is kept, and the rest for tables. The system would end the process without a word.
func (r Reading) boundWindows(o *epochsource.Options) {
	limit, _ := r.Memory.Limit()
	if limit <= 0 || r.Job.Runner != spec.RunnerLocal {
		return
	}
	workers := int64(max(1, r.Job.Train.Workers))
	o.MaxWindowBytes, o.KeepBytes = max(1, limit/4/workers), max(1, min(limit/8/workers, 256<<20))
	o.WindowAdvice = fmt.Sprintf("set shuffle.rows to less than that: of the %d bytes that this process has for tables and windows half are for the windows of all workers (train.workers %d), and each takes twice its rows", limit, workers)
}

// opening is what the job gives its source.
func (r Reading) opening() component.Opening {
	return component.Opening{Seed: r.Job.Seed, Format: r.Format, Header: r.Header, Known: r.Known.Identities, Seen: r.Known.Seen, Follow: r.Known.Follow, Log: r.Log}
}

// OpenBlocks makes a source of undecoded records. Secrets are read here, which is the only I/O.
func (r Reading) OpenBlocks() (pipeline.Source[*pipeline.Block], error) {
	s, ok := r.Source.Value().(component.Blocks)
	if !ok {
		return nil, fmt.Errorf("job: no source of records is chosen: %w", pipeline.ErrConfig)
	}
	src, err := s.OpenBlocks(r.opening())
	if err != nil {
		return nil, err
	}
	return repeat(r, src)
}

// OpenColumns makes a source of the columns that parsing needs.
func (r Reading) OpenColumns(opts parse.Options) (pipeline.Source[*pipeline.Batch], error) {
	s, ok := r.Source.Value().(component.Columns)
	if !ok {
		return nil, fmt.Errorf("job: no source of columns is chosen: %w", pipeline.ErrConfig)
	}
	o := r.opening()
	o.Draw = opts.Holdout.Share > 0 && opts.Holdout.Column == ""
	src, err := s.OpenColumns(o, columnsToRead(opts))
	if err != nil {
		return nil, err
	}
	return repeat(r, src)
}

// columnsToRead are the Parquet columns that parsing needs, with the types to read them as. A sparse feature is read as a
// list, of one where the column has single values.
func columnsToRead(opts parse.Options) *arrow.Schema {
	var fields []arrow.Field
	seen := map[string]bool{}
	add := func(name string, typ arrow.DataType) {
		if name != "" && !seen[name] {
			seen[name] = true
			fields = append(fields, arrow.Field{Name: name, Type: typ, Nullable: true})
		}
	}
	joined := map[string]bool{}
	for _, j := range opts.Joins {
		for _, c := range j.Columns {
			joined[j.Prefix+c] = true
		}
	}
	for _, f := range opts.Features {
		switch {
		case joined[f.Column]:
		case f.Split != "" || f.Regexp != "": // text that is taken apart
			add(f.Column, arrow.BinaryTypes.Binary)
		case f.Kind == parse.Dense && f.Dim <= 1:
			add(f.Column, arrow.PrimitiveTypes.Float32)
		case f.Kind == parse.Dense:
			add(f.Column, arrow.ListOf(arrow.PrimitiveTypes.Float32))
		case f.Type == parse.String:
			add(f.Column, arrow.ListOf(arrow.BinaryTypes.Binary))
		case f.Type == parse.Float:
			add(f.Column, arrow.ListOf(arrow.PrimitiveTypes.Float32))
		case f.Type == parse.Int:
			add(f.Column, arrow.ListOf(arrow.PrimitiveTypes.Int64))
		default:
			add(f.Column, component.IDs())
		}
	}
	for _, j := range opts.Joins {
		add(j.Key, component.IDs())
	}
	for _, l := range opts.Labels {
		add(l.Column, comparedType(l.Positive))
		add(l.Mask, comparedType(l.MaskPositive))
	}
	for _, k := range opts.Keys {
		add(k.Column, component.IDs())
	}
	add(opts.Weight.Column, arrow.PrimitiveTypes.Float32)
	add(opts.Holdout.Column, component.IDs())
	return arrow.NewSchema(fields, nil)
}

// comparedType is what a condition compares.
func comparedType(positive string) arrow.DataType {
	if parse.ComparesText(positive) {
		return arrow.BinaryTypes.Binary
	}
	return arrow.PrimitiveTypes.Float32
}

// ParseOptions is the job's parse section in the words of the parse package.
func (r Reading) ParseOptions() parse.Options {
	p := &r.Job.Parse
	out := parse.Options{
		Columns: r.Columns, Fields: p.Fields, Labels: labels(r.Job, r.Format),
	}
	if h := r.Job.Eval.Holdout; h != nil && r.Side != "" {
		out.Holdout = parse.Holdout{Column: h.By, Share: h.Share, From: h.From, Side: r.Side}
	}
	keys, weighed := r.Job.Keys(), p.Weight != nil
	if f := r.Fields; f != nil {
		keys, weighed = f.Keys, weighed && f.Weight
		if !f.Labels && r.Format != "libfm" { // whose records have one anyway, which is a good one by the job's rules alone
			out.Labels = nil
		}
		for i := range out.Labels {
			out.Labels[i].Optional = true
		}
	}
	for _, column := range keys {
		out.Keys = append(out.Keys, parse.Key{Name: column, Column: column})
	}
	if weighed {
		out.Weight = parse.Weight{Column: p.Weight.Column}
	}
	for _, f := range p.Features {
		g := parse.Feature{
			Name: f.Name, Column: f.Column, Kind: parse.Kind(f.Kind), Hash: parse.Hash(f.Hash), Literal: !p.WholeIDs,
			Split: f.Split, Regexp: f.Regexp, Ignore: f.Ignore, Max: f.Max, Keep: parse.Keep(f.Keep), Values: valuesOf(p, &f, r.Format),
		}
		if f.Kind == "dense" {
			g.Dim, g.Clip, g.Log, g.Indicator = f.Dim, f.Clip, f.Log, f.Indicator()
			if s := f.Standardise; s != nil && s.Given != nil {
				g.Mean, g.Std = s.Given.Mean, s.Given.Std
			}
			g.KeepMissing = f.Standardise != nil && f.Standardise.Running != nil
		} else if f.Buckets != nil {
			g.Buckets, g.MissingBucket = f.Buckets, f.Missing == "indicator"
		}
		if f.Type != "auto" {
			g.Type = parse.Type(f.Type)
		} else if f.Buckets != nil {
			g.Type = parse.Float
		}
		if f.Slot != nil {
			g.Slot = *f.Slot
		}
		if f.Default != nil {
			g.Default = *f.Default
		}
		out.Features = append(out.Features, g)
	}
	for _, j := range p.Joins {
		out.Joins = append(out.Joins, parse.Join{
			File: j.File, Delimiter: j.Delimiter, Columns: j.Columns, Key: j.Key, KeyColumn: j.KeyColumn, Encoding: parse.Encoding(j.Encoding), Prefix: j.Prefix,
		})
	}
	return out
}

// Splits lists the splits of the source as it is. Errors name the section of the job that describes it.
func (r Reading) Splits(ctx context.Context) ([]pipeline.Split, error) {
	splits, err := r.splits(ctx)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s: %w", r.KeyOf(err), err)
	}
	return splits, err
}

// KeyOf is the key of the job that an error of the source belongs to.
func (r Reading) KeyOf(err error) string {
	key := r.Key + "." + r.Source.Name()
	if _, ok := errors.AsType[*filesplit.NoMatchError](err); ok {
		key += ".files"
	}
	return key
}

func (r Reading) splits(ctx context.Context) ([]pipeline.Split, error) {
	if r.Source.Columnar() {
		src, err := r.OpenColumns(r.ParseOptions())
		if err != nil {
			return nil, err
		}
		return src.Splits(ctx)
	}
	src, err := r.OpenBlocks()
	if err != nil {
		return nil, err
	}
	return src.Splits(ctx)
}

// RecipeOptions is a stored recipe in the words of the parse package, for records that have a column for each feature and no labels. Errors: those of [spec.ForFeatures].
func RecipeOptions(recipe []byte, set component.Set) (parse.Options, error) {
	c, err := spec.ForFeatures(recipe, set)
	if err != nil {
		return parse.Options{}, err
	}
	o := Reading{Job: c}.ParseOptions()
	o.Labels = nil
	return o, nil
}
