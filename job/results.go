package job

import (
	"encoding/json"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// RunOptions are what a run gets from whoever starts it. The zero value works: it logs nothing, reports nothing and goes
// on from the newest snapshot if there is one.
type RunOptions struct {
	// Logger is never a global; nil: discard.
	Logger *slog.Logger
	// Registerer takes the run's metrics; nil: none are kept.
	Registerer prometheus.Registerer
	// Progress is told how far the run is, about four times a second, from one goroutine at a time; nil: nobody is told.
	Progress func(Progress)
	// Notice is told in one line what a person should know: that the run goes on from a snapshot, or is draining. nil:
	// nobody is told.
	Notice func(string)
	// Drain, once closed, makes the run stop reading, train what is on its way, take a snapshot and return without an
	// error. Cancelling the context instead stops at once. nil: never.
	Drain <-chan struct{}
	// Observe hears of every batch that is trained on, with the predictions made before; one call at a time. nil: nobody.
	Observe trainstep.Observer
	// Evaluated hears of every evaluation while training, with the number of epochs done; nil: nobody.
	Evaluated func(epoch int, scores Scores)
	// Pin, when not empty, exempts the run's last snapshot from retention and is stored with it as a note.
	Pin string
	// Runners are the runners beside local that a job may name, and Recipes what they build its graph from again.
	Runners map[string]Runner
	Recipes *Recipes
	// Worker names this run among the workers of the job; empty: after the host and the process. A run that begins under
	// the name of another takes its place: give a worker that is started again its old name.
	Worker string
	// Resume is nil to go on from the newest snapshot in the job's dir where there is one; true to demand one; false to
	// begin anew.
	Resume *bool
	// Memory is what the rows of shards in this process are taken from; nil has no limit.
	Memory *table.Memory
}

// Progress is a glance at a run.
type Progress struct {
	// Phase is what goes on: "train", "eval".
	Phase string
	// Examples counts the examples done in this phase, by all workers, Total those there will be; Total is 0 when nobody
	// knows.
	Examples, Total int64
	// Workers is how many workers there are, 0 where the job has this one process. Lag, Loss and AUC are of this worker.
	Workers int
	// Bad counts the records that this run has left out.
	Bad int64
	// Rate is in examples per second, over the last seconds.
	Rate float64
	// Lag is the number of records the source holds and nobody has read yet; -1: not known.
	Lag int64
	// Loss and AUC are of the last window of examples, computed before each was trained on; NaN: not known.
	Loss, AUC float64
	// Epoch counts from 1; Epochs is how many there will be, 0: not known.
	Epoch, Epochs int
	// Elapsed is the time since the run began.
	Elapsed time.Duration
}

// Scores holds evaluation metrics by name: "auc", "log_loss", "calibration".
type Scores map[string]float64

// MarshalJSON writes what is not a number (the AUC of one class only, for example) as null.
func (m Scores) MarshalJSON() ([]byte, error) {
	out := make(map[string]*float64, len(m))
	for k, v := range m {
		out[k] = finite(v)
	}
	return json.Marshal(out)
}

// Names lists the metrics in alphabetical order.
func (m Scores) Names() []string { return slices.Sorted(maps.Keys(m)) }

func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// TrainResult is what a training run did.
type TrainResult struct {
	// Examples counts the examples trained on in this run, Steps the batches.
	Examples int64 `json:"examples"`
	Steps    int64 `json:"steps"`
	// ExamplesPerSecond is Examples over Seconds.
	ExamplesPerSecond float64 `json:"examples_per_second"`
	Seconds           float64 `json:"seconds"`
	// Epochs counts the epochs that are complete, earlier runs included.
	Epochs int `json:"epochs"`
	// Metrics are those of the last evaluation; with the prefix "best_" the best of all evaluations, where a plateau or
	// early stop watches it; and of the last examples trained on, with the prefix "progressive_" when each was scored
	// before, "training_" when there are several epochs.
	Metrics Scores `json:"metrics"`
	// ProgressiveExamples and TrainingExamples are how many examples the metrics with these prefixes are over: the last ones
	// trained on, 65,536 at most, earlier runs included.
	ProgressiveExamples int64 `json:"progressive_examples,omitempty"`
	TrainingExamples    int64 `json:"training_examples,omitempty"`
	// BadRows counts what was left out, by reason.
	BadRows map[string]int64 `json:"bad_rows,omitempty"`
	// LostRecords counts records that were gone before they were read and were passed over, Lost says which they were, up to
	// the first hundred gaps.
	LostRecords int64       `json:"lost_records,omitempty"`
	Lost        []LostRange `json:"lost,omitempty"`
	// Features says how many of the examples that were read had a value of each feature.
	Features []FillInfo `json:"features,omitempty"`
	// Snapshot is the path of the newest snapshot, empty when none was taken.
	Snapshot string `json:"snapshot"`
	// BestSnapshot is the path of the snapshot of the best evaluation under train.early_stop, and BestEpoch the epoch that
	// it came after; empty when there is none, or when it lies on another machine.
	BestSnapshot string `json:"best_snapshot,omitempty"`
	BestEpoch    int    `json:"best_epoch,omitempty"`
	// ResumedFrom is the path of the snapshot the run went on from, empty when it began anew.
	ResumedFrom string `json:"resumed_from,omitempty"`
	// Drained tells that the run was asked to stop before its input ended.
	Drained bool `json:"drained,omitempty"`
	// EarlyStopped tells that train.early_stop ended the run.
	EarlyStopped bool `json:"early_stopped,omitempty"`
}

// LostRange is a range of positions [From, To) of a split.
type LostRange struct {
	Split string `json:"split"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
}

// EvalOptions say what to evaluate, beside the job.
type EvalOptions struct {
	RunOptions
	// Snapshot is the path of a snapshot, or [Newest] or [Best] of those in the job's dir; empty: the best where
	// train.early_stop is set and there is one, otherwise the newest.
	Snapshot string
	// MaxExamples ends the evaluation early; 0: as the job says.
	MaxExamples int64
}

// EvalResult is what an evaluation found.
type EvalResult struct {
	Examples          int64            `json:"examples"`
	ExamplesPerSecond float64          `json:"examples_per_second"`
	Seconds           float64          `json:"seconds"`
	Metrics           Scores           `json:"metrics"`
	BadRows           map[string]int64 `json:"bad_rows,omitempty"`
	// Features says how many of the examples had a value of each feature.
	Features []FillInfo `json:"features,omitempty"`
	// Snapshot is the path of the snapshot that was evaluated, Which says which that is.
	Snapshot string `json:"snapshot"`
	Which    string `json:"which,omitempty"`
}

// Plan is a checked graph that can be shown. Text is for people, DOT for Graphviz, Mermaid for Markdown pages, JSON for
// programs.
type Plan interface {
	Text() string
	DOT() string
	Mermaid() string
	JSON() string
}

// Finding is something `check` has to say about a job.
type Finding struct {
	// Path is the key path, or empty.
	Path string `json:"path,omitempty"`
	// Where is file:line:col, or empty.
	Where string `json:"where,omitempty"`
	// Message says what is wrong and what to do.
	Message string `json:"message"`
	// Suggestion is the name that was probably meant, or empty.
	Suggestion string `json:"suggestion,omitempty"`
}

// Findings turns the faults of a job into findings.
func (e *ConfigError) Findings() []Finding {
	out := make([]Finding, 0, len(e.Faults))
	for _, f := range e.Faults {
		g := Finding{Path: f.Path, Message: f.Message, Suggestion: f.Suggestion}
		if f.Where.Layer != FromDefault {
			g.Where = f.Where.String()
		}
		out = append(out, g)
	}
	return out
}

// InspectOptions say what to show of a source.
type InspectOptions struct {
	Logger *slog.Logger
	// Rows is how many rows to show; what is said of columns and features is of more.
	Rows int
	// Timeout bounds the whole look; 0: [InspectTimeout].
	Timeout time.Duration
}

// InspectTimeout is how long a look into a source takes at most.
const InspectTimeout = 10 * time.Second

// SourceInfo is what a source looks like.
type SourceInfo struct {
	// Source describes it in a few words.
	Source  string `json:"source"`
	Bounded bool   `json:"bounded"`
	// Format is that of the records: the job's, or what they look like.
	Format string `json:"format"`
	// Splits are its parts.
	Splits []SplitInfo `json:"splits"`
	// Read is how many records were looked at, in all splits alike.
	Read int64 `json:"read"`
	// Columns are what the records hold.
	Columns []ColumnInfo `json:"columns"`
	// Features are what the job makes of them; none without a job that says how.
	Features []FeatureInfo `json:"features,omitempty"`
	// Rows are some rows, from as many splits as there are.
	Rows []RowInfo `json:"rows"`
	// BadRows counts the records that cannot be used, by reason; BadExamples are the first of them.
	BadRows     map[string]int64 `json:"bad_rows,omitempty"`
	BadExamples []string         `json:"bad_examples,omitempty"`
	// Parse is a parse section that fits the records, as a job file has it; empty when the job has one or none can be made.
	Parse string `json:"parse,omitempty"`
	// Notes are what a person should know beside.
	Notes []string `json:"notes,omitempty"`
}

// SplitInfo is one split of a source.
type SplitInfo struct {
	Name  string `json:"name"`
	Start int64  `json:"start"`
	// End is -1 when it is not known or there is none.
	End int64 `json:"end"`
	// Read is how many of its records were looked at.
	Read int64 `json:"read"`
}

// ColumnInfo is one column of a source, as it is stored.
type ColumnInfo struct {
	Name string `json:"name"`
	// Type is what the format calls it.
	Type string `json:"type"`
	// Rows is how many of the records have a value, Share what part of them that is.
	Rows  int64   `json:"rows"`
	Share float64 `json:"share"`
	// Distinct is how many different values there are, 1,000 at most.
	Distinct int `json:"distinct"`
	// Numbers summarise the values where all are numbers.
	Numbers *NumbersInfo `json:"numbers,omitempty"`
	// Examples are the first different values.
	Examples []any `json:"examples"`
}

// NumbersInfo summarises numbers.
type NumbersInfo struct {
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// FeatureInfo is one input of the model, or the label or weight, as it is made of the records.
type FeatureInfo struct {
	Name string `json:"name"`
	// Kind is sparse, dense, label or weight.
	Kind string `json:"kind"`
	// Slot is that of a sparse feature.
	Slot int `json:"slot,omitempty"`
	// Rows is how many of the good records have a value, Share what part of them that is.
	Rows  int64   `json:"rows"`
	Share float64 `json:"share"`
	// MaxValues is the largest number of values of a record.
	MaxValues int `json:"max_values"`
	// Distinct is how many different values there are, 1,000 at most.
	Distinct int `json:"distinct"`
	// Numbers summarise a dense feature, a label or a weight, as the model gets it before running moments scale it.
	Numbers *NumbersInfo `json:"numbers,omitempty"`
	// Unscaled tells that a dense feature is far from the size of 1, and nothing in the job scales it.
	Unscaled bool `json:"unscaled,omitempty"`
	// Examples are the first different values; ids are written slot:value.
	Examples []any `json:"examples"`
}

// RowInfo is one record.
type RowInfo struct {
	Split string `json:"split"`
	// Position is where it begins.
	Position int64 `json:"position"`
	// Record is what it holds, by column.
	Record map[string]any `json:"record,omitempty"`
	// Features is what the job makes of it; ids are written slot:value.
	Features map[string]any `json:"features,omitempty"`
}

// SnapshotInfo is what a snapshot holds.
type SnapshotInfo struct {
	// Path is the snapshot's folder.
	Path string `json:"path"`
	// ID numbers the snapshots of a job from 1.
	ID int64 `json:"id"`
	// Which says which of the folder's it is: the newest, the best.
	Which string `json:"which,omitempty"`
	// Best is the path of the best snapshot of the folder, if that is another.
	Best string `json:"best,omitempty"`
	// Damaged are newer snapshots of the folder that cannot be used, and what is wrong with each.
	Damaged []string  `json:"damaged,omitempty"`
	Created time.Time `json:"created"`
	// Digest identifies the content, whatever the number of shards.
	Digest string `json:"digest"`
	// Rows counts the embedding rows of all tables.
	Rows int64 `json:"rows"`
	// Tables and Dense say what there is, Positions how far each source and split was read.
	Tables    []TableInfo                             `json:"tables"`
	Dense     []TensorInfo                            `json:"dense,omitempty"`
	Positions map[string]map[string]position.Progress `json:"positions"`
	// Meta is what the job stored beside: its name, the plan's hash.
	Meta map[string]string `json:"meta,omitempty"`
	// Recipe says what the examples were made of that were trained on: the settings of each feature, label and weight.
	Recipe json.RawMessage `json:"recipe,omitempty"`
}

// TableInfo is one table of a snapshot.
type TableInfo struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
	// Dim is the number of weights of a row.
	Dim int `json:"dim"`
}

// TensorInfo is one dense tensor of a snapshot.
type TensorInfo struct {
	Name  string  `json:"name"`
	Shape []int64 `json:"shape"`
}

// DemoOptions are the knobs of the demo.
type DemoOptions struct {
	RunOptions
	// Examples is the length of the training stream.
	Examples int64
	// Seed makes the world, the model's initial values and everything else.
	Seed uint64
	// Model is "lr", "fm", "deepfm" or "dcnv2".
	Model string
	// Workers is how many batches are trained at once.
	Workers int
	// Dir is where the broker's log and the snapshots go; empty: a new temporary folder, which stays.
	Dir string
}

// DemoResult is what the demo showed.
type DemoResult struct {
	Examples          int64   `json:"examples"`
	ExamplesPerSecond float64 `json:"examples_per_second"`
	Seconds           float64 `json:"seconds"`
	// Rows counts the embedding rows at the end.
	Rows int64 `json:"rows"`
	// Snapshot is the path of the last snapshot.
	Snapshot string `json:"snapshot"`
	// Progressive is measured on each example before it was trained on, over the whole stream.
	Progressive ProgressiveResult `json:"progressive"`
	// HeldOut is measured on the stretch behind the training stream.
	HeldOut HeldOutResult `json:"heldout"`
	// OverTime are the stretches of the stream, in order, each measured before it was trained on.
	OverTime []DemoInterval `json:"over_time"`
	// Dir is the folder that was used.
	Dir string `json:"dir"`
	// ResumedFrom is the number of examples that earlier runs in the same folder had trained on; all else is of all runs.
	ResumedFrom int64 `json:"resumed_from,omitempty"`
	// Drained tells that the demo was asked to stop early.
	Drained bool `json:"drained,omitempty"`
}

// DemoInterval is a stretch of the demo's stream, in the order of training.
type DemoInterval struct {
	// Examples is the number of examples trained on by the end of the stretch.
	Examples          int64   `json:"examples"`
	ExamplesPerSecond float64 `json:"examples_per_second"`
	AUC               float64 `json:"auc"`
	LogLoss           float64 `json:"log_loss"`
	// BestAUC is that of the true click probabilities on the same examples.
	BestAUC float64 `json:"best_auc"`
}

// ProgressiveResult is measured on examples before they were trained on.
type ProgressiveResult struct {
	AUC     float64 `json:"auc"`
	LogLoss float64 `json:"log_loss"`
}

// HeldOutResult compares three predictors on examples nobody trained on.
type HeldOutResult struct {
	// AUC is that of the model trained to the end of the stream.
	AUC float64 `json:"auc"`
	// FrozenAUC is that of the same model as it was half way.
	FrozenAUC float64 `json:"frozen_auc"`
	// BestAUC is that of the true click probabilities: no model can do better but by luck.
	BestAUC float64 `json:"best_auc"`
}

// MarshalJSON writes what is not a number as null.
func (r ProgressiveResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]*float64{"auc": finite(r.AUC), "log_loss": finite(r.LogLoss)})
}

// MarshalJSON writes what is not a number as null.
func (r HeldOutResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]*float64{"auc": finite(r.AUC), "frozen_auc": finite(r.FrozenAUC), "best_auc": finite(r.BestAUC)})
}

// MarshalJSON writes what is not a number as null.
func (i DemoInterval) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Examples          int64    `json:"examples"`
		ExamplesPerSecond *float64 `json:"examples_per_second"`
		AUC               *float64 `json:"auc"`
		LogLoss           *float64 `json:"log_loss"`
		BestAUC           *float64 `json:"best_auc"`
	}{i.Examples, finite(i.ExamplesPerSecond), finite(i.AUC), finite(i.LogLoss), finite(i.BestAUC)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *ProgressiveResult) UnmarshalJSON(b []byte) error {
	return unmarshalNumbers(b, map[string]*float64{"auc": &r.AUC, "log_loss": &r.LogLoss})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *HeldOutResult) UnmarshalJSON(b []byte) error {
	return unmarshalNumbers(b, map[string]*float64{"auc": &r.AUC, "frozen_auc": &r.FrozenAUC, "best_auc": &r.BestAUC})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (i *DemoInterval) UnmarshalJSON(b []byte) error {
	var examples float64
	err := unmarshalNumbers(b, map[string]*float64{
		"examples": &examples, "examples_per_second": &i.ExamplesPerSecond, "auc": &i.AUC, "log_loss": &i.LogLoss, "best_auc": &i.BestAUC,
	})
	i.Examples = int64(examples)
	return err
}

// unmarshalNumbers reads an object's numbers; null and what is missing are not a number.
func unmarshalNumbers(b []byte, into map[string]*float64) error {
	var got map[string]*float64
	if err := json.Unmarshal(b, &got); err != nil {
		return err
	}
	for name, to := range into {
		*to = math.NaN()
		if v := got[name]; v != nil {
			*to = *v
		}
	}
	return nil
}
