package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

type heldRow struct {
	N     int64 `parquet:"n" json:"n"`
	User  int64 `parquet:"user" json:"user"`
	Item  int64 `parquet:"item" json:"item"`
	Click int64 `parquet:"click" json:"click"`
}

const dividedRows, dividedUsers = 900, 90

// holdoutFiles writes the same rows as csv, JSON lines and Parquet, in two files each.
func holdoutFiles(t *testing.T, dir string) {
	t.Helper()
	for part := range 2 {
		var csv, lines strings.Builder
		var rows []heldRow
		csv.WriteString("n,user,item,click\n")
		for n := part * dividedRows / 2; n < (part+1)*dividedRows/2; n++ {
			r := heldRow{int64(n), int64(n * 7 % dividedUsers), int64(n % 13), int64(n * n % 7 % 2)}
			rows = append(rows, r)
			fmt.Fprintf(&csv, "%d,%d,%d,%d\n", r.N, r.User, r.Item, r.Click)
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			lines.Write(append(b, '\n'))
		}
		err := errors.Join(
			os.WriteFile(filepath.Join(dir, fmt.Sprintf("r%d.csv", part)), []byte(csv.String()), 0o600),
			os.WriteFile(filepath.Join(dir, fmt.Sprintf("r%d.jsonl", part)), []byte(lines.String()), 0o600),
			parquet.WriteFile(filepath.Join(dir, fmt.Sprintf("r%d.parquet", part)), rows, parquet.MaxRowsPerRowGroup(100)),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// holdoutJob trains on the rows of a format and writes those that it trains on, and those that are evaluated, beside.
func holdoutJob(t *testing.T, dir, run, kind, holdout string, set ...string) *job.Config {
	t.Helper()
	source := map[string]string{"csv": "text", "jsonl": "text", "parquet": "parquet"}[kind]
	parse := map[string]string{"csv": "format: csv, header: true, ", "jsonl": "format: jsonl, "}[kind]
	text := fmt.Sprintf(`
version: 1
name: held
dir: %[1]q
source: {%[2]s: {files: [%[3]q]}}
epochs: 2
shuffle: {rows: 200}
parse: {%[4]sfeatures: [{name: n, kind: dense, standardise: running}, {name: user}, {name: item}], label: click}
model: {fm: {dim: 2}}
train: {batch: 16}
snapshot: {every: 0s}
outputs: [{name: trained, of: rows, to: {jsonl: {dir: %[5]q}}}]
eval:
  holdout: %[6]s
  metrics: [auc, log_loss]
  outputs: [{name: evaluated, of: rows, to: {jsonl: {dir: %[7]q}}}]
`, filepath.Join(dir, run), source, filepath.Join(dir, "*."+kind), parse, filepath.Join(dir, run+"-trained"), holdout, filepath.Join(dir, run+"-evaluated"))
	return decode(t, text, job.LoadOptions{Set: set})
}

// numbersIn counts how often each row is in a folder of JSON lines.
func numbersIn(t *testing.T, dir string) map[int64]int {
	t.Helper()
	out := map[int64]int{}
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl*"))
	if err == nil && len(paths) == 0 { // an evaluation's are in a folder of their own
		paths, err = filepath.Glob(filepath.Join(dir, "*", "*.jsonl*"))
	}
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has no rows: %v", dir, err)
	}
	eachLine(t, paths, func(row struct{ N float64 }) { out[int64(math.Round(row.N))]++ })
	return out
}

// TestHoldout: whatever format, workers, files' names and interruptions, training sees the rows that are not held out, each once in an epoch, and evaluation the
// others; by a column the same ones in every format.
func TestHoldout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	elsewhere := t.TempDir()
	for part := range 2 { // other names, in another order
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("r%d.csv", part)))
		if err == nil {
			err = os.WriteFile(filepath.Join(elsewhere, fmt.Sprintf("x%d.csv", 1-part)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all := map[string][]int64{} // what is held out, by the holdout
	for i, tt := range []struct {
		dir, kind, holdout string
		stops              bool
		set                []string
	}{
		{dir: dir, kind: "csv", holdout: "{by: user, share: .2}"},
		{dir: dir, kind: "csv", holdout: "{by: user, share: .2}", set: []string{"train.workers=3"}},
		{dir: dir, kind: "csv", holdout: "{by: user, share: .2}", stops: true},
		{dir: elsewhere, kind: "csv", holdout: "{by: user, share: .2}", set: []string{"seed=9"}},
		{dir: dir, kind: "jsonl", holdout: "{by: user, share: .2}"},
		{dir: dir, kind: "parquet", holdout: "{by: user, share: .2}", set: []string{"train.workers=2"}},
		{dir: dir, kind: "csv", holdout: ".1"},
		{dir: elsewhere, kind: "csv", holdout: ".1", stops: true, set: []string{"shuffle.rows=0"}},
		{dir: dir, kind: "parquet", holdout: "{share: .15}"},
		{dir: dir, kind: "parquet", holdout: "{share: .15}", stops: true, set: []string{"eval.group=user"}},
		{dir: dir, kind: "parquet", holdout: "{by: n, from: 800}"},
		{dir: dir, kind: "jsonl", holdout: "{by: n, from: 800}"},
		{dir: dir, kind: "csv", holdout: "{by: n, from: 450}", set: []string{"train.workers=2"}}, // the whole of the second file
		{dir: dir, kind: "csv", holdout: "{by: n, from: 450}", stops: true, set: []string{"shuffle.rows=0"}},
		{dir: dir, kind: "parquet", holdout: "{by: n, from: 450}", stops: true},
	} {
		run := fmt.Sprint("run", i)
		cfg := func(set ...string) *job.Config {
			return holdoutJob(t, tt.dir, run, tt.kind, tt.holdout, append(slices.Clone(tt.set), set...)...)
		}
		before := int64(0) // passed over
		if tt.stops {
			r, err := job.Run(t.Context(), cfg("train.max_examples=333"), job.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			before = r.HeldOut
		}
		trained, err := job.Run(t.Context(), cfg(), job.RunOptions{})
		if err != nil {
			t.Fatalf("%v: %v", tt, err)
		}
		evaluated, err := job.Evaluate(t.Context(), cfg(), job.EvalOptions{})
		if err != nil {
			t.Fatalf("%v: %v", tt, err)
		}
		rest, held := numbersIn(t, filepath.Join(tt.dir, run+"-trained")), numbersIn(t, filepath.Join(tt.dir, run+"-evaluated"))
		for n := range int64(dividedRows) {
			if rest[n] != 2*(1-held[n]) || held[n] > 1 {
				t.Fatalf("%v: row %d was trained on %d times and evaluated %d times, in 2 epochs", tt, n, rest[n], held[n])
			}
		}
		if before+trained.HeldOut != int64(2*len(held)) {
			t.Errorf("%v: %d and %d examples passed over, of %d in each of 2 epochs", tt, before, trained.HeldOut, len(held))
		}
		if again, err := job.Run(t.Context(), cfg(), job.RunOptions{}); err != nil || again.HeldOut != 0 || again.Examples != 0 {
			t.Errorf("%v: when there is nothing left %d examples were passed over and %d trained on: %v", tt, again.HeldOut, again.Examples, err)
		}
		if int(evaluated.Examples) != len(held) || len(held) < dividedRows/20 || len(held) > dividedRows/2 {
			t.Errorf("%v: %d of %d rows are held out, %d evaluated", tt, len(held), dividedRows, evaluated.Examples)
		}
		if auc, ok := trained.Metrics["auc"]; !ok || auc != evaluated.Metrics["auc"] {
			t.Errorf("%v: training ends with an auc of %v, the evaluation says %v", tt, auc, evaluated.Metrics["auc"])
		}
		numbers := slices.Sorted(maps.Keys(held))
		if want, ok := all[tt.holdout]; ok {
			if diff := cmp.Diff(want, numbers); diff != "" {
				t.Errorf("%v: other rows are held out:\n%s", tt, diff)
			}
		}
		all[tt.holdout] = numbers
	}
	if want := all["{by: n, from: 800}"]; want[0] != 800 || len(want) != 100 {
		t.Errorf("from 800 on %v are held out", want)
	}
}

// TestHoldoutIsRemembered: a snapshot is neither evaluated nor trained further with another holdout, and predictions are of all examples, or of those of evaluation.
func TestHoldoutIsRemembered(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"csv", "parquet"} {
		dir := t.TempDir()
		holdoutFiles(t, dir)
		cfg := func(holdout string, set ...string) *job.Config {
			return holdoutJob(t, dir, "run", kind, holdout, set...)
		}
		if _, err := job.Run(t.Context(), cfg(".2"), job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		for what, do := range map[string]func(context.Context, *job.Config) error{
			"train": func(ctx context.Context, c *job.Config) error {
				_, err := job.Run(ctx, c, job.RunOptions{})
				return err
			},
			"eval": func(ctx context.Context, c *job.Config) error {
				_, err := job.Evaluate(ctx, c, job.EvalOptions{})
				return err
			},
		} {
			err := do(t.Context(), cfg("{by: user, share: .2}"))
			if want := `eval.holdout: by was not set, is "user"`; !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s by another holdout: %v, want %s", what, err, want)
			}
		}
		if _, err := job.Evaluate(t.Context(), cfg(".2"), job.EvalOptions{}); err != nil {
			t.Fatal(err)
		}
		from := filepath.Join(dir, "run", "snapshots", "snap-00000002")
		for _, do := range []func(c *job.Config) error{
			func(c *job.Config) error { _, err := job.Run(t.Context(), c, job.RunOptions{}); return err },
			func(c *job.Config) error {
				findings, err := job.Check(t.Context(), c)
				for _, f := range findings {
					err = errors.Join(err, errors.New(f.Message))
				}
				return err
			},
		} {
			err := do(cfg("{by: user, share: .2}", "dir="+filepath.Join(dir, "young"), "restore.from="+from))
			for _, want := range []string{"snapshot " + from + ", which restore.from names,", `eval.holdout: by was not set, is "user"`, "set these to what they were; or name another snapshot in restore.from, or leave it out"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("restore.from of another holdout: %v, want %s", err, want)
				}
			}
			if strings.Contains(fmt.Sprint(err), "another dir") {
				t.Errorf("restore.from of another holdout: %v", err)
			}
		}
		held := numbersIn(t, filepath.Join(dir, "run-evaluated"))
		for examples, want := range map[string]int{"": dividedRows, job.EvalExamples: len(held)} {
			to := filepath.Join(dir, "scores"+examples)
			r, err := job.Predict(t.Context(), cfg(".2", "predict.to={jsonl: {dir: "+to+"}}", "predict.fields=[n, prediction]"), job.PredictOptions{Examples: examples})
			if err != nil || int(r.Rows) != want {
				t.Fatalf("examples %q: %+v, %v; want %d", examples, r, err, want)
			}
		}
	}
}

// TestHoldoutMovesOn: a run begins with a model that has seen nothing of what is held out now, which may be less than was then and never something else; training
// that continues in its own dir has the holdout that it began with.
func TestHoldoutMovesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	for i, tt := range []struct {
		was, is string
		may     bool
	}{
		{"{by: n, from: 600}", "{by: n, from: 700}", true},
		{"{by: n, from: 600}", "{by: n, from: 1e3}", true}, // numbers: as texts the other way round
		{"{by: n, from: 600}", "{by: n, from: 600}", true},
		{"{by: n, from: 600}", "{by: n, from: 599}", false},
		{"{by: n, from: 600}", "{by: n, from: 60 o'clock}", false}, // a text
		{"{by: n, from: 600}", "{by: item, from: 700}", false},
		{"{by: n, from: 600}", "{by: n, share: .01}", false},
		{"{by: n, from: 4x}", "{by: n, from: 5x}", true},
		{"{by: n, from: 4x}", "{by: n, from: 3x}", false},
		{"{by: user, share: .3}", "{by: user, share: .2}", true},
		{"{by: user, share: .3}", "{by: user, share: .4}", false},
		{"{by: user, share: .3}", "{by: item, share: .2}", false},
		{".3", ".2", false}, // of whole records nobody knows what is hashed
		{".3", "", true},
	} {
		cfg := func(run, holdout string, set ...string) *job.Config {
			if holdout == "" {
				holdout, set = ".1", append(set, "eval={}")
			}
			return holdoutJob(t, dir, run, "csv", holdout, append(set, "outputs=[]", "epochs=1")...)
		}
		old := fmt.Sprint("old", i)
		if _, err := job.Run(t.Context(), cfg(old, tt.was), job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		from := cfg(fmt.Sprint("new", i), tt.is, "restore.from="+filepath.Join(dir, old))
		found, err := job.Check(t.Context(), from)
		if err != nil || (len(found) == 0) != tt.may {
			t.Errorf("%s after %s: check: %+v, %v", tt.is, tt.was, found, err)
		}
		r, err := job.Run(t.Context(), from, job.RunOptions{})
		if (err == nil) != tt.may || err != nil && (!errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "eval.holdout: ")) || err == nil && r.Examples == 0 {
			t.Errorf("%s after %s: %+v, %v", tt.is, tt.was, r, err)
		}
		if tt.is == tt.was {
			continue
		}
		if _, err := job.Run(t.Context(), cfg(old, tt.is), job.RunOptions{}); !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("%s in the dir of %s: %v", tt.is, tt.was, err)
		}
		if found, err := job.Check(t.Context(), cfg(old, tt.is)); err != nil || len(found) != 1 || found[0].Path != "dir" {
			t.Errorf("%s in the dir of %s: check: %+v, %v", tt.is, tt.was, found, err)
		}
		if tt.is == "" {
			continue
		}
		if _, err := job.Evaluate(t.Context(), cfg(old, tt.is), job.EvalOptions{}); tt.may && err != nil && !strings.Contains(err.Error(), "holds out no example") || !tt.may && !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("%s is evaluated after %s: %v", tt.is, tt.was, err)
		}
	}
}

// TestHoldoutComparesSameRows: another job is measured on the rows that the evaluated one holds out, and it is said when it has others of its own.
func TestHoldoutComparesSameRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	cfg, other := holdoutJob(t, dir, "a", "csv", ".2"), holdoutJob(t, dir, "b", "jsonl", "{by: user, share: .1}")
	for _, c := range []*job.Config{cfg, other} {
		if _, err := job.Run(t.Context(), c, job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var notices []string
	r, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{
		Compare: &job.CompareWith{Config: other}, Options: job.RunOptions{Notice: func(text string) { notices = append(notices, text) }},
	})
	if err != nil || r.Examples < dividedRows/10 {
		t.Fatalf("%+v, %v", r, err)
	}
	if !strings.Contains(strings.Join(notices, "\n"), "holds out other examples") {
		t.Errorf("notices %q", notices)
	}
}

// TestHoldoutOfNothing: where nothing is held out training says so and continues, and an evaluation fails.
func TestHoldoutOfNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	cfg := holdoutJob(t, dir, "run", "csv", "{by: n, from: 10000}")
	var notices []string
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{Notice: func(text string) { notices = append(notices, text) }}); err != nil {
		t.Fatal(err)
	}
	_, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{})
	const want = "eval.holdout holds out no example"
	if !strings.Contains(strings.Join(notices, "\n"), want) || !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
		t.Errorf("notices %q, %v", notices, err)
	}
}

// TestHoldoutOfEverything: training that is left nothing fails and stores nothing, so that it can be done with another holdout in the same dir.
func TestHoldoutOfEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	const want = "eval.holdout holds out every example (900 were read) and leaves none to train on"
	for range 2 { // the second time too
		if _, err := job.Run(t.Context(), holdoutJob(t, dir, "run", "csv", "{by: n, from: 0}", "outputs=[]"), job.RunOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	r, err := job.Run(t.Context(), holdoutJob(t, dir, "run", "csv", "{by: n, from: 600}", "outputs=[]"), job.RunOptions{})
	if err != nil || r.Examples != 1200 {
		t.Errorf("with another holdout: %+v, %v", r, err)
	}
}

// TestHoldoutOfTheWrongOnes: what holds out nothing says which column and value it went by, in training and in evaluation.
func TestHoldoutOfTheWrongOnes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	for i, tt := range []struct{ kind, holdout, train, eval string }{
		{"jsonl", "{by: usr, share: .5}", `see whether records have a value of "usr"`, `see whether records have a value of "usr"`},
		{"csv", "{by: n, from: 10000}", `no record has a value of "n" that is 10000 or above`, `no record has a value of "n" that is 10000 or above`},
		{"csv", "{by: n, from: a}", "otherwise as text, byte by byte", "otherwise as text, byte by byte"},
	} {
		cfg := holdoutJob(t, dir, fmt.Sprint("run", i), tt.kind, tt.holdout, "outputs=[]")
		var notices []string
		if _, err := job.Run(t.Context(), cfg, job.RunOptions{Notice: func(text string) { notices = append(notices, text) }}); err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(notices, "\n"); !strings.Contains(said, tt.train) || strings.Contains(said, "had no examples") {
			t.Errorf("%s: notices %q, want %s", tt.holdout, notices, tt.train)
		}
		if _, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{}); (err != nil) != (tt.eval != "") || err != nil && (!errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), tt.eval)) {
			t.Errorf("%s: %v, want %s", tt.holdout, err, tt.eval)
		}
	}
}

// TestHoldoutFaults: what a job says of its holdout is checked before anything is read.
func TestHoldoutFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	for holdout, want := range map[string]string{
		"{by: user}":                     "share: is missing",
		"{from: 3}":                      "by: is missing",
		"{by: n, from: 3, share: .1}":    "one of them decides",
		"1.5":                            "eval.holdout.share",
		"{by: user, share: .1, fold: 1}": "fold",
	} {
		text := fmt.Sprintf("version: 1\nsource: {text: {files: [%q]}}\nparse: {format: csv, columns: [n, user, item, click], features: [{name: user}], label: click}\nmodel: lr\neval: {holdout: %s}\n", filepath.Join(dir, "*.csv"), holdout)
		if _, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", holdout, err, want)
		}
		for _, more := range []string{"eval.source={text: {files: [x]}}", "eval.format=csv"} {
			if _, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Set: []string{"eval.holdout=.1", more}}); err == nil || !strings.Contains(err.Error(), "eval.") {
				t.Errorf("%s: %v", more, err)
			}
		}
		if _, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Set: []string{"eval.holdout={by: usr, share: .1}"}}); err == nil || !strings.Contains(err.Error(), `"usr", which is no column`) {
			t.Errorf("by a column that is not there: %v", err)
		}
	}
}
