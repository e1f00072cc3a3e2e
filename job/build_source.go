package job

import (
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

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

// reading says how a source of a job is read: in training with the job's epochs and shuffle, in evaluation once and in
// order.
type reading struct {
	cfg     *Config
	source  *Source
	format  string
	columns []string // names of csv and tsv columns
	header  bool     // the first line of each file names them
	epochs  int      // 0: as it is
	shuffle Shuffle
	splits  *knownSplits // nil: nothing is known of earlier runs
	batch   batch.Options
}

// trainReading reads the training source up to the given epoch (of cfg.Epochs); a source without end has none. 0 epochs
// are the source as it is, without epochs and order.
func (c *Config) trainReading(epochs int) reading {
	return reading{
		cfg: c, source: &c.Source, format: c.Parse.Format, columns: c.Parse.Columns, header: c.Parse.Header, epochs: epochs, shuffle: c.Shuffle,
		batch: batch.Options{Rows: c.Train.Batch, MaxDelay: c.maxBatchDelay()},
	}
}

// maxBatchDelay is train.max_batch_delay, or what it is when the job does not say.
func (c *Config) maxBatchDelay() time.Duration {
	const streamDelay = 5 * time.Second
	switch d := c.Train.MaxBatchDelay; {
	case d != nil:
		return time.Duration(*d)
	case c.Deterministic || c.Source.Bounded():
		return 0
	}
	return streamDelay
}

// evalReading reads the evaluation source once.
func (c *Config) evalReading() reading {
	e := &c.Eval
	return reading{
		cfg: c, source: e.Source, format: e.Format, columns: e.Columns, header: e.Header != nil && *e.Header,
		batch: batch.Options{Rows: evalBatch},
	}
}

// evalBatch is the number of rows that are scored at once: large enough for full speed, small enough for any memory.
const evalBatch = 4096

// repeats tells that the source is read through an epoch source, whose positions count epochs. That is so for one epoch
// too, with the source's own positions: more epochs, or another order, then go on from them.
func (r reading) repeats() bool {
	return r.epochs > 0 && r.source.Bounded() && r.source.Kafka == nil
}

// name is that of the source's node, under which positions are stored.
func (r reading) name() string { return r.source.Name() }

// examples adds source, parse and batch to a graph.
func (r reading) examples(g *pipeline.Graph) (pipeline.Stream[*pipeline.Batch], error) {
	var none pipeline.Stream[*pipeline.Batch]
	opts := r.parseOptions()
	var parsed pipeline.Stream[*pipeline.Batch]
	if r.source.Parquet != nil {
		src, err := r.parquet(opts)
		if err != nil {
			return none, err
		}
		parsed = pipeline.Via(pipeline.Read(g, r.name(), src), "parse", parse.NewColumns(opts))
	} else {
		src, err := r.blocks()
		if err != nil {
			return none, err
		}
		opts.Format = parse.Format(r.format)
		parsed = pipeline.Via(pipeline.Read(g, r.name(), src), "parse", parse.New(opts))
	}
	b := r.batch
	b.Epochs = r.repeats()
	return pipeline.Via(parsed, "batch", batch.New(b)), nil
}

// repeat wraps a source into the job's epochs and shuffle where there are any.
func repeat[T pipeline.Element](r reading, src pipeline.Source[T]) (pipeline.Source[T], error) {
	if !r.repeats() {
		return src, nil
	}
	o := epochsource.Options{Epochs: r.epochs, ShuffleRows: r.shuffle.Rows, Seed: r.cfg.Seed, OneSplit: r.shuffle.OneSplit}
	if k := r.splits; k != nil {
		o.Orders, o.Starts, o.SplitName = k.orders, k.starts, k.one
	}
	return epochsource.New(src, o)
}

func (r reading) blocks() (pipeline.Source[*pipeline.Block], error) {
	var src pipeline.Source[*pipeline.Block]
	var err error
	switch s := r.source; {
	case s.Kafka != nil:
		src, err = s.Kafka.open()
	case s.TFRecord != nil:
		f := s.TFRecord
		src, err = tfrecordsource.New(tfrecordsource.Options{
			Files: f.Files, Known: r.splits.identities(), Compression: f.Compression, BlockRows: f.BlockRows, BlockBytes: int(f.BlockBytes), MaxRecordBytes: int64(f.MaxRecordBytes),
		})
	case s.Text != nil:
		f := s.Text
		src, err = textsource.New(textsource.Options{
			Files: f.Files, Known: r.splits.identities(), Compression: f.Compression, BlockRows: f.BlockRows, BlockBytes: int(f.BlockBytes), MaxLineBytes: int(f.MaxLineBytes),
			Header: r.header, Quoted: r.format == "csv",
		})
	case s.Synthetic != nil:
		src, err = s.Synthetic.open(r.cfg.Seed)
	default:
		return nil, fmt.Errorf("job: no source is chosen: %w", pipeline.ErrConfig)
	}
	if err != nil {
		return nil, err
	}
	return repeat(r, src)
}

func (r reading) parquet(opts parse.Options) (pipeline.Source[*pipeline.Batch], error) {
	src, err := parquetsource.New(parquetsource.Options{
		Files: r.source.Parquet.Files, Known: r.splits.identities(), BatchRows: r.source.Parquet.BlockRows,
		MaxPageBytes: int(r.source.Parquet.MaxPageBytes), Columns: columnsToRead(opts),
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

// open makes the Kafka source. Secrets are read here, which is the only I/O.
func (k *KafkaSource) open() (*kafkasource.Source, error) {
	opts := kafkasource.Options{
		Brokers: k.Brokers, Topic: k.Topic, Name: k.Name, DiscoverEvery: time.Duration(k.DiscoverEvery), Start: k.Start.bound(), End: k.End.bound(),
		Isolation: kafkasource.Isolation(k.Isolation), OnGap: kafkasource.GapPolicy(k.OnGap), GroupID: k.GroupID, ClientID: k.ClientID,
		MaxWait: time.Duration(k.MaxWait), MaxBytes: int(k.MaxBytes), MaxBatchBytes: int(k.MaxBatchBytes), MaxRows: k.MaxRows,
		RetryFor: max(time.Duration(k.RetryFor), time.Millisecond),
		TLS:      k.TLS.options(),
	}
	var err error
	if opts.SASL, err = k.SASL.options(); err != nil {
		return nil, err
	}
	return kafkasource.New(opts)
}

func (o KafkaOffsets) bound() kafkasource.Bound {
	b := kafkasource.Bound{Place: kafkasource.Place(o.At)}
	if o.Partitions != nil {
		b.Offsets = make(map[int]int64, len(o.Partitions))
		for p, at := range o.Partitions {
			b.Offsets[int(p)] = at
		}
	}
	return b
}

func (t *TLS) options() *kafkasource.TLS {
	if t == nil {
		return nil
	}
	return &kafkasource.TLS{CAFile: t.CA, CertFile: t.Cert, KeyFile: t.Key, ServerName: t.ServerName}
}

func (s *SASL) options() (*kafkasource.SASL, error) {
	if s == nil {
		return nil, nil
	}
	password, err := s.Password.Resolve()
	if err != nil {
		return nil, err
	}
	return &kafkasource.SASL{Mechanism: kafkasource.Mechanism(s.Mechanism), User: s.User, Password: password}, nil
}

func (s *SyntheticSource) open(jobSeed uint64) (*synthsource.Source, error) {
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

// parseOptions is the job's parse section in the words of the parse package.
func (r reading) parseOptions() parse.Options {
	p := &r.cfg.Parse
	out := parse.Options{
		Columns: r.columns, Fields: p.Fields,
		Label: parse.Label{Column: p.Label.Column, Positive: p.Label.Positive},
	}
	if p.Weight != nil {
		out.Weight = parse.Weight{Column: p.Weight.Column}
	}
	for _, f := range p.Features {
		g := parse.Feature{
			Name: f.Name, Column: f.Column, Kind: parse.Kind(f.Kind), Hash: parse.Hash(f.Hash),
			Split: f.Split, Regexp: f.Regexp, Max: f.Max, Values: p.valuesOf(&f, r.format),
		}
		if f.Kind == "dense" {
			g.Dim, g.Clip, g.Log, g.Indicator = f.Dim, f.Clip, f.Log, f.indicator()
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
