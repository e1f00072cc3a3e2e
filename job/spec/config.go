package spec

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
)

// Config is one job. Its zero value is not useful; [Load] and [Default] fill the defaults in. It is plain data: once
// loaded it is only read, and reading it from several goroutines is fine.
type Config struct {
	// Version is the version of the job file's format.
	Version int `yaml:"version" required:"true"`
	// Name names the job in logs, metrics and snapshots. It has no slashes. Default: the file's name without its extension.
	Name string `yaml:"name"`
	// Dir is where snapshots and logs go; `train` continues from what it finds here. Relative paths, here and everywhere in
	// a job, count from the working directory. Default: runs/NAME.
	Dir string `yaml:"dir"`
	// Seed makes initial values, shuffles, dropout masks and the synthetic stream. Equal seeds and input give equal
	// results in deterministic mode.
	Seed uint64 `yaml:"seed" default:"1"`
	// Deterministic asks for the same bits from the same input, however often the run is interrupted, on one architecture with one
	// family of kernels. It needs one worker and synchronous lookups and pushes, so it costs the overlap of the three.
	Deterministic bool `yaml:"deterministic" default:"false"`
	// Source is where examples come from.
	Source Source `yaml:"source" required:"true"`
	// SourceName is the name of the source in snapshots, metrics and logs: letters, digits, dots, dashes and underscores. The
	// positions of splits are stored under it, so jobs that train one model on different data in turn, such as two sets of files,
	// each have a name. Default: the kind of the source, such as text. A job that has trained and is given another name reads its
	// source from the beginning.
	SourceName string `yaml:"source_name" default:""`
	// Epochs is how often a bounded source is read.
	Epochs int `yaml:"epochs" default:"1" min:"1"`
	// Shuffle mixes the order of a bounded source, differently in each epoch.
	Shuffle Shuffle `yaml:"shuffle"`
	// Backfill is the history of a stream, which `monolith backfill` trains on before `monolith train` continues with the stream.
	Backfill Backfill `yaml:"backfill"`
	// Parse turns records into features.
	Parse Parse `yaml:"parse"`
	// Heads are what the model predicts, each with a label, a loss and metrics of its own. Without them there is one: the
	// probability that parse.label is 1, learnt by cross entropy and measured by eval.metrics.
	Heads []Head `yaml:"heads"`
	// Stages work on the parsed rows before batching, one after the other. Programs bring their own; monolith has none. Each
	// runs in training, evaluation and prediction, or in the phases that it names: `- {sample: {share: 0.1}, phases: [train]}`.
	// Snapshots of training store a stage's state of each split (pipeline.Stateful), and hand it on with the split.
	// Executors in other processes (runner) store no state made since the last snapshot when their splits end. A later run
	// reads those rows again from the snapshot: no example counts twice. Evaluation and `monolith predict` store no state. Each of
	// their runs reads the source from its beginning, and predict writes no row twice.
	Stages []Stage `yaml:"stages"`
	// Model is what is trained.
	Model Model `yaml:"model" required:"true"`
	// Tables say what an embedding table has of its own. Features name their table; those that name none share one.
	Tables []Table `yaml:"tables"`
	// Retention says which ids have rows in the tables, and for how long.
	Retention Retention `yaml:"retention"`
	// Train is how batches are made and run.
	Train Train `yaml:"train"`
	// Optimizer holds the update rules.
	Optimizer Optimizers `yaml:"optimizer"`
	// Runner is where the graphs of training and of `monolith eval` run: local, in this process; prism, inside Apache Beam's Prism runner in this process,
	// which other Beam runners' rules can be tried with; flink, a cluster of Apache Flink; portable, any other runner that has a
	// job service of Beam's portability API; or dataflow, Google Cloud Dataflow. The last three are described in beam.
	Runner string `yaml:"runner" default:"local" enum:"local|prism|flink|portable|dataflow"`
	// Beam is where the runners flink, portable and dataflow submit the graph to.
	Beam Beam `yaml:"beam"`
	// PS is the parameter server.
	PS PS `yaml:"ps"`
	// Snapshot describes how often the whole state is stored.
	Snapshot Snapshot `yaml:"snapshot"`
	// Restore describes how a run begins, and what becomes of parameters that do not fit the model.
	Restore Restore `yaml:"restore"`
	// Eval is evaluation on examples that are not trained on.
	Eval Eval `yaml:"eval"`
	// Predict is what `monolith predict` scores with a snapshot, and where it writes that.
	Predict Predict `yaml:"predict"`
	// Outputs write what is trained on, or the predictions, somewhere else too, each row exactly once.
	Outputs []Output `yaml:"outputs"`
	// Metrics is the Prometheus endpoint.
	Metrics Metrics `yaml:"metrics"`
	// Log is the log on standard error.
	Log Log `yaml:"log"`

	set component.Set
	// schema is that of the components, which decoded the job; nil: it was made in Go.
	schema    *conf.Schema
	places    *conf.Places
	untrained bool // see [LoadOptions]
	// predictsHeldOut: see [Config.PredictsHeldOut].
	predictsHeldOut bool
	// sourceKey is where Source is in the job, if not at "source".
	sourceKey string
}

// Shuffle mixes the order in which a bounded source is read. An epoch's order is a function of the seed and the epoch
// alone, so a resumed run continues in the same order.
type Shuffle struct {
	// Rows is the size of the window that is read into memory and permuted, in records; 0 keeps the source's order, -1
	// takes a whole split at once. The larger, the better the mixing and the more memory: twice its rows, for each worker.
	// A run ends with an error where windows would take more than half of what the process has for tables.
	Rows int `yaml:"rows" default:"0" min:"-1"`
	// OneSplit reads all files as one long split, so that windows reach across files. Only one worker can then read.
	OneSplit bool `yaml:"one_split" default:"false"`
}

// Snapshot describes how often rows, optimizer state, dense parameters and positions are stored as one cut, in the job's dir.
type Snapshot struct {
	// Every is the time between snapshots while training; 0 takes them only at the end and when interrupted. The shorter,
	// the less is trained again after a crash. A dir without a snapshot gets its first one after 30 s, where that is sooner.
	Every Duration `yaml:"every" default:"5m" min:"0"`
	// Keep is how many of the newest snapshots stay. The one of the best epoch, where several are evaluated or by train.early_stop, stays beside
	// them, whatever its age, as pinned ones do, and what others add to (incremental).
	Keep int `yaml:"keep" default:"3" min:"1"`
	// KeepFor is how long each snapshot stays, beside those; 0: not longer. Its age counts up to the newest
	// snapshot and, while the job runs, by a clock that does not jump.
	KeepFor Duration `yaml:"keep_for" default:"0s" min:"0"`
	// Exempt are the numbers of snapshots that stay whatever their age: 12 for snap-00000012.
	Exempt []int `yaml:"exempt"`
	// Incremental is how many snapshots after a whole one hold only the rows that have changed since the one before; then the
	// newest is made a whole one in the background. They are written in a time that goes by what has changed, and reading one reads all of
	// them; damage in one is damage of those after it. Rows that expire or are evicted (retention) are told of by their ids; what counts ids
	// that wait for a row is whole in each. 0: all are whole.
	Incremental int `yaml:"incremental" default:"0" min:"0" max:"64"`
	// Tolerate is how many snapshots in a row may fail, on a full disk for example, before the run ends with exit code 3:
	// what is trained meanwhile is lost with the process. With ps.durability: wal it never ends for that, since the logs
	// keep all that was acknowledged; they grow until a snapshot is taken. While a shard is away one a minute counts. 0: never.
	Tolerate int `yaml:"tolerate" default:"5" min:"0"`
	// Upload is a folder of a store that outlives the machine, to which finished snapshots are copied while training continues:
	// s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, hdfs://NAMENODE:PORT/PATH or file:///PATH. A run whose dir has no snapshot begins with the newest
	// there. Credentials are those of the environment (docs/uploads.md). Default: none.
	Upload string `yaml:"upload"`
	// UploadKeep is keep for the uploaded snapshots. keep_for and exempt hold there too.
	UploadKeep int `yaml:"upload_keep" default:"3" min:"1"`
	// UploadWait is how long the end of a run waits for its last snapshot to be uploaded. What is not there then is uploaded by the
	// next run.
	UploadWait Duration `yaml:"upload_wait" default:"10m" min:"0"`
}

// Eval is evaluation on held-out examples.
type Eval struct {
	// Source is where the held-out examples come from; `monolith eval` needs it or holdout, training may do without either.
	Source *Source `yaml:"source"`
	// Holdout holds out a part of the job's own source instead: training leaves those examples out, evaluation reads that source and takes them alone.
	Holdout *Holdout `yaml:"holdout"`
	// Format overrides parse.format for these examples, where they lie in other files than the training data's.
	Format string `yaml:"format" enum:"tf_example|libfm|csv|tsv|jsonl|columns"`
	// Columns names the columns of these examples' csv and tsv files. Default: parse.columns, unless header says that the
	// files name them.
	Columns []string `yaml:"columns" blank:"true"`
	// Header is true when the first line of each of these csv or tsv files names the columns. Default: parse.header, or
	// false when columns names them here.
	Header *bool `yaml:"header"`
	// Metrics are what is computed of a job without heads; heads name theirs. auc, pr_auc (average precision) and gauc (the AUC
	// within each group, averaged by the groups' weights) are of the order of predictions; ndcg@10, hr@10 (the share of groups with a
	// positive among the first 10), recall@10 (the share of a group's positives that are) and mrr@10 (the mean of 1 over the place of the first positive), or @1, @5, @20 and @50, of what each
	// group is shown. gauc and these need eval.group. log_loss, normalized_entropy (the log loss over that of always predicting the mean
	// label) and accuracy are of probabilities; calibration (mean prediction over mean label), ece (expected calibration error, bins of
	// equal width) and ece_mass (bins of equal weight) of their level; mse, rmse, mae and r2 of values, and of their order xauc (how often,
	// of two examples with different labels, that with the higher one is predicted higher) and xgauc, the same within each group.
	Metrics []string `yaml:"metrics" default:"auc,log_loss,calibration" enum:"@metrics"`
	// Group is the column that metrics within groups go by: the user, or the request. Groups of one class do not count in gauc, groups
	// without a positive not in ndcg, hr, recall and mrr; results say how many count. Intervals draw whole groups. The column's hash is
	// stored with the predictions of the last examples.
	Group string `yaml:"group"`
	// Slices are columns by whose values `monolith eval` measures too: the metrics of each country, say. Its --slice names others.
	Slices []Slices `yaml:"slices"`
	// Every chooses when training stops to evaluate: after each epoch, or only at the end.
	Every string `yaml:"every" default:"epoch" enum:"epoch|end"`
	// Outputs write what `monolith eval` reads, or what the snapshot predicts of it, each row exactly once; evaluations in training
	// write none. A snapshot evaluated on a source is a part of its own, named by the snapshot and a hash of both: a folder within
	// the one of parquet, and what the header "output" of a topic's records ends in. An evaluation that was killed is continued in
	// its part when it is run again, one that is complete adds nothing to it, and another snapshot or other files make
	// another part.
	Outputs []Output `yaml:"outputs"`
	// MaxExamples ends an evaluation early, in examples; 0 reads the whole source.
	MaxExamples int64 `yaml:"max_examples" default:"0" min:"0"`
}

// Holdout divides the examples of a job's source into those that it is trained on and those that it is evaluated on. Neither workers, files' names,
// order nor a resumed run make a difference. Short form: the share alone. A dir has one: snapshots remember it, and what was trained on is not evaluated as unseen.
type Holdout struct {
	// By is the column whose value decides: with the user, all examples of a user are on one side; with the time of the event and from, the later ones are held out. Examples
	// without a value are trained on. Empty: each example is drawn by itself, by what its record or file holds and by its place there, so equal examples fall on both sides. Name a
	// column where examples belong together (the user), where time decides, or where the same examples come from two places.
	By string `yaml:"by" default:""`
	// Share is the part of the values of by, or of the examples, that is held out: 0.1 for a tenth, drawn by hash. A larger share holds out what a smaller one does, and more.
	Share float64 `yaml:"share" short:"true" default:"0" min:"0" max:"0.99"`
	// From holds out the examples whose value of by is this or above, in place of a share: a number, or a text where it is none, compared byte by byte, as 2026-11-28 12:00.
	From string `yaml:"from" default:""`
}

// Slices is a column whose values are measured one by one. Short form: the name alone.
type Slices struct {
	// Column is where the value is in the record.
	Column string `yaml:"column" short:"true" required:"true"`
	// With is a second column: each pair of values is a slice then. Empty: there is none.
	With string `yaml:"with" default:""`
	// Max is how many values are shown, the most frequent ones; all others are measured together.
	Max int `yaml:"max" default:"20" min:"1" max:"1000"`
}

// Metrics is the HTTP endpoint for Prometheus and health checks.
type Metrics struct {
	// Listen is host:port of the endpoint, empty for none. Without a host it is 127.0.0.1; port 0 takes a free one and
	// logs it. It has no authentication: give it other addresses only where the network is trusted.
	Listen string `yaml:"listen" default:""`
	// Pprof adds Go's profiler under /debug/pprof.
	Pprof bool `yaml:"pprof" default:"false"`
}

// Log is the log on standard error.
type Log struct {
	// Level is the least severe level that is written; -v means debug, -q means error.
	Level string `yaml:"level" default:"info" enum:"debug|info|warn|error"`
	// Format is text for people, json for machines: an object a line, for all that is written to standard error once the job is read.
	Format string `yaml:"format" default:"text" enum:"text|json"`
}

// File is the path the job was loaded from, empty for a job made in Go.
func (c *Config) File() string { return c.places.File() }

// SourceNode is the name that positions of the source are stored under: source_name, or the kind of the source.
func (c *Config) SourceNode() string { return cmp.Or(c.SourceName, c.Source.Name()) }

// SourceKey is the key of the job that describes its source.
func (c *Config) SourceKey() string { return cmp.Or(c.sourceKey, "source") }

// Ends reports whether training ends by itself: with its source, or after so many examples.
func (c *Config) Ends() bool { return c.Source.Bounded() || c.Train.MaxExamples > 0 }

// EvalSource is where the examples come from that are evaluated, and its key; nil: there are none.
func (c *Config) EvalSource() (from *Source, key string) {
	switch {
	case c.Eval.Source != nil:
		return c.Eval.Source, "eval.source"
	case c.Eval.Holdout != nil:
		return &c.Source, c.SourceKey()
	}
	return nil, "eval.source"
}

// SameHoldout reports whether another job holds out the same examples of a source.
func (c *Config) SameHoldout(other *Config) bool {
	a, b := c.Eval.Holdout, other.Eval.Holdout
	return a == b || a != nil && b != nil && *a == *b && c.drawnOf() == other.drawnOf()
}

// drawnOf says which places a holdout without a column draws by: "place in text csv", "place in parquet". Empty: there is no such holdout.
func (c *Config) drawnOf() string {
	if h := c.Eval.Holdout; h == nil || h.By != "" {
		return ""
	}
	if c.Source.Columnar() {
		return "place in " + c.Source.Name()
	}
	return "place in " + c.Source.Name() + " " + c.Parse.Format
}

// PredictSource is where the examples come from that are predicted, and its key.
func (c *Config) PredictSource() (from *Source, key string) {
	if c.Predict.Source != nil {
		return c.Predict.Source, "predict.source"
	}
	return &c.Source, "source"
}

// PredictingEval returns the job that predicts the examples of evaluation; false: there are none. The job itself is not changed.
func (c *Config) PredictingEval() (*Config, bool) {
	h, e := *c, &c.Eval
	from, _ := c.EvalSource()
	if h.predictsHeldOut = e.Source == nil; h.predictsHeldOut {
		h.Predict.Source = nil
	} else {
		h.Predict.Source, h.Predict.Format, h.Predict.Columns, h.Predict.Header = from, e.Format, e.Columns, e.Header
	}
	return &h, from != nil
}

// PredictsHeldOut reports whether predictions are of what eval.holdout holds out of the job's source, not of all of it.
func (c *Config) PredictsHeldOut() bool { return c.predictsHeldOut }

// Raw is what a loaded job was made of, for another process to load it again.
func (c *Config) Raw() conf.Raw { return c.places.Raw() }

// Components are what the job may name.
func (c *Config) Components() component.Set { return c.set }

// Effective lists every value in force and where it came from, in the order of the file. Alternatives and optional
// sections that were not chosen are left out.
func (c *Config) Effective() []Setting { return c.places.Effective(c) }

// Warnings lists what is odd but not wrong, for the log and for check: environment variables that look like settings but
// are none, features that share a slot, the label among the features, files that are trained on and held out.
func (c *Config) Warnings() []string {
	return slices.Concat(c.places.Notes(), c.Parse.warnings(c.AllHeads()), c.keepWarnings(), c.heldOutWarnings(), c.retentionWarnings())
}

// heldOutWarnings names what eval.source reads and the source too. Patterns are compared as they are written, without looking which files there are.
func (c *Config) heldOutWarnings() (out []string) {
	if c.Eval.Source == nil {
		return nil
	}
	for i, held := range c.Eval.Source.FileList() {
		for _, trained := range c.Source.FileList() {
			if covers(trained, held) || covers(held, trained) {
				out = append(out, fmt.Sprintf("eval.source reads %q (files[%d]), and the source reads %q: what was trained on says nothing of examples that the model has not seen", held, i, trained))
				break
			}
		}
	}
	return out
}

// covers reports whether a pattern matches a path, or is the same.
func covers(pattern, path string) bool {
	pattern, path = filepath.Clean(pattern), filepath.Clean(path)
	ok, err := filepath.Match(pattern, path)
	return pattern == path || ok && err == nil
}
