package wiring

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/epochsource"
	"github.com/monolith-go/monolith/sources/kafkasource"
	"github.com/monolith-go/monolith/sources/parquetsource"
	"github.com/monolith-go/monolith/sources/synthsource"
	"github.com/monolith-go/monolith/sources/textsource"
	"github.com/monolith-go/monolith/sources/tfrecordsource"
	"github.com/monolith-go/monolith/transforms/batch"
	"github.com/monolith-go/monolith/transforms/parse"
)

// Reading says how a source of a job is read: in training with the job's epochs and shuffle, in evaluation once and in
// order.
type Reading struct {
	Job     *spec.Config
	Source  *spec.Source
	Format  string
	Columns []string // names of csv and tsv columns
	Header  bool     // the first line of each file names them
	Epochs  int      // 0: as it is
	Shuffle spec.Shuffle
	Known   Known
	Batch   batch.Options
}

// Known is what earlier runs found out about a source. The zero value knows nothing.
type Known struct {
	// Identities tell splits by what they hold, by name.
	Identities map[string]string
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
		Job: c, Source: &c.Source, Format: c.Parse.Format, Columns: c.Parse.Columns, Header: c.Parse.Header, Epochs: epochs, Shuffle: c.Shuffle,
		Batch: batch.Options{Rows: c.Train.Batch, MaxDelay: maxBatchDelay(c)},
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

// EvalReading reads the evaluation source once.
func EvalReading(c *spec.Config) Reading {
	e := &c.Eval
	return Reading{
		Job: c, Source: e.Source, Format: e.Format, Columns: e.Columns, Header: e.Header != nil && *e.Header,
		Batch: batch.Options{Rows: evalBatch},
	}
}

// evalBatch is the number of rows that are scored at once: large enough for full speed, small enough for any memory.
const evalBatch = 4096

// repeats tells that the source is read through an epoch source, whose positions count epochs. That is so for one epoch
// too, with the source's own positions: more epochs, or another order, then go on from them.
func (r Reading) repeats() bool {
	return r.Epochs > 0 && r.Source.Bounded() && r.Source.Kafka == nil
}

// Name is that of the source's node, under which positions are stored.
func (r Reading) Name() string { return r.Source.Name() }

// examples adds source, parse and batch to a graph.
func (r Reading) examples(g *pipeline.Graph) (pipeline.Stream[*pipeline.Batch], error) {
	var none pipeline.Stream[*pipeline.Batch]
	opts := r.ParseOptions()
	var parsed pipeline.Stream[*pipeline.Batch]
	if r.Source.Parquet != nil {
		src, err := r.Parquet(opts)
		if err != nil {
			return none, err
		}
		parsed = pipeline.Via(pipeline.Read(g, r.Name(), src), "parse", parse.NewColumns(opts))
	} else {
		src, err := r.Blocks()
		if err != nil {
			return none, err
		}
		opts.Format = parse.Format(r.Format)
		parsed = pipeline.Via(pipeline.Read(g, r.Name(), src), "parse", parse.New(opts))
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
	o.Orders, o.Starts, o.SplitName = r.Known.Orders, r.Known.Starts, r.Known.OneSplit
	return epochsource.New(src, o)
}

// Blocks opens a source of undecoded records. Secrets are read here, which is the only I/O.
func (r Reading) Blocks() (pipeline.Source[*pipeline.Block], error) {
	var src pipeline.Source[*pipeline.Block]
	var err error
	switch s := r.Source; {
	case s.Kafka != nil:
		src, err = openKafka(s.Kafka)
	case s.TFRecord != nil:
		f := s.TFRecord
		src, err = tfrecordsource.New(tfrecordsource.Options{
			Files: f.Files, Known: r.Known.Identities, Compression: f.Compression, BlockRows: f.BlockRows, BlockBytes: int(f.BlockBytes), MaxRecordBytes: int64(f.MaxRecordBytes),
		})
	case s.Text != nil:
		f := s.Text
		src, err = textsource.New(textsource.Options{
			Files: f.Files, Known: r.Known.Identities, Compression: f.Compression, BlockRows: f.BlockRows, BlockBytes: int(f.BlockBytes), MaxLineBytes: int(f.MaxLineBytes),
			Header: r.Header, Quoted: r.Format == "csv",
		})
	case s.Synthetic != nil:
		src, err = openSynthetic(s.Synthetic, r.Job.Seed)
	default:
		return nil, fmt.Errorf("job: no source is chosen: %w", pipeline.ErrConfig)
	}
	if err != nil {
		return nil, err
	}
	return repeat(r, src)
}

// Parquet opens a source of columns.
func (r Reading) Parquet(opts parse.Options) (pipeline.Source[*pipeline.Batch], error) {
	src, err := parquetsource.New(parquetsource.Options{
		Files: r.Source.Parquet.Files, Known: r.Known.Identities, BatchRows: r.Source.Parquet.BlockRows,
		MaxPageBytes: int(r.Source.Parquet.MaxPageBytes), Columns: columnsToRead(opts),
	})
	if err != nil {
		return nil, err
	}
	return repeat[*pipeline.Batch](r, src)
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
			add(f.Column, parquetsource.IDs())
		}
	}
	for _, j := range opts.Joins {
		add(j.Key, parquetsource.IDs())
	}
	add(opts.Label.Column, arrow.PrimitiveTypes.Float32)
	add(opts.Weight.Column, arrow.PrimitiveTypes.Float32)
	return arrow.NewSchema(fields, nil)
}

// openKafka makes the Kafka source. Secrets are read here, which is the only I/O.
func openKafka(k *spec.KafkaSource) (*kafkasource.Source, error) {
	opts := kafkasource.Options{
		Brokers: k.Brokers, Topic: k.Topic, Name: k.Name, DiscoverEvery: time.Duration(k.DiscoverEvery), Start: bound(k.Start), End: bound(k.End),
		Isolation: kafkasource.Isolation(k.Isolation), OnGap: kafkasource.GapPolicy(k.OnGap), GroupID: k.GroupID, ClientID: k.ClientID,
		MaxWait: time.Duration(k.MaxWait), MaxBytes: int(k.MaxBytes), MaxBatchBytes: int(k.MaxBatchBytes), MaxRows: k.MaxRows,
		RetryFor: max(time.Duration(k.RetryFor), time.Millisecond),
		TLS:      tlsOptions(k.TLS),
	}
	var err error
	if opts.SASL, err = SASLOptions(k.SASL); err != nil {
		return nil, err
	}
	return kafkasource.New(opts)
}

func bound(o spec.KafkaOffsets) kafkasource.Bound {
	b := kafkasource.Bound{Place: kafkasource.Place(o.At)}
	if o.Partitions != nil {
		b.Offsets = make(map[int]int64, len(o.Partitions))
		for p, at := range o.Partitions {
			b.Offsets[int(p)] = at
		}
	}
	return b
}

func tlsOptions(t *spec.TLS) *kafkasource.TLS {
	if t == nil {
		return nil
	}
	return &kafkasource.TLS{CAFile: t.CA, CertFile: t.Cert, KeyFile: t.Key, ServerName: t.ServerName}
}

// SASLOptions reads the password. Errors: [pipeline.ErrConfig].
func SASLOptions(s *spec.SASL) (*kafkasource.SASL, error) {
	if s == nil {
		return nil, nil
	}
	password, err := s.Password.Resolve()
	if err != nil {
		return nil, fault.Config("job: %w", err)
	}
	return &kafkasource.SASL{Mechanism: kafkasource.Mechanism(s.Mechanism), User: s.User, Password: password}, nil
}

func openSynthetic(s *spec.SyntheticSource, jobSeed uint64) (*synthsource.Source, error) {
	opts := synthsource.Options{
		Seed: s.Seed, Examples: s.Examples, Splits: s.Splits, Rate: s.Rate, BlockRows: s.BlockRows,
	}
	if opts.Seed == 0 {
		opts.Seed = jobSeed
	}
	if s.Examples == 0 {
		opts.Examples = synthsource.Unbounded
	}
	return synthsource.New(opts)
}

// ParseOptions is the job's parse section in the words of the parse package.
func (r Reading) ParseOptions() parse.Options {
	p := &r.Job.Parse
	out := parse.Options{
		Columns: r.Columns, Fields: p.Fields,
		Label: parse.Label{Column: p.Label.Column, Positive: p.Label.Positive},
	}
	if p.Weight != nil {
		out.Weight = parse.Weight{Column: p.Weight.Column}
	}
	for _, f := range p.Features {
		g := parse.Feature{
			Name: f.Name, Column: f.Column, Kind: parse.Kind(f.Kind), Hash: parse.Hash(f.Hash),
			Split: f.Split, Regexp: f.Regexp, Max: f.Max, Values: valuesOf(p, &f, r.Format),
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

// Splits lists the splits of the source as it is.
func (r Reading) Splits(ctx context.Context) ([]pipeline.Split, error) {
	if r.Source.Parquet != nil {
		src, err := r.Parquet(r.ParseOptions())
		if err != nil {
			return nil, err
		}
		return src.Splits(ctx)
	}
	src, err := r.Blocks()
	if err != nil {
		return nil, err
	}
	return src.Splits(ctx)
}
