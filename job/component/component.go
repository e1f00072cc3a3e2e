// Package component says what a source, a stage, a model, an optimizer, a place for bad rows or a sink of an output is to a job: a section of the job file,
// which is a struct with tags, that builds what it describes. A program may add its own to the lists of a [Set]; package
// components has those of monolith. Nothing is registered anywhere else: the keys of a job file, its reference page, checks,
// inspect, init and the graphs all go by the lists.
package component

import (
	"context"
	"log/slog"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/blocks"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
)

// Set is what a job may name. The order of a list is that of the reference page and of messages.
type Set struct {
	Sources     []Source
	Stages      []Stage
	Models      []Model
	Optimizers  []Optimizer
	DeadLetters []DeadLetter
	Sinks       []Sink
	// Blocks are what a model can be composed of. nil: those of monolith.
	Blocks []blocks.Listed
	// Losses are what heads learn by, Metrics what they are measured by. nil: those of monolith.
	Losses  []loss.Loss
	Metrics []metric.Metric
}

// ModelNames lists the models that are made for any features, without those that may bring their own ([OwnRules]).
func (s Set) ModelNames() []string {
	var names []string
	for _, m := range s.Models {
		if _, own := m.New().(OwnRules); !own {
			names = append(names, m.Name)
		}
	}
	return names
}

// Kinds of values that a section may have beside Go's own.
type (
	// Duration is a time span written with its unit: 500ms, 5m, 1h30m. 0 needs none.
	Duration = conf.Duration
	// Size is a number of bytes: 4096, 64KiB, 4MiB, 1GiB, or with powers of ten 64KB, 4MB, 1GB.
	Size = conf.Size
	// Secret names where a secret is kept; it never holds one.
	Secret = conf.Secret
)

// Source is a place examples come from.
type Source struct {
	// Name is its key in a job, Doc a sentence for the reference page.
	Name, Doc string
	// New returns a pointer to a struct with tags (package conf has their list) and doc comments.
	New func() SourceConfig
	// Recognise, if not nil, tells from what a file begins with, or from its extension (".parquet", ".gz" cut off), that this
	// source reads it. sure is false where only the extension says so.
	Recognise func(head []byte, extension string) (ok, sure bool)
	// Lines reports whether it reads what no other source recognises: lines of text.
	Lines bool
	// FromTarget, if not nil, reads what `inspect` and `init` are given in place of files, such as kafka://host:port/topic,
	// and returns the keys of the section with their values. ok is false for a target of another kind.
	FromTarget func(target string) (keys [][2]string, ok bool, err error)
}

// SourceConfig is the section of a source. Beside these methods it has those of [Blocks] or of [Columns], and as they apply
// those of [Checker], [Files], [Stream], [Endless], [Sized], [Brief], [SelfDescribing] and [Written].
type SourceConfig interface {
	// Formats lists what its records can be, of the formats that package parse reads.
	Formats() []string
	// UsualFormat is the one that need not be named; empty: there is none.
	UsualFormat() string
	// Bounded reports whether it ends.
	Bounded() bool
}

// Opening is what a job gives a source beside its section.
type Opening struct {
	// Seed is the job's.
	Seed uint64
	// Format is what the records are, Header that the first line of each file names the columns.
	Format string
	Header bool
	// Known identifies splits that were read before by their content, by name, Seen those that had grown by what they held last.
	Known, Seen map[string]string
	// Follow are those of Known that a longer file is under any name; others it is under the same last name alone.
	Follow map[string]bool
	// Draw asks a source of columns for [pipeline.ColDraw], by which a holdout of rows goes.
	Draw bool
	// Log gets what takes its time before anything is read; nil: nothing is logged.
	Log *slog.Logger
}

// Blocks is a source of undecoded records. OpenBlocks reads secrets and does no other I/O.
type Blocks interface {
	SourceConfig
	OpenBlocks(o Opening) (pipeline.Source[*pipeline.Block], error)
}

// Columns is a source of columns.
type Columns interface {
	SourceConfig
	// OpenColumns reads the columns of a schema, converted to its types. With [Opening].Draw it adds [pipeline.ColDraw]; a source that does not has
	// a holdout of rows go by [pipeline.ColBegin] alone, so that rows of one place in all splits are on one side.
	OpenColumns(o Opening, columns *arrow.Schema) (pipeline.Source[*pipeline.Batch], error)
	// Describe returns the columns that there are, and the names of those that cannot be read.
	Describe(ctx context.Context) (columns *arrow.Schema, unreadable []string, err error)
}

// FileColumns is a source of columns in files that other programs write.
type FileColumns interface {
	Columns
	// OfFiles returns one of these files, or patterns of them, with all else at its default.
	OfFiles(files []string) Columns
}

// IDs is the type that a schema for [Columns] asks for where lists of numbers and of text will both do.
func IDs() arrow.DataType { return arrow.ListOf(arrow.Null) }

// Report reports what is wrong with a key of a section, "" for the section itself, in the words of fmt.Sprintf.
type Report func(key, format string, args ...any)

// Checker is a section whose keys have to do with each other.
type Checker interface{ Check(report Report) }

// Files is a source of files.
type Files interface{ FileList() []string }

// Local is a section that names files which every executor of a job uses, each on the machine that it runs on.
type Local interface{ LocalPaths() []LocalPath }

// LocalPath is a file or a folder.
type LocalPath struct {
	// Key is that of the section, and Path what is set there.
	Key, Path string
	// Written: executors write there; otherwise they read, and Path may be a pattern.
	Written bool
	// Folder: Path is a folder whose files are meant.
	Folder bool
	// Files are patterns of the files that are written; nil: Path alone.
	Files []string
}

// Topics is a section that reads or writes topics. A job does not write what it reads: it goes by this and by [Local].
type Topics interface{ Topics() []Topic }

// Topic is a topic of a cluster of brokers.
type Topic struct {
	// Key is that of the section that names it.
	Key string
	// Brokers are addresses to begin with.
	Brokers []string
	Topic   string
	Written bool
	// Cluster asks the brokers which cluster they are of, for a few seconds at most; empty: they do not say. nil: nobody can be asked.
	Cluster func(ctx context.Context) (string, error)
}

// OrderedFiles is a source of files that can be read in an order that is not their names'.
type OrderedFiles interface {
	Files
	// InOrder returns a copy whose splits are those of these files, one file after another.
	InOrder(files []string) SourceConfig
}

// Stream is a source that keeps track of its positions by itself ([pipeline.Rememberer]) and is read once: it has no epochs
// and no order of its own.
type Stream interface {
	// StreamName distinguishes it from other streams of its kind.
	StreamName() string
}

// Endless is a stream that can be read without the end that its section sets.
type Endless interface {
	Stream
	// WithoutEnd returns a copy that has none.
	WithoutEnd() SourceConfig
}

// Beginning is a source whose section says where splits without a stored position begin.
type Beginning interface {
	// Begins says where, such as "at earliest", and what of elsewhere does not count, as the end of a sentence; "": nothing.
	Begins() (where, not string)
}

// Dated is a stream whose records have times, so that its past can be read. Places are positions by the names of its splits, each that of
// the first record to read.
type Dated interface {
	Stream
	// From returns a copy that begins with the first records of a time or a later one, as they are when its splits are listed. The
	// zero time is before all records, also those without a time. What it
	// remembers of its splits makes the stream begin there, and records that have gone from there on a gap.
	From(at time.Time) SourceConfig
	// Between returns a source of the records of some splits between two places, which ends and can be read again: no stream. Errors:
	// [pipeline.ErrConfig] for places that are none of its splits.
	Between(from, to map[string]pipeline.Position) (SourceConfig, error)
}

// Sized is a source that knows how many examples it has; 0: it does not.
type Sized interface{ NumExamples() int64 }

// Positioned is a source whose settings decide which examples its positions are before.
type Positioned interface {
	// Positions says these settings, for the job's seed: `seed 7, 2 splits`. Positions of others are not continued from.
	Positions(seed uint64) string
}

// Delimited is a source whose records end where the job's settings of them say.
type Delimited interface {
	// Delimits says how, for the opening of a job: `lines behind a header`.
	Delimits(o Opening) string
	// Counts reports whether positions in a split number its records, so that they are others where records end elsewhere.
	Counts(split string) bool
}

// Brief is a source that can be read so that it takes little time.
type Brief interface {
	// Brief returns a copy that waits no longer than patience for an answer. rows above 0 is how many records are to be
	// looked at: blocks need be no larger, and the source begins where there is something and ends where it ends now.
	Brief(rows int, patience time.Duration) SourceConfig
}

// SelfDescribing is a source whose records need no parse section to be looked at.
type SelfDescribing interface{ SelfDescribing() }

// Written is a source that writes its own section for `init`: the lines of YAML from `source:` on.
type Written interface{ Written() []string }

// Model is what is trained.
type Model struct {
	Name, Doc string
	New       func() ModelConfig
}

// ModelConfig is the section of a model. It may have the methods of [InputChecker] and [OwnRules].
type ModelConfig interface {
	// Build makes the model. Errors: [pipeline.ErrConfig].
	Build(in ModelInputs) (model.Model, error)
}

// ModelInputs are what a job gives a model beside its section.
type ModelInputs struct {
	Features []zoo.Feature
	// Heads are what it predicts, at least one.
	Heads []model.Head
	// Unnamed reports whether the job has no heads of its own (parse.label). Heads then has one, the probability of the label,
	// with the usual name.
	Unnamed bool
	// Tables are the embedding tables that have something of their own.
	Tables []zoo.Table
	Seed   uint64
	// Bias, Sparse and Dense are the update rules of linear weights of ids, of embedding vectors and of layers.
	Bias, Sparse, Dense optim.Optimizer
}

// EmbeddingInit is exactly one distribution of initial values.
type EmbeddingInit struct {
	// Normal draws from the normal distribution with mean 0 and this standard deviation.
	Normal *float64 `yaml:"normal" min:"0"`
	// Uniform draws from minus this to this.
	Uniform *float64 `yaml:"uniform" min:"0"`
	// TruncatedNormal draws from the normal distribution with mean 0 and this standard deviation what lies within two of them.
	TruncatedNormal *float64 `yaml:"truncated_normal" min:"0"`
	// Glorot draws from minus to plus this times √(6/(1+dim)), dim being the table's.
	Glorot *float64 `yaml:"glorot" above:"0"`
	// Constant gives every number this value.
	Constant *float64 `yaml:"constant"`
}

// OneOf implements conf.Choice.
func (*EmbeddingInit) OneOf() {}

// Init is the chosen distribution; zeros where none is.
func (e *EmbeddingInit) Init() param.Init {
	switch {
	case e.Normal != nil:
		return param.Normal(0, float32(*e.Normal))
	case e.Uniform != nil:
		return param.Uniform(-float32(*e.Uniform), float32(*e.Uniform))
	case e.TruncatedNormal != nil:
		return param.TruncatedNormal(0, float32(*e.TruncatedNormal))
	case e.Glorot != nil:
		return param.Glorot(float32(*e.Glorot))
	case e.Constant != nil:
		return param.Constant(float32(*e.Constant))
	}
	return param.Zeros()
}

// WeightInit is exactly one distribution of the initial values of a layer's weights, which lead from n numbers to m.
type WeightInit struct {
	// GlorotUniform draws from minus to plus this times √(6/(n+m)), with 1 as layers do that say nothing.
	GlorotUniform *float64 `yaml:"glorot_uniform" above:"0"`
	// GlorotNormal draws from the normal distribution with mean 0, cut at two standard deviations, of the standard deviation this times √(2/(n+m)).
	GlorotNormal *float64 `yaml:"glorot_normal" above:"0"`
	// HeUniform draws from minus to plus this times √(6/n), for relu.
	HeUniform *float64 `yaml:"he_uniform" above:"0"`
	// HeNormal draws from the normal distribution with mean 0, cut at two standard deviations, of the standard deviation this times √(2/n).
	HeNormal *float64 `yaml:"he_normal" above:"0"`
	// Uniform draws from minus this to this.
	Uniform *float64 `yaml:"uniform" above:"0"`
	// Normal draws from the normal distribution with mean 0 and this standard deviation.
	Normal *float64 `yaml:"normal" above:"0"`
	// Constant gives every weight this value.
	Constant *float64 `yaml:"constant"`
}

// OneOf implements conf.Choice.
func (*WeightInit) OneOf() {}

// Init is the chosen distribution.
func (w *WeightInit) Init(fanIn, fanOut int) param.Init {
	times := func(gain float64, of param.Init) param.Init {
		of.A, of.B = float32(gain*float64(of.A)), float32(gain*float64(of.B))
		return of
	}
	switch {
	case w.GlorotNormal != nil:
		return times(*w.GlorotNormal, param.GlorotNormal(fanIn, fanOut))
	case w.HeUniform != nil:
		return times(*w.HeUniform, param.HeUniform(fanIn, fanOut))
	case w.HeNormal != nil:
		return times(*w.HeNormal, param.HeNormal(fanIn, fanOut))
	case w.Uniform != nil:
		return times(*w.Uniform, param.Uniform(-1, 1))
	case w.Normal != nil:
		return times(*w.Normal, param.Normal(0, 1))
	case w.Constant != nil:
		return param.Constant(float32(*w.Constant))
	case w.GlorotUniform != nil:
		return times(*w.GlorotUniform, param.GlorotUniform(fanIn, fanOut))
	}
	return param.GlorotUniform(fanIn, fanOut)
}

// BlockOptimizer is exactly one update rule. Short form: the name alone, as in `optimizer: sgd`.
type BlockOptimizer struct{ conf.Pick[OptimizerConfig] }

// Stage is a stage between parse and batch. The job says in which phases it runs (stages[].phases): training,
// evaluation, prediction; by default in all.
type Stage struct {
	Name, Doc string
	New       func() StageConfig
}

// StageConfig is the section of a stage. What the stage gets and gives are parsed rows: batches with the columns of the
// features and the labels and, for each row, the position after it (pipeline.ColPosition).
type StageConfig interface {
	Stage() (pipeline.Stage[*pipeline.Batch, *pipeline.Batch], error)
}

// BlockKind is exactly one kind of block of a model. Short form: the name alone, as in `kind: concat`.
type BlockKind struct{ conf.Pick[blocks.Kind] }

// Input is a feature as far as a check of a model needs to know it.
type Input struct {
	Name  string
	Dense bool
	// Width is that of a dense feature; Many: a sparse one may have several values in a row.
	Width int
	Many  bool
	// Table is that of a sparse feature, "" where it names none, and Dim what the table's vectors have; 0: what the model says. Attends is what a sequence has to do with, "": nothing.
	Table   string
	Dim     int
	Attends string
	// First is how many of a sparse feature's vectors stand side by side; 0: they are pooled.
	First int
}

// InputChecker is a model that cannot do with any features, or any heads. It is asked where nothing is wrong with its section, the features, tables and heads so far.
type InputChecker interface {
	// CheckInputs gets the features in their order, and the heads; none: the only one has no name and predicts one number.
	CheckInputs(in []Input, heads []Head, report Report)
}

// Head is an output of a job as a model sees it before data is read.
type Head struct {
	Name string
	// Loss is the name of its loss.
	Loss string
	// Width is how many numbers it predicts of an example: its classes, where it has some, otherwise 1.
	Width int
}

// OwnRules is a model that may bring its tables with their dimensions and all update rules: a job that sets some is at fault.
type OwnRules interface {
	// OwnRules reports whether it does.
	OwnRules() bool
}

// Optimizer is an update rule.
type Optimizer struct {
	Name, Doc string
	New       func() OptimizerConfig
}

// OptimizerConfig is the section of an update rule.
type OptimizerConfig interface {
	// Rule returns the rule with its settings; nil leaves the choice to the model.
	Rule() optim.Optimizer
}

// DeadLetter is a place for bad records.
type DeadLetter struct {
	Name, Doc string
	New       func() DeadLetterConfig
}

// DeadLetterConfig is the section of a place for bad records. It may have the method of [Checker], and has those of [Local] or
// [Topics] as they apply.
type DeadLetterConfig interface {
	// Open opens the place for a worker. The caller closes it.
	Open(worker string) (LetterBox, error)
	// CanOpen looks whether that will work, without leaving anything behind; key is the one that is at fault.
	CanOpen(worker string) (key string, err error)
	// Shared reports whether several workers may have the place open at once.
	Shared() (ok bool, key, hint string)
}

// Sink is a place for the rows of an output.
type Sink struct {
	Name, Doc string
	New       func() SinkConfig
}

// SinkConfig is the section of a sink. It may have the methods of [Checker], and has those of [Local] or [Topics] as they apply.
type SinkConfig interface {
	// Sink describes the sink, without I/O but for secrets.
	Sink(w Writing) (OutputSink, error)
	// CanOpen looks whether that will work, without leaving anything behind; key is the one that is at fault.
	CanOpen() (key string, err error)
	// Place is what no other output may name, with its key; empty where several may share it.
	Place() (key, place string)
}

// FolderSink is a sink of files that other programs read with columns and bits as they are.
type FolderSink interface {
	SinkConfig
	// InFolder returns one that writes to a folder, files of about so many rows at most, 0: as usual, with all else at its default.
	InFolder(dir string, rowsPerFile int64) SinkConfig
}

// Writing is what a job tells a sink beside its section.
type Writing struct {
	// Output tells what is written from what others write to the same place.
	Output string
	// Part keeps what is written apart from other parts of the same output, each with positions of its own: an evaluation is a
	// part for each state that it evaluates. It could be the name of a folder. Empty: the output has no parts.
	Part string
	// Keys is what errors put before the names of the section's keys.
	Keys string
}

// OutputSink is a [pipeline.Sink] of batches whose writers store positions with the rows. [AsSink] makes one for a graph.
type OutputSink interface {
	// Open makes a writer; there is one for every worker.
	Open(ctx context.Context, env *pipeline.Env) (OutputWriter, error)
	// String and Fingerprint are those of [pipeline.Sink].
	String() string
	Fingerprint() string
}

// OpensWriter is a sink that opens writers of a type of its own.
type OpensWriter[W OutputWriter] interface {
	OpenWriter(ctx context.Context, env *pipeline.Env) (W, error)
	String() string
	Fingerprint() string
}

// EmptyWriter is an [OutputSink] with a form for the columns of an input without rows, such as a file of no rows.
type EmptyWriter interface {
	WriteEmpty(ctx context.Context, columns *arrow.Schema) error
}

// writeEmpty asks a sink that is an [EmptyWriter]; others write nothing.
func writeEmpty(ctx context.Context, sink any, columns *arrow.Schema) error {
	if s, ok := sink.(EmptyWriter); ok {
		return s.WriteEmpty(ctx, columns)
	}
	return nil
}

// OutputOf makes an [OutputSink] of a sink that has the method OpenWriter, such as those of package filesink.
func OutputOf[W OutputWriter](s OpensWriter[W]) OutputSink { return opens[W]{s} }

type opens[W OutputWriter] struct{ OpensWriter[W] }

// WriteEmpty implements [EmptyWriter].
func (s opens[W]) WriteEmpty(ctx context.Context, columns *arrow.Schema) error {
	return writeEmpty(ctx, s.OpensWriter, columns)
}

// Open implements [OutputSink].
func (s opens[W]) Open(ctx context.Context, env *pipeline.Env) (OutputWriter, error) {
	w, err := s.OpenWriter(ctx, env)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// AsSink makes a [pipeline.Sink] of an output's sink.
func AsSink(s OutputSink) pipeline.Sink[*pipeline.Batch] { return plain{s} }

type plain struct{ OutputSink }

// WriteEmpty implements [EmptyWriter].
func (s plain) WriteEmpty(ctx context.Context, columns *arrow.Schema) error {
	return writeEmpty(ctx, s.OutputSink, columns)
}

// Open implements [pipeline.Sink].
func (s plain) Open(ctx context.Context, env *pipeline.Env) (pipeline.Writer[*pipeline.Batch], error) {
	w, err := s.OutputSink.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// OutputWriter is what a sink of an output opens: it stores positions with the rows.
type OutputWriter interface {
	pipeline.Writer[*pipeline.Batch]
	pipeline.Resumer
	pipeline.Storer
	pipeline.Idler
	// Totals returns what was stored since the writer was opened: how many files or transactions became visible, and their rows
	// and bytes. It is asked after each call of another method.
	Totals() (stores, rows, bytes int64)
}

// LetterBox is a policy that keeps bad rows somewhere. It may have a method Flush() error, which makes them durable.
type LetterBox interface {
	pipeline.BadRowPolicy
	Close() error
}
