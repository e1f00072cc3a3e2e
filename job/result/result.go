package result

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/pipeline/position"
)

// Status is a glance at a run.
type Status struct {
	// Phase is what continues: "train", "eval", "predict", "export", "upload", "fetch".
	Phase string
	// Bytes: it counts bytes and not examples.
	Bytes bool
	// Examples counts the examples done in this phase, by all workers, Total those there will be; Total is 0 when nobody
	// knows.
	Examples, Total int64
	// Workers is how many workers there are, 0 where the job has this one process. Lag and Scores are of this worker.
	Workers int
	// Bad counts the records that this run has left out.
	Bad int64
	// Rate is in examples per second, over the last seconds; NaN where there is nothing to measure it by yet.
	Rate float64
	// Lag is the number of records the source holds and nobody has read yet; -1: not known.
	Lag int64
	// Scores are the first metrics of each head over the last window of examples, computed before each was trained on; none
	// where nothing is known.
	Scores []HeadScore
	// Outputs are those of the job that fall behind: they lack rows that are trained, or have been busy for seconds.
	Outputs []OutputState
	// Epoch counts from 1; Epochs is how many there will be, 0: not known.
	Epoch, Epochs int
	// Elapsed is the time since the run began.
	Elapsed time.Duration
}

// OutputState is how an output of this process does.
type OutputState struct {
	Name string
	// Lacks is how many rows are trained that the output was not given yet: they are read again for it.
	Lacks int64
	// Waits is how long it has been busy with one batch, file or transaction; 0 below two seconds.
	Waits time.Duration
}

// HeadScore is one metric of a head, NaN where the examples do not define it.
type HeadScore struct {
	// Head is empty in a job without heads.
	Head   string
	Metric string
	Value  float64
}

// Scores holds metrics by name: "auc", "log_loss", or with heads "click.auc", "price.rmse".
type Scores map[string]float64

// MarshalJSON writes what is not a number (the AUC of one class only, for example) as null.
func (m Scores) MarshalJSON() ([]byte, error) {
	out := make(map[string]*float64, len(m))
	for k, v := range m {
		out[k] = Finite(v)
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads null as what is not a number.
func (m *Scores) UnmarshalJSON(b []byte) error {
	var in map[string]*float64
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	if in == nil {
		*m = nil
		return nil
	}
	*m = make(Scores, len(in))
	for k, v := range in {
		if v == nil {
			(*m)[k] = math.NaN()
		} else {
			(*m)[k] = *v
		}
	}
	return nil
}

// SplitScore takes the name of a score apart: "click.auc" is the auc of head click, "auc" that of a job without heads.
func SplitScore(name string) (head, metric string) {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}

// Names lists the metrics in alphabetical order.
func (m Scores) Names() []string { return slices.Sorted(maps.Keys(m)) }

// Finite is nil for what is not a number, which JSON does not have.
func Finite(v float64) *float64 {
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
	// before, "training_" when there are several epochs, and with "lifetime_" of all examples since the source began, where each was scored before (auc,
	// by buckets of predictions that differ by less than .4 %, log_loss, calibration and rmse). With heads the prefix stands after the head's name: "click.best_auc".
	Metrics Scores `json:"metrics"`
	// ProgressiveExamples and TrainingExamples are how many examples the metrics with these prefixes are over: the last ones
	// trained on, 65,536 at most, earlier runs included.
	ProgressiveExamples int64 `json:"progressive_examples,omitempty"`
	TrainingExamples    int64 `json:"training_examples,omitempty"`
	// LifetimeExamples is how many examples the metrics with the prefix "lifetime_" are over, earlier runs included.
	LifetimeExamples int64 `json:"lifetime_examples,omitempty"`
	// Doubts say what speaks against the metrics: labels that are all the same, an AUC that is too good to be true or that of guessing, probabilities worse than a constant, an earlier epoch that was better.
	Doubts []string `json:"doubts,omitempty"`
	// BadRows counts what was left out, by reason.
	BadRows map[string]int64 `json:"bad_rows,omitempty"`
	// HeldOut counts the examples that this run passed over because the job holds them out (eval.holdout): each once for each epoch, however often it was read.
	HeldOut int64 `json:"held_out,omitempty"`
	// RowsRemoved are the rows of embedding tables that went by the job's retention meanwhile, by cause: expired, evicted.
	RowsRemoved map[string]int64 `json:"rows_removed,omitempty"`
	// LostRecords counts records that were gone before they were read and were passed over, Lost says which they were, up to
	// the first hundred gaps.
	LostRecords int64       `json:"lost_records,omitempty"`
	Lost        []LostRange `json:"lost,omitempty"`
	// Features describes how many of the examples that were read had a value of each feature.
	Features []FillInfo `json:"features,omitempty"`
	// Snapshot is the path of the newest snapshot, empty when none was taken.
	Snapshot string `json:"snapshot"`
	// BestSnapshot is the path of the snapshot of the best evaluation, of several epochs that were evaluated one by one or under train.early_stop, and BestEpoch the epoch that
	// it came after; empty when there is none, or when it lies on another machine.
	BestSnapshot string `json:"best_snapshot,omitempty"`
	BestEpoch    int    `json:"best_epoch,omitempty"`
	// ResumedFrom is the path of the snapshot the run continued from, empty when it started over.
	ResumedFrom string `json:"resumed_from,omitempty"`
	// Backfill is what of the history of the job's stream was trained on; nil for a run on the source.
	Backfill *Backfill `json:"backfill,omitempty"`
	// Drained reports whether the run was asked to stop before its input ended.
	Drained bool `json:"drained,omitempty"`
	// EarlyStopped reports whether train.early_stop ended the run.
	EarlyStopped bool `json:"early_stopped,omitempty"`
}

// ExportedModel is a model, or the rows of one, in files of another format.
type ExportedModel struct {
	// Snapshot is the folder it is of, and Dir that of the files, whose format is Format.
	Snapshot string `json:"snapshot"`
	Dir      string `json:"dir"`
	Format   string `json:"format"`
	// Rows are those that files have now, those of earlier runs among them.
	Rows   int64       `json:"rows"`
	Tables []TableRows `json:"tables"`
	// Already reports whether the store had all of it before; Rows and Tables are not known then.
	Already bool `json:"already,omitempty"`
	// Removed are the folders of exports that did not stay.
	Removed []string `json:"removed,omitempty"`
	// Drained reports whether the run was asked to stop before all was written.
	Drained bool    `json:"drained,omitempty"`
	Seconds float64 `json:"seconds"`
}

// VerifiedExport is what was found in a native export.
type VerifiedExport struct {
	Dir string `json:"dir"`
	// Job, Snapshot and Rows say what it is of.
	Job      string `json:"job"`
	Snapshot uint64 `json:"snapshot"`
	Rows     int64  `json:"rows"`
	// Faults say what is wrong, each with its file; none: it is whole.
	Faults []string `json:"faults"`
}

// TableRows is what was written of one table.
type TableRows struct {
	Name string `json:"name"`
	Dir  string `json:"dir"`
	// Rows of the table's Of are in files, Earlier of them since earlier runs.
	Rows    int64 `json:"rows"`
	Of      int64 `json:"of"`
	Earlier int64 `json:"earlier,omitempty"`
}

// Predicted is what was predicted.
type Predicted struct {
	// Snapshot is the path of the one that made the predictions, Which says which of its folder it is.
	Snapshot string `json:"snapshot"`
	Which    string `json:"which,omitempty"`
	// To is the kind of the sink, Place its folder as the job names it or, where it has none, its kind. Output tells these predictions from others in one topic.
	To     string   `json:"to"`
	Place  string   `json:"place"`
	Output string   `json:"output"`
	Fields []string `json:"fields"`
	// Rows are those that are there now, Earlier of them since earlier runs.
	Rows    int64 `json:"rows"`
	Earlier int64 `json:"earlier,omitempty"`
	// Drained reports whether the run was asked to stop before the source's end.
	Drained           bool    `json:"drained,omitempty"`
	Seconds           float64 `json:"seconds"`
	ExamplesPerSecond float64 `json:"examples_per_second"`
	// BadRows counts what this run left out, by reason.
	BadRows map[string]int64 `json:"bad_rows,omitempty"`
	// Features describes how many of the examples that were read had a value of each feature.
	Features []FillInfo `json:"features,omitempty"`
}

// Backfill is a part of the history of a stream, [From, To).
type Backfill struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Complete reports whether all of it is trained on, so that training on the stream can begin.
	Complete bool `json:"complete"`
	// Files is how many files it is in; 0: it is in the stream itself.
	Files int `json:"files,omitempty"`
	// OtherTimes counts records of this run whose event times lie outside of the range. A topic is read
	// between two offsets, and times need not ascend.
	OtherTimes int64 `json:"other_times,omitempty"`
	// Begins is where the stream begins after it: positions by split.
	Begins map[string]int64 `json:"begins"`
}

// LostRange is a range of positions [From, To) of a split.
type LostRange struct {
	Split string `json:"split"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
}

// Interval is where a figure lies with 95 in a hundred: of as many other examples from where these came from it would be in there that
// often. Both ends are NaN where it is not known.
type Interval struct{ Low, High float64 }

// MarshalJSON writes [low, high], null for what is not known.
func (i Interval) MarshalJSON() ([]byte, error) {
	return json.Marshal([]*float64{Finite(i.Low), Finite(i.High)})
}

// Difference is how far a metric lies above the same one of the model compared with, or that of a slice above that of all examples.
type Difference struct {
	Value    float64
	Interval Interval
	// Errors is how many of its standard errors the value is: beyond 2, or below -2, it is hardly chance. NaN where it is not known.
	Errors float64
}

// MarshalJSON writes what is not known as null.
func (d Difference) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Value    *float64 `json:"difference"`
		Interval Interval `json:"interval"`
		Errors   *float64 `json:"standard_errors"`
	}{Finite(d.Value), d.Interval, Finite(d.Errors)})
}

// Measured is the metrics of some examples, by the names of [Scores], with what is known about them.
type Measured struct {
	Examples int64  `json:"examples"`
	Metrics  Scores `json:"metrics"`
	// Intervals are those of Metrics, where the evaluation has a bootstrap.
	Intervals map[string]Interval `json:"intervals,omitempty"`
	// Other are the metrics of the model compared with, and Differences how far Metrics lie above them; none without one.
	Other       Scores                `json:"other,omitempty"`
	Differences map[string]Difference `json:"differences,omitempty"`
	// Few lists the metrics that have no interval and no standard errors, because there are too few examples
	// for one: fewer than 10 positives or 10 negatives for metrics of probabilities, 20 for others. With
	// eval.group groups count in place of examples.
	Few []string `json:"few,omitempty"`
	// Groups says how many groups and examples the metrics of groups are computed of, by their names.
	Groups map[string]GroupCount `json:"groups,omitempty"`
	// Doubts say what speaks against Metrics of all examples, as of [TrainResult].
	Doubts []string `json:"doubts,omitempty"`
}

// GroupCount is what a metric of groups is computed of. A group counts in gauc if it has positives and
// negatives, in xgauc if its labels differ, in ndcg, hr, recall and mrr if it has a positive.
type GroupCount struct {
	// Groups are the groups that count, of OfGroups. Examples are theirs, of OfExamples.
	Groups     int `json:"groups"`
	OfGroups   int `json:"of_groups"`
	Examples   int `json:"examples"`
	OfExamples int `json:"of_examples"`
}

// SliceScores are the metrics of one head over the examples with one value of a column, or of two.
type SliceScores struct {
	Head   string `json:"head,omitempty"`
	Column string `json:"column"`
	// Value is the column's; empty where it is missing, and where Others tells how many values are measured together, because
	// they are rarer than eval.slices shows.
	Value string `json:"value"`
	// With and WithValue are those of the second column of a cross.
	With      string `json:"with,omitempty"`
	WithValue string `json:"with_value,omitempty"`
	Others    int    `json:"others,omitempty"`
	Measured
	// FromAll is how far Metrics lie above those of all examples, where the evaluation has a bootstrap.
	FromAll map[string]Difference `json:"from_all,omitempty"`
}

// Curves are what is drawn of one head.
type Curves struct {
	Head string `json:"head,omitempty"`
	// ROC is the points of the curve, false positives and true positives; none where it is not defined.
	ROC [][2]float64 `json:"roc,omitempty"`
	// Bins have equal width, MassBins equal weight; none for what is no probability.
	Bins     []CalibrationBin `json:"calibration,omitempty"`
	MassBins []CalibrationBin `json:"calibration_equal_mass,omitempty"`
	// Low and High are the bounds of the histograms, whose bins are of one width.
	Low       float64   `json:"histogram_low"`
	High      float64   `json:"histogram_high"`
	Negatives []float64 `json:"histogram_negatives"`
	Positives []float64 `json:"histogram_positives"`
}

// CalibrationBin is the examples with predictions from Low to High: their weight, mean prediction and mean label.
type CalibrationBin struct {
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
	Weight    float64 `json:"weight"`
	Predicted float64 `json:"predicted"`
	Happened  float64 `json:"happened"`
}

// Compared is the model that an evaluation compares with.
type Compared struct {
	// Job is the job's name where it is another one, Snapshot the path of the snapshot, Which says which that is.
	Job      string `json:"job,omitempty"`
	Snapshot string `json:"snapshot"`
	Which    string `json:"which,omitempty"`
	// Curves are those of the heads that both have.
	Curves []Curves `json:"curves,omitempty"`
}

// EvalResult is what an evaluation found.
type EvalResult struct {
	Measured
	ExamplesPerSecond float64 `json:"examples_per_second"`
	Seconds           float64 `json:"seconds"`
	// Replicates is how many the intervals are made of; 0: there are none.
	Replicates int `json:"replicates,omitempty"`
	// ComparedWith is the other model; nil: there is none.
	ComparedWith *Compared `json:"compared_with,omitempty"`
	// Slices are the metrics of each head by the values of eval.slices.
	Slices []SliceScores `json:"slices,omitempty"`
	// Curves are those of each head, if they were asked for.
	Curves  []Curves         `json:"curves,omitempty"`
	BadRows map[string]int64 `json:"bad_rows,omitempty"`
	// Features describes how many of the examples had a value of each feature.
	Features []FillInfo `json:"features,omitempty"`
	// Snapshot is the path of the snapshot that was evaluated, Which says which that is.
	Snapshot string `json:"snapshot"`
	Which    string `json:"which,omitempty"`
	// Part is what eval.outputs call what they have written of this evaluation: a folder, or the end of the header output.
	Part string `json:"part,omitempty"`
}

// Insight is what the features and layers of a model do on the examples of an evaluation.
type Insight struct {
	Examples int64   `json:"examples"`
	Seconds  float64 `json:"seconds"`
	// Metrics are those of each head that are looked at while training, of the examples as they are.
	Metrics Scores `json:"metrics"`
	// Features are in the order of how much worse the first metric gets without what they say, Layers in that of the model.
	Features []FeatureInsight `json:"features"`
	Layers   []LayerInsight   `json:"layers"`
	BadRows  map[string]int64 `json:"bad_rows,omitempty"`
	// Snapshot is the path of the snapshot whose model it is, Which says which that is.
	Snapshot string `json:"snapshot"`
	Which    string `json:"which,omitempty"`
}

// FeatureInsight is what a feature does.
type FeatureInsight struct {
	Name string `json:"name"`
	// Table is that of a sparse feature; empty: the feature is dense.
	Table string `json:"table,omitempty"`
	// Share is that of the examples that have a value of it: an id, or a number other than 0.
	Share float64 `json:"share"`
	// Length is the root of the mean squared length of its ids' weights, or of its numbers.
	Length float64 `json:"length"`
	// Gradient is that of the gradients of an example's loss by the weights of an id; nil: the feature is dense, or it is not finite.
	Gradient *float64 `json:"gradient,omitempty"`
	// Changes are those of the metrics where examples have each other's values of the feature.
	Changes Scores `json:"changes"`
}

// LayerInsight is what a dense tensor does that is trained.
type LayerInsight struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	// Gradient is the root of the mean squared length of its gradients, of batches; nil: it is not finite.
	Gradient *float64 `json:"gradient,omitempty"`
	// Idle is how many of its columns had no gradient in any batch: those of units that never fire, and of what is not used.
	Columns int `json:"columns"`
	Idle    int `json:"idle"`
}

// Plan is a checked graph that can be shown. Text is for people, DOT for Graphviz, Mermaid for Markdown pages, JSON for
// programs.
type Plan interface {
	Text() string
	DOT() string
	Mermaid() string
	JSON() string
}

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

// FeatureInfo is one input of the model, or the label of a head or the weight, as it is made of the records.
type FeatureInfo struct {
	// Name is that of the feature or of the head; label in a job without heads.
	Name string `json:"name"`
	// Column is where [RowInfo].Features has it.
	Column string `json:"column"`
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
	// Unscaled reports whether a dense feature is far from the size of 1, and nothing in the job scales it.
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
	// Which describes which of the folder's it is: the newest, the best.
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
	// Model is the name of the model in the job that trained it, empty where a program did not say.
	Model string `json:"model,omitempty"`
	// Heads are what the model predicts, Features its inputs, in its order.
	Heads    []SnapshotHead    `json:"heads,omitempty"`
	Features []SnapshotFeature `json:"features,omitempty"`
	// Tables and Dense say what there is, Positions how far each source and split was read.
	Tables    []TableInfo                             `json:"tables"`
	Dense     []TensorInfo                            `json:"dense,omitempty"`
	Positions map[string]map[string]position.Progress `json:"positions"`
	// Kernels is the family of kernels that the job began with, empty where a program did not say.
	Kernels string `json:"kernels,omitempty"`
	// ReferenceBatch is what gradients of rows are sums over a batch divided by, 0 where a program did not say.
	ReferenceBatch int `json:"reference_batch,omitempty"`
	// Meta is what the job stored beside: its name, the plan's hash.
	Meta map[string]string `json:"meta,omitempty"`
	// Recipe describes what the examples were made of that were trained on: the settings of each feature, label and weight.
	Recipe json.RawMessage `json:"recipe,omitempty"`
}

// SnapshotSlots is what a snapshot has of each slot.
type SnapshotSlots struct {
	// Path, ID, Which and Damaged are those of [SnapshotInfo].
	Path    string    `json:"path"`
	ID      int64     `json:"id"`
	Which   string    `json:"which,omitempty"`
	Damaged []string  `json:"damaged,omitempty"`
	Created time.Time `json:"created"`
	// Rows counts the embedding rows of all tables.
	Rows int64 `json:"rows"`
	// Newest is the largest event time of a row, or of a fid that waits for one; nil: none has a time.
	Newest *time.Time `json:"newest,omitempty"`
	// Slots are those that have a row or a fid that waits for one, in the order of tables and then of slots.
	Slots []SlotInfo `json:"slots"`
}

// SlotInfo describes the rows that a table has of one slot.
type SlotInfo struct {
	Table string `json:"table"`
	Slot  int    `json:"slot"`
	// Features are those of the slot, where the snapshot's recipe names them.
	Features []string `json:"features,omitempty"`
	Rows     int64    `json:"rows"`
	// Share is that of the rows of the table.
	Share float64 `json:"share"`
	// Bytes is what the rows take in the memory of shards, about.
	Bytes int64 `json:"bytes"`
	// Occurrences is the sum of the rows' counts, and Once how many of them have a count of 1.
	Occurrences uint64 `json:"occurrences"`
	Once        int64  `json:"once"`
	// MeanNorm is the mean of the Euclidean norms of the rows' weights, all segments together.
	MeanNorm float64 `json:"mean_norm"`
	// Ages are those of the rows but the Timeless, which have no event time; nil: all are such.
	Ages     *SlotAges `json:"ages,omitempty"`
	Timeless int64     `json:"timeless,omitempty"`
	// Waiting is how many fids are counted and wait for a row.
	Waiting int64 `json:"waiting,omitempty"`
}

// SlotAges is how long ago rows were updated last, in seconds of event time before [SnapshotSlots].Newest. Max is exact. P50 and P90, which half
// and nine tenths of the rows do not exceed, may be up to 1/32 too large, and never too small.
type SlotAges struct {
	P50 float64 `json:"p50_seconds"`
	P90 float64 `json:"p90_seconds"`
	Max float64 `json:"max_seconds"`
}

// TableInfo is one table of a snapshot.
type TableInfo struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
	// Dim is the number of weights of a row, of all Segments together.
	Dim      int           `json:"dim"`
	Segments []SegmentInfo `json:"segments"`
}

// SegmentInfo is a part of the rows of a table.
type SegmentInfo struct {
	Name string `json:"name"`
	Dim  int    `json:"dim"`
}

// SnapshotHead is an output of the model of a snapshot.
type SnapshotHead struct {
	Name string `json:"name"`
	Loss string `json:"loss"`
	// Label and Mask are the columns of records that it learnt from, with the condition where there is one ("rating >= 4"). Mask is
	// empty where all rows have the label, and "(no label)" where those have none that lack it.
	Label  string  `json:"label,omitempty"`
	Mask   string  `json:"mask,omitempty"`
	Weight float32 `json:"weight"`
}

// SnapshotFeature is an input of the model of a snapshot.
type SnapshotFeature struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // sparse or dense
	// Column is where its value is in a record; empty for one that is made of another feature.
	Column string `json:"column,omitempty"`
	// Slot and Table are those of a sparse feature, Dim is the width of a dense one.
	Slot  int    `json:"slot,omitempty"`
	Table string `json:"table,omitempty"`
	Dim   int    `json:"dim,omitempty"`
}

// ModelInfo describes a model.
type ModelInfo struct {
	// Snapshot is the snapshot that it was read from, empty for that of a job file; Damaged are as in [SnapshotInfo].
	Snapshot string   `json:"snapshot,omitempty"`
	Damaged  []string `json:"damaged,omitempty"`
	// Model is its name in the job, empty where a program did not say.
	Model string `json:"model,omitempty"`
	// Parameters counts the numbers of all dense tensors, RowParameters the weights of all rows, which only a snapshot has.
	Parameters    int64 `json:"parameters"`
	RowParameters int64 `json:"row_parameters"`
	// FLOPs are the additions and multiplications of one prediction of one example, each of whose sparse features has Entries ids.
	FLOPs   float64 `json:"flops"`
	Entries float64 `json:"entries"`
	// PredictBytes are the values between operators that a batch of MemoryBatch examples needs at a time, TrainBytes those and their gradients in training.
	MemoryBatch  int   `json:"memory_batch"`
	PredictBytes int64 `json:"predict_bytes"`
	TrainBytes   int64 `json:"train_bytes"`
	// Operators are those that a head depends on, as they were declared, inputs before those who take them.
	Operators []OperatorInfo `json:"operators"`
	Tensors   []ModelTensor  `json:"tensors"`
	Tables    []ModelTable   `json:"tables"`
	Heads     []ModelHead    `json:"heads"`
	// DOT draws the operators in the language of Graphviz.
	DOT string `json:"dot"`
}

// ModelEntry is a model that a job can name.
type ModelEntry struct {
	Name string `json:"name"`
	// Doc says in a line what it is.
	Doc string `json:"doc"`
	// Heads reports whether it takes any number of heads; otherwise it has one.
	Heads bool `json:"heads"`
	// Parameters counts the numbers of its dense tensors, RowDim those of the row of an id, and FLOPs the additions and multiplications of one prediction, all
	// with the defaults of its settings. They are 0 where a model is not made of settings alone.
	Parameters int64   `json:"parameters"`
	RowDim     int     `json:"row_dim"`
	FLOPs      float64 `json:"flops"`
	// ExamplesPerSecond is how many examples a core takes forward and back in a second of its time, and Control the second measurement to the first, the median of both over
	// rounds; 0 where nothing was measured.
	ExamplesPerSecond float64 `json:"examples_per_second,omitempty"`
	Control           float64 `json:"control,omitempty"`
}

// OperatorInfo is an operator of a model's graph.
type OperatorInfo struct {
	// ID is its number; Inputs are those of the operators whose values it takes.
	ID     int   `json:"id"`
	Inputs []int `json:"inputs"`
	// Operator has its name and settings, Shape its value's.
	Operator string `json:"operator"`
	Shape    string `json:"shape"`
	// FLOPs are its part of a prediction of one example; operators that run as one take less together.
	FLOPs float64 `json:"flops"`
}

// ModelTensor is a dense parameter of a model.
type ModelTensor struct {
	Name       string `json:"name"`
	Shape      []int  `json:"shape"`
	Parameters int64  `json:"parameters"`
	Init       string `json:"init"`
	Optimizer  string `json:"optimizer"`
}

// ModelTable is a table of a model. Rows is 0 but of a snapshot.
type ModelTable struct {
	Name     string         `json:"name"`
	Dim      int            `json:"dim"`
	Rows     int64          `json:"rows"`
	Segments []ModelSegment `json:"segments"`
}

// ModelSegment is a part of the rows of a table.
type ModelSegment struct {
	Name      string `json:"name"`
	Dim       int    `json:"dim"`
	Init      string `json:"init"`
	Optimizer string `json:"optimizer"`
}

// ModelHead is an output of a model.
type ModelHead struct {
	Name   string  `json:"name"`
	Loss   string  `json:"loss"`
	Weight float32 `json:"weight"`
}

// NearestRows are the rows of a table whose vectors are nearest to that of one of them.
type NearestRows struct {
	Snapshot string   `json:"snapshot"`
	Damaged  []string `json:"damaged,omitempty"`
	Table    string   `json:"table"`
	Segment  string   `json:"segment"`
	ID       int64    `json:"id"`
	Slot     int      `json:"slot"`
	// Compared counts the rows that were looked at, but for that of ID itself.
	Compared int64 `json:"compared"`
	// Rows are the nearest, the nearest first; of equal ones that with the smaller id.
	Rows []NearRow `json:"rows"`
}

// NearRow is a row beside another.
type NearRow struct {
	ID   int64 `json:"id"`
	Slot int   `json:"slot"`
	// Cosine is that of the angle between the vectors, in [-1, 1].
	Cosine      float64    `json:"cosine"`
	Occurrences uint64     `json:"occurrences"`
	Updated     *time.Time `json:"updated,omitempty"`
}

// TensorInfo is one dense tensor of a snapshot.
type TensorInfo struct {
	Name  string  `json:"name"`
	Shape []int64 `json:"shape"`
}

// FillInfo describes how many examples had a value of a feature.
type FillInfo struct {
	// Feature is its name, Column where it is looked for in a record.
	Feature string `json:"feature"`
	Column  string `json:"column"`
	// Rows counts the examples, Filled those with a value, which the feature's default is not.
	Rows   int64 `json:"rows"`
	Filled int64 `json:"filled"`
	// Cut counts the examples that had more values than the feature's max.
	Cut int64 `json:"cut,omitempty"`
	// Nearest is the name that records have and that is probably meant, when no example had a value; empty when there is
	// none, or the format does not say.
	Nearest string `json:"nearest,omitempty"`
}

// Share is the part of the examples with a value, 0 to 1; without examples it is 0.
func (f FillInfo) Share() float64 { return float64(f.Filled) / float64(max(f.Rows, 1)) }

// Proposed is a job that was made of a sample of its source.
type Proposed struct {
	// Name is the job's name.
	Name string `json:"name"`
	// Job is the job file.
	Job string `json:"job"`
	// Read is how many records were looked at.
	Read int64 `json:"read"`
	// Notes are what a person should know beside.
	Notes []string `json:"notes,omitempty"`
}

// Scaled describes a change of the number of shards.
type Scaled struct {
	// Before is how many there were, Shards how many there are; equal where there was nothing to do.
	Before    int      `json:"before"`
	Shards    int      `json:"shards"`
	Addresses []string `json:"addresses"`
	// Snapshot is the one by which the rows moved, Rows how many it holds.
	Snapshot string `json:"snapshot,omitempty"`
	Rows     int64  `json:"rows"`
	// Again counts the examples that are trained again, because they came after the snapshot's cut.
	Again int64 `json:"again"`
	// Took is the time of all in seconds, Pause that in which workers waited for the shards' state.
	Took  float64 `json:"took_seconds"`
	Pause float64 `json:"pause_seconds"`
}

// ServeResult describes what serving came to.
type ServeResult struct {
	Shards []int `json:"shards"`
	// Snapshot is the last snapshot; empty when this process does not coordinate, or there is none.
	Snapshot string  `json:"snapshot,omitempty"`
	Seconds  float64 `json:"seconds"`
}
