package tune_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/table"
)

// clicks writes rows whose label depends on a user and an item, some of which have no number.
func clicks(t *testing.T, rows, bad int) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	var users, items [60]float64
	for i := range users {
		users[i], items[i] = rng.NormFloat64(), rng.NormFloat64()
	}
	var b strings.Builder
	b.WriteString("label,user,item,age\n")
	for i := range rows {
		u, v, age := rng.IntN(len(users)), rng.IntN(len(items)), rng.NormFloat64()
		label := 0
		if rng.Float64() < 1/(1+math.Exp(-(users[u]+items[v]+age))) {
			label = 1
		}
		text := fmt.Sprintf("%.3f", age)
		if bad > 0 && i%bad == 0 {
			text = "none"
		}
		fmt.Fprintf(&b, "%d,%d,%d,%s\n", label, u, v, text)
	}
	path := filepath.Join(t.TempDir(), "clicks.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// text is a job with a rate of embedding vectors and weights.
func text(dir, data, model, more string) string {
	return fmt.Sprintf(`# clicks of users
version: 1
dir: %q      # where snapshots go
source: {text: {files: [%q]}}   # one file
parse:
  format: csv
  header: true
  features:
    - {name: user, slot: 1}
    - {name: item, slot: 2}   # what was shown
    - {name: age, kind: dense}
  label: label

# the model
model: %s
eval: {holdout: {share: 0.2}}
train:
  batch: 64 # rows
%s`, dir, data, model, more)
}

// slow has rates that learn nothing.
const slow = `optimizer:
  bias:
    ftrl: {lr: 0.0001}   # too low
  dense: {adam: {lr: 0.000001}}
`

func load(t *testing.T, text string, set ...string) *job.Config {
	t.Helper()
	cfg, err := job.Decode([]byte(text), "clicks.yaml", job.LoadOptions{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func tune(t *testing.T, cfg *job.Config, o job.TuneOptions) *job.Tuned {
	t.Helper()
	if o.Rows == 0 {
		o.Rows = 400
	}
	if o.Trials == 0 {
		o.Trials = 10
	}
	if o.Time == 0 {
		o.Time = time.Hour
	}
	r, err := job.Tune(t.Context(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// heldOut trains a job and returns its log loss of what it holds out.
func heldOut(t *testing.T, text, dir string) float64 {
	t.Helper()
	r, err := job.Run(t.Context(), load(t, text, "dir="+dir), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Metrics["log_loss"]
}

// TestFindsBetterRates: of a job that learns nothing a search makes one that does, in its own file.
func TestFindsBetterRates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	was := text(filepath.Join(dir, "run"), clicks(t, 6000, 0), "lr   # the simplest", slow)
	cfg := load(t, was)
	var notices []string
	o := job.TuneOptions{Trials: 12, Notice: func(s string) { notices = append(notices, s) }}
	o.Logger = slog.New(onTrial(func() { // disk is bounded: what was measured is gone
		if left, err := os.ReadDir(filepath.Join(job.TuneDir(cfg), "trials")); err != nil || len(left) > 0 {
			t.Errorf("left of trials: %v, %v", left, err)
		}
	}))
	r := tune(t, cfg, o)
	if r.Best == 0 || r.Metric != "log_loss" || !r.Lower || r.On != "eval.holdout" || float64(r.Gain) < 0.02 || len(r.Rows) != 3 || r.Candidates[0].Number != r.Best {
		t.Fatalf("%+v", r)
	}
	if len(notices) != len(r.Rows) {
		t.Errorf("notices %q", notices)
	}
	for _, want := range []string{"# clicks of users\n", "# where snapshots go\n", "   # one file\n", "# what was shown\n", "# the simplest\n", "# too low\n", " # rows\n"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the tuned job lacks %q:\n%s", want, r.Text)
		}
	}
	tuned := load(t, r.Text)
	if tuned.Dir != cfg.Dir+"-tuned" {
		t.Errorf("dir %s, of the job %s", tuned.Dir, cfg.Dir)
	}
	for _, c := range r.Candidates[0].Changes {
		if got := setting(tuned, c.Key); got != c.Value || c.Was == c.Value {
			t.Errorf("%s is %s, want %s (was %s)", c.Key, got, c.Value, c.Was)
		}
	}
	a, b := heldOut(t, was, filepath.Join(dir, "a")), heldOut(t, r.Text, filepath.Join(dir, "b"))
	if b > a-0.02 {
		t.Errorf("log loss %.4f, of the tuned job %.4f", a, b)
	}
	// The table of a tuned job is replaced by that of the next search.
	again := tune(t, load(t, r.Text), job.TuneOptions{Trials: 2, Rows: 200})
	if n := strings.Count(again.Text, "# Tuned by"); n != 1 {
		t.Errorf("%d tables:\n%s", n, again.Text)
	}
	entries, err := os.ReadDir(r.Dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left in %s: %v, %v", r.Dir, entries, err)
	}
}

func setting(cfg *job.Config, key string) string {
	for _, s := range cfg.Effective() {
		if s.Path == key {
			return s.Value
		}
	}
	return ""
}

// without leaves out what differs between two equal searches.
var without = cmp.Options{
	cmpopts.IgnoreFields(job.TunedCandidate{}, "Seconds"), cmpopts.IgnoreFields(job.Tuned{}, "Seconds", "Dir", "Earlier", "Text"), cmpopts.EquateNaNs(),
}

// onTrial is a log handler that is called for each trial that is done.
type onTrial func()

func (onTrial) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (h onTrial) WithAttrs([]slog.Attr) slog.Handler         { return h }
func (h onTrial) WithGroup(string) slog.Handler              { return h }

func (h onTrial) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "trial" {
		h()
	}
	return nil
}

// TestContinues: a search that is ended again and again ends with the table of one that nobody ended.
func TestContinues(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), clicks(t, 4000, 0)
	cfg := load(t, text(filepath.Join(dir, "run"), data, "{fm: {dim: 4}}", slow))
	whole := tune(t, cfg, job.TuneOptions{Dir: filepath.Join(dir, "whole")})
	o := job.TuneOptions{Dir: filepath.Join(dir, "parts"), Rows: 400, Trials: 10, Time: time.Hour}
	ends := 0
	for {
		ctx, cancel := context.WithCancel(t.Context())
		left := 4
		o.Logger = slog.New(onTrial(func() {
			if left--; left == 0 {
				cancel()
			}
		}))
		r, err := job.Tune(ctx, cfg, o)
		cancel()
		if errors.Is(err, context.Canceled) {
			if ends++; ends > 20 {
				t.Fatal("it does not come to its end")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole, r, without); diff != "" || r.Earlier == 0 || ends < 3 {
			t.Errorf("ended %d times, %d trials earlier (-whole +parts):\n%s", ends, r.Earlier, diff)
		}
		// It is complete: nothing is tried again.
		if r, err = job.Tune(t.Context(), cfg, o); err != nil || r.Earlier != r.Trials {
			t.Errorf("%d of %d trials earlier, %v", r.Earlier, r.Trials, err)
		}
		break
	}
	drain := make(chan struct{})
	close(drain)
	r, err := job.Tune(t.Context(), cfg, job.TuneOptions{Dir: filepath.Join(dir, "drained"), Drain: drain})
	if err != nil || !r.Drained || r.Trials != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestOtherSearch: a state is not continued by another search, and the error says what is other.
func TestOtherSearch(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), clicks(t, 600, 0)
	job0 := text(filepath.Join(dir, "run"), data, "lr", "")
	o := job.TuneOptions{Dir: filepath.Join(dir, "tune"), Rows: 100, Trials: 3, Seed: 1}
	tune(t, load(t, job0), o)
	for want, change := range map[string]func(o *job.TuneOptions) *job.Config{
		"the job file": func(*job.TuneOptions) *job.Config { return load(t, job0+"# other\n") },
		"--set":        func(*job.TuneOptions) *job.Config { return load(t, job0, "train.batch=32") },
		"--seed":       func(o *job.TuneOptions) *job.Config { o.Seed = 2; return load(t, job0) },
		"--rows":       func(o *job.TuneOptions) *job.Config { o.Rows = 120; return load(t, job0) },
		"--trials":     func(o *job.TuneOptions) *job.Config { o.Trials = 4; return load(t, job0) },
		"--models":     func(o *job.TuneOptions) *job.Config { o.Models = []string{"fm"}; return load(t, job0) },
		"--metric":     func(o *job.TuneOptions) *job.Config { o.Metric = "auc"; return load(t, job0) },
	} {
		other := o
		cfg := change(&other)
		_, err := job.Tune(t.Context(), cfg, other)
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want+" changed since") || !strings.Contains(err.Error(), "--restart") {
			t.Errorf("%s: %v", want, err)
		}
	}
	state := filepath.Join(o.Dir, "tune.json")
	if err := os.WriteFile(state, []byte(`{"version": 1, "rows": [], "trials": [{"candidate": 77}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Tune(t.Context(), load(t, job0), o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
	o.Restart = true
	if r := tune(t, load(t, job0), o); r.Earlier != 0 || r.Trials == 0 {
		t.Errorf("%+v", r)
	}
}

// files lists what is below a folder, with what is in each file.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = string(b)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

// TestTouchesNothing: a search of a job on a topic with a consumer group, outputs, dead letters, uploads
// and a metrics endpoint leaves all of these as they are.
func TestTouchesNothing(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Options{Topics: map[string]int{"clicks": 2, "letters": 1, "scores": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	rng := rand.New(rand.NewPCG(3, 3))
	for partition := range 2 {
		var records []broker.Record
		for i := range 500 {
			a := rng.IntN(9)
			value := fmt.Sprintf("%d %d:1 %d:1", 1-2*(a%2), a, 20+rng.IntN(5))
			if i%10 == 3 {
				value = "bad"
			}
			records = append(records, broker.Record{Value: []byte(value), Time: time.UnixMilli(int64(i + 1))})
		}
		if err := broker.Produce(t.Context(), b.Addrs(), "clicks", partition, broker.Batch{Size: 50}, records...); err != nil {
			t.Fatal(err)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // a test's
	dir := t.TempDir()
	cfg := load(t, fmt.Sprintf(`
version: 1
name: clicks
dir: %q
source: {kafka: {brokers: [%[2]s], topic: clicks, group_id: ours, start: latest, max_wait: 20ms, retry_for: 5s}}
parse: {format: libfm, fields: [a, b]}
model: {fm: {dim: 4}}
train: {batch: 20, workers: 2, on_bad_row: dead_letter, dead_letter: {kafka: {brokers: [%[2]s], topic: letters}}, max_batch_delay: 1s}
optimizer: {delay_compensation: {sparse: 0.1}}
ps: {shards: 2, durability: wal}
snapshot: {every: 1s, upload: %[3]q}
metrics: {listen: %[4]q}
outputs:
  - {name: rows, of: rows, to: {jsonl: {dir: %[5]q}}}
  - {name: scores, of: predictions, to: {kafka: {brokers: [%[2]s], topic: scores}}}
`, filepath.Join(dir, "run"), strings.Join(b.Addrs(), ","), "file://"+filepath.Join(dir, "store"), taken.Addr(), filepath.Join(dir, "rows")))
	mine := filepath.Join(dir, "run", "snapshots", "mine")
	if err := os.MkdirAll(filepath.Dir(mine), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	r := tune(t, cfg, job.TuneOptions{Rows: 100, Trials: 4, Dir: filepath.Join(dir, "tune")})
	if r.On != "progressive" || r.Trials < 5 || len(r.Rows) != 2 || r.Rows[1] != 300 {
		t.Errorf("%+v", r)
	}
	if len(r.BadRows) == 0 {
		t.Error("no bad rows were counted")
	}
	if err := os.RemoveAll(filepath.Join(dir, "tune")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, files(t, dir)); diff != "" {
		t.Errorf("other files (-before +after):\n%s", diff)
	}
	if g := b.Cluster.GroupInfo("ours"); g != nil && len(g.Commits) > 0 {
		t.Errorf("the group has offsets %v", g.Commits)
	}
	for _, topic := range []string{"letters", "scores"} {
		if p := b.Cluster.PartitionInfo(topic, 0); p == nil || p.HighWatermark != 0 {
			t.Errorf("topic %s has records: %+v", topic, p)
		}
	}
}

// TestLost: a candidate that cannot be trained is lost, with the reason, and the others are tried. The
// job as it is must train.
func TestLost(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), clicks(t, 1500, 0)
	cfg := load(t, text(filepath.Join(dir, "run"), data, "{fm: {dim: 8}}", ""))
	memory := table.NewMemory(table.MemoryOptions{Limit: 30 << 10, Of: "the test"})
	r := tune(t, cfg, job.TuneOptions{Rows: 1000, Trials: 14, Memory: memory, Dir: filepath.Join(dir, "a")})
	lost := 0
	for _, c := range r.Candidates {
		if c.Lost != "" {
			lost++
			if c.Number == 0 || len(c.Scores) > 0 || !strings.Contains(fmt.Sprint(c.Changes), "dim") {
				t.Errorf("%+v", c)
			}
		}
	}
	if lost == 0 || lost > 7 {
		t.Errorf("%d of %d candidates were lost", lost, len(r.Candidates))
	}
	if !strings.Contains(r.Text, "LOST: ") {
		t.Errorf("the table does not say so:\n%s", r.Text)
	}
	memory = table.NewMemory(table.MemoryOptions{Limit: 100, Of: "the test"})
	if _, err := job.Tune(t.Context(), cfg, job.TuneOptions{Rows: 1000, Memory: memory, Dir: filepath.Join(dir, "b")}); err == nil || !strings.Contains(err.Error(), "the job as it is") {
		t.Errorf("a job that does not fit: %v", err)
	}
}

// TestTimeIsOver: the result is what there is, and a longer limit continues.
func TestTimeIsOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	was := text(filepath.Join(dir, "run"), clicks(t, 3000, 0), "lr", slow)
	r := tune(t, load(t, was), job.TuneOptions{Time: time.Nanosecond})
	if !r.TimedOut || r.Trials != 0 || r.Best != 0 || !strings.HasSuffix(r.Text, "\n"+was) || !strings.Contains(r.Text, "nothing was tried") {
		t.Fatalf("%+v", r)
	}
	if r = tune(t, load(t, was), job.TuneOptions{}); r.TimedOut || r.Best == 0 {
		t.Errorf("%+v", r)
	}
}

// TestKeepsTheJob: where no candidate is better by more than the noise, the job stays what it was.
func TestKeepsTheJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 5))
	var b strings.Builder
	b.WriteString("label,user,item,age\n")
	for range 900 { // nothing is to be learnt
		fmt.Fprintf(&b, "%d,%d,%d,0\n", rng.IntN(2), rng.IntN(300), rng.IntN(300))
	}
	data := filepath.Join(dir, "noise.csv")
	if err := os.WriteFile(data, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	was := text(filepath.Join(dir, "run"), data, "{deepfm: {dim: 8, hidden: [16]}}", "")
	r := tune(t, load(t, was), job.TuneOptions{Trials: 4, Rows: 500, Metric: "auc"})
	if r.Metric != "auc" || r.Lower || float64(r.Noise) <= 0 || r.Best != 0 || r.Near == 0 || r.Gain != 0 {
		t.Errorf("%+v", r)
	}
	if !strings.HasSuffix(r.Text, "\n"+was) || !strings.Contains(r.Text, "no difference: ") {
		t.Errorf("the job was changed:\n%s", r.Text)
	}
}

// TestSpace: what is tried is made of keys that the job's model has, and that a job may have.
func TestSpace(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), clicks(t, 300, 0)
	keys := func(text string, env []string, o job.TuneOptions) (all string) {
		t.Helper()
		cfg, err := job.Decode([]byte(text), "clicks.yaml", job.LoadOptions{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		o.Time, o.Trials, o.Env, o.Dir = time.Nanosecond, 40, env, filepath.Join(t.TempDir(), "tune")
		r, err := job.Tune(t.Context(), cfg, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Notes) > 0 {
			t.Errorf("notes %q", r.Notes)
		}
		for _, c := range r.Candidates {
			for _, ch := range c.Changes {
				all += ch.Key + "=" + ch.Value + "\n"
			}
		}
		return all
	}
	has := func(t *testing.T, got string, want map[string]bool) {
		t.Helper()
		for key, is := range want {
			if strings.Contains(got, key) != is {
				t.Errorf("%s: want %v in\n%s", key, is, got)
			}
		}
	}
	run := filepath.Join(dir, "run")
	t.Run("lr", func(t *testing.T) {
		t.Parallel()
		has(t, keys(text(run, data, "lr", ""), nil, job.TuneOptions{}), map[string]bool{
			"optimizer.bias": true, "model.lr.bias_l2=": true, "train.batch=": true, "dropout": false, "optimizer.sparse": false, "dim": false, "model.fm": false,
		})
	})
	t.Run("deepfm", func(t *testing.T) {
		t.Parallel()
		has(t, keys(text(run, data, "{deepfm: {dim: 8}}", ""), nil, job.TuneOptions{}), map[string]bool{
			"optimizer.sparse": true, "optimizer.dense": true, "initial_accumulator": true, "model.deepfm.dim=16": true, "model.deepfm.dropout=": true, "model.deepfm.embedding_l2=": true,
		})
	})
	t.Run("a rate of the job's own", func(t *testing.T) {
		t.Parallel()
		got := keys(text(run, data, "{fm: {dim: 8}}", "optimizer: {sparse: {sgd: {lr: 7}}}\n"), nil, job.TuneOptions{})
		has(t, got, map[string]bool{"optimizer.sparse.sgd.lr=28": true, "optimizer.sparse={adagrad: {initial_accumulator: ": true, " lr: 0.05}}\n": true, " lr: 0.2}}\n": true})
	})
	t.Run("the environment's", func(t *testing.T) {
		t.Parallel()
		has(t, keys(text(run, data, "{fm: {dim: 8}}", ""), []string{"MONOLITH_TRAIN_BATCH=50", "MONOLITH_MODEL_FM_DIM=6"}, job.TuneOptions{}), map[string]bool{"train.batch": false, "model.fm.dim": false, "optimizer.sparse": true})
	})
	t.Run("other models", func(t *testing.T) {
		t.Parallel()
		has(t, keys(text(run, data, "{fm: {dim: 8}}", ""), nil, job.TuneOptions{Models: []string{"lr", "dcnv2"}}), map[string]bool{
			"model=lr\n": true, "model=dcnv2\n": true, "model={dcnv2: {": true, "model.fm.dim": true, "model.dcnv2": false,
		})
	})
}

func TestTuneErrors(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), clicks(t, 60, 0)
	run := filepath.Join(dir, "run")
	ok := text(run, data, "lr", "")
	for _, tc := range []struct {
		name, want string
		cfg        *job.Config
		o          job.TuneOptions
	}{
		{"time", "time limit is -1s", load(t, ok), job.TuneOptions{Time: -time.Second}},
		{"trials", "1 trials", load(t, ok), job.TuneOptions{Trials: 1}},
		{"rows", "-5 rows", load(t, ok), job.TuneOptions{Rows: -5}},
		{"model", `did you mean "deepfm"`, load(t, ok), job.TuneOptions{Models: []string{"deefm"}}},
		{"metric", `did you mean "auc"`, load(t, ok), job.TuneOptions{Metric: "acu"}},
		{"dir of the job", "is in the job's dir", load(t, ok), job.TuneOptions{Dir: filepath.Join(run, "tune")}},
		{"dir of the data", "--dir", load(t, ok), job.TuneOptions{Dir: filepath.Dir(data)}},
		{"made in Go", "load it from one", job.Default(), job.TuneOptions{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := job.Tune(t.Context(), tc.cfg, tc.o)
			if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
