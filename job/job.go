// Package job is what a `monolith` job is made of: the job file ([Config], read with [Load]), what a run reports
// ([Status], [TrainResult] and its like), and the functions that check, train, evaluate, serve and look at what a job
// describes. It is the one package that a program needs; the work is done by those below it: spec (what a job may hold),
// wiring (what it builds), run, inspect, result and stored (what lies in its dir).
package job

import (
	"context"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/inspect"
	"github.com/monolith-go/monolith/job/migrate"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/run"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/tune"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/serving"
)

// A job and its parts.
type (
	// Config is one job. Its zero value is not useful; [Load] and [Default] fill the defaults in.
	Config = spec.Config
	// LoadOptions are the layers above the job file.
	LoadOptions = spec.LoadOptions
	// ConfigError lists everything that is wrong with a job. It wraps pipeline.ErrConfig. Fix the job.
	ConfigError = spec.ConfigError
	// Fault is one thing that is wrong with a job.
	Fault = spec.Fault
	// Where is the place a value of a job was set at.
	Where = spec.Where
	// Layer is where a value of a job comes from. Higher layers win.
	Layer = conf.Layer
	// Key is one key of a job file, for reference pages and completion.
	Key = spec.Key
	// Setting is one value of a job and where it came from.
	Setting = spec.Setting
	// Finding is something [Check] has to say about a job.
	Finding = spec.Finding
	// Source is exactly one place examples come from.
	Source = spec.Source
	// Head is one thing that a model predicts.
	Head = spec.Head
	// Mask describes which rows have the label of a head.
	Mask = spec.Mask
	// Model is what is trained: one of the models of the list.
	Model = spec.Model
	// Components are what jobs may name: sources, models, optimizers, places for bad rows.
	Components = component.Set
	// Metrics is the HTTP endpoint for Prometheus and health checks.
	Metrics = spec.Metrics
	// Log is the log on standard error.
	Log = spec.Log
	// Duration is a time span written with its unit.
	Duration = spec.Duration
	// Size is a number of bytes.
	Size = spec.Size
	// Secret names where a secret is kept; it never holds one.
	Secret = spec.Secret
)

// The layers of a job, lowest first.
const (
	FromDefault = conf.FromDefault
	FromFile    = conf.FromFile
	FromEnv     = conf.FromEnv
	FromFlag    = conf.FromFlag
)

// What runs take and report.
type (
	// RunOptions are what a run gets from its caller. The zero value works.
	RunOptions = run.Options
	// Status is a glance at a run.
	Status = result.Status
	// Scores holds metrics by name, those of heads as HEAD.METRIC.
	Scores = result.Scores
	// HeadScore is one metric of a head in a [Status].
	HeadScore = result.HeadScore
	// OutputState is how an output does, in a [Status].
	OutputState = result.OutputState
	// SliceScores are the metrics of one head over the examples with one value of a column, or of two.
	SliceScores = result.SliceScores
	// Measured is the metrics of some examples, with what is known about them.
	Measured = result.Measured
	// GroupCount is how many groups and examples a metric of groups is computed of.
	GroupCount = result.GroupCount
	// Interval is where a figure lies with 95 in a hundred.
	Interval = result.Interval
	// Difference is how far one figure lies above another.
	Difference = result.Difference
	// Curves are what is drawn of one head.
	Curves = result.Curves
	// CalibrationBin is a bin of a [Curves].
	CalibrationBin = result.CalibrationBin
	// Compared is the model that an evaluation compares with.
	Compared = result.Compared
	// TuneOptions say how to search for settings.
	TuneOptions = tune.Options
	// Tuned is what a search for settings found.
	Tuned = result.Tuned
	// TunedCandidate is one set of settings of a [Tuned].
	TunedCandidate = result.TunedCandidate
	// TunedChange is a key of a [TunedCandidate] and its value.
	TunedChange = result.TunedChange
	// ExportModelOptions say which model is written where, and as what.
	ExportModelOptions = run.ExportModelOptions
	// ExportedModel is a model, or the rows of one, in files of another format.
	ExportedModel = result.ExportedModel
	// FetchExportOptions say which export of a store is brought to this machine.
	FetchExportOptions = run.FetchExportOptions
	// FetchedExport is an export of a store that is on this machine.
	FetchedExport = run.FetchedExport
	// ExportCache is a folder of this machine with copies of exports that lie in stores.
	ExportCache = run.ExportCache
	// VerifiedExport is what was found in a native export.
	VerifiedExport = result.VerifiedExport
	// TableRows is what was written of one table.
	TableRows = result.TableRows
	// FetchOptions say which snapshot is brought back from where.
	FetchOptions = stored.FetchOptions
	// ImportOptions say what of a checkpoint of bytedance/monolith is taken over.
	ImportOptions = migrate.ImportOptions
	// ExportOptions say what is given back.
	ExportOptions = migrate.ExportOptions
	// Mapping says which of a checkpoint's tables, slots and variables become which of a job's.
	Mapping = migrate.Mapping
	// TableMapping says where a table goes.
	TableMapping = migrate.TableMapping
	// SlotMapping gives ids of a slot another one.
	SlotMapping = migrate.SlotMapping
	// DenseMapping names a dense variable.
	DenseMapping = migrate.DenseMapping
	// Imported is what was taken over.
	Imported = result.Imported
	// ImportedTable is a table that was taken over.
	ImportedTable = result.ImportedTable
	// ImportedFilter is an admission filter, which is not taken over.
	ImportedFilter = result.ImportedFilter
	// Exported is what was given back.
	Exported = result.Exported
	// ExportedTable is a table that was given back.
	ExportedTable = result.ExportedTable
	// Counted is a number of rows and what became of them.
	Counted = result.Counted
	// Range is a time range of the history of a stream.
	Range = run.Range
	// Backfill is a part of the history of a stream that was trained on.
	Backfill = result.Backfill
	// TrainResult is what a training run did.
	TrainResult = result.TrainResult
	// LostRange is a range of positions of a split whose records were gone before they were read.
	LostRange = result.LostRange
	// FillInfo describes how many examples had a value of a feature.
	FillInfo = result.FillInfo
	// EvalOptions say what to evaluate, beside the job.
	EvalOptions = run.EvalOptions
	// CompareWith says which model to compare with.
	CompareWith = run.CompareWith
	// PredictOptions say what to predict with, beside the job.
	PredictOptions = run.PredictOptions
	// Predicted is what was predicted.
	Predicted = result.Predicted
	// EvalResult is what an evaluation found.
	EvalResult = result.EvalResult
	// InsightOptions say what [Insight] looks at, beside the job.
	InsightOptions = run.InsightOptions
	// InsightResult is what features and layers do.
	InsightResult = result.Insight
	// FeatureInsight is what a feature does.
	FeatureInsight = result.FeatureInsight
	// LayerInsight is what a dense tensor does.
	LayerInsight = result.LayerInsight
	// ServeOptions are what serving shards takes beside the job.
	ServeOptions = run.ServeOptions
	// ServeResult describes what serving came to.
	ServeResult = result.ServeResult
	// ServeModelsOptions say what is served where, and how requests are answered.
	ServeModelsOptions = run.ServeModelsOptions
	// Pushes say whether rows are pushed to the exports that are served.
	Pushes = run.Pushes
	// RowShards are the servers that have the rows of exports which are served elsewhere.
	RowShards = run.RowShards
	// ServedJob is a job whose model is served while it is trained.
	ServedJob = run.ServedJob
	// Asking says how running shards are asked.
	Asking = run.Asking
	// ScaleOptions say which shards a running job is to have.
	ScaleOptions = run.ScaleOptions
	// ScaleProgress is how far a change of the number of shards is.
	ScaleProgress = run.ScaleProgress
	// Scaled describes a change of the number of shards.
	Scaled = result.Scaled
	// PromoteOptions say whose standby is to take over.
	PromoteOptions = run.PromoteOptions
	// Promoted describes a take-over on command.
	Promoted = result.Promoted
	// Runner runs the one segment of a plan somewhere else than in this process.
	Runner = run.Runner
	// Submission is what a [Runner] is to run.
	Submission = run.Submission
	// Recipes builds training graphs again from their recipes.
	Recipes = run.Recipes
	// Rebuilt is a graph that was built from its recipe.
	Rebuilt = run.Rebuilt
	// Plan is a checked graph that can be shown.
	Plan = result.Plan
)

// What looking at sources and snapshots takes and reports.
type (
	// NeedOptions say by what the memory of a job's tables is reckoned.
	NeedOptions = inspect.NeedOptions
	// MemoryNeed is what the tables of a job will take.
	MemoryNeed = result.MemoryNeed
	// TableNeed is what one table will take.
	TableNeed = result.TableNeed
	// InspectOptions say what to show of a source.
	InspectOptions = inspect.Options
	// NearestOptions say which rows are compared.
	NearestOptions = inspect.NearestOptions
	// SlotOptions say how the slots of a snapshot are looked at.
	SlotOptions = inspect.SlotOptions
	// ProposeOptions say what to look at for a job.
	ProposeOptions = inspect.ProposeOptions
	// Proposed is a job that was made of a sample of its source.
	Proposed = result.Proposed
	// SourceInfo is what a source looks like.
	SourceInfo = result.SourceInfo
	// SplitInfo is one split of a source.
	SplitInfo = result.SplitInfo
	// ColumnInfo is one column of a source, as it is stored.
	ColumnInfo = result.ColumnInfo
	// NumbersInfo summarises numbers.
	NumbersInfo = result.NumbersInfo
	// FeatureInfo is one input of the model, or the label or weight, as it is made of the records.
	FeatureInfo = result.FeatureInfo
	// RowInfo is one record.
	RowInfo = result.RowInfo
	// ModelInfo describes a model.
	ModelInfo = result.ModelInfo
	// ModelEntry is a model that a job can name.
	ModelEntry = result.ModelEntry
	// NearestRows are the rows of a table that are nearest to one of them.
	NearestRows = result.NearestRows
	// SnapshotInfo is what a snapshot holds.
	SnapshotInfo = result.SnapshotInfo
	// SnapshotSlots is what a snapshot has of each slot.
	SnapshotSlots = result.SnapshotSlots
	// SlotInfo is what a table has of one slot.
	SlotInfo = result.SlotInfo
	// SlotAges is how old the rows of a slot are.
	SlotAges = result.SlotAges
	// LookUpOptions say which rows of a running job are looked up.
	LookUpOptions = run.LookUpOptions
	// ValueOptions name values of a feature, whose ids are wanted.
	ValueOptions = run.ValueOptions
	// LookedUp are the rows of some ids.
	LookedUp = result.LookedUp
	// Entry is an embedding row with all that belongs to it.
	Entry = result.Entry
	// EntrySegment is what a row has of a segment.
	EntrySegment = result.EntrySegment
	// EditOptions say which rows of a running job are edited, and how.
	EditOptions = run.EditOptions
	// Edited is what became of a request to edit rows.
	Edited = result.Edited
	// RunningSlots is what running shards have of each slot.
	RunningSlots = result.RunningSlots
	// RunningShard is what one of them holds.
	RunningShard = result.RunningShard
	// PushOptions say to whom the rows of a running job are pushed.
	PushOptions = run.PushOptions
	// Pushed is what was pushed.
	Pushed = result.Pushed
	// ChangesOptions say which changes of rows are given to whom.
	ChangesOptions = run.ChangesOptions
	// Change is a row that was changed, or has gone.
	Change = result.Change
	// SnapshotHead is an output of the model of a snapshot.
	SnapshotHead = result.SnapshotHead
	// SnapshotFeature is an input of it.
	SnapshotFeature = result.SnapshotFeature
	// SnapshotList is what snapshots a job's dir or a folder has.
	SnapshotList = result.SnapshotList
	// SnapshotEntry is one of them.
	SnapshotEntry = result.SnapshotEntry
	// SnapshotCheck is what was found in one snapshot.
	SnapshotCheck = result.SnapshotCheck
	// SnapshotDiff is what two snapshots have that is not the same.
	SnapshotDiff = result.SnapshotDiff
	// TableDiff counts its rows.
	TableDiff = result.TableDiff
	// TensorDiff is one of its dense tensors.
	TensorDiff = result.TensorDiff
	// PositionDiff is one of its splits.
	PositionDiff = result.PositionDiff
	// Retention says which snapshots stay.
	Retention = snapshot.Retention
	// SnapshotsPruned is what retention keeps and what it does not.
	SnapshotsPruned = result.SnapshotsPruned
	// SnapshotTaken is a snapshot that was asked for.
	SnapshotTaken = result.SnapshotTaken
	// TakeOptions say how it was asked for.
	TakeOptions = run.TakeOptions
	// SegmentInfo is a part of the rows of a table.
	SegmentInfo = result.SegmentInfo
	// TableInfo is one table of a snapshot.
	TableInfo = result.TableInfo
	// TensorInfo is one dense tensor of a snapshot.
	TensorInfo = result.TensorInfo
)

const (
	// EvalExamples are those of eval.source, for [PredictOptions].
	EvalExamples = run.EvalExamples
	// Newest names the newest snapshot for [EvalOptions].
	Newest = stored.Newest
	// Best names the snapshot of the best evaluation.
	Best = stored.Best
	// RecipeName is the name under which programs register [Recipes.Build] with a runner.
	RecipeName = run.RecipeName
	// InspectTimeout is how long reading a sample of a source takes at most.
	InspectTimeout = inspect.Timeout
)

// ErrBadRows means that a run read its source and found nothing, or too little, that can be used: the format, the label or
// another part of the job's parse section does not fit the data.
var ErrBadRows = run.ErrBadRows

// ErrStopped means that a [Runner] whose executors are in other processes has ended the run before they had: training is drained.
var ErrStopped = run.ErrStopped

// SourceOf is a source made in Go: a name of the list of sources, and its section.
func SourceOf(name string, section component.SourceConfig) Source {
	return spec.SourceOf(name, section)
}

// ModelOf is a model made in Go: a name of the list of models, and its section.
func ModelOf(name string, section component.ModelConfig) Model { return spec.ModelOf(name, section) }

// Load reads a job file, puts the other layers over it and checks the whole. Errors: a [*ConfigError] with every fault
// when the job is wrong or the file is not there; an error that wraps pipeline.ErrUnavailable when the disk fails.
func Load(path string, opts LoadOptions) (*Config, error) { return spec.Load(path, usual(opts)) }

// usual has a job name the components of monolith where no others are given.
func usual(opts LoadOptions) LoadOptions {
	opts.Components = components.Or(opts.Components)
	return opts
}

// Decode is [Load] for a job that is already in memory; name stands for the file in messages.
func Decode(data []byte, name string, opts LoadOptions) (*Config, error) {
	return spec.Decode(data, name, usual(opts))
}

// Default is a job with every default and nothing else, for programs that fill in the rest.
func Default() *Config { return spec.Default(components.All()) }

// ForTarget makes a job that only has a source, for looking into data without a job file: a file or pattern, whose content
// tells what it is, kafka://host:port[,host:port]/topic, or synthetic. Errors: as with [Load], [pipeline.ErrConfig] when there
// is no such source, [pipeline.ErrUnavailable] when a file cannot be read.
func ForTarget(target string, opts LoadOptions) (*Config, error) {
	return spec.ForTarget(target, usual(opts))
}

// SetTarget returns what [LoadOptions].Set needs to make predict.source of a job one of a target as of [ForTarget]. The job
// says by parse.header and parse.columns what csv and tsv files are like; nil: their first lines are judged. Errors: as of
// [ForTarget].
func SetTarget(target string, cfg *Config) ([]string, error) {
	return spec.SetTarget(target, cfg, components.All())
}

// Alone makes the job by which [Predict] predicts a target as of [ForTarget] with the snapshot or the native export at a path and without a job file; its options then
// name the path too. Errors: [pipeline.ErrConfig]; those of [ForTarget].
func Alone(ctx context.Context, path, target string, opts LoadOptions) (*Config, error) {
	return run.Alone(ctx, path, target, usual(opts))
}

// PredictionSinks are the sinks of monolith that write files to a folder, by name: [Predict] writes to them, and to Kafka.
func PredictionSinks() (names []string) {
	for _, s := range components.All().Sinks {
		if key, _ := s.New().Place(); key != "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// Keys lists every key of a job file in the order of the file.
func Keys() []Key { return spec.Keys(components.All()) }

// BuildModel makes a job's model. Its Marshal writes the graph that model: {graph: FILE} reads. Errors: [pipeline.ErrConfig];
// [pipeline.ErrUnavailable] where a file of the model cannot be read.
func BuildModel(cfg *Config) (model.Model, error) { return wiring.Model(cfg) }

// BuildPlan makes and checks the training graph of a job without any I/O but reading secrets and what the model is made of.
func BuildPlan(cfg *Config) (*pipeline.Plan, error) { return wiring.BuildPlan(cfg) }

// Planned is the submission to a runner that training a job begins with, as far as it is known without its shards: it can be translated
// and looked at, not run. Errors: as with [BuildPlan].
func Planned(cfg *Config) (Submission, error) { return run.Planned(cfg) }

// Check looks for everything that would keep a job from running, without reading data and without changing anything.
// Findings are what is wrong with the job; an error says that the check itself failed.
func Check(ctx context.Context, cfg *Config) ([]Finding, error) { return inspect.Check(ctx, cfg) }

// Need reckons what the tables of a job will take before it runs. It reads data only for a sample. Errors: [pipeline.ErrConfig] for a name that is
// no sparse feature's, those of reading.
func Need(ctx context.Context, cfg *Config, opts NeedOptions) (*MemoryNeed, error) {
	return inspect.Need(ctx, cfg, opts)
}

// Run trains a job: it continues from the newest good snapshot in the job's dir where there is one, trains to the end of
// the source (or of the epochs, or of train.max_examples, or until it is drained), and stores a last snapshot. With
// [RunOptions].Backfill it trains on a part of the history of the job's stream, to its end, and a later run without it continues with the
// stream where that ends.
//
// Errors: [*ConfigError] and [pipeline.ErrConfig] for what the user can fix in the job, [pipeline.ErrUnavailable] for
// what cannot be reached or stored, and what the parts of the graph return.
func Run(ctx context.Context, cfg *Config, opts RunOptions) (*TrainResult, error) {
	return run.Train(ctx, cfg, opts)
}

// Tune searches for better settings of a job by successive halving: candidates train on the first rows of
// the source, and the best third advances to three times as many. It trains in dirs of its own, which it
// removes, and writes to no other place. The same call continues a search that was ended. Errors:
// [pipeline.ErrConfig] also for a state of another search, [pipeline.ErrUnavailable], those of the job as it is.
func Tune(ctx context.Context, cfg *Config, opts TuneOptions) (*Tuned, error) {
	return tune.Tune(ctx, cfg, opts)
}

// TuneDir is where the search of a job keeps its state if nobody says otherwise.
func TuneDir(cfg *Config) string { return tune.Dir(cfg) }

// TunedTable is what a search tried as text: a heading, then a row for each candidate.
func TunedTable(t *Tuned) [][]string { return tune.Table(t) }

// TunedVerdict says in a sentence what a search found.
func TunedVerdict(t *Tuned) string { return tune.Verdict(t) }

// Insight says what the features and the layers of a snapshot's model do on the examples of the job's evaluation source: how much worse the metrics get where examples have each other's values of a
// feature, how long vectors and gradients are, and which units learn nothing. Nothing is changed. It takes as many passes forward as there are features, and one back.
func Insight(ctx context.Context, cfg *Config, opts InsightOptions) (*InsightResult, error) {
	return run.Insight(ctx, cfg, opts)
}

// Evaluate scores the job's evaluation source with the parameters of a snapshot. Nothing is changed: the snapshot is
// read into shards of its own.
func Evaluate(ctx context.Context, cfg *Config, opts EvalOptions) (*EvalResult, error) {
	return run.Evaluate(ctx, cfg, opts)
}

// ExportModel writes the model of a snapshot, or its rows, to a folder that other programs read. Errors: [pipeline.ErrConfig] for options that cannot be, for what a format has no
// form for and for a folder with something else, [pipeline.ErrBadData] for a damaged snapshot, with file and offset, [pipeline.ErrUnavailable].
func ExportModel(ctx context.Context, opts ExportModelOptions) (*ExportedModel, error) {
	return run.ExportModel(ctx, opts)
}

// Predict writes the predictions of a snapshot for the examples of predict.source, or of the job's source, to predict.to: one for each
// row, whatever was killed when. Errors: [pipeline.ErrConfig] for what the user can fix, also a place that has other predictions;
// [pipeline.ErrBadData]; [pipeline.ErrUnavailable].
func Predict(ctx context.Context, cfg *Config, opts PredictOptions) (*Predicted, error) {
	return run.Predict(ctx, cfg, opts)
}

// Import makes a snapshot for a job of a checkpoint of bytedance/monolith. Errors: [pipeline.ErrConfig] for a job that has snapshots already, a
// mapping that does not fit, and a checkpoint of which nothing fits; an error that names file and place for a damaged one.
func Import(ctx context.Context, cfg *Config, opts ImportOptions) (*Imported, error) {
	return migrate.Import(ctx, cfg, opts)
}

// ReadMapping reads what [ImportOptions].Mapping is from a YAML file. Errors: [pipeline.ErrConfig] with every fault.
func ReadMapping(path string) (*Mapping, error) { return migrate.ReadMapping(path) }

// Export writes the tables of a snapshot as a checkpoint of bytedance/monolith. Errors: [pipeline.ErrConfig], [pipeline.ErrUnavailable], and
// those of a damaged snapshot, with file and offset.
func Export(ctx context.Context, opts ExportOptions) (*Exported, error) {
	return migrate.Export(ctx, opts)
}

// FetchExport brings a native export from a store to this machine, where [Alone], [Predict] and [VerifyExport] open it. Errors: [pipeline.ErrConfig] where there is none,
// [pipeline.ErrUnavailable], native.ErrCorrupt.
func FetchExport(ctx context.Context, opts FetchExportOptions) (*FetchedExport, error) {
	return run.FetchExport(ctx, opts)
}

// VerifyExport reads all of a native export, or of the newest in a folder of exports. Errors: native.ErrNone, native.ErrVersion, native.ErrCorrupt where it cannot be opened; the context's.
func VerifyExport(ctx context.Context, dir string) (*VerifiedExport, error) {
	return run.VerifyExport(ctx, dir)
}

// ExportFormats are the formats that [ExportModel] writes.
func ExportFormats() []string { return run.ExportFormats() }

// Serve serves shards of a job's parameter server until it is drained or the context ends. The process of shard 0
// coordinates the others and the workers.
//
// Errors: [*ConfigError] and [pipeline.ErrConfig] for what the user can fix in the job, [pipeline.ErrUnavailable] for an
// address that cannot be listened at or a disk that is full.
func Serve(ctx context.Context, cfg *Config, opts ServeOptions) (*ServeResult, error) {
	return run.Serve(ctx, cfg, opts)
}

// ServeModels answers requests for predictions with exported models, as TensorFlow Serving does, until it is drained or the context ends. Errors: [pipeline.ErrConfig] for options
// that cannot be and for models of which no version can be opened, [pipeline.ErrUnavailable] for an address that cannot be listened at.
func ServeModels(ctx context.Context, opts ServeModelsOptions) error {
	return run.ServeModels(ctx, opts)
}

// ServingRecipe is what package serving makes features of records by, in a program with a server of its own. own is what the program's jobs may name; its zero value: what is monolith's.
func ServingRecipe(own Components) serving.Recipe { return run.ServingRecipe(own) }

// InspectSource looks into a job's source: what the records hold, what the job's parse section makes of them, and where
// it has none, one that fits. Nothing is changed. Errors: [pipeline.ErrConfig] and [pipeline.ErrSchema] for what the user
// can fix, [pipeline.ErrUnavailable] for what cannot be reached in time.
func InspectSource(ctx context.Context, cfg *Config, opts InspectOptions) (*SourceInfo, error) {
	return inspect.Source(ctx, cfg, opts)
}

// InspectSnapshot describes a snapshot, or the newest good one of a job's dir or of a folder of snapshots, of this machine or at a URL, and says which
// newer ones are damaged.
func InspectSnapshot(ctx context.Context, path string) (*SnapshotInfo, error) {
	return inspect.Snapshot(ctx, path)
}

// DescribeModel describes the model of a job by its graph, for examples whose sparse features have so many entries each. Nothing is read but what the
// model is made of. Errors: those of [BuildModel].
func DescribeModel(cfg *Config, entries float64) (*ModelInfo, error) {
	m, err := BuildModel(cfg)
	if err != nil {
		return nil, err
	}
	return inspect.Model(m, entries)
}

// DescribeStoredModel describes the model of a snapshot, or of the newest good one of a job's dir or of a folder of snapshots, of this machine or at a URL. All bytes are
// read, so that a damaged one is passed over.
func DescribeStoredModel(ctx context.Context, path string, entries float64) (*ModelInfo, error) {
	return inspect.SnapshotModel(ctx, path, entries)
}

// Nearest returns the rows of a snapshot, or of the newest good one of a job's dir or of a folder of snapshots, whose vectors have the largest cosine
// with that of one of them. The rows of the table are read twice, and not held.
func Nearest(ctx context.Context, path string, o NearestOptions) (*NearestRows, error) {
	return inspect.Nearest(ctx, path, o)
}

// InspectSlots describes the rows of a snapshot, or of the newest good one of a job's dir or of a folder of snapshots, by their
// slots. It reads all rows twice, and holds none.
func InspectSlots(ctx context.Context, path string, o SlotOptions) (*SnapshotSlots, error) {
	return inspect.Slots(ctx, path, o)
}

// LookUp returns whole rows of a running job, whose shards must be in processes of their own. Nothing is changed.
func LookUp(ctx context.Context, cfg *Config, o LookUpOptions) (*LookedUp, error) {
	return run.LookUp(ctx, cfg, o)
}

// IDs returns the ids that a job makes of values of a feature.
func IDs(cfg *Config, o ValueOptions) ([]int64, error) { return run.IDs(cfg, o) }

// IDsStored returns the ids that the model of a snapshot has for values of a feature, or that of the newest
// good one of a job's dir or of a folder of snapshots.
func IDsStored(ctx context.Context, path string, o ValueOptions) ([]int64, error) {
	return run.IDsStored(ctx, path, o)
}

// LookUpStored returns whole rows of a snapshot, or of the newest good one of a job's dir or of a folder of snapshots.
func LookUpStored(ctx context.Context, path, table string, ids []int64) (*LookedUp, error) {
	return inspect.LookUp(ctx, path, table, ids)
}

// Edit edits rows of a running job, whose shards must be in processes of their own, each once however often the request is made. Training continues.
func Edit(ctx context.Context, cfg *Config, o EditOptions) (*Edited, error) {
	return run.Edit(ctx, cfg, o)
}

// InspectShards describes the rows that the running shards of a job have of each slot, and how much each shard has, while training continues. Where some do not
// answer it describes the others, and returns [pipeline.ErrUnavailable] beside that.
func InspectShards(ctx context.Context, cfg *Config, how Asking) (*RunningSlots, error) {
	return run.Slots(ctx, cfg, how)
}

// FollowChanges gives a consumer the rows of a running job that have changed, and the ids whose rows have gone, since it was given them last: each at
// least once, whatever dies.
func FollowChanges(ctx context.Context, cfg *Config, o ChangesOptions) error {
	return run.Changes(ctx, cfg, o)
}

// DefaultPushedBytes is what rows that were pushed may take in a server's memory if nobody says otherwise.
const DefaultPushedBytes = run.DefaultPushedBytes

// Push gives a server of predictions the weights of the rows of a running job that have changed or gone since it was given them last, each at least once, whatever dies.
func Push(ctx context.Context, cfg *Config, o PushOptions) (*Pushed, error) {
	return run.Push(ctx, cfg, o)
}

// ListSnapshots describes the snapshots of a job's dir, of a folder or of a store's URL, the newest first, and says why retention keeps each. It reads manifests
// and looks at names and sizes of files.
func ListSnapshots(ctx context.Context, path string, r Retention) (*SnapshotList, error) {
	return stored.List(ctx, path, r)
}

// RetentionOf is which snapshots of a job stay.
func RetentionOf(cfg *Config) Retention { return stored.Retention(cfg) }

// VerifySnapshots reads all of a snapshot, or of those of a job's dir or a folder, and says what is wrong with each.
func VerifySnapshots(ctx context.Context, path string) ([]SnapshotCheck, error) {
	return stored.Verify(ctx, path)
}

// DiffSnapshots compares two snapshots, of this machine or at URLs; of a job's dir or a folder the newest good one.
func DiffSnapshots(ctx context.Context, a, b string) (*SnapshotDiff, error) {
	return stored.Diff(ctx, a, b)
}

// PruneSnapshots removes the snapshots of a job's dir, of a folder or of a store's URL that need not stay, or, where remove is false, says which would go.
func PruneSnapshots(ctx context.Context, path string, r Retention, remove bool) (*SnapshotsPruned, error) {
	return stored.Prune(ctx, path, r, remove)
}

// FetchSnapshot brings the newest whole snapshot of a store back into a folder that has none, or the one that is asked for.
func FetchSnapshot(ctx context.Context, o FetchOptions) (*SnapshotEntry, error) {
	return stored.Fetch(ctx, o)
}

// FetchJobSnapshot is [FetchSnapshot] from a job's snapshot.upload into its dir.
func FetchJobSnapshot(ctx context.Context, cfg *Config, o FetchOptions) (*SnapshotEntry, error) {
	return stored.FetchJob(ctx, cfg, o)
}

// InUse says which process already trains in the job's dir; nil: none does, or the shards are in other processes. It looks at one moment. Errors: [pipeline.ErrUnavailable].
func InUse(cfg *Config) error {
	if len(cfg.PS.Addresses) > 0 {
		return nil
	}
	lock, err := stored.Claim(cfg, stored.LockName(0), "another process is training with")
	if err != nil {
		return err
	}
	return lock.Close()
}

// TakeSnapshot asks the coordinator of a job whose shards are in processes of their own for a snapshot, and returns when it is durable.
func TakeSnapshot(ctx context.Context, cfg *Config, o TakeOptions) (*SnapshotTaken, error) {
	return run.Take(ctx, cfg, o)
}

// Scale makes the shards of a running job others, while its workers continue, and returns when all have their state.
func Scale(ctx context.Context, cfg *Config, o ScaleOptions) (*Scaled, error) {
	return run.Scale(ctx, cfg, o)
}

// Promote lets the standby of a shard take over, and returns once it is in charge, with the time that took.
func Promote(ctx context.Context, cfg *Config, o PromoteOptions) (*Promoted, error) {
	return run.Promote(ctx, cfg, o)
}

// Propose looks into a source, as [ForTarget] understands it, and writes a job that trains on it, with comments on what is
// guessed. The job loads.
func Propose(ctx context.Context, target string, opts ProposeOptions) (*Proposed, error) {
	opts.LoadOptions = usual(opts.LoadOptions)
	return inspect.Propose(ctx, target, opts)
}

// SplitScore takes the name of a score apart: "click.auc" is the auc of head click, "auc" that of a job without heads.
func SplitScore(name string) (head, metric string) { return result.SplitScore(name) }
